//! Flows that rest, were sent something, and found no memory for it (P15): in turn each is invited when there is.

use crate::flows::{Flows, InFlow};
use crate::ids::FlowId;
use crate::ledger::Ledger;
use crate::neighbour::Neighbour;
use crate::units::{Duration, Time};
use std::collections::{BTreeMap, VecDeque};

/// So long what is given to a flow that was invited is kept for what it has asked for: some round trips of a long path, and a repetition.
const KEPT_FOR: Duration = Duration::from_secs(3);
/// Neighbours whose flows are looked at for one that can be invited; the others have their turn the next time.
const LOOKS: usize = 4;

/// See the module's documentation. A flow knows whether it is among them; those that are gone are passed over.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By the neighbour that opened them, for each has a share of its own; oldest first.
    waiting: BTreeMap<Option<Neighbour>, VecDeque<FlowId>>,
    /// Neighbours whose turn it is, in order.
    turns: VecDeque<Option<Neighbour>>,
    /// Those that were invited, and when.
    invited: VecDeque<(Time, FlowId)>,
}

impl Waiting {
    /// A packet of this flow was refused.
    pub(crate) fn join(&mut self, flow: &mut InFlow) {
        if core::mem::replace(&mut flow.is_waiting, true) {
            return;
        }
        let opener = flow.account.opener();
        let queue = self.waiting.entry(opener).or_insert_with(|| {
            self.turns.push_back(opener);
            VecDeque::new()
        });
        queue.push_back(flow.id);
    }

    /// Whether any waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The next one for which there is memory, which it owns from now on.
    pub(crate) fn invite(&mut self, now: Time, flows: &mut Flows, ledger: &mut Ledger) -> Option<FlowId> {
        self.take_back(now, flows, ledger);
        for _ in 0..LOOKS.min(self.turns.len()) {
            let opener = self.turns.pop_front()?;
            let Some(queue) = self.waiting.get_mut(&opener) else { continue };
            while queue.front().is_some_and(|id| Self::is_over(flows.incoming_mut(*id))) {
                queue.pop_front();
            }
            let Some(flow) = queue.front().and_then(|id| flows.incoming_mut(*id)) else {
                self.waiting.remove(&opener);
                continue;
            };
            self.turns.push_back(opener);
            if flow.wake(ledger) {
                queue.pop_front();
                (flow.is_waiting, flow.invited) = (false, Some(now));
                self.invited.push_back((now, flow.id));
                return Some(flow.id);
            }
        }
        None
    }

    /// The flow is gone, or has got what it waited for, or needs it no more.
    fn is_over(flow: Option<&mut InFlow>) -> bool {
        let Some(flow) = flow else { return true };
        flow.is_waiting = flow.receiver.is_short();
        !flow.is_waiting
    }

    /// Flows that were invited and did not come: others may have what they got.
    fn take_back(&mut self, now: Time, flows: &mut Flows, ledger: &mut Ledger) {
        while let Some((at, id)) = self.invited.front().copied() {
            let flow = flows.incoming_mut(id).filter(|flow| flow.invited == Some(at));
            if flow.is_some() && now < at + KEPT_FOR {
                return;
            }
            self.invited.pop_front();
            if let Some(flow) = flow {
                flow.invited = None;
                flow.settle(ledger);
            }
        }
    }
}
