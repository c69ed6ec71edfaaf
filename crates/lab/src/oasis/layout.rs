//! Results where Oasis puts them, in lines that its readers find: `test_results/TEST/topology-N/`.

use std::fmt::Write;

use super::plan::{Run, UDP_BYTES};
use super::suite::{Class, Tool};
use crate::matrix::Outcome;

/// `BTP_IperfTest_iperf_tcp_iperf3_h0_h3.log`.
pub fn log_name(run: &Run) -> String {
    let tool = &run.tool;
    let (class, metric) = match tool.class {
        Class::Iperf => ("IperfTest", "iperf3"),
        Class::BatsIperf => ("IperfBatsTest", "iperf3"),
        Class::Rtt => ("RTTTest", "rtt"),
        Class::Ping => ("RegularTest", "latency"),
        Class::Scp => ("ScpTest", "scp"),
        Class::Program => ("RegularTest", "iperf3"),
    };
    let packets = if tool.is_udp { "udp" } else { "tcp" };
    format!("{}_{class}_{}_{packets}_{metric}_h{}_h{}.log", run.protocol.label(), tool.name, tool.client, tool.server)
}

/// A rate and the bytes of `seconds` as iperf3 writes them.
fn amounts(mbit: f64, seconds: f64) -> String {
    let bytes = mbit * 1e6 / 8.0 * seconds;
    if bytes < 1.0 {
        return "0.00 Bytes  0.00 bits/sec".to_owned();
    }
    let transfer = if bytes >= 1e9 {
        format!("{:.2} GBytes", bytes / 1e9)
    } else if bytes >= 1e6 {
        format!("{:.2} MBytes", bytes / 1e6)
    } else {
        format!("{:.2} KBytes", bytes / 1e3)
    };
    let rate = if mbit >= 1e3 {
        format!("{:.2} Gbits/sec", mbit / 1e3)
    } else if mbit >= 1.0 {
        format!("{mbit:.2} Mbits/sec")
    } else {
        format!("{:.2} Kbits/sec", mbit * 1e3)
    };
    format!("{transfer}  {rate}")
}

/// The log of a run: its first line says what made it.
pub fn log(tool: &Tool, sender: &str, outcome: &Outcome, by_second: &[f64], seconds: f64) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = format!("# noctule-lab oasis: {sender}\n");
    match tool.class {
        Class::Iperf | Class::BatsIperf => {
            let lost = outcome.residual_loss.map_or(String::new(), |lost| {
                let sent = (tool.bitrate * 1e6 / 8.0 / UDP_BYTES as f64 * seconds).round();
                format!("  0.000 ms  {}/{sent} ({:.2}%)", (lost * sent).round(), lost * 100.0)
            });
            for (second, mbit) in by_second.iter().enumerate() {
                let _ = writeln!(out, "[  5] {:>6.2}-{:<6.2} sec  {}", second as f64, second as f64 + 1.0, amounts(*mbit, 1.0));
            }
            let _ = writeln!(out, "[  5]   0.00-{seconds:<6.2} sec  {}{lost}  receiver", amounts(outcome.goodput_mbit, seconds));
        }
        Class::Rtt | Class::Ping => {
            let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
            let _ = writeln!(out, "round trip mean {} ms, 99th percentile {} ms", ms(outcome.rtt_ms_mean), ms(outcome.rtt_ms_p99));
        }
        Class::Scp | Class::Program => {
            let passed = if outcome.violations.is_empty() { "passed" } else { "failed" };
            let _ = writeln!(out, "{}: {passed}", tool.name);
        }
    }
    out
}

/// A file name that Oasis would write into its folder of results, made safe: names come from files of others.
pub fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}
