//! Interleaving of batches: the packets of several batches in turn, so that a burst of losses falls on many (RFC 9426 §4.1; Yin, Yeung, Yang,
//! "A protocol design paradigm for batched sparse codes", Entropy 2020).
//!
//! ```
//! use noctule_codes::interleave::interleave;
//! let order: Vec<(u32, usize)> = interleave(10..13, 2, 2).collect();
//! assert_eq!(order, [(10, 0), (11, 0), (10, 1), (11, 1), (12, 0), (12, 1)]);
//! ```

use core::ops::Range;

/// Order in which to send the packets `0..batch_len` of `batches`, `depth` batches at a time (1 means none).
///
/// A burst of b packets takes ceil(b / depth) packets of a batch at most; the price is a delay of `depth · batch_len` packets.
pub fn interleave(batches: Range<u32>, batch_len: usize, depth: u32) -> impl Iterator<Item = (u32, usize)> {
    let depth = depth.max(1);
    let end = batches.end;
    batches.step_by(depth as usize).flat_map(move |first| {
        let group = first..end.min(first.saturating_add(depth));
        (0..batch_len).flat_map(move |index| group.clone().map(move |batch| (batch, index)))
    })
}
