//! What a receiver does with a block once enough of its packets are here: a pure job, which any core may do (P21).

use super::Layout;
use super::tree::{Digest, leaf};
use noctule_codes::bats::{BlockDecoder, Received};
use std::collections::BTreeMap;

/// Combines, solves and hashes one block.
#[derive(Debug)]
pub struct BlockJob {
    pub(super) layout: Layout,
    pub(super) block: u32,
    pub(super) decoder: BlockDecoder,
    /// In the order of their numbers, so that the result does not depend on when they came.
    pub(super) held: BTreeMap<u32, Vec<u8>>,
}

/// What a [`BlockJob`] came to.
#[derive(Debug)]
pub struct BlockResult {
    pub(super) block: u32,
    /// Packets that told nothing new.
    pub(super) redundant: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    /// It lacks packets.
    Incomplete(Box<BlockDecoder>),
    Decoded(Decoded),
    /// Nobody honest sends so many packets that cannot be solved, or puts anything but zeros after the object's end.
    Spoiled,
}

/// A block's content and its hash.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) content: Vec<u8>,
    pub(super) leaf: Digest,
}

impl BlockJob {
    /// Which block it is of.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Does it. Cost: what [`BlockDecoder`] says of solving a block, and a hash of its bytes.
    pub fn run(self) -> BlockResult {
        let Self { layout, block, mut decoder, held } = self;
        let mut redundant = 0;
        for (number, payload) in held {
            let (batch, index) = layout.place(decoder.profile(), number);
            match decoder.receive_uncoded(batch, index, &payload) {
                Received::Innovative => {}
                Received::Redundant | Received::Malformed => redundant += 1,
                Received::Refused => return BlockResult { block, redundant, outcome: Outcome::Spoiled },
            }
        }
        while decoder.take_recovered().is_some() {}
        let outcome = if decoder.is_complete() { decoded(&layout, block, decoder) } else { Outcome::Incomplete(Box::new(decoder)) };
        BlockResult { block, redundant, outcome }
    }
}

fn decoded(layout: &Layout, block: u32, decoder: BlockDecoder) -> Outcome {
    let range = layout.range(block);
    let len = (range.end - range.start) as usize;
    match decoder.into_data() {
        Some(mut content) if content.len() >= len && content[len..].iter().all(|b| *b == 0) => {
            content.truncate(len);
            let leaf = leaf(&content);
            Outcome::Decoded(Decoded { content, leaf })
        }
        _ => Outcome::Spoiled,
    }
}
