//! The data flows that the application knows, by session: what concerns one session costs nothing for the others.

use crate::ids::{FlowId, SessionId};
use crate::work;
use std::collections::{BTreeSet, HashMap};

/// A data flow of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) session: SessionId,
    pub(super) is_outgoing: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct KnownFlows {
    by_id: HashMap<FlowId, Known>,
    by_session: BTreeSet<(SessionId, FlowId)>,
}

impl KnownFlows {
    pub(super) fn get(&self, flow: FlowId) -> Option<Known> {
        self.by_id.get(&flow).copied()
    }

    /// The application knows it from now on.
    pub(super) fn insert(&mut self, flow: FlowId, known: Known) {
        self.by_session.insert((known.session, flow));
        self.by_id.insert(flow, known);
    }

    pub(super) fn remove(&mut self, flow: FlowId) -> Option<Known> {
        let known = self.by_id.remove(&flow)?;
        self.by_session.remove(&(known.session, flow));
        Some(known)
    }

    /// Data flows of a session, oldest first.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = (FlowId, Known)> + '_ {
        let all = (session, FlowId(0))..=(session, FlowId(u64::MAX));
        self.by_session.range(all).inspect(|_| work::step()).filter_map(|(_, flow)| Some((*flow, *self.by_id.get(flow)?)))
    }
}
