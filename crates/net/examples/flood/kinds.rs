//! Makes and sends floods: datagrams of one kind, each different where that matters, from loopback addresses.

use noctule::{PublicKey, SecretKey};
use noctule_proto::crypto::mac1::Mac1;
use noctule_proto::units::{Ecn, Time};
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, VERSION};
use noctule_proto::{Node, NodeConfig};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Addresses that the flood comes from.
const SOURCES: u8 = 200;

/// What a flood consists of: its name on the command line and what it is.
pub const KINDS: [(&str, &str); 12] = [
    ("xx", "first flights of first contacts"),
    ("ik", "first flights to the node's key"),
    ("other-key", "first flights to another key"),
    ("short", "first flights without padding"),
    ("repeat", "one first flight again and again, from one address"),
    ("cookie", "a first flight with a cookie again and again, from one address"),
    ("altered", "first flights with a cookie that do not open, from one address"),
    ("finish", "forged last messages to a handshake of the sender's"),
    ("version", "packets of another version"),
    ("protected", "protected packets to ids that do not exist"),
    ("one-way", "packets of one-way streams"),
    ("announcement", "announcements of one-way streams"),
];

/// A flood and its target.
#[derive(Clone, Copy)]
pub struct Flood {
    pub target: SocketAddr,
    pub key: PublicKey,
    pub kind: &'static str,
    pub packets: u32,
    /// Packets per second, at most.
    pub rate: f64,
}

/// An honest node, whose packets are the floods' originals.
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

    /// Sends a datagram, and gives the client's reaction to the answer.
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

/// Length of the handshake packet that the datagram begins with.
fn front(datagram: &[u8]) -> usize {
    match Packet::parse(datagram, 4) {
        Ok(Packet::Handshake(_, len)) => len,
        _ => datagram.len(),
    }
}

fn is_retry_or_flight(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Initiate { .. }, .. }, _)))
}

/// The first flight that carries the cookie which the node asked for.
fn with_cookie(c: &mut Client, socket: &UdpSocket, peer: Option<PublicKey>) -> Result<Vec<u8>, String> {
    // The node asks an unknown key for a cookie always, a known one under load only: hence the attempts.
    for _ in 0..300 {
        let flight = c.first_flight(peer)?;
        let next = c.next(socket, &flight)?;
        if is_retry_or_flight(&next) {
            return Ok(next);
        }
    }
    Err("the target gives no cookie".into())
}

/// The datagram of a flood; the offset at which a counter makes each copy different (`None`: all are alike); whether all come from one address.
type Template = (Vec<u8>, Option<usize>, bool);

fn template(o: &Flood, socket: &UdpSocket) -> Result<Template, String> {
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

/// Offset of the source id in a handshake packet with ids of four bytes.
const SOURCE: usize = 1 + 4 + 1 + 4 + 1;

/// What went out and what came back.
#[derive(Default)]
pub struct Balance {
    pub sent: u64,
    pub sent_bytes: u64,
    /// Not taken by the kernel.
    pub unsent: u64,
    pub replies: u64,
    pub reply_bytes: u64,
    /// Amplification: bytes received per byte sent, of the address with the most.
    pub worst: f64,
    pub took: Duration,
}

/// Sends the whole flood, calls `ended`, and counts what came back.
pub fn flood(o: &Flood, ended: impl FnOnce()) -> Result<Balance, String> {
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
    ended();
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
