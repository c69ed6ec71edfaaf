//! Scripted tests: a sending half, a channel that loses, reorders and repeats source packets, a receiving half.

mod close;
mod control;
mod hostile;
mod lifetimes;
mod messages;
mod streams;
mod table;
mod windows;

use super::*;
use crate::ids::Seq;
use crate::node::Message;
use crate::options::MessageOptions;
use crate::stats::FlowStats;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// Room that a flow would give: symbols of one link at 1472 bytes of UDP payload.
const SYMBOL: usize = 1400;
const NOW: Time = Time::ZERO;

fn options(kind: FlowKind) -> FlowOptions {
    FlowOptions { kind, ..FlowOptions::default() }
}

fn ordered() -> FlowOptions {
    options(FlowKind::OrderedMessages)
}

fn unordered() -> FlowOptions {
    options(FlowKind::UnorderedMessages)
}

fn sender(options: &FlowOptions) -> SendHalf {
    SendHalf::new(options, SendLimits { buffer: 1 << 20, max_message: 1 << 20 })
}

fn receiver(options: &FlowOptions) -> RecvHalf {
    RecvHalf::new(options, RecvLimits { memory: 4 << 20, max_message: 1 << 20 })
}

/// Bytes that differ from message to message.
fn content(id: u64, size: usize) -> Bytes {
    (0..size).map(|i| (i as u64).wrapping_mul(31).wrapping_add(id * 7 + (i as u64 >> 8)) as u8).collect::<Vec<_>>().into()
}

/// Everything that the half wants to send.
fn drain(half: &mut SendHalf, now: Time, symbol: usize) -> Vec<OutSymbol> {
    core::iter::from_fn(|| half.poll_symbol(now, symbol)).collect()
}

/// What the flow would deliver of it; checks the length prefix (P5).
fn payload(symbol: &OutSymbol) -> (Seq, Bytes) {
    let mut written = Vec::new();
    symbol.symbol.write(&mut written);
    let length = u16::from_be_bytes([written[0], written[1]]);
    assert_eq!(usize::from(length) + 2, symbol.symbol.len());
    (symbol.seq, symbol.symbol.payload())
}

fn deliver(half: &mut RecvHalf, symbols: &[OutSymbol]) {
    for symbol in symbols {
        let (seq, payload) = payload(symbol);
        half.on_packet(NOW, seq, payload).expect("well formed");
    }
}

fn recv_all(half: &mut RecvHalf) -> Vec<Message> {
    core::iter::from_fn(|| half.recv_message()).collect()
}

fn read_all(half: &mut RecvHalf) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = half.read(usize::MAX).filter(|c| !c.is_empty()) {
        all.extend_from_slice(&chunk);
    }
    all
}

fn ids(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(|m| m.id).collect()
}

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut rng = rng(seed);
    for i in (1..items.len()).rev() {
        items.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
}
