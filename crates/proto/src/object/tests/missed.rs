//! Packets that never left for a receiver because it had no room: what it needs in their place waits for nothing.

use super::*;
use bytes::Bytes;
use std::collections::VecDeque;

/// As in `noctule send`: longer than a datagram lives. Whoever waits for it once takes longer than it.
const SETTLE_MS: u64 = 3500;
const SETTLE: Duration = Duration::from_millis(SETTLE_MS);
/// Packets that wait for a child at most.
const ROOM: usize = 16;
const EVERY: u64 = 100;
const BYTES: usize = 100_000;

/// Two receivers whose flows share two packets a millisecond, in parts that change by chance every 50 to 350 ms; 10 ms one way, nothing is lost. From
/// `gone` on the first takes nothing, says nothing, and is not missed until 30 s have passed. The ms until all that are there have everything.
fn share(seed: u64, gone: u64) -> Option<u64> {
    let object = Object::of(BYTES);
    let ids = [ReceiverId(0), ReceiverId(1)];
    let mut sender = Sender::new(object.layout, object.tree.clone(), SenderConfig { window: 12, settle: SETTLE });
    let mut relay = Relay::new(object.layout, RelayConfig::default());
    let mut receivers = [object.receiver_with_leaves(100_000), object.receiver_with_leaves(100_000)];
    let mut got = [Got::default(), Got::default()];
    let mut queues: [VecDeque<Bytes>; 2] = Default::default();
    let mut flying: VecDeque<(u64, usize, Bytes)> = VecDeque::new();
    let (mut chance, mut part, mut until, mut credit) = (Chance::new(seed), 1.0, 0, [0.0f64; 2]);
    for ms in 0..30_000 {
        let is_here = |i: usize| i == 1 || ms < gone;
        if ms >= until {
            (part, until) = (if chance.hits(0.5) { 0.5 } else { 1.5 }, ms + 50 + (chance.0.next_u64() % 300));
        }
        for i in (0..2).filter(|i| ms % EVERY == 0 && is_here(*i)) {
            let (child, status) = (ChildId(i as u32), receivers[i].status());
            relay.add(child);
            relay.on_status(child, status.clone());
            sender.on_status(at(ms), ids[i], status);
            relay.given(child).for_each(|(block, packets)| sender.on_given(ids[i], block, packets));
        }
        if (0..2).filter(|i| is_here(*i)).all(|i| receivers[i].is_complete()) {
            assert!((0..2).filter(|i| is_here(*i)).all(|i| got[i].data() == object.data));
            return Some(ms);
        }
        loop {
            match relay.poll(at(ms), |child| queues[child.0 as usize].len() < ROOM) {
                Poll::Wait(_) => break,
                Poll::Send(child, packet) => queues[child.0 as usize].push_back(packet),
                Poll::Want => {
                    while let Some(block) = sender.wanted_block() {
                        sender.load(block, object.block(block)).unwrap();
                        if sender.wanted_block() == Some(block) {
                            break;
                        }
                    }
                    let mut packet = Vec::new();
                    let Some(id) = sender.poll_packet(at(ms), &mut packet) else { break };
                    relay.push(id, packet.into());
                }
            }
        }
        // What the first leaves unused is the second's.
        let first = if is_here(0) && !receivers[0].is_complete() { part } else { 0.0 };
        for (i, rate) in [(0, first), (1, 2.0 - first)] {
            credit[i] = (credit[i] + rate).min(2.0);
            while credit[i] >= 1.0
                && let Some(packet) = queues[i].pop_front()
            {
                credit[i] -= 1.0;
                flying.push_back((ms + 10, i, packet));
            }
        }
        while flying.front().is_some_and(|(due, ..)| *due <= ms) {
            let Some((_, i, packet)) = flying.pop_front() else { break };
            receivers[i].on_packet(&packet);
            got[i].take(&mut receivers[i]);
        }
    }
    None
}

/// The slowest of many runs, ms.
fn slowest(gone: u64) -> u64 {
    (0..48).map(|seed| share(seed, gone).unwrap_or(30_000)).max().unwrap()
}

#[test]
fn what_a_receiver_had_no_room_for_is_made_up_for_at_once() {
    let ms = slowest(u64::MAX);
    assert!(ms < SETTLE_MS, "{ms} ms");
}

#[test]
fn a_receiver_that_is_gone_does_not_stop_one_that_lagged_behind_it() {
    let ms = slowest(500);
    assert!(ms < SETTLE_MS, "{ms} ms");
}
