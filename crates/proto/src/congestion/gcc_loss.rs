//! The loss part of `gcc` (draft-ietf-rmcat-gcc-02 §6): loss above 10 % lowers the rate, below 2 % it may grow, between them it stands.

use crate::units::{Duration, Time};

/// §6: above this share lost, the rate falls by half of it,
const MUCH: f64 = 0.1;
/// below this it grows,
const LITTLE: f64 = 0.02;
/// by so much.
const GROWTH: f64 = 1.05;
/// A receiver report comes per RTT and this: the response time of §5.5. The draft leaves the reports to RTCP.
const REPORT: Duration = Duration::from_millis(100);
/// Packets whose share is taken: of fewer, five per cent are often a tenth by chance.
const PACKETS: u64 = 100;
/// A slow flow reports so many after so long.
const SLOW: (u64, Duration) = (20, Duration::from_secs(2));

/// What the other part allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayPart {
    /// A_hat, bytes per second.
    pub(super) rate: f64,
    /// It still looks for what the path carries.
    pub(super) is_starting: bool,
}

/// As_hat.
#[derive(Debug)]
pub(super) struct LossControl {
    /// Bytes per second; infinite while no loss limits the rate.
    pub(super) rate: f64,
    /// When the present report began, and the bytes acknowledged and lost on the path by then.
    report: Option<(Time, u64, u64)>,
    packets: u64,
}

impl LossControl {
    pub(super) fn new() -> Self {
        Self { rate: f64::INFINITY, report: None, packets: 0 }
    }

    /// Packets were acknowledged; bytes acknowledged and lost on the path so far. `true`: the rate was lowered.
    pub(super) fn on_ack(&mut self, now: Time, rtt: Duration, packets: u64, (acked, lost): (u64, u64), delay: DelayPart) -> bool {
        self.packets += packets;
        let Some((since, acked_before, lost_before)) = self.report else {
            self.report = Some((now, acked, lost));
            return false;
        };
        let elapsed = now.since(since);
        let is_slow = self.packets >= SLOW.0 && elapsed >= SLOW.1;
        if elapsed < REPORT + rtt || (self.packets < PACKETS && !is_slow) {
            return false;
        }
        self.report = Some((now, acked, lost));
        self.packets = 0;
        // Losses of before that turned out to be none may take the sum below what it was.
        let (acked, lost) = (acked.saturating_sub(acked_before) as f64, lost.saturating_sub(lost_before) as f64);
        self.on_report(lost / (acked + lost).max(1.0), delay)
    }

    fn on_report(&mut self, share: f64, delay: DelayPart) -> bool {
        if share > MUCH {
            self.rate = (self.rate.min(delay.rate) * (1.0 - 0.5 * share)).max(super::gcc_rate::LEAST);
        } else if share >= LITTLE {
            // The draft's As_hat stands from the beginning, at the first rate. Here loss of the path's own does not keep the start from finding one.
            self.rate = if delay.is_starting { self.rate } else { self.rate.min(delay.rate) };
        } else {
            self.rate = if self.rate < delay.rate { self.rate * GROWTH } else { f64::INFINITY };
        }
        share > MUCH
    }

    /// Nothing arrives any more: what was reported is of another path.
    pub(super) fn on_silence(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 250_000.0;

    const DELAY: DelayPart = DelayPart { rate: RATE, is_starting: false };

    fn after(share: f64) -> f64 {
        let mut control = LossControl::new();
        control.rate = RATE;
        control.on_report(share, DelayPart { rate: 2.0 * RATE, ..DELAY });
        control.rate / RATE
    }

    #[test]
    fn much_loss_lowers_the_rate_by_half_of_it_little_raises_it_and_between_it_stands() {
        assert_eq!([0.0, 0.019, 0.02, 0.05, 0.1, 0.11, 0.5].map(after), [1.05, 1.05, 1.0, 1.0, 1.0, 1.0 - 0.055, 0.75]);
    }

    #[test]
    fn a_rate_that_loses_two_per_cent_is_not_raised_and_one_without_loss_is_free() {
        let mut control = LossControl::new();
        assert!(!control.on_report(0.0, DELAY));
        assert!(control.rate.is_infinite());
        // Loss of the path's own, while the delay part looks for a rate: nothing is known to hold.
        assert!(!control.on_report(0.05, DelayPart { is_starting: true, ..DELAY }));
        assert!(control.rate.is_infinite());
        assert!(!control.on_report(0.05, DELAY));
        assert_eq!(control.rate, RATE);
        assert!(!control.on_report(0.05, DelayPart { rate: 1.4 * RATE, ..DELAY }));
        assert_eq!(control.rate, RATE);
        assert!(control.on_report(0.2, DELAY));
        assert_eq!(control.rate, 0.9 * RATE);
        // It grows until the delay part limits, and limits no more.
        (0..5).for_each(|_| assert!(!control.on_report(0.0, DELAY)));
        assert!(control.rate.is_infinite());
    }

    #[test]
    fn a_report_covers_a_response_time_and_a_hundred_packets_or_two_seconds() {
        let rtt = Duration::from_millis(50);
        // Packets, each so many milliseconds, and reports in four seconds.
        for (packets, ms, expected) in [(20, 10, 26), (2, 10, 8), (1, 50, 2)] {
            let mut control = LossControl::new();
            let mut now = Time::from_millis(100);
            let (mut acked, mut lost, mut reports) = (0, 0, 0);
            for _ in 0..=4000 / ms {
                now += Duration::from_millis(ms);
                (acked, lost) = (acked + 800, lost + 200);
                reports += i32::from(control.on_ack(now, rtt, packets, (acked, lost), DELAY));
            }
            assert_eq!(reports, expected, "{packets} each {ms} ms");
            assert!((control.rate / RATE - 0.9f64.powi(reports)).abs() < 1e-9);
        }
    }
}
