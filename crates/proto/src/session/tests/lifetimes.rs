use super::*;
use proptest::prelude::*;

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

fn btp(kind: FlowKind, lifetime: Option<u64>) -> FlowOptions {
    FlowOptions { mode: Mode::Btp, lifetime: lifetime.map(Duration::from_millis), ..options(kind) }
}

fn living(lifetime: u64) -> MessageOptions {
    MessageOptions { lifetime: Some(Duration::from_millis(lifetime)), ..MessageOptions::default() }
}

#[test]
fn a_btp_message_needs_a_lifetime() {
    let mut tx = sender(&btp(FlowKind::UnorderedMessages, None));
    assert!(matches!(tx.send_message(NOW, Bytes::new(), MessageOptions::default()), Err(CommandError::Misuse(_))));
    assert_eq!(tx.send_message(NOW, Bytes::new(), living(5)), Ok(0));
    let mut tx = sender(&btp(FlowKind::UnorderedMessages, Some(5)));
    assert_eq!(tx.send_message(NOW, Bytes::new(), MessageOptions::default()), Ok(0));
}

#[test]
fn what_expires_in_the_queue_is_never_sent_and_counted() {
    let mut tx = sender(&btp(FlowKind::UnorderedMessages, Some(50)));
    tx.send_message(ms(0), content(0, 100), living(10)).expect("room");
    tx.send_message(ms(0), content(1, 100), MessageOptions::default()).expect("room");
    assert_eq!(tx.poll_timeout(), Some(ms(10)));
    tx.handle_timeout(ms(10));
    assert_eq!(tx.poll_timeout(), Some(ms(50)));
    let symbols = drain(&mut tx, ms(20), SYMBOL);
    assert_eq!(symbols.len(), 1);
    assert_eq!(symbols[0].deadline, Some(ms(50)));
    assert_eq!(tx.poll_timeout(), None);
    let mut rx = receiver(&btp(FlowKind::UnorderedMessages, None));
    deliver(&mut rx, &symbols);
    assert_eq!(ids(&recv_all(&mut rx)), [1]);
    let mut stats = FlowStats::default();
    tx.add_stats(&mut stats);
    assert_eq!((stats.messages, stats.expired_messages), (2, 1));
}

#[test]
fn a_packet_lives_as_long_as_the_longest_lived_message_in_it() {
    let mut tx = sender(&ordered());
    tx.send_message(NOW, content(0, 10), living(10)).expect("room");
    tx.send_message(NOW, content(1, 10), living(30)).expect("room");
    tx.send_message(NOW, content(2, 10), living(20)).expect("room");
    assert_eq!(tx.poll_symbol(NOW, SYMBOL).expect("data").deadline, Some(ms(30)));
    tx.send_message(NOW, content(3, 10), living(10)).expect("room");
    tx.send_message(NOW, content(4, 10), MessageOptions::default()).expect("room");
    assert_eq!(tx.poll_symbol(NOW, SYMBOL).expect("data").deadline, None);
}

#[test]
fn a_message_that_expires_half_sent_is_given_up_and_its_packets_named() {
    for kind in [FlowKind::OrderedMessages, FlowKind::UnorderedMessages] {
        let mut tx = sender(&btp(kind, None));
        tx.send_message(NOW, content(0, 10_000), living(10)).expect("room");
        tx.send_message(NOW, content(1, 100), living(100)).expect("room");
        let mut symbols: Vec<_> = (0..3).filter_map(|_| tx.poll_symbol(NOW, SYMBOL)).collect();
        assert_eq!(tx.poll_timeout(), Some(ms(10)));
        symbols.extend(drain(&mut tx, ms(10), SYMBOL));
        assert_eq!(symbols.len(), 4);
        assert_eq!(tx.poll_abandoned(), Some(Seq(0)..Seq(3)));
        // The flow skips what was abandoned; packet 1 had arrived before.
        let mut rx = receiver(&btp(kind, None));
        deliver(&mut rx, &symbols[1..2]);
        rx.on_skip(Seq(3)).expect("messages may be left out");
        deliver(&mut rx, &symbols[3..]);
        assert_eq!(ids(&recv_all(&mut rx)), [1]);
        assert_eq!(rx.consumed(), 4);
        assert_eq!(rx.memory() / 4096, 0);
    }
}

#[test]
fn skipping_past_the_start_of_a_message_drops_all_of_it_and_nothing_else() {
    for kind in [FlowKind::OrderedMessages, FlowKind::UnorderedMessages] {
        let mut tx = sender(&options(kind));
        for id in 0..4 {
            tx.send_message(NOW, content(id, 3000), MessageOptions::default()).expect("room");
        }
        let symbols = drain(&mut tx, NOW, SYMBOL);
        assert_eq!(symbols.len(), 9, "12,000 bytes: message 0 in packets 0-2, 1 in 2-4, 2 in 4-6, 3 in 6-8");
        for lost in 0..symbols.len() {
            let mut rx = receiver(&options(kind));
            let arrive: Vec<_> = symbols.iter().filter(|s| s.seq.0 != lost as u64).cloned().collect();
            deliver(&mut rx, &arrive);
            rx.on_skip(Seq(lost as u64 + 1)).expect("messages may be left out");
            let got = ids(&recv_all(&mut rx));
            let killed: Vec<u64> = (0..4).filter(|m| !got.contains(m)).collect();
            let shared = lost % 2 == 0 && (2..=6).contains(&lost);
            assert_eq!(killed.len(), if shared { 2 } else { 1 }, "packet {lost}: {killed:?}");
            assert_eq!(rx.consumed(), 9);
            rx.on_end(Seq(9)).expect("consistent");
            assert!(rx.is_finished() && !rx.has_all());
        }
    }
}

#[test]
fn packets_behind_a_skip_that_continue_what_was_skipped_are_orphans() {
    for kind in [FlowKind::OrderedMessages, FlowKind::UnorderedMessages] {
        let mut tx = sender(&options(kind));
        tx.send_message(NOW, content(0, 6000), MessageOptions::default()).expect("room");
        tx.send_message(NOW, content(1, 10), MessageOptions::default()).expect("room");
        let symbols = drain(&mut tx, NOW, SYMBOL);
        let mut rx = receiver(&options(kind));
        rx.on_skip(Seq(1)).expect("messages may be left out");
        deliver(&mut rx, &symbols);
        assert_eq!(ids(&recv_all(&mut rx)), [1]);
        assert_eq!(rx.consumed(), symbols.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn lost_packets_cost_their_own_messages_only(
        sizes in proptest::collection::vec(prop_oneof![0usize..200, 0usize..6000], 1..30),
        lost in proptest::collection::vec(0u64..100, 0..10),
        symbol in 64usize..1500,
        seed: u64,
        is_ordered: bool,
        lifetime in 1u64..40,
    ) {
        let kind = if is_ordered { FlowKind::OrderedMessages } else { FlowKind::UnorderedMessages };
        let mut tx = sender(&btp(kind, Some(lifetime)));
        let mut packets: Vec<OutSymbol> = Vec::new();
        let mut now = NOW;
        let mut rng = rng(seed);
        for (i, &size) in sizes.iter().enumerate() {
            tx.send_message(now, content(i as u64, size), MessageOptions::default()).expect("room");
            for _ in 0..rng.next_u64() % 3 {
                packets.extend(tx.poll_symbol(now, symbol));
            }
            if rng.next_u64().is_multiple_of(4) {
                now += Duration::from_millis(rng.next_u64() % 10);
            }
        }
        packets.extend(drain(&mut tx, now, symbol));
        while let Some(range) = tx.poll_abandoned() {
            prop_assert!(range.start < range.end && range.end.0 <= tx.packets());
        }
        let mut stats = FlowStats::default();
        tx.add_stats(&mut stats);
        let mut rx = receiver(&btp(kind, None));
        let mut got = Vec::new();
        let mut arrivals: Vec<_> = packets.iter().filter(|p| !lost.contains(&p.seq.0)).cloned().collect();
        // Reordering within a few packets, and a floor that follows behind.
        for window in arrivals.chunks_mut(5) {
            shuffle(window, seed);
        }
        for symbol in &arrivals {
            deliver(&mut rx, core::slice::from_ref(symbol));
            rx.on_skip(Seq(symbol.seq.0.saturating_sub(10))).expect("messages may be left out");
            got.extend(recv_all(&mut rx));
        }
        rx.on_skip(Seq(tx.packets())).expect("messages may be left out");
        rx.on_end(Seq(tx.packets())).expect("consistent");
        got.extend(recv_all(&mut rx));
        prop_assert!(rx.is_finished());
        let mut seen = std::collections::BTreeSet::new();
        for message in &got {
            prop_assert!(seen.insert(message.id), "once");
            prop_assert_eq!(&message.data, &content(message.id, sizes[message.id as usize]));
        }
        let is_lossless = lost.iter().all(|&l| l >= tx.packets());
        if is_lossless {
            prop_assert_eq!(got.len() as u64, sizes.len() as u64 - stats.expired_messages);
        }
    }
}
