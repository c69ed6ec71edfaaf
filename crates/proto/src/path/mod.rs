//! A path: one UDP address pair of a link (P7). It owns congestion control, pacing, RTT, loss detection, ECN, path MTU, packet numbers and the
//! replay window; this file composes them, each lives in a file of its own; `fates.rs` and `moving.rs` are the path's own answers to acknowledgements
//! and to other addresses, `state.rs` what it is fit for beside others.

pub mod ack_tracker;
mod bitmap;
mod delays;
pub mod delivery;
pub mod ecn;
mod faster;
mod fates;
mod idle_share;
mod loss;
mod loss_memory;
pub mod loss_stats;
mod migration;
mod moving;
mod pacer;
mod pmtu;
mod receive_gap;
pub mod rtt;
mod sent;
mod silence;
mod sizes;
mod state;

pub use crate::stats::PathState;
pub use ack_tracker::AckConfig;
pub use loss_stats::LossStats;
pub use migration::{Address, Trial, Verdict};
pub use pmtu::BASE as BASE_DATAGRAM;

use crate::congestion::{self, CongestionControl, Controller, Coupled, SentEvent};
use crate::ids::{PacketNumber, PathId};
use crate::sent::{SentItem, SentItems};
use crate::stats::PathStats;
use crate::switch::{self, Mechanism};
use crate::trace::{Tracer, What};
use crate::units::{Bandwidth, Duration, Ecn, Probability, Time};
use ack_tracker::AckTracker;
use delays::Delays;
use delivery::{Delivery, Snapshot};
use ecn::EcnValidator;
use faster::Faster;
use idle_share::IdleShare;
use loss::LossDetector;
use loss_stats::LossEstimator;
use migration::Migration;
use pacer::Pacer;
use pmtu::PathMtu;
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use receive_gap::ReceiveGap;
use rtt::RttEstimator;
use sent::{Fate, SentPacket, SentPackets};
use silence::SilenceProbes;
use std::net::{IpAddr, SocketAddr};

/// Paths of a link, at most, those that are being opened included.
pub const MAX_PATHS: usize = 8;
/// After this many PTOs without any answer nothing but probes is sent, whatever the congestion controller says (RFC 8084).
const STALLED_PTOS: u32 = 3;
/// Data was sent for this long and nothing of it was acknowledged: the circuit breaker opens (RFC 8084).
pub const CIRCUIT_BREAKER: Duration = Duration::from_secs(30);
/// A backlog of latency flows alone that lasts longer than this, and than two round trips, fills the path.
const LONGEST_BURST: Duration = Duration::from_millis(100);
/// On average one packet number in so many is skipped (P3).
const SKIP_EVERY: u32 = 512;
/// Highest packet number that fits the wire's varints.
const LAST_PACKET: u64 = (1 << 62) - 1;

/// How a path is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Largest UDP payload to try, bytes.
    pub max_datagram: u16,
    /// UDP payload that the handshake has shown to pass, bytes; at least 800 is assumed.
    pub initial_datagram: u16,
    /// UDP payload that the host's route is believed to take, bytes, if known.
    pub route_datagram: Option<u16>,
    /// Round trip of the handshake, if measured.
    pub initial_rtt: Option<Duration>,
    /// What it can have been at most, if it was not measured.
    pub longest_rtt: Option<Duration>,
    /// Mark packets as ECN-capable.
    pub ecn: bool,
    /// Acknowledgement scheduling.
    pub ack: AckConfig,
    /// Longest burst in time. Default 100 us (P11); a driver with coarser timers may ask for more.
    pub pacing_quantum: Duration,
    /// Where events of the path go. Default nowhere.
    pub trace: Tracer,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionControl::Model,
            max_datagram: 1472,
            initial_datagram: BASE_DATAGRAM,
            route_datagram: None,
            initial_rtt: None,
            longest_rtt: None,
            ecn: true,
            ack: AckConfig::default(),
            pacing_quantum: pacer::BURST_TIME,
            trace: Tracer::default(),
        }
    }
}

/// What became of packets; cleared and reused by the caller.
#[derive(Debug, Default)]
pub struct Fates {
    /// Carried by packets that arrived.
    pub acked: Vec<SentItem>,
    /// Carried by packets that were lost.
    pub lost: Vec<SentItem>,
    /// Carried by packets that had been reported as lost and arrived after all.
    pub spurious: Vec<SentItem>,
}

impl Fates {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.spurious.clear();
    }
}

/// Counters for statistics.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent_packets: u64,
    sent_bytes: u64,
    received_packets: u64,
    received_bytes: u64,
    lost_packets: u64,
    spurious_losses: u64,
    ce_packets: u64,
    ptos: u64,
    migrations: u64,
}

/// One path of a link.
#[derive(Debug)]
pub struct Path {
    id: PathId,
    address: Address,
    config: PathConfig,
    /// Packets below this number went to an address that is no longer in use: their fate says nothing about the path (P7).
    history: u64,
    migration: Migration,
    state: PathState,
    /// Since when.
    stood_at: Time,
    /// This end was told to send from the local address.
    is_pinned: bool,
    /// While the address of a further path is tested.
    opening: Option<state::Opening>,
    /// When something authentic last came.
    heard_at: Time,
    rng: ChaCha12Rng,
    sent: SentPackets,
    rtt: RttEstimator,
    faster: Faster,
    loss: LossDetector,
    loss_stats: LossEstimator,
    delivery: Delivery,
    pacer: Pacer,
    mtu: PathMtu,
    ecn: EcnValidator,
    acks: AckTracker,
    receive_gap: ReceiveGap,
    control: Box<dyn Controller>,
    counters: Counters,
    in_flight: u64,
    next_skip: u64,
    /// Number and time of sending of the last ack-eliciting packet, probes of the path MTU apart.
    last_eliciting: Option<(u64, Time)>,
    /// Start of the running PTO period: the last ack-eliciting packet, or the last PTO.
    pto_base: Time,
    /// When something was last acknowledged, or the flight began.
    progress_at: Time,
    pto_count: u32,
    /// Packets that must go now, whatever window and pacer say.
    probes_wanted: u8,
    silence_probes: SilenceProbes,
    pacer_wake: Option<Time>,
    /// First ack-eliciting packet since something was last acknowledged.
    unanswered_since: Option<Time>,
    /// The same of the address before, if nothing was answered there and this end has moved: moving is no answer.
    unanswered_before: Option<Time>,
    /// The last time something was received or an ack-eliciting packet was sent.
    active_at: Time,
    /// Only latency flows use it.
    is_bursty: bool,
    /// Since when data has been waiting without a break.
    backlog_since: Option<Time>,
    /// When data had last been waiting for a good part of a round trip: the path was full.
    full_at: Option<Time>,
    idle_share: IdleShare,
    newly_lost: Vec<u64>,
    trace: Tracer,
    /// Its delay over time, if the link has other paths.
    delays: Option<Box<Delays>>,
    /// Paths that meet it in its bottleneck.
    coupled: u32,
    /// State of the control and MTU that the trace was told last.
    traced: (&'static str, u16),
}

impl Path {
    /// A path to `remote`. The random numbers choose which packet numbers are skipped (P3).
    pub fn new(id: PathId, remote: SocketAddr, local: Option<IpAddr>, config: PathConfig, rng: ChaCha12Rng, now: Time) -> Self {
        let mtu = PathMtu::new(config.initial_datagram, config.max_datagram, config.route_datagram, now);
        let rtt = RttEstimator::new(config.initial_rtt, config.longest_rtt, now);
        let control = congestion::build(config.congestion, u64::from(mtu.current()), rtt.smoothed(), now);
        let mut pacer = Pacer::new(config.pacing_quantum, mtu.current(), now);
        pacer.set(now, control.pacing_rate(), mtu.current());
        let mut path = Self {
            id,
            address: Address { remote, local },
            history: 0,
            migration: Migration::default(),
            state: PathState::Open,
            stood_at: now,
            is_pinned: false,
            opening: None,
            heard_at: now,
            rng,
            sent: SentPackets::starting_at(switch::first_number()),
            rtt,
            faster: Faster::default(),
            loss: LossDetector::new(now),
            loss_stats: LossEstimator::default(),
            delivery: Delivery::new(now),
            pacer,
            mtu,
            ecn: EcnValidator::new(config.ecn),
            acks: AckTracker::new(config.ack),
            receive_gap: ReceiveGap::default(),
            control,
            counters: Counters::default(),
            in_flight: 0,
            next_skip: 0,
            last_eliciting: None,
            pto_base: now,
            progress_at: now,
            pto_count: 0,
            probes_wanted: 0,
            silence_probes: SilenceProbes::new(now),
            pacer_wake: None,
            unanswered_since: None,
            unanswered_before: None,
            active_at: now,
            is_bursty: false,
            backlog_since: None,
            full_at: None,
            idle_share: IdleShare::new(now),
            newly_lost: Vec::new(),
            delays: None,
            coupled: 0,
            trace: config.trace.clone(),
            traced: ("", 0),
            config,
        };
        path.plan_skip();
        path
    }

    /// Another congestion control from now on; it starts afresh, with the round trip that is known.
    pub fn set_congestion(&mut self, now: Time, congestion: CongestionControl) {
        self.config.congestion = congestion;
        self.control = congestion::build(congestion, u64::from(self.mtu.current()), self.rtt.smoothed(), now);
        self.pacer.set(now, self.control.pacing_rate(), self.mtu.current());
        self.plan_wake(now);
    }

    fn plan_skip(&mut self) {
        self.next_skip = self.sent.next() + 16 + u64::from(self.rng.next_u32() % (2 * SKIP_EVERY));
    }

    // ---- identity

    /// Which path this is.
    pub fn id(&self) -> PathId {
        self.id
    }
    /// Far address.
    pub fn remote(&self) -> SocketAddr {
        self.address.remote
    }
    /// Local address, where it matters.
    pub fn local(&self) -> Option<IpAddr> {
        self.address.local
    }

    // ---- sending

    /// The number of the next packet; some are skipped (P3). Must be followed by [`on_sent`](Self::on_sent) with it.
    pub fn next_packet_number(&mut self) -> PacketNumber {
        if self.sent.next() >= self.next_skip {
            let packet = SentPacket {
                sent_at: self.pto_base,
                before: None,
                bytes: 0,
                fate: Fate::Skipped,
                is_ect: false,
                is_mtu_probe: false,
                is_given_up: false,
                snapshot: Snapshot::default(),
                items: SentItems::new(),
            };
            self.sent.push(packet);
            self.plan_skip();
        }
        PacketNumber(self.sent.next())
    }

    /// Largest packet number so far plus one: an acknowledgement of it or above is a lie.
    pub fn next_number(&self) -> PacketNumber {
        PacketNumber(self.sent.next())
    }

    fn window_room(&self, now: Time) -> u64 {
        if self.pto_count >= STALLED_PTOS {
            return 0;
        }
        // A queue delays acknowledgements, it does not end them: where nothing at all is acknowledged they are lost, and more that asks for some brings one through (P8).
        let is_silent = now >= self.silent_from() && !switch::is_off(Mechanism::SilentWindow);
        let window = if is_silent { self.control.window_in_silence() } else { self.control.window() };
        window.saturating_sub(self.in_flight)
    }

    fn silent_from(&self) -> Time {
        self.progress_at + self.rtt.smoothed() / 4
    }

    /// Bytes that window and pacer allow now: at least one datagram, or 0.
    pub fn send_allowance(&self, now: Time) -> u64 {
        let room = self.window_room(now);
        if room < u64::from(self.mtu.current()) { 0 } else { room.min(self.pacer.allowance(now)) }
    }

    /// The same where capacity is spare: 0 while the path is full, so that proactive repair never displaces data (flow.md 3.4).
    pub fn spare_allowance(&self, now: Time) -> u64 {
        let recently_full = self.full_at.is_some_and(|t| now.since(t) < self.rtt.smoothed());
        if recently_full {
            return 0;
        }
        // The packets of a burst are in flight together, and nobody else wants the rest of the window.
        let share = if self.is_bursty { self.control.window() } else { self.control.window() / 2 };
        self.send_allowance(now).min(share.saturating_sub(self.in_flight))
    }

    /// Much less is in flight than the path holds without a queue, as far as it is known.
    pub fn has_slack(&self) -> bool {
        let holds = self.own_rate().bytes_in(self.rtt.min());
        self.in_flight < (holds * 3 / 4).max(2 * u64::from(self.mtu.current()))
    }

    /// How much of the last round trips it was idle: what goes ahead of data that waits is made up for by pauses.
    pub fn idle_share(&self, now: Time) -> Probability {
        self.idle_share.left(now, self.own_rate(), self.rtt.smoothed())
    }

    /// Only flows for which time counts (latency flows, ordered datagrams) use this path at present: a backlog of theirs is a burst until it lasts.
    pub fn set_bursty(&mut self, on: bool) {
        self.is_bursty = on;
    }

    /// Tells that data waits which window or pacer hold back. If that lasts the path is full, capacity is not spare; a message of some packets
    /// that the pacer spreads does not fill it.
    pub fn on_blocked(&mut self, now: Time) {
        let since = *self.backlog_since.get_or_insert(now);
        let rtt = self.rtt.smoothed();
        if now.since(since) > if self.is_bursty { (rtt * 2).max(LONGEST_BURST) } else { rtt / 4 } {
            self.full_at = Some(now);
        }
    }

    /// The codepoint for the next packet.
    pub fn ecn_codepoint(&self) -> Ecn {
        self.ecn.codepoint()
    }

    /// The packets that are numbered until the next call leave in one train with this codepoint (GSO); `None`: with the one that each would get.
    pub fn set_train(&mut self, ecn: Option<Ecn>) {
        self.ecn.set_train(ecn);
    }

    /// A packet left. `is_app_limited`: there was nothing more to send after it.
    #[allow(clippy::too_many_arguments)]
    pub fn on_sent(&mut self, now: Time, pn: PacketNumber, bytes: u16, is_ack_eliciting: bool, is_app_limited: bool, items: SentItems) {
        debug_assert_eq!(pn.0, self.sent.next(), "numbers are used in order");
        self.trace.emit(now, || What::sent(self.id, pn.0, bytes, &items, is_ack_eliciting));
        let size = u64::from(bytes);
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += size;
        self.note_untested(0, size);
        let is_ect = self.ecn.on_sent();
        let is_mtu_probe = items.iter().any(|i| matches!(i, SentItem::MtuProbe(_)));
        // What the host did not send in time says nothing about the path: as if the application had had less.
        let was_late = self.pacer.on_sent(now, size);
        let (capacity, rtt) = (self.own_rate(), self.rtt.smoothed());
        self.idle_share.on_sent(now, size, capacity, rtt);
        let snapshot = if is_ack_eliciting {
            if self.in_flight == 0 {
                // A new flight: the PTO counts from here, and losses of the one before are history.
                self.pto_base = now;
                self.progress_at = now;
            }
            let snapshot = self.delivery.on_sent(now, size, self.in_flight, is_app_limited || was_late);
            self.in_flight += size;
            if now.since(self.progress_at) <= self.rtt.pto() {
                // A sender that no window stops would otherwise put its PTO off for ever.
                self.pto_base = self.pto_base.max(now);
            }
            self.active_at = now;
            self.probes_wanted = self.probes_wanted.saturating_sub(1);
            self.silence_probes.on_sent(now);
            self.unanswered_since.get_or_insert(now);
            let is_data = |item: &SentItem| matches!(item, SentItem::Coded { .. } | SentItem::Half { .. });
            let is_small = size * 2 < u64::from(self.mtu.current());
            let event = SentEvent {
                now,
                bytes: size,
                in_flight: self.in_flight,
                is_app_limited,
                sent_offset: self.delivery.offset(),
                is_control: is_mtu_probe || (is_small && !items.iter().any(is_data)),
            };
            self.control.on_sent(&event);
            self.pacer.set(now, self.control.pacing_rate(), self.mtu.current());
            snapshot
        } else {
            Snapshot::default()
        };
        if is_app_limited {
            self.backlog_since = None;
        } else if is_ack_eliciting {
            self.on_blocked(now);
        }
        let fate = if is_ack_eliciting { Fate::InFlight } else { Fate::Uncounted };
        let before = self.last_eliciting;
        if is_ack_eliciting && !is_mtu_probe {
            self.last_eliciting = Some((pn.0, now));
        }
        self.sent.push(SentPacket { sent_at: now, before, bytes, fate, is_ect, is_mtu_probe, is_given_up: false, snapshot, items });
        self.plan_wake(now);
    }

    /// A packet left that nothing but a transparent flow wanted: counted, but neither paced nor in flight, so that it takes nothing from flows that
    /// obey the congestion control.
    pub fn on_sent_uncontrolled(&mut self, now: Time, pn: PacketNumber, bytes: u16, items: SentItems) {
        debug_assert_eq!(pn.0, self.sent.next(), "numbers are used in order");
        self.trace.emit(now, || What::sent(self.id, pn.0, bytes, &items, false));
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += u64::from(bytes);
        self.sent.push(SentPacket {
            sent_at: now,
            before: None,
            bytes,
            fate: Fate::Uncounted,
            is_ect: self.ecn.on_sent(),
            is_mtu_probe: false,
            is_given_up: false,
            snapshot: Snapshot::default(),
            items,
        });
    }

    fn plan_wake(&mut self, now: Time) {
        let is_open = self.window_room(now) >= u64::from(self.mtu.current());
        let next = self.pacer.plan(now, is_open && self.backlog_since.is_some());
        self.pacer_wake = if is_open { next } else { Some(self.silent_from()).filter(|t| *t > now && self.backlog_since.is_some()) };
    }

    /// Path MTU: bytes of UDP payload of a full datagram.
    pub fn datagram_size(&self) -> u16 {
        self.mtu.current()
    }

    /// Bytes of UDP payload that full datagrams will have, as far as is known: no size that has failed.
    pub fn likely_size(&self) -> u16 {
        self.mtu.likely()
    }

    /// Size of a path MTU probe to send now: a packet padded to it that carries [`SentItem::MtuProbe`].
    pub fn poll_mtu_probe(&mut self, now: Time) -> Option<u16> {
        if self.pto_count > 0 || !self.is_open() || switch::is_off(Mechanism::MtuProbes) {
            return None;
        }
        self.mtu.poll_probe(now, self.rtt.smoothed())
    }

    /// The PTO fired: ack-eliciting packets must go now, coded if any flow has something (P4), beyond window and pacer. Each that is sent is one less.
    pub fn probe_wanted(&self) -> bool {
        self.probes_wanted > 0
    }

    /// No answer has come for a while: a small packet that asks for one should go now.
    pub fn is_silence_probe_wanted(&self) -> bool {
        self.silence_probes.is_wanted()
    }

    // ---- time

    /// Tells what is told only when it changes.
    fn trace_changes(&mut self, now: Time) {
        let (state, mtu) = (self.control.state().state, self.mtu.current());
        let (old_state, old_mtu) = core::mem::replace(&mut self.traced, (state, mtu));
        if state != old_state {
            self.trace.emit(now, || What::CongestionState { path: self.id.0, old: old_state, new: state });
        }
        if mtu != old_mtu {
            self.trace.emit(now, || What::Mtu { path: self.id.0, old: old_mtu, new: mtu });
        }
    }

    fn pto_deadline(&self) -> Option<Time> {
        (self.in_flight > 0 && self.probes_wanted == 0 && self.loss.deadline().is_none())
            .then(|| self.pto_base + self.rtt.pto_backed_off(self.pto_count))
    }

    fn silence_probe_at(&self) -> Option<Time> {
        let is_silent =
            self.in_flight > 0 && self.pto_count >= STALLED_PTOS && self.rtt.has_sample() && !switch::is_off(Mechanism::SilenceProbes);
        self.unanswered_since.filter(|_| is_silent).and_then(|since| self.silence_probes.deadline(since, self.pto_base, self.rtt.pto()))
    }

    /// When [`handle_timeout`](Self::handle_timeout) should be called next: loss, PTO, a due ACK, or room in the pacer.
    pub fn poll_timeout(&self) -> Option<Time> {
        // An address that has not answered gets nothing more until more comes from it (P19): nothing that would be sent there is due.
        let may_send = self.untested_room() >= u64::from(self.mtu.current());
        let ack = self.ack_at().filter(|_| may_send);
        [
            self.pto_deadline(),
            self.silence_probe_at(),
            self.loss.deadline(),
            ack,
            self.pacer_wake,
            self.migration.poll_timeout(may_send),
            self.receive_gap.poll_timeout(),
            self.opening_at(),
            self.mtu_search_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// `poll_timeout` passed.
    pub fn handle_timeout(&mut self, now: Time, fates: &mut Fates) {
        self.migration.handle_timeout(now);
        self.receive_gap.handle_timeout(now, self.rtt.smoothed());
        self.drive_opening(now);
        if self.pacer_wake.is_some_and(|t| t <= now) {
            self.plan_wake(now);
        }
        if self.loss.deadline().is_some_and(|t| t <= now) {
            self.detect_losses(now, fates);
            self.after_fates(now);
            if self.trace.is_on() {
                self.trace_changes(now);
            }
        }
        if self.silence_probe_at().is_some_and(|t| t <= now) {
            self.silence_probes.on_deadline();
        }
        if self.pto_deadline().is_some_and(|t| t <= now) {
            self.counters.ptos += 1;
            self.pto_count += 1;
            self.pto_base = now;
            // Two, so that one lost packet does not cost the next time-out, which is twice as long (RFC 9002, 6.2.4); one where nothing but probes is sent (RFC 8084).
            let is_stalled = self.pto_count >= STALLED_PTOS || switch::is_off(Mechanism::SecondProbe);
            self.probes_wanted = if is_stalled { 1 } else { 2 };
            self.trace.emit(now, || What::ProbeTimeout { path: self.id.0, pto_count: self.pto_count });
            if self.mtu.on_pto(now, self.pto_count) {
                self.control.on_mtu(u64::from(self.mtu.current()));
            }
            self.after_fates(now);
        }
    }

    // ---- receiving

    /// The full packet number for the 32 bits on the wire.
    pub fn expand(&self, low: u32) -> PacketNumber {
        self.acks.expand(low)
    }
    /// The same for a path that is not there yet.
    pub fn expand_first(low: u32) -> PacketNumber {
        AckTracker::expand_first(low)
    }
    /// Received before, or beyond the replay window (P3).
    pub fn is_duplicate(&self, pn: PacketNumber) -> bool {
        self.acks.is_duplicate(pn)
    }
    /// A duplicate was dropped; counted.
    pub fn on_duplicate(&mut self) {
        self.acks.on_duplicate();
    }
    /// An authentic packet arrived and was offered to its flow (P9). `bytes` of UDP payload.
    pub fn on_received(&mut self, now: Time, pn: PacketNumber, ecn: Ecn, bytes: u16, is_ack_eliciting: bool) {
        self.trace.emit(now, || What::received(self.id, pn.0, bytes, ecn));
        self.counters.received_packets += 1;
        self.counters.received_bytes += u64::from(bytes);
        (self.active_at, self.heard_at) = (now, now);
        self.note_untested(u64::from(bytes), 0);
        self.acks.on_received(now, pn, ecn, u64::from(bytes), is_ack_eliciting);
        self.receive_gap.on_received(now, u64::from(bytes), self.rtt.smoothed());
    }

    /// Data have ceased in mid-flow: this end should show itself with a packet of [`BASE_DATAGRAM`] bytes. `is_wanted`: more is to come.
    pub fn poll_gap_probe(&mut self, is_wanted: bool) -> bool {
        self.receive_gap.poll(self.rtt.smoothed(), is_wanted)
    }

    /// [`poll_gap_probe`](Self::poll_gap_probe) may have something to say.
    pub fn is_gap_probe_due(&self) -> bool {
        self.receive_gap.is_due()
    }

    /// Flows for which time counts use this path: gaps are reported at once.
    pub fn set_immediate_acks(&mut self, on: bool) {
        self.acks.set_immediate(on);
    }
    /// The next ACK must not wait (the end of a flow, a probe).
    pub fn demand_ack(&mut self) {
        self.acks.demand();
    }
    /// An ACK should be sent now.
    pub fn ack_due(&self, now: Time) -> bool {
        self.ack_at().is_some_and(|t| t <= now)
    }
    /// When an ACK is due. A peer that answers nothing gets few: whatever is sent is remembered until it has a fate.
    fn ack_at(&self) -> Option<Time> {
        let due = self.acks.due(self.rtt.smoothed())?;
        Some(if self.pto_count < STALLED_PTOS { due } else { due.max(self.acks.earliest_unhurried()) })
    }
    /// Something ack-eliciting waits to be acknowledged: an ACK may ride along with data.
    pub fn ack_pending(&self) -> bool {
        self.acks.due(self.rtt.smoothed()).is_some()
    }
    /// The packet with this ACK should be ack-eliciting (add a PING): about once per RTT, so that old numbers can be forgotten (P8).
    pub fn ack_wants_ping(&self, now: Time) -> bool {
        self.acks.wants_acknowledgement(now, self.rtt.smoothed())
    }
    /// Appends an ACK frame of at most `max_len` bytes (64 always suffice). The item goes into the packet's `items`.
    pub fn write_ack(&mut self, now: Time, max_len: usize, out: &mut Vec<u8>) -> Option<SentItem> {
        let reported = self.acks.write(now, self.id, self.rtt.smoothed(), max_len, out)?;
        Some(SentItem::Ack { path: self.id, reported_below: reported.below })
    }
    /// The packet that carried the ACK is ack-eliciting.
    pub fn on_eliciting_ack(&mut self, now: Time) {
        self.acks.on_eliciting_ack(now);
    }
    /// ACK of ACK: the peer has the report up to `reported_below`.
    pub fn on_ack_of_ack(&mut self, reported_below: PacketNumber) {
        self.acks.on_ack_of_ack(reported_below);
    }

    // ---- what is known

    /// Smoothed RTT.
    pub fn rtt(&self) -> Duration {
        self.rtt.smoothed()
    }
    /// All RTT estimates.
    pub fn rtt_estimator(&self) -> &RttEstimator {
        &self.rtt
    }
    /// Loss of what this side sends, for the redundancy policy.
    pub fn loss_stats(&self) -> LossStats {
        self.loss_stats.stats()
    }
    /// Latest delivery rate.
    pub fn delivery_rate(&self) -> Bandwidth {
        self.delivery.latest().map_or(Bandwidth::ZERO, |s| s.delivery_rate)
    }
    /// Neither a window nor a rate bounds what is sent.
    pub(crate) fn is_uncontrolled(&self) -> bool {
        self.control.window() == u64::MAX && self.control.pacing_rate().is_none()
    }
    /// Rate at which packets may leave.
    pub fn pacing_rate(&self) -> Option<Bandwidth> {
        self.control.pacing_rate()
    }
    /// Rate that an application should produce, headers and repair included; `None`: the control tells none.
    pub fn target_rate(&self) -> Option<Bandwidth> {
        self.control.target_rate()
    }
    /// What it sends, in sent units: the controller's estimate where it has one.
    pub(crate) fn own_rate(&self) -> Bandwidth {
        let capacity = self.control.capacity();
        if capacity > Bandwidth::ZERO { capacity } else { self.delivery_rate() }
    }
    /// How much its delay is like that of another path of the link, -1..=1; delays are recorded once the link couples its paths.
    pub(crate) fn likeness(&self, other: &Self) -> Option<f32> {
        self.delays.as_ref()?.likeness(other.delays.as_ref()?, self.rtt().abs_diff(other.rtt()))
    }
    /// Paths of the link that meet it in its bottleneck.
    pub(crate) fn couple(&mut self, coupled: Coupled) {
        self.delays.get_or_insert_default();
        self.coupled = coupled.paths;
        self.control.couple(coupled);
    }
    /// The congestion controller's state.
    pub fn control(&self) -> congestion::ControlState {
        self.control.state()
    }
    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }
    /// Probe time-out without backoff.
    pub fn pto(&self) -> Duration {
        self.rtt.pto()
    }
    /// PTOs in a row without an answer.
    pub fn pto_count(&self) -> u32 {
        self.pto_count
    }
    /// The present reordering window (P10).
    pub fn reordering_window(&self) -> Duration {
        self.loss.window(&self.rtt)
    }
    /// Since when nothing was received and nothing ack-eliciting sent.
    pub fn is_idle_since(&self) -> Time {
        self.active_at
    }
    /// Data was sent and nothing of it acknowledged for [`CIRCUIT_BREAKER`]: the peer hears nothing, the link should close (RFC 8084).
    pub fn is_circuit_open(&self, now: Time) -> bool {
        self.unanswered_since.is_some_and(|t| now.since(t) >= CIRCUIT_BREAKER) && self.pto_count >= STALLED_PTOS
    }
    /// Nothing came back for so long, though it was asked for several times.
    pub fn is_unanswered(&self, now: Time, patience: Duration) -> bool {
        self.unanswered().is_some_and(|t| now.since(t) >= patience)
    }
    fn unanswered(&self) -> Option<Time> {
        self.unanswered_before.or(self.unanswered_since.filter(|_| self.pto_count >= STALLED_PTOS))
    }
    /// A snapshot.
    pub fn stats(&self) -> PathStats {
        let c = &self.counters;
        let loss = self.loss_stats.stats();
        PathStats {
            path: self.id,
            remote: self.address.remote,
            local: self.address.local,
            state: self.state,
            mtu: self.mtu.current(),
            is_mtu_found: self.mtu.is_found(),
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            latest_rtt: self.rtt.latest(),
            coupled: self.coupled,
            rtt_var: self.rtt.var(),
            loss: loss.mean,
            loss_burst: loss.burst_packets,
            delivery_rate: self.delivery_rate(),
            in_flight: self.in_flight,
            control: self.control.state(),
            sent_packets: c.sent_packets,
            sent_bytes: c.sent_bytes,
            received_packets: c.received_packets,
            received_bytes: c.received_bytes,
            lost_packets: c.lost_packets,
            spurious_losses: c.spurious_losses,
            ce_packets: c.ce_packets,
            ptos: c.ptos,
            replayed: self.acks.replayed(),
            migrations: c.migrations,
        }
    }
    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.sent.memory() + self.acks.memory()
    }
}
