//! One end of a running test: sends or receives, and gives its figures of each interval to its subscribers.

use super::protocol::{Record, Request};
use super::sink::{Inlet, Sink};
use super::source::{self, Outlet};
use super::watch::Watch;
use crate::failure::Failure;
use noctule::{Endpoint, FarText, Session};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
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

/// What carries the data of a test at this end.
pub struct Carrier {
    pub session: Session,
    /// Empty unless the test is about TCP.
    pub tcp: Vec<TcpStream>,
}

/// What this end does: one of them, or both.
#[derive(Clone, Debug)]
pub struct Role {
    pub sends: bool,
    pub receives: bool,
    /// What is sent instead of the pattern.
    pub file: Option<PathBuf>,
}

/// Runs this end to its completion; its views go to `out`.
pub async fn run(endpoint: &Endpoint, carrier: Carrier, request: Request, role: Role, out: mpsc::Sender<Record>) -> Result<(), Failure> {
    let Carrier { session, tcp } = carrier;
    let watched = watched(&tcp)?;
    let is_tcp = !tcp.is_empty();
    let (readers, writers): (Vec<_>, Vec<_>) = tcp.into_iter().map(TcpStream::into_split).unzip();
    let (inlet, outlet) = match is_tcp {
        true => (Inlet::Tcp(readers), Outlet::Tcp(writers)),
        false => (Inlet::Session(session.clone()), Outlet::Session(session.clone())),
    };
    // A half that is not used stays until the end: dropping it would close its direction.
    let mut unused = (None, None);
    let receiving = async {
        match role.receives {
            true => receive(endpoint, inlet, &request, &out).await,
            false => {
                unused.0 = Some(inlet);
                Ok(())
            }
        }
    };
    let sending = async {
        match role.sends {
            true => send(session, outlet, watched, request.clone(), role.file, &out).await,
            false => {
                unused.1 = Some(outlet);
                Ok(())
            }
        }
    };
    tokio::try_join!(receiving, sending)?;
    Ok(())
}

fn watched(tcp: &[TcpStream]) -> Result<Vec<OwnedFd>, Failure> {
    let duplicate = |stream| rustix::io::dup(stream).map_err(|e| Failure::system("TCP", e));
    tcp.iter().map(duplicate).collect()
}

/// The sending half; `Finished` comes last.
async fn send(
    session: Session,
    outlet: Outlet,
    watched: Vec<OwnedFd>,
    request: Request,
    file: Option<PathBuf>,
    out: &mpsc::Sender<Record>,
) -> Result<(), Failure> {
    let progress = Arc::default();
    let mut watch = Watch::new(session, watched, Arc::clone(&progress));
    let mut ticks = ticks(&request);
    let work = source::run(outlet, request, file, progress);
    tokio::pin!(work);
    let mut index = 0;
    loop {
        tokio::select! {
            result = &mut work => {
                let mut last = watch.take(index);
                last.blake3 = result?.map(FarText::from);
                let _ = out.send(Record::Finished(last)).await;
                return Ok(());
            }
            _ = ticks.tick() => {
                let _ = out.send(Record::Sent(watch.take(index))).await;
                index += 1;
            }
        }
    }
}

/// The receiving half; `Total` comes last.
async fn receive(endpoint: &Endpoint, inlet: Inlet, request: &Request, out: &mpsc::Sender<Record>) -> Result<(), Failure> {
    let mut sink = Sink::new(request.parallel);
    let mut ticks = ticks(request);
    let work = sink.read(inlet, request);
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
