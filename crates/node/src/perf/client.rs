//! `noctule perf -c`: asks for a test, runs its half, prints both halves' views.

use super::end;
use super::protocol::{CONTROL_TAG, Received, Record, Request, Sent, Total};
use crate::cli::{PerfArgs, PerfMode};
use crate::failure::Failure;
use crate::identity;
use crate::transfer::records::{self, Reader};
use noctule::{Endpoint, FlowOptions, NodeConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Bytes per btp message unless told: fits one packet on any path.
const BTP_LENGTH: usize = 1200;

fn request(args: &PerfArgs) -> Request {
    let is_btp = args.mode == PerfMode::Btp;
    Request {
        version: 1,
        mode: if is_btp { "btp" } else { "brtp" }.to_owned(),
        seconds: args.time,
        interval: args.interval,
        parallel: args.parallel,
        reverse: args.reverse,
        rate: args.rate.map(|r| r.0.bytes_per_sec() * 8.0),
        length: args.length.or(is_btp.then_some(BTP_LENGTH)),
        lifetime_ms: is_btp.then_some(args.lifetime.0.as_secs_f64() * 1e3),
    }
}

/// Runs one test.
pub async fn run(args: &PerfArgs, host: &str) -> Result<(), Failure> {
    let request = request(args);
    request.check().map_err(Failure::Usage)?;
    let expected = args.peer_key.ok_or_else(|| Failure::Usage("--peer-key is needed".into()))?;
    let (mut config, _) = identity::endpoint_config(args.key.as_deref())?;
    config.node = NodeConfig { congestion: args.cc.0, accept: false, ..NodeConfig::default() };
    let ours = config.identity.public();
    let host = identity::host_with_port(host, args.port);
    let endpoint = Endpoint::client(config)?;
    let session = endpoint.connect_host(&host, Some(expected)).await.map_err(|e| Failure::connect(&host, ours, expected, e))?;
    let (mut ask, answers) =
        session.open_stream(FlowOptions { tag: CONTROL_TAG, class: noctule::Class::Latency, ..FlowOptions::default() })?;
    records::write(&mut ask, &Record::Request(request.clone())).await?;
    let mut answers = Reader::new(answers);
    match answers.record::<Record>().await? {
        Some(Record::Ready) => {}
        Some(Record::Refused { message }) => return Err(Failure::Usage(format!("the server refused: {message}"))),
        _ => return Err(Failure::PeerGone("it is no `noctule perf -s`".into())),
    }
    let mut report = Report::new(args, request.clone(), session.remote_address().map_or(host, |a| a.to_string()));
    let (out, mut views) = mpsc::channel(64);
    let work = async {
        match request.reverse {
            true => end::receive(&endpoint, session.clone(), request.clone(), out).await,
            false => end::send(session.clone(), request.clone(), out).await,
        }
    };
    tokio::pin!(work);
    let (mut is_done, mut is_told) = (false, false);
    while !(is_done && is_told && views.is_empty()) {
        tokio::select! {
            result = &mut work, if !is_done => {
                is_done = true;
                result?;
            }
            Some(view) = views.recv() => report.take(view),
            answer = answers.record::<Record>(), if !is_told => match answer? {
                Some(view) => report.take(view),
                None => is_told = true,
            },
        }
    }
    report.finish(endpoint.stats().memory.peak as u64);
    session.close(0, "").await;
    endpoint.wait_idle().await;
    Ok(())
}

/// Both halves' views of the intervals, joined by their number.
struct Report {
    request: Request,
    remote: String,
    is_json: bool,
    cc: String,
    sent: BTreeMap<u64, Sent>,
    received: BTreeMap<u64, Received>,
    printed: u64,
    intervals: Vec<Value>,
    total: Total,
    finished: Sent,
    sent_sum: (f64, f64, f64, f64),
}

impl Report {
    fn new(args: &PerfArgs, request: Request, remote: String) -> Self {
        if !args.json {
            println!(
                "{} with {remote} for {} s, {} flow(s){}",
                request.mode,
                request.seconds,
                request.parallel,
                if request.reverse { ", server sends" } else { "" }
            );
            println!(
                "{:>15}  {:>12}  {:>14}  {:>8}  {:>7}  {:>7}  {:>11}",
                "interval", "transfer", "goodput", "RTT", "loss", "repair", "CPU snd/rcv"
            );
        }
        Self {
            request,
            remote,
            is_json: args.json,
            cc: args.cc.to_string(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            printed: 0,
            intervals: Vec::new(),
            total: Total::default(),
            finished: Sent::default(),
            sent_sum: (0.0, 0.0, 0.0, 0.0),
        }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Sent(s) => {
                self.sent_sum.0 += s.loss;
                self.sent_sum.1 += s.repair_share;
                self.sent_sum.2 += s.cpu;
                self.sent_sum.3 += 1.0;
                self.sent.insert(s.index, s);
            }
            Record::Received(r) => {
                self.received.insert(r.index, r);
            }
            Record::Total(t) => self.total = t,
            Record::Finished(s) => self.finished = s,
            Record::Request(_) | Record::Ready | Record::Refused { .. } => {}
        }
        while let (Some(received), Some(sent)) = (self.received.get(&self.printed), self.sent.get(&self.printed)) {
            let line = self.interval(received, Some(sent));
            self.intervals.push(line);
            self.printed += 1;
        }
    }

    fn interval(&self, r: &Received, s: Option<&Sent>) -> Value {
        let seconds = (r.end - r.start).max(1e-9);
        let bits = r.bytes as f64 * 8.0 / seconds;
        let s = s.cloned().unwrap_or_else(|| self.finished.clone());
        // What came in the last milliseconds is in the total; a rate it is not.
        if !self.is_json && seconds >= 0.05 {
            println!(
                "{:>6.2}-{:<6.2} s  {:>9.2} MB  {:>7.2} Mbit/s  {:>5.1} ms  {:>5.2} %  {:>5.2} %  {:>3.0}/{:.0} %",
                r.start,
                r.end,
                r.bytes as f64 * 1e-6,
                bits * 1e-6,
                s.rtt_ms,
                s.loss * 100.0,
                s.repair_share * 100.0,
                s.cpu * 100.0,
                r.cpu * 100.0
            );
        }
        json!({"sum": {
            "start": r.start, "end": r.end, "seconds": seconds, "bytes": r.bytes, "bits_per_second": bits, "goodput_mbit": bits * 1e-6,
            "messages": r.messages, "rtt_ms": s.rtt_ms, "loss": s.loss, "repair_share": s.repair_share,
            "cpu": {"sender": s.cpu, "receiver": r.cpu}, "sender": false,
        }})
    }

    /// The rest of the intervals and the summary.
    fn finish(mut self, local_memory_peak: u64) {
        let rest: Vec<Received> =
            self.received.range(self.printed..).map(|(_, r)| r.clone()).filter(|r| r.bytes > 0 || r.end - r.start > 0.05).collect();
        for r in rest {
            let line = self.interval(&r, self.sent.get(&r.index));
            self.intervals.push(line);
        }
        let t = &self.total;
        let bits = t.bytes as f64 * 8.0 / t.seconds.max(1e-9);
        let (loss, repair, cpu, n) = self.sent_sum;
        let n = n.max(1.0);
        let wire = self.finished.wire_bytes as f64 / (t.bytes as f64).max(1.0);
        let residual = if self.finished.messages == 0 { 0.0 } else { 1.0 - t.messages as f64 / self.finished.messages as f64 };
        let cpu_received: Vec<f64> = self.received.values().map(|r| r.cpu).collect();
        let cpu_received = cpu_received.iter().sum::<f64>() / (cpu_received.len() as f64).max(1.0);
        if self.is_json {
            let end = json!({
                "seconds": t.seconds, "bytes": t.bytes, "bits_per_second": bits, "goodput_mbit": bits * 1e-6, "bytes_wrong": t.bytes_wrong,
                "messages_sent": self.finished.messages, "messages_received": t.messages, "residual_loss": residual,
                "wire_bytes": self.finished.wire_bytes, "wire_per_byte": wire, "rtt_ms": self.finished.rtt_ms, "loss": loss / n, "repair_share": repair / n,
                "cpu": {"sender": cpu / n, "receiver": cpu_received},
                "cpu_seconds_per_gbit": (cpu / n + cpu_received) * t.seconds / (t.bytes as f64 * 8e-9).max(1e-9),
                "memory_peak_bytes": t.memory_peak_bytes.max(local_memory_peak),
            });
            let start = json!({
                "version": format!("noctule {}", env!("CARGO_PKG_VERSION")), "remote": self.remote, "cc": self.cc,
                "test_start": serde_json::to_value(&self.request).unwrap_or(Value::Null),
            });
            println!("{}", json!({"start": start, "intervals": self.intervals, "end": end}));
            return;
        }
        println!(
            "\n{:.2} MB in {:.2} s: {:.2} Mbit/s; {wire:.3} bytes sent per useful byte",
            t.bytes as f64 * 1e-6,
            t.seconds,
            bits * 1e-6
        );
        println!(
            "loss {:.2} %, repair {:.2} % of coded packets, RTT {:.1} ms, CPU sender {:.0} %, receiver {:.0} %",
            loss / n * 100.0,
            repair / n * 100.0,
            self.finished.rtt_ms,
            cpu / n * 100.0,
            cpu_received * 100.0
        );
        if self.finished.messages > 0 {
            println!("messages: {} sent, {} received, residual loss {:.3} %", self.finished.messages, t.messages, residual * 100.0);
        }
        if t.bytes_wrong > 0 {
            println!("{} BYTES WERE WRONG: please report this", t.bytes_wrong);
        }
    }
}
