//! The report of a test, as lines or as JSON; of a test that breaks off, what there is.

mod json;
mod leg;
mod text;

use super::output::Output;
use super::protocol::{Direction, Record, Request};
use crate::failure::Failure;
use crate::units::Scale;
use leg::{Interval, Leg, Sums};
use noctule::RouteStats;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::SystemTime;
use text::Style;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    pub is_json: bool,
    pub is_verbose: bool,
    /// Units of rates.
    pub scale: Scale,
    /// Seconds at the beginning that count for nothing.
    pub omit: f64,
}

/// The ends of a test.
#[derive(Clone, Debug)]
pub struct Ends {
    pub remote: String,
    pub local: Option<SocketAddr>,
}

/// The report of one test.
pub struct Report {
    request: Request,
    ends: Ends,
    cc: String,
    output: Output,
    form: Form,
    style: Style,
    started: SystemTime,
    forward: Leg,
    reverse: Leg,
    /// JSON of intervals, each direction's.
    lines: (Vec<Value>, Vec<Value>),
    streams: (Vec<Value>, Vec<Value>),
}

impl Report {
    /// Begins with a headline.
    pub fn new(request: Request, ends: Ends, cc: String, form: Form, mut output: Output) -> Self {
        let style = Style {
            direction: request.direction,
            mode: request.mode,
            has_messages: request.length.is_some(),
            flows: request.parallel,
            is_verbose: form.is_verbose,
            scale: form.scale,
        };
        if !form.is_json {
            output.line(&style.headline(&request, &ends.remote, &cc));
            output.line(&style.head());
        }
        // An interval that begins before the time to omit is over is omitted whole.
        let leg = || Leg::new((form.omit / request.interval).ceil() as u64);
        let (forward, reverse) = (leg(), leg());
        Self {
            request,
            ends,
            cc,
            output,
            form,
            style,
            started: SystemTime::now(),
            forward,
            reverse,
            lines: Default::default(),
            streams: Default::default(),
        }
    }

    /// A view of this end (`is_ours`) or of the server.
    pub fn take(&mut self, record: Record, is_ours: bool) {
        // What we send and what the server receives is the forward direction.
        let is_sending = matches!(record, Record::Sent(_) | Record::Finished(_));
        let is_forward = is_sending == is_ours;
        let leg = if is_forward { &mut self.forward } else { &mut self.reverse };
        leg.take(record);
        let ready: Vec<_> = std::iter::from_fn(|| leg.next()).collect();
        for interval in ready {
            self.show(is_forward, &interval);
        }
    }

    fn show(&mut self, is_forward: bool, interval: &Interval) {
        let (sum, streams) = json::interval(&self.request, interval);
        let (lines, all) = if is_forward { (&mut self.lines.0, &mut self.streams.0) } else { (&mut self.lines.1, &mut self.streams.1) };
        lines.push(sum);
        all.push(streams);
        if !self.form.is_json && !crate::terminal::is_quiet() && (!interval.is_rest || interval.seconds() >= 0.05) {
            for line in self.style.interval(is_forward, interval) {
                self.output.line(&line);
            }
        }
    }

    /// The rest of the intervals and the summary. `routes`: what went by each of several nodes at once. `broken`: why the test ended before its time;
    /// then of what there is.
    ///
    /// # Errors
    /// A file's hash at the far end is another one; the report cannot be written.
    pub fn finish(mut self, memory_peak: u64, routes: &[(String, RouteStats)], broken: Option<&Failure>) -> Result<(), Failure> {
        for is_forward in [true, false] {
            let leg = if is_forward { &mut self.forward } else { &mut self.reverse };
            for interval in leg.rest() {
                self.show(is_forward, &interval);
            }
        }
        let sums = |leg: &Leg| {
            let sums = leg.sums();
            Sums { memory_peak_bytes: sums.memory_peak_bytes.max(memory_peak), ..sums }
        };
        let (forward, reverse) = (sums(&self.forward), sums(&self.reverse));
        if self.form.is_json {
            let mut all = self.json(&forward, &reverse);
            all["end"]["routes"] = routes.iter().map(|(name, r)| json::route(name, r)).collect();
            if let Some(failure) = broken {
                all["error"] = json!(failure.to_string());
                all["code"] = json!(failure.exit_code());
            }
            self.output.plain(&all.to_string());
        } else {
            self.output.line("");
            for (is_forward, sums) in [(true, &forward), (false, &reverse)] {
                let is_used = self.request.direction == Direction::Both || is_forward == (self.request.direction == Direction::Forward);
                for line in if is_used { self.style.summary(is_forward, sums) } else { Vec::new() } {
                    self.output.line(&line);
                }
            }
            if routes.len() > 1 {
                let of = |(name, r): &(String, RouteStats)| format!("{name} {:.2} MB", (r.sent_bytes + r.received_bytes) as f64 * 1e-6);
                self.output.line(&format!("by several routes at once: {}", routes.iter().map(of).collect::<Vec<_>>().join(", ")));
            }
            if let (Some(ours), Some(theirs)) = &forward.hashes
                && ours == theirs
            {
                self.output.line(&format!("the file arrived whole: BLAKE3 {ours}"));
            }
        }
        self.output.flush()?;
        match (broken, forward.hashes) {
            (None, (Some(ours), theirs)) if theirs.as_ref() != Some(&ours) => {
                Err(Failure::Hash { path: "the file".into(), problem: "its hash at the server is another one".into() })
            }
            _ => Ok(()),
        }
    }

    fn json(&self, forward: &Sums, reverse: &Sums) -> Value {
        let request = &self.request;
        let (main, lines, streams) = match request.direction {
            Direction::Forward | Direction::Both => (forward, &self.lines.0, &self.streams.0),
            Direction::Reverse => (reverse, &self.lines.1, &self.streams.1),
        };
        let is_both = request.direction == Direction::Both;
        let intervals: Vec<Value> = (lines.iter().zip(streams).enumerate())
            .map(|(i, (sum, streams))| match is_both {
                false => json!({"streams": streams, "sum": sum}),
                true => {
                    let back = self.lines.1.get(i).cloned().unwrap_or(Value::Null);
                    json!({"streams": streams, "sum": sum, "sum_bidir_reverse": back})
                }
            })
            .collect();
        let mut end = json::end(request, main);
        let cc = |leg: &Leg| leg.tcp_congestion();
        let leg = if request.direction == Direction::Reverse { &self.reverse } else { &self.forward };
        if let Some(name) = cc(leg) {
            end["sender_tcp_congestion"] = json!(name);
            end["receiver_tcp_congestion"] = json!(cc(if is_both { &self.reverse } else { leg }).unwrap_or(name));
        }
        if is_both {
            let back = json::end(request, reverse);
            end["sum_sent_bidir_reverse"] = back["sum_sent"].clone();
            end["sum_received_bidir_reverse"] = back["sum_received"].clone();
            end["bidir_reverse"] = back;
        }
        let start = json::Start {
            request,
            remote: &self.ends.remote,
            local: self.ends.local,
            cc: &self.cc,
            started: self.started,
            omit: self.form.omit,
        };
        json!({"start": start.json(), "intervals": intervals, "end": end})
    }
}

/// A test that could not begin, as iperf3 tells it.
pub fn failed_to_begin(failure: &Failure) -> String {
    json!({"start": {}, "intervals": [], "end": {}, "error": failure.to_string(), "code": failure.exit_code()}).to_string()
}
