//! The built command as tests run it.
#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub fn noctule() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_noctule"));
    // No key of the user's own is touched or used.
    command.env("XDG_CONFIG_HOME", "/dev/null/nowhere").env_remove("HOME").stdin(Stdio::null());
    command
}

pub fn keygen(dir: &Path, name: &str) -> (PathBuf, String) {
    let file = dir.join(name);
    let out = noctule().args(["keygen", "-o"]).arg(&file).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (file, String::from_utf8(out.stdout).unwrap().trim().to_owned())
}

/// A `recv --once --json` that listens; ended when dropped.
pub struct Receiver {
    pub child: Child,
    pub address: String,
    pub key: String,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn receiver(bind: &str, into: &Path, more: &[&str]) -> Receiver {
    let mut child =
        noctule().args(["recv", "--once", "--json", "--bind", bind, "--into"]).arg(into).args(more).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["event"], "listening", "{first}");
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    let receiver = Receiver { child, address: text("address"), key: text("public_key") };
    // The rest is read so that the receiver never blocks on it.
    std::thread::spawn(move || lines.for_each(drop));
    receiver
}

pub fn send(files: &[&Path], host: &str, key: &str) -> Output {
    noctule().arg("send").args(files).arg(host).args(["--peer-key", key]).output().unwrap()
}

pub fn assert_fails(out: &Output, code: i32, words: &str) {
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}
