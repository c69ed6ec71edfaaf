use super::*;
use proptest::prelude::*;

fn send(half: &mut SendHalf, sizes: &[usize]) {
    for &size in sizes {
        half.send_message(NOW, content(size as u64, size), MessageOptions::default()).expect("room");
    }
}

#[test]
fn small_messages_share_a_packet_and_a_large_one_spans_many() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[100, 200, 5000, 0, 7]);
    let symbols = drain(&mut tx, NOW, SYMBOL);
    assert_eq!(symbols.len(), 4, "5307 bytes");
    let mut rx = receiver(&ordered());
    deliver(&mut rx, &symbols);
    let got = recv_all(&mut rx);
    assert_eq!(ids(&got), [0, 1, 2, 3, 4]);
    assert_eq!(got.iter().map(|m| m.data.len()).collect::<Vec<_>>(), [100, 200, 5000, 0, 7]);
    assert_eq!(rx.consumed(), 4);
    assert!(rx.memory() < 1024 + 64 * 1024, "nothing but tables and a slab");
}

#[test]
fn framing_of_a_large_message_costs_at_most_three_bytes_a_packet() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[1 << 20]);
    let symbols = drain(&mut tx, NOW, SYMBOL);
    let sent: usize = symbols.iter().map(|s| s.symbol.len() - 2).sum();
    assert!(sent - (1 << 20) <= 3 * symbols.len() + 8);
    assert!(symbols[..symbols.len() - 1].iter().all(|s| s.symbol.len() == SYMBOL && !s.last_of_message));
    assert!(symbols[symbols.len() - 1].last_of_message);
}

#[test]
fn a_message_in_one_packet_is_a_slice_of_it() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[1000]);
    let (seq, payload) = payload(&drain(&mut tx, NOW, SYMBOL)[0]);
    let range = payload.as_ptr_range();
    let mut rx = receiver(&ordered());
    rx.on_packet(NOW, seq, payload.clone()).expect("well formed");
    let message = rx.recv_message().expect("complete");
    assert!(range.contains(&message.data.as_ptr()), "no copy");
}

#[test]
fn latency_flows_do_not_cut_a_message_that_fits_into_one_packet() {
    let options = FlowOptions { class: Class::Latency, ..unordered() };
    let mut tx = sender(&options);
    send(&mut tx, &[800, 800, 800]);
    assert_eq!(drain(&mut tx, NOW, SYMBOL).len(), 3);
    let mut bulk = sender(&unordered());
    send(&mut bulk, &[800, 800, 800]);
    assert_eq!(drain(&mut bulk, NOW, SYMBOL).len(), 2);
}

#[test]
fn unordered_messages_overtake_a_missing_packet_and_ordered_ones_wait() {
    let sizes = [1390, 3000, 1390];
    for (options, early) in [(unordered(), vec![1, 2]), (ordered(), vec![])] {
        let options = FlowOptions { class: Class::Latency, ..options };
        let mut tx = sender(&options);
        send(&mut tx, &sizes);
        let symbols = drain(&mut tx, NOW, SYMBOL);
        let mut rx = receiver(&options);
        deliver(&mut rx, &symbols[1..]);
        assert_eq!(ids(&recv_all(&mut rx)), early);
        assert_eq!(rx.consumed(), 0, "packet 0 is still awaited");
        deliver(&mut rx, &symbols[..1]);
        let late = recv_all(&mut rx);
        assert_eq!(early.len() + late.len(), 3);
        assert_eq!(rx.consumed(), symbols.len() as u64);
    }
}

#[test]
fn an_unordered_message_is_handed_over_when_its_own_packets_are_here_in_any_order() {
    let mut tx = sender(&unordered());
    send(&mut tx, &[4000, 4000]);
    let mut symbols = drain(&mut tx, NOW, SYMBOL);
    symbols.reverse();
    let mut rx = receiver(&unordered());
    deliver(&mut rx, &symbols[..3]);
    assert_eq!(recv_all(&mut rx), []);
    deliver(&mut rx, &symbols[3..4]);
    let got = recv_all(&mut rx);
    assert_eq!(ids(&got), [1]);
    assert_eq!(got[0].data, content(4000, 4000));
    deliver(&mut rx, &symbols[4..]);
    assert_eq!(ids(&recv_all(&mut rx)), [0]);
}

#[test]
fn higher_priority_goes_first_but_never_into_a_message_that_was_begun() {
    let mut tx = sender(&ordered());
    let with = |priority| MessageOptions { priority, ..MessageOptions::default() };
    tx.send_message(NOW, content(0, 3000), with(0)).expect("room");
    tx.send_message(NOW, content(1, 10), with(0)).expect("room");
    let mut symbols = vec![tx.poll_symbol(NOW, SYMBOL).expect("data")];
    tx.send_message(NOW, content(2, 10), with(1)).expect("room");
    tx.send_message(NOW, content(3, 10), with(9)).expect("room");
    symbols.extend(drain(&mut tx, NOW, SYMBOL));
    let mut rx = receiver(&ordered());
    deliver(&mut rx, &symbols);
    let got = recv_all(&mut rx);
    assert_eq!(ids(&got), [0, 3, 2, 1]);
    assert_eq!(got[0].data, content(0, 3000));
}

#[test]
fn a_message_beyond_the_peers_limit_is_refused_with_both_numbers() {
    let mut tx = sender(&ordered());
    tx.set_max_message(5000);
    let refused = tx.send_message(NOW, content(0, 5001), MessageOptions::default());
    assert_eq!(refused, Err(CommandError::MessageTooLarge { size: 5001, limit: 5000 }));
    assert_eq!(tx.send_message(NOW, content(0, 5000), MessageOptions::default()), Ok(0));
}

#[test]
fn a_full_buffer_blocks_and_tells_once_when_there_is_room() {
    let mut tx = SendHalf::new(&ordered(), SendLimits { buffer: 10_000, max_message: 1 << 20 });
    let mut taken = 0;
    while tx.send_message(NOW, content(0, 1000), MessageOptions::default()).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 9, "1064 bytes each");
    assert!(!tx.take_writable());
    tx.poll_symbol(NOW, SYMBOL).expect("data");
    assert!(!tx.take_writable(), "a quarter of the buffer is not free yet");
    tx.poll_symbol(NOW, SYMBOL).expect("data");
    assert!(tx.take_writable());
    assert!(!tx.take_writable(), "an edge");
}

#[test]
fn a_flow_that_wants_little_buffer_never_gets_more_whatever_memory_allows() {
    let wish = FlowOptions { send_buffer: Some(5000), ..ordered() };
    let mut tx = SendHalf::new(&wish, SendLimits { buffer: 1 << 20, max_message: 1 << 20 });
    let fill =
        |tx: &mut SendHalf| (0..100).take_while(|_| tx.send_message(NOW, content(0, 1000), MessageOptions::default()).is_ok()).count();
    assert_eq!(fill(&mut tx), 4, "1064 bytes each");
    tx.set_buffer(1 << 20);
    assert_eq!(fill(&mut tx), 0);
    tx.set_buffer(3000);
    drain(&mut tx, NOW, SYMBOL);
    assert_eq!(fill(&mut tx), 2, "memory may allow less");
}

#[test]
fn one_whole_message_is_taken_whatever_the_buffer() {
    let mut tx = SendHalf::new(&ordered(), SendLimits { buffer: 100, max_message: 1 << 20 });
    assert_eq!(tx.send_message(NOW, content(0, 100_000), MessageOptions::default()), Ok(0));
    assert_eq!(tx.send_message(NOW, Bytes::new(), MessageOptions::default()), Err(CommandError::Blocked));
    let symbols = drain(&mut tx, NOW, SYMBOL);
    assert!(tx.take_writable());
    let mut rx = receiver(&ordered());
    deliver(&mut rx, &symbols);
    assert_eq!(rx.recv_message().expect("complete").data, content(0, 100_000));
}

#[test]
fn empty_messages_fill_the_buffer_too() {
    let mut tx = SendHalf::new(&ordered(), SendLimits { buffer: 6400, max_message: 100 });
    let taken = (0..1000).take_while(|_| tx.send_message(NOW, Bytes::new(), MessageOptions::default()).is_ok()).count();
    assert_eq!(taken, 100);
}

#[test]
fn cancelling_withdraws_what_is_queued_or_begun_and_nothing_else() {
    for options in [ordered(), unordered()] {
        let mut tx = sender(&options);
        send(&mut tx, &[100, 5000, 100, 100]);
        let mut symbols = vec![tx.poll_symbol(NOW, SYMBOL).expect("data"), tx.poll_symbol(NOW, SYMBOL).expect("data")];
        assert!(!tx.cancel(0), "already packetised");
        assert!(tx.cancel(1), "begun");
        assert!(tx.cancel(2), "queued");
        assert!(!tx.cancel(2) && !tx.cancel(99));
        assert_eq!(tx.poll_abandoned(), Some(Seq(1)..Seq(2)), "packet 0 also carries message 0");
        assert_eq!(tx.poll_abandoned(), None);
        symbols.extend(drain(&mut tx, NOW, SYMBOL));
        let mut rx = receiver(&options);
        shuffle(&mut symbols, 3);
        deliver(&mut rx, &symbols);
        let mut got = ids(&recv_all(&mut rx));
        got.sort_unstable();
        assert_eq!(got, [0, 3]);
        assert_eq!(rx.consumed(), 3);
        let mut stats = FlowStats::default();
        rx.add_stats(&mut stats);
        assert_eq!((stats.messages, stats.expired_messages), (2, 1));
    }
}

#[test]
fn cancelling_the_last_message_still_tells_the_receiver() {
    let mut tx = sender(&unordered());
    send(&mut tx, &[5000]);
    let mut symbols = vec![tx.poll_symbol(NOW, SYMBOL).expect("data")];
    assert!(tx.cancel(0));
    assert!(tx.has_data(NOW));
    tx.finish();
    assert!(!tx.is_drained());
    symbols.extend(drain(&mut tx, NOW, SYMBOL));
    assert!(tx.is_drained());
    let mut rx = receiver(&unordered());
    deliver(&mut rx, &symbols);
    rx.on_end(Seq(tx.packets())).expect("consistent");
    assert!(rx.is_finished());
}

#[test]
fn readable_is_told_once_until_a_read_finds_nothing() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[10]);
    let first = drain(&mut tx, NOW, SYMBOL);
    send(&mut tx, &[10]);
    let second = drain(&mut tx, NOW, SYMBOL);
    let mut rx = receiver(&ordered());
    assert!(!rx.take_readable());
    deliver(&mut rx, &first);
    assert!(rx.take_readable());
    deliver(&mut rx, &second);
    assert!(!rx.take_readable(), "nothing was read since");
    assert_eq!(recv_all(&mut rx).len(), 2);
    assert!(!rx.take_readable(), "nothing to read");
    send(&mut tx, &[10]);
    deliver(&mut rx, &drain(&mut tx, NOW, SYMBOL));
    assert!(rx.take_readable());
}

#[test]
fn a_finished_flow_ends_when_everything_was_read() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[2000]);
    tx.finish();
    assert!(matches!(tx.send_message(NOW, Bytes::new(), MessageOptions::default()), Err(CommandError::Closed(_))));
    let symbols = drain(&mut tx, NOW, SYMBOL);
    assert!(tx.is_drained());
    let mut rx = receiver(&ordered());
    rx.on_end(Seq(2)).expect("consistent");
    deliver(&mut rx, &symbols[1..]);
    assert!(!rx.has_all());
    deliver(&mut rx, &symbols);
    assert!(rx.has_all() && !rx.is_finished(), "unread");
    assert_eq!(recv_all(&mut rx).len(), 1);
    assert!(rx.is_finished());
}

#[test]
fn calls_that_do_not_fit_the_flow_are_misuse() {
    assert!(matches!(sender(&ordered()).write(b"x"), Err(CommandError::Misuse(_))));
    let mut stream = sender(&options(FlowKind::Stream));
    assert!(matches!(stream.send_message(NOW, Bytes::new(), MessageOptions::default()), Err(CommandError::Misuse(_))));
    assert!(check_options(&FlowOptions { mode: Mode::Btp, ..options(FlowKind::Stream) }).is_err());
    assert!(check_options(&FlowOptions { batch_size: 12, ..ordered() }).is_err());
    assert!(check_options(&ordered()).is_ok());
}

#[test]
fn reset_and_stop_drop_everything() {
    let mut tx = sender(&ordered());
    send(&mut tx, &[5000]);
    let symbol = tx.poll_symbol(NOW, SYMBOL).expect("data");
    tx.reset(7);
    assert!(tx.is_drained() && !tx.has_data(NOW) && tx.reset_code() == Some(7));
    let mut rx = receiver(&ordered());
    deliver(&mut rx, core::slice::from_ref(&symbol));
    rx.stop(3);
    assert_eq!(rx.closed(), Some((3, false)));
    rx.on_packet(NOW, Seq(9), Bytes::from_static(b"anything at all")).expect("discarded");
    assert_eq!((rx.consumed(), rx.memory()), (10, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn any_messages_survive_any_order_repetition_and_packet_size(
        sizes in proptest::collection::vec(prop_oneof![0usize..50, 0usize..2000, 0usize..20_000], 0..40),
        symbols in proptest::collection::vec(64usize..2000, 1..5),
        priorities in proptest::collection::vec(0u8..3, 1..4),
        seed: u64,
        is_ordered: bool,
        is_latency: bool,
    ) {
        let class = if is_latency { Class::Latency } else { Class::Bulk };
        let options = FlowOptions { class, ..if is_ordered { ordered() } else { unordered() } };
        let mut tx = sender(&options);
        let mut sent = Vec::new();
        let mut rng = rng(seed);
        let mut packets = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let options = MessageOptions { priority: priorities[i % priorities.len()], ..MessageOptions::default() };
            let data = content(i as u64, size);
            prop_assert_eq!(tx.send_message(NOW, data.clone(), options), Ok(i as u64));
            sent.push(data);
            for _ in 0..rng.next_u64() % 4 {
                packets.extend(tx.poll_symbol(NOW, symbols[packets.len() % symbols.len()]));
            }
        }
        while let Some(symbol) = tx.poll_symbol(NOW, symbols[packets.len() % symbols.len()]) {
            packets.push(symbol);
        }
        let in_order: Vec<Seq> = packets.iter().map(|p| p.seq).collect();
        prop_assert_eq!(in_order, (0..packets.len() as u64).map(Seq).collect::<Vec<_>>());
        let count = packets.len() as u64;
        let mut arrivals = packets.clone();
        arrivals.extend(packets.iter().step_by(3).cloned());
        shuffle(&mut arrivals, seed);
        let mut rx = receiver(&options);
        let mut got = Vec::new();
        for symbol in &arrivals {
            let (seq, payload) = payload(symbol);
            rx.on_packet(NOW, seq, payload).expect("well formed");
            if rng.next_u64().is_multiple_of(2) {
                got.extend(recv_all(&mut rx));
            }
        }
        got.extend(recv_all(&mut rx));
        rx.on_end(Seq(count)).expect("consistent");
        prop_assert!(rx.is_finished() && rx.has_all());
        prop_assert_eq!(rx.consumed(), count);
        if is_ordered && priorities.len() == 1 {
            prop_assert_eq!(ids(&got), (0..sizes.len() as u64).collect::<Vec<_>>());
        }
        got.sort_by_key(|m| m.id);
        prop_assert_eq!(got.len(), sent.len());
        for (message, data) in got.iter().zip(&sent) {
            prop_assert_eq!(&message.data, data);
        }
    }
}
