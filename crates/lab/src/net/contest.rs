//! One contender over one chain: its traffic measured where it arrives, and the link's own account beside it.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use super::chain::{Backend, Chain, ChainError, LEFT, RIGHT};
use super::counters::DeviceCounters;
use super::emulator::{DuplexStats, Emulator, Options, Report, Tolerance, Unfaithful};
use super::privilege::Privilege;
use crate::scenario::{Hop, Scenario, payload_share};

/// Why a run gave no result.
#[derive(Debug, Error)]
pub enum ContestError {
    /// The hosts or links could not be made.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The machine was too slow for the emulated link.
    #[error(transparent)]
    Unfaithful(#[from] Unfaithful),
    /// Something that this back end or contender cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
    /// A process of noctule failed.
    #[error("{0}")]
    Process(String),
    /// The link delivered less than the application received: the measurement is wrong.
    #[error("the application received {received} bytes, the link delivered {delivered} bytes of payload: the measurement is wrong")]
    Impossible {
        /// Bytes at the application.
        received: u64,
        /// Bytes of payload that left the narrowest link.
        delivered: u64,
    },
}

/// Started links with their clocks running.
#[derive(Debug)]
pub struct Course {
    chain: Chain,
    emulator: Option<Emulator>,
    began: Marked,
    marked: Mutex<Marked>,
}

/// Device counters of every link at an instant.
#[derive(Debug, Clone)]
struct Marked {
    at: Instant,
    links: Vec<LinkCounters>,
}

/// Of one link: what its left host sent and what its right host got.
#[derive(Debug, Clone, Copy)]
struct LinkCounters {
    left: DeviceCounters,
    right: DeviceCounters,
}

/// The links' account of the time since the warm-up.
#[derive(Debug, Clone)]
pub struct Account {
    /// IP bytes that the left host of each link put on it.
    pub sent: Vec<u64>,
    /// IP bytes that came back over each link.
    pub returned: Vec<u64>,
    /// UDP payload that the narrowest link delivered, if every packet were as large as the MTU (P24).
    pub realised_limit_mbit: f64,
    /// The same in bytes, from the start of the run on.
    pub delivered_payload: u64,
    /// 95th percentile of the queueing delay at the slowest bottleneck, where the emulator ran.
    pub queue_p95: Option<Duration>,
    /// Counters of the emulated links.
    pub links: Vec<DuplexStats>,
}

impl Course {
    /// Starts the links of a chain.
    pub fn start(mut chain: Chain, options: Options) -> io::Result<Self> {
        let emulator = chain.start(options)?;
        let links = counters(&chain)?;
        let began = Marked { at: Instant::now(), links };
        Ok(Self { chain, emulator, marked: Mutex::new(began.clone()), began })
    }

    /// The hosts.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// When the links' clocks began.
    pub fn began(&self) -> Instant {
        self.began.at
    }

    /// Ends the warm-up: accounts begin here.
    pub fn mark(&self) -> io::Result<()> {
        if let Some(emulator) = &self.emulator {
            emulator.clear_stats();
        }
        let now = Marked { at: Instant::now(), links: counters(&self.chain)? };
        *self.marked.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    /// What the links carried since the mark.
    pub fn account(&self, scenario: &Scenario) -> io::Result<Account> {
        let marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seconds = marked.at.elapsed().as_secs_f64();
        let now = counters(&self.chain)?;
        let links = self.emulator.as_ref().map(Emulator::stats).unwrap_or_default();
        let since = |then: &Marked| -> Vec<LinkCounters> { now.iter().zip(&then.links).map(|(now, then)| now.since(then)).collect() };
        // The share of the largest packets, as in the limit (P24).
        let payload = |links: &[LinkCounters]| {
            let of_link =
                |(link, hop): (&LinkCounters, &Hop)| link.right.received as f64 * payload_share(hop.forward.mtu, scenario.ip.overhead());
            links.iter().zip(&scenario.hops).map(of_link).fold(f64::INFINITY, f64::min)
        };
        let counted = since(&marked);
        Ok(Account {
            sent: counted.iter().map(|link| link.left.sent).collect(),
            returned: counted.iter().map(|link| link.right.sent).collect(),
            realised_limit_mbit: payload(&counted) * 8e-6 / seconds,
            delivered_payload: payload(&since(&self.began)) as u64,
            queue_p95: links.iter().map(|link| link.forward.queue_delay.quantile(0.95)).max(),
            links,
        })
    }

    /// Stops the links. The report is there where the emulator ran; a run that it spoilt is an error.
    pub fn finish(self, tolerance: &Tolerance) -> Result<Option<Report>, ContestError> {
        match self.emulator {
            Some(emulator) => {
                let report = emulator.finish()?;
                report.check(tolerance)?;
                Ok(Some(report))
            }
            None => Ok(None),
        }
    }
}

impl LinkCounters {
    fn since(&self, earlier: &Self) -> Self {
        Self { left: self.left.since(earlier.left), right: self.right.since(earlier.right) }
    }
}

fn counters(chain: &Chain) -> io::Result<Vec<LinkCounters>> {
    let header = match chain.backend() {
        Backend::Netem => 14,
        Backend::Emulator => 0,
    };
    chain
        .hosts()
        .windows(2)
        .map(|ends| {
            Ok(LinkCounters { left: DeviceCounters::read(&ends[0], RIGHT, header)?, right: DeviceCounters::read(&ends[1], LEFT, header)? })
        })
        .collect()
}

/// The conditions under which a run was made, for its report.
#[derive(Debug, Clone, Serialize)]
pub struct Conditions {
    /// What emulated the links.
    pub backend: Backend,
    /// By which right.
    pub privilege: &'static str,
    /// Ceiling of kernel TCP's buffers in bytes, where TCP ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_buffer_bytes: Option<u64>,
    /// How the emulator ran.
    pub emulator: Option<Report>,
}

impl Conditions {
    /// Of a chain, before the emulator has reported.
    pub fn of(backend: Backend, privilege: Privilege) -> Self {
        Self { backend, privilege: privilege.name(), tcp_buffer_bytes: None, emulator: None }
    }
}
