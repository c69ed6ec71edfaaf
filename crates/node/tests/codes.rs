//! Codes and listed keys with the built command on loopback: no other sender may send or measure, strangers neither use up nor end what waits for the
//! code, and the printed commands run unchanged.

mod support;

use noctule::{Endpoint, EndpointConfig, FlowOptions, IncomingFlow, PublicKey, Session};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Instant;
use support::*;

/// Tag of the stream for codes (docs/spec/code.md).
const CODE_TAG: u64 = 0x636f_6465;

/// A side that listens, and what it says on standard error.
struct Listening {
    child: Kill,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
    output: Option<std::thread::JoinHandle<Vec<u8>>>,
}

impl Listening {
    /// Runs `words` with a configuration directory of its own.
    fn start(home: &Path, words: &[&str]) -> Self {
        let mut command = noctule();
        command.env("XDG_CONFIG_HOME", home).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, mut out) = (BufReader::new(child.stderr.take().unwrap()), child.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let output = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = out.read_to_end(&mut all);
            all
        });
        Self { child: Kill(child), lines, said: Vec::new(), output: Some(output) }
    }

    /// The next line that contains this.
    fn hear(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("nobody said {words:?}: {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(words) {
                return line.trim().to_owned();
            }
        }
    }

    /// The code of the next printed command.
    fn code(&mut self) -> String {
        self.hear("--code ").rsplit(' ').next().unwrap().to_owned()
    }

    fn is_running(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_none()
    }

    fn end(&mut self) -> (Option<i32>, Vec<u8>) {
        let status = self.child.0.wait().unwrap();
        (status.code(), self.output.take().unwrap().join().unwrap())
    }
}

/// A place for a test: two users' configurations, a directory to receive into, a file.
struct World {
    dir: tempfile::TempDir,
    here: PathBuf,
    there: PathBuf,
    into: PathBuf,
    file: PathBuf,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let [here, there, into, file] = ["here", "there", "in to", "file"].map(|n| dir.path().join(n));
    fs::create_dir(&into).unwrap();
    fs::write(&file, b"content").unwrap();
    World { dir, here, there, into, file }
}

impl World {
    fn recv(&self, more: &[&str]) -> Listening {
        let into = ["--into", self.into.to_str().unwrap()];
        let into = if more.contains(&"--stdout") { &[][..] } else { &into[..] };
        Listening::start(&self.there, &[&["recv", "--bind", "127.0.0.1:0"][..], into, more].concat())
    }

    /// `words` as a user with this name runs them.
    fn run(&self, user: &str, words: &[&str]) -> Output {
        noctule().env("XDG_CONFIG_HOME", self.dir.path().join(user)).args(words).output().unwrap()
    }

    fn send(&self, user: &str, host: &str, more: &[&str]) -> Output {
        self.run(user, &[&["send", self.file.to_str().unwrap(), host], more].concat())
    }

    /// A line as the user pastes it into a shell.
    fn paste(&self, line: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_noctule")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).env("PATH", path).env("XDG_CONFIG_HOME", &self.here).env_remove("HOME").stdin(Stdio::null());
        shell.output().unwrap()
    }

    fn has_arrived(&self) -> bool {
        fs::read(self.into.join("file")).is_ok_and(|content| content == b"content")
    }
}

fn ok(out: &Output) {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// HOST of a printed command of `send`.
fn host(line: &str) -> String {
    line.split(' ').nth(3).unwrap().to_owned()
}

#[test]
fn printed_commands_run_as_they_stand_with_every_option_that_they_need() {
    let w = world();
    let psk = w.dir.path().join("a shared 'key'");
    ok(&w.run("here", &["keygen", "--shared", "-o", psk.to_str().unwrap()]));
    let key = String::from_utf8(w.run("here", &["keygen"]).stdout).unwrap().trim().to_owned();
    let psk = psk.to_str().unwrap();
    let file = w.file.to_str().unwrap();
    for more in [&[][..], &["--psk", psk], &["--no-encryption"], &["--psk", psk, "--no-encryption", "--allow", &key], &["--anyone"]] {
        let _ = fs::remove_file(w.into.join("file"));
        // What earlier runs have learnt does not help.
        let _ = fs::remove_file(w.here.join("noctule/known_hosts"));
        let mut to = w.recv(&[more, &["--once"]].concat());
        let line = to.hear("noctule send ");
        assert_eq!(line.contains("--code"), !more.contains(&"--anyone") && !more.contains(&"--allow"), "{line}");
        let out = w.paste(&line.replace("FILE...", file));
        assert!(out.status.success() && w.has_arrived(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(to.end().0, Some(0));
        if more.contains(&"--no-encryption") {
            assert!(to.said.iter().any(|l| l.contains("NOT ENCRYPTED")), "the receiver warns: {:?}", to.said);
        }
        if more.contains(&"--anyone") {
            assert!(to.said.iter().any(|l| l.contains("warning: --anyone")), "{:?}", to.said);
        }
    }
    let _ = fs::remove_file(w.into.join("file"));
    let mut to = w.recv(&["--one-way", "--once", "--allow", &key, "--psk", psk]);
    let line = to.hear("noctule send ");
    let out = w.paste(&line.replace(" FILE ", &format!(" {file} ")));
    assert!(out.status.success() && to.end().0 == Some(0) && w.has_arrived(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    for (words, more) in [("noctule perf -c", " -t 0.3"), ("noctule ping", " -c 3 -i 10ms"), ("noctule ping", " --first 2")] {
        let _ = fs::remove_file(w.here.join("noctule/known_hosts"));
        let port = std::net::UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string();
        let mut server = Listening::start(&w.there, &["perf", "-s", "-p", &port, "--psk", psk]);
        let line = server.hear(words);
        let out = w.paste(&(line.clone() + more));
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn a_code_makes_both_sides_known_to_each_other_and_lets_the_transfer_go_on_without_it() {
    let w = world();
    let mut to = w.recv(&["--overwrite", "--remember", "--authorised-keys", w.dir.path().join("list").to_str().unwrap(), "--code"]);
    let line = to.hear("--code ");
    let (host, code) = (host(&line), line.rsplit(' ').next().unwrap().to_owned());
    // As it is spoken.
    let spoken = code.to_uppercase().replace('-', " ");
    ok(&w.send("here", &host, &["--code", &spoken]));
    to.hear("had the code");
    let known = fs::read_to_string(w.here.join("noctule/known_hosts")).unwrap();
    assert!(known.starts_with(&host), "{known}");
    let key = String::from_utf8(w.run("here", &["keygen", "--fingerprint"]).stdout).unwrap();
    let list = fs::read_to_string(w.dir.path().join("list")).unwrap();
    assert!(list.starts_with(&format!("write {}", key.trim().split(' ').next_back().unwrap())), "{list}");
    // Nothing is asked any more, and the code still fits this key; from the environment this time.
    ok(&w.send("here", &host, &[]));
    let mut again = noctule();
    again.env("XDG_CONFIG_HOME", &w.here).env("NOCTULE_CODE", &code).arg("send").arg(&w.file).arg(&host).arg("--code");
    ok(&again.output().unwrap());
    // Nobody else's.
    assert_fails(&w.send("another", &host, &["--code", &code]), 19, "another sender has used this code");
    assert!(!w.dir.path().join("another/noctule/known_hosts").exists(), "nothing was proven");
}

#[test]
fn three_wrong_codes_withdraw_the_code_and_a_new_one_is_shown() {
    let w = world();
    let mut to = w.recv(&["--once"]);
    let line = to.hear("--code ");
    let (host, first) = (host(&line), line.rsplit(' ').next().unwrap().to_owned());
    let wrong = if first == "1-otter-lagoon" { "2-otter-lagoon" } else { "1-otter-lagoon" };
    assert_fails(&w.send("here", &host, &[]), 15, "not known");
    assert_fails(&w.send("here", &host, &["--accept-new"]), 9, "add --code CODE");
    fs::remove_file(w.here.join("noctule/known_hosts")).unwrap();
    assert_fails(&w.send("here", &host, &["--code", "1-oter-lagoon"]), 2, "did you mean otter");
    for left in ["2 more", "1 more", "0 more"] {
        assert_fails(&w.send("here", &host, &["--code", wrong]), 19, "nothing was sent");
        let said = to.hear("a wrong code from 127.0.0.1");
        assert!(said.contains(left), "{said}");
    }
    assert!(!w.here.join("noctule/known_hosts").exists(), "what proved nothing is not remembered");
    let second = to.code();
    assert_ne!(first, second);
    assert_fails(&w.send("here", &host, &["--code", &first]), 19, "nothing was sent");
    assert!(to.is_running() && !w.into.join("file").exists());
    ok(&w.send("here", &host, &["--code", &second]));
    assert_eq!(to.end().0, Some(0));
    assert!(w.has_arrived());
}

#[test]
fn codes_that_cannot_be_proven_are_refused_with_what_to_do() {
    let w = world();
    let code = ["--code", "4-otter-lagoon"];
    let send = |words: &[&str]| w.run("here", &[&["send", w.file.to_str().unwrap()], words, &code[..]].concat());
    assert_fails(&send(&["--mode", "brctp", "a", "b"]), 2, "noctule keygen --fingerprint");
    assert_fails(&send(&["--mode", "brctp", "--one-way", "--rate", "1mbit", "--overhead", "30%", "a"]), 2, "noctule keygen --fingerprint");
    assert_fails(&w.run("there", &["recv", "--one-way", "--into", w.into.to_str().unwrap()]), 2, "--allow KEY");
    assert_fails(&w.run("there", &["recv", "--anyone", "--code"]), 2, "cannot be used with");
    assert_fails(&w.run("there", &["perf", "-s", "--code", "4-otter-lagoon"]), 2, "makes the code itself");
    assert_fails(&w.run("there", &["recv", "--anyone", "--remember"]), 2, "cannot be used with");
    assert_fails(&w.run("there", &["recv", "--allow", &keygen(w.dir.path(), "k").1, "--remember"]), 2, "say --code");
    let mut to = w.recv(&["--anyone"]);
    let line = to.hear("noctule send");
    assert_fails(&w.send("here", &host(&line), &code), 19, "leave out --code");
    let mut silent = noctule();
    silent.env("XDG_CONFIG_HOME", &w.here).env("NOCTULE_CODE", "4-otter").arg("send").arg(&w.file).args(["127.0.0.1:9", "--code"]);
    assert_fails(&silent.output().unwrap(), 2, "NOCTULE_CODE");
    let list = w.dir.path().join("empty");
    fs::write(&list, "# nobody\n").unwrap();
    assert_fails(&w.run("there", &["recv", "--authorised-keys", list.to_str().unwrap()]), 2, "so nobody may send");
}

/// With `--allow` alone, strangers are refused before there is a session; with codes, afterwards.
#[test]
fn who_was_refused_is_named_in_the_log_of_the_listening_side() {
    let w = world();
    let allowed = keygen(w.dir.path(), "allowed").1;
    let stranger = String::from_utf8(w.run("here", &["keygen"]).stdout).unwrap().trim().to_owned();
    let mut to = w.recv(&["--allow", &allowed]);
    let line = to.hear("noctule send");
    // The printed command names the receiver's key: without it a first contact is made with a key that nobody will see again.
    assert!(!w.paste(&line.replace("FILE...", w.file.to_str().unwrap())).status.success());
    let line = to.hear("a link was refused");
    assert!(line.contains(&stranger) && line.contains("127.0.0.1:"), "{line}");
    let mut to = w.recv(&[]);
    let line = to.hear("noctule send");
    assert!(!w.send("here", &host(&line), &["--accept-new"]).status.success());
    let line = to.hear("proved no code");
    assert!(line.contains(&stranger) && line.contains("127.0.0.1:"), "{line}");
}

#[test]
fn a_stranger_neither_takes_nor_ends_what_waits_for_the_code() {
    let w = world();
    let mut to = w.recv(&["--stdout"]);
    let line = to.hear("--code ");
    let (host, code) = (host(&line), line.rsplit(' ').next().unwrap().to_owned());
    assert_fails(&w.send("stranger", &host, &["--accept-new"]), 9, "add --code CODE");
    // The one that is awaited sends too much at once, then what is wanted.
    let two = [w.file.to_str().unwrap(), w.into.to_str().unwrap()];
    assert_fails(&w.run("here", &[&["send"], &two[..], &[&host, "--code", &code]].concat()), 4, "one file at a time");
    assert!(to.is_running());
    ok(&w.send("here", &host, &[]));
    assert_eq!(to.end(), (Some(0), b"content".to_vec()));

    let port = std::net::UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Listening::start(&w.there, &["perf", "-s", "--once", "--longest", "2", "-p", &port]);
    let code = server.code();
    let perf = |user: &str, more: &[&str]| w.run(user, &[&["perf", "-c", "127.0.0.1", "-p", &port], more].concat());
    assert_fails(&perf("stranger", &["--accept-new", "-t", "0.2"]), 9, "add --code CODE");
    assert_fails(&w.run("stranger", &["ping", "127.0.0.1", "-p", &port, "-c", "1"]), 9, "add --code CODE");
    assert_fails(&perf("here", &["--code", &code, "-t", "3"]), 2, "at most 2 s");
    assert!(server.is_running());
    ok(&perf("here", &["-t", "0.2"]));
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_client_that_waits_for_its_turn_is_told_how_long() {
    let w = world();
    let port = std::net::UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Listening::start(&w.there, &["perf", "-s", "--anyone", "-p", &port]);
    server.hear("serving");
    let perf = |user: &str, time: &str| {
        let mut command = noctule();
        command.env("XDG_CONFIG_HOME", w.dir.path().join(user)).args(["perf", "-c", "127.0.0.1", "-p", &port, "--accept-new", "-t", time]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = perf("here", "5");
    server.hear("brtp, 5 s, 1 flow");
    let second = perf("another", "0.2").wait_with_output().unwrap();
    ok(&second);
    assert!(String::from_utf8_lossy(&second.stderr).contains("1 before this one"), "{}", String::from_utf8_lossy(&second.stderr));
    ok(&first.wait_with_output().unwrap());
}

/// Passes one stream for codes on between the ends of two sessions, byte by byte.
async fn glue(session: Session, other: Session) {
    let Ok(IncomingFlow::Stream { recv: mut from, send: Some(mut back) }) = session.accept_flow().await else { return };
    let (mut on, mut answers) = other.open_bi(FlowOptions { tag: from.options().tag, ..FlowOptions::default() }).unwrap();
    let there = async {
        while let Ok(Some(chunk)) = from.read_chunk(4096).await {
            on.write_all(&chunk).await.unwrap();
        }
    };
    let here = async {
        while let Ok(Some(chunk)) = answers.read_chunk(4096).await {
            let _ = back.write_all(&chunk).await;
        }
    };
    tokio::join!(there, here);
}

#[test]
fn an_attacker_between_with_other_keys_gets_nothing_from_the_right_code() {
    let w = world();
    let mut to = w.recv(&[]);
    let line = to.hear("--code ");
    let (receiver, code) = (host(&line), line.rsplit(' ').next().unwrap().to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let middle = runtime.block_on(async {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), EndpointConfig::ephemeral().unwrap()).unwrap();
        let address = endpoint.local_addr();
        let remote = receiver.parse().unwrap();
        tokio::spawn(async move {
            let session = endpoint.accept().await.unwrap();
            let other = endpoint.connect(remote, None).await.unwrap();
            glue(session, other).await;
        });
        address.to_string()
    });
    assert_fails(&w.send("here", &middle, &["--code", &code]), 19, "nothing was sent");
    let said = to.hear("a wrong code from");
    assert!(said.contains("2 more"), "{said}");
    assert!(!w.here.join("noctule/known_hosts").exists() && !w.into.join("file").exists());
    // Straight it is right.
    ok(&w.send("here", &receiver, &["--code", &code]));
}

#[test]
fn a_stranger_without_a_code_gets_no_further_than_its_first_flow() {
    let w = world();
    let mut to = w.recv(&[]);
    let line = to.hear("--code ");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::client(EndpointConfig::ephemeral().unwrap()).unwrap();
        let key: Option<PublicKey> = None;
        for first in [&b""[..], b"\x00\x21\x01", &[0xff; 300], &[0x04, 32]] {
            let session = endpoint.connect(host(&line).parse().unwrap(), key).await.unwrap();
            let (mut out, _back) = session.open_bi(FlowOptions { tag: CODE_TAG, ..FlowOptions::default() }).unwrap();
            let _ = out.write_all(first).await;
            let _ = out.finish().await;
            let outcome = tokio::time::timeout(PATIENCE, session.closed()).await.unwrap();
            assert!(!outcome.reason.is_clean(), "{:?}", outcome.reason);
        }
    });
    assert!(to.is_running());
}
