//! Links that were answered and not confirmed: where they are found, how many each host has, which is the oldest (P19).

use crate::admission::Host;
use crate::ids::LinkId;
use crate::shard::Common;
use crate::wire::packet::ConnectionId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// Half-open handshakes at most (P19).
pub(super) const MAX_HALF_OPEN: usize = 1024;
/// Of these from one host at most: a host with cookies for one address does not keep others out.
pub(super) const MAX_HALF_OPEN_OF_ONE: usize = MAX_HALF_OPEN / 16;

/// Attempts that an initiator makes side by side: one for each size of datagram.
const ATTEMPTS: usize = 4;

/// The initiator's address and its id.
pub(super) type Caller = (SocketAddr, ConnectionId);

#[derive(Debug)]
struct Entry {
    caller: Caller,
    /// It came with a cookie, so from the address that it names.
    is_proven: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    links: HashMap<Caller, LinkId>,
    /// Links are numbered as they come: the first is the oldest.
    entries: BTreeMap<LinkId, Entry>,
    /// Proven ones only, for others may name any host; those of all shards.
    of_host: Common<HashMap<Host, usize>>,
    of_address: HashMap<SocketAddr, SmallVec<[LinkId; ATTEMPTS]>>,
}

impl HalfOpen {
    /// Those of another shard of the same endpoint.
    pub(super) fn beside(&self) -> Self {
        Self { of_host: self.of_host.clone(), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn find(&self, caller: &Caller) -> Option<LinkId> {
        self.links.get(caller).copied()
    }

    pub(super) fn is_proven(&self, link: LinkId) -> bool {
        self.entries.get(&link).is_some_and(|e| e.is_proven)
    }

    pub(super) fn oldest(&self) -> Option<LinkId> {
        self.entries.first_key_value().map(|(id, _)| *id)
    }

    pub(super) fn of_host(&self, host: Host) -> usize {
        self.of_host.lock().get(&host).copied().unwrap_or(0)
    }

    /// Attempts from this address, a few at most.
    pub(super) fn attempts_from(&self, address: SocketAddr) -> impl Iterator<Item = LinkId> + '_ {
        self.of_address.get(&address).into_iter().flatten().take(ATTEMPTS).copied()
    }

    pub(super) fn insert(&mut self, link: LinkId, caller: Caller, is_proven: bool) {
        if is_proven {
            *self.of_host.lock().entry(Host::from(caller.0.ip())).or_default() += 1;
        }
        self.links.insert(caller.clone(), link);
        self.of_address.entry(caller.0).or_default().push(link);
        self.entries.insert(link, Entry { caller, is_proven });
    }

    /// The link is up, or over. Nothing happens if it was not half open.
    pub(super) fn remove(&mut self, link: LinkId) {
        let Some(Entry { caller, is_proven }) = self.entries.remove(&link) else { return };
        let host = Host::from(caller.0.ip());
        self.links.remove(&caller);
        if let Some(attempts) = self.of_address.get_mut(&caller.0) {
            attempts.retain(|id| *id != link);
            if attempts.is_empty() {
                self.of_address.remove(&caller.0);
            }
        }
        let mut of_host = self.of_host.lock();
        if is_proven && let Some(count) = of_host.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                of_host.remove(&host);
            }
        }
    }

    /// Those of some addresses.
    #[cfg(test)]
    pub(super) fn from(&self, is_wanted: impl Fn(SocketAddr) -> bool) -> Vec<LinkId> {
        self.entries.iter().filter(|(_, e)| is_wanted(e.caller.0)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_by_what_they_have_proven() {
        let caller = |port, n: u8| (SocketAddr::from(([192, 0, 2, 1], port)), ConnectionId::new(&[n; 4]).unwrap());
        let host = Host::from(std::net::IpAddr::from([192, 0, 2, 1]));
        let mut all = HalfOpen::default();
        for n in 1..=5 {
            all.insert(LinkId(n), caller(n as u16, n as u8), n != 3);
        }
        assert_eq!((all.len(), all.of_host(host), all.oldest()), (5, 4, Some(LinkId(1))));
        assert_eq!((all.find(&caller(2, 2)), all.find(&caller(2, 3))), (Some(LinkId(2)), None));
        for n in [1, 1, 3, 2, 9] {
            all.remove(LinkId(n));
        }
        assert_eq!((all.len(), all.of_host(host), all.oldest()), (2, 2, Some(LinkId(4))));
        all.remove(LinkId(4));
        all.remove(LinkId(5));
        assert!(all.of_host.lock().is_empty() && all.links.is_empty() && all.of_address.is_empty());
    }
}
