//! Interleaved measuring: every contender once per round, medians over the rounds, in CPU time of the thread.
//!
//! CPU time, not wall time: the machine may be shared, and being off the CPU says nothing about a code.

/// CPU time of this thread so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `time` is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Median and least CPU seconds of each contender. On a machine whose cores are shared with others' threads the least is nearer to the code's own.
pub fn interleaved_with_least(rounds: usize, contenders: &mut [Box<dyn FnMut() + '_>]) -> Vec<(f64, f64)> {
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    all_times(rounds, contenders).into_iter().map(|times| (median(times.clone()), least(&times))).collect()
}

/// Median CPU seconds of each contender. Contenders take turns, so that what else the machine does falls on all of them.
pub fn interleaved(rounds: usize, contenders: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    all_times(rounds, contenders).into_iter().map(median).collect()
}

fn all_times(rounds: usize, contenders: &mut [Box<dyn FnMut() + '_>]) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(rounds); contenders.len()];
    for contender in contenders.iter_mut() {
        contender(); // warm up
    }
    for _ in 0..rounds {
        for (times, contender) in times.iter_mut().zip(contenders.iter_mut()) {
            let start = cpu_seconds();
            contender();
            // The clock of a virtual machine stands still now and then.
            let seconds = cpu_seconds() - start;
            if seconds > 0.0 {
                times.push(seconds);
            }
        }
    }
    times
}

/// Median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Value below which `share` of the values lie.
pub fn quantile(values: &[usize], share: f64) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)]
}
