//! Kernel TCP as a contender: bulk data sent by the lab itself with a named congestion control, measured where it
//! arrives.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::namespace::Namespace;
use super::pattern::Pattern;
use super::realtime::prefer_contender;
use super::tcp_proxy::{Place, Proxy};
use super::timeline::Timeline;

/// How long a connection may take to open: SYNs are lost too, and the kernel's timer doubles from one second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a blocked reader or writer looks whether the time is over.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// A congestion control of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    Cubic,
    /// BBR in the version that the kernel has.
    Bbr,
    /// RFC 6582.
    Reno,
}

impl Congestion {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }

    /// Whether this kernel has it loaded or built in.
    pub fn is_available(self) -> bool {
        available().iter().any(|name| name == self.name())
    }
}

/// The kernel's list of congestion controls.
pub fn available() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// What is sent.
#[derive(Debug, Clone)]
pub enum Payload {
    /// A file, once.
    File(PathBuf),
    /// The test pattern of this seed, until the time is over.
    Pattern(u64),
}

/// One bulk transfer between two namespaces.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// By which congestion control; `TCP_CONGESTION` is set on the sending socket.
    pub congestion: Congestion,
    /// Address that the receiver listens on.
    pub to: IpAddr,
    /// What is sent.
    pub payload: Payload,
    /// The transfer is cut off this long after it began.
    pub limit: Duration,
    /// Proxies on the path, in the direction of the data: the connection ends at each, and another one goes on.
    pub proxies: Vec<Place>,
    /// Programs of others carry the connection.
    pub relayed: Option<Relayed>,
}

/// A connection that programs of others carry.
#[derive(Debug, Clone, Copy)]
pub struct Relayed {
    /// Where the receiver listens for what they bring.
    pub port: u16,
    /// Where the sender connects to.
    pub by: SocketAddr,
}

/// What a transfer did, as its receiver saw it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Arrivals over time, counted from the moment before `connect`.
    pub timeline: Timeline,
    /// From the moment before `connect` to the last byte.
    pub elapsed: Duration,
    /// Bytes handed to the receiving application.
    pub bytes: u64,
    /// Bytes that differ from the pattern; files are checked by their hash.
    pub bytes_wrong: u64,
    /// BLAKE3 of all bytes received.
    pub hash: blake3::Hash,
    /// The sender closed after its last byte and everything before was read.
    pub complete: bool,
}

/// Buffers that do not limit TCP on a path with this bandwidth-delay product: the kernel counts whole pages, and at
/// high loss several round trips wait in the receiver's reorder queue.
pub fn buffer_bytes(bdp_bytes: u64) -> u64 {
    (32 * bdp_bytes).clamp(64 << 20, 1 << 30)
}

/// Sets the ceilings of the kernel's buffer autotuning and forgets metrics of earlier connections.
pub fn tune(namespace: &Namespace, buffer_bytes: u64) -> io::Result<()> {
    for (key, default) in [("net.ipv4.tcp_rmem", 131_072), ("net.ipv4.tcp_wmem", 65_536)] {
        namespace.sysctl(key, &format!("4096 {default} {buffer_bytes}"))?;
    }
    namespace.sysctl("net.ipv4.tcp_no_metrics_save", "1")
}

/// Runs one transfer from `sender` to `receiver` and waits for its end, which comes within the limit.
pub fn run(sender: &Namespace, receiver: &Namespace, transfer: &Transfer) -> io::Result<Received> {
    if !transfer.congestion.is_available() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel has no TCP {}; it has: {}", transfer.congestion.name(), available().join(" ")),
        ));
    }
    let to = transfer.to;
    let relayed = transfer.relayed;
    let listener = receiver.enter(|| TcpListener::bind((to, relayed.map_or(0, |relayed| relayed.port))))??;
    let mut address = relayed.map_or_else(|| listener.local_addr(), |relayed| Ok(relayed.by))?;
    let over = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let mut proxies = Vec::new();
    for place in transfer.proxies.iter().rev() {
        let proxy = Proxy::start(place, address, transfer.congestion, start, transfer.limit, &over)?;
        address = proxy.address;
        proxies.push(proxy);
    }
    let reading = receiver.spawn_thread("tcp-receiver", {
        let (transfer, over) = (transfer.clone(), Arc::clone(&over));
        move || {
            prefer_contender();
            receive(listener, &transfer, start, &over)
        }
    })?;
    let sending = sender.spawn_thread("tcp-sender", {
        let (transfer, over) = (transfer.clone(), Arc::clone(&over));
        move || {
            prefer_contender();
            let result = send(address, &transfer, start, &over);
            if result.is_err() {
                over.store(true, Ordering::Release);
            }
            result
        }
    })?;
    let received = reading.join().expect("the TCP receiver does not panic").and_then(|result| result);
    over.store(true, Ordering::Release);
    sending.join().expect("the TCP sender does not panic")??;
    for proxy in proxies {
        proxy.join()?;
    }
    received
}

/// A connection with a named congestion control; none if it did not open in time, which on a lossy link is a result.
pub(super) fn connect(address: SocketAddr, congestion: Congestion, start: Instant, limit: Duration) -> io::Result<Option<TcpStream>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    let name = congestion.name();
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| io::Error::new(error.kind(), format!("set TCP {name}: {error}")))?;
    match socket.connect_timeout(&address.into(), CONNECT_TIMEOUT.min(limit)) {
        Ok(()) => Ok(Some(socket.into())),
        Err(_) if start.elapsed() >= limit => Ok(None),
        Err(error) => Err(error),
    }
}

fn send(address: SocketAddr, transfer: &Transfer, start: Instant, over: &AtomicBool) -> io::Result<()> {
    let Some(mut stream) = connect(address, transfer.congestion, start, transfer.limit)? else { return Ok(()) };
    stream.set_write_timeout(Some(POLL))?;
    let mut source: Box<dyn Read> = match &transfer.payload {
        Payload::File(path) => Box::new(File::open(path)?),
        Payload::Pattern(seed) => Box::new(Pattern::new(*seed)),
    };
    let mut chunk = vec![0u8; 128 << 10];
    loop {
        let length = source.read(&mut chunk)?;
        if length == 0 {
            return stream.shutdown(std::net::Shutdown::Write);
        }
        let mut rest = &chunk[..length];
        while !rest.is_empty() {
            if over.load(Ordering::Acquire) || start.elapsed() >= transfer.limit {
                // Unsent data is thrown away: the time of this contender is over.
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
                return Ok(());
            }
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if is_timeout(&error) => {}
                // The receiver closed first at the end of the time.
                Err(_) if over.load(Ordering::Acquire) || start.elapsed() >= transfer.limit => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn receive(listener: TcpListener, transfer: &Transfer, start: Instant, over: &AtomicBool) -> io::Result<Received> {
    let mut received = Received {
        timeline: Timeline::default(),
        elapsed: Duration::ZERO,
        bytes: 0,
        bytes_wrong: 0,
        hash: blake3::Hasher::new().finalize(),
        complete: false,
    };
    let Some(mut stream) = accept(&listener, transfer.limit, start, over)? else {
        return Ok(received);
    };
    stream.set_read_timeout(Some(POLL))?;
    let mut expected = match transfer.payload {
        Payload::Pattern(seed) => Some(Pattern::new(seed)),
        Payload::File(_) => None,
    };
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0u8; 256 << 10];
    while !over.load(Ordering::Acquire) && start.elapsed() < transfer.limit {
        let length = match stream.read(&mut chunk) {
            Ok(0) => {
                received.complete = true;
                break;
            }
            Ok(length) => length,
            Err(error) if is_timeout(&error) => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        };
        let at = start.elapsed();
        received.timeline.record(at, length as u64);
        received.elapsed = at;
        received.bytes += length as u64;
        match &mut expected {
            Some(pattern) => received.bytes_wrong += pattern.differing(&chunk[..length]),
            None => {
                hasher.update(&chunk[..length]);
            }
        }
    }
    received.hash = hasher.finalize();
    Ok(received)
}

/// Waits for the connection without blocking past the end of the time.
pub(crate) fn accept(listener: &TcpListener, limit: Duration, start: Instant, over: &AtomicBool) -> io::Result<Option<TcpStream>> {
    listener.set_nonblocking(true)?;
    while !over.load(Ordering::Acquire) && start.elapsed() < limit {
        use std::os::fd::AsFd;
        super::realtime::wait_readable(&[listener.as_fd()], POLL.as_nanos() as u64)?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
