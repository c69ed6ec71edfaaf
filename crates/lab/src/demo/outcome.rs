//! What came of one contender, and the table of all of them.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::Job;
use crate::net::contest::Conditions;
use crate::net::timeline::Timeline;

/// One contender's run.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) name: String,
    /// From the start of the sender to the last byte, or to the cut.
    pub(super) elapsed: Duration,
    /// Bytes that arrived.
    pub(super) bytes: u64,
    /// All of them did.
    pub(super) complete: bool,
    /// BLAKE3 of what arrived is that of the file, or of as much of it as arrived.
    pub(super) identical: bool,
    pub(super) timeline: Timeline,
    /// IP bytes sent per byte that arrived.
    pub(super) wire_per_byte: Option<f64>,
    /// Where it ran; none for the simulator.
    pub(super) conditions: Option<Conditions>,
}

impl Outcome {
    pub(super) fn goodput_mbit(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(super) fn json(&self, job: &Job) -> Value {
        json!({
            "name": self.name,
            "seconds": self.elapsed.as_secs_f64(),
            "bytes": self.bytes,
            "complete": self.complete,
            "identical": self.identical,
            "goodput_mbit": self.goodput_mbit(),
            "share": self.goodput_mbit() / job.limit_mbit,
            "wire_per_byte": self.wire_per_byte,
            "interval_s": self.timeline.interval().as_secs_f64(),
            "interval_bytes": self.timeline.intervals(),
            "conditions": self.conditions,
        })
    }
}

/// The table for people. How much slower a row is: the first contender's goodput over its own.
pub(super) fn table(outcomes: &[Outcome], limit_mbit: f64) -> String {
    let mut text = String::new();
    let first = outcomes.first().map_or(0.0, Outcome::goodput_mbit);
    let _ = writeln!(
        text,
        "{:<12} {:>9} {:>14} {:>9} {:>9} {:>10}  {:<12} content",
        "", "time", "goodput", "of limit", "slower", "sent/byte", "arrived"
    );
    for outcome in outcomes {
        let goodput = outcome.goodput_mbit();
        let slower = if goodput > 0.0 { format!("{:.1}x", first / goodput) } else { "-".to_owned() };
        let wire = outcome.wire_per_byte.map_or("-".to_owned(), |bytes| format!("{bytes:.3}"));
        let arrived = if outcome.complete { "all".to_owned() } else { format!("{:.2} MB", outcome.bytes as f64 / 1e6) };
        let content = match (outcome.identical, outcome.complete) {
            (true, true) => "identical (BLAKE3)",
            (true, false) => "identical as far as it came (BLAKE3)",
            (false, _) => "DIFFERS",
        };
        let _ = writeln!(
            text,
            "{:<12} {:>7.1} s {:>7.2} Mbit/s {:>7.1} % {:>9} {:>10}  {:<12} {}",
            outcome.name,
            outcome.elapsed.as_secs_f64(),
            goodput,
            goodput / limit_mbit * 100.0,
            slower,
            wire,
            arrived,
            content
        );
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.complete) {
        let _ = writeln!(text, "{} was cut off after {:.0} s", outcome.name, outcome.elapsed.as_secs_f64());
    }
    let Some(conditions) = outcomes.first().and_then(|outcome| outcome.conditions.as_ref()) else {
        return text;
    };
    let _ = write!(text, "link by {:?}, namespaces by {}", conditions.backend, conditions.privilege);
    let reports: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.conditions.as_ref()?.emulator.as_ref()).collect();
    if !reports.is_empty() {
        let worst = |value: fn(&crate::net::emulator::Report) -> f64| reports.iter().map(|report| value(report)).fold(0.0, f64::max);
        let _ = write!(
            text,
            "; late by at most {:.0} us on average, {:.0} us at p99; {:.1} % of the processor stolen",
            worst(|report| report.lateness_mean_us),
            worst(|report| report.lateness_p99_us),
            worst(|report| report.stolen_share) * 100.0
        );
    }
    if let Some(bytes) = outcomes.iter().find_map(|outcome| outcome.conditions.as_ref()?.tcp_buffer_bytes) {
        let _ = write!(text, "; TCP buffers up to {} MiB", bytes >> 20);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, bytes: u64, seconds: u64, complete: bool, identical: bool) -> Outcome {
        Outcome {
            name: name.to_owned(),
            elapsed: Duration::from_secs(seconds),
            bytes,
            complete,
            identical,
            timeline: Timeline::default(),
            wire_per_byte: Some(1.2),
            conditions: None,
        }
    }

    #[test]
    fn table_says_time_goodput_share_and_factor() {
        let outcomes = [outcome("noctule", 100_000_000, 10, true, true), outcome("TCP cubic", 1_000_000, 60, false, true)];
        let text = table(&outcomes, 88.0);
        assert!(text.contains("80.00 Mbit/s"), "{text}");
        assert!(text.contains("90.9 %"), "{text}");
        assert!(text.contains("600.0x"), "{text}");
        assert!(text.contains("TCP cubic was cut off after 60 s"), "{text}");
        assert!(!text.contains("DIFFERS"), "{text}");
    }

    #[test]
    fn changed_bytes_are_shouted() {
        assert!(table(&[outcome("noctule", 5, 1, true, false)], 1.0).contains("DIFFERS"));
    }

    #[test]
    fn contender_that_delivered_nothing_has_no_factor() {
        let outcomes = [outcome("noctule", 100, 1, true, true), outcome("TCP cubic", 0, 60, false, true)];
        assert!(table(&outcomes, 88.0).contains(" - "));
    }
}
