//! Window-coded repair of small flows (P4, P26): copies over batch boundaries, spaced over bursts, and what the sender infers from them.

use super::world::*;
use crate::error::Code;
use crate::flow::{SendContext, Sender, Stage, Symbol};
use crate::ids::Seq;
use crate::options::Class;
use crate::sent::SentItem;
use crate::switch::{Mechanism, without};
use crate::units::Duration;

const MS: Duration = Duration::from_millis(1);

fn story() -> Story {
    Story { class: Class::Latency, rate: 20_000.0, symbol: 200, loss: 0.02, one_way: MS * 100, burst_time: MS * 20, ..Story::default() }
}

/// Messages every 10 ms; nothing arrives from the first of `lost` on until the first one after them. How long after its sending each of
/// these was there.
fn messages(story: Story, lost: core::ops::Range<u64>, count: u64) -> (Vec<Duration>, World) {
    let mut world = World::new(story);
    let (burst, mut is_lost) = (lost.clone(), false);
    world.scripted = Some(Box::new(move |_, item| {
        if let SentItem::Coded { base, index: Some(index), .. } = item {
            is_lost = burst.contains(&(base.0 + u64::from(*index)));
        }
        is_lost
    }));
    for _ in 0..count {
        world.give(100);
        world.run_for(MS * 10);
    }
    world.sender.finish();
    world.run(world.now + Duration::from_secs(20));
    world.assert_all_there();
    let late = lost.map(|seq| world.delivered[&seq].since(world.given[seq as usize].at)).collect();
    (late, world)
}

#[test]
fn a_burst_over_a_batch_boundary_is_repaired_a_bursts_duration_later() {
    // Under way at any time: twenty messages, more than a batch.
    let (late, _) = messages(story(), 46..49, 80);
    assert!(late.iter().all(|d| *d <= MS * 160), "{late:?}");
    let (late, _) = without(Mechanism::WindowSpans, || messages(story(), 46..49, 80));
    assert!(late[0] > MS * 200, "combinations within batches do not reach back: {late:?}");
}

#[test]
fn packets_that_window_repairs_gave_back_are_not_repaired_again() {
    let (_, world) = messages(story(), 46..49, 80);
    let stats = world.sender.stats();
    // One may go out for a loss that is known before the fates of the copies are.
    assert!(stats.repair_packets <= stats.proactive_packets + 1, "no repair on feedback: {stats:?}");
    assert_eq!(stats.corrections, 0);
}

#[test]
fn copies_of_what_was_acknowledged_are_not_sent() {
    let short = Story { one_way: MS * 5, ..story() };
    let (_, world) = messages(short, 0..0, 100);
    assert_eq!(world.sender.stats().proactive_packets, 0, "each message is acknowledged before its first copy is due");
    let (_, world) = messages(story(), 0..0, 100);
    assert!((350..=450).contains(&world.sender.stats().proactive_packets), "four copies each: {:?}", world.sender.stats());
}

#[test]
fn a_receiver_without_memory_for_windows_is_repaired_within_batches() {
    let poor = Story { receiver_memory: 60_000, ..story() };
    let (_, world) = messages(poor, 46..49, 300);
    assert!(world.refused > 0, "spans over boundaries were tried");
    assert!(world.refused < 60, "and given up: {}", world.refused);
}

/// Twenty packets, of which two are lost, and window repairs that arrive: packets that are thought not to be there, before and after one of these is refused.
fn after_a_late_refusal() -> (u64, u64) {
    let world = World::new(Story { loss: 0.1, burst_time: Duration::ZERO, ..story() });
    let (context, now, mut sender) = (SendContext { spare: true, ..world.context() }, world.now, world.sender);
    for seq in 0..20 {
        sender.push(now, Symbol::bare(content(seq, 100).into()), None);
    }
    let poll =
        |sender: &mut Sender, stage| std::iter::from_fn(|| sender.poll(now, stage, &context, 1200)).map(|o| o.item).collect::<Vec<_>>();
    let sources = poll(&mut sender, Stage::Source);
    let repairs = poll(&mut sender, Stage::Proactive);
    assert!(repairs.len() >= 2 && repairs.iter().all(|r| matches!(r, SentItem::Coded { base: Seq(0), n: 20, .. })), "{repairs:?}");
    for (seq, item) in sources.iter().enumerate() {
        if matches!(seq, 3 | 19) { sender.on_lost(now, item) } else { sender.on_acked(now, item) }
    }
    repairs.iter().for_each(|item| sender.on_acked(now, item));
    let before = sender.outstanding();
    sender.on_refused(Seq(0), Code::NoMemory);
    (before, sender.outstanding())
}

#[test]
fn what_a_refused_window_repair_had_given_is_taken_back_though_its_acknowledgement_came_first() {
    assert_eq!(after_a_late_refusal(), (0, 2));
    assert_eq!(without(Mechanism::RefusedInference, after_a_late_refusal), (0, 0), "and nothing would ever repair them");
}

#[test]
fn messages_survive_any_loss_with_window_repair() {
    for (loss, burst_time, seed) in [(0.1, Duration::ZERO, 1), (0.3, Duration::ZERO, 2), (0.1, MS * 20, 3), (0.5, MS * 5, 4)] {
        let mut world = World::new(Story { loss, burst_time, report_loss: loss, seed, late_fates: 0.02, jitter: MS * 3, ..story() });
        for i in 0..500 {
            (0..1 + i % 3).for_each(|_| {
                world.give(100);
            });
            world.run_for(MS * 10);
        }
        world.sender.finish();
        world.run(world.now + Duration::from_secs(60));
        world.assert_all_there();
    }
}
