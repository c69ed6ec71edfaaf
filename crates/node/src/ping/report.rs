//! What a ping prints and writes: lines, a summary, JSON, CSV, SVG.

use super::figure;
use super::summary::{First, Sample, Samples, Summary, Ten};
use crate::cli::PingArgs;
use crate::failure::Failure;
use crate::perf::output::Output;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Before the first message.
pub fn headline(args: &PingArgs, remote: &str, interval: Duration, output: &mut Output) {
    if !args.json {
        let rate = 1.0 / interval.as_secs_f64();
        output.line(&format!(
            "{} to {remote}: {} messages of {} bytes, {} a second",
            args.mode.name(),
            args.count(),
            args.length,
            (rate * 1e4).round() * 1e-4
        ));
    }
}

/// One message.
pub fn one(args: &PingArgs, number: usize, sample: &Sample, wait_ms: f64, output: &mut Output) {
    if args.json || crate::terminal::is_quiet() {
        return;
    }
    let answer = match sample.rtt_ms {
        Some(ms) if ms <= wait_ms => format!("{ms:.2} ms"),
        Some(ms) => format!("{ms:.2} ms, late"),
        None => "no answer".to_owned(),
    };
    output.line(&format!("message {number}: {answer}"));
}

/// Ten messages, the first of them number `first`.
pub fn ten(args: &PingArgs, first: usize, ten: &Ten, output: &mut Output) {
    if args.json || crate::terminal::is_quiet() {
        return;
    }
    let mean = ten.mean_ms.map_or_else(|| "no answer".to_owned(), |ms| format!("mean {ms:.2} ms"));
    let lost = if ten.received < ten.sent { format!(", {} lost or late", ten.sent - ten.received) } else { String::new() };
    output.line(&format!("messages {first}-{}: {mean}{lost}", first + ten.sent - 1));
}

/// One sample of `--first`.
pub fn one_first(args: &PingArgs, number: u32, first: Option<First>, output: &mut Output) {
    if args.json || crate::terminal::is_quiet() {
        return;
    }
    match first {
        Some(f) => {
            output.line(&format!("start {number}: connected after {:.2} ms, first answer {:.2} ms later", f.connect_ms, f.answer_ms))
        }
        None => output.line(&format!("start {number}: no answer within {} ms", args.wait.0.as_millis())),
    }
}

/// Why a ping broke off.
fn note(report: &mut serde_json::Value, broken: Option<&Failure>) {
    if let Some(failure) = broken {
        report["error"] = json!(failure.to_string());
        report["code"] = json!(failure.exit_code());
    }
}

/// A ping that could not begin.
pub fn failed_to_begin(failure: &Failure) -> String {
    json!({"error": failure.to_string(), "code": failure.exit_code()}).to_string()
}

/// The end of `--first`; with `broken` of the starts that there are.
pub fn first(args: &PingArgs, all: &[First], mean: First, broken: Option<&Failure>, mut output: Output) -> Result<(), Failure> {
    let asked = args.first.unwrap_or(0);
    if args.json {
        let mut report = json!({
            "mode": args.mode.name(), "length": args.length, "starts": asked, "answered": all.len(),
            "mean": {"connect_ms": mean.connect_ms, "answer_ms": mean.answer_ms, "total_ms": mean.connect_ms + mean.answer_ms},
            "samples": all,
        });
        note(&mut report, broken);
        output.plain(&report.to_string());
    } else {
        output.line(&format!(
            "\nmean of {} starts: connected after {:.2} ms, first answer {:.2} ms later, {:.2} ms in all",
            all.len(),
            mean.connect_ms,
            mean.answer_ms,
            mean.connect_ms + mean.answer_ms
        ));
    }
    output.flush()?;
    if all.is_empty() { Err(Failure::Unreachable(args.host.clone())) } else { Ok(()) }
}

/// The end of a steady ping; with `broken` of the messages that there are.
pub fn steady(args: &PingArgs, remote: &str, samples: &Samples, broken: Option<&Failure>, mut output: Output) -> Result<(), Failure> {
    let summary = samples.summary();
    let first = samples.all.first().and_then(|s| s.rtt_ms);
    if args.json {
        let mut report = json!({
            "mode": args.mode.name(), "remote": remote, "length": args.length, "count": args.count(), "wait_ms": samples.wait_ms,
            "summary": summary, "first_answer_ms": first, "tens": samples.tens(),
        });
        note(&mut report, broken);
        output.plain(&report.to_string());
    } else {
        for line in text(&summary, first, samples.wait_ms) {
            output.line(&line);
        }
    }
    if let Some(path) = &args.csv {
        write(path, &csv(samples))?;
    }
    if let Some(path) = &args.svg {
        let title = format!("{} to {remote}, {} bytes", args.mode.name(), args.length);
        write(path, &figure::svg(&title, samples).map_err(|e| Failure::System(e.to_string()))?)?;
    }
    output.flush()?;
    if summary.received == 0 { Err(Failure::Unreachable(remote.to_owned())) } else { Ok(()) }
}

fn text(s: &Summary, first: Option<f64>, wait_ms: f64) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!(
            "{} sent, {} answered within {wait_ms:.0} ms, {} late: residual loss {:.3} %",
            s.sent,
            s.received,
            s.late,
            s.residual_loss * 100.0
        ),
    ];
    if s.received > 0 {
        lines.push(format!(
            "min {:.3}  mean {:.3}  deviation {:.3}  jitter {:.3}  max {:.3} ms",
            s.min_ms, s.mean_ms, s.deviation_ms, s.jitter_ms, s.max_ms
        ));
        lines
            .push(format!("p50 {:.3}  p90 {:.3}  p95 {:.3}  p99 {:.3}  p99.9 {:.3} ms", s.p50_ms, s.p90_ms, s.p95_ms, s.p99_ms, s.p999_ms));
    }
    if let Some(first) = first {
        lines.push(format!("first answer after {first:.3} ms"));
    }
    lines
}

/// One line per message.
fn csv(samples: &Samples) -> String {
    let mut text = "message,due_s,rtt_ms,outcome\n".to_owned();
    for (i, s) in samples.all.iter().enumerate() {
        let (time, outcome) = match s.rtt_ms {
            Some(t) if t <= samples.wait_ms => (format!("{t:.4}"), "answered"),
            Some(t) => (format!("{t:.4}"), "late"),
            None => (String::new(), "lost"),
        };
        let _ = writeln!(text, "{i},{:.6},{time},{outcome}", s.due);
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::target(path, &e))
}

#[cfg(test)]
mod tests {
    use super::super::summary::Sample;
    use super::*;

    #[test]
    fn csv_says_of_each_message_what_became_of_it() {
        let all = [Some(1.5), Some(200.0), None].map(|rtt_ms| Sample { due: 0.25, rtt_ms }).to_vec();
        let text = csv(&Samples { all, wait_ms: 100.0 });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["message,due_s,rtt_ms,outcome", "0,0.250000,1.5000,answered", "1,0.250000,200.0000,late", "2,0.250000,,lost"]);
    }
}
