//! Clients that send to one endpoint at the same time, whose links are in one shard or in several: their rate together, CPU time per gigabit, and which threads worked.
//!
//! `cargo run --release -p noctule --example many_clients -- --clients 1,2,4,8 --shards 8 --seconds 2 --rounds 5`
//!
//! Over loopback, in one process: the server has a runtime of its own, whose threads are counted apart (Linux). One shard and several take turns in each round. The CPU time
//! of a gigabit is that of both ends.

mod support;

use noctule::{Bytes, Endpoint, EndpointConfig, FlowOptions, IncomingFlow, PublicKey};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{cpu, median};
use tokio::runtime::{Builder, Runtime};

struct Options {
    clients: Vec<usize>,
    shards: usize,
    seconds: f64,
    rounds: usize,
}

fn options() -> Result<Options, String> {
    let mut o = Options { clients: vec![1, 2, 4, 8], shards: 8, seconds: 2.0, rounds: 5 };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let wrong = |e: &dyn std::fmt::Display| format!("{flag} {value}: {e}");
        match flag.as_str() {
            "--clients" => o.clients = value.split(',').map(|n| n.parse().map_err(|e| wrong(&e))).collect::<Result<_, _>>()?,
            "--shards" => o.shards = value.parse().map_err(|e| wrong(&e))?,
            "--rounds" => o.rounds = value.parse().map_err(|e| wrong(&e))?,
            "--seconds" => o.seconds = value.parse().map_err(|e| wrong(&e))?,
            other => return Err(format!("unknown option {other}: there are --clients, --shards, --seconds and --rounds")),
        }
    }
    Ok(o)
}

/// CPU time of each thread of the server, in clock ticks.
fn ticks() -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let (Some(begin), Some(end)) = (stat.find('('), stat.rfind(')')) else { continue };
        let fields: Vec<u64> = stat[end + 1..].split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        if stat[begin..end].contains("server") && fields.len() > 12 {
            all.push((stat[..begin].trim().parse().unwrap_or(0), fields[11] + fields[12]));
        }
    }
    all.sort_unstable();
    all
}

/// A server whose clients are counted together.
struct Server {
    runtime: Runtime,
    endpoint: Endpoint,
    bytes: Arc<AtomicU64>,
    key: PublicKey,
}

impl Server {
    fn new(shards: usize) -> Self {
        let runtime = Builder::new_multi_thread().enable_all().thread_name("server").build().expect("threads");
        let config = EndpointConfig::ephemeral().expect("the system has randomness").with_shards(shards);
        let key = config.identity.public();
        let bytes = Arc::new(AtomicU64::new(0));
        let endpoint = {
            let inside = runtime.enter();
            let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config).expect("a socket");
            drop(inside);
            endpoint
        };
        let (accepting, count) = (endpoint.clone(), Arc::clone(&bytes));
        runtime.spawn(async move {
            while let Some(session) = accepting.accept().await {
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    if let Ok(IncomingFlow::Stream { mut recv, .. }) = session.accept_flow().await {
                        let mut chunks = Vec::new();
                        while let Ok(n) = recv.read_chunks(&mut chunks, 1 << 20).await
                            && n > 0
                        {
                            count.fetch_add(n as u64, Relaxed);
                            chunks.clear();
                        }
                    }
                    session.closed().await;
                });
            }
        });
        Self { runtime, endpoint, bytes, key }
    }
}

/// What so many clients reach.
struct Reached {
    gbit_per_s: f64,
    cpu_per_gbit: f64,
    /// CPU time of the server's threads, in ticks, the busiest first.
    threads: Vec<u64>,
}

fn measure(clients: &Runtime, server: &Server, count: usize, seconds: f64) -> Reached {
    let block = Bytes::from(vec![0x5a; 256 * 1024]);
    let to = server.endpoint.local_addr();
    let client = |_| {
        let (block, key) = (block.clone(), server.key);
        clients.spawn(async move {
            let endpoint = Endpoint::client(EndpointConfig::ephemeral().expect("the system has randomness")).expect("a socket");
            let session = endpoint.connect(to, Some(key)).await.expect("connected");
            let mut stream = session.open_uni(FlowOptions::default()).expect("a flow");
            let end = Instant::now() + Duration::from_secs_f64(seconds + 0.5);
            while Instant::now() < end && stream.write_chunk(block.clone()).await.is_ok() {}
            session.abort(0, "");
            endpoint.wait_idle().await;
        })
    };
    let running: Vec<_> = (0..count).map(client).collect();
    // Handshakes and the beginnings of rates are no part of it.
    std::thread::sleep(Duration::from_millis(500));
    let (began, bytes, spent, before) = (Instant::now(), server.bytes.load(Relaxed), cpu(), ticks());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let gbit = (server.bytes.load(Relaxed) - bytes) as f64 * 8e-9;
    let (elapsed, spent) = (began.elapsed().as_secs_f64(), (cpu() - spent).as_secs_f64());
    let worked = |(id, now): (u64, u64)| now - before.iter().find(|(other, _)| *other == id).map_or(0, |(_, ticks)| *ticks);
    let mut threads: Vec<u64> = ticks().into_iter().map(worked).collect();
    threads.sort_unstable_by_key(|ticks| std::cmp::Reverse(*ticks));
    clients.block_on(async {
        for client in running {
            client.await.expect("a client that ends");
        }
    });
    Reached { gbit_per_s: gbit / elapsed, cpu_per_gbit: spent / gbit, threads }
}

fn main() -> Result<(), String> {
    let o = options()?;
    let clients = Builder::new_multi_thread().enable_all().thread_name("client").build().map_err(|e| e.to_string())?;
    println!("| clients | shards | Gbit/s, medians | of one client, one shard | CPU s per Gbit | busiest thread of the server |");
    println!("|---|---|---|---|---|---|");
    let mut all: Vec<(usize, usize, Vec<Reached>)> = Vec::new();
    for round in 0..o.rounds {
        for count in &o.clients {
            // Which one is first changes with each round.
            let mut kinds = [1, o.shards];
            kinds.rotate_left(round % 2);
            for shards in kinds {
                let server = Server::new(shards);
                let reached = measure(&clients, &server, *count, o.seconds);
                server.endpoint.close(0, "");
                server.runtime.shutdown_timeout(Duration::from_secs(5));
                match all.iter_mut().find(|(c, s, _)| (*c, *s) == (*count, shards)) {
                    Some((.., rounds)) => rounds.push(reached),
                    None => all.push((*count, shards, vec![reached])),
                }
            }
        }
    }
    all.sort_by_key(|(count, shards, _)| (*count, *shards));
    let rate = |rounds: &[Reached]| median(rounds.iter().map(|r| r.gbit_per_s));
    let alone = all.first().map_or(f64::NAN, |(.., rounds)| rate(rounds));
    for (count, shards, rounds) in &all {
        let busiest = |r: &Reached| r.threads.first().copied().unwrap_or(0) as f64 / r.threads.iter().sum::<u64>().max(1) as f64;
        println!(
            "| {count} | {shards} | {:.2} | {:.2} | {:.3} | {:.0} % |",
            rate(rounds),
            rate(rounds) / alone,
            median(rounds.iter().map(|r| r.cpu_per_gbit)),
            100.0 * median(rounds.iter().map(busiest)),
        );
    }
    Ok(())
}
