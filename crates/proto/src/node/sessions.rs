//! Sessions of a node: which there are, by which link they go, and which keys may open another. What is done with them is in `session_life.rs` and
//! `flow_events.rs`.

use super::Node;
use super::reroute::{SessionName, Trouble};
use super::secure::Securing;
use super::unproven::Unproven;
use crate::config::INITIAL_CREDIT;
use crate::crypto::PublicKey;
use crate::error::Code;
use crate::ids::{FlowId, LinkId, SessionId, SessionKey};
use crate::link::{Link, LinkState};
use crate::neighbour::Neighbour;
use crate::session::{Accepted, CONTROL_INDEX, Session, SessionLimits, SessionRole};
use crate::shard::Common;
use crate::stats::{FlowStats, FlowTotals, RouteStats};
use crate::table::Table;
use crate::units::{Duration, Time};
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
/// Of the places that others leave, one neighbour may have so many in four.
const PLACES_OF_ONE: usize = 3;
/// Coded packets of a session that nobody with its keys made, at most: each is one guess at a tag of 64 bits (codes.md 6).
pub(super) const MOST_FORGERIES: u64 = 1 << 16;

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
    /// The link that its flows go out by now; none while there is no way to the far end.
    pub(crate) link: Option<LinkId>,
    /// The link by which the far end opened it; `None`: it was opened here.
    pub(super) from: Option<Neighbour>,
    /// Coded packets of it that nobody with its keys made (P16).
    pub(super) polluted: u64,
    /// Relayed: which of several equally good routes it takes first.
    pub(crate) turn: usize,
    /// The handshake and the keys of a relayed session.
    pub(crate) securing: Option<Box<Securing>>,
    /// Our control flow; `None` until the node has opened it.
    pub(super) control: Option<FlowId>,
    /// So many packets of it at least hold words that the far end acknowledges.
    pub(super) asked: u64,
    /// Relayed: the far end's control flow.
    pub(super) control_in: Option<FlowId>,
    /// Relayed: the far end's control flow comes by no link since then.
    pub(crate) unheard_since: Option<Time>,
    /// Relayed: how often its flows were opened again.
    pub(crate) incarnation: u64,
    /// Relayed: the way to the far end broke, and nothing was heard since.
    pub(crate) trouble: Option<Trouble>,
    /// The close handshake was told that the control flow is empty at this state.
    pub(super) is_told: bool,
    /// The owner knows of it: always, when this side opened it, unless it only asks whether the far end is another process.
    pub(crate) is_announced: bool,
    /// When the far end was last asked whether it is another process.
    pub(super) asked_end_at: Option<Time>,
    /// What its data flows that are gone have counted.
    pub(super) ended: FlowTotals,
    /// What flows that take several routes at once have carried, by link.
    pub(super) routes: BTreeMap<LinkId, RouteStats>,
}

impl Entry {
    /// Our control flow.
    pub(crate) fn control(&self) -> Option<FlowId> {
        self.control
    }

    /// Our control flow is gone; the next pump opens another.
    pub(crate) fn take_control(&mut self) -> Option<FlowId> {
        self.control.take()
    }
}

/// Sessions that far ends opened, by the neighbour that they came by.
#[derive(Debug, Default)]
struct Places {
    all: usize,
    of: BTreeMap<Neighbour, usize>,
}

impl Places {
    /// Whether one more may come by a neighbour. One has three quarters of what others leave, and the last places are for those that have none.
    fn has_room_for(&self, from: Neighbour, limit: usize) -> bool {
        let own = self.of.get(&from).copied().unwrap_or(0);
        let left = limit.saturating_sub(self.all - own);
        match own {
            0 => self.all < limit,
            _ => self.all < limit - limit / KEPT_FOR_NEWCOMERS && own < left * PLACES_OF_ONE / 4,
        }
    }

    fn take(&mut self, from: Neighbour) {
        *self.of.entry(from).or_default() += 1;
        self.all += 1;
    }

    fn give_back(&mut self, from: Neighbour) {
        let Some(count) = self.of.get_mut(&from) else { return };
        self.all -= 1;
        *count -= 1;
        if *count == 0 {
            self.of.remove(&from);
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(super) entries: Table<SessionId, Entry>,
    by_key: BTreeMap<(Far, SessionKey), SessionId>,
    /// Sessions by the link that their flows go out by.
    by_link: BTreeSet<(Option<LinkId>, SessionId)>,
    /// Sessions that far ends opened: those of all shards, and how many of them are here.
    places: Common<Places>,
    incoming: usize,
    pub(super) unproven: Unproven,
    /// Names of ended sessions, oldest first, and for looking up.
    ended: VecDeque<SessionName>,
    ended_names: BTreeSet<SessionName>,
    /// Sessions whose `is_told` is false: only these have control messages to move or to hear of.
    pub(super) untold: BTreeSet<(Option<LinkId>, SessionId)>,
    next: u64,
}

impl Sessions {
    /// Those of another shard of the same endpoint.
    pub(super) fn beside(&self) -> Self {
        Self { places: self.places.clone(), ..Self::default() }
    }

    /// Sessions that far ends opened, of all shards.
    #[cfg(test)]
    pub(super) fn places_taken(&self) -> usize {
        self.places.lock().all
    }

    fn has_room_for(&self, from: Neighbour, limit: usize) -> bool {
        self.places.lock().has_room_for(from, limit)
    }

    pub(crate) fn link_of(&self, id: SessionId) -> Option<LinkId> {
        self.entries.get(&id)?.link
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

    #[cfg(test)]
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

    /// `from`: the neighbour by which the far end opened it.
    pub(super) fn insert(
        &mut self,
        far: Far,
        link: LinkId,
        from: Option<Neighbour>,
        session: Session,
        securing: Option<Box<Securing>>,
    ) -> SessionId {
        let is_announced = session.role() == SessionRole::Opener;
        self.next += 1;
        let id = SessionId(self.next);
        self.by_key.insert((far, session.key()), id);
        let link = Some(link);
        self.by_link.insert((link, id));
        if let Some(from) = from {
            self.places.lock().take(from);
            self.incoming += 1;
            if let Some(address) = far.address() {
                self.unproven.insert(id, from, address);
            }
        }
        self.entries.insert(
            id,
            Entry {
                session,
                far,
                link,
                from,
                polluted: 0,
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
                asked_end_at: None,
                ended: FlowTotals::default(),
                routes: BTreeMap::new(),
            },
        );
        // Nothing is told before the opener's first packet is here.
        if from.is_none() || far.address().is_none() {
            self.untold.insert((link, id));
        }
        id
    }

    /// The session has something to tell.
    pub(super) fn note_untold(&mut self, id: SessionId) {
        if let Some(entry) = self.entries.get(&id) {
            self.untold.insert((entry.link, id));
        }
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Entry> {
        self.prove(id);
        let entry = self.entries.remove(&id)?;
        let name = (entry.far, entry.session.key());
        self.untold.remove(&(entry.link, id));
        self.by_key.remove(&name);
        self.by_link.remove(&(entry.link, id));
        if let Some(from) = entry.from {
            self.incoming -= 1;
            self.places.lock().give_back(from);
        }
        // An opener that has not proven its key is not remembered: else it would push out the names of others.
        if entry.is_announced && self.ended_names.insert(name) {
            self.ended.push_back(name);
            if self.ended.len() > REMEMBERED
                && let Some(oldest) = self.ended.pop_front()
            {
                self.ended_names.remove(&oldest);
            }
        }
        Some(entry)
    }

    /// The opener of a session has proven its key, or will not any more.
    pub(super) fn prove(&mut self, id: SessionId) {
        if let Some(entry) = self.entries.get(&id)
            && let (Some(from), Some(far)) = (entry.from, entry.far.address())
        {
            self.unproven.remove(id, from, far);
        }
    }

    /// A coded packet of the session came that nobody with its keys made. True once when there were so many that it has to end.
    pub(crate) fn count_forgery(&mut self, id: SessionId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        entry.polluted += 1;
        entry.polluted == MOST_FORGERIES
    }

    /// Sessions over relays whose far end opened them with a key that may not.
    pub(super) fn opened_by_strangers(&self, may_open: impl Fn(PublicKey) -> bool) -> Vec<SessionId> {
        let is_stranger = |e: &Entry| e.from.is_some() && e.securing.as_ref().and_then(|s| s.peer()).is_some_and(|key| !may_open(key));
        self.entries.iter().filter(|(_, e)| is_stranger(e)).map(|(id, _)| *id).collect()
    }

    /// Handshakes that only ask which process a far end is.
    pub(super) fn questions(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|e| e.securing.as_ref().is_some_and(|s| s.asks()))
    }

    /// Sessions that were opened here.
    pub(super) fn own(&self) -> usize {
        self.entries.len() - self.incoming
    }

    pub(crate) fn named(&self, name: SessionName) -> Option<SessionId> {
        self.by_key.get(&name).copied()
    }

    pub(crate) fn control_in(&self, id: SessionId) -> Option<FlowId> {
        self.entries.get(&id)?.control_in
    }

    pub(crate) fn set_control_in(&mut self, id: SessionId, flow: Option<FlowId>) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.control_in = flow;
        }
    }

    pub(crate) fn incoming_flow(&self, id: SessionId, index: u64) -> Option<FlowId> {
        self.entries.get(&id)?.session.flows().incoming(index)
    }

    /// What this side sends in a session goes by another link.
    pub(crate) fn move_to(&mut self, id: SessionId, link: Option<LinkId>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let from = core::mem::replace(&mut entry.link, link);
        self.by_link.remove(&(from, id));
        self.by_link.insert((link, id));
        if self.untold.remove(&(from, id)) {
            self.untold.insert((link, id));
        }
    }

    /// Relayed sessions, their far ends and the links that they go by.
    pub(crate) fn relayed(&self) -> Vec<(SessionId, IpAddr, usize, Option<LinkId>)> {
        self.entries.iter().filter_map(|(id, e)| Some((*id, e.far.address()?, e.turn, e.link))).collect()
    }

    pub(super) fn on_link(&self, link: LinkId) -> Vec<SessionId> {
        let link = Some(link);
        self.by_link.range((link, SessionId(0))..=(link, SessionId(u64::MAX))).inspect(|_| work::step()).map(|(_, id)| *id).collect()
    }
}

impl Node {
    pub(super) fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            max_message: self.shared.config.max_message as u64,
            max_flows: self.shared.config.max_flows as u64,
            credit: INITIAL_CREDIT,
        }
    }

    /// The session that a flow belongs to which the neighbour `from` offers; a name that is new makes a session, whose flows go out by `link`. An error
    /// refuses the flow.
    ///
    /// `UnknownFlow`: it comes too early, and is to be offered again.
    pub(super) fn session_for_open(
        &mut self,
        now: Time,
        from: Neighbour,
        link: LinkId,
        open: &FlowOpen,
        peer: SessionLimits,
        patience: Duration,
    ) -> Result<SessionId, Code> {
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
            None if self.sessions.ended_names.contains(&name) => {
                self.shared.counters.stale_flows += 1;
                return Err(Code::UnknownSession);
            }
            None if !self.sessions.has_room_for(from, self.shared.config.max_sessions) => {
                self.shared.counters.refused_sessions += 1;
                return Err(Code::TooMany);
            }
            // A relayed session begins with the handshake on its control flow.
            None if open.relayed.is_some() && open.index != CONTROL_INDEX => return Err(Code::UnknownFlow),
            None => {
                let limits = self.session_limits();
                let session = Session::new(open.session, SessionRole::Acceptor, limits, peer);
                self.sessions.insert(far, link, Some(from), session, Securing::accepting(far, now, patience))
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
        LinkState::Handshaking(_) => FLOOR,
        _ => SessionLimits {
            max_message: link.peer_params.max_message,
            max_flows: link.peer_params.max_flows,
            credit: link.peer_params.initial_credit.min(INITIAL_CREDIT),
        },
    }
}
