//! The flows that a link carries: given to it, taken from it, and looked at after they changed. They are the node's.

use super::schedule::origin_of;
use super::{Control, Link, LinkEvent, TimerKey};
use crate::flow::Stage;
use crate::flows::{Flows, InEvent, InFlow, OutFlow};
use crate::ids::{FlowId, FlowLabel};
use crate::session::CONTROL_INDEX;
use crate::shared::Shared;
use crate::trace::What;
use crate::units::Time;

impl Link {
    /// Carries a flow that this node sends from now on, under a label of its own. One that another link carried, or none, begins anew here.
    pub(crate) fn carry_out(&mut self, id: FlowId, now: Time, flows: &mut Flows) {
        let Some(flow) = flows.out_mut(id) else { return };
        flow.on = Some(self.id);
        self.schedule.join(origin_of(flow));
        self.labels.insert_out(flow);
        let label = flow.open.label;
        self.touch_out(label, now, flows);
    }

    /// The label and the credit that a flow begins with which this link is to carry.
    pub(crate) fn offer_out(&mut self) -> (FlowLabel, u64) {
        (self.labels.allocate(), self.peer_params.initial_credit)
    }

    /// Carries a flow that this node receives from now on, under the neighbour's label.
    pub(crate) fn carry_in(&mut self, id: FlowId, flows: &mut Flows) {
        let Some(flow) = flows.incoming_mut(id) else { return };
        flow.on = Some(self.id);
        self.labels.insert_in(flow);
        if flow.open.index != CONTROL_INDEX {
            flow.is_coming_noted = true;
            self.coming.note(flow.open.label);
        }
        self.set_ack_urgency();
    }

    /// The same of one that the neighbour has just offered.
    pub(crate) fn accept_in(&mut self, id: FlowId, flows: &mut Flows) {
        self.carry_in(id, flows);
        if let Some(flow) = flows.incoming(id) {
            self.trace.emit_also(|| What::opened(&flow.open, "in"));
            self.events.push_back(LinkEvent::In(id, flow.open.label, InEvent::Opened));
        }
    }

    /// A flow that this node sends goes by this link no more: what is in flight has no fate.
    pub(crate) fn release_out(&mut self, flow: &mut OutFlow) {
        let label = flow.open.label;
        self.timers.set(TimerKey::Out(label), None);
        self.labels.remove_out(flow);
        flow.on = None;
        let queued = flow.is_queued.then_some(flow.open.class);
        self.schedule.leave(origin_of(flow), queued, |label| self.labels.has_out(*label));
        if core::mem::take(&mut flow.is_backlog_noted) {
            self.backlog.leave(|label| self.labels.has_out(label));
        }
        if core::mem::take(&mut flow.is_fresh_noted) {
            self.fresh.leave(|label| self.labels.has_out(label));
        }
        if core::mem::take(&mut flow.is_probing) {
            self.probing.remove(&label);
        }
    }

    /// A flow that this node receives comes by this link no more; late packets of it are dropped in silence.
    pub(crate) fn release_in(&mut self, flow: &mut InFlow) {
        self.timers.set(TimerKey::In(flow.open.label), None);
        self.labels.remove_in(flow);
        flow.on = None;
        if core::mem::take(&mut flow.is_coming_noted) {
            self.coming.leave(|label| self.labels.has_in(label));
        }
        self.set_ack_urgency();
    }

    /// The same of one that is over.
    pub(crate) fn end_out(&mut self, flow: &mut OutFlow) {
        self.release_out(flow);
        self.trace.emit_also(|| What::closed(flow.open.label.0, "out", &flow.stats()));
    }

    /// The same of one that is over.
    pub(crate) fn end_in(&mut self, flow: &mut InFlow) {
        let label = flow.open.label;
        self.trace.emit_also(|| What::closed(label.0, "in", &flow.stats()));
        if let Some(end) = flow.receiver.end().filter(|_| flow.receiver.is_complete()) {
            self.send_control(Control::FlowDone { flow: label, end });
        }
        self.release_in(flow);
    }

    /// After anything changed in an outgoing flow: its owner hears what, it waits for its turn if it has work, its timer is set.
    pub(crate) fn touch_out(&mut self, label: FlowLabel, now: Time, flows: &mut Flows) {
        let Some(flow) = self.labels.out(label, flows) else { return };
        let (id, events) = (flow.id, &mut self.events);
        flow.tell(|event| events.push_back(LinkEvent::Out(id, label, event)));
        if !flow.is_queued && flow.has_work(now) {
            self.schedule.push(label, flow.open.class, origin_of(flow));
            self.labels.set_waiting(flow, |flow| flow.is_queued = true);
        }
        if !flow.is_datagram_queued && flow.has_datagrams(now) {
            flow.is_datagram_queued = true;
            self.datagrams.push_back(label);
        }
        self.timers.set(TimerKey::Out(label), flow.poll_timeout());
        if flow.is_queued && !flow.is_backlog_noted && flow.has_backlog(now) {
            flow.is_backlog_noted = true;
            self.backlog.note(label);
        }
        if flow.is_queued && !flow.is_fresh_noted && flow.has_fresh(now) {
            flow.is_fresh_noted = true;
            self.fresh.note(label);
        }
        let is_probing = flow.sender.has(Stage::Probe);
        if core::mem::replace(&mut flow.is_probing, is_probing) != is_probing {
            match is_probing {
                true => self.probing.insert(label),
                false => self.probing.remove(&label),
            };
        }
    }

    /// After anything changed in an incoming flow: what came is handed over, its owner hears what there is, it may have something to report, its timer is set.
    pub(crate) fn touch_in(&mut self, label: FlowLabel, now: Time, flows: &mut Flows) {
        let Some(flow) = self.labels.incoming(label, flows) else { return };
        let (id, events) = (flow.id, &mut self.events);
        flow.tell(now, &self.trace, |event| events.push_back(LinkEvent::In(id, label, event)));
        if flow.relay.is_some() {
            return self.queue_report(label, now, flows);
        }
        if !flow.is_report_queued {
            flow.is_report_queued = true;
            self.reports.push_back(label);
        }
        self.timers.set(TimerKey::In(label), flow.poll_timeout());
    }

    /// An incoming flow may have something to report now, and knows when it will.
    pub(crate) fn queue_report(&mut self, label: FlowLabel, now: Time, flows: &mut Flows) {
        let Some(flow) = self.labels.incoming(label, flows) else { return };
        if !flow.is_report_queued && flow.receiver.has_report(now) {
            flow.is_report_queued = true;
            self.reports.push_back(label);
        }
        self.timers.set(TimerKey::In(label), flow.receiver.poll_timeout());
    }

    /// Deadlines of flows.
    pub(super) fn run_flow_timers(&mut self, now: Time, flows: &mut Flows) {
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Out(label) => {
                    if let Some(flow) = self.labels.out(label, flows) {
                        flow.handle_timeout(now);
                    }
                    self.touch_out(label, now, flows);
                    self.note_proactive(label, flows);
                }
                TimerKey::In(label) => {
                    if let Some(flow) = self.labels.incoming(label, flows) {
                        flow.receiver.handle_timeout(now);
                    }
                    self.touch_in(label, now, flows);
                }
            }
        }
    }

    /// Settles what a flow holds in the node's ledger.
    pub(super) fn settle_out(&mut self, label: FlowLabel, shared: &mut Shared) {
        if let Some(flow) = self.labels.out(label, &mut shared.flows) {
            flow.settle(&mut shared.ledger);
        }
    }

    pub(super) fn settle_in(&mut self, label: FlowLabel, shared: &mut Shared) {
        if let Some(id) = self.labels.incoming_id(label) {
            shared.settle_in(id);
        }
    }

    /// Queues proactive repair of a flow.
    pub(super) fn note_proactive(&mut self, label: FlowLabel, flows: &mut Flows) {
        if let Some(flow) = self.labels.out(label, flows)
            && flow.sender.has(Stage::Proactive)
            && !flow.is_proactive_queued
        {
            self.proactive.push_back(label);
            self.labels.set_waiting(flow, |flow| flow.is_proactive_queued = true);
        }
    }
}
