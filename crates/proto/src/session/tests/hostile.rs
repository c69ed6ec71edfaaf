//! What a hostile far end may send: nothing panics, memory stays bounded, violations are named.

use super::items::*;
use super::*;
use proptest::prelude::*;

fn packet(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    write(&mut out);
    out.into()
}

/// The code with which a half refuses the last of these packets.
fn refusal(options: &FlowOptions, packets: &[(u64, Bytes)]) -> Option<Code> {
    let mut rx = receiver(options);
    let (last, first) = packets.split_last()?;
    for (seq, payload) in first {
        rx.on_packet(NOW, Seq(*seq), payload.clone()).expect("still well formed");
    }
    let code = rx.on_packet(NOW, Seq(last.0), last.1.clone()).err()?.code;
    assert_eq!(rx.closed(), Some((code as u64, false)), "the half is closed");
    Some(code)
}

#[test]
fn framing_violations_are_named() {
    let head = |total| packet(|o| put_head(o, Some(0), total, b"abc"));
    let tail = |distance, data: &'static [u8]| packet(move |o| put_tail(o, distance, data, false));
    let middle = |distance| packet(move |o| put_middle(o, distance, b"xy"));
    let abort = |distance| packet(move |o| put_abort(o, distance));
    let whole = || packet(|o| put_whole(o, Some(0), b"x", false));
    for options in [ordered(), unordered()] {
        for packets in [
            vec![(0, Bytes::new())],
            vec![(0, middle(1))],                      // began before the flow
            vec![(0, whole()), (1, middle(1))],        // never began
            vec![(0, head(6)), (1, tail(1, b"de"))],   // too short
            vec![(0, head(6)), (1, tail(1, b"defg"))], // too long
            vec![(0, head(4)), (1, middle(1))],        // already too long
        ] {
            assert_eq!(refusal(&options, &packets), Some(Code::SessionProtocol), "{packets:02x?}");
        }
        assert_eq!(refusal(&options, &[(0, head((1 << 20) + 1))]), Some(Code::MessageTooLarge));
        assert_eq!(refusal(&options, &[(0, head(100)), (1, abort(1)), (2, whole())]), None);
    }
    assert_eq!(refusal(&ordered(), &[(0, head(100)), (1, whole())]), Some(Code::SessionProtocol), "cut off");
    let behind = [(0, head(8)), (1, tail(1, b"defgh")), (2, middle(2))];
    assert_eq!(refusal(&ordered(), &behind), Some(Code::SessionProtocol), "behind its end");
    assert_eq!(refusal(&unordered(), &behind), None, "the message is forgotten: an orphan");
    assert_eq!(refusal(&unordered(), &[(5, tail(3, b"x")), (6, middle(4))]), Some(Code::SessionProtocol), "behind its end");
    assert_eq!(refusal(&unordered(), &[(6, middle(4)), (5, tail(3, b"x"))]), Some(Code::SessionProtocol), "end before its middle");
    assert_eq!(refusal(&unordered(), &[(5, tail(3, b"x")), (5, tail(3, b"y"))]), None, "a duplicate");
}

#[test]
fn ends_that_contradict_are_violations() {
    let mut rx = receiver(&ordered());
    rx.on_end(Seq(5)).expect("first");
    rx.on_end(Seq(5)).expect("the same");
    assert!(rx.on_end(Seq(6)).is_err());
    let mut rx = receiver(&options(FlowKind::Stream));
    rx.on_packet(NOW, Seq(7), Bytes::from_static(b"x")).expect("well formed");
    assert!(rx.on_end(Seq(7)).is_err());
    let mut rx = receiver(&ordered());
    rx.on_end(Seq(5)).expect("first");
    assert!(rx.on_packet(NOW, Seq(5), Bytes::from_static(b"\x10\x00")).is_err());
    let mut rx = receiver(&ordered());
    rx.on_end(Seq(5)).expect("first");
    assert!(rx.on_skip(Seq(6)).is_err());
}

#[test]
fn packets_far_beyond_the_window_are_refused_before_anything_is_allocated() {
    for kind in [FlowKind::Stream, FlowKind::OrderedMessages, FlowKind::UnorderedMessages] {
        let mut rx = receiver(&options(kind));
        let refused = rx.on_packet(NOW, Seq(1 << 40), Bytes::from_static(b"\x10\x00")).expect_err("far");
        assert_eq!(refused.code, Code::FlowControl);
        assert_eq!(rx.memory(), 0);
    }
}

#[test]
fn more_bytes_than_the_memory_are_refused() {
    for kind in [FlowKind::Stream, FlowKind::OrderedMessages, FlowKind::UnorderedMessages] {
        let limits = RecvLimits { memory: 100_000, max_message: 10_000 };
        let mut rx = RecvHalf::new(&options(kind), limits);
        let mut packets = 0;
        let refused = loop {
            packets += 1;
            let payload = packet(|o| put_whole(o, Some(0), &[0; 1000], false));
            if let Err(reason) = rx.on_packet(NOW, Seq(packets), payload) {
                break reason;
            }
        };
        assert_eq!(refused.code, Code::FlowControl);
        assert!(packets <= 112);
    }
}

#[test]
fn a_skip_to_the_end_of_numbers_costs_nothing() {
    for options in [ordered(), unordered()] {
        let mut rx = receiver(&options);
        rx.on_packet(NOW, Seq(3), packet(|o| put_whole(o, Some(0), b"x", false))).expect("well formed");
        rx.on_skip(Seq((1 << 62) - 1)).expect("nothing was violated");
        assert_eq!(recv_all(&mut rx).len(), 1);
        assert_eq!(rx.consumed(), (1 << 62) - 1);
        rx.on_packet(NOW, Seq((1 << 62) - 1), packet(|o| put_whole(o, Some(0), b"x", false))).expect("well formed");
        assert_eq!(recv_all(&mut rx).len(), 1);
    }
}

#[test]
fn messages_that_never_end_hold_no_more_than_the_window() {
    let mut rx = receiver(&unordered());
    let mut seq = 0;
    let refused = loop {
        // Each packet begins a message and is its only part.
        let payload = packet(|o| put_head(o, Some(seq), 1 << 20, &[0; 1300]));
        if let Err(reason) = rx.on_packet(NOW, Seq(seq), payload) {
            break reason;
        }
        seq += 1;
    };
    assert_eq!(refused.code, Code::FlowControl);
    assert!(seq as usize * 1300 <= (5 << 20) + 1300);
    assert_eq!(rx.memory(), 0, "closed");
}

/// Packets that are nearly right reach deeper than random bytes.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let data = proptest::collection::vec(any::<u8>(), 0..20);
    let front = (0u8..4, 1u64..6, data.clone());
    let back = proptest::option::of((0usize..60, data.clone()));
    (front, proptest::collection::vec(data, 0..3), back).prop_map(|((kind, distance, data), wholes, back)| {
        let mut out = Vec::new();
        match kind {
            1 => put_middle(&mut out, distance, &data),
            2 => put_tail(&mut out, distance, &data, true),
            3 => put_abort(&mut out, distance),
            _ => {}
        }
        for (i, whole) in wholes.iter().enumerate() {
            put_whole(&mut out, Some(i as u64), whole, true);
        }
        if let Some((total, data)) = back {
            put_head(&mut out, Some(9), total, &data);
        }
        out
    })
}

#[derive(Clone, Debug)]
enum Op {
    Packet(u64, Vec<u8>),
    Skip(u64),
    End(u64),
    Read,
    Retry,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let bytes = prop_oneof![4 => nearly_right(), 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    let op = prop_oneof![
        12 => (0u64..30, bytes).prop_map(|(seq, bytes)| Op::Packet(seq, bytes)),
        2 => (0u64..30).prop_map(Op::Skip),
        1 => (25u64..40).prop_map(Op::End),
        3 => Just(Op::Read),
        1 => Just(Op::Retry),
    ];
    proptest::collection::vec(op, 0..80)
}

#[test]
fn a_short_message_in_two_packets_takes_no_more_than_the_bound() {
    let mut rx = RecvHalf::new(&options(FlowKind::OrderedMessages), RecvLimits { memory: 200, max_message: 50 });
    let mut head = Vec::new();
    put_head(&mut head, Some(9), 9, &[0; 7]);
    let mut tail = Vec::new();
    put_tail(&mut tail, 1, &[0; 2], true);
    rx.on_packet(NOW, Seq(0), head.into()).unwrap();
    rx.on_packet(NOW, Seq(1), tail.into()).unwrap();
    assert!(rx.is_readable() && rx.memory() < 8 * 1024, "{}", rx.memory());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_packets_never_panic_and_never_take_more_than_the_bound(
        ops in ops(),
        kind in prop_oneof![Just(FlowKind::Stream), Just(FlowKind::OrderedMessages), Just(FlowKind::UnorderedMessages)],
        budget in 0usize..100,
    ) {
        let limits = RecvLimits { memory: 200, max_message: 50 };
        let budget = MessageBudget::new(budget);
        let mut rx = RecvHalf::with_budget(&options(kind), limits, budget.clone());
        let mut consumed = 0;
        for op in ops {
            // Errors close the half; whatever follows must be harmless.
            match op {
                Op::Packet(seq, bytes) => drop(rx.on_packet(NOW, Seq(seq), bytes.into())),
                Op::Skip(floor) => drop(rx.on_skip(Seq(floor))),
                Op::End(end) => drop(rx.on_end(Seq(end))),
                Op::Read => {
                    if let Some(m) = rx.recv_message() {
                        prop_assert!(m.data.len() <= 200);
                    }
                    drop(rx.read(7));
                }
                Op::Retry => rx.retry(),
            }
            prop_assert!(rx.consumed() >= consumed, "never falls");
            consumed = rx.consumed();
            let _ = (rx.is_finished(), rx.take_readable(), rx.has_all(), rx.is_starved());
            prop_assert!(rx.memory() < 64 * 1024);
        }
        while rx.recv_message().is_some() {}
        drop(rx);
        prop_assert_eq!(budget.used(), 0);
    }
}
