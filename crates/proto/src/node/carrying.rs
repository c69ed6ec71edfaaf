//! Which link carries a flow: how one is given to a link, taken from it, and looked at wherever it is.

use super::Node;
use crate::flows::{InFlow, OutFlow};
use crate::ids::{FlowId, FlowLabel, LinkId};
use crate::units::Time;
use crate::wire::frame::FlowOpen;

impl Node {
    /// The link that carries a flow of ours.
    pub(super) fn out_on(&self, id: FlowId) -> Option<LinkId> {
        self.shared.flows.out(id)?.on
    }

    /// The link that a flow towards us comes by.
    pub(super) fn in_on(&self, id: FlowId) -> Option<LinkId> {
        self.shared.flows.incoming(id)?.on
    }

    /// After anything changed in a flow of ours.
    pub(super) fn touch_out(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.out_mut(id) else { return };
        let label = flow.open.label;
        match flow.on {
            None => self.rest.touch_out(flow),
            Some(on) => {
                if let Some(link) = self.links.get_mut(&on) {
                    link.touch_out(label, now, &mut self.shared.flows);
                }
            }
        }
    }

    /// After anything changed in a flow towards us.
    pub(super) fn touch_in(&mut self, now: Time, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming_mut(id) else { return };
        let label = flow.open.label;
        match flow.on {
            None => self.rest.touch_in(now, flow),
            Some(on) => {
                if let Some(link) = self.links.get_mut(&on) {
                    link.touch_in(label, now, &mut self.shared.flows);
                }
            }
        }
    }

    /// The same, and what it holds now is told to the ledger, what happened to the owner.
    pub(super) fn look_at_out(&mut self, now: Time, id: FlowId) {
        self.touch_out(now, id);
        self.shared.settle_out(id);
        self.settle_at(now, self.out_on(id));
    }

    pub(super) fn look_at_in(&mut self, now: Time, id: FlowId) {
        self.touch_in(now, id);
        self.shared.settle_in(id);
        self.settle_at(now, self.in_on(id));
    }

    /// After flows changed that a link carries, or none.
    pub(super) fn settle_at(&mut self, now: Time, on: Option<LinkId>) {
        match on {
            Some(id) => self.settle(now, id),
            None => self.settle_rest(now),
        }
    }

    pub(super) fn mark_ready_at(&mut self, on: Option<LinkId>) {
        match on {
            Some(id) => self.mark_ready(id),
            None => self.mark_rest_ready(),
        }
    }

    pub(super) fn rearm_at(&mut self, on: Option<LinkId>) {
        match on {
            Some(id) => self.rearm(id),
            None => self.rearm_rest(),
        }
    }

    /// A new flow of ours, which this link is to carry, if any. Returns its name.
    pub(super) fn begin_out(&mut self, now: Time, flow: OutFlow, on: Option<LinkId>) -> FlowId {
        let id = flow.id;
        self.shared.flows.insert_out(flow);
        match on.and_then(|on| self.links.get_mut(&on)) {
            Some(link) => link.carry_out(id, now, &mut self.shared.flows),
            None => self.touch_out(now, id),
        }
        id
    }

    /// A flow of ours that another link carried, or none, goes on by this one, or by none. It begins anew there with what is not known to be delivered.
    pub(super) fn carry_out(&mut self, now: Time, id: FlowId, to: Option<LinkId>) {
        self.release_out(id);
        let mut link = to.and_then(|to| self.links.get_mut(&to));
        let (label, credit) =
            link.as_mut().map_or_else(|| (FlowLabel(0), crate::wire::params::Params::default().initial_credit), |l| l.offer_out());
        if let Some(flow) = self.shared.flows.out_mut(id) {
            flow.restart(label, credit);
        }
        match link {
            Some(link) => {
                self.rest.leave_out(id);
                link.carry_out(id, now, &mut self.shared.flows);
            }
            None => self.touch_out(now, id),
        }
    }

    /// A flow towards us comes by this link now, as this opening says, or by none.
    pub(super) fn carry_in(&mut self, now: Time, id: FlowId, open: FlowOpen, initial_credit: u64, to: Option<LinkId>) {
        self.release_in(id);
        if let Some(flow) = self.shared.flows.incoming_mut(id) {
            flow.rebind(open, initial_credit);
        }
        if let Some(link) = to.and_then(|to| self.links.get_mut(&to)) {
            self.rest.leave_in(id);
            link.carry_in(id, &mut self.shared.flows);
        }
        self.touch_in(now, id);
    }

    /// No link carries it for now.
    fn release_out(&mut self, id: FlowId) {
        let Some(flow) = self.shared.flows.out_mut(id) else { return };
        if let Some(link) = flow.on.and_then(|on| self.links.get_mut(&on)) {
            link.release_out(flow);
        }
    }

    /// It comes by no link for now.
    pub(super) fn release_in(&mut self, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming_mut(id) else { return };
        if let Some(link) = flow.on.and_then(|on| self.links.get_mut(&on)) {
            link.release_in(flow);
        }
    }

    /// A flow of ours is over.
    pub(super) fn remove_out(&mut self, id: FlowId) -> Option<OutFlow> {
        let flow = self.shared.flows.out_mut(id)?;
        match flow.on.and_then(|on| self.links.get_mut(&on)) {
            Some(link) => link.end_out(flow),
            None => self.rest.leave_out(id),
        }
        let flow = self.shared.flows.remove_out(id)?;
        self.shared.ledger.close(&flow.account);
        Some(flow)
    }

    /// A flow towards us is over. What it holds is still charged for.
    pub(super) fn remove_in(&mut self, id: FlowId) -> Option<InFlow> {
        let flow = self.shared.flows.incoming_mut(id)?;
        match flow.on.and_then(|on| self.links.get_mut(&on)) {
            Some(link) => link.end_in(flow),
            None => self.rest.leave_in(id),
        }
        self.shared.flows.remove_in(id)
    }

    /// The same of one that never came to its end.
    pub(super) fn abandon_in(&mut self, id: FlowId) -> Option<InFlow> {
        self.release_in(id);
        self.rest.leave_in(id);
        let flow = self.shared.flows.remove_in(id)?;
        self.shared.ledger.close(&flow.account);
        Some(flow)
    }
}
