//! Small packets of latency flows: datagrams on links that are nearly full, where repair does what protection has no room for, if there is time for feedback; and messages
//! that relays protect as the source does.

use super::MS;
use super::mesh::{Mesh, config};
use super::pair::{Conditions, bytes};
use crate::NodeConfig;
use crate::congestion::CongestionControl;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::switch::{Mechanism, without};
use crate::units::Duration;

/// 3000 messages of 1000 bytes a second, four fifths of what a link of 40 Mbit/s and 1 ms that loses a fifth can carry, to be there within 51 ms: the share of them
/// that is not, once the link knows its loss; and packets sent for each.
fn residual(seed: u64) -> (f64, f64) {
    let link = Conditions { loss: 0.2, delay: MS(1), rate: Some(5e6), ..Conditions::default() };
    let mut m = Mesh::chain(&[link], seed);
    let session = m.open(0, 1);
    let kind = FlowKind::UnorderedMessages;
    let options = FlowOptions { mode: Mode::Btp, kind, class: Class::Latency, lifetime: Some(MS(51)), ..FlowOptions::default() };
    let flow = m.nodes[0].open_flow(m.now, session, options).unwrap();
    let every = crate::units::Duration::from_nanos(1_000_000_000 / 3000);
    let (mut incoming, mut sent, mut there) = (None, 0u32, 0u32);
    let begin = m.now;
    let (first, last) = (3000 * 2, 3000 * 5);
    m.run_until(MS(5100), |m| {
        while sent < last && m.now >= begin + every * sent {
            // A full buffer is the sender's loss.
            let _ = m.nodes[0].send_message(m.now, flow, bytes(1000, sent.into()), MessageOptions::default());
            sent += 1;
        }
        m.wake_at = (sent < last).then(|| begin + every * sent);
        incoming = incoming.or_else(|| m.incoming_flow(1));
        while incoming.is_some_and(|f| m.nodes[1].recv_message(m.now, f).unwrap().is_some()) {
            there += u32::from(sent > first);
        }
        false
    });
    let stats = m.nodes[0].flow_stats(flow).unwrap();
    let packets = (stats.source_packets + stats.repair_packets) as f64 / f64::from(last);
    (1.0 - f64::from(there.min(last - first)) / f64::from(last - first), packets)
}

#[test]
fn datagrams_that_have_time_for_feedback_get_through_a_link_that_is_nearly_full() {
    let ((lost, packets), (lost_alone, packets_alone)) = (residual(5), without(Mechanism::PatientDatagrams, || residual(5)));
    println!(
        "residual loss {lost:.5}, {packets:.3} packets each; {lost_alone:.5}, {packets_alone:.3} where protection goes before what is new"
    );
    assert!(lost <= 0.001, "{lost}");
    assert!(packets < 1.35 && packets_alone > packets + 0.05, "{packets} {packets_alone}");
}

#[test]
fn repairs_of_datagrams_that_have_time_are_exact_however_often_they_are_lost() {
    let ((lost, packets), (_, packets_alone)) = (residual(5), without(Mechanism::LifetimeLeft, || residual(5)));
    println!("residual loss {lost:.5}, {packets:.3} packets each; {packets_alone:.3} where repairs that were lost get some more");
    assert!(lost <= 0.001, "{lost}");
    assert!(packets_alone > packets + 0.02, "{packets} {packets_alone}");
}

/// 1100 messages of 1000 bytes a second without congestion control, over three links of 10 Mbit/s that lose a tenth: what the links carry is 1125 packets a
/// second. Messages that arrive within 200 ms, of all, and packets of the first link for each.
fn overloaded(seed: u64) -> (f64, f64) {
    let link = Conditions { loss: 0.1, delay: Duration::from_micros(500), rate: Some(1.25e6), ..Conditions::default() };
    let edges: Vec<_> = (0..3).map(|i| (i, i + 1, link.clone())).collect();
    let mut m = Mesh::new(4, &edges, seed);
    (0..4).for_each(|node| m.configure(node, NodeConfig { congestion: CongestionControl::None, ..config() }));
    (0..4).for_each(|node| m.route_by_chain(node));
    m.connect_all();
    let session = m.open(0, 3);
    let kind = FlowKind::UnorderedMessages;
    let options = FlowOptions { mode: Mode::Btp, kind, lifetime: Some(MS(200)), ..FlowOptions::default() };
    let flow = m.nodes[0].open_flow(m.now, session, options).unwrap();
    let every = Duration::from_nanos(1_000_000_000 / 1100);
    let (mut incoming, mut sent, mut there) = (None, 0u32, 0u32);
    let begin = m.now;
    m.run_until(MS(3000), |m| {
        while sent < 2900 && m.now >= begin + every * sent {
            let _ = m.nodes[0].send_message(m.now, flow, bytes(1000, sent.into()), MessageOptions::default());
            sent += 1;
        }
        m.wake_at = (sent < 2900).then(|| begin + every * sent);
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while incoming.is_some_and(|f| m.nodes[3].recv_message(m.now, f).unwrap().is_some()) {
            there += 1;
        }
        false
    });
    let stats = m.nodes[0].flow_stats(flow).unwrap();
    (f64::from(there) / f64::from(sent), (stats.source_packets + stats.repair_packets) as f64 / f64::from(sent))
}

#[test]
fn without_congestion_control_repairs_are_no_more_than_what_arrives() {
    let ((share, packets), (share_alone, packets_alone)) = (overloaded(5), without(Mechanism::PaidRepairs, || overloaded(5)));
    println!("{share:.3} arrive, {packets:.2} packets each; {share_alone:.3}, {packets_alone:.2} where nothing pays for repairs");
    // A new packet, and a repair for each of the packets that arrive.
    assert!(packets < 2.1 && packets_alone > packets + 0.5, "{packets} {packets_alone}");
    assert!(share > 0.75, "{share}");
}

/// A hundred messages a second over three links of 5 ms that lose 5 %: the share that took 6 ms more than the delay, once the links know their loss.
fn late(seed: u64) -> f64 {
    let link = Conditions { loss: 0.05, delay: MS(5), rate: Some(25e6), ..Conditions::default() };
    let mut m = Mesh::chain(&vec![link; 3], seed);
    let session = m.open(0, 3);
    let options = FlowOptions { kind: FlowKind::UnorderedMessages, class: Class::Latency, ..FlowOptions::default() };
    let flow = m.nodes[0].open_flow(m.now, session, options).unwrap();
    let (mut incoming, mut sent, mut took) = (None, Vec::new(), Vec::new());
    let begin = m.now;
    let is_complete = m.run_until(MS(30_000), |m| {
        while sent.len() < 2000 && m.now >= begin + MS(10) * sent.len() as u32 {
            m.nodes[0].send_message(m.now, flow, bytes(1000, sent.len() as u64), MessageOptions::default()).unwrap();
            sent.push(m.now);
        }
        m.wake_at = (sent.len() < 2000).then(|| begin + MS(10) * sent.len() as u32);
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while let Some(message) = incoming.and_then(|f| m.nodes[3].recv_message(m.now, f).unwrap()) {
            took.push((message.id, m.now.since(sent[message.id as usize])));
        }
        took.len() == 2000
    });
    assert!(is_complete, "{} of 2000", took.len());
    let counted: Vec<_> = took.iter().filter(|(id, _)| *id >= 500).collect();
    counted.iter().filter(|(_, time)| *time > MS(21)).count() as f64 / counted.len() as f64
}

#[test]
fn relays_protect_small_flows_too() {
    let (slow, slow_alone) = (late(3), without(Mechanism::RelayedProtection, || late(3)));
    println!("{slow:.4} of the messages wait for feedback; {slow_alone:.4} where only the source protects");
    assert!(slow < 0.02, "{slow}");
    assert!(slow_alone > 0.06, "{slow_alone}");
}
