//! `--mode brctp`: one file as a rateless object (`docs/spec/object.md`), to a receiver that answers or to receivers that cannot.
//!
//! [`mod@file`] cuts and hashes a file; [`cores`] codes, hashes and seals blocks beside everything else; [`send`] and [`recv`] run over sessions, [`mod@cast`] between them; [`one_way`] sends and [`listen`] receives datagrams without any answer;
//! [`fetch`] asks for one and [`give`] answers; [`look`] hashes files beside the user's patience. [`place`] puts verified blocks into a file. The object itself, its code and its checks live in `noctule_proto::object`.

mod cast;
mod cores;
pub mod fetch;
mod file;
pub mod give;
pub mod listen;
mod look;
pub mod one_way;
mod place;
mod recent;
pub mod recv;
pub mod send;

/// Tag of the stream that announces an object and of the flow of its packets: "objc".
pub const OBJECT_TAG: u64 = 0x6f62_6a63;
/// Version of what is said about an object.
pub const VERSION: u64 = 1;
/// Bytes of a packet's payload: with all headers, of relays too, it fits 1500 bytes of IP.
const PACKET_LEN: u16 = 1344;
/// Packets of a block at most.
const BLOCK_PACKETS: u16 = 1024;
const BATCH_SIZE: u8 = 16;
/// The links repair nearly everything: what is left are single packets, for which repair packets cover the whole block.
const LOW_LOSS: u16 = 5;
/// Bytes of blocks that a receiver holds before they are complete (`docs/spec/object.md` 4). A sender uses three quarters.
const RECEIVER_MEMORY: usize = 64 << 20;
