//! The life of a session at this node: opened, its words moved onto its control flow, waited for, closed; and what becomes of it when links come and go.

use super::places::FlowPlace;
use super::reroute::{PARKING, Trouble};
use super::sessions::{FLOOR, Far, limits_of};
use super::spread::Spread;
use super::{Node, TimerKey};
use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::event::Event;
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId, SessionKey};
use crate::link::Control;
use crate::link::flows::{buffer_of, floor_of, memory_wish};
use crate::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use crate::session::{self, CONTROL_INDEX, SendHalf, SendLimits, Session, SessionRole};
use crate::units::{Duration, Time};
use crate::wire::frame::{FlowOpen, Relayed};
use smallvec::SmallVec;
use std::net::IpAddr;

/// Nodes that a flow may pass: as many as IP packets by default (RFC 1700, "time to live").
pub(super) const HOP_LIMIT: u8 = 64;

impl Node {
    /// A session to a node that may be several links away, over the best route to it. Flows can be opened and written at once; they come from this
    /// node's first address of the destination's family. `peer`: the key that the destination must have; `None` accepts whatever key answers (the
    /// caller decides on `SessionOpened`). Everything is sealed end to end, and leaves once the keys are agreed: `SessionOpened` tells.
    ///
    /// # Errors
    /// `NoRoute` if no usable link leads there, `Misuse` if this node has no address of that family, `Limit`.
    pub fn open_session_to(&mut self, now: Time, destination: IpAddr, peer: Option<PublicKey>) -> Result<SessionId, CommandError> {
        self.open_session_by(now, destination, peer, 0)
    }

    /// The same for one of several sessions with a node to which several equally good routes lead: it keeps to route number `turn` of these, counted round, as
    /// long as that one can be used, and with it flows that keep to one route ([`FlowOptions::one_route`]).
    ///
    /// # Errors
    /// As [`open_session_to`](Self::open_session_to).
    pub fn open_session_by(
        &mut self,
        now: Time,
        destination: IpAddr,
        peer: Option<PublicKey>,
        turn: usize,
    ) -> Result<SessionId, CommandError> {
        let near = self.routing.source_for(destination).ok_or(CommandError::Misuse(
            "this node has no address of the destination's family, so that nobody could answer: set one first",
        ))?;
        let link = self.next_hop_by(destination, turn, &[]).ok_or(CommandError::NoRoute(destination))?;
        let id = self.create_session(now, Far::Relayed { far: destination, near }, link, peer)?;
        if let Some(entry) = self.sessions.entry_mut(id) {
            entry.turn = turn;
        }
        Ok(id)
    }

    /// The far end's address of a session that is, or may be, relayed; `None` if the neighbour is the far end.
    pub fn session_far(&self, session: SessionId) -> Option<IpAddr> {
        self.sessions.entries.get(&session)?.far.address()
    }

    pub(super) fn create_session(
        &mut self,
        now: Time,
        far: Far,
        link: LinkId,
        expected: Option<PublicKey>,
    ) -> Result<SessionId, CommandError> {
        // What others open takes no place of what is opened here.
        if self.sessions.own() >= self.shared.config.max_sessions {
            return Err(CommandError::Limit { what: "sessions", limit: self.shared.config.max_sessions });
        }
        let key = SessionKey(u64::from_be_bytes(self.shared.random_bytes()) >> 2);
        let peer = match far {
            Far::Neighbour(_) => self.links.get(&link).map_or(FLOOR, |l| limits_of(l)),
            Far::Relayed { .. } => FLOOR,
        };
        let limits = self.session_limits();
        let securing = self.shared.start_securing(now, far, key, expected, false).map_err(CommandError::Closed)?;
        let id = self.sessions.insert(far, link, None, Session::new(key, SessionRole::Opener, limits, peer), securing);
        self.pump_session(now, id);
        self.settle(now, link);
        Ok(id)
    }

    /// The same for a handshake that only asks which process the far end is: the owner hears nothing of it.
    pub(super) fn create_question(&mut self, now: Time, far: Far, link: LinkId, peer: PublicKey) -> Result<SessionId, CommandError> {
        let id = self.create_session(now, far, link, Some(peer))?;
        if let Some(entry) = self.sessions.entry_mut(id) {
            entry.is_announced = false;
            entry.securing.iter_mut().for_each(|s| s.ask_only());
        }
        Ok(id)
    }

    /// Opens a data flow of a session.
    pub(super) fn open_session_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        let entry = self.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
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
        let id = FlowId(self.shared.next_flow_id().0);
        let entry = self.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
        let index = entry.session.open_flow(id, &options)?;
        let is_spread = self.is_to_spread(session, &options);
        let result = self.open_out(now, session, is_spread, id, index, answers, &options);
        if result.is_err()
            && let Some(entry) = self.sessions.entries.get_mut(&session)
        {
            entry.session.remove_flow(now, id);
        }
        let label = result?;
        let Some(link) = self.sessions.link_of(session) else { return Err(CommandError::Unknown("session")) };
        let link = if is_spread { PARKING } else { link };
        self.flows.insert(id, FlowPlace { link, session, label, is_outgoing: true });
        if is_spread {
            let spread = Spread::new(session, id);
            let spread = match options.mode {
                Mode::Btp => spread.with_lifetimes(options.kind == FlowKind::OrderedMessages),
                Mode::Brtp | Mode::Transparent => spread,
            };
            self.spreads.insert(id, spread);
        }
        self.settle(now, link);
        self.feed(now, id);
        Ok(id)
    }

    /// The sending half of a flow, control flow included. One that is spread goes by no link itself.
    #[allow(clippy::too_many_arguments)]
    fn open_out(
        &mut self,
        now: Time,
        session: SessionId,
        is_spread: bool,
        id: FlowId,
        index: u64,
        answers: Option<u64>,
        options: &FlowOptions,
    ) -> Result<FlowLabel, CommandError> {
        let entry = self.sessions.entries.get(&session).ok_or(CommandError::Unknown("session"))?;
        let on = if is_spread { PARKING } else { entry.link };
        let link = self.links.get_mut(&on).ok_or(CommandError::Unknown("link"))?;
        let symbol = link.symbol_ceiling(&self.shared);
        let relayed = match entry.far {
            Far::Neighbour(_) => None,
            Far::Relayed { far, near } => Some(Relayed {
                destination: far,
                source: near,
                incarnation: entry.incarnation,
                first: Seq(0),
                fits: link.fits(options.batch_size, &self.shared),
                part: 0,
                proof: None,
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
        if is_spread {
            source.part_up();
        } else if let Some(securing) = self.sessions.entries.get_mut(&session).and_then(|e| e.securing.as_mut())
            && securing.equip_out(&mut open, &mut source).is_err()
        {
            self.shared.ledger.close(&account);
            return Err(CommandError::Misuse("the session's keys give none for this flow"));
        }
        let label = link.open_out(id, session, open, source, account, now);
        link.settle_out(label, &mut self.shared);
        self.sessions.note_hop(session, on);
        Ok(label)
    }

    /// Moves control frames of a session onto its control flow, and ends the session when its outcome is known.
    pub(super) fn pump_session(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entries.get(&id) else { return };
        let link_id = entry.link;
        if entry.control.is_none() && !entry.securing.as_ref().is_some_and(|s| s.is_waiting() || s.is_unanswered()) {
            let flow = self.shared.next_flow_id();
            if let Ok(label) = self.open_out(now, id, false, flow, CONTROL_INDEX, None, &session::control_options())
                && let Some(entry) = self.sessions.entries.get_mut(&id)
            {
                entry.control = Some(label);
            }
        }
        let Some(entry) = self.sessions.entries.get_mut(&id) else { return };
        if entry.session.owes_too_much() {
            let text = "the far end acknowledges no control message";
            entry.session.fail(now, CloseReason::local(Code::TooMany, Layer::Session, text));
        }
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
                    if entry.session.take_asks() {
                        entry.asked = flow.source.packets() + 1;
                    }
                    self.sessions.untold.insert((link_id, id));
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
                    self.sessions.untold.remove(&(link_id, id));
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
        if self.sessions.entries.get(&id).is_some_and(|entry| entry.session.outcome().is_some()) {
            self.finish_session(now, id);
        }
    }

    pub(super) fn arm_session(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.entries.get(&id) else { return };
        let retry = entry.trouble.as_ref().and_then(Trouble::poll_timeout);
        let securing = entry.securing.as_ref().and_then(|s| s.poll_timeout());
        let unheard = entry.unheard_since.map(|at| at + self.shared.config.idle_timeout);
        self.timers.set(TimerKey::Session(id), [entry.session.poll_timeout(), securing, retry, unheard].into_iter().flatten().min());
    }

    /// A session is over: what was received whole can still be read, everything else goes.
    fn finish_session(&mut self, now: Time, id: SessionId) {
        let totals = self.session_stats(id).unwrap_or_default();
        let Some(mut entry) = self.sessions.remove(id) else { return };
        self.timers.set(TimerKey::Session(id), None);
        self.end_contenders(entry.securing.as_deref());
        let places: Vec<FlowPlace> = self.flows.of_session(id).map(|(_, place)| place).collect();
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
            for label in link.flows.in_of(id) {
                self.drop_in(FlowPlace { link: entry.link, session: id, label, is_outgoing: false });
            }
            self.mark_ready(entry.link);
            self.rearm(entry.link);
        }
        if entry.securing.is_some() {
            self.drop_parts_of(id, &entry.hops);
        }
        if let Some(outcome) = entry.session.outcome().filter(|_| entry.is_announced) {
            self.events.push_back(Event::SessionClosed { session: id, outcome: outcome.clone(), totals: Box::new(totals) });
        }
    }

    /// Takes an incoming flow off its link; what it holds complete stays readable.
    fn retire_in(&mut self, place: FlowPlace) {
        let Some(flow) = self.links.get_mut(&place.link).and_then(|l| l.remove_in(place.label)) else { return };
        self.drop_join(flow.id);
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
        let entry = self.sessions.entries.get_mut(&session).ok_or(CommandError::Unknown("session"))?;
        let reason = CloseReason::application(code, reason);
        entry.session.close(now, reason, linger);
        self.finish_all_out(now, session);
        self.pump_session(now, session);
        Ok(())
    }

    /// Nothing more follows on any data flow of ours in this session.
    pub(super) fn finish_all_out(&mut self, now: Time, session: SessionId) {
        let places: Vec<FlowPlace> = self.flows.of_session(session).map(|(_, place)| place).filter(|p| p.is_outgoing).collect();
        for place in places {
            if let Some(link) = self.links.get_mut(&place.link) {
                if let Some(flow) = link.flows.out.get_mut(&place.label) {
                    flow.source.finish();
                }
                link.touch_out(place.label, now);
                self.settle(now, place.link);
            }
        }
        self.feed_session(now, session);
    }

    pub(super) fn on_session_timeout(&mut self, now: Time, id: SessionId) {
        self.on_securing_timeout(now, id);
        self.drive_renewal(now, id);
        self.check_delivery(now, id);
        if let Some(entry) = self.sessions.entries.get_mut(&id) {
            entry.session.handle_timeout(now);
        }
        self.retry_way(now, id);
        self.end_if_unheard(now, id);
        self.pump_session(now, id);
    }

    pub(super) fn on_link_up(&mut self, now: Time, id: LinkId) {
        for session in self.sessions.on_link(id) {
            self.pump_session(now, session);
        }
    }

    /// A link ended: its sessions end with what is known, then the owner is told.
    pub(super) fn on_link_down(&mut self, now: Time, id: LinkId, reason: CloseReason) {
        self.park_incoming_of(now, id);
        for session in self.sessions.on_link(id) {
            if let Some(entry) = self.sessions.entries.get_mut(&session) {
                if entry.far.address().is_some() {
                    self.on_way_lost(now, session, reason.clone(), None);
                } else {
                    entry.session.on_link_lost(now, reason.clone());
                }
            }
            self.pump_session(now, session);
        }
        self.on_relays_link_down(now, id);
        self.revise_spreads(now);
        let was_announced = self.links.get(&id).is_some_and(|l| l.is_initiator || l.was_up);
        if was_announced {
            let peer = self.links.get(&id).and_then(|l| l.peer);
            self.events.push_back(Event::LinkDown { link: id, reason, peer });
        }
    }

    /// Nobody is left to hear of the session's end.
    pub(super) fn lose_session(&mut self, now: Time, session: SessionId, reason: CloseReason) {
        self.drop_control(session);
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.on_link_lost(now, reason);
            self.finish_session(now, session);
        }
    }

    pub(super) fn fail_session(&mut self, now: Time, session: SessionId, reason: CloseReason) {
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.fail(now, reason);
        }
        self.pump_session(now, session);
    }

    /// Sessions with control frames that wait for room, or whose last words were just acknowledged.
    pub(super) fn pump_sessions_of(&mut self, now: Time, link: LinkId) {
        let all = (link, SessionId(0))..=(link, SessionId(u64::MAX));
        let waiting: SmallVec<[SessionId; 4]> = self.sessions.untold.range(all).map(|(_, id)| *id).collect();
        for id in waiting {
            self.pump_session(now, id);
        }
    }

    /// Sessions that exist, by link.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, LinkId)> + '_ {
        self.sessions.entries.iter().filter(|(id, _)| !self.is_question(**id)).map(|(id, e)| (*id, e.link))
    }
}
