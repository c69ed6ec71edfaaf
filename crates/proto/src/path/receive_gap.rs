//! Data that cease in mid-flow. Behind a NAT that forgot, a receiver does not know that it has another address: silence is all that it notices. It then
//! shows itself with a packet of the size that every path carries, and so gives the far end three times as many bytes for its new address (P19),
//! instead of the few that an acknowledgement is worth. Where nothing has moved the packet is not needed: such packets are 1 % of the bytes that came
//! at most (P8).

use super::BASE_DATAGRAM;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Bytes that came for each byte of such packets.
const SHARE: u64 = 100;
/// Bytes that a packet has to be paid with.
const PRICE: u64 = SHARE * BASE_DATAGRAM as u64;
/// Packets in one gap at most; after that the path's own probes are enough.
const MOST: u32 = 3;
/// Smaller packets are no data of a flow that goes on.
const DATA: u64 = BASE_DATAGRAM as u64 / 2;
/// No silence that is shorter than this, than an eighth of the round trip, or than so many times the usual pause is one.
const SHORTEST: Duration = Duration::from_millis(2);
const PAUSES: u32 = 4;

/// See the file's heading.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveGap {
    /// When data last came.
    last: Option<Time>,
    /// The usual pause between packets with data.
    pause: Duration,
    /// Bytes that came and were not spent.
    paid: u64,
    check_at: Option<Time>,
    is_due: bool,
    /// Packets in the present gap.
    shown: u32,
}

impl ReceiveGap {
    fn patience(&self, rtt: Duration) -> Duration {
        (rtt / 8).max(self.pause * PAUSES).max(SHORTEST)
    }

    /// A packet of `bytes` came.
    pub(super) fn on_received(&mut self, now: Time, bytes: u64, rtt: Duration) {
        if bytes < DATA || switch::is_off(Mechanism::GapProbes) {
            return;
        }
        if let Some(last) = self.last.replace(now) {
            // A gap is no usual pause.
            self.pause = (self.pause * 7 + now.since(last).min(self.patience(rtt))) / 8;
        }
        self.paid = (self.paid + bytes).min(u64::from(MOST) * PRICE);
        (self.shown, self.is_due) = (0, false);
        if self.paid >= PRICE && self.check_at.is_none() {
            self.check_at = Some(now + self.patience(rtt));
        }
    }

    /// When silence may have become a gap. Not moved by each packet that comes, but when it has passed.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.check_at
    }

    /// `poll_timeout` passed.
    pub(super) fn handle_timeout(&mut self, now: Time, rtt: Duration) {
        let (Some(_), Some(last)) = (self.check_at.take_if(|t| *t <= now), self.last) else { return };
        let due = last + self.patience(rtt) * (1 << self.shown);
        if now < due {
            self.check_at = Some(due);
        } else {
            self.is_due = true;
        }
    }

    /// [`poll`](Self::poll) may have something to say.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A packet should be sent now; `true` once for each. `is_wanted`: a reader waits for data.
    pub(super) fn poll(&mut self, rtt: Duration, is_wanted: bool) -> bool {
        if !core::mem::take(&mut self.is_due) || !is_wanted {
            return false;
        }
        self.paid = self.paid.saturating_sub(PRICE);
        self.shown += 1;
        if let Some(last) = self.last.filter(|_| self.shown < MOST && self.paid >= PRICE) {
            self.check_at = Some(last + self.patience(rtt) * (1 << self.shown));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(80);

    /// Packets that go out at each step of 1 ms until `end`, while data come each `every` ms until `last`.
    fn run(every: u64, last: u64, end: u64) -> Vec<u64> {
        let (mut gap, mut out) = (ReceiveGap::default(), Vec::new());
        for ms in 0..end {
            let now = Time::from_millis(ms);
            if ms <= last && ms % every == 0 {
                gap.on_received(now, 1400, RTT);
            }
            gap.handle_timeout(now, RTT);
            if gap.poll(RTT, true) {
                out.push(ms);
            }
        }
        out
    }

    #[test]
    fn silence_after_data_is_answered_three_times_and_steady_data_never() {
        assert_eq!(run(1, 1000, 5000), [1010, 1020, 1040], "an eighth of the round trip, then twice as long each time");
        assert_eq!(run(1, 5000, 5000), [0; 0]);
        assert_eq!(run(8, 5000, 6000), [5032, 5064, 5128], "four of the usual pauses");
    }

    #[test]
    fn what_was_received_pays_for_it() {
        assert_eq!(run(1, 50, 2000), [0; 0], "too little came");
        assert_eq!(run(1, 100, 2000).len(), 1);
        // Bursts of 10 packets, and pauses of 200 ms between them.
        let (mut gap, mut received, mut sent) = (ReceiveGap::default(), 0, 0);
        for ms in 0..20_000 {
            let now = Time::from_millis(ms);
            if ms % 200 < 10 {
                gap.on_received(now, 1400, RTT);
                received += 1400;
            }
            gap.handle_timeout(now, RTT);
            sent += u64::from(gap.poll(RTT, true)) * u64::from(BASE_DATAGRAM);
        }
        assert!(sent > 0 && sent * SHARE <= received, "{sent} for {received}");
    }

    #[test]
    fn a_receiver_that_waits_for_nothing_sends_no_gap_probe() {
        let mut gap = ReceiveGap::default();
        for ms in 0..200 {
            gap.on_received(Time::from_millis(ms), 1400, RTT);
        }
        gap.handle_timeout(Time::from_millis(100), RTT);
        gap.handle_timeout(Time::from_millis(250), RTT);
        assert!(!gap.poll(RTT, false) && !gap.poll(RTT, true));
        assert_eq!(gap.poll_timeout(), None);
    }
}
