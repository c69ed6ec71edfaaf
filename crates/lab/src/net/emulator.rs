//! The link emulator in user space: one thread reads and writes TUN devices and runs [`LinkModel`] in each direction.
//!
//! While packets are in flight it wakes once per quantum; otherwise it sleeps until one comes. Every run records how late
//! it was, and a run that was too late is refused by [`Report::check`]: its figures would be those of the machine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use super::ip;
use super::realtime::{self, Granted, MachineTime};
use super::tun::Tun;
use crate::link::{Ecn, Histogram, LinkModel, LinkStats, Time, flip_bits};

/// Buffers kept for reuse; more are freed.
const POOL: usize = 65_536;
/// Largest number of packets read from one device before the others get their turn.
const READ_BURST: usize = 256;
/// How long an idle emulator sleeps before it looks whether it should stop.
const IDLE: Duration = Duration::from_millis(50);

/// How an emulator runs.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Time between two looks at busy devices. Waking for each packet would halve the rate that one core holds.
    pub quantum: Duration,
    /// Ask for real-time scheduling.
    pub realtime: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { quantum: Duration::from_micros(50), realtime: true }
    }
}

/// Limits beyond which a run says more about the machine than about the link.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Tolerance {
    /// Mean over all packets.
    pub mean: Duration,
    /// 99th percentile over all packets.
    pub p99: Duration,
    /// Share of all processor time that a hypervisor may have taken.
    pub stolen: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { mean: Duration::from_micros(500), p99: Duration::from_millis(3), stolen: 0.05 }
    }
}

impl Tolerance {
    /// With another limit of the 99th percentile, and a mean that fits it.
    pub fn with_p99(self, p99: Duration) -> Self {
        Self { p99, mean: p99.min(Duration::from_micros(500)).max(p99 / 6), ..self }
    }
}

/// A run that was not what the link description says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfaithful {
    /// Packets came too late.
    #[error(
        "the emulator delivered packets {mean:?} late on average and {p99:?} at p99 (limits {mean_limit:?} and {p99_limit:?}): \
             this machine was too slow or too busy, the run does not count"
    )]
    Late {
        /// Mean lateness.
        mean: Duration,
        /// 99th percentile.
        p99: Duration,
        /// Limit of the mean.
        mean_limit: Duration,
        /// Limit of the 99th percentile.
        p99_limit: Duration,
    },
    /// A hypervisor took the processor away.
    #[error("{per_mille} per mille of the processor time were stolen by the hypervisor (limit {limit_per_mille}): the run does not count")]
    Stolen {
        /// Share in thousandths.
        per_mille: u32,
        /// Limit in thousandths.
        limit_per_mille: u32,
    },
}

/// Both directions of one emulated link and the devices at its ends.
pub struct Duplex {
    /// Device of the left host.
    pub left: Tun,
    /// Device of the right host.
    pub right: Tun,
    /// From left to right.
    pub forward: LinkModel<Vec<u8>>,
    /// From right to left.
    pub backward: LinkModel<Vec<u8>>,
    /// MTU of both devices in bytes.
    pub mtu: u32,
}

impl std::fmt::Debug for Duplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duplex").field("mtu", &self.mtu).finish_non_exhaustive()
    }
}

/// How a run of the emulator went.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What the kernel granted.
    pub granted: Granted,
    /// Quantum in microseconds.
    pub quantum_us: f64,
    /// Packets delivered, all links and directions.
    pub packets: u64,
    /// Packets that the receiving stack refused at once.
    pub refused: u64,
    /// Mean time from the moment at which a packet should have been delivered to the write, in microseconds.
    pub lateness_mean_us: f64,
    /// 99th percentile of the same.
    pub lateness_p99_us: f64,
    /// Maximum of the same.
    pub lateness_max_us: f64,
    /// Share of one core that the emulator used.
    pub cpu_share: f64,
    /// Share of all processor time that the hypervisor gave to others.
    pub stolen_share: f64,
    /// Share of all processor time in which the machine was idle. Where it is small, the machine slowed the programs under test, and not the link.
    pub idle_share: f64,
}

impl Report {
    /// Refuses a run whose figures the machine has spoilt.
    pub fn check(&self, tolerance: &Tolerance) -> Result<(), Unfaithful> {
        let micros = |us: f64| Duration::from_nanos((us * 1e3) as u64);
        let (mean, p99) = (micros(self.lateness_mean_us), micros(self.lateness_p99_us));
        if mean > tolerance.mean || p99 > tolerance.p99 {
            return Err(Unfaithful::Late { mean, p99, mean_limit: tolerance.mean, p99_limit: tolerance.p99 });
        }
        if self.stolen_share > tolerance.stolen {
            return Err(Unfaithful::Stolen {
                per_mille: (self.stolen_share * 1e3) as u32,
                limit_per_mille: (tolerance.stolen * 1e3) as u32,
            });
        }
        Ok(())
    }
}

/// Counters of both directions of a link.
#[derive(Debug, Clone, Default)]
pub struct DuplexStats {
    /// From left to right.
    pub forward: LinkStats,
    /// From right to left.
    pub backward: LinkStats,
}

/// A running emulator; it stops when dropped.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<AtomicBool>,
    engine: Arc<Mutex<Engine>>,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Emulator {
    /// Starts the thread; the links' clocks read zero now.
    pub fn start(duplexes: Vec<Duplex>, options: Options) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let engine = Arc::new(Mutex::new(Engine::new(duplexes)));
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn({
            let (stop, engine) = (Arc::clone(&stop), Arc::clone(&engine));
            move || run(&engine, options, &stop)
        })?;
        Ok(Self { stop, engine, thread: Some(thread) })
    }

    /// Counters of every link since the start or since [`Self::clear_stats`].
    pub fn stats(&self) -> Vec<DuplexStats> {
        lock(&self.engine)
            .duplexes
            .iter()
            .map(|duplex| DuplexStats { forward: duplex.forward.stats().clone(), backward: duplex.backward.stats().clone() })
            .collect()
    }

    /// Begins to count anew, at the end of a warm-up. Lateness goes on counting.
    pub fn clear_stats(&self) {
        for duplex in &mut lock(&self.engine).duplexes {
            duplex.forward.clear_stats();
            duplex.backward.clear_stats();
        }
    }

    /// Whether it has stopped by itself, because a device failed it; [`Self::finish`] says why.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops and reports.
    pub fn finish(mut self) -> io::Result<Report> {
        self.join().unwrap_or_else(|| Err(io::Error::other("the emulator was already stopped")))
    }

    fn join(&mut self) -> Option<io::Result<Report>> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}

fn lock(engine: &Mutex<Engine>) -> MutexGuard<'_, Engine> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(engine: &Mutex<Engine>, options: Options, stop: &AtomicBool) -> io::Result<Report> {
    let granted = if options.realtime { realtime::request() } else { Granted { fifo: false, timer_slack: false } };
    let machine = MachineTime::read();
    let started = Instant::now();
    let origin = realtime::monotonic_nanos();
    let clock = || Time::from_nanos(realtime::monotonic_nanos() - origin);
    let quantum = options.quantum.as_nanos().max(1) as u64;
    while !stop.load(Ordering::Acquire) {
        // The lock is held for a burst only, never over a sleep: statistics are read between bursts.
        let activity = lock(engine).turn(&clock)?;
        let now = clock();
        match activity {
            Activity::Moved => {
                let tick = (now.as_nanos() / quantum + 1) * quantum;
                realtime::sleep_until(origin + tick);
            }
            Activity::Quiet(deadline) => {
                let until = deadline.unwrap_or(Time::MAX);
                let nanos = until.since(now).min(IDLE).as_nanos() as u64;
                wait(engine, nanos)?;
            }
        }
    }
    let now = MachineTime::read();
    let engine = lock(engine);
    let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
    Ok(Report {
        granted,
        quantum_us: micros(options.quantum),
        packets: engine.lateness.count(),
        refused: engine.refused,
        lateness_mean_us: micros(engine.lateness.mean()),
        lateness_p99_us: micros(engine.lateness.quantile(0.99)),
        lateness_max_us: micros(engine.lateness.max()),
        cpu_share: realtime::thread_cpu_time().as_secs_f64() / started.elapsed().as_secs_f64(),
        stolen_share: now.stolen_share_since(machine),
        idle_share: now.idle_share_since(machine),
    })
}

/// Sleeps until a device is readable. The descriptors are copied out so that the lock is free meanwhile.
fn wait(engine: &Mutex<Engine>, nanos: u64) -> io::Result<()> {
    let raw: Vec<std::os::fd::RawFd> = {
        use std::os::fd::AsRawFd;
        let engine = lock(engine);
        let both = |duplex: &Duplex| [duplex.left.as_fd().as_raw_fd(), duplex.right.as_fd().as_raw_fd()];
        engine.duplexes.iter().flat_map(both).collect()
    };
    // SAFETY: the devices live in the engine, which outlives this call and never closes them before it is dropped.
    let descriptors: Vec<BorrowedFd<'_>> = raw.into_iter().map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect();
    realtime::wait_readable(&descriptors, nanos)
}

/// What one turn found.
enum Activity {
    /// Packets came or went: look again after a quantum.
    Moved,
    /// Nothing to do before this time.
    Quiet(Option<Time>),
}

/// The links and the memory of their packets.
#[derive(Debug)]
struct Engine {
    duplexes: Vec<Duplex>,
    pool: Vec<Vec<u8>>,
    lateness: Histogram,
    refused: u64,
}

impl Engine {
    fn new(duplexes: Vec<Duplex>) -> Self {
        Self { duplexes, pool: Vec::new(), lateness: Histogram::default(), refused: 0 }
    }

    /// Reads what has come and writes what is due.
    fn turn(&mut self, clock: &impl Fn() -> Time) -> io::Result<Activity> {
        let mut moved = false;
        let mut deadline: Option<Time> = None;
        for index in 0..self.duplexes.len() {
            let Duplex { left, right, forward, backward, mtu } = &mut self.duplexes[index];
            let directions = [(&*left, forward, &*right), (&*right, backward, &*left)];
            for (from, link, to) in directions {
                let mut lane = Lane { pool: &mut self.pool, lateness: &mut self.lateness, refused: &mut self.refused, mtu: *mtu as usize };
                moved |= lane.take_in(from, link, clock)?;
                moved |= lane.hand_out(to, link, clock())?;
                deadline = match (deadline, link.next_deadline()) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        Ok(if moved { Activity::Moved } else { Activity::Quiet(deadline) })
    }
}

/// What one direction borrows from the engine for a turn.
struct Lane<'a> {
    pool: &'a mut Vec<Vec<u8>>,
    lateness: &'a mut Histogram,
    refused: &'a mut u64,
    mtu: usize,
}

impl Lane<'_> {
    fn take_in(&mut self, from: &Tun, link: &mut LinkModel<Vec<u8>>, clock: &impl Fn() -> Time) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..READ_BURST {
            let mut packet = self.pool.pop().unwrap_or_default();
            packet.resize(self.mtu, 0);
            let Some(length) = from.receive(&mut packet)? else {
                self.recycle(packet);
                break;
            };
            packet.truncate(length);
            if ip::is_link_chatter(&packet) {
                self.recycle(packet);
                continue;
            }
            moved = true;
            let ecn = ip::ecn(&packet);
            if let Err(dropped) = link.enqueue_of_flow(clock(), ip::flow(&packet), length as u32, ecn, packet) {
                self.recycle(dropped.packet);
            }
        }
        while let Some(lost) = link.poll_discarded() {
            self.recycle(lost);
        }
        Ok(moved)
    }

    fn hand_out(&mut self, to: &Tun, link: &mut LinkModel<Vec<u8>>, now: Time) -> io::Result<bool> {
        let mut moved = false;
        while let Some(mut delivery) = link.poll_deliver(now) {
            moved = true;
            if let Some(seed) = delivery.corrupt {
                flip_bits(&mut delivery.packet, seed);
            } else if delivery.ecn == Ecn::Ce {
                ip::mark_congestion_experienced(&mut delivery.packet);
            }
            self.lateness.record(now.since(delivery.at));
            if !to.send(&delivery.packet)? {
                *self.refused += 1;
            }
            self.recycle(delivery.packet);
        }
        Ok(moved)
    }

    fn recycle(&mut self, packet: Vec<u8>) {
        if self.pool.len() < POOL {
            self.pool.push(packet);
        }
    }
}
