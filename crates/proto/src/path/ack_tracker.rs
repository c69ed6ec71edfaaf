//! What arrived on a path, and when that is reported (P8): received numbers as a sliding bitmap that is also the replay window (P3).

use super::bitmap::Bitmap;
use super::ecn;
use crate::ids::{PacketNumber, PathId};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Ecn, Time};
use crate::wire::ack::{self, AckHead, EcnCounts};

/// Numbers that can be told apart behind the largest received (P3: at least 16384).
pub const REPLAY_WINDOW: u64 = 65_536;
/// Acknowledgements in which each arrival rides at least (P8 asks for 8).
const REPORTS: usize = 16;
/// On short paths an acknowledgement may wait this long, although it is more than a quarter of the RTT: else each packet would have its own.
pub(super) const MIN_PATIENCE: Duration = Duration::from_millis(2);
/// Bytes of headers around an ACK frame: IP, UDP, packet header, tag.
const ACK_OVERHEAD: u64 = 28 + 9 + 16;
/// Bytes of a small ACK frame with its overhead, for scheduling.
const ACK_COST: u64 = ACK_OVERHEAD + 32;
/// Unspent bytes of acknowledgement kept for a long report.
const MAX_SAVED: u64 = 4096;
/// Smallest budget of an ACK frame (`ack::emit` always finds room in 64 bytes).
const MIN_BUDGET: usize = 64;

/// How acknowledgements are scheduled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AckConfig {
    /// Bulk: at most one per such interval. Default 1 ms (P8).
    pub interval: Duration,
    /// Bulk: at most one per so many packets, if they come faster than the interval. Default 32 (P8).
    pub packets: u32,
    /// No acknowledgement waits longer than this, nor than a quarter of the RTT (or 2 ms, where that is more). Default 25 ms.
    pub max_delay: Duration,
    /// Bytes forward for each byte of acknowledgement. Default 50: 2 % (P8).
    pub forward_per_reverse: u64,
}

impl Default for AckConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(1), packets: 32, max_delay: Duration::from_millis(25), forward_per_reverse: 50 }
    }
}

/// What an emitted ACK tells, once it is itself acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Everything below this number is then known to the peer.
    pub below: PacketNumber,
}

/// The receiving side of a path.
#[derive(Clone, Debug)]
pub struct AckTracker {
    config: AckConfig,
    received: Bitmap,
    largest: Option<u64>,
    largest_at: Time,
    ecn: EcnCounts,
    sees_ecn: bool,
    is_marked: bool,
    /// Everything below was reported, and the peer confirmed it: reported no more (ACK of ACK).
    floor: u64,
    /// Lowest arrival since the last ACK, and the same for the last `REPORTS` ACKs: together they say how far back an ACK must reach.
    lowest_new: u64,
    history: [u64; REPORTS],
    history_at: usize,
    /// Ack-eliciting packets not yet reported.
    pending: u32,
    first_pending: Time,
    bytes_since: u64,
    /// Bytes of acknowledgements that the forward bytes so far allow.
    paid: u64,
    last_ack: Option<Time>,
    last_full: Option<Time>,
    last_eliciting: Option<Time>,
    is_urgent: bool,
    is_immediate: bool,
    replayed: u64,
}

fn expand(expected: u64, low: u32) -> PacketNumber {
    if switch::is_off(Mechanism::NumberExpansion) {
        return PacketNumber(u64::from(low));
    }
    let candidate = (expected & !0xffff_ffff) | u64::from(low);
    let half = 1 << 31;
    PacketNumber(if candidate + half <= expected {
        candidate + (1 << 32)
    } else if candidate > expected + half && candidate >= 1 << 32 {
        candidate - (1 << 32)
    } else {
        candidate
    })
}

impl AckTracker {
    /// Nothing received yet.
    pub fn new(config: AckConfig) -> Self {
        Self {
            config,
            received: Bitmap::new(),
            largest: None,
            largest_at: Time::ZERO,
            ecn: EcnCounts::default(),
            sees_ecn: false,
            is_marked: false,
            floor: 0,
            lowest_new: u64::MAX,
            history: [u64::MAX; REPORTS],
            history_at: 0,
            pending: 0,
            first_pending: Time::ZERO,
            bytes_since: 0,
            paid: 0,
            last_ack: None,
            last_full: None,
            last_eliciting: None,
            is_urgent: false,
            is_immediate: false,
            replayed: 0,
        }
    }

    /// The full number of a packet that shows its low 32 bits: the one nearest to what is expected next.
    pub fn expand(&self, low: u32) -> PacketNumber {
        expand(self.largest.map_or(switch::first_number(), |l| l + 1), low)
    }

    /// The same for a path on which nothing has come yet.
    pub fn expand_first(low: u32) -> PacketNumber {
        expand(switch::first_number(), low)
    }

    /// Received before, or too old to tell: must not be processed.
    pub fn is_duplicate(&self, pn: PacketNumber) -> bool {
        let lowest = self.largest.map_or(0, |l| l.saturating_sub(REPLAY_WINDOW - 64));
        pn.0 < lowest || self.received.contains(pn.0)
    }

    /// A duplicate was dropped.
    pub fn on_duplicate(&mut self) {
        self.replayed += 1;
    }

    /// Highest number received.
    pub fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Duplicates dropped so far.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// In latency mode a gap is reported at once.
    pub fn set_immediate(&mut self, on: bool) {
        self.is_immediate = on;
    }

    /// The next ACK must not wait.
    pub fn demand(&mut self) {
        self.is_urgent = true;
    }

    /// A packet arrived, was authentic and new, and was offered to its flow (P9).
    pub fn on_received(&mut self, now: Time, pn: PacketNumber, ecn: Ecn, bytes: u64, is_ack_eliciting: bool) {
        let n = pn.0;
        let expected = self.largest.map_or(0, |l| l + 1);
        if self.largest.is_none_or(|l| n > l) {
            if n > expected + REPLAY_WINDOW {
                // A jump over more than the window: nothing of it can be kept. Only an authentic peer can cause it.
                self.received = Bitmap::new();
                self.floor = n;
            }
            self.largest = Some(n);
            self.largest_at = now;
            let start = n.saturating_sub(REPLAY_WINDOW);
            self.received.trim_below(start);
            self.floor = self.floor.max(self.received.start());
        }
        if !self.received.insert(n) {
            self.replayed += 1;
            return;
        }
        self.sees_ecn |= ecn != Ecn::NotEct;
        // RFC 9000 §13.2.1 asks for an ACK at once; the first mark of a run is enough.
        self.is_urgent |= ecn == Ecn::Ce && is_ack_eliciting && !self.is_marked;
        self.is_marked = ecn == Ecn::Ce;
        ecn::count(&mut self.ecn, ecn);
        self.lowest_new = self.lowest_new.min(n);
        // Late arrivals below the floor must still be told.
        self.floor = self.floor.min(n);
        self.bytes_since += bytes;
        if is_ack_eliciting {
            if self.pending == 0 {
                self.first_pending = now;
            }
            self.pending += 1;
            if self.is_immediate && n != expected {
                self.is_urgent = true;
            }
        }
    }

    /// When the next ACK is due; `None` if nothing waits for one.
    pub fn due(&self, rtt: Duration) -> Option<Time> {
        if self.pending == 0 {
            return None;
        }
        if self.is_urgent || self.pending >= self.config.packets {
            return Some(self.first_pending);
        }
        let patience = (rtt / 4).max(MIN_PATIENCE).min(self.config.max_delay);
        let latest = self.first_pending + patience;
        let has_paid = self.bytes_since >= ACK_COST * self.config.forward_per_reverse;
        let soon = self.last_ack.map_or(self.first_pending, |t| (t + self.config.interval).max(self.first_pending));
        Some(if has_paid { soon.min(latest) } else { latest })
    }

    /// When the next ACK comes if nothing makes it hurry.
    pub fn earliest_unhurried(&self) -> Time {
        self.last_ack.map_or(Time::ZERO, |t| t + self.config.max_delay)
    }

    /// Appends an ACK frame of at most `max_len` bytes. `None`, and nothing written, if nothing was received or it does not fit.
    pub fn write(&mut self, now: Time, path: PathId, rtt: Duration, max_len: usize, out: &mut Vec<u8>) -> Option<Reported> {
        let largest = self.largest?;
        // Each arrival rides in many ACKs; a full report, as far back as the peer may not know, follows every quarter of an RTT.
        let is_full = self.last_full.is_none_or(|t| now.since(t) >= rtt / 4);
        let recent = self.history.iter().fold(self.lowest_new, |a, &b| a.min(b)).min(largest);
        let mut from = if is_full { self.floor.min(recent) } else { recent.max(self.floor) };
        if switch::is_off(Mechanism::AckRepetition) {
            from = self.lowest_new.min(largest);
        }
        // What the forward bytes have paid for, saved up for the long reports.
        self.paid = (self.paid + self.bytes_since / self.config.forward_per_reverse).min(MAX_SAVED);
        let paid = self.paid.saturating_sub(ACK_OVERHEAD) as usize;
        let share = if is_full { paid } else { paid / 2 };
        let budget = share.max(MIN_BUDGET * 2).min(max_len);
        let start = out.len();
        let head =
            AckHead { path, largest: PacketNumber(largest), delay: now.since(self.largest_at), ecn: self.sees_ecn.then_some(self.ecn) };
        let lowest = ack::emit(out, &head, |i| self.received.word(i), PacketNumber(from), budget)?;
        if is_full {
            self.last_full = Some(now);
        }
        self.paid = self.paid.saturating_sub((out.len() - start) as u64 + ACK_OVERHEAD);
        self.history[self.history_at] = self.lowest_new;
        self.history_at = (self.history_at + 1) % REPORTS;
        self.lowest_new = u64::MAX;
        self.pending = 0;
        self.bytes_since = 0;
        self.is_urgent = false;
        self.last_ack = Some(now);
        // A report that begins above the floor leaves something unsaid: its acknowledgement then forgets nothing.
        let below = if lowest.0 <= self.floor { largest + 1 } else { self.floor };
        Some(Reported { below: PacketNumber(below) })
    }

    /// An ACK-only packet should ask for an acknowledgement itself, about once per RTT, so that old numbers can be forgotten (P8).
    pub fn wants_acknowledgement(&self, now: Time, rtt: Duration) -> bool {
        let Some(largest) = self.largest else { return false };
        let is_worth_it = largest + 1 >= self.floor + 64;
        is_worth_it && self.last_eliciting.is_none_or(|t| now.since(t) >= rtt.max(Duration::from_millis(10)))
    }

    /// The packet with the latest ACK was ack-eliciting.
    pub fn on_eliciting_ack(&mut self, now: Time) {
        self.last_eliciting = Some(now);
    }

    /// ACK of ACK: the peer knows everything below this number.
    pub fn on_ack_of_ack(&mut self, below: PacketNumber) {
        let end = self.largest.map_or(0, |l| l + 1);
        // What arrived late since then lowered the floor or is about to be told for the first time: keep it.
        let keep = self.history.iter().fold(self.lowest_new, |a, &b| a.min(b));
        self.floor = self.floor.max(below.0.min(end).min(keep));
    }

    /// Lowest number that is still reported.
    pub fn floor(&self) -> PacketNumber {
        PacketNumber(self.floor)
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.received.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Frame;

    const RTT: Duration = Duration::from_millis(100);

    fn ranges(bytes: &[u8]) -> Vec<(u64, u64)> {
        match Frame::parse(&mut crate::wire::varint::Reader::new(bytes)) {
            Ok(Some(Frame::Ack(view))) => view.ranges().map(|r| (r.smallest.0, r.largest.0)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn receive(t: &mut AckTracker, at: u64, pn: u64) {
        t.on_received(Time::from_micros(at), PacketNumber(pn), Ecn::NotEct, 1400, true);
    }

    #[test]
    fn an_arrival_rides_in_at_least_eight_acknowledgements() {
        let mut t = AckTracker::new(AckConfig::default());
        receive(&mut t, 0, 0);
        let mut out = Vec::new();
        t.write(Time::ZERO, PathId(0), RTT, 1200, &mut out);
        receive(&mut t, 10, 5);
        for i in 0..8 {
            out.clear();
            receive(&mut t, 20 + i, 100 + i);
            t.write(Time::from_micros(30 + i), PathId(0), RTT, 1200, &mut out);
            assert!(ranges(&out).iter().any(|&(a, b)| (a..=b).contains(&5)), "ACK {i} does not report it");
        }
    }

    #[test]
    fn bulk_is_acknowledged_once_per_32_packets_or_millisecond() {
        for (gap_us, per_ack) in [(10, 32), (100, 10)] {
            let mut t = AckTracker::new(AckConfig::default());
            let (mut acks, mut out) = (0u64, Vec::new());
            for i in 0..10_000u64 {
                receive(&mut t, i * gap_us, i);
                if t.due(RTT).is_some_and(|d| d <= Time::from_micros(i * gap_us)) {
                    acks += 1;
                    out.clear();
                    t.write(Time::from_micros(i * gap_us), PathId(0), RTT, 1200, &mut out);
                }
            }
            let mean = (10_000 + acks / 2) / acks;
            assert!((per_ack..=per_ack + 1).contains(&mean), "{gap_us} us apart: {mean} packets per ACK");
        }
    }

    #[test]
    fn reverse_bytes_stay_within_two_percent_at_every_rate_and_loss() {
        for gap_us in [12, 120, 1200, 6000] {
            for loss_every in [u64::MAX, 10, 5, 3] {
                let mut t = AckTracker::new(AckConfig::default());
                let (mut reverse, mut forward, mut out) = (0, 0, Vec::new());
                for i in 0..20_000u64 {
                    let now = Time::from_micros(i * gap_us);
                    if i % loss_every == loss_every - 1 {
                        continue;
                    }
                    receive(&mut t, i * gap_us, i);
                    forward += 1428;
                    if t.due(RTT).is_some_and(|d| d <= now) {
                        out.clear();
                        let r = t.write(now, PathId(0), RTT, 1200, &mut out).expect("written");
                        reverse += out.len() as u64 + ACK_OVERHEAD;
                        if i % (100_000 / gap_us).max(1) < 32 {
                            t.on_ack_of_ack(r.below);
                        }
                    }
                }
                // Below one packet per 6 ms the delay bound wins over the byte bound.
                let limit = if gap_us >= 6000 { 0.03 } else { 0.0201 };
                let share = reverse as f64 / forward as f64;
                assert!(share <= limit, "{gap_us} us apart, every {loss_every}th lost: {share:.4}");
            }
        }
    }

    #[test]
    fn acknowledged_acknowledgements_are_not_repeated_but_late_arrivals_are_told() {
        let mut t = AckTracker::new(AckConfig::default());
        let mut out = Vec::new();
        for i in (0..2000).filter(|&i| i != 700) {
            receive(&mut t, i, i);
        }
        let r = t.write(Time::from_millis(2), PathId(0), RTT, 1200, &mut out).expect("written");
        assert_eq!(r.below, PacketNumber(2000));
        for i in 2000..2200 {
            receive(&mut t, 3000 + i, i);
            out.clear();
            t.write(Time::from_micros(3000 + i), PathId(0), RTT, 1200, &mut out);
        }
        t.on_ack_of_ack(r.below);
        assert_eq!(t.floor(), PacketNumber(2000));
        receive(&mut t, 9000, 700);
        assert_eq!(t.floor(), PacketNumber(700));
        out.clear();
        t.write(Time::from_millis(200), PathId(0), RTT, 1200, &mut out);
        assert!(ranges(&out).iter().any(|&(a, b)| (a..=b).contains(&700)));
    }

    #[test]
    fn a_gap_is_reported_at_once_only_when_latency_matters() {
        for immediate in [false, true] {
            let mut t = AckTracker::new(AckConfig::default());
            t.set_immediate(immediate);
            let mut out = Vec::new();
            receive(&mut t, 0, 0);
            t.write(Time::ZERO, PathId(0), RTT, 1200, &mut out);
            receive(&mut t, 100, 2);
            assert_eq!(t.due(RTT) == Some(Time::from_micros(100)), immediate);
        }
    }

    #[test]
    fn replays_and_numbers_beyond_the_window_are_duplicates() {
        let mut t = AckTracker::new(AckConfig::default());
        receive(&mut t, 0, 5);
        assert!(t.is_duplicate(PacketNumber(5)) && !t.is_duplicate(PacketNumber(4)));
        receive(&mut t, 1, 300_000);
        assert!(t.is_duplicate(PacketNumber(6)));
        assert!(!t.is_duplicate(PacketNumber(300_000 - 16_384)));
    }

    #[test]
    fn low_bits_expand_to_the_nearest_number() {
        let mut t = AckTracker::new(AckConfig::default());
        assert_eq!(t.expand(7), PacketNumber(7));
        receive(&mut t, 0, 0xffff_fff0);
        assert_eq!(t.expand(3), PacketNumber(0x1_0000_0003));
        assert_eq!(t.expand(0xffff_ff00), PacketNumber(0xffff_ff00));
        receive(&mut t, 1, 0x1_0000_0003);
        assert_eq!(t.expand(0xffff_fff1), PacketNumber(0xffff_fff1));
        assert_eq!(t.expand(9), PacketNumber(0x1_0000_0009));
    }
}
