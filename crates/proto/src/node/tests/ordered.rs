//! Ordered datagrams over lossy hops, as a tunnel carries TCP: what is missing holds up what came after it, so it is protected while capacity is spare,
//! though its lifetime would leave time for feedback.

use super::MS;
use super::mesh::Mesh;
use super::pair::{Conditions, bytes};
use crate::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use crate::switch::{Mechanism, without};
use crate::units::Duration;

/// Bursts of 10 messages of 1200 bytes every 10 ms, 9.6 Mbit/s, over three links of 100 Mbit/s and 10 ms that lose 5 %: how long the median and the
/// slowest tenth take, and packets sent by the first hop for each message.
fn bursts(seed: u64) -> (Duration, Duration, f64) {
    let link = Conditions { loss: 0.05, delay: MS(10), rate: Some(12.5e6), ..Conditions::default() };
    let mut m = Mesh::chain(&vec![link; 3], seed);
    let session = m.open(0, 3);
    let options = FlowOptions { mode: Mode::Btp, kind: FlowKind::OrderedMessages, lifetime: Some(MS(2000)), ..FlowOptions::default() };
    let flow = m.nodes[0].open_flow(m.now, session, options).unwrap();
    let (mut incoming, mut sent, mut late) = (None, Vec::new(), Vec::new());
    let begin = m.now;
    let is_complete = m.run_until(MS(20_000), |m| {
        while sent.len() < 2000 && m.now >= begin + MS(10) * (sent.len() / 10) as u32 {
            m.nodes[0].send_message(m.now, flow, bytes(1200, sent.len() as u64), MessageOptions::default()).unwrap();
            sent.push(m.now);
        }
        m.wake_at = Some(begin + MS(10) * (sent.len() / 10) as u32);
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while let Some(message) = incoming.and_then(|f| m.nodes[3].recv_message(m.now, f).unwrap()) {
            late.push(m.now.since(sent[message.id as usize]));
        }
        late.len() == 2000
    });
    assert!(is_complete, "{} of 2000 within their lifetime", late.len());
    let stats = m.nodes[0].flow_stats(flow).unwrap();
    late.drain(..500); // until the links know their loss
    late.sort_unstable();
    let packets = (stats.source_packets + stats.repair_packets) as f64 / 2000.0;
    (late[late.len() / 2], late[late.len() * 9 / 10], packets)
}

#[test]
fn ordered_datagrams_are_protected_while_capacity_is_spare() {
    let (median, slow, packets) = bursts(3);
    let (median_alone, slow_alone, packets_alone) = without(Mechanism::OrderedProtection, || bursts(3));
    println!(
        "median {median:?}, slowest tenth {slow:?}, {packets:.2} packets each; {median_alone:?}, {slow_alone:?}, {packets_alone:.2} on feedback alone"
    );
    // 30 ms of delay, and 10 packets at 100 Mbit/s.
    assert!(median < MS(40), "{median:?}");
    assert!(median_alone > MS(45) && slow_alone > slow, "{median_alone:?} {slow_alone:?}");
    assert!(packets < 1.6, "{packets}");
}
