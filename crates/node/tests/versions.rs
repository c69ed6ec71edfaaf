//! This version and another one do each job together, each of them at either end. `./x versions` names the other binary; without it this one is both.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::*;

/// Names the other version's binary.
const OTHER: &str = "NOCTULE_OTHER";

/// The near and the far end's binary, in both orders.
fn pairs() -> Vec<(PathBuf, PathBuf)> {
    let ours = PathBuf::from(NOCTULE);
    match std::env::var_os(OTHER).map(PathBuf::from) {
        Some(other) => {
            let version = |binary: &Path| command(binary).arg("--version").output().unwrap().stdout;
            assert_ne!(version(&ours), version(&other), "{OTHER} names a binary of the same commit");
            vec![(ours.clone(), other.clone()), (other, ours)]
        }
        None => vec![(ours.clone(), ours)],
    }
}

/// A side that listens; ended when dropped.
struct Listening {
    _child: Kill,
    /// The command that it prints for the other side.
    command: String,
    address: String,
}

/// Runs `words` on a free port of loopback.
fn listening(binary: &Path, words: &[&str]) -> Listening {
    let mut child = command(binary).args(words).args(["--bind", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("127.0.0.1:")).expect("it says where it listens");
    let printed = lines.find(|line| line.contains("noctule ")).expect("it prints a command");
    std::thread::spawn(move || lines.for_each(drop));
    let port: String = line.split("127.0.0.1:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    Listening { _child: Kill(child), command: printed, address: format!("127.0.0.1:{port}") }
}

fn ok(out: &Output) {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// A file to send, a directory to receive into, and the key of the far end.
struct Places {
    dir: tempfile::TempDir,
    key: String,
}

impl Places {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), mixed_bytes(3_000_000)).unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        let (_, key) = keygen(dir.path(), "key");
        Self { dir, key }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Whether what arrived is whole; it is taken away.
    fn take(&self) -> bool {
        let path = self.dir.path().join("in/file");
        let is_whole = fs::read(&path).unwrap() == mixed_bytes(3_000_000);
        fs::remove_file(path).unwrap();
        is_whole
    }

    /// A far end that takes anyone.
    fn far(&self, binary: &Path, words: &[&str]) -> Listening {
        listening(binary, &[words, &["--anyone", "--key", &self.path("key")]].concat())
    }

    /// What the near end runs.
    fn near(&self, binary: &Path, words: &[&str]) -> Command {
        let mut command = command(binary);
        command.args(words).args(["--peer-key", &self.key]);
        command
    }
}

#[test]
fn files_arrive_whole_over_a_lossy_path_in_both_modes() {
    for (near, far) in pairs() {
        let p = Places::new();
        let to = p.far(&far, &["recv", "--into", &p.path("in")]);
        let path = Lossy::before(&to.address, 15);
        for mode in ["brtp", "brctp"] {
            ok(&p.near(&near, &["send", &p.path("file"), &path.address, "--mode", mode]).output().unwrap());
            assert!(p.take());
        }
    }
}

#[test]
fn a_code_brings_both_ends_together() {
    for (near, far) in pairs() {
        let p = Places::new();
        let (into, home) = (p.path("in"), p.path("home"));
        let to = listening(&far, &["recv", "--into", &into]);
        let code = to.command.split("--code ").nth(1).unwrap_or_else(|| panic!("{}", to.command)).trim();
        let send = |code: &str| {
            let mut send = command(&near);
            send.env("XDG_CONFIG_HOME", &home).args(["send", &p.path("file"), &to.address, "--code", code]).output().unwrap()
        };
        assert!(!send("1-wrong-code").status.success());
        ok(&send(code));
        assert!(p.take());
    }
}

#[test]
fn files_are_fetched() {
    for (near, far) in pairs() {
        let p = Places::new();
        let from = p.far(&far, &["serve", &p.path("")]);
        for mode in ["brtp", "brctp"] {
            ok(&p.near(&near, &["get", &format!("{}:file", from.address), &p.path("in"), "--mode", mode]).output().unwrap());
            assert!(p.take());
        }
    }
}

#[test]
fn measurements_count_every_byte() {
    for (near, far) in pairs() {
        let p = Places::new();
        let server = p.far(&far, &["perf", "-s"]);
        for more in [&[][..], &["-r"], &["--mode", "btp"], &["--mode", "transparent", "-b", "20mbit"]] {
            let words = [&["perf", "-c", &server.address, "-n", "200K", "-J"], more].concat();
            let out = p.near(&near, &words).output().unwrap();
            ok(&out);
            let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
            assert!(report["end"]["bytes"].as_u64().unwrap() > 0, "{report}");
            assert_eq!(report["end"]["bytes_wrong"].as_u64().unwrap_or(0), 0, "{report}");
        }
        let out = p.near(&near, &["ping", &server.address, "-c", "5", "-i", "20ms"]).output().unwrap();
        ok(&out);
        assert!(String::from_utf8_lossy(&out.stdout).contains("5 answered"), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn connections_cross_a_proxy() {
    for (near, far) in pairs() {
        let p = Places::new();
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = target.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in target.incoming().map_while(Result::ok) {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        let server = p.far(&far, &["proxy", "serve", "--allow-private"]);
        let port = free_tcp_port();
        let listener = format!("127.0.0.1:{port}:{at}");
        let _proxy = Kill(p.near(&near, &["proxy", &server.address, "-L", &listener]).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let writer = stream.try_clone().unwrap();
        let written = std::thread::spawn(move || {
            (&writer).write_all(&mixed_bytes(1_000_000)).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        written.join().unwrap();
        assert!(back == mixed_bytes(1_000_000), "{} bytes came back", back.len());
    }
}

/// `sender - one - two - receiver`: one and the sender of one version, two and the receiver of the other.
#[test]
fn files_cross_relays_of_two_versions() {
    for (near, far) in pairs() {
        let p = Places::new();
        let dir = p.dir.path();
        let (sender, sender_key) = keygen(dir, "sender");
        let [one, two] = two_relays(dir, [&near, &far], &sender_key, &p.key);
        let mut recv = command(&far);
        recv.args(["recv", "--once", "--anyone", "--json", "--into", &p.path("in"), "--key", &p.path("key")]);
        recv.args(["--via", &two.address(), "--via-key", &two.key, "--address", "10.9.0.4"]).stdout(Stdio::piped());
        let mut recv = Kill(recv.spawn().unwrap());
        let mut said = BufReader::new(recv.0.stdout.take().unwrap()).lines();
        assert!(said.next().unwrap().unwrap().contains("listening"));
        let words = ["send", &p.path("file"), "10.9.0.4", "--via", &one.address(), "--via-key", &one.key, "--address", "10.9.0.1"];
        ok(&p.near(&near, &words).arg("--key").arg(&sender).output().unwrap());
        assert!(p.take());
    }
}
