//! What handshakes may cost, host by host and network by network: a token for each Diffie-Hellman, taken before it is computed (P19, docs/spec/wire.md 2.5).
//!
//! Only hosts that have shown that they receive at their address are charged: others could spend for them. An attacker with many hosts has them in few networks, so that each
//! network has a bucket as well, up to one for all. Hosts that a link has come from of late share buckets of networks with each other only: what strangers spend, they
//! do not lack.

use crate::admission::Host;
use crate::shared::bucket::{Bucket, Rate};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;

/// Tokens that a host may have saved.
pub(super) const BURST: u32 = 40;
/// A host from which a link came is known for so long.
const KNOWN_FOR: Duration = Duration::from_secs(3600);
/// Places for known hosts, a power of two: a further one takes the place of another.
const KNOWN_LOG2: u32 = 10;

/// A network around a host, and what all of it may spend.
struct Level {
    /// Bits of its prefix, of an IPv4 and of an IPv6 address.
    v4: u32,
    v6: u32,
    rate: Rate,
    /// Buckets, a power of two. Networks that fall on one share its tokens; nobody outside knows which do.
    places_log2: u32,
}

const fn level(v4: u32, v6: u32, interval_us: u64, burst: u32, places_log2: u32) -> Level {
    Level { v4, v6, rate: Rate { interval: Duration::from_micros(interval_us), burst }, places_log2 }
}

/// 20 a second for one host (as WireGuard's rate limiter), and from there twice as many for each larger network: a subscriber's /56, a site's /48 or an IPv4 /24, a
/// provider's /32 or /16. All together have 400, an eighth of a slow core.
const LEVELS: [Level; 5] = [
    level(32, 64, 50_000, BURST, 12),
    level(32, 56, 25_000, 2 * BURST, 11),
    level(24, 48, 12_500, 4 * BURST, 11),
    level(16, 32, 6_250, 8 * BURST, 10),
    level(0, 0, 2_500, 400, 0),
];

/// Whose share pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payer {
    /// Nothing is known of the host.
    Stranger,
    /// A link has come from it of late.
    Known,
}

/// Buckets of hosts and networks, in tables of fixed size: 112 KiB from the first one on, and nothing to search.
#[derive(Debug)]
pub(super) struct Hosts {
    /// Those of the hosts, then of each level for strangers, then of each level for known hosts. Empty until the first host is charged.
    buckets: Vec<Bucket>,
    /// What a link came from, and when. Empty until the first one.
    known: Vec<(Host, Time)>,
    factor: u128,
    offset: u128,
}

impl Hosts {
    pub(super) fn new(rng: &mut ChaCha12Rng) -> Self {
        let mut number = || {
            let mut bytes = [0; 16];
            rng.fill_bytes(&mut bytes);
            u128::from_be_bytes(bytes)
        };
        Self { buckets: Vec::new(), known: Vec::new(), factor: number() | 1, offset: number() }
    }

    /// Multiply-shift hashing (Dietzfelbinger et al. 1997), with numbers that nobody outside knows.
    fn hash(&self, value: u128, log2: u32) -> usize {
        let mixed = self.factor.wrapping_mul(value).wrapping_add(self.offset);
        mixed.checked_shr(u128::BITS - log2).unwrap_or(0) as usize
    }

    /// Where the buckets of a host's networks are, the smallest first.
    fn places(&self, host: Host, payer: Payer) -> [usize; LEVELS.len()] {
        let mut begin = 0;
        core::array::from_fn(|at| {
            let level = &LEVELS[at];
            let (size, place) = (1 << level.places_log2, self.hash(host.network(level.v4, level.v6), level.places_log2));
            // A host is one host, known or not.
            let tables = if at == 0 { 1 } else { 2 };
            let table = usize::from(payer == Payer::Known) * (tables - 1);
            begin += tables * size;
            begin - (tables - table) * size + place
        })
    }

    fn prepare(&mut self) {
        if self.buckets.is_empty() {
            let size = |at: usize| (if at == 0 { 1 } else { 2 }) << LEVELS[at].places_log2;
            self.buckets = vec![Bucket::default(); (0..LEVELS.len()).map(size).sum()];
        }
    }

    /// Takes a token of the host and of each network around it; false, and none is taken, if one of them has none.
    pub(super) fn charge(&mut self, now: Time, host: Host, payer: Payer) -> bool {
        if switch::is_off(Mechanism::NetworkTokens) {
            return self.charge_host(now, host);
        }
        self.prepare();
        let places = self.places(host, payer);
        let has_one = places.iter().zip(&LEVELS).all(|(at, level)| self.buckets[*at].has_one(now, level.rate));
        if has_one {
            for (at, level) in places.iter().zip(&LEVELS) {
                self.buckets[*at].charge(now, level.rate);
            }
        }
        has_one
    }

    /// Takes a token of the host alone, for what its networks have paid for already.
    pub(super) fn charge_host(&mut self, now: Time, host: Host) -> bool {
        self.prepare();
        let [at, ..] = self.places(host, Payer::Stranger);
        self.buckets[at].charge(now, LEVELS[0].rate)
    }

    /// Gives it back: what it was taken for was an honest handshake's.
    pub(super) fn refund_host(&mut self, now: Time, host: Host) {
        self.prepare();
        let [at, ..] = self.places(host, Payer::Stranger);
        self.buckets[at].refund(now, LEVELS[0].rate);
    }

    /// A link came from there, with a key that may.
    pub(super) fn remember(&mut self, now: Time, host: Host) {
        if self.known.is_empty() {
            self.known = vec![(host, now); 1 << KNOWN_LOG2];
        }
        let at = self.hash(host.network(32, 64), KNOWN_LOG2);
        self.known[at] = (host, now);
    }

    /// Whether a link has come from there of late.
    pub(super) fn knows(&self, now: Time, host: Host) -> bool {
        let entry = self.known.get(self.hash(host.network(32, 64), KNOWN_LOG2));
        entry.is_some_and(|(known, since)| *known == host && now.since(*since) < KNOWN_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;
    use std::net::IpAddr;

    const START: Time = Time::from_millis(1000);

    fn hosts() -> Hosts {
        Hosts::new(&mut ChaCha12Rng::from_seed([1; 32]))
    }

    fn host(text: &str) -> Host {
        text.parse::<IpAddr>().unwrap().into()
    }

    /// What so many hosts, made from numbers, get if each asks as often as it can.
    fn spent(hosts: &mut Hosts, count: u32, payer: Payer, host: impl Fn(u32) -> Host) -> u32 {
        (0..count * BURST).map(|n| u32::from(hosts.charge(START, host(n % count), payer))).sum()
    }

    #[test]
    fn a_host_has_its_burst_and_then_its_rate_and_takes_no_other_hosts() {
        let (mut hosts, mut now) = (hosts(), START);
        let (one, other) = (host("192.0.2.1"), host("198.51.100.2"));
        assert_eq!((0..1000).filter(|_| hosts.charge(now, one, Payer::Stranger)).count() as u32, BURST);
        assert!(hosts.charge(now, other, Payer::Stranger));
        let mut got = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            got += u64::from(hosts.charge(now, one, Payer::Stranger));
        }
        assert_eq!(got, 20);
        hosts.refund_host(now, one);
        assert!(hosts.charge_host(now, one) && !hosts.charge_host(now, one));
    }

    #[test]
    fn many_hosts_of_one_network_have_what_the_network_has_and_others_are_not_held_up() {
        let v6 = |prefix: u128| move |n: u32| Host::from(IpAddr::from((prefix + (u128::from(n) << 64)).to_be_bytes()));
        let site = 0x2001_0db8_0001_u128 << 80;
        let (all, elsewhere) = (site..site + (1 << 80), host("2001:db8:2::1"));
        let mut these = hosts();
        assert_eq!(spent(&mut these, 200, Payer::Stranger, v6(all.start)), 2 * BURST, "a /56");
        let mut these = hosts();
        assert_eq!(spent(&mut these, 60_000, Payer::Stranger, v6(all.start)), 4 * BURST, "a /48");
        assert!(these.charge(START, elsewhere, Payer::Stranger));
        let mut these = hosts();
        assert_eq!(spent(&mut these, 250, Payer::Stranger, |n| Host::from(IpAddr::from([192, 0, 2, n as u8]))), 4 * BURST, "an IPv4 /24");
        assert!(these.charge(START, host("192.0.3.1"), Payer::Stranger));
    }

    #[test]
    fn what_strangers_all_together_spend_known_hosts_do_not_lack() {
        let mut hosts = hosts();
        let friend = host("2001:db8::1");
        hosts.remember(START, friend);
        // From everywhere.
        let stranger = |n: u32| Host::from(IpAddr::from(n.wrapping_mul(0x9e37_79b9).to_be_bytes()));
        assert_eq!(spent(&mut hosts, 20_000, Payer::Stranger, stranger), 400);
        assert!(!hosts.charge(START, host("2001:db8::2:1"), Payer::Stranger));
        assert!(hosts.knows(START, friend) && !hosts.knows(START, host("2001:db8:0:1::1")));
        assert!(hosts.charge(START, friend, Payer::Known));
        assert!(!hosts.knows(START + KNOWN_FOR, friend));
    }
}
