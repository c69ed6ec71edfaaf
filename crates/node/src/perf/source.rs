//! The sending side of a test.

use super::pattern::{self, MAX_PIECE};
use super::protocol::{DATA_TAG, Mode, Request, TIME_OVER};
use super::watch::Progress;
use crate::failure::Failure;
use bytes::{Bytes, BytesMut};
use noctule::{FlowKind, FlowOptions, MessageOptions, Session};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant as TokioInstant, sleep, sleep_until, timeout, timeout_at};

/// Bytes per write of a stream whose rate is given: small enough that a slow rate is smooth.
const PACED_PIECE: usize = 8 * 1024;

/// How long data in flight at the end of the time may take to arrive, beyond two base RTTs. Where that is not enough nothing is waited for, and the rest is given
/// up, so that a test lasts as long as was asked for, however slow the path is.
const DRAIN: Duration = Duration::from_millis(500);

/// Where the data go.
pub enum Outlet {
    /// Flows of this session.
    Session(Session),
    /// Connections, as many as the test has flows.
    Tcp(Vec<OwnedWriteHalf>),
}

/// Opens the flows and sends for the time, or the bytes, asked for; then waits until the data in flight have arrived. With a file, gives its BLAKE3.
pub async fn run(outlet: Outlet, request: Request, file: Option<PathBuf>, progress: Arc<Progress>) -> Result<Option<String>, Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    match outlet {
        Outlet::Tcp(halves) => {
            for half in halves {
                let (request, file, progress) = (request.clone(), file.clone(), Arc::clone(&progress));
                tasks.spawn(async move {
                    let mut half = half;
                    let hash = send_bytes(&mut half, &request, file, start, &progress).await?;
                    end_tcp(half, &request, &progress).await?;
                    Ok(hash)
                });
            }
        }
        Outlet::Session(session) => {
            for _ in 0..request.parallel {
                let (session, request, file, progress) = (session.clone(), request.clone(), file.clone(), Arc::clone(&progress));
                tasks.spawn(async move {
                    match request.length {
                        Some(length) => send_messages(&session, &request, length, start, &progress).await.map(|()| None),
                        None => send_stream(&session, &request, file, start, &progress).await,
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

/// How long data in flight at the end may take. `None`: until all has arrived, because an amount was asked for.
fn drain(request: &Request, session: &Session, progress: &Progress) -> Option<Duration> {
    if !request.is_timed() {
        return None;
    }
    let stats = session.stats();
    let Some(path) = stats.paths().first() else { return Some(DRAIN) };
    let longest = DRAIN + 2 * path.min_rtt.min(Duration::from_secs(2));
    let sent = stats.flows.sent.source_packets * u64::from(path.mtu);
    let left = progress.written.load(Relaxed).saturating_sub(sent) + path.in_flight;
    Some(wait(left, path.delivery_rate.bytes_per_sec(), longest))
}

/// `longest`; nothing if so many bytes need more at this rate, for then some are given up whatever is waited.
fn wait(left: u64, rate: f64, longest: Duration) -> Duration {
    if rate > 0.0 && left as f64 / rate > longest.as_secs_f64() { Duration::ZERO } else { longest }
}

/// Waits for `delivered`, but no longer than `limit`; false if that was over first.
async fn within<E: Into<Failure>>(limit: Option<Duration>, delivered: impl Future<Output = Result<(), E>>) -> Result<bool, Failure> {
    match limit {
        None => delivered.await.map(|()| true).map_err(Into::into),
        Some(limit) => match timeout(limit, delivered).await {
            Ok(result) => result.map(|()| true).map_err(Into::into),
            Err(_) => Ok(false),
        },
    }
}

async fn send_stream(
    session: &Session,
    request: &Request,
    file: Option<PathBuf>,
    start: Instant,
    progress: &Progress,
) -> Result<Option<String>, Failure> {
    let mut stream = session.open_uni(FlowOptions { tag: DATA_TAG, ..FlowOptions::default() })?;
    let hash = send_bytes(&mut stream, request, file, start, progress).await?;
    let is_whole = within(drain(request, session, progress), stream.finish()).await?;
    if !is_whole {
        progress.is_cut.store(true, Relaxed);
        stream.reset(TIME_OVER);
    }
    Ok(hash)
}

/// The kernel tells how much of a connection has not been acknowledged.
async fn end_tcp(mut half: OwnedWriteHalf, request: &Request, progress: &Progress) -> Result<(), Failure> {
    let broken = |e: std::io::Error| Failure::PeerGone(format!("the TCP connection broke: {e}"));
    half.shutdown().await.map_err(broken)?;
    let end = Instant::now() + DRAIN;
    while request.is_timed() && super::tcp::outstanding(half.as_ref()) > 0 {
        if Instant::now() >= end {
            progress.is_cut.store(true, Relaxed);
            // Closing now resets the connection: the far end reads no more of what is queued.
            socket2::SockRef::from(half.as_ref()).set_linger(Some(Duration::ZERO)).map_err(broken)?;
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// When the next piece may leave, at the rate of one flow.
struct Schedule {
    start: Instant,
    end: Instant,
    interval: Option<Duration>,
    count: u64,
    /// Bytes of this flow, if an amount was asked for.
    left: Option<u64>,
}

impl Schedule {
    fn new(request: &Request, piece: usize, start: Instant) -> Self {
        let interval = request.rate.map(|rate| Duration::from_secs_f64(piece as f64 * 8.0 * f64::from(request.parallel) / rate));
        let left = request.bytes.map(|b| b.div_ceil(u64::from(request.parallel)));
        Self { start, end: start + Duration::from_secs_f64(request.seconds), interval, count: 0, left }
    }

    /// When the time is over.
    fn over(&self) -> TokioInstant {
        TokioInstant::from_std(self.end)
    }

    /// Of a piece of this length, as much as is left to send.
    fn take(&mut self, length: usize) -> usize {
        let Some(left) = &mut self.left else { return length };
        let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
        *left -= taken as u64;
        taken
    }

    /// Waits for the turn of the next piece; false when the time is over, or nothing is left to send.
    async fn turn(&mut self) -> bool {
        if self.left == Some(0) {
            return false;
        }
        if let Some(interval) = self.interval {
            let due = self.start + interval.mul_f64(self.count as f64);
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
    progress: &Progress,
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
        data.truncate(schedule.take(piece));
        offset += data.len() as u64;
        while !data.is_empty() {
            // On a slow path the end does not wait for room.
            match timeout_at(schedule.over(), out.write(&data)).await {
                Ok(n) => {
                    let taken = n.map_err(broken)?;
                    progress.written.fetch_add(taken as u64, Relaxed);
                    data = data.slice(taken..);
                }
                Err(_) => break,
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

async fn send_messages(session: &Session, request: &Request, length: usize, start: Instant, progress: &Progress) -> Result<(), Failure> {
    let lifetime = request.lifetime_ms.map(|ms| Duration::from_secs_f64(ms * 1e-3));
    let mut flow = session.open_messages(message_options(request.mode, request.mode == Mode::Brtp, lifetime, DATA_TAG))?;
    let mut schedule = Schedule::new(request, length, start);
    let mut number = 0;
    while schedule.turn().await {
        let sent = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        match timeout_at(schedule.over(), flow.send(pattern::message(number, sent, length), MessageOptions::default())).await {
            Ok(sent) => sent?,
            Err(_) => break,
        };
        number += 1;
        schedule.take(length);
        progress.messages.fetch_add(1, Relaxed);
    }
    let is_whole = within(drain(request, session, progress), flow.finish()).await?;
    if !is_whole {
        progress.is_cut.store(true, Relaxed);
        flow.reset(TIME_OVER);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F13: a path of 64 kbit/s has 2 s of data in its queue when the time is over, and more in the buffer.
    #[test]
    fn what_cannot_arrive_in_time_is_not_waited_for() {
        let longest = Duration::from_millis(700);
        assert_eq!(wait(20_000, 8_000.0, longest), Duration::ZERO);
        assert_eq!(wait(5_000, 8_000.0, longest), longest);
        assert_eq!(wait(1_500_000, 12_500_000.0, longest), longest, "100 Mbit/s");
        assert_eq!(wait(1_500_000, 0.0, longest), longest, "nothing is known");
    }
}
