//! What handshakes of relayed sessions may cost a destination: tokens for each neighbour, and below it for each end that is claimed (P19).
//!
//! A token is taken before anything is computed, and given back when the opener has shown that it has the keys: only handshakes that come to nothing are limited.
//! Claims of addresses cost nothing, so that they count below their neighbour only, and one that asks for little does not lack what others spend together.

use crate::admission::Host;
use crate::neighbour::Neighbour;
use crate::shared::bucket::{Bucket, Rate};
use crate::units::{Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::collections::BTreeMap;

/// Handshakes for one end behind one neighbour: one that opens many sessions at once has its tokens back a round trip later.
const OF_END: Rate = Rate { interval: Duration::from_millis(100), burst: 64 };
/// For all ends behind one neighbour.
const OF_NEIGHBOUR: Rate = Rate { interval: Duration::from_millis(25), burst: 128 };
/// For all neighbours together, beyond what each has for itself: some 300 us each.
const OF_ALL: Rate = Rate { interval: Duration::from_micros(2500), burst: 256 };
const OF_ITS_OWN: Rate = Rate { interval: Duration::from_millis(250), burst: 8 };
/// Places for ends behind one neighbour, a power of two. Ends that share one share its tokens; nobody outside knows which do.
const ENDS_LOG2: u32 = 6;

#[derive(Debug)]
struct Hop {
    all: Bucket,
    own: Bucket,
    ends: [Bucket; 1 << ENDS_LOG2],
}

/// See the module's documentation. A neighbour has an entry, of 528 bytes, from the first handshake that comes by it to the end of its links.
#[derive(Debug)]
pub(crate) struct Openers {
    hops: BTreeMap<Neighbour, Box<Hop>>,
    all: Bucket,
    factor: u128,
}

impl Openers {
    pub(crate) fn new(rng: &mut ChaCha12Rng) -> Self {
        let mut bytes = [0; 16];
        rng.fill_bytes(&mut bytes);
        Self { hops: BTreeMap::new(), all: Bucket::default(), factor: u128::from_be_bytes(bytes) | 1 }
    }

    fn place(&self, end: Host) -> usize {
        (self.factor.wrapping_mul(end.network(32, 64)) >> (u128::BITS - ENDS_LOG2)) as usize
    }

    /// Takes a token for a handshake that comes by a neighbour from an end that is claimed; false if there is none.
    pub(crate) fn charge(&mut self, now: Time, from: Neighbour, end: Host) -> bool {
        let at = self.place(end);
        let new = || Box::new(Hop { all: Bucket::default(), own: Bucket::default(), ends: [Bucket::default(); 1 << ENDS_LOG2] });
        let hop = self.hops.entry(from).or_insert_with(new);
        if !hop.ends[at].has_one(now, OF_END) || !hop.all.has_one(now, OF_NEIGHBOUR) {
            return false;
        }
        let has_one = hop.own.charge(now, OF_ITS_OWN) || self.all.charge(now, OF_ALL);
        if has_one {
            hop.ends[at].charge(now, OF_END);
            hop.all.charge(now, OF_NEIGHBOUR);
        }
        has_one
    }

    /// The opener has the keys: what was taken for it is given back.
    pub(crate) fn refund(&mut self, now: Time, from: Neighbour, end: Host) {
        let at = self.place(end);
        if let Some(hop) = self.hops.get_mut(&from) {
            hop.ends[at].refund(now, OF_END);
            hop.all.refund(now, OF_NEIGHBOUR);
            hop.own.refund(now, OF_ITS_OWN);
        }
    }

    /// The neighbour is gone.
    pub(crate) fn forget(&mut self, from: Neighbour) {
        self.hops.remove(&from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LinkId;
    use rand_core::SeedableRng;
    use std::net::IpAddr;

    const START: Time = Time::from_millis(1000);

    fn openers() -> Openers {
        Openers::new(&mut ChaCha12Rng::from_seed([1; 32]))
    }

    fn by(n: u64) -> Neighbour {
        Neighbour::Link(LinkId(n))
    }

    fn end(n: u32) -> Host {
        IpAddr::from(n.to_be_bytes()).into()
    }

    #[test]
    fn a_neighbour_spends_its_own_tokens_and_an_end_behind_it_its_share_of_these() {
        let mut openers = openers();
        let one = (0..1000).filter(|_| openers.charge(START, by(1), end(7))).count();
        assert_eq!(one, OF_END.burst as usize);
        let all = one + (0..10_000).filter(|n| openers.charge(START, by(1), end(*n))).count();
        assert_eq!(all, OF_NEIGHBOUR.burst as usize);
        assert!(openers.charge(START, by(2), end(7)));
        openers.refund(START, by(1), end(9));
        assert!(openers.charge(START, by(1), end(9)) && !openers.charge(START, by(1), end(9)));
    }

    #[test]
    fn neighbours_that_ask_for_little_do_not_lack_what_others_spend_together() {
        let mut openers = openers();
        let spent = (0..100_000u32).filter(|n| openers.charge(START, by(u64::from(n % 100)), end(*n))).count();
        assert_eq!(spent, OF_ALL.burst as usize + 100 * OF_ITS_OWN.burst as usize);
        assert!(openers.charge(START, by(1000), end(1)));
        (0..100).for_each(|link| openers.forget(by(link)));
        assert_eq!(openers.hops.len(), 1);
    }
}
