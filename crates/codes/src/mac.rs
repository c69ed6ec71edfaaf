//! Homomorphic MAC: an 8-byte tag that survives recoding and tells a polluted combination before it is used (P16).
//!
//! Construction (after Agrawal and Boneh, "Homomorphic MACs: MAC-based integrity for network coding", ACNS 2009, with an inner product over
//! GF(256^8)): eight bytes of a packet are an element of `GF(256)[y] / (y^8 + y^3 + y + 9)`, a field of 2^64 elements over which GF(256) acts byte
//! by byte. With a secret key k_0, k_1, … and a secret pad F(seq) per source packet, tag(p) = sum of p_J · k_J + F(seq). The tag of a
//! combination is the same combination of tags, and a receiver that knows the key and the pads checks
//! `tag = sum of p_J · k_J + sum of c_j · F(seq_j)`. Without the key a wrong packet passes with probability 2^-64 per attempt
//! (docs/spec/codes.md §6). Pads must come from a pseudo-random function of flow and sequence number and never be used for two packets;
//! this crate has no such function and takes key and pads as bytes.
//!
//! ```
//! use noctule_codes::{gf256::kernels, mac::{MacKey, combine}};
//! let material: Vec<u8> = (0..104).map(|i: u32| (i * 37 >> 2) as u8).collect(); // from the session's key schedule
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
use alloc::vec::Vec;
use core::fmt;

/// Bytes of a tag.
pub const TAG_LEN: usize = 8;

/// A tag or a pad: eight elements of GF(256).
pub type Tag = [u8; TAG_LEN];

/// The secret key k_0, k_1, … of eight bytes each.
#[derive(Clone)]
pub struct MacKey {
    kernels: &'static Kernels,
    longest: usize,
    /// The key, filled up with zeros to whole vectors.
    key: Vec<u8>,
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacKey").field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl MacKey {
    /// A key from n secret bytes, for packets of at most n bytes. `None` if the length is no multiple of 8, or zero: the field's elements
    /// have eight bytes, and all of them must be secret.
    pub fn new(material: &[u8]) -> Option<Self> {
        Self::with_kernels(kernels(), material)
    }

    /// As [`MacKey::new`] with given kernels.
    pub fn with_kernels(kernels: &'static Kernels, material: &[u8]) -> Option<Self> {
        if material.is_empty() || !material.len().is_multiple_of(TAG_LEN) {
            return None;
        }
        let mut key = material.to_vec();
        key.resize(material.len().next_multiple_of(64), 0);
        Some(Self { kernels, longest: material.len(), key })
    }

    /// Longest packet that this key covers, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Sum of p_J · k_J. Bytes beyond [`MacKey::longest`] are not covered: callers bound the length first.
    fn product(&self, packet: &[u8]) -> Tag {
        let mut product = self.kernels.convolve8(&self.key, &packet[..packet.len().min(self.longest)]);
        // y^8 = y^3 + y + 9, from the top; 9 = 2^3 + 1 without a table, whose time could tell.
        let double = |c: u8| (c << 1) ^ (0x1d & 0u8.wrapping_sub(c >> 7));
        for i in (TAG_LEN..product.len()).rev() {
            let c = product[i];
            product[i - 5] ^= c;
            product[i - 7] ^= c;
            product[i - 8] ^= double(double(double(c))) ^ c;
        }
        core::array::from_fn(|i| product[i])
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
        let difference = add(add(self.product(packet), combine_with(self.kernels, coefficients, pads)), tag);
        u64::from_le_bytes(difference) == 0
    }
}

/// The tag of a combination: `sum of coefficients[j] · tags[j]`.
pub fn combine(coefficients: &[u8], tags: &[Tag]) -> Tag {
    combine_with(kernels(), coefficients, tags)
}

/// Elements of GF(256) are the constant polynomials: the sum is an inner product over GF(256^8) that never reaches degree 8.
fn combine_with(kernels: &Kernels, coefficients: &[u8], tags: &[Tag]) -> Tag {
    const AT_ONCE: usize = 16;
    let mut sum = [0; TAG_LEN];
    for (coefficients, tags) in coefficients.chunks(AT_ONCE).zip(tags.chunks(AT_ONCE)) {
        let (mut constants, mut key) = ([0; AT_ONCE * TAG_LEN], [0; AT_ONCE * TAG_LEN]);
        for (constant, c) in constants.iter_mut().step_by(TAG_LEN).zip(coefficients) {
            *constant = *c;
        }
        key[..tags.len() * TAG_LEN].copy_from_slice(tags.as_flattened());
        let product = kernels.convolve8(&key, &constants);
        sum = add(sum, core::array::from_fn(|i| product[i]));
    }
    sum
}

fn add(a: Tag, b: Tag) -> Tag {
    (u64::from_le_bytes(a) ^ u64::from_le_bytes(b)).to_le_bytes()
}
