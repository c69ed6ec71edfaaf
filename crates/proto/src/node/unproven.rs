//! Relayed sessions towards this node whose opener has not proven its key (P19): places are shared by the neighbours that they come by, so that none takes
//! another's.

use crate::ids::SessionId;
use crate::neighbour::Neighbour;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Such sessions at most. Each has the memory of two control flows.
pub(super) const MOST: usize = 128;
/// Beyond so many, a neighbour that has some gives up its oldest for one more.
const CROWDED: usize = MOST / 4 * 3;
/// A neighbour has so many places whatever others have.
const LEAST_SHARE: usize = 8;

/// Which there are. Ids are given out in ascending order, so that the smallest is the oldest.
#[derive(Debug, Default)]
pub(super) struct Unproven {
    by_neighbour: BTreeMap<Neighbour, BTreeSet<SessionId>>,
    by_far: BTreeMap<IpAddr, BTreeSet<SessionId>>,
    len: usize,
}

impl Unproven {
    pub(super) fn insert(&mut self, id: SessionId, from: Neighbour, far: IpAddr) {
        self.len += usize::from(self.by_neighbour.entry(from).or_default().insert(id));
        self.by_far.entry(far).or_default().insert(id);
    }

    /// It has proven its key, or is gone.
    pub(super) fn remove(&mut self, id: SessionId, from: Neighbour, far: IpAddr) {
        if let Some(ids) = self.by_neighbour.get_mut(&from) {
            self.len -= usize::from(ids.remove(&id));
            if ids.is_empty() {
                self.by_neighbour.remove(&from);
            }
        }
        if let Some(ids) = self.by_far.get_mut(&far) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_far.remove(&far);
            }
        }
    }

    /// Those that claim to come from an address.
    pub(super) fn of_far(&self, far: IpAddr) -> impl Iterator<Item = SessionId> + '_ {
        self.by_far.get(&far).into_iter().flatten().copied()
    }

    /// Which one has to go before one more may come by a neighbour: its own oldest where it has its share; where places are scarce, the oldest of one
    /// that has more than its share, else the own.
    pub(super) fn in_the_way_of(&self, from: Neighbour) -> Option<SessionId> {
        let own = self.by_neighbour.get(&from);
        let count = own.map_or(0, BTreeSet::len);
        let holders = self.by_neighbour.len() + usize::from(own.is_none());
        let share = (MOST / holders).max(LEAST_SHARE);
        if count >= share {
            return own?.first().copied();
        }
        let most = self.by_neighbour.values().max_by_key(|ids| ids.len());
        if count > 0 && self.len >= CROWDED {
            return most.filter(|ids| ids.len() > share).or(own)?.first().copied();
        }
        if self.len < MOST {
            return None;
        }
        most?.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LinkId;
    use std::net::Ipv4Addr;

    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn by(n: u64) -> Neighbour {
        Neighbour::Link(LinkId(n))
    }

    /// One more comes by a link; the one that made room for it.
    fn come(unproven: &mut Unproven, links: &mut BTreeMap<SessionId, Neighbour>, from: u64) -> Option<Neighbour> {
        let gone = unproven.in_the_way_of(by(from)).map(|id| {
            let link = links.remove(&id).unwrap();
            unproven.remove(id, link, FAR);
            link
        });
        let id = SessionId(links.keys().next_back().map_or(1, |last| last.0 + 1));
        links.insert(id, by(from));
        unproven.insert(id, by(from), FAR);
        gone
    }

    #[test]
    fn a_link_that_opens_without_end_takes_no_place_of_another() {
        let (mut unproven, mut links) = (Unproven::default(), BTreeMap::new());
        for n in 0..1000 {
            let gone = come(&mut unproven, &mut links, 1);
            assert_eq!(gone, (n >= CROWDED).then_some(by(1)), "its own oldest");
        }
        for _ in 0..32 {
            let gone = come(&mut unproven, &mut links, 2);
            assert!(gone.is_none_or(|gone| gone == by(1)) && unproven.len <= MOST, "not another that has less than its share: {gone:?}");
            come(&mut unproven, &mut links, 1);
        }
        assert_eq!(unproven.by_neighbour[&by(2)].len(), 32);
        for other in 3..40 {
            let gone = come(&mut unproven, &mut links, other);
            assert!(gone.is_none_or(|gone| gone == by(1)), "the neighbour with most makes room: {gone:?}");
        }
        assert!(unproven.len <= MOST && unproven.of_far(FAR).count() == unproven.len);
        links.into_iter().for_each(|(id, link)| unproven.remove(id, link, FAR));
        assert!(unproven.len == 0 && unproven.by_neighbour.is_empty() && unproven.by_far.is_empty());
    }
}
