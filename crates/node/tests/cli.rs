//! The built command on loopback, as a user runs it: files that arrive, and every failure with its own words and exit code.

mod support;

use std::fs;

use std::process::Stdio;
use support::*;

#[test]
fn directory_arrives_whole_over_ipv4_and_ipv6() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let dir = tempfile::tempdir().unwrap();
        let (source, into) = (dir.path().join("things"), dir.path().join("in"));
        fs::create_dir_all(source.join("sub/empty-dir")).unwrap();
        fs::create_dir(&into).unwrap();
        fs::write(source.join("empty"), b"").unwrap();
        fs::write(source.join("sub/odd name \u{fc}"), b"hello").unwrap();
        let big: Vec<u8> = (0..3_000_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_be_bytes()).collect();
        fs::write(source.join("big"), &big).unwrap();
        for i in 0..200 {
            fs::write(source.join(format!("sub/small-{i}")), format!("{i}")).unwrap();
        }
        let mut receiver = receiver(bind, &into, &[]);
        let out = send(&[&source], &receiver.address, &receiver.key);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(receiver.child.wait().unwrap().success());
        assert!(fs::read(into.join("things/big")).unwrap() == big);
        assert_eq!(fs::read(into.join("things/sub/odd name \u{fc}")).unwrap(), b"hello");
        assert_eq!(fs::read(into.join("things/empty")).unwrap(), b"");
        assert!(into.join("things/sub/empty-dir").is_dir());
        assert_eq!(fs::read_dir(into.join("things/sub")).unwrap().count(), 202, "nothing else was left behind");
    }
}

#[test]
fn file_that_exists_is_kept_unless_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (file, into) = (dir.path().join("f"), dir.path().join("in"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, b"new").unwrap();
    fs::write(into.join("f"), b"old").unwrap();
    let mut first = receiver("127.0.0.1:0", &into, &[]);
    assert_fails(&send(&[&file], &first.address, &first.key), 14, "--overwrite");
    assert_eq!(fs::read(into.join("f")).unwrap(), b"old");
    assert!(first.child.try_wait().unwrap().is_none(), "what was refused is not the one transfer of --once");
    let second = receiver("127.0.0.1:0", &into, &["--overwrite"]);
    assert!(send(&[&file], &second.address, &second.key).status.success());
    assert_eq!(fs::read(into.join("f")).unwrap(), b"new");
}

#[test]
fn wrong_key_names_both_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (_, other) = keygen(dir.path(), "other");
    let file = dir.path().join("f");
    fs::write(&file, b"secret").unwrap();
    let receiver = receiver("127.0.0.1:0", dir.path(), &[]);
    let out = send(&[&file], &receiver.address, &other);
    assert_fails(&out, 8, &format!("expected key {other}"));
    assert_fails(&out, 8, &format!("has {}", receiver.key));
}

#[test]
fn sender_that_is_not_allowed_is_told_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let (_, allowed) = keygen(dir.path(), "allowed");
    let (mine, public) = keygen(dir.path(), "mine");
    let file = dir.path().join("f");
    fs::write(&file, b"x").unwrap();
    let receiver = receiver("127.0.0.1:0", dir.path(), &["--allow", &allowed]);
    let out =
        noctule().arg("send").arg(&file).arg(&receiver.address).args(["--peer-key", &receiver.key, "--key"]).arg(&mine).output().unwrap();
    assert_fails(&out, 9, &public);
}

#[test]
fn each_failure_has_its_own_words_and_code() {
    let dir = tempfile::tempdir().unwrap();
    let (key_file, key) = keygen(dir.path(), "k");
    let file = dir.path().join("f");
    fs::write(&file, b"x").unwrap();
    assert_fails(&send(&[&dir.path().join("missing")], "127.0.0.1:1", &key), 3, "missing");
    assert_fails(&send(&[&file], "no-such-host.invalid", &key), 13, "no-such-host.invalid");
    assert_fails(&send(&[&file], "127.0.0.1:9", &key), 6, "nobody listens at 127.0.0.1:9");
    // An open port without an answer is told differently.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_fails(&send(&[&file], &silent.local_addr().unwrap().to_string(), &key), 6, "no answer");
    assert_fails(&noctule().args(["send", "f"]).output().unwrap(), 2, "then the host");
    assert_fails(&noctule().args(["recv", "--timeout", "60s"]).output().unwrap(), 2, "between 1s and 30s");
    assert_fails(&noctule().args(["send", "f", "host", "--peer-key", "nonsense"]).output().unwrap(), 2, "nonsense");
    // A key that is there stays, and is shown; without more it is replaced only if asked for.
    let again = noctule().args(["keygen", "-o"]).arg(&key_file).output().unwrap();
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).trim() == key);
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
    let missing = dir.path().join("nowhere");
    assert_fails(&noctule().args(["recv", "--bind", "127.0.0.1:0", "--into"]).arg(&missing).output().unwrap(), 4, "there is no directory");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_fails(&noctule().args(["recv", "--bind", &address, "--into"]).arg(dir.path()).output().unwrap(), 10, "in use");
    // An address of another host is no port that another program has.
    assert_fails(
        &noctule().args(["recv", "--bind", "192.0.2.9", "--into"]).arg(dir.path()).output().unwrap(),
        10,
        "one of this host's own",
    );
}

#[test]
fn a_shell_that_closed_the_outputs_still_gets_the_exit_code() {
    for json in [&["--json"][..], &[]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = noctule();
        command.args(["send", "/does/not/exist", "127.0.0.1:9"]).args(json).stdin(Stdio::null());
        let status = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
        assert!(status.code().is_some_and(|code| code != 0 && code != 101), "{status}: a panic ends with 101");
    }
}
