//! The noctule protocol as a sans-IO state machine: no socket, clock, thread or random source inside.
//!
//! **Mutate, then drain**: after any call that takes `&mut Node`, drain [`Node::poll_transmit`] and [`Node::poll_event`], then read
//! [`Node::poll_timeout`] and call [`Node::handle_timeout`] no later than that.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "ablation"))]
pub mod ablation;
pub mod admission;
pub mod blind;
pub mod codel;
mod config;
pub mod congestion;
pub mod crypto;
mod datagram;
mod deadlines;
pub mod error;
pub mod event;
pub mod far_text;
pub mod flow;
mod flows;
pub mod ids;
mod ledger;
mod link;
mod neighbour;
pub mod node;
pub mod object;
pub mod options;
pub mod path;
pub mod redundancy;
mod secret_debug;
pub mod sent;
pub mod session;
pub mod shard;
mod shared;
pub mod stats;
mod switch;
mod table;
pub mod trace;
pub mod units;
pub mod wire;
pub mod work;

pub use config::{AckWish, NodeConfig};
pub use node::Node;

// The simulated pair of the integration tests serves this crate's own tests as well.
#[cfg(test)]
#[allow(unused_extern_crates)]
extern crate self as noctule_proto;
