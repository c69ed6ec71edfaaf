//! `send --mode brctp FILE HOST...` with the built command: one file to several receivers, each by its own path.

mod support;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::*;

/// A file, and a directory for each receiver.
struct Places {
    _dir: tempfile::TempDir,
    file: PathBuf,
    into: Vec<PathBuf>,
}

fn places(len: usize, receivers: usize) -> Places {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thing.bin");
    let content: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&file, content).unwrap();
    let into = (0..receivers).map(|i| dir.path().join(format!("in{i}"))).inspect(|d| fs::create_dir(d).unwrap()).collect();
    Places { _dir: dir, file, into }
}

fn has_it(p: &Places, receiver: usize) -> bool {
    fs::read(p.into[receiver].join("thing.bin")).is_ok_and(|got| got == fs::read(&p.file).unwrap())
}

fn send_to(file: &Path, to: &[(&str, &str)], more: &[&str]) -> Command {
    let mut command = noctule();
    command.args(["send", "--mode", "brctp", "--json"]).args(more);
    command.args(to.iter().flat_map(|(_, key)| ["--to", key]));
    command.arg(file).args(to.iter().map(|(address, _)| address));
    command
}

/// The events of this name that it told.
fn events(out: &Output, name: &str) -> Vec<Value> {
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).filter(|event: &Value| event["event"] == name).collect()
}

#[test]
fn three_receivers_have_the_file_whatever_their_paths_lose() {
    let p = places(5_000_001, 3);
    let mut to: Vec<Receiver> = p.into.iter().map(|into| receiver("127.0.0.1:0", into, &[])).collect();
    let paths = [Lossy::before(&to[0].address, 5), Lossy::before(&to[1].address, 50)];
    let hosts = [
        (paths[0].address.as_str(), to[0].key.as_str()),
        (paths[1].address.as_str(), to[1].key.as_str()),
        (to[2].address.as_str(), to[2].key.as_str()),
    ];
    let out = send_to(&p.file, &hosts, &[]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!((0..3).all(|i| has_it(&p, i)));
    let done = &events(&out, "done")[0];
    assert!(done["receivers"] == 3 && done["files"] == 1 && done["bytes"] == 5_000_001 && done["peer"].is_null(), "{done}");
    assert!(events(&out, "receiver").len() == 3 && events(&out, "receiver").iter().all(|r| r["ok"] == true));
    assert!(to.iter_mut().all(|r| r.child.wait().unwrap().success()));
}

#[test]
fn receivers_that_refuse_or_vanish_are_named_and_cost_the_others_nothing() {
    let p = places(3_000_000, 3);
    fs::write(p.into[1].join("thing.bin"), b"in the way").unwrap();
    let to: Vec<Receiver> = p.into.iter().map(|into| receiver("127.0.0.1:0", into, &[])).collect();
    // Nobody listens there any more.
    let (_, nobody) = keygen(p.file.parent().unwrap(), "nobody");
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut hosts: Vec<(&str, &str)> = to.iter().map(|r| (r.address.as_str(), r.key.as_str())).collect();
    hosts.push((&closed, &nobody));
    let out = send_to(&p.file, &hosts, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(matches!(out.status.code(), Some(6 | 14)), "{text}");
    assert!(text.contains("2 of 4 receivers do not have it, the others do"), "{text}");
    assert!(has_it(&p, 0) && !has_it(&p, 1) && has_it(&p, 2));
    let failed: Vec<Value> = events(&out, "receiver").into_iter().filter(|r| r["ok"] == false).collect();
    let why = |host: &str| failed.iter().find(|r| r["name"] == host).map(|r| r["message"].to_string()).unwrap_or_default();
    assert!(why(&to[1].address).contains("exists already") && why(&closed).contains("nobody listens"), "{failed:?}");
}

#[test]
fn receivers_that_have_it_from_before_get_nothing_again() {
    let p = places(2_000_000, 2);
    for round in 0..2 {
        let to: Vec<Receiver> = p.into.iter().map(|into| receiver("127.0.0.1:0", into, &[])).collect();
        let hosts: Vec<(&str, &str)> = to.iter().map(|r| (r.address.as_str(), r.key.as_str())).collect();
        // The first time only one of them.
        let out = send_to(&p.file, &hosts[..=round], &[]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let done = &events(&out, "done")[0];
        assert_eq!((&done["bytes_moved"], &done["files_same"]), (&2_000_000.into(), &round.into()), "{done}");
    }
    assert!(has_it(&p, 0) && has_it(&p, 1));
}

#[test]
fn keys_that_do_not_fit_the_hosts_are_told_before_anything_is_sent() {
    let p = places(10, 0);
    let (_, key) = keygen(p.file.parent().unwrap(), "key");
    let run = |to: &[(&str, &str)], more: &[&str]| send_to(&p.file, to, more).output().unwrap();
    assert_fails(&run(&[("127.0.0.1:1", &key)], &["--to", &key]), 2, "2 keys for 1 hosts");
    assert_fails(&run(&[("127.0.0.1:1", &key), ("127.0.0.1:2", &key)], &[]), 2, "named twice");
    let both = ["--peer-key", &key, p.file.to_str().unwrap(), "127.0.0.1:1", "127.0.0.1:2"];
    assert_fails(&noctule().args(["send", "--mode", "brctp"]).args(both).output().unwrap(), 2, "--to KEY for each");
    let plain = ["send", "--to", &key, p.file.to_str().unwrap(), "127.0.0.1:1"];
    assert_fails(&noctule().args(plain).output().unwrap(), 2, "--to is for --mode brctp");
}
