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
use crate::silence::Silence;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{Instant as TokioInstant, sleep_until, timeout};

/// From this interval on each message has a line of its own.
const SLOW: Duration = Duration::from_millis(100);

/// Runs a ping. An interruption, or a far end that goes, still gives the summary of what there is.
pub async fn run(args: PingArgs) -> Result<(), Failure> {
    let begun = crate::unless_interrupted(begin(&args)).await;
    let result = match begun {
        Ok((peer, output)) => measure(&args, peer, output).await,
        Err(failure) => Err((failure, false)),
    };
    result.map_err(|(failure, is_reported)| {
        if args.json && !is_reported {
            say!("{}", report::failed_to_begin(&failure));
        }
        failure
    })
}

async fn begin(args: &PingArgs) -> Result<(Peer, Output), Failure> {
    line::check_length(args.length)?;
    overlay::check_mode(&args.via, args.mode)?;
    args.interval()?;
    // Files that cannot be written are told before anything is measured.
    for path in [&args.csv, &args.svg].into_iter().flatten() {
        std::fs::File::create(path).map_err(|e| Failure::target(path, &e))?;
    }
    let output = Output::new(None, args.timestamps)?;
    Ok((Peer::far_end(&args.host, args.port, &args.peer, &args.identity, &args.via).await?, output))
}

/// An error comes with whether a report has told it already.
async fn measure(args: &PingArgs, peer: Peer, mut output: Output) -> Result<(), (Failure, bool)> {
    let early = |e: Failure| (e, false);
    if let Some(count) = args.first {
        // The code is proven once, and no part of what is measured.
        let peer = match peer.has_code() {
            true => {
                let connection =
                    crate::unless_interrupted(Connection::to(peer.clone(), args.cc.unwrap_or_default(), how(args))).await.map_err(early)?;
                connection.close().await;
                peer.proven()
            }
            false => peer,
        };
        let mut all = Vec::new();
        let result = crate::unless_interrupted(first(args, &peer, count, &mut all, &mut output)).await;
        if let Err(failure @ Failure::OtherService(_)) = result {
            return Err(early(failure));
        }
        let reported = report::first(args, &all, mean_first(&all), result.as_ref().err(), output);
        return result.and(reported).map_err(|e| (e, true));
    }
    let interval = args.interval().map_err(early)?;
    let connection = crate::unless_interrupted(Connection::to(peer, args.cc.unwrap_or_default(), how(args))).await.map_err(early)?;
    let remote = connection.remote();
    let table: Table = Arc::default();
    let result =
        crate::unless_interrupted(steady(args, &connection, interval, &table, &mut output)).await.map_err(|e| connection.failure(e));
    let samples = Samples { all: decided(&lock(&table), result.is_err(), args), wait_ms: ms(args.wait.0) };
    if let Err(failure @ Failure::OtherService(_)) = result {
        return Err(early(failure));
    }
    let reported = report::steady(args, &remote, &samples, result.as_ref().err(), output);
    match &result {
        Ok(()) => connection.close().await,
        Err(_) => connection.leave(),
    }
    result.and(reported).map_err(|e| (e, true))
}

/// The messages whose fate is known: where a ping breaks off, the last ones may still have been answered.
fn decided(table: &[Sample], is_broken: bool, args: &PingArgs) -> Vec<Sample> {
    let end = table.last().map_or(0.0, |s| s.due) - args.wait.0.as_secs_f64();
    let is_open = |s: &&Sample| is_broken && s.rtt_ms.is_none() && s.due > end;
    let open = table.iter().rev().take_while(is_open).count();
    table[..table.len() - open].to_vec()
}

fn how(args: &PingArgs) -> How<'_> {
    How { identity: &args.identity, via: &args.via, trace: &args.trace, title: "noctule ping" }
}

/// Measures a new connection for each message: the wait for the first answer.
async fn first(args: &PingArgs, peer: &Peer, count: u32, all: &mut Vec<First>, output: &mut Output) -> Result<(), Failure> {
    // Where TCP is offered has to be asked once; each sample then is a TCP connection of its own.
    let control = match args.mode {
        crate::perf::protocol::Mode::Tcp => Some(Connection::to(peer.clone(), args.cc.unwrap_or_default(), how(args)).await?),
        _ => None,
    };
    let offered = match &control {
        Some(connection) => line::ask(connection, args).await?,
        None => None,
    };
    for number in 0..count {
        let start = Instant::now();
        let fresh = match &control {
            Some(_) => None,
            None => Some(Connection::early(peer.clone(), args.cc.unwrap_or_default(), how(args)).await?),
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
    Ok(())
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

type Table = Arc<Mutex<Vec<Sample>>>;

/// One connection, messages at a steady rate.
async fn steady(args: &PingArgs, connection: &Connection, interval: Duration, table: &Table, output: &mut Output) -> Result<(), Failure> {
    let offered = line::ask(connection, args).await?;
    let (mut there, mut back) = line::open(connection, offered.as_ref(), args).await?;
    report::headline(args, &connection.remote(), interval, output);
    let start = Instant::now();
    let mut wrong = 0;
    let mut lines = Lines { shown: 0, step: if interval >= SLOW { 1 } else { TEN } };
    let mut silence = Silence::default();
    let result = {
        let sending = send(&mut there, args, interval, start, table);
        let receiving = receive(&mut back, start, table, &mut wrong);
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
                    connection.watch(&mut silence);
                    lines.show(args, &lock(table), start.elapsed().as_secs_f64(), false, output);
                    let has_all = || lock(table).iter().all(|s| s.rtt_ms.is_some());
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
    lines.show(args, &lock(table), start.elapsed().as_secs_f64(), true, output);
    Ok(())
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

/// Prints a line for each message, or where they are many for each ten, once the wait for the last of them is over or all have come.
struct Lines {
    shown: usize,
    step: usize,
}

impl Lines {
    /// Prints what is ready; everything that is left, if `is_end`.
    fn show(&mut self, args: &PingArgs, all: &[Sample], now: f64, is_end: bool, output: &mut Output) {
        let (wait, wait_ms) = (args.wait.0.as_secs_f64(), ms(args.wait.0));
        while let Some(rest) = all.get(self.shown..).filter(|rest| !rest.is_empty()) {
            let group = &rest[..rest.len().min(self.step)];
            let is_ready = group.len() == self.step && group.iter().all(|s| s.rtt_ms.is_some() || now - s.due > wait);
            if !(is_ready || is_end) {
                return;
            }
            match group {
                [one] => report::one(args, self.shown, one, wait_ms, output),
                _ => {
                    if let Some(ten) = (Samples { all: group.to_vec(), wait_ms }).tens().first() {
                        report::ten(args, self.shown, ten, output);
                    }
                }
            }
            self.shown += self.step;
        }
    }
}
