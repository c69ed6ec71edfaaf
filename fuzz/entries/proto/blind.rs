//! A relay, the sink of a blind stream, and a receiver that was told of it by an announcement, among datagrams of its source, altered ones and inventions:
//! nothing panics, the relay keeps within its memory, and every message that is handed over is the source's, once.

use super::Input;
use noctule_proto::blind::{Announcement, Packet, Plan, Receiver, Relay, RelayConfig, Shape, Sink, Source, SourceConfig, StreamName};
use noctule_proto::crypto::SecretKey;
use noctule_proto::units::{Bandwidth, Duration, Probability, Time};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NAME: StreamName = StreamName(*b"fuzz");
const KEY: [u8; 32] = [5; 32];
/// Blocks that the source sends.
const BLOCKS: usize = 4;
/// Bytes that a relay may hold: few, so that inputs reach the bound.
const MEMORY: usize = 1 << 20;

fn shape() -> Shape {
    Shape::new(32, 8, 2, 64).expect("a shape that is permitted")
}

fn message(number: u64) -> Vec<u8> {
    (0..1 + number * 7 % 30).map(|i| (number * 31 + i) as u8 | 1).collect()
}

/// Everything that the source sends.
fn datagrams() -> &'static [Vec<u8>] {
    static SENT: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SENT.get_or_init(|| {
        let plan = Plan::new(&shape(), &[Probability::new(0.2)]).expect("losses that leave something");
        let config = SourceConfig { stream: NAME, shape: shape(), plan, key: KEY, rate: Bandwidth::from_mbit(10.0), patience: None };
        let mut source = Source::new(config, [1; 32]).expect("a key");
        for number in 0..(BLOCKS * shape().block_packets()) as u64 {
            source.push(message(number)).expect("short messages, and not many");
        }
        source.finish();
        let (mut now, mut sent, mut out) = (Time::ZERO, Vec::new(), Vec::new());
        while !source.is_done() {
            match source.poll_transmit(now, &mut out) {
                true => sent.push(out.clone()),
                false => now = source.poll_timeout().expect("more follows"),
            }
        }
        sent
    })
}

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32])
}

/// What the source says of its stream.
fn announcement() -> &'static [u8] {
    static SAID: OnceLock<Vec<u8>> = OnceLock::new();
    SAID.get_or_init(|| {
        let said = Announcement { stamp: 9, stream: NAME, key: KEY, shape: shape(), block: 0, messages: 0 };
        said.seal(&secret(1), &secret(2).public(), None, [3; 32]).expect("a key")
    })
}

/// A packet reads back as it was written, but for zeros at the end of its symbol.
fn parsers(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        let mut out = Vec::new();
        packet.emit(&mut out);
        let again = Packet::parse(&out).expect("what was written");
        assert_eq!(Packet { symbol: &[], ..again }, Packet { symbol: &[], ..packet });
        assert!(packet.symbol.starts_with(again.symbol) && packet.symbol[again.symbol.len()..].iter().all(|b| *b == 0));
    }
}

pub fn run(data: &[u8]) {
    parsers(data);
    let mut input = Input::new(data);
    let sent = datagrams();
    let mut relay =
        Relay::new(RelayConfig { memory: MEMORY, ..RelayConfig::new(Bandwidth::from_mbit(8.0), Probability::new(0.1)) }, [2; 32]);
    let mut sink = Sink::new(NAME, shape(), &KEY).expect("a key");
    let mut receiver = Receiver::new(secret(2), None, [(secret(1).public(), 0)], [4; 32]);
    receiver.handle_datagram(Time::ZERO, FROM, data);
    receiver.handle_datagram(Time::ZERO, FROM, announcement());
    let (mut seen, mut taken) = ([false; BLOCKS * 32], [false; BLOCKS * 32]);
    let (mut now, mut next, mut out) = (Time::ZERO, 0, Vec::new());
    for _ in 0..2000 {
        if input.is_empty() {
            break;
        }
        let what = input.u8();
        let mut datagram = match what % 8 {
            0 if what & 64 != 0 => announcement().to_vec(),
            0 => input.bytes().to_vec(),
            1 => sent[usize::from(input.u16()) % sent.len()].clone(),
            2 => {
                next += usize::from(input.u8());
                continue;
            }
            3 => {
                now += Duration::from_micros(u64::from(input.u16()) * 100);
                relay.handle_timeout(now);
                continue;
            }
            _ => {
                next += 1;
                sent[next % sent.len()].clone()
            }
        };
        if what >= 224 && !datagram.is_empty() {
            let at = usize::from(input.u8()) % datagram.len();
            datagram[at] ^= input.u8();
        }
        match what & 24 {
            0 | 16 => relay.handle_datagram(now, FROM, &datagram),
            8 => {
                sink.handle_datagram(&datagram);
            }
            _ => receiver.handle_datagram(now, FROM, &datagram),
        }
        now += Duration::from_micros(50);
        while relay.poll_transmit(now, &mut out) {
            assert!(Packet::parse(&out).is_ok() || Announcement::mark(&out).is_some(), "a relay sends packets");
            sink.handle_datagram(&out);
            receiver.handle_datagram(now, FROM, &out);
        }
        assert!(relay.memory() <= MEMORY, "{}", relay.memory());
        while let Some((number, got)) = sink.poll_message() {
            assert!(!core::mem::replace(&mut seen[number as usize], true), "message {number} was handed over before");
            assert_eq!(got, message(number), "message {number}");
        }
        while let Some((0, got)) = receiver.poll_message() {
            let number = (0..taken.len()).find(|n| !taken[*n] && got == message(*n as u64)).expect("a message of the source, once");
            taken[number] = true;
        }
    }
}
