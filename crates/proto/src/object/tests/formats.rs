//! Bytes and sizes: what is emitted is read again, what is hostile is refused.

use super::*;
use crate::wire::varint::Reader;
use proptest::prelude::*;

proptest! {
    #[test]
    fn blocks_of_a_layout_follow_each_other_without_gaps(size in 0u64..5_000_000, len in 16u16..2000, packets in 1u16..3000) {
        let layout = Layout::new(size, len, packets, 16, 20).unwrap();
        let (mut end, mut count) = (0, 0);
        for block in 0..layout.blocks() {
            let range = layout.range(block);
            prop_assert_eq!(range.start, end);
            prop_assert!(range.end > range.start);
            prop_assert!(layout.block_packets(block) <= u32::from(packets));
            prop_assert_eq!((range.end - range.start).div_ceil(u64::from(len)), u64::from(layout.block_packets(block)));
            end = range.end;
            count += u64::from(layout.block_packets(block));
        }
        prop_assert_eq!((end, count), (size, layout.packets()));
        let mut bytes = Vec::new();
        layout.emit(&mut bytes);
        prop_assert_eq!(Layout::parse(&mut Reader::new(&bytes)), Ok(layout));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_receiver(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..130), 0..60)) {
        let object = Object::of(20_000);
        let mut receiver = object.receiver(4000);
        for mut packet in packets {
            receiver.on_packet(&packet);
            // As a coded packet of a block that exists.
            if let Some(first) = packet.first_mut() {
                *first = 0;
            }
            receiver.on_packet(&packet);
        }
        prop_assert!(receiver.poll_block().is_none());
        let _ = Status::parse(&mut Reader::new(&[0xff; 9]), &object.layout);
    }

    #[test]
    fn a_status_survives_its_bytes(first in 0u32..3, wanted in prop::collection::vec(0u32..60, 0..1)) {
        let layout = Object::of(20_000).layout;
        let status = Status { first, ahead: first + 1, wanted };
        let mut bytes = Vec::new();
        status.emit(&mut bytes);
        prop_assert_eq!(Status::parse(&mut Reader::new(&bytes), &layout), Ok(status));
    }
}

#[test]
fn layouts_that_would_take_too_much_memory_are_refused() {
    for (size, len, packets, batch, loss) in [
        (1 << 40, 16, 1, 16, 10),
        (1000, 1400, 60_000, 16, 10),
        (1000, 8, 10, 16, 10),
        (1000, 100, 0, 16, 10),
        (1000, 100, 10, 17, 10),
        (1000, 100, 10, 16, 0),
    ] {
        assert!(Layout::new(size, len, packets, batch, loss).is_err(), "{size} {len} {packets} {batch} {loss}");
    }
    // 1 TB passes.
    assert!(Layout::new(1 << 40, 1400, 2048, 16, 10).is_ok());
}

#[test]
fn every_leaf_climbs_to_the_top_and_no_other_does() {
    for count in 1..20u32 {
        let tree = HashTree::new((0..count).map(|b| leaf(&[b as u8])).collect());
        for block in 0..count {
            let path = tree.path(block);
            assert_eq!(climb(block, count, &leaf(&[block as u8]), &path), Some(tree.top()));
            assert_ne!(climb(block, count, &leaf(b"another"), &path), Some(tree.top()));
            assert_ne!(climb(block ^ 1, count, &leaf(&[block as u8]), &path), Some(tree.top()), "another place");
            let longer: Vec<_> = path.iter().copied().chain([[0; 32]]).collect();
            assert_eq!(climb(block, count, &leaf(&[block as u8]), &longer), None);
        }
    }
}

#[test]
fn a_merged_status_asks_for_what_either_lacks() {
    let layout = Object::of(60_000).layout;
    let a = Status { first: 2, ahead: 2, wanted: vec![3, 0, 9] };
    let b = Status { first: 1, ahead: 1, wanted: vec![0, 5, 1] };
    let merged = a.merge(&b, &layout);
    assert_eq!(merged.ahead, 2);
    for block in 0..layout.blocks() {
        assert_eq!(merged.need(&layout, block), a.need(&layout, block).max(b.need(&layout, block)), "block {block}");
    }
}
