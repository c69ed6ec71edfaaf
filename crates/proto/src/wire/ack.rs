//! The ACK frame (P8): which packets of a window arrived, in segments that are run-length coded or bitmaps, whichever is shorter.

use super::varint::{self, Reader};
use super::{WireError, frame_type};
use crate::ids::{PacketNumber, PathId};
use crate::units::Duration;

/// Packets received so far on a path by ECN codepoint (RFC 3168), absolute counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct EcnCounts {
    /// Packets marked ECT(0).
    pub ect0: u64,
    /// Packets marked ECT(1).
    pub ect1: u64,
    /// Packets marked CE.
    pub ce: u64,
}

/// A run of packets that all arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct AckRange {
    /// First packet of the run.
    pub smallest: PacketNumber,
    /// Last packet of the run.
    pub largest: PacketNumber,
}

/// Checked view of an ACK frame: it speaks about every packet of `lowest()..=largest()`, and about no other.
#[derive(Clone, Debug, PartialEq)]
pub struct AckView<'a> {
    path: PathId,
    largest: PacketNumber,
    lowest: PacketNumber,
    delay: u64,
    ecn: Option<EcnCounts>,
    segments: u8,
    bytes: &'a [u8],
}

const KIND_RUNS: u64 = 0;
const KIND_BITMAP: u64 = 1;

impl<'a> AckView<'a> {
    /// Path whose packets are reported.
    pub fn path(&self) -> PathId {
        self.path
    }
    /// Highest packet that arrived.
    pub fn largest(&self) -> PacketNumber {
        self.largest
    }
    /// Lowest packet that the frame speaks about.
    pub fn lowest(&self) -> PacketNumber {
        self.lowest
    }
    /// Time between the arrival of `largest` and the sending of the frame, in whole microseconds.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay)
    }
    /// ECN counts, if the sender of the frame sees the ECN field.
    pub fn ecn(&self) -> Option<EcnCounts> {
        self.ecn
    }
    /// The runs that arrived, highest first, with a gap between any two. What lies in `lowest()..=largest()` and in no run is missing.
    ///
    /// The number of runs is bounded by the frame's bytes, their lengths are not: compare `largest()` with what was sent before counting packets one by one.
    pub fn ranges(&self) -> Ranges<'a> {
        Ranges { runs: self.runs(), pending: None }
    }

    fn runs(&self) -> Runs<'a> {
        Runs { reader: Reader::new(self.bytes), segments: self.segments, state: Segment::Start, next: Some(self.largest.0) }
    }

    /// Reads the frame after its type.
    pub(super) fn parse_body(r: &mut Reader<'a>, has_ecn: bool) -> Result<Self, WireError> {
        let path = u32::try_from(r.varint()?).map_err(|_| WireError::Invalid("ACK: path id"))?;
        let largest = r.varint()?;
        let delay = r.varint()?;
        let ecn = match has_ecn {
            true => Some(EcnCounts { ect0: r.varint()?, ect1: r.varint()?, ce: r.varint()? }),
            false => None,
        };
        let segments = r.u8()?;
        let bytes = r.rest();
        // The whole frame is walked once here, so that the iterators cannot fail.
        let mut left = largest.checked_add(1).ok_or(WireError::Invalid("ACK: number"))?;
        let mut is_first = true;
        for _ in 0..segments {
            let head = r.varint()?;
            let count = head >> 1;
            if count == 0 {
                return Err(WireError::Invalid("ACK: empty segment"));
            }
            let first_arrived;
            if head & 1 == KIND_BITMAP {
                left = left.checked_sub(count).ok_or(WireError::Invalid("ACK: below packet 0"))?;
                let len = usize::try_from(count.div_ceil(8)).map_err(|_| WireError::Truncated)?;
                first_arrived = r.bytes(len)?[0] & 1 == 1;
            } else {
                let mut first = 0;
                for i in 0..count {
                    let (arrived, missing) = (r.varint()?, r.varint()?);
                    if i == 0 {
                        first = arrived;
                    }
                    left = left
                        .checked_sub(arrived)
                        .and_then(|left| left.checked_sub(missing))
                        .ok_or(WireError::Invalid("ACK: below packet 0"))?;
                }
                first_arrived = first > 0;
            }
            if is_first && !first_arrived {
                return Err(WireError::Invalid("ACK: its largest packet is missing"));
            }
            is_first = false;
        }
        if is_first {
            return Err(WireError::Invalid("ACK: no segment"));
        }
        let bytes = &bytes[..bytes.len() - r.rest().len()];
        Ok(Self { path: PathId(path), largest: PacketNumber(largest), lowest: PacketNumber(left), delay, ecn, segments, bytes })
    }

    /// Appends the frame.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        emit_fixed(out, self.path, self.largest, self.delay, self.ecn);
        out.push(self.segments);
        out.extend_from_slice(self.bytes);
    }
}

#[derive(Clone, Debug)]
enum Segment<'a> {
    /// Before the first segment.
    Start,
    /// Pairs left, and the missing run that follows the arrived one just given.
    Runs(u64, Option<u64>),
    /// Bytes, position in bits, length in bits.
    Bitmap(&'a [u8], u64, u64),
}

/// Runs of one kind as they stand on the wire: neighbours may be of the same kind, and empty.
#[derive(Clone, Debug)]
struct Runs<'a> {
    reader: Reader<'a>,
    segments: u8,
    state: Segment<'a>,
    /// Highest packet not yet told; `None` below packet 0.
    next: Option<u64>,
}

impl Runs<'_> {
    /// The next run: whether it arrived, and its length (0 possible). Anything inconsistent ends the iteration; `parse_body` has excluded it.
    fn step(&mut self) -> Option<(bool, u64)> {
        loop {
            match &mut self.state {
                Segment::Runs(_, missing @ Some(_)) => return missing.take().map(|n| (false, n)),
                Segment::Runs(pairs @ 1.., missing) => {
                    *pairs -= 1;
                    let arrived = self.reader.varint().ok()?;
                    *missing = Some(self.reader.varint().ok()?);
                    return Some((true, arrived));
                }
                Segment::Bitmap(bytes, position, len) if *position < *len => {
                    let (is_set, end) = run(bytes, *position, *len);
                    let count = end - core::mem::replace(position, end);
                    return Some((is_set, count));
                }
                _ => {
                    self.segments = self.segments.checked_sub(1)?;
                    let head = self.reader.varint().ok()?;
                    self.state = match head & 1 {
                        KIND_BITMAP => Segment::Bitmap(self.reader.bytes((head >> 1).div_ceil(8) as usize).ok()?, 0, head >> 1),
                        _ => Segment::Runs(head >> 1, None),
                    };
                }
            }
        }
    }
}

/// At least 57 bits of a bitmap from `position` on, as far as there are any, and how many; zeros behind its end.
fn window(bytes: &[u8], position: u64) -> (u64, u64) {
    let (at, offset) = ((position / 8) as usize, position % 8);
    let word = match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => *word,
        None => {
            let mut word = [0; 8];
            bytes.iter().skip(at).zip(&mut word).for_each(|(from, to)| *to = *from);
            word
        }
    };
    (u64::from_le_bytes(word) >> offset, 64 - offset)
}

/// Whether the packet at `position` arrived, and the first position after it, up to `len`, where that changes.
fn run(bytes: &[u8], position: u64, len: u64) -> (bool, u64) {
    let (mut word, mut bits) = window(bytes, position);
    let is_set = word & 1 == 1;
    let mut end = position;
    loop {
        let same = u64::from(if is_set { word.trailing_ones() } else { word.trailing_zeros() }).min(bits);
        end += same;
        if same < bits || end >= len {
            return (is_set, end.min(len));
        }
        (word, bits) = window(bytes, end);
    }
}

/// Iterator of [`AckView::ranges`].
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    runs: Runs<'a>,
    pending: Option<AckRange>,
}

impl Iterator for Ranges<'_> {
    type Item = AckRange;
    fn next(&mut self) -> Option<AckRange> {
        loop {
            let Some((arrived, len)) = self.runs.step() else { return self.pending.take() };
            if len == 0 {
                continue;
            }
            let Some(top) = self.runs.next else { return self.pending.take() };
            self.runs.next = top.checked_sub(len);
            if arrived {
                let smallest = PacketNumber(top.saturating_sub(len - 1));
                match &mut self.pending {
                    Some(range) => range.smallest = smallest,
                    None => self.pending = Some(AckRange { smallest, largest: PacketNumber(top) }),
                }
            } else if let Some(range) = self.pending.take() {
                return Some(range);
            }
        }
    }
}

fn emit_fixed(out: &mut Vec<u8>, path: PathId, largest: PacketNumber, delay: u64, ecn: Option<EcnCounts>) {
    varint::emit(out, if ecn.is_some() { frame_type::ACK_ECN } else { frame_type::ACK });
    varint::emit(out, u64::from(path.0));
    varint::emit(out, largest.0);
    varint::emit(out, delay);
    if let Some(ecn) = ecn {
        varint::emit(out, ecn.ect0);
        varint::emit(out, ecn.ect1);
        varint::emit(out, ecn.ce);
    }
}

/// What an ACK says apart from its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckHead {
    /// Path whose packets are reported.
    pub path: PathId,
    /// Highest packet that arrived.
    pub largest: PacketNumber,
    /// Time since it arrived; whole microseconds go on the wire.
    pub delay: Duration,
    /// ECN counts, if the ECN field can be seen.
    pub ecn: Option<EcnCounts>,
}

/// In a word of 64 packets, a bitmap takes 8 bytes and each run some two; a change of kind costs a header. Hence the hysteresis.
const RUNS_TO_ENTER_BITMAP: u32 = 6;
const RUNS_TO_STAY_BITMAP: u32 = 3;
/// Kinds change at most this often in one frame.
const MAX_SEGMENTS: u8 = 32;

/// Appends an ACK of at most `budget` bytes that reports the window from `head.largest` down to `from`, or as far down as the budget allows.
///
/// `words(i)` gives packets `64 i ..= 64 i + 63` as bits (bit j = packet `64 i + j`, set if it arrived), zero where nothing is known.
/// Returns the lowest packet reported; `None`, and `out` unchanged, if `largest` did not arrive, lies below `from`, or not even one run fits
/// (64 bytes always suffice).
pub fn emit(out: &mut Vec<u8>, head: &AckHead, words: impl Fn(u64) -> u64, from: PacketNumber, budget: usize) -> Option<PacketNumber> {
    let (largest, from) = (head.largest.0, from.0);
    if from > largest || largest > varint::MAX || words(largest / 64) >> (largest % 64) & 1 == 0 {
        return None;
    }
    let start = out.len();
    let delay = u64::try_from(head.delay.as_micros()).unwrap_or(varint::MAX);
    emit_fixed(out, head.path, head.largest, delay, head.ecn);
    let segments_at = out.len();
    out.push(0);
    let end = start + budget;

    let mut top = largest;
    let mut reported = None;
    let mut segments = 0;
    while segments < MAX_SEGMENTS {
        let (kind, bottom) = next_segment(&words, top, from, end.saturating_sub(out.len()), segments + 1 == MAX_SEGMENTS);
        let written = match kind {
            KIND_BITMAP => emit_bitmap(out, &words, top, bottom, end),
            _ => emit_runs(out, &words, top, bottom, end),
        };
        let Some(lowest) = written else { break };
        segments += 1;
        reported = Some(lowest);
        if lowest > bottom || bottom == from {
            break;
        }
        top = bottom - 1;
    }
    match reported {
        Some(lowest) => {
            out[segments_at] = segments;
            Some(PacketNumber(lowest))
        }
        None => {
            out.truncate(start);
            None
        }
    }
}

/// Kind of the segment that starts at `top`, and the packet that it ends with; looks no further than some `budget` bytes reach.
fn next_segment(words: &impl Fn(u64) -> u64, top: u64, from: u64, budget: usize, is_last: bool) -> (u64, u64) {
    let runs_in = |index: u64| {
        let mut word = words(index);
        if index == top / 64 {
            word &= u64::MAX >> (63 - top % 64);
        }
        if index == from / 64 {
            word &= u64::MAX << (from % 64);
        }
        (word & !(word << 1)).count_ones()
    };
    let mut index = top / 64;
    let is_bitmap = runs_in(index) >= RUNS_TO_ENTER_BITMAP;
    let mut cost = 0;
    loop {
        let bottom = from.max(index * 64);
        if bottom == from || cost > budget {
            return (if is_bitmap { KIND_BITMAP } else { KIND_RUNS }, bottom);
        }
        index -= 1;
        let runs = runs_in(index);
        let changes = if is_bitmap { runs < RUNS_TO_STAY_BITMAP } else { runs >= RUNS_TO_ENTER_BITMAP };
        if changes && !is_last {
            return (if is_bitmap { KIND_BITMAP } else { KIND_RUNS }, bottom);
        }
        cost += if is_bitmap { 8 } else { 2 * runs as usize };
    }
}

/// One bitmap segment for `bottom..=top`, cut where `end` bytes are reached; the lowest packet covered.
fn emit_bitmap(out: &mut Vec<u8>, words: &impl Fn(u64) -> u64, top: u64, bottom: u64, end: usize) -> Option<u64> {
    let room = end.checked_sub(out.len() + varint::size((top - bottom + 1) << 1)).filter(|&room| room > 0)?;
    let count = (top - bottom + 1).min(room as u64 * 8);
    varint::emit(out, count << 1 | KIND_BITMAP);
    let mut position = top;
    let mut left = count;
    loop {
        // The 64 packets that end at `position`, the latest one in bit 0.
        let (index, shift) = (position / 64, position % 64);
        let mut word = words(index) << (63 - shift);
        if shift < 63 && index > 0 {
            word |= words(index - 1) >> (shift + 1);
        }
        let mut word = word.reverse_bits();
        if left < 64 {
            word &= (1 << left) - 1;
        }
        let bytes = left.min(64).div_ceil(8) as usize;
        out.extend_from_slice(&word.to_le_bytes()[..bytes]);
        if left <= 64 {
            return Some(top + 1 - count);
        }
        left -= 64;
        position -= 64;
    }
}

/// Lowest packet, not below `bottom`, that is connected to `position` by packets of the same fate.
fn run_bottom(words: &impl Fn(u64) -> u64, position: u64, bottom: u64, arrived: bool) -> u64 {
    let same = if arrived { u64::MAX } else { 0 };
    let mut position = position;
    loop {
        let shift = position % 64;
        let differs = (words(position / 64) ^ same) << (63 - shift);
        let len = u64::from(differs.leading_zeros()).min(shift + 1);
        if position + 1 - len <= bottom {
            return bottom;
        }
        if len <= shift {
            return position + 1 - len;
        }
        position -= len;
    }
}

/// One run-length segment for `bottom..=top`, cut where `end` bytes are reached; the lowest packet covered.
fn emit_runs(out: &mut Vec<u8>, words: &impl Fn(u64) -> u64, top: u64, bottom: u64, end: usize) -> Option<u64> {
    let is_set = |p: u64| words(p / 64) >> (p % 64) & 1 == 1;
    // From the packet above the pair: arrived, missing, and the lowest packet of the pair.
    let pair = |position: u64| {
        let after_arrived = if is_set(position) { run_bottom(words, position, bottom, true) } else { position + 1 };
        let lowest = if after_arrived > bottom { run_bottom(words, after_arrived - 1, bottom, false) } else { after_arrived };
        (position + 1 - after_arrived, after_arrived - lowest, lowest)
    };
    // Two bytes of header hold up to 0x1fff pairs, more than any datagram does.
    let room = end.checked_sub(out.len() + 2)?;
    let (mut pairs, mut bytes, mut lowest) = (0u64, 0, None);
    let mut position = top;
    loop {
        let (arrived, missing, low) = pair(position);
        bytes += varint::size(arrived) + varint::size(missing);
        if bytes > room || pairs == 0x1fff {
            break;
        }
        pairs += 1;
        lowest = Some(low);
        if low == bottom {
            break;
        }
        position = low - 1;
    }
    let lowest = lowest?;
    varint::emit(out, pairs << 1 | KIND_RUNS);
    let mut position = top;
    for _ in 0..pairs {
        let (arrived, missing, low) = pair(position);
        varint::emit(out, arrived);
        varint::emit(out, missing);
        position = low.wrapping_sub(1);
    }
    Some(lowest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Frame;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const HEAD: AckHead = AckHead { path: PathId(3), largest: PacketNumber(0), delay: Duration::from_micros(1234), ecn: None };

    fn words(received: &BTreeSet<u64>) -> impl Fn(u64) -> u64 {
        let mut words = std::collections::HashMap::new();
        for pn in received {
            *words.entry(pn / 64).or_insert(0u64) |= 1 << (pn % 64);
        }
        move |i| words.get(&i).copied().unwrap_or(0)
    }

    fn view(bytes: &[u8]) -> AckView<'_> {
        let mut r = Reader::new(bytes);
        let Ok(Some(Frame::Ack(ack))) = Frame::parse(&mut r) else { panic!("no ACK: {bytes:02x?}") };
        assert!(r.is_empty());
        ack
    }

    fn told(ack: &AckView<'_>) -> BTreeSet<u64> {
        ack.ranges().flat_map(|r| r.smallest.0..=r.largest.0).collect()
    }

    /// Emits, parses, compares with the truth inside the window that was reported; returns the frame's length and the lowest packet reported.
    fn check(received: &BTreeSet<u64>, from: u64, budget: usize) -> (usize, u64) {
        let largest = *received.last().unwrap();
        let mut out = Vec::new();
        let head = AckHead { largest: PacketNumber(largest), ..HEAD };
        let lowest = emit(&mut out, &head, words(received), PacketNumber(from), budget).unwrap();
        assert!(out.len() <= budget);
        let ack = view(&out);
        assert_eq!((ack.path(), ack.largest().0, ack.lowest(), ack.delay()), (PathId(3), largest, lowest, HEAD.delay));
        assert_eq!(told(&ack), received.range(lowest.0..).copied().collect());
        assert!(lowest.0 >= from);
        let ranges: Vec<_> = ack.ranges().collect();
        assert!(ranges.windows(2).all(|w| w[1].largest.0 + 1 < w[0].smallest.0), "ranges touch: {ranges:?}");
        let mut again = Vec::new();
        Frame::Ack(ack).emit(&mut again);
        assert_eq!(again, out);
        (out.len(), lowest.0)
    }

    /// A deterministic loss pattern: packet lost if a hash of its number falls below `loss`.
    fn lossy(range: std::ops::Range<u64>, loss: f64) -> BTreeSet<u64> {
        let hash = |pn: u64| {
            let mut x = pn.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ x >> 31) as f64 / u64::MAX as f64
        };
        range.filter(|&pn| hash(pn) >= loss).collect()
    }

    #[test]
    fn no_loss_takes_one_run() {
        let (len, lowest) = check(&(1000..9000).collect(), 1000, 1200);
        assert_eq!((len, lowest), (11, 1000));
    }

    #[test]
    fn heavy_loss_takes_a_bitmap_and_light_loss_takes_runs() {
        // 20 % loss over 660 packets: one bit each, not two bytes for each of 106 gaps.
        let (len, lowest) = check(&lossy(5000..5660, 0.2), 5000, 1200);
        assert_eq!(lowest, 5000);
        assert!(len <= 660 / 8 + 20, "{len}");
        // 1 % over 6600 packets: 66 gaps at two or three bytes, not 825 bytes of bitmap.
        let (len, _) = check(&lossy(5000..11600, 0.01), 5000, 1200);
        assert!(len <= 66 * 4 + 14, "{len}");
    }

    #[test]
    fn a_window_that_changes_its_character_changes_its_coding() {
        let mut received = lossy(10_000..11_000, 0.3);
        received.extend(11_000..30_000);
        received.extend(lossy(30_000..31_000, 0.3));
        let (len, lowest) = check(&received, 10_000, 1400);
        assert_eq!(lowest, 10_000);
        assert!(len <= 2 * (1000 / 8) + 60, "{len}");
    }

    #[test]
    fn a_gigabit_with_fifth_lost_and_200_ms_is_reported_in_few_datagrams() {
        // P8: 16,667 packets in flight and some 2,670 gaps; at 1 bit per packet two datagrams tell it all.
        let received = lossy(100_000..116_667, 0.2);
        let (_, lowest) = check(&received, 100_000, 1100);
        assert!(lowest < 116_667 - 8000, "{lowest}");
    }

    #[test]
    fn a_small_budget_reports_less_and_says_so() {
        let received = lossy(0..4000, 0.2);
        for budget in 13..200 {
            check(&received, 0, budget);
        }
        let sparse = lossy(0..4000, 0.03);
        for budget in 13..200 {
            check(&sparse, 0, budget);
        }
    }

    #[test]
    fn nothing_is_written_when_the_largest_is_missing_or_nothing_fits() {
        let received = BTreeSet::from([7]);
        let mut out = vec![1];
        for (largest, from, budget) in [(8, 0, 100), (7, 8, 100), (7, 0, 5), (7, 0, 0)] {
            let head = AckHead { largest: PacketNumber(largest), ..HEAD };
            assert_eq!(emit(&mut out, &head, words(&received), PacketNumber(from), budget), None);
            assert_eq!(out, [1]);
        }
    }

    #[test]
    fn numbers_near_the_end_of_the_space_are_reported() {
        let received = BTreeSet::from([varint::MAX - 200, varint::MAX - 1, varint::MAX]);
        check(&received, varint::MAX - 300, 100);
        check(&BTreeSet::from([0]), 0, 100);
    }

    #[test]
    fn hostile_acks_are_refused() {
        // path 0, largest 5, delay 0, then: no segment; empty segment; seven packets below 5 + 1; bitmap beyond; largest missing; truncated.
        for tail in
            [&[0][..], &[1, 0], &[1, 2, 7, 0], &[1, 2, 1, 0x3f], &[1, 7 << 1 | 1, 1], &[1, 3, 0], &[1, 2, 0, 1], &[2, 2, 1, 0], &[1, 2, 1]]
        {
            let bytes = [&[0x04, 0, 5, 0], tail].concat();
            assert!(Frame::parse(&mut Reader::new(&bytes)).is_err(), "{tail:?}");
        }
    }

    proptest! {
        #[test]
        fn any_window_within_any_budget_is_told_truly(
            base in prop_oneof![0u64..200, 1u64 << 32..(1 << 32) + 200],
            gaps in proptest::collection::vec((1u64..100, 0u64..12), 1..120),
            from in 0u64..400,
            budget in 64usize..600,
            ecn in any::<Option<(u32, u32, u32)>>(),
        ) {
            let mut received = BTreeSet::new();
            let mut at = base;
            for (i, (missing, arrived)) in gaps.into_iter().enumerate() {
                at += if i % 3 == 0 { missing } else { missing % 4 + 1 };
                received.extend(at..=at + arrived);
                at += arrived + 1;
            }
            let largest = *received.last().unwrap();
            check(&received, (base + from).min(largest), budget);
            let ecn = ecn.map(|(a, b, c)| EcnCounts { ect0: a.into(), ect1: b.into(), ce: c.into() });
            let mut out = Vec::new();
            let head = AckHead { largest: PacketNumber(largest), ecn, ..HEAD };
            emit(&mut out, &head, words(&received), PacketNumber(largest), budget).unwrap();
            prop_assert_eq!(view(&out).ecn(), ecn);
        }
    }
}
