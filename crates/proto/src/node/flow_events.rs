//! What happens to flows, and what the far end's session says of them: links' events become sessions' business, and the owner's events.

use super::Node;
use super::known::Known;
use super::sessions::{Entry, MOST_FORGERIES};
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::flows::{InEvent, OutEvent, options_of};
use crate::ids::{FlowId, Seq, SessionId};
use crate::options::Mode;
use crate::session::{Accepted, CONTROL_INDEX, FarWord, SessionAction};
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Node {
    /// Something happened to a flow that this node sends.
    pub(super) fn on_out_event(&mut self, now: Time, flow: FlowId, event: OutEvent) {
        match event {
            OutEvent::Writable => self.events.push_back(Event::FlowWritable(flow)),
            OutEvent::Skipped => self.on_flow_skipped(now, flow),
            OutEvent::Ended => self.on_flow_ended(now, flow),
            OutEvent::LowWater(session, index) => {
                if let Some(whole) = self.sessions.entry(session).and_then(|e| e.session.flows().outgoing(index)) {
                    self.feed(now, whole);
                }
            }
            OutEvent::Delivered => self.on_flow_delivered(now, flow),
            OutEvent::Relay(relay) => self.advance_relay(now, relay),
            OutEvent::Closed(reason) => self.on_out_closed(now, flow, reason),
        }
    }

    /// Something happened to a flow that this node receives.
    pub(super) fn on_in_event(&mut self, now: Time, flow: FlowId, event: InEvent) {
        match event {
            InEvent::Opened => self.on_flow_opened(now, flow),
            InEvent::Lead(session, packet) => self.on_session_lead(now, flow, session, &packet),
            InEvent::Proven(session) => self.confirm(now, session),
            InEvent::Control(session, message) => self.on_session_message(now, session, &message),
            InEvent::Readable => self.events.push_back(Event::FlowReadable(flow)),
            InEvent::Polluted => self.on_pollution(now, flow),
            InEvent::Forged { is_news } => self.on_forgery(now, flow, is_news),
            InEvent::Pieces => self.take_pieces(now, flow),
            InEvent::Progress => self.on_flow_progress(now, flow),
            InEvent::Received => self.on_flow_received(now, flow),
            InEvent::Finished => self.on_flow_finished(now, flow),
            InEvent::Relay(relay) => self.advance_relay(now, relay),
            InEvent::Closed(reason) => self.on_in_closed(now, flow, reason),
        }
    }

    /// The neighbour opened a flow.
    pub(super) fn on_flow_opened(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let (session, on, open) = (flow.session, flow.on, flow.open.clone());
        let Some(entry) = self.sessions.entries.get_mut(&session) else { return };
        // The far end of a relayed session is known only when its handshake is over.
        if entry.securing.is_none()
            && !core::mem::replace(&mut entry.is_announced, true)
            && let Some((link, peer)) = on.and_then(|on| Some((on, self.links.get(&on)?.peer?)))
        {
            self.events.push_back(Event::SessionIncoming { session, link, peer, far: None });
        }
        // The whole of a flow that comes by parts has waited with the first of them.
        if open.index != CONTROL_INDEX && on.is_some() && entry.securing.as_mut().is_some_and(|s| s.holds(id)) {
            return;
        }
        if open.part() > 0 {
            return self.take_pieces(now, id);
        }
        if open.index != CONTROL_INDEX {
            let mut options = options_of(&open);
            match entry.session.accept_flow(open.index, id, &options) {
                Ok(Accepted::New) => {
                    options.answers = open.answers.and_then(|index| entry.session.take_question(index));
                    let word = entry.session.take_far_word(open.index);
                    self.known.insert(id, Known { session, is_outgoing: false });
                    self.events.push_back(Event::FlowIncoming { session, flow: id, options });
                    self.on_far_word(now, session, id, word);
                }
                Ok(_) => self.drop_in(id),
                Err(reason) => {
                    self.drop_in(id);
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
                && entry.link.is_some()
            {
                // What we send arrives. (While nothing is sent this is about what had gone before: the search for a route goes on.)
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
                for (id, _) in self.known.of_session(session).filter(|(_, known)| known.is_outgoing) {
                    if let Some(flow) = self.shared.flows.out_mut(id) {
                        flow.source.set_max_message(max);
                    }
                }
            }
            // Between neighbours the link has acknowledged it already; over relays this frees what is kept (P14).
            SessionAction::Delivered { flow, packets, is_complete } => {
                if self.sessions.entry(session).is_some_and(|e| e.securing.is_some())
                    && let Some(f) = self.shared.flows.out_mut(flow)
                {
                    f.sender.on_delivered(Seq(packets));
                    self.look_at_out(now, flow);
                    if is_complete {
                        self.on_flow_delivered(now, flow);
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
                if let Some(control) = self.sessions.entry(session).and_then(|e| e.control())
                    && let Some(f) = self.shared.flows.out_mut(control)
                {
                    f.sender.on_delivered(Seq(packets));
                    self.touch_out(now, control);
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
        let Some(f) = self.shared.flows.incoming_mut(flow) else { return };
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
        // The word may be the last that is heard of the flow, and came by another link.
        self.look_at_in(now, flow);
        if let Err(reason) = result {
            self.fail_session(now, session, reason);
        }
    }

    /// Nothing follows on a sealed flow of ours: the far end believes this side's session only.
    pub(super) fn on_flow_ended(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.out(id) else { return };
        let (session, packets) = (flow.session, flow.source.packets());
        if flow.open.index != CONTROL_INDEX
            && let Some(entry) = self.sessions.entries.get_mut(&session)
        {
            entry.session.tell_end(now, id, packets);
            self.pump_session(now, session);
        }
    }

    /// The first packets of a sealed flow of ours were given up: on a `brtp` flow only this side's session can say so with authority.
    pub(super) fn on_flow_skipped(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.out(id) else { return };
        let (session, floor) = (flow.session, flow.skip_told);
        if flow.open.mode == Mode::Brtp
            && let Some(entry) = self.sessions.entries.get_mut(&session)
        {
            entry.session.tell_skip(id, floor.0);
            self.pump_session(now, session);
        }
    }

    /// Packets of a flow towards us were altered on the route (P16).
    pub(super) fn on_pollution(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let (session, index, packets) = (flow.session, flow.open.index, flow.polluted);
        let (is_part, Some(link)) = (flow.open.part() > 0, flow.on) else { return };
        self.events.push_back(Event::Polluted { session, link });
        if self.sessions.entry(session).is_some_and(|e| e.polluted >= MOST_FORGERIES) {
            let text = "too many packets were altered on the route to guess no tag among them";
            return self.fail_session(now, session, CloseReason::local(Code::Polluted, Layer::Session, text));
        }
        if is_part {
            return self.refuse_part(id);
        }
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.tell_pollution(index, packets);
            // What goes back by the same link would pass the same hands.
            if entry.link == Some(link) {
                self.on_far_pollution(now, session);
            }
        }
        self.pump_session(now, session);
    }

    /// A packet came that nobody with its session's keys made. The owner hears of the first, of ever larger numbers, and when there were too many.
    pub(super) fn on_forgery(&mut self, now: Time, id: FlowId, is_news: bool) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        if self.sessions.count_forgery(flow.session) || is_news {
            self.on_pollution(now, id);
        }
    }

    /// A neighbour contradicts itself about a flow that it relays: that says nothing about the flow, which waits for another route.
    fn on_lying_hop(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming_mut(id) else { return };
        let (Some(on), label) = (flow.on, flow.open.label) else { return };
        flow.polluted += 1;
        if let Some(link) = self.links.get_mut(&on) {
            link.count_lie();
            self.shared.counters.polluted += 1;
        }
        self.on_pollution(now, id);
        if self.in_on(id) != Some(on) {
            return; // A part, which has been refused.
        }
        self.park_in(now, id);
        if let Some(link) = self.links.get_mut(&on) {
            link.refuse_flow(label, Code::Rerouted);
        }
    }

    /// A flow ended before its end: forgets it and tells the owner.
    fn close_flow(&mut self, now: Time, flow: FlowId, reason: CloseReason) {
        let Some(Known { session, is_outgoing }) = self.known.get(flow) else { return };
        if is_outgoing {
            self.drop_out(flow);
        } else {
            self.drop_in(flow);
        }
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.flow_lost(now, flow);
            entry.session.remove_flow(now, flow);
        }
        self.events.push_back(Event::FlowClosed { flow, reason });
        self.pump_session(now, session);
    }

    /// Everything of an incoming flow is here, read or not.
    pub(super) fn on_flow_received(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let (session, packets) = (flow.session, flow.sink.received());
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            entry.session.flow_received(now, id, packets, true);
        }
        self.pump_session(now, session);
    }

    /// More of an incoming flow is here than the far end of a relayed session knows (P14).
    pub(super) fn on_flow_progress(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        if flow.open.part() > 0 {
            return self.on_part_progress(now, id);
        }
        let (session, index, done) = (flow.session, flow.open.index, flow.receiver.done().0);
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            if index != CONTROL_INDEX {
                entry.session.flow_received(now, id, done, false);
            } else if entry.session.take_control_worth() {
                entry.session.control_received(done);
            }
        }
        self.pump_session(now, session);
    }

    /// The application has read an incoming flow to its end.
    pub(super) fn on_flow_finished(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let has_all = flow.sink.has_all();
        // The control flow is no flow of the owner's: nobody announced it, nobody hears of its end.
        if flow.open.index != CONTROL_INDEX {
            self.events.push_back(Event::FlowFinished(id));
        }
        if flow.open.kind == crate::options::FlowKind::Stream && !flow.is_end_read {
            // Stays until the empty chunk that says so was read.
            return;
        }
        self.end_in(now, id, has_all);
    }

    /// An incoming flow was read to its end and beyond: forget it.
    pub(super) fn end_in(&mut self, now: Time, id: FlowId, has_all: bool) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let session = flow.session;
        if let Some(entry) = self.sessions.entries.get_mut(&session) {
            if !has_all {
                entry.session.flow_ended(now, id);
            }
            entry.session.remove_flow(now, id);
        }
        self.drop_in(id);
        self.pump_session(now, session);
    }

    /// Everything that we sent on a flow is there.
    pub(super) fn on_flow_delivered(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.out(id) else { return };
        let (session, is_control) = (flow.session, flow.open.index == CONTROL_INDEX);
        // P14: a relay's word that it has everything means nothing to the ends.
        let is_known = |e: &Entry| e.securing.is_none() || e.session.is_flow_delivered(id);
        if !is_control && !self.sessions.entry(session).is_none_or(is_known) {
            return;
        }
        if !is_control {
            self.events.push_back(Event::FlowDelivered(id));
            if let Some(entry) = self.sessions.entries.get_mut(&session) {
                let packets = self.shared.flows.out(id).map_or(0, |f| f.source.packets());
                entry.session.flow_finished(now, id, packets);
                entry.session.flow_delivered(now, id);
                entry.session.remove_flow(now, id);
            }
        }
        self.drop_out(id);
        self.pump_session(now, session);
    }

    pub(super) fn on_out_closed(&mut self, now: Time, id: FlowId, reason: CloseReason) {
        let Some(flow) = self.shared.flows.out(id) else { return };
        if let Some(relay) = flow.relay {
            return self.on_relay_refused(now, relay, &reason);
        }
        let (session, is_control) = (flow.session, flow.open.index == CONTROL_INDEX);
        let on = flow.on;
        let has_keys = self.sessions.entry(session).and_then(|e| e.securing.as_ref()).is_some_and(|s| s.has_keys());
        if flow.open.part() > 0 {
            let (index, part) = (flow.open.index, flow.open.part());
            return self.on_part_refused(now, session, index, part);
        }
        let is_way = match reason.code {
            Code::Rerouted | Code::NoRoute | Code::HopLimit | Code::NoRelay | Code::UnknownFlow => true,
            Code::NoMemory => is_control,
            // Any host on the route can say so. The control flow, which goes first, finds out whether each of them does.
            Code::UnknownSession => has_keys,
            // What ends a session that has keys, its far end says with them.
            _ if is_control && has_keys && !switch::is_off(Mechanism::QuestionsToEnds) => true,
            // P16: no honest node answers so to what this side sends. A session in opening asks for its far end elsewhere, below.
            code => (is_absurd(code) || code == Code::Handshake) && !self.is_securing(session),
        };
        if flow.open.relayed.is_some() && is_way {
            if self.sessions.entry(session).is_none() {
                // The last words of a session that is over.
                return self.drop_out(id);
            }
            let reason = match reason.code {
                Code::UnknownSession if !is_control => CloseReason { code: Code::Rerouted, ..reason },
                _ => reason,
            };
            return self.on_route_lost(now, session, reason, on);
        }
        if is_control {
            if self.retry_opening(now, session, &reason) {
                return;
            }
            self.drop_out(id);
            self.fail_session(now, session, reason);
        } else {
            self.close_flow(now, id, reason);
        }
    }

    pub(super) fn on_in_closed(&mut self, now: Time, id: FlowId, reason: CloseReason) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        if let Some(relay) = flow.relay {
            return self.on_relay_reset(relay, &reason);
        }
        if flow.open.part() > 0 && (reason.is_remote || reason.layer == Layer::Flow) {
            return self.refuse_part(id);
        }
        if flow.open.relayed.is_some() && reason.is_remote {
            // Only the route is closed: what ends the flow itself, the far end's session says.
            return self.park_in(now, id);
        }
        if flow.open.relayed.is_some() && reason.layer == Layer::Flow {
            return self.on_lying_hop(now, id);
        }
        let (session, is_control) = (flow.session, flow.open.index == CONTROL_INDEX);
        if is_control || !reason.is_remote {
            // Framing that contradicts itself is the session's affair, not only the flow's.
            self.drop_in(id);
            self.fail_session(now, session, reason);
        } else {
            self.close_flow(now, id, reason);
        }
    }

    /// Our own application gives a flow up in either direction.
    pub(super) fn give_up(&mut self, now: Time, flow: FlowId, known: Known, code: u64) {
        if let Some(entry) = self.sessions.entries.get_mut(&known.session) {
            if known.is_outgoing {
                let mode = self.shared.flows.out(flow).map_or(Mode::Brtp, |f| f.open.mode);
                entry.session.reset_flow(now, flow, mode, code);
            } else {
                entry.session.stop_flow(now, flow, code);
            }
            entry.session.remove_flow(now, flow);
        }
        let on = if known.is_outgoing { self.out_on(flow) } else { self.in_on(flow) };
        if known.is_outgoing {
            self.drop_out(flow);
        } else {
            self.drop_in(flow);
        }
        self.pump_session(now, known.session);
        self.settle_at(now, on);
    }
}

/// A relay answers so only if it, or one behind it, makes packets that the source did not.
pub(super) const fn is_absurd(code: Code) -> bool {
    matches!(code, Code::SpanInvalid | Code::FlowControl | Code::SessionProtocol)
}

fn session_reason(code: Code, application: u64) -> CloseReason {
    CloseReason { code, layer: Layer::Application, application, frame: 0, reason: Default::default(), is_remote: true }
}
