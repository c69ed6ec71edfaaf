//! The built command as tests run it.
#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nothing takes nearly as long; a hang fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command of this version.
pub const NOCTULE: &str = env!("CARGO_BIN_EXE_noctule");

pub fn noctule() -> Command {
    command(Path::new(NOCTULE))
}

/// A command of this or another version.
pub fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    // No key of the user's own is touched or used.
    command.env("XDG_CONFIG_HOME", "/dev/null/nowhere").env("XDG_RUNTIME_DIR", "/dev/null/nowhere").env_remove("HOME").stdin(Stdio::null());
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
pub fn start_node(binary: &Path, directory: &Path) -> Kill {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).unwrap();
    let mut command = command(binary);
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
    // Senders of tests have fresh keys, unless the test is about which keys may send.
    let is_choosy = more.iter().any(|word| ["--allow", "--authorised-keys", "--code"].contains(word));
    let mut command = noctule();
    command.args(["recv", "--json", "--bind", bind]).args(more).stdout(Stdio::piped());
    if !is_choosy {
        command.arg("--anyone");
    }
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

/// Passes datagrams on between a client and a server and drops every `every`-th that the server is to get.
pub struct Lossy {
    pub address: String,
    is_over: Arc<AtomicBool>,
}

impl Lossy {
    pub fn before(server: &str, every: u64) -> Self {
        Self::losing(server, move |number| number.is_multiple_of(every))
    }

    /// Drops only the `nth` datagram that the server is to get, counted from 1.
    pub fn nth_before(server: &str, nth: u64) -> Self {
        Self::losing(server, move |number| number == nth)
    }

    fn losing(server: &str, is_lost: impl Fn(u64) -> bool + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let server: std::net::SocketAddr = server.parse().unwrap();
        let (address, is_over) = (socket.local_addr().unwrap().to_string(), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let (mut client, mut count, mut buffer) = (None, 0u64, [0; 65_536]);
            while !over.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                if from == server {
                    client.map(|client| socket.send_to(&buffer[..len], client));
                } else {
                    client = Some(from);
                    count += 1;
                    if !is_lost(count) {
                        let _ = socket.send_to(&buffer[..len], server);
                    }
                }
            }
        });
        Self { address, is_over }
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A relay: its file, its process.
pub struct Relay {
    pub binary: PathBuf,
    pub directory: PathBuf,
    pub port: u16,
    pub key: String,
    pub child: Option<Kill>,
}

impl Relay {
    pub fn new(dir: &Path, name: &str) -> Self {
        let directory = dir.join(name);
        fs::create_dir(&directory).unwrap();
        let (_, key) = keygen(&directory, "key");
        // Free now; nobody else on this host asks for a particular one.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { binary: NOCTULE.into(), directory, port, key, child: None }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn start(&mut self, own: &str, more: &str) {
        let head = format!("[node]\nkey = \"key\"\nlisten = \"{}\"\naddresses = [\"{own}\"]\nrelay = true\n", self.address());
        fs::write(self.directory.join("node.toml"), format!("{head}{more}\n[control]\nsocket = \"socket\"\n")).unwrap();
        self.restart();
    }

    pub fn restart(&mut self) {
        self.child = None;
        self.child = Some(start_node(&self.binary, &self.directory));
        let deadline = Instant::now() + PATIENCE;
        while !self.ask().0 {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(self.directory.join("log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.ask().1).unwrap_or_default()
    }

    pub fn has_session(&self, with: &str) -> bool {
        let report = self.report();
        report["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(|n| n["name"] == with && n["session"].is_string()))
    }

    /// Whether it answers, and what.
    pub fn ask(&self) -> (bool, String) {
        let out = command(&self.binary).args(["status", "--json", "--socket"]).arg(self.directory.join("socket")).output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// A `[[neighbour]]` of a node's file.
pub fn neighbour(name: &str, key: &str, address: &str, more: &str) -> String {
    format!("[[neighbour]]\nname = \"{name}\"\nkey = \"{key}\"\naddresses = [\"{address}\"]\n{more}\n")
}

/// `sender - one - two - receiver`, 10.9.0.1 to 10.9.0.4: both relays of such binaries running and linked; the ends are attached by `--via`.
pub fn two_relays(dir: &Path, binaries: [&Path; 2], sender: &str, receiver: &str) -> [Relay; 2] {
    let [mut one, mut two] = ["one", "two"].map(|name| Relay::new(dir, name));
    [one.binary, two.binary] = binaries.map(Path::to_owned);
    let route = |to: &str, via: &str| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"\n");
    let call = format!("endpoint = \"{}\"", two.address());
    one.start(
        "10.9.0.2",
        &(neighbour("sender", sender, "10.9.0.1", "") + &neighbour("two", &two.key, "10.9.0.3", &call) + &route("10.9.0.4", "two")),
    );
    two.start(
        "10.9.0.3",
        &(neighbour("receiver", receiver, "10.9.0.4", "")
            + &neighbour("one", &one.key, "10.9.0.2", "")
            + &neighbour("sender", sender, "10.9.0.1", "")
            + &route("10.9.0.1", "one")),
    );
    let deadline = Instant::now() + PATIENCE;
    while !one.has_session("two") || !two.has_session("one") {
        assert!(Instant::now() < deadline, "the relays found each other: {}", one.ask().1);
        std::thread::sleep(Duration::from_millis(20));
    }
    [one, two]
}

/// Bytes that do not compress, and of which no two parts are equal.
pub fn mixed_bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Free now; nobody else on this host asks for a particular one.
pub fn free_tcp_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Head and body of the answer on loopback.
pub fn http_get(port: u16, target: &str) -> Vec<u8> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.retain(|b| *b != b'\r');
    answer
}
