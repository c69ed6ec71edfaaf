//! LT codes over XOR: the robust soliton LT code (Luby, "LT codes", FOCS 2002) and the semi-random LT code of Sphinx ("Sphinx: a transport
//! protocol for high-speed and lossy mobile networks", 2019), with one peeling decoder for both.
//!
//! ```
//! use noctule_codes::lt::{PeelingDecoder, SemiRandom};
//! use noctule_codes::recoding::Probability;
//! let code = SemiRandom::new(50, Probability::new(0.06), Probability::new(0.02), Probability::new(0.9)).unwrap();
//! assert_eq!(code.degree(), 12);                          // floor(1 / (p_avg + delta))
//! let source: Vec<[u8; 4]> = (0..50u8).map(|i| [i; 4]).collect();
//! let mut decoder = PeelingDecoder::new(50, 4);
//! for number in (0..).filter(|n| n % 20 != 3) {            // every twentieth packet is lost
//!     let neighbours = code.neighbours(number);
//!     let mut packet = [0; 4];
//!     for j in &neighbours {
//!         packet.iter_mut().zip(source[*j as usize]).for_each(|(p, s)| *p ^= s);
//!     }
//!     decoder.receive(&neighbours, &packet);
//!     if decoder.is_complete() { break; }
//! }
//! assert_eq!(decoder.source(3), Some(&[3u8; 4][..]));
//! ```

mod peeling;
mod semi_random;
mod soliton;

pub use peeling::PeelingDecoder;
pub use semi_random::{SemiRandom, coverage};
pub use soliton::Soliton;

use crate::prng::SplitMix64;
use alloc::vec::Vec;

/// `count` distinct numbers below `n`: Floyd's sampling for few, a partial shuffle for many.
fn distinct(random: &mut SplitMix64, count: usize, n: usize) -> Vec<u32> {
    let count = count.min(n);
    if count * 4 > n {
        let mut all: Vec<u32> = (0..n as u32).collect();
        for i in 0..count {
            let j = i + random.below((n - i) as u32) as usize;
            all.swap(i, j);
        }
        all.truncate(count);
        return all;
    }
    let mut chosen: Vec<u32> = Vec::with_capacity(count);
    for top in n - count..n {
        let r = random.below(top as u32 + 1);
        let pick = if chosen.contains(&r) { top as u32 } else { r };
        chosen.push(pick);
    }
    chosen
}
