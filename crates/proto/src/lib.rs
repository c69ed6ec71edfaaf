//! The noctule protocol as a sans-IO state machine: no socket, clock, thread or random source inside.
#![forbid(unsafe_code)]
