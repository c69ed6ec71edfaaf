//! Many connections through `noctule proxy` that end in every way, while either proxy is killed: an end that looks orderly is one, nothing is changed,
//! nothing is left behind. The full number: `cargo test -p noctule-node --test proxy_torture -- --ignored --nocapture` (CONNECTIONS, SEED).

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use support::*;

/// Connections at a time.
const WORKERS: usize = 16;
/// A connection sends at most so much each way.
const MOST: u64 = 300_000;

/// Numbers without a pattern that matters here (Steele and others, SplitMix64).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What one side says: so many bytes, and then an end or a reset.
#[derive(Clone, Copy, Debug)]
struct Plan {
    bytes: u64,
    resets: bool,
}

impl Plan {
    fn drawn(random: &mut Random) -> Self {
        Self { bytes: random.below(MOST), resets: random.below(4) == 0 }
    }
}

/// What one side heard.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Heard {
    bytes: u64,
    is_changed: bool,
    /// The end of the stream came, and no reset.
    has_ended: bool,
}

/// The byte at a place of what a side of a connection says.
fn byte_at(stream: u64, at: u64) -> u8 {
    (stream.wrapping_mul(31).wrapping_add(at).wrapping_add(at / 251)) as u8
}

/// Says its part and hears the other side's, as its plan wants it.
fn converse(tcp: TcpStream, says: u64, hears: u64, plan: Plan) -> Heard {
    let tcp = Arc::new(tcp);
    tcp.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    tcp.set_write_timeout(Some(PATIENCE)).unwrap();
    let leaves = Arc::new(AtomicBool::new(false));
    let reading = {
        let (tcp, leaves) = (Arc::clone(&tcp), Arc::clone(&leaves));
        std::thread::spawn(move || {
            let (mut heard, mut buffer) = (Heard { bytes: 0, is_changed: false, has_ended: false }, vec![0; 64 << 10]);
            let begun = Instant::now();
            while !leaves.load(SeqCst) && begun.elapsed() < PATIENCE {
                match (&*tcp).read(&mut buffer) {
                    Ok(0) => {
                        heard.has_ended = true;
                        break;
                    }
                    Ok(len) => {
                        heard.is_changed |= buffer[..len].iter().zip(heard.bytes..).any(|(byte, at)| *byte != byte_at(hears, at));
                        heard.bytes += len as u64;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(_) => break,
                }
            }
            heard
        })
    };
    let content: Vec<u8> = (0..plan.bytes).map(|at| byte_at(says, at)).collect();
    let is_said = content.chunks(10_000).all(|chunk| (&*tcp).write_all(chunk).is_ok());
    let is_ended = is_said && !plan.resets && tcp.shutdown(Shutdown::Write).is_ok();
    if !is_ended {
        socket2::SockRef::from(&*tcp).set_linger(Some(Duration::ZERO)).unwrap();
        leaves.store(true, SeqCst);
    }
    let mut heard = reading.join().unwrap();
    // A reset is told once: after a write has heard of it, a read finds an end (tcp(7)).
    heard.has_ended &= is_said;
    heard
}

/// The target: it reads which connection this is and what it has to say there.
fn target(listener: TcpListener, heard: Arc<Mutex<HashMap<u64, Heard>>>, open: Arc<AtomicUsize>) {
    for mut tcp in listener.incoming().map_while(Result::ok) {
        let (heard, open) = (Arc::clone(&heard), Arc::clone(&open));
        open.fetch_add(1, SeqCst);
        std::thread::spawn(move || {
            let mut head = [0; 17];
            if tcp.set_read_timeout(Some(PATIENCE)).is_ok() && tcp.read_exact(&mut head).is_ok() {
                let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
                let (id, plan) = (number(0), Plan { bytes: number(8), resets: head[16] == 1 });
                let result = converse(tcp, 2 * id + 1, 2 * id, plan);
                heard.lock().unwrap().insert(id, result);
            }
            open.fetch_sub(1, SeqCst);
        });
    }
}

/// A proxy that can be killed and started anew.
struct Proxy {
    words: Vec<String>,
    child: Kill,
}

impl Proxy {
    /// Starts it and waits for this event.
    fn start(words: Vec<String>, event: &str) -> (Self, serde_json::Value) {
        let (child, seen) = run(noctule().args(&words), event);
        (Self { words, child }, seen)
    }

    /// By SIGKILL.
    fn kill_and_start(&mut self, event: &str) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
        self.child = run(noctule().args(&self.words), event).0;
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.0.id())).unwrap().count()
    }
}

fn run(command: &mut Command, event: &str) -> (Kill, serde_json::Value) {
    let mut child = Kill(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let (out, events) = mpsc::channel::<serde_json::Value>();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = out.send(serde_json::from_str(&line).unwrap());
        }
    });
    loop {
        let seen = events.recv_timeout(PATIENCE).unwrap();
        if seen["event"] == event {
            return (child, seen);
        }
    }
}

fn words(line: &str, key: &Path) -> Vec<String> {
    line.split(' ').map(str::to_owned).chain(["--key".into(), key.to_str().unwrap().to_owned()]).collect()
}

fn torture(count: u64, kills: u64, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let ((far_key, far_public), (near_key, near_public)) = (keygen(dir.path(), "far"), keygen(dir.path(), "near"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard_there, open_there) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(AtomicUsize::new(0)));
    let (heard, open) = (Arc::clone(&heard_there), Arc::clone(&open_there));
    std::thread::spawn(move || target(listener, heard, open));
    let far =
        |bind: &str| words(&format!("proxy serve --json --bind {bind} --allow {near_public} --only-target 127.0.0.1:{port}"), &far_key);
    let (mut server, seen) = Proxy::start(far("127.0.0.1:0"), "listening");
    let address = seen["address"].as_str().unwrap().to_owned();
    server.words = far(&address);
    let near_port = free_tcp_port();
    let line = format!("proxy {address} --json --peer-key {far_public} --timeout 2s -L 127.0.0.1:{near_port}:any:1");
    let (mut client, _) = Proxy::start(words(&line, &near_key), "listening");

    let next = Arc::new(AtomicUsize::new(0));
    let (out, results) = mpsc::channel();
    // One connection before: what a process needs once is open.
    let before = {
        drop(TcpStream::connect(("127.0.0.1", near_port)).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        (server.descriptors(), client.descriptors())
    };
    for _ in 0..WORKERS {
        let (next, out) = (Arc::clone(&next), out.clone());
        std::thread::spawn(move || {
            loop {
                let id = next.fetch_add(1, SeqCst) as u64;
                if id >= count {
                    return;
                }
                let mut random = Random(seed ^ (id << 20));
                let (here, there) = (Plan::drawn(&mut random), Plan::drawn(&mut random));
                let result = connect(near_port).and_then(|mut tcp| {
                    let head = [&id.to_le_bytes()[..], &there.bytes.to_le_bytes(), &[u8::from(there.resets)]].concat();
                    tcp.write_all(&head).ok()?;
                    Some(converse(tcp, 2 * id, 2 * id + 1, here))
                });
                out.send((id, here, there, result)).unwrap();
            }
        });
    }
    drop(out);
    let mut done = Vec::new();
    for kill in 1..=kills {
        while (done.len() as u64) < count * kill / (kills + 1) {
            done.push(results.recv_timeout(PATIENCE * 2).unwrap());
        }
        match kill % 2 {
            1 => server.kill_and_start("listening"),
            _ => client.kill_and_start("listening"),
        }
    }
    done.extend(results.iter());
    assert_eq!(done.len() as u64, count);
    // A near proxy that was killed takes no leave: its sessions are over after the server's own time of silence.
    wait_until(|| open_there.load(SeqCst) == 0);
    let there = heard_there.lock().unwrap();
    let (mut whole, mut truncated) = (0, 0);
    for (id, here_says, there_says, here) in &done {
        for (heard, other) in [(here.as_ref(), there_says), (there.get(id), here_says)] {
            let Some(heard) = heard else { continue };
            assert!(!heard.is_changed && heard.bytes <= other.bytes, "{id}: {heard:?} of {other:?}");
            if heard.has_ended {
                assert!(heard.bytes == other.bytes && !other.resets, "{id}: an end that is none: {heard:?} of {other:?}");
                whole += 1;
            } else {
                truncated += 1;
            }
        }
        if kills == 0 && !here_says.resets && !there_says.resets {
            assert!(here.is_some_and(|h| h.has_ended) && there.get(id).is_some_and(|h| h.has_ended), "{id}: {here:?} {:?}", there.get(id));
        }
    }
    println!("{count} connections, {kills} kills: {whole} ways whole, {truncated} broken off");
    assert!(whole > 0 && truncated > 0);
    if kills == 0 {
        wait_until(|| (server.descriptors(), client.descriptors()) == before);
    }
}

/// None listens while the near proxy is being started.
fn connect(port: u16) -> Option<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(tcp) => return Some(tcp),
            Err(_) if begun.elapsed() > PATIENCE => return None,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it does not become so");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_end_is_what_it_looks_like_and_nothing_is_left_open() {
    torture(150, 0, 20_261_128);
}

#[test]
fn a_killed_proxy_makes_no_end_that_looks_orderly() {
    torture(100, 2, 20_261_128);
}

#[test]
#[ignore = "minutes; CONNECTIONS and SEED say how many and which"]
fn a_thousand_connections_and_twenty_kills() {
    let number = |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (count, seed) = (number("CONNECTIONS", 1000), number("SEED", 7));
    torture(count, 0, seed);
    torture(count, 20, seed);
}
