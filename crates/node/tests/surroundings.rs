//! The built command in bad surroundings: without a home directory or standard streams, with few threads or descriptors.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::*;

/// Runs a shell's command line, with the built command as `$NOCTULE`.
fn shell(dir: &Path, line: &str) -> Output {
    let mut command = Command::new("bash");
    command.env("NOCTULE", env!("CARGO_BIN_EXE_noctule")).env("XDG_CONFIG_HOME", dir.join("config")).env_remove("HOME");
    command.current_dir(dir).stdin(Stdio::null()).args(["-c", line]).output().unwrap()
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The command failed with these words: no panic, no success.
fn assert_told(out: &Output, words: &str) {
    let code = out.status.code();
    assert!(code.is_some_and(|code| code != 0 && code != 101), "{code:?} {}", text(out));
    assert!(text(out).contains(words) && !text(out).contains("panicked"), "{words:?}: {}", text(out));
}

#[test]
fn an_empty_or_relative_home_is_none_and_no_key_lies_where_the_command_runs() {
    for (home, xdg) in [("", ""), (".", ""), ("", "here"), ("here", "")] {
        let dir = tempfile::tempdir().unwrap();
        let mut keygen = noctule();
        let out = keygen.current_dir(dir.path()).env("HOME", home).env("XDG_CONFIG_HOME", xdg).arg("keygen").output().unwrap();
        assert_fails(&out, 2, "no home directory");
        let mut recv = noctule();
        recv.current_dir(dir.path()).env("HOME", home).env("XDG_CONFIG_HOME", xdg);
        let out = recv.args(["send", "/dev/null/nothing", "127.0.0.1"]).output().unwrap();
        assert_ne!(out.status.code(), Some(0));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "HOME={home:?} XDG_CONFIG_HOME={xdg:?}");
    }
}

#[test]
fn closed_streams_are_told_where_they_matter() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = receiver("127.0.0.1:0", dir.path(), &[]);
    let to = format!("{} --peer-key {}", receiver.address, receiver.key);
    for name in ["-", "/dev/stdin"] {
        let out = shell(dir.path(), &format!("$NOCTULE send {name} {to} <&-"));
        assert_told(&out, "standard input is closed");
    }
    assert!(!dir.path().join("stdin").exists(), "an empty file arrived");
    assert_told(&shell(dir.path(), "$NOCTULE recv --stdout --bind 127.0.0.1:0 >&-"), "standard output, which is closed");
    // No output can be read; the exit code still tells, and there is no panic.
    for line in ["$NOCTULE --help >&- 2>&-", "$NOCTULE send /does/not/exist 127.0.0.1 >&- 2>&- <&-", "$NOCTULE keygen -o k >&- 2>&- <&-"] {
        let code = shell(dir.path(), line).status.code();
        assert!(code.is_some_and(|code| code != 101), "{line}: {code:?}");
    }
}

#[test]
fn what_comes_from_a_pipe_arrives_whole_however_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (how, name) in [
        ("$NOCTULE send /dev/stdin TO < what", "stdin"),
        ("cat what | $NOCTULE send /dev/stdin TO", "stdin"),
        ("cat what | $NOCTULE send - TO --name other", "other"),
        ("$NOCTULE send <(cat what) TO --name piped", "piped"),
    ] {
        let into = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("what"), "content\n".repeat(9000)).unwrap();
        let receiver = receiver("127.0.0.1:0", into.path(), &[]);
        let to = format!("{} --peer-key {}", receiver.address, receiver.key);
        let out = shell(dir.path(), &how.replace("TO", &to));
        assert!(out.status.success(), "{how}: {}", text(&out));
        assert_eq!(fs::read(into.path().join(name)).unwrap(), fs::read(dir.path().join("what")).unwrap(), "{how}");
    }
    let key = noctule_key();
    let out = shell(dir.path(), &format!("$NOCTULE send <(cat what) 127.0.0.1:9 --peer-key {key}"));
    assert_told(&out, "say --name NAME");
    let out = shell(dir.path(), &format!("mkfifo fifo; $NOCTULE send fifo 127.0.0.1:9 --peer-key {key}"));
    assert_told(&out, "neither a file nor a directory");
    let out = shell(dir.path(), &format!("cat what | $NOCTULE send --mode brctp /dev/stdin 127.0.0.1:9 --peer-key {key}"));
    assert_told(&out, "needs a file");
}

fn noctule_key() -> String {
    let dir = tempfile::tempdir().unwrap();
    keygen(dir.path(), "k").1
}

/// Every limit is either told in words or high enough.
#[test]
fn few_descriptors_are_told_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let key = noctule_key();
    // How many descriptors are open already depends on the host, so every limit around the bound is tried.
    for limit in [3, 4, 5, 6, 8, 10, 12, 20, 40].into_iter().chain(60..100) {
        let out = shell(dir.path(), &format!("ulimit -n {limit}; exec $NOCTULE send /etc/hostname 127.0.0.1:9 --peer-key {key}"));
        assert!(!text(&out).contains("panicked") && out.status.code() != Some(101), "{limit}: {}", text(&out));
        // At the lowest limits bash or the loader fails instead of the command.
        assert_ne!(out.status.code(), Some(0), "{limit}");
    }
    assert_told(&shell(dir.path(), "ulimit -n 12; exec $NOCTULE ping 127.0.0.1:9 --accept-new"), "ulimit -n");
}

#[test]
fn few_threads_are_told_and_never_a_panic() {
    if !rustix::process::geteuid().is_root() {
        println!("*** SKIPPED: a user of its own, whose threads are counted, can be had by root only");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // A copy of the command that the other user can run.
    let binary = dir.path().join("noctule");
    fs::copy(env!("CARGO_BIN_EXE_noctule"), &binary).unwrap();
    let key = noctule_key();
    let mut told = 0;
    for limit in [1, 2, 3, 5, 7, 8, 9, 10, 12] {
        let mut command = Command::new("bash");
        command.env("XDG_CONFIG_HOME", dir.path().join("none")).env_remove("HOME").current_dir(dir.path()).stdin(Stdio::null());
        let line = format!("ulimit -u {limit}; exec ./noctule send /etc/hostname 127.0.0.1:9 --peer-key {key}");
        // A user id that no process on this host has: the limit counts the user's processes.
        let out = command.args(["-c", &line]).uid(54_321).gid(54_321).output().unwrap();
        assert!(!text(&out).contains("panicked") && out.status.code() != Some(101), "{limit}: {}", text(&out));
        assert_ne!(out.status.code(), Some(0), "{limit}");
        told += u32::from(text(&out).contains("ulimit -u"));
    }
    assert!(told > 0, "no limit was low enough");
}
