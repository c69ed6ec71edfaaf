//! The hash tree: leaves are the blocks, the root also binds layout and description. BLAKE3 throughout, each use with a context of its own.

use super::{Layout, MAX_ABOUT, ObjectError};

/// A BLAKE3 hash.
pub type Digest = [u8; 32];

const LEAF: &str = "noctule object 2026 leaf";
const NODE: &str = "noctule object 2026 node";
const ROOT: &str = "noctule object 2026 root";

/// What names an object and everything that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Root(pub Digest);

/// The leaf of a block: of its bytes without padding.
pub fn leaf(content: &[u8]) -> Digest {
    *blake3::Hasher::new_derive_key(LEAF).update(content).finalize().as_bytes()
}

fn join(left: &Digest, right: &Digest) -> Digest {
    *blake3::Hasher::new_derive_key(NODE).update(left).update(right).finalize().as_bytes()
}

impl Root {
    /// The root of an object with this layout, description, and top of the tree (32 zero bytes if there are no blocks).
    ///
    /// # Errors
    /// The description is longer than [`MAX_ABOUT`].
    pub fn of(layout: &Layout, about: &[u8], top: &Digest) -> Result<Self, ObjectError> {
        if about.len() > MAX_ABOUT {
            return Err(ObjectError::Root);
        }
        let mut head = Vec::new();
        layout.emit(&mut head);
        let mut hasher = blake3::Hasher::new_derive_key(ROOT);
        hasher.update(&(head.len() as u16).to_be_bytes()).update(&head);
        hasher.update(&(about.len() as u16).to_be_bytes()).update(about).update(top);
        Ok(Self(*hasher.finalize().as_bytes()))
    }
}

/// All levels of a tree, leaves first. 64 bytes per block.
#[derive(Clone, Debug)]
pub struct HashTree {
    levels: Vec<Vec<Digest>>,
}

impl HashTree {
    /// A tree over leaves in the order of their blocks. A node without a sibling moves up as it is.
    pub fn new(leaves: Vec<Digest>) -> Self {
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let above = below
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => join(left, right),
                    single => single[0],
                })
                .collect();
            levels.push(above);
        }
        Self { levels }
    }

    /// The top; zeros without blocks.
    pub fn top(&self) -> Digest {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or([0; 32])
    }

    /// The leaves.
    pub fn leaves(&self) -> &[Digest] {
        &self.levels[0]
    }

    /// The siblings on the path from a leaf to the top; at most 20.
    pub fn path(&self, block: u32) -> Vec<Digest> {
        let mut at = block as usize;
        let mut path = Vec::new();
        for level in &self.levels[..self.levels.len() - 1] {
            path.extend(level.get(at ^ 1));
            at /= 2;
        }
        path
    }
}

/// The top that a leaf and its path lead to, in a tree of `blocks` leaves; `None` if the path has another length.
pub fn climb(block: u32, blocks: u32, leaf: &Digest, path: &[Digest]) -> Option<Digest> {
    let (mut at, mut count, mut hash, mut path) = (block, blocks, *leaf, path.iter());
    if block >= blocks {
        return None;
    }
    while count > 1 {
        if at ^ 1 < count {
            let sibling = path.next()?;
            hash = if at % 2 == 0 { join(&hash, sibling) } else { join(sibling, &hash) };
        }
        (at, count) = (at / 2, count.div_ceil(2));
    }
    path.next().is_none().then_some(hash)
}
