//! The deterministic simulator: noctule nodes and their applications, joined by links in virtual time.
//!
//! CPU time is not modelled: a host computes in no time. What a run shows is what the protocol does, not how fast a machine is.

mod app;
mod build;
mod content;
mod grid;
mod machine;
mod measure;
mod meter;
mod node_host;
mod outgoing;
mod proxies;
mod quic;
mod run;
mod sampler;
mod senders;
mod startup;
pub mod tunnel;
mod world;

pub use app::{App, AppPlan, Reach};
pub use build::{AppId, Ends};
pub use content::Content;
pub use grid::{all_cores, run_cases, side_by_side, violations};
pub use machine::Machine;
pub use meter::{Meter, Window};
pub use node_host::{Neighbourhood, NodeHost, TraceSink};
pub(crate) use quic::{QUIC_WINDOW, quic_pair};
pub use quic::{QuicCongestion, QuicHost, QuicLoad, QuicPair, QuicPlan};
pub use run::{SimError, Simulation, run, run_watched};
pub use sampler::{LinkSampler, Sample, Watch};
pub use world::{Host, HostId, PipeId, Sighting, Tap, WireOverhead, World, WorldError};
