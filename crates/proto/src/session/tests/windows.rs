//! Memory: what holds the window, what goes beyond it, and the budget that all flows share (P15, P18).

use super::*;

/// A flow in miniature: `window` packets beyond what was consumed are in flight at most.
fn transfer(tx: &mut SendHalf, rx: &mut RecvHalf, window: u64, reads: bool) -> Vec<Message> {
    let mut got = Vec::new();
    loop {
        let before = (tx.packets(), got.len());
        while tx.packets() < rx.consumed() + window
            && let Some(symbol) = tx.poll_symbol(NOW, SYMBOL)
        {
            deliver(rx, core::slice::from_ref(&symbol));
        }
        if reads {
            got.extend(recv_all(rx));
        }
        if (tx.packets(), got.len()) == before {
            return got;
        }
    }
}

#[test]
fn a_message_larger_than_the_window_gets_through() {
    for options in [ordered(), unordered()] {
        let mut tx = sender(&options);
        let mut rx = receiver(&options);
        tx.send_message(NOW, content(0, 100), MessageOptions::default()).expect("room");
        tx.send_message(NOW, content(1, 500_000), MessageOptions::default()).expect("room");
        tx.send_message(NOW, content(2, 500_000), MessageOptions::default()).expect("room");
        let got = transfer(&mut tx, &mut rx, 16, true);
        assert_eq!(ids(&got), [0, 1, 2]);
        assert_eq!(got[2].data, content(2, 500_000));
    }
}

#[test]
fn unread_messages_hold_the_window() {
    for options in [ordered(), unordered()] {
        let mut tx = sender(&options);
        let mut rx = receiver(&options);
        while tx.send_message(NOW, content(0, 10_000), MessageOptions::default()).is_ok() {}
        transfer(&mut tx, &mut rx, 16, false);
        assert!(rx.consumed() <= 8, "the first message only, which was incomplete when it was consumed");
        assert!(rx.memory() < 16 * SYMBOL + 10_000 + 16_384, "{}", rx.memory());
        assert!(tx.has_data(NOW), "the sender waits");
        rx.recv_message().expect("complete");
        assert!(rx.consumed() > 0);
    }
}

#[test]
fn incomplete_messages_share_a_budget_and_go_on_when_it_has_room() {
    for options in [ordered(), unordered()] {
        let budget = MessageBudget::new(60_000);
        let limits = RecvLimits { memory: 1 << 20, max_message: 1 << 20 };
        let mut flows: Vec<_> = (0..2)
            .map(|_| {
                let mut tx = sender(&options);
                tx.send_message(NOW, content(5, 50_000), MessageOptions::default()).expect("room");
                (tx, RecvHalf::with_budget(&options, limits, budget.clone()))
            })
            .collect();
        let [a, b] = &mut flows[..] else { panic!("two flows") };
        deliver(&mut a.1, &[a.0.poll_symbol(NOW, SYMBOL).expect("data")]);
        assert_eq!((a.1.consumed(), budget.used()), (1, 50_000));
        transfer(&mut b.0, &mut b.1, 16, false);
        assert_eq!(b.1.consumed(), 0);
        assert!(b.1.is_starved() && b.0.has_data(NOW));
        assert_eq!(transfer(&mut a.0, &mut a.1, 16, true).len(), 1);
        assert_eq!(budget.used(), 0);
        b.1.retry();
        assert_eq!((b.1.consumed(), b.1.is_starved()), (16, false));
        assert_eq!(transfer(&mut b.0, &mut b.1, 16, true).len(), 1);
    }
}

#[test]
fn a_closed_half_gives_its_reservation_back() {
    let budget = MessageBudget::new(1 << 20);
    let mut tx = sender(&unordered());
    tx.send_message(NOW, content(0, 50_000), MessageOptions::default()).expect("room");
    let mut rx = RecvHalf::with_budget(&unordered(), RecvLimits { memory: 1 << 20, max_message: 1 << 20 }, budget.clone());
    deliver(&mut rx, &[tx.poll_symbol(NOW, SYMBOL).expect("data")]);
    assert_eq!(budget.used(), 50_000);
    rx.reset(1);
    assert_eq!(budget.used(), 0);
}

#[test]
fn tiny_messages_cost_their_packets_and_not_more() {
    for options in [ordered(), unordered()] {
        let mut tx = SendHalf::new(&options, SendLimits { buffer: 64 << 20, max_message: 100 });
        for _ in 0..100_000 {
            tx.send_message(NOW, Bytes::new(), MessageOptions::default()).expect("room");
        }
        let symbols = drain(&mut tx, NOW, SYMBOL);
        let bytes: usize = symbols.iter().map(|s| s.symbol.len()).sum();
        let mut rx = receiver(&options);
        deliver(&mut rx, &symbols);
        assert!(rx.memory() < 2 * bytes, "{} for {bytes}", rx.memory());
        assert_eq!(recv_all(&mut rx).len(), 100_000);
        assert_eq!(rx.consumed(), symbols.len() as u64);
    }
}

#[test]
fn symbols_are_cut_from_slabs() {
    let mut tx = sender(&options(FlowKind::Stream));
    tx.write(&[0; 100_000]).expect("room");
    let symbols = drain(&mut tx, NOW, SYMBOL);
    let payloads: Vec<Bytes> = symbols.iter().map(|s| s.symbol.payload()).collect();
    let adjacent = payloads.windows(2).filter(|w| w[0].as_ptr_range().end == w[1].as_ptr()).count();
    assert!(
        symbols.len() - adjacent <= 13,
        "slabs of 1, 2, 4, 8, 16, 32, 64 KiB and what crosses from one to the next: {adjacent} of {} are adjacent",
        symbols.len()
    );
}
