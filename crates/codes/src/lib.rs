//! Finite fields and batched network codes: pure mathematics, no IO, no threads, no clocks.
//!
//! | module | what lives there |
//! |---|---|
//! | [`bats`] | batched sparse codes: the noctule profile and RFC 9426 |
//! | [`codec`] | every code by name behind one set of verbs (`std`) |
//! | [`gf256`] | the field GF(256) with polynomial 0x11d and its vector kernels |
//! | [`interleave`] | the order of packets of several batches |
//! | [`lt`] | LT and semi-random LT codes (`std`) |
//! | [`mac`] | homomorphic MAC against pollution |
//! | [`prng`] | the deterministic generators that the specification names |
//! | [`recoding`] | rank statistics along the hops, adaptive recoding |
//! | [`rfc9426`] | the BATS coding scheme of RFC 9426 as it is written |
//! | [`rlc`] | sliding-window random linear code |
//! | [`span`] | inner code over a span of at most 64 packets: repair, recoding, on-the-fly decoding |
//! | [`tinymt32`] | the generator of RFC 8682 |
//! | [`window`] | on-the-fly decoding of repairs over unaligned spans of the last packets |
//!
//! The crate is `no_std` + `alloc` when its `std` feature is off; what needs logarithms needs `std`.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

/// The examples of the README, compiled.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bats;
#[cfg(feature = "std")]
pub mod codec;
pub mod gf256;
mod inactivation;
pub mod interleave;
#[cfg(feature = "std")]
pub mod lt;
pub mod mac;
pub mod prng;
pub mod recoding;
pub mod rfc9426;
pub mod rlc;
pub mod span;
pub mod tinymt32;
pub mod window;
