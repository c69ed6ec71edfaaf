//! One file to several receivers over nodes: real processes on loopback. The source is attached to `one`, two receivers each to `two` and `three`.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use support::*;

/// Bytes of the file: at the tests' rate, enough for many statuses to go back and forth.
const BYTES: usize = 8_000_000;

struct Network {
    directory: tempfile::TempDir,
    nodes: Vec<Relay>,
    source: PathBuf,
    /// Key file, public key and address of each receiver.
    ends: Vec<(PathBuf, String, String)>,
    file: PathBuf,
}

impl Network {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let mut nodes: Vec<Relay> = ["one", "two", "three"].iter().map(|name| Relay::new(dir, name)).collect();
        let (source, source_key) = keygen(dir, "source");
        let ends: Vec<_> = (0..4)
            .map(|i| {
                let (file, key) = keygen(dir, &format!("end{i}"));
                (file, key, format!("10.9.1.{}", i + 1))
            })
            .collect();
        let keys: Vec<String> = nodes.iter().map(|n| n.key.clone()).collect();
        let route = |to: &str, via: &str| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n");
        let call = |node: &Relay| format!("endpoint = \"{}\"", node.address());
        let below = |ends: &[(PathBuf, String, String)]| -> String {
            ends.iter().enumerate().map(|(i, (_, key, address))| neighbour(&format!("end{i}"), key, address, "")).collect()
        };
        let (two, three) = (call(&nodes[1]), call(&nodes[2]));
        let ways: String = ends.iter().enumerate().map(|(i, e)| route(&e.2, if i < 2 { "two" } else { "three" })).collect();
        let of_one = neighbour("source", &source_key, "10.9.0.9", "")
            + &neighbour("two", &keys[1], "10.9.0.2", &two)
            + &neighbour("three", &keys[2], "10.9.0.3", &three)
            + &ways;
        nodes[0].start("10.9.0.1", &of_one);
        let back = neighbour("one", &keys[0], "10.9.0.1", "") + &route("10.9.0.9", "one");
        nodes[1].start("10.9.0.2", &(below(&ends[..2]) + &back));
        nodes[2].start("10.9.0.3", &(below(&ends[2..]) + &back));
        let deadline = Instant::now() + PATIENCE;
        while !(nodes[0].has_session("two") && nodes[0].has_session("three") && nodes[1].has_session("one") && nodes[2].has_session("one"))
        {
            assert!(Instant::now() < deadline, "the nodes found each other");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let file = dir.join("thing.bin");
        let content: Vec<u8> = (0..BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(&file, content).unwrap();
        Self { directory, nodes, source, ends, file }
    }

    fn via(&self, node: usize, address: &str, key: &Path) -> Vec<String> {
        let node = &self.nodes[node];
        ["--via", &node.address(), "--via-key", &node.key, "--address", address, "--key", key.to_str().unwrap()].map(str::to_owned).to_vec()
    }

    fn into(&self, end: usize) -> PathBuf {
        self.directory.path().join(format!("in{end}"))
    }

    fn receiver(&self, end: usize) -> Receiver {
        fs::create_dir_all(self.into(end)).unwrap();
        let words = self.via(1 + end / 2, &self.ends[end].2, &self.ends[end].0);
        receiver("127.0.0.1:0", &self.into(end), &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn send(&self, to: &[usize]) -> Command {
        let mut command = noctule();
        command.args(["send", "--mode", "brctp", "--json", "--limit-rate", "40mbit"]).args(self.via(0, "10.9.0.9", &self.source));
        command.args(to.iter().flat_map(|end| ["--to", &self.ends[*end].1]));
        command.arg(&self.file).args(to.iter().map(|end| &self.ends[*end].2));
        command
    }

    fn has_it(&self, end: usize) -> bool {
        fs::read(self.into(end).join("thing.bin")).is_ok_and(|got| got == fs::read(&self.file).unwrap())
    }

    /// Bytes that a node has sent over its link to another.
    fn sent(&self, node: usize, to: &str) -> u64 {
        let report = self.nodes[node].report();
        let link = report["nodes"].as_array().unwrap().iter().find(|n| n["name"] == to).unwrap();
        link["link"]["paths"].as_array().unwrap().iter().map(|p| p["sent_bytes"].as_u64().unwrap()).sum()
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.nodes[node].directory.join("log")).unwrap()
    }
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout)
}

/// Reads the progress of a running sender until it has sent more than so many bytes.
fn until(child: &mut Kill, bytes: u64) {
    use std::io::BufRead;
    let lines = std::io::BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let is_there = |line: String| {
        let event: Value = serde_json::from_str(&line).unwrap();
        event["event"] == "progress" && event["bytes"].as_u64() > Some(bytes)
    };
    assert!(lines.any(is_there), "it ended before");
    // Read to the end: the process must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
}

#[test]
fn each_link_of_the_tree_carries_the_file_about_once() {
    let n = Network::start();
    let mut to: Vec<Receiver> = (0..4).map(|end| n.receiver(end)).collect();
    let out = n.send(&[0, 1, 2, 3]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    assert!((0..4).all(|end| n.has_it(end)));
    assert!(!text(&out).contains("by itself"), "{}", text(&out));
    // Seals and headers of packets add some 7 % to the file's bytes; a second copy would double them.
    for (node, next) in [(0, "two"), (0, "three"), (1, "end0"), (1, "end1"), (2, "end0"), (2, "end1")] {
        let copies = n.sent(node, next) as f64 / BYTES as f64;
        println!("{node} to {next}: {copies:.3} bytes sent for each of the file");
        assert!((1.0..1.3).contains(&copies), "{node} to {next}: {copies}");
    }
    assert!(to.iter_mut().all(|r| r.child.wait().unwrap().success()));
    assert!(n.log(0).contains("an object has passed"));
}

#[test]
fn a_node_that_is_killed_in_mid_transfer_costs_nobody_the_file() {
    let mut n = Network::start();
    let _to: Vec<Receiver> = (0..4).map(|end| n.receiver(end)).collect();
    let mut sending = Kill(n.send(&[0, 1, 2, 3]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    until(&mut sending, 4 * BYTES as u64 / 5);
    n.nodes[1].restart();
    let mut errors = sending.0.stderr.take().unwrap();
    let words = std::thread::spawn(move || {
        let mut words = String::new();
        std::io::Read::read_to_string(&mut errors, &mut words).unwrap();
        words
    });
    let status = sending.0.wait().unwrap();
    let words = words.join().unwrap();
    assert!(status.success(), "{words}");
    assert!((0..4).all(|end| n.has_it(end)));
    assert!(words.contains("10.9.1.1: the tree does not reach it") && !words.contains("10.9.1.3"), "{words}");
}

#[test]
fn a_receiver_that_is_killed_costs_the_others_nothing_and_is_named() {
    let n = Network::start();
    let mut to: Vec<Receiver> = (0..4).map(|end| n.receiver(end)).collect();
    let mut sending = Kill(
        n.send(&[0, 1, 2, 3]).args(["--timeout", "3s", "--give-up", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
    );
    until(&mut sending, 4 * BYTES as u64 / 5);
    to[1].child.kill().unwrap();
    let mut words = String::new();
    std::io::Read::read_to_string(&mut sending.0.stderr.take().unwrap(), &mut words).unwrap();
    assert!(matches!(sending.0.wait().unwrap().code(), Some(6 | 7)), "{words}");
    assert!(words.contains("1 of 4 receivers do not have it") && words.contains("10.9.1.2"), "{words}");
    assert!(n.has_it(0) && !n.has_it(1) && n.has_it(2) && n.has_it(3));
}
