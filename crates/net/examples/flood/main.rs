//! Floods a node with packets of one kind, from many loopback addresses. Measures what that costs, and whether a client still connects:
//!
//! `cargo run --release -p noctule --example flood -- [--kind NAME] [--packets N] [--rate N] [--bulk MBIT]`
//!
//! Starts a node in a process of its own, sends it a bulk flow, then the floods: of each kind, or of `--kind`.
//! A flood has `--packets` packets (300000) at up to `--rate` packets per second (100000); an honest client connects after a third of it.
//! `--bulk` is the rate that the bulk flow's sender offers, in Mbit/s (100; 0: as much as it can).
//!
//! Prints one line for each flood: how long the client took to connect, the bulk flow's rate in Mbit/s before and during the flood,
//! the node's CPU time per second of flood, its memory, and what it sent back.
//!
//! `flood TARGET KEY [--pid PID] ...` floods a node that runs already, such as `noctule recv`, without a bulk flow. KEY is its public key, PID its process.
//! For nodes of your own only: it sends to IPv4 loopback addresses and nowhere else, and never more than ten million packets.

mod beside;
mod kinds;

use beside::{Usage, Victim};
use kinds::{Balance, Flood, KINDS, flood};
use noctule::{Endpoint, EndpointConfig, PublicKey};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Packets of a flood, at most.
const MOST: u32 = 10_000_000;
/// How long the bulk flow is measured before a flood. It has as long to start before that.
const BEFORE: Duration = Duration::from_secs(2);

type Failure = Box<dyn std::error::Error>;

struct Options {
    target: Option<(SocketAddr, PublicKey)>,
    kind: Option<&'static str>,
    pid: Option<u32>,
    packets: u32,
    rate: f64,
    /// Mbit/s.
    bulk: f64,
}

fn options() -> Result<Options, String> {
    let mut args = std::env::args().skip(1).peekable();
    let mut o = Options { target: None, kind: None, pid: None, packets: 300_000, rate: 1e5, bulk: 100.0 };
    if let Some(target) = args.next_if(|arg| !arg.starts_with("--")) {
        let target: SocketAddr = target.parse().map_err(|e| format!("{target}: {e}"))?;
        if !target.ip().is_loopback() || !target.is_ipv4() {
            return Err("the target must be an IPv4 loopback address".into());
        }
        o.target = Some((target, args.next().ok_or("the target's key is missing")?.parse().map_err(|e| format!("key: {e}"))?));
    }
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let number = || value.parse::<f64>().map_err(|e| format!("{flag} {value}: {e}"));
        match flag.as_str() {
            "--kind" => {
                let known = || KINDS.map(|(name, what)| format!("  {name}: {what}")).join("\n");
                o.kind = Some(KINDS.iter().find(|k| k.0 == value).ok_or_else(|| format!("--kind {value}: there are\n{}", known()))?.0);
            }
            "--pid" if o.target.is_some() => o.pid = Some(value.parse().map_err(|e| format!("--pid {value}: {e}"))?),
            "--packets" => o.packets = value.parse().map_err(|e| format!("--packets {value}: {e}"))?,
            "--rate" => o.rate = number()?,
            "--bulk" if o.target.is_none() => o.bulk = number()?,
            _ => return Err(format!("unknown option {flag}")),
        }
    }
    if o.packets > MOST || !(1.0..=1e7).contains(&o.rate) || !(0.0..=1e5).contains(&o.bulk) {
        return Err(format!("--packets takes up to {MOST}, --rate from 1 to 10000000, --bulk up to 100000"));
    }
    Ok(o)
}

/// What happened in a flood.
struct Outcome {
    balance: Balance,
    /// How long the honest client took, or why it is not connected.
    client: Result<Duration, String>,
    /// Whether the flood still went on when the client was connected, or had failed.
    is_flooded: bool,
}

/// Sends a flood and connects a client meanwhile; `at_end` measures when the last packet has left.
async fn under<T>(sent: Flood, at_end: impl FnOnce() -> Result<T, Failure>) -> Result<(Outcome, T), Failure> {
    let (tell, mut ended) = tokio::sync::oneshot::channel();
    let flooding = std::thread::spawn(move || {
        flood(&sent, || {
            let _ = tell.send(());
        })
    });
    tokio::time::sleep(Duration::from_secs_f64(f64::from(sent.packets) / sent.rate / 3.0)).await;
    let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
    let begun = Instant::now();
    let session = client.connect(sent.target, Some(sent.key)).await;
    let client = session.as_ref().map(|_| begun.elapsed()).map_err(|e| e.to_string());
    let is_flooded = matches!(ended.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    if is_flooded {
        // An error means that the flood could not begin; the join below says why.
        let _ = ended.await;
    }
    let measured = at_end()?;
    let balance = tokio::task::spawn_blocking(move || flooding.join()).await?.map_err(|_| "the flood panicked")??;
    Ok((Outcome { balance, client, is_flooded }, measured))
}

fn said(outcome: &Outcome) -> String {
    match &outcome.client {
        Ok(took) => format!("{:.0} ms{}", took.as_secs_f64() * 1e3, if outcome.is_flooded { "" } else { " (the flood was over)" }),
        Err(error) => format!("not at all: {error}"),
    }
}

/// One kind against a node of its own, as a row of a table.
async fn row(o: &Options, kind: &'static str) -> Result<(), Failure> {
    let mut victim = Victim::start()?;
    let bulk = beside::bulk(victim.address, victim.key, o.bulk * 125e3).await?;
    tokio::time::sleep(BEFORE).await;
    let mbit = |bytes: u64, time: Duration| bytes as f64 * 8e-6 / time.as_secs_f64();
    let none = Usage { now: 0, most: 0, cpu: Duration::ZERO };
    let (start, first) = (Instant::now(), victim.read()?);
    tokio::time::sleep(BEFORE).await;
    let (alone, cpu_before) = (mbit(victim.read()? - first, start.elapsed()), victim.usage().unwrap_or(none));
    let (start, first) = (Instant::now(), victim.read()?);
    let sent = Flood { target: victim.address, key: victim.key, kind, packets: o.packets, rate: o.rate };
    let at_end = || Ok((start.elapsed(), victim.read()? - first, victim.usage().unwrap_or(none)));
    let (outcome, (took, bytes, after)) = under(sent, at_end).await?;
    let flooded = mbit(bytes, took);
    let b = &outcome.balance;
    println!(
        "| {kind} | {:.0} | {} | {alone:.1} | {flooded:.1} | {:.0} % | {:.0} % | {:.1} to {:.1} | {:.3} |",
        b.sent as f64 / b.took.as_secs_f64(),
        said(&outcome),
        flooded / alone * 100.0,
        (after.cpu.saturating_sub(cpu_before.cpu)).as_secs_f64() / took.as_secs_f64() * 100.0,
        cpu_before.now as f64 / 1024.0,
        after.most as f64 / 1024.0,
        b.worst,
    );
    drop(bulk);
    Ok(())
}

/// One kind against a node that runs already.
async fn against(o: &Options, target: SocketAddr, key: PublicKey, kind: &'static str) -> Result<(), Failure> {
    let before = o.pid.and_then(beside::usage);
    let (outcome, ()) = under(Flood { target, key, kind, packets: o.packets, rate: o.rate }, || Ok(())).await?;
    let b = &outcome.balance;
    println!("{kind}: {} packets, {} bytes in {:.2} s ({} not taken by the kernel)", b.sent, b.sent_bytes, b.took.as_secs_f64(), b.unsent);
    println!("honest client connected after: {}", said(&outcome));
    println!(
        "replies: {} of {} bytes, {:.3} bytes back for each byte sent, {:.3} at the address that gained most",
        b.replies,
        b.reply_bytes,
        b.reply_bytes as f64 / b.sent_bytes.max(1) as f64,
        b.worst
    );
    if let Some((before, after)) = before.zip(o.pid.and_then(beside::usage)) {
        println!("memory of the process: {} KiB before, {} KiB after, {} KiB at most", before.now, after.now, after.most);
        println!("CPU time of the process: {:.2} s", after.cpu.saturating_sub(before.cpu).as_secs_f64());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).is_some_and(|arg| arg == "victim") {
        return beside::victim().await;
    }
    let o = options()
        .map_err(|e| format!("{e}; usage: flood [TARGET KEY [--pid PID]] [--kind NAME] [--packets N] [--rate N] [--bulk MBIT]"))?;
    let kinds = KINDS.iter().map(|k| k.0).filter(|kind| o.kind.is_none_or(|only| only == *kind));
    if o.target.is_none() {
        println!(
            "| flood | packets/s | client connected after | bulk before, Mbit/s | in the flood | kept | CPU of the node | memory, MiB | bytes back for each |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    }
    for kind in kinds {
        match o.target {
            Some((target, key)) => against(&o, target, key, kind).await?,
            None => row(&o, kind).await?,
        }
    }
    Ok(())
}
