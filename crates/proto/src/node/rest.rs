//! Flows that no link carries: those whose route broke, and the wholes of those that go or come by parts. Their owner can go on reading and writing.

use crate::deadlines::Deadlines;
use crate::flows::{Flows, InEvent, InFlow, OutEvent, OutFlow};
use crate::ids::FlowId;
use crate::units::Time;
use std::collections::VecDeque;

/// What happened to a flow that no link carried.
#[derive(Debug)]
pub(super) enum RestEvent {
    Out(FlowId, OutEvent),
    In(FlowId, InEvent),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Out(FlowId),
    In(FlowId),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Rest {
    events: VecDeque<RestEvent>,
    timers: Deadlines<TimerKey>,
    /// Waits in the node's ring of what may have something to do.
    pub(super) is_ready: bool,
}

impl Default for Rest {
    fn default() -> Self {
        Self { events: VecDeque::new(), timers: Deadlines::new(), is_ready: false }
    }
}

impl Rest {
    /// After anything changed in an outgoing flow.
    pub(super) fn touch_out(&mut self, flow: &mut OutFlow) {
        let (id, events) = (flow.id, &mut self.events);
        flow.tell(|event| events.push_back(RestEvent::Out(id, event)));
        self.timers.set(TimerKey::Out(id), flow.poll_timeout());
    }

    /// After anything changed in an incoming flow.
    pub(super) fn touch_in(&mut self, now: Time, flow: &mut InFlow) {
        let (id, events) = (flow.id, &mut self.events);
        flow.tell(now, &Default::default(), |event| events.push_back(RestEvent::In(id, event)));
        self.timers.set(TimerKey::In(id), flow.poll_timeout());
    }

    /// A flow that this node receives was offered, and comes by parts.
    pub(super) fn on_opened(&mut self, id: FlowId) {
        self.events.push_back(RestEvent::In(id, InEvent::Opened));
    }

    /// It is carried, or gone.
    pub(super) fn leave_out(&mut self, id: FlowId) {
        self.timers.set(TimerKey::Out(id), None);
    }

    pub(super) fn leave_in(&mut self, id: FlowId) {
        self.timers.set(TimerKey::In(id), None);
    }

    pub(super) fn poll_event(&mut self) -> Option<RestEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.earliest()
    }

    pub(super) fn handle_timeout(&mut self, now: Time, flows: &mut Flows) {
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Out(id) => {
                    if let Some(flow) = flows.out_mut(id) {
                        flow.handle_timeout(now);
                        self.touch_out(flow);
                    }
                }
                TimerKey::In(id) => {
                    if let Some(flow) = flows.incoming_mut(id) {
                        flow.receiver.handle_timeout(now);
                        self.touch_in(now, flow);
                    }
                }
            }
        }
    }
}
