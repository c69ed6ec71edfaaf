//! The basis of what was received of a span: coefficients only, data stay where they are.
//!
//! Kept in reduced row-echelon form with provenance: beside each reduced row stand its weights over the rows as inserted. A packet is
//! solved when its row is a unit vector; its data are then one weighted sum over inserted rows, computed once, when they are wanted.
//! A relay that only recodes never pays for data.

use super::MAX_SPAN;
use crate::gf256::{Arena, RowTerm, inv, kernels};
use alloc::boxed::Box;
use alloc::vec;

/// Result of [`Basis::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The vector raised the rank; it is inserted row number `row` (counted from 0 in order of insertion).
    Innovative {
        /// Number of the row, equal to the rank before the insertion.
        row: usize,
    },
    /// The vector is a combination of those held (or all zeros); nothing was kept.
    Redundant,
}

/// A source packet that an insertion has determined: packet `index` = sum of `weights[r]` · inserted row `r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solved<'a> {
    /// Index of the source packet in the span.
    pub index: usize,
    /// Weights over the inserted rows, one for each row held.
    pub weights: &'a [u8],
}

const NO_ROW: u8 = u8::MAX;

/// Incremental reduced row-echelon basis over a span of `n <= 64` packets.
///
/// Memory: `3·capacity² + 3·capacity` bytes, allocated once. [`Basis::insert`] costs at most `2·rank` combinations of `2n` bytes; unit vectors
/// inserted into a basis of unit vectors cost O(n).
#[derive(Clone, Debug)]
pub struct Basis {
    n: usize,
    rank: usize,
    /// Columns reserved per row; `n` may grow up to this without allocation.
    capacity: usize,
    /// Row r: `capacity` reduced coefficients, then `capacity` weights over inserted rows. The row after the last is scratch.
    reduced: Box<[u8]>,
    /// Row r: the coefficients as inserted.
    inserted: Box<[u8]>,
    /// For each column the row whose pivot it is.
    pivot_row: [u8; MAX_SPAN],
    /// Columns whose row is a unit vector.
    solved: u64,
    /// Solved columns not yet yielded by `newly_solved`.
    fresh: u64,
}

impl Basis {
    /// An empty basis over `n` packets with room for exactly `n` (cut to 1..=[`MAX_SPAN`]).
    pub fn new(n: usize) -> Self {
        Self::with_capacity(n, n)
    }

    /// An empty basis over `n` packets that can be reset or extended up to `capacity` without allocation.
    pub fn with_capacity(n: usize, capacity: usize) -> Self {
        let n = n.clamp(1, MAX_SPAN);
        let capacity = capacity.clamp(n, MAX_SPAN);
        Self {
            n,
            rank: 0,
            capacity,
            reduced: vec![0; (capacity + 1) * 2 * capacity].into_boxed_slice(),
            inserted: vec![0; (capacity + 1) * capacity].into_boxed_slice(),
            pivot_row: [NO_ROW; MAX_SPAN],
            solved: 0,
            fresh: 0,
        }
    }

    /// Forgets everything and starts over with `n` packets. Allocates only if `n` exceeds the capacity.
    pub fn reset(&mut self, n: usize) {
        let n = n.clamp(1, MAX_SPAN);
        if n > self.capacity {
            *self = Self::new(n);
            return;
        }
        (self.n, self.rank, self.solved, self.fresh) = (n, 0, 0, 0);
        self.pivot_row = [NO_ROW; MAX_SPAN];
    }

    /// Grows the span to `n` packets (a short batch that gained packets); rows held are zero-extended. Never shrinks.
    /// Allocates only if `n` exceeds the capacity.
    pub fn extend(&mut self, n: usize) {
        let n = n.min(MAX_SPAN);
        if n <= self.n {
            return;
        }
        if n > self.capacity {
            let mut grown = Self::with_capacity(n, n);
            let (old, new) = (self.capacity, grown.capacity);
            for r in 0..self.rank {
                let (from, to) = (&self.reduced[r * 2 * old..], &mut grown.reduced[r * 2 * new..]);
                to[..self.n].copy_from_slice(&from[..self.n]);
                to[new..new + self.rank].copy_from_slice(&from[old..old + self.rank]);
                grown.inserted[r * new..r * new + self.n].copy_from_slice(&self.inserted[r * old..r * old + self.n]);
            }
            (grown.rank, grown.pivot_row, grown.solved, grown.fresh) = (self.rank, self.pivot_row, self.solved, self.fresh);
            *self = grown;
            return;
        }
        for r in 0..self.rank {
            self.reduced[r * 2 * self.capacity..][self.n..n].fill(0);
            self.inserted[r * self.capacity..][self.n..n].fill(0);
        }
        self.n = n;
    }

    /// Number of packets of the span.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Number of linearly independent vectors held.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether every packet of the span is determined.
    pub fn is_complete(&self) -> bool {
        self.rank == self.n
    }

    /// Whether source packet `j` is determined by the rows held.
    pub fn contains_unit(&self, j: usize) -> bool {
        j < self.n && self.solved >> j & 1 == 1
    }

    /// Bit `j` is set if source packet `j` is determined.
    pub fn solved(&self) -> u64 {
        self.solved
    }

    /// Coefficients of inserted row `row`, as they were inserted; empty if there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        if row < self.rank { &self.inserted[row * self.capacity..][..self.n] } else { &[] }
    }

    /// Whether inserting this vector would raise the rank.
    pub fn is_innovative(&self, coefficients: &[u8]) -> bool {
        if coefficients.len() != self.n {
            return false;
        }
        let mut v = [0u8; MAX_SPAN];
        v[..self.n].copy_from_slice(coefficients);
        self.reduce(coefficients, &mut v[..self.n], 0..self.n);
        v[..self.n].iter().any(|c| *c != 0)
    }

    /// Subtracts from `out` the reduced rows (their `part`) that clear the pivot columns of `coefficients`.
    fn reduce(&self, coefficients: &[u8], out: &mut [u8], part: core::ops::Range<usize>) {
        // In reduced form no row touches another row's pivot column, so all factors are known at the start: one pass.
        let mut terms: [(u8, &[u8]); MAX_SPAN] = [(0, &[]); MAX_SPAN];
        let mut count = 0;
        for (&c, &row) in coefficients.iter().zip(&self.pivot_row) {
            if c != 0 && row != NO_ROW {
                terms[count] = (c, &self.reduced[usize::from(row) * 2 * self.capacity..][part.clone()]);
                count += 1;
            }
        }
        kernels().dot_add(out, &terms[..count]);
    }

    /// Offers a coefficient vector of `n` entries. A vector of another length, or of zeros, is redundant.
    pub fn insert(&mut self, coefficients: &[u8]) -> Insert {
        let (n, capacity, row) = (self.n, self.capacity, self.rank);
        if coefficients.len() != n || row == n {
            return Insert::Redundant;
        }
        let width = capacity + row + 1; // used part of a row: coefficients and the weights that can be non-zero
        let mut v = [0u8; 2 * MAX_SPAN];
        v[..n].copy_from_slice(coefficients);
        v[capacity + row] = 1;
        let mut reduced = v;
        self.reduce(coefficients, &mut reduced[..width], 0..width);
        let Some(pivot) = reduced[..n].iter().position(|c| *c != 0) else {
            return Insert::Redundant;
        };
        let kernels = kernels();
        let factor = inv(reduced[pivot]);
        kernels.scale(&mut reduced[..width], factor);

        let mut newly = 0u64;
        let mut open = self.open_pivots();
        while open != 0 {
            let column = open.trailing_zeros() as usize;
            open &= open - 1;
            let start = usize::from(self.pivot_row[column]) * 2 * capacity;
            let held = &mut self.reduced[start..start + width];
            let c = held[pivot];
            if c != 0 {
                kernels.mul_add(held, &reduced[..width], c);
                newly |= u64::from(is_unit(&held[..n])) << column;
            }
        }
        self.reduced[row * 2 * capacity..][..width].copy_from_slice(&reduced[..width]);
        self.reduced[row * 2 * capacity..][width..2 * capacity].fill(0);
        self.inserted[row * capacity..][..n].copy_from_slice(coefficients);
        self.pivot_row[pivot] = row as u8;
        self.rank += 1;
        newly |= u64::from(is_unit(&reduced[..n])) << pivot;
        self.solved |= newly;
        self.fresh |= newly;
        Insert::Innovative { row }
    }

    /// Pivot columns whose row is not a unit vector yet.
    fn open_pivots(&self) -> u64 {
        let mut open = 0u64;
        for (column, row) in self.pivot_row[..self.n].iter().enumerate() {
            open |= u64::from(*row != NO_ROW) << column;
        }
        open & !self.solved
    }

    /// The next source packet that insertions have determined and that was not yielded before.
    pub fn newly_solved(&mut self) -> Option<Solved<'_>> {
        if self.fresh == 0 {
            return None;
        }
        let index = self.fresh.trailing_zeros() as usize;
        self.fresh &= self.fresh - 1;
        Some(Solved { index, weights: self.weights(index) })
    }

    /// Weights over the inserted rows that give source packet `j`; empty while it is not determined.
    pub fn weights(&self, j: usize) -> &[u8] {
        if !self.contains_unit(j) {
            return &[];
        }
        let start = usize::from(self.pivot_row[j]) * 2 * self.capacity + self.capacity;
        &self.reduced[start..start + self.rank]
    }

    /// Row `row` in reduced form: its coefficients, and its weights over the inserted rows. Together the reduced rows span what is held, and
    /// no row touches another one's pivot. Empty if there is no such row.
    pub fn reduced(&self, row: usize) -> (&[u8], &[u8]) {
        if row >= self.rank {
            return (&[], &[]);
        }
        let start = row * 2 * self.capacity;
        (&self.reduced[start..start + self.n], &self.reduced[start + self.capacity..][..self.rank])
    }

    /// Coefficients of the recoded packet `sum of row_weights[r] · inserted row r`; the same weights applied to the rows' data give its data.
    /// `out` takes `n` entries.
    pub fn recode_coefficients(&self, row_weights: &[u8], out: &mut [u8]) {
        out.fill(0);
        let n = self.n.min(out.len());
        let (mut terms, mut count) = ([RowTerm { row: 0, factor: 0 }; MAX_SPAN], 0);
        for (row, &factor) in (0..).zip(&row_weights[..row_weights.len().min(self.rank)]).filter(|(_, w)| **w != 0) {
            terms[count] = RowTerm { row, factor };
            count += 1;
        }
        kernels().gather(&mut out[..n], Arena { bytes: &self.inserted, stride: self.capacity, column: 0 }, &terms[..count]);
    }
}

fn is_unit(row: &[u8]) -> bool {
    row.iter().filter(|c| **c != 0).count() == 1
}
