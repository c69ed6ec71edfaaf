//! Floods a node with forged first packets, from many addresses of the loopback network, and measures what it costs and whom it keeps out:
//!
//! `cargo run --release -p noctule --example flood -- 127.0.0.1:4433 KEY --pid PID`
//!
//! KEY is the node's public key (an honest client connects in the middle of the flood), PID its process (its memory is read before and after).
//! Options: `--packets N` (100000), `--rate PACKETS_PER_SECOND` (100000). For nodes of your own only: it sends to loopback addresses and nowhere else.

use noctule::{Endpoint, EndpointConfig, PublicKey, SecretKey};
use noctule_proto::crypto::Initiator;
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Pattern, VERSION};
use noctule_proto::wire::params::Params;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Addresses that the flood comes from.
const SOURCES: u8 = 200;

struct Options {
    target: SocketAddr,
    key: PublicKey,
    pid: Option<u32>,
    packets: u32,
    rate: f64,
}

fn options() -> Result<Options, String> {
    let mut args = std::env::args().skip(1);
    let target: SocketAddr = args.next().ok_or("the target is missing")?.parse().map_err(|e| format!("target: {e}"))?;
    if !target.ip().is_loopback() || !target.is_ipv4() {
        return Err("the target must be an IPv4 loopback address".into());
    }
    let key = args.next().ok_or("the target's key is missing")?.parse().map_err(|e| format!("key: {e}"))?;
    let mut o = Options { target, key, pid: None, packets: 100_000, rate: 1e5 };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--pid" => o.pid = Some(value.parse().map_err(|e| format!("--pid: {e}"))?),
            "--packets" => o.packets = value.parse().map_err(|e| format!("--packets: {e}"))?,
            "--rate" => o.rate = value.parse().map_err(|e| format!("--rate: {e}"))?,
            _ => return Err(format!("unknown option {flag}")),
        }
    }
    Ok(o)
}

/// A first flight, and where its source id stands: the first message of XX is not bound to it, so that one serves for all.
fn first_flight() -> (Vec<u8>, usize) {
    const MARK: [u8; 4] = [0x5e, 0xed, 0x5e, 0xed];
    let id = |bytes: [u8; 4]| ConnectionId::new(&bytes).expect("four bytes are an id");
    let packet = |message| HandshakePacket {
        version: VERSION,
        destination: id([0, 0, 0, 7]),
        source: id(MARK),
        body: HandshakeBody::Initiate { pattern: Pattern::Xx, mac1: [0; 16], token: b"", message },
    };
    let mut payload = Vec::new();
    Params::default().emit(&mut payload, 0);
    let prologue = packet(&[]).prologue().unwrap_or_default();
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let (_, message) =
        Initiator::start(&SecretKey::from_bytes([1; 32]), None, None, &prologue, &payload, &mut rng).expect("XX needs no key");
    let mut out = Vec::new();
    packet(&message).emit(&mut out);
    out.resize(1200, 0);
    let place = out.windows(4).position(|w| w == MARK).expect("the id is there");
    (out, place)
}

#[derive(Default)]
struct Balance {
    sent: u64,
    sent_bytes: u64,
    unsent: u64,
    replies: u64,
    reply_bytes: u64,
    /// Bytes back for each byte sent, for the address that gained most.
    worst: f64,
    took: Duration,
}

fn flood(o: &Options) -> std::io::Result<Balance> {
    let mut sources = Vec::new();
    for n in 0..SOURCES {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 66, 0, n + 1), 0))?;
        socket.set_nonblocking(true)?;
        sources.push((socket, 0u64, 0u64));
    }
    let (mut datagram, place) = first_flight();
    let (mut b, begun, mut buf) = (Balance::default(), Instant::now(), [0; 2048]);
    for n in 0..o.packets {
        while f64::from(n) > begun.elapsed().as_secs_f64() * o.rate {
            std::thread::sleep(Duration::from_micros(200));
        }
        datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
        let (socket, out, back) = &mut sources[n as usize % usize::from(SOURCES)];
        match socket.send_to(&datagram, o.target) {
            Ok(len) => {
                b.sent += 1;
                *out += len as u64;
            }
            Err(_) => b.unsent += 1,
        }
        while let Ok((len, _)) = socket.recv_from(&mut buf) {
            b.replies += 1;
            *back += len as u64;
        }
    }
    b.took = begun.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    for (socket, out, back) in &mut sources {
        while let Ok((len, _)) = socket.recv_from(&mut buf) {
            b.replies += 1;
            *back += len as u64;
        }
        b.sent_bytes += *out;
        b.reply_bytes += *back;
        b.worst = b.worst.max(*back as f64 / (*out).max(1) as f64);
    }
    Ok(b)
}

/// Memory of a process, now and at its highest, in KiB.
fn memory(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let o = options().map_err(|e| format!("{e}; usage: flood TARGET KEY [--pid PID] [--packets N] [--rate N]"))?;
    let before = o.pid.and_then(memory);
    let (target, key, middle) = (o.target, o.key, Duration::from_secs_f64(f64::from(o.packets) / o.rate / 3.0));
    let pid = o.pid;
    let flooding = std::thread::spawn(move || flood(&o));
    tokio::time::sleep(middle).await;
    let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
    let begun = Instant::now();
    let session = client.connect(target, Some(key)).await;
    let took = begun.elapsed();
    let is_flooded = !flooding.is_finished();
    println!(
        "honest client: {} after {:.0} ms, the flood still going on: {is_flooded}",
        if session.is_ok() { "connected" } else { "refused" },
        took.as_secs_f64() * 1e3
    );
    if let Err(e) = &session {
        println!("honest client: {e}");
    }
    let b = flooding.join().map_err(|_| "the flood panicked")??;
    println!(
        "sent: {} forged first packets, {} bytes in {:.2} s ({} not taken by the kernel)",
        b.sent,
        b.sent_bytes,
        b.took.as_secs_f64(),
        b.unsent
    );
    println!(
        "replies: {} of {} bytes, {:.3} bytes back for each byte sent, {:.3} at the address that gained most",
        b.replies,
        b.reply_bytes,
        b.reply_bytes as f64 / b.sent_bytes.max(1) as f64,
        b.worst
    );
    if let (Some((rss, hwm)), Some((rss2, hwm2))) = (before, pid.and_then(memory)) {
        println!("memory of the process: {rss} KiB before ({hwm} at most), {rss2} KiB after ({hwm2} at most)");
    }
    Ok(())
}
