//! One object down a tree of nodes (`docs/spec/object.md` 6), so that each link carries each packet about once: what its source, the nodes that pass it on and its
//! receivers have in common.
//!
//! [`Branch`] says what a neighbour is to pass on and to which receivers, [`child::follow`] asks it and hears how far it is.
//! [`ChildFlows`] gives packets to all children, [`Expected`] takes what comes from above. The source is `transfer::object::send`, the node `daemon::trees`, the receiver `transfer::object::recv`.

mod branch;
pub mod child;
mod child_flows;
mod expected;
mod idle_timer;

pub use branch::{Branch, MAX_HOPS, MAX_RECEIVERS, Member};
pub use child_flows::{ChildFlows, Waits};
pub use expected::{Expectation, Expected};
pub use idle_timer::IdleTimer;

use noctule::{Class, FlowKind, FlowOptions, Mode, Probability};
use std::time::Duration;

/// How long a packet may take to be repaired by one link before the outer code makes up for it.
pub const LIFETIME: Duration = Duration::from_secs(3);
/// Packets that wait in a node for one child, bytes: what has not left yet may still be changed for something more useful.
const BUFFER: usize = 256 << 10;
/// Between two statuses while anything lacks.
pub const EVERY: Duration = Duration::from_millis(100);
/// And when a block is complete.
pub const SOON: Duration = Duration::from_millis(5);

/// Tags of a branch's stream and of its packets: "ob", then its number.
const TAG: u64 = 0x6f62 << 32;

/// The tag of the branches of one object.
pub fn tag(number: u32) -> u64 {
    TAG | u64::from(number)
}

/// Whether a flow belongs to a branch.
pub fn is_tag(tag: u64) -> bool {
    tag >> 32 == TAG >> 32
}

/// A flow of an object's packets: repaired by the link while they live, no redundancy beforehand, for the link is full.
pub fn packets(tag: u64) -> FlowOptions {
    FlowOptions {
        mode: Mode::Btp,
        kind: FlowKind::UnorderedMessages,
        class: Class::Bulk,
        lifetime: Some(LIFETIME),
        no_retransmit: Probability::ZERO,
        tag,
        send_buffer: Some(BUFFER),
        ..FlowOptions::default()
    }
}
