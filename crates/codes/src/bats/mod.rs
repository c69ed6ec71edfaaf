//! BATS codes, the noctule profile. The baseline of RFC 9426 is in [`crate::rfc9426`].
//!
//! The noctule profile keeps the two-level idea of BATS codes, batches of M packets that relays recode, and changes the outer code:
//!
//! * systematic: batch b < ceil(K/M) is source packets b·M … as they are; nothing is computed when nothing is lost;
//! * repair batches come after, as many as wanted, each available by its number; every packet of a repair batch has its own sparse support,
//!   sized for the low end of the expected loss, so that a few missing packets cost a few repair packets;
//! * a precode of a few dense parities, never sent, reaches the packets that sparse supports miss;
//! * decoding is inactivation decoding over the missing packets only.
//!
//! The specification with test vectors is docs/spec/codes.md §3.
//!
//! ```
//! use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile};
//! let data: Vec<u8> = (0..20_000u32).map(|i| (i * i >> 7) as u8).collect();
//! let profile = Profile::new(20, 16, 100).unwrap();       // K = 20 packets, M = 16, loss of at least 10 % expected
//! let mut encoder = BlockEncoder::new(profile, 1000, &data).unwrap();
//! let mut decoder = BlockDecoder::new(profile, 1000).unwrap();
//! let mut packet = vec![0; 1000];
//! for index in 3..20 {                                     // the first three are lost
//!     encoder.packet(index / 16, (index % 16) as usize, &mut packet).unwrap();
//!     decoder.receive_uncoded(index / 16, (index % 16) as usize, &packet);
//! }
//! let (mut batch, mut index) = (profile.systematic_batches(), 0);
//! while !decoder.is_complete() {
//!     encoder.packet(batch, index, &mut packet).unwrap();
//!     decoder.receive_uncoded(batch, index, &packet);
//!     (batch, index) = if index == 15 { (batch + 1, 0) } else { (batch, index + 1) };
//! }
//! assert!(decoder.into_data().unwrap().starts_with(&data));
//! ```

mod decoder;
mod encoder;
mod precode;
mod profile;

pub use decoder::{BlockDecoder, Received};
pub use encoder::BlockEncoder;
pub use profile::{Profile, ProfileError};
