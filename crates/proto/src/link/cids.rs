//! Connection ids: those by which the neighbour names our end, and those by which we name the neighbour's (P2).

use crate::ids::PathId;
use crate::wire::packet::ConnectionId;
use std::collections::{BTreeMap, BTreeSet};

/// Ids per path that each side keeps in stock.
const STOCK: usize = 2;
/// Sequences of ids given back that are remembered: longer than any repetition of their announcement lives.
const RETIRED: usize = 64;

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
    /// Sequences of the neighbour's ids that we gave back.
    retired: BTreeSet<u64>,
}

impl Cids {
    /// Ids of this path are known, of either end.
    pub(crate) fn has(&self, path: PathId) -> bool {
        self.remote.values().chain(self.local.values()).any(|(p, _)| *p == path)
    }

    /// Paths for which the neighbour has issued ids.
    pub(crate) fn paths(&self) -> usize {
        self.active.len()
    }

    /// Records an id that we issue.
    pub(crate) fn issue(&mut self, path: PathId, id: ConnectionId) -> u64 {
        let sequence = self.next_local;
        self.next_local += 1;
        self.local.insert(sequence, (path, id));
        sequence
    }

    /// The neighbour issued an id. False if it keeps more than its stock, which is an error on its side.
    pub(crate) fn accept(&mut self, path: PathId, sequence: u64, id: ConnectionId) -> bool {
        if self.remote.contains_key(&sequence) || self.retired.contains(&sequence) {
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

    /// An id for a path that has not been used yet.
    pub(crate) fn spare(&self, path: PathId) -> Option<&ConnectionId> {
        let active = self.active.get(&path)?;
        self.remote.iter().find(|(sequence, (p, _))| *p == path && *sequence != active).map(|(_, (_, id))| id)
    }

    /// Goes on with the id that [`spare`](Self::spare) gives; the sequence of the one that is not used any more. `None`: there is no other.
    pub(crate) fn advance(&mut self, path: PathId) -> Option<u64> {
        let active = *self.active.get(&path)?;
        let next = *self.remote.iter().find(|(sequence, (p, _))| *p == path && **sequence != active)?.0;
        self.active.insert(path, next);
        self.remote.remove(&active);
        self.retired.insert(active);
        if self.retired.len() > RETIRED {
            self.retired.pop_first();
        }
        Some(active)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_given_back_is_not_taken_again() {
        let id = |n: u8| ConnectionId::new(&[n; 4]).unwrap();
        let mut cids = Cids::default();
        assert!(cids.accept(PathId(0), 0, id(0)));
        assert_eq!(cids.advance(PathId(0)), None, "there is no other");
        assert!(cids.accept(PathId(0), 1, id(1)));
        assert_eq!(cids.spare(PathId(0)), Some(&id(1)));
        assert_eq!(cids.advance(PathId(0)), Some(0));
        // Its announcement is repeated late.
        assert!(cids.accept(PathId(0), 0, id(0)));
        assert_eq!((cids.remote_for(PathId(0)), cids.spare(PathId(0))), (Some(&id(1)), None));
    }
}
