//! Any set of received packets, window and budget: the ACK tells the truth about the window that it reports.

use super::Input;
use noctule_proto::ids::{PacketNumber, PathId};
use noctule_proto::units::Duration;
use noctule_proto::wire::Frames;
use noctule_proto::wire::ack::{self, AckHead};
use noctule_proto::wire::frame::Frame;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (first_word, back, budget) = (input.u64(), input.u16(), input.u16());
    let mut words = Vec::new();
    while !input.is_empty() {
        words.push(input.u64());
    }
    let first_word = first_word % (1 << 55);
    let word = |i: u64| i.checked_sub(first_word).and_then(|i| words.get(i as usize)).copied().unwrap_or(0);
    let arrived = |pn: u64| word(pn / 64) >> (pn % 64) & 1 == 1;
    let Some((last, bits)) = words.iter().enumerate().rev().find(|(_, w)| **w != 0) else { return };
    let largest = (first_word + last as u64) * 64 + u64::from(bits.ilog2());
    let from = largest.saturating_sub(u64::from(back));
    let head = AckHead { path: PathId(0), largest: PacketNumber(largest), delay: Duration::ZERO, ecn: None };
    let mut out = Vec::new();
    let Some(lowest) = ack::emit(&mut out, &head, word, PacketNumber(from), usize::from(budget)) else {
        assert!(budget < 64);
        return;
    };
    assert!(out.len() <= usize::from(budget) && lowest.0 >= from);
    let frames: Vec<_> = Frames::new(&out).collect();
    let [Ok(Frame::Ack(view))] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((view.largest().0, view.lowest()), (largest, lowest));
    let mut next = Some(largest);
    for range in view.ranges() {
        while next != Some(range.largest.0) {
            assert!(!arrived(next.unwrap()));
            next = next.unwrap().checked_sub(1);
        }
        for pn in (range.smallest.0..=range.largest.0).rev() {
            assert!(arrived(pn));
        }
        next = range.smallest.0.checked_sub(1);
    }
    while let Some(pn) = next.filter(|&pn| pn >= lowest.0) {
        assert!(!arrived(pn));
        next = pn.checked_sub(1);
    }
}
