//! How far a long job is: one line that is written over on a terminal, a line per run elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Runs done of runs to do. Runs differ much in length, so each has a weight: what is left is told from the weight that is done.
#[derive(Debug)]
pub struct Progress {
    state: Mutex<ProgressState>,
    is_terminal: bool,
    started: Instant,
}

#[derive(Debug)]
struct ProgressState {
    done: usize,
    runs: usize,
    weight_done: f64,
    weight: f64,
}

impl Progress {
    /// Of runs with these weights, from now on.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let (mut runs, mut weight) = (0, 0.0);
        for w in weights {
            runs += 1;
            weight += w;
        }
        let state = ProgressState { done: 0, runs, weight_done: 0.0, weight };
        Self { state: Mutex::new(state), is_terminal: std::io::stderr().is_terminal(), started: Instant::now() }
    }

    /// One more is done.
    pub fn done(&self, name: &str, weight: f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += 1;
        state.weight_done += weight;
        let line = state.line(self.started.elapsed(), name);
        let mut out = std::io::stderr().lock();
        // Nobody reads it if it cannot be written.
        let _ = if !self.is_terminal {
            writeln!(out, "{line}")
        } else if state.done == state.runs {
            write!(out, "\r\x1b[K")
        } else {
            write!(out, "\r\x1b[K{line}")
        };
        let _ = out.flush();
    }
}

impl ProgressState {
    fn line(&self, elapsed: Duration, name: &str) -> String {
        let rest = (self.weight - self.weight_done).max(0.0);
        let left = if self.weight_done > 0.0 { elapsed.as_secs_f64() * rest / self.weight_done } else { 0.0 };
        format!("{}/{} done, about {} left: {name}", self.done, self.runs, clock(left))
    }
}

/// `1:02:03`, `2:03`.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    if s >= 3600 { format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) } else { format!("{}:{:02}", s / 60, s % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_the_weight_that_is_done() {
        let state = ProgressState { done: 1, runs: 4, weight_done: 2.0, weight: 10.0 };
        assert_eq!(state.line(Duration::from_secs(30), "loss=2%"), "1/4 done, about 2:00 left: loss=2%");
        assert_eq!(clock(3_723.0), "1:02:03");
    }
}
