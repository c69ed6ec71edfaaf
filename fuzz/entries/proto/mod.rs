//! Entry points of the fuzz targets of the protocol. `noctule-proto` runs the corpus through them in its own tests.

#[path = "../input.rs"]
mod input;
#[allow(clippy::duplicate_mod, reason = "the tests of noctule-proto, which run the corpus, have it as well")]
#[path = "../../../crates/proto/tests/mesh/mod.rs"]
mod mesh;
#[allow(clippy::duplicate_mod, reason = "as above")]
#[path = "../../../crates/proto/tests/pair/mod.rs"]
mod pair;

pub mod acks;
mod any_frame;
pub mod blind;
pub mod door;
pub mod frames;
pub mod handshake;
pub mod object;
pub mod packets;
pub mod params;
pub mod relay;
pub mod session;
pub mod tunnel;

use input::Input;

/// A target: its name and what runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const ALL: [Target; 11] = [
    ("acks", acks::run),
    ("blind", blind::run),
    ("door", door::run),
    ("frames", frames::run),
    ("handshake", handshake::run),
    ("object", object::run),
    ("packets", packets::run),
    ("params", params::run),
    ("relay", relay::run),
    ("session", session::run),
    ("tunnel", tunnel::run),
];
