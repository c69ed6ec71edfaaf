//! One end of a running test: sends or receives, and gives its view of each interval to whoever wants it.

use super::protocol::{Record, Request};
use super::sink::Sink;
use super::source::{self, Watch};
use crate::failure::Failure;
use noctule::{Endpoint, Session};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// CPU time of this process.
pub struct Cpu {
    used: f64,
    at: Instant,
}

fn used() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

impl Cpu {
    /// Begins.
    pub fn start() -> Self {
        Self { used: used(), at: Instant::now() }
    }
    /// Cores in use since the last call.
    pub fn take(&mut self) -> f64 {
        let (now, at) = (used(), Instant::now());
        let share = (now - self.used) / at.duration_since(self.at).as_secs_f64().max(1e-9);
        (self.used, self.at) = (now, at);
        share
    }
}

/// Runs the sending end; its views go to `out`, `Finished` at last.
pub async fn send(session: Session, request: Request, out: mpsc::Sender<Record>) -> Result<(), Failure> {
    let messages = Arc::default();
    let mut watch = Watch::new(session.clone(), Arc::clone(&messages));
    let mut ticks = ticks(&request);
    let work = source::run(session, request, messages);
    tokio::pin!(work);
    let mut index = 0;
    loop {
        tokio::select! {
            result = &mut work => {
                result?;
                let _ = out.send(Record::Finished(watch.take(index))).await;
                return Ok(());
            }
            _ = ticks.tick() => {
                let _ = out.send(Record::Sent(watch.take(index))).await;
                index += 1;
            }
        }
    }
}

/// Runs the receiving end; its views go to `out`, `Total` at last.
pub async fn receive(endpoint: &Endpoint, session: Session, request: Request, out: mpsc::Sender<Record>) -> Result<(), Failure> {
    let mut sink = Sink::new();
    let mut ticks = ticks(&request);
    let work = sink.read(session, &request);
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => {
                result?;
                let _ = out.send(Record::Received(sink.interval())).await;
                let _ = out.send(Record::Total(sink.total(endpoint))).await;
                return Ok(());
            }
            _ = ticks.tick() => {
                let _ = out.send(Record::Received(sink.interval())).await;
            }
        }
    }
}

fn ticks(request: &Request) -> tokio::time::Interval {
    let period = Duration::from_secs_f64(request.interval);
    tokio::time::interval_at(tokio::time::Instant::now() + period, period)
}
