//! Entry points of the fuzz targets of the codes. `noctule-codes` runs the corpus through them in its own tests.

#[path = "../input.rs"]
mod input;

pub mod block_decoder;
pub mod codecs;
pub mod peeling_decoder;
pub mod rfc9426_decoder;
pub mod span_buffer;
pub mod window_decoder;

use input::Input;

/// A target: its name and what runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const ALL: [Target; 6] = [
    ("block_decoder", block_decoder::run),
    ("codecs", codecs::run),
    ("peeling_decoder", peeling_decoder::run),
    ("rfc9426_decoder", rfc9426_decoder::run),
    ("span_buffer", span_buffer::run),
    ("window_decoder", window_decoder::run),
];
