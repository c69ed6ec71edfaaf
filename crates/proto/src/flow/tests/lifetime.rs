use super::world::*;
use crate::flow::Stage;
use crate::ids::Seq;
use crate::options::{Class, Mode};
use crate::sent::SentItem;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// One packet every 10 ms with this lifetime; the share that was not there in time.
fn residual(story: Story, lifetime: Duration, count: u64) -> (f64, World) {
    let mut world = World::new(Story { mode: Mode::Btp, rate: 10_000.0, symbol: 300, ..story });
    world.lifetime = Some(lifetime);
    for _ in 0..count {
        world.give(200);
        world.run_for(MS(10));
    }
    world.sender.finish();
    world.run(world.now + Duration::from_secs(20));
    let late = world
        .given
        .iter()
        .enumerate()
        .filter(|(seq, given)| world.delivered.get(&(*seq as u64)).is_none_or(|at| *at > given.at + lifetime))
        .count();
    (late as f64 / count as f64, world)
}

#[test]
fn residual_loss_is_below_a_thousandth_up_to_30_percent_without_time_for_feedback() {
    for loss in [0.02, 0.1, 0.2, 0.3] {
        for class in [Class::Latency, Class::Bulk] {
            let story = Story { seed: 11, loss, report_loss: loss, class, ..Story::default() };
            let (residual, world) = residual(story, MS(100), 8000);
            println!("loss {loss} {class:?}: residual {residual:.5}, {:.2} packets each", world.packets_sent as f64 / 8000.0);
            assert!(residual <= 0.001, "loss {loss}: {residual}");
            assert!(world.sender.is_delivered(), "expired packets do not keep a flow open");
            assert!(world.peak_sender < 64 * 400, "expired packets are freed: {}", world.peak_sender);
        }
    }
}

#[test]
fn with_time_for_feedback_a_bulk_flow_repairs_on_feedback_until_the_last_chance() {
    let story = Story { seed: 3, loss: 0.3, report_loss: 0.1, ..Story::default() };
    let (with_feedback, world) = residual(story.clone(), MS(360), 8000);
    let cost = world.packets_sent as f64 / 8000.0;
    let (_, world) = residual(story, MS(100), 8000);
    let blind = world.packets_sent as f64 / 8000.0;
    println!("residual {with_feedback:.5} at {cost:.2} packets each, against {blind:.2} without feedback");
    assert!(with_feedback <= 0.001);
    assert!(cost < 0.75 * blind);
}

#[test]
fn without_skip_expired_packets_keep_the_receiver_waiting() {
    let story = Story { loss: 0.2, off: Off { proactive: true, repair: true, ..Off::default() }, ..Story::default() };
    let (_, world) = residual(story.clone(), MS(100), 300);
    assert!(world.receiver.is_complete());
    let (_, world) = residual(Story { off: Off { skip: true, ..story.off }, ..story }, MS(100), 300);
    assert!(!world.receiver.is_complete());
}

#[test]
fn cancelled_packets_are_neither_repaired_nor_waited_for_and_all_others_arrive() {
    for seed in 1..8 {
        let mut world = World::new(Story { seed, loss: 0.3, report_loss: 0.3, ..Story::default() });
        for i in 0..200u64 {
            world.give(150);
            if i % 7 == 3 {
                world.sender.abandon(Seq(i - 2)..Seq(i)); // some sent, some not
            }
            world.run_for(MS(1 + i % 3));
        }
        world.sender.finish();
        world.run(world.now + Duration::from_secs(60));
        assert!(world.sender.is_delivered() && world.receiver.is_complete(), "seed {seed}: {:?}", world.sender.stats());
        let cancelled = |seq: u64| (0..200u64).any(|i| i % 7 == 3 && (i - 2..i).contains(&seq));
        let lacking: Vec<u64> = (0..200).filter(|seq| !world.delivered.contains_key(seq) && !cancelled(*seq)).collect();
        assert!(lacking.is_empty(), "seed {seed}: {lacking:?}");
    }
}

#[test]
fn packets_cancelled_before_they_were_sent_never_leave() {
    let mut world = World::new(Story::default());
    (0..40).for_each(|_| {
        world.give(100);
    });
    world.sender.abandon(Seq(10)..Seq(40));
    world.sender.finish();
    world.run(Time::from_millis(10_000));
    assert!(world.sender.is_delivered() && world.receiver.is_complete());
    assert_eq!((world.delivered.len(), world.packets_sent), (10, 10));
}

#[test]
fn a_burst_is_protected_once_at_its_end_and_full_batches_before_it() {
    let mut world = World::new(Story { mode: Mode::Btp, loss: 0.2, ..Story::default() });
    world.lifetime = Some(MS(80));
    let context = world.context();
    let mut sent = Vec::new();
    for i in 0..20 {
        world.sender.expect_more(i < 19);
        world.give(100);
        while let Some(out) = [Stage::Repair, Stage::Source].into_iter().find_map(|s| world.sender.poll(world.now, s, &context, 1400)) {
            sent.push((i, out.item));
        }
    }
    let repairs = |after: u64| sent.iter().filter(|(i, item)| *i == after && matches!(item, SentItem::Coded { index: None, .. })).count();
    assert!((0..20).all(|i| (repairs(i) > 0) == (i == 15 || i == 19)), "{sent:?}");
}

/// A batch without time for feedback leaves a link that is too full to protect it. Three round trips later comes one that has time: its combinations that go before
/// what is new.
fn combinations_after_urgency() -> usize {
    let mut world = World::new(Story { mode: Mode::Btp, class: Class::Latency, loss: 0.2, ..Story::default() });
    let context = world.context();
    for (lifetime, wait) in [(MS(150), world.rtt() * 3), (MS(1000), MS(0))] {
        world.lifetime = Some(lifetime);
        (0..16).for_each(|_| {
            world.give(100);
        });
        while world.sender.poll(world.now, Stage::Source, &context, 1400).is_some() {}
        world.now += wait;
    }
    let mut combinations = 0;
    while let Some(out) = world.sender.poll(world.now, Stage::Repair, &context, 1400) {
        combinations += usize::from(matches!(out.item, SentItem::Coded { base: Seq(16), index: None, .. }));
    }
    combinations
}

#[test]
fn a_batch_that_could_not_wait_does_not_press_the_flow_for_good() {
    let (after, forever) = (combinations_after_urgency(), without(Mechanism::UrgencyEnds, combinations_after_urgency));
    println!("{after} combinations before what is new, {forever} where urgency lasts until nothing waits");
    assert!(after == 0 && forever > 3);
}
