//! What a server writes down about those that come: when, from where, which key, whose, and what came of it.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use support::*;

/// A server of the command whose log is read; ended when dropped.
struct Server {
    child: std::process::Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut child = noctule().args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (out, lines) = mpsc::channel();
        std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(|line| drop(out.send(line))));
        Self { child, lines }
    }

    /// The first line with these words.
    fn line(&self, words: &str) -> String {
        let mut before = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{words:?} never came: {before}"));
            if line.contains(words) {
                return line;
            }
            before += &line;
            before.push('\n');
        }
    }
}

fn free_port() -> String {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn a_level_that_does_not_exist_is_an_error_everywhere() {
    for words in [&["node", "--log-level", "warnn"][..], &["ping", "h", "--log-level", "warnn"], &["--log-level", "warnn", "keygen"]] {
        assert_fails(&noctule().args(words).output().unwrap(), 2, "\"warnn\" is no level");
    }
    assert_fails(&noctule().env("NOCTULE_LOG", "loud").args(["keygen", "--fingerprint"]).output().unwrap(), 2, "is no level");
    assert_fails(&noctule().args(["keygen", "-v", "-q"]).output().unwrap(), 2, "cannot be used with");
}

#[test]
fn a_transfer_and_a_test_say_whose_they_are_and_what_came_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (server_key, server) = keygen(dir.path(), "server");
    let (own, public) = keygen(dir.path(), "own");
    let (list, file) = (dir.path().join("list"), dir.path().join("f"));
    fs::write(&list, format!("write {public} ann's laptop\n")).unwrap();
    fs::write(&file, b"four").unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let port = free_port();
    let path = |p: &std::path::Path| p.to_str().unwrap().to_owned();
    let common = ["-p", &port, "--bind", "127.0.0.1", "--key", &path(&server_key), "--authorised-keys", &path(&list)];
    let recv = Server::start(&[&["recv", "--into", &path(&dir.path().join("in"))][..], &common].concat());
    recv.line("receiving into");
    let host = format!("127.0.0.1:{port}");
    let send = |more: &[&str]| {
        noctule().arg("send").arg(&file).args([host.as_str(), "--peer-key", &server, "--key", &path(&own)]).args(more).output().unwrap()
    };
    assert!(send(&[]).status.success());
    let line = recv.line("received, every hash verified");
    for words in ["from=127.0.0.1:", &format!("key={public}"), "owner=\"ann's laptop\"", "files=1", "bytes=4", "T", "INFO"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    // The same name with another content is refused, and that is logged, too.
    fs::write(&file, b"five!").unwrap();
    assert_eq!(send(&[]).status.code(), Some(14));
    let line = recv.line("code=14");
    assert!(line.contains("WARN") && line.contains("owner=\"ann's laptop\""), "{line}");
    drop(recv);
    let perf = Server::start(&[&["perf", "-s", "--log-format", "json"][..], &common].concat());
    perf.line("serving tests");
    let ping = noctule().args(["ping", &host, "-c", "2", "--peer-key", &server, "--key", &path(&own)]).output().unwrap();
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    let line: serde_json::Value = serde_json::from_str(&perf.line("\"ping\"")).unwrap();
    assert_eq!((line["span"]["owner"].as_str(), line["level"].as_str()), (Some("ann's laptop"), Some("INFO")), "{line}");
}

#[test]
fn a_stranger_without_a_code_stands_in_the_log_and_quiet_keeps_the_code() {
    let dir = tempfile::tempdir().unwrap();
    let (server_key, server) = keygen(dir.path(), "server");
    let (own, public) = keygen(dir.path(), "own");
    fs::write(dir.path().join("f"), b"four").unwrap();
    let port = free_port();
    let recv = Server::start(&["recv", "-q", "--into", dir.path().to_str().unwrap(), "-p", &port, "--key", server_key.to_str().unwrap()]);
    assert!(recv.line("--code ").contains("noctule send"));
    let out = noctule()
        .arg("send")
        .arg(dir.path().join("f"))
        .arg(format!("127.0.0.1:{port}"))
        .args(["--peer-key", &server, "--key"])
        .arg(&own)
        .output();
    assert_eq!(out.unwrap().status.code(), Some(9));
    let line = recv.line("refused");
    assert!(line.contains(&format!("key={public}")) && line.contains("from="), "{line}");
}
