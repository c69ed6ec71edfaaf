//! Building datagrams: what goes into a packet, in which order, and how many packets leave in one train.
//!
//! Order inside a packet: due acknowledgements, link control, reports of incoming flows, then coded packets of outgoing
//! flows (repair of known deficits before new source packets). Proactive repair and probes only when nothing else waits.

use super::draft::{Draft, OPEN_ROOM, fill_from, flow_header, put_outgoing};
use super::schedule::{Turn, Wanted};
use super::{Control, Link, LinkState};
use crate::datagram::Transmit;
use crate::error::{CloseReason, Layer};
use crate::flow::Stage;
use crate::flows::Flows;
use crate::ids::{FlowLabel, PathId, Seq};
use crate::options::Class;
use crate::path::PathState;
use crate::sent::{SentItem, SentItems};
use crate::session::CONTROL_INDEX;
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Ecn, Time};
use crate::wire::frame::Frame;
use crate::wire::packet::{ConnectionId, ProtectedHeader, TAG_LEN};

/// Below this room no coded packet is begun, in bytes.
const WORTHWHILE: usize = 64;
/// Flows that are asked in vain for what fits the rest of a packet: with many flows there is always one more to ask.
const MISSES: usize = 8;
impl Link {
    /// The next datagrams of this link. `None`: nothing to send now.
    pub(crate) fn poll_transmit(&mut self, now: Time, max_segments: usize, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<Transmit> {
        match &mut self.state {
            LinkState::Closed => None,
            LinkState::Handshaking(_) => self.poll_handshake(now, shared, buf),
            LinkState::Closing { .. } => self.poll_close(now, buf),
            LinkState::Up => {
                let transmit = self.path_order().into_iter().find_map(|id| self.poll_path(now, id, max_segments, shared, buf));
                if transmit.is_none() {
                    self.plan_watch(now);
                }
                transmit
            }
        }
    }

    /// A train of packets for one path.
    fn poll_path(&mut self, now: Time, path: PathId, max_segments: usize, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<Transmit> {
        let p = self.paths.get(&path)?;
        let size = usize::from(p.datagram_size());
        // P19: an address that has not answered gets one datagram at a time, as far as it may.
        let max_segments = if p.state() == PathState::Opening { 1 } else { max_segments };
        if p.untested_room() < size as u64 {
            return None;
        }
        if let Some(probe) = self.paths.get_mut(&path)?.poll_mtu_probe(now) {
            return self.build_probe(now, path, probe, buf);
        }
        if let Some(transmit) = self.poll_migration(now, path, shared, buf) {
            return Some(transmit);
        }
        if self.paths.get(&path)?.is_gap_probe_due()
            && let Some(transmit) = self.poll_gap_probe(now, path, &mut shared.flows, buf)
        {
            return Some(transmit);
        }
        let mut segment = None;
        let mut ecn = self.paths.get(&path)?.ecn_codepoint();
        // A packet that was too long for the train before it begins this one.
        if let Some((_, numbered_with, packet)) = self.overlong.take_if(|(on, ..)| *on == path) {
            buf.extend_from_slice(&packet);
            segment = Some(packet.len());
            ecn = numbered_with;
        }
        // One train, one codepoint, which is what the path counts for each of its packets (P8).
        self.paths.get_mut(&path)?.set_train(Some(ecn));
        let from = usize::from(segment.is_some());
        let prefix = if segment.is_none() { self.handshake_prefix(path, buf) } else { 0 };
        for i in from..max_segments.max(1) {
            let before = buf.len();
            // Only the first packet of a train shares its datagram with the end of the handshake.
            let capacity = if i == 0 { size.saturating_sub(prefix) } else { size };
            let Some(len) = self.build_packet(now, path, capacity, shared, buf) else { break };
            let len = if i == 0 { len + prefix } else { len };
            debug_assert_eq!(buf.len() - before + if i == 0 { prefix } else { 0 }, len);
            let first = *segment.get_or_insert(len);
            // GSO: every piece but the last has the length of the first; a shorter packet ends the train.
            if len > first {
                self.overlong = Some((path, ecn, buf[before..].to_vec()));
                buf.truncate(before);
                break;
            }
            if len < first || first < size / 2 {
                break;
            }
        }
        let segment = match segment {
            Some(s) => s,
            None => {
                buf.clear();
                return None;
            }
        };
        self.last_sent = now;
        let p = self.paths.get_mut(&path)?;
        p.set_train(None);
        Some(Transmit { remote: p.remote(), local: p.local(), ecn, len: buf.len(), segment_size: (buf.len() > segment).then_some(segment) })
    }

    /// One protected packet of at most `capacity` bytes appended to `buf`; its length, or `None` if there was nothing to send.
    fn build_packet(&mut self, now: Time, path: PathId, capacity: usize, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<usize> {
        let mut draft = self.begin(path, capacity, buf)?;
        let bulk_at = self.bulk_at;
        let p = self.paths.get_mut(&path)?;
        p.set_bursty(bulk_at.is_none_or(|at| now.since(at) > p.rtt()));
        let allowance = p.send_allowance(now);
        let is_probe_wanted = p.probe_wanted() && !switch::is_off(Mechanism::TailProbes);
        let is_open = p.is_open();
        let share = self.share(now, path, &shared.flows);

        self.put_acks(now, path, &mut draft, buf);
        #[cfg(any(test, fuzzing))]
        if let Some(frames) = shared.lies.take(self.id) {
            buf.extend_from_slice(&frames[..frames.len().min(draft.room(buf))]);
            draft.is_ack_eliciting = true;
            return self.finish(now, path, draft, true, buf);
        }
        self.put_control(&mut draft, path, share.reports, buf);
        if share.reports {
            self.put_reports(now, &mut draft, path, &mut shared.flows, buf);
        }
        let has_backlog = |link: &mut Self, flows: &mut Flows| share.has_data() && link.has_backlog(now, flows);
        if allowance == 0 && has_backlog(self, &mut shared.flows) {
            self.paths.get_mut(&path)?.on_blocked(now);
        }
        if is_open && (allowance > 0 || is_probe_wanted) {
            self.put_coded(now, path, share.wanted, &mut draft, shared, buf);
            // Proactive repair never shares a packet with what it protects, and takes spare rate only (flow.md 3.4).
            if share.is_best && draft.is_empty(buf) && self.paths.get(&path)?.spare_allowance(now) > 0 {
                self.put_proactive(now, path, &mut draft, &mut shared.flows, buf);
            }
        }
        if is_probe_wanted && !draft.is_ack_eliciting {
            // P4: the tail probe is a coded packet wherever a flow has one.
            if !is_open || !self.put_tail_probe(now, path, &mut draft, &mut shared.flows, buf) {
                draft.put(&Frame::Ping, Some(SentItem::Ping), buf);
            }
        }
        if self.paths.get(&path)?.is_silence_probe_wanted() && !draft.is_ack_eliciting {
            draft.put(&Frame::Ping, Some(SentItem::Ping), buf);
        }
        // Last, for a datagram reaches to the end of its packet.
        if share.is_best && !self.datagrams.is_empty() {
            self.put_datagrams(now, path, &mut draft, shared, buf);
        }
        if draft.is_empty(buf) {
            buf.truncate(draft.start);
            return None;
        }
        let is_app_limited = !has_backlog(self, &mut shared.flows);
        self.finish(now, path, draft, is_app_limited, buf)
    }

    /// Reserves the header.
    pub(super) fn begin(&mut self, path: PathId, capacity: usize, buf: &mut Vec<u8>) -> Option<Draft> {
        let cid = self.cids.remote_for(path)?.clone();
        self.begin_with(&cid, capacity, buf)
    }

    /// The same with this id.
    pub(super) fn begin_with(&mut self, cid: &ConnectionId, capacity: usize, buf: &mut Vec<u8>) -> Option<Draft> {
        let keys = self.keys.as_ref()?;
        let start = buf.len();
        ProtectedHeader { generation: keys.generation_bits(), connection_id: cid.clone(), packet_number: 0 }.emit(buf);
        let limit = (start + capacity).saturating_sub(TAG_LEN);
        Some(Draft {
            start,
            frames: buf.len(),
            limit,
            items: SentItems::new(),
            is_ack_eliciting: false,
            has_datagrams: false,
            is_full: false,
        })
    }

    /// Numbers and seals the packet and hands it to its path.
    pub(super) fn finish(&mut self, now: Time, path: PathId, draft: Draft, is_app_limited: bool, buf: &mut Vec<u8>) -> Option<usize> {
        let keys = self.keys.as_mut()?;
        let p = self.paths.get_mut(&path)?;
        let number = p.next_packet_number();
        buf[draft.frames - 4..draft.frames].copy_from_slice(&(number.0 as u32).to_be_bytes());
        buf.resize(buf.len() + TAG_LEN, 0);
        self.send_epoch = number.0 >> self.epoch_log2;
        let sealed = keys.seal_job(path, number).and_then(|job| job.seal(&mut buf[draft.start..], draft.frames - draft.start));
        if let Err(e) = sealed {
            buf.truncate(draft.start);
            self.close(now, CloseReason::local(e.code(), Layer::Crypto, e.to_string()));
            return None;
        }
        let len = buf.len() - draft.start;
        if self.trace.is_on() && keys.generation() != self.traced_generation {
            self.traced_generation = keys.generation();
            self.trace.emit(now, || What::KeyUpdated { generation: keys.generation() });
        }
        match draft.has_datagrams && !draft.is_ack_eliciting {
            true => p.on_sent_uncontrolled(now, number, len as u16, draft.items),
            false => p.on_sent(now, number, len as u16, draft.is_ack_eliciting, is_app_limited, draft.items),
        }
        Some(len)
    }

    /// What came by a path is acknowledged by it: its round trip is its own, and another path that breaks takes none of it along.
    pub(super) fn put_acks(&mut self, now: Time, path: PathId, draft: &mut Draft, buf: &mut Vec<u8>) {
        if let Some(p) = self.paths.get_mut(&path)
            && p.ack_due(now)
        {
            let (wants_ping, room) = (p.ack_wants_ping(now), draft.room(buf));
            if let Some(item) = p.write_ack(now, room, buf) {
                draft.items.push(item);
                // P8: an acknowledgement of this one lets the path forget what was reported.
                if wants_ping && draft.put(&Frame::Ping, None, buf) {
                    p.on_eliciting_ack(now);
                }
            }
        }
    }

    /// Link control; of a path that is not the one for it, only answers to its own tests.
    fn put_control(&mut self, draft: &mut Draft, path: PathId, is_all: bool, buf: &mut Vec<u8>) {
        if is_all
            && let Some(keys) = &mut self.keys
            && keys.has_message()
        {
            let is_written = match keys.poll_frame() {
                Some(frame) => draft.put(&frame, Some(SentItem::Rekey), buf),
                None => true,
            };
            if !is_written {
                keys.on_lost();
            }
        }
        for _ in 0..self.control.len() {
            let Some(control) = self.control.pop_front() else { break };
            let is_own = matches!(control, Control::PathResponse(on, _) if on == path);
            let fits = match &control {
                _ if !is_all && !is_own => false,
                Control::Ping => draft.put(&Frame::Ping, Some(SentItem::Ping), buf),
                Control::NewConnectionId(sequence) => match self.cids.local_id(*sequence) {
                    Some((path, id)) => draft.put(
                        &Frame::NewConnectionId { path, sequence: *sequence, id: id.clone() },
                        Some(SentItem::NewConnectionId(*sequence)),
                        buf,
                    ),
                    None => true,
                },
                Control::RetireConnectionId(sequence) => {
                    draft.put(&Frame::RetireConnectionId { sequence: *sequence }, Some(SentItem::RetireConnectionId(*sequence)), buf)
                }
                // An answer belongs to the path that is tested.
                Control::PathResponse(on, token) => *on == path && draft.put(&Frame::PathResponse(*token), Some(SentItem::Ping), buf),
                Control::FlowDone { flow, end } => draft.put(
                    &Frame::Credit { flow: *flow, limit: *end, done: *end },
                    Some(SentItem::FlowDone { flow: *flow, end: *end }),
                    buf,
                ),
                Control::FlowRefused { flow, base, reason } => draft.put(
                    &Frame::FlowRefused { flow: *flow, base: Seq(*base), reason: *reason },
                    Some(SentItem::FlowRefused { flow: *flow, base: Seq(*base), reason: *reason }),
                    buf,
                ),
                Control::FlowReset { flow, reason } => {
                    draft.put(&Frame::FlowReset { flow: *flow, reason: *reason }, Some(SentItem::FlowReset(*flow)), buf)
                }
                Control::FlowStop { flow, reason } => {
                    draft.put(&Frame::FlowStop { flow: *flow, reason: *reason }, Some(SentItem::FlowStop(*flow)), buf)
                }
            };
            if !fits {
                self.control.push_back(control);
            }
        }
    }

    /// CREDIT and RANK of incoming flows (P9, P15).
    fn put_reports(&mut self, now: Time, draft: &mut Draft, path: PathId, flows: &mut Flows, buf: &mut Vec<u8>) {
        let Some(rtt) = self.slowest_heard(path) else { return };
        if switch::is_off(Mechanism::FlowReports) {
            return;
        }
        for _ in 0..self.reports.len() {
            if draft.room(buf) < 48 {
                break;
            }
            let Some(label) = self.reports.pop_front() else { break };
            let Some(flow) = self.labels.incoming(label, flows) else { continue };
            flow.is_report_queued = false;
            while let Some(report) = flow.receiver.poll_report(now, rtt) {
                if !draft.put(&report.frame(), Some(report.item()), buf) {
                    flow.receiver.on_report_lost(&report.item());
                    flow.is_report_queued = true;
                    self.reports.push_back(label);
                    break;
                }
            }
            let timer = flow.poll_timeout();
            self.timers.set(super::TimerKey::In(label), timer);
        }
    }

    /// Coded packets of outgoing flows in the order of the schedule. A flow puts one coded packet at most into a packet: what protects shares no fate
    /// with what is protected.
    pub(super) fn put_coded(&mut self, now: Time, path: PathId, wanted: Wanted, draft: &mut Draft, shared: &mut Shared, buf: &mut Vec<u8>) {
        let Some(mut context) = self.context_of(path, now, &mut shared.flows) else { return };
        // What goes into the middle of bursts takes spare rate; only small flows ask.
        context.spare = self.schedule.latency().next().is_some() && self.paths.get(&path).is_some_and(|p| p.spare_allowance(now) > 0);
        if let Some((id, data)) = self.pending_fragment.take() {
            let is_fresh = draft.is_empty(buf);
            if !draft.put(&Frame::Fragment { id, index: 1, data: &data }, Some(SentItem::Half { id, index: 1 }), buf) {
                match is_fresh {
                    true => self.lose_half(now, id, &mut shared.flows),
                    // No room beside other frames: the next packet begins with it.
                    false => self.pending_fragment = Some((id, data)),
                }
            }
            draft.is_full = true;
            return;
        }
        let mut again: smallvec::SmallVec<[(Turn, usize); 4]> = smallvec::SmallVec::new();
        let mut misses = 0;
        self.schedule.begin();
        while draft.room(buf) >= WORTHWHILE && misses < MISSES {
            let Some(label) = self.schedule.pop(wanted) else { break };
            let Some(flow) = self.labels.out(label, &mut shared.flows) else { continue };
            let turn = Turn::of(flow);
            if self.schedule.defers(&turn, &mut flow.balance) {
                continue;
            }
            let is_fresh = draft.is_empty(buf);
            let before = buf.len();
            let cut = fill_from(flow, label, now, &context, draft, buf);
            #[cfg(test)]
            shared.lies.tell(&mut buf[before..]);
            let bytes = buf.len() - before;
            misses += usize::from(bytes == 0);
            self.schedule.charge(&turn, bytes);
            if bytes > 0 && flow.open.class == Class::Bulk && flow.open.index != CONTROL_INDEX && !flow.open.waits_in_order() {
                self.bulk_at = Some(now);
            }
            // A flow that could not use a whole packet is blocked; whatever unblocks it touches it.
            let goes_on = flow.has_work(now) && (bytes > 0 || cut.is_some() || !is_fresh);
            if goes_on {
                again.push((turn, bytes));
            }
            self.labels.set_waiting(flow, |flow| flow.is_queued = goes_on);
            self.note_proactive(label, &mut shared.flows);
            self.touch_out(label, now, &mut shared.flows);
            self.settle_out(label, shared);
            if let Some((frame, item)) = cut {
                self.cut_in_two(now, draft, &frame, item, &mut shared.flows, buf);
            }
        }
        for (turn, bytes) in again.into_iter().rev() {
            if let Some(flow) = self.labels.out(turn.label, &mut shared.flows) {
                self.schedule.again(&turn, bytes, &mut flow.balance);
            }
        }
    }

    /// Repair without a known deficit, from spare rate, of which there is some.
    fn put_proactive(&mut self, now: Time, path: PathId, draft: &mut Draft, flows: &mut Flows, buf: &mut Vec<u8>) {
        if self.proactive.is_empty() {
            return;
        }
        let Some(mut context) = self.context_of(path, now, flows) else { return };
        (context.spare, context.slack) = (true, self.paths.get(&path).is_some_and(|p| p.has_slack()));
        while let Some(label) = self.proactive.front().copied() {
            // What does not fit the path any more is not worth two packets of spare rate.
            let outgoing = self.labels.out(label, flows).and_then(|f| {
                let room = draft.room(buf).saturating_sub(flow_header(f, label));
                f.sender.poll(now, Stage::Proactive, &context, room)
            });
            match (outgoing, self.labels.peek_out(label, flows)) {
                (Some(outgoing), Some(flow)) => {
                    put_outgoing(&flow.sender, label, &outgoing, draft, buf);
                    self.touch_out(label, now, flows);
                    return;
                }
                _ => {
                    self.proactive.pop_front();
                    if let Some(flow) = self.labels.out(label, flows) {
                        self.labels.set_waiting(flow, |flow| flow.is_proactive_queued = false);
                    }
                    self.touch_out(label, now, flows);
                }
            }
        }
    }

    /// A coded packet that probes the tail of a flow (P4, P10).
    fn put_tail_probe(&mut self, now: Time, path: PathId, draft: &mut Draft, flows: &mut Flows, buf: &mut Vec<u8>) -> bool {
        let Some(context) = self.context_of(path, now, flows) else { return false };
        #[cfg(test)]
        assert!(
            self.labels
                .all_out()
                .all(|(label, id)| flows.out(id).is_none_or(|f| f.sender.has(Stage::Probe) == self.probing.contains(&label)))
        );
        let labels: smallvec::SmallVec<[FlowLabel; 8]> = self.probing.iter().copied().take(8).collect();
        for label in labels {
            let Some(flow) = self.labels.out(label, flows) else { continue };
            // A packet that is polled has to be sent: only the room beside FLOW_OPEN counts.
            let open = if flow.is_open_acked { 0 } else { OPEN_ROOM };
            let room = draft.room(buf).saturating_sub(flow_header(flow, label) + open);
            if let Some(outgoing) = flow.sender.poll(now, Stage::Probe, &context, room) {
                if !flow.is_open_acked && !draft.put(&Frame::FlowOpen(flow.open.clone()), Some(SentItem::FlowOpen(label)), buf) {
                    return false;
                }
                put_outgoing(&flow.sender, label, &outgoing, draft, buf);
                self.touch_out(label, now, flows);
                return draft.is_ack_eliciting;
            }
        }
        false
    }

    /// Sends one encoded CODED frame as two fragments in two packets (P5): the first in this packet, the second in the next.
    fn cut_in_two(&mut self, now: Time, draft: &mut Draft, frame: &[u8], item: SentItem, flows: &mut Flows, buf: &mut Vec<u8>) {
        let id = self.fragments.cut(item);
        let (first, second) = frame.split_at(frame.len().div_ceil(2));
        if switch::is_off(Mechanism::Fragments)
            || !draft.put(&Frame::Fragment { id, index: 0, data: first }, Some(SentItem::Half { id, index: 0 }), buf)
        {
            return self.lose_half(now, id, flows);
        }
        self.pending_fragment = Some((id, second.to_vec()));
        draft.is_full = true;
    }

    /// A half that no packet can carry counts as lost: everything that was polled has a fate.
    fn lose_half(&mut self, now: Time, id: u64, flows: &mut Flows) {
        self.fates.lost.push(SentItem::Half { id, index: 0 });
        let mut fates = core::mem::take(&mut self.fates);
        self.dispatch_fates(now, &mut fates, flows);
        self.fates = fates;
    }

    /// A PING padded to the size that is probed.
    fn build_probe(&mut self, now: Time, path: PathId, size: u16, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mut draft = self.begin(path, usize::from(size), buf)?;
        draft.put(&Frame::Ping, Some(SentItem::MtuProbe(size)), buf);
        buf.resize(draft.limit, 0);
        self.paths.get_mut(&path)?.set_train(Some(Ecn::NotEct));
        self.finish(now, path, draft, true, buf)?;
        let p = self.paths.get_mut(&path)?;
        p.set_train(None);
        Some(Transmit { remote: p.remote(), local: p.local(), ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    /// CLOSE, some times at the end, for a node that closes may be gone before it can say so again, and once more for each packet that a deaf neighbour sends.
    fn poll_close(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        let LinkState::Closing { reason, due, .. } = &mut self.state else { return None };
        *due = due.checked_sub(1)?;
        let reason = reason.clone();
        let path = *self.path_order().first()?;
        let size = usize::from(self.paths.get(&path)?.datagram_size());
        let prefix = self.handshake_prefix(path, buf);
        let mut draft = self.begin(path, size.saturating_sub(prefix), buf)?;
        draft.put(&Frame::Close(reason), None, buf);
        draft.is_ack_eliciting = false;
        let ecn = self.paths.get(&path)?.ecn_codepoint();
        self.finish(now, path, draft, true, buf)?;
        let p = self.paths.get(&path)?;
        Some(Transmit { remote: p.remote(), local: p.local(), ecn, len: buf.len(), segment_size: None })
    }

    /// Data wait on some flow: the path is not application-limited.
    pub(super) fn has_backlog(&mut self, now: Time, flows: &mut Flows) -> bool {
        #[cfg(test)]
        let by_asking_all = self.schedule.iter().any(|l| self.labels.peek_out(*l, flows).is_some_and(|f| f.has_backlog(now)));
        let labels = &self.labels;
        let does_wait = self.backlog.any(|label| {
            let Some(flow) = labels.out(label, flows) else { return false };
            flow.is_backlog_noted = flow.is_queued && flow.has_backlog(now);
            flow.is_backlog_noted
        });
        #[cfg(test)]
        assert_eq!(does_wait, by_asking_all);
        self.pending_fragment.is_some() || does_wait
    }

    /// A flow waits that has something which was never sent.
    pub(super) fn has_fresh(&mut self, now: Time, flows: &mut Flows) -> bool {
        #[cfg(test)]
        let by_asking_all = self.schedule.iter().any(|l| self.labels.peek_out(*l, flows).is_some_and(|f| f.has_fresh(now)));
        let labels = &self.labels;
        let has_fresh = self.fresh.any(|label| {
            let Some(flow) = labels.out(label, flows) else { return false };
            flow.is_fresh_noted = flow.is_queued && flow.has_fresh(now);
            flow.is_fresh_noted
        });
        #[cfg(test)]
        assert_eq!(has_fresh, by_asking_all);
        has_fresh
    }
}
