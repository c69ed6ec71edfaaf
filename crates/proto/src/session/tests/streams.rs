use super::*;
use proptest::prelude::*;

fn stream() -> FlowOptions {
    options(FlowKind::Stream)
}

#[test]
fn a_stream_pays_nothing_for_framing() {
    let mut tx = sender(&stream());
    assert_eq!(tx.write(&content(0, 100_000)), Ok(100_000));
    let symbols = drain(&mut tx, NOW, SYMBOL);
    let sent: usize = symbols.iter().map(|s| s.symbol.len() - 2).sum();
    assert_eq!(sent, 100_000);
    assert_eq!(symbols.len(), 100_000usize.div_ceil(SYMBOL - 2));
    assert!(symbols.last().is_some_and(|s| s.last_of_message));
}

#[test]
fn a_write_takes_what_fits_and_blocks_when_nothing_does() {
    let mut tx = SendHalf::new(&stream(), SendLimits { buffer: 4000, max_message: 0 });
    assert_eq!(tx.write(&[1; 3000]), Ok(3000));
    assert_eq!(tx.write(&[2; 3000]), Ok(1000));
    assert_eq!(tx.write(&[3; 1]), Err(CommandError::Blocked));
    assert_eq!(tx.write(&[]), Ok(0));
    tx.poll_symbol(NOW, SYMBOL).expect("data");
    assert!(tx.take_writable());
    assert_eq!(tx.write(&[4; 5000]), Ok(SYMBOL - 2));
}

#[test]
fn packets_are_consumed_when_their_last_byte_is_read() {
    let mut tx = sender(&stream());
    tx.write(&content(0, 3000)).expect("room");
    let symbols = drain(&mut tx, NOW, SYMBOL);
    let mut rx = receiver(&stream());
    deliver(&mut rx, &symbols);
    assert_eq!(rx.consumed(), 0);
    assert_eq!(rx.read(SYMBOL - 3).map(|b| b.len()), Some(SYMBOL - 3));
    assert_eq!(rx.consumed(), 0);
    assert_eq!(rx.read(100).map(|b| b.len()), Some(1));
    assert_eq!(rx.consumed(), 1);
    assert_eq!(rx.read(0), None);
}

#[test]
fn an_empty_chunk_is_the_end() {
    let mut rx = receiver(&stream());
    assert_eq!(rx.read(10), None, "nothing yet");
    rx.on_end(Seq(0)).expect("an empty stream");
    assert!(rx.is_finished() && rx.has_all());
    assert_eq!(rx.read(10), Some(Bytes::new()));
}

#[test]
fn nothing_of_a_stream_may_be_left_out() {
    let mut rx = receiver(&stream());
    rx.on_packet(NOW, Seq(0), Bytes::from_static(b"a")).expect("well formed");
    rx.on_packet(NOW, Seq(2), Bytes::from_static(b"c")).expect("well formed");
    rx.on_skip(Seq(1)).expect("everything before it is here");
    let refused = rx.on_skip(Seq(2)).expect_err("packet 1 is missing");
    assert_eq!(refused.code, Code::SessionProtocol);
    assert!(rx.closed().is_some());
}

proptest! {
    #[test]
    fn odd_writes_and_odd_reads_give_the_same_bytes(
        writes in proptest::collection::vec(0usize..5000, 0..40),
        reads in proptest::collection::vec(1usize..3000, 1..10),
        symbol in 64usize..2000,
        seed: u64,
    ) {
        let mut tx = sender(&stream());
        let mut sent = Vec::new();
        let mut packets = Vec::new();
        let mut rng = rng(seed);
        for (i, &size) in writes.iter().enumerate() {
            let data = content(i as u64, size);
            prop_assert_eq!(tx.write(&data), Ok(size));
            sent.extend_from_slice(&data);
            for _ in 0..rng.next_u64() % 5 {
                packets.extend(tx.poll_symbol(NOW, symbol));
            }
        }
        tx.finish();
        packets.extend(drain(&mut tx, NOW, symbol));
        prop_assert!(tx.is_drained());
        let mut arrivals = packets.clone();
        arrivals.extend(packets.iter().step_by(2).cloned());
        shuffle(&mut arrivals, seed);
        let mut rx = receiver(&stream());
        let mut got = Vec::new();
        for (i, symbol) in arrivals.iter().enumerate() {
            deliver(&mut rx, core::slice::from_ref(symbol));
            if let Some(chunk) = rx.read(reads[i % reads.len()]) {
                got.extend_from_slice(&chunk);
            }
        }
        rx.on_end(Seq(tx.packets())).expect("consistent");
        got.extend(read_all(&mut rx));
        prop_assert!(got == sent);
        prop_assert!(rx.is_finished() && rx.has_all());
        prop_assert_eq!(rx.consumed(), tx.packets());
    }
}
