//! Real nodes in network namespaces: `noctule node` processes, each with a file of its own, and what runs inside their networks.
#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

#[path = "../support/mod.rs"]
mod support;

use noctule_lab::net::chain::{BackendChoice, Chain};
use noctule_lab::net::emulator::Emulator;
use noctule_lab::net::namespace::Namespace;
use noctule_lab::scenario::{Hop, Ip};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "not every test file makes keys")]
pub use support::{keygen, noctule};

/// Nothing takes nearly as long; a hang fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Past the test harness, which would swallow what a passing test prints.
pub fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "\n*** SKIPPED {test}: {}\n", why.trim());
}

/// Runs these words on a host, to their end.
pub fn run(host: &Namespace, words: &str) -> Output {
    let mut words = words.split(' ');
    host.command(words.next().unwrap()).args(words).output().unwrap()
}

/// `ip` with these words on a host; what it prints.
pub fn ip(host: &Namespace, words: &str) -> String {
    let out = run(host, &format!("ip {words}"));
    assert!(out.status.success(), "ip {words}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Hosts in a row over such emulated links; `None`, after a notice, where this is not permitted.
pub fn chain_of(test: &str, hops: &[Hop]) -> Option<(Chain, Emulator)> {
    match Chain::build(hops, Ip::V4, BackendChoice::Emulator, 5) {
        Ok(mut chain) => {
            // The overlay has IPv6, whatever the links have.
            for host in chain.hosts() {
                host.sysctl("net.ipv6.conf.all.disable_ipv6", "0").unwrap();
            }
            let emulator = chain.start(Default::default()).unwrap().expect("the emulator was asked for");
            Some((chain, emulator))
        }
        Err(error) if error.is_not_permitted() => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A running node; ended when dropped.
pub struct Node {
    pub name: String,
    pub host: Namespace,
    directory: PathBuf,
    child: Option<Child>,
}

impl Node {
    /// Writes the node's file and starts it; `key` lies beside it already.
    pub fn start(directory: &Path, name: &str, host: &Namespace, file: &str) -> Self {
        let mut node = Self { name: name.to_owned(), host: host.clone(), directory: directory.join(name), child: None };
        node.write(file);
        node.restart();
        node
    }

    /// Replaces its file.
    pub fn write(&self, file: &str) {
        std::fs::write(self.directory.join("node.toml"), format!("{file}\n[control]\nsocket = \"socket\"\n")).unwrap();
    }

    /// Ends it, without a farewell, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it as a supervisor does, and waits until it has gone.
    pub fn terminate(&mut self) {
        if let Some(mut child) = self.child.take() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
        }
    }

    /// Its exit code, once it has ended by itself.
    pub fn ending(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        let child = self.child.as_mut()?;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        self.kill();
        let log = File::options().create(true).append(true).open(self.directory.join("log")).unwrap();
        let mut command = self.host.command(env!("CARGO_BIN_EXE_noctule"));
        command.args(["node", "--log-level", "debug", "--config"]).arg(self.directory.join("node.toml"));
        self.child = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("the node starts"));
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// `noctule COMMAND --socket …` for this node.
    pub fn ask(&self, words: &[&str]) -> Output {
        noctule().args(words).arg("--socket").arg(self.directory.join("socket")).output().unwrap()
    }

    /// Its report, as soon as it gives one.
    pub fn status(&mut self) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let out = self.ask(&["status", "--json"]);
            if out.status.success() {
                return serde_json::from_slice(&out.stdout).expect("one JSON object");
            }
            let ended = self.child.as_mut().and_then(|c| c.try_wait().unwrap());
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{}: {}\n{}",
                self.name,
                String::from_utf8_lossy(&out.stderr),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until its report is as `is_so` wants it.
    pub fn wait_for(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.status();
            if is_so(&report) {
                return report;
            }
            assert!(Instant::now() < deadline, "{} did not come to {what}: {report:#}\n{}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until it has a session with another node.
    pub fn wait_for_session(&mut self, with: &str) {
        self.wait_for("a session", |report| node_of(report, with)["session"].is_string());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a report says of another node.
pub fn node_of<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["nodes"].as_array().and_then(|nodes| nodes.iter().find(|n| n["name"] == name)).unwrap_or(&Value::Null)
}

/// Answers every datagram, and sends every byte of a TCP connection back, inside a namespace, until the process ends.
pub fn echo(host: &Namespace, port: u16) {
    let bind = SocketAddr::from(([0u16; 8], port));
    let (udp, tcp) = host.enter(|| (UdpSocket::bind(bind).unwrap(), TcpListener::bind(bind).unwrap())).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok((length, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(&buffer[..length], from);
        }
    });
    std::thread::spawn(move || {
        for stream in tcp.incoming().flatten() {
            std::thread::spawn(move || {
                let mut from = stream.try_clone().unwrap();
                let mut to = stream;
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
}

/// A UDP socket inside a namespace that does not wait for ever.
pub fn udp(host: &Namespace, bind: &str) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind(bind).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// Sends datagrams one by one until one is answered; how many were not.
pub fn ping(socket: &UdpSocket, to: &str) -> Option<usize> {
    let mut buffer = [0; 2048];
    (0..60).find(|n| {
        let _ = socket.send_to(&[*n as u8; 100], to);
        socket.recv_from(&mut buffer).is_ok_and(|(length, _)| length == 100)
    })
}

/// A TCP connection from inside a namespace.
pub fn tcp(host: &Namespace, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    let stream = host.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    Ok(stream)
}

/// Sends so many bytes and reads them back, which must be the same; `midway` runs meanwhile.
pub fn there_and_back(stream: TcpStream, bytes: usize, midway: impl FnOnce()) {
    let content: Vec<u8> = (0..bytes).map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect();
    let mut sender = stream.try_clone().unwrap();
    let (expected, mut reader) = (content.clone(), stream);
    let sending = std::thread::spawn(move || {
        sender.write_all(&content).expect("the connection lives");
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut got = vec![0; bytes];
    reader.read_exact(&mut got[..bytes / 4]).expect("the first quarter comes back");
    midway();
    reader.read_exact(&mut got[bytes / 4..]).expect("the rest comes back");
    sending.join().unwrap();
    assert!(got == expected, "every byte is the same");
}
