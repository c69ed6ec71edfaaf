//! The noctule laboratory.
fn main() {}
