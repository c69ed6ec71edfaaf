//! Connection ids: those by which the neighbour names our end, and those by which we name the neighbour's (P2).

use crate::ids::PathId;
use crate::wire::packet::ConnectionId;
use std::collections::BTreeMap;

/// Ids per path that each side keeps in stock.
const STOCK: usize = 2;

/// Both directions of connection ids of one link.
#[derive(Debug, Default)]
pub(crate) struct Cids {
    /// Issued by us: sequence -> (path, id).
    pub(crate) local: BTreeMap<u64, (PathId, ConnectionId)>,
    next_local: u64,
    /// Issued by the neighbour: sequence -> (path, id).
    remote: BTreeMap<u64, (PathId, ConnectionId)>,
    /// In use towards the neighbour, per path.
    active: BTreeMap<PathId, u64>,
}

impl Cids {
    /// Records an id that we issue.
    pub(crate) fn issue(&mut self, path: PathId, id: ConnectionId) -> u64 {
        let sequence = self.next_local;
        self.next_local += 1;
        self.local.insert(sequence, (path, id));
        sequence
    }

    /// The neighbour issued an id. False if it keeps more than its stock, which is an error on its side.
    pub(crate) fn accept(&mut self, path: PathId, sequence: u64, id: ConnectionId) -> bool {
        if self.remote.contains_key(&sequence) {
            return true;
        }
        if self.remote.values().filter(|(p, _)| *p == path).count() > STOCK || self.remote.len() > 64 {
            return false;
        }
        self.remote.insert(sequence, (path, id));
        self.active.entry(path).or_insert(sequence);
        true
    }

    /// The neighbour will not use this one any more; returns it, so that the node can forget it.
    pub(crate) fn retire_local(&mut self, sequence: u64) -> Option<(PathId, ConnectionId)> {
        self.local.remove(&sequence)
    }

    /// The id to write on packets of a path.
    pub(crate) fn remote_for(&self, path: PathId) -> Option<&ConnectionId> {
        self.remote.get(self.active.get(&path)?).map(|(_, id)| id)
    }

    /// How many more ids of ours the neighbour should have for a path.
    pub(crate) fn wanting(&self, path: PathId) -> usize {
        STOCK.saturating_sub(self.local.values().filter(|(p, _)| *p == path).count())
    }

    /// An id that we issued, by its sequence.
    pub(crate) fn local_id(&self, sequence: u64) -> Option<(PathId, &ConnectionId)> {
        self.local.get(&sequence).map(|(p, id)| (*p, id))
    }
}
