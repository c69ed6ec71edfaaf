//! Finite fields and batched network codes: pure mathematics, no IO, no threads, no clocks.
