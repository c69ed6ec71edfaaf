//! The sending side of a test.

use super::pattern::{self, MAX_PIECE};
use super::protocol::{DATA_TAG, Request, Sent};
use crate::failure::Failure;
use noctule::{FlowKind, FlowOptions, MessageOptions, Mode, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{Instant as TokioInstant, sleep_until};

/// Bytes per write of a stream whose rate is given: small enough that a slow rate is smooth.
const PACED_PIECE: usize = 8 * 1024;

/// Opens the flows and sends for the time asked for; then waits until everything was delivered.
pub async fn run(session: Session, request: Request, messages: Arc<AtomicU64>) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for _ in 0..request.parallel {
        let (session, request, messages) = (session.clone(), request.clone(), Arc::clone(&messages));
        tasks.spawn(async move {
            match request.length {
                Some(length) => send_messages(&session, &request, length, start, &messages).await,
                None => send_stream(&session, &request, start).await,
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.map_err(|e| Failure::system("a sending task", e))??;
    }
    Ok(())
}

/// When the next piece may leave, at the rate of one flow.
struct Schedule {
    start: Instant,
    end: Instant,
    interval: Option<Duration>,
    count: u32,
}

impl Schedule {
    fn new(request: &Request, piece: usize, start: Instant) -> Self {
        let interval = request.rate.map(|rate| Duration::from_secs_f64(piece as f64 * 8.0 * f64::from(request.parallel) / rate));
        Self { start, end: start + Duration::from_secs_f64(request.seconds), interval, count: 0 }
    }

    /// Waits for the turn of the next piece; false when the time is over.
    async fn turn(&mut self) -> bool {
        if let Some(interval) = self.interval {
            let due = self.start + interval * self.count;
            self.count += 1;
            if due >= self.end {
                return false;
            }
            sleep_until(TokioInstant::from_std(due)).await;
        }
        Instant::now() < self.end
    }
}

async fn send_stream(session: &Session, request: &Request, start: Instant) -> Result<(), Failure> {
    let mut stream = session.open_send_stream(FlowOptions { tag: DATA_TAG, ..FlowOptions::default() })?;
    let piece = if request.rate.is_some() { PACED_PIECE } else { MAX_PIECE };
    let mut schedule = Schedule::new(request, piece, start);
    let mut offset = 0;
    while schedule.turn().await {
        let mut data = pattern::at(offset, piece);
        offset += data.len() as u64;
        while !data.is_empty() {
            let n = stream.write(&data).await?;
            data = data.slice(n..);
            // Without a rate the end must not wait for a whole piece on a slow path.
            if request.rate.is_none() && Instant::now() >= schedule.end {
                break;
            }
        }
    }
    stream.finish().await?;
    Ok(())
}

async fn send_messages(session: &Session, request: &Request, length: usize, start: Instant, messages: &AtomicU64) -> Result<(), Failure> {
    let is_btp = request.mode == "btp";
    let options = FlowOptions {
        tag: DATA_TAG,
        mode: if is_btp { Mode::Btp } else { Mode::Brtp },
        kind: if is_btp { FlowKind::UnorderedMessages } else { FlowKind::OrderedMessages },
        lifetime: request.lifetime_ms.filter(|_| is_btp).map(|ms| Duration::from_secs_f64(ms * 1e-3)),
        ..FlowOptions::default()
    };
    let mut flow = session.open_messages(options)?;
    let mut schedule = Schedule::new(request, length, start);
    let mut number = 0;
    while schedule.turn().await {
        flow.send(pattern::message(number, length), MessageOptions::default()).await?;
        number += 1;
        messages.fetch_add(1, Ordering::Relaxed);
    }
    flow.finish().await?;
    Ok(())
}

/// Takes the sending side's view once per interval.
pub struct Watch {
    session: Session,
    messages: Arc<AtomicU64>,
    cpu: super::end::Cpu,
    packets: (u64, u64),
    coded: (u64, u64),
    wire_start: u64,
}

impl Watch {
    /// Begins.
    pub fn new(session: Session, messages: Arc<AtomicU64>) -> Self {
        let mut this = Self { session, messages, cpu: super::end::Cpu::start(), packets: (0, 0), coded: (0, 0), wire_start: 0 };
        this.wire_start = this.take(0).wire_bytes;
        this
    }

    /// The interval that ends now.
    pub fn take(&mut self, index: u64) -> Sent {
        let stats = self.session.stats();
        let sum = |f: fn(&noctule::PathStats) -> u64| stats.paths().iter().map(f).sum::<u64>();
        let packets = (sum(|p| p.sent_packets), sum(|p| p.lost_packets));
        let flows = self.session.flow_stats();
        let flows: Vec<_> = flows.iter().filter(|f| f.is_sender && f.options.tag == DATA_TAG).collect();
        let coded: (u64, u64) = (flows.iter().map(|f| f.stats.source_packets).sum(), flows.iter().map(|f| f.stats.repair_packets).sum());
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let repair = coded.1.saturating_sub(self.coded.1);
        let sent = Sent {
            index,
            rtt_ms: stats.paths().first().map_or(0.0, |p| p.smoothed_rtt.as_secs_f64() * 1e3),
            loss: share(packets.1.saturating_sub(self.packets.1), packets.0.saturating_sub(self.packets.0)),
            repair_share: share(repair, repair + coded.0.saturating_sub(self.coded.0)),
            cpu: self.cpu.take(),
            messages: self.messages.load(Ordering::Relaxed),
            wire_bytes: sum(|p| p.sent_bytes).saturating_sub(self.wire_start),
        };
        (self.packets, self.coded) = (packets, coded);
        sent
    }
}
