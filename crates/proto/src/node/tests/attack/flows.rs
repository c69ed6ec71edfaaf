//! Flows of a hostile neighbour: opened without end, opened and dropped, filled with impossible packets, never read.

use super::*;
use crate::switch::{Mechanism, without};
use crate::wire::frame::{Coded, Coefficients};

#[test]
fn impossible_coefficients_and_spans_are_refused_and_counted() {
    let end = siege(NodeConfig::default()).withstand(MS(2), MS(500), |s, round| {
        if round == 0 {
            let open = s.open(s.name, 1, 50);
            s.send(&[Frame::FlowOpen(open)]);
        }
        let [a, b, c, d] = numbers(round);
        let source = [&[0, 98][..], &[5; 98]].concat();
        let lie = [&[200, 98][..], &[5; 98]].concat();
        let flow = FlowLabel(50);
        let coded = |base: u64, n: u8, coefficients, symbol| Frame::Coded(Coded { flow, base: seq(base & MOST), n, coefficients, symbol });
        let row = [255; 64];
        for frame in [
            coded(a & !15, 16, Coefficients::Index(0), &lie),
            coded(b, 16, Coefficients::Seed(7), &source),
            coded(c, 64, Coefficients::Vector(&row), &source),
            coded(d, 1, Coefficients::Vector(&[0]), &source),
            coded(a & !15, 16, Coefficients::Vector(&[0; 16]), &source),
            coded(MOST, 64, Coefficients::Index(63), &source),
            coded(0, 16, Coefficients::Index(1), &[0]),
            coded(a % 64, 48, Coefficients::Vector(&row[..48]), &source),
        ] {
            // What the wire cannot even say is left out here: it ends the link.
            let mut bytes = Vec::new();
            frame.emit(&mut bytes);
            if crate::wire::Frames::new(&bytes).all(|f| f.is_ok()) {
                s.send_raw(bytes);
            }
        }
    });
    end.assert_withstood();
    assert!(end.counters.refused > 100, "{:?}", end.counters);
    assert!(end.stats.is_some_and(|s| s.flows.received.memory < 1 << 20), "what is held for impossible packets is bounded");
}

/// Flows without end, and in the midst of them the honest neighbour opens one more: how it ended, and whether that flow was taken.
fn crowd() -> (End, bool) {
    // 2 MiB would be gone after 150 of them, which is fewer than a session may have.
    let config = NodeConfig { node_memory: 2 << 20, max_message: 100_000, ..NodeConfig::default() };
    let (mut late, mut is_refused) = (None, false);
    let end = siege(config).withstand(MS(1), MS(1000), |s, round| {
        let frames: Vec<_> = (0..8).map(|i| Frame::FlowOpen(s.open(s.name, 1 + round * 8 + i, 10 + round * 8 + i))).collect();
        s.send(&frames);
        if round == 500 {
            let now = s.m.now;
            late = Some(s.m.nodes[HONEST].open_flow(now, s.session_of_honest, FlowOptions::default()).unwrap());
        }
        is_refused |= s.m.events[HONEST].iter().any(|e| matches!(e, Event::FlowClosed { flow, .. } if Some(*flow) == late));
    });
    (end, late.is_some() && !is_refused)
}

#[test]
fn flows_without_end_are_refused_within_the_memory_and_leave_some_to_others() {
    let (end, is_taken) = crowd();
    end.assert_withstood();
    assert!(end.counters.refused_flows > 1000, "{:?}", end.counters);
    assert!(is_taken, "others find memory for their flows");
    let (_, is_taken) = without(Mechanism::FairFloors, crowd);
    assert!(!is_taken);
}

#[test]
fn tiny_flows_without_end_are_bounded_in_number_by_what_each_really_costs() {
    let config = NodeConfig { node_memory: 8 << 20, max_message: 100_000, max_flows: 100_000, ..NodeConfig::default() };
    let end = siege(config).withstand(MS(1), MS(1000), |s, round| {
        let opens = (0..16).map(|i| {
            let open = s.open(s.name, 1 + round * 16 + i, 10 + round * 16 + i);
            Frame::FlowOpen(FlowOpen { symbol: 64, batch_size: 8, ..open })
        });
        let frames: Vec<_> = opens.collect();
        s.send(&frames);
    });
    end.assert_withstood();
    assert!(end.counters.refused_flows > 1000, "{:?}", end.counters);
}

#[test]
fn flows_opened_reset_stopped_and_ended_in_a_rage_leave_nothing_behind() {
    let end = siege(NodeConfig::default()).withstand(MS(1), MS(1500), |s, round| {
        for i in 0..4 {
            let n = round * 4 + i;
            let (label, open) = (FlowLabel(10 + n), s.open(s.name, 1 + n, 10 + n));
            s.send(&[
                Frame::FlowOpen(open),
                Frame::FlowEnd { flow: label, end: seq(numbers(n)[1]) },
                Frame::FlowSkip { flow: label, floor: seq(numbers(n)[3]) },
                Frame::FlowReset { flow: label, reason: n },
                Frame::FlowStop { flow: FlowLabel(n % 5), reason: MOST },
                Frame::FlowReset { flow: FlowLabel(MOST - n), reason: MOST },
            ]);
        }
    });
    end.assert_withstood();
    assert!(end.memory.used < 8 << 20, "{:?}", end.memory);
}

#[test]
fn fragments_that_never_become_whole_are_forgotten() {
    let end = siege(NodeConfig::default()).withstand(MS(1), MS(500), |s, round| {
        for i in 0..4 {
            s.send(&[Frame::Fragment { id: numbers(round * 4 + i)[1], index: (i & 1) as u8, data: &[7; 1200] }]);
        }
    });
    end.assert_withstood();
    assert_eq!(end.closed, None);
}

/// The victim sends to a neighbour that reads nothing and acknowledges nothing more, at which it keeps shouting.
#[test]
fn a_peer_that_neither_reads_nor_acknowledges_costs_bounded_memory_and_its_link_ends() {
    let config = NodeConfig { node_memory: 64 << 20, flow_memory: 4 << 20, max_message: 100_000, ..NodeConfig::default() };
    let mut s = siege(config);
    let theirs = s.m.events[VICTIM].iter().find_map(|e| match e {
        Event::SessionIncoming { session, link, .. } if *link == s.victims_link => Some(*session),
        _ => None,
    });
    let now = s.m.now;
    let options = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
    let flow = s.m.nodes[VICTIM].open_flow(now, theirs.unwrap(), options).unwrap();
    // From now on the hostile node hears nothing; what it sends arrives.
    s.m.edges[0].conditions[1].loss = 1.0;
    let end = s.withstand(MS(1), MS(34_000), |s, _| {
        let now = s.m.now;
        while s.m.nodes[VICTIM].write(now, flow, &[1; 16384]).is_ok() {}
        for _ in 0..4 {
            s.send(&[Frame::Ping]);
        }
    });
    end.assert_withstood();
    assert_eq!(end.closed, Some(Code::CircuitBreaker));
    assert!(end.memory.peak < 16 << 20, "{:?}", end.memory);
}
