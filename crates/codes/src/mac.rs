//! Homomorphic MAC: an 8-byte tag that survives recoding and tells a polluted combination before it is used (P16).
//!
//! Construction (after Agrawal and Boneh, "Homomorphic MACs: MAC-based integrity for network coding", ACNS 2009): with a secret 8 x n matrix K over
//! GF(256) and a secret 8-byte pad F(seq) per source packet, tag(p) = K·p + F(seq). The tag of a combination is the same combination of
//! tags, and a receiver that knows K and the pads checks `tag = K·p + sum of c_j · F(seq_j)`. Who does not know them makes a wrong packet
//! pass with probability 2^-64 per attempt. Pads must come from a pseudo-random function of flow and sequence number and never be
//! used for two packets; this crate has no such function and takes K and pads as bytes.
//!
//! ```
//! use noctule_codes::{gf256::kernels, mac::{MacKey, combine}};
//! let material: Vec<u8> = (0..8 * 100).map(|i: u32| (i * 37 >> 2) as u8).collect(); // from the session's key schedule
//! let key = MacKey::new(&material).unwrap();
//! let (p, q) = ([1u8; 100], [2u8; 100]);
//! let pads = [[3u8; 8], [4u8; 8]];
//! let tags = [key.tag(&p, pads[0]), key.tag(&q, pads[1])];
//! let mut mixed = [0u8; 100];
//! kernels().dot(&mut mixed, &[(7, &p), (9, &q)]);            // a relay, which has no key
//! let tag = combine(&[7, 9], &tags);
//! assert!(key.check(&mixed, &[7, 9], &pads, tag));
//! mixed[50] ^= 1;
//! assert!(!key.check(&mixed, &[7, 9], &pads, tag));
//! ```

use crate::gf256::{Kernels, kernels};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Bytes of a tag.
pub const TAG_LEN: usize = 8;

/// A tag or a pad: eight elements of GF(256).
pub type Tag = [u8; TAG_LEN];

/// The secret matrix K, ready for use.
#[derive(Clone)]
pub struct MacKey {
    kernels: &'static Kernels,
    longest: usize,
    /// Eight rows of `stride` bytes, in the kernels' own representation.
    rows: Vec<u8>,
    stride: usize,
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacKey").field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl MacKey {
    /// A key from `8 · n` secret bytes, row by row, for packets of at most n bytes. `None` if the length is no multiple of 8, or zero.
    pub fn new(material: &[u8]) -> Option<Self> {
        Self::with_kernels(kernels(), material)
    }

    /// As [`MacKey::new`] with given kernels.
    pub fn with_kernels(kernels: &'static Kernels, material: &[u8]) -> Option<Self> {
        if material.is_empty() || !material.len().is_multiple_of(TAG_LEN) {
            return None;
        }
        let longest = material.len() / TAG_LEN;
        let stride = longest.next_multiple_of(64);
        let mut rows = vec![0; TAG_LEN * stride];
        for (row, secret) in rows.chunks_exact_mut(stride).zip(material.chunks_exact(longest)) {
            row[..longest].copy_from_slice(secret);
        }
        kernels.prepare_inner(&mut rows);
        Some(Self { kernels, longest, rows, stride })
    }

    /// Longest packet that this key covers, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// K·packet. Bytes beyond [`MacKey::longest`] are not covered: callers bound the length first.
    fn product(&self, packet: &[u8]) -> Tag {
        self.kernels.inner8(&self.rows, self.stride, &packet[..packet.len().min(self.longest)])
    }

    /// Tag of a source packet with its pad. A packet and the same packet with zeros at its end have the same tag (P5).
    pub fn tag(&self, packet: &[u8], pad: Tag) -> Tag {
        add(self.product(packet), pad)
    }

    /// Whether `tag` fits the combination `packet = sum of coefficients[j] · source j`, `pads[j]` being the pad of source j.
    ///
    /// False as well if the numbers of coefficients and pads differ or the packet is longer than the key. Takes the same time for every tag.
    pub fn check(&self, packet: &[u8], coefficients: &[u8], pads: &[Tag], tag: Tag) -> bool {
        if coefficients.len() != pads.len() || packet.len() > self.longest {
            return false;
        }
        let difference = add(add(self.product(packet), combine(coefficients, pads)), tag);
        u64::from_le_bytes(difference) == 0
    }
}

/// The tag of a combination: `sum of coefficients[j] · tags[j]`.
pub fn combine(coefficients: &[u8], tags: &[Tag]) -> Tag {
    // Horner over the bits of the coefficients, highest first: eight doublings in all, whatever the number of tags.
    let mut sum = 0u64;
    for bit in (0..8).rev() {
        let high = (sum >> 7) & 0x0101_0101_0101_0101;
        sum = ((sum & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ (high * 0x1d);
        for (c, tag) in coefficients.iter().zip(tags) {
            sum ^= u64::from_le_bytes(*tag) & 0u64.wrapping_sub(u64::from((c >> bit) & 1));
        }
    }
    sum.to_le_bytes()
}

fn add(a: Tag, b: Tag) -> Tag {
    (u64::from_le_bytes(a) ^ u64::from_le_bytes(b)).to_le_bytes()
}
