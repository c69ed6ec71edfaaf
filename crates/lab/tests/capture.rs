//! Captures of whole runs, read back by a parser of their own and by tcpdump where it is.

mod net_common;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use net_common::{lab, run, skip};

/// A packet of a capture: when, and its bytes from the IP header on.
type Packet = (u64, Vec<u8>);

/// Reads a pcap file with times in nanoseconds and raw IP packets (draft-ietf-opsawg-pcap).
fn packets(path: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 101), "{}", path.display());
    let (mut at, mut packets) = (24, Vec::new());
    while at < bytes.len() {
        let (time, kept, whole) = (u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)), word(at + 8), word(at + 12));
        assert_eq!(kept, whole);
        let end = at + 16 + kept as usize;
        packets.push((time, bytes[at + 16..end].to_vec()));
        at = end;
    }
    packets
}

/// Packets from this address.
fn sent_by(packets: &[Packet], last_byte: u8) -> Vec<&Packet> {
    packets.iter().filter(|(_, packet)| packet[15] == last_byte).collect()
}

/// Events of a trace by name; every record is a JSON object between its marks (RFC 7464).
fn events(path: &Path) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut records = text.split('\u{1e}').skip(1).map(|record| {
        let record = record.strip_suffix('\n').unwrap_or_else(|| panic!("cut off: {record}"));
        serde_json::from_str::<serde_json::Value>(record).unwrap_or_else(|error| panic!("{record}: {error}"))
    });
    assert_eq!(records.next().unwrap()["qlog_version"], "0.3");
    let mut names = HashMap::new();
    for record in records {
        *names.entry(record["name"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    names
}

/// Lines that tcpdump prints of a capture; none where there is no tcpdump.
fn tcpdump(path: &Path) -> Option<Vec<String>> {
    let Ok(output) = Command::new("tcpdump").args(["-n", "-v", "-r"]).arg(path).output() else {
        skip("captures read by tcpdump", "there is no tcpdump on this machine");
        return None;
    };
    let (text, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    assert!(!text.contains("bad cksum") && !text.contains("bad udp cksum") && !text.contains("truncated"), "{text}");
    Some(text.lines().filter(|line| line.contains(" IP ")).map(str::to_owned).collect())
}

fn succeed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

fn simulate(folder: &Path, more: &[&str]) -> String {
    let words = "sim --rate 5mbit --delay 10ms --loss 5% --seconds 3 --warmup 1 --seed 3 --capture";
    succeed(&lab().args(words.split(' ')).arg(folder).args(more).output().unwrap())
}

#[test]
fn the_simulator_keeps_both_ends_of_every_link_and_every_trace() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("kept");
    let told = simulate(&folder, &["--hops", "2"]);
    for name in ["link1-left.pcap", "link1-right.pcap", "link2-left.pcap", "link2-right.pcap", "node1.sqlog", "node2.sqlog", "node3.sqlog"]
    {
        assert!(told.contains(&*folder.join(name).to_string_lossy()), "{name}: {told}");
        assert_eq!(std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let (left, right) = (packets(&folder.join("link1-left.pcap")), packets(&folder.join("link1-right.pcap")));
    // The datagrams of a relay's link carry its addresses: what the first node sends is what enters on the left and is not there before.
    let first = left[0].1[15];
    let (entered, arrived) = (sent_by(&left, first), sent_by(&right, first));
    assert!(entered.len() > 500, "{}", entered.len());
    let lost = 1.0 - arrived.len() as f64 / entered.len() as f64;
    assert!((0.01..0.12).contains(&lost), "{lost} of {}", entered.len());
    // Each packet that arrived had entered, at least the link's delay before.
    let when: HashMap<&[u8], u64> = entered.iter().map(|(time, packet)| (&packet[28..], *time)).collect();
    for (time, packet) in arrived {
        let before = when[&packet[28..]];
        assert!(time - before >= 10_000_000, "{before} {time}");
    }
    for node in ["node1", "node2", "node3"] {
        assert!(events(&folder.join(format!("{node}.sqlog")))["transport:packet_sent"] > 100, "{node}");
    }
    if let Some(lines) = tcpdump(&folder.join("link1-left.pcap")) {
        assert_eq!(lines.len(), left.len());
    }
    // The same seed gives the same files.
    let other = dir.path().join("again");
    simulate(&other, &["--hops", "2"]);
    for name in ["link1-left.pcap", "link2-right.pcap", "node2.sqlog"] {
        assert!(std::fs::read(folder.join(name)).unwrap() == std::fs::read(other.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_capture_ends_at_its_bound_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let told = simulate(dir.path(), &["--capture-limit", "100KB"]);
    assert!(told.contains("--capture-limit"), "{told}");
    for name in ["link1-left.pcap", "node1.sqlog"] {
        let length = std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!((90_000..=100_000).contains(&length), "{name}: {length}");
    }
    assert!(packets(&dir.path().join("link1-left.pcap")).len() > 50);
    assert!(events(&dir.path().join("node1.sqlog")).len() > 2);
    // What lies at the folder's place and is none.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = lab().args(["sim", "--seconds", "2", "--warmup", "1", "--capture"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("not a folder"), "{text}");
    // A single file of all datagrams is bounded by the same flag.
    let pcap = dir.path().join("all.pcap");
    let words = "sim --rate 5mbit --seconds 3 --warmup 1 --capture-limit 100KB --pcap";
    let told = succeed(&lab().args(words.split(' ')).arg(&pcap).output().unwrap());
    assert!(told.contains("--capture-limit") && std::fs::metadata(&pcap).unwrap().len() <= 100_000, "{told}");
    // A bound of nothing is a mistake, and told.
    for command in ["sim", "net"] {
        let output = lab().args([command, "--capture-limit", "100KB"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains("--capture <DIR>"), "{text}");
    }
}

#[test]
fn namespaces_keep_both_ends_of_the_link_and_both_traces() {
    let test = "a capture on namespaces";
    if !Path::new(env!("CARGO_BIN_EXE_noctule-lab")).with_file_name("noctule").is_file() {
        skip(test, "the binary noctule was not built: cargo build -p noctule-node");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let words = "net --backend emulator --json --rate 5mbit --delay 10ms --loss 5% --seconds 3 --warmup 1 --capture";
    let Some(seen) = run(test, lab().args(words.split(' ')).arg(dir.path())) else { return };
    let (left, right) = (packets(&dir.path().join("link1-left.pcap")), packets(&dir.path().join("link1-right.pcap")));
    let (entered, arrived) = (sent_by(&left, 1), sent_by(&right, 1));
    let bytes: usize = arrived.iter().map(|(_, packet)| packet.len()).sum();
    assert!(bytes as u64 > seen["bytes_delivered"].as_u64().unwrap(), "{bytes}: {seen}");
    assert!(arrived.len() < entered.len(), "5 % are lost between the two ends");
    assert!(left.windows(2).all(|pair| pair[0].0 <= pair[1].0 + 1_000_000), "times go on");
    for name in ["near.sqlog", "far.sqlog"] {
        let events = events(&dir.path().join(name));
        assert!(events["transport:packet_sent"] > 50 && events.contains_key("connectivity:connection_closed"), "{name}: {events:?}");
        assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    if let Some(lines) = tcpdump(&dir.path().join("link1-right.pcap")) {
        assert_eq!(lines.len(), right.len());
    }
}

#[test]
fn a_run_that_fails_leaves_its_capture() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing gets through: the connection does not open.
    let words = "net --peer tcp-reno --backend emulator --loss 100% --seconds 30 --warmup 1 --capture";
    let output = lab().args(words.split(' ')).arg(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(i32::from(noctule_lab::net::command::NOT_PERMITTED)) {
        skip("a capture of a run that fails", &text);
        return;
    }
    assert!(!output.status.success(), "{text}");
    let (left, right) = (packets(&dir.path().join("link1-left.pcap")), packets(&dir.path().join("link1-right.pcap")));
    assert!(!left.is_empty() && right.is_empty(), "{} {}: {text}", left.len(), right.len());
}
