//! `noctule ping`: messages of one size at one rate, sent back by the far end; how long each took, and which never came.

mod client;
pub mod echo;
mod figure;
mod line;
mod report;
mod summary;

pub use client::run;
