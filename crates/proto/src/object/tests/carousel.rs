//! Sending to nobody in particular.

use super::*;

/// Plays `plan` from packet `from` on to a receiver with this loss; packets until it was complete, if it was.
fn play(object: &Object, plan: Plan, from: u64, loss: f64, memory: usize, limit: u64) -> Option<u64> {
    let mut carousel = Carousel::new(object.layout, object.tree.clone(), plan);
    let mut receiver = object.receiver(memory);
    let (mut got, mut chance) = (Got::default(), Chance::new(3));
    let mut count = 0;
    while count < limit {
        let mut packet = Vec::new();
        match carousel.poll(&mut packet) {
            Step::Load(block) => carousel.load(block, object.block(block)).unwrap(),
            Step::End => return None,
            Step::Packet(_) => {
                count += 1;
                if count > from && !chance.hits(loss) {
                    receiver.on_packet(&packet);
                    got.take(&mut receiver);
                }
                if receiver.is_complete() {
                    assert!(got.data() == object.data);
                    return Some(count - from);
                }
            }
        }
    }
    None
}

#[test]
fn one_pass_with_overhead_completes_what_loses_less_and_then_ends() {
    let object = Object::of(100_000);
    assert!(play(&object, Plan::Once { overhead: 500 }, 0, 0.2, 1 << 20, 1 << 20).is_some());
    assert_eq!(play(&object, Plan::Once { overhead: 100 }, 0, 0.3, 1 << 20, 1 << 20), None);
}

#[test]
fn a_receiver_that_joins_at_any_time_needs_little_more_than_the_object() {
    let object = Object::of(200_000);
    let packets = object.layout.packets();
    for from in [0, 1, packets / 3, packets, packets * 5 / 2] {
        let took = play(&object, Plan::Endless, from, 0.0, 1 << 20, packets * 6).unwrap();
        assert!(took <= packets * 13 / 10, "joined at {from}: {took} packets for {packets}");
    }
}

#[test]
fn packets_of_all_passes_count() {
    let object = Object::of(200_000);
    let packets = object.layout.packets();
    let took = play(&object, Plan::Endless, 0, 0.6, 1 << 20, packets * 10).unwrap();
    assert!((took as f64) < packets as f64 / 0.4 * 1.6, "{took} packets for {packets}");
}

#[test]
fn a_receiver_with_little_memory_needs_more_passes_and_completes() {
    let object = Object::of(200_000);
    let memory = object.layout.block_bytes() * 4;
    assert!(play(&object, Plan::Endless, 0, 0.2, memory, object.layout.packets() * 60).is_some());
}

#[test]
fn one_block_needs_no_proof_and_an_empty_object_nothing() {
    let object = Object::of(3_001);
    assert_eq!(object.layout.blocks(), 1);
    assert_eq!(play(&object, Plan::Endless, 0, 0.0, 1 << 20, 1000), Some(object.layout.packets()));
    let empty = Object::of(0);
    assert!(empty.receiver(1000).is_complete());
    assert_eq!(Carousel::new(empty.layout, empty.tree.clone(), Plan::Endless).poll(&mut Vec::new()), Step::End);
}

#[test]
fn blocks_with_invented_packets_are_not_handed_over_and_come_again() {
    let object = Object::of(20_000);
    let mut carousel = Carousel::new(object.layout, object.tree.clone(), Plan::Endless);
    let (mut receiver, mut got, mut count) = (object.receiver(1 << 20), Got::default(), 0u64);
    while !receiver.is_complete() && count < 10_000 {
        let mut packet = Vec::new();
        match carousel.poll(&mut packet) {
            Step::Load(block) => carousel.load(block, object.block(block)).unwrap(),
            Step::End => break,
            Step::Packet(_) => {
                count += 1;
                // One packet of the first pass is not what the sender made.
                if count == 40 {
                    let last = packet.len() - 1;
                    packet[last] ^= 1;
                }
                receiver.on_packet(&packet);
                got.take(&mut receiver);
            }
        }
    }
    assert!(got.data() == object.data);
    assert_eq!(receiver.stats().spoiled_blocks, 1);
}
