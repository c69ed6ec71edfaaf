//! What an end of a relayed session does when its packets are altered on the route, or do not arrive: it takes another route, if there is one (P16).
//!
//! A relay can acknowledge what it does not pass on, so that its word counts for nothing here: only what the far end's session acknowledges is progress.

use super::Node;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{LinkId, SessionId};
use crate::session::SessionState;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use smallvec::SmallVec;

/// Nothing delivered for this long although something was sent, at first; a handshake's round trips beyond that. A link that is dead is found silent before, and
/// left without prejudice.
const PATIENCE: Duration = Duration::from_secs(1);
/// Round trips of the handshake.
const PATIENCE_RTTS: u32 = 6;
/// Doubled with each route that was tried, up to this.
const MOST_PATIENCE: Duration = Duration::from_secs(8);

/// A link is not used again for so long, unless all others were tried.
const SHUNNED: Duration = Duration::from_secs(60);

/// What was sent and what arrived, as one end of a session knows it.
#[derive(Clone, Debug)]
pub(super) struct DeliveryMonitor {
    opened_at: Time,
    /// What the handshake took from end to end; nothing before it is over.
    round_trip: Duration,
    patience: Duration,
    /// When to look next; `None` while nothing is under way.
    due: Option<Time>,
    /// What had been sent and what had arrived when it was looked at last. Only what had been sent then has had its time.
    sent: u64,
    delivered: u64,
    /// When something had arrived last, or nothing was under way.
    answered_at: Time,
    /// Links that are not used for now.
    shunned: SmallVec<[Shunned; 2]>,
}

/// A link whose route altered packets, or delivered nothing.
#[derive(Clone, Copy, Debug)]
struct Shunned {
    link: LinkId,
    since: Time,
    has_altered: bool,
}

impl DeliveryMonitor {
    pub(super) fn new(now: Time) -> Self {
        Self {
            opened_at: now,
            round_trip: Duration::ZERO,
            patience: PATIENCE,
            due: Some(now + PATIENCE),
            sent: u64::MAX,
            delivered: 0,
            answered_at: now,
            shunned: SmallVec::new(),
        }
    }

    /// The keys stand: a round trip from end to end is known.
    pub(super) fn on_keys(&mut self, now: Time) {
        self.round_trip = now.since(self.opened_at);
        self.patience = (self.round_trip * PATIENCE_RTTS).clamp(PATIENCE, self.most_patience());
        self.answered_at = now;
        self.watch(now);
    }

    /// Never less than what an answer takes.
    fn most_patience(&self) -> Duration {
        MOST_PATIENCE.max(self.round_trip * 2)
    }

    /// Something was sent; true if nothing had been under way before.
    pub(super) fn watch(&mut self, now: Time) -> bool {
        let is_first = self.due.is_none();
        if is_first {
            self.due = Some(now + self.patience);
            self.sent = u64::MAX;
            self.answered_at = now;
        }
        is_first
    }

    /// All routes were tried: from the beginning.
    pub(super) fn forgive(&mut self) {
        self.shunned.clear();
    }

    /// Words about the route before the present one may still be in flight.
    fn has_just_moved(&self, now: Time) -> bool {
        self.shunned.last().is_some_and(|s| now.since(s.since) < self.patience / 2)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// True if nothing arrived since the last look although something was in flight then, or since it was first watched.
    fn is_stuck(&mut self, now: Time, sent: u64, delivered: u64) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        let is_stuck = self.sent.min(sent) > delivered && delivered == self.delivered;
        if sent <= delivered || delivered != self.delivered {
            self.answered_at = now;
        }
        (self.sent, self.delivered) = (sent, delivered);
        self.patience = match is_stuck {
            true => (self.patience * 2).min(self.most_patience()),
            false => self.patience,
        };
        self.due = (sent > delivered).then_some(now + self.patience);
        is_stuck
    }
}

/// Nothing that was sent has arrived for so long although it could have.
const SILENT: &str = "nothing that was sent has arrived for the idle timeout";

impl Node {
    /// Looks whether what a relayed session sends arrives.
    pub(super) fn check_delivery(&mut self, now: Time, id: SessionId) {
        let Some((sent, delivered)) = self.sent_and_delivered(id) else { return };
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        let is_stuck = securing.monitor.is_stuck(now, sent, delivered);
        let Some(securing) = self.sessions.entry(id).and_then(|e| e.securing.as_ref()) else { return };
        let idle = self.shared.config.idle_timeout.max(securing.monitor.round_trip * PATIENCE_RTTS);
        if is_stuck && securing.has_keys() && now.since(securing.monitor.answered_at) >= idle && !switch::is_off(Mechanism::SilentSessions)
        {
            return self.lose_session(now, id, CloseReason::local(Code::IdleTimeout, Layer::Session, SILENT));
        }
        if is_stuck && !self.leave_route(now, id, false) {
            // All of them were tried: from the beginning.
            if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
                securing.monitor.shunned.clear();
            }
            self.leave_route(now, id, false);
        }
    }

    /// A flow of a session has something to send.
    pub(super) fn note_sending(&mut self, now: Time, id: SessionId) {
        let securing = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut());
        if securing.is_some_and(|s| s.monitor.watch(now)) {
            self.arm_session(id);
        }
    }

    /// Sends a relayed session whose packets are altered on the route by another one: over the best route whose link is neither the present one nor one that it
    /// has left for cause before. False if there is none.
    pub fn avoid_route(&mut self, now: Time, session: SessionId) -> bool {
        self.leave_route(now, session, true)
    }

    /// The same for packets that are altered, or are not delivered.
    fn leave_route(&mut self, now: Time, session: SessionId, has_altered: bool) -> bool {
        let mut avoid = self.shunned(now, session);
        let Some(entry) = self.sessions.entry_mut(session) else { return false };
        let (Some(far), turn, link) = (entry.far.address(), entry.turn, entry.link) else { return false };
        avoid.extend(link);
        if switch::is_off(Mechanism::RouteAvoidance) {
            return false;
        }
        let Some(next) = self.next_hop_by(far, turn, &avoid) else { return false };
        if let Some(securing) = self.sessions.entry_mut(session).and_then(|e| e.securing.as_mut()) {
            securing.monitor.shunned.extend(link.map(|link| Shunned { link, since: now, has_altered }));
        }
        self.reopen_session(now, session, Some(next));
        true
    }

    /// Links that a session does not use for now, whatever routes lead over them.
    pub(super) fn shunned(&mut self, now: Time, id: SessionId) -> SmallVec<[LinkId; 4]> {
        self.shunned_if(now, id, |_| true)
    }

    /// Of these, the links whose routes altered packets. Whether its part arrives by a link, a flow that takes several routes finds out itself.
    pub(super) fn altering(&mut self, now: Time, id: SessionId) -> SmallVec<[LinkId; 4]> {
        self.shunned_if(now, id, |s| s.has_altered)
    }

    fn shunned_if(&mut self, now: Time, id: SessionId, is_meant: fn(&Shunned) -> bool) -> SmallVec<[LinkId; 4]> {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return SmallVec::new() };
        securing.monitor.shunned.retain(|s| now.since(s.since) < SHUNNED);
        securing.monitor.shunned.iter().filter(|s| is_meant(s)).map(|s| s.link).collect()
    }

    /// Source packets of all our flows in a session that the far end shall acknowledge, and how many of them it has.
    fn sent_and_delivered(&self, id: SessionId) -> Option<(u64, u64)> {
        let entry = self.sessions.entry(id)?;
        let packets = entry.control().and_then(|id| self.shared.flows.out(id)).map_or(0, |f| f.source.packets());
        // Acknowledgements of acknowledgements never come.
        let control = if entry.session.state() == SessionState::Opening { packets } else { packets.min(entry.asked) };
        let delivered = entry.session.control_delivered().min(control);
        let data = self.known.of_session(id).filter(|(_, known)| known.is_outgoing).filter_map(|(id, _)| self.shared.flows.out(id));
        Some(data.filter(|f| f.on == entry.link).fold((control, delivered), |(sent, delivered), flow| {
            let packets = flow.source.packets();
            (sent + packets, delivered + entry.session.delivered(flow.id).min(packets))
        }))
    }

    /// The route that a session goes by now alters packets: the far end says so, or they come so by the same link.
    pub(super) fn on_far_pollution(&mut self, now: Time, id: SessionId) {
        let Some(securing) = self.sessions.entry(id).and_then(|e| e.securing.as_ref()) else { return };
        if !securing.monitor.has_just_moved(now) {
            self.avoid_route(now, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(1000);

    #[test]
    fn only_what_was_sent_and_does_not_arrive_wears_patience_out() {
        let mut v = DeliveryMonitor::new(START);
        let mut now = START + Duration::from_millis(200);
        v.on_keys(now); // 200 ms end to end
        now = v.poll_timeout().unwrap();
        assert!(!v.is_stuck(now, 10, 3), "some arrived");
        assert_eq!(v.poll_timeout(), Some(now + Duration::from_millis(1200)));
        now = v.poll_timeout().unwrap();
        assert!(v.is_stuck(now, 20, 3), "nothing since");
        assert_eq!(v.poll_timeout(), Some(now + Duration::from_millis(2400)), "the next route gets more time");
        now = v.poll_timeout().unwrap();
        assert!(!v.is_stuck(now, 20, 20));
        assert_eq!(v.poll_timeout(), None, "nothing is under way");
        v.watch(now);
        assert!(v.poll_timeout().is_some());
        now = v.poll_timeout().unwrap();
        assert!(!v.is_stuck(now, 25, 24));
        now = v.poll_timeout().unwrap();
        assert!(!v.is_stuck(now, 26, 25), "all of then has come");
        now = v.poll_timeout().unwrap();
        assert!(v.is_stuck(now, 400, 25), "that of then has not");
        assert!(!v.is_stuck(v.poll_timeout().unwrap(), 400, 400));
        v.watch(now);
        now = v.poll_timeout().unwrap();
        assert!(!v.is_stuck(now, 401, 401) && v.poll_timeout().is_none());
    }
}
