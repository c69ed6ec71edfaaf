//! Ends that reach each other over nodes, with `--via`: real processes on loopback, two relays in a row.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{Kill, NOCTULE, PATIENCE, Receiver, Relay, assert_fails, keygen, mixed_bytes, noctule, receiver, two_relays};

/// `sender - one - two - receiver`, both relays running.
struct Network {
    directory: tempfile::TempDir,
    one: Relay,
    two: Relay,
    sender: PathBuf,
    receiver: (PathBuf, String),
}

impl Network {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let (sender, sender_key) = keygen(dir, "sender");
        let receiver = keygen(dir, "receiver");
        let [one, two] = two_relays(dir, [Path::new(NOCTULE); 2], &sender_key, &receiver.1);
        Self { directory, one, two, sender, receiver }
    }

    /// `--via` and what goes with it, for the receiving and the sending end.
    fn there(&self) -> Vec<String> {
        self.words(&self.two, "10.9.0.4", &self.receiver.0)
    }

    fn here(&self) -> Vec<String> {
        self.words(&self.one, "10.9.0.1", &self.sender)
    }

    fn words(&self, relay: &Relay, address: &str, key: &Path) -> Vec<String> {
        ["--via", &relay.address(), "--via-key", &relay.key, "--address", address, "--key", key.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec()
    }

    fn receiver(&self, into: &Path) -> Receiver {
        let words = self.there();
        let more: Vec<&str> = words.iter().map(String::as_str).collect();
        receiver("127.0.0.1:0", into, &more)
    }

    /// A directory for what arrives.
    fn target(&self) -> PathBuf {
        let into = self.directory.path().join("into");
        fs::create_dir(&into).unwrap();
        into
    }
}

#[test]
fn a_file_crosses_two_relays_and_pings_come_back() {
    let network = Network::start();
    let into = network.target();
    let file = network.directory.path().join("file");
    fs::write(&file, mixed_bytes(3_000_000)).unwrap();
    let _receiver = network.receiver(&into);
    let send = |to: &str, more: &[String]| {
        noctule().arg("send").arg(&file).arg(to).args(["--peer-key", &network.receiver.1]).args(more).output().unwrap()
    };
    let out = send("10.9.0.4", &network.here());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(fs::read(into.join("file")).unwrap() == mixed_bytes(3_000_000), "every byte is the same");
    // Addresses that no route leads to, or that are written as if there were no overlay.
    assert_fails(&send("10.9.7.7", &network.here()), 6, "no route leads there");
    assert_fails(&send("10.9.0.4:4242", &network.here()), 2, "address of the overlay");
    assert_fails(&send("fd09::4", &network.here()), 2, "family");

    let mut server = noctule();
    server.args(["perf", "-s", "--anyone"]).args(network.there());
    let mut server = Kill(server.stderr(std::process::Stdio::piped()).spawn().unwrap());
    // Attached to its node: from then on it can be found.
    let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines();
    assert!(said.by_ref().any(|line| line.unwrap().contains("serving tests")));
    let _drained = std::thread::spawn(move || said.for_each(drop));
    let out = noctule()
        .args(["ping", "10.9.0.4", "-c", "5", "-i", "20ms", "-q", "--peer-key", &network.receiver.1])
        .args(network.here())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    let out = noctule()
        .args(["perf", "-c", "10.9.0.4", "--mode", "tcp", "--peer-key", &network.receiver.1])
        .args(network.here())
        .output()
        .unwrap();
    assert_fails(&out, 2, "TCP does not go over nodes");
}

#[test]
fn an_end_that_the_node_does_not_serve_is_told_what_its_file_needs() {
    let network = Network::start();
    let (stranger, key) = keygen(network.directory.path(), "stranger");
    let file = network.directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let words = network.words(&network.one, "10.9.0.1", &stranger);
    let out = noctule().arg("send").arg(&file).arg("10.9.0.4").args(["--peer-key", &network.receiver.1]).args(words).output().unwrap();
    assert_fails(&out, 9, &format!("[[neighbour]] with key = \"{key}\""));
}

#[test]
fn a_relay_that_is_killed_and_comes_back_costs_no_byte() {
    let mut network = Network::start();
    let into = network.target();
    let file = network.directory.path().join("file");
    fs::write(&file, mixed_bytes(6_000_000)).unwrap();
    let _receiver = network.receiver(&into);
    let mut send = noctule();
    let log = network.directory.path().join("send.log");
    send.arg("send").arg(&file).args(["10.9.0.4", "--limit-rate", "16mbit", "--peer-key", &network.receiver.1]).args(network.here());
    let mut sender = Kill(send.stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
    // Some of it has come: then the relay next to the sender loses all that it knew.
    let deadline = Instant::now() + PATIENCE;
    while network.one.report()["relayed"].as_array().is_none_or(Vec::is_empty) {
        assert!(Instant::now() < deadline, "the flow never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(sender.0.try_wait().unwrap().is_none(), "it is under way");
    network.one.restart();
    let status = loop {
        if let Some(status) = sender.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the transfer did not go on");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}: {}", fs::read_to_string(&log).unwrap());
    assert!(fs::read(into.join("file")).unwrap() == mixed_bytes(6_000_000), "every byte is the same");
}

#[test]
fn an_end_that_is_attached_to_two_nodes_sends_over_both_at_once() {
    let network = Network::start();
    let mut server = noctule();
    server.args(["perf", "-s", "--anyone"]).args(network.there());
    let mut server = Kill(server.stderr(std::process::Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines();
    assert!(said.by_ref().any(|line| line.unwrap().contains("serving tests")));
    let _drained = std::thread::spawn(move || said.for_each(drop));
    let perf = |more: &[&str]| {
        let out = noctule()
            .args(["perf", "-c", "10.9.0.4", "-t", "2", "--json", "--peer-key", &network.receiver.1])
            .args(network.here())
            .args(more)
            .output()
            .unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
    };
    let second = ["--via", &network.two.address(), "--via-key", &network.two.key];
    let routes = |text: &str| {
        let report: serde_json::Value = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text}"));
        let of = |r: &serde_json::Value| (r["via"].as_str().unwrap().to_owned(), r["sent_bytes"].as_u64().unwrap());
        report["end"]["routes"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let (is_done, text) = perf(&second);
    assert!(is_done, "{text}");
    let both = routes(&text);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["end"]["wire_per_byte"].as_f64().unwrap() >= 1.0, "what goes by either node is counted: {text}");
    assert!(both.len() == 2 && both.iter().all(|(_, bytes)| *bytes > 10_000), "{both:?}");
    assert!(both.iter().any(|(via, _)| via.contains(&network.two.address())), "{both:?}");
    // Datagrams: those of a trickle go by the faster route. At the end it is known that nothing follows, whichever came last.
    for rate in ["8mbit", "40mbit"] {
        let (is_done, text) = perf(&[&second[..], &["--mode", "btp", "--lifetime", "500ms", "-b", rate]].concat());
        assert!(is_done, "{text}");
        let report: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        let (sent, received) = (report["end"]["messages_sent"].as_u64().unwrap(), report["end"]["messages_received"].as_u64().unwrap());
        assert!(sent > 1000 && received * 10 > sent * 9, "{text}");
    }
    let (is_done, text) = perf(&[&second[..], &["--one-route"]].concat());
    assert!(is_done && routes(&text).is_empty(), "{text}");
    let (is_done, text) = perf(&second[..2]);
    assert!(!is_done && text.contains("2 --via and 1 --via-key"), "{text}");
}

#[test]
fn the_printed_command_reaches_over_nodes_by_a_code_and_by_a_listed_key() {
    let network = Network::start();
    let into = network.target();
    let file = network.directory.path().join("file");
    fs::write(&file, mixed_bytes(10_000)).unwrap();
    let out = noctule().args(["keygen", "--fingerprint", "-o"]).arg(&network.sender).output().unwrap();
    let sender = String::from_utf8(out.stdout).unwrap().trim().rsplit(' ').next().unwrap().to_owned();
    for more in [&[][..], &["--allow", &sender]] {
        let _ = fs::remove_file(into.join("file"));
        let mut receiving = noctule();
        receiving.args(["recv", "--once", "--into"]).arg(&into).args(network.there()).args(more);
        let mut receiving = Kill(receiving.stderr(std::process::Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(receiving.0.stderr.take().unwrap()).lines();
        let line = said.by_ref().map(Result::unwrap).find(|line| line.contains("noctule send ")).unwrap();
        let _drained = std::thread::spawn(move || said.for_each(drop));
        assert!(line.contains("10.9.0.4") && line.contains("--code") == more.is_empty(), "{line}");
        // What only the other side can know is filled in.
        let filled =
            line.trim().replace("FILE...", file.to_str().unwrap()).replace("--via NODE --address ADDRESS", &network.here().join(" "));
        let out = noctule().args(filled.split(' ').skip(1)).output().unwrap();
        assert!(out.status.success(), "{filled}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(receiving.0.wait().unwrap().success());
        assert!(fs::read(into.join("file")).unwrap() == mixed_bytes(10_000));
    }
}
