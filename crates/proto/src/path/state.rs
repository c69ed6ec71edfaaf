//! What a path beside others is fit for: one that is being opened, one that carries, one that has fallen silent (docs/spec/multipath.md).
//!
//! A link's first path is open from the beginning, by its handshake. A further one is opened by a challenge in each direction: until its own is
//! answered, an end sends three times what came at most (P19). A path is silent when the answers that are due do not come although another path's do;
//! what it carried is given to the others at once, and probes tell when it is back.

use super::{Fates, Path};
use crate::sent::SentItem;
use crate::stats::PathState;
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Duration, Time};

/// Bytes to an address that has not answered, for each byte that came from it (P19).
const AMPLIFICATION: u64 = 3;
/// An address that does not answer is tried again after this, then after twice as long, and so on,
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// up to this.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// So many packets without the answer that is due are no accident; of fewer, the tail probe tells (P10).
const OVERDUE: u32 = 4;
/// A path that was silent for longer than this, and than three round trips, begins afresh.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// How a further path is opened.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    /// This end began it: its owner gave the address.
    is_ours: bool,
    received: u64,
    sent: u64,
    retry_at: Option<Time>,
    wait: Duration,
}

impl Path {
    /// Begins to test the address of a further path, before it carries anything.
    pub fn begin_opening(&mut self, now: Time, is_ours: bool) {
        self.opening = Some(Opening { is_ours, received: 0, sent: 0, retry_at: None, wait: FIRST_RETRY });
        self.is_pinned = is_ours && self.address.local.is_some();
        self.set_state(now, PathState::Opening);
        self.migration.begin_own(now, self.rtt.pto());
    }

    /// What it is fit for.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// It carries whatever there is.
    pub fn is_open(&self) -> bool {
        self.state == PathState::Open
    }

    /// When something authentic last came by this path.
    pub fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Bytes that may go to an address that has not answered (P19).
    pub fn untested_room(&self) -> u64 {
        match &self.opening {
            Some(o) if !o.is_ours => (o.received * AMPLIFICATION).saturating_sub(o.sent),
            _ => u64::MAX,
        }
    }

    pub(super) fn set_state(&mut self, now: Time, state: PathState) {
        let old = core::mem::replace(&mut self.state, state);
        if old != state {
            self.stood_at = now;
            self.trace.emit(now, || What::PathState { path: self.id.0, old: old.word(), new: state.word() });
        }
    }

    pub(super) fn note_untested(&mut self, received: u64, sent: u64) {
        if let Some(o) = &mut self.opening {
            o.received += received;
            o.sent += sent;
        }
    }

    /// The address has answered a challenge that left `rtt` ago.
    pub(super) fn on_answered(&mut self, now: Time, rtt: Duration) {
        if self.opening.take().is_some() {
            self.set_state(now, PathState::Open);
            self.start_afresh(now, Some(rtt));
        }
    }

    pub(super) fn opening_at(&self) -> Option<Time> {
        self.opening.as_ref()?.retry_at
    }

    /// An address that this end was given is tried again.
    pub(super) fn drive_opening(&mut self, now: Time) {
        let is_idle = self.migration.is_idle();
        let Some(o) = self.opening.as_mut().filter(|o| o.is_ours && is_idle) else { return };
        match o.retry_at {
            None => {
                o.retry_at = Some(now + o.wait);
                o.wait = (o.wait * 2).min(LAST_RETRY);
            }
            Some(at) if now >= at => {
                o.retry_at = None;
                self.migration.begin_own(now, self.rtt.pto());
            }
            Some(_) => {}
        }
    }

    /// How long an answer may take at most.
    fn patience(&self) -> Duration {
        let rtt = self.rtt.smoothed().max(self.rtt.latest_raw());
        rtt + self.rtt.expected_ack_delay() + (self.rtt.var() * 4).max(self.loss.window(&self.rtt) + rtt / 8)
    }

    /// When answers that have not come will be overdue: that of the last of several packets, or now if a tail probe had to be sent.
    pub fn overdue_at(&self) -> Option<Time> {
        if self.state != PathState::Open || switch::is_off(Mechanism::SilentPaths) {
            return None;
        }
        if self.pto_count > 0 {
            return Some(self.pto_base);
        }
        let mut pn = self.sent.base();
        let mut last = None;
        for _ in 0..OVERDUE {
            let next = self.sent.next_in_flight(pn)?;
            (pn, last) = (next + 1, self.sent.get(next));
        }
        Some(last?.sent_at + self.patience())
    }

    /// Its answers are overdue and those of another path are not: whatever is in flight counts as lost to the flows, at once. What the congestion
    /// controller makes of it is decided when answers come again.
    pub fn fall_silent(&mut self, now: Time, fates: &mut Fates) {
        self.set_state(now, PathState::Silent);
        let mut from = self.sent.base();
        while let Some(pn) = self.sent.next_in_flight(from) {
            from = pn + 1;
            let Some(packet) = self.sent.get_mut(pn).filter(|p| !p.is_given_up) else { continue };
            packet.is_given_up = true;
            fates.lost.extend(packet.items.iter().filter(|i| !matches!(i, SentItem::MtuProbe(_))).cloned());
        }
        (self.probes_wanted, self.backlog_since, self.full_at) = (1, None, None);
    }

    /// Something of what was sent has arrived.
    pub(super) fn on_heard_of(&mut self, now: Time) {
        if self.state != PathState::Silent {
            return;
        }
        let silence = now.since(self.stood_at);
        self.set_state(now, PathState::Open);
        if silence > FORGOTTEN.max(self.rtt.smoothed() * 3) {
            self.start_afresh(now, Some(self.rtt.min()));
        }
    }

    /// Others carry the data: it is asked whether it still works.
    pub fn want_probe(&mut self) {
        if self.state == PathState::Open {
            self.probes_wanted = self.probes_wanted.max(1);
        }
    }
}
