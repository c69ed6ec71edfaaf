//! The life of a session at this node: opened, its words moved onto its control flow, waited for, closed; and what becomes of it when links come and go.

use super::commands::NO_LINK;
use super::known::Known;
use super::reroute::Trouble;
use super::sessions::{Entry, FLOOR, Far, limits_of};
use super::spread::Spread;
use super::{Node, Orphan, TimerKey};
use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::event::Event;
use crate::flow::{Sender, SenderConfig};
use crate::flows::{OutFlow, buffer_of, floor_of, memory_wish, sending_floor_of};
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId, SessionKey};
use crate::ledger::Account;
use crate::link::{Control, DATAGRAM_ROOM, symbol_ceiling};
use crate::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use crate::session::{self, CONTROL_INDEX, SendHalf, SendLimits, Session, SessionRole};
use crate::trace::What;
use crate::units::{Duration, Time};
use crate::wire::frame::{FlowOpen, Relayed};
use crate::wire::params::Params;
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
        let on = result?;
        self.known.insert(id, Known { session, is_outgoing: true });
        if is_spread {
            let spread = Spread::new(session, id);
            let spread = match options.mode {
                Mode::Btp => spread.with_lifetimes(options.kind == FlowKind::OrderedMessages),
                Mode::Brtp | Mode::Transparent => spread,
            };
            self.spreads.insert(id, spread);
        }
        self.settle_at(now, on);
        self.feed(now, id);
        Ok(id)
    }

    /// The sending half of a flow, control flow included. One that is spread goes by no link itself. Returns the link that carries it, if any.
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
    ) -> Result<Option<LinkId>, CommandError> {
        let entry = self.sessions.entries.get(&session).ok_or(CommandError::Unknown("session"))?;
        let on = entry.link.filter(|_| !is_spread);
        let link = match on {
            Some(on) => Some(self.links.get_mut(&on).ok_or(CommandError::Unknown("link"))?),
            None => None,
        };
        let symbol = symbol_ceiling(&self.shared.config);
        let relayed = match entry.far {
            Far::Neighbour(_) => None,
            Far::Relayed { far, near } => Some(Relayed {
                destination: far,
                source: near,
                incarnation: entry.incarnation,
                first: Seq(0),
                // What no link carries is measured by the one that will.
                fits: link.as_ref().map_or(symbol, |l| l.fits(options.batch_size, &self.shared)),
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
        let floor = if is_spread { floor_of(&open).working() } else { sending_floor_of(&open) };
        let account = self
            .shared
            .ledger
            .open(floor, memory_wish(index, self.shared.config.flow_memory))
            .ok_or(CommandError::Limit { what: "bytes of memory for flows (node_memory)", limit: self.shared.config.node_memory })?;
        let buffer = buffer_of(self.shared.ledger.allowed(&account));
        let max_message = if index == CONTROL_INDEX {
            session::MAX_CONTROL_MESSAGE
        } else {
            usize::try_from(entry.session.peer_limits().max_message).unwrap_or(usize::MAX)
        };
        let limits = SendLimits { buffer, max_message };
        let mut source = if is_spread { SendHalf::whole(options, limits) } else { SendHalf::new(options, limits) };
        if options.mode == Mode::Transparent {
            source.keep_whole(usize::from(open.symbol).saturating_sub(DATAGRAM_ROOM));
        }
        if !is_spread
            && let Some(securing) = self.sessions.entries.get_mut(&session).and_then(|e| e.securing.as_mut())
            && securing.equip_out(&mut open, &mut source).is_err()
        {
            self.shared.ledger.close(&account);
            return Err(CommandError::Misuse("the session's keys give none for this flow"));
        }
        self.add_out(now, id, session, open, source, account, on);
        Ok(on)
    }

    /// A flow of ours with all that it needs begins, by this link or by none.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn add_out(
        &mut self,
        now: Time,
        id: FlowId,
        session: SessionId,
        mut open: FlowOpen,
        source: SendHalf,
        account: Account,
        on: Option<LinkId>,
    ) {
        let mut initial_credit = Params::default().initial_credit;
        if let Some(link) = on.and_then(|on| self.links.get_mut(&on)) {
            (open.label, initial_credit) = link.offer_out();
            link.trace.emit(now, || What::opened(&open, "out"));
        }
        let mut sender = Sender::new(SenderConfig::of(&open, open.label, account.floor(), initial_credit));
        if open.relayed.is_some() && open.mode == Mode::Brtp {
            sender.keep_until_delivered(); // P14
        }
        self.begin_out(now, OutFlow::new(id, session, open, sender, source, account), on);
        self.shared.settle_out(id);
    }

    /// Moves control frames of a session onto its control flow, and ends the session when its outcome is known.
    pub(super) fn pump_session(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entries.get(&id) else { return };
        let link_id = entry.link;
        if entry.control.is_none() && !entry.securing.as_ref().is_some_and(|s| s.is_waiting() || s.is_unanswered()) {
            let flow = self.shared.next_flow_id();
            if self.open_out(now, id, false, flow, CONTROL_INDEX, None, &session::control_options()).is_ok()
                && let Some(entry) = self.sessions.entries.get_mut(&id)
            {
                entry.control = Some(flow);
            }
        }
        let Some(entry) = self.sessions.entries.get_mut(&id) else { return };
        if entry.session.owes_too_much() {
            let text = "the far end acknowledges no control message";
            entry.session.fail(now, CloseReason::local(Code::TooMany, Layer::Session, text));
        }
        if let Some(control) = entry.control {
            let mut is_written = false;
            if let Some(flow) = self.shared.flows.out_mut(control) {
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
                self.touch_out(now, control);
                self.mark_ready_at(link_id);
                self.rearm_at(link_id);
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
        let known: Vec<(FlowId, Known)> = self.known.of_session(id).collect();
        for (flow, Known { is_outgoing, .. }) in known {
            match is_outgoing {
                true => self.drop_out(flow),
                false => self.retire_in(flow),
            }
        }
        if let Some(control) = entry.control_in {
            let on = self.in_on(control);
            self.drop_in(control);
            self.mark_ready_at(on);
        }
        match (entry.link, entry.control) {
            (None, Some(control)) => self.drop_out(control),
            (Some(link), _) => self.say_last_words(now, id, &mut entry, link),
            (None, None) => {}
        }
        if entry.securing.is_some() {
            self.drop_parts_of(id);
        }
        if let Some(outcome) = entry.session.outcome().filter(|_| entry.is_announced) {
            self.events.push_back(Event::SessionClosed { session: id, outcome: outcome.clone(), totals: Box::new(totals) });
        }
    }

    /// The last words still go out; the far end's control flow is not needed any more.
    fn say_last_words(&mut self, now: Time, id: SessionId, entry: &mut Entry, on: LinkId) {
        if !self.links.contains_key(&on) {
            return;
        }
        let control = entry.control.and_then(|id| self.shared.flows.out_mut(id));
        if let Some(flow) = control {
            let (control, label, is_announced) = (flow.id, flow.open.label, flow.is_announced);
            if flow.source.is_awaiting_key() {
                // Without keys there are no words that the far end could trust.
                if is_announced && let Some(link) = self.links.get_mut(&on) {
                    link.send_control(Control::FlowReset { flow: label, reason: Code::Reset as u64 });
                }
                self.drop_out(control);
            } else {
                while let Some(message) = entry.session.poll_control(now) {
                    if flow.source.send_message(now, message, MessageOptions::default()).is_err() {
                        break;
                    }
                }
                flow.source.finish();
                flow.sender.release_custody();
                self.touch_out(now, control);
            }
        }
        for flow in self.shared.flows.in_of(id) {
            if self.in_on(flow) == Some(on) {
                self.drop_in(flow);
            }
        }
        self.mark_ready(on);
        self.rearm(on);
    }

    /// Takes an incoming flow off its link; what it holds complete stays readable.
    fn retire_in(&mut self, id: FlowId) {
        let came_by = self.in_on(id);
        let Some(flow) = self.remove_in(id) else { return };
        self.drop_join(id);
        if flow.sink.has_all() && !flow.sink.is_finished() {
            self.orphans.insert(id, Orphan { flow, came_by });
        } else {
            self.shared.ledger.close(&flow.account);
            self.known.remove(id);
            self.note_ended(came_by, flow.session, false, flow.open.index, flow.stats());
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
        let flows: Vec<FlowId> = self.known.of_session(session).filter(|(_, known)| known.is_outgoing).map(|(id, _)| id).collect();
        for id in flows {
            if let Some(flow) = self.shared.flows.out_mut(id) {
                flow.source.finish();
                self.touch_out(now, id);
                self.settle_at(now, self.out_on(id));
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
        self.retry_route(now, id);
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
                    self.on_route_lost(now, session, reason.clone(), None);
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
    pub(super) fn pump_sessions_of(&mut self, now: Time, link: Option<LinkId>) {
        let all = (link, SessionId(0))..=(link, SessionId(u64::MAX));
        let waiting: SmallVec<[SessionId; 4]> = self.sessions.untold.range(all).map(|(_, id)| *id).collect();
        for id in waiting {
            self.pump_session(now, id);
        }
    }

    /// Sessions that exist, by link; [`LinkId`] 0 while none carries it.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, LinkId)> + '_ {
        self.sessions.entries.iter().filter(|(id, _)| !self.is_question(**id)).map(|(id, e)| (*id, e.link.unwrap_or(NO_LINK)))
    }
}
