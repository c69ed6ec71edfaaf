//! QUIC (`quinn-proto`) as a contender in the simulator: the same sans-IO machine that its users run, in virtual time.
//!
//! Its keys come from the system, but nothing whose length or time depends on them reaches the wire (Ed25519, fixed serial number), so that runs repeat exactly.

mod config;
mod host;

pub use config::QuicCongestion;
pub(crate) use config::{WINDOW as QUIC_WINDOW, pair as quic_pair};
pub use host::{QuicHost, QuicLoad, QuicPair, QuicPlan};
