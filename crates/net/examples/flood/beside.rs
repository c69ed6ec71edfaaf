//! What is measured beside a flood: a node of its own in another process that reads what sessions send it, and a bulk flow to it.

use noctule::{Bytes, Endpoint, EndpointConfig, FlowOptions, PublicKey, Session};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

/// The role of the process that is flooded: says where it listens and its key, then for each line of its input how many bytes it has read.
pub async fn victim() -> Result<(), Failure> {
    let config = EndpointConfig::ephemeral()?;
    let key = config.identity.public();
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, config)?;
    println!("{} {key}", endpoint.local_addr());
    let read = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&read);
    let serving = tokio::spawn(async move {
        while let Some(session) = endpoint.accept().await {
            tokio::spawn(drain(session, Arc::clone(&total)));
        }
    });
    // The parent's end of the pipe ends this process, whatever became of the parent.
    tokio::task::spawn_blocking(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            println!("{}", read.load(Ordering::Relaxed));
        }
    })
    .await?;
    serving.abort();
    Ok(())
}

async fn drain(session: Session, total: Arc<AtomicU64>) {
    while let Ok(mut recv) = session.accept_uni().await {
        let mut chunks: Vec<Bytes> = Vec::new();
        while let Ok(n) = recv.read_chunks(&mut chunks, 1 << 20).await
            && n > 0
        {
            total.fetch_add(n as u64, Ordering::Relaxed);
            chunks.clear();
        }
    }
}

/// The process that is flooded, as its parent sees it.
pub struct Victim {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    pub address: SocketAddr,
    pub key: PublicKey,
}

impl Victim {
    pub fn start() -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("victim").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let line = lines.next().ok_or("the node did not begin")??;
        let (address, key) = line.split_once(' ').ok_or("the node says nothing")?;
        Ok(Self { child, lines, address: address.parse()?, key: key.parse()? })
    }

    /// Bytes that it has read.
    pub fn read(&mut self) -> Result<u64, Failure> {
        self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
        Ok(self.lines.next().ok_or("the node has ended")??.parse()?)
    }

    pub fn usage(&self) -> Option<Usage> {
        usage(self.child.id())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a stream at a rate in bytes per second for as long as the process lives; 0: as fast as it goes.
pub async fn bulk(address: SocketAddr, key: PublicKey, rate: f64) -> Result<(Endpoint, Session), Failure> {
    let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
    let session = client.connect(address, Some(key)).await?;
    let mut stream = session.open_uni(FlowOptions::default())?;
    tokio::spawn(async move {
        let (block, begun, mut sent) = (vec![0x5a; 16 * 1024], Instant::now(), 0usize);
        while stream.write_all(&block).await.is_ok() {
            sent += block.len();
            if rate > 0.0 {
                tokio::time::sleep_until((begun + Duration::from_secs_f64(sent as f64 / rate)).into()).await;
            }
        }
    });
    Ok((client, session))
}

/// Memory of a process, now and at its highest, in KiB, and its CPU time so far.
#[derive(Clone, Copy)]
pub struct Usage {
    pub now: u64,
    pub most: u64,
    pub cpu: Duration,
}

pub fn usage(pid: u32) -> Option<Usage> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Counted from behind the name, which is in brackets: user and system time are fields 12 and 13, in hundredths of a second.
    let ticks = stat.rsplit(") ").next()?.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum::<u64>();
    Some(Usage { now: field("VmRSS:")?, most: field("VmHWM:")?, cpu: Duration::from_millis(ticks * 10) })
}
