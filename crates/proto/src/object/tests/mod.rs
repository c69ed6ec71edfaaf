//! Objects over channels that lose, repeat, and invent: the sender and receiver alone, without a network.

mod carousel;
mod feedback;
mod formats;
mod jobs;
mod one_way;
mod relay;
mod shared;

use super::*;
use crate::units::{Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

/// An object with what both ends have to know of it.
struct Object {
    data: Vec<u8>,
    layout: Layout,
    tree: HashTree,
    root: Root,
}

const ABOUT: &[u8] = b"an object";

impl Object {
    fn new(len: usize, layout: Layout) -> Self {
        let data = content(len, len as u64);
        let leaves = (0..layout.blocks()).map(|b| leaf(Self::slice(&data, &layout, b))).collect();
        let tree = HashTree::new(leaves);
        let root = Root::of(&layout, ABOUT, &tree.top()).unwrap();
        Self { data, layout, tree, root }
    }

    fn of(len: usize) -> Self {
        Self::new(len, Layout::new(len as u64, 100, 60, 16, 50).unwrap())
    }

    fn slice<'a>(data: &'a [u8], layout: &Layout, block: u32) -> &'a [u8] {
        let range = layout.range(block);
        &data[range.start as usize..range.end as usize]
    }

    fn block(&self, block: u32) -> Vec<u8> {
        Self::slice(&self.data, &self.layout, block).to_vec()
    }

    fn receiver(&self, memory: usize) -> Receiver {
        Receiver::new(self.layout, ABOUT, self.root, memory).unwrap()
    }

    fn receiver_with_leaves(&self, memory: usize) -> Receiver {
        let mut receiver = self.receiver(memory);
        receiver.set_leaves(self.tree.leaves().to_vec()).unwrap();
        receiver
    }
}

/// What came out of a receiver, put together.
#[derive(Default)]
struct Got(std::collections::BTreeMap<u32, Vec<u8>>);

impl Got {
    fn take(&mut self, receiver: &mut Receiver) {
        while let Some((block, data)) = receiver.poll_block() {
            assert!(self.0.insert(block, data).is_none(), "each block comes once");
        }
    }

    fn data(&self) -> Vec<u8> {
        self.0.values().flatten().copied().collect()
    }
}

struct Chance(ChaCha12Rng);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    fn hits(&mut self, p: f64) -> bool {
        (self.0.next_u64() as f64 / u64::MAX as f64) < p
    }
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}
