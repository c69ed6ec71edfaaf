//! Results as tables for people.

use std::fmt::Write;

use super::{Report, Times};

/// One run as lines of name and value.
pub fn run_table(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<22} {value}");
    };
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.2} %", s * 100.0));
    line("goodput", format!("{:.3} Mbit/s", report.goodput_mbit));
    if let Some(limit) = report.nominal_limit_mbit {
        line("nominal limit", format!("{limit:.3} Mbit/s"));
        line("share of the limit", format!("{} (whole run {})", percent(report.share), percent(report.share_whole)));
    }
    line("realised limit", format!("{:.3} Mbit/s (share {})", report.realised_limit_mbit, percent(report.share_realised)));
    line("bytes delivered", format!("{} ({} wrong)", report.bytes_delivered, report.bytes_wrong));
    let wire: Vec<String> = report.wire_per_byte.iter().map(|w| w.map_or("-".to_owned(), |w| format!("{w:.4}"))).collect();
    line("wire bytes per byte", wire.join(" "));
    line("queueing delay p95", format!("{:.2} ms", report.queue_ms_p95));
    let times =
        |t: Times| format!("mean {:.2}  p50 {:.2}  p99 {:.2}  p99.9 {:.2} ms  ({} messages)", t.mean, t.p50, t.p99, t.p999, t.count);
    if let Some(t) = report.message_rtt_ms {
        line("message round trip", times(t));
    }
    if let Some(t) = report.message_one_way_ms {
        line("message one way", times(t));
    }
    if let Some(loss) = report.residual_loss {
        line("residual loss", format!("{:.4} % of {} messages", loss * 100.0, report.messages_due));
    }
    if let Some(rtts) = report.startup_rtts {
        line("start-up", format!("{rtts} round trips to 95 % of the limit"));
    }
    if let Some(ms) = report.handshake_ms {
        line("handshake", format!("{ms:.2} ms"));
    }
    if let Some(s) = report.transfer_s {
        line("transfer", format!("{s:.3} s"));
    }
    if let Some(jain) = report.jain {
        let pairs: Vec<String> = report.pairs_mbit.iter().map(|m| format!("{m:.2}")).collect();
        line("pairs", format!("{} Mbit/s, Jain index {jain:.4}", pairs.join(" ")));
    }
    if let Some(r) = &report.reverse {
        line("other direction", format!("{:.3} Mbit/s, {} of its limit, {} wrong", r.goodput_mbit, percent(r.share), r.bytes_wrong));
    }
    if let Some(s) = &report.sender {
        line(
            "sender",
            format!(
                "rtt {:.1} ms  loss {:.2} %  {} source  {} repair ({} proactive)  {} spurious",
                s.rtt_ms,
                s.loss * 100.0,
                s.source_packets,
                s.repair_packets,
                s.proactive_packets,
                s.spurious_losses
            ),
        );
    }
    line("memory", format!("{} of {} bytes", report.memory_peak_bytes, report.memory_limit_bytes));
    for failure in &report.failures {
        line("FAILED", failure.clone());
    }
    out
}

/// Runs one below the other.
pub fn grid_table(rows: &[(String, &Report, Vec<String>)]) -> String {
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max(4);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<width$} {:>9} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9} {:>8}  result",
        "case", "Mbit/s", "limit", "share", "wire/B", "queue p95", "rtt mean", "rtt p99", "residual"
    );
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    for (name, r, violations) in rows {
        let result = if violations.is_empty() { "ok".to_owned() } else { format!("FAILED: {}", violations.join("; ")) };
        let _ = writeln!(
            out,
            "{name:<width$} {:>9.2} {:>9} {:>8} {:>7} {:>9.2} {:>9} {:>9} {:>8}  {result}",
            r.goodput_mbit,
            number(r.nominal_limit_mbit, 2),
            number(r.share.map(|s| s * 100.0), 1) + if r.share.is_some() { "%" } else { "" },
            number(r.wire_per_byte.first().copied().flatten(), 4),
            r.queue_ms_p95,
            number(r.message_rtt_ms.map(|t| t.mean), 2),
            number(r.message_rtt_ms.map(|t| t.p99), 2),
            number(r.residual_loss, 5),
        );
    }
    out
}
