use super::world::*;
use crate::ids::Seq;
use crate::options::Class;
use crate::sent::SentItem;
use crate::units::{Duration, Time};

/// Messages of `packets` packets every `gap`; the share that was there within a one-way delay and a little, and coded packets per source packet.
fn messages(story: Story, count: u64, packets: u64, gap: Duration) -> (f64, f64) {
    let mut world = World::new(Story { class: Class::Latency, rate: 20_000.0, symbol: 200, ..story });
    let grace = world.story.one_way + world.story.jitter + Duration::from_millis(4);
    let mut in_time = 0;
    let mut firsts = Vec::new();
    for _ in 0..count {
        firsts.push(world.sender.next_seq());
        (0..packets).for_each(|_| {
            world.give(100);
        });
        world.run_for(gap);
    }
    world.sender.finish();
    world.run(world.now + Duration::from_secs(20));
    world.assert_all_there();
    for Seq(first) in firsts {
        let sent = world.given[first as usize].at;
        in_time += u64::from((first..first + packets).all(|seq| world.delivered[&seq] <= sent + grace));
    }
    (in_time as f64 / count as f64, world.packets_sent as f64 / (count * packets) as f64)
}

#[test]
fn messages_need_no_second_round_trip_with_the_asked_probability() {
    for (loss, packets) in [(0.02, 1), (0.1, 1), (0.1, 5), (0.2, 3), (0.05, 20)] {
        for no_retransmit in [0.9, 0.99, 0.999] {
            let story = Story { loss, no_retransmit, one_way: Duration::from_millis(15), report_loss: loss, ..Story::default() };
            let (share, cost) = messages(story, 4000, packets, Duration::from_millis(10));
            println!("loss {loss}, {packets} packets, asked {no_retransmit}: {share:.4} at {cost:.2} packets each");
            // Three standard errors of the sample.
            let error = 3.0 * (no_retransmit * (1.0 - no_retransmit) / 4000.0f64).sqrt();
            assert!(share >= no_retransmit - error, "loss {loss}, {packets} packets: {share} for {no_retransmit}");
        }
    }
}

#[test]
fn without_proactive_packets_lost_messages_wait_for_a_round_trip() {
    let story = Story { loss: 0.1, one_way: Duration::from_millis(15), off: Off { proactive: true, ..Off::default() }, ..Story::default() };
    let (share, _) = messages(story, 2000, 1, Duration::from_millis(10));
    assert!((0.87..0.93).contains(&share), "{share}");
}

#[test]
fn a_lossless_path_costs_nothing_extra() {
    let (share, cost) = messages(Story { one_way: Duration::from_millis(15), ..Story::default() }, 500, 3, Duration::from_millis(10));
    assert_eq!((share, cost), (1.0, 1.0));
}

#[test]
fn bulk_flow_spends_nothing_blindly_before_its_end() {
    let mut world = World::new(Story { loss: 0.1, rate: 5000.0, ..Story::default() });
    world.backlog = 1_000_000;
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.sender.stats().proactive_packets, 0);
}

#[test]
fn the_first_packet_of_a_flow_is_repaired_even_if_it_is_the_only_one() {
    let mut world = World::new(Story::default());
    let mut losses = 3;
    world.scripted = Some(Box::new(move |_, item| {
        let lost = losses > 0 && matches!(item, SentItem::Coded { .. });
        losses -= i32::from(lost);
        lost
    }));
    world.give(50);
    world.sender.finish();
    world.run(Time::from_millis(60_000));
    world.assert_all_there();
}
