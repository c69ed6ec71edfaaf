//! Receivers whose flows share one link in parts that change: what one of them missed because it had no room.

use super::*;
use crate::switch::{Mechanism, without};
use bytes::Bytes;
use std::collections::VecDeque;

/// As in `noctule send`: longer than a datagram lives.
const SETTLE: Duration = Duration::from_millis(3500);
/// Packets that wait for a child at most.
const ROOM: usize = 16;
/// Between statuses, ms.
const EVERY: u64 = 100;
/// After that a run is given up, ms.
const LONGEST: u64 = 30_000;

/// How two flows share a link that carries two packets a millisecond.
#[derive(Clone, Copy)]
struct Sharing {
    bytes: usize,
    /// The smaller part of the link, of 1.
    smaller: f64,
    /// A part lasts 50 ms to so much more.
    changes: u64,
    /// From then on the first receiver takes nothing and says nothing.
    gone: u64,
}

/// The ms until all receivers that are there have everything, 10 ms one way, without losses; and packets sent for each of the object's.
fn share(seed: u64, sharing: Sharing) -> (u64, f64) {
    let object = Object::of(sharing.bytes);
    let ids = [ReceiverId(0), ReceiverId(1)];
    let mut sender = Sender::new(object.layout, object.tree.clone(), SenderConfig { window: 12, settle: SETTLE });
    let mut relay = Relay::new(object.layout, RelayConfig { memory: 100_000, ..RelayConfig::default() });
    let mut receivers = [object.receiver_with_leaves(100_000), object.receiver_with_leaves(100_000)];
    let mut got = [Got::default(), Got::default()];
    let mut queues: [VecDeque<Bytes>; 2] = Default::default();
    let mut flying: VecDeque<(u64, usize, Bytes)> = VecDeque::new();
    let (mut chance, mut part, mut until, mut credit, mut sent) = (Chance::new(seed), 1.0, 0, [0.0f64; 2], 0);
    for ms in 0..LONGEST {
        let is_here = |i: usize| i == 1 || ms < sharing.gone;
        if ms >= until {
            let first = if chance.hits(0.5) { sharing.smaller } else { 1.0 - sharing.smaller };
            (part, until) = (2.0 * first, ms + 50 + chance.0.next_u64() % sharing.changes);
        }
        for i in (0..2).filter(|i| ms % EVERY == 0 && is_here(*i)) {
            let (child, status) = (ChildId(i as u32), receivers[i].status());
            relay.add(child);
            relay.on_status(child, status.clone());
            sender.on_status(at(ms), ids[i], status);
            sender.on_missed(relay.missed(child));
        }
        if (0..2).filter(|i| is_here(*i)).all(|i| receivers[i].is_complete()) {
            assert!((0..2).filter(|i| is_here(*i)).all(|i| got[i].data() == object.data));
            return (ms, sent as f64 / object.layout.packets() as f64);
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
        // What one leaves unused is the other's.
        for (credit, grant) in credit.iter_mut().zip([part, 2.0 - part]) {
            *credit = (*credit + grant).min(2.0);
        }
        let mut pass = |i: usize, credit: &mut f64, queue: &mut VecDeque<Bytes>| {
            while *credit >= 1.0
                && let Some(packet) = queue.pop_front()
            {
                *credit -= 1.0;
                sent += 1;
                flying.push_back((ms + 10, i, packet));
            }
        };
        for i in 0..2 {
            if is_here(i) {
                pass(i, &mut credit[i], &mut queues[i]);
            }
        }
        // A receiver that is done or gone leaves its part to the other; one that has nothing to send for a moment does not.
        for (i, other) in [(0, 1), (1, 0)] {
            if is_here(i) && (!is_here(other) || receivers[other].is_complete()) {
                pass(i, &mut credit[other], &mut queues[i]);
            }
        }
        while flying.front().is_some_and(|(due, ..)| *due <= ms) {
            let Some((_, i, packet)) = flying.pop_front() else { break };
            receivers[i].on_packet(&packet);
            got[i].take(&mut receivers[i]);
        }
    }
    (LONGEST, sent as f64 / object.layout.packets() as f64)
}

/// The slowest of many runs, ms, and the most packets for each of the object's.
fn worst(sharing: Sharing) -> (u64, f64) {
    let runs = (0..16).map(|seed| share(seed, sharing));
    runs.fold((0, 0.0), |(ms, sent), run| (ms.max(run.0), f64::max(sent, run.1)))
}

#[test]
fn what_a_receiver_had_no_room_for_is_made_up_for_at_the_end_without_waiting() {
    for smaller in [0.0, 0.1] {
        let (ms, _) = worst(Sharing { bytes: 100_000, smaller, changes: 300, gone: u64::MAX });
        assert!(at(ms) < at(0) + SETTLE, "{smaller}: {ms} ms");
        let (ms, _) = without(Mechanism::MissedPackets, || worst(Sharing { bytes: 100_000, smaller, changes: 300, gone: u64::MAX }));
        assert!(at(ms) > at(0) + SETTLE, "{smaller}: {ms} ms without it");
    }
}

#[test]
fn larger_objects_send_nothing_that_a_receiver_would_drop() {
    let (ms, sent) = worst(Sharing { bytes: 300_000, smaller: 0.1, changes: 300, gone: u64::MAX });
    assert!(sent < 2.2 && ms < 10_000, "{sent} packets for each, {ms} ms");
}

#[test]
fn a_receiver_that_takes_nothing_does_not_stop_one_that_lagged_behind_it() {
    for smaller in [0.0, 0.1] {
        let (ms, _) = worst(Sharing { bytes: 100_000, smaller, changes: 300, gone: 100 });
        assert!(ms < 4_000, "{smaller}: {ms} ms");
    }
}
