use super::world::*;
use crate::units::{Duration, Time};

const LONG: Duration = Duration::from_secs(600);

#[test]
fn everything_arrives_at_every_loss() {
    for (i, loss) in [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5].into_iter().enumerate() {
        for batch_size in [8, 16, 32, 64] {
            let story = Story { seed: i as u64 * 10 + u64::from(batch_size), loss, report_loss: loss, batch_size, ..Story::default() };
            let world = World::transfer(story, 3000, LONG);
            world.assert_all_there();
            assert_eq!(world.refused, 0);
        }
    }
}

#[test]
fn everything_arrives_whatever_its_number() {
    for packets in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100] {
        for loss in [0.0, 0.3, 0.5] {
            let world = World::transfer(Story { seed: packets + 1, loss, report_loss: loss, ..Story::default() }, packets, LONG);
            world.assert_all_there();
            assert_eq!(world.delivered.len() as u64, packets);
        }
    }
}

#[test]
fn everything_arrives_with_reordering_late_acknowledgements_and_bursts() {
    for seed in 1..6 {
        let story = Story {
            seed,
            loss: 0.1,
            burst: if seed % 2 == 0 { 10.0 } else { 0.0 },
            report_loss: 0.3,
            late_fates: 0.2,
            jitter: Duration::from_millis(20),
            ..Story::default()
        };
        World::transfer(story, 3000, LONG).assert_all_there();
    }
}

#[test]
fn packets_sent_per_packet_delivered_stay_close_to_the_cut_set_bound() {
    for (loss, packets) in [(0.0, 10_000u64), (0.01, 20_000), (0.05, 20_000), (0.1, 20_000), (0.2, 20_000), (0.3, 20_000), (0.5, 20_000)] {
        let story = Story { seed: 5, loss, report_loss: loss, rate: 2000.0, ..Story::default() };
        let world = World::transfer(story, packets, LONG);
        world.assert_all_there();
        // The tail is protected from spare capacity; it does not count here (some 200 packets are in flight at the end).
        let realised = world.packets_lost as f64 / world.packets_sent as f64;
        let ratio = (world.packets_sent - world.sender.stats().proactive_packets) as f64 / packets as f64 * (1.0 - realised);
        println!(
            "loss {loss}: {:.4} of 1/(1-p), {} proactive, {} redundant, {} corrections",
            ratio,
            world.sender.stats().proactive_packets,
            world.receiver.stats().redundant_packets,
            world.sender.stats().corrections
        );
        assert_eq!(world.sender.stats().corrections, 0, "loss {loss}: what acknowledgements tell is what the receiver has");
        assert!(ratio <= if loss < 0.5 { 1.02 } else { 1.025 }, "loss {loss}: {ratio:.4} times 1/(1-p)");
    }
}

#[test]
fn a_slow_reader_stops_the_sender_and_bounds_memory() {
    let story =
        Story { loss: 0.1, report_loss: 0.1, receiver_memory: 1 << 17, initial_credit: 128, read_rate: Some(200.0), ..Story::default() };
    let world = World::transfer(story, 3000, LONG);
    world.assert_all_there();
    assert_eq!(world.refused, 0, "credit keeps the sender within memory");
    assert!(world.peak_receiver <= 1 << 17, "{}", world.peak_receiver);
}

#[test]
fn a_sender_with_little_memory_gets_there_all_the_same() {
    let story = Story { loss: 0.1, sender_memory: 100_000, ..Story::default() };
    let world = World::transfer(story, 2000, LONG);
    world.assert_all_there();
    assert!(world.peak_sender <= 102_000, "{}", world.peak_sender);
}

#[test]
fn a_sender_never_believes_in_more_rank_than_the_receiver_has() {
    // Reports come before and after the acknowledgements of what they count, in any order, or not at all.
    for seed in 1..9 {
        let story = Story {
            seed,
            loss: [0.1, 0.3][seed as usize % 2],
            burst: [0.0, 0.0, 8.0][seed as usize % 3],
            report_loss: 0.2,
            late_fates: 0.2,
            late_acks: 0.5,
            jitter: Duration::from_millis([0, 20][seed as usize / 2 % 2]),
            ..Story::default()
        };
        let mut world = World::new(story);
        world.backlog = 3000;
        world.finish_when_empty();
        while !world.sender.is_delivered() && world.step(Time::from_millis(120_000)) {
            if let Some((number, believed, held)) = world.overestimate() {
                panic!("seed {seed}, {:?}: rank {believed} of batch {number} believed, {held} there", world.now);
            }
        }
        world.assert_all_there();
    }
}
