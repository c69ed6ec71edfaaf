//! Entry point of the fuzz target of the C library. `noctule-c` runs the corpus through it in its own tests.

#[path = "../input.rs"]
mod input;

pub mod c_library;

use input::Input;

/// A target: its name and what runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const ALL: [Target; 1] = [("c_library", c_library::run)];
