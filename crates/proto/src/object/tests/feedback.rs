//! The sender that is told how far its receivers are.

use super::*;

const SETTLE: Duration = Duration::from_millis(30);

/// Packets of one sender to receivers behind channels of their own; 1 ms between packets, 10 ms one way, a status every 20 ms. Packets sent, or `None`
/// if it took longer than `limit` packets' time.
fn run(object: &Object, receivers: &mut [Receiver], loss: impl Fn(usize, u64) -> f64, limit: u64) -> Option<(SenderStats, u64)> {
    run_joined(object, receivers, loss, |_| 0, limit)
}

/// The same; receiver i is heard for the first time after so many ms, and misses everything before.
fn run_joined(
    object: &Object,
    receivers: &mut [Receiver],
    loss: impl Fn(usize, u64) -> f64,
    joins: impl Fn(usize) -> u64,
    limit: u64,
) -> Option<(SenderStats, u64)> {
    let last = (0..receivers.len()).map(&joins).max().unwrap();
    let config = SenderConfig { window: 4, settle: SETTLE };
    let mut sender = Sender::new(object.layout, object.tree.clone(), config);
    let mut got: Vec<Got> = receivers.iter().map(|_| Got::default()).collect();
    let (mut chance, mut flying, mut sent) = (Chance::new(1), std::collections::VecDeque::new(), 0);
    for ms in 0..limit {
        let now = at(ms);
        if ms % 20 == 0 {
            for (i, receiver) in receivers.iter().enumerate().filter(|(i, _)| joins(*i) <= ms) {
                sender.on_status(now, ReceiverId(i as u32), receiver.status());
            }
        }
        if sender.is_complete() && ms >= last {
            for got in got {
                assert!(got.data() == object.data);
            }
            return Some((sender.stats(), sent));
        }
        while let Some(block) = sender.wanted_block() {
            sender.load(block, object.block(block)).unwrap();
            if sender.wanted_block() == Some(block) {
                break;
            }
        }
        let mut packet = Vec::new();
        if sender.poll_packet(now, &mut packet).is_some() {
            sent += 1;
            flying.push_back((ms + 10, packet));
        }
        while flying.front().is_some_and(|(due, _)| *due <= ms) {
            let Some((_, packet)) = flying.pop_front() else { break };
            for (i, receiver) in receivers.iter_mut().enumerate() {
                if joins(i) <= ms && !chance.hits(loss(i, ms)) {
                    receiver.on_packet(&packet);
                    got[i].take(receiver);
                }
            }
        }
    }
    None
}

#[test]
fn a_receiver_that_is_heard_late_gets_what_everybody_else_has_already() {
    for joins in [25, 300, 2_000] {
        let object = Object::of(60_050);
        let mut receivers = [object.receiver_with_leaves(60_000), object.receiver_with_leaves(60_000)];
        let (_, sent) = run_joined(&object, &mut receivers, |_, _| 0.05, |i| joins * i as u64, 20_000).unwrap();
        // Once for each, and what is lost.
        assert!(sent < 2 * object.layout.packets() * 5 / 4, "{joins}: {sent}");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    let object = Object::of(60_050);
    let mut receivers = [object.receiver_with_leaves(60_000)];
    let (stats, sent) = run(&object, &mut receivers, |_, _| 0.0, 5_000).unwrap();
    assert_eq!((sent, stats.repair_packets, stats.reloads), (object.layout.packets(), 0, 0));
}

#[test]
fn what_is_lost_is_made_up_for_by_about_as_many_fresh_packets() {
    let object = Object::of(200_000);
    let mut receivers = [object.receiver_with_leaves(60_000)];
    let (_, sent) = run(&object, &mut receivers, |_, _| 0.2, 50_000).unwrap();
    let ideal = object.layout.packets() as f64 / 0.8;
    assert!((sent as f64) < ideal * 1.15, "{sent} packets, {ideal:.0} are needed");
}

#[test]
fn a_receiver_that_hears_nothing_for_long_is_completed_later_and_holds_no_other_up() {
    let object = Object::of(300_000);
    let packets = object.layout.packets();
    let mut receivers = [object.receiver_with_leaves(60_000), object.receiver_with_leaves(60_000)];
    // The second one hears nothing during most of the first pass.
    let loss = |i: usize, ms: u64| if i == 1 && ms < packets * 2 / 3 { 1.0 } else { 0.0 };
    let (_, sent) = run(&object, &mut receivers, loss, 20_000).unwrap();
    assert!(sent < packets * 2, "{sent} of {packets}");
}

#[test]
fn a_lag_does_not_delay_the_one_in_front() {
    let object = Object::of(300_000);
    let packets = object.layout.packets();
    let mut receivers = [object.receiver_with_leaves(60_000), object.receiver_with_leaves(60_000)];
    let done_at = std::cell::Cell::new(0);
    let front = |receivers: &mut [Receiver; 2]| {
        // Never: only the first one's time is of interest.
        let config = SenderConfig { window: 4, settle: SETTLE };
        let mut sender = Sender::new(object.layout, object.tree.clone(), config);
        for ms in 0..packets * 3 {
            for (i, receiver) in receivers.iter().enumerate() {
                sender.on_status(at(ms), ReceiverId(i as u32), receiver.status());
            }
            while let Some(block) = sender.wanted_block() {
                sender.load(block, object.block(block)).unwrap();
            }
            let mut packet = Vec::new();
            if sender.poll_packet(at(ms), &mut packet).is_some() {
                receivers[0].on_packet(&packet);
                while receivers[0].poll_block().is_some() {}
            }
            if receivers[0].is_complete() {
                done_at.set(ms);
                return;
            }
        }
    };
    front(&mut receivers);
    assert!((1..=packets).contains(&done_at.get()), "{} ms for {packets} packets", done_at.get());
}

#[test]
fn blocks_that_are_there_already_are_not_sent() {
    let object = Object::of(60_000);
    let mut receiver = object.receiver_with_leaves(60_000);
    for block in [0, 1, 4] {
        assert!(receiver.offer_block(block, &object.block(block)));
    }
    assert!(!receiver.offer_block(2, &object.block(3)), "another block's content is not taken");
    let mut sender = Sender::new(object.layout, object.tree.clone(), SenderConfig { window: 20, settle: SETTLE });
    sender.on_status(at(0), ReceiverId(0), receiver.status());
    let mut count = 0;
    loop {
        while let Some(block) = sender.wanted_block() {
            assert!(![0, 1, 4].contains(&block));
            sender.load(block, object.block(block)).unwrap();
        }
        let mut packet = Vec::new();
        if sender.poll_packet(at(1), &mut packet).is_none() {
            break;
        }
        receiver.on_packet(&packet);
        count += 1;
    }
    assert!(receiver.is_complete());
    assert_eq!(count, object.layout.packets() - u64::from(object.layout.block_packets(0)) * 3);
}

#[test]
fn a_source_that_changed_is_told() {
    let object = Object::of(60_000);
    let mut sender = Sender::new(object.layout, object.tree.clone(), SenderConfig { window: 4, settle: SETTLE });
    let mut changed = object.block(0);
    changed[7] ^= 1;
    assert_eq!(sender.load(0, changed), Err(ObjectError::Changed(0)));
    assert_eq!(sender.load(0, vec![0; 5]), Err(ObjectError::Changed(0)));
}

#[test]
fn a_receiver_holds_no_more_blocks_than_it_was_given_memory_for() {
    let object = Object::of(300_000);
    let mut receiver = object.receiver_with_leaves(object.layout.block_bytes() * 3);
    let mut taken = Vec::new();
    for block in 0..object.layout.blocks() {
        let mut packet = Vec::new();
        SourceBlock::new(object.layout, block, object.block(block), &object.tree.leaves()[block as usize]).unwrap().write(0, &mut packet);
        taken.push(receiver.on_packet(&packet));
    }
    assert_eq!(taken.iter().filter(|t| **t == Taken::New).count(), 3);
    assert!(taken[3..].iter().all(|t| *t == Taken::NoRoom));
}
