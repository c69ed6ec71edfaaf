//! Outer decoder of the noctule profile: what arrives, and where it is kept. Solving for what is missing is in `solver.rs`.

mod solver;

use super::encoder::room;
use super::{Profile, ProfileError};
use crate::gf256::{Arena, RowTerm, kernels, mul};
use crate::span::{Basis, Insert, MAX_SPAN};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// What became of a packet offered to a [`BlockDecoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It told something new about its batch.
    Innovative,
    /// Nothing new (a duplicate, a dependent combination, or the block is complete).
    Redundant,
    /// Coefficients or payload have a wrong length, or the batch has no such packet.
    Malformed,
    /// More repair packets are held than could ever be needed: their contents cannot be honest.
    Refused,
}

/// What is held of one batch that is not (or not only) uncoded source packets.
#[derive(Clone, Debug)]
struct Batch {
    basis: Basis,
    /// Arena rows of the basis's inserted rows.
    rows: Vec<u32>,
    /// Sources known at this time are subtracted from the rows (repair batches only).
    stamp: u32,
}

/// Repair batches whose known parts are kept: as many as are commonly interleaved.
const PARTS: usize = 16;

/// Decoder of one block: packets in as they arrive, source packets out as soon as they are known.
///
/// Work is spread over arrivals: what is known of a repair packet is subtracted when it comes, so that the last packet costs only the solution
/// of the missing ones. Memory, whatever is received: at most `2·K + 300` packets, of which repair packets take only as many as are missing; M
/// packets for each of the last 16 repair batches of which a recoded packet came; and `3·M²` bytes of coefficients for each batch with packets
/// in waiting, of which there are K + 256 at most.
#[derive(Clone, Debug)]
pub struct BlockDecoder {
    profile: Profile,
    stride: usize,
    /// K source packets, the parities, then rows of equations; as far as anything was written (no byte is touched before its packet comes).
    arena: Vec<u8>,
    /// Rows of the arena in use.
    rows: usize,
    /// For each source packet the time it became known, or 0.
    known_at: Vec<u32>,
    clock: u32,
    missing: usize,
    batches: BTreeMap<u32, Batch>,
    /// Known parts of the packets of the repair batches that recoded packets came of lately: batch, M packets.
    parts: VecDeque<(u32, Vec<u8>)>,
    /// Independent equations over missing packets, batch by batch.
    equations: usize,
    /// Equations to wait for before the next attempt.
    enough: usize,
    recovered: VecDeque<u32>,
    support: Vec<RowTerm>,
    inactivations: usize,
    multiply_adds: usize,
}

impl BlockDecoder {
    /// An empty decoder for packets of `packet_len` bytes.
    ///
    /// # Errors
    /// If the length is unusable.
    pub fn new(profile: Profile, packet_len: usize) -> Result<Self, ProfileError> {
        room(&profile, packet_len)?;
        // Room for the losses that the profile expects; more is added when it is needed.
        let spare = (profile.packets() * 4 / 25).clamp(16, profile.packets() + 16);
        let rows = profile.rows();
        Ok(Self {
            profile,
            stride: packet_len,
            arena: Vec::with_capacity((rows + spare) * packet_len),
            rows,
            known_at: vec![0; profile.packets()],
            clock: 1,
            missing: profile.packets(),
            batches: BTreeMap::new(),
            parts: VecDeque::new(),
            equations: 0,
            enough: 0,
            recovered: VecDeque::with_capacity(profile.packets()),
            support: Vec::new(),
            inactivations: 0,
            multiply_adds: 0,
        })
    }

    /// The parameters.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether every source packet is known.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// How many more innovative packets are needed: exact after a failed attempt, a lower bound that is nearly always exact before.
    pub fn wanted(&self) -> usize {
        if self.missing == 0 { 0 } else { self.missing.max(self.enough).saturating_sub(self.equations).max(1) }
    }

    /// Source packets not known yet.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Source packet `j` if it is known.
    pub fn source(&self, j: usize) -> Option<&[u8]> {
        (*self.known_at.get(j)? != 0).then(|| &self.arena[j * self.stride..][..self.stride])
    }

    /// The next source packet that became known, each once.
    pub fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let j = self.recovered.pop_front()? as usize;
        Some((j, &self.arena[j * self.stride..][..self.stride]))
    }

    /// The whole block (K · `packet_len` bytes) once it is complete.
    pub fn into_data(mut self) -> Option<Vec<u8>> {
        if self.missing > 0 {
            return None;
        }
        self.arena.truncate(self.profile.packets() * self.stride);
        Some(self.arena)
    }

    /// The whole block as a slice, once it is complete.
    pub fn data(&self) -> Option<&[u8]> {
        (self.missing == 0).then(|| &self.arena[..self.profile.packets() * self.stride])
    }

    /// Inactive columns of the solution and multiply-adds of packets made so far: the cost, for reports.
    pub fn cost(&self) -> (usize, usize) {
        (self.inactivations, self.multiply_adds)
    }

    /// Offers packet `index` of `batch` as the outer encoder made it.
    pub fn receive_uncoded(&mut self, batch: u32, index: usize, payload: &[u8]) -> Received {
        let n = self.profile.batch_len(batch);
        if index >= n || payload.len() > self.stride {
            return Received::Malformed;
        }
        if batch < self.profile.systematic_batches() && !self.batches.contains_key(&batch) {
            // The common case: a source packet of a batch without recoded packets.
            let j = batch as usize * self.profile.batch_size() + index;
            if self.known_at[j] != 0 {
                return Received::Redundant;
            }
            self.write_row(j, payload);
            self.learn(j);
            self.try_solve();
            return Received::Innovative;
        }
        let mut unit = [0u8; MAX_SPAN];
        unit[index] = 1;
        self.receive(batch, &unit[..n], payload)
    }

    /// Offers a packet of `batch` that may have been recoded: one coefficient for each packet of the batch.
    pub fn receive(&mut self, batch: u32, coefficients: &[u8], payload: &[u8]) -> Received {
        let n = self.profile.batch_len(batch);
        if coefficients.len() != n || payload.len() > self.stride {
            return Received::Malformed;
        }
        if self.is_complete() {
            return Received::Redundant;
        }
        if self.equations >= self.profile.packets() + 256 {
            return Received::Refused;
        }
        let outcome = if batch < self.profile.systematic_batches() {
            let single = single(coefficients);
            match single {
                Some((index, 1)) if !self.batches.contains_key(&batch) => return self.receive_uncoded(batch, index, payload),
                _ => self.receive_systematic(batch, coefficients, payload),
            }
        } else {
            self.receive_repair(batch, coefficients, payload)
        };
        if outcome == Received::Innovative {
            self.try_solve();
        }
        outcome
    }

    /// A recoded packet of a systematic batch, or any packet of a batch that has one.
    fn receive_systematic(&mut self, number: u32, coefficients: &[u8], payload: &[u8]) -> Received {
        let (m, n) = (self.profile.batch_size(), coefficients.len());
        let first = number as usize * m;
        let mut batch = self.batches.remove(&number).unwrap_or_else(|| {
            let mut batch = Batch { basis: Basis::new(n), rows: Vec::new(), stamp: 0 };
            let mut unit = [0u8; MAX_SPAN];
            for (i, _) in self.known_at[first..first + n].iter().enumerate().filter(|(_, at)| **at != 0) {
                unit[i] = 1;
                batch.basis.insert(&unit[..n]);
                batch.rows.push((first + i) as u32);
                unit[i] = 0;
            }
            while batch.basis.newly_solved().is_some() {}
            batch
        });
        let open = |b: &Basis| b.rank() - b.solved().count_ones() as usize;
        let before = open(&batch.basis);
        let outcome = match batch.basis.insert(coefficients) {
            Insert::Redundant => Received::Redundant,
            Insert::Innovative { .. } => {
                let row = match single(coefficients) {
                    Some((i, 1)) => first + i,
                    _ => self.new_row(),
                };
                self.write_row(row, payload);
                batch.rows.push(row as u32);
                while let Some(solved) = batch.basis.newly_solved() {
                    let j = first + solved.index;
                    let terms: Vec<RowTerm> = weigh(solved.weights, &batch.rows).collect();
                    // A packet received as it is lies in its place already.
                    if !(terms.len() == 1 && terms[0].row as usize == j) {
                        self.combine_into(j, &terms);
                    }
                    self.learn(j);
                }
                Received::Innovative
            }
        };
        self.equations = self.equations + open(&batch.basis) - before;
        self.batches.insert(number, batch);
        outcome
    }

    fn receive_repair(&mut self, number: u32, coefficients: &[u8], payload: &[u8]) -> Received {
        let (m, stamp) = (self.profile.batch_size(), self.clock);
        let mut batch = self.batches.remove(&number).unwrap_or_else(|| Batch { basis: Basis::new(m), rows: Vec::new(), stamp });
        let outcome = match batch.basis.insert(coefficients) {
            Insert::Redundant => Received::Redundant,
            Insert::Innovative { .. } => {
                let row = self.new_row();
                self.write_row(row, payload);
                match single(coefficients) {
                    Some((index, factor)) => self.subtract_known(number, index, factor, batch.stamp, row),
                    None => {
                        let parts = self.known_parts(number, batch.stamp);
                        let mut out = core::mem::take(&mut self.arena);
                        let terms: Vec<RowTerm> = weigh(coefficients, &(0..m as u32).collect::<Vec<_>>()).collect();
                        let arena = Arena { bytes: &parts, stride: self.stride, column: 0 };
                        kernels().gather(&mut out[row * self.stride..][..self.stride], arena, &terms);
                        self.arena = out;
                        self.parts.push_back((number, parts));
                    }
                }
                batch.rows.push(row as u32);
                self.equations += 1;
                Received::Innovative
            }
        };
        while batch.basis.newly_solved().is_some() {}
        self.batches.insert(number, batch);
        outcome
    }

    /// Takes out of `row` what sources known up to `stamp` contribute to `factor` · packet `index` of repair batch `number`.
    fn subtract_known(&mut self, number: u32, index: usize, factor: u8, stamp: u32, row: usize) {
        let mut support = core::mem::take(&mut self.support);
        self.profile.support(number, index, &mut support);
        support.retain_mut(|term| {
            term.factor = mul(term.factor, factor);
            self.known_at.get(term.row as usize).is_some_and(|at| *at != 0 && *at <= stamp)
        });
        self.multiply_adds += support.len();
        let (sources, rest) = self.arena.split_at_mut(self.profile.packets() * self.stride);
        let at = (row - self.profile.packets()) * self.stride;
        kernels().gather(&mut rest[at..at + self.stride], Arena { bytes: sources, stride: self.stride, column: 0 }, &support);
        self.support = support;
    }

    /// What sources known up to `stamp` contribute to each packet of a repair batch: taken out of those kept, or computed.
    fn known_parts(&mut self, number: u32, stamp: u32) -> Vec<u8> {
        if let Some((_, parts)) = self.parts.iter().position(|(batch, _)| *batch == number).and_then(|i| self.parts.remove(i)) {
            return parts;
        }
        let mut parts = if self.parts.len() == PARTS { self.parts.pop_front().map_or(Vec::new(), |(_, parts)| parts) } else { Vec::new() };
        parts.clear();
        parts.resize(self.profile.batch_size() * self.stride, 0);
        let mut support = core::mem::take(&mut self.support);
        for (index, part) in parts.chunks_exact_mut(self.stride).enumerate() {
            self.profile.support(number, index, &mut support);
            support.retain(|term| self.known_at.get(term.row as usize).is_some_and(|at| *at != 0 && *at <= stamp));
            self.multiply_adds += support.len();
            kernels().gather(part, Arena { bytes: &self.arena, stride: self.stride, column: 0 }, &support);
        }
        self.support = support;
        parts
    }

    /// The number of a new row, to be written at once.
    fn new_row(&mut self) -> usize {
        let row = self.rows;
        self.rows += 1;
        if self.arena.capacity() < self.rows * self.stride {
            // More than expected: by eighths, not by doubling.
            self.arena.reserve_exact((self.rows + self.rows / 8) * self.stride - self.arena.len());
        }
        row
    }

    /// Writes a row, zeros after the payload. Rows between the last one written and this one become zeros.
    fn write_row(&mut self, row: usize, payload: &[u8]) {
        let (at, end) = (row * self.stride, (row + 1) * self.stride);
        if self.arena.len() == at && payload.len() == self.stride {
            self.arena.extend_from_slice(payload); // in order and whole: the common case
        } else if self.arena.len() < end {
            self.arena.resize(at, 0);
            self.arena.extend_from_slice(payload);
            self.arena.resize(end, 0);
        } else {
            let (head, tail) = self.arena[at..end].split_at_mut(payload.len());
            head.copy_from_slice(payload);
            tail.fill(0);
        }
    }

    fn combine_into(&mut self, row: usize, terms: &[RowTerm]) {
        let mut out = vec![0; self.stride];
        kernels().gather(&mut out, Arena { bytes: &self.arena, stride: self.stride, column: 0 }, terms);
        self.multiply_adds += terms.len();
        self.write_row(row, &out);
    }

    fn learn(&mut self, j: usize) {
        self.clock = self.clock.saturating_add(1);
        self.known_at[j] = self.clock;
        self.missing -= 1;
        self.recovered.push_back(j as u32);
    }
}

/// The only non-zero coefficient, if there is exactly one.
fn single(coefficients: &[u8]) -> Option<(usize, u8)> {
    let mut nonzero = coefficients.iter().copied().enumerate().filter(|(_, c)| *c != 0);
    nonzero.next().filter(|_| nonzero.next().is_none())
}

/// Weights over rows as terms.
fn weigh<'a>(weights: &'a [u8], rows: &'a [u32]) -> impl Iterator<Item = RowTerm> + 'a {
    weights.iter().zip(rows).filter(|(w, _)| **w != 0).map(|(&factor, &row)| RowTerm { row, factor })
}
