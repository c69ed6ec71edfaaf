//! The model of the path that `bbr` keeps (draft-ietf-ccwg-bbr-06 §5.5): bandwidth, minimum RTT, and the bounds that loss puts on rate and flight.

use super::bbr_filters::MaxBw;
use crate::units::{Duration, Time};

/// §5.5.10.2: more loss than this in a flight is too much.
const LOSS_THRESH: f64 = 0.02;
/// §5.5.10: no bound falls faster than CUBIC's window does.
pub(super) const BETA: f64 = 0.7;
/// §5.3.3.9: share of the long-term bound that is left to others.
const HEADROOM: f64 = 0.15;
/// §5.3.4: a minimum RTT older than this is looked for again.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// §5.5.7.2.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);

/// What one acknowledgement says: the draft's RS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Time,
    /// Bytes/s, 0 if none.
    pub(super) rate: f64,
    /// Bytes delivered in the interval of the sample.
    pub(super) delivered: f64,
    /// Bytes newly acknowledged.
    pub(super) acked: f64,
    /// Bytes lost since the newest acknowledged packet left.
    pub(super) lost: f64,
    /// Bytes in flight when it left.
    pub(super) tx_in_flight: f64,
    /// Bytes in flight now.
    pub(super) in_flight: f64,
    pub(super) is_app_limited: bool,
}

impl Sample {
    /// §5.5.10.2: IsInflightTooHigh.
    pub(super) fn is_flight_too_high(&self) -> bool {
        self.lost > self.tx_in_flight * LOSS_THRESH
    }
}

/// §5.5.10.2: the flight at which loss crossed the threshold within the `size` bytes lost last, `None` if it did not.
pub(super) fn flight_at_loss(tx_in_flight: f64, lost: f64, size: f64) -> Option<f64> {
    if lost <= tx_in_flight * LOSS_THRESH {
        return None;
    }
    let (before, lost_before) = (tx_in_flight - size, lost - size);
    let prefix = (LOSS_THRESH * before - lost_before) / (1.0 - LOSS_THRESH);
    Some((before + prefix).max(0.0))
}

/// The model. Rates in bytes/s, volumes in bytes; infinite: no bound.
#[derive(Debug)]
pub(super) struct PathModel {
    max_bw: MaxBw,
    pub(super) bw_shortterm: f64,
    pub(super) inflight_shortterm: f64,
    pub(super) inflight_longterm: f64,
    bw_latest: f64,
    pub(super) inflight_latest: f64,
    is_loss_in_round: bool,
    loss_round_end: u64,
    pub(super) is_loss_round_start: bool,
    /// Bytes lost so far, spurious ones taken back.
    pub(super) lost: u64,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    probe_rtt_min: Option<Duration>,
    probe_rtt_min_at: Time,
    pub(super) is_probe_rtt_expired: bool,
}

impl PathModel {
    pub(super) fn new(now: Time) -> Self {
        Self {
            max_bw: MaxBw::default(),
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            is_loss_in_round: false,
            loss_round_end: 0,
            is_loss_round_start: false,
            lost: 0,
            min_rtt: None,
            min_rtt_at: now,
            probe_rtt_min: None,
            probe_rtt_min_at: now,
            is_probe_rtt_expired: false,
        }
    }

    // ---- what it says

    pub(super) fn max_bw(&self) -> f64 {
        self.max_bw.get()
    }

    /// §5.5.10.3: BoundBWForModel.
    pub(super) fn bw(&self) -> f64 {
        self.max_bw().min(self.bw_shortterm)
    }

    /// Bandwidth-delay product; `None` before anything was measured.
    pub(super) fn bdp(&self) -> Option<f64> {
        self.min_rtt.filter(|_| self.bw() > 0.0).map(|rtt| self.bw() * rtt.as_secs_f64())
    }

    /// The same of the long-term bandwidth.
    pub(super) fn max_bdp(&self) -> Option<f64> {
        self.min_rtt.filter(|_| self.max_bw() > 0.0).map(|rtt| self.max_bw() * rtt.as_secs_f64())
    }

    /// §5.3.3.9: InflightWithHeadroom, without its floor.
    pub(super) fn with_headroom(&self, datagram: f64) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        self.inflight_longterm - (HEADROOM * self.inflight_longterm).max(datagram)
    }

    // ---- bandwidth and loss (§5.5.5, §5.5.10.3)

    pub(super) fn update_latest(&mut self, s: &Sample, newest_offset: u64, sent: u64) {
        self.bw_latest = self.bw_latest.max(s.rate);
        self.inflight_latest = self.inflight_latest.max(s.delivered);
        self.is_loss_round_start = newest_offset > self.loss_round_end;
        if self.is_loss_round_start {
            self.loss_round_end = sent;
        }
    }

    /// §5.5.4: a sample limited by the application counts only where it shows more.
    pub(super) fn update_max_bw(&mut self, s: &Sample) {
        if s.rate > 0.0 && (s.rate >= self.max_bw() || !s.is_app_limited) {
            self.max_bw.update(s.rate);
        }
    }

    pub(super) fn advance_max_bw(&mut self) {
        self.max_bw.advance();
    }

    /// Once per round with loss: down towards what was delivered, unless it is probing, when the long-term bound answers.
    pub(super) fn update_congestion(&mut self, is_probing: bool, cwnd: f64) {
        if !self.is_loss_round_start {
            return;
        }
        if self.is_loss_in_round && !is_probing {
            let bw = if self.bw_shortterm.is_finite() { self.bw_shortterm } else { self.max_bw() };
            let inflight = if self.inflight_shortterm.is_finite() { self.inflight_shortterm } else { cwnd };
            self.bw_shortterm = self.bw_latest.max(BETA * bw);
            self.inflight_shortterm = self.inflight_latest.max(BETA * inflight);
        }
        self.is_loss_in_round = false;
    }

    pub(super) fn advance_latest(&mut self, s: &Sample) {
        if self.is_loss_round_start {
            self.bw_latest = s.rate;
            self.inflight_latest = s.delivered;
        }
    }

    pub(super) fn on_loss(&mut self, bytes: u64, sent: u64) {
        self.lost += bytes;
        if !self.is_loss_in_round {
            self.loss_round_end = sent;
        }
        self.is_loss_in_round = true;
    }

    pub(super) fn reset_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    /// §5.5.11.2.
    pub(super) fn undo(&mut self, bw_shortterm: f64, inflight_shortterm: f64, inflight_longterm: f64) {
        self.is_loss_in_round = false;
        self.bw_shortterm = self.bw_shortterm.max(bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(inflight_longterm);
    }

    // ---- minimum RTT (§5.3.4.3)

    pub(super) fn update_min_rtt(&mut self, now: Time, rtt: Option<Duration>) {
        self.is_probe_rtt_expired = now > self.probe_rtt_min_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (self.is_probe_rtt_expired || self.probe_rtt_min.is_none_or(|min| rtt < min))
        {
            self.probe_rtt_min = Some(rtt);
            self.probe_rtt_min_at = now;
        }
        let is_expired = now > self.min_rtt_at + MIN_RTT_FILTER;
        if let Some(min) = self.probe_rtt_min
            && (is_expired || self.min_rtt.is_none_or(|m| min < m))
        {
            self.min_rtt = Some(min);
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    pub(super) fn schedule_probe_rtt(&mut self, now: Time) {
        self.probe_rtt_min_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64) -> Sample {
        Sample {
            now: Time::ZERO,
            rate,
            delivered: rate * 0.02,
            acked: 0.0,
            lost: 0.0,
            tx_in_flight: 0.0,
            in_flight: 0.0,
            is_app_limited: false,
        }
    }

    /// One round per call: sent up to `n`, all of it acknowledged.
    fn round(p: &mut PathModel, n: u64, rate: f64, lost: u64, is_probing: bool) {
        if lost > 0 {
            p.on_loss(lost, n * 1000 - 1);
        }
        p.update_latest(&sample(rate), n * 1000, n * 1000);
        p.update_max_bw(&sample(rate));
        p.update_congestion(is_probing, 30_000.0);
        p.advance_latest(&sample(rate));
    }

    #[test]
    fn loss_takes_the_rate_to_what_is_delivered_and_by_at_most_three_tenths_a_round() {
        let mut p = PathModel::new(Time::ZERO);
        round(&mut p, 1, 1e6, 0, false);
        assert_eq!(p.bw(), 1e6);
        round(&mut p, 2, 1e6, 0, false);
        round(&mut p, 3, 0.3e6, 10, false);
        round(&mut p, 4, 0.3e6, 10, false);
        assert!((p.bw() - 0.7e6).abs() < 1.0, "{}", p.bw());
        for n in 5..9 {
            round(&mut p, n, 0.3e6, 10, false);
        }
        assert_eq!(p.bw(), 0.3e6);
        assert!(p.inflight_shortterm >= 0.3e6 * 0.02 && p.inflight_shortterm < 30_000.0 * BETA);
        p.reset_short_term();
        assert_eq!(p.bw(), 1e6);
    }

    #[test]
    fn loss_while_probing_leaves_the_short_term_bounds_alone() {
        let mut p = PathModel::new(Time::ZERO);
        for n in 1..6 {
            round(&mut p, n, 1e6, 10, true);
        }
        assert!(p.bw_shortterm.is_infinite() && p.inflight_shortterm.is_infinite());
    }

    #[test]
    fn the_flight_at_loss_is_where_two_per_cent_were_crossed() {
        assert_eq!(flight_at_loss(100_000.0, 2000.0, 1000.0), None);
        let at = flight_at_loss(100_000.0, 10_000.0, 10_000.0).expect("too much");
        // Of the first `at` bytes 2 % were lost.
        assert!(((at - 90_000.0) / at - LOSS_THRESH).abs() < 1e-9, "{at}");
    }

    #[test]
    fn two_cycles_of_bandwidth_are_remembered() {
        let mut p = PathModel::new(Time::ZERO);
        round(&mut p, 1, 2e6, 0, false);
        p.advance_max_bw();
        round(&mut p, 2, 1e6, 0, false);
        assert_eq!(p.bw(), 2e6);
        p.advance_max_bw();
        assert_eq!(p.bw(), 1e6);
    }

    #[test]
    fn a_sample_limited_by_the_application_counts_only_where_it_shows_more() {
        let mut p = PathModel::new(Time::ZERO);
        for (rate, is_app_limited, bw) in [(1e6, false, 1e6), (0.5e6, true, 1e6), (1.5e6, true, 1.5e6)] {
            p.update_max_bw(&Sample { is_app_limited, ..sample(rate) });
            assert_eq!(p.max_bw(), bw);
        }
    }
}
