//! Chooses which datagrams of strangers are processed, where each is expensive. Every host has a share, and chance decides instead of order.
//!
//! A budget that is spent in the order of arrival belongs to the host that sends most at the beginning of each second. Here the n-th datagram of a second is
//! admitted with the probability budget / n, and with less if the seconds before were worse. So a flood thins all senders out alike and excludes none, and
//! what it makes a node do grows with the logarithm of its rate: budget · (1 + ln(n / budget)).

use crate::units::{Duration, Time};
use core::net::{IpAddr, Ipv6Addr};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Hosts whose datagrams are counted apart. When there are more, a new one takes the place of any, by chance.
const MOST_HOSTS: usize = 1024;
/// Shares that are admitted of one host in one second, at most.
const MOST_SHARES: u32 = 3;
const SPAN: Duration = Duration::from_secs(1);

/// What counts as one sender as long as nothing is proven: an IPv4 address, or the IPv6 /64 that one subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host([u8; 16]);

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(Ipv6Addr::from(u128::from(v6) >> 64 << 64).octets()),
        }
    }
}

impl Host {
    /// The network around it with a prefix of so many bits of an IPv4 or an IPv6 address, as a number.
    pub(crate) fn network(self, v4: u32, v6: u32) -> u128 {
        let is_v4 = Ipv6Addr::from(self.0).to_ipv4_mapped().is_some();
        let len = if is_v4 { u128::BITS - 32 + v4 } else { v6 };
        u128::from_be_bytes(self.0) & u128::MAX.checked_shl(u128::BITS - len).unwrap_or(0)
    }
}

/// Datagrams of this second, and of those before, halved with each second.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u32,
    before: u32,
    /// Of those of this second.
    admitted: u32,
}

impl Count {
    /// Counts one more datagram. Returns whether it is admitted with this budget per second.
    fn admits(&mut self, budget: u32, rng: &mut ChaCha12Rng) -> bool {
        self.now = self.now.saturating_add(1);
        let of = self.now.max(self.before);
        of <= budget || (u64::from(rng.next_u32()) * u64::from(of)) >> 32 < u64::from(budget)
    }

    fn end_second(&mut self) {
        *self = Self { before: self.now.max(self.before / 2), ..Self::default() };
    }
}

/// Admits datagrams.
#[derive(Debug)]
pub struct Admission {
    each: u32,
    all: u32,
    since: Time,
    hosts: Vec<(Host, Count)>,
    places: BTreeMap<Host, usize>,
    strangers: Count,
    rng: ChaCha12Rng,
}

impl Admission {
    /// Admits about `each` per second of one host, and about `all` per second of all unknown hosts together. `seed` is random.
    pub fn new(each: u32, all: u32, seed: [u8; 32]) -> Self {
        let rng = ChaCha12Rng::from_seed(seed);
        Self { each, all, since: Time::ZERO, hosts: Vec::new(), places: BTreeMap::new(), strangers: Count::default(), rng }
    }

    /// Whether one more of this host is looked at. What comes from a host that `is_known` does not compete with strangers.
    pub fn admits(&mut self, now: Time, host: Host, is_known: bool) -> bool {
        self.pass_to(now);
        let at = self.place_of(host);
        let count = &mut self.hosts[at].1;
        // Before a flood is noticed one host can take more than its share. That must not use up the budget of all.
        let is_in_share = count.admits(self.each, &mut self.rng) && count.admitted < MOST_SHARES * self.each;
        count.admitted += u32::from(is_in_share);
        is_in_share && (is_known || self.strangers.admits(self.all, &mut self.rng))
    }

    fn pass_to(&mut self, now: Time) {
        let over = now.since(self.since);
        if over < SPAN {
            return;
        }
        self.since = now;
        if over >= 32 * SPAN {
            self.hosts.clear();
            self.strangers = Count::default();
        }
        self.strangers.end_second();
        self.hosts.iter_mut().for_each(|(_, count)| count.end_second());
        let each = self.each;
        self.hosts.retain(|(_, count)| count.before > each);
        self.places = self.hosts.iter().enumerate().map(|(at, (host, _))| (*host, at)).collect();
    }

    fn place_of(&mut self, host: Host) -> usize {
        if let Some(at) = self.places.get(&host) {
            return *at;
        }
        let at = match self.hosts.len() {
            MOST_HOSTS => {
                let at = self.rng.next_u32() as usize % MOST_HOSTS;
                self.places.remove(&self.hosts[at].0);
                self.hosts[at] = (host, Count::default());
                at
            }
            free => {
                self.hosts.push((host, Count::default()));
                free
            }
        };
        self.places.insert(host, at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u32) -> Host {
        IpAddr::from(n.to_be_bytes()).into()
    }

    #[test]
    fn a_host_is_an_address_or_the_network_of_a_subscriber() {
        let of = |text: &str| Host::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    }

    /// Seconds of a flood of `rate` a second from `hosts` hosts, with one that is honest and sends five at the end of each second. How many of both are
    /// admitted in a second.
    fn flood(rate: u32, hosts: u32, is_known: bool) -> (f64, f64) {
        const SECONDS: u32 = 100;
        let mut admission = Admission::new(10, 50, [1; 32]);
        let (mut of_flood, mut of_honest) = (0, 0);
        for second in 1..=SECONDS {
            let start = Time::from_millis(u64::from(second) * 1000);
            for n in 0..rate {
                of_flood += u32::from(admission.admits(start + Duration::from_micros(n.into()), host(100 + n % hosts), false));
            }
            for _ in 0..5 {
                of_honest += u32::from(admission.admits(start + Duration::from_millis(900), host(1), is_known));
            }
        }
        (f64::from(of_flood) / f64::from(SECONDS), f64::from(of_honest) / f64::from(SECONDS))
    }

    #[test]
    fn one_host_that_floods_takes_nothing_from_others() {
        let (of_flood, of_honest) = flood(10_000, 1, false);
        assert_eq!(of_honest, 5.0);
        assert!((8.0..13.0).contains(&of_flood), "{of_flood}");
    }

    #[test]
    fn many_hosts_that_flood_thin_strangers_out_and_known_hosts_not_at_all() {
        let (of_flood, of_honest) = flood(10_000, 10_000, false);
        // 50 (1 + ln 200) in the first second, 50 in the others.
        assert!((45.0..60.0).contains(&of_flood) && of_honest < 1.0, "{of_flood} {of_honest}");
        assert_eq!(flood(10_000, 10_000, true).1, 5.0);
        // What comes last in a second has the same chance as what comes first: a tenth here.
        let (of_flood, of_honest) = flood(495, 495, false);
        assert!((45.0..60.0).contains(&of_flood) && (0.3..0.8).contains(&of_honest), "{of_flood} {of_honest}");
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory() {
        let mut admission = Admission::new(10, 50, [1; 32]);
        for n in 0..100_000 {
            admission.admits(Time::from_millis(1000), host(n), false);
        }
        assert_eq!((admission.hosts.len(), admission.places.len()), (MOST_HOSTS, MOST_HOSTS));
        admission.admits(Time::from_millis(3000), host(1), false);
        assert_eq!((admission.hosts.len(), admission.places.len()), (1, 1), "a second that was quiet is forgotten");
    }
}
