//! The end with the listeners: what comes in at them goes to the server by the uplink, and what comes in at the server's listeners comes here.

use crate::access::Rules;
use crate::dial::Dialler;
use crate::far::serve_connect;
use crate::forward::{Bind, Forward};
use crate::front;
use crate::listen::{self, BindError};
use crate::lookup::Lookups;
use crate::mute::Mute;
use crate::proxy_protocol;
use crate::relay::{prepare, relay, reset};
use crate::report::{Counts, End, Report, Sink};
use crate::stream::{self, Incoming, refuse};
use crate::target::Target;
use crate::udp;
use crate::uplink::Uplink;
use crate::wire::{Answer, Outcome, Record, TAG, Transport};
use bytes::Bytes;
use ipnet::IpNet;
use noctule::{Class, IncomingFlow, PublicKey, SendStream, Session};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// A listener at the server that could not be had is asked for again after this; then twice as long each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What came in at a server's listeners and is carried here at a time: each takes a socket, and the server says how many there are.
const MOST_ARRIVALS: usize = 1024;

/// Ports whose connections go before others unless others are named: ssh, telnet, RDP, VNC.
pub(crate) const INTERACTIVE: [u16; 4] = [22, 23, 3389, 5900];

/// How a near end goes about it.
#[derive(Clone, Debug)]
pub struct NearOptions {
    /// Datagrams come and go for an association for so long after the last one.
    pub udp_idle: Duration,
    /// How long a datagram may be under way.
    pub udp_lifetime: Duration,
    /// Connections to these ports go before others.
    pub interactive: Vec<u16>,
    /// Mark of what this end sends (`SO_MARK`), by which rules for interception know that it is not to be intercepted.
    pub mark: Option<u32>,
    /// The server hears from which address each connection comes.
    pub tell_source: bool,
    /// From these addresses, connections to ports that lead to one target, and to those for SOCKS and HTTP, begin with a header of the PROXY protocol.
    pub accept_proxy: Vec<IpNet>,
}

impl Default for NearOptions {
    fn default() -> Self {
        Self {
            udp_idle: Duration::from_secs(60),
            udp_lifetime: udp::LIFETIME,
            interactive: INTERACTIVE.to_vec(),
            mark: None,
            tell_source: false,
            accept_proxy: Vec::new(),
        }
    }
}

/// The near end. Clones are handles of the same.
#[derive(Clone)]
pub struct Near {
    pub(crate) uplink: Uplink,
    sink: Sink,
    pub(crate) options: Arc<NearOptions>,
    /// Where what arrives at listeners of the server goes, by their number in a session.
    remote: Arc<Mutex<HashMap<u32, Forward>>>,
    /// Of the targets of these.
    lookups: Lookups,
}

/// A port that listens until it is dropped. Its connections go on.
#[derive(Debug, Default)]
pub struct Listener {
    /// Where, with the ports that the system chose.
    pub addresses: Vec<SocketAddr>,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A listener at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// What was asked for.
    pub forward: Forward,
    /// Where it listens there, or why it does not.
    pub result: Result<Target, Answer>,
}

impl Near {
    /// One whose connections go by `uplink`; `sink` hears of each that has ended.
    pub fn new(uplink: Uplink, options: NearOptions, sink: Sink) -> Self {
        Self { uplink, sink, options: Arc::new(options), remote: Arc::default(), lookups: Lookups::default() }
    }

    /// The class of a connection.
    pub(crate) fn class(&self, target: &Target) -> Class {
        if self.options.interactive.contains(&target.port) { Class::Latency } else { Class::Bulk }
    }

    /// Where a connection comes from: what its header says, if it comes from a host that writes one.
    async fn announced(&self, tcp: &mut TcpStream, source: SocketAddr) -> Result<SocketAddr, Answer> {
        if !self.options.accept_proxy.iter().any(|net| net.contains(&source.ip())) {
            return Ok(source);
        }
        let said = proxy_protocol::take(tcp).await;
        said.map(|said| said.unwrap_or(source))
            .map_err(|error| Answer::new(Outcome::Denied, format!("it has to begin with a header of the PROXY protocol: {error}")))
    }

    /// The request for a connection that came from `source`. Programs of this host itself are what the server sees already: this host.
    pub(crate) fn request(&self, target: &Target, source: SocketAddr) -> Record {
        let is_told = self.options.tell_source && !source.ip().to_canonical().is_loopback();
        Record::Connect { target: target.clone(), source: is_told.then(|| source.into()) }
    }

    /// Listens on a port that leads to one target.
    ///
    /// # Errors
    /// The port cannot be listened at.
    pub fn forward(&self, forward: &Forward) -> Result<Listener, BindError> {
        match forward.transport {
            Transport::Tcp => {
                let target = forward.target.clone();
                self.connections(&forward.bind, move |near, tcp, source| near.carry(tcp, source, target.clone()))
            }
            Transport::Udp => self.datagrams(forward),
        }
    }

    /// Listens on a port for SOCKS and HTTP.
    ///
    /// # Errors
    /// The port cannot be listened at.
    pub fn front(&self, bind: &Bind) -> Result<Listener, BindError> {
        let mute = Arc::<Mute>::default();
        self.connections(bind, move |near, tcp, source| front::serve(near, tcp, source, Arc::clone(&mute)))
    }

    fn connections<F>(
        &self,
        bind: &Bind,
        handle: impl Fn(Self, TcpStream, SocketAddr) -> F + Clone + Send + Sync + 'static,
    ) -> Result<Listener, BindError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut listener = Listener::default();
        let announced = move |near: Self, mut tcp: TcpStream, source: SocketAddr| {
            let handle = handle.clone();
            async move {
                match near.announced(&mut tcp, source).await {
                    Ok(source) => handle(near, tcp, source).await,
                    Err(answer) => {
                        reset(&tcp);
                        let (target, end) = (tcp.local_addr().map_or_else(|_| "?".to_owned(), |at| at.to_string()), End::Refused(answer));
                        near.report(None, Transport::Tcp, source.to_string(), target, Instant::now(), &Counts::default(), end);
                    }
                }
            }
        };
        self.take(&mut listener, listen::tcp(bind)?, announced);
        Ok(listener)
    }

    /// Takes what comes in at these sockets.
    pub(crate) fn take<F>(
        &self,
        listener: &mut Listener,
        sockets: Vec<TcpListener>,
        handle: impl Fn(Self, TcpStream, SocketAddr) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        for socket in sockets {
            listener.addresses.extend(socket.local_addr());
            let (near, handle) = (self.clone(), handle.clone());
            listener.tasks.push(tokio::spawn(async move {
                loop {
                    let (tcp, source) = listen::accept(&socket).await;
                    prepare(&tcp);
                    tokio::spawn(handle(near.clone(), tcp, source));
                }
            }));
        }
    }

    /// A connection for a target that is known: it is taken already, and so is reset if the target does not take it.
    pub(crate) async fn carry(self, tcp: TcpStream, source: SocketAddr, target: Target) {
        let (begun, counts) = (Instant::now(), Counts::default());
        let (peer, end) = match self.uplink.open(&self.request(&target, source), &[], self.class(&target)).await {
            Ok((peer, send, incoming)) => (Some(peer), relay(tcp, send, incoming, u64::MAX, true, &counts).await),
            Err(answer) => {
                reset(&tcp);
                (None, End::Refused(answer))
            }
        };
        self.report(peer, Transport::Tcp, source.to_string(), target.to_string(), begun, &counts, end);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a report")]
    pub(crate) fn report(
        &self,
        peer: Option<PublicKey>,
        transport: Transport,
        source: String,
        target: String,
        begun: Instant,
        counts: &Counts,
        end: End,
    ) {
        let (to_target, from_target) = counts.get();
        let (wire, duration) = (counts.wire(), begun.elapsed());
        (self.sink)(&Report { peer, user: None, transport, source, target, rule: None, to_target, from_target, wire, duration, end });
    }

    fn datagrams(&self, forward: &Forward) -> Result<Listener, BindError> {
        let sockets = listen::udp(&forward.bind)?;
        let addresses = sockets.iter().filter_map(|s| s.local_addr().ok()).collect();
        let each = |socket| {
            let (near, target) = (self.clone(), forward.target.clone());
            let shown = target.to_string();
            let open = {
                let near = near.clone();
                move |_| {
                    let (near, target) = (near.clone(), target.clone());
                    async move { Ok((Arc::default(), (), near.associate(Some(target)).await?)) }
                }
            };
            let report = move |source: SocketAddr, counts: &Counts, begun, end| {
                near.report(None, Transport::Udp, source.to_string(), shown.clone(), begun, counts, end);
            };
            let idle = self.options.udp_idle;
            tokio::spawn(async move { udp::listen(socket, idle, open, report).await })
        };
        Ok(Listener { addresses, tasks: sockets.into_iter().map(each).collect() })
    }

    /// Asks for an association.
    pub(crate) async fn associate(&self, target: Option<Target>) -> Result<udp::Association, Answer> {
        let session = self.uplink.soon().await?;
        let id = self.uplink.id();
        udp::open(&session, &Record::Associate { id, lifetime: self.options.udp_lifetime, target }, id, self.options.udp_lifetime).await
    }

    /// Asks whether a proxy serves this session.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn greet(session: &Session) -> Result<Greeting, Answer> {
        let (send, mut incoming) = stream::open(session, &Record::Hello, &[], Class::Latency).await?;
        let answer = incoming.prompt_answer().await;
        match answer.outcome {
            Outcome::Connected => Ok(Greeting { _send: send, _incoming: incoming }),
            _ => Err(answer),
        }
    }

    /// Asks the server of this session to listen, and takes what arrives there, until the session ends. `tell` hears what came of each listener.
    pub async fn serve(&self, session: Session, remote: &[Forward], tell: impl Fn(&Remote) + Send + Sync + 'static) {
        let mut tasks = JoinSet::new();
        let tell = Arc::new(tell);
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for forward in remote.iter().cloned() {
            let (near, session, tell) = (self.clone(), session.clone(), Arc::clone(&tell));
            tasks.spawn(async move { near.keep_listener(session, forward, &*tell).await });
        }
        loop {
            tokio::select! {
                flow = session.accept_flow_if(|options| !udp::is_datagrams(options)) => match flow {
                    Ok(IncomingFlow::Stream { recv, send: Some(send) }) if recv.options().tag == TAG && tasks.len() < MOST_ARRIVALS => {
                        let (near, session) = (self.clone(), session.clone());
                        tasks.spawn(async move { near.arrival(session, send, Incoming::new(recv)).await });
                    }
                    // Dropped: the far end hears that nobody wants it.
                    Ok(other) => drop(other),
                    Err(_) => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Asks for a listener until it listens: its port may be held by a session that is dead, and nobody there knows yet.
    async fn keep_listener(&self, session: Session, forward: Forward, tell: &(impl Fn(&Remote) + ?Sized)) {
        let (mut pause, mut told) = (FIRST_PAUSE, None);
        while session.close_reason().is_none() {
            let (result, held) = self.ask_for_listener(&session, &forward).await;
            let remote = Remote { forward: forward.clone(), result };
            let may_change = matches!(&remote.result, Err(Answer { outcome: Outcome::Failed | Outcome::Busy | Outcome::TimedOut, .. }));
            // The same again is no news.
            if told.as_ref() != Some(&remote) {
                tell(&remote);
            }
            match held {
                Some((_send, mut incoming)) => return incoming.ended().await,
                None if !may_change => return,
                None => {}
            }
            told = Some(remote);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = session.closed() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Where it listens, or why it does not; what keeps it listening.
    async fn ask_for_listener(&self, session: &Session, forward: &Forward) -> (Result<Target, Answer>, Option<(SendStream, Incoming)>) {
        let id = self.uplink.id();
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).insert(id, forward.clone());
        let record = Record::Listen { id, transport: forward.transport, bind: forward.bind.target() };
        let (answer, held) = match stream::open(session, &record, &[], Class::Latency).await {
            Ok((send, mut incoming)) => (incoming.answer().await, Some((send, incoming))),
            Err(answer) => (answer, None),
        };
        match (answer.outcome, answer.bound.clone()) {
            (Outcome::Connected, Some(bound)) => (Ok(bound), held),
            _ => {
                self.remote.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                (Err(answer), None)
            }
        }
    }

    /// What came in at a listener of the server.
    async fn arrival(self, session: Session, send: SendStream, mut incoming: Incoming) {
        let (begun, counts) = (Instant::now(), Counts::default());
        // The command line says where this end leads to.
        let rules = Rules { allow_private: true, ..Rules::default() };
        let dialler = Dialler { rules, lookups: self.lookups.clone(), mark: self.options.mark, client: None };
        let leads = |listener: u32| self.remote.lock().unwrap_or_else(PoisonError::into_inner).get(&listener).cloned();
        let unknown = Answer::new(Outcome::Denied, "nothing was asked to arrive here");
        let peer = Some(session.peer_key());
        match incoming.request().await {
            Ok(Record::Arrival { listener, source }) => match leads(listener) {
                Some(Forward { transport: Transport::Tcp, target, .. }) => {
                    let end = serve_connect(send, incoming, &target, &dialler, &counts, |_| {}).await;
                    self.report(peer, Transport::Tcp, source.to_string(), target.to_string(), begun, &swapped(&counts), end);
                }
                _ => refuse(send, incoming, unknown).await,
            },
            Ok(Record::Datagrams { listener, id, lifetime, source }) => match leads(listener) {
                Some(Forward { transport: Transport::Udp, target, .. }) => {
                    let served = udp::Served {
                        id,
                        lifetime,
                        target: Some(target.clone()),
                        dialler,
                        idle: self.options.udp_idle,
                        reached: Box::new(|_| {}),
                    };
                    let end = udp::serve(&session, send, incoming, served, &counts).await;
                    self.report(peer, Transport::Udp, source.to_string(), target.to_string(), begun, &swapped(&counts), end);
                }
                _ => refuse(send, incoming, unknown).await,
            },
            Ok(_) => refuse(send, incoming, Answer::new(Outcome::Unsupported, "")).await,
            Err(why) => refuse(send, incoming, Answer::new(Outcome::Failed, why.words())).await,
        }
    }

    /// A connection to a target for standard input and output, or whatever else is read and written.
    ///
    /// # Errors
    /// Why it does not stand.
    pub async fn connect(&self, target: Target) -> Result<Connection, Answer> {
        let class = self.class(&target);
        let (_, send, mut incoming) = self.uplink.open(&Record::Connect { target, source: None }, &[], class).await?;
        let answer = incoming.answer().await;
        match answer.outcome {
            Outcome::Connected => Ok(Connection { rest: incoming.take_rest(), recv: incoming.recv, send }),
            _ => Err(answer),
        }
    }
}

/// A session that a proxy serves, for as long as this lives.
#[derive(Debug)]
pub struct Greeting {
    _send: SendStream,
    _incoming: Incoming,
}

/// A connection by the proxy, without a socket at this end.
#[derive(Debug)]
pub struct Connection {
    /// The first bytes of the target.
    pub rest: Bytes,
    /// Those that follow.
    pub recv: noctule::RecvStream,
    /// To the target.
    pub send: SendStream,
}

/// The same with the target's side here.
fn swapped(counts: &Counts) -> Counts {
    let (up, down) = counts.get();
    let swapped = Counts::default();
    swapped.up(down as usize);
    swapped.down(up as usize);
    swapped
}
