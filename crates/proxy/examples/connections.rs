//! What connections through a proxy cost: how many a second begin, carry a byte each way and end; and how many stay open at once, with what each holds.
//!
//! `cargo run --release -p noctule-proxy --example connections -- --seconds 5 --clients 16 --open 10000`
//!
//! Both ends, the program that connects and the target, an echo, are this process, over loopback. So memory is that of both ends with both programs' sockets.

use noctule::{Endpoint, EndpointConfig, NodeConfig, SecretKey};
use noctule_proxy::{End, Far, FarConfig, Forward, Limits, Listener, Near, NearOptions, Report, Rules, Uplink};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Options {
    seconds: f64,
    clients: usize,
    open: usize,
}

fn options() -> Result<Options, String> {
    let mut o = Options { seconds: 5.0, clients: 16, open: 10_000 };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let wrong = |e: &dyn std::fmt::Display| format!("{flag} {value}: {e}");
        match flag.as_str() {
            "--seconds" => o.seconds = value.parse().map_err(|e| wrong(&e))?,
            "--clients" => o.clients = value.parse().map_err(|e| wrong(&e))?,
            "--open" => o.open = value.parse().map_err(|e| wrong(&e))?,
            other => return Err(format!("unknown option {other}: there are --seconds, --clients and --open")),
        }
    }
    Ok(o)
}

type Failure = Box<dyn Error + Send + Sync>;

/// What the process holds, in KiB.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find(|line| line.starts_with("VmRSS:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of the process so far, in milliseconds.
fn cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name of the program; in hundredths of a second.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Some(ticks * 10.0)
}

fn endpoint(name: u8) -> Result<Endpoint, Failure> {
    let mut config = EndpointConfig::new(SecretKey::from_bytes([name; 32]));
    // As `noctule proxy` has it.
    config.node = NodeConfig { max_flows: 16_384, max_link_flows: 32_768, ..config.node };
    Ok(Endpoint::bind("127.0.0.1:0".parse()?, config)?)
}

/// Both ends, and a port that leads to this target.
async fn proxy(target: SocketAddr) -> Result<(Listener, Endpoint, Endpoint), Failure> {
    let (client, server) = (endpoint(1)?, endpoint(2)?);
    let far = Far::new(FarConfig {
        mark: None,
        limits: Limits { rules: Rules { allow_private: true, ..Rules::default() }, max_connections: 65_536, ..Limits::default() },
        accounts: Vec::new(),
        usage: Default::default(),
        sources: Arc::default(),
        only_target: None,
        allow_remote_listen: false,
        udp_idle: Duration::from_secs(60),
        sink: Arc::new(|_| {}),
    });
    let accepting = server.clone();
    tokio::spawn(async move {
        while let Some(session) = accepting.accept().await {
            tokio::spawn(Arc::clone(&far).serve(session, None));
        }
    });
    let uplink = Uplink::default();
    uplink.set(Some(client.connect(server.local_addr(), None).await?));
    let near = Near::new(uplink, NearOptions::default(), Arc::new(tell));
    let forward: Forward = format!("127.0.0.1:0:{target}").parse()?;
    Ok((near.forward(&forward)?, client, server))
}

/// What ended as it should not.
fn tell(report: &Report) {
    if !matches!(report.end, End::Finished | End::ResetHere | End::ResetThere) {
        eprintln!("{}", report.end);
    }
}

async fn echo() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 64];
                while let Ok(len @ 1..) = tcp.read(&mut bytes).await {
                    if tcp.write_all(&bytes[..len]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// One connection that has carried a byte each way.
async fn connected(at: SocketAddr) -> Result<TcpStream, Failure> {
    let mut tcp = TcpStream::connect(at).await?;
    tcp.write_all(b"x").await?;
    let mut byte = [0];
    tcp.read_exact(&mut byte).await?;
    Ok(tcp)
}

async fn run(o: Options) -> Result<(), Failure> {
    let (listener, _client, _server) = proxy(echo().await?).await?;
    let at = listener.addresses[0];
    let used = cpu();
    let (count, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let spent = Arc::new([const { AtomicU64::new(0) }; 2]);
    let clients: Vec<_> = (0..o.clients)
        .map(|_| {
            let (count, spent, seconds) = (Arc::clone(&count), Arc::clone(&spent), o.seconds);
            tokio::spawn(async move {
                while begun.elapsed().as_secs_f64() < seconds {
                    let start = Instant::now();
                    let mut tcp = connected(at).await?;
                    let answered = Instant::now();
                    tcp.shutdown().await?;
                    tcp.read_to_end(&mut Vec::new()).await?;
                    spent[0].fetch_add((answered - start).as_micros() as u64, Relaxed);
                    spent[1].fetch_add(answered.elapsed().as_micros() as u64, Relaxed);
                    count.fetch_add(1, Relaxed);
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for client in clients {
        client.await??;
    }
    let all = count.load(Relaxed) as f64;
    let [answer, end] = [0, 1].map(|phase| spent[phase].load(Relaxed) as f64 / 1e3 / all);
    let rate = all / begun.elapsed().as_secs_f64();
    println!(
        "{rate:.0} new connections a second, {} at a time; the byte is back after {answer:.2} ms, the end after {end:.2} ms more",
        o.clients
    );
    if let (Some(before), Some(now)) = (used, cpu()) {
        println!("{:.3} ms of CPU time for each: both ends and both programs", (now - before) / all);
    }
    let (before, mut open) = (resident(), Vec::new());
    while open.len() < o.open {
        let some = (0..o.clients.min(o.open - open.len())).map(|_| tokio::spawn(connected(at))).collect::<Vec<_>>();
        for one in some {
            match one.await? {
                Ok(tcp) => open.push(tcp),
                Err(error) => return Err(format!("{} are open, and the next one: {error}", open.len()).into()),
            }
        }
    }
    if let (Some(before), Some(now)) = (before, resident()) {
        println!(
            "{} are open at once: {:.1} KiB for each, both ends and both programs together",
            open.len(),
            (now - before) / open.len().max(1) as f64
        );
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let o = options()?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(o))
}
