//! The C library of noctule: `include/noctule.h` over the crate `noctule`. The guide is `docs/guide/c.md`.
//!
//! This crate checks arguments, looks up handles, catches panics and queues events; the transport itself is in `noctule`.
//! From Rust, use `noctule`: what this crate exports is meant for C.
#![cfg(unix)]
// The names are those of the header. It says once, for all functions, what pointers must point to.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

mod context;
mod endpoint;
mod error;
mod flow;
mod identity;
mod input;
mod options;
mod queue;
mod session;
mod stats;
mod table;

pub use context::{
    NOCTULE_ABI, noctule_callback, noctule_context, noctule_context_fd, noctule_context_free, noctule_context_free_wait,
    noctule_context_new, noctule_context_set_callback, noctule_context_wait_callbacks, noctule_event, noctule_poll,
};
pub use endpoint::*;
pub use error::{noctule_error, noctule_error_text, noctule_last_error};
pub use flow::*;
pub use identity::*;
pub use options::{
    NOCTULE_CLASS_BULK, NOCTULE_CLASS_LATENCY, NOCTULE_KIND_ORDERED, NOCTULE_KIND_STREAM, NOCTULE_KIND_UNORDERED, NOCTULE_MODE_BRTP,
    NOCTULE_MODE_BTP, NOCTULE_MODE_TRANSPARENT, noctule_endpoint_options, noctule_flow_options, noctule_message_options,
};
pub use queue::noctule_event_kind;
pub use session::*;
pub use stats::{noctule_endpoint_stats, noctule_flow_stats, noctule_session_stats};

/// The library's version, as "0.1.0", of static storage.
///
/// Threads: any. Blocks: never. Owns: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_version() -> *const std::ffi::c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}
