//! Running on time on an ordinary kernel: real-time scheduling where permitted, fine timers, and an account of the
//! processor time that a hypervisor took away.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Priority of the emulator among real-time threads: above ordinary work, below the kernel's own threads (50).
const FIFO_PRIORITY: libc::c_int = 40;

/// Niceness of contenders.
const CONTENDER_NICE: libc::c_int = -10;

/// What the kernel granted to the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Granted {
    /// SCHED_FIFO: ordinary processes cannot delay the thread.
    pub fifo: bool,
    /// Timer slack of one nanosecond instead of 50 us.
    pub timer_slack: bool,
}

/// Asks for SCHED_FIFO and for timers without slack; what is refused is missing from the answer.
pub fn request() -> Granted {
    let parameters = libc::sched_param { sched_priority: FIFO_PRIORITY };
    // SAFETY: 0 means the calling thread; the structure lives over the call.
    let fifo = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) } == 0;
    // SAFETY: takes plain numbers. Real-time threads have no slack at all; it matters where FIFO is refused.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize) } == 0;
    Granted { fifo, timer_slack: slack }
}

/// Puts the calling thread, a contender's, above ordinary work where permitted: what else runs on the machine is not
/// what is measured. Safe between fork and exec.
pub fn prefer_contender() {
    // SAFETY: setpriority takes plain numbers; 0 is the calling thread. A refusal is no error.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, CONTENDER_NICE) };
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sleeps until CLOCK_MONOTONIC reads `nanos`.
pub fn sleep_until(nanos: u64) {
    let time = timespec(nanos);
    // An interrupted sleep only means an early look at the queues.
    // SAFETY: reads one timespec.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut()) };
}

/// Sleeps until one of the descriptors is readable, or for `nanos` at most.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], nanos: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mut set: Vec<libc::pollfd> =
        descriptors.iter().map(|descriptor| libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let time = timespec(nanos);
    // SAFETY: the set and the timespec live over the call; no signal mask is given.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, &time, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec { tv_sec: (nanos / 1_000_000_000) as libc::time_t, tv_nsec: (nanos % 1_000_000_000) as libc::c_long }
}

/// Processor time of the whole machine since it started, as /proc/stat counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineTime {
    total: u64,
    stolen: u64,
    idle: u64,
}

impl MachineTime {
    /// Reads /proc/stat; all zero where it cannot be read.
    pub fn read() -> Self {
        fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or(Self { total: 0, stolen: 0, idle: 0 })
    }

    /// proc(5): user nice system idle iowait irq softirq steal guest guest_nice; guest is already within user.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some(Self { total: ticks.iter().sum(), stolen: *ticks.get(7)?, idle: ticks[3] + ticks[4] })
    }

    /// Share of all processor time since `earlier` that the hypervisor gave to others.
    pub fn stolen_share_since(self, earlier: Self) -> f64 {
        self.share(earlier, self.stolen.saturating_sub(earlier.stolen))
    }

    /// Share of all processor time since `earlier` in which the machine had nothing to do.
    pub fn idle_share_since(self, earlier: Self) -> f64 {
        self.share(earlier, self.idle.saturating_sub(earlier.idle))
    }

    fn share(self, earlier: Self, part: u64) -> f64 {
        match self.total.saturating_sub(earlier.total) {
            0 => 0.0,
            total => part as f64 / total as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field_of_proc_stat() {
        let before = MachineTime::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1\n").unwrap();
        let after = MachineTime::parse("cpu  30 0 20 130 10 0 0 20 7 7\ncpu0 1\n").unwrap();
        assert_eq!(after.stolen_share_since(before), 20.0 / 110.0);
        assert_eq!(after.idle_share_since(before), 60.0 / 110.0);
        assert_eq!(before.stolen_share_since(before), 0.0);
    }

    #[test]
    fn garbage_in_proc_stat_is_refused() {
        assert!(MachineTime::parse("cpu a b c").is_none());
        assert!(MachineTime::parse("cpu 1 2 3").is_none());
        assert!(MachineTime::parse("").is_none());
    }
}
