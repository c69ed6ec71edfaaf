//! What the kernel holds for a node's tunnel: put back when others take it away, and never a path for the node's own packets. Two nodes, each in a namespace.
//! Skipped loudly where namespaces or TUN are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::scenario::Hop;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn until(what: &str, node: &Node, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}\n{}", node.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Files of a, which calls, and b. `a_prefixes`: what a says lies behind b; `b_prefixes`: what b says lies behind a.
    fn files(directory: &Path, a_prefixes: &str, b_prefixes: &str) -> [String; 2] {
        let keys = ["a", "b"].map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        let file = |me: usize, other: usize, more: &str| {
            format!(
                "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{me}\", \"fd09::{me}\"]\n[[neighbour]]\nname = \"{}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{other}\", \"fd09::{other}\"]\n{more}\n[tun]\naddresses = [\"10.9.0.{me}/24\", \"fd09::{me}/64\"]\n",
                ["a", "b"][other - 1],
                keys[other - 1]
            )
        };
        [file(1, 2, &format!("endpoint = \"10.77.0.2\"\nprefixes = [{a_prefixes}]")), file(2, 1, &format!("prefixes = [{b_prefixes}]"))]
    }

    fn hop() -> Hop {
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=3ms").unwrap();
        Hop { forward: link.clone(), reverse: link }
    }

    #[test]
    fn what_others_take_away_is_put_back_and_a_lost_device_ends_the_node() {
        let Some((chain, _emulator)) = chain_of("a tunnel's kernel state", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let [file_a, file_b] = files(directory.path(), "\"192.168.50.0/24\", \"fd50::/64\"", "");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        let node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node = Node::start(directory.path(), "a", &a, &file_a);
        node.wait_for_session("b");
        ip(&b, "addr add 192.168.50.1/32 dev lo");
        echo(&b, 7007);
        // Nothing leads there while it is away.
        let into = |to: &str| {
            let found = a.command("ip").args(["route", "get", to]).output().unwrap();
            String::from_utf8_lossy(&found.stdout).contains("dev noctule0")
        };
        let addresses = || ip(&a, "addr show dev noctule0");
        let is_whole = || {
            let addresses = addresses();
            into("192.168.50.1") && into("fd50::1") && addresses.contains("10.9.0.1/24") && addresses.contains("fd09::1/64")
        };
        until("routes and addresses at first", &node, is_whole);
        let table =
            ip(&a, "rule").lines().find_map(|l| l.strip_prefix("5111:")?.split("lookup ").nth(1).map(|t| t.trim().to_owned())).unwrap();
        let others: &[&str] = &[
            "link set noctule0 down",
            "route flush table {} proto 110",
            "-6 route flush table {} proto 110",
            "addr del 10.9.0.1/24 dev noctule0",
            "-6 addr flush dev noctule0 scope global",
            "rule del pref 5111",
            "rule del pref 5110",
            "-6 rule del pref 5111",
            "link set noctule0 mtu 1300",
        ];
        for words in others {
            ip(&a, &words.replace("{}", &table));
            until(&format!("after {words}"), &node, || {
                is_whole() && ip(&a, "rule").contains("5110:") && ip(&a, "link show dev noctule0").contains("mtu 1380")
            });
        }
        let socket = udp(&a, "0.0.0.0:0");
        assert!(ping(&socket, "192.168.50.1:7007").is_some(), "traffic flows\n{}", node.log());
        // A network that the host itself is attached to is not the tunnel's, even one that comes later.
        ip(&a, "link add other type veth peer name its-end");
        ip(&a, "link set other up");
        ip(&a, "link set its-end up");
        ip(&a, "addr add 192.168.50.129/25 dev other");
        until("an attached network", &node, || !into("192.168.50.130") && into("192.168.50.1"));
        ip(&a, "link del other");
        until("the tunnel's again", &node, || into("192.168.50.130"));
        // A reload compares with the running node and with the kernel.
        let reload = |node: &Node| String::from_utf8_lossy(&node.ask(&["reload"]).stdout).into_owned();
        assert!(reload(&node).contains("nothing to change"), "{}", reload(&node));
        node.write(&file_a.replace("key = \"key\"\n", "key = \"key\"\nlisten = \"0.0.0.0:4299\"\n"));
        assert!(reload(&node).contains("[node] listen changed"));
        node.write(&file_a.replace("fd50::/64", "fd51::/64"));
        let said = reload(&node);
        assert!(said.contains("\"b\" changed") && said.contains("fd51::/64") && !said.contains("listen"), "{said}");
        assert!(into("fd51::1"));
        // A stream that could not begin, and can now: the file is the same, the node is not.
        let stream = "[[one-way]]\nlisten = \"127.0.0.1:4500\"\nendpoint = \"127.0.0.1:4501\"\nrate = \"1mbit\"\nloss = \"1%\"\n";
        let in_the_way = udp(&a, "127.0.0.1:4500");
        node.write(&format!("{file_a}{stream}"));
        assert!(reload(&node).contains("127.0.0.1:4500"));
        drop(in_the_way);
        let said = reload(&node);
        assert!(said.contains("[[one-way]] passing from 127.0.0.1:4500 to 127.0.0.1:4501 begun") && !said.contains("nothing"), "{said}");
        assert!(reload(&node).contains("nothing to change"));
        node.write(&format!("{file_a}{}", stream.replace("1mbit", "2mbit")));
        assert!(reload(&node).contains("ended"));
        node.write(&file_a.replace("key = \"key\"\n", "key = \"key\"\nanswer = \"anyone\"\n"));
        assert!(reload(&node).contains("[node] answer changed: takes effect when the node is restarted"));
        // Nothing is left of a node that ends.
        node.terminate();
        assert!(!ip(&a, "rule").contains("5110:") && !ip(&a, "-6 rule").contains("5111:"), "{}", ip(&a, "rule"));
        // An end that its owner wanted is nothing to warn of.
        until("the far end's log", &node_b, || node_b.log().contains("link down: far end: closed without error"));
        assert!(!node_b.log().contains(" WARN "), "{}", node_b.log());
        node.restart();
        node.wait_for_session("b");
        ip(&a, "link del noctule0");
        let code = node.ending().expect("a node without its device ends");
        assert_ne!(code, 0);
        assert!(node.log().contains("the device noctule0 is gone"), "{}", node.log());
    }

    #[test]
    fn the_whole_internet_behind_a_neighbour_and_the_far_node_inside_its_own_network() {
        let Some((chain, _emulator)) = chain_of("own packets and the tunnel", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        // a sends everything by b, and b believes that the very network in which it finds a lies behind a.
        let [file_a, file_b] = files(directory.path(), "\"0.0.0.0/0\", \"::/0\"", "\"10.77.0.0/16\"");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        // Neither is attached to the other's network: nothing but the default route leads to the neighbour.
        for (host, far) in [(&a, "10.77.0.2"), (&b, "10.77.0.1")] {
            let found = ip(host, &format!("route get {far}"));
            let device = found.split("dev ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
            ip(host, &format!("route replace default dev {device}"));
            for line in ip(host, &format!("route show dev {device} proto kernel")).lines() {
                ip(host, &format!("route del {} dev {device}", line.split(' ').next().unwrap()));
            }
        }
        let mut node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node_a = Node::start(directory.path(), "a", &a, &file_a);
        node_a.wait_for_session("b");
        node_b.wait_for_session("a");
        ip(&b, "addr add 198.51.100.1/32 dev lo");
        ip(&b, "addr add 2001:db8::1/128 dev lo");
        echo(&b, 7007);
        for (bind, to) in [("0.0.0.0:0", "198.51.100.1:7007"), ("[::]:0", "[2001:db8::1]:7007")] {
            let socket = udp(&a, bind);
            assert!(ping(&socket, to).is_some(), "{to} is reached by the tunnel\n{}", node_a.log());
        }
        // From the node's own port the host's default route leads, and the tunnel from any other.
        let from = |port: u16| ip(&a, &format!("route get 203.0.113.9 ipproto udp sport {port}"));
        assert!(from(5000).contains("dev noctule0") && !from(4242).contains("dev noctule0"), "{}{}", from(5000), from(4242));
        let report = node_a.status();
        assert_eq!(node_of(&report, "b")["link"]["times_up"], 1, "the link stayed: {report:#}");
    }

    /// The table that rule 5111 leads to.
    fn table_of(host: &Namespace) -> String {
        let rules = ip(host, "rule");
        rules
            .lines()
            .find_map(|l| l.strip_prefix("5111:")?.split("lookup ").nth(1).map(|t| t.trim_end_matches("proto 110").trim().to_owned()))
            .unwrap()
    }

    #[test]
    fn routes_of_a_hostile_network_pull_nothing_out_of_a_full_tunnel() {
        let Some((chain, _emulator)) = chain_of("routes of a hostile network", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let [file_a, file_b] = files(directory.path(), "\"0.0.0.0/0\", \"::/0\"", "");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        let _node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node = Node::start(directory.path(), "a", &a, &file_a);
        node.wait_for_session("b");
        let into = |to: &str| ip(&a, &format!("route get {to}")).contains("dev noctule0");
        until("the tunnel's routes", &node, || into("203.0.113.9") && into("2001:db8::1"));
        // Routes that a DHCP server pushes by option 121, a lease with a foreign network, and routes that a router advertises.
        for words in [
            "link add lan type veth peer name its-end",
            "link set lan up",
            "link set its-end up",
            "addr add 192.168.7.2/24 dev lan",
            "route add 0.0.0.0/1 via 192.168.7.1 dev lan proto dhcp",
            "route add 128.0.0.0/1 via 192.168.7.1 dev lan",
            "route add 203.0.113.9/32 via 192.168.7.1 dev lan",
            "addr add 198.51.100.200/24 dev lan",
            "-6 addr add 2001:db8::66/64 dev lan nodad",
            "-6 route add 2000::/3 dev lan proto ra",
        ] {
            ip(&a, words);
        }
        // Its own network, which comes last, is left to it as soon as the routes have been looked at.
        until("the attached private network", &node, || !into("192.168.7.9"));
        for to in ["203.0.113.9", "9.9.9.9", "198.51.100.7", "2001:db8::1", "2620:fe::9"] {
            assert!(into(to), "{to}: {}\n{}", ip(&a, &format!("route get {to}")), node.log());
        }
        let reload = |lan: &str| {
            node.write(&format!("{file_a}lan = \"{lan}\"\n"));
            let said = String::from_utf8_lossy(&node.ask(&["reload"]).stdout).into_owned();
            assert!(said.contains("[tun] changed"), "{said}");
        };
        reload("tunnel");
        assert!(into("192.168.7.9"), "not even that");
        reload("bypass");
        assert!(!into("192.168.7.9") && !into("203.0.113.9") && !into("2620:fe::9"), "what asks for it gets the main table's routes");
    }

    #[test]
    fn without_ipv6_a_node_goes_on_by_ipv4_and_nothing_leaves_beside_the_tunnel() {
        let Some((chain, _emulator)) = chain_of("a host without IPv6", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let [file_a, file_b] = files(directory.path(), "\"0.0.0.0/0\", \"::/0\"", "");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        // New devices have none; the others do, and a default route that would take what the tunnel does not.
        a.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        ip(&a, "link add lan type veth peer name its-end");
        a.sysctl("net.ipv6.conf.lan.disable_ipv6", "0").unwrap();
        for words in
            ["link set lan up", "link set its-end up", "-6 addr add 2001:db8:1::2/64 dev lan nodad", "-6 route add default dev lan"]
        {
            ip(&a, words);
        }
        let _node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node = Node::start(directory.path(), "a", &a, &file_a);
        node.wait_for_session("b");
        ip(&b, "addr add 198.51.100.1/32 dev lo");
        echo(&b, 7007);
        assert!(ping(&udp(&a, "0.0.0.0:0"), "198.51.100.1:7007").is_some(), "{}", node.log());
        assert!(node.log().contains("IPv6 is off on the device"), "{}", node.log());
        let leads = |to: &str| String::from_utf8_lossy(&a.command("ip").args(["route", "get", to]).output().unwrap().stdout).into_owned();
        assert!(!leads("2620:fe::9").contains("dev lan"), "{}", leads("2620:fe::9"));
        // Switched on later, it is taken up.
        a.sysctl("net.ipv6.conf.noctule0.disable_ipv6", "0").unwrap();
        ip(&a, "link add news type veth peer name of-it");
        until("IPv6", &node, || leads("2620:fe::9").contains("dev noctule0") && ip(&a, "addr show dev noctule0").contains("fd09::1/64"));
    }

    #[test]
    fn what_a_killed_node_left_goes_when_it_starts_with_another_port_and_device() {
        let Some((chain, _emulator)) = chain_of("leftovers of a killed node", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let [file_a, file_b] = files(directory.path(), "\"192.168.50.0/24\", \"fd50::/64\"", "");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        for words in
            ["link add lan type veth peer name its-end", "link set lan up", "link set its-end up", "addr add 192.168.50.129/25 dev lan"]
        {
            ip(&a, words);
        }
        let _node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node = Node::start(directory.path(), "a", &a, &file_a);
        node.wait_for_session("b");
        let old = table_of(&a);
        node.kill();
        let routes = || ip(&a, "route show table all") + &ip(&a, "-6 route show table all");
        assert!(routes().contains(&format!("throw 192.168.50.128/25 table {old}")), "{}", routes());
        node.write(
            &file_a.replace("key = \"key\"\n", "key = \"key\"\nlisten = \"0.0.0.0:4299\"\n").replace("[tun]", "[tun]\nname = \"other\""),
        );
        node.restart();
        node.wait_for_session("b");
        for rules in [ip(&a, "rule"), ip(&a, "-6 rule")] {
            assert!(rules.matches("5110:").count() == 1 && rules.contains("sport 4299"), "{rules}");
            assert!(rules.matches("5111:").count() == 1 && !rules.contains(&old), "{rules}");
        }
        assert!(!routes().contains(&old), "{}", routes());
        // A second node on the same host takes nothing from a living one.
        std::fs::create_dir(directory.path().join("c")).unwrap();
        keygen(&directory.path().join("c"), "key");
        let file_c = file_a
            .replace("key = \"key\"\n", "key = \"key\"\nlisten = \"0.0.0.0:4300\"\n")
            .replace("10.9.0.1", "10.9.0.9")
            .replace("fd09::1", "fd09::9");
        let mut other = Node::start(directory.path(), "c", &a, &file_c);
        other.wait_for("its rules", |_| ip(&a, "rule").contains("sport 4300"));
        assert!(ip(&a, "rule").contains("sport 4299") && ip(&a, "rule").matches("5111:").count() == 2, "{}", ip(&a, "rule"));
    }
}
