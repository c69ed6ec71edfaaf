//! Streams in one direction, over links that bring nothing back (docs/spec/blind.md): to other nodes, from them, and of others that pass.
//!
//! Each has a socket and a thread of its own: datagrams leave at a rate that the file states, some every few microseconds, and nothing else is waited for.

mod inlet;
mod outlet;
mod passage;
mod stamps;

pub use inlet::Inlet;
pub use outlet::Outlet;
pub use passage::Passage;

use super::config::{Config, OneWay};
use super::tunnel::Tunnel;
use crate::failure::Failure;
use ipnet::IpNet;
use noctule::{PublicKey, SecretKey};
use noctule_proto::units::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use stamps::Stamps;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a socket's buffer that are asked for: what comes while the thread is kept from running.
const BUFFER: usize = 4 << 20;
/// Longest wait for a datagram before a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// All streams of the node.
#[derive(Debug)]
pub struct OneWays {
    secret: SecretKey,
    state: PathBuf,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// Opened with the first stream that has an end here.
    stamps: Option<Arc<Stamps>>,
    /// In the order of the file.
    streams: Vec<Stream>,
}

/// One entry of the file at work.
#[derive(Clone, Debug)]
pub enum Stream {
    /// To another node.
    To(Arc<Outlet>),
    /// From other nodes.
    From(Arc<Inlet>, Arc<Listening>),
    /// Of others.
    Relay(Arc<Passage>, Arc<Listening>),
}

impl Stream {
    fn is(&self, config: &OneWay) -> bool {
        match (self, config) {
            (Self::To(outlet), OneWay::To(to)) => outlet.config() == to,
            (Self::From(inlet, _), OneWay::From(from)) => inlet.config() == from,
            (Self::Relay(passage, _), OneWay::Relay(relay)) => passage.config() == relay,
            _ => false,
        }
    }

    /// As notes of a reload name it.
    fn name(&self) -> String {
        match self {
            Self::To(outlet) => format!("[[one-way]] to {:?}", outlet.config().name),
            Self::From(inlet, _) => format!("[[one-way]] from what comes to {}", inlet.config().listen),
            Self::Relay(passage, _) => format!("[[one-way]] passing from {} to {}", passage.config().listen, passage.config().endpoint),
        }
    }

    fn end(&self) {
        match self {
            Self::To(outlet) => outlet.end(),
            Self::From(_, listening) | Self::Relay(_, listening) => listening.end(),
        }
    }
}

impl OneWays {
    /// None yet.
    pub fn new(secret: SecretKey, state: PathBuf) -> Self {
        Self { secret, state, running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the streams those of the file: what did not change goes on, the others end first, since their addresses may be wanted. Says what it has ended
    /// and begun, one line each, and what could not be begun.
    pub fn apply(&self, config: &Config, tunnel: Option<&Arc<Tunnel>>) -> (Vec<String>, Vec<Failure>) {
        let mut running = self.running();
        let (mut notes, mut failures) = (Vec::new(), Vec::new());
        running.streams.retain(|stream| {
            let stays = config.one_ways.iter().any(|wanted| stream.is(wanted));
            if !stays {
                stream.end();
                notes.push(format!("{} ended", stream.name()));
            }
            stays
        });
        let mut streams = Vec::new();
        for wanted in &config.one_ways {
            match running.streams.iter().find(|stream| stream.is(wanted)) {
                Some(stream) => streams.push(stream.clone()),
                None => match self.start(&mut running.stamps, wanted, tunnel) {
                    Ok(stream) => {
                        notes.push(format!("{} begun", stream.name()));
                        streams.push(stream);
                    }
                    Err(failure) => failures.push(failure),
                },
            }
        }
        running.streams = streams;
        (notes, failures)
    }

    fn start(&self, stamps: &mut Option<Arc<Stamps>>, wanted: &OneWay, tunnel: Option<&Arc<Tunnel>>) -> Result<Stream, Failure> {
        let mut stamps = || -> Result<_, Failure> {
            match stamps {
                Some(stamps) => Ok(Arc::clone(stamps)),
                None => Ok(Arc::clone(stamps.insert(Arc::new(Stamps::open(&self.state)?)))),
            }
        };
        let no_tunnel = || Failure::System("the node was started without [tun]: restart it".into());
        match wanted {
            OneWay::To(to) => {
                tunnel.ok_or_else(no_tunnel)?;
                Outlet::start(to.clone(), self.secret.clone(), stamps()?).map(Stream::To)
            }
            OneWay::From(from) => {
                let tunnel = Arc::clone(tunnel.ok_or_else(no_tunnel)?);
                let (inlet, listening, mut packets) = Inlet::start(from.clone(), self.secret.clone(), stamps()?)?;
                tokio::spawn(async move {
                    while let Some((from, packet)) = packets.recv().await {
                        tunnel.deliver(from, packet).await;
                    }
                });
                Ok(Stream::From(inlet, Arc::new(listening)))
            }
            OneWay::Relay(relay) => {
                let (passage, listening) = Passage::start(relay.clone())?;
                Ok(Stream::Relay(passage, Arc::new(listening)))
            }
        }
    }

    /// All of them, in the order of the file.
    pub fn streams(&self) -> Vec<Stream> {
        self.running().streams.clone()
    }

    /// Those that take packets of the tunnel, by the node that they go to.
    pub fn outlets(&self) -> HashMap<PublicKey, Arc<Outlet>> {
        let of = |stream: &Stream| if let Stream::To(outlet) = stream { Some((outlet.config().key, Arc::clone(outlet))) } else { None };
        self.running().streams.iter().filter_map(of).collect()
    }

    /// Ends all: what must not be forgotten is kept.
    pub fn end(&self) {
        self.running().streams.drain(..).for_each(|stream| stream.end());
    }
}

/// The protocol's time for one thread.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now())
    }

    /// Begins a while after the origin, where nothing was ever sent.
    fn now(&self) -> Time {
        Time::from_millis(1000) + self.0.elapsed()
    }
}

/// Whether datagrams of this address are taken: no network at all means all.
fn is_source(sources: &[IpNet], from: IpAddr) -> bool {
    sources.is_empty() || sources.iter().any(|net| net.contains(&from))
}

fn random() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| Failure::system("no randomness from the operating system", e))?;
    Ok(bytes)
}

/// A socket to send to such an address.
fn socket_for(remote: SocketAddr) -> Result<UdpSocket, Failure> {
    let any: IpAddr = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).map_err(|e| Failure::system("a socket", e))
}

/// A socket with an address that others know, and the thread that reads it.
#[derive(Debug)]
pub struct Listening {
    is_over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The socket as its thread sees it.
struct Inbound(UdpSocket);

impl Inbound {
    /// The length of a datagram and from where it came, if one comes within such a time, or a little more.
    fn receive(&self, buffer: &mut [u8], within: Duration) -> Option<(usize, IpAddr)> {
        let receive = |buffer: &mut [u8]| self.0.recv_from(buffer).ok().map(|(length, from)| (length, from.ip().to_canonical()));
        if let Some(received) = receive(buffer) {
            return Some(received);
        }
        if within.is_zero() {
            return None;
        }
        let within = Timespec::try_from(within.min(LOOK)).ok()?;
        let mut readable = [PollFd::new(&self.0, PollFlags::IN)];
        // Interrupted or not: the caller comes again.
        let _ = poll(&mut readable, Some(&within));
        receive(buffer)
    }
}

impl Listening {
    /// Binds the address and lets a thread work on it until it hears that it is over.
    fn start(at: SocketAddr, name: &str, work: impl FnOnce(Inbound, &dyn Fn() -> bool) + Send + 'static) -> Result<Self, Failure> {
        let socket = bind(at).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("end the program that has it (ss -ulpn 'sport = :{}' names it), or choose another", at.port())
                }
                io::ErrorKind::AddrNotAvailable => "this host has no such address (ip address)".to_owned(),
                io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE".to_owned(),
                _ => "choose another".to_owned(),
            };
            Failure::Listen(format!("[[one-way]] listen {at}: {error}: {advice}"))
        })?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let inbound = Inbound(socket);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(inbound, &|| over.load(Ordering::Relaxed)));
        let thread = thread.map_err(|e| Failure::system("a thread", e))?;
        Ok(Self { is_over, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread and gives the address back.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // As much as the system permits.
    let _ = socket.set_recv_buffer_size(BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    Ok(socket.into())
}
