//! A packet of an object: a coded packet of a block, or the proof that a block's hash belongs to the root.

use super::tree::Digest;
use crate::wire::WireError;
use crate::wire::varint::{Reader, emit};

const CODED: u8 = 0;
const PROOF: u8 = 1;
/// Siblings on the path to the root, at most: that many levels has a tree of [`MAX_BLOCKS`](super::MAX_BLOCKS).
const MAX_PATH: usize = 20;

/// A packet's place in its object, as one number: what a relay may know of it, and the nonce under which it is sealed. Equal numbers are equal packets, whichever node
/// makes them and however often (P20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

impl PacketId {
    /// Of packet `number` of a block.
    pub const fn coded(block: u32, number: u32) -> Self {
        Self((block as u64) << 32 | number as u64)
    }

    /// Of the proof of a block: no coded packet has this number.
    pub const fn proof(block: u32) -> Self {
        Self::coded(block, u32::MAX)
    }

    /// The block.
    pub const fn block(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// What a datagram of an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Packet `number` of a block: below K a source packet, from K on a repair packet.
    Coded {
        /// Which block.
        block: u32,
        /// Which packet of it.
        number: u32,
        /// As long as the layout's packets, or shorter by zeros at its end.
        payload: &'a [u8],
    },
    /// The leaf of a block and its way to the root.
    Proof {
        /// Which block.
        block: u32,
        /// Its hash.
        leaf: Digest,
        /// Siblings, from the leaf up.
        path: Vec<Digest>,
    },
}

impl<'a> Packet<'a> {
    /// Appends the head of a coded packet; the payload follows.
    pub fn emit_coded(out: &mut Vec<u8>, block: u32, number: u32) {
        out.push(CODED);
        emit(out, block.into());
        emit(out, number.into());
    }

    /// Appends a proof.
    pub fn emit_proof(out: &mut Vec<u8>, block: u32, leaf: &Digest, path: &[Digest]) {
        out.push(PROOF);
        emit(out, block.into());
        out.extend_from_slice(leaf);
        path.iter().for_each(|sibling| out.extend_from_slice(sibling));
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// An unknown type, or cut off.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let number = |r: &mut Reader<'a>| u32::try_from(r.varint()?).map_err(|_| WireError::Invalid("number beyond 32 bits"));
        match r.u8()? {
            CODED => Ok(Self::Coded { block: number(&mut r)?, number: number(&mut r)?, payload: r.take_rest() }),
            PROOF => {
                let (block, leaf) = (number(&mut r)?, r.array()?);
                let mut path = Vec::new();
                while !r.is_empty() {
                    if path.len() == MAX_PATH {
                        return Err(WireError::Invalid("proof longer than any tree is high"));
                    }
                    path.push(r.array()?);
                }
                Ok(Self::Proof { block, leaf, path })
            }
            _ => Err(WireError::Invalid("type of an object packet")),
        }
    }
}
