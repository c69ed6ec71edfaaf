//! Outer decoder (RFC 9426 §3.4): belief propagation over batches, then inactivation where it stops.

use super::{DegreeDistribution, ParameterError, Parameters, batch_sampler, padding_len};
use crate::gf256::{Arena, RowTerm, kernels};
use crate::inactivation::{Elimination, Layout, System};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What became of a packet offered to a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It raised the rank of its batch.
    Innovative,
    /// Nothing new.
    Redundant,
    /// Wrong length, or a batch id of 2^13 or more.
    Malformed,
    /// The decoder holds twice as many packets as the block has. So contents or degrees are wrong, and it takes no more.
    Refused,
}

#[derive(Clone, Debug)]
struct Batch {
    /// idx[j]: the source packets of the batch.
    indices: Vec<u32>,
    /// Transposed generator: row c holds the coefficients of coded packet c, one per source packet of the batch.
    columns: Vec<u8>,
    /// H[j]: coefficient vectors received, to recognise dependent packets.
    vectors: Elimination,
    /// Row r: the coefficients of packet r over the batch's source packets (G·h); those of known ones are zero.
    rows: Vec<Vec<u8>>,
    /// Rows of the arena with the batch's data, from which known source packets were taken out.
    data: Vec<u32>,
    unknown: usize,
    solved: bool,
}

/// Decoder of one BATS session.
///
/// Bounds of memory, whatever is received: K source packets and 2·K + 256 coded ones. Each batch of which a packet came (at most 2^13) adds its d x M
/// generator and 2·M² bytes of coefficients.
#[derive(Clone, Debug)]
pub struct Decoder {
    parameters: Parameters,
    degrees: DegreeDistribution,
    source_packets: usize,
    /// K source packets, then rows of received data.
    arena: Vec<u8>,
    rows: usize,
    known: Vec<bool>,
    missing: usize,
    batches: BTreeMap<u16, Batch>,
    /// For each source packet the batches that contain it.
    users: Vec<Vec<u16>>,
    rank: usize,
    enough: usize,
}

impl Decoder {
    /// A decoder for K = `source_packets`.
    ///
    /// # Errors
    /// If K is 0 or 2^16 or more.
    pub fn new(parameters: Parameters, degrees: DegreeDistribution, source_packets: usize) -> Result<Self, ParameterError> {
        if source_packets == 0 || source_packets >= 1 << 16 {
            return Err(ParameterError::SourcePackets(source_packets));
        }
        Ok(Self {
            parameters,
            degrees,
            source_packets,
            arena: vec![0; source_packets * parameters.data_len()],
            rows: source_packets,
            known: vec![false; source_packets],
            missing: source_packets,
            batches: BTreeMap::new(),
            users: vec![Vec::new(); source_packets],
            rank: 0,
            enough: source_packets,
        })
    }

    /// Whether all K source packets are known.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Total rank of the batches received.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Source packet `k`, if it is known.
    pub fn source(&self, k: usize) -> Option<&[u8]> {
        let t = self.parameters.data_len();
        (*self.known.get(k)?).then(|| &self.arena[k * t..][..t])
    }

    /// The data without padding, once complete; `None` also if the last packet does not end in padding.
    pub fn into_data(mut self) -> Option<Vec<u8>> {
        let t = self.parameters.data_len();
        let padding = padding_len(self.source(self.source_packets - 1)?)?;
        if self.missing > 0 {
            return None;
        }
        self.arena.truncate(self.source_packets * t - padding);
        Some(self.arena)
    }

    /// Offers a coded packet of batch `bid`: coefficient vector and data, TO octets.
    pub fn receive(&mut self, bid: u16, packet: &[u8]) -> Received {
        if packet.len() != self.parameters.payload_len() || bid > super::CodingHeader::MAX_BATCH_ID {
            return Received::Malformed;
        }
        if self.is_complete() {
            return Received::Redundant;
        }
        if self.rank >= 2 * self.source_packets + 256 {
            return Received::Refused;
        }
        let (header, payload) = packet.split_at(self.parameters.coefficient_len());
        let mut batch = self.batches.remove(&bid).unwrap_or_else(|| self.open(bid));
        let outcome = self.receive_in(&mut batch, header, payload);
        let try_batch = outcome == Received::Innovative;
        self.batches.insert(bid, batch);
        if try_batch {
            self.rank += 1;
            self.propagate(bid);
            if self.missing > 0 && self.rank >= self.enough {
                self.inactivate();
            }
        }
        outcome
    }

    fn open(&mut self, bid: u16) -> Batch {
        let m = self.parameters.batch_size();
        let degree = self.degrees.sample(bid, self.source_packets);
        let (indices, generator) = batch_sampler(bid, degree, self.source_packets, m);
        let mut columns = vec![0; generator.len()];
        for (k, row) in generator.chunks_exact(m).enumerate() {
            for (c, g) in row.iter().enumerate() {
                columns[c * indices.len() + k] = *g;
            }
        }
        for k in &indices {
            self.users[*k as usize].push(bid);
        }
        let unknown = indices.iter().filter(|k| !self.known[**k as usize]).count();
        Batch { indices, columns, vectors: Elimination::new(m), rows: Vec::new(), data: Vec::new(), unknown, solved: unknown == 0 }
    }

    fn receive_in(&mut self, batch: &mut Batch, header: &[u8], payload: &[u8]) -> Received {
        let m = self.parameters.batch_size();
        let vector: Vec<u8> = (0..m).map(|i| self.parameters.coefficient(header, i)).collect();
        if batch.solved || !batch.vectors.insert(&vector) {
            return Received::Redundant;
        }
        // G·h over the batch's source packets; known ones are subtracted from the data.
        let d = batch.indices.len();
        let terms: Vec<RowTerm> = vector.iter().enumerate().map(|(c, &factor)| RowTerm { row: c as u32, factor }).collect();
        let mut row = vec![0; d];
        kernels().gather(&mut row, Arena { bytes: &batch.columns, stride: d, column: 0 }, &terms);
        let mut data = payload.to_vec();
        let mut known = Vec::new();
        for (factor, &k) in row.iter_mut().zip(&batch.indices).filter(|(_, k)| self.known[**k as usize]) {
            known.push(RowTerm { row: k, factor: core::mem::take(factor) });
        }
        let t = self.parameters.data_len();
        kernels().gather(&mut data, Arena { bytes: &self.arena, stride: t, column: 0 }, &known);
        batch.data.push(self.push_row(&data));
        batch.rows.push(row);
        Received::Innovative
    }

    fn push_row(&mut self, data: &[u8]) -> u32 {
        self.arena.truncate(self.rows * self.parameters.data_len());
        self.arena.extend_from_slice(data);
        self.rows += 1;
        (self.rows - 1) as u32
    }

    /// Belief propagation, starting from a batch that has changed.
    fn propagate(&mut self, bid: u16) {
        let mut queue = vec![bid];
        while let Some(bid) = queue.pop() {
            let Some(mut batch) = self.batches.remove(&bid) else { continue };
            let decoded = if batch.solved { Vec::new() } else { self.decode_batch(&mut batch) };
            self.batches.insert(bid, batch);
            for k in decoded {
                for user in core::mem::take(&mut self.users[k as usize]) {
                    self.substitute(user, k);
                    queue.push(user);
                }
            }
        }
    }

    /// Decoding step: solves a batch whose rank equals its number of unknown source packets; returns those.
    fn decode_batch(&mut self, batch: &mut Batch) -> Vec<u32> {
        if batch.unknown == 0 || batch.rows.len() < batch.unknown {
            batch.solved = batch.unknown == 0;
            return Vec::new();
        }
        let places: Vec<usize> = (0..batch.indices.len()).filter(|i| !self.known[batch.indices[*i] as usize]).collect();
        let mut elimination = Elimination::new(places.len());
        let mut used = Vec::new();
        for (row, &data) in batch.rows.iter().zip(&batch.data) {
            let restricted: Vec<u8> = places.iter().map(|i| row[*i]).collect();
            if elimination.insert(&restricted) {
                used.push(data);
            }
        }
        if used.len() < places.len() {
            return Vec::new();
        }
        let t = self.parameters.data_len();
        let inverse = elimination.into_inverse();
        let mut decoded = Vec::new();
        for (place, weights) in places.iter().zip(inverse.chunks_exact(places.len())) {
            let terms: Vec<RowTerm> = used.iter().zip(weights).map(|(&row, &factor)| RowTerm { row, factor }).collect();
            let mut out = vec![0; t];
            kernels().gather(&mut out, Arena { bytes: &self.arena, stride: t, column: 0 }, &terms);
            let k = batch.indices[*place];
            self.arena[k as usize * t..][..t].copy_from_slice(&out);
            self.known[k as usize] = true;
            self.missing -= 1;
            decoded.push(k);
        }
        (batch.unknown, batch.solved) = (0, true);
        (batch.rows, batch.data) = (Vec::new(), Vec::new());
        decoded
    }

    /// Substitution step: takes source packet `k` out of a batch.
    fn substitute(&mut self, bid: u16, k: u32) {
        let t = self.parameters.data_len();
        let Some(batch) = self.batches.get_mut(&bid).filter(|b| !b.solved) else { return };
        let Some(place) = batch.indices.iter().position(|i| *i == k) else { return };
        batch.unknown -= 1;
        let (sources, rest) = self.arena.split_at_mut(self.source_packets * t);
        let source = &sources[k as usize * t..][..t];
        for (row, &data) in batch.rows.iter_mut().zip(&batch.data) {
            let c = core::mem::take(&mut row[place]);
            kernels().mul_add(&mut rest[(data as usize - self.source_packets) * t..][..t], source, c);
        }
    }

    /// Solves for the packets that belief propagation has not found.
    fn inactivate(&mut self) {
        let missing: Vec<u32> = (0..self.source_packets as u32).filter(|k| !self.known[*k as usize]).collect();
        let mut slot = vec![0u32; self.source_packets];
        for (i, k) in missing.iter().enumerate() {
            slot[*k as usize] = i as u32;
        }
        let mut system = System::new(missing.len());
        let mut equation_row = Vec::new();
        for batch in self.batches.values().filter(|b| !b.solved) {
            for (row, data) in batch.rows.iter().zip(&batch.data) {
                let entries = row.iter().zip(&batch.indices).filter(|(factor, _)| **factor != 0);
                system.push(entries.map(|(&factor, &k)| RowTerm { row: slot[k as usize], factor }), false);
                equation_row.push(*data);
            }
        }
        match system.plan([]) {
            Err(short) => self.enough = self.rank + short,
            Ok(plan) => {
                let layout = Layout { column_row: &missing, equation_row: &equation_row, stride: self.parameters.data_len() };
                plan.execute(&system, &layout, &mut self.arena);
                self.known.fill(true);
                self.missing = 0;
                self.batches.clear();
            }
        }
    }
}
