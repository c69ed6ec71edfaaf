//! Both halves' views of the intervals of a test, joined by their number; as lines for people, or as JSON whose fields have iperf3's names where they
//! mean the same.

use super::output::Output;
use super::protocol::{Direction, Mode, Received, Record, Request, Sent, Total};
use crate::failure::Failure;
use noctule::RouteStats;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// One direction of a test.
#[derive(Default)]
struct Way {
    sent: BTreeMap<u64, Sent>,
    received: BTreeMap<u64, Received>,
    /// Intervals that were shown.
    shown: u64,
    lines: Vec<Value>,
    total: Total,
    finished: Sent,
    /// Sums of loss, repair, proactive repair, CPU over so many intervals.
    sums: (f64, f64, f64, f64, f64),
}

/// The report of one test.
pub struct Report {
    request: Request,
    remote: String,
    cc: String,
    output: Output,
    is_json: bool,
    started: SystemTime,
    forward: Way,
    reverse: Way,
}

impl Report {
    /// Begins with a headline.
    pub fn new(request: Request, remote: String, cc: String, is_json: bool, mut output: Output) -> Self {
        if !is_json {
            let flows = if request.parallel == 1 { "1 flow".to_owned() } else { format!("{} flows", request.parallel) };
            let who = match request.direction {
                Direction::Forward => "",
                Direction::Reverse => ", the server sends",
                Direction::Both => ", both send",
            };
            let length = if request.is_file { "a file".to_owned() } else { format!("{} s", request.seconds) };
            output.line(&format!("{} with {remote} for {length}, {flows}{who}, congestion control {cc}", request.mode.name()));
            let way = if request.direction == Direction::Both { "     " } else { "" };
            let mut head = format!("{way}{:>15}  {:>12}  {:>14}  {:>8}  {:>7}", "interval", "transfer", "goodput", "RTT", "loss");
            match request.mode {
                Mode::Brtp | Mode::Btp => head += &format!("  {:>7}  {:>7}", "repair", "ahead"),
                Mode::Transparent | Mode::Tcp => {}
            }
            if request.length.is_some() {
                head += &format!("  {:>9}  {:>9}", "jitter", "lost");
            }
            output.line(&(head + &format!("  {:>11}  {:>8}", "CPU snd/rcv", "s/Gbit")));
        }
        Self { request, remote, cc, output, is_json, started: SystemTime::now(), forward: Way::default(), reverse: Way::default() }
    }

    /// A view of this end (`is_ours`) or of the server.
    pub fn take(&mut self, record: Record, is_ours: bool) {
        // What we send and what the server receives is the way forward.
        let is_sending = matches!(record, Record::Sent(_) | Record::Finished(_));
        let is_forward = is_sending == is_ours;
        let way = if is_forward { &mut self.forward } else { &mut self.reverse };
        way.take(record);
        while let (Some(received), Some(sent)) = (way.received.get(&way.shown), way.sent.get(&way.shown)) {
            let (received, sent) = (received.clone(), sent.clone());
            way.shown += 1;
            way.lines.push(interval_json(&self.request, &received, &sent));
            if !self.is_json {
                self.output.line(&interval_text(&self.request, is_forward, &received, &sent));
            }
        }
    }

    /// The rest of the intervals and the summary. `routes`: what went by each of several nodes at once.
    ///
    /// # Errors
    /// A file's hash at the far end is another one.
    pub fn finish(mut self, memory_peak: u64, routes: &[(String, RouteStats)]) -> Result<(), Failure> {
        for is_forward in [true, false] {
            let way = if is_forward { &mut self.forward } else { &mut self.reverse };
            way.total.memory_peak_bytes = way.total.memory_peak_bytes.max(memory_peak);
            for r in way.rest() {
                let sent = way.sent.get(&r.index).unwrap_or(&way.finished).clone();
                way.lines.push(interval_json(&self.request, &r, &sent));
                if !self.is_json && r.end - r.start >= 0.05 {
                    self.output.line(&interval_text(&self.request, is_forward, &r, &sent));
                }
            }
        }
        let hashes = (self.forward.finished.blake3.clone(), self.forward.total.blake3.clone());
        if self.is_json {
            let mut all = self.json();
            all["end"]["routes"] = routes.iter().map(|(name, r)| route_json(name, r)).collect();
            self.output.plain(&all.to_string());
        } else {
            self.output.line("");
            for (is_forward, way) in [(true, &self.forward), (false, &self.reverse)] {
                if is_forward == (self.request.direction == Direction::Reverse) && self.request.direction != Direction::Both {
                    continue;
                }
                for line in way.summary(&self.request) {
                    let mark = if self.request.direction == Direction::Both { arrow(is_forward) } else { "" };
                    self.output.line(&format!("{mark}{line}"));
                }
            }
            if routes.len() > 1 {
                let of = |(name, r): &(String, RouteStats)| format!("{name} {:.2} MB", (r.sent_bytes + r.received_bytes) as f64 * 1e-6);
                self.output.line(&format!("by several routes at once: {}", routes.iter().map(of).collect::<Vec<_>>().join(", ")));
            }
            if let (Some(ours), Some(theirs)) = &hashes
                && ours == theirs
            {
                self.output.line(&format!("the file arrived whole: BLAKE3 {ours}"));
            }
        }
        self.output.flush()?;
        match hashes {
            (Some(ours), theirs) if theirs.as_ref() != Some(&ours) => {
                Err(Failure::Hash { path: "the file".into(), problem: "its hash at the server is another one".into() })
            }
            _ => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let request = &self.request;
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (host, port) = self.remote.rsplit_once(':').unwrap_or((&self.remote, ""));
        let start = json!({
            "version": format!("noctule {}", env!("CARGO_PKG_VERSION")),
            "remote": self.remote,
            "connecting_to": {"host": host.trim_matches(['[', ']']), "port": port.parse::<u16>().ok()},
            "timestamp": {"time": humantime::format_rfc3339_millis(self.started).to_string(), "timesecs": since.as_secs(), "timemillis": since.as_millis() as u64},
            "cc": self.cc,
            "test_start": {
                "protocol": request.mode.name(), "num_streams": request.parallel, "blksize": request.length, "duration": request.seconds,
                "reverse": u8::from(request.direction == Direction::Reverse), "bidir": u8::from(request.direction == Direction::Both),
                "target_bitrate": request.rate, "interval": request.interval, "lifetime_ms": request.lifetime_ms,
            },
        });
        let (main, other) = match request.direction {
            Direction::Forward => (&self.forward, None),
            Direction::Reverse => (&self.reverse, None),
            Direction::Both => (&self.forward, Some(&self.reverse)),
        };
        let intervals: Vec<Value> = match other {
            None => main.lines.iter().map(|sum| json!({"sum": sum})).collect(),
            Some(other) => {
                let back = |i: usize| other.lines.get(i).cloned().unwrap_or(Value::Null);
                main.lines.iter().enumerate().map(|(i, sum)| json!({"sum": sum, "sum_bidir_reverse": back(i)})).collect()
            }
        };
        let mut end = main.end(request);
        if let Some(other) = other {
            let reverse = other.end(request);
            end["sum_sent_bidir_reverse"] = reverse["sum_sent"].clone();
            end["sum_received_bidir_reverse"] = reverse["sum_received"].clone();
            end["bidir_reverse"] = reverse;
        }
        json!({"start": start, "intervals": intervals, "end": end})
    }
}

impl Way {
    fn take(&mut self, record: Record) {
        match record {
            Record::Sent(s) => {
                self.count(&s);
                self.sent.insert(s.index, s);
            }
            Record::Received(r) => {
                self.received.insert(r.index, r);
            }
            Record::Total(t) => self.total = t,
            Record::Finished(s) => self.finished = s,
            Record::Request(_) | Record::EchoTcp { .. } | Record::Ready { .. } | Record::Waiting { .. } | Record::Refused { .. } => {}
        }
    }

    /// Intervals that the end of the test cut short. What came in the last milliseconds is in the total; a rate it is not.
    fn rest(&mut self) -> Vec<Received> {
        let rest = self.received.range(self.shown..).map(|(_, r)| r);
        let rest: Vec<_> = rest.filter(|r| r.bytes > 0 || r.end - r.start > 0.05).cloned().collect();
        if rest.iter().any(|r| r.end - r.start >= 0.05 && !self.sent.contains_key(&r.index)) {
            // The sender's last view is that of such an interval, which may be the only one.
            self.count(&self.finished.clone());
        }
        rest
    }

    fn count(&mut self, s: &Sent) {
        self.sums.0 += s.loss;
        self.sums.1 += s.repair_share;
        self.sums.2 += s.proactive_share;
        self.sums.3 += s.cpu;
        self.sums.4 += 1.0;
    }

    fn bits_per_second(&self) -> f64 {
        self.total.bytes as f64 * 8.0 / self.total.seconds.max(1e-9)
    }

    /// Messages that were sent and never handed over, as a share: what came too late is among them.
    fn residual_loss(&self) -> f64 {
        match self.finished.messages {
            0 => 0.0,
            sent => (1.0 - self.total.messages as f64 / sent as f64).max(0.0),
        }
    }

    /// Means of loss, repair, proactive repair and sender's CPU over the intervals.
    fn means(&self) -> (f64, f64, f64, f64) {
        let n = self.sums.4.max(1.0);
        (self.sums.0 / n, self.sums.1 / n, self.sums.2 / n, self.sums.3 / n)
    }

    fn receiver_cpu(&self) -> f64 {
        // Intervals differ in length: the last may be a few milliseconds.
        let (seconds, cpu) = self.received.values().fold((0.0, 0.0), |(s, c), r| (s + seconds_of(r), c + r.cpu * seconds_of(r)));
        cpu / f64::max(seconds, 1e-9)
    }

    fn cpu_per_gbit(&self) -> f64 {
        (self.means().3 + self.receiver_cpu()) * self.total.seconds / (self.total.bytes as f64 * 8e-9).max(1e-9)
    }

    fn wire_per_byte(&self) -> f64 {
        self.finished.wire_bytes as f64 / (self.total.bytes as f64).max(1.0)
    }

    fn end(&self, request: &Request) -> Value {
        let (t, f, bits) = (&self.total, &self.finished, self.bits_per_second());
        let (loss, repair, proactive, cpu) = self.means();
        let lost = f.messages.saturating_sub(t.messages);
        let messages = request.length.is_some();
        let of_messages = |v: Value| if messages { v } else { Value::Null };
        json!({
            "seconds": t.seconds, "bytes": t.bytes, "bits_per_second": bits, "goodput_mbit": bits * 1e-6, "bytes_wrong": t.bytes_wrong,
            "messages_sent": f.messages, "messages_received": t.messages, "residual_loss": self.residual_loss(),
            "wire_bytes": f.wire_bytes, "wire_per_byte": self.wire_per_byte(), "rtt_ms": f.rtt_ms,
            "loss": loss, "repair_share": repair, "proactive_share": proactive,
            "cpu": {"sender": cpu, "receiver": self.receiver_cpu()},
            "cpu_seconds_per_gbit": self.cpu_per_gbit(),
            "memory_peak_bytes": t.memory_peak_bytes,
            "blake3": t.blake3,
            "sum_sent": {
                "start": 0, "end": t.seconds, "seconds": t.seconds, "sender": true,
                "bytes": request.length.map_or(t.bytes, |l| f.messages * l as u64), "packets": of_messages(json!(f.messages)),
                "retransmits": if request.mode == Mode::Tcp { json!(f.lost_packets) } else { Value::Null },
            },
            "sum_received": {
                "start": 0, "end": t.seconds, "seconds": t.seconds, "bytes": t.bytes, "bits_per_second": bits, "sender": false,
                "jitter_ms": of_messages(json!(t.jitter_ms)), "lost_packets": of_messages(json!(lost)), "packets": of_messages(json!(f.messages)),
                "lost_percent": of_messages(json!(self.residual_loss() * 100.0)), "out_of_order": of_messages(json!(t.out_of_order)),
            },
            "cpu_utilization_percent": {
                "host_total": 100.0 * if request.direction == Direction::Reverse { self.receiver_cpu() } else { cpu },
                "remote_total": 100.0 * if request.direction == Direction::Reverse { cpu } else { self.receiver_cpu() },
            },
        })
    }

    fn summary(&self, request: &Request) -> Vec<String> {
        let (t, f) = (&self.total, &self.finished);
        let (loss, repair, proactive, cpu) = self.means();
        let mut head = format!("{:.2} MB in {:.2} s: {:.2} Mbit/s", t.bytes as f64 * 1e-6, t.seconds, self.bits_per_second() * 1e-6);
        let mut lines = Vec::new();
        if request.mode == Mode::Tcp {
            lines.push(head);
            lines.push(format!("{:.2} % of segments sent again, RTT {:.1} ms", loss * 100.0, f.rtt_ms));
        } else {
            head += &format!("; {:.3} bytes sent per useful byte", self.wire_per_byte());
            lines.push(head);
            let coding = match request.mode {
                Mode::Transparent => String::new(),
                _ => format!(
                    "loss {:.2} %, repair {:.2} % of coded packets ({:.2} % ahead of any loss), ",
                    loss * 100.0,
                    repair * 100.0,
                    proactive * 100.0
                ),
            };
            lines.push(format!("{coding}RTT {:.1} ms", f.rtt_ms));
        }
        lines.push(format!(
            "CPU sender {:.0} %, receiver {:.0} %: {:.2} s per Gbit",
            cpu * 100.0,
            self.receiver_cpu() * 100.0,
            self.cpu_per_gbit()
        ));
        if f.messages > 0 {
            lines.push(format!(
                "messages: {} sent, {} received, residual loss {:.3} %, jitter {:.3} ms, {} out of order",
                f.messages,
                t.messages,
                self.residual_loss() * 100.0,
                t.jitter_ms,
                t.out_of_order
            ));
        }
        if t.bytes_wrong > 0 {
            lines.push(format!("{} BYTES WERE WRONG: please report this", t.bytes_wrong));
        }
        lines
    }
}

/// What went and came by one of several nodes, as the ends know it.
fn route_json(name: &str, r: &RouteStats) -> Value {
    json!({
        "via": name, "sent_packets": r.sent_packets, "sent_bytes": r.sent_bytes,
        "received_packets": r.received_packets, "received_bytes": r.received_bytes,
    })
}

fn arrow(is_forward: bool) -> &'static str {
    if is_forward { "[->] " } else { "[<-] " }
}

fn seconds_of(r: &Received) -> f64 {
    (r.end - r.start).max(1e-9)
}

fn cpu_per_gbit(r: &Received, s: &Sent) -> Option<f64> {
    (r.bytes > 0).then(|| (s.cpu + r.cpu) * seconds_of(r) / (r.bytes as f64 * 8e-9))
}

fn interval_text(request: &Request, is_forward: bool, r: &Received, s: &Sent) -> String {
    let mark = if request.direction == Direction::Both { arrow(is_forward) } else { "" };
    let mut line = format!(
        "{mark}{:>6.2}-{:<6.2} s  {:>9.2} MB  {:>7.2} Mbit/s  {:>5.1} ms  {:>5.2} %",
        r.start,
        r.end,
        r.bytes as f64 * 1e-6,
        r.bytes as f64 * 8e-6 / seconds_of(r),
        s.rtt_ms,
        s.loss * 100.0
    );
    if matches!(request.mode, Mode::Brtp | Mode::Btp) {
        line += &format!("  {:>5.2} %  {:>5.2} %", s.repair_share * 100.0, s.proactive_share * 100.0);
    }
    if request.length.is_some() {
        line += &format!("  {:>6.3} ms  {:>9}", r.jitter_ms, r.lost_messages);
    }
    let per_gbit = cpu_per_gbit(r, s).map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    line + &format!("  {:>4.0}/{:<4.0} %  {per_gbit:>8}", s.cpu * 100.0, r.cpu * 100.0)
}

fn interval_json(request: &Request, r: &Received, s: &Sent) -> Value {
    let bits = r.bytes as f64 * 8.0 / seconds_of(r);
    let expected = r.messages as i64 + r.lost_messages;
    let of_messages = |v: Value| if request.length.is_some() { v } else { Value::Null };
    json!({
        "start": r.start, "end": r.end, "seconds": seconds_of(r), "bytes": r.bytes, "bits_per_second": bits, "goodput_mbit": bits * 1e-6,
        "messages": r.messages, "rtt_ms": s.rtt_ms, "loss": s.loss, "repair_share": s.repair_share, "proactive_share": s.proactive_share,
        "jitter_ms": of_messages(json!(r.jitter_ms)), "lost_packets": of_messages(json!(r.lost_messages)), "packets": of_messages(json!(expected)),
        "lost_percent": of_messages(json!(if expected > 0 { r.lost_messages as f64 * 100.0 / expected as f64 } else { 0.0 })),
        "cpu": {"sender": s.cpu, "receiver": r.cpu}, "cpu_seconds_per_gbit": cpu_per_gbit(r, s), "sender": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(messages: u64, came: u64) -> Way {
        Way {
            total: Total { seconds: 2.0, bytes: 1_000_000, messages: came, ..Total::default() },
            finished: Sent { messages, wire_bytes: 1_200_000, ..Sent::default() },
            ..Way::default()
        }
    }

    #[test]
    fn residual_loss_is_what_was_sent_and_never_handed_over() {
        assert_eq!(way(0, 0).residual_loss(), 0.0);
        assert_eq!(way(1000, 990).residual_loss(), 0.010000000000000009);
        assert_eq!(way(10, 11).residual_loss(), 0.0);
    }

    #[test]
    fn the_only_interval_counts_and_a_scrap_of_one_does_not() {
        let mut w = Way::default();
        w.take(Record::Received(Received { index: 0, start: 0.0, end: 0.99, bytes: 1000, cpu: 0.2, ..Received::default() }));
        w.take(Record::Received(Received { index: 1, start: 0.99, end: 1.0, bytes: 10, cpu: 0.9, ..Received::default() }));
        w.take(Record::Finished(Sent { index: 0, cpu: 0.3, loss: 0.5, ..Sent::default() }));
        assert_eq!(w.rest().len(), 2);
        let (loss, _, _, cpu) = w.means();
        assert_eq!((loss, cpu), (0.5, 0.3));
        assert!((w.receiver_cpu() - 0.207).abs() < 1e-9, "{}", w.receiver_cpu());
    }

    #[test]
    fn rates_and_costs_are_per_useful_byte() {
        let w = way(0, 0);
        assert_eq!(w.bits_per_second(), 4e6);
        assert_eq!(w.wire_per_byte(), 1.2);
    }
}
