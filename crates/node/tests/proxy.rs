//! `noctule proxy` and `noctule proxy serve`, with the built command on loopback and programs that know nothing of them.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::*;

/// A command that prints events; ended when dropped.
struct Running {
    child: Kill,
    events: mpsc::Receiver<serde_json::Value>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (out, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = out.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child: Kill(child), events }
    }

    /// The next event of this kind.
    fn event(&self, kind: &str) -> serde_json::Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).unwrap();
            if event["event"] == kind {
                return event;
            }
        }
    }
}

struct Server {
    _running: Running,
    address: String,
    key: String,
}

fn server(bind: &str, key: Option<&Path>, more: &[&str]) -> Server {
    let mut command = noctule();
    command.args(["proxy", "serve", "--json", "--bind", bind]).args(more);
    if let Some(key) = key {
        command.arg("--key").arg(key);
    }
    if !more.iter().any(|word| ["--allow", "--authorised-keys", "--code"].contains(word)) {
        command.arg("--anyone");
    }
    let running = Running::start(&mut command);
    let first = running.event("listening");
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    Server { address: text("address"), key: text("public_key"), _running: running }
}

impl Server {
    fn proxy(&self, more: &[&str]) -> Command {
        let mut command = noctule();
        command.args(["proxy", &self.address, "--peer-key", &self.key]).args(more);
        command
    }

    /// A client with these listeners, and the ports of the loopback that it has.
    fn client(&self, more: &[&str]) -> (Running, Vec<u16>) {
        let running = Running::start(self.proxy(&["--json"]).args(more));
        let listening = running.event("listening");
        let port = |l: &serde_json::Value| l["addresses"][0].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
        let ports = listening["listeners"].as_array().unwrap().iter().map(port).collect();
        (running, ports)
    }
}

/// A web server that answers every request with its first line.
fn web() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(tcp.try_clone().unwrap());
                let (mut first, mut line) = (String::new(), String::new());
                let _ = reader.read_line(&mut first);
                while reader.read_line(&mut line).is_ok_and(|len| len > 2) {
                    line.clear();
                }
                let body = format!("heard {first}");
                let _ = write!(tcp, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            });
        }
    });
    port
}

fn curl(words: &[&str]) -> Option<Output> {
    match Command::new("curl").args(["-sS", "--max-time", "30", "--noproxy", "nobody"]).args(words).output() {
        Ok(out) => Some(out),
        Err(_) => {
            println!("*** SKIPPED: there is no curl on this host");
            None
        }
    }
}

#[test]
fn curl_gets_pages_by_every_kind_of_proxy_and_names_are_resolved_at_the_far_end() {
    let web = web();
    let server = server("127.0.0.1:0", None, &["--allow-target", &format!("localhost:{web}")]);
    let (_client, ports) = server.client(&["-D", "127.0.0.1:0", "-L", &format!("127.0.0.1:0:localhost:{web}")]);
    // Those of -L come first.
    let (forwarded, proxy) = (ports[0], ports[1]);
    let page = format!("http://localhost:{web}/page");
    for kind in ["socks5h", "socks4a", "http"] {
        let Some(out) = curl(&["-x", &format!("{kind}://127.0.0.1:{proxy}"), &page]) else { return };
        assert_eq!(
            String::from_utf8_lossy(&out.stdout).trim(),
            "heard GET /page HTTP/1.1",
            "{kind} {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    let out = curl(&["-p", "-x", &format!("http://127.0.0.1:{proxy}"), &page]).unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("heard GET /page"), "CONNECT");
    let out = curl(&[&format!("http://127.0.0.1:{forwarded}/page")]).unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("heard GET /page"), "-L");
    // Resolved here the name is an address, which no rule of the server is about.
    let out = curl(&["-x", &format!("socks5://127.0.0.1:{proxy}"), &page]).unwrap();
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("(2)"), "{}", String::from_utf8_lossy(&out.stderr));
    let status = ["-o", "/dev/null", "-w", "%{http_code}", "-x"];
    for (target, code) in [("http://127.0.0.1:9/", "403"), ("http://no.such.name.invalid/", "502")] {
        let out = curl(&[&status[..], &[&format!("http://127.0.0.1:{proxy}"), target]].concat()).unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), code, "{target}");
    }
}

#[test]
fn standard_input_and_output_are_one_connection_for_ssh() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        let mut question = Vec::new();
        // The end of standard input is the end of this way only.
        tcp.read_to_end(&mut question).unwrap();
        tcp.write_all(&question).unwrap();
        tcp.write_all(&vec![b'x'; 3_000_000]).unwrap();
    });
    let server = server("127.0.0.1:0", None, &["--allow-private"]);
    let mut child = server.proxy(&["-W", &format!("127.0.0.1:{port}")]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"question").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(out.stdout.starts_with(b"questionxxx") && out.stdout.len() == 3_000_008, "{}", out.stdout.len());
    let out = server.proxy(&["-W", "127.0.0.1:1"]).output().unwrap();
    assert_fails(&out, 20, "127.0.0.1:1: connection refused");
}

#[test]
fn the_server_may_go_and_come_back_and_the_ports_stay() {
    let (web, dir) = (web(), tempfile::tempdir().unwrap());
    let (key, _) = keygen(dir.path(), "key");
    let first = server("127.0.0.1:0", Some(&key), &["--allow-private"]);
    let (client, ports) =
        first.client(&["-L", &format!("127.0.0.1:0:127.0.0.1:{web}"), "-R", &format!("127.0.0.1:0:127.0.0.1:{web}"), "--timeout", "2s"]);
    let refused = client.event("remote");
    assert!(refused["message"].as_str().unwrap().contains("--allow-remote-listen"), "{refused}");
    let get = || {
        let mut tcp = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).map(|_| answer)
    };
    assert!(get().unwrap().contains("heard GET /"));
    let address = first.address.clone();
    // No word of farewell.
    drop(first);
    assert_eq!(client.event("session")["up"], false);
    let second = server(&address, Some(&key), &["--allow-private", "--allow-remote-listen"]);
    assert_eq!(client.event("session")["up"], true);
    assert!(get().unwrap().contains("heard GET /"));
    let remote = client.event("remote");
    let mut tcp = TcpStream::connect(remote["address"].as_str().unwrap()).unwrap();
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("heard GET /"), "-R is asked for again");
    drop(second);
}

#[test]
fn a_port_of_the_other_side_that_is_denied_ends_the_command_that_wants_nothing_else() {
    let server = server("127.0.0.1:0", None, &[]);
    let out = server.proxy(&["-R", "127.0.0.1:0:127.0.0.1:1"]).output().unwrap();
    assert_fails(&out, 9, "--allow-remote-listen");
    let (_client, _) = server.client(&["-D", "127.0.0.1:0", "-R", "127.0.0.1:0:127.0.0.1:1"]);
}

#[test]
fn what_is_wrong_at_the_start_is_told_with_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let (key, public) = keygen(dir.path(), "key");
    let server = server("127.0.0.1:0", None, &["--allow", &public]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let out = server.proxy(&["-D", &format!("127.0.0.1:{port}")]).output().unwrap();
    assert_fails(&out, 10, &format!("cannot listen on TCP 127.0.0.1:{port}"));
    let out = server.proxy(&["-D", "127.0.0.1:0"]).output().unwrap();
    assert_fails(&out, 9, "the peer does not accept this key");
    assert_fails(&server.proxy(&[]).output().unwrap(), 2, "nothing to listen for");
    // A key that may connect, and not by the proxy.
    let list = dir.path().join("keys");
    let other = keygen(dir.path(), "other").1;
    std::fs::write(&list, format!("read {public}\nproxy {other}\n")).unwrap();
    let listed = self::server("127.0.0.1:0", None, &["--authorised-keys", list.to_str().unwrap()]);
    let out = listed.proxy(&["-D", "127.0.0.1:0", "--key", key.to_str().unwrap()]).output().unwrap();
    assert_fails(&out, 9, "lacks the option `proxy`");
    // Another server.
    let into = dir.path().join("in");
    std::fs::create_dir(&into).unwrap();
    let receiver = receiver("127.0.0.1:0", &into, &[]);
    let out = noctule().args(["proxy", &receiver.address, "--peer-key", &receiver.key, "-D", "127.0.0.1:0"]).output().unwrap();
    assert_fails(&out, 7, "noctule recv or serve runs there");
}

#[test]
fn a_file_says_the_same_and_a_plugin_is_told_by_its_environment() {
    let (web, dir) = (web(), tempfile::tempdir().unwrap());
    let file = dir.path().join("serve.toml");
    std::fs::write(&file, "bind = \"127.0.0.1:0\"\nanyone = true\njson = true\nallow-private = true\n").unwrap();
    let check = noctule().args(["proxy", "serve", "--check", "--config"]).arg(&file).output().unwrap();
    let shown = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success() && shown.contains("noctule proxy serve ") && shown.contains("--bind=127.0.0.1:0"), "{shown}");
    let running = Running::start(noctule().args(["proxy", "serve", "--config"]).arg(&file));
    let listening = running.event("listening");
    let key = listening["public_key"].as_str().unwrap();
    std::fs::write(&file, format!("host = {}\npeer-key = \"{key}\"\nlocl = []\n", listening["address"])).unwrap();
    let out = noctule().args(["proxy", "--config"]).arg(&file).output().unwrap();
    assert_fails(&out, 2, "serve.toml:3: unknown key `locl`");
    std::fs::write(
        &file,
        format!("host = {}\npeer-key = \"{key}\"\nlocal = \"127.0.0.1:0:127.0.0.1:{web}\"\njson = true\n", listening["address"]),
    )
    .unwrap();
    let client = Running::start(noctule().args(["proxy", "--config"]).arg(&file));
    assert!(client.event("listening")["listeners"][0]["to"].as_str().unwrap().ends_with(&web.to_string()));
    // As shadowsocks starts it: its server is the web server here.
    let (port, near) = (std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(), free_tcp_port());
    let plugin = |local: u16, options: &str| {
        let mut command = noctule();
        command.args(["proxy", "--plugin"]).envs([
            ("SS_REMOTE_HOST", "127.0.0.1"),
            ("SS_LOCAL_HOST", "127.0.0.1"),
            ("SS_PLUGIN_OPTIONS", options),
        ]);
        command.env("SS_REMOTE_PORT", port.to_string()).env("SS_LOCAL_PORT", local.to_string());
        Running::start(&mut command)
    };
    let far = plugin(web, "server;anyone;json");
    let key = far.event("listening")["public_key"].as_str().unwrap().to_owned();
    let here = plugin(near, &format!("peer-key={key};json"));
    here.event("listening");
    let mut tcp = TcpStream::connect(("127.0.0.1", near)).unwrap();
    tcp.write_all(b"GET /by-plugin HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("heard GET /by-plugin"), "{answer}");
    let out = noctule().args(["proxy", "--plugin"]).output().unwrap();
    assert_fails(&out, 2, "SS_REMOTE_HOST is not set");
}

/// A connection to a port that nobody serves is held for a while and then reset; the process stays.
#[test]
fn a_dead_server_ends_no_client() {
    let server = server("127.0.0.1:0", None, &["--allow-private"]);
    let (mut client, ports) = server.client(&["-L", "127.0.0.1:0:127.0.0.1:1", "--timeout", "2s"]);
    drop(server);
    client.event("session");
    let began = Instant::now();
    let mut tcp = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(tcp.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(began.elapsed() < PATIENCE);
    std::thread::sleep(Duration::from_millis(100));
    assert!(client.child.0.try_wait().unwrap().is_none());
}

/// A link with a code lets one peer in; the key that it names is remembered, and pinned against another link.
#[test]
fn a_link_leads_to_its_server_and_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (key, public) = keygen(dir.path(), "server");
    let (mine, _) = keygen(dir.path(), "mine");
    let known = dir.path().join("known");
    let serving = Running::start(
        noctule().args(["proxy", "serve", "--json", "--allow-private", "--bind", "127.0.0.1:0", "--code", "--key"]).arg(&key),
    );
    let listening = serving.event("listening");
    let (address, code) = (listening["address"].as_str().unwrap(), listening["code"].as_str().unwrap());
    let share = |words: &[&str]| {
        let out = noctule().args(["proxy", "share", address]).args(words).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let link = share(&["--key", key.to_str().unwrap(), "--code", code, "--name", "the hill"]);
    assert_eq!(link, format!("noctule://{address}/?key={public}&name=the%20hill&code={code}"));
    let take = |link: &str| {
        let mut command = noctule();
        command.args(["proxy", "--from-link", link, "-D", "127.0.0.1:0", "--json", "--key"]).arg(&mine).arg("--known-hosts").arg(&known);
        command
    };
    let mut command = take("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Kill(command.spawn().unwrap());
    writeln!(child.0.stdin.take().unwrap(), "{link}").unwrap();
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"listening\""), "{line}");
    assert_eq!(std::fs::read_to_string(&known).unwrap(), format!("{address} {public}\n"));
    // Another key for the same host.
    let (_, other) = keygen(dir.path(), "other");
    assert_fails(&take(&share(&["--peer-key", &other])).output().unwrap(), 2, "the link says another key");
    assert_fails(&take("noctule://hill/?name=x").output().unwrap(), 2, "lacks the server's key");
    let beside = noctule().args(["proxy", &public, "--from-link", &link, "-D", "1080"]).output().unwrap();
    assert_fails(&beside, 2, "cannot be used with");
}
