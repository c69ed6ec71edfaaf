//! The noctule laboratory as a library: links, the deterministic simulator, scenarios.
//!
//! CPU time is not modelled: hosts in the simulator compute in no time at all. Everything else is virtual time and a seed.

pub mod capture;
pub mod cli;
pub mod demo;
mod files;
pub mod holdout;
pub mod link;
pub mod matrix;
pub mod mininet;
pub mod net;
pub mod oasis;
pub mod page;
pub mod paper;
pub mod plot;
pub mod proxied;
pub mod report;
pub mod scenario;
pub mod sim;
pub mod sweep;
pub mod without;
