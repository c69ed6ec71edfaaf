//! Where each data flow of this node's sessions lives, by its id and by its session: what concerns one session costs nothing for the others.

use crate::ids::{FlowId, FlowLabel, LinkId, SessionId};
use crate::work;
use std::collections::{BTreeSet, HashMap};

/// Where a flow's halves are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPlace {
    pub(crate) link: LinkId,
    pub(crate) session: SessionId,
    pub(crate) label: FlowLabel,
    pub(crate) is_outgoing: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_id: HashMap<FlowId, FlowPlace>,
    by_session: BTreeSet<(SessionId, FlowId)>,
}

impl Places {
    pub(super) fn get(&self, flow: &FlowId) -> Option<&FlowPlace> {
        self.by_id.get(flow)
    }

    pub(super) fn contains_key(&self, flow: &FlowId) -> bool {
        self.by_id.contains_key(flow)
    }

    /// The flow is here from now on.
    pub(super) fn insert(&mut self, flow: FlowId, place: FlowPlace) {
        self.remove(&flow);
        self.by_session.insert((place.session, flow));
        self.by_id.insert(flow, place);
    }

    pub(super) fn remove(&mut self, flow: &FlowId) -> Option<FlowPlace> {
        let place = self.by_id.remove(flow)?;
        self.by_session.remove(&(place.session, *flow));
        Some(place)
    }

    /// Data flows of a session, oldest first.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = (FlowId, FlowPlace)> + '_ {
        let all = (session, FlowId(0))..=(session, FlowId(u64::MAX));
        self.by_session.range(all).inspect(|_| work::step()).filter_map(|(_, flow)| Some((*flow, *self.by_id.get(flow)?)))
    }
}
