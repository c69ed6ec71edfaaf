//! Trust in keys, with the built command on loopback: hosts that are unknown, known or changed, authorised keys, pre-shared keys, no encryption.

mod support;

use std::fs;
use std::process::Output;
use support::*;

/// A sender with a configuration directory of its own.
fn send_as(home: &std::path::Path, more: &[&str], receiver: &Receiver, file: &std::path::Path) -> Output {
    noctule().env("XDG_CONFIG_HOME", home).arg("send").arg(file).arg(&receiver.address).args(more).output().unwrap()
}

#[test]
fn unknown_host_is_refused_then_taken_when_asked_then_known_then_refused_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (home, into) = (dir.path().join("home"), dir.path().join("in"));
    fs::create_dir(&into).unwrap();
    let file = dir.path().join("f");
    fs::write(&file, b"x").unwrap();
    let (first_key, public) = keygen(dir.path(), "first");
    let (second_key, second_public) = keygen(dir.path(), "second");
    let first = receiver("127.0.0.1:0", &into, &["--overwrite", "--key", first_key.to_str().unwrap()]);
    // Nobody is there to answer: refused, with what to do. The receiver, which runs --once, is not ended by that.
    let out = send_as(&home, &[], &first, &file);
    assert_fails(&out, 15, "--accept-new");
    assert_fails(&out, 15, &public);
    assert!(!home.join("noctule/known_hosts").exists(), "nothing is remembered without consent");
    let out = send_as(&home, &["--accept-new"], &first, &file);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let hosts = fs::read_to_string(home.join("noctule/known_hosts")).unwrap();
    assert_eq!(hosts, format!("{} {public}\n", first.address));
    drop(first);
    let address = hosts.split(' ').next().unwrap().to_owned();
    let again = receiver(&address, &into, &["--overwrite", "--key", first_key.to_str().unwrap()]);
    assert!(send_as(&home, &[], &again, &file).status.success(), "a known host needs no more words");
    drop(again);
    let other = receiver(&address, &into, &["--overwrite", "--key", second_key.to_str().unwrap()]);
    for more in [&[][..], &["--accept-new"]] {
        let out = send_as(&home, more, &other, &file);
        assert_fails(&out, 8, "HAS CHANGED");
        assert_fails(&out, 8, &format!("{}, line 1", home.join("noctule/known_hosts").display()));
        assert_fails(&out, 8, &second_public);
    }
    let out = noctule().env("XDG_CONFIG_HOME", &home).args(["keygen", "--forget", &address]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(send_as(&home, &["--accept-new"], &other, &file).status.success());
}

#[test]
fn authorised_keys_say_who_connects_who_writes_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("in");
    fs::create_dir(&into).unwrap();
    let file = dir.path().join("f");
    fs::write(&file, b"x").unwrap();
    let keys: Vec<_> = ["writer", "reader", "stranger"].iter().map(|n| keygen(dir.path(), n)).collect();
    let list = dir.path().join("list");
    fs::write(&list, format!("write,dir=\"from writer\" {} the writer\n{}\n", keys[0].1, keys[1].1)).unwrap();
    for (name, code, words) in [(0, 0, ""), (1, 9, "lacks the option `write`"), (2, 9, "does not accept this key")] {
        let receiver = receiver("127.0.0.1:0", &into, &["--authorised-keys", list.to_str().unwrap()]);
        let key: &(std::path::PathBuf, String) = &keys[name];
        let out = noctule()
            .arg("send")
            .arg(&file)
            .arg(&receiver.address)
            .args(["--peer-key", &receiver.key, "--key"])
            .arg(&key.0)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(String::from_utf8_lossy(&out.stderr).contains(words), "{}", String::from_utf8_lossy(&out.stderr));
    }
    assert_eq!(fs::read(into.join("from writer/f")).unwrap(), b"x");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
    fs::write(&list, "write nonsense").unwrap();
    let out = noctule().args(["recv", "--bind", "127.0.0.1:0", "--authorised-keys"]).arg(&list).output().unwrap();
    assert_fails(&out, 3, "line 1");
}

#[test]
fn pre_shared_key_is_needed_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let (file, into, psk) = (dir.path().join("f"), dir.path().join("in"), dir.path().join("psk"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, b"x").unwrap();
    assert!(noctule().args(["keygen", "--shared", "-o"]).arg(&psk).output().unwrap().status.success());
    let receiver = receiver("127.0.0.1:0", &into, &["--psk", psk.to_str().unwrap()]);
    assert_fails(&send(&[&file], &receiver.address, &receiver.key), 6, "--psk");
    // An unknown host as well: the question for its key has the pre-shared key in it.
    let home = dir.path().join("home");
    let out = send_as(&home, &["--accept-new", "--psk", psk.to_str().unwrap()], &receiver, &file);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Another one is as good as none, and not taken for a receiver that was started anew, which takes handshakes just so.
    let other = dir.path().join("other-psk");
    assert!(noctule().args(["keygen", "--shared", "-o"]).arg(&other).output().unwrap().status.success());
    let again = support::receiver("127.0.0.1:0", &into, &["--psk", psk.to_str().unwrap()]);
    let out = send_as(&home, &["--peer-key", &again.key, "--psk", other.to_str().unwrap()], &again, &file);
    assert_fails(&out, 6, "is --psk the same on both sides");
    let (own, _) = keygen(dir.path(), "own");
    assert_fails(&noctule().args(["recv", "--psk"]).arg(&own).output().unwrap(), 3, "pre-shared");
}

#[test]
fn encryption_is_off_only_if_both_sides_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let (file, into) = (dir.path().join("f"), dir.path().join("in"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, b"x").unwrap();
    for (ours, theirs, code) in [(true, false, 16), (false, true, 0), (true, true, 0)] {
        let _ = fs::remove_file(into.join("f"));
        let flag = |is_on| if is_on { &["--no-encryption"][..] } else { &[] };
        let receiver = receiver("127.0.0.1:0", &into, flag(theirs));
        let out =
            noctule().arg("send").arg(&file).arg(&receiver.address).args(["--peer-key", &receiver.key]).args(flag(ours)).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(into.join("f").exists(), code == 0);
        let warned = String::from_utf8_lossy(&out.stderr).contains("NOT ENCRYPTED");
        assert_eq!(warned, ours && theirs, "the user is told what is in the clear");
    }
}

#[test]
fn fingerprints_of_a_file_and_of_a_public_key_agree() {
    let dir = tempfile::tempdir().unwrap();
    let (file, public) = keygen(dir.path(), "k");
    let of_file = noctule().args(["keygen", "--fingerprint", "-o"]).arg(&file).output().unwrap();
    let of_key = noctule().args(["keygen", "--fingerprint", &public]).output().unwrap();
    assert!(of_file.status.success() && of_key.status.success());
    assert_eq!(of_file.stdout, of_key.stdout);
    let text = String::from_utf8(of_key.stdout).unwrap();
    assert!(text.trim().ends_with(&public) && text.split(' ').next().unwrap().len() == 29, "{text}");
}
