//! The sending side of a test.

use super::pattern::{self, MAX_PIECE};
use super::protocol::{DATA_TAG, Mode, Request};
use crate::failure::Failure;
use bytes::{Bytes, BytesMut};
use noctule::{FlowKind, FlowOptions, MessageOptions, Session};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant as TokioInstant, sleep_until};

/// Bytes per write of a stream whose rate is given: small enough that a slow rate is smooth.
const PACED_PIECE: usize = 8 * 1024;

/// Where the data go.
pub enum Outlet {
    /// Flows of this session.
    Session(Session),
    /// Connections, as many as the test has flows.
    Tcp(Vec<OwnedWriteHalf>),
}

/// Opens the flows and sends for the time asked for; then waits until everything was delivered. With a file, its BLAKE3.
pub async fn run(outlet: Outlet, request: Request, file: Option<PathBuf>, messages: Arc<AtomicU64>) -> Result<Option<String>, Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    match outlet {
        Outlet::Tcp(halves) => {
            for half in halves {
                let (request, file) = (request.clone(), file.clone());
                tasks.spawn(async move {
                    let mut half = half;
                    let hash = send_bytes(&mut half, &request, file, start).await?;
                    half.shutdown().await.map_err(|e| Failure::PeerGone(format!("the TCP connection broke: {e}")))?;
                    Ok(hash)
                });
            }
        }
        Outlet::Session(session) => {
            for _ in 0..request.parallel {
                let (session, request, file, messages) = (session.clone(), request.clone(), file.clone(), Arc::clone(&messages));
                tasks.spawn(async move {
                    match request.length {
                        Some(length) => send_messages(&session, &request, length, start, &messages).await.map(|()| None),
                        None => {
                            let mut stream = session.open_send_stream(FlowOptions { tag: DATA_TAG, ..FlowOptions::default() })?;
                            let hash = send_bytes(&mut stream, &request, file, start).await?;
                            stream.finish().await?;
                            Ok(hash)
                        }
                    }
                });
            }
        }
    }
    let mut hash = None;
    while let Some(result) = tasks.join_next().await {
        let sent: Result<Option<String>, Failure> = result.map_err(|e| Failure::system("a sending task", e))?;
        hash = sent?.or(hash);
    }
    Ok(hash)
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
            // The timer's ticks are milliseconds: what is due within one leaves now rather than late.
            if due > Instant::now() + Duration::from_micros(500) {
                sleep_until(TokioInstant::from_std(due)).await;
            }
        }
        Instant::now() < self.end
    }
}

/// The pattern for the time of the test, or a file to its end; then its hash.
async fn send_bytes(
    out: &mut (impl AsyncWrite + Unpin),
    request: &Request,
    file: Option<PathBuf>,
    start: Instant,
) -> Result<Option<String>, Failure> {
    let broken = |e: std::io::Error| Failure::PeerGone(format!("the stream broke: {e}"));
    let piece = if request.rate.is_some() { PACED_PIECE } else { MAX_PIECE };
    let mut schedule = Schedule::new(request, piece, start);
    if let Some(path) = file {
        let mut source = tokio::fs::File::open(&path).await.map_err(|e| Failure::source(&path, e))?;
        let (mut hash, mut buffer) = (blake3::Hasher::new(), BytesMut::new());
        while schedule.turn().await {
            buffer.reserve(piece);
            if source.read_buf(&mut buffer).await.map_err(|e| Failure::source(&path, e))? == 0 {
                break;
            }
            let data: Bytes = buffer.split().freeze();
            hash.update(&data);
            out.write_all(&data).await.map_err(broken)?;
        }
        return Ok(Some(hash.finalize().to_hex().to_string()));
    }
    let mut offset = 0;
    while schedule.turn().await {
        let mut data = pattern::at(offset, piece);
        offset += data.len() as u64;
        while !data.is_empty() {
            let n = out.write(&data).await.map_err(broken)?;
            data = data.slice(n..);
            // Without a rate the end must not wait for a whole piece on a slow path.
            if request.rate.is_none() && Instant::now() >= schedule.end {
                break;
            }
        }
    }
    Ok(None)
}

/// How the flows of messages of a test, or of a ping, are opened.
pub fn message_options(mode: Mode, is_ordered: bool, lifetime: Option<Duration>, tag: u64) -> FlowOptions {
    let kind = if is_ordered { FlowKind::OrderedMessages } else { FlowKind::UnorderedMessages };
    let mode = match mode {
        Mode::Btp => noctule::Mode::Btp,
        Mode::Transparent => noctule::Mode::Transparent,
        Mode::Brtp | Mode::Tcp => noctule::Mode::Brtp,
    };
    FlowOptions { mode, kind, lifetime: lifetime.filter(|_| mode == noctule::Mode::Btp), tag, ..FlowOptions::default() }
}

async fn send_messages(session: &Session, request: &Request, length: usize, start: Instant, messages: &AtomicU64) -> Result<(), Failure> {
    let lifetime = request.lifetime_ms.map(|ms| Duration::from_secs_f64(ms * 1e-3));
    let mut flow = session.open_messages(message_options(request.mode, request.mode == Mode::Brtp, lifetime, DATA_TAG))?;
    let mut schedule = Schedule::new(request, length, start);
    let mut number = 0;
    while schedule.turn().await {
        let sent = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        flow.send(pattern::message(number, sent, length), MessageOptions::default()).await?;
        number += 1;
        messages.fetch_add(1, Relaxed);
    }
    flow.finish().await?;
    Ok(())
}
