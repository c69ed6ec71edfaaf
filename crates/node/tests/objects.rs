//! `--mode brctp` with the built command: over a session, and in one direction.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::*;

struct Places {
    _dir: tempfile::TempDir,
    root: PathBuf,
    into: PathBuf,
    file: PathBuf,
}

fn places(len: usize) -> Places {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let (into, file) = (root.join("in"), root.join("thing.bin"));
    fs::create_dir(&into).unwrap();
    let content: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&file, content).unwrap();
    Places { _dir: dir, root, into, file }
}

fn is_equal(p: &Places) -> bool {
    fs::read(p.into.join("thing.bin")).is_ok_and(|got| got == fs::read(&p.file).unwrap())
}

fn brctp(file: &Path, to: &Receiver, more: &[&str]) -> Output {
    let command = ["send", "--mode", "brctp", "--peer-key", &to.key];
    noctule().args(command).args(more).arg(file).arg(&to.address).output().unwrap()
}

fn ok(out: &Output) {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn an_object_arrives_whole_over_a_path_that_loses_every_seventh_packet() {
    let p = places(9_000_001);
    let mut to = receiver("127.0.0.1:0", &p.into, &[]);
    let path = Lossy::before(&to.address, 7);
    to.address.clone_from(&path.address);
    let out = brctp(&p.file, &to, &["--json"]);
    ok(&out);
    assert!(is_equal(&p));
    let events = String::from_utf8(out.stdout).unwrap();
    assert!(events.contains("\"source_packets\":"), "{events}");
    assert!(to.child.wait().unwrap().success());
    assert!(!p.into.join(".noctule-partial").exists(), "nothing is left behind");
}

#[test]
fn an_empty_object_and_one_that_is_there_already_cost_nothing() {
    let p = places(0);
    for same in ["\"files_same\":0", "\"files_same\":1"] {
        let mut to = receiver("127.0.0.1:0", &p.into, &[]);
        let out = brctp(&p.file, &to, &["--json"]);
        ok(&out);
        assert!(String::from_utf8_lossy(&out.stdout).contains(same), "{same}");
        assert!(is_equal(&p) && to.child.wait().unwrap().success());
        assert!(String::from_utf8_lossy(&to.output()).contains(same), "{same} at the receiver");
    }
    let q = places(3_000_000);
    fs::copy(&q.file, q.into.join("thing.bin")).unwrap();
    let times = fs::metadata(&q.file).unwrap().modified().unwrap();
    fs::File::open(q.into.join("thing.bin")).unwrap().set_modified(times).unwrap();
    let to = receiver("127.0.0.1:0", &q.into, &[]);
    let out = brctp(&q.file, &to, &["--json"]);
    ok(&out);
    assert!(String::from_utf8(out.stdout).unwrap().contains("\"bytes_moved\":0"));
}

#[test]
fn what_an_interrupted_try_left_is_not_sent_again() {
    let p = places(30_000_000);
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let mut child = noctule();
    let (own, _) = keygen(&p.root, "s");
    child
        .args(["send", "--mode", "brctp", "--json", "--limit-rate", "40mbit", "--peer-key", &to.key, "--key"])
        .arg(&own)
        .arg(&p.file)
        .arg(&to.address);
    let mut child = Kill(child.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "progress" && event["bytes"].as_u64() > Some(6_000_000) {
            break;
        }
    }
    drop(child);
    drop(to);
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let out = brctp(&p.file, &to, &["--json", "--key", own.to_str().unwrap()]);
    ok(&out);
    assert!(is_equal(&p));
    let events = String::from_utf8(out.stdout).unwrap();
    let done: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert!(done["bytes_moved"].as_u64() < Some(28_000_000) && done["files_resumed"] == 1, "{done}");
}

#[test]
fn what_brctp_cannot_send_is_told_before_anything_is_sent() {
    let p = places(1000);
    fs::write(p.root.join("other"), b"x").unwrap();
    let try_send = |args: &[&str]| noctule().args(["send", "--mode", "brctp"]).args(args).output().unwrap();
    let (file, dir, other) = (p.file.to_str().unwrap(), p.into.to_str().unwrap(), p.root.join("other"));
    assert_fails(&try_send(&[file, other.to_str().unwrap(), "127.0.0.1"]), 2, "one file");
    assert_fails(&try_send(&[dir, "127.0.0.1"]), 2, "pack it into one");
    assert_fails(&try_send(&["-", "127.0.0.1"]), 2, "needs a file");
    assert_fails(&try_send(&["--one-way", file, "127.0.0.1"]), 2, "needs --rate");
    assert_fails(&try_send(&["--one-way", "--rate", "1mbit", file, "127.0.0.1"]), 2, "--overhead 30%");
    assert_fails(&try_send(&["--one-way", "--rate", "1mbit", "--carousel", file, "127.0.0.1"]), 2, "--to KEY");
    let out = noctule().args(["send", "--one-way", "--rate", "1mbit", file, "127.0.0.1"]).output().unwrap();
    assert_fails(&out, 2, "--mode brctp");
}

#[test]
fn a_file_in_the_way_is_refused_with_its_own_code() {
    let p = places(100_000);
    fs::write(p.into.join("thing.bin"), b"another").unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    assert_fails(&brctp(&p.file, &to, &[]), 14, "exists already");
    let to = receiver("127.0.0.1:0", &p.into, &["--overwrite"]);
    ok(&brctp(&p.file, &to, &[]));
    assert!(is_equal(&p));
    let to = receiver_on("127.0.0.1:0", &["--stdout"]);
    assert_fails(&brctp(&p.file, &to, &[]), 4, "--into");
}

/// Sends in one direction; the arguments come before file and address.
fn one_way(file: &Path, address: &str, more: &[&str]) -> Kill {
    let mut command = noctule();
    command.args(["send", "--mode", "brctp", "--one-way", "--rate", "80mbit"]).args(more).arg(file).arg(address);
    Kill(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Waits for a receiver to end, at most for a while.
fn ended(to: &mut Receiver) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = to.child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn one_way_with_overhead_a_receiver_gets_what_loses_less() {
    let p = places(5_000_000);
    let mut to = receiver("127.0.0.1:0", &p.into, &["--one-way"]);
    let path = Lossy::before(&to.address, 9);
    let mut sender = one_way(&p.file, &path.address, &["--overhead", "40%", "--to", &to.key]);
    assert!(sender.0.wait().unwrap().success());
    assert!(ended(&mut to) && is_equal(&p));
}

#[test]
fn one_way_receivers_join_a_carousel_at_any_time_and_only_those_it_was_sent_to() {
    let p = places(4_000_000);
    let (first, second, stranger) = (places(0), places(0), places(0));
    let mut to = [&first, &second, &stranger].map(|q| receiver("127.0.0.1:0", &q.into, &["--one-way"]));
    // One stream of datagrams, copied to three.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fan = socket.local_addr().unwrap().to_string();
    let addresses: Vec<String> = to.iter().map(|r| r.address.clone()).collect();
    let (late, join) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let (mut buffer, mut has_joined) = ([0; 65_536], false);
        while let Ok((len, _)) = socket.recv_from(&mut buffer) {
            has_joined |= !matches!(join.try_recv(), Err(mpsc::TryRecvError::Empty));
            for (i, address) in addresses.iter().enumerate() {
                if i != 1 || has_joined {
                    let _ = socket.send_to(&buffer[..len], address);
                }
            }
        }
    });
    let _sender = one_way(&p.file, &fan, &["--carousel", "--to", &to[0].key.clone(), "--to", &to[1].key.clone()]);
    assert!(ended(&mut to[0]));
    late.send(()).unwrap();
    assert!(ended(&mut to[1]));
    for q in [&first, &second] {
        assert!(fs::read(q.into.join("thing.bin")).unwrap() == fs::read(&p.file).unwrap());
    }
    assert!(to[2].child.try_wait().unwrap().is_none() && fs::read_dir(&stranger.into).unwrap().next().is_none());
}

#[test]
fn one_way_only_senders_that_are_allowed_are_heard() {
    let p = places(200_000);
    let (_, good) = keygen(&p.root, "good");
    keygen(&p.root, "bad");
    let (good_file, bad_file) = (p.root.join("good"), p.root.join("bad"));
    let mut to = receiver("127.0.0.1:0", &p.into, &["--one-way", "--allow", &good]);
    let overhead = ["--overhead", "10%", "--to", &to.key.clone(), "--key"];
    let mut bad = one_way(&p.file, &to.address, &[&overhead[..], &[bad_file.to_str().unwrap()]].concat());
    assert!(bad.0.wait().unwrap().success());
    assert!(to.child.try_wait().unwrap().is_none() && fs::read_dir(&p.into).unwrap().next().is_none());
    let mut good = one_way(&p.file, &to.address, &[&overhead[..], &[good_file.to_str().unwrap()]].concat());
    assert!(good.0.wait().unwrap().success());
    assert!(ended(&mut to) && is_equal(&p));
}
