//! Sessions of a node: which there are, by which link they go, and how links' events become theirs.

use super::reroute::{PARKING, SessionName, Trouble};
use super::secure::Securing;
use super::shared::{FlowPlace, INITIAL_CREDIT, Shared};
use super::{Node, TimerKey};
use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::event::Event;
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId, SessionKey};
use crate::link::flows::{buffer_of, floor_of, memory_wish, options_of};
use crate::link::{Control, Link, State};
use crate::options::{FlowOptions, MessageOptions, Mode};
use crate::session::{self, Accepted, CONTROL_INDEX, FarWord, SendHalf, SendLimits, Session, SessionAction, SessionLimits, SessionRole};
use crate::stats::{FlowStats, FlowTotals};
use crate::units::{Duration, Time};
use crate::wire::frame::{FlowOpen, Relayed};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// What every node takes, for sessions that are opened before the neighbour has said what it takes.
pub(crate) const FLOOR: SessionLimits = SessionLimits { max_message: 64 * 1024, max_flows: 16, credit: 32 };
/// Names of ended sessions that are remembered, so that late FLOW_OPENs do not revive them.
const REMEMBERED: usize = 1024;
/// One in so many places for sessions is kept for links that have none.
const KEPT_FOR_NEWCOMERS: usize = 64;
/// Nodes that a flow may pass.
const HOP_LIMIT: u8 = 16;

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
    /// The handshake and the keys of a relayed session.
    pub(crate) securing: Option<Box<Securing>>,
    /// Our control flow; `None` until the node has opened it.
    control: Option<FlowLabel>,
    /// Relayed: where the far end's control flow comes in.
    control_in: Option<(LinkId, FlowLabel)>,
    /// Relayed: the far end's control flow comes by no link since then.
    pub(crate) unheard_since: Option<Time>,
    /// Relayed: how often its flows were opened again.
    pub(crate) incarnation: u64,
    /// Relayed: the way to the far end broke, and nothing was heard since.
    pub(crate) trouble: Option<Trouble>,
    /// The close handshake was told that the control flow is empty at this state.
    is_told: bool,
    /// The owner knows of it: always, when this side opened it.
    pub(crate) is_announced: bool,
    /// What its data flows that are gone have counted.
    ended: FlowTotals,
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
    entries: BTreeMap<SessionId, Entry>,
    by_key: BTreeMap<(Far, SessionKey), SessionId>,
    ended: VecDeque<(Far, SessionKey)>,
    /// Sessions whose `is_told` is false: only these have control messages to move or to hear of.
    untold: BTreeSet<(LinkId, SessionId)>,
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

    fn insert(&mut self, far: Far, link: LinkId, session: Session, securing: Option<Box<Securing>>) -> SessionId {
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
                securing,
                control: None,
                control_in: None,
                unheard_since: None,
                incarnation: 0,
                trouble: None,
                is_told: false,
                is_announced,
                ended: FlowTotals::default(),
            },
        );
        self.untold.insert((link, id));
        id
    }

    fn remove(&mut self, id: SessionId) -> Option<Entry> {
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
    pub(crate) fn relayed(&self) -> Vec<(SessionId, IpAddr, LinkId)> {
        self.entries.iter().filter_map(|(id, e)| Some((*id, e.far.address()?, e.link))).collect()
    }

    fn on_link(&self, link: LinkId) -> Vec<SessionId> {
        self.entries.iter().filter(|(_, e)| e.link == link).map(|(id, _)| *id).collect()
    }
}

impl Shared {
    fn session_limits(&self) -> SessionLimits {
        SessionLimits { max_message: self.config.max_message as u64, max_flows: self.config.max_flows as u64, credit: INITIAL_CREDIT }
    }

    /// Whether a neighbour may open one more. The last places are for neighbours that have none: nobody takes them all.
    fn has_room_for_session(&self, link: LinkId) -> bool {
        let (open, limit) = (self.sessions.entries.len(), self.config.max_sessions);
        open < limit - limit / KEPT_FOR_NEWCOMERS || (open < limit && self.sessions.entries.values().all(|e| e.link != link))
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
            None if self.sessions.ended.contains(&name) => return Err(Code::UnknownSession),
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

impl Node {
    /// A session to a node that may be several links away, over the best route to it. Flows can be opened and written at once; they come from this
    /// node's first address of the destination's family. `peer`: the key that the destination must have; `None` accepts whatever key answers (the
    /// caller decides on `SessionOpened`). Everything is sealed end to end, and leaves once the keys are agreed: `SessionOpened` tells.
    ///
    /// # Errors
    /// `NoRoute` if no usable link leads there, `Misuse` if this node has no address of that family, `Limit`.
    pub fn open_session_to(&mut self, now: Time, destination: IpAddr, peer: Option<PublicKey>) -> Result<SessionId, CommandError> {
        let near = self.shared.routing.source_for(destination).ok_or(CommandError::Misuse(
            "this node has no address of the destination's family, so that nobody could answer: set one first",
        ))?;
        let link = self.next_hop(destination, &[]).ok_or(CommandError::NoRoute(destination))?;
        self.create_session(now, Far::Relayed { far: destination, near }, link, peer)
    }

    /// The far end's address of a session that is, or may be, relayed; `None` if the neighbour is the far end.
    pub fn session_far(&self, session: SessionId) -> Option<IpAddr> {
        self.shared.sessions.entries.get(&session)?.far.address()
    }

    pub(super) fn create_session(
        &mut self,
        now: Time,
        far: Far,
        link: LinkId,
        expected: Option<PublicKey>,
    ) -> Result<SessionId, CommandError> {
        if self.shared.sessions.entries.len() >= self.shared.config.max_sessions {
            return Err(CommandError::Limit { what: "sessions", limit: self.shared.config.max_sessions });
        }
        let key = SessionKey(u64::from_be_bytes(self.shared.random_bytes()) >> 2);
        let peer = match far {
            Far::Neighbour(_) => self.links.get(&link).map_or(FLOOR, |l| limits_of(l)),
            Far::Relayed { .. } => FLOOR,
        };
        let limits = self.shared.session_limits();
        let securing = self.shared.start_securing(now, far, key, expected, false).map_err(CommandError::Closed)?;
        let id = self.shared.sessions.insert(far, link, Session::new(key, SessionRole::Opener, limits, peer), securing);
        self.pump_session(now, id);
        self.settle(now, link);
        Ok(id)
    }

    /// Opens a data flow of a session.
    pub(super) fn open_session_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        let entry = self.shared.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
        if options.mode == Mode::Transparent && entry.far.address().is_some() {
            return Err(CommandError::Misuse("a transparent flow belongs to one link: relays do not forward it; use btp"));
        }
        let answers = match options.answers {
            Some(flow) => match entry.session.flows().index_of(flow) {
                Some((session::Direction::Incoming, index)) => Some(index),
                _ => return Err(CommandError::Misuse("`answers` must name an incoming flow of the same session")),
            },
            None => None,
        };
        if entry.far.address().is_some() && options.mode == Mode::Transparent {
            return Err(CommandError::Misuse(
                "transparent flows go over a single link only: relays have nothing to make up for what is lost of them",
            ));
        }
        let id = FlowId(self.shared.next_flow_id().0);
        let entry = self.shared.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
        let index = entry.session.open_flow(id, &options)?;
        let result = self.open_out(now, session, id, index, answers, &options);
        if result.is_err()
            && let Some(entry) = self.shared.sessions.entries.get_mut(&session)
        {
            entry.session.remove_flow(now, id);
        }
        let label = result?;
        let Some(link) = self.shared.sessions.link_of(session) else { return Err(CommandError::Unknown("session")) };
        self.flows.insert(id, FlowPlace { link, session, label, is_outgoing: true });
        self.settle(now, link);
        Ok(id)
    }

    /// The sending half of a flow, control flow included.
    fn open_out(
        &mut self,
        now: Time,
        session: SessionId,
        id: FlowId,
        index: u64,
        answers: Option<u64>,
        options: &FlowOptions,
    ) -> Result<FlowLabel, CommandError> {
        let entry = self.shared.sessions.entries.get(&session).ok_or(CommandError::Unknown("session"))?;
        let link = self.links.get_mut(&entry.link).ok_or(CommandError::Unknown("link"))?;
        let symbol = link.symbol_ceiling(&self.shared);
        let relayed = match entry.far {
            Far::Neighbour(_) => None,
            Far::Relayed { far, near } => Some(Relayed {
                destination: far,
                source: near,
                incarnation: entry.incarnation,
                first: Seq(0),
                fits: link.fits(options.batch_size, &self.shared),
            }),
        };
        let mut open = FlowOpen {
            session: entry.session.key(),
            index,
            label: FlowLabel(0),
            symbol,
            mode: options.mode,
            kind: options.kind,
            class: options.class,
            lifetime: options.lifetime,
            batch_size: options.batch_size,
            hop_limit: HOP_LIMIT,
            no_retransmit: options.no_retransmit,
            answers,
            bidirectional: options.bidirectional,
            tag: options.tag,
            relayed,
        };
        let account = self
            .shared
            .ledger
            .open(floor_of(&open), memory_wish(index, self.shared.config.flow_memory))
            .ok_or(CommandError::Limit { what: "bytes of memory for flows (node_memory)", limit: self.shared.config.node_memory })?;
        let buffer = buffer_of(self.shared.ledger.allowed(&account));
        let max_message = if index == CONTROL_INDEX {
            session::MAX_CONTROL_MESSAGE
        } else {
            usize::try_from(entry.session.peer_limits().max_message).unwrap_or(usize::MAX)
        };
        let mut source = SendHalf::new(options, SendLimits { buffer, max_message });
        if options.mode == Mode::Transparent {
            source.keep_whole(usize::from(open.symbol).saturating_sub(crate::link::DATAGRAM_ROOM));
        }
        if let Some(securing) = self.shared.sessions.entries.get_mut(&session).and_then(|e| e.securing.as_mut())
            && securing.equip_out(&mut open, &mut source).is_err()
        {
            self.shared.ledger.close(&account);
            return Err(CommandError::Misuse("the session's keys give none for this flow"));
        }
        let label = link.open_out(id, session, open, source, account, now);
        link.settle_out(label, &mut self.shared);
        Ok(label)
    }

    /// Moves control frames of a session onto its control flow, and ends the session when its outcome is known.
    pub(super) fn pump_session(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.shared.sessions.entries.get(&id) else { return };
        let link_id = entry.link;
        if entry.control.is_none() {
            let flow = self.shared.next_flow_id();
            if let Ok(label) = self.open_out(now, id, flow, CONTROL_INDEX, None, &session::control_options())
                && let Some(entry) = self.shared.sessions.entries.get_mut(&id)
            {
                entry.control = Some(label);
            }
        }
        let Some(entry) = self.shared.sessions.entries.get_mut(&id) else { return };
        if let (Some(label), Some(link)) = (entry.control, self.links.get_mut(&link_id)) {
            let mut is_written = false;
            if let Some(flow) = link.flows.out.get_mut(&label) {
                // The control flow's buffer holds several messages; what does not fit waits in the session, and all does before the keys stand: an
                // attempt at the handshake that comes to nothing takes no words with it.
                while entry.session.has_control()
                    && !flow.source.is_awaiting_key()
                    && flow.source.buffered() < session::MAX_CONTROL_MESSAGE / 4
                {
                    let Some(message) = entry.session.poll_control(now) else { break };
                    is_written = true;
                    entry.is_told = false;
                    self.shared.sessions.untold.insert((link_id, id));
                    if flow.source.send_message(now, message, MessageOptions::default()).is_err() {
                        break;
                    }
                }
                // Behind relays only what the far end is done with has been delivered.
                let is_there = match entry.far {
                    Far::Neighbour(_) => flow.sender.outstanding() == 0,
                    Far::Relayed { .. } => flow.sender.done() >= flow.sender.next_seq(),
                };
                let is_empty = !entry.session.has_control() && flow.source.buffered() == 0 && is_there;
                if is_empty && !entry.is_told {
                    entry.is_told = true;
                    self.shared.sessions.untold.remove(&(link_id, id));
                    entry.session.on_control_delivered(now);
                }
            }
            if is_written {
                link.touch_out(label, now);
                self.mark_ready(link_id);
                self.rearm(link_id);
            }
        }
        self.arm_session(id);
        if self.shared.sessions.entries.get(&id).is_some_and(|entry| entry.session.outcome().is_some()) {
            self.finish_session(now, id);
        }
    }

    pub(super) fn arm_session(&mut self, id: SessionId) {
        let Some(entry) = self.shared.sessions.entries.get(&id) else { return };
        let retry = entry.trouble.as_ref().and_then(Trouble::poll_timeout);
        let securing = entry.securing.as_ref().and_then(|s| s.poll_timeout());
        let unheard = entry.unheard_since.map(|at| at + self.shared.config.idle_timeout);
        self.timers.set(TimerKey::Session(id), [entry.session.poll_timeout(), securing, retry, unheard].into_iter().flatten().min());
    }

    /// A session is over: what was received whole can still be read, everything else goes.
    fn finish_session(&mut self, now: Time, id: SessionId) {
        let totals = self.session_stats(id).unwrap_or_default();
        let Some(mut entry) = self.shared.sessions.remove(id) else { return };
        self.timers.set(TimerKey::Session(id), None);
        let places: Vec<FlowPlace> = self.flows.values().filter(|p| p.session == id).copied().collect();
        for place in places {
            if place.is_outgoing {
                self.drop_out(place);
            } else {
                self.retire_in(place);
            }
        }
        if let Some((link, label)) = entry.control_in {
            self.drop_in(FlowPlace { link, session: id, label, is_outgoing: false });
            self.mark_ready(link);
        }
        if let (PARKING, Some(label)) = (entry.link, entry.control) {
            self.drop_out(FlowPlace { link: PARKING, session: id, label, is_outgoing: true });
        }
        if let Some(link) = self.links.get_mut(&entry.link) {
            // The last words still go out; the far end's control flow is not needed any more.
            let is_mute = entry.control.and_then(|label| link.flows.out.get(&label)).is_some_and(|f| f.source.is_awaiting_key());
            if is_mute && let Some(label) = entry.take_control() {
                // Without keys there are no words that the far end could trust.
                if link.flows.out.get(&label).is_some_and(|f| f.is_announced) {
                    link.send_control(Control::FlowReset { flow: label, reason: Code::Reset as u64 });
                }
                self.drop_out(FlowPlace { link: entry.link, session: id, label, is_outgoing: true });
            } else if let Some(label) = entry.control
                && let Some(flow) = link.flows.out.get_mut(&label)
            {
                while let Some(message) = entry.session.poll_control(now) {
                    if flow.source.send_message(now, message, MessageOptions::default()).is_err() {
                        break;
                    }
                }
                flow.source.finish();
                flow.sender.release_custody();
                link.touch_out(label, now);
            }
            let Some(link) = self.links.get_mut(&entry.link) else { return };
            let controls: Vec<FlowLabel> = link.flows.incoming.iter().filter(|(_, f)| f.session == id).map(|(l, _)| *l).collect();
            for label in controls {
                self.drop_in(FlowPlace { link: entry.link, session: id, label, is_outgoing: false });
            }
            self.mark_ready(entry.link);
            self.rearm(entry.link);
        }
        if let Some(outcome) = entry.session.outcome().filter(|_| entry.is_announced) {
            self.events.push_back(Event::SessionClosed { session: id, outcome: outcome.clone(), totals: Box::new(totals) });
        }
    }

    /// Takes an incoming flow off its link; what it holds complete stays readable.
    fn retire_in(&mut self, place: FlowPlace) {
        let Some(flow) = self.links.get_mut(&place.link).and_then(|l| l.remove_in(place.label)) else { return };
        if flow.sink.has_all() && !flow.sink.is_finished() {
            self.orphans.insert(flow.id, flow);
        } else {
            self.shared.ledger.close(&flow.account);
            self.flows.remove(&flow.id);
            self.note_ended(place.link, flow.session, false, flow.open.index, flow.stats());
        }
    }

    pub(super) fn begin_close(
        &mut self,
        now: Time,
        session: SessionId,
        code: u64,
        reason: &str,
        linger: Duration,
    ) -> Result<(), CommandError> {
        let entry = self.shared.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
        let reason = CloseReason::application(code, reason);
        entry.session.close(now, reason, linger);
        self.finish_all_out(now, session);
        self.pump_session(now, session);
        Ok(())
    }

    /// Nothing more follows on any data flow of ours in this session.
    fn finish_all_out(&mut self, now: Time, session: SessionId) {
        let places: Vec<FlowPlace> = self.flows.values().filter(|p| p.session == session && p.is_outgoing).copied().collect();
        for place in places {
            if let Some(link) = self.links.get_mut(&place.link) {
                if let Some(flow) = link.flows.out.get_mut(&place.label) {
                    flow.source.finish();
                }
                link.touch_out(place.label, now);
                self.settle(now, place.link);
            }
        }
    }

    pub(super) fn on_session_timeout(&mut self, now: Time, id: SessionId) {
        self.on_securing_timeout(now, id);
        self.check_delivery(now, id);
        if let Some(entry) = self.shared.sessions.entries.get_mut(&id) {
            entry.session.handle_timeout(now);
        }
        self.retry_way(now, id);
        self.end_if_unheard(now, id);
        self.pump_session(now, id);
    }

    pub(super) fn on_link_up(&mut self, now: Time, id: LinkId) {
        for session in self.shared.sessions.on_link(id) {
            self.pump_session(now, session);
        }
    }

    /// A link ended: its sessions end with what is known, then the owner is told.
    pub(super) fn on_link_down(&mut self, now: Time, id: LinkId, reason: CloseReason) {
        self.park_incoming_of(now, id);
        for session in self.shared.sessions.on_link(id) {
            if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
                if entry.far.address().is_some() {
                    self.on_way_lost(now, session, reason.clone(), None);
                } else {
                    entry.session.on_link_lost(now, reason.clone());
                }
            }
            self.pump_session(now, session);
        }
        self.on_relays_link_down(now, id);
        let was_announced = self.links.get(&id).is_some_and(|l| l.is_initiator || l.was_up);
        if was_announced {
            let peer = self.links.get(&id).and_then(|l| l.peer);
            self.events.push_back(Event::LinkDown { link: id, reason, peer });
        }
    }

    /// The neighbour opened a flow.
    pub(super) fn on_flow_opened(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, flow_id, open) = (flow.session, flow.id, flow.open.clone());
        let Some(entry) = self.shared.sessions.entries.get_mut(&session) else { return };
        // The far end of a relayed session is known only when its handshake is over.
        if entry.securing.is_none()
            && !core::mem::replace(&mut entry.is_announced, true)
            && let Some(peer) = self.links.get(&id).and_then(|l| l.peer)
        {
            self.events.push_back(Event::SessionIncoming { session, link: id, peer, far: None });
        }
        if open.index != CONTROL_INDEX && entry.securing.as_mut().is_some_and(|s| s.holds(id, label)) {
            return;
        }
        if open.index != CONTROL_INDEX {
            let mut options = options_of(&open);
            let place = FlowPlace { link: id, session, label, is_outgoing: false };
            match entry.session.accept_flow(open.index, flow_id, &options) {
                Ok(Accepted::New) => {
                    options.answers = open.answers.and_then(|index| entry.session.flows().outgoing(index));
                    let word = entry.session.take_far_word(open.index);
                    self.flows.insert(flow_id, place);
                    self.events.push_back(Event::FlowIncoming { session, flow: flow_id, options });
                    self.on_far_word(now, session, flow_id, word);
                }
                Ok(_) => self.drop_in(place),
                Err(reason) => {
                    self.drop_in(place);
                    self.fail_session(now, session, reason);
                    return;
                }
            }
        }
        self.pump_session(now, session);
    }

    pub(super) fn fail_session(&mut self, now: Time, session: SessionId, reason: CloseReason) {
        if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
            entry.session.fail(now, reason);
        }
        self.pump_session(now, session);
    }

    pub(super) fn on_session_message(&mut self, now: Time, session: SessionId, message: &[u8]) {
        let Some(entry) = self.shared.sessions.entries.get_mut(&session) else { return };
        let actions = match entry.session.on_control(now, message) {
            Ok(actions) => actions,
            Err(reason) => {
                self.fail_session(now, session, reason);
                return;
            }
        };
        for action in actions {
            if matches!(action, SessionAction::Opened | SessionAction::Delivered { .. } | SessionAction::ControlDelivered(_))
                && let Some(entry) = self.shared.sessions.entries.get_mut(&session)
                && entry.link != PARKING
            {
                // What we send arrives. (While nothing is sent this is about what had gone before: the search for a way goes on.)
                entry.trouble = None;
            }
            self.on_session_action(now, session, action);
        }
        self.pump_session(now, session);
    }

    fn on_session_action(&mut self, now: Time, session: SessionId, action: SessionAction) {
        match action {
            // A relayed session is open once its keys stand.
            SessionAction::Opened if self.shared.sessions.entry(session).is_some_and(|e| e.securing.is_some()) => {}
            SessionAction::Opened => self.events.push_back(Event::SessionOpened { session }),
            SessionAction::Limits(limits) => {
                let max = usize::try_from(limits.max_message).unwrap_or(usize::MAX);
                for place in self.flows.values().filter(|p| p.session == session && p.is_outgoing) {
                    if let Some(flow) = self.links.get_mut(&place.link).and_then(|l| l.flows.out.get_mut(&place.label)) {
                        flow.source.set_max_message(max);
                    }
                }
            }
            // Between neighbours the link has acknowledged it already; over relays this frees what is kept (P14).
            SessionAction::Delivered { flow, packets, is_complete } => {
                if let Some(place) = self.flows.get(&flow).copied()
                    && let Some(link) = self.links.get_mut(&place.link)
                    && self.shared.sessions.entry(session).is_some_and(|e| e.securing.is_some())
                {
                    if let Some(f) = link.flows.out.get_mut(&place.label) {
                        f.sender.on_delivered(Seq(packets));
                    }
                    link.touch_out(place.label, now);
                    link.settle_out(place.label, &mut self.shared);
                    self.settle(now, place.link);
                    if is_complete {
                        self.on_flow_delivered(now, place.link, place.label);
                    }
                }
            }
            SessionAction::Reset { flow, code } => self.close_flow(now, flow, session_reason(Code::Reset, code)),
            SessionAction::Stop { flow, code } => self.close_flow(now, flow, session_reason(Code::Stopped, code)),
            SessionAction::PeerClosing(_) => self.finish_all_out(now, session),
            SessionAction::FlowEnd { flow, packets } => {
                self.on_far_word(now, session, flow, FarWord { end: Some(packets), floor: 0 });
            }
            SessionAction::Skip { flow, floor } => self.on_far_word(now, session, flow, FarWord { end: None, floor }),
            SessionAction::Fits(symbol) => self.on_fits(session, symbol),
            SessionAction::ControlDelivered(packets) => {
                if let Some((link, label)) = self.shared.sessions.entry(session).and_then(|e| Some((e.link, e.control()?)))
                    && let Some(link) = self.links.get_mut(&link)
                {
                    if let Some(f) = link.flows.out.get_mut(&label) {
                        f.sender.on_delivered(Seq(packets));
                    }
                    link.touch_out(label, now);
                }
            }
            SessionAction::Polluted => self.on_far_pollution(now, session),
        }
    }

    /// What the far end's session says of a flow: for a sealed flow the only word that counts.
    fn on_far_word(&mut self, now: Time, session: SessionId, flow: FlowId, word: FarWord) {
        let Some(place) = self.flows.get(&flow).copied() else { return };
        let Some(link) = self.links.get_mut(&place.link) else { return };
        let Some(f) = link.flows.incoming.get_mut(&place.label) else { return };
        let mut result = Ok(());
        if let Some(end) = word.end {
            result = if f.sink.is_sealed() {
                f.receiver.set_end(Some(Seq(end)));
                f.sink.on_far_end(Seq(end))
            } else {
                let contradiction = |_| CloseReason::local(Code::SessionProtocol, Layer::Session, "CLOSE contradicts the end of a flow");
                f.receiver.on_end(Seq(end)).map_err(contradiction)
            };
        }
        if word.floor > 0 && result.is_ok() {
            result = f.sink.on_far_skip(Seq(word.floor));
            f.receiver.on_skip(Seq(word.floor));
        }
        link.touch_in(place.label, now);
        if let Err(reason) = result {
            self.fail_session(now, session, reason);
        }
    }

    /// Nothing follows on a sealed flow of ours: the far end believes this side's session only.
    pub(super) fn on_flow_ended(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.out.get(&label)) else { return };
        let (session, flow_id, packets) = (flow.session, flow.id, flow.source.packets());
        if flow.open.index != CONTROL_INDEX
            && let Some(entry) = self.shared.sessions.entries.get_mut(&session)
        {
            entry.session.tell_end(now, flow_id, packets);
            self.pump_session(now, session);
        }
    }

    /// The first packets of a sealed flow of ours were given up: on a `brtp` flow only this side's session can say so with authority.
    pub(super) fn on_flow_skipped(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.out.get(&label)) else { return };
        let (session, flow_id, floor) = (flow.session, flow.id, flow.skip_told);
        if flow.open.mode == Mode::Brtp
            && let Some(entry) = self.shared.sessions.entries.get_mut(&session)
        {
            entry.session.tell_skip(flow_id, floor.0);
            self.pump_session(now, session);
        }
    }

    /// Packets of a flow towards us were altered by someone on the way (P16).
    pub(super) fn on_pollution(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, index, packets) = (flow.session, flow.open.index, flow.polluted);
        self.events.push_back(Event::Polluted { session, link: id });
        if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
            entry.session.tell_pollution(index, packets);
            // What goes back by the same link would pass the same hands.
            if entry.link == id {
                self.on_far_pollution(now, session);
            }
        }
        self.pump_session(now, session);
    }

    /// A neighbour contradicts itself about a flow that it relays: that says nothing about the flow, which waits for another way.
    fn on_lying_hop(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        if let Some(link) = self.links.get_mut(&id) {
            link.count_pollution(label);
            self.shared.counters.polluted += 1;
        }
        self.on_pollution(now, id, label);
        self.park_in(now, id, label);
        if let Some(link) = self.links.get_mut(&id) {
            link.refuse_flow(label, Code::Rerouted);
        }
    }

    /// A flow ended before its end: forgets it and tells the owner.
    fn close_flow(&mut self, now: Time, flow: FlowId, reason: CloseReason) {
        let Some(place) = self.flows.get(&flow).copied() else { return };
        if place.is_outgoing {
            self.drop_out(place);
        } else {
            self.drop_in(place);
        }
        if let Some(entry) = self.shared.sessions.entries.get_mut(&place.session) {
            entry.session.flow_lost(now, flow);
            entry.session.remove_flow(now, flow);
        }
        self.events.push_back(Event::FlowClosed { flow, reason });
        self.pump_session(now, place.session);
    }

    /// Everything of an incoming flow is here, read or not.
    pub(super) fn on_flow_received(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, flow_id, packets) = (flow.session, flow.id, flow.sink.received());
        if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
            entry.session.flow_received(now, flow_id, packets, true);
        }
        self.pump_session(now, session);
    }

    /// More of an incoming flow is here than the far end of a relayed session knows (P14).
    pub(super) fn on_flow_progress(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, flow_id, index, done) = (flow.session, flow.id, flow.open.index, flow.receiver.done().0);
        if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
            if index != CONTROL_INDEX {
                entry.session.flow_received(now, flow_id, done, false);
            } else if entry.session.take_control_worth() {
                entry.session.control_received(done);
            }
        }
        self.pump_session(now, session);
    }

    /// The application has read an incoming flow to its end.
    pub(super) fn on_flow_finished(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (flow_id, has_all) = (flow.id, flow.sink.has_all());
        // The control flow is no flow of the owner's: nobody announced it, nobody hears of its end.
        if flow.open.index != CONTROL_INDEX {
            self.events.push_back(Event::FlowFinished(flow_id));
        }
        if flow.open.kind == crate::options::FlowKind::Stream && !flow.is_end_read {
            // Stays until the empty chunk that says so was read.
            return;
        }
        self.end_in(now, id, label, has_all);
    }

    /// An incoming flow was read to its end and beyond: forget it.
    pub(super) fn end_in(&mut self, now: Time, id: LinkId, label: FlowLabel, has_all: bool) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, flow_id) = (flow.session, flow.id);
        if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
            if !has_all {
                entry.session.flow_ended(now, flow_id);
            }
            entry.session.remove_flow(now, flow_id);
        }
        self.drop_in(FlowPlace { link: id, session, label, is_outgoing: false });
        self.pump_session(now, session);
    }

    /// Everything that we sent on a flow is there.
    pub(super) fn on_flow_delivered(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.out.get(&label)) else { return };
        let (session, flow_id, is_control) = (flow.session, flow.id, flow.open.index == CONTROL_INDEX);
        // P14: a relay's word that it has everything means nothing to the ends.
        let is_known = |e: &Entry| e.securing.is_none() || e.session.is_flow_delivered(flow_id);
        if !is_control && !self.shared.sessions.entry(session).is_none_or(is_known) {
            return;
        }
        if !is_control {
            self.events.push_back(Event::FlowDelivered(flow_id));
            if let Some(entry) = self.shared.sessions.entries.get_mut(&session) {
                let packets = self.links.get(&id).and_then(|l| l.flows.out.get(&label)).map_or(0, |f| f.source.packets());
                entry.session.flow_finished(now, flow_id, packets);
                entry.session.flow_delivered(now, flow_id);
                entry.session.remove_flow(now, flow_id);
            }
        }
        self.drop_out(FlowPlace { link: id, session, label, is_outgoing: true });
        self.pump_session(now, session);
    }

    pub(super) fn on_out_closed(&mut self, now: Time, id: LinkId, label: FlowLabel, reason: CloseReason) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.out.get(&label)) else { return };
        if let Some(relay) = flow.relay {
            return self.on_relay_refused(now, relay, &reason);
        }
        let (flow_id, session, is_control) = (flow.id, flow.session, flow.open.index == CONTROL_INDEX);
        let is_way = match reason.code {
            Code::Rerouted | Code::NoRoute | Code::HopLimit | Code::NoRelay | Code::UnknownFlow => true,
            Code::NoMemory => is_control,
            // P16: no honest node answers so to what this side sends. A session in opening asks for its far end elsewhere, below.
            code => (is_absurd(code) || code == Code::Handshake) && !self.is_securing(session),
        };
        if flow.open.relayed.is_some() && is_way {
            if self.shared.sessions.entry(session).is_none() {
                // The last words of a session that is over.
                return self.drop_out(FlowPlace { link: id, session, label, is_outgoing: true });
            }
            return self.on_way_lost(now, session, reason, Some(id));
        }
        if is_control {
            if self.retry_opening(now, session, &reason) {
                return;
            }
            self.drop_out(FlowPlace { link: id, session, label, is_outgoing: true });
            self.fail_session(now, session, reason);
        } else {
            self.close_flow(now, flow_id, reason);
        }
    }

    pub(super) fn on_in_closed(&mut self, now: Time, id: LinkId, label: FlowLabel, reason: CloseReason) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        if let Some(relay) = flow.relay {
            return self.on_relay_reset(relay, &reason);
        }
        if flow.open.relayed.is_some() && reason.is_remote {
            // Only the way is closed: what ends the flow itself, the far end's session says.
            return self.park_in(now, id, label);
        }
        if flow.open.relayed.is_some() && reason.layer == Layer::Flow {
            return self.on_lying_hop(now, id, label);
        }
        let (flow_id, session, is_control) = (flow.id, flow.session, flow.open.index == CONTROL_INDEX);
        if is_control || !reason.is_remote {
            // Framing that contradicts itself is the session's affair, not only the flow's.
            self.drop_in(FlowPlace { link: id, session, label, is_outgoing: false });
            self.fail_session(now, session, reason);
        } else {
            self.close_flow(now, flow_id, reason);
        }
    }

    /// Our own application gives a flow up in either direction.
    pub(super) fn give_up(&mut self, now: Time, flow: FlowId, place: FlowPlace, code: u64) {
        if let Some(entry) = self.shared.sessions.entries.get_mut(&place.session) {
            if place.is_outgoing {
                let mode =
                    self.links.get(&place.link).and_then(|l| l.flows.out.get(&place.label)).map(|f| f.open.mode).unwrap_or(Mode::Brtp);
                entry.session.reset_flow(now, flow, mode, code);
            } else {
                entry.session.stop_flow(now, flow, code);
            }
            entry.session.remove_flow(now, flow);
        }
        if place.is_outgoing {
            self.drop_out(place);
        } else {
            self.drop_in(place);
        }
        self.pump_session(now, place.session);
        self.settle(now, place.link);
    }

    /// Sessions with control frames that wait for room, or whose last words were just acknowledged.
    pub(super) fn pump_sessions_of(&mut self, now: Time, link: LinkId) {
        let all = (link, SessionId(0))..=(link, SessionId(u64::MAX));
        let waiting: SmallVec<[SessionId; 4]> = self.shared.sessions.untold.range(all).map(|(_, id)| *id).collect();
        for id in waiting {
            self.pump_session(now, id);
        }
    }

    /// Sessions that exist, by link.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, LinkId)> + '_ {
        self.shared.sessions.entries.iter().map(|(id, e)| (*id, e.link))
    }
}

/// A relay answers so only if it, or one behind it, makes packets that the source did not.
pub(super) const fn is_absurd(code: Code) -> bool {
    matches!(code, Code::SpanInvalid | Code::FlowControl | Code::SessionProtocol)
}

fn session_reason(code: Code, application: u64) -> CloseReason {
    CloseReason { code, layer: Layer::Application, application, frame: 0, reason: String::new(), is_remote: true }
}
