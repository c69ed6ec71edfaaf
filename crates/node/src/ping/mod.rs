//! `noctule ping`: the far end sends back messages of one size that leave at one rate. Measured are each round trip, and which messages never came back.

mod client;
pub mod echo;
mod figure;
mod line;
mod report;
mod summary;

pub use client::run;
