//! Is an emulated link what its description says? Measured with UDP probes between two namespaces: delay, jitter and
//! loss at a rate well below capacity, then capacity with more traffic than the link can carry.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::chain::{Backend, BackendChoice, Chain, ChainError, LEFT};
use super::contest::ContestError;
use super::counters::DeviceCounters;
use super::emulator::{Options, Report, Tolerance};
use super::namespace::Namespace;
use super::timestamp;
use crate::link::LinkSpec;
use crate::scenario::{Hop, Ip};

/// UDP payload of probes; their IP packet has 28 or 48 bytes more.
const PROBE_BYTES: usize = 172;
/// UDP payload of the packets that fill the link.
const FILL_BYTES: usize = 1472;
/// The filling traffic offers this many times the rate.
const OVERLOAD: f64 = 1.3;

/// What the probes saw in one direction, with what the description promises.
#[derive(Debug, Clone, Serialize)]
pub struct Fidelity {
    /// What emulated the link.
    pub backend: Backend,
    /// Probes sent.
    pub probes: u64,
    /// Share lost.
    pub loss: f64,
    /// Share that the description promises.
    pub loss_promised: f64,
    /// Mean number of probes lost in a row.
    pub mean_burst: f64,
    /// Mean one-way delay in milliseconds, serialisation included.
    pub delay_ms: f64,
    /// Promised mean.
    pub delay_promised_ms: f64,
    /// Median.
    pub delay_p50_ms: f64,
    /// 99th percentile.
    pub delay_p99_ms: f64,
    /// Standard deviation of the delay in milliseconds.
    pub delay_sd_ms: f64,
    /// Probes that arrived after a later one.
    pub overtaken: u64,
    /// IP bytes that arrived per second under overload, in Mbit/s.
    pub rate_mbit: Option<f64>,
    /// Promised: the rate times the share that is not lost.
    pub rate_promised_mbit: Option<f64>,
    /// How the emulator itself ran.
    pub emulator: Option<Report>,
}

impl std::fmt::Display for Fidelity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:14}{:>12}{:>12}", "", "measured", "described")?;
        let mut row = |what: &str, measured: String, described: Option<String>| {
            writeln!(f, "{what:14}{measured:>12}{:>12}", described.unwrap_or_else(|| "-".to_owned()))
        };
        row("loss", format!("{:.2} %", self.loss * 100.0), Some(format!("{:.2} %", self.loss_promised * 100.0)))?;
        row("lost in a row", format!("{:.2}", self.mean_burst), None)?;
        row("delay", format!("{:.2} ms", self.delay_ms), Some(format!("{:.2} ms", self.delay_promised_ms)))?;
        row("  median", format!("{:.2} ms", self.delay_p50_ms), None)?;
        row("  99 %", format!("{:.2} ms", self.delay_p99_ms), None)?;
        row("  deviation", format!("{:.2} ms", self.delay_sd_ms), None)?;
        row("overtaken", self.overtaken.to_string(), None)?;
        if let Some(rate) = self.rate_mbit {
            row("rate", format!("{rate:.2} Mbit/s"), self.rate_promised_mbit.map(|rate| format!("{rate:.2} Mbit/s")))?;
        }
        writeln!(f, "{} probes, emulated by {}", self.probes, self.backend)?;
        match &self.emulator {
            Some(emulator) => writeln!(f, "the emulator was {:.0} us late at the 99th percentile", emulator.lateness_p99_us),
            None => Ok(()),
        }
    }
}

/// Measures one direction of a link over `probing` with `probes_per_second`, then its capacity over `filling`.
pub fn measure(
    spec: &LinkSpec,
    choice: BackendChoice,
    tolerance: &Tolerance,
    seed: u64,
    probes_per_second: u32,
    probing: Duration,
    filling: Duration,
) -> Result<Fidelity, ContestError> {
    let link = Hop { forward: spec.clone(), reverse: LinkSpec::default() };
    let mut chain = Chain::build(&[link], Ip::V4, choice, seed)?;
    let kernel = |step| move |error| ChainError::Kernel { step, error };
    let emulator = chain.start(Options::default()).map_err(kernel("start the emulator"))?;
    let probes = probe(&chain, probes_per_second, probing).map_err(kernel("probe the link"))?;
    let rate = match spec.rate {
        Some(rate) => Some(fill(&chain, rate.as_mbit(), filling, spec.delay.0).map_err(kernel("fill the link"))?),
        None => None,
    };
    let report = match emulator {
        Some(emulator) => Some(emulator.finish().map_err(kernel("stop the emulator"))?),
        None => None,
    };
    if let Some(report) = &report {
        report.check(tolerance)?;
    }
    let wire = |payload: usize| payload as u32 + 28;
    let serialisation = spec.rate.map_or(0, |rate| rate.transmit_nanos(u64::from(wire(PROBE_BYTES))));
    let delivered = 1.0 - spec.mean_loss(wire(FILL_BYTES));
    Ok(Fidelity {
        backend: chain.backend(),
        probes: probes.sent,
        loss: 1.0 - probes.delays.len() as f64 / probes.sent as f64,
        loss_promised: spec.mean_loss(wire(PROBE_BYTES)),
        mean_burst: probes.mean_burst,
        delay_ms: mean(&probes.delays) * 1e3,
        delay_promised_ms: (spec.delay.0.as_secs_f64() + serialisation as f64 * 1e-9) * 1e3,
        delay_p50_ms: probes.quantile(0.5) * 1e3,
        delay_p99_ms: probes.quantile(0.99) * 1e3,
        delay_sd_ms: deviation(&probes.delays) * 1e3,
        overtaken: probes.overtaken,
        rate_mbit: rate,
        rate_promised_mbit: spec.rate.map(|rate| rate.as_mbit() * delivered),
        emulator: report,
    })
}

struct Probes {
    sent: u64,
    /// Seconds, in order of arrival.
    delays: Vec<f64>,
    overtaken: u64,
    mean_burst: f64,
}

impl Probes {
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.delays.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (share * sorted.len() as f64) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (squares / values.len().max(1) as f64).sqrt()
}

fn sockets(chain: &Chain) -> io::Result<(UdpSocket, UdpSocket)> {
    let (from, to) = (chain.first_address(), chain.last_address());
    let receiver = chain.last().enter(|| UdpSocket::bind((to, 0)))??;
    socket2::SockRef::from(&receiver).set_recv_buffer_size(8 << 20)?;
    receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
    let target: SocketAddr = receiver.local_addr()?;
    let sender = chain.first().enter(|| UdpSocket::bind((from, 0)))??;
    sender.connect(target)?;
    Ok((sender, receiver))
}

/// Sends evenly spaced probes that carry their number and time of sending.
fn probe(chain: &Chain, per_second: u32, duration: Duration) -> io::Result<Probes> {
    let (sender, receiver) = sockets(chain)?;
    // The kernel stamps arrivals, so that a late wake-up of the reading thread is not taken for delay.
    timestamp::enable(&receiver)?;
    let over = Arc::new(AtomicBool::new(false));
    let reader = spawn(chain.last(), "probe-reader", {
        let over = Arc::clone(&over);
        move || read_probes(&receiver, &over)
    })?;
    let writer = spawn(chain.first(), "probe-writer", move || {
        super::realtime::request();
        let spacing = Duration::from_secs(1) / per_second.max(1);
        let count = (duration.as_secs_f64() * f64::from(per_second)) as u64;
        let origin = super::realtime::monotonic_nanos();
        let mut packet = [0u8; PROBE_BYTES];
        for number in 0..count {
            super::realtime::sleep_until(origin + number * spacing.as_nanos() as u64);
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..16].copy_from_slice(&timestamp::now_nanos().to_be_bytes());
            sender.send(&packet)?;
        }
        Ok(count)
    })?;
    let sent = join(writer)?;
    std::thread::sleep(Duration::from_millis(500));
    over.store(true, Ordering::Release);
    let arrived = join(reader)?;
    let mut seen = vec![false; sent as usize];
    for (number, _) in &arrived {
        if let Some(slot) = seen.get_mut(*number as usize) {
            *slot = true;
        }
    }
    let lost = seen.iter().filter(|seen| !**seen).count();
    let bursts = seen.split(|seen| *seen).filter(|gap| !gap.is_empty()).count();
    let overtaken = arrived
        .iter()
        .scan(0, |latest, (number, _)| {
            let late = *number < *latest;
            *latest = (*latest).max(*number);
            Some(u64::from(late))
        })
        .sum();
    Ok(Probes {
        sent,
        delays: arrived.into_iter().map(|(_, delay)| delay).collect(),
        overtaken,
        mean_burst: lost as f64 / bursts.max(1) as f64,
    })
}

/// Number and one-way delay in seconds of every probe, in order of arrival.
fn read_probes(receiver: &UdpSocket, over: &AtomicBool) -> io::Result<Vec<(u64, f64)>> {
    let mut arrived = Vec::new();
    let mut buffer = [0u8; 2048];
    while !over.load(Ordering::Acquire) {
        let Some((length, at)) = timestamp::receive(receiver, &mut buffer)? else {
            continue;
        };
        if length == PROBE_BYTES {
            let word = |at: usize| u64::from_be_bytes(buffer[at..at + 8].try_into().unwrap_or_default());
            arrived.push((word(0), at.saturating_sub(word(8)) as f64 * 1e-9));
        }
    }
    Ok(arrived)
}

/// Offers more than the link can carry and measures what leaves its far end, in IP bytes, once the pipe is full.
fn fill(chain: &Chain, rate_mbit: f64, duration: Duration, delay: Duration) -> io::Result<f64> {
    // The receiving socket is kept so that nobody answers that the port is closed; what it drops has been counted.
    let (sender, _receiver) = sockets(chain)?;
    let wire_bits = (FILL_BYTES + 28) as f64 * 8.0;
    let per_second = OVERLOAD * rate_mbit * 1e6 / wire_bits;
    let start = Instant::now();
    let writer = spawn(chain.first(), "fill-writer", move || {
        super::realtime::request();
        let packet = [0x5au8; FILL_BYTES];
        let mut sent = 0u64;
        while start.elapsed() < duration {
            let due = (start.elapsed().as_secs_f64() * per_second) as u64;
            // After a pause the missed packets are not sent in one burst: overload needs no exact count.
            sent = sent.max(due.saturating_sub(200));
            while sent < due {
                match sender.send(&packet) {
                    Ok(_) => sent += 1,
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => break,
                    Err(error) => return Err(error),
                }
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    })?;
    let count = || -> io::Result<(Instant, u64)> {
        let header = if chain.backend() == Backend::Netem { 14 } else { 0 };
        Ok((Instant::now(), DeviceCounters::read(chain.last(), LEFT, header)?.received))
    };
    std::thread::sleep(delay + Duration::from_millis(300));
    let (from, before) = count()?;
    std::thread::sleep(duration.saturating_sub(start.elapsed() + Duration::from_millis(50)));
    let (to, after) = count()?;
    join(writer)?;
    Ok((after - before) as f64 * 8e-6 / (to - from).as_secs_f64())
}

type Worker<T> = std::thread::JoinHandle<io::Result<io::Result<T>>>;

fn spawn<T: Send + 'static>(
    namespace: &Namespace,
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<Worker<T>> {
    namespace.spawn_thread(name, work)
}

fn join<T>(worker: Worker<T>) -> io::Result<T> {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
}
