//! A datagram of a blind stream: which batch of which block, how it was combined, and the symbol.

use super::Shape;
use crate::wire::WireError;
use crate::wire::varint::Reader;

const TYPE: u8 = 0x42;
/// Bytes in front of index or vector.
const HEAD: usize = 1 + 4 + 1 + 4 + 2;
/// Bytes in front of the symbol of a packet that was not combined.
pub const HEADER: usize = HEAD + 1;
/// Bit of the flags: a vector follows, not an index.
const VECTOR: u8 = 0x20;
/// Packets of the batches that take turns, at most: what a relay holds of a stream is twice that.
pub(super) const MOST_IN_GROUP: u32 = 1024;

/// Tells streams apart; drawn at random by the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(pub [u8; 4]);

/// What a packet is, in terms of the packets that the outer code made of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coefficients<'a> {
    /// One of them as it is.
    Index(u8),
    /// A combination: one coefficient for each.
    Vector(&'a [u8]),
}

/// A packet of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Which stream.
    pub stream: StreamName,
    /// Packets of a batch: 8, 16, 32 or 64.
    pub batch_size: u8,
    /// Batches that take turns: a power of two up to 128.
    pub depth: u8,
    /// Which block.
    pub block: u32,
    /// Which batch of the block.
    pub batch: u16,
    /// Which packet, or combination of packets, of the batch.
    pub coefficients: Coefficients<'a>,
    /// `length | tag | ciphertext`, or a combination of such; zeros at the end are not sent (P5).
    pub symbol: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// It is none of a blind stream, or says what cannot be.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(datagram);
        if r.u8()? != TYPE {
            return Err(WireError::Invalid("type of a blind packet"));
        }
        let (stream, flags) = (StreamName(r.array()?), r.u8()?);
        let (batch_size, depth) = (8u8 << (flags & 3), 1u8 << (flags >> 2 & 7));
        if flags & 0xc0 != 0 || u32::from(batch_size) * u32::from(depth) > MOST_IN_GROUP {
            return Err(WireError::Invalid("flags of a blind packet"));
        }
        let (block, batch) = (r.u32()?, r.u16()?);
        let coefficients =
            if flags & VECTOR != 0 { Coefficients::Vector(r.bytes(usize::from(batch_size))?) } else { Coefficients::Index(r.u8()?) };
        let is_within = match coefficients {
            Coefficients::Index(index) => index < batch_size,
            Coefficients::Vector(vector) => vector.iter().any(|c| *c != 0),
        };
        let symbol = r.take_rest();
        if !is_within || symbol.is_empty() {
            return Err(WireError::Invalid("coefficients of a blind packet"));
        }
        Ok(Self { stream, batch_size, depth, block, batch, coefficients, symbol })
    }

    /// Appends the datagram.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let is_vector = matches!(self.coefficients, Coefficients::Vector(_));
        let flags = self.batch_size.trailing_zeros().saturating_sub(3) as u8 & 3
            | (self.depth.trailing_zeros() as u8 & 7) << 2
            | if is_vector { VECTOR } else { 0 };
        out.push(TYPE);
        out.extend_from_slice(&self.stream.0);
        out.push(flags);
        out.extend_from_slice(&self.block.to_be_bytes());
        out.extend_from_slice(&self.batch.to_be_bytes());
        match self.coefficients {
            Coefficients::Index(index) => out.push(index),
            Coefficients::Vector(vector) => out.extend_from_slice(vector),
        }
        let len = self.symbol.iter().rposition(|b| *b != 0).map_or(1, |at| at + 1);
        out.extend_from_slice(&self.symbol[..len.min(self.symbol.len())]);
    }

    /// Whether it fits a stream of this shape.
    pub fn fits(&self, shape: &Shape) -> bool {
        self.batch_size == shape.batch_size() && self.depth == shape.depth() && self.symbol.len() <= usize::from(shape.symbol())
    }

    /// Writes one coefficient for each packet of the batch.
    pub(super) fn vector(&self, out: &mut [u8]) {
        match self.coefficients {
            Coefficients::Index(index) => {
                out.fill(0);
                if let Some(c) = out.get_mut(usize::from(index)) {
                    *c = 1;
                }
            }
            Coefficients::Vector(vector) => out.copy_from_slice(&vector[..out.len().min(vector.len())]),
        }
    }

    /// The group of batches that take turns with this one.
    pub(super) fn group(&self) -> (u32, u16) {
        (self.block, self.batch / u16::from(self.depth))
    }
}
