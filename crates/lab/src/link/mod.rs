//! One direction of a link: its description ([`LinkSpec`]) and its behaviour ([`LinkModel`]).
//!
//! The simulator and the namespace emulator run the same model; netem gets the same description.

mod aqm;
mod discipline;
mod fq_codel;
mod histogram;
mod jitter;
mod loss;
mod model;
mod pie;
mod queue;
mod random;
mod spec;
mod stats;
mod trace;
mod units;

pub use aqm::{Aqm, FqCodelParameters, PieParameters};
pub use histogram::Histogram;
pub use jitter::JitterDist;
pub use loss::{Burst, LossAt, LossModel};
pub use model::{Delivery, DropReason, Dropped, LinkModel, flip_bits};
pub use noctule_proto::units::{Ecn, Time};
pub use queue::{Bucket, QueueLimit};
pub use spec::{Change, LinkSpec, Outage, Reorder, SpecError, Traces, parse_settings};
pub use stats::LinkStats;
pub use trace::Trace;
pub(crate) use units::text_in_serde;
pub use units::{Bandwidth, ParseQuantityError, Period, Probability, parse_bytes, parse_duration};
