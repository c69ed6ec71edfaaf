//! `noctule-lab link`: a link between two namespaces that the test makes, from its first packet to its end.

mod net_common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use net_common::{lab, number, skip};
use noctule_lab::net::namespace::Namespace;

/// After so long without a packet there are no more.
const SILENCE: Duration = Duration::from_secs(1);

/// Two namespaces, each with a process inside that does nothing.
struct Hosts {
    namespaces: [Namespace; 2],
    processes: [Child; 2],
}

impl Hosts {
    /// `None`, after a notice, where namespaces or TUN devices need more rights than the test has: it has several threads, so it cannot help itself.
    fn make(test: &str) -> Option<Self> {
        let tun = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        let make = |name| Namespace::new(name);
        let namespaces = match (tun, make("left"), make("right")) {
            (Ok(_), Ok(left), Ok(right)) => [left, right],
            (tun, left, right) => {
                skip(test, &format!("run as root: {:?} {:?} {:?}", tun.err(), left.err(), right.err()));
                return None;
            }
        };
        let processes = [0, 1].map(|side: usize| namespaces[side].command("sleep").arg("1000").spawn().expect("sleep starts"));
        Some(Self { namespaces, processes })
    }

    fn between(&self, side: usize) -> String {
        format!("{}:end{side}=10.66.0.{}/30", self.processes[side].id(), side + 1)
    }

    fn has_device(&self, side: usize) -> bool {
        let name = std::ffi::CString::new(format!("end{side}")).expect("no zero byte");
        // SAFETY: a terminated string that lives over the call.
        self.namespaces[side].enter(|| unsafe { libc::if_nametoindex(name.as_ptr()) != 0 }).expect("the namespace can be entered")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A link that is ready, and its parent's end of its standard input.
struct Link {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Link {
    fn start(hosts: &Hosts, flags: &str) -> Self {
        // How late this machine is, the test does not judge.
        let mut command = lab();
        command.args([
            "link",
            "--json",
            "--until-eof",
            "--max-lateness",
            "100s",
            "--between",
            &hosts.between(0),
            "--between",
            &hosts.between(1),
        ]);
        command.args(flags.split_whitespace());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the laboratory's binary starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let mut link = Self { child, input, output: BufReader::new(output) };
        assert_eq!(link.line()["ready"], serde_json::json!(["end0", "end1"]));
        link
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// What it says at its end, which something has brought about.
    fn end(mut self) -> serde_json::Value {
        let summary = self.line();
        let mut more = String::new();
        self.output.read_to_string(&mut more).expect("text");
        assert_eq!(more, "", "nothing after the summary");
        assert!(matches!(self.child.wait().expect("it ends").code(), Some(0 | 4)), "{summary}");
        summary
    }
}

/// Sends datagrams that the far host echoes; how many came back.
fn echoed(hosts: &Hosts, count: u8) -> u8 {
    let socket = |side: usize| {
        let bound = hosts.namespaces[side].enter(|| std::net::UdpSocket::bind((std::net::Ipv4Addr::from([10, 66, 0, side as u8 + 1]), 7)));
        bound.expect("the namespace can be entered").expect("a port of an empty namespace is free")
    };
    let (near, far) = (socket(0), socket(1));
    near.connect("10.66.0.2:7").expect("an address");
    for number in 0..count {
        near.send(&[number]).expect("the device is up");
    }
    for socket in [&far, &near] {
        socket.set_read_timeout(Some(SILENCE)).expect("a time");
    }
    let mut buffer = [0u8; 64];
    while let Ok((length, from)) = far.recv_from(&mut buffer) {
        far.send_to(&buffer[..length], from).expect("the device is up");
    }
    std::iter::from_fn(|| near.recv(&mut buffer).ok()).count() as u8
}

#[test]
fn packets_cross_and_the_counts_are_those_of_the_ends() {
    let Some(hosts) = Hosts::make("a link between namespaces") else { return };
    let mut link = Link::start(&hosts, "--rate 10mbit --delay 5ms --rev-loss 50% --seed 3");
    let back = f64::from(echoed(&hosts, 20));
    drop(link.input.take());
    let summary = link.end();
    assert_eq!(summary["ended"], "eof");
    assert_eq!((number(&summary, "/forward/sent"), number(&summary, "/forward/delivered")), (20.0, 20.0), "{summary}");
    assert_eq!((number(&summary, "/backward/sent"), number(&summary, "/backward/delivered")), (20.0, back), "{summary}");
    assert_eq!(number(&summary, "/backward/lost"), 20.0 - back);
    assert!((3.0..17.0).contains(&back), "{back} of 20 with a loss of one half");
    assert!(!hosts.has_device(0) && !hosts.has_device(1), "the devices go with the link");
}

#[test]
fn death_of_the_parent_ends_the_link() {
    let Some(hosts) = Hosts::make("a link whose parent dies") else { return };
    // A shell is the parent: `sleep`, which replaces it, holds the writing end of the link's standard input and is killed.
    let words = format!("link --until-eof --between {} --between {}", hosts.between(0), hosts.between(1));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = format!(r#"mkfifo "$1"; {} {words} <"$1" & exec sleep 1000 >"$1""#, env!("CARGO_BIN_EXE_noctule-lab"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(directory.path().join("pipe")).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("sh starts");
    let mut output = BufReader::new(shell.stdout.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("ready") {
        assert_ne!(output.read_line(&mut text).expect("a line"), 0, "{text}");
    }
    assert!(hosts.has_device(0) && hosts.has_device(1));
    shell.kill().expect("SIGKILL");
    shell.wait().expect("and reaped");
    // The link holds the other end of this pipe: it is closed when the link has ended.
    output.read_to_string(&mut text).expect("text");
    assert!(text.contains("end0 to end1: 0 packets sent"), "{text}");
    assert!(!hosts.has_device(0) && !hosts.has_device(1), "the devices go with the link");
}

#[test]
fn end_of_a_host_ends_its_links() {
    let Some(mut hosts) = Hosts::make("a link whose host ends") else { return };
    let link = Link::start(&hosts, "");
    hosts.processes[1].kill().expect("SIGKILL");
    assert_eq!(link.end()["ended"], "process-gone");
}

#[test]
fn what_cannot_be_joined_says_why_and_what_to_do() {
    let refused = |words: &[&str], names: &str| {
        let output = lab().arg("link").args(words).stdin(Stdio::null()).output().expect("the laboratory's binary starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(names), "{words:?}: {:?} {text}", output.status);
    };
    refused(&["--between", "a:b"], "two ends");
    refused(&["--between", "a:b", "--between", "a:device-name-0016"], "15 at most");
    refused(&["--between", "no-such-namespace:b", "--between", "a:b"], "ip netns list");
    refused(&["--between", "4194304:b", "--between", "a:b"], "never ran");
    refused(&["--between", "/dev/null:b", "--between", "a:b"], "no network namespace");
    refused(&["--between", "a:b", "--between", "a:c", "--rate", "fast"], "fast");
    refused(&["--between", "a:b", "--between", "a:c", "--rate", "none", "--queue", "5p"], "queue");
    let Some(hosts) = Hosts::make("a device that is there already") else { return };
    let lo = format!("{}:lo", hosts.processes[0].id());
    refused(&["--between", &lo, "--between", &hosts.between(1)], "has a device lo already");
    assert!(!hosts.has_device(1));
}
