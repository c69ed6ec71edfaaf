//! Every mistake in the file is told with its line, its key and what to do.

use super::check::check;
use super::*;
use noctule::SecretKey;

fn key(n: u8) -> String {
    SecretKey::from_bytes([n; 32]).public().to_string()
}

/// A valid file with two neighbours, a remote node, routes and a tunnel.
fn right() -> String {
    let (hill, mast, valley) = (key(2), key(3), key(4));
    format!(
        r#"[node]
name = "home"
key = "key"
listen = "[::]:4242"
addresses = ["10.9.0.1", "fd09::1"]
relay = true
congestion = "cubic"

[[neighbour]]
name = "hill"
key = "{hill}"
endpoint = "hill.example.org"
addresses = ["10.9.0.2"]
prefixes = ["192.168.2.0/24"]

[[neighbour]]
name = "mast"
key = "{mast}"
addresses = ["10.9.0.3"]
next-hops = ["fe80::3"]

[[remote]]
name = "valley"
key = "{valley}"
addresses = ["10.9.0.4"]
prefixes = ["192.168.4.0/24", "fd09:4::/64"]
mtu = 1300

[[route]]
to = "10.9.0.4"
via = "hill"

[[route]]
to = "10.9.0.4"
via = "mast"
metric = 10

[tun]
name = "noctule7"
mtu = 1340
addresses = ["10.9.0.1/24", "fd09::1/64"]
tcp-lifetime = "3s"

[limits]
memory = "256MiB"

[control]
socket = "node.sock"

[metrics]
names = ["node1.example"]
"#
    )
}

fn read(content: &str) -> Result<Config, Complaints> {
    check(Path::new("/etc/noctule/node.toml"), content)
}

/// The complaints about the valid file with one text replaced by another.
fn complaints(from: &str, to: &str) -> Vec<String> {
    let right = right();
    assert!(right.contains(from), "{from} is in the file");
    let error = read(&right.replacen(from, to, 1)).expect_err("something is wrong");
    error.to_string().lines().map(|l| l.trim().to_owned()).collect()
}

#[test]
fn a_right_file_means_what_it_says() {
    let config = read(&right()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.name.as_str(), config.key.as_path()), ("home", Path::new("/etc/noctule/key")));
    assert_eq!(config.control, Path::new("/etc/noctule/node.sock"));
    assert_eq!(config.metrics.as_ref().map(|m| m.listen), Some("127.0.0.1:9494".parse().unwrap()));
    assert_eq!(config.congestion, CongestionControl::Cubic);
    assert_eq!((config.limits.memory, config.limits.flow_memory), (256 << 20, 128 << 20));
    let names: Vec<_> = config.nodes.iter().map(|n| (n.name.as_str(), n.link.is_some(), n.mtu)).collect();
    assert_eq!(names, [("hill", true, None), ("mast", true, None), ("valley", false, Some(1300))]);
    let endpoints: Vec<_> = config.neighbours().map(|(_, l)| l.endpoint.as_deref()).collect();
    assert_eq!(endpoints, [Some("hill.example.org:4242"), None]);
    let routes: Vec<_> = config.routes.iter().map(|r| (r.to.to_string(), r.metric)).collect();
    assert_eq!(routes, [("10.9.0.4/32".to_owned(), 0), ("10.9.0.4/32".to_owned(), 10)]);
    let tun = config.tun.expect("a tunnel");
    assert_eq!((tun.name.as_str(), tun.mtu, tun.install_routes), ("noctule7", 1340, true));
    assert_eq!(tun.treatment.tcp_lifetime, Duration::from_secs(3));
}

#[test]
fn a_node_answers_those_that_know_its_key_unless_its_file_says_otherwise() {
    for (line, expected) in [("", Answer::Known), ("answer = \"known\"", Answer::Known), ("answer = \"anyone\"", Answer::Anyone)] {
        let config = read(&right().replace("relay = true", &format!("relay = true\n{line}"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.answer, expected);
    }
}

#[test]
fn the_smallest_file_is_a_node_without_neighbours() {
    let config = read("[node]\nkey = \"key\"\n").unwrap();
    assert_eq!((config.listen, config.relay, config.nodes.len(), config.tun.is_none(), config.metrics), (Vec::new(), false, 0, true, None));
}

#[test]
fn each_mistake_names_file_line_and_key_and_what_to_do() {
    for (from, to, expected) in [
        ("relay = true", "rely = true", "node.toml:6: unknown field `rely`"),
        ("relay = true", "relay = 1", "node.toml:6: invalid type: integer `1`, expected a boolean"),
        ("relay = true", "relay =", "node.toml:6: "),
        (
            "relay = true",
            "answer = \"nobody\"",
            "node.toml:6: [node] answer: \"nobody\" is neither \"known\" (those that know this node's public key) nor \"anyone\"",
        ),
        ("[::]:4242", "hill", "node.toml:4: [node] listen: \"hill\" is no address"),
        ("\"[::]:4242\"", "[]", "node.toml:4: [node] listen: an empty list is no place to listen"),
        ("\"[::]:4242\"", "4242", "node.toml:4: invalid type: integer `4242`, expected a text or a list of texts"),
        (
            "\"[::]:4242\"",
            "[\"[::]:4242\", \"192.0.2.1:4242\"]",
            "node.toml:4: [node] listen: :: is every address of this host already: write it alone",
        ),
        (
            "\"[::]:4242\"",
            "[\"192.0.2.1:4242\", \"192.0.2.1:443\"]",
            "node.toml:4: [node] listen: 192.0.2.1:443 beside 192.0.2.1:4242: each address once",
        ),
        ("\"[::]:4242\"", "[\"192.0.2.1:4242\",\n\"192.0.2.2:\"]", "node.toml:5: [node] listen: \"192.0.2.2:\" ends in a colon"),
        ("\"fd09::1\"]\nrelay", "\"fd09::1/64\"]\nrelay", "node.toml:5: [node] addresses: \"fd09::1/64\" is not the address of a node"),
        ("congestion = \"cubic\"", "congestion = \"qubic\"", "node.toml:7: [node] congestion: unknown congestion control \"qubic\""),
        (
            "endpoint = \"hill.example.org\"",
            "endpoint = \"hill:port\"",
            "node.toml:12: [[neighbour]] \"hill\" endpoint: \"port\" in \"hill:port\" is no port",
        ),
        ("\"hill.example.org\"", "\"10.9.0.2:99\"", "[[neighbour]] \"hill\" endpoint: 10.9.0.2 is the address of \"hill\" in the overlay"),
        ("\"10.9.0.3\"]", "\"10.9.0.2\"]", "[[neighbour]] \"mast\" addresses: 10.9.0.2 belongs to \"hill\" already"),
        ("\"10.9.0.2\"]", "\"10.9.0.1\"]", "node.toml:13: [[neighbour]] \"hill\" addresses: 10.9.0.1 belongs to this node"),
        ("name = \"mast\"", "name = \"hill\"", "node.toml:17: [[neighbour]] \"hill\": the name is taken by the node in line 10"),
        ("192.168.4.0/24", "192.168.2.0/24", "prefixes: 192.168.2.0/24 lies behind \"hill\" already"),
        ("192.168.2.0/24", "192.168.2.1/24", "did you mean 192.168.2.0/24 or 192.168.2.1/32?"),
        ("192.168.2.0/24", "192.168.2.0/33", "node.toml:14: [[neighbour]] \"hill\" prefixes: \"192.168.2.0/33\" is not a prefix"),
        ("via = \"mast\"", "via = \"must\"", "[[route]] via: there is no neighbour \"must\"; those of this file: hill, mast"),
        ("via = \"mast\"", "via = \"valley\"", "[[route]] via: \"valley\" is a [[remote]], which is reached over others itself"),
        ("via = \"mast\"", "via = \"hill\"", "[[route]] to: there is a route to 10.9.0.4/32 via \"hill\" already"),
        (
            "to = \"10.9.0.4\"",
            "to = \"10.9.0.1\"",
            "[[route]] to: 10.9.0.1 is this node's own address: a route to it over a neighbour would loop",
        ),
        ("addresses = [\"10.9.0.4\"]\n", "", "[[remote]] \"valley\": a node that is reached over others needs addresses"),
        ("mtu = 1340", "mtu = 400", "[tun] mtu: 400 bytes are out of range: 576 to 9000"),
        ("mtu = 1340", "mtu = 1000", "[tun] addresses: IPv6 needs an MTU of 1280 bytes at least"),
        ("noctule7", "a/b", "[tun] name: \"a/b\" is no device name"),
        ("\"10.9.0.1/24\"", "\"10.9.0.1\"", "[tun] addresses: \"10.9.0.1\" is not an address with its prefix length"),
        ("tcp-lifetime = \"3s\"", "tcp-lifetime = \"3 apples\"", "[tun] tcp-lifetime: \"3 apples\": write a time as 60ms"),
        ("tcp-lifetime = \"3s\"", "tcp-lifetime = \"0s\"", "[tun] tcp-lifetime: a time above zero is needed"),
        ("256MiB", "256", "[limits] memory: \"256\" is not a size of at least 1 MiB"),
        ("256MiB", "64MiB\"\nflow-memory = \"65MiB", "[limits] flow-memory: one flow may not have more than all together"),
    ] {
        let found = complaints(from, to);
        assert!(found.iter().any(|c| c.starts_with("/etc/noctule/node.toml:") && c.contains(expected)), "{from:?} -> {to:?}: {found:#?}");
    }
}

/// The valid file with streams in one direction: one to a node, one from that node and another, and one between other nodes.
fn with_one_ways() -> String {
    let sat = key(5);
    right().replace(
        "[tun]",
        &format!(
            r#"[[remote]]
name = "sat"
key = "{sat}"
addresses = ["10.9.0.5"]
[[one-way]]
to = "sat"
endpoint = "198.51.100.1:4243"
rate = "20mbit"
loss = ["5%", "0.5%"]
[[one-way]]
from = ["sat", "hill"]
listen = "0.0.0.0:4243"
[[one-way]]
listen = "192.0.2.1:4244"
endpoint = "192.0.2.2:4244"
rate = "2mbit"
loss = "10%"
sources = ["198.51.100.0/24", "2001:db8::1"]
for = ["sat", "{}"]
symbol = 1200
[tun]"#,
            key(6)
        ),
    )
}

#[test]
fn streams_in_one_direction_mean_what_they_say() {
    let config = read(&with_one_ways()).unwrap_or_else(|e| panic!("{e}"));
    let [OneWay::To(to), OneWay::From(from), OneWay::Relay(relay)] = &config.one_ways[..] else { panic!("{:?}", config.one_ways) };
    assert_eq!((to.name.as_str(), to.endpoint, to.rate.mbit()), ("sat", "198.51.100.1:4243".parse().unwrap(), 20.0));
    assert_eq!((to.delay, to.shape.max_message(), to.psk.is_none()), (Duration::from_millis(100), 1340, true));
    assert!((1.15..1.7).contains(&to.plan.redundancy(&to.shape)), "{}", to.plan.redundancy(&to.shape));
    let names: Vec<_> = from.senders.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, from.listen), (vec!["sat", "hill"], "0.0.0.0:4243".parse().unwrap()));
    assert_eq!((relay.rate.mbit(), relay.loss.get()), (2.0, 0.1));
    let sources: Vec<_> = relay.sources.iter().map(ToString::to_string).collect();
    let destinations: Vec<_> = relay.destinations.iter().map(ToString::to_string).collect();
    assert_eq!((sources, destinations), (vec!["198.51.100.0/24".to_owned(), "2001:db8::1/128".to_owned()], vec![key(5), key(6)]));
    assert_eq!((relay.symbol, relay.memory, from.sources.len()), (1200, 64 << 20, 0));
    assert_eq!(config.state, Path::new("/var/lib/noctule/one-way"));
    let sat = config.nodes.iter().find(|n| n.name == "sat").unwrap();
    assert!(config.is_one_way_only(sat), "no route leads to it, and none is asked for");
}

#[test]
fn mistakes_about_streams_in_one_direction_are_told_with_line_and_key() {
    let right = with_one_ways();
    let line = |of: &str| 1 + right[..right.find(of).unwrap()].matches('\n').count();
    let to = line("to = \"sat\"");
    for (from, with, at, expected) in [
        ("rate = \"20mbit\"", "rate = \"0mbit\"", to + 2, "[[one-way]] rate: \"0mbit\": a rate must be above zero"),
        ("rate = \"20mbit\"", "rate = \"fast\"", to + 2, "[[one-way]] rate: "),
        ("rate = \"20mbit\"\n", "", to, "[[one-way]]: rate is needed, for instance rate = \"20mbit\": nothing comes back"),
        (
            "loss = [\"5%\", \"0.5%\"]",
            "loss = \"100%\"",
            to + 3,
            "[[one-way]] loss: \"100%\": write a loss as 5% or 0.5%; at 100% nothing arrives",
        ),
        ("loss = [\"5%\", \"0.5%\"]", "loss = \"99.9%\"", to + 3, "[[one-way]] loss: over links that lose so much nothing arrives"),
        ("loss = [\"5%\", \"0.5%\"]", "loss = 1.0", to + 3, "invalid type: floating point `1.0`, expected a text or a list of texts"),
        ("loss = [\"5%\", \"0.5%\"]", "loss = [\"5%\", \"x\"]", to + 3, "[[one-way]] loss: \"x\": write a loss as"),
        ("loss = [\"5%\", \"0.5%\"]", "loss = []", to + 3, "[[one-way]] loss: an empty list is no route"),
        ("loss = [\"5%\", \"0.5%\"]\n", "", to, "[[one-way]]: loss is needed"),
        ("loss = [\"5%\", \"0.5%\"]", "loss = \"5%\"\ndelay = \"1ms\"", to + 4, "[[one-way]] delay: out of range: 10ms to 10s"),
        ("loss = [\"5%\", \"0.5%\"]", "loss = \"5%\"\npsk = \"nowhere\"", to + 4, "[[one-way]] psk: "),
        ("loss = [\"5%\", \"0.5%\"]", "loss = \"5%\"\nlos = 1", to + 4, "unknown field `los`"),
        (
            "to = \"sat\"",
            "to = \"sad\"",
            to,
            "[[one-way]] to: there is no node \"sad\": add a [[remote]] with its key and addresses; those of this file: hill, mast, valley, sat",
        ),
        ("to = \"sat\"", "to = \"sat\"\nfrom = \"sat\"", to, "[[one-way]]: to and from: a stream goes one way"),
        ("to = \"sat\"", "to = \"sat\"\nlisten = \"0.0.0.0:9\"", to + 1, "[[one-way]] listen: a stream to another node listens to nobody"),
        ("198.51.100.1:4243", "sat.example.org:4243", to + 1, "[[one-way]] endpoint: \"sat.example.org:4243\" is no place to send to"),
        (
            "198.51.100.1:4243",
            "192.168.2.9:4243",
            to + 1,
            "[[one-way]] endpoint: 192.168.2.9 lies behind \"hill\", so the tunnel would carry",
        ),
        (
            "198.51.100.1:4243",
            "10.9.0.99:4243",
            to + 1,
            "[[one-way]] endpoint: 10.9.0.99 lies in the network of [tun], so the tunnel would carry",
        ),
        ("\"hill\"]\nlisten", "\"sat\"]\nlisten", to + 5, "[[one-way]] from: \"sat\" stands here twice"),
        ("[\"sat\", \"hill\"]", "[]", to + 5, "[[one-way]] from: an empty list is nobody"),
        ("0.0.0.0:4243", "0.0.0.0:4242", to + 6, "[[one-way]] listen: 0.0.0.0:4242 is taken by [node] listen ([::]:4242)"),
        ("0.0.0.0:4243", "0.0.0.0:0", to + 6, "[[one-way]] listen: a port is needed"),
        ("192.0.2.1:4244", "192.0.2.1:4243", to + 8, "[[one-way]] listen: 192.0.2.1:4243 is taken by another [[one-way]] (0.0.0.0:4243)"),
        (
            "192.0.2.2:4244",
            "192.0.2.1:4244",
            to + 9,
            "[[one-way]] endpoint: leads back to 192.0.2.1:4244 of this entry: datagrams would go in a circle",
        ),
        ("loss = \"10%\"", "loss = [\"10%\", \"1%\"]", to + 11, "[[one-way]] loss: a relay needs the loss of its own next link only"),
        ("loss = \"10%\"", "loss = \"10%\"\ndelay = \"1s\"", to + 12, "[[one-way]] delay: the sender decides"),
        ("\"2001:db8::1\"]", "\"here\"]", to + 12, "[[one-way]] sources: \"here\" is not a prefix"),
        ("for = [\"sat\"", "for = [\"sad\"", to + 13, "[[one-way]] for: there is no node \"sad\""),
        ("symbol = 1200", "symbol = 12", to + 14, "[[one-way]] symbol: 12 bytes are out of range: 64 to 65400"),
        (
            "from = [\"sat\", \"hill\"]",
            "from = [\"sat\", \"hill\"]\nsymbol = 99",
            to + 6,
            "[[one-way]] symbol: it is for entries that pass",
        ),
        ("listen = \"192.0.2.1:4244\"\n", "", to + 7, "[[one-way]]: listen is needed: name to for a stream to a node, from for"),
    ] {
        assert!(right.contains(from), "{from} is in the file");
        let found = read(&right.replacen(from, with, 1)).expect_err(with).to_string();
        let expected = format!("node.toml:{at}: {expected}");
        assert!(found.contains(&expected), "{from:?} -> {with:?}: not {expected}, but {found}");
    }
    // Two entries that pass to each other, and a stream without a device.
    let circle = "[[one-way]]\nlisten = \"192.0.2.2:4244\"\nendpoint = \"192.0.2.1:4244\"\nrate = \"2mbit\"\nloss = \"1%\"\n[tun]";
    let found = read(&right.replace("[tun]", circle)).expect_err("a circle").to_string();
    assert!(found.contains("leads back to 192.0.2.1:4244 of this entry") && found.contains("leads back to 192.0.2.2:4244"), "{found}");
    let again = "[[one-way]]\nto = \"sat\"\nendpoint = \"198.51.100.2:1\"\nrate = \"2mbit\"\nloss = \"1%\"\n[tun]";
    let found = read(&right.replace("[tun]", again)).expect_err("two streams").to_string();
    assert!(found.contains("[[one-way]] to: there is a stream to \"sat\" already"), "{found}");
    let without = right[..right.find("[tun]").unwrap()].to_owned();
    let found = read(&without).expect_err("no device").to_string();
    assert!(
        found.contains("there is no [tun] whose packets the stream could carry") && found.contains("no [tun] that could take"),
        "{found}"
    );
}

#[test]
fn a_node_may_listen_on_several_addresses_and_share_a_key_with_one_neighbour() {
    let content = right()
        .replace("\"[::]:4242\"", "[\"192.0.2.1:4242\", \"[2001:db8::1]:443\"]")
        .replace("endpoint = \"hill", "psk = \"hill.psk\"\nendpoint = \"hill");
    let dir = tempfile::tempdir().unwrap();
    let read = || check(&dir.path().join("node.toml"), &content);
    let error = read().expect_err("no such file").to_string();
    assert!(
        error.contains("node.toml:12: [[neighbour]] \"hill\" psk: ") && error.contains("hill.psk") && error.contains("keygen --shared"),
        "{error}"
    );
    let psk = noctule::SharedKey::from_bytes([3; 32]);
    let file = dir.path().join("hill.psk");
    std::fs::write(&file, psk.to_text()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = read().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.listen, ["192.0.2.1:4242".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap()]);
    let psks: Vec<_> = config.neighbours().map(|(_, l)| l.psk.clone()).collect();
    assert_eq!(psks, [Some(noctule::SharedKey::from_bytes([3; 32])), None]);
}

#[test]
fn keys_that_are_none_or_anothers_are_told() {
    let found = complaints(&key(3), "nonsense");
    assert!(found[0].contains("[[neighbour]] \"mast\" key: ") && found[0].contains("keygen"), "{found:?}");
    let found = complaints(&key(3), &key(2));
    assert!(found[0].contains("\"hill\" has the same key"), "{found:?}");
}

#[test]
fn a_remote_node_without_any_route_is_told_unless_the_kernel_may_know_one() {
    let without = right()
        .replace("[[route]]\nto = \"10.9.0.4\"\nvia = \"hill\"\n", "")
        .replace("[[route]]\nto = \"10.9.0.4\"\nvia = \"mast\"\nmetric = 10\n", "");
    let error = read(&without).expect_err("no way").to_string();
    assert!(error.contains("no [[route]] leads to any of its addresses"), "{error}");
    assert_eq!(read(&format!("{without}\n[kernel-routes]\ntable = 42\n")).unwrap().kernel_routes.unwrap().table, 42);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_in_the_order_of_lines() {
    let wrong = right().replace("10.9.0.3\"]", "10.9.0\"]").replace("mtu = 1340", "mtu = 1").replace("[::]:4242", "here");
    let error = read(&wrong).expect_err("three mistakes");
    let lines: Vec<_> = error.all.iter().map(|c| c.line).collect();
    assert_eq!(lines.len(), 3, "{error}");
    assert!(lines.is_sorted(), "{error}");
}

#[test]
fn a_file_that_is_not_there_says_how_to_name_one() {
    let error = Config::read(Path::new("/nowhere/node.toml")).expect_err("not there").to_string();
    assert!(error.contains("/nowhere/node.toml") && error.contains("--config"), "{error}");
}

/// The file is trusted, but a mistake in it must not make the node panic (`RANDOM_INPUTS` times).
#[test]
fn altered_files_are_taken_or_refused_with_a_line() {
    let rounds = std::env::var("RANDOM_INPUTS").map_or(1_000, |n| n.parse().unwrap());
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n.max(1)
    };
    let right: Vec<char> = right().chars().collect();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..rounds {
        let mut text = right.clone();
        for _ in 0..=below(3) {
            let (from, len) = (below(text.len()), below(12));
            let range = from..(from + len).min(text.len());
            match below(3) {
                0 => drop(text.drain(range)),
                1 => drop(
                    text.splice(range, ['"', '=', '[', ']', '9', '\u{e9}', '/', '\n', '-', ':'].into_iter().skip(below(8)).take(below(3))),
                ),
                _ => {
                    let copy: Vec<char> = text[range.clone()].to_vec();
                    let at = below(text.len());
                    drop(text.splice(at..at, copy));
                }
            }
        }
        match check(Path::new("node.toml"), &text.iter().collect::<String>()) {
            Ok(_) => taken += 1,
            Err(complaints) => {
                refused += 1;
                assert!(complaints.to_string().contains("line") || complaints.to_string().contains("node.toml:"), "{complaints}");
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} {refused}");
}
