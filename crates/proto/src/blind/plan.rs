//! How a stream is cut, and how much is sent when nobody says what arrives: from the losses of the links to packets per batch and batches per block.

use super::packet::MOST_IN_GROUP;
use crate::crypto::SESSION_OVERHEAD;
use crate::units::Probability;
use noctule_codes::bats::Profile;
use noctule_codes::recoding::{self, RankDistribution};

/// The cut of a stream: what all its nodes agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    block_packets: u16,
    batch_size: u8,
    depth: u8,
    symbol: u16,
    low_loss: u16,
}

/// A shape, or losses, with which no stream can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The batch size is none of the permitted ones.
    #[error("batches of {0} packets: 8, 16, 32 or 64, please")]
    BatchSize(u8),
    /// So many batches cannot take turns.
    #[error("{0} batches in turn: a power of two, with {MOST_IN_GROUP} packets in all at most, please")]
    Depth(u8),
    /// A block is not whole groups of batches.
    #[error("blocks of {packets} packets are no multiple of {group}, the packets of the batches that take turns")]
    Block {
        /// As given.
        packets: u16,
        /// Batch size times depth.
        group: u32,
    },
    /// Symbols too short to be sealed.
    #[error("symbols of {0} bytes: 64 at least")]
    Symbol(u16),
    /// Nothing arrives over such links, or more batches are needed than a block can have.
    #[error("over links that lose so much no block arrives")]
    Losses,
}

/// Standard deviations of the rank that arrives of a block by which more is sent: one block in 2000 falls short.
const MARGIN: f64 = 3.3;
/// Packets that the outer code needs beyond K: a share of what is missing when only the first batches arrived, and a few.
const CODE_SHARE: f64 = 0.01;
const CODE_PACKETS: f64 = 4.0;

impl Shape {
    /// Blocks of `block_packets` packets in batches of `batch_size`, of which `depth` take turns; symbols of at most `symbol` bytes.
    ///
    /// Small blocks and depths keep the delay small, large ones the redundancy: a message waits for at most one block, and a burst of b losses takes
    /// b / `depth` packets of a batch.
    ///
    /// # Errors
    /// As [`ShapeError`] says.
    pub fn new(block_packets: u16, batch_size: u8, depth: u8, symbol: u16) -> Result<Self, ShapeError> {
        if !matches!(batch_size, 8 | 16 | 32 | 64) {
            return Err(ShapeError::BatchSize(batch_size));
        }
        if !depth.is_power_of_two() || depth > 128 {
            return Err(ShapeError::Depth(depth));
        }
        let group = u32::from(batch_size) * u32::from(depth);
        if group > MOST_IN_GROUP {
            return Err(ShapeError::Depth(depth));
        }
        if block_packets == 0 || !u32::from(block_packets).is_multiple_of(group) {
            return Err(ShapeError::Block { packets: block_packets, group });
        }
        if symbol < 64 {
            return Err(ShapeError::Symbol(symbol));
        }
        Ok(Self { block_packets, batch_size, depth, symbol, low_loss: 50 })
    }

    /// Packets of a block.
    pub fn block_packets(&self) -> usize {
        usize::from(self.block_packets)
    }

    /// Packets of a batch.
    pub fn batch_size(&self) -> u8 {
        self.batch_size
    }

    /// Batches that take turns.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// Bytes of the largest symbol.
    pub fn symbol(&self) -> u16 {
        self.symbol
    }

    /// Bytes of the largest message.
    pub fn max_message(&self) -> usize {
        usize::from(self.symbol) - 2 - SESSION_OVERHEAD
    }

    pub(super) fn profile(&self) -> Option<Profile> {
        Profile::new(self.block_packets(), usize::from(self.batch_size), self.low_loss).ok()
    }

    /// Batch and index of the n-th packet of a block in the order of sending, batches taking turns.
    pub(super) fn place(&self, n: usize) -> (u16, usize) {
        let (depth, size) = (usize::from(self.depth), usize::from(self.batch_size));
        let (group, within) = (n / (depth * size), n % (depth * size));
        ((group * depth + within % depth) as u16, within / depth)
    }

    /// Where in that order source packet `j` of a block comes.
    pub(super) fn order(&self, j: usize) -> usize {
        let (depth, size) = (usize::from(self.depth), usize::from(self.batch_size));
        let (batch, index) = (j / size, j % size);
        (batch / depth) * depth * size + index * depth + batch % depth
    }
}

/// How much is sent of a stream, for given losses of the links on its route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Packets sent per batch at each node, on average.
    sends: f64,
    /// Rank that arrives of a batch, on average.
    rank: f64,
    /// Batches of a block, those of source packets included.
    batches: u16,
}

impl Plan {
    /// The plan that brings most to the end of links that lose packets with these probabilities, one after the other, all of one rate.
    ///
    /// # Errors
    /// Nothing would arrive.
    pub fn new(shape: &Shape, losses: &[Probability]) -> Result<Self, ShapeError> {
        let size = usize::from(shape.batch_size);
        let mut best: Option<(f64, f64, RankDistribution)> = None;
        // Packets per batch and node from one for each packet to two, which is beyond the best at any loss that leaves anything.
        for step in 0..=50 {
            let sends = size as f64 * (1.0 + f64::from(step) * 0.02);
            let ranks = ranks_after(size, losses, sends);
            let value = ranks.mean() / sends;
            if best.as_ref().is_none_or(|(known, ..)| value > known * 1.0005) {
                best = Some((value, sends, ranks));
            }
        }
        let (value, sends, ranks) = best.ok_or(ShapeError::Losses)?;
        if value < 0.01 {
            return Err(ShapeError::Losses);
        }
        let mean = ranks.mean();
        let square: f64 = (0..=size).map(|r| ranks.probability(r).get() * (r * r) as f64).sum();
        let deviation = (square - mean * mean).max(0.0).sqrt();
        let missing = shape.block_packets() as f64 * (1.0 - mean / size as f64);
        let wanted = shape.block_packets() as f64 + missing * CODE_SHARE + if missing > 0.01 { CODE_PACKETS } else { 0.0 };
        // The smallest n with n·mean - margin·deviation·sqrt(n) >= wanted, in whole groups.
        let root = (MARGIN * deviation + ((MARGIN * deviation).powi(2) + 4.0 * mean * wanted).sqrt()) / (2.0 * mean);
        let depth = f64::from(shape.depth);
        let batches = ((root * root - 1e-9) / depth).ceil() * depth;
        if batches > f64::from(u16::MAX) {
            return Err(ShapeError::Losses);
        }
        Ok(Self { sends, rank: mean, batches: batches as u16 })
    }

    /// Batches of a block.
    pub fn batches(&self) -> u16 {
        self.batches
    }

    /// Packets sent of a block at each node, on average, for each packet of the block: 1 over links that lose nothing.
    pub fn redundancy(&self, shape: &Shape) -> f64 {
        self.sends * f64::from(self.batches) / shape.block_packets() as f64
    }

    /// Rank that is expected to arrive of a batch: a share of the batch size.
    pub fn arriving(&self, shape: &Shape) -> Probability {
        Probability::new(self.rank / f64::from(shape.batch_size))
    }

    /// Rank that arrives for each packet that a node sends: what no outer code can exceed.
    pub fn rate(&self) -> Probability {
        Probability::new(self.rank / self.sends)
    }

    /// Packets per batch and node.
    pub(super) fn sends(&self) -> f64 {
        self.sends
    }
}

fn ranks_after(size: usize, losses: &[Probability], sends: f64) -> RankDistribution {
    losses.iter().fold(RankDistribution::full(size), |ranks, loss| {
        let loss = recoding::Probability::new(loss.get());
        ranks.after_link(loss, &ranks.adaptive(loss, sends))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(size: u8, losses: &[f64]) -> (Shape, Plan) {
        let shape = Shape::new(4096, size, 1, 1400).unwrap();
        let losses: Vec<Probability> = losses.iter().map(|p| Probability::new(*p)).collect();
        (shape, Plan::new(&shape, &losses).unwrap())
    }

    #[test]
    fn a_plan_reaches_what_adaptive_recoding_can() {
        // The best of adaptive recoding over six links: the exact Markov chain that the table of limits gives.
        for (size, loss, limit) in [(16, 0.1, 0.8215), (16, 0.2, 0.7021), (32, 0.1, 0.8454), (32, 0.2, 0.7316), (64, 0.2, 0.7523)] {
            let (shape, plan) = plan(size, &[loss; 6]);
            let rate = plan.rank / plan.sends;
            assert!((rate - limit).abs() < 0.002, "M {size}, loss {loss}: {rate:.4} of {limit}");
            let goodput = 1.0 / plan.redundancy(&shape);
            assert!(goodput > 0.96 * limit && goodput < limit, "M {size}, loss {loss}: {goodput:.4}");
        }
    }

    #[test]
    fn nothing_is_sent_twice_where_nothing_is_lost() {
        let (shape, plan) = plan(16, &[0.0; 6]);
        assert!((plan.redundancy(&shape) - 1.0).abs() < 1e-9 && plan.batches() == 256);
    }

    #[test]
    fn every_packet_of_a_block_has_one_place_in_the_order_of_sending() {
        let shape = Shape::new(512, 16, 8, 100).unwrap();
        for n in 0..512 {
            let (batch, index) = shape.place(n);
            assert_eq!(shape.order(usize::from(batch) * 16 + index), n);
        }
        assert_eq!((shape.place(0), shape.place(1), shape.place(8), shape.place(128)), ((0, 0), (1, 0), (0, 1), (8, 0)));
    }

    #[test]
    fn shapes_that_cannot_be_are_refused_in_words() {
        for (shape, word) in [
            (Shape::new(512, 12, 1, 1400), "8, 16, 32 or 64"),
            (Shape::new(512, 16, 3, 1400), "power of two"),
            (Shape::new(500, 16, 1, 1400), "no multiple of 16"),
            (Shape::new(512, 16, 1, 20), "64 at least"),
        ] {
            assert!(shape.unwrap_err().to_string().contains(word), "{word}");
        }
        let shape = Shape::new(512, 16, 1, 1400).unwrap();
        assert_eq!(Plan::new(&shape, &[Probability::new(1.0)]), Err(ShapeError::Losses));
    }
}
