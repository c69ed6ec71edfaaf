//! A path that goes to other addresses: what stays and what begins anew (P7). Which addresses are tested, and when, is in `migration.rs`.

use super::Path;
use super::delivery::Delivery;
use super::faster::Faster;
use super::idle_share::IdleShare;
use super::loss_stats::LossEstimator;
use super::migration::{Address, Trial, Verdict};
use super::pacer::Pacer;
use super::pmtu::{self, PathMtu};
use super::receive_gap::ReceiveGap;
use super::rtt::RttEstimator;
use super::silence::SilenceProbes;
use crate::congestion;
use crate::ids::PacketNumber;
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Duration, Time};
use std::net::{IpAddr, SocketAddr};

impl Path {
    /// Whether a datagram with these addresses came by the path on which packets are sent.
    pub fn is_current(&self, remote: SocketAddr, local: Option<IpAddr>) -> bool {
        remote == self.address.remote && (self.address.local.is_none() || local.is_none() || local == self.address.local)
    }

    /// An authentic packet came by another path than that on which packets are sent; told before it is offered to its flows.
    pub fn on_stray(&mut self, now: Time, from: Address, bytes: u64, pn: PacketNumber) {
        let is_newest = self.acks.largest().is_none_or(|largest| pn.0 > largest);
        if switch::is_off(Mechanism::AddressValidation) {
            self.address = if is_newest { from } else { self.address };
            return;
        }
        self.migration.on_stray(now, from, bytes, is_newest, self.rtt.pto());
    }

    /// PATH_CHALLENGE came from another address; true if it is answered there.
    pub fn on_stray_challenge(&mut self, from: Address, token: [u8; 8]) -> bool {
        self.migration.on_challenge(from, token)
    }

    /// PATH_RESPONSE came. If the far end has moved, the path has when this returns.
    pub fn on_path_response(&mut self, now: Time, token: &[u8; 8]) -> Verdict {
        let verdict = self.migration.on_answer(now, token);
        if let Verdict::Settled(rtt) = verdict {
            self.on_answered(now, rtt);
        }
        if let Verdict::Move(address, rtt) = verdict {
            let old = core::mem::replace(&mut self.address, address);
            self.counters.migrations += 1;
            self.trace.emit(now, || What::PathMoved { path: self.id.0, old: old.remote, new: address.remote });
            // P7: another port at the same address is the same path behind a NAT that forgot.
            if old.remote.ip() != address.remote.ip() {
                self.start_afresh(now, Some(rtt));
            }
        }
        verdict
    }

    /// This end has moved: packets leave from another address from now on, and the far end is shown that (P7).
    pub fn on_own_move(&mut self, now: Time) {
        self.counters.migrations += 1;
        self.trace.emit(now, || What::PathMoved { path: self.id.0, old: self.address.remote, new: self.address.remote });
        if !self.is_pinned {
            self.address.local = None;
        }
        // Its own challenges show it.
        self.receive_gap = ReceiveGap::default();
        let unanswered = self.unanswered();
        self.start_afresh(now, None);
        self.unanswered_before = unanswered;
        self.migration.begin_own(now, self.rtt.pto());
    }

    /// Forgets what was learnt of the path so far: round trip, loss, congestion, ECN, MTU. Packet numbers and what was received go on.
    pub(super) fn start_afresh(&mut self, now: Time, rtt: Option<Duration>) {
        if switch::is_off(Mechanism::FreshPathState) {
            return;
        }
        self.history = self.sent.next();
        self.rtt = RttEstimator::new(rtt, None, now);
        self.faster = Faster::default();
        self.loss.forget_reordering(now);
        self.loss_stats = LossEstimator::default();
        self.delivery = Delivery::new(now);
        self.mtu = PathMtu::new(pmtu::BASE.min(self.mtu.current()), self.config.max_datagram, None, now);
        self.ecn.restart(self.config.ecn);
        self.control = congestion::build(self.config.congestion, u64::from(self.mtu.current()), self.rtt.smoothed(), now);
        self.pacer = Pacer::new(self.config.pacing_quantum, self.mtu.current(), now);
        self.pacer.set(now, self.control.pacing_rate(), self.mtu.current());
        (self.delays, self.coupled) = (None, 0);
        self.idle_share = IdleShare::new(now);
        self.in_flight = 0;
        self.last_eliciting = None;
        (self.pto_base, self.progress_at, self.pto_count, self.probes_wanted) = (now, now, 0, 0);
        self.silence_probes = SilenceProbes::new(now);
        (self.unanswered_since, self.unanswered_before) = (None, None);
        (self.backlog_since, self.full_at) = (None, None);
        self.plan_wake(now);
    }

    /// No address is being tested.
    pub fn is_settled(&self) -> bool {
        self.migration.is_idle()
    }

    /// A challenge for the address in use that is due now, and whether it is because this end has moved.
    pub fn poll_challenge(&mut self, now: Time) -> Option<([u8; 8], bool)> {
        self.migration.poll_challenge(now, &mut self.rng)
    }

    /// The next packet for an address under test; [`on_trial_sent`](Self::on_trial_sent) follows. `is_worthwhile`: there is something to send besides
    /// challenges and answers.
    pub fn poll_trial(&mut self, now: Time, is_worthwhile: bool) -> Option<Trial> {
        let full = if is_worthwhile { u64::from(self.mtu.current()) } else { u64::MAX };
        self.migration.poll_trial(now, self.rtt.smoothed(), full, &mut self.rng)
    }

    /// So many bytes went to an address under test.
    pub fn on_trial_sent(&mut self, address: Address, bytes: u64) {
        self.migration.on_sent(address, bytes);
    }
}
