//! File transfer: manifest, contents and hashes over one bidirectional stream. `docs/spec/transfer.md` describes the bytes.

mod progress;
pub mod records;
pub mod recv;
pub mod send;
mod source;
mod target;

/// Bytes per chunk between disk and network.
const CHUNK: usize = 256 * 1024;
/// Tag of the stream that carries a transfer.
const TAG: u64 = 0x66696c65;
