//! One object, rateless (`brctp`): a file or anything else of known size, cut into blocks that the outer code of BATS makes packets of, as many as it takes
//! (docs/spec/object.md). What carries the packets is not here: a session's flow of datagrams (`crates/node`), or bare datagrams without any return path
//! ([`one_way`]).
//!
//! | file | what |
//! |---|---|
//! | [`Layout`] | how an object is cut into blocks and packets |
//! | [`HashTree`], [`Root`] | what the receiver checks each block against before it uses a byte |
//! | [`Packet`] | bytes of a packet |
//! | [`Sender`] | with feedback: each block until every receiver has it |
//! | [`Carousel`] | without feedback: all blocks, again and again, or with a given overhead |
//! | [`Receiver`] | packets in, verified blocks out |
//! | [`BlockJob`], [`PacketJob`] | what costs something, for any core |
//! | [`Relay`] | one node of a tree: each packet to every child that needs it, feedback of all as that of one |
//! | [`one_way`] | keys and datagrams where there is no return path |
//!
//! Neither sender holds the object: blocks are asked for when they are needed and forgotten when they are done, so that memory follows the window and not
//! the object.

mod block;
mod carousel;
mod job;
mod layout;
pub mod one_way;
mod packet;
mod receiver;
mod relay;
mod sender;
mod status;
#[cfg(test)]
mod tests;
mod tree;

pub use block::SourceBlock;
pub use carousel::{Carousel, Next, PacketJob, Plan, Step};
pub use job::{BlockJob, BlockResult};
pub use layout::Layout;
pub use packet::{Packet, PacketId};
pub use receiver::{Receiver, ReceiverStats, Taken};
pub use relay::{ChildId, Poll, Relay, RelayConfig, RelayStats};
pub use sender::{ReceiverId, Sender, SenderConfig, SenderStats};
pub use status::Status;
pub use tree::{Digest, HashTree, Root, climb, leaf};

use crate::wire::WireError;

/// Largest block in bytes: a receiver holds at least one, and some more while it solves for what is missing.
pub const MAX_BLOCK: u64 = 16 << 20;
/// Most blocks of an object: their hashes are 32 MiB then.
pub const MAX_BLOCKS: u64 = 1 << 20;
/// Longest description of an object that an announcement carries.
pub const MAX_ABOUT: usize = 300;

/// Why something about an object is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Sizes that do not fit together or exceed what is permitted.
    #[error("an object of {size} bytes in packets of {packet_len} and blocks of {block_packets} packets: {why}")]
    Layout {
        /// Bytes of the object.
        size: u64,
        /// Bytes of a packet.
        packet_len: u16,
        /// Packets of a block at most.
        block_packets: u16,
        /// What is wrong.
        why: &'static str,
    },
    /// A block's content is not what the object's root was made of.
    #[error("block {0} is not what was announced: the object changed while it was being sent")]
    Changed(u32),
    /// Bytes that cannot be read.
    #[error("what describes the object cannot be read: {0}")]
    Wire(#[from] WireError),
    /// Hashes or a description that contradict the root.
    #[error("what describes the object does not match its root hash")]
    Root,
    /// There is no such block.
    #[error("there is no block {0}")]
    NoBlock(u32),
}
