//! What a node holds of a batch: rows that raised its rank, and random combinations of them.

use super::{Coefficients, Packet};
use noctule_codes::span::{Basis, Insert, MAX_SPAN, encode};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;

/// Bytes that a row takes beside its symbol.
const ROW: usize = 24;

/// Rows of one batch.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) batch: u16,
    basis: Basis,
    symbols: Vec<Vec<u8>>,
}

impl Held {
    pub(super) fn new(batch: u16, batch_size: u8) -> Self {
        Self { batch, basis: Basis::new(usize::from(batch_size)), symbols: Vec::new() }
    }

    pub(super) fn rank(&self) -> usize {
        self.basis.rank()
    }

    /// Keeps a packet if it raises the rank; true if it did.
    pub(super) fn insert(&mut self, packet: &Packet<'_>) -> bool {
        let mut row = [0; MAX_SPAN];
        let row = &mut row[..self.basis.n()];
        packet.vector(row);
        let is_innovative = matches!(self.basis.insert(row), Insert::Innovative { .. });
        if is_innovative {
            self.symbols.push(packet.symbol.to_vec());
        }
        is_innovative
    }

    /// Appends a random combination of all rows, as the datagram that `like` describes but for coefficients and symbol.
    pub(super) fn combine(&self, like: Packet<'_>, rng: &mut ChaCha12Rng, out: &mut Vec<u8>) {
        let mut weights = [0; MAX_SPAN];
        for chunk in weights[..self.rank()].chunks_mut(8) {
            for (weight, byte) in chunk.iter_mut().zip(rng.next_u64().to_le_bytes()) {
                *weight = byte.max(1);
            }
        }
        let weights = &weights[..self.rank()];
        let mut vector = [0; MAX_SPAN];
        let vector = &mut vector[..self.basis.n()];
        self.basis.recode_coefficients(weights, vector);
        let rows: Vec<&[u8]> = self.symbols.iter().map(Vec::as_slice).collect();
        let mut symbol = vec![0; rows.iter().map(|s| s.len()).max().unwrap_or(0)];
        encode(weights, &rows, &mut symbol);
        Packet { batch: self.batch, coefficients: Coefficients::Vector(vector), symbol: &symbol, ..like }.emit(out);
    }

    /// Whether a packet would raise the rank.
    pub(super) fn is_innovative(&self, packet: &Packet<'_>) -> bool {
        let mut row = [0; MAX_SPAN];
        let row = &mut row[..self.basis.n()];
        packet.vector(row);
        self.basis.is_innovative(row)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        let n = self.basis.n();
        3 * n * n + self.symbols.iter().map(|s| s.len() + ROW).sum::<usize>()
    }

    /// Bytes of a batch of which nothing is held, and of a packet that is.
    pub(super) fn empty_memory(batch_size: u8) -> usize {
        3 * usize::from(batch_size) * usize::from(batch_size)
    }

    /// See above.
    pub(super) fn row_memory(packet: &Packet<'_>) -> usize {
        packet.symbol.len() + ROW
    }
}

/// In which order batches that take turns send `counts[i]` packets each.
pub(super) fn in_turn(counts: &[usize]) -> impl Iterator<Item = usize> + '_ {
    let most = counts.iter().copied().max().unwrap_or(0);
    (0..most).flat_map(move |round| counts.iter().enumerate().filter(move |(_, count)| round < **count).map(|(i, _)| i))
}
