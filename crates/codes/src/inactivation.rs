//! Inactivation decoding: solves a sparse linear system over GF(256) by peeling, setting aside ("inactivating") columns where peeling
//! stalls, and eliminating densely only on those (Shokrollahi, Lassen, Karp, US 6856263; RFC 6330 §5.4.2 in spirit; RFC 9426 §3.4).
//!
//! Coefficients and data are kept apart: [`System::plan`] works on coefficients alone and says either how many equations are missing or
//! which combinations of data give the unknowns; [`Plan::execute`] then touches the data.

use crate::gf256::{Arena, RowTerm, inv, kernels, mul};
use alloc::vec;
use alloc::vec::Vec;

/// A linear system: each row is a sparse combination of unknown columns with a right-hand side held elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    columns: usize,
    starts: Vec<u32>,
    /// Entries of all rows; `row` is the column number here.
    entries: Vec<RowTerm>,
    /// Rows that take no part in peeling because they touch nearly everything.
    dense: Vec<bool>,
}

/// How to compute the unknowns from the right-hand sides.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Peeled columns in order: equation, column, inverse of the pivot coefficient.
    pivots: Vec<(u32, u32, u8)>,
    /// Inactive columns.
    inactive: Vec<u32>,
    /// Equations that determine the inactive columns.
    selected: Vec<u32>,
    /// Inactive column i = sum over l of `inverse[i · I + l]` · reduced right-hand side of `selected[l]`.
    inverse: Vec<u8>,
    /// Columns that later steps need in their intermediate form.
    needed: Vec<bool>,
}

/// Where rows of data live in an arena.
pub(crate) struct Layout<'a> {
    /// Arena row of each unknown column.
    pub(crate) column_row: &'a [u32],
    /// Arena row of each equation's right-hand side.
    pub(crate) equation_row: &'a [u32],
    /// Bytes per row.
    pub(crate) stride: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Active,
    /// Peeled; its place in the order.
    Pivot(u32),
    /// Set aside; its number among the inactive ones.
    Inactive(u32),
}

impl System {
    /// An empty system over `columns` unknowns.
    pub(crate) fn new(columns: usize) -> Self {
        Self { columns, starts: vec![0], entries: Vec::new(), dense: Vec::new() }
    }

    /// Adds an equation; the columns of `entries` must be distinct and below the number of columns, their factors non-zero.
    pub(crate) fn push(&mut self, entries: impl IntoIterator<Item = RowTerm>, dense: bool) {
        self.entries.extend(entries);
        self.starts.push(self.entries.len() as u32);
        self.dense.push(dense);
    }

    /// Number of equations.
    pub(crate) fn equations(&self) -> usize {
        self.dense.len()
    }

    fn row(&self, r: usize) -> &[RowTerm] {
        &self.entries[self.starts[r] as usize..self.starts[r + 1] as usize]
    }

    /// Finds a way to solve the system, or says by how many the rank falls short of the number of columns.
    ///
    /// `inactive` lists columns to set aside from the start. Cost: entries for the peeling, about I³/32 byte operations for I inactive columns.
    pub(crate) fn plan(&self, inactive: impl IntoIterator<Item = u32>) -> Result<Plan, usize> {
        let mut peeling = Peeling::new(self);
        for column in inactive {
            peeling.inactivate(column as usize);
        }
        peeling.run();
        let Peeling { state, pivots, inactive, used, .. } = peeling;

        let width = inactive.len();
        // Each peeled column as a combination of inactive ones (and of data, which the plan computes later).
        let mut expressions = vec![0u8; pivots.len() * width];
        let mut scratch = vec![0u8; 2 * width];
        let mut terms = Vec::new();
        let express = |row: &[RowTerm], except: u32, scratch: &mut [u8], terms: &mut Vec<RowTerm>, done: &[u8]| {
            scratch.fill(0);
            terms.clear();
            for entry in row.iter().filter(|e| e.row != except) {
                match state[entry.row as usize] {
                    Column::Inactive(i) => scratch[i as usize] ^= entry.factor,
                    Column::Pivot(t) => terms.push(RowTerm { row: t, factor: entry.factor }),
                    Column::Active => {}
                }
            }
            kernels().gather(&mut scratch[..width], Arena { bytes: done, stride: width, column: 0 }, terms);
        };
        for (t, &(row, column, factor)) in pivots.iter().enumerate() {
            let (done, rest) = expressions.split_at_mut(t * width);
            express(self.row(row as usize), column, &mut scratch, &mut terms, done);
            kernels().scale(&mut scratch[..width], factor);
            rest[..width].copy_from_slice(&scratch[..width]);
        }

        // Dense elimination over the inactive columns with the equations that peeling did not use, sparse ones first.
        let mut dense = Elimination::new(width);
        let mut selected = Vec::new();
        let mut needed = vec![false; self.columns];
        let leftover = |dense: bool| (0..self.equations()).filter(move |r| self.dense[*r] == dense);
        for r in leftover(false).chain(leftover(true)) {
            if selected.len() == width {
                break;
            }
            if used[r] {
                continue;
            }
            express(self.row(r), u32::MAX, &mut scratch, &mut terms, &expressions);
            if dense.insert(&scratch[..width]) {
                selected.push(r as u32);
                for entry in self.row(r) {
                    needed[entry.row as usize] = true;
                }
            }
        }
        if selected.len() < width {
            return Err(width - selected.len());
        }
        // Intermediate values are needed where a selected equation, or a needed column's equation, refers to them.
        for &(row, column, _) in pivots.iter().rev() {
            if needed[column as usize] {
                for entry in self.row(row as usize) {
                    needed[entry.row as usize] = true;
                }
            }
        }
        Ok(Plan { pivots, inactive, selected, inverse: dense.into_inverse(), needed })
    }
}

/// State of the peeling phase.
struct Peeling<'a> {
    system: &'a System,
    state: Vec<Column>,
    pivots: Vec<(u32, u32, u8)>,
    inactive: Vec<u32>,
    used: Vec<bool>,
    /// Active columns left in each row.
    degree: Vec<u32>,
    column_starts: Vec<u32>,
    column_rows: Vec<u32>,
    /// Rows by degree, lazily: an entry counts only if the row still has that degree.
    buckets: Vec<Vec<u32>>,
}

/// Rows of higher degree share the last bucket.
const BUCKETS: usize = 24;

impl<'a> Peeling<'a> {
    fn new(system: &'a System) -> Self {
        let (rows, columns) = (system.equations(), system.columns);
        let mut column_starts = vec![0u32; columns + 1];
        let sparse = || (0..rows).filter(|r| !system.dense[*r]);
        for r in sparse() {
            for entry in system.row(r) {
                column_starts[entry.row as usize + 1] += 1;
            }
        }
        for c in 0..columns {
            column_starts[c + 1] += column_starts[c];
        }
        let mut next = column_starts.clone();
        let mut column_rows = vec![0u32; column_starts[columns] as usize];
        let mut degree = vec![0u32; rows];
        let mut buckets = vec![Vec::new(); BUCKETS + 1];
        for r in sparse() {
            for entry in system.row(r) {
                let at = &mut next[entry.row as usize];
                column_rows[*at as usize] = r as u32;
                *at += 1;
            }
            degree[r] = system.row(r).len() as u32;
            buckets[(degree[r] as usize).min(BUCKETS)].push(r as u32);
        }
        Self {
            system,
            state: vec![Column::Active; columns],
            pivots: Vec::with_capacity(columns),
            inactive: Vec::new(),
            used: vec![false; rows],
            degree,
            column_starts,
            column_rows,
            buckets,
        }
    }

    fn column_degree(&self, column: usize) -> u32 {
        self.column_starts[column + 1] - self.column_starts[column]
    }

    fn is_active(&self, column: usize) -> bool {
        self.state[column] == Column::Active
    }

    fn inactivate(&mut self, column: usize) {
        if self.is_active(column) {
            self.state[column] = Column::Inactive(self.inactive.len() as u32);
            self.inactive.push(column as u32);
            self.leave(column);
        }
    }

    /// A column is no longer active: its rows get shorter.
    fn leave(&mut self, column: usize) {
        for i in self.column_starts[column]..self.column_starts[column + 1] {
            let r = self.column_rows[i as usize];
            if !self.used[r as usize] {
                let degree = &mut self.degree[r as usize];
                *degree -= 1;
                if *degree > 0 {
                    self.buckets[(*degree as usize).min(BUCKETS)].push(r);
                }
            }
        }
    }

    fn run(&mut self) {
        while let Some(r) = self.shortest_row() {
            let row = self.system.row(r as usize);
            // Keep the active column that occurs least: setting aside the others shortens most rows.
            let Some(&pivot) = row.iter().filter(|e| self.is_active(e.row as usize)).min_by_key(|e| self.column_degree(e.row as usize))
            else {
                continue;
            };
            self.used[r as usize] = true;
            for entry in row.iter().filter(|e| e.row != pivot.row) {
                self.inactivate(entry.row as usize);
            }
            self.state[pivot.row as usize] = Column::Pivot(self.pivots.len() as u32);
            self.pivots.push((r, pivot.row, inv(pivot.factor)));
            self.leave(pivot.row as usize);
        }
        // Columns that no sparse row touches.
        for column in 0..self.system.columns {
            self.inactivate(column);
        }
    }

    /// An unused row of the lowest degree; among the first few, the one whose loss of columns helps most.
    fn shortest_row(&mut self) -> Option<u32> {
        const LOOK: usize = 12;
        for d in 1..=BUCKETS {
            let mut best: Option<(u32, u32)> = None;
            let (mut seen, mut at) = (0, self.buckets[d].len());
            while at > 0 && seen < LOOK {
                at -= 1;
                let r = self.buckets[d][at];
                let degree = self.degree[r as usize] as usize;
                if self.used[r as usize] || degree.min(BUCKETS) != d {
                    self.buckets[d].swap_remove(at);
                    continue;
                }
                seen += 1;
                if d == 1 {
                    return Some(r);
                }
                let row = self.system.row(r as usize);
                let weight: u32 = row.iter().filter(|e| self.is_active(e.row as usize)).map(|e| self.column_degree(e.row as usize)).sum();
                if best.is_none_or(|(w, _)| weight > w) {
                    best = Some((weight, r));
                }
            }
            if let Some((_, r)) = best {
                return Some(r);
            }
        }
        None
    }
}

/// Gauss-Jordan elimination with the inverse carried along.
#[derive(Clone, Debug)]
pub(crate) struct Elimination {
    width: usize,
    /// Row: `width` coefficients, then `width` weights over the inserted rows.
    rows: Vec<u8>,
    /// Row that has its pivot in this column.
    pivot_row: Vec<Option<u32>>,
    rank: usize,
    terms: Vec<RowTerm>,
}

impl Elimination {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, rows: vec![0; width * 2 * width], pivot_row: vec![None; width], rank: 0, terms: Vec::new() }
    }

    /// Adds a row; false if it depends on those held.
    pub(crate) fn insert(&mut self, row: &[u8]) -> bool {
        let (w, r) = (self.width, self.rank);
        if r == w {
            return false;
        }
        let stride = 2 * w;
        self.terms.clear();
        for (c, pivot) in row.iter().zip(&self.pivot_row) {
            if let (factor @ 1.., Some(row)) = (*c, *pivot) {
                self.terms.push(RowTerm { row, factor });
            }
        }
        let (held, rest) = self.rows.split_at_mut(r * stride);
        let used = w + r + 1;
        let new = &mut rest[..used];
        new[..w].copy_from_slice(row);
        new[w..].fill(0);
        new[w + r] = 1;
        kernels().gather(new, Arena { bytes: held, stride, column: 0 }, &self.terms);
        let Some(pivot) = new[..w].iter().position(|c| *c != 0) else { return false };
        let factor = inv(new[pivot]);
        kernels().scale(new, factor);
        for held in held.chunks_exact_mut(stride) {
            let c = held[pivot];
            kernels().mul_add(&mut held[..used], new, c);
        }
        self.pivot_row[pivot] = Some(r as u32);
        self.rank += 1;
        true
    }

    /// The inverse matrix, once the rank is full: row i gives unknown i from the inserted right-hand sides.
    pub(crate) fn into_inverse(self) -> Vec<u8> {
        let mut inverse = Vec::with_capacity(self.width * self.width);
        for row in self.pivot_row.iter().flatten() {
            inverse.extend_from_slice(&self.rows[*row as usize * 2 * self.width + self.width..][..self.width]);
        }
        inverse
    }
}

impl Plan {
    /// Number of columns that were solved densely.
    pub(crate) fn inactive(&self) -> usize {
        self.inactive.len()
    }

    /// Multiply-adds of packets that [`Plan::execute`] will make.
    pub(crate) fn multiply_adds(&self, system: &System) -> usize {
        let (i, mut count) = (self.inactive.len(), 0);
        for &(row, column, _) in &self.pivots {
            count += system.row(row as usize).len() * (1 + usize::from(self.needed[column as usize]));
        }
        count + i * i + self.selected.iter().map(|r| system.row(*r as usize).len()).sum::<usize>()
    }

    /// Computes all unknowns into their rows of `arena`. Right-hand sides of selected equations are overwritten.
    pub(crate) fn execute(&self, system: &System, layout: &Layout<'_>, arena: &mut [u8]) {
        let stride = layout.stride;
        let mut out = vec![0u8; stride];
        let mut terms: Vec<RowTerm> = Vec::new();
        let mut is_inactive = vec![false; system.columns];
        for column in &self.inactive {
            is_inactive[*column as usize] = true;
        }
        let row_of = |column: u32| layout.column_row[column as usize];
        let mut assign = |arena: &mut [u8], row: u32, terms: &[RowTerm]| {
            out.fill(0);
            kernels().gather(&mut out, Arena { bytes: arena, stride, column: 0 }, terms);
            arena[row as usize * stride..][..stride].copy_from_slice(&out);
        };
        // 1. Peeled columns as if all inactive ones were zero, as far as anything needs them.
        for &(equation, column, factor) in self.pivots.iter().filter(|(_, c, _)| self.needed[*c as usize]) {
            terms.clear();
            terms.push(RowTerm { row: layout.equation_row[equation as usize], factor });
            for e in system.row(equation as usize).iter().filter(|e| e.row != column && !is_inactive[e.row as usize]) {
                terms.push(RowTerm { row: row_of(e.row), factor: mul(e.factor, factor) });
            }
            assign(arena, row_of(column), &terms);
        }
        // 2. Selected equations without peeled columns.
        for &equation in &self.selected {
            let own = layout.equation_row[equation as usize];
            terms.clear();
            terms.push(RowTerm { row: own, factor: 1 });
            for e in system.row(equation as usize).iter().filter(|e| !is_inactive[e.row as usize]) {
                terms.push(RowTerm { row: row_of(e.row), factor: e.factor });
            }
            assign(arena, own, &terms);
        }
        // 3. Inactive columns: the inverse applied.
        for (&column, weights) in self.inactive.iter().zip(self.inverse.chunks_exact(self.inactive.len().max(1))) {
            terms.clear();
            terms.extend(
                self.selected
                    .iter()
                    .zip(weights)
                    .filter(|(_, w)| **w != 0)
                    .map(|(r, w)| RowTerm { row: layout.equation_row[*r as usize], factor: *w }),
            );
            assign(arena, row_of(column), &terms);
        }
        // 4. Peeled columns for good, each from its own sparse equation.
        for &(equation, column, factor) in &self.pivots {
            terms.clear();
            terms.push(RowTerm { row: layout.equation_row[equation as usize], factor });
            for e in system.row(equation as usize).iter().filter(|e| e.row != column) {
                terms.push(RowTerm { row: row_of(e.row), factor: mul(e.factor, factor) });
            }
            assign(arena, row_of(column), &terms);
        }
    }
}
