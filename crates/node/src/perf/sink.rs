//! The receiving side of a test: reads, checks and counts.

use super::arrivals::Arrivals;
use super::pattern;
use super::protocol::{DATA_TAG, Received, Request, TIME_OVER, Total};
use crate::failure::Failure;
use noctule::{Endpoint, FarText, FlowError, IncomingFlow, Message, RecvStream, Session};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// Bytes read at once from TCP.
const TCP_PIECE: usize = 256 * 1024;

/// Where the data come from.
pub enum Inlet {
    /// Flows that the far end opens.
    Session(Session),
    /// Connections.
    Tcp(Vec<OwnedReadHalf>),
}

/// Counts that the reading tasks share.
#[derive(Debug, Default)]
struct Counts {
    /// Of each flow, in the order in which they began.
    flows: Vec<AtomicU64>,
    messages: AtomicU64,
    wrong: AtomicU64,
    /// Nanoseconds after the start at which the last byte was read.
    last: AtomicU64,
    /// One per flow of messages.
    arrivals: Mutex<Vec<Arc<Mutex<Arrivals>>>>,
    /// Of what came, if it was a file.
    file: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn of(flows: u16) -> Self {
        Self { flows: (0..flows).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    fn bytes(&self) -> Vec<u64> {
        self.flows.iter().map(|f| f.load(Relaxed)).collect()
    }

    fn note(&self, flow: usize, start: Instant, bytes: usize, messages: u64, wrong: u64) {
        self.flows[flow].fetch_add(bytes as u64, Relaxed);
        self.messages.fetch_add(messages, Relaxed);
        self.wrong.fetch_add(wrong, Relaxed);
        self.last.store(nanos(start.elapsed()), Relaxed);
    }

    /// Lost so far, out of order so far, mean jitter in ms.
    fn arrivals(&self) -> (i64, u64, f64) {
        let all = locked(&self.arrivals);
        let sum = all
            .iter()
            .map(|a| locked(a).clone())
            .fold((0, 0, 0.0), |sum, a| (sum.0 + a.lost(), sum.1 + a.out_of_order(), sum.2 + a.jitter_ms()));
        (sum.0, sum.1, sum.2 / (all.len() as f64).max(1.0))
    }
}

/// A receiving side.
pub struct Sink {
    counts: Arc<Counts>,
    start: Instant,
    /// Bytes of each flow, messages, messages lost.
    reported: (Vec<u64>, u64, i64),
    reported_at: f64,
    index: u64,
    cpu: super::end::Cpu,
}

impl Sink {
    /// Begins to count so many flows.
    pub fn new(flows: u16) -> Self {
        let counts = Counts::of(flows);
        let reported = (counts.bytes(), 0, 0);
        Self { counts: Arc::new(counts), start: Instant::now(), reported, reported_at: 0.0, index: 0, cpu: super::end::Cpu::start() }
    }

    /// Accepts as many data flows as the test has and reads them to their end.
    pub fn read(&self, inlet: Inlet, request: &Request) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let (counts, start, request) = (Arc::clone(&self.counts), self.start, request.clone());
        async move {
            let mut tasks = tokio::task::JoinSet::new();
            match inlet {
                Inlet::Tcp(halves) => {
                    for (flow, half) in halves.into_iter().enumerate() {
                        let check = Check::new(Arc::clone(&counts), flow, start, request.is_file);
                        let cut = request.is_timed().then(|| start + Duration::from_secs_f64(request.seconds));
                        tasks.spawn(read_tcp(half, check, cut));
                    }
                }
                Inlet::Session(session) => {
                    for number in 0..usize::from(request.parallel) {
                        let flow = session.accept_flow().await?;
                        if flow.tag() != DATA_TAG {
                            return Err(Failure::Stranger("it opened a flow that does not belong to the test".into()));
                        }
                        tasks.spawn(read_flow(flow, Check::new(Arc::clone(&counts), number, start, request.is_file)));
                    }
                }
            }
            while let Some(result) = tasks.join_next().await {
                result.map_err(|e| Failure::system("a reading task", e))??;
            }
            Ok(())
        }
    }

    /// The interval that ends now.
    pub fn interval(&mut self) -> Received {
        let (bytes, messages) = (self.counts.bytes(), self.counts.messages.load(Relaxed));
        let (lost, _, jitter_ms) = self.counts.arrivals();
        let end = self.start.elapsed().as_secs_f64();
        let flows: Vec<u64> = bytes.iter().zip(&self.reported.0).map(|(now, before)| now - before).collect();
        let received = Received {
            index: self.index,
            start: self.reported_at,
            end,
            bytes: flows.iter().sum(),
            messages: messages - self.reported.1,
            lost_messages: lost - self.reported.2,
            jitter_ms,
            cpu: self.cpu.take(),
            bytes_wrong: self.counts.wrong.load(Relaxed),
            flows,
        };
        (self.reported, self.reported_at, self.index) = ((bytes, messages, lost), end, self.index + 1);
        received
    }

    /// The sum.
    pub fn total(&self, endpoint: &Endpoint) -> Total {
        let (_, out_of_order, jitter_ms) = self.counts.arrivals();
        Total {
            seconds: self.counts.last.load(Relaxed) as f64 * 1e-9,
            bytes: self.counts.bytes().iter().sum(),
            messages: self.counts.messages.load(Relaxed),
            out_of_order,
            jitter_ms,
            bytes_wrong: self.counts.wrong.load(Relaxed),
            memory_peak_bytes: endpoint.stats().memory.peak as u64,
            blake3: locked(&self.counts.file).as_deref().map(FarText::from),
        }
    }
}

/// Counts one flow, and checks its bytes: against the pattern, or by their hash.
struct Check {
    counts: Arc<Counts>,
    flow: usize,
    start: Instant,
    offset: u64,
    hash: Option<Box<blake3::Hasher>>,
}

impl Check {
    fn new(counts: Arc<Counts>, flow: usize, start: Instant, is_file: bool) -> Self {
        Self { counts, flow, start, offset: 0, hash: is_file.then(|| Box::new(blake3::Hasher::new())) }
    }

    fn take(&mut self, data: &[u8]) {
        let wrong = match &mut self.hash {
            Some(hash) => {
                hash.update(data);
                0
            }
            None => pattern::wrong(self.offset, data),
        };
        self.counts.note(self.flow, self.start, data.len(), 0, wrong);
        self.offset += data.len() as u64;
    }

    fn message(&self, data: &[u8]) {
        self.counts.note(self.flow, self.start, data.len(), 1, pattern::wrong_in_message(data));
    }

    fn end(self) {
        if let Some(hash) = self.hash {
            *locked(&self.counts.file) = Some(hash.finalize().to_hex().to_string());
        }
    }
}

/// A flow that its sender cut because the time was over has ended.
fn unless_cut<T>(result: Result<T, FlowError>, ended: T) -> Result<T, FlowError> {
    match result {
        Err(FlowError::Closed(reason)) if reason.is_remote && reason.application == TIME_OVER => Ok(ended),
        other => other,
    }
}

/// `cut`: when the sender may cut the connection by a reset.
async fn read_tcp(mut half: OwnedReadHalf, mut check: Check, cut: Option<Instant>) -> Result<(), Failure> {
    let mut buffer = vec![0; TCP_PIECE];
    loop {
        match half.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => check.take(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset && cut.is_some_and(|at| Instant::now() >= at) => break,
            Err(e) => return Err(Failure::PeerGone(format!("the TCP connection broke: {e}"))),
        }
    }
    check.end();
    Ok(())
}

async fn read_stream(mut recv: RecvStream, mut check: Check) -> Result<(), Failure> {
    let mut chunks = Vec::new();
    while unless_cut(recv.read_chunks(&mut chunks, 1 << 20).await, 0)? > 0 {
        for chunk in chunks.drain(..) {
            check.take(&chunk);
        }
    }
    check.end();
    Ok(())
}

async fn read_flow(flow: IncomingFlow, check: Check) -> Result<(), Failure> {
    match flow {
        IncomingFlow::Stream { recv, .. } => return read_stream(recv, check).await,
        IncomingFlow::Messages(mut recv) => {
            let arrivals = Arc::new(Mutex::new(Arrivals::default()));
            locked(&check.counts.arrivals).push(Arc::clone(&arrivals));
            while let Some(Message { data, .. }) = unless_cut(recv.recv().await, None)? {
                check.message(&data);
                if let Some((number, sent)) = pattern::header(&data) {
                    locked(&arrivals).note(number, sent, nanos(check.start.elapsed()) / 1000);
                }
            }
        }
        _ => return Err(Failure::Stranger("it opened a kind of flow that is not known here".into())),
    }
    Ok(())
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
