//! TCP beside the protocol, as a reference: a server offers a port for one test to a client that it knows by its session.

use super::protocol::TcpOffer;
use crate::failure::Failure;
use noctule::FarText;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

/// How long a connection may take to come up, and to send its token.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that have not sent a token yet, at most.
const MAX_WAITING: usize = 64;
/// The same of one host: a client's flows come one after the other, and send it at once.
const MAX_OF_HOST: usize = 16;
/// Bytes of the kernel's name for a congestion control, at most: TCP_CA_NAME_MAX.
const MAX_NAME: usize = 16;
/// Bytes of a token.
const TOKEN: usize = 16;

/// A listening port for one test.
pub struct Offer {
    listener: TcpListener,
    token: [u8; TOKEN],
    pending: Mutex<Pending>,
}

/// Connections that have not sent a token yet; a client's next flow may be among them.
#[derive(Default)]
struct Pending {
    asked: JoinSet<Option<(TcpStream, [u8; 2 * TOKEN])>>,
    /// Oldest first.
    waiting: Vec<(IpAddr, AbortHandle)>,
}

impl Offer {
    /// Listens on the number of the UDP port if TCP has it free, for firewalls that were opened for it, else on any.
    pub fn new(udp_port: u16) -> Result<Self, Failure> {
        let mut token = [0; TOKEN];
        getrandom::fill(&mut token).map_err(|e| Failure::system("no randomness from the operating system", e))?;
        let listener = listen(udp_port).or_else(|_| listen(0)).map_err(|e| Failure::system("cannot listen for TCP", e))?;
        Ok(Self { listener, token, pending: Mutex::default() })
    }

    /// What the client must know.
    pub fn to_client(&self) -> Result<TcpOffer, Failure> {
        let port = self.listener.local_addr().map_err(|e| Failure::system("TCP", e))?.port();
        let token: String = self.token.iter().map(|b| format!("{b:02x}")).collect();
        Ok(TcpOffer { port, token: FarText::new(token) })
    }

    /// The next connection that knows the token; others are closed. Tokens are read concurrently, so that a silent connection delays no other one.
    /// When too many connections wait, of one host or of all, the oldest is closed.
    pub async fn accept(&self) -> Result<TcpStream, Failure> {
        let expected: String = self.token.iter().map(|b| format!("{b:02x}")).collect();
        let mut pending = self.pending.lock().await;
        let Pending { asked, waiting } = &mut *pending;
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (stream, from) = accepted.map_err(|e| Failure::system("TCP", e))?;
                    waiting.retain(|(_, task)| !task.is_finished());
                    let of_host = waiting.iter().filter(|(host, _)| *host == from.ip()).count();
                    let oldest = match of_host >= MAX_OF_HOST {
                        true => waiting.iter().position(|(host, _)| *host == from.ip()),
                        false => (waiting.len() >= MAX_WAITING).then_some(0),
                    };
                    if let Some(at) = oldest {
                        waiting.remove(at).1.abort();
                    }
                    waiting.push((from.ip(), asked.spawn(hear(stream))));
                }
                Some(heard) = asked.join_next() => match heard {
                    Ok(Some((stream, said))) if said[..] == *expected.as_bytes() => {
                        prepare(&stream);
                        return Ok(stream);
                    }
                    _ => {}
                },
            }
        }
    }
}

/// What a connection says first.
async fn hear(mut stream: TcpStream) -> Option<(TcpStream, [u8; 2 * TOKEN])> {
    let mut said = [0; 2 * TOKEN];
    match tokio::time::timeout(PATIENCE, stream.read_exact(&mut said)).await {
        Ok(Ok(_)) => Some((stream, said)),
        _ => None,
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let any = |ip: IpAddr| std::net::TcpListener::bind(SocketAddr::from((ip, port)));
    let socket = any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Small writes leave at once.
fn prepare(stream: &TcpStream) {
    // A refusal only changes when small segments leave.
    let _ = stream.set_nodelay(true);
}

/// Connects to what a server offered at its address.
pub async fn connect(server: SocketAddr, offer: &TcpOffer, congestion: Option<&str>) -> Result<TcpStream, Failure> {
    let at = SocketAddr::new(server.ip(), offer.port);
    let gone = |e: io::Error| Failure::PeerGone(format!("no TCP connection to {at}: {e}; does the firewall let TCP pass?"));
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(at)).await;
    let mut stream = connecting.map_err(|_| gone(io::ErrorKind::TimedOut.into()))?.map_err(gone)?;
    prepare(&stream);
    set_congestion(&stream, congestion)?;
    stream.write_all(offer.token.raw().as_bytes()).await.map_err(gone)?;
    Ok(stream)
}

/// Chooses the kernel's congestion control for what this side sends.
pub fn set_congestion(stream: &TcpStream, name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    socket2::SockRef::from(stream).set_tcp_congestion(name.as_bytes()).map_err(|e| {
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
        Failure::Usage(format!("TCP congestion control {name:?}: {e}; this kernel has: {}", known.trim()))
    })
}

/// The kernel's congestion control for what this side sends, by the kernel's name for it; none where the kernel does not say.
pub fn congestion(stream: &impl std::os::fd::AsFd) -> Option<FarText> {
    let name = socket2::SockRef::from(stream).tcp_congestion().ok()?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some(FarText::from_wire(&name[..end], MAX_NAME)).filter(|n| !n.is_empty())
}

/// Bytes of a connection that the far end has not acknowledged; 0 where the kernel does not say.
#[cfg(target_os = "linux")]
pub fn outstanding(stream: &impl std::os::fd::AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as `stream` lives; the kernel writes one int.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Elsewhere nothing is known.
#[cfg(not(target_os = "linux"))]
pub fn outstanding<T>(_: &T) -> usize {
    0
}

/// What the kernel knows of what this side sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpView {
    /// Smoothed RTT in ms.
    pub rtt_ms: f64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments sent.
    pub segments: u64,
}

/// TCP_INFO of a connection; zeros where the kernel has none.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn view(stream: &impl std::os::fd::AsRawFd) -> TcpView {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` lives; the kernel writes at most `len` bytes of `info`.
    let result = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    if result != 0 {
        return TcpView::default();
    }
    TcpView {
        rtt_ms: f64::from(info.tcpi_rtt) * 1e-3,
        retransmitted: u64::from(info.tcpi_total_retrans),
        segments: u64::from(info.tcpi_segs_out),
    }
}

/// TCP_INFO is Linux's; elsewhere nothing is known.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn view<T>(_: &T) -> TcpView {
    TcpView::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remains of issue 39: a stranger that connected and said nothing kept the client waiting for 10 s.
    #[tokio::test]
    async fn connections_that_say_nothing_keep_no_client_waiting() {
        let offer = Offer::new(0).unwrap();
        let TcpOffer { port, .. } = offer.to_client().unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut mute = Vec::new();
        for _ in 0..2 * MAX_OF_HOST {
            mute.push(TcpStream::connect(at).await.unwrap());
        }
        let mut wrong = TcpStream::connect(at).await.unwrap();
        wrong.write_all(&[b'0'; 2 * TOKEN]).await.unwrap();
        let to_client = offer.to_client().unwrap();
        let client = async { connect(at, &to_client, None).await.unwrap() };
        let both = async { tokio::join!(offer.accept(), client) };
        let (accepted, client) = tokio::time::timeout(PATIENCE / 2, both).await.expect("at once, not after those that say nothing");
        assert_eq!(accepted.unwrap().peer_addr().unwrap().port(), client.local_addr().unwrap().port());
    }
}
