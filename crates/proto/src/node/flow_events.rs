//! What happens to flows, and what the far end's session says of them: links' events become sessions' business, and the owner's events.

use super::Node;
use super::places::FlowPlace;
use super::reroute::PARKING;
use super::sessions::{Entry, MOST_FORGERIES};
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId};
use crate::link::flows::options_of;
use crate::options::Mode;
use crate::session::{Accepted, CONTROL_INDEX, FarWord, SessionAction};
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Node {
    /// The neighbour opened a flow.
    pub(super) fn on_flow_opened(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, flow_id, open) = (flow.session, flow.id, flow.open.clone());
        let Some(entry) = self.sessions.entries.get_mut(&session) else { return };
        // The far end of a relayed session is known only when its handshake is over.
        if entry.securing.is_none()
            && !core::mem::replace(&mut entry.is_announced, true)
            && let Some(peer) = self.links.get(&id).and_then(|l| l.peer)
        {
            self.events.push_back(Event::SessionIncoming { session, link: id, peer, far: None });
        }
        // The whole of a flow that comes by parts has waited with the first of them.
        if open.index != CONTROL_INDEX && id != PARKING && entry.securing.as_mut().is_some_and(|s| s.holds(id, label)) {
            return;
        }
        if open.part() > 0 {
            return self.take_pieces(now, id, label);
        }
        if open.index != CONTROL_INDEX {
            let mut options = options_of(&open);
            let place = FlowPlace { link: id, session, label, is_outgoing: false };
            match entry.session.accept_flow(open.index, flow_id, &options) {
                Ok(Accepted::New) => {
                    options.answers = open.answers.and_then(|index| entry.session.take_question(index));
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
        if self.sessions.entry(session).and_then(|e| e.securing.as_ref()).is_some_and(|s| s.is_unanswered()) {
            // Nothing is said, nor memory spent on saying it, before the first packet of the handshake is here (P19).
            return self.arm_session(session);
        }
        self.pump_session(now, session);
    }

    pub(super) fn on_session_message(&mut self, now: Time, session: SessionId, message: &[u8]) {
        let Some(entry) = self.sessions.entries.get_mut(&session) else { return };
        let actions = match entry.session.on_control(now, message) {
            Ok(actions) => actions,
            Err(reason) => {
                self.fail_session(now, session, reason);
                return;
            }
        };
        for action in actions {
            if matches!(action, SessionAction::Opened | SessionAction::Delivered { .. } | SessionAction::ControlDelivered(_))
                && let Some(entry) = self.sessions.entries.get_mut(&session)
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
            SessionAction::Opened if self.sessions.entry(session).is_some_and(|e| e.securing.is_some()) => {}
            SessionAction::Opened => self.events.push_back(Event::SessionOpened { session }),
            SessionAction::Limits(limits) => {
                let max = usize::try_from(limits.max_message).unwrap_or(usize::MAX);
                for (_, place) in self.flows.of_session(session).filter(|(_, p)| p.is_outgoing) {
                    if let Some(flow) = self.links.get_mut(&place.link).and_then(|l| l.flows.out.get_mut(&place.label)) {
                        flow.source.set_max_message(max);
                    }
                }
            }
            // Between neighbours the link has acknowledged it already; over relays this frees what is kept (P14).
            SessionAction::Delivered { flow, packets, is_complete } => {
                if let Some(place) = self.flows.get(&flow).copied()
                    && let Some(link) = self.links.get_mut(&place.link)
                    && self.sessions.entry(session).is_some_and(|e| e.securing.is_some())
                {
                    if let Some(f) = link.flows.out.get_mut(&place.label) {
                        f.sender.on_delivered(Seq(packets));
                    }
                    link.touch_out(place.label, now);
                    link.settle_out(place.label, &mut self.shared);
                    self.settle(now, place.link);
                    if is_complete {
                        self.on_flow_delivered(now, place.link, place.label);
                    } else if let Some(spread) = self.spreads.get_mut(&flow) {
                        spread.on_delivered(packets);
                        self.feed(now, flow);
                    }
                }
            }
            SessionAction::Reset { flow, code } => self.close_flow(now, flow, session_reason(Code::Reset, code)),
            SessionAction::Stop { flow, code } => self.close_flow(now, flow, session_reason(Code::Stopped, code)),
            SessionAction::PeerClosing(reason) => {
                self.finish_all_out(now, session);
                self.events.push_back(Event::SessionClosing { session, reason });
            }
            SessionAction::FlowEnd { flow, packets } => {
                self.on_far_word(now, session, flow, FarWord { end: Some(packets), floor: 0 });
            }
            SessionAction::Skip { flow, floor } => self.on_far_word(now, session, flow, FarWord { end: None, floor }),
            SessionAction::Fits(symbol) => self.on_fits(session, symbol),
            SessionAction::ControlDelivered(packets) => {
                if let Some((link, label)) = self.sessions.entry(session).and_then(|e| Some((e.link, e.control()?)))
                    && let Some(link) = self.links.get_mut(&link)
                {
                    if let Some(f) = link.flows.out.get_mut(&label) {
                        f.sender.on_delivered(Seq(packets));
                    }
                    link.touch_out(label, now);
                }
            }
            SessionAction::Rekey { generation, step, message } => self.on_session_rekey(now, session, generation, step, message),
            SessionAction::Keys { generation, is_last, firsts } => self.on_session_keys(now, session, generation, is_last, &firsts),
            SessionAction::Polluted => self.on_far_pollution(now, session),
            SessionAction::PartDelivered { flow, part, packets } => self.on_part_delivered(now, flow, part, packets),
            SessionAction::Window { flow, limit } => {
                if let Some(spread) = self.spreads.get_mut(&flow) {
                    spread.on_window(limit);
                    self.feed(now, flow);
                }
            }
        }
    }

    /// What the far end's session says of a flow: for a sealed flow the only word that counts.
    fn on_far_word(&mut self, now: Time, session: SessionId, flow: FlowId, word: FarWord) {
        let Some(place) = self.flows.get(&flow).copied() else { return };
        let Some(link) = self.links.get_mut(&place.link) else { return };
        let Some(f) = link.flows.incoming.get_mut(&place.label) else { return };
        let mut result = Ok(());
        if let Some(end) = word.end {
            result = if f.sink.is_in_parts() {
                f.sink.on_far_end(Seq(end))
            } else if f.sink.is_sealed() {
                f.receiver.set_end(Some(Seq(end)));
                f.sink.on_far_end(Seq(end))
            } else {
                let contradiction = |_| CloseReason::local(Code::SessionProtocol, Layer::Session, "CLOSE contradicts the end of a flow");
                f.receiver.on_end(Seq(end)).map_err(contradiction)
            };
        }
        if word.floor > 0 && result.is_ok() {
            result = f.sink.on_far_skip(Seq(word.floor));
            if f.sink.is_in_parts() {
                // Else nothing would say that all there is has come.
                let here = f.sink.first_missing();
                if let Some(entry) = self.sessions.entry_mut(session) {
                    entry.session.flow_received(now, flow, here, false);
                }
            } else {
                f.receiver.on_skip(Seq(word.floor));
            }
        }
        link.touch_in(place.label, now);
        link.settle_in(place.label, &mut self.shared);
        // The word may be the last that is heard of the flow, and came by another link.
        self.settle(now, place.link);
        if let Err(reason) = result {
            self.fail_session(now, session, reason);
        }
    }

    /// Nothing follows on a sealed flow of ours: the far end believes this side's session only.
    pub(super) fn on_flow_ended(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.out.get(&label)) else { return };
        let (session, flow_id, packets) = (flow.session, flow.id, flow.source.packets());
        if flow.open.index != CONTROL_INDEX
            && let Some(entry) = self.sessions.entries.get_mut(&session)
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
            && let Some(entry) = self.sessions.entries.get_mut(&session)
        {
            entry.session.tell_skip(flow_id, floor.0);
            self.pump_session(now, session);
        }
    }

    /// Packets of a flow towards us were altered by someone on the way (P16).
    pub(super) fn on_pollution(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        let (session, index, packets) = (flow.session, flow.open.index, flow.polluted);
        let is_part = flow.open.part() > 0;
        self.events.push_back(Event::Polluted { session, link: id });
        if self.sessions.entry(session).is_some_and(|e| e.polluted >= MOST_FORGERIES) {
            let text = "too many packets were altered on the way to guess no tag among them";
            return self.fail_session(now, session, CloseReason::local(Code::Polluted, Layer::Session, text));
        }
        if is_part {
            return self.refuse_part(id, label);
        }
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.tell_pollution(index, packets);
            // What goes back by the same link would pass the same hands.
            if entry.link == id {
                self.on_far_pollution(now, session);
            }
        }
        self.pump_session(now, session);
    }

    /// A packet came that nobody with its session's keys made. The owner hears of the first, of ever larger numbers, and when there were too many.
    pub(super) fn on_forgery(&mut self, now: Time, id: LinkId, label: FlowLabel, is_news: bool) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        if self.sessions.count_forgery(flow.session) || is_news {
            self.on_pollution(now, id, label);
        }
    }

    /// A neighbour contradicts itself about a flow that it relays: that says nothing about the flow, which waits for another way.
    fn on_lying_hop(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        if let Some(link) = self.links.get_mut(&id) {
            link.count_pollution(label);
            self.shared.counters.polluted += 1;
        }
        self.on_pollution(now, id, label);
        if self.links.get(&id).is_none_or(|l| !l.flows.incoming.contains_key(&label)) {
            return; // A part, which has been refused.
        }
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
        if let Some(entry) = self.sessions.entries.get_mut(&place.session) {
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
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.flow_received(now, flow_id, packets, true);
        }
        self.pump_session(now, session);
    }

    /// More of an incoming flow is here than the far end of a relayed session knows (P14).
    pub(super) fn on_flow_progress(&mut self, now: Time, id: LinkId, label: FlowLabel) {
        let Some(flow) = self.links.get(&id).and_then(|l| l.flows.incoming.get(&label)) else { return };
        if flow.open.part() > 0 {
            return self.on_part_progress(now, id, label);
        }
        let (session, flow_id, index, done) = (flow.session, flow.id, flow.open.index, flow.receiver.done().0);
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
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
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
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
        if !is_control && !self.sessions.entry(session).is_none_or(is_known) {
            return;
        }
        if !is_control {
            self.events.push_back(Event::FlowDelivered(flow_id));
            if let Some(entry) = self.sessions.entries.get_mut(&session) {
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
        let has_keys = self.sessions.entry(session).and_then(|e| e.securing.as_ref()).is_some_and(|s| s.has_keys());
        if flow.open.part() > 0 {
            let (index, part) = (flow.open.index, flow.open.part());
            return self.on_part_refused(now, session, index, part);
        }
        let is_way = match reason.code {
            Code::Rerouted | Code::NoRoute | Code::HopLimit | Code::NoRelay | Code::UnknownFlow => true,
            Code::NoMemory => is_control,
            // Anyone on the way can say so. The control flow, which goes first, finds out whether each of them does.
            Code::UnknownSession => has_keys,
            // What ends a session that has keys, its far end says with them.
            _ if is_control && has_keys && !switch::is_off(Mechanism::QuestionsToEnds) => true,
            // P16: no honest node answers so to what this side sends. A session in opening asks for its far end elsewhere, below.
            code => (is_absurd(code) || code == Code::Handshake) && !self.is_securing(session),
        };
        if flow.open.relayed.is_some() && is_way {
            if self.sessions.entry(session).is_none() {
                // The last words of a session that is over.
                return self.drop_out(FlowPlace { link: id, session, label, is_outgoing: true });
            }
            let reason = match reason.code {
                Code::UnknownSession if !is_control => CloseReason { code: Code::Rerouted, ..reason },
                _ => reason,
            };
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
        if flow.open.part() > 0 && (reason.is_remote || reason.layer == Layer::Flow) {
            return self.refuse_part(id, label);
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
        if let Some(entry) = self.sessions.entries.get_mut(&place.session) {
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
}

/// A relay answers so only if it, or one behind it, makes packets that the source did not.
pub(super) const fn is_absurd(code: Code) -> bool {
    matches!(code, Code::SpanInvalid | Code::FlowControl | Code::SessionProtocol)
}

fn session_reason(code: Code, application: u64) -> CloseReason {
    CloseReason { code, layer: Layer::Application, application, frame: 0, reason: Default::default(), is_remote: true }
}
