//! Links driven by a trace: one opportunity to deliver per line, as the mahimahi emulator reads them.
//!
//! Each line is a whole number of milliseconds since the start, and stands for one MTU of IP bytes. Several lines may name the same
//! millisecond. After its last line the trace begins anew, counted from there. Packets smaller than the MTU share an opportunity, and
//! a packet may begin in one and end in the next. What is not used is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use noctule_proto::units::Time;
use serde::{Deserialize, Serialize};

use super::spec::SpecError;
use super::units::Bandwidth;
use crate::files::{self, Links};

/// Lines that are read at most, so that memory is bounded.
const MOST_LINES: usize = 20_000_000;

/// The opportunities of a file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Trace {
    path: String,
    /// Milliseconds, never decreasing; the last is the period.
    times_ms: Arc<[u64]>,
}

impl Trace {
    /// Reads a regular file of at most 64 MiB.
    pub fn read(path: &str) -> Result<Self, SpecError> {
        let text = files::text(path.as_ref(), Links::Follow, files::MOST_BYTES)
            .map_err(|e| SpecError::Trace { path: path.to_owned(), reason: e.to_string() })?;
        Self::parse(path, &text)
    }

    /// Reads the text of the file `path`; empty lines and lines that begin with `#` are skipped.
    pub fn parse(path: &str, text: &str) -> Result<Self, SpecError> {
        let wrong = |reason: String| SpecError::Trace { path: path.to_owned(), reason };
        let mut times_ms: Vec<u64> = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let ms: u64 = line
                .parse()
                .ok()
                .filter(|ms| *ms <= 1_000_000_000)
                // The line is not quoted: a file that is no trace may be anything, and the page shows this text.
                .ok_or_else(|| wrong(format!("line {number} is not a whole number of milliseconds")))?;
            if times_ms.last().is_some_and(|last| *last > ms) {
                return Err(wrong(format!("line {number}: {ms} ms comes after {} ms", times_ms.last().unwrap_or(&0))));
            }
            if times_ms.len() == MOST_LINES {
                return Err(wrong(format!("more than {MOST_LINES} lines")));
            }
            times_ms.push(ms);
        }
        match times_ms.last() {
            None => Err(wrong("not one opportunity to deliver".to_owned())),
            Some(0) => Err(wrong("all opportunities lie at 0 ms: the trace would last no time".to_owned())),
            Some(_) => Ok(Self { path: path.to_owned(), times_ms: times_ms.into() }),
        }
    }

    /// Hash of its opportunities, whatever its name.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for ms in self.times_ms.iter() {
            hasher.update(&ms.to_le_bytes());
        }
        hasher.finalize()
    }

    /// The name under which it was read.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Time after which it begins anew.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms())
    }

    /// Mean rate in IP bytes of `mtu`.
    pub fn mean_rate(&self, mtu: u32) -> Bandwidth {
        let bits = self.times_ms.len() as u128 * u128::from(mtu) * 8 * 1000 / u128::from(self.period_ms());
        Bandwidth::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Opportunities from `from` on and before `until`.
    pub fn opportunities(&self, from: Time, until: Time) -> u64 {
        self.first_from(until).saturating_sub(self.first_from(from))
    }

    fn period_ms(&self) -> u64 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// When the opportunity of this number comes, counted through the repetitions.
    fn time_of(&self, number: u64) -> Time {
        let n = self.times_ms.len() as u64;
        let ms = (number / n) * self.period_ms() + self.times_ms[(number % n) as usize];
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Number of the first opportunity at `at` or later.
    fn first_from(&self, at: Time) -> u64 {
        let ms = at.as_nanos().div_ceil(1_000_000);
        // The last opportunity of a round lies where the next round begins.
        let round = (ms / self.period_ms()).saturating_sub(1);
        let n = self.times_ms.len() as u64;
        for round in round.. {
            let within = ms.saturating_sub(round * self.period_ms());
            if within <= self.period_ms() {
                return round * n + self.times_ms.partition_point(|t| *t < within) as u64;
            }
        }
        u64::MAX
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("path", &self.path).field("opportunities", &self.times_ms.len()).finish_non_exhaustive()
    }
}

impl TryFrom<String> for Trace {
    type Error = SpecError;
    fn try_from(path: String) -> Result<Self, SpecError> {
        Self::read(&path)
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> Self {
        trace.path
    }
}

/// A trace in a run: which opportunity is the present one, and what is left of it.
#[derive(Debug, Clone)]
pub(super) struct Opportunities {
    trace: Trace,
    mtu: u32,
    /// Number of the next opportunity that nothing has been taken from.
    next: u64,
    /// Time of the opportunity before it, and the bytes that are left of that.
    at: Time,
    left: u32,
}

impl Opportunities {
    pub(super) fn new(trace: Trace, mtu: u32) -> Self {
        Self { trace, mtu, next: 0, at: Time::ZERO, left: 0 }
    }

    /// The first moment from `now` on at which bytes may leave.
    pub(super) fn ready_at(&self, now: Time) -> Time {
        if self.left > 0 && self.at >= now {
            return self.at;
        }
        self.trace.time_of(self.next.max(self.trace.first_from(now)))
    }

    /// Sends `len` bytes from `now` on; when the last of them leaves.
    pub(super) fn take(&mut self, now: Time, len: u32) -> Time {
        let mut need = len;
        loop {
            if self.left == 0 || self.at < now {
                self.next = self.next.max(self.trace.first_from(now));
                self.at = self.trace.time_of(self.next);
                self.next += 1;
                self.left = self.mtu;
            }
            let part = need.min(self.left);
            self.left -= part;
            need -= part;
            if need == 0 {
                return self.at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn trace(text: &str) -> Trace {
        Trace::parse("a.trace", text).unwrap()
    }

    #[test]
    fn a_trace_begins_anew_after_its_last_line() {
        let t = trace("# made here\n2\n2\n\n5\n10\n");
        let times: Vec<u64> = (0..9).map(|n| t.time_of(n).as_nanos() / 1_000_000).collect();
        assert_eq!(times, [2, 2, 5, 10, 12, 12, 15, 20, 22]);
        assert_eq!(t.mean_rate(1500), Bandwidth::from_bits_per_sec(4 * 1500 * 8 * 100));
        for (from, until, n) in [(0, 10, 3), (0, 11, 4), (2, 3, 2), (3, 5, 0), (0, 1000, 399), (10, 20, 4), (995, 1005, 4)] {
            assert_eq!(t.opportunities(ms(from), ms(until)), n, "{from} to {until}");
        }
    }

    #[test]
    fn counting_is_the_same_as_looking() {
        let t = trace("0\n1\n1\n7\n9\n");
        for from in 0..40 {
            for until in from..40 {
                let seen = (0..200).filter(|&n| (ms(from)..ms(until)).contains(&t.time_of(n))).count() as u64;
                assert_eq!(t.opportunities(ms(from), ms(until)), seen, "{from} to {until}");
            }
        }
    }

    #[test]
    fn small_packets_share_an_opportunity_and_one_may_span_two() {
        let mut o = Opportunities::new(trace("10\n20\n30\n"), 1500);
        assert_eq!(o.ready_at(ms(0)), ms(10));
        assert_eq!(o.take(ms(10), 700), ms(10));
        assert_eq!(o.ready_at(ms(10)), ms(10));
        assert_eq!(o.take(ms(10), 700), ms(10));
        // 100 bytes are left at 10 ms, the other 600 go at 20 ms.
        assert_eq!(o.take(ms(10), 700), ms(20));
        // What was left at 20 ms is gone at 21.
        assert_eq!(o.ready_at(ms(21)), ms(30));
        assert_eq!(o.take(ms(30), 1500), ms(30));
        assert_eq!(o.take(ms(30), 1500), ms(40));
    }

    #[test]
    fn a_trace_is_a_regular_file_and_nothing_waits_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        crate::files::tests::fifo(&path);
        for path in [path.to_str().unwrap(), dir.path().to_str().unwrap(), "/dev/zero"] {
            assert!(Trace::read(path).unwrap_err().to_string().contains("not a regular file"), "{path}");
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for (text, names) in [
            ("", "not one"),
            ("5\n3\n", "line 2"),
            ("5\nx\n", "line 2 is not"),
            ("-1\n", "line 1"),
            ("0\n0\n", "no time"),
            ("1.5\n", "whole"),
        ] {
            let error = Trace::parse("a.trace", text).unwrap_err().to_string();
            assert!(error.contains(names) && error.contains("a.trace"), "{text}: {error}");
        }
        assert!(Trace::read("/does/not/exist").unwrap_err().to_string().contains("/does/not/exist"));
        // A file with secrets that is named as a trace gives none of them away.
        let error = Trace::parse("a.trace", "root:x:0:0\n").unwrap_err().to_string();
        assert!(!error.contains("root"), "{error}");
    }
}
