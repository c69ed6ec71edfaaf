//! Window repair: spans that are not batches, as another sender may use them (P4).

use super::world::{content, symbol};
use crate::error::Code;
use crate::flow::{Offer, Receiver, ReceiverConfig};
use crate::ids::{FlowLabel, Seq};
use crate::units::{Duration, Time};
use crate::wire::frame::{Coded, Coefficients};
use bytes::Bytes;
use noctule_codes::span::{encode, repair_coefficients};

fn receiver(memory: usize) -> Receiver {
    Receiver::new(ReceiverConfig { label: FlowLabel(1), batch_size: 16, symbol: 300, memory, initial_credit: 256 })
}

fn packet(seq: u64) -> Bytes {
    symbol(&content(seq, 40 + (seq % 50) as usize))
}

fn source(r: &mut Receiver, seq: u64) -> Offer {
    let base = seq / 16 * 16;
    let (n, index) = ((seq - base + 1) as u8, (seq - base) as u8);
    r.on_coded(
        Time::from_millis(1),
        &Coded { flow: FlowLabel(1), base: Seq(base), n, coefficients: Coefficients::Index(index), symbol: &packet(seq) },
    )
}

/// A combination over `n` packets from `base` on.
fn repair(r: &mut Receiver, base: u64, n: u8, seed: u16) -> Offer {
    let mut coefficients = vec![0; usize::from(n)];
    repair_coefficients(seed, n.into(), &mut coefficients);
    let packets: Vec<Bytes> = (base..base + u64::from(n)).map(packet).collect();
    let sources: Vec<&[u8]> = packets.iter().map(|p| &p[..]).collect();
    let mut data = vec![0; sources.iter().map(|s| s.len()).max().unwrap_or(0)];
    encode(&coefficients, &sources, &mut data);
    r.on_coded(
        Time::from_millis(1),
        &Coded { flow: FlowLabel(1), base: Seq(base), n, coefficients: Coefficients::Seed(seed), symbol: &data },
    )
}

fn delivered(r: &mut Receiver) -> Vec<u64> {
    let mut got = Vec::new();
    while let Some((seq, payload)) = r.poll_delivery() {
        assert_eq!(payload, packet(seq.0).slice(2..), "packet {seq}");
        got.push(seq.0);
    }
    got.sort_unstable();
    got
}

#[test]
fn a_span_across_a_batch_boundary_gives_back_what_was_lost_on_both_sides() {
    let mut r = receiver(1 << 20);
    // The decoder begins with the first window repair and with what is held of incomplete batches: packet 8 comes out of it.
    (0..8).for_each(|seq| {
        source(&mut r, seq);
    });
    repair(&mut r, 3, 6, 0);
    (8..30).filter(|seq| ![14, 15, 17].contains(seq)).for_each(|seq| {
        source(&mut r, seq);
    });
    assert_eq!(delivered(&mut r).len(), 27);
    assert_eq!(repair(&mut r, 10, 15, 1), Offer::Accepted);
    assert_eq!(repair(&mut r, 11, 17, 2), Offer::Accepted);
    assert!(delivered(&mut r).is_empty(), "two combinations, three lost");
    assert_eq!(repair(&mut r, 12, 18, 3), Offer::Accepted);
    assert_eq!(delivered(&mut r), [14, 15, 17]);
    assert_eq!(r.done(), Seq(30));
    assert_eq!(repair(&mut r, 12, 18, 4), Offer::Redundant);
    assert_eq!(r.stats().decoded_packets, 4);
}

#[test]
fn batches_and_windows_repair_each_other() {
    let mut r = receiver(1 << 20);
    repair(&mut r, 1, 2, 9);
    (2..14).for_each(|seq| {
        source(&mut r, seq);
    });
    assert_eq!(repair(&mut r, 8, 40, 1), Offer::Accepted, "a span longer than a batch is a window");
    (14..48).filter(|seq| *seq != 20).for_each(|seq| {
        source(&mut r, seq);
    });
    let got = delivered(&mut r);
    assert!(got.contains(&20) && got.contains(&1), "{got:?}");
    assert!(!got.contains(&0));
    assert_eq!(repair(&mut r, 0, 16, 0), Offer::Accepted);
    assert_eq!(delivered(&mut r), [0]);
}

#[test]
fn a_flow_without_memory_for_it_refuses_window_repair_and_lives_on() {
    let mut r = receiver(20_000);
    assert_eq!(repair(&mut r, 3, 5, 0), Offer::Refused(Code::NoMemory));
    assert_eq!(source(&mut r, 0), Offer::Accepted);
    assert!(r.poll_report(Time::from_millis(500), Duration::from_millis(10)).is_some());
}
