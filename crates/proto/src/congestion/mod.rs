//! Congestion control behind a small trait: few methods taking event structs, so that fields grow and methods don't.

mod bbr;
mod bbr_filters;
mod bbr_path;
mod bursts;
mod capacity;
mod cubic;
mod first_flight;
mod fixed;
mod held_half;
mod hystart;
mod loss_epoch;
mod model;
mod noise;
mod pulse;
mod queue;
mod recurring;
mod reno;
#[cfg(test)]
mod script;
mod vegas;
mod window;

use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Time};

/// Packets of one path were acknowledged.
#[derive(Clone, Debug)]
pub struct AckEvent {
    /// When the acknowledgement was processed.
    pub now: Time,
    /// Bytes (UDP payload) newly acknowledged.
    pub acked_bytes: u64,
    /// Packets newly acknowledged.
    pub acked_packets: u64,
    /// Of these packets, how many are newly reported as CE-marked.
    pub ce_packets: u64,
    /// Round-trip sample of the largest newly acknowledged packet, acknowledgement delay removed.
    pub rtt: Option<Duration>,
    /// When the most recently sent of the newly acknowledged packets was sent.
    pub largest_sent_at: Time,
    /// Smoothed RTT and minimum RTT of the path.
    pub smoothed_rtt: Duration,
    /// Minimum RTT over the path's window.
    pub min_rtt: Duration,
    /// Rate sample over the flight of that packet, in delivered units.
    pub delivery_rate: Bandwidth,
    /// The same in sent units: delivered plus lost (P12a).
    pub sent_rate: Bandwidth,
    /// Share of that flight's bytes that was lost, 0..=1.
    pub flight_loss: f64,
    /// Mean number of consecutive packets lost on the path so far, by what lost most of them; at most 1 before any was.
    pub loss_burst: f64,
    /// Length of the interval that the rate sample covers.
    pub sample_interval: Duration,
    /// The sample was taken while the sender had too little to send.
    pub is_app_limited: bool,
    /// Bytes in flight after this acknowledgement.
    pub in_flight: u64,
    /// Total bytes acknowledged on the path so far.
    pub total_acked: u64,
    /// Total bytes declared lost on the path so far (spurious ones taken back).
    pub total_lost: u64,
    /// Bytes sent on the path up to and including the most recently sent of the newly acknowledged packets.
    pub newest_offset: u64,
    /// When that packet reached the peer, plus the return path: `now` without the peer's acknowledgement delay.
    pub arrived: Time,
}

/// Packets of one path were declared lost.
#[derive(Clone, Debug)]
pub struct LossEvent {
    /// When.
    pub now: Time,
    /// Bytes newly lost.
    pub lost_bytes: u64,
    /// Packets newly lost.
    pub lost_packets: u64,
    /// When the most recently sent of them was sent.
    pub largest_sent_at: Time,
    /// Bytes in flight after removing them.
    pub in_flight: u64,
    /// Nothing was acknowledged for a whole PTO period and more (persistent congestion, RFC 9002 §7.6).
    pub is_persistent: bool,
}

/// A packet was sent.
#[derive(Clone, Debug)]
pub struct SentEvent {
    /// When.
    pub now: Time,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Bytes in flight including it.
    pub in_flight: u64,
    /// The sender has nothing more to send now.
    pub is_app_limited: bool,
    /// Bytes sent on the path so far, including it.
    pub sent_offset: u64,
    /// Nothing of a flow is in it: an acknowledgement that asks for one, credit, a probe of the path.
    pub is_control: bool,
}

/// What a controller is asked for, and what a statistics snapshot shows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlState {
    /// Name of the controller's present state, for traces.
    pub state: &'static str,
    /// Congestion window, bytes in flight allowed.
    pub cwnd: u64,
    /// Rate at which packets may leave.
    pub pacing_rate: Bandwidth,
    /// Estimate of the capacity in sent units, zero if none.
    pub capacity: Bandwidth,
    /// Loss taken as not caused by congestion, 0..=1.
    pub base_loss: f64,
}

/// The other paths of the same link that go through the same bottleneck (P7).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coupled {
    /// How many.
    pub paths: u32,
    /// What they send together.
    pub rate: Bandwidth,
}

impl Coupled {
    /// With one more.
    pub fn and(self, rate: Bandwidth) -> Self {
        Self { paths: self.paths + 1, rate: Bandwidth::from_bytes_per_sec(self.rate.bytes_per_sec() + rate.bytes_per_sec()) }
    }

    /// The part of one flow's aggressiveness that each of them has, 0..=1.
    pub(crate) fn weight(self) -> f64 {
        1.0 / f64::from(1 + self.paths)
    }
}

/// A congestion controller of one path.
pub trait Controller: Send + core::fmt::Debug {
    /// Name as in the configuration.
    fn name(&self) -> &'static str;
    /// A packet left.
    fn on_sent(&mut self, event: &SentEvent);
    /// Packets arrived.
    fn on_ack(&mut self, event: &AckEvent);
    /// Packets were lost.
    fn on_loss(&mut self, event: &LossEvent);
    /// A loss turned out to be reordering: these bytes arrived after all.
    fn on_spurious_loss(&mut self, now: Time, bytes: u64);
    /// Bytes that may be in flight.
    fn window(&self) -> u64;
    /// The same while nothing at all is acknowledged.
    fn window_in_silence(&self) -> u64 {
        self.window()
    }
    /// Rate at which packets may leave; `None`: not paced beyond the window.
    fn pacing_rate(&self) -> Option<Bandwidth>;
    /// For traces and statistics.
    fn state(&self) -> ControlState;
    /// The capacity in [`state`](Self::state): asked for with each packet.
    fn capacity(&self) -> Bandwidth {
        self.state().capacity
    }
    /// Which other paths share the bottleneck: together they take what one would. Where there are none it is told so, too.
    fn couple(&mut self, coupled: Coupled);
    /// The path changed: largest datagram in bytes of UDP payload.
    fn on_mtu(&mut self, max_datagram: u64);
}

/// Makes controllers of the application's own, one for each path.
pub trait ControllerFactory: Send + Sync + core::fmt::Debug {
    /// Name for statistics and traces.
    fn name(&self) -> &'static str;
    /// The controller of a path that begins at `now` with datagrams of `datagram` bytes of UDP payload; `rtt` was measured by the handshake or is assumed.
    fn build(&self, datagram: u64, rtt: Duration, now: Time) -> Box<dyn Controller>;
}

/// Congestion control by name, or by a factory of the application.
#[derive(Clone, Copy, Debug, Default)]
pub enum CongestionControl {
    /// Capacity model that takes as congestion only what is congestion (P12).
    #[default]
    Model,
    /// RFC 9438.
    Cubic,
    /// Van Jacobson's control: RFC 5681 with NewReno's recovery (RFC 6582) and byte counting (RFC 3465).
    Reno,
    /// Brakmo and Peterson 1995: two to four segments of one's own in the queue.
    Vegas,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr,
    /// A fixed rate of UDP payload; no reaction to loss (space links with reserved bandwidth).
    Rate(Bandwidth),
    /// Offered load as it is, for method tests.
    None,
    /// What this factory makes. It lives as long as the process: a `static`, or a box that was leaked once.
    Custom(&'static dyn ControllerFactory),
}

impl PartialEq for CongestionControl {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rate(a), Self::Rate(b)) => a == b,
            (Self::Custom(a), Self::Custom(b)) => core::ptr::addr_eq(*a, *b),
            (a, b) => core::mem::discriminant(a) == core::mem::discriminant(b),
        }
    }
}

impl CongestionControl {
    /// Every control that has nothing to set, so that its name says it all.
    pub const NAMED: [Self; 6] = [Self::Model, Self::Cubic, Self::Reno, Self::Vegas, Self::Bbr, Self::None];

    /// Name as on a command line; a rate is written after it by code that knows its units.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Vegas => "vegas",
            Self::Bbr => "bbr",
            Self::Rate(_) => "rate",
            Self::None => "none",
            Self::Custom(factory) => factory.name(),
        }
    }

    /// The one of [`NAMED`](Self::NAMED) with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|c| c.name() == name)
    }

    /// The names of [`NAMED`](Self::NAMED) for a message, separated by commas.
    pub fn names() -> String {
        Self::NAMED.map(Self::name).join(", ")
    }
}

/// Packets in the initial window (P11).
pub(crate) const INITIAL_PACKETS: u64 = 32;
/// Distance explains no longer round trip than this: two hops by geostationary satellites. The rest of a handshake's is the time that its packets took.
const FARTHEST: Duration = Duration::from_secs(1);

/// Packets in the initial window after a handshake of two full packets that took `rtt`: as many as the rate that these show sends in such a time
/// (docs/decisions/0170).
pub(crate) fn initial_packets(rtt: Duration) -> f64 {
    let (rtt, longer) = (rtt.as_secs_f64(), rtt.saturating_sub(FARTHEST).as_secs_f64());
    if longer > 0.0 && !switch::is_off(Mechanism::SlowPaths) {
        (2.0 * rtt / longer).min(INITIAL_PACKETS as f64)
    } else {
        INITIAL_PACKETS as f64
    }
}

/// The controller for a path with datagrams of `datagram` bytes; `rtt` was measured by the handshake or is assumed.
pub fn build(control: CongestionControl, datagram: u64, rtt: Duration, now: Time) -> Box<dyn Controller> {
    match control {
        CongestionControl::Model => Box::new(model::Model::new(datagram, rtt, now)),
        CongestionControl::Cubic => Box::new(cubic::Cubic::new(datagram, rtt)),
        CongestionControl::Reno => Box::new(reno::Reno::new(datagram, rtt)),
        CongestionControl::Vegas => Box::new(vegas::Vegas::new(datagram, rtt)),
        CongestionControl::Bbr => Box::new(bbr::Bbr::new(datagram, rtt, now)),
        CongestionControl::Rate(rate) => Box::new(fixed::Fixed { rate: Some(rate) }),
        CongestionControl::None => Box::new(fixed::Fixed { rate: None }),
        CongestionControl::Custom(factory) => factory.build(datagram, rtt, now),
    }
}
