//! Users of `noctule proxy serve`: the file, its reload, the status and its API, with the built command on loopback.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use support::*;

/// A command and the lines that it prints.
struct Running {
    child: Kill,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    /// `log`: the lines of standard error, otherwise those of standard output.
    fn start(command: &mut Command, log: bool) -> Self {
        let command = if log { command.stdout(Stdio::null()).stderr(Stdio::piped()) } else { command.stdout(Stdio::piped()) };
        let mut child = command.spawn().unwrap();
        let output: Box<dyn Read + Send> = match log {
            true => Box::new(child.stderr.take().unwrap()),
            false => Box::new(child.stdout.take().unwrap()),
        };
        let (out, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = out.send(line);
            }
        });
        Self { child: Kill(child), lines }
    }

    /// The next line with all of these.
    fn line(&self, parts: &[&str]) -> String {
        let began = Instant::now();
        let mut heard = String::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
            heard += &line;
            heard.push('\n');
        }
        panic!("no line with {parts:?}:\n{heard}");
    }
}

/// A server with a file, its socket and its key.
struct Server {
    running: Running,
    file: PathBuf,
    socket: PathBuf,
    address: String,
    key: String,
    public: String,
    dir: tempfile::TempDir,
}

/// Of the client.
fn user(public: &str, more: &str) -> String {
    format!("[[user]]\nname = \"ann\"\nkey = \"{public}\"\n{more}\n")
}

impl Server {
    fn start(head: &str, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (key, public) = keygen(dir.path(), "key");
        let (server_key, server_public) = keygen(dir.path(), "server");
        let file = dir.path().join("serve.toml");
        let socket = dir.path().join("api.sock");
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let head = format!(
            "bind = \"127.0.0.1:{port}\"\nkey = \"{}\"\napi = \"{}\"\nstate = \"{}\"\n{head}",
            server_key.display(),
            socket.display(),
            dir.path().join("quotas.json").display()
        );
        std::fs::write(&file, format!("{head}\n{}", user(&public, more))).unwrap();
        let running = Running::start(noctule().args(["--log-format", "json", "proxy", "serve", "--config"]).arg(&file), true);
        running.line(&["proxy on"]);
        let server = Self { running, file, socket, address: format!("127.0.0.1:{port}"), key: server_public, public, dir };
        std::fs::write(server.dir.path().join("head"), head).unwrap();
        let _ = key;
        server
    }

    /// A client with one SOCKS and HTTP port.
    fn client(&self) -> (Running, u16) {
        let mut command = noctule();
        command.args(["proxy", &self.address, "--peer-key", &self.key, "-D", "127.0.0.1:0", "--json", "--key"]);
        let running = Running::start(command.arg(self.dir.path().join("key")), false);
        let listening: serde_json::Value = serde_json::from_str(&running.line(&["listening"])).unwrap();
        let port = listening["listeners"][0]["addresses"][0].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
        (running, port)
    }

    /// Another file, read by the running server.
    fn reload(&self, users: &str) -> String {
        let head = std::fs::read_to_string(self.dir.path().join("head")).unwrap();
        std::fs::write(&self.file, format!("{head}\n{users}")).unwrap();
        kill_process(Pid::from_child(&self.running.child.0), Signal::HUP).unwrap();
        self.running.line(&["reloaded"])
    }

    fn status(&self, words: &[&str]) -> String {
        let out = noctule().args(["proxy", "status", "--api"]).arg(&self.socket).args(words).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn kick(&self, what: &str) -> std::process::Output {
        noctule().args(["proxy", "kick", what, "--api"]).arg(&self.socket).output().unwrap()
    }
}

/// Says so many bytes to each that connects, and then waits for its end.
fn source(bytes: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = tcp.write_all(&vec![7; bytes]);
                let _ = tcp.read(&mut [0]);
            });
        }
    });
    port
}

/// The answer of an HTTP proxy to CONNECT, its head or, if it refuses, all of it.
fn connect(proxy: u16, target: &str) -> (TcpStream, String) {
    let mut tcp = TcpStream::connect(("127.0.0.1", proxy)).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(tcp, "CONNECT {target} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let mut answer = String::from_utf8(answer).unwrap();
    if !answer.starts_with("HTTP/1.1 200") {
        tcp.read_to_string(&mut answer).unwrap();
    }
    (tcp, answer)
}

/// The same once there is a place: a denied connection has one until its client has heard why.
fn connect_soon(proxy: u16, target: &str) -> (TcpStream, String) {
    let began = Instant::now();
    loop {
        let (tcp, answer) = connect(proxy, target);
        if !answer.contains("connections already") || began.elapsed() > PATIENCE {
            return (tcp, answer);
        }
    }
}

fn is_reset(tcp: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match tcp.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_user_reaches_what_its_rules_say_and_the_log_and_the_status_tell_it() {
    let target = source(1000);
    let rules = format!(
        "allow-target = [\"127.0.0.1:{target}\", \".localhost\"]\ndeny-target = [\"127.0.0.0/8\", \"all:25\", \".example.org\"]\nmax-connections = 2"
    );
    let server = Server::start("allow-private = true", &rules);
    let (_client, proxy) = server.client();
    let (mut held, answer) = connect(proxy, &format!("127.0.0.1:{target}"));
    held.read_exact(&mut [0; 1000]).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for (to, rule) in [("127.0.0.1:9", "deny 127.0.0.0/8"), ("[::1]:25", "deny all:25"), ("www.example.org:80", "deny .example.org")] {
        let (_, answer) = connect_soon(proxy, to);
        // A name without an address here is not found, before any rule is asked.
        if !(to.starts_with("www") && answer.starts_with("HTTP/1.1 502")) {
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("a rule there denies"), "{to}: {answer}");
            server.running.line(&["refused: denied", rule, to, "\"user\":\"ann\""]);
        }
    }
    let (mut second, answer) = connect_soon(proxy, &format!("127.0.0.1:{target}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    second.read_exact(&mut [0; 1000]).unwrap();
    let (_, answer) = connect(proxy, &format!("127.0.0.1:{target}"));
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("this user has 2 connections already"), "{answer}");
    server.running.line(&["too many connections", "\"user\":\"ann\""]);
    let status: serde_json::Value = serde_json::from_str(&server.status(&["--json", "--connections"])).unwrap();
    let ann = &status["users"][0];
    assert_eq!((&ann["name"], &ann["connections"], &ann["down"]), (&"ann".into(), &2.into(), &2000.into()), "{status}");
    assert_eq!(status["open"][0]["rule"], format!("allow 127.0.0.1/32:{target}"));
    assert_eq!(status["targets"][0]["target"], format!("127.0.0.1:{target}"));
    let shown = server.status(&["--connections"]);
    assert!(shown.contains("ann") && shown.contains("2/2") && shown.contains("NUMBER"), "{shown}");
    drop(second);
    let id = status["open"][0]["id"].to_string();
    let out = server.kick(&id);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("ended: 1 connection, 0 sessions"), "{out:?}");
    assert!(is_reset(&mut held));
    let line = server.running.line(&["ended by the server's owner"]);
    for part in ["\"from_target\":1000", "\"wire_sent\":", "\"repaired\":", "\"seconds\":", "allow 127.0.0.1/32", "\"source\":\"127.0.0.1:"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_fails(&server.kick("bob"), 2, "there is no user \"bob\"");
    assert_fails(&server.kick("99999"), 2, "there is no connection 99999");
}

#[test]
fn a_quota_ends_and_is_kept_over_a_restart() {
    let target = source(500_000);
    let server = Server::start("allow-private = true", "quota-total = \"300kB\"");
    let (client, proxy) = server.client();
    let (mut tcp, answer) = connect(proxy, &format!("127.0.0.1:{target}"));
    assert!(answer.starts_with("HTTP/1.1 200") && is_reset(&mut tcp), "{answer}");
    server.running.line(&["the quota of 300000 bytes is used up", "\"from_target\":"]);
    let (_, answer) = connect(proxy, &format!("127.0.0.1:{target}"));
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("the quota of 300000 bytes is used up"), "{answer}");
    assert!(server.status(&[]).contains("used up"));
    drop(client);
    let Server { mut running, file, dir, .. } = server;
    kill_process(Pid::from_child(&running.child.0), Signal::TERM).unwrap();
    running.child.0.wait().unwrap();
    let kept = std::fs::read_to_string(dir.path().join("quotas.json")).unwrap();
    let total = serde_json::from_str::<serde_json::Value>(&kept).unwrap()["ann"]["total"].as_u64().unwrap();
    assert!((300_000..400_000).contains(&total), "{kept}");
    assert!(!dir.path().join("api.sock").exists());
    let again = Running::start(noctule().args(["proxy", "serve", "--config"]).arg(&file), true);
    again.line(&["proxy on"]);
    let out = noctule().args(["proxy", "status", "--json", "--api"]).arg(dir.path().join("api.sock")).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(status["users"][0]["quotas"][0]["used"], total);
}

#[test]
fn a_reload_changes_users_and_cuts_only_what_is_not_allowed_any_more() {
    let (one, other) = (source(10), source(10));
    let server = Server::start("allow-private = true", "");
    let (_client, proxy) = server.client();
    let ((mut to_one, _), (mut to_other, _)) = (connect(proxy, &format!("127.0.0.1:{one}")), connect(proxy, &format!("127.0.0.1:{other}")));
    for tcp in [&mut to_one, &mut to_other] {
        tcp.read_exact(&mut [0; 10]).unwrap();
    }
    // What is wrong changes nothing, and its line is named: five of the head are above.
    let told = server.reload(&user(&server.public, "rate-up = \"5M\""));
    assert!(told.contains("not reloaded") && told.contains("serve.toml:9: rate-up") && told.contains("bits or bytes"), "{told}");
    let told = server.reload(&user(&server.public, &format!("deny-target = \"127.0.0.1:{one}\"\nrate-down = \"1mbit\"")));
    assert!(told.contains("1 user, 0 sessions ended"), "{told}");
    assert!(is_reset(&mut to_one));
    server.running.line(&["the rules do not allow it any more"]);
    to_other.write_all(b"x").unwrap();
    let mut rest = Vec::new();
    to_other.read_to_end(&mut rest).unwrap();
    assert!(server.status(&[]).contains("of 1.00 Mbit/s"));
    // A user that is not listed any more.
    let (_, stranger) = keygen(server.dir.path(), "stranger");
    let told = server.reload(&user(&stranger, ""));
    assert!(told.contains("1 session ended"), "{told}");
    let check = noctule().args(["proxy", "serve", "--check", "--config"]).arg(&server.file).output().unwrap();
    assert!(check.status.success() && String::from_utf8_lossy(&check.stdout).contains("and 1 user: ann"), "{check:?}");
    // The last one, too: nobody may use the proxy then.
    let told = server.reload("");
    assert!(told.contains("0 users") && !told.contains("not reloaded"), "{told}");
    std::fs::write(&server.file, "[[user]]\nname = \"x\"\n").unwrap();
    let check = noctule().args(["proxy", "serve", "--check", "--config"]).arg(&server.file).output().unwrap();
    assert_fails(&check, 2, "serve.toml:1: the user \"x\" has no key");
}

fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    // One that is refused may be closed before all of it is written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn the_api_is_its_owners_wants_the_secret_and_survives_garbage() {
    let server = Server::start("", "");
    let mode = std::fs::metadata(&server.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let over_socket = |request: &[u8]| ask(UnixStream::connect(&server.socket).unwrap(), request);
    let metrics = over_socket(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        metrics.starts_with("HTTP/1.1 200") && metrics.contains("noctule_proxy_user_bytes_total{user=\"ann\",direction=\"down\"} 0"),
        "{metrics}"
    );
    assert!(over_socket(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(over_socket(b"GET /v1/kick HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(over_socket(b"POST /v1/kick HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnope").starts_with("HTTP/1.1 400"));
    assert!(over_socket(b"POST /v1/kick HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"user\": \"bob\"}").starts_with("HTTP/1.1 404"));
    let long = [&b"POST /v1/kick HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"[..], &[b'a'; 9999]].concat();
    assert!(over_socket(&long).starts_with("HTTP/1.1 413"));
    for garbage in [&b"\x16\x03\x01\x00\xff\xff"[..], b"GET", b"\r\n\r\n\r\n", &[b'A'; 100_000], b"GET / HTTP/9.9\r\n\r\n", &[0; 64]] {
        let stream = UnixStream::connect(&server.socket).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let _ = writer.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let answer = ask(stream, b"");
        assert!(!answer.starts_with("HTTP/1.1 200"), "{garbage:?}: {answer}");
    }
    assert!(server.status(&["--json"]).contains("\"users\""));
    // On loopback.
    let secret = server.dir.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let port = free_tcp_port();
    let place = format!("127.0.0.1:{port}");
    let serve = |words: &[&str]| {
        let mut command = noctule();
        command.args(["proxy", "serve", "--bind", "127.0.0.1:0", "--anyone", "--api"]).args(words);
        command
    };
    assert_fails(&serve(&[&place]).output().unwrap(), 2, "needs --api-secret FILE");
    assert_fails(&serve(&["192.0.2.1:9"]).output().unwrap(), 2, "only on loopback");
    assert_fails(&serve(&["nonsense"]).output().unwrap(), 2, "a path with a slash");
    assert_fails(&serve(&[server.socket.to_str().unwrap()]).output().unwrap(), 10, "another process has it");
    let running = Running::start(serve(&[&place, "--api-secret"]).arg(&secret), true);
    running.line(&["proxy on"]);
    let asked = |head: &str| ask(TcpStream::connect(&place).unwrap(), format!("GET /v1/status HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
    for head in [
        "Host: localhost",
        "Host: localhost\r\nAuthorization: Bearer 0123456789abcdeF",
        "Host: localhost\r\nAuthorization: 0123456789abcdef",
    ] {
        assert!(asked(head).starts_with("HTTP/1.1 401"), "{head}");
    }
    assert!(asked("Host: evil.example\r\nAuthorization: Bearer 0123456789abcdef").starts_with("HTTP/1.1 421"));
    assert!(asked("Host: localhost\r\nAuthorization: Bearer 0123456789abcdef").starts_with("HTTP/1.1 200"));
    let status = |file: &Path| noctule().args(["proxy", "status", "--api", &place, "--api-secret"]).arg(file).output().unwrap();
    assert!(status(&secret).status.success());
    let other = server.dir.path().join("other");
    std::fs::write(&other, "another secret of it").unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_fails(&status(&other), 2, "say the secret");
    assert_fails(&noctule().args(["proxy", "status", "--api", "/nowhere/x.sock"]).output().unwrap(), 6, "is `noctule proxy serve` running");
}
