//! The near end of a ping.

use super::line::{self, Back, There};
use super::report;
use super::summary::{First, Sample, Samples, TEN, mean_first};
use crate::cli::PingArgs;
use crate::failure::Failure;
use crate::identity::Peer;
use crate::overlay;
use crate::perf::client::{Connection, How};
use crate::perf::output::Output;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{Instant as TokioInstant, sleep_until, timeout};

/// Runs a ping.
pub async fn run(args: PingArgs) -> Result<(), Failure> {
    line::check_length(args.length)?;
    overlay::check_mode(&args.via, args.mode)?;
    let interval = args.interval()?;
    // Files that cannot be written are told before anything is measured.
    for path in [&args.csv, &args.svg].into_iter().flatten() {
        std::fs::File::create(path).map_err(|e| Failure::target(path, &e))?;
    }
    let mut output = Output::new(None, args.timestamps)?;
    let peer = Peer::far_end(&args.host, args.port, &args.peer, &args.identity, &args.via).await?;
    if let Some(count) = args.first {
        // The code is proven once, and no part of what is measured.
        let peer = match peer.has_code() {
            true => {
                let connection = Connection::to(peer.clone(), args.cc, how(&args)).await?;
                connection.close().await;
                peer.proven()
            }
            false => peer,
        };
        let all = first(&args, &peer, count, &mut output).await?;
        return report::first(&args, &all, mean_first(&all), output);
    }
    let connection = Connection::to(peer, args.cc, how(&args)).await?;
    let remote = connection.remote();
    let samples = steady(&args, &connection, interval, &mut output).await.map_err(|e| connection.failure(e));
    connection.close().await;
    report::steady(&args, &remote, &samples?, output)
}

fn how(args: &PingArgs) -> How<'_> {
    How { identity: &args.identity, via: &args.via, trace: &args.trace, title: "noctule ping" }
}

/// A new connection for each message: how long a user waits who has just begun.
async fn first(args: &PingArgs, peer: &Peer, count: u32, output: &mut Output) -> Result<Vec<First>, Failure> {
    // Where TCP is offered has to be asked once; each sample then is a TCP connection of its own.
    let control = match args.mode {
        crate::perf::protocol::Mode::Tcp => Some(Connection::to(peer.clone(), args.cc, how(args)).await?),
        _ => None,
    };
    let offered = match &control {
        Some(connection) => line::ask(connection, args).await?,
        None => None,
    };
    let mut all = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        let fresh = match &control {
            Some(_) => None,
            None => Some(Connection::early(peer.clone(), args.cc, how(args)).await?),
        };
        let Some(connection) = fresh.as_ref().or(control.as_ref()) else { break };
        let (mut there, mut back) = line::open(connection, offered.as_ref(), args).await.map_err(|e| connection.failure(e))?;
        let connected = Instant::now();
        there.send(0, 0, args.length).await.map_err(|e| connection.failure(e))?;
        let answer = timeout(args.wait.0, back.next()).await;
        match answer {
            Ok(answer) => {
                answer.map_err(|e| connection.failure(e))?.ok_or_else(|| Failure::PeerGone("it ended the flow".into()))?;
                let first = First { connect_ms: ms(connected - start), answer_ms: ms(connected.elapsed()) };
                report::one_first(args, number, Some(first), output);
                all.push(first);
            }
            Err(_) => report::one_first(args, number, None, output),
        }
        drop((there, back));
        if let Some(connection) = fresh {
            connection.close().await;
        }
    }
    if let Some(connection) = control {
        drop(offered);
        connection.close().await;
    }
    Ok(all)
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

type Table = Arc<Mutex<Vec<Sample>>>;

/// One connection, messages at a steady rate.
async fn steady(args: &PingArgs, connection: &Connection, interval: Duration, output: &mut Output) -> Result<Samples, Failure> {
    let offered = line::ask(connection, args).await?;
    let (mut there, mut back) = line::open(connection, offered.as_ref(), args).await?;
    report::headline(args, &connection.remote(), interval, output);
    let table: Table = Arc::default();
    let start = Instant::now();
    let mut wrong = 0;
    let mut tens = Tens { shown: 0 };
    let result = {
        let sending = send(&mut there, args, interval, start, &table);
        let receiving = receive(&mut back, start, &table, &mut wrong);
        tokio::pin!(sending, receiving);
        let mut is_sent = None;
        let mut look = tokio::time::interval(interval.max(Duration::from_millis(20)).min(Duration::from_millis(200)));
        loop {
            tokio::select! {
                result = &mut sending, if is_sent.is_none() => {
                    result?;
                    is_sent = Some(TokioInstant::now() + args.wait.0);
                }
                result = &mut receiving => break result,
                _ = look.tick() => {
                    tens.show(args, &lock(&table), start.elapsed().as_secs_f64(), false, output);
                    let has_all = || lock(&table).iter().all(|s| s.rtt_ms.is_some());
                    if is_sent.is_some_and(|end| TokioInstant::now() >= end || has_all()) {
                        break Ok(());
                    }
                }
            }
        }
    };
    result?;
    if wrong > 0 {
        tell!("noctule: {wrong} BYTES WERE WRONG: please report this");
    }
    let all = lock(&table).clone();
    tens.show(args, &all, start.elapsed().as_secs_f64(), true, output);
    Ok(Samples { all, wait_ms: ms(args.wait.0) })
}

fn lock(table: &Table) -> std::sync::MutexGuard<'_, Vec<Sample>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message counts from the moment at which it was due: one that had to wait for room was late for its user too.
async fn send(there: &mut There, args: &PingArgs, interval: Duration, start: Instant, table: &Table) -> Result<(), Failure> {
    for number in 0..args.count() {
        let due = start + interval.mul_f64(number as f64);
        sleep_until(TokioInstant::from_std(due)).await;
        // The timer wakes up to a millisecond late; that is this program's delay, not the path's.
        let due = if Instant::now() - due < Duration::from_millis(2) { Instant::now() } else { due };
        lock(table).push(Sample { due: (due - start).as_secs_f64(), rtt_ms: None });
        there.send(number, u64::try_from((due - start).as_micros()).unwrap_or(0), args.length).await?;
        // The socket's task, which shares this thread, goes first: arming the next timer wakes the reactor, which costs two system calls.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn receive(back: &mut Back, start: Instant, table: &Table, wrong: &mut u64) -> Result<(), Failure> {
    while let Some((number, bad)) = back.next().await? {
        let now = start.elapsed().as_secs_f64();
        *wrong += bad;
        let mut table = lock(table);
        if let Some(sample) = usize::try_from(number).ok().and_then(|n| table.get_mut(n))
            && sample.rtt_ms.is_none()
        {
            sample.rtt_ms = Some((now - sample.due) * 1e3);
        }
    }
    Ok(())
}

/// Prints a line for each ten messages, once the wait for the last of them is over or all have come.
struct Tens {
    shown: usize,
}

impl Tens {
    /// Prints what is ready; everything that is left, if `is_end`.
    fn show(&mut self, args: &PingArgs, all: &[Sample], now: f64, is_end: bool, output: &mut Output) {
        let (wait, wait_ms) = (args.wait.0.as_secs_f64(), ms(args.wait.0));
        while let Some(rest) = all.get(self.shown..).filter(|rest| !rest.is_empty()) {
            let ten = &rest[..rest.len().min(TEN)];
            let is_ready = ten.len() == TEN && ten.iter().all(|s| s.rtt_ms.is_some() || now - s.due > wait);
            if !(is_ready || is_end) {
                return;
            }
            if let Some(ten) = (Samples { all: ten.to_vec(), wait_ms }).tens().first() {
                report::ten(args, self.shown, ten, output);
            }
            self.shown += TEN;
        }
    }
}
