//! What handshakes may cost, host by host: a token for each Diffie-Hellman, taken before it is computed (P19, docs/spec/wire.md 2.5).
//!
//! Only hosts that have shown that they receive at their address are charged: others could spend for them.

use crate::units::{Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::net::IpAddr;

/// A host gets a token this often, 20 a second (as WireGuard's rate limiter).
const INTERVAL: Duration = Duration::from_millis(50);
/// Tokens that it may have saved.
pub(super) const BURST: u64 = 40;
/// Places, a power of two. Hosts that fall on one place share its tokens; nobody outside knows which do.
const PLACES_LOG2: u32 = 12;

/// What is one host's for certain: an IPv4 address, or the 64 bits of an IPv6 network, within which a host has as many addresses as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host(u128);

impl Host {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            IpAddr::V6(v6) => u128::from(v6) >> 64 << 64,
        })
    }
}

/// A bucket of tokens for each host, in a table of fixed size: 32 KiB from the first one on, and nothing to search.
#[derive(Debug)]
pub(super) struct Hosts {
    /// When each bucket is full again. Empty until the first host is charged.
    full_at: Vec<Time>,
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
        Self { full_at: Vec::new(), factor: number() | 1, offset: number() }
    }

    fn bucket(&mut self, host: Host) -> &mut Time {
        if self.full_at.is_empty() {
            self.full_at = vec![Time::ZERO; 1 << PLACES_LOG2];
        }
        // Multiply-shift hashing (Dietzfelbinger et al. 1997), with numbers that nobody outside knows.
        let place = self.factor.wrapping_mul(host.0).wrapping_add(self.offset) >> (u128::BITS - PLACES_LOG2);
        &mut self.full_at[place as usize]
    }

    /// Takes a token; false if the host has none.
    pub(super) fn charge(&mut self, now: Time, host: Host) -> bool {
        let full_at = self.bucket(host);
        let then = (*full_at).max(now) + INTERVAL;
        if then > now + INTERVAL * (BURST as u32) {
            return false;
        }
        *full_at = then;
        true
    }

    /// Gives a token back: what it was taken for was an honest handshake's.
    pub(super) fn refund(&mut self, now: Time, host: Host) {
        let full_at = self.bucket(host);
        *full_at = now + full_at.since(now).saturating_sub(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn host(text: &str) -> Host {
        Host::of(text.parse().unwrap())
    }

    #[test]
    fn a_host_has_its_burst_and_then_its_rate_and_takes_nobody_elses() {
        let mut hosts = Hosts::new(&mut ChaCha12Rng::from_seed([1; 32]));
        let mut now = Time::from_millis(1000);
        let (one, other) = (host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!((0..1000).filter(|_| hosts.charge(now, one)).count() as u64, BURST);
        assert!(hosts.charge(now, other));
        let mut got = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            got += u64::from(hosts.charge(now, one));
        }
        assert_eq!(got, 20);
        hosts.refund(now, one);
        assert!(hosts.charge(now, one) && !hosts.charge(now, one));
    }

    #[test]
    fn a_host_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    }
}
