//! Receiving: from an opened packet to the machines that its frames concern.

use super::{Control, Link, LinkEvent, LinkState};
use crate::error::{CloseReason, Code, Layer};
use crate::flow::Offer;
use crate::flows::{Flows, InEvent, OutEvent};
use crate::ids::{FlowLabel, PacketNumber, PathId, Seq};
use crate::path::{Address, Fates, Path};
use crate::sent::SentItem;
use crate::session::{CONTROL_INDEX, Verdict};
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Ecn, Time};
use crate::wire::Frames;
use crate::wire::frame::{Coded, FlowOpen, Frame};

use crate::wire::packet::ProtectedHeader;
use crate::wire::varint::Reader;
use smallvec::SmallVec;

pub(super) type Touched = SmallVec<[FlowLabel; 4]>;

fn touch(list: &mut Touched, label: FlowLabel) {
    if !list.contains(&label) {
        list.push(label);
    }
}

/// Parts of flows on a link of which no packet has opened yet, at most: nobody knows whose they are.
pub(crate) const MOST_NEW_PARTS: usize = 64;

/// A packet that has opened, and how far it was read.
#[derive(Debug)]
pub(crate) struct Reading {
    path: PathId,
    number: PacketNumber,
    ecn: Ecn,
    bytes: usize,
    /// Where the frames are that were not read, from the packet's first byte.
    at: usize,
    end: usize,
    is_ack_eliciting: bool,
}

impl Link {
    /// A protected packet that names one of our connection ids: opens it in place. [`Link::read`] hands its frames on.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn open(
        &mut self,
        now: Time,
        path: PathId,
        header: &ProtectedHeader,
        from: Address,
        ecn: Ecn,
        packet: &mut [u8],
        shared: &mut Shared,
    ) -> Option<Reading> {
        if !matches!(self.state, LinkState::Up | LinkState::Handshaking(_) | LinkState::Closing { .. }) {
            return None;
        }
        let bytes = packet.len();
        // What a packet makes, keys, a path, an answer, is made when it has opened.
        let number = match self.paths.get(&path) {
            Some(p) => p.expand(header.packet_number),
            None if self.keys.is_none() || self.may_answer_path(path) => Path::expand_first(header.packet_number),
            None => return None,
        };
        if let Some(p) = self.paths.get_mut(&path).filter(|p| p.is_duplicate(number) && !switch::is_off(Mechanism::ReplayWindow)) {
            p.on_duplicate();
            shared.counters.replayed += 1;
            self.trace.emit(now, || What::dropped(bytes, "duplicate"));
            return None;
        }
        let job = match &mut self.keys {
            Some(keys) => keys.open_job(now, header.generation, path, number),
            None => self.answered_job(now, path, header),
        };
        let Some(job) = job else {
            self.undecryptable += 1;
            shared.counters.undecryptable += 1;
            self.trace.emit(now, || What::dropped(bytes, "key_unavailable"));
            return None;
        };
        let first = header.encoded_len();
        let end = match job.open(packet, first) {
            Ok(plain) => first + plain.len(),
            Err(_) => {
                self.undecryptable += 1;
                shared.counters.undecryptable += 1;
                self.trace.emit(now, || What::dropped(bytes, "decryption_failure"));
                if let Some(Err(e)) = self.keys.as_mut().map(|keys| keys.on_failed(now, &job)) {
                    self.close(now, CloseReason::local(e.code(), Layer::Crypto, e.to_string()));
                }
                return None;
            }
        };
        // A neighbour that keeps sending does not keep the link past its time.
        if let LinkState::Closing { until, due, .. } = &mut self.state
            && now < *until
            && !switch::is_off(Mechanism::CloseRepetition)
        {
            *due = (*due).max(1);
        }
        if self.keys.is_none() {
            self.install_answered(now, shared);
        }
        let retention = self.pto() * 3;
        let keys = self.keys.as_mut()?;
        keys.on_opened(now, &job, retention);
        if !self.paths.contains_key(&path) {
            let made = self.answered_path(now, path, from, shared);
            self.paths.insert(path, made);
            self.set_ack_urgency();
        }
        self.last_heard = now;
        self.on_first_protected(now, shared);
        self.note_address(now, path, from, number, bytes);
        Some(Reading { path, number, ecn, bytes, at: first, end, is_ack_eliciting: false })
    }

    /// Hands on the frames of a packet that has opened, as far as a flow that the neighbour offers: that is for the node to decide before the packet is read on.
    /// `None`: it was read to its end.
    pub(crate) fn read(&mut self, now: Time, reading: &mut Reading, packet: &[u8], shared: &mut Shared) -> Option<Box<FlowOpen>> {
        match self.on_frames(now, reading, packet, shared) {
            Ok(None) => {}
            Ok(offered) => return offered,
            Err(reason) => {
                shared.counters.violations += u64::from(self.is_usable());
                self.is_urgency_due = None;
                self.close(now, reason);
                return None;
            }
        }
        if self.is_silent {
            self.watch_silence(now);
        }
        // P9: noted for acknowledgement only now, after everything was offered to its flow.
        if let Some(p) = self.paths.get_mut(&reading.path) {
            p.on_received(now, reading.number, reading.ecn, reading.bytes as u16, reading.is_ack_eliciting);
        }
        if self.is_urgency_due.take() == Some(true) {
            self.set_ack_urgency();
        }
        self.watch_paths(now, &mut shared.flows);
        self.couple_paths(now);
        None
    }

    /// Flows that something came for are left in `held`.
    fn on_frames(
        &mut self,
        now: Time,
        reading: &mut Reading,
        packet: &[u8],
        shared: &mut Shared,
    ) -> Result<Option<Box<FlowOpen>>, CloseReason> {
        let mut touched_in = core::mem::take(&mut self.held);
        let mut result = Ok(());
        let mut frames = Frames::new(&packet[reading.at..reading.end]);
        while let Some(frame) = frames.next() {
            let frame = match frame {
                Ok(frame) => frame,
                Err(e) => {
                    result = Err(CloseReason::local(e.code(), Layer::Wire, e.to_string()));
                    break;
                }
            };
            // On a link that ends only the neighbour's last word counts: what began on it would end with it.
            if matches!(self.state, LinkState::Closing { .. }) && !matches!(frame, Frame::Close(_)) {
                continue;
            }
            reading.is_ack_eliciting |= frame.is_ack_eliciting();
            // What came before a frame that may end things is passed on before it.
            if !matches!(frame, Frame::Padding | Frame::Ping | Frame::Ack(_) | Frame::Coded(_) | Frame::Datagram { .. }) {
                self.held = core::mem::take(&mut touched_in);
                self.touch_held(now, shared);
            }
            if let Frame::FlowOpen(open) = frame {
                if self.labels.knows_in(open.label) {
                    continue;
                }
                reading.at = reading.end - frames.rest().len();
                if open.relayed.is_some() {
                    self.is_urgency_due.get_or_insert(false);
                }
                return Ok(Some(Box::new(open)));
            }
            if let Err(reason) = self.on_frame(now, reading.path, frame, &mut touched_in, shared) {
                result = Err(reason);
                break;
            }
            if matches!(self.state, LinkState::Closed) {
                break;
            }
        }
        self.held = touched_in;
        // What a control flow brings, keys among it, may be what the next datagram needs.
        let is_control =
            |label: &FlowLabel| self.labels.peek_in(*label, &shared.flows).is_some_and(|flow| flow.open.index == CONTROL_INDEX);
        if result.is_err() || self.held.iter().any(is_control) {
            self.touch_held(now, shared);
        }
        result.map(|()| None)
    }

    /// A flow is to be looked at with those for which packets came.
    pub(crate) fn hold(&mut self, label: FlowLabel) {
        touch(&mut self.held, label);
    }

    /// What came for flows since they were last looked at is passed on.
    pub(crate) fn touch_held(&mut self, now: Time, shared: &mut Shared) {
        for label in core::mem::take(&mut self.held) {
            self.touch_in(label, now, &mut shared.flows);
            self.settle_in(label, shared);
        }
    }

    fn on_frame(
        &mut self,
        now: Time,
        path: PathId,
        frame: Frame<'_>,
        touched_in: &mut Touched,
        shared: &mut Shared,
    ) -> Result<(), CloseReason> {
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Coded(coded) => self.on_coded(now, &coded, touched_in, shared),
            Frame::Datagram { flow, number, data } => {
                if self.on_datagram(flow, number, data, shared) {
                    touch(touched_in, flow);
                }
            }
            Frame::Fragment { id, index, data } => {
                if let Some(whole) = self.fragments.receive(id, index, data) {
                    match Frame::parse(&mut Reader::new(&whole)) {
                        Ok(Some(Frame::Coded(coded))) => self.on_coded(now, &coded, touched_in, shared),
                        _ => return Err(CloseReason::local(Code::FrameEncoding, Layer::Wire, "fragments do not make a coded packet")),
                    }
                }
            }
            Frame::Ack(view) => {
                let mut fates = core::mem::take(&mut self.fates);
                let result = match self.paths.get_mut(&view.path()) {
                    Some(p) => p.on_ack(now, &view, &mut fates),
                    None => Ok(()),
                };
                self.dispatch_fates(now, &mut fates, &mut shared.flows);
                self.fates = fates;
                result.map_err(|code| CloseReason::local(code, Layer::Link, ""))?;
            }
            // The node has decided.
            Frame::FlowOpen(_) => {}
            Frame::FlowEnd { flow, end } => self.on_flow_end(flow, end, touched_in, shared),
            Frame::FlowSkip { flow, floor } => {
                // P16: what a relay leaves out of what was promised still comes by another route.
                if let Some(f) = self.labels.incoming(flow, &mut shared.flows).filter(|f| f.sink.believes_skips_of_hops()) {
                    f.receiver.on_skip(floor);
                    if let Err(reason) = f.sink.on_skip(floor) {
                        self.events.push_back(LinkEvent::In(f.id, flow, InEvent::Closed(reason)));
                    }
                    touch(touched_in, flow);
                }
            }
            Frame::FlowReset { flow, reason } => {
                if let Some(id) = self.labels.incoming_id(flow) {
                    self.events.push_back(LinkEvent::In(id, flow, InEvent::Closed(remote_reason(reason, Code::Reset))));
                }
                self.labels.close(flow);
            }
            Frame::FlowStop { flow, reason } => {
                if let Some(f) = self.labels.peek_out(flow, &shared.flows) {
                    self.events.push_back(LinkEvent::Out(f.id, flow, OutEvent::Closed(remote_reason(reason, Code::Stopped))));
                }
            }
            Frame::FlowRefused { flow, base, reason } => {
                let code = Code::from_u64(reason).unwrap_or(Code::Internal);
                if let Some(f) = self.labels.out(flow, &mut shared.flows) {
                    if code == Code::Stopped && f.open.relayed.is_some() {
                        // Over at the far end, whose session says how.
                    } else if code == Code::UnknownFlow {
                        // P17: the neighbour lost its state, or a packet without FLOW_OPEN overtook the one with it, or this is one of
                        // several refusals of one flight; offer the flow again.
                        (f.is_open_acked, f.is_announced) = (false, false);
                        f.sender.on_refused(base, code);
                        self.touch_out(flow, now, &mut shared.flows);
                    } else if code == Code::Polluted || (code == Code::NoMemory && (base.0 > 0 || f.sender.is_established())) {
                        // P9: one packet was not taken; RANK says what is missing, and the flow goes on.
                        f.sender.on_refused(base, code);
                    } else {
                        self.events.push_back(LinkEvent::Out(f.id, flow, OutEvent::Closed(remote_reason(reason, Code::Internal))));
                    }
                }
            }
            Frame::Rank { flow, base, n, rank, missing } => {
                if let Some(f) = self.labels.out(flow, &mut shared.flows) {
                    f.sender.on_rank(now, base, n, rank, missing);
                    self.touch_out(flow, now, &mut shared.flows);
                    self.settle_out(flow, shared);
                }
            }
            Frame::Credit { flow, limit, done } => {
                if let Some(f) = self.labels.out(flow, &mut shared.flows) {
                    f.sender.on_credit(limit, done);
                    self.touch_out(flow, now, &mut shared.flows);
                    self.settle_out(flow, shared);
                }
            }
            Frame::NewConnectionId { path, sequence, id } => {
                self.on_new_cid(now, path, sequence, id, shared)?;
            }
            Frame::RetireConnectionId { sequence } => {
                if let Some((path, id)) = self.cids.retire_local(sequence) {
                    shared.forget_cid(&id);
                    self.stock_cids(path, shared);
                }
            }
            Frame::PathChallenge(token) => self.on_path_challenge(path, token),
            Frame::PathResponse(token) => self.on_path_response(now, token),
            Frame::Rekey { generation, step, message } => self.on_rekey(now, generation, step, message, shared)?,
            Frame::Close(mut reason) => {
                reason.is_remote = true;
                self.die(reason);
            }
        }
        Ok(())
    }

    fn on_coded(&mut self, now: Time, coded: &Coded<'_>, touched_in: &mut Touched, shared: &mut Shared) {
        let Some(flow) = self.labels.incoming(coded.flow, &mut shared.flows) else {
            if !self.labels.is_closed(coded.flow) {
                // P9: said, not buffered.
                shared.counters.refused += 1;
                self.send_control(Control::FlowRefused { flow: coded.flow, base: coded.base.0, reason: Code::UnknownFlow as u64 });
            }
            return;
        };
        // P16: before it enters the basis.
        match flow.sink.examine(coded) {
            Verdict::Sound if flow.is_beyond_false_end(coded) => {
                flow.receiver.set_end(None);
                self.name_liar(coded.flow, shared);
            }
            Verdict::Sound => {}
            Verdict::Premature => {
                let control = Control::FlowRefused { flow: coded.flow, base: coded.base.0, reason: Code::NoMemory as u64 };
                return self.send_control(control);
            }
            Verdict::Polluted => {
                shared.counters.polluted += 1;
                return self.on_pollution(coded, touched_in, &mut shared.flows);
            }
        }
        let Some(flow) = self.labels.incoming(coded.flow, &mut shared.flows) else { return };
        if !flow.account.is_awake() {
            flow.wake(&mut shared.ledger);
            touch(touched_in, coded.flow);
        }
        let offer = flow.receiver.on_coded(now, coded);
        // Whatever becomes of this packet: nothing else would bring the flow memory for what it misses.
        if !flow.account.is_awake() && flow.receiver.is_short() {
            shared.waiting.join(flow);
        }
        match offer {
            Offer::Accepted | Offer::Redundant => {
                // What it has asked for may still come, behind a packet that it had.
                if offer == Offer::Accepted || !flow.receiver.is_short() {
                    flow.invited = None;
                }
                touch(touched_in, coded.flow);
            }
            Offer::Refused(Code::NoMemory) if !flow.account.is_awake() => {
                shared.counters.refused += 1;
                // Where nothing has been taken yet, this refusal would be one of the flow. RANK asks for it when there is memory.
                if coded.base.0 > 0 {
                    self.send_control(Control::FlowRefused { flow: coded.flow, base: coded.base.0, reason: Code::NoMemory as u64 });
                }
            }
            Offer::Refused(code) => {
                shared.counters.refused += 1;
                self.send_control(Control::FlowRefused { flow: coded.flow, base: coded.base.0, reason: code as u64 });
            }
        }
    }

    /// FLOW_END. The end of a sealed flow is for its far end to say (P16): the hop's word steers the coded machine and is taken back when something
    /// contradicts it.
    fn on_flow_end(&mut self, label: FlowLabel, end: Seq, touched_in: &mut Touched, shared: &mut Shared) {
        let Some(flow) = self.labels.incoming(label, &mut shared.flows) else { return };
        touch(touched_in, label);
        let Err(code) = flow.receiver.on_end(end) else { return };
        if flow.sink.believes_ends_of_hops() {
            let reason = CloseReason::local(code, Layer::Flow, "contradictory end of flow");
            return self.events.push_back(LinkEvent::In(flow.id, label, InEvent::Closed(reason)));
        }
        if !flow.sink.knows_end() {
            flow.receiver.set_end(None);
        }
        self.name_liar(label, shared);
    }

    /// The neighbour said of a sealed flow what cannot be: it is named, and the flow goes on.
    fn name_liar(&mut self, label: FlowLabel, shared: &mut Shared) {
        let Some(flow) = self.labels.incoming(label, &mut shared.flows) else { return };
        self.polluted += 1;
        flow.polluted += 1;
        shared.counters.polluted += 1;
        if flow.polluted.is_power_of_two() {
            self.events.push_back(LinkEvent::In(flow.id, label, InEvent::Polluted));
        }
    }

    /// The neighbour passed on what nobody at the far end made.
    pub(crate) fn count_lie(&mut self) {
        self.polluted += 1;
    }

    /// A packet that nobody with the session's key made.
    fn on_pollution(&mut self, coded: &Coded<'_>, touched_in: &mut Touched, flows: &mut Flows) {
        let Some(flow) = self.labels.incoming(coded.flow, flows) else { return };
        self.polluted += 1;
        flow.polluted += 1;
        // The neighbour counts it as arrived: it hears that it is not.
        flow.receiver.want_rank(coded.base);
        touch(touched_in, coded.flow);
        let event = InEvent::Forged { is_news: flow.polluted.is_power_of_two() };
        self.events.push_back(LinkEvent::In(flow.id, coded.flow, event));
        self.send_control(Control::FlowRefused { flow: coded.flow, base: coded.base.0, reason: Code::Polluted as u64 });
    }

    /// Refuses a flow for good.
    pub(crate) fn refuse_flow(&mut self, label: FlowLabel, code: Code) {
        self.labels.close(label);
        self.send_control(Control::FlowRefused { flow: label, base: 0, reason: code as u64 });
    }

    /// Gives every fate to the machine that sent the thing.
    pub(crate) fn dispatch_fates(&mut self, now: Time, fates: &mut Fates, flows: &mut Flows) {
        let mut out = Touched::new();
        let mut incoming = Touched::new();
        for item in fates.acked.drain(..) {
            let item = match item {
                SentItem::Half { id, index } => match self.fragments.on_acked(id, index) {
                    Some(whole) => whole,
                    None => continue,
                },
                item => item,
            };
            match item {
                SentItem::Coded { flow, .. } | SentItem::FlowEnd(flow) | SentItem::FlowSkip { flow, .. } => {
                    if let Some(f) = self.labels.out(flow, flows) {
                        f.sender.on_acked(now, &item);
                        touch(&mut out, flow);
                    }
                }
                SentItem::FlowOpen(flow) => {
                    if let Some(f) = self.labels.out(flow, flows) {
                        f.is_open_acked = true;
                    }
                }
                SentItem::Ack { path, reported_below } => {
                    if let Some(p) = self.paths.get_mut(&path) {
                        p.on_ack_of_ack(reported_below);
                    }
                }
                _ => {}
            }
        }
        for item in fates.lost.drain(..) {
            let item = match item {
                SentItem::Half { id, .. } => match self.fragments.on_lost(id) {
                    Some(whole) => whole,
                    None => continue,
                },
                item => item,
            };
            match item {
                SentItem::Coded { flow, .. } | SentItem::FlowEnd(flow) | SentItem::FlowSkip { flow, .. } => {
                    if let Some(f) = self.labels.out(flow, flows) {
                        f.sender.on_lost(now, &item);
                        touch(&mut out, flow);
                    }
                }
                SentItem::FlowOpen(flow) => {
                    // A flow without data has nothing for FLOW_OPEN to ride with.
                    if let Some(f) = self.labels.out(flow, flows)
                        && !f.is_open_acked
                    {
                        f.is_announced = false;
                        touch(&mut out, flow);
                    }
                }
                SentItem::Credit { flow, .. } | SentItem::Rank { flow, .. } => {
                    if let Some(f) = self.labels.incoming(flow, flows) {
                        f.receiver.on_report_lost(&item);
                        touch(&mut incoming, flow);
                    }
                }
                SentItem::FlowDone { flow, end } => self.send_control(Control::FlowDone { flow, end }),
                SentItem::NewConnectionId(sequence) => self.send_control(Control::NewConnectionId(sequence)),
                SentItem::RetireConnectionId(sequence) => self.send_control(Control::RetireConnectionId(sequence)),
                SentItem::FlowRefused { flow, base, reason } if !switch::is_off(Mechanism::RefusalRepetition) => {
                    self.send_control(Control::FlowRefused { flow, base: base.0, reason });
                }
                SentItem::FlowReset(flow) => self.send_control(Control::FlowReset { flow, reason: Code::Reset as u64 }),
                SentItem::FlowStop(flow) => self.send_control(Control::FlowStop { flow, reason: Code::Stopped as u64 }),
                SentItem::Rekey => {
                    if let Some(keys) = &mut self.keys {
                        keys.on_lost();
                    }
                }
                _ => {}
            }
        }
        for item in fates.spurious.drain(..) {
            if let SentItem::Coded { flow, .. } = item
                && let Some(f) = self.labels.out(flow, flows)
            {
                f.sender.on_spurious(now, &item);
                touch(&mut out, flow);
            }
        }
        for label in out {
            self.touch_out(label, now, flows);
            self.note_proactive(label, flows);
        }
        for label in incoming {
            self.touch_in(label, now, flows);
        }
    }

    /// Keeps the neighbour's stock of our connection ids full.
    pub(crate) fn stock_cids(&mut self, path: PathId, shared: &mut Shared) {
        for _ in 0..self.cids.wanting(path) {
            let id = shared.new_cid(self.id, path);
            let sequence = self.cids.issue(path, id);
            self.send_control(Control::NewConnectionId(sequence));
        }
    }
}

fn remote_reason(value: u64, fallback: Code) -> CloseReason {
    let mut reason = match Code::from_u64(value) {
        Some(code) => CloseReason::local(code, Layer::Flow, ""),
        None => CloseReason { application: value - (1 << 16).min(value), ..CloseReason::local(fallback, Layer::Application, "") },
    };
    reason.is_remote = true;
    reason
}
