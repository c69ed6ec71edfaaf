//! Places for sessions that have not proven the code yet: few in all, fewer for each host, and the oldest is dropped for a new one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// Places in all.
const PLACES: usize = 16;
/// Places of one host: an IPv4 address, or an IPv6 /64.
const PLACES_OF_HOST: usize = 2;

/// See the file's heading.
#[derive(Default)]
pub struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    last: u64,
    oldest_first: VecDeque<(u64, IpAddr, oneshot::Sender<()>)>,
}

/// Given back when dropped.
pub struct Place<'a> {
    places: &'a Places,
    id: u64,
    gone: oneshot::Receiver<()>,
}

/// What counts as one host.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

impl Places {
    /// A place for a host. If none is left, the host's own oldest place is taken away, or the oldest of all.
    pub fn take(&self, address: IpAddr) -> Place<'_> {
        let host = host(address);
        let (keep, gone) = oneshot::channel();
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_host = taken.oldest_first.iter().filter(|(_, h, _)| *h == host).count();
        if of_host >= PLACES_OF_HOST {
            let at = taken.oldest_first.iter().position(|(_, h, _)| *h == host);
            at.and_then(|at| taken.oldest_first.remove(at));
        } else if taken.oldest_first.len() >= PLACES {
            taken.oldest_first.pop_front();
        }
        taken.last += 1;
        let id = taken.last;
        taken.oldest_first.push_back((id, host, keep));
        Place { places: self, id, gone }
    }
}

impl Place<'_> {
    /// Completes when the place is taken away.
    pub async fn lost(&mut self) {
        let _ = (&mut self.gone).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.0.lock().unwrap_or_else(PoisonError::into_inner).oldest_first.retain(|(id, ..)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &mut Place<'_>) -> bool {
        place.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_host_takes_two_places_from_itself_and_sixteen_hosts_from_each_other() {
        let places = Places::default();
        let mut honest = places.take([192, 0, 2, 1].into());
        let mut flood: Vec<Place<'_>> = (0..100u16).map(|n| places.take(IpAddr::from([0x2001, 0xdb8, 0, 0, n, 0, 0, 1]))).collect();
        assert!(!is_lost(&mut honest), "one host, however many addresses of its network it uses");
        assert_eq!(flood.iter_mut().filter_map(|p| (!is_lost(p)).then_some(())).count(), PLACES_OF_HOST);
        drop(flood);
        let many: Vec<Place<'_>> = (0..PLACES as u8).map(|n| places.take([198, 51, 100, n].into())).collect();
        assert!(is_lost(&mut honest));
        assert_eq!(places.0.lock().unwrap().oldest_first.len(), PLACES);
        drop((many, honest));
        assert!(places.0.lock().unwrap().oldest_first.is_empty());
    }
}
