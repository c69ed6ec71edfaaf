//! The built command as tests run it.
#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

use std::io::{BufRead, BufReader, Read};
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

/// A process that is ended when dropped.
pub struct Kill(pub Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `noctule node` by the file node.toml in this directory; what it says goes into the file log there.
pub fn start_node(directory: &Path) -> Kill {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).unwrap();
    let mut command = noctule();
    command.args(["node", "--log-level", "debug", "--config"]).arg(directory.join("node.toml"));
    Kill(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

/// A `recv --once --json` that listens; ended when dropped.
pub struct Receiver {
    pub child: Child,
    pub address: String,
    pub key: String,
    output: Option<std::thread::JoinHandle<Vec<u8>>>,
}

impl Receiver {
    /// What it wrote to standard output, once it has ended.
    pub fn output(&mut self) -> Vec<u8> {
        self.output.take().map(|o| o.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn receiver(bind: &str, into: &Path, more: &[&str]) -> Receiver {
    receiver_on(bind, &[&["--once", "--into", into.to_str().unwrap()], more].concat())
}

/// The line about listening comes on standard error if contents go to standard output.
pub fn receiver_on(bind: &str, more: &[&str]) -> Receiver {
    let is_stdout = more.contains(&"--stdout");
    let mut command = noctule();
    command.args(["recv", "--json", "--bind", bind]).args(more).stdout(Stdio::piped());
    if is_stdout {
        command.stderr(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    match child.stderr.take() {
        Some(errors) => {
            let mut errors = BufReader::new(errors);
            while !line.starts_with('{') {
                line.clear();
                errors.read_line(&mut line).unwrap();
            }
            // The rest is read so that the receiver never blocks on it.
            std::thread::spawn(move || errors.lines().for_each(drop));
        }
        None => drop(out.read_line(&mut line).unwrap()),
    }
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(first["event"], "listening", "{first}");
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    let (address, key) = (text("address"), text("public_key"));
    let output = std::thread::spawn(move || {
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).unwrap();
        rest
    });
    Receiver { child, address, key, output: Some(output) }
}

pub fn send(files: &[&Path], host: &str, key: &str) -> Output {
    noctule().arg("send").args(files).arg(host).args(["--peer-key", key]).output().unwrap()
}

pub fn assert_fails(out: &Output, code: i32, words: &str) {
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{text}");
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}
