//! What the own system says, between real kernels on a plain link: sizes of packets of both families, refusals, scoped addresses, a blocked pair of
//! ports, an outage that is longer than a session bears.
#![cfg(target_os = "linux")]

mod network;

use network::*;
use noctule_lab::net::namespace::Namespace;
use noctule_lab::net::privilege;
use noctule_lab::net::rtnetlink::{LinkChange, Rtnetlink};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DEVICE: &str = "v0";

/// A process that is ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hosts on one wire, 10.77.0.1 and .2, fd77::1 and ::2; the second has a key and a directory to receive into.
struct Wire {
    near: Namespace,
    far: Namespace,
    dir: PathBuf,
    key: String,
    _temp: tempfile::TempDir,
}

impl Wire {
    /// `None`, after a notice, where this is not permitted.
    fn new(test: &str, mtu: u32) -> Option<Self> {
        if let Err(error) = privilege::acquire() {
            skip(test, &error.to_string());
            return None;
        }
        let (near, far) = (Namespace::new("own-near").unwrap(), Namespace::new("own-far").unwrap());
        let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        for host in [&near, &far] {
            host.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
        }
        near.enter(|| Rtnetlink::open().unwrap().add_veth(DEVICE, macs[0], DEVICE, macs[1], far.descriptor()).unwrap()).unwrap();
        for (host, last) in [(&near, 1), (&far, 2)] {
            host.enter(|| {
                let mut link = Rtnetlink::open().unwrap();
                link.add_address(DEVICE, std::net::Ipv4Addr::new(10, 77, 0, last).into(), 24).unwrap();
                if mtu >= 1280 {
                    link.add_address(DEVICE, std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()).into(), 64).unwrap();
                }
                link.change_link("lo", LinkChange { up: true, ..LinkChange::default() }).unwrap();
                link.change_link(DEVICE, LinkChange { mtu: Some(mtu), up: true, ..LinkChange::default() }).unwrap();
            })
            .unwrap();
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().to_owned();
        let (_, key) = keygen(&dir, "key");
        std::fs::create_dir(dir.join("into")).unwrap();
        let content: Vec<u8> = (0..12 << 20).map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect();
        std::fs::write(dir.join("file"), content).unwrap();
        std::fs::write(dir.join("small"), b"small").unwrap();
        Some(Self { near, far, dir, key, _temp: temp })
    }

    fn noctule(host: &Namespace) -> Command {
        let mut command = host.command(env!("CARGO_BIN_EXE_noctule"));
        command.env("XDG_CONFIG_HOME", "/dev/null/nowhere").env_remove("HOME").stdin(Stdio::null());
        command
    }

    /// A `recv` on the far host, when it listens.
    fn receive(&self, bind: &str) -> Running {
        let mut command = Self::noctule(&self.far);
        command.args(["recv", "--json", "--anyone", "--bind", bind, "--key"]).arg(self.dir.join("key"));
        let mut child = command.arg("--into").arg(self.dir.join("into")).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        std::thread::spawn(move || out.lines().for_each(drop));
        Running(child)
    }

    fn send(&self, name: &str, to: &str, more: &[&str]) -> Command {
        let mut command = Self::noctule(&self.near);
        command.arg("send").arg(self.dir.join(name)).args([to, "--peer-key", &self.key]).args(more);
        command
    }

    fn arrived(&self, name: &str) -> bool {
        std::fs::read(self.dir.join("into").join(name)).is_ok_and(|got| got == std::fs::read(self.dir.join(name)).unwrap())
    }

    /// What doctor finds about the far host.
    fn doctor(&self, to: &str) -> Vec<Value> {
        let out = Self::noctule(&self.near).args(["doctor", "--json", to]).output().unwrap();
        let first = out.stdout.split(|b| *b == b'\n').next().unwrap_or_default();
        let report: Value = serde_json::from_slice(first).unwrap_or_else(|_| panic!("{out:?}"));
        report["findings"].as_array().unwrap().clone()
    }
}

/// Runs a tool inside a host; false, after a notice, where there is none.
fn tool(test: &str, host: &Namespace, words: &[&str]) -> bool {
    match host.command(words[0]).args(&words[1..]).output() {
        Ok(out) if out.status.success() => true,
        Ok(out) => panic!("{words:?}: {}", String::from_utf8_lossy(&out.stderr)),
        Err(error) => {
            skip(test, &format!("{}: {error}", words[0]));
            false
        }
    }
}

fn says(out: &Output, code: i32, words: &str) {
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(code) && text.contains(words), "{words:?}, {code}: {:?} {text}", out.status.code());
}

fn finding<'a>(findings: &'a [Value], name: &str) -> &'a Value {
    findings.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("{name}: {findings:?}"))
}

#[test]
fn both_families_fill_a_plain_link_and_no_handshake_packet_is_sent_twice() {
    let Some(wire) = Wire::new("packets of 1500 bytes", 1500) else { return };
    let _receiver = wire.receive("[::]:4242");
    for to in ["10.77.0.2", "fd77::2"] {
        let found = wire.doctor(to);
        let (mtu, handshake) = (finding(&found, "path MTU"), finding(&found, "handshake"));
        assert!(mtu["level"] == "good" && mtu["found"].as_str().unwrap().starts_with("packets of 1500 bytes pass"), "{to}: {mtu}");
        // A first flight that is too long would be repeated three times before a smaller one is tried.
        assert_eq!(handshake["level"], "good", "{to}: {handshake}");
    }
}

#[test]
fn an_interface_that_takes_less_is_used_at_its_size_and_no_narrow_link_is_suspected() {
    let Some(wire) = Wire::new("packets of 1280 bytes", 1280) else { return };
    let _receiver = wire.receive("[::]:4242");
    for to in ["10.77.0.2", "fd77::2"] {
        let found = wire.doctor(to);
        let (mtu, handshake) = (finding(&found, "path MTU"), finding(&found, "handshake"));
        assert!(mtu["found"].as_str().unwrap().starts_with("packets of 1280 bytes pass"), "{to}: {mtu}");
        assert!(mtu["advice"].as_str().unwrap().contains("own interface"), "{to}: {mtu}");
        assert_eq!(handshake["level"], "good", "{to}: {handshake}");
    }
}

#[test]
fn an_interface_that_shrinks_in_mid_transfer_is_followed() {
    let name = "an interface that shrinks";
    let Some(wire) = Wire::new(name, 1500) else { return };
    let _receiver = wire.receive("[::]:4242");
    let mut sender = Running(wire.send("file", "fd77::2", &["--limit-rate", "40mbit"]).stderr(Stdio::piped()).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(700));
    for host in [&wire.near, &wire.far] {
        host.enter(|| Rtnetlink::open().unwrap().change_link(DEVICE, LinkChange { mtu: Some(1300), ..LinkChange::default() }).unwrap())
            .unwrap();
    }
    assert!(ends(&mut sender).0 == Some(0) && wire.arrived("file"));
}

/// Exit code, and what it said.
fn ends(running: &mut Running) -> (Option<i32>, String) {
    let began = Instant::now();
    let code = loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            break status.code();
        }
        assert!(began.elapsed() < PATIENCE, "it ends");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut text = String::new();
    if let Some(mut errors) = running.0.stderr.take() {
        errors.read_to_string(&mut text).unwrap();
    }
    (code, text)
}

#[test]
fn what_the_own_system_refuses_is_said_in_its_words() {
    let name = "refusals of the own system";
    let Some(narrow) = Wire::new(name, 576) else { return };
    says(&narrow.send("small", "10.77.0.2", &[]).output().unwrap(), 6, "Message too long");
    let Some(wire) = Wire::new(name, 1500) else { return };
    says(&wire.send("small", "10.88.0.2", &[]).output().unwrap(), 6, "Network is unreachable");
    says(&wire.send("small", "fd88::2", &[]).output().unwrap(), 6, "Network is unreachable");
    let found = wire.doctor("10.88.0.2");
    assert!(finding(&found, "answer")["found"].as_str().unwrap().contains("Network is unreachable"), "{found:?}");
    if tool(name, &wire.near, &["ip", "route", "add", "prohibit", "10.89.0.0/24"]) {
        says(&wire.send("small", "10.89.0.2", &[]).output().unwrap(), 6, "prohibiting route");
    }
    let drop = "add table ip t; add chain ip t o { type filter hook output priority 0; }; add rule ip t o udp dport 4242 drop";
    if tool(name, &wire.near, &["nft", drop]) {
        says(&wire.send("small", "10.77.0.2", &[]).output().unwrap(), 6, "firewall");
    }
}

#[test]
fn what_a_firewall_on_the_path_says_is_told_with_its_address() {
    let name = "a firewall that refuses";
    let Some(wire) = Wire::new(name, 1500) else { return };
    let reject = "add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i udp dport 4242 reject with icmpx admin-prohibited";
    if tool(name, &wire.far, &["nft", reject]) {
        says(&wire.send("small", "10.77.0.2", &[]).output().unwrap(), 6, "10.77.0.2 says: administratively prohibited");
        says(&wire.send("small", "fd77::2", &[]).output().unwrap(), 6, "fd77::2 says: administratively prohibited");
    }
}

#[test]
fn a_link_local_address_is_named_with_its_interface() {
    let name = "scoped addresses";
    let Some(wire) = Wire::new(name, 1500) else { return };
    let _receiver = wire.receive("[::]:4242");
    let there = format!("fe80::ff:fe00:2%{DEVICE}");
    says(&wire.send("small", &there, &[]).output().unwrap(), 0, "");
    assert!(wire.arrived("small"));
    let bracketed = wire.send("file", &format!("[{there}]:4242"), &[]).output().unwrap();
    says(&bracketed, 0, "");
    says(&wire.send("small", "fe80::ff:fe00:2%nosuch", &[]).output().unwrap(), 13, "no interface");
}

/// A provider's box on the far host: passes on between callers and port 4242 there, until it is told what to block.
struct Provider {
    /// Ports of callers from which nothing passes any more: all that it has seen when it is told to.
    blocked: Arc<Mutex<HashSet<u16>>>,
    seen: Arc<Mutex<HashSet<u16>>>,
    /// Nothing passes at all.
    is_cut: Arc<AtomicBool>,
}

impl Provider {
    fn start(host: &Namespace) -> Self {
        let this = Self { blocked: Arc::default(), seen: Arc::default(), is_cut: Arc::default() };
        let (blocked, seen, is_cut) = (Arc::clone(&this.blocked), Arc::clone(&this.seen), Arc::clone(&this.is_cut));
        let outside = Arc::new(host.enter(|| UdpSocket::bind("10.77.0.2:4343").unwrap()).unwrap());
        let is_open = move |caller: SocketAddr| !is_cut.load(Relaxed) && !blocked.lock().unwrap().contains(&caller.port());
        let is_open = Arc::new(is_open);
        let host = host.clone();
        std::thread::spawn(move || {
            let mut inside: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
            let mut buffer = [0; 65_536];
            while let Ok((length, caller)) = outside.recv_from(&mut buffer) {
                seen.lock().unwrap().insert(caller.port());
                if !is_open(caller) {
                    continue;
                }
                let socket = inside.entry(caller).or_insert_with(|| {
                    let socket = Arc::new(host.enter(|| UdpSocket::bind("10.77.0.2:0").unwrap()).unwrap());
                    socket.connect("10.77.0.2:4242").unwrap();
                    let (back, outside, is_open) = (Arc::clone(&socket), Arc::clone(&outside), Arc::clone(&is_open));
                    std::thread::spawn(move || {
                        let mut buffer = [0; 65_536];
                        loop {
                            match back.recv(&mut buffer) {
                                Ok(length) if is_open(caller) => drop(outside.send_to(&buffer[..length], caller)),
                                // Refused: the far host's node is not there yet.
                                Ok(_) | Err(_) => {}
                            }
                        }
                    });
                    socket
                });
                let _ = socket.send(&buffer[..length]);
            }
        });
        this
    }

    /// Blocks every port that has called; how many.
    fn block(&self) -> usize {
        let mut blocked = self.blocked.lock().unwrap();
        blocked.extend(self.seen.lock().unwrap().iter());
        blocked.len()
    }

    /// Ports that have called since, and are not blocked.
    fn others(&self) -> usize {
        self.seen.lock().unwrap().difference(&self.blocked.lock().unwrap()).count()
    }
}

#[test]
fn a_pair_of_ports_that_is_blocked_in_mid_transfer_is_left_for_another() {
    let Some(wire) = Wire::new("a blocked pair of ports", 1500) else { return };
    let _receiver = wire.receive("[::]:4242");
    let provider = Provider::start(&wire.far);
    let options = ["--limit-rate", "20mbit", "--give-up", "0"];
    let mut sender = Running(wire.send("file", "10.77.0.2:4343", &options).stderr(Stdio::piped()).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(provider.block() > 0);
    let (code, text) = ends(&mut sender);
    assert!(code == Some(0) && wire.arrived("file"), "{code:?} {text}");
    assert!(provider.others() > 0, "the ports were blocked in mid-transfer");
}

#[test]
fn a_node_leaves_a_blocked_pair_of_ports_although_its_own_is_fixed() {
    let Some(wire) = Wire::new("a node's blocked pair of ports", 1500) else { return };
    let provider = Provider::start(&wire.far);
    let node = |name: &str, own: u8| {
        std::fs::create_dir(wire.dir.join(name)).unwrap();
        let (_, key) = keygen(&wire.dir.join(name), "key");
        (key, format!("[node]\nkey = \"key\"\nlisten = \"0.0.0.0:4242\"\naddresses = [\"10.9.0.{own}\"]\nkeep-alive = \"1s\"\n"))
    };
    let ((near_key, near), (far_key, far)) = (node("a", 1), node("b", 2));
    let neighbour = |name: &str, key: &str, own: u8, more: &str| {
        format!("[[neighbour]]\nname = \"{name}\"\nkey = \"{key}\"\naddresses = [\"10.9.0.{own}\"]\n{more}\n")
    };
    let endpoint = "endpoint = \"10.77.0.2:4343\"";
    let _far = Node::start(&wire.dir, "b", &wire.far, &(far + &neighbour("a", &near_key, 1, "")));
    let mut near = Node::start(&wire.dir, "a", &wire.near, &(near + &neighbour("b", &far_key, 2, endpoint)));
    near.wait_for_session("b");
    let report = near.status();
    assert_eq!(provider.block(), 1, "it calls from its own port");
    let received = node_of(&report, "b")["link"]["paths"][0]["received_packets"].as_u64().map(|n| n + 10);
    assert!(received.is_some(), "{report}");
    let began = Instant::now();
    while provider.others() == 0 {
        assert!(began.elapsed() < PATIENCE, "it tries another");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The same link, or one that was called anew meanwhile: both leave from the port that passes.
    near.wait_for("a link that is heard again", |report| {
        let link = &node_of(report, "b")["link"];
        let path = &link["paths"][0];
        path["received_packets"].as_u64() > received
    });
}

#[test]
fn a_path_that_is_away_for_longer_than_a_session_bears_ends_no_transfer() {
    for mode in ["brtp", "brctp"] {
        let Some(wire) = Wire::new("a long outage", 1500) else { return };
        let _receiver = wire.receive("[::]:4242");
        let provider = Provider::start(&wire.far);
        let options = ["--limit-rate", "20mbit", "--timeout", "2s", "--mode", mode];
        let mut sender = Running(wire.send("file", "10.77.0.2:4343", &options).stderr(Stdio::piped()).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(1500));
        provider.is_cut.store(true, Relaxed);
        std::thread::sleep(Duration::from_secs(7));
        provider.is_cut.store(false, Relaxed);
        let (code, text) = ends(&mut sender);
        assert!(code == Some(0) && wire.arrived("file"), "{mode}: {code:?} {text}");
        assert!(text.contains("trying again, giving up in 14 min"), "{mode}: {text}");
    }
}

#[test]
fn a_short_timeout_ends_an_attempt_to_connect_too() {
    let Some(wire) = Wire::new("a short timeout", 1500) else { return };
    // Nobody has the address, and the neighbour table says so for ever: silence.
    let mac = [2, 0, 0, 0, 0, 9];
    wire.near.enter(|| Rtnetlink::open().unwrap().add_neighbour(DEVICE, "10.77.0.9".parse().unwrap(), mac).unwrap()).unwrap();
    let began = Instant::now();
    says(&wire.send("small", "10.77.0.9", &["--timeout", "1s"]).output().unwrap(), 6, "no answer");
    assert!(began.elapsed() < Duration::from_secs(9), "not the ten seconds of an attempt without it");
}
