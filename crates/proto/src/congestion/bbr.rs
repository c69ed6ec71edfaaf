//! `bbr`: BBR version 3, from the description in draft-ietf-ccwg-bbr-06. Section numbers are the draft's; all volumes in bytes, rates in bytes/s.
//!
//! The states and what moves between them live here, the model of path and loss in `bbr_path.rs`, the filters in `bbr_filters.rs`. ECN is not used.

use super::bbr_filters::{Departure, Departures, FullPipe, MaxFilter};
use super::bbr_path::{PathModel, Sample};
use super::loss_epoch::LossEpoch;
use super::{AckEvent, ControlState, Controller, Coupled, INITIAL_PACKETS, LossEvent, SentEvent, initial_packets};
use crate::units::{Bandwidth, Duration, Time};

/// §5.3.1.1: 4 ln 2.
const STARTUP_PACING_GAIN: f64 = 2.77;
/// §5.3.2; 1 / 2.89 in the drafts up to -03, 0.5 since.
const DRAIN_PACING_GAIN: f64 = 0.35;
/// §5.3.2: Drain ends after so many rounds, whatever is in flight.
const DRAIN_ROUNDS: u64 = 3;
const DEFAULT_CWND_GAIN: f64 = 2.0;
/// §5.3.3.5.
const UP_CWND_GAIN: f64 = 2.25;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
/// §5.6.2: pace below the bandwidth, on average.
const PACING_MARGIN: f64 = 0.01;
/// §5.6.4.3: packets.
const MIN_PIPE_CWND: f64 = 4.0;
/// §5.3.4.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// §5.3.1.3.
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// §5.3.3.8.2: rounds at most between two probes, beside Reno.
const RENO_ROUNDS: f64 = 63.0;
/// §5.3.3.8: seconds between two probes, and as many more at random.
const PROBE_WAIT: f64 = 2.0;
/// §5.5.9: rounds that extra_acked is remembered.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// §5.5.8.2: an acknowledgement comes per ms or per 32 packets (P8); what waits for it is in flight and in no queue.
const ACK_PACKETS: f64 = 32.0;
const ACK_DELAY: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrState {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl BbrState {
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// §5.3.3.9: accelerating; loss is answered by the long-term bound.
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// §5.6.1, table.
    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => 0.9,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
            Self::Up => 1.25,
        }
    }

    fn cwnd_gain(self) -> f64 {
        match self {
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}

/// §5.3.3.9: which phase of probing the acknowledgements that arrive now tell about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// §5.5.11.1: what a spurious loss goes back to.
#[derive(Clone, Copy, Debug)]
struct Before {
    cwnd: f64,
    bw_shortterm: f64,
    inflight_shortterm: f64,
    inflight_longterm: f64,
}

/// The BBR controller.
#[derive(Debug)]
pub(super) struct Bbr {
    datagram: f64,
    cwnd: f64,
    pacing_rate: f64,
    state: BbrState,
    path: PathModel,
    departures: Departures,
    losses: LossEpoch<Before>,
    /// State that a loss ended, for the case that it was spurious.
    undo_state: Option<BbrState>,
    pipe: FullPipe,
    /// §5.3.1.2: full_bw_reached, once in a connection.
    is_pipe_full: bool,

    /// Offset sent so far, and at the last start of a round.
    sent: u64,
    round_end: u64,
    round: u64,
    is_round_start: bool,
    /// Samples up to this offset do not show the path's rate, because we held back.
    limited_until: u64,
    last_sent_limited: bool,
    /// The window, not the pacer, kept packets back: in this round, in the one before.
    window_limited: [bool; 2],

    drain_start_round: u64,
    rounds_since_probe: u64,
    cycle_start: Time,
    probe_wait: Duration,
    ack_phase: AckPhase,
    /// Losses now are of packets sent while probing.
    is_probe_sample: bool,
    probe_up_rounds: u32,
    probe_up_acked: f64,
    probe_up_acked_per_inc: f64,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    loss_events: u32,

    probe_rtt_done: Option<Time>,
    is_probe_rtt_round_done: bool,
    is_idle_restart: bool,
    /// §5.6.4.4: the last window known to be good.
    prior_cwnd: f64,
    /// Persistent congestion; ends with the first packet sent later that arrives.
    timed_out_at: Option<Time>,

    extra_acked: MaxFilter,
    extra_acked_start: Time,
    extra_acked_delivered: f64,
}

impl Bbr {
    pub(super) fn new(datagram: u64, rtt: Duration, now: Time) -> Self {
        let datagram = datagram as f64;
        let cwnd = initial_packets(rtt) * datagram;
        Self {
            datagram,
            cwnd,
            pacing_rate: STARTUP_PACING_GAIN * cwnd / rtt.as_secs_f64().max(1e-3),
            state: BbrState::Startup,
            path: PathModel::new(now),
            departures: Departures::default(),
            losses: LossEpoch::new(),
            undo_state: None,
            pipe: FullPipe::default(),
            is_pipe_full: false,
            sent: 0,
            round_end: 0,
            round: 0,
            is_round_start: false,
            limited_until: 0,
            last_sent_limited: false,
            window_limited: [false; 2],
            drain_start_round: 0,
            rounds_since_probe: 0,
            cycle_start: now,
            probe_wait: Duration::ZERO,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            probe_up_rounds: 0,
            probe_up_acked: 0.0,
            probe_up_acked_per_inc: f64::INFINITY,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            loss_events: 0,
            probe_rtt_done: None,
            is_probe_rtt_round_done: false,
            is_idle_restart: false,
            prior_cwnd: 0.0,
            timed_out_at: None,
            extra_acked: MaxFilter::default(),
            extra_acked_start: now,
            extra_acked_delivered: 0.0,
        }
    }

    // ---- volumes (§5.6.4)

    fn min_pipe(&self) -> f64 {
        MIN_PIPE_CWND * self.datagram
    }

    fn bdp(&self, gain: f64) -> f64 {
        match self.path.bdp() {
            Some(bdp) => gain * bdp,
            None => INITIAL_PACKETS as f64 * self.datagram,
        }
    }

    /// §5.6.4.2: QuantizationBudget.
    fn quantized(&self, volume: f64) -> f64 {
        let up = if self.state == BbrState::Up { 2.0 * self.datagram } else { 0.0 };
        volume.max(self.offload_budget()).max(self.min_pipe()) + up
    }

    /// §5.5.8.2 and §5.6.3: a quantum, one ms of data, between two packets and 64 KB.
    fn offload_budget(&self) -> f64 {
        (self.pacing_rate * 1e-3).min(65_536.0).max(2.0 * self.datagram)
    }

    /// What is in flight when no queue stands: a BDP and what waits for its acknowledgement.
    fn is_drained(&self, in_flight: f64) -> bool {
        let waiting = (ACK_PACKETS * self.datagram).min(self.path.max_bw() * ACK_DELAY);
        in_flight <= self.quantized(self.path.max_bdp().unwrap_or(self.bdp(1.0)) + waiting)
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp(PROBE_RTT_CWND_GAIN).max(self.min_pipe())
    }

    /// §5.3.3.9: TargetInflight.
    fn target(&self) -> f64 {
        self.bdp(1.0).min(self.cwnd)
    }

    fn headroom(&self) -> f64 {
        self.path.with_headroom(self.datagram).max(self.min_pipe())
    }

    // ---- rounds

    fn start_round(&mut self) {
        self.round_end = self.sent;
    }

    /// §5.5.1: a packet was acknowledged that left after the round began.
    fn update_round(&mut self, newest_offset: u64) {
        self.is_round_start = newest_offset > self.round_end;
        if self.is_round_start {
            self.start_round();
            self.round += 1;
            self.rounds_since_probe += 1;
            self.window_limited = [false, self.window_limited[0]];
        }
    }

    fn is_window_limited(&self) -> bool {
        self.window_limited[0] || self.window_limited[1]
    }

    // ---- Startup and Drain (§5.3.1, §5.3.2)

    fn check_full_pipe(&mut self, s: &Sample) {
        if self.is_round_start && !s.is_app_limited && s.rate > 0.0 {
            self.pipe.on_round(s.rate);
            self.is_pipe_full |= self.pipe.is_full;
        }
    }

    fn check_startup_done(&mut self, s: &Sample) {
        if self.state != BbrState::Startup {
            return;
        }
        if self.path.is_loss_round_start {
            // §5.3.1.3: a round of loss in at least six places, of more than two per cent.
            if !self.is_pipe_full && self.loss_events >= STARTUP_FULL_LOSS_COUNT && s.is_flight_too_high() {
                self.undo_state = Some(BbrState::Startup);
                self.is_pipe_full = true;
                self.path.inflight_longterm = self.bdp(1.0).max(self.path.inflight_latest);
            }
            self.loss_events = 0;
        }
        if self.is_pipe_full {
            self.state = BbrState::Drain;
            self.drain_start_round = self.round;
        }
    }

    fn check_drain_done(&mut self, s: &Sample) {
        if self.state == BbrState::Drain && (self.is_drained(s.in_flight) || self.round > self.drain_start_round + DRAIN_ROUNDS) {
            self.start_down(s.now);
        }
    }

    // ---- ProbeBW (§5.3.3)

    fn start_down(&mut self, now: Time) {
        self.path.reset_signals();
        self.probe_up_acked_per_inc = f64::INFINITY;
        // §5.3.3.8: at random, so that flows do not probe in step. No randomness here: the time in nanoseconds is as good.
        let random = mix(now.as_nanos() ^ self.sent);
        self.rounds_since_probe = random & 1;
        self.probe_wait = Duration::from_secs_f64(PROBE_WAIT + (random >> 11) as f64 / (1u64 << 53) as f64);
        self.cycle_start = now;
        self.ack_phase = AckPhase::Stopping;
        self.start_round();
        self.state = BbrState::Down;
    }

    fn start_refill(&mut self) {
        self.path.reset_short_term();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0.0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = BbrState::Refill;
    }

    fn start_up(&mut self, rate: f64) {
        self.ack_phase = AckPhase::Starting;
        self.start_round();
        self.pipe.reset(rate);
        self.state = BbrState::Up;
        self.raise_slope();
    }

    /// §5.3.3.5: one segment in the first round, then two, four, …
    fn raise_slope(&mut self) {
        let growth = (1u64 << self.probe_up_rounds) as f64;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth).max(self.datagram);
    }

    fn probe_longterm_upward(&mut self, acked: f64) {
        if !self.is_window_limited() || self.cwnd < self.path.inflight_longterm {
            return;
        }
        self.probe_up_acked += acked;
        if self.probe_up_acked >= self.probe_up_acked_per_inc {
            let steps = (self.probe_up_acked / self.probe_up_acked_per_inc).floor();
            self.probe_up_acked -= steps * self.probe_up_acked_per_inc;
            self.path.inflight_longterm += steps * self.datagram;
        }
        if self.is_round_start {
            self.raise_slope();
        }
    }

    /// AdaptLongTermModel; `true`: it has decided the next state.
    fn adapt_long_term(&mut self, s: &Sample) -> bool {
        if self.ack_phase == AckPhase::Starting && self.is_round_start {
            self.ack_phase = AckPhase::Feedback;
        }
        if self.ack_phase == AckPhase::Stopping && self.is_round_start {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() {
                if !s.is_app_limited {
                    self.path.advance_max_bw();
                }
                // §5.3.3.6: the cautious probe did no harm, so probe in earnest.
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    self.start_refill();
                    return true;
                }
            }
        }
        if !s.is_flight_too_high() && self.path.inflight_longterm.is_finite() {
            self.path.inflight_longterm = self.path.inflight_longterm.max(s.tx_in_flight);
            if self.state == BbrState::Up {
                self.probe_longterm_upward(s.acked);
            }
        }
        false
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = (self.target() / self.datagram).min(RENO_ROUNDS);
        now > self.cycle_start + self.probe_wait || self.rounds_since_probe as f64 >= reno_rounds
    }

    /// §5.3.3.7.
    fn is_time_to_go_down(&mut self, s: &Sample) -> bool {
        if self.prev_probe_too_high && s.in_flight >= self.path.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_window_limited() && self.cwnd >= self.path.inflight_longterm {
            self.pipe.reset(s.rate); // The bound, not the path, limits the rate.
            return false;
        }
        self.pipe.is_full
    }

    fn update_probe_bw(&mut self, s: &Sample) {
        if !self.is_pipe_full || self.adapt_long_term(s) {
            return;
        }
        let state = self.state;
        match state {
            BbrState::Down if self.is_time_to_probe(s.now) => self.start_refill(),
            BbrState::Down if s.in_flight <= self.headroom() && self.is_drained(s.in_flight) => self.state = BbrState::Cruise,
            BbrState::Cruise if self.is_time_to_probe(s.now) => self.start_refill(),
            BbrState::Refill if self.is_round_start => {
                self.is_probe_sample = true;
                self.start_up(s.rate);
            }
            BbrState::Up if self.is_time_to_go_down(s) => {
                self.prev_probe_too_high = false;
                self.start_down(s.now);
            }
            _ => {}
        }
    }

    // ---- ProbeRTT (§5.3.4)

    fn save_cwnd(&mut self) {
        let is_whole = self.timed_out_at.is_none() && self.state != BbrState::ProbeRtt;
        self.prior_cwnd = if is_whole { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn check_probe_rtt(&mut self, s: &Sample) {
        if self.state != BbrState::ProbeRtt && self.path.is_probe_rtt_expired && !self.is_idle_restart {
            self.save_cwnd();
            self.state = BbrState::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::Stopping;
            self.start_round();
        }
        if self.state == BbrState::ProbeRtt {
            self.limited_until = self.sent;
            if self.probe_rtt_done.is_none() {
                if s.in_flight <= self.probe_rtt_cwnd() {
                    self.probe_rtt_done = Some(s.now + PROBE_RTT_DURATION);
                    self.is_probe_rtt_round_done = false;
                    self.start_round();
                }
            } else {
                self.is_probe_rtt_round_done |= self.is_round_start;
                if self.is_probe_rtt_round_done {
                    self.check_probe_rtt_done(s.now);
                }
            }
        }
        self.is_idle_restart = false;
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done.is_some_and(|t| now > t) {
            self.path.schedule_probe_rtt(now);
            self.restore_cwnd();
            // §5.3.4.4.
            self.path.reset_short_term();
            if self.is_pipe_full {
                self.start_down(now);
                self.state = BbrState::Cruise;
            } else {
                self.state = BbrState::Startup;
            }
        }
    }

    // ---- loss (§5.5.10)

    fn on_flight_too_high(&mut self, now: Time, at_loss: f64, is_app_limited: bool) {
        self.prev_probe_too_high = true;
        self.is_probe_sample = false; // once per probe
        if !is_app_limited {
            self.path.inflight_longterm = at_loss.max(self.target() * super::bbr_path::BETA);
        }
        if self.state == BbrState::Up {
            self.undo_state = Some(BbrState::Up);
            self.start_down(now);
        }
    }

    // ---- aggregation (§5.5.9)

    fn update_aggregation(&mut self, s: &Sample) {
        let mut expected = self.path.bw() * s.now.since(self.extra_acked_start).as_secs_f64();
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0.0;
            self.extra_acked_start = s.now;
            expected = 0.0;
        }
        self.extra_acked_delivered += s.acked;
        let extra = (self.extra_acked_delivered - expected).min(self.cwnd);
        let window = if self.is_pipe_full { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked.update(extra, self.round, window);
    }

    // ---- control (§5.6)

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.path.bw() * (1.0 - PACING_MARGIN);
        if rate > 0.0 && (self.is_pipe_full || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn set_cwnd(&mut self, acked: f64, total_acked: u64) {
        let most = self.quantized(self.bdp(self.state.cwnd_gain()) + self.extra_acked.get());
        if self.is_pipe_full {
            self.cwnd = (self.cwnd + acked).min(most);
        } else if self.cwnd < most || (total_acked as f64) < INITIAL_PACKETS as f64 * self.datagram {
            self.cwnd += acked;
        }
        self.cwnd = self.cwnd.max(self.min_pipe());
        if self.state == BbrState::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        // §5.6.4.7.
        let longterm = match self.state {
            BbrState::Cruise | BbrState::ProbeRtt => self.headroom(),
            state if state.is_probe_bw() => self.path.inflight_longterm,
            _ => f64::INFINITY,
        };
        self.cwnd = self.cwnd.min(longterm.min(self.path.inflight_shortterm).max(self.min_pipe()));
    }

    fn sample(&self, event: &AckEvent) -> Sample {
        let left = self.departures.of_offset(event.newest_offset).unwrap_or_default();
        let rate = event.delivery_rate.bytes_per_sec();
        Sample {
            now: event.now,
            rate,
            // Whole bytes again: a fraction less would cost the window a packet in every round with loss.
            delivered: (rate * event.sample_interval.as_secs_f64()).round(),
            acked: event.acked_bytes as f64,
            lost: self.path.lost.saturating_sub(left.lost) as f64,
            tx_in_flight: left.in_flight as f64,
            in_flight: event.in_flight as f64,
            is_app_limited: event.is_app_limited || event.newest_offset <= self.limited_until,
        }
    }
}

/// SplitMix64's finaliser.
fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Controller for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        if event.in_flight <= event.bytes && self.last_sent_limited {
            // §5.4.1: back from idleness at exactly the bandwidth.
            self.is_idle_restart = true;
            self.extra_acked_start = event.now;
            if self.state.is_probe_bw() {
                self.set_pacing_rate(1.0);
            } else if self.state == BbrState::ProbeRtt {
                self.check_probe_rtt_done(event.now);
            }
        }
        self.last_sent_limited = event.is_app_limited;
        self.window_limited[0] |= event.in_flight as f64 + self.datagram > self.cwnd;
        self.sent = event.sent_offset;
        self.departures.on_sent(event, self.path.lost);
    }

    fn on_ack(&mut self, event: &AckEvent) {
        if self.timed_out_at.is_some_and(|t| event.largest_sent_at > t) {
            self.timed_out_at = None;
            self.restore_cwnd();
        }
        let s = self.sample(event);
        // §5.2.3, in this order.
        self.path.update_latest(&s, event.newest_offset, self.sent);
        self.update_round(event.newest_offset);
        self.path.update_max_bw(&s);
        self.path.update_congestion(self.state.is_probing(), self.cwnd);
        self.update_aggregation(&s);
        self.check_full_pipe(&s);
        self.check_startup_done(&s);
        self.check_drain_done(&s);
        self.update_probe_bw(&s);
        self.path.update_min_rtt(s.now, event.rtt);
        self.check_probe_rtt(&s);
        self.path.advance_latest(&s);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_cwnd(s.acked, event.total_acked);
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.path.on_loss(event.lost_bytes, self.sent);
        self.loss_events += 1;
        let before = Before {
            cwnd: self.cwnd,
            bw_shortterm: self.path.bw_shortterm,
            inflight_shortterm: self.path.inflight_shortterm,
            inflight_longterm: self.path.inflight_longterm,
        };
        if self.losses.on_loss(event, || before) {
            self.undo_state = None;
        }
        if event.is_persistent {
            // §5.6.4.4.
            self.save_cwnd();
            self.timed_out_at = Some(event.now);
            self.losses.forget();
            self.cwnd = event.in_flight as f64 + self.datagram;
        }
        if !self.is_probe_sample {
            return;
        }
        let Some(Departure { in_flight, lost, is_app_limited, .. }) = self.departures.of_time(event.largest_sent_at) else { return };
        let lost = self.path.lost.saturating_sub(lost) as f64;
        if let Some(at_loss) = super::bbr_path::flight_at_loss(in_flight as f64, lost, event.lost_bytes as f64) {
            self.on_flight_too_high(event.now, at_loss, is_app_limited);
        }
    }

    /// §5.5.11.2, once every loss of the episode has turned up.
    fn on_spurious_loss(&mut self, _: Time, bytes: u64) {
        self.path.lost = self.path.lost.saturating_sub(bytes);
        let Some(before) = self.losses.on_spurious_loss(bytes) else { return };
        self.cwnd = self.cwnd.max(before.cwnd);
        self.pipe.reset(0.0);
        self.path.undo(before.bw_shortterm, before.inflight_shortterm, before.inflight_longterm);
        let undo = self.undo_state.take();
        if undo == Some(BbrState::Startup) && self.state != BbrState::Startup {
            self.is_pipe_full = false;
            if self.state != BbrState::ProbeRtt {
                self.state = BbrState::Startup;
            }
        } else if undo == Some(BbrState::Up) && !matches!(self.state, BbrState::Up | BbrState::ProbeRtt) {
            self.start_refill();
        }
    }

    fn window(&self) -> u64 {
        self.cwnd as u64
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(Bandwidth::from_bytes_per_sec(self.pacing_rate))
    }

    fn state(&self) -> ControlState {
        ControlState {
            state: self.state.name(),
            cwnd: self.window(),
            pacing_rate: Bandwidth::from_bytes_per_sec(self.pacing_rate),
            capacity: Bandwidth::from_bytes_per_sec(self.path.bw()),
            base_loss: 0.0,
        }
    }

    fn couple(&mut self, _: Coupled) {} // The draft has no such law: each path takes the share of a flow (multipath.md 5).

    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram as f64;
        self.cwnd = self.cwnd.max(self.min_pipe());
    }
}

#[cfg(test)]
#[path = "bbr_tests.rs"]
mod tests;
