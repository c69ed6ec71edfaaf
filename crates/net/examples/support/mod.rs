//! What several examples measure.
#![allow(dead_code, reason = "each example is a crate and uses what it needs")]

use std::time::Duration;

/// CPU time used so far by the process, or by this thread (`RUSAGE_SELF`, `RUSAGE_THREAD`): user and system.
pub fn cpu_of(which: libc::c_int) -> (Duration, Duration) {
    // SAFETY: a plain structure of integers, written by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(which, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    (time(usage.ru_utime), time(usage.ru_stime))
}

/// CPU time of the process so far.
pub fn cpu() -> Duration {
    let (user, system) = cpu_of(libc::RUSAGE_SELF);
    user + system
}

/// The value in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
