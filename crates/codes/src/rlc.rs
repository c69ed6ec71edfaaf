//! Sliding-window random linear code in the style of RFC 8681: repairs over the last packets of a flow, for low latency.
//!
//! Coefficients follow RFC 8681 §3.6 (TinyMT32, density threshold) over GF(256) with the same polynomial 0x11d. The decoder is
//! [`crate::window::WindowDecoder`].
//!
//! ```
//! use noctule_codes::{rlc::{SlidingEncoder, coding_coefficients}, window::{Limits, WindowDecoder}};
//! let mut encoder = SlidingEncoder::new(8);
//! let mut decoder = WindowDecoder::new(Limits::default());
//! for seq in 0..5u64 {
//!     let packet = [seq as u8; 10];
//!     encoder.push(&packet);
//!     if seq != 3 { decoder.source(seq, &packet); }        // packet 3 is lost
//! }
//! let repair = encoder.repair(77, 15).unwrap();
//! let mut coefficients = vec![0; repair.span];
//! coding_coefficients(repair.key, repair.density, &mut coefficients);
//! decoder.repair(repair.base, &coefficients, &repair.data);
//! assert_eq!(decoder.take_recovered(), Some((3, vec![3; 10])));
//! ```

use crate::span::{MAX_SPAN, encode};
use crate::tinymt32::TinyMt32;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// `generate_coding_coefficients` of RFC 8681 §3.6 for m = 8: coefficients for the repair key; `density` 0..=15, of which 15 makes all of
/// them non-zero and d makes each non-zero with probability (d + 1)/16.
pub fn coding_coefficients(key: u16, density: u8, out: &mut [u8]) {
    let mut random = TinyMt32::new(u32::from(key));
    for c in out {
        let is_used = density >= 15 || (random.next_u32() & 0xf) as u8 <= density;
        *c = 0;
        while is_used && *c == 0 {
            *c = random.next_u32() as u8;
        }
    }
}

/// One repair packet and what a decoder needs to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Sequence number of the first packet covered.
    pub base: u64,
    /// Number of packets covered.
    pub span: usize,
    /// Repair key: the seed of the coefficients.
    pub key: u16,
    /// Density threshold.
    pub density: u8,
    /// The combination, as long as the longest packet covered.
    pub data: Vec<u8>,
}

/// Encoder: keeps the last packets (the encoding window) and combines them on demand.
///
/// Memory: `window` packets. Cost of a repair: one multiply-add per packet of the window.
#[derive(Clone, Debug)]
pub struct SlidingEncoder {
    window: usize,
    packets: VecDeque<Vec<u8>>,
    /// Sequence number of the next packet.
    next: u64,
}

impl SlidingEncoder {
    /// An encoder over the last `window` packets (cut to 1..=[`MAX_SPAN`]); the first packet has sequence number 0.
    pub fn new(window: usize) -> Self {
        Self { window: window.clamp(1, MAX_SPAN), packets: VecDeque::new(), next: 0 }
    }

    /// Takes the next source packet into the window; returns its sequence number.
    pub fn push(&mut self, packet: &[u8]) -> u64 {
        let mut row = if self.packets.len() == self.window { self.packets.pop_front().unwrap_or_default() } else { Vec::new() };
        row.clear();
        row.extend_from_slice(packet);
        self.packets.push_back(row);
        self.next += 1;
        self.next - 1
    }

    /// A repair over the whole window; `None` while it is empty.
    pub fn repair(&self, key: u16, density: u8) -> Option<Repair> {
        let span = self.packets.len();
        let longest = self.packets.iter().map(Vec::len).max()?;
        let mut coefficients = [0; MAX_SPAN];
        coding_coefficients(key, density, &mut coefficients[..span]);
        let packets: Vec<&[u8]> = self.packets.iter().map(Vec::as_slice).collect();
        let mut data = vec![0; longest];
        encode(&coefficients[..span], &packets, &mut data);
        Some(Repair { base: self.next - span as u64, span, key, density, data })
    }
}
