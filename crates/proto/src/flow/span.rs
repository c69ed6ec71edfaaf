//! What a receiver holds of one batch: rows as they came, and the basis of their coefficients once a combination is among them.

use super::mask;
use super::slab::Slab;
use bytes::Bytes;
use noctule_codes::gf256::kernels;
use noctule_codes::span::{Basis, Insert, MAX_SPAN};

/// Receiver's state of one batch.
#[derive(Debug, Default)]
pub(super) struct Span {
    /// Packets whose symbol is known.
    solved: u64,
    /// Packets that nobody waits for any more.
    given_up: u64,
    /// Symbols and combinations in the order of the basis; kept until everything is solved, for decoding.
    rows: Vec<Bytes>,
    /// Index of the packet for rows that came uncoded, `COMBINATION` for others; as long as `rows`.
    kinds: Vec<u8>,
    /// Made when the first combination arrives: most spans need none.
    basis: Option<Box<Basis>>,
}

const COMBINATION: u8 = u8::MAX;

/// A packet that became known.
#[derive(Debug)]
pub(super) struct Solved {
    pub index: u8,
    pub symbol: Bytes,
    pub is_decoded: bool,
}

/// Memory that spans share: freed rows and bases waiting for reuse.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub slab: Slab,
    #[expect(clippy::vec_box, reason = "boxes wander between spans, which stay small because of them")]
    bases: Vec<Box<Basis>>,
    vectors: Vec<(Vec<Bytes>, Vec<u8>)>,
    /// Bytes of rows held by spans.
    pub bytes: usize,
    /// Of these, symbols that came uncoded and were handed over as they are: other holders share their memory.
    pub handed_over: usize,
}

/// Freed bases and vectors kept.
const MOST_SPARE: usize = 64;

/// What an offered packet did to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Innovative,
    Redundant,
    /// A decoded symbol contradicts itself: the span's combinations were dropped.
    Contradiction,
}

/// Bytes that a row costs beyond its own.
const ROW_OVERHEAD: usize = 40;

impl Span {
    /// Packets that are known or given up.
    pub fn settled(&self) -> u64 {
        self.solved | self.given_up
    }

    /// Rank held within the first `n` packets.
    pub fn rank(&self, n: u8) -> u8 {
        let solved = (self.solved & mask(n)).count_ones() as usize;
        // Rows beyond the solved ones are combinations; those of longer prefixes hardly ever occur beside them.
        self.basis.as_ref().map_or(solved, |b| b.rank().max(solved)).min(n.into()) as u8
    }

    /// Packets among the first `n` that are neither known nor given up.
    pub fn missing(&self, n: u8) -> u64 {
        mask(n) & !self.settled()
    }

    /// Packets that came uncoded and whose rows are still held.
    pub fn held(&self) -> impl Iterator<Item = (u8, &Bytes)> {
        self.kinds.iter().copied().zip(&self.rows).filter(|(kind, _)| *kind != COMBINATION)
    }

    pub fn give_up(&mut self, packets: u64) {
        self.given_up |= packets & !self.solved;
    }

    /// Combinations held that have not given packets yet: so many may be decoded at once.
    pub fn combinations(&self) -> usize {
        self.rows.len().saturating_sub(self.solved.count_ones() as usize)
    }

    /// A source packet came uncoded.
    pub fn on_source(&mut self, index: u8, symbol: &[u8], pool: &mut Pool, ready: &mut Vec<Solved>) -> Received {
        if self.solved >> index & 1 == 1 {
            return Received::Redundant;
        }
        let row = pool.slab.copy(symbol);
        if let Some(basis) = &mut self.basis {
            // Redundant here: a combination of rows held, not determined before only if the basis is inconsistent. Delivered all the same.
            if let Insert::Innovative { .. } = basis.insert(&unit(index)[..basis.n()]) {
                self.keep(row.clone(), index, pool);
            }
            self.deliver(index, row, false, ready);
            return self.decode(pool, ready);
        }
        self.keep(row.clone(), index, pool);
        self.deliver(index, row, false, ready);
        Received::Innovative
    }

    /// A combination came; `coefficients` has one entry for every packet of a full batch.
    pub fn on_combination(&mut self, coefficients: &[u8], symbol: &[u8], pool: &mut Pool, ready: &mut Vec<Solved>) -> Received {
        let covered = coefficients.iter().enumerate().fold(0u64, |bits, (j, c)| bits | u64::from(*c != 0) << j);
        if covered & !self.solved == 0 {
            return Received::Redundant;
        }
        if self.basis(coefficients.len(), pool).insert(coefficients) == Insert::Redundant {
            return Received::Redundant;
        }
        let row = pool.slab.copy(symbol);
        self.keep(row, COMBINATION, pool);
        self.decode(pool, ready)
    }

    /// A relay: source packet `index` came. Only what is known is noted, the packet passes on.
    pub fn note_source(&mut self, index: u8) -> Received {
        if self.solved >> index & 1 == 1 {
            return Received::Redundant;
        }
        match &mut self.basis {
            Some(basis) => {
                if basis.insert(&unit(index)[..basis.n()]) == Insert::Redundant {
                    return Received::Redundant;
                }
                self.note_solved();
            }
            None => self.kinds.push(index),
        }
        self.solved |= 1 << index;
        self.given_up &= !(1 << index);
        Received::Innovative
    }

    /// A relay: a combination came; `coefficients` has one entry for every packet of a full batch.
    pub fn note_combination(&mut self, coefficients: &[u8], pool: &mut Pool) -> Received {
        let covered = coefficients.iter().enumerate().fold(0u64, |bits, (j, c)| bits | u64::from(*c != 0) << j);
        if covered & !self.solved == 0 || self.basis(coefficients.len(), pool).insert(coefficients) == Insert::Redundant {
            return Received::Redundant;
        }
        self.note_solved();
        Received::Innovative
    }

    /// What the basis has determined counts as known; nobody computes it here.
    fn note_solved(&mut self) {
        if let Some(basis) = &self.basis {
            self.solved |= basis.solved();
            self.given_up &= !self.solved;
        }
    }

    /// The basis, made when the first combination comes.
    fn basis(&mut self, n: usize, pool: &mut Pool) -> &mut Basis {
        self.basis.get_or_insert_with(|| {
            pool.bytes += basis_bytes(n);
            let mut basis = pool.bases.pop().unwrap_or_else(|| Box::new(Basis::new(n)));
            basis.reset(n);
            for index in &self.kinds {
                basis.insert(&unit(*index)[..n]);
            }
            basis
        })
    }

    fn keep(&mut self, row: Bytes, kind: u8, pool: &mut Pool) {
        if self.rows.capacity() == 0
            && let Some((rows, kinds)) = pool.vectors.pop()
        {
            (self.rows, self.kinds) = (rows, kinds);
        }
        pool.bytes += row.len() + ROW_OVERHEAD;
        pool.handed_over += if kind == COMBINATION { 0 } else { row.len() };
        self.rows.push(row);
        self.kinds.push(kind);
    }

    fn deliver(&mut self, index: u8, symbol: Bytes, is_decoded: bool, ready: &mut Vec<Solved>) {
        self.solved |= 1 << index;
        if self.given_up >> index & 1 == 0 {
            ready.push(Solved { index, symbol, is_decoded });
        }
        self.given_up &= !(1 << index);
    }

    /// Computes the packets that the basis has determined and that are not known yet.
    fn decode(&mut self, pool: &mut Pool, ready: &mut Vec<Solved>) -> Received {
        let Some(mut basis) = self.basis.take() else { return Received::Innovative };
        let mut is_sound = true;
        while let Some(solved) = basis.newly_solved() {
            let index = solved.index as u8;
            if self.solved >> index & 1 == 1 {
                continue;
            }
            let mut terms: [(u8, &[u8]); MAX_SPAN] = [(0, &[]); MAX_SPAN];
            let (mut count, mut longest) = (0, 0);
            for (weight, row) in solved.weights.iter().zip(&self.rows).filter(|(w, _)| **w != 0) {
                terms[count] = (*weight, row);
                count += 1;
                longest = longest.max(row.len());
            }
            let symbol = pool.slab.fill(longest, |out| kernels().dot_add(out, &terms[..count]));
            match trim(&symbol) {
                Some(len) => self.deliver(index, symbol.slice(..len), true, ready),
                None => is_sound = false,
            }
        }
        self.basis = Some(basis);
        if is_sound {
            return Received::Innovative;
        }
        self.drop_combinations(pool);
        Received::Contradiction
    }

    /// Forgets combinations that contradict each other; uncoded packets stand on their own.
    fn drop_combinations(&mut self, pool: &mut Pool) {
        self.release_basis(pool);
        let mut kinds = self.kinds.iter();
        let bytes = &mut pool.bytes;
        self.rows.retain(|row| {
            let keep = kinds.next().is_some_and(|kind| *kind != COMBINATION);
            *bytes -= if keep { 0 } else { row.len() + ROW_OVERHEAD };
            keep
        });
        self.kinds.retain(|kind| *kind != COMBINATION);
        // Decoded packets have no row of their own; a basis made later leaves them unknown, so that they are decoded again and not delivered twice.
    }

    fn release_basis(&mut self, pool: &mut Pool) {
        let Some(basis) = self.basis.take() else { return };
        pool.bytes -= basis_bytes(basis.n());
        if pool.bases.len() < MOST_SPARE {
            pool.bases.push(basis);
        }
    }

    /// Gives the memory back to the pool: nothing of this span will be needed for decoding.
    pub fn release(&mut self, pool: &mut Pool) {
        pool.bytes -= self.rows.iter().map(|r| r.len() + ROW_OVERHEAD).sum::<usize>();
        pool.handed_over -= self.held().map(|(_, row)| row.len()).sum::<usize>();
        self.release_basis(pool);
        let (mut rows, mut kinds) = (core::mem::take(&mut self.rows), core::mem::take(&mut self.kinds));
        if rows.capacity() > 0 && pool.vectors.len() < MOST_SPARE {
            rows.clear();
            kinds.clear();
            pool.vectors.push((rows, kinds));
        }
    }
}

/// Most that one row adds beyond its bytes: its place, and the basis if it is the first combination.
pub(super) fn row_bytes(batch_size: u8) -> usize {
    ROW_OVERHEAD + basis_bytes(batch_size.into())
}

/// Memory of a basis over `n` packets, as `noctule_codes` states it.
fn basis_bytes(n: usize) -> usize {
    3 * n * n + 3 * n + size_of::<Basis>()
}

fn unit(index: u8) -> [u8; MAX_SPAN] {
    let mut vector = [0; MAX_SPAN];
    vector[usize::from(index)] = 1;
    vector
}

/// Length of a decoded symbol without its padding; `None` if it contradicts its own length field (P5).
pub(super) fn trim(symbol: &[u8]) -> Option<usize> {
    let (length, rest) = symbol.split_first_chunk::<2>()?;
    let data = usize::from(u16::from_be_bytes(*length));
    let padding = rest.get(data..)?;
    padding.iter().all(|b| *b == 0).then_some(2 + data)
}
