//! The server: answers what the other end of a session asks for, within its rules.

use crate::access::Rules;
use crate::dial::{self, Dialler};
use crate::forward::Bind;
use crate::listen;
use crate::relay::{prepare, relay, reset};
use crate::report::{Counts, End, Report, Sink};
use crate::source::{Client, Sources};
use crate::stream::{self, Incoming, NoRecord, accept, refuse};
use crate::target::Target;
use crate::udp;
use crate::wire::{ACCEPTORS, Answer, Outcome, Record, RecordError, TAG, Transport};
use noctule::{Class, FarText, IncomingFlow, PublicKey, SendStream, Session};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What a server allows.
pub struct FarConfig {
    /// Targets.
    pub rules: Rules,
    /// Whatever is asked for, this is what is meant; the rules are not asked.
    pub only_target: Option<Target>,
    /// Listeners here, for the other end's `-R`.
    pub allow_remote_listen: bool,
    /// Connections and listeners of one key at a time, and as many associations besides.
    pub max_connections: usize,
    /// Datagrams come and go for an association for so long after the last one.
    pub udp_idle: Duration,
    /// Of the sockets by which targets are reached (`SO_MARK`), so that what this host intercepts is never this server's own.
    pub mark: Option<u32>,
    /// How targets hear where a connection came from.
    pub sources: Arc<Sources>,
    /// Hears of each connection that has ended.
    pub sink: Sink,
}

/// A server. It serves any number of sessions.
pub struct Far {
    config: FarConfig,
    /// Of each key, connections and associations apart.
    open: Mutex<HashMap<(PublicKey, Transport), usize>>,
    ids: AtomicU32,
}

/// One of the connections that a key may have.
struct Place {
    far: Arc<Far>,
    key: (PublicKey, Transport),
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.far.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

impl Far {
    /// One with these rules.
    pub fn new(config: FarConfig) -> Arc<Self> {
        Arc::new(Self { config, open: Mutex::default(), ids: AtomicU32::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(PublicKey, Transport), usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections, associations and listeners of all keys at present.
    pub fn open(&self) -> usize {
        self.lock().values().sum()
    }

    /// A place for a connection (or a listener), or for an association: datagrams take none from connections.
    fn place(self: &Arc<Self>, key: PublicKey, transport: Transport) -> Result<Place, Answer> {
        let (key, what) = ((key, transport), if transport == Transport::Tcp { "connections" } else { "UDP sources" });
        let most = self.config.max_connections;
        let mut open = self.lock();
        let count = open.entry(key).or_default();
        if *count >= most {
            return Err(Answer::new(Outcome::Busy, format!("this key has {most} {what} already, the most that are allowed there")));
        }
        *count += 1;
        Ok(Place { far: Arc::clone(self), key })
    }

    /// Serves a session until it ends; `first`: a flow of it that was accepted already.
    pub async fn serve(self: Arc<Self>, session: Session, first: Option<IncomingFlow>) {
        let mut tasks = JoinSet::new();
        let mut next = first;
        loop {
            if let Some(flow) = next.take() {
                match flow {
                    IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == TAG => {
                        let incoming = Incoming::new(recv);
                        tasks.spawn(Arc::clone(&self).handle(session.clone(), send, incoming));
                    }
                    // Dropped: the far end hears that nobody wants it.
                    _ => {}
                }
            }
            tokio::select! {
                flow = session.accept_flow_if(|options| !udp::is_datagrams(options)) => match flow {
                    Ok(flow) => next = Some(flow),
                    Err(_) => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        // Each of them sees the end of the session, and reports it.
        while tasks.join_next().await.is_some() {}
    }

    /// Tells the other end of a session why nothing of it is served.
    pub async fn decline(first: IncomingFlow, answer: Answer) {
        if let IncomingFlow::Stream { recv, send: Some(send) } = first {
            refuse(send, Incoming::new(recv), answer).await;
        }
    }

    async fn handle(self: Arc<Self>, session: Session, mut send: SendStream, mut incoming: Incoming) {
        let request = match incoming.request().await {
            Ok(request) => request,
            Err(NoRecord::Bad(why)) => {
                let outcome = if why == RecordError::Unknown { Outcome::Unsupported } else { Outcome::Failed };
                return refuse(send, incoming, Answer::new(outcome, why.to_string())).await;
            }
            Err(_) => return refuse(send, incoming, Answer::new(Outcome::Failed, "no request")).await,
        };
        if request == Record::Hello {
            if accept(&mut send, Answer::new(Outcome::Connected, "")).await.is_ok() {
                incoming.ended().await;
            }
            return;
        }
        let transport = if matches!(request, Record::Associate { .. }) { Transport::Udp } else { Transport::Tcp };
        let place = match self.place(session.peer_key(), transport) {
            Ok(place) => place,
            Err(busy) => {
                if let Record::Associate { id, .. } = request {
                    udp::forget(&session, id);
                }
                return refuse(send, incoming, busy).await;
            }
        };
        let (meant, dialler) = (self.config.only_target.clone(), self.dialler());
        match request {
            Record::Connect { target, source } => {
                let told = self.config.sources.told(&session.peer_key(), source.as_ref());
                self.connect(&session, send, incoming, meant.unwrap_or(target), told, dialler).await;
            }
            Record::Associate { id, lifetime, target } => {
                let target = meant.or(target);
                // A session that is over does not know it any more.
                let (begun, source) = (Instant::now(), source_of(&session));
                let asked = target.as_ref().map_or_else(|| "any".to_owned(), Target::to_string);
                let served = udp::Served { id, lifetime, target, dialler, idle: self.config.udp_idle };
                let (counts, end) = udp::serve(&session, send, incoming, served).await;
                self.report(&session, Transport::Udp, source, asked, begun, &counts, end);
            }
            Record::Listen { id, transport, bind } => self.listen(&session, send, incoming, id, transport, &bind).await,
            Record::Arrival { .. } | Record::Datagrams { .. } | Record::Answer(_) | Record::Hello => {
                refuse(send, incoming, Answer::new(Outcome::Unsupported, "")).await;
            }
        }
        drop(place);
    }

    fn dialler(&self) -> Dialler {
        let rules = match self.config.only_target {
            Some(_) => Rules { allow_private: true, ..Rules::default() },
            None => self.config.rules.clone(),
        };
        Dialler { rules, mark: self.config.mark, client: None }
    }

    /// `told`: where the connection comes from, as a trusted near end says.
    async fn connect(
        &self,
        session: &Session,
        send: SendStream,
        incoming: Incoming,
        target: Target,
        told: Result<Option<SocketAddr>, Answer>,
        mut dialler: Dialler,
    ) {
        let (begun, counts) = (Instant::now(), Counts::default());
        let near = || session.far_address().map(|ip| SocketAddr::new(ip, 0)).or_else(|| session.remote_address());
        let at = told.as_ref().ok().copied().flatten();
        let source = at.map_or_else(|| source_of(session), |at| at.to_string());
        dialler.client = Some(Client { sources: Arc::clone(&self.config.sources), at: at.or_else(near) });
        let end = match told {
            Ok(_) => serve_connect(send, incoming, &target, &dialler, &counts).await,
            Err(denied) => {
                refuse(send, incoming, denied.clone()).await;
                End::Refused(denied)
            }
        };
        self.report(session, Transport::Tcp, source, target.to_string(), begun, &counts, end);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a report")]
    fn report(&self, session: &Session, transport: Transport, source: String, target: String, begun: Instant, counts: &Counts, end: End) {
        // The socket here is the target's.
        let (from_target, to_target) = counts.get();
        let peer = Some(session.peer_key());
        (self.config.sink)(&Report { peer, transport, source, target, to_target, from_target, duration: begun.elapsed(), end });
    }

    /// A listener here for as long as its stream lives.
    async fn listen(
        self: &Arc<Self>,
        session: &Session,
        mut send: SendStream,
        mut incoming: Incoming,
        id: u32,
        transport: Transport,
        at: &Target,
    ) {
        if !self.config.allow_remote_listen {
            let denied = Answer::new(Outcome::Denied, "listeners there need noctule proxy serve --allow-remote-listen");
            return refuse(send, incoming, denied).await;
        }
        let failed = |error: String| Answer::new(Outcome::Failed, error);
        let Some(bind) = Bind::of(at) else {
            return refuse(send, incoming, failed(format!("{at} is no place to listen"))).await;
        };
        let mut tasks = JoinSet::new();
        let bound = match transport {
            Transport::Tcp => listen::tcp(&bind).map_err(|e| e.to_string()).and_then(|listeners| {
                let bound = listeners[0].local_addr().map_err(|e| e.to_string())?;
                for listener in listeners {
                    tasks.spawn(Arc::clone(self).take_connections(session.clone(), listener, id));
                }
                Ok(bound)
            }),
            Transport::Udp => listen::udp(&bind).map_err(|e| e.to_string()).and_then(|sockets| {
                let bound = sockets[0].local_addr().map_err(|e| e.to_string())?;
                for socket in sockets {
                    tasks.spawn(Arc::clone(self).take_datagrams(session.clone(), socket, id));
                }
                Ok(bound)
            }),
        };
        let bound = match bound {
            Ok(bound) => bound,
            Err(error) => return refuse(send, incoming, failed(error)).await,
        };
        if accept(&mut send, Answer { outcome: Outcome::Connected, bound: Some(bound.into()), text: FarText::default() }).await.is_ok() {
            incoming.ended().await;
        }
    }

    async fn take_connections(self: Arc<Self>, session: Session, listener: TcpListener, id: u32) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                (tcp, source) = listen::accept(&listener) => drop(tasks.spawn(Arc::clone(&self).arrival(session.clone(), tcp, source, id))),
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// A connection that came in at a listener of the other end.
    async fn arrival(self: Arc<Self>, session: Session, tcp: TcpStream, source: SocketAddr, listener: u32) {
        prepare(&tcp);
        let (begun, counts) = (Instant::now(), Counts::default());
        let target = tcp.local_addr().map_or_else(|_| "?".to_owned(), |a| a.to_string());
        let opened = async {
            let place = self.place(session.peer_key(), Transport::Tcp)?;
            let opened = stream::open(&session, &Record::Arrival { listener, source: source.into() }, &[], Class::Bulk).await?;
            Ok((place, opened))
        };
        let end = match opened.await {
            Ok((_place, (send, incoming))) => relay(tcp, send, incoming, u64::MAX, true, &counts).await,
            Err(answer) => {
                reset(&tcp);
                End::Refused(answer)
            }
        };
        let ((to_target, from_target), peer) = (counts.get(), Some(session.peer_key()));
        let (transport, source) = (Transport::Tcp, source.to_string());
        (self.config.sink)(&Report { peer, transport, source, target, to_target, from_target, duration: begun.elapsed(), end });
    }

    async fn take_datagrams(self: Arc<Self>, session: Session, socket: tokio::net::UdpSocket, listener: u32) {
        let target = socket.local_addr().map_or_else(|_| "?".to_owned(), |a| a.to_string());
        let this = &self;
        let open = |source: SocketAddr| {
            let (session, this) = (session.clone(), Arc::clone(this));
            async move {
                let place = this.place(session.peer_key(), Transport::Udp)?;
                let id = this.ids.fetch_add(1, Relaxed) | ACCEPTORS;
                let record = Record::Datagrams { listener, id, lifetime: udp::LIFETIME, source: source.into() };
                let association = udp::open(&session, &record, id, udp::LIFETIME).await?;
                Ok((place, association))
            }
        };
        let (sink, peer) = (Arc::clone(&self.config.sink), session.peer_key());
        udp::listen(socket, self.config.udp_idle, open, move |source, counts: &Counts, begun, end| {
            let (to_target, from_target) = counts.get();
            let (peer, source, target) = (Some(peer), source.to_string(), target.clone());
            sink(&Report { peer, transport: Transport::Udp, source, target, to_target, from_target, duration: begun.elapsed(), end });
        })
        .await;
    }
}

/// Where a session comes from.
fn source_of(session: &Session) -> String {
    match session.far_address() {
        Some(far) => far.to_string(),
        None => session.remote_address().map_or_else(|| "a session that is over".to_owned(), |a| a.to_string()),
    }
}

/// Dials, answers, and carries the connection.
pub(crate) async fn serve_connect(mut send: SendStream, incoming: Incoming, target: &Target, dialler: &Dialler, counts: &Counts) -> End {
    let mut tcp = match dial::dial(target, dialler).await {
        Ok(tcp) => tcp,
        Err(answer) => {
            refuse(send, incoming, answer.clone()).await;
            return End::Refused(answer);
        }
    };
    prepare(&tcp);
    if let (Some(client), Ok(to)) = (&dialler.client, tcp.peer_addr())
        && let Some(header) = client.header(&target.host, to)
        // A target that would read bytes without it would take them for the header.
        && tcp.write_all(&header).await.is_err()
    {
        let gone = Answer::new(Outcome::Refused, "");
        refuse(send, incoming, gone.clone()).await;
        return End::Refused(gone);
    }
    let bound = tcp.local_addr().ok().map(Target::from);
    if let Err(error) = accept(&mut send, Answer { outcome: Outcome::Connected, bound, text: FarText::default() }).await {
        reset(&tcp);
        return End::Lost(error.to_string());
    }
    relay(tcp, send, incoming, u64::MAX, false, counts).await
}
