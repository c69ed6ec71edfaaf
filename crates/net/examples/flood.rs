//! Floods a node with packets of one kind, from many addresses of the loopback network, and measures what it costs and whom it keeps out:
//!
//! `cargo run --release -p noctule --example flood -- 127.0.0.1:4242 KEY --kind ik --pid PID`
//!
//! KEY is the node's public key (an honest client connects in the middle of the flood), PID its process (its memory and CPU time are read before and after).
//! Options: `--kind NAME` (xx), `--packets N` (100000), `--rate PACKETS_PER_SECOND` (100000). For nodes of your own only: it sends to loopback addresses and
//! nowhere else, and never more than ten million packets.

use noctule::{Endpoint, EndpointConfig, PublicKey, SecretKey};
use noctule_proto::crypto::mac1::Mac1;
use noctule_proto::units::{Ecn, Time};
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, VERSION};
use noctule_proto::{Node, NodeConfig};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Addresses that the flood comes from.
const SOURCES: u8 = 200;
/// Packets at most.
const MOST: u32 = 10_000_000;

/// What a flood consists of: its name on the command line and what it is.
const KINDS: [(&str, &str); 12] = [
    ("xx", "first flights of first contacts"),
    ("ik", "first flights to the node's key"),
    ("other-key", "first flights to another key"),
    ("short", "first flights without padding"),
    ("repeat", "one first flight again and again, from one address"),
    ("cookie", "first flights with a cookie, from one address"),
    ("altered", "first flights with a cookie that do not open, from one address"),
    ("finish", "forged last messages to a handshake of the sender's"),
    ("version", "packets of another version"),
    ("protected", "protected packets to ids that do not exist"),
    ("one-way", "packets of one-way streams"),
    ("announcement", "announcements of one-way streams"),
];

struct Options {
    target: SocketAddr,
    key: PublicKey,
    kind: &'static str,
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
    let mut o = Options { target, key, kind: "xx", pid: None, packets: 100_000, rate: 1e5 };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--kind" => {
                let known = || KINDS.map(|(name, what)| format!("  {name}: {what}")).join("\n");
                o.kind = KINDS.iter().find(|k| k.0 == value).ok_or_else(|| format!("--kind {value}: there are\n{}", known()))?.0;
            }
            "--pid" => o.pid = Some(value.parse().map_err(|e| format!("--pid: {e}"))?),
            "--packets" => o.packets = value.parse().map_err(|e| format!("--packets: {e}"))?,
            "--rate" => o.rate = value.parse().map_err(|e| format!("--rate: {e}"))?,
            _ => return Err(format!("unknown option {flag}")),
        }
    }
    if o.packets > MOST || !(1.0..=1e7).contains(&o.rate) {
        return Err(format!("--packets takes up to {MOST}, --rate from 1 to 10000000"));
    }
    Ok(o)
}

/// An honest node that makes what is forged.
struct Client {
    node: Node,
    now: Time,
    target: SocketAddr,
}

impl Client {
    fn new(target: SocketAddr) -> Self {
        let now = Time::from_millis(1);
        Self { node: Node::new(NodeConfig::default(), SecretKey::from_bytes([1; 32]), [1; 32], now), now, target }
    }

    fn drain(&mut self) -> Vec<u8> {
        let (mut first, mut buf) = (Vec::new(), Vec::new());
        while self.node.poll_transmit(self.now, 1, &mut buf).is_some() {
            if first.is_empty() {
                first.clone_from(&buf);
            }
        }
        first
    }

    fn first_flight(&mut self, peer: Option<PublicKey>) -> Result<Vec<u8>, String> {
        self.node.connect(self.now, self.target, peer).map_err(|e| e.to_string())?;
        Ok(self.drain())
    }

    /// What it says to the answer to a datagram.
    fn next(&mut self, socket: &UdpSocket, datagram: &[u8]) -> Result<Vec<u8>, String> {
        let mut buf = [0; 2048];
        socket.send_to(datagram, self.target).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            if let Ok((len, _)) = socket.recv_from(&mut buf) {
                self.node.handle_datagram(self.now, self.target, None, Ecn::NotEct, &mut buf[..len]);
                return Ok(self.drain());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("the target does not answer".into())
    }
}

/// Length of the handshake packet at the front.
fn front(datagram: &[u8]) -> usize {
    match Packet::parse(datagram, 4) {
        Ok(Packet::Handshake(_, len)) => len,
        _ => datagram.len(),
    }
}

fn is_retry_or_flight(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Initiate { .. }, .. }, _)))
}

/// A first flight that the node answers with a cookie, and the one with it.
fn with_cookie(c: &mut Client, socket: &UdpSocket, peer: Option<PublicKey>) -> Result<Vec<u8>, String> {
    // A first contact is always sent back for a cookie; a known key only under load.
    for _ in 0..300 {
        let flight = c.first_flight(peer)?;
        let next = c.next(socket, &flight)?;
        if is_retry_or_flight(&next) {
            return Ok(next);
        }
    }
    Err("the target gives no cookie".into())
}

/// The datagram of a flood, and where a number may be put that makes each of them another; all come from one address if it is not `None`.
type Template = (Vec<u8>, Option<usize>, bool);

fn template(o: &Options, socket: &UdpSocket) -> Result<Template, String> {
    let mut c = Client::new(o.target);
    let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).unwrap_or_default();
    let packet = |version, body| {
        let mut out = Vec::new();
        HandshakePacket { version, destination: id(7), source: id(8), body }.emit(&mut out);
        out.resize(1200, 0);
        out
    };
    Ok(match o.kind {
        "xx" => (c.first_flight(None)?, Some(SOURCE), false),
        "ik" => (c.first_flight(Some(o.key))?, None, false),
        "other-key" => (c.first_flight(Some(SecretKey::from_bytes([9; 32]).public()))?, None, false),
        "short" => {
            let mut flight = c.first_flight(Some(o.key))?;
            flight.truncate(front(&flight));
            (flight, None, false)
        }
        "repeat" => (c.first_flight(Some(o.key))?, None, true),
        "cookie" => (with_cookie(&mut c, socket, None)?, None, true),
        "altered" => {
            let mut flight = with_cookie(&mut c, socket, Some(o.key))?;
            let end = front(&flight);
            flight[end - 1] ^= 1;
            let size = flight.len();
            let Ok(Packet::Handshake(mut packet, _)) = Packet::parse(&flight, 4) else { return Err("no first flight".into()) };
            Mac1::new(&o.key).sign(&mut packet);
            let mut out = Vec::new();
            packet.emit(&mut out);
            out.resize(size, 0);
            (out, None, true)
        }
        "finish" => {
            let mut next = c.first_flight(None)?;
            for _ in 0..3 {
                next = c.next(socket, &next)?;
                if !is_retry_or_flight(&next) {
                    break;
                }
            }
            let end = front(&next);
            next.truncate(end);
            next[end - 1] ^= 1;
            (next, None, true)
        }
        "version" => (packet(0x1234_5678, HandshakeBody::Finish(&[1; 64])), Some(SOURCE), false),
        "protected" => ([&[0x40][..], &[7; 400]].concat(), Some(1), false),
        "one-way" => ([&[0x42][..], &[1; 1000]].concat(), Some(1), false),
        "announcement" => ([&[0x41][..], &[1; 180]].concat(), Some(1), false),
        _ => (packet(VERSION, HandshakeBody::Respond(&[1; 96])), Some(SOURCE), false),
    })
}

/// Where the source id of a handshake packet with ids of four bytes stands.
const SOURCE: usize = 1 + 4 + 1 + 4 + 1;

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

fn flood(o: &Options) -> Result<Balance, String> {
    let mut sources = Vec::new();
    for n in 0..SOURCES {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 66, 0, n + 1), 0)).map_err(|e| e.to_string())?;
        socket.set_nonblocking(true).map_err(|e| e.to_string())?;
        sources.push((socket, 0u64, 0u64));
    }
    let (mut datagram, place, is_one_address) = template(o, &sources[0].0)?;
    let (mut b, begun, mut buf) = (Balance::default(), Instant::now(), [0; 2048]);
    for n in 0..o.packets {
        while f64::from(n) > begun.elapsed().as_secs_f64() * o.rate {
            std::thread::sleep(Duration::from_micros(200));
        }
        if let Some(place) = place {
            datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
        }
        let at = if is_one_address { 0 } else { n as usize % usize::from(SOURCES) };
        let (socket, out, back) = &mut sources[at];
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

/// Memory of a process, now and at its highest, in KiB, and its CPU time so far.
fn usage(pid: u32) -> Option<(u64, u64, Duration)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which stands in brackets: user and system time are the 12th and 13th field, in hundredths of a second.
    let ticks = stat.rsplit(") ").next()?.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum::<u64>();
    Some((field("VmRSS:")?, field("VmHWM:")?, Duration::from_millis(ticks * 10)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let o = options().map_err(|e| format!("{e}; usage: flood TARGET KEY [--kind NAME] [--pid PID] [--packets N] [--rate N]"))?;
    let before = o.pid.and_then(usage);
    let (target, key, middle) = (o.target, o.key, Duration::from_secs_f64(f64::from(o.packets) / o.rate / 3.0));
    let (pid, kind) = (o.pid, o.kind);
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
    println!("{kind}: {} packets, {} bytes in {:.2} s ({} not taken by the kernel)", b.sent, b.sent_bytes, b.took.as_secs_f64(), b.unsent);
    println!(
        "replies: {} of {} bytes, {:.3} bytes back for each byte sent, {:.3} at the address that gained most",
        b.replies,
        b.reply_bytes,
        b.reply_bytes as f64 / b.sent_bytes.max(1) as f64,
        b.worst
    );
    if let (Some((rss, hwm, cpu)), Some((rss2, hwm2, cpu2))) = (before, pid.and_then(usage)) {
        println!("memory of the process: {rss} KiB before ({hwm} at most), {rss2} KiB after ({hwm2} at most)");
        println!("CPU time of the process: {:.2} s", cpu2.saturating_sub(cpu).as_secs_f64());
    }
    Ok(())
}
