//! TCP proxies between the ends of a chain: one connection per link, joined in user space, as performance-enhancing proxies do (RFC 3135).

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::namespace::Namespace;
use super::realtime::prefer_contender;
use super::tcp::{Congestion, POLL, accept, connect, is_timeout};

/// Bytes that a proxy holds itself; the kernel's buffers before and after it hold more.
const HELD: usize = 256 << 10;

/// Where a proxy runs.
#[derive(Debug, Clone)]
pub struct Place {
    /// On which host.
    pub host: Namespace,
    /// Its address towards the sender.
    pub address: IpAddr,
}

/// A started proxy, which ends with its connection or when the time is over.
#[derive(Debug)]
pub struct Proxy {
    /// Where it waits for its one connection.
    pub address: SocketAddr,
    thread: JoinHandle<io::Result<io::Result<()>>>,
}

impl Proxy {
    /// Starts a proxy that passes on to `next`, for at most `limit` from `start` on.
    pub fn start(
        place: &Place,
        next: SocketAddr,
        congestion: Congestion,
        start: Instant,
        limit: Duration,
        over: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let to = place.address;
        let listener = place.host.enter(|| TcpListener::bind((to, 0)))??;
        let address = listener.local_addr()?;
        let over = Arc::clone(over);
        let thread = place.host.spawn_thread("tcp-proxy", move || {
            prefer_contender();
            let Some(from) = accept(&listener, limit, start, &over)? else { return Ok(()) };
            let Some(to) = connect(next, congestion, start, limit)? else { return Ok(()) };
            pass_on(from, to, &|| over.load(Ordering::Acquire) || start.elapsed() >= limit)
        })?;
        Ok(Self { address, thread })
    }

    /// Waits for its end.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().expect("a TCP proxy does not panic")?
    }
}

/// Reads and writes until the end of the stream or of the time; a connection that breaks breaks the other one too.
fn pass_on(mut from: TcpStream, mut to: TcpStream, is_over: &dyn Fn() -> bool) -> io::Result<()> {
    from.set_read_timeout(Some(POLL))?;
    to.set_write_timeout(Some(POLL))?;
    let mut held = vec![0u8; HELD];
    while !is_over() {
        let length = match from.read(&mut held) {
            Ok(0) => return to.shutdown(std::net::Shutdown::Write),
            Ok(length) => length,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return broken(error),
        };
        let mut rest = &held[..length];
        while !rest.is_empty() && !is_over() {
            match to.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return broken(error),
            }
        }
    }
    // What is still held is thrown away: the time of this contender is over.
    for stream in [&from, &to] {
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

/// The ends close when their time is over, each when it notices; that is no failure of the proxy.
fn broken(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}
