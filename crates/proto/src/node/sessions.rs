//! Sessions of a node: which there are, by which link they go, and who may open another. What is done with them is in `session_life.rs` and
//! `flow_events.rs`.

use super::reroute::{SessionName, Trouble};
use super::secure::Securing;
use super::shared::{INITIAL_CREDIT, Shared};
use crate::error::Code;
use crate::ids::{FlowId, FlowLabel, LinkId, SessionId, SessionKey};
use crate::link::{Link, State};
use crate::session::{Accepted, CONTROL_INDEX, Session, SessionLimits, SessionRole};
use crate::stats::{FlowStats, FlowTotals, RouteStats};
use crate::units::Time;
use crate::wire::frame::FlowOpen;
use crate::work;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// What every node takes, for sessions that are opened before the neighbour has said what it takes.
pub(crate) const FLOOR: SessionLimits = SessionLimits { max_message: 64 * 1024, max_flows: 16, credit: 32 };
/// Names of ended sessions that are remembered, so that late FLOW_OPENs do not revive them.
const REMEMBERED: usize = 1024;
/// One in so many places for sessions is kept for links that have none.
const KEPT_FOR_NEWCOMERS: usize = 64;
/// The far end of a session, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Far {
    /// It is the neighbour at the other end of this link.
    Neighbour(LinkId),
    /// It is, or may be, behind relays.
    Relayed {
        /// Its address.
        far: IpAddr,
        /// The address of ours that it knows.
        near: IpAddr,
    },
}

impl Far {
    /// Its address, if the session is relayed.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Neighbour(_) => None,
            Self::Relayed { far, .. } => Some(far),
        }
    }
}

/// One session as the node keeps it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) session: Session,
    pub(crate) far: Far,
    /// Where its flows go out now.
    pub(crate) link: LinkId,
    /// Relayed: which of several equally good routes it takes first.
    pub(crate) turn: usize,
    /// The handshake and the keys of a relayed session.
    pub(crate) securing: Option<Box<Securing>>,
    /// Our control flow; `None` until the node has opened it.
    pub(super) control: Option<FlowLabel>,
    /// So many packets of it at least hold words that the far end acknowledges.
    pub(super) asked: u64,
    /// Relayed: where the far end's control flow comes in.
    pub(super) control_in: Option<(LinkId, FlowLabel)>,
    /// Relayed: the far end's control flow comes by no link since then.
    pub(crate) unheard_since: Option<Time>,
    /// Relayed: how often its flows were opened again.
    pub(crate) incarnation: u64,
    /// Relayed: the way to the far end broke, and nothing was heard since.
    pub(crate) trouble: Option<Trouble>,
    /// The close handshake was told that the control flow is empty at this state.
    pub(super) is_told: bool,
    /// The owner knows of it: always, when this side opened it.
    pub(crate) is_announced: bool,
    /// What its data flows that are gone have counted.
    pub(super) ended: FlowTotals,
    /// What flows that take several routes at once have carried, by link.
    pub(super) routes: BTreeMap<LinkId, RouteStats>,
}

impl Entry {
    /// Our control flow.
    pub(crate) fn control(&self) -> Option<FlowLabel> {
        self.control
    }

    /// Our control flow is gone; the next pump opens another.
    pub(crate) fn take_control(&mut self) -> Option<FlowLabel> {
        self.control.take()
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(super) entries: BTreeMap<SessionId, Entry>,
    by_key: BTreeMap<(Far, SessionKey), SessionId>,
    ended: VecDeque<(Far, SessionKey)>,
    /// Sessions whose `is_told` is false: only these have control messages to move or to hear of.
    pub(super) untold: BTreeSet<(LinkId, SessionId)>,
    next: u64,
}

impl Sessions {
    pub(crate) fn link_of(&self, id: SessionId) -> Option<LinkId> {
        self.entries.get(&id).map(|e| e.link)
    }

    /// What the data flows of a session that are gone have counted.
    pub(crate) fn ended_flows(&self, id: SessionId) -> Option<&FlowTotals> {
        self.entries.get(&id).map(|e| &e.ended)
    }

    /// A data flow is gone.
    pub(crate) fn note_ended(&mut self, id: SessionId, is_outgoing: bool, stats: FlowStats) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.ended.add_ended(is_outgoing, stats);
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(crate) fn entry(&self, id: SessionId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn entry_mut(&mut self, id: SessionId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// The session goes by another name from now on, with a handshake of its own.
    pub(crate) fn rename(&mut self, id: SessionId, key: SessionKey, securing: Option<Box<Securing>>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.by_key.remove(&(entry.far, entry.session.key()));
        entry.session.rename(key);
        entry.securing = securing;
        self.by_key.insert((entry.far, key), id);
    }

    pub(super) fn insert(&mut self, far: Far, link: LinkId, session: Session, securing: Option<Box<Securing>>) -> SessionId {
        let is_announced = session.role() == SessionRole::Opener;
        self.next += 1;
        let id = SessionId(self.next);
        self.by_key.insert((far, session.key()), id);
        self.entries.insert(
            id,
            Entry {
                session,
                far,
                link,
                turn: 0,
                securing,
                control: None,
                asked: 0,
                control_in: None,
                unheard_since: None,
                incarnation: 0,
                trouble: None,
                is_told: false,
                is_announced,
                ended: FlowTotals::default(),
                routes: BTreeMap::new(),
            },
        );
        self.untold.insert((link, id));
        id
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let name = (entry.far, entry.session.key());
        self.untold.remove(&(entry.link, id));
        self.by_key.remove(&name);
        self.ended.push_back(name);
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
        Some(entry)
    }

    pub(crate) fn named(&self, name: SessionName) -> Option<SessionId> {
        self.by_key.get(&name).copied()
    }

    pub(crate) fn control_in(&self, id: SessionId) -> Option<(LinkId, FlowLabel)> {
        self.entries.get(&id)?.control_in
    }

    pub(crate) fn set_control_in(&mut self, id: SessionId, hop: Option<(LinkId, FlowLabel)>) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.control_in = hop;
        }
    }

    pub(crate) fn set_control(&mut self, id: SessionId, label: FlowLabel) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.control = Some(label);
        }
    }

    pub(crate) fn incoming_flow(&self, id: SessionId, index: u64) -> Option<FlowId> {
        self.entries.get(&id)?.session.flows().incoming(index)
    }

    /// What this side sends in a session goes by another link.
    pub(crate) fn move_to(&mut self, id: SessionId, link: LinkId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let from = core::mem::replace(&mut entry.link, link);
        if self.untold.remove(&(from, id)) {
            self.untold.insert((link, id));
        }
    }

    /// Relayed sessions, their far ends and the links that they go by.
    pub(crate) fn relayed(&self) -> Vec<(SessionId, IpAddr, usize, LinkId)> {
        self.entries.iter().filter_map(|(id, e)| Some((*id, e.far.address()?, e.turn, e.link))).collect()
    }

    pub(super) fn on_link(&self, link: LinkId) -> Vec<SessionId> {
        self.entries.iter().inspect(|_| work::step()).filter(|(_, e)| e.link == link).map(|(id, _)| *id).collect()
    }
}

impl Shared {
    pub(super) fn session_limits(&self) -> SessionLimits {
        SessionLimits { max_message: self.config.max_message as u64, max_flows: self.config.max_flows as u64, credit: INITIAL_CREDIT }
    }

    /// Whether a neighbour may open one more. The last places are for neighbours that have none: nobody takes them all.
    fn has_room_for_session(&self, link: LinkId) -> bool {
        let (open, limit) = (self.sessions.entries.len(), self.config.max_sessions);
        open < limit - limit / KEPT_FOR_NEWCOMERS
            || (open < limit && self.sessions.entries.values().inspect(|_| work::step()).all(|e| e.link != link))
    }

    /// The session that an offered flow belongs to; a name that is new makes a session. An error refuses the flow.
    ///
    /// `UnknownFlow`: it comes too early, and is to be offered again.
    pub(crate) fn session_for_open(&mut self, now: Time, link: LinkId, open: &FlowOpen, peer: SessionLimits) -> Result<SessionId, Code> {
        let far = match &open.relayed {
            None => Far::Neighbour(link),
            Some(r) if self.routing.is_local(r.destination) => Far::Relayed { far: r.source, near: r.destination },
            Some(_) => return Err(Code::NoRelay),
        };
        // What the neighbour has said of itself says nothing about an end behind it.
        let peer = if open.relayed.is_some() { FLOOR } else { peer };
        let name = (far, open.session);
        let id = match self.sessions.by_key.get(&name) {
            Some(&id) => id,
            None if self.sessions.ended.contains(&name) => {
                self.counters.stale_flows += 1;
                return Err(Code::UnknownSession);
            }
            None if !self.has_room_for_session(link) => {
                self.counters.refused_sessions += 1;
                return Err(Code::TooMany);
            }
            // A relayed session begins with the handshake on its control flow.
            None if open.relayed.is_some() && open.index != CONTROL_INDEX => return Err(Code::UnknownFlow),
            None if open.relayed.is_some() && !self.may_answer() => return Err(Code::TooMany),
            None => {
                let limits = self.session_limits();
                let session = Session::new(open.session, SessionRole::Acceptor, limits, peer);
                self.sessions.insert(far, link, session, Securing::accepting(far, now))
            }
        };
        if open.index != CONTROL_INDEX
            && let Some(entry) = self.sessions.entries.get(&id)
        {
            if entry.securing.as_ref().is_some_and(|s| !s.takes_flows()) {
                return Err(Code::UnknownFlow);
            }
            match entry.session.inspect_flow(open.index) {
                Ok(Accepted::New) => {}
                // One more part of it.
                Ok(Accepted::Known(_)) if open.part() > 0 => {}
                Ok(Accepted::Known(_) | Accepted::Over) => return Err(Code::Stopped),
                Err(reason) => return Err(reason.code),
            }
        }
        Ok(id)
    }
}

/// What the neighbour's handshake said about sessions.
pub(crate) fn limits_of(link: &Link) -> SessionLimits {
    match link.state {
        State::Handshaking(_) => FLOOR,
        _ => SessionLimits {
            max_message: link.peer_params.max_message,
            max_flows: link.peer_params.max_flows,
            credit: link.peer_params.initial_credit.min(INITIAL_CREDIT),
        },
    }
}
