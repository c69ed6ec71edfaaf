//! The receiving side of a test: reads, checks and counts.

use super::pattern;
use super::protocol::{DATA_TAG, Received, Request, Total};
use crate::failure::Failure;
use noctule::{Endpoint, IncomingFlow, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts that the reading tasks share.
#[derive(Debug, Default)]
pub struct Counts {
    bytes: AtomicU64,
    messages: AtomicU64,
    wrong: AtomicU64,
    /// Nanoseconds after the start at which the last byte was read.
    last: AtomicU64,
}

/// A receiving side.
pub struct Sink {
    counts: Arc<Counts>,
    start: Instant,
    reported: (u64, u64),
    reported_at: f64,
    index: u64,
    cpu: super::end::Cpu,
}

impl Sink {
    /// Begins to count.
    pub fn new() -> Self {
        Self { counts: Arc::default(), start: Instant::now(), reported: (0, 0), reported_at: 0.0, index: 0, cpu: super::end::Cpu::start() }
    }

    /// Accepts as many data flows as the test has and reads them to their end.
    pub fn read(&self, session: Session, request: &Request) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let (counts, start, parallel) = (Arc::clone(&self.counts), self.start, request.parallel);
        async move {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..parallel {
                let flow = session.accept_flow().await?;
                if flow.tag() != DATA_TAG {
                    return Err(Failure::PeerGone("it opened a flow that does not belong to the test".into()));
                }
                let counts = Arc::clone(&counts);
                tasks.spawn(async move { read_flow(flow, &counts, start).await });
            }
            while let Some(result) = tasks.join_next().await {
                result.map_err(|e| Failure::system("a reading task", e))??;
            }
            Ok(())
        }
    }

    /// The interval that ends now.
    pub fn interval(&mut self) -> Received {
        let (bytes, messages) = (self.counts.bytes.load(Ordering::Relaxed), self.counts.messages.load(Ordering::Relaxed));
        let end = self.start.elapsed().as_secs_f64();
        let received = Received {
            index: self.index,
            start: self.reported_at,
            end,
            bytes: bytes - self.reported.0,
            messages: messages - self.reported.1,
            cpu: self.cpu.take(),
            bytes_wrong: self.counts.wrong.load(Ordering::Relaxed),
        };
        (self.reported, self.reported_at, self.index) = ((bytes, messages), end, self.index + 1);
        received
    }

    /// The sum.
    pub fn total(&self, endpoint: &Endpoint) -> Total {
        Total {
            seconds: self.counts.last.load(Ordering::Relaxed) as f64 * 1e-9,
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            messages: self.counts.messages.load(Ordering::Relaxed),
            bytes_wrong: self.counts.wrong.load(Ordering::Relaxed),
            memory_peak_bytes: endpoint.stats().memory.peak as u64,
        }
    }
}

async fn read_flow(flow: IncomingFlow, counts: &Counts, start: Instant) -> Result<(), Failure> {
    let note = |bytes: usize, messages: u64, wrong: u64| {
        counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counts.messages.fetch_add(messages, Ordering::Relaxed);
        counts.wrong.fetch_add(wrong, Ordering::Relaxed);
        counts.last.store(nanos(start.elapsed()), Ordering::Relaxed);
    };
    match flow {
        IncomingFlow::Stream { mut recv, .. } => {
            let (mut offset, mut chunks) = (0, Vec::new());
            while recv.read_chunks(&mut chunks, 1 << 20).await? > 0 {
                for chunk in chunks.drain(..) {
                    note(chunk.len(), 0, pattern::wrong(offset, &chunk));
                    offset += chunk.len() as u64;
                }
            }
        }
        IncomingFlow::Messages(mut recv) => {
            while let Some(message) = recv.recv().await? {
                note(message.data.len(), 1, pattern::wrong_in_message(&message.data));
            }
        }
        _ => return Err(Failure::PeerGone("it opened a kind of flow that is not known here".into())),
    }
    Ok(())
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
