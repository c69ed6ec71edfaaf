//! Over loopback, where the processors are the limit: many open connections, new ones, and aggregate throughput.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::course::{Lane, PATIENCE, connect};
use super::table::Figure;
use crate::net::contest::ContestError;
use crate::net::process::Process;

/// Threads that open connections, and that answer them.
const OPENERS: usize = 8;
/// Connections of the throughput test.
const STREAMS: usize = 4;
/// How long a process may take to let go of what it held.
const SETTLING: Duration = Duration::from_secs(3);

/// Memory and descriptors of a process.
#[derive(Debug, Clone, Copy)]
struct Held {
    rss: f64,
    descriptors: f64,
}

impl Held {
    fn by(process: &Process) -> io::Result<Self> {
        let folder = format!("/proc/{}", process.id());
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        let kib = kib.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{folder}/status has no VmRSS")))?;
        Ok(Self { rss: kib, descriptors: std::fs::read_dir(format!("{folder}/fd"))?.count() as f64 })
    }

    fn all(lane: &Lane<'_>) -> io::Result<Vec<Self>> {
        lane.processes().iter().map(Self::by).collect()
    }
}

/// Opens `count` connections, each of which has carried a byte there and back, and compares what the processes hold before, meanwhile and after.
pub(super) fn idle(lane: &Lane<'_>, count: usize) -> Result<Vec<Figure>, ContestError> {
    if lane.processes().is_empty() {
        return Err(ContestError::Unsupported("the kernel's own connections have no process whose memory could be read".to_owned()));
    }
    let kept = Arc::new(Mutex::new(Vec::new()));
    let held = Arc::clone(&kept);
    let server = lane.serve(1, move |mut stream| {
        answer_one(&mut stream)?;
        held.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(())
    })?;
    let address = lane.address();
    let open = |count: usize| lane.near.enter(|| (0..count).map(|_| ask_one(address)).collect::<io::Result<Vec<TcpStream>>>());
    // What a process needs once is not of these connections.
    drop(open(10)??);
    kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    std::thread::sleep(SETTLING);
    let before = Held::all(lane)?;
    let start = Instant::now();
    let connections = open(count)??;
    let opening = start.elapsed();
    std::thread::sleep(SETTLING);
    let during = Held::all(lane)?;
    drop(connections);
    kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    std::thread::sleep(SETTLING);
    let after = Held::all(lane)?;
    drop(server);
    let mut figures = vec![Figure::new("connections", count as f64)];
    for (end, at) in [("near", 0), ("far", 1)] {
        figures.push(Figure::new(&format!("{end} KiB each"), (during[at].rss - before[at].rss) / count as f64));
    }
    for (end, at) in [("near", 0), ("far", 1)] {
        figures.push(Figure::new(&format!("{end} MiB before"), before[at].rss / 1024.0));
        figures.push(Figure::new(&format!("{end} MiB after"), after[at].rss / 1024.0));
        figures.push(Figure::new(&format!("{end} descriptors left"), after[at].descriptors - before[at].descriptors));
    }
    figures.push(Figure::new("opened per second", count as f64 / opening.as_secs_f64()));
    Ok(figures)
}

fn answer_one(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [0];
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut byte)?;
    stream.write_all(&byte)
}

fn ask_one(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Connections that are opened, carry a byte there and back, and end, as many as there can be.
pub(super) fn rate(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let _server = lane.serve(OPENERS, |mut stream| {
        answer_one(&mut stream)?;
        // Its end comes from the other side.
        stream.read(&mut [0]).map(drop)
    })?;
    let (address, seconds) = (lane.address(), lane.scenario.seconds.0);
    let (made, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let mut openers = Vec::new();
    for _ in 0..OPENERS {
        let (made, refused) = (Arc::clone(&made), Arc::clone(&refused));
        openers.push(lane.near.spawn_thread("opener", move || -> io::Result<()> {
            while start.elapsed() < seconds {
                match ask_one(address) {
                    Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                    // The contender has too many, and takes the next one again.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => refused.fetch_add(1, Ordering::Relaxed),
                    Err(error) => return Err(error),
                };
            }
            Ok(())
        })?);
    }
    for opener in openers {
        opener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    }
    let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    Ok(vec![Figure::new("connections per second", per_second(&made)), Figure::new("reset per second", per_second(&refused))])
}

/// Several connections that are kept full at once.
pub(super) fn throughput(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let seconds = lane.scenario.seconds.0;
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let _server = lane.serve(STREAMS, move |mut stream| {
        let mut buffer = vec![0u8; 256 << 10];
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                length => counted.fetch_add(length as u64, Ordering::Relaxed),
            };
        }
    })?;
    let address = lane.address();
    let start = Instant::now();
    let mut senders = Vec::new();
    for _ in 0..STREAMS {
        senders.push(lane.near.spawn_thread("sender", move || -> io::Result<()> {
            let mut stream = connect(address)?;
            let chunk = vec![0x5au8; 256 << 10];
            while start.elapsed() < seconds {
                stream.write_all(&chunk)?;
            }
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        })?);
    }
    std::thread::sleep(lane.scenario.warmup.0);
    let (from, early) = (Instant::now(), received.load(Ordering::Relaxed));
    std::thread::sleep(seconds.saturating_sub(start.elapsed()));
    let gbit = (received.load(Ordering::Relaxed) - early) as f64 * 8e-9 / from.elapsed().as_secs_f64();
    for sender in senders {
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    }
    Ok(vec![Figure::new("Gbit/s", gbit)])
}

/// Two sockets of this process for each connection, and two or three of each process of a contender, which inherits the limit.
pub(super) fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: reads one rlimit.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
