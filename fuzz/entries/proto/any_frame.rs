//! Frames of every kind whose numbers are near those in use, or as large as the wire allows.

use super::Input;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::ids::{FlowLabel, PacketNumber, PathId, Seq, SessionKey};
use noctule_proto::options::{Class, FlowKind, Mode};
use noctule_proto::units::{Duration, Probability};
use noctule_proto::wire::ack::{self, AckHead};
use noctule_proto::wire::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use noctule_proto::wire::packet::ConnectionId;
use std::net::IpAddr;

/// Largest number of a varint.
const MOST: u64 = (1 << 62) - 1;

/// Small mostly, sometimes at an edge, sometimes anything.
pub fn number(input: &mut Input<'_>) -> u64 {
    match input.u8() {
        small @ 0..=199 => u64::from(small),
        200..=219 => u64::from(input.u16()),
        220..=229 => u64::from(input.u32()),
        edge @ 230..=239 => MOST - u64::from(edge - 230),
        edge @ 240..=247 => (1 << 32) + u64::from(edge) - 243,
        _ => input.u64() & MOST,
    }
}

fn mode(input: &mut Input<'_>) -> Mode {
    [Mode::Brtp, Mode::Btp, Mode::Transparent][usize::from(input.u8() % 3)]
}

fn kind(input: &mut Input<'_>) -> FlowKind {
    [FlowKind::OrderedMessages, FlowKind::UnorderedMessages, FlowKind::Stream][usize::from(input.u8() % 3)]
}

/// FLOW_OPEN of a session of one of these names, to one of these addresses.
fn open(input: &mut Input<'_>, names: &[SessionKey], nodes: &[IpAddr]) -> FlowOpen {
    let bits = input.u8();
    let name = match names.get(usize::from(bits & 3)) {
        Some(name) => *name,
        None => SessionKey(number(input)),
    };
    let relayed = (bits & 4 != 0 && !nodes.is_empty()).then(|| Relayed {
        destination: nodes[usize::from(input.u8()) % nodes.len()],
        source: nodes[usize::from(input.u8()) % nodes.len()],
        incarnation: number(input),
        first: Seq(number(input)),
        fits: input.u16(),
        part: if bits & 64 == 0 { 0 } else { number(input) },
        proof: (bits & 128 != 0).then(|| [input.u8(); 16]),
    });
    FlowOpen {
        session: name,
        index: number(input),
        label: FlowLabel(number(input)),
        symbol: if bits & 8 == 0 { 1400 } else { input.u16() },
        mode: mode(input),
        kind: kind(input),
        class: if bits & 16 == 0 { Class::Bulk } else { Class::Latency },
        lifetime: (bits & 32 != 0).then(|| Duration::from_millis(number(input))),
        batch_size: [8, 16, 32, 64][usize::from(input.u8() % 4)],
        hop_limit: input.u8(),
        no_retransmit: Probability::new(0.99),
        answers: (bits & 64 != 0).then(|| number(input)),
        bidirectional: bits & 128 != 0,
        tag: number(input),
        relayed,
    }
}

/// Appends one frame.
pub fn emit(input: &mut Input<'_>, names: &[SessionKey], nodes: &[IpAddr], out: &mut Vec<u8>) {
    let kind = input.u8() % 20;
    let flow = FlowLabel(number(input));
    let frame = match kind {
        0 => Frame::Ping,
        1 => return emit_ack(input, out),
        2..=4 => {
            let (base, n) = (Seq(number(input)), 1 + input.u8() % 64);
            let form = input.u8() % 4;
            let mut row = input.bytes().to_vec();
            row.resize(usize::from(n), 1);
            let coefficients = match form {
                0 => Coefficients::Index(input.u8()),
                1 => Coefficients::Seed(input.u16()),
                2 => Coefficients::BitmapSeed { bitmap: input.u64(), seed: input.u16() },
                _ => Coefficients::Vector(&row),
            };
            let mut symbol = input.bytes().to_vec();
            if form == 0 && symbol.len() >= 2 {
                // A source symbol says its own length.
                let len = (symbol.len() - 2) as u16;
                symbol[..2].copy_from_slice(&len.to_be_bytes());
            }
            return Frame::Coded(Coded { flow, base, n, coefficients, symbol: &symbol }).emit(out);
        }
        5 | 6 => Frame::FlowOpen(open(input, names, nodes)),
        7 => Frame::FlowEnd { flow, end: Seq(number(input)) },
        8 => Frame::FlowRefused { flow, base: Seq(number(input)), reason: number(input) },
        9 => Frame::FlowReset { flow, reason: number(input) },
        10 => Frame::FlowStop { flow, reason: number(input) },
        11 => Frame::FlowSkip { flow, floor: Seq(number(input)) },
        12 => Frame::Rank { flow, base: Seq(number(input)), n: 1 + input.u8() % 64, rank: input.u8() % 65, missing: input.u64() },
        13 => Frame::Credit { flow, limit: Seq(number(input)), done: Seq(number(input)) },
        14 => {
            let id = ConnectionId::new(&input.u32().to_be_bytes()).unwrap_or_default();
            Frame::NewConnectionId { path: PathId(input.u8().into()), sequence: number(input), id }
        }
        15 => Frame::RetireConnectionId { sequence: number(input) },
        16 => Frame::PathChallenge(input.u64().to_be_bytes()),
        17 => Frame::Rekey { generation: number(input), step: input.u8(), message: input.bytes() },
        18 => Frame::Fragment { id: number(input), index: input.u8(), data: input.bytes() },
        _ if input.u8() < 16 => Frame::Close(CloseReason::local(Code::NoError, Layer::Link, "")),
        _ => {
            return match input.u8() % 2 {
                0 => Frame::Datagram { flow, number: number(input), data: input.bytes() }.emit(out),
                _ => Frame::PathResponse(input.u64().to_be_bytes()).emit(out),
            };
        }
    };
    frame.emit(out);
}

fn emit_ack(input: &mut Input<'_>, out: &mut Vec<u8>) {
    let (largest, back, pattern) = (number(input), number(input), input.u64());
    let head = AckHead { path: PathId(0), largest: PacketNumber(largest), delay: Duration::from_micros(number(input)), ecn: None };
    // The largest always arrived; below it a pattern, or everything.
    let word = |w: u64| {
        let bits = if pattern == 0 { u64::MAX } else { pattern };
        if w == largest / 64 { bits | 1 << (largest % 64) } else { bits }
    };
    let _ = ack::emit(out, &head, word, PacketNumber(largest.saturating_sub(back)), 1200);
}
