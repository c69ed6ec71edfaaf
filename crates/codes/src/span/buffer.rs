//! A basis with the data of its rows: what a destination decodes from and a relay recodes from.

use super::coefficients::add_combination;
use super::{Basis, Insert, MAX_SPAN};
use crate::gf256::kernels;
use alloc::vec::Vec;

/// What became of a packet offered to [`SpanBuffer::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It raised the rank and is held as row `row`.
    Innovative {
        /// Number of the row, in order of insertion.
        row: usize,
    },
    /// It carries nothing new.
    Redundant,
    /// Its coefficient vector does not have `n` entries.
    Malformed,
}

/// Packets received of one span, recoverable and recodable at any time.
///
/// Rows are recycled through [`SpanBuffer::reset`], so that a pooled buffer allocates nothing in steady state.
/// Memory: the basis plus at most `n` rows of the longest packet received (the caller bounds packet lengths).
#[derive(Clone, Debug)]
pub struct SpanBuffer {
    basis: Basis,
    /// Data of the inserted rows: the first `rank` are in use, the others wait for reuse.
    rows: Vec<Vec<u8>>,
    recovered: Vec<u8>,
}

impl SpanBuffer {
    /// An empty buffer over `n` packets (cut to 1..=[`MAX_SPAN`]).
    pub fn new(n: usize) -> Self {
        Self::with_rows(n, n, Vec::new())
    }

    /// An empty buffer over `n` packets that may grow to `capacity`, using `rows` from the caller's pool before allocating.
    pub fn with_rows(n: usize, capacity: usize, rows: Vec<Vec<u8>>) -> Self {
        Self { basis: Basis::with_capacity(n, capacity), rows, recovered: Vec::new() }
    }

    /// Forgets everything and starts over with `n` packets, keeping the memory of the rows.
    pub fn reset(&mut self, n: usize) {
        self.basis.reset(n);
    }

    /// Grows the span to `n` packets; see [`Basis::extend`].
    pub fn extend(&mut self, n: usize) {
        self.basis.extend(n);
    }

    /// Gives the row memory back to the caller's pool.
    pub fn into_rows(self) -> Vec<Vec<u8>> {
        self.rows
    }

    /// The coefficients' basis: rank, which packets are determined, innovation of a vector.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// Number of linearly independent packets held.
    pub fn rank(&self) -> usize {
        self.basis.rank()
    }

    /// Data of row `row` as received; empty if there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        if row < self.basis.rank() { &self.rows[row] } else { &[] }
    }

    /// Offers a packet: `n` coefficients and the combination of the packets' data. The data are copied only if they are innovative.
    pub fn receive(&mut self, coefficients: &[u8], payload: &[u8]) -> Received {
        if coefficients.len() != self.basis.n() {
            return Received::Malformed;
        }
        match self.basis.insert(coefficients) {
            Insert::Redundant => Received::Redundant,
            Insert::Innovative { row } => {
                if row == self.rows.len() {
                    self.rows.push(Vec::new());
                }
                self.rows[row].clear();
                self.rows[row].extend_from_slice(payload);
                Received::Innovative { row }
            }
        }
    }

    /// Offers an uncoded source packet: `receive` with the unit vector of `index`.
    pub fn receive_source(&mut self, index: usize, payload: &[u8]) -> Received {
        let n = self.basis.n();
        if index >= n {
            return Received::Malformed;
        }
        let mut unit = [0u8; MAX_SPAN];
        unit[index] = 1;
        self.receive(&unit[..n], payload)
    }

    /// The next source packet that became known, each once: index in the span and data.
    ///
    /// A packet received uncoded comes back exactly as it was; a decoded one may end in zeros, as long as the longest packet of
    /// its combination (the symbol's own length field says where the data end, P5). Cost of a decoded one: `rank` multiply-adds.
    pub fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let solved = self.basis.newly_solved()?;
        let mut used = solved.weights.iter().enumerate().filter(|(_, w)| **w != 0);
        // A row received uncoded is the packet itself: no copy.
        if let (Some((row, 1)), None) = (used.next(), used.next()) {
            return Some((solved.index, &self.rows[row]));
        }
        combine(&self.rows, solved.weights, &mut self.recovered);
        Some((solved.index, &self.recovered))
    }

    /// Length of the longest row held: the length that a recoded packet needs at most.
    pub fn longest(&self) -> usize {
        self.rows[..self.basis.rank()].iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Makes the recoded packet `sum of weights[r] · row r`: `n` coefficients into `out_coefficients`, data into `out_data` (resized to the
    /// longest row used). Cost: `rank` multiply-adds in one pass.
    pub fn recode(&self, weights: &[u8], out_coefficients: &mut [u8], out_data: &mut Vec<u8>) {
        self.basis.recode_coefficients(weights, out_coefficients);
        combine(&self.rows[..self.basis.rank()], weights, out_data);
    }

    /// Makes several recoded packets in one pass over the rows (fastest in fours): packet i uses `weights[i·rank..][..rank]`.
    ///
    /// Each `out_data[i]` should hold [`SpanBuffer::longest`] bytes and each `out_coefficients[i]` `n`; shorter ones are filled as far as they go.
    pub fn recode_many(&self, weights: &[u8], out_coefficients: &mut [&mut [u8]], out_data: &mut [&mut [u8]]) {
        let rank = self.basis.rank();
        let (mut vectors, mut data): ([&[u8]; MAX_SPAN], [&[u8]; MAX_SPAN]) = ([&[]; MAX_SPAN], [&[]; MAX_SPAN]);
        for r in 0..rank {
            (vectors[r], data[r]) = (self.basis.row(r), &self.rows[r]);
        }
        kernels().dot_multi(out_coefficients, weights, &vectors[..rank]);
        kernels().dot_multi(out_data, weights, &data[..rank]);
    }
}

/// `out = sum of weights[r] · rows[r]`, as long as the longest row used.
fn combine(rows: &[Vec<u8>], weights: &[u8], out: &mut Vec<u8>) {
    let used = || weights.iter().zip(rows).filter(|(w, _)| **w != 0);
    out.clear();
    out.resize(used().map(|(_, row)| row.len()).max().unwrap_or(0), 0);
    add_combination(used().map(|(w, row)| (*w, row.as_slice())), out);
}
