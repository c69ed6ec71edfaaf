//! Clients of one port that are still to say what they want. When there are too many, one of the host that has most of them gives way, the one that has said
//! nothing for longest: so no host that reaches the port holds it for itself, however fast it connects.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Clients of one port, at most.
const MOST: usize = 256;

/// See the file's heading.
#[derive(Debug, Default)]
pub(crate) struct Mute(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    /// In the order in which they came, with their host.
    clients: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
    of_hosts: HashMap<IpAddr, usize>,
}

/// A place among them, until this is dropped.
pub(crate) struct Place<'a> {
    mute: &'a Mute,
    number: u64,
    gives_way: Arc<Notify>,
}

impl Place<'_> {
    /// Returns when the client has to give way.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

/// An IPv6 host has a network of its own.
fn host(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

impl Waiting {
    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (host, gives_way) = self.clients.remove(&number)?;
        if let Entry::Occupied(mut clients) = self.of_hosts.entry(host) {
            *clients.get_mut() -= 1;
            if *clients.get() == 0 {
                clients.remove();
            }
        }
        Some(gives_way)
    }
}

impl Mute {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more client.
    pub fn place(&self, from: IpAddr) -> Place<'_> {
        let (mut all, gives_way, host) = (self.lock(), Arc::<Notify>::default(), host(from));
        all.last += 1;
        let number = all.last;
        all.clients.insert(number, (host, Arc::clone(&gives_way)));
        *all.of_hosts.entry(host).or_default() += 1;
        if all.clients.len() > MOST {
            let most = all.of_hosts.iter().max_by_key(|(_, clients)| **clients).map(|(host, _)| *host);
            let oldest = all.clients.iter().find(|(_, (host, _))| Some(*host) == most).map(|(number, _)| *number);
            if let Some(oldest) = oldest.and_then(|number| all.remove(number)) {
                oldest.notify_one();
            }
        }
        Place { mute: self, number, gives_way }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.mute.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_host_takes_no_other_hosts_place() {
        let mute = Mute::default();
        let hosts: Vec<_> = ["192.0.2.1", "2001:db8:1::1", "2001:db8:2::1"].map(|ip| mute.place(ip.parse().unwrap())).into();
        let there = |place: &Place<'_>| mute.lock().clients.contains_key(&place.number);
        // Of a network of its own, one address each.
        let flood: Vec<_> = (0..2000_u32).map(|n| mute.place(Ipv6Addr::new(0x2001, 0xdb8, 9, 9, 0, 0, 0, n as u16).into())).collect();
        assert!(hosts.iter().all(there) && flood.iter().rev().take(MOST - hosts.len()).all(there));
        assert_eq!(mute.lock().clients.len(), MOST);
        drop(flood);
        drop(hosts);
        assert!(mute.lock().clients.is_empty() && mute.lock().of_hosts.is_empty());
    }
}
