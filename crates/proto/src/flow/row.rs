//! Packets of a batch as a relay holds them: what it passes on as it came, and combines anew (RFC 9426, inner code).
//!
//! To a relay, the packets that raised its rank are what source packets are to a source: each is passed on once as it came, and a deficit is
//! repaired with combinations of them. They are linearly independent, and whatever the next node has of the batch came from here, so rank follows
//! from counting as at a source ([`Batch`](super::batch::Batch)).

use super::mask;
use crate::ids::Seq;
use crate::wire::frame::Coefficients;
use bytes::Bytes;
use noctule_codes::gf256::kernels;
use noctule_codes::span::{MAX_SPAN, repair_coefficients};
use smallvec::SmallVec;

/// An innovative packet on its way through a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct Passing {
    /// First source sequence number of its batch.
    pub base: Seq,
    /// What it is in terms of source packets.
    pub row: Row,
    /// Its data.
    pub symbol: Bytes,
}

/// A held packet in terms of source packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Packets of the span when it was made.
    pub n: u8,
    /// What it is.
    pub form: RowForm,
}

/// What a held packet is.
#[derive(Clone, Debug, PartialEq)]
pub enum RowForm {
    /// A source packet, by its index in the batch.
    Source(u8),
    /// A combination.
    Combination {
        /// The shorter form in which its coefficients came, if it was not a vector.
        seeded: Option<Coefficients<'static>>,
        /// Its coefficients, one for each of the `n` packets.
        vector: SmallVec<[u8; 16]>,
    },
}

impl Row {
    /// Bytes beyond its data.
    pub fn bytes(&self) -> usize {
        match &self.form {
            RowForm::Combination { vector, .. } => vector.len(),
            RowForm::Source(_) => 0,
        }
    }

    /// Coefficients as they came.
    pub fn coefficients(&self) -> (Coefficients<'static>, Option<Box<Recoded>>) {
        match &self.form {
            RowForm::Source(index) => (Coefficients::Index(*index), None),
            RowForm::Combination { seeded: Some(form), .. } => (form.clone(), None),
            RowForm::Combination { vector, .. } => {
                let mut recoded = Recoded { n: self.n, ..Recoded::default() };
                recoded.vector[..vector.len()].copy_from_slice(vector);
                (Coefficients::Vector(&[]), Some(Box::new(recoded)))
            }
        }
    }
}

/// Coefficients that belong to one packet only.
#[derive(Clone, Debug, PartialEq)]
pub struct Recoded {
    /// Seed of the weights, to combine the data with.
    pub(super) seed: u16,
    n: u8,
    vector: [u8; MAX_SPAN],
}

impl Default for Recoded {
    fn default() -> Self {
        Self { seed: 0, n: 0, vector: [0; MAX_SPAN] }
    }
}

impl Recoded {
    /// One coefficient for each packet of the span.
    pub fn vector(&self) -> &[u8] {
        &self.vector[..usize::from(self.n)]
    }
}

/// Weights of the rows in the combination with a seed, and the packets that it covers.
///
/// A source packet has the coefficient that the seed gives it (docs/spec/codes.md §2), so that combinations of source packets alone keep the
/// short form; the k-th combination among the rows has that of the k-th packet from the back of the longest span. All columns are of one Cauchy
/// matrix: with the rows themselves the combinations are in general position as long as no column is used twice.
pub(super) fn weights(rows: &[Row], seed: u16, from: usize) -> [u8; MAX_SPAN] {
    let (mut columns, mut weights) = ([0; MAX_SPAN], [0; MAX_SPAN]);
    repair_coefficients(seed, MAX_SPAN, &mut columns);
    let mut combinations = 0;
    for (k, row) in rows.iter().enumerate().take(MAX_SPAN) {
        let column = match row.form {
            RowForm::Source(index) => usize::from(index) % MAX_SPAN,
            RowForm::Combination { .. } => {
                combinations = (combinations + 1).min(MAX_SPAN);
                MAX_SPAN - combinations
            }
        };
        if k >= from {
            weights[k] = columns[column];
        }
    }
    weights
}

/// The coefficients of a combination of rows `from..` in their shortest form, and the packets of its span.
pub(super) fn combine(rows: &[Row], seed: u16, from: usize) -> (u8, Coefficients<'static>, Option<Box<Recoded>>) {
    let used = &rows[from.min(rows.len())..];
    let n = used.iter().map(|row| row.n).max().unwrap_or(1);
    if let [row] = used {
        let (form, recoded) = row.coefficients();
        return (n, form, recoded);
    }
    let mut covered = 0u64;
    let is_plain = used.iter().all(|row| match row.form {
        RowForm::Source(index) => {
            covered |= 1 << index;
            true
        }
        RowForm::Combination { .. } => false,
    });
    if is_plain {
        let form = if covered == mask(n) { Coefficients::Seed(seed) } else { Coefficients::BitmapSeed { bitmap: covered, seed } };
        return (n, form, None);
    }
    let weights = weights(rows, seed, from);
    let mut recoded = Recoded { seed, n, ..Recoded::default() };
    for (row, weight) in rows.iter().zip(weights).filter(|(_, w)| *w != 0) {
        match &row.form {
            RowForm::Source(index) => recoded.vector[usize::from(*index) % MAX_SPAN] ^= weight,
            RowForm::Combination { vector, .. } => kernels().dot_add(&mut recoded.vector[..vector.len()], &[(weight, vector)]),
        }
    }
    (n, Coefficients::Vector(&[]), Some(Box::new(recoded)))
}
