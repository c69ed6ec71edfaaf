//! File transfer: a manifest, contents with their hashes, and what the receiver has already. `docs/spec/transfer.md` describes the bytes.
//!
//! Sender: [`source`] makes the manifest below a directory descriptor ([`beneath`]), without what [`filter`] leaves out and with [`attributes`]; [`reading`] opens
//! and checks files for every mode, [`content`] reads them on threads of its own, [`sending`] writes streams and listens to answers. [`send`] runs it for the
//! command line, [`server`] for a host that asks; [`offer`] finds what is asked for. [`get`] asks, and then is a receiver.
//! Receiver: [`server`] serves sessions for [`recv`] and [`serve`], [`shares`] and [`turn`] say which may go on, [`manifest`] is read, [`survey`] looks at what is there, [`receive`] runs one
//! transfer, [`writer`] turns a stream's records into files, [`finish`] does what has to wait for all of them, [`deleting`] takes away what the sender does not have. [`target`] and [`staging`] are the only places
//! that touch the target directory, [`ours`] knows what a transfer has placed there. One file as a rateless object (`--mode brctp`): [`object`].

mod again;
mod asked;
mod attributes;
mod beneath;
mod content;
mod deleting;
mod entries;
mod entry;
mod filter;
mod finish;
pub mod get;
mod hashing;
mod limit;
mod links;
mod manifest;
mod object;
mod offer;
mod ours;
mod progress;
mod reading;
mod receive;
pub mod records;
pub mod recv;
pub mod send;
mod sending;
pub mod serve;
mod server;
mod shares;
mod slots;
mod source;
mod staging;
mod survey;
mod target;
#[cfg(any(test, fuzzing))]
pub mod trial;
mod turn;
pub mod wire;
mod writer;

pub use attributes::Kept;
pub use entry::{as_pattern, shown};
pub use filter::Rule;
pub use progress::Reporter;
pub use server::{Farewell, voices};
pub use target::{OUTSIDE, Refused, SINCE};
pub use wire::Refusal;

/// Bytes per chunk between disk and network.
const CHUNK: usize = 256 * 1024;
/// Files up to this size travel whole in one record, and need not wait for the receiver's plan.
const SMALL: u64 = 128 * 1024;
/// Tag of the stream that carries manifest and answers: "file".
const CONTROL_TAG: u64 = 0x6669_6c65;
/// Tag of the stream that asks for files, and then carries manifest and answers: "want".
const REQUEST_TAG: u64 = 0x7761_6e74;
/// Tag of the streams that carry contents: "data".
const DATA_TAG: u64 = 0x6461_7461;
