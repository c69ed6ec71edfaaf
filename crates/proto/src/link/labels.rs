//! The labels under which a link carries flows, which are the node's.

use crate::flows::{Flows, InFlow, NO_SESSION, OutFlow};
use crate::ids::{FlowId, FlowLabel, SessionKey};
use crate::table::Table;
use crate::wire::frame::FlowOpen;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Labels of flows that ended: packets of them that are still under way are dropped in silence. Labels are given out in
/// ascending order, so a floor and the few gaps above it say everything.
#[derive(Debug, Default)]
pub(crate) struct ClosedLabels {
    floor: u64,
    above: BTreeSet<u64>,
}

impl ClosedLabels {
    pub(crate) fn insert(&mut self, label: FlowLabel) {
        self.above.insert(label.0);
        while self.above.remove(&self.floor) {
            self.floor += 1;
        }
        // A neighbour that leaves ever more gaps loses the oldest of them: a bound on memory, not on correctness of honest ones.
        if self.above.len() > 4096
            && let Some(first) = self.above.pop_first()
        {
            self.floor = first + 1;
            while self.above.remove(&self.floor) {
                self.floor += 1;
            }
        }
    }

    pub(crate) fn contains(&self, label: FlowLabel) -> bool {
        label.0 < self.floor || self.above.contains(&label.0)
    }
}

/// A flow that is parted, as all nodes know it.
type PartedName = (IpAddr, IpAddr, SessionKey, u64);

fn parted_name(open: &FlowOpen) -> Option<PartedName> {
    open.relayed.filter(|r| r.part > 0).map(|r| (r.source, r.destination, open.session, open.index))
}

/// Which flow goes or comes under which label of a link. What concerns one flow costs nothing for the others: no walk over all of them per frame or packet.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    out: Table<FlowLabel, FlowId>,
    incoming: Table<FlowLabel, FlowId>,
    closed: ClosedLabels,
    /// Incoming flows for which time counts.
    urgent: usize,
    /// Outgoing parts, by the flow that they are parts of.
    parted: BTreeMap<PartedName, Arc<AtomicU32>>,
    /// Incoming parts of which no packet had opened when they were last looked at.
    new_parts: BTreeSet<FlowLabel>,
    /// Outgoing flows of ordered datagrams that wait for a turn or for spare rate.
    ordered_waiting: usize,
    next_label: u64,
}

impl Labels {
    /// The flow that goes out under a label.
    pub(super) fn out<'f>(&self, label: FlowLabel, flows: &'f mut Flows) -> Option<&'f mut OutFlow> {
        flows.out_mut(*self.out.get(&label)?)
    }

    /// The same to look at.
    pub(super) fn peek_out<'f>(&self, label: FlowLabel, flows: &'f Flows) -> Option<&'f OutFlow> {
        flows.out(*self.out.get(&label)?)
    }

    /// The flow that comes in under a label.
    pub(super) fn incoming<'f>(&self, label: FlowLabel, flows: &'f mut Flows) -> Option<&'f mut InFlow> {
        flows.incoming_mut(*self.incoming.get(&label)?)
    }

    /// The same to look at.
    pub(super) fn peek_in<'f>(&self, label: FlowLabel, flows: &'f Flows) -> Option<&'f InFlow> {
        flows.incoming(*self.incoming.get(&label)?)
    }

    /// The name of the flow that comes in under a label.
    pub(crate) fn incoming_id(&self, label: FlowLabel) -> Option<FlowId> {
        self.incoming.get(&label).copied()
    }

    /// A flow goes out under the label.
    pub(super) fn has_out(&self, label: FlowLabel) -> bool {
        self.out.contains_key(&label)
    }

    /// A flow comes in under the label.
    pub(super) fn has_in(&self, label: FlowLabel) -> bool {
        self.incoming.contains_key(&label)
    }

    /// A flow comes in under the label, or came.
    pub(super) fn knows_in(&self, label: FlowLabel) -> bool {
        self.has_in(label) || self.closed.contains(label)
    }

    /// A flow that came under the label is over.
    pub(super) fn is_closed(&self, label: FlowLabel) -> bool {
        self.closed.contains(label)
    }

    /// No flow comes under the label any more.
    pub(super) fn close(&mut self, label: FlowLabel) {
        self.closed.insert(label);
    }

    /// Something goes out or comes in.
    pub(super) fn is_used(&self) -> bool {
        !self.out.is_empty() || !self.incoming.is_empty()
    }

    /// Flows that come in.
    pub(crate) fn incoming_len(&self) -> usize {
        self.incoming.len()
    }

    /// All flows that go out, by their labels.
    pub(crate) fn all_out(&self) -> impl Iterator<Item = (FlowLabel, FlowId)> {
        self.out.iter().map(|(label, id)| (*label, *id))
    }

    /// All flows that come in, by their labels.
    pub(crate) fn all_in(&self) -> impl Iterator<Item = (FlowLabel, FlowId)> {
        self.incoming.iter().map(|(label, id)| (*label, *id))
    }

    /// A flow goes out under its label from now on.
    pub(super) fn insert_out(&mut self, flow: &mut OutFlow) {
        flow.siblings = parted_name(&flow.open).map(|name| self.parted.entry(name).or_default().clone());
        if let Some(count) = &flow.siblings {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.ordered_waiting += usize::from(flow.is_ordered_waiting());
        self.out.insert(flow.open.label, flow.id);
    }

    /// A flow goes out under its label no more.
    pub(super) fn remove_out(&mut self, flow: &mut OutFlow) {
        self.out.remove(&flow.open.label);
        self.ordered_waiting -= usize::from(flow.is_ordered_waiting());
        if let Some(count) = flow.siblings.take()
            && count.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(name) = parted_name(&flow.open)
        {
            self.parted.remove(&name);
        }
    }

    /// A flow comes in under its label from now on.
    pub(super) fn insert_in(&mut self, flow: &InFlow) {
        if flow.session != NO_SESSION && flow.open.part() > 0 {
            self.new_parts.insert(flow.open.label);
        }
        self.urgent += usize::from(flow.is_urgent());
        self.incoming.insert(flow.open.label, flow.id);
    }

    /// A flow comes in under its label no more.
    pub(super) fn remove_in(&mut self, flow: &InFlow) {
        let label = flow.open.label;
        self.incoming.remove(&label);
        self.new_parts.remove(&label);
        self.urgent -= usize::from(flow.is_urgent());
        self.closed.insert(label);
    }

    /// Changes whether a flow waits for its turn, or for spare rate.
    pub(super) fn set_waiting(&mut self, flow: &mut OutFlow, change: impl FnOnce(&mut OutFlow)) {
        let was = usize::from(flow.is_ordered_waiting());
        change(flow);
        self.ordered_waiting = self.ordered_waiting + usize::from(flow.is_ordered_waiting()) - was;
    }

    /// Datagrams that wait for each other are to be sent or protected.
    pub(super) fn has_ordered_waiting(&self) -> bool {
        self.ordered_waiting > 0
    }

    /// A flow comes in for which time counts.
    pub(super) fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// Parts of which no packet has opened yet: nobody knows whose they are.
    pub(crate) fn new_parts(&mut self, flows: &Flows) -> usize {
        let incoming = &self.incoming;
        self.new_parts.retain(|label| incoming.get(label).and_then(|id| flows.incoming(*id)).is_some_and(|f| !f.sink.is_proven()));
        self.new_parts.len()
    }

    /// The next label for a flow that we send.
    pub(super) fn allocate(&mut self) -> FlowLabel {
        let label = FlowLabel(self.next_label);
        self.next_label += 1;
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_labels_stay_closed_and_collapse() {
        let mut c = ClosedLabels::default();
        c.insert(FlowLabel(1));
        assert!(c.contains(FlowLabel(1)) && !c.contains(FlowLabel(0)));
        c.insert(FlowLabel(0));
        assert!(c.above.is_empty() && c.floor == 2);
        for l in (3..20_000).step_by(2) {
            c.insert(FlowLabel(l));
        }
        assert!(c.above.len() <= 4096, "gaps are bounded");
    }
}
