//! The server: answers what the other end of a session asks for, within its rules.

use crate::access::Rules;
use crate::dial::{self, Dialler};
use crate::forward::Bind;
use crate::listen;
use crate::live::{ConnectionView, GuestsView, Live, Snapshot, Targets, UserView};
use crate::relay::{prepare, relay, reset};
use crate::report::{Counts, End, Report, Sink, Wire};
use crate::source::{Client, Sources};
use crate::stream::{self, Incoming, NoRecord, accept, refuse};
use crate::target::{Host, Target};
use crate::udp;
use crate::user::{Account, Limits, Usage, User, Users};
use crate::wire::{ACCEPTORS, Answer, Outcome, Record, RecordError, TAG, Transport};
use noctule::{Class, FarText, IncomingFlow, PublicKey, SendStream, Session};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Characters of the beginning of a key that stand for it, if it is the only one.
const LEAST_BEGINNING: usize = 8;
/// What those hear whose connection the owner of the server ends.
const KICKED: &str = "ended by the server's owner";

/// What a server allows.
pub struct FarConfig {
    /// Of each key that is not a listed user's.
    pub limits: Limits,
    /// Users.
    pub accounts: Vec<Account>,
    /// What users, by their names, had moved before.
    pub usage: BTreeMap<String, Usage>,
    /// Whatever is asked for, this is what is meant; the rules are not asked.
    pub only_target: Option<Target>,
    /// Listeners here, for the other end's `-R`.
    pub allow_remote_listen: bool,
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
    only_target: Option<Target>,
    allow_remote_listen: bool,
    udp_idle: Duration,
    mark: Option<u32>,
    sources: Arc<Sources>,
    sink: Sink,
    users: Mutex<Users>,
    open: Mutex<Open>,
    ids: AtomicU32,
}

/// What is open.
#[derive(Default)]
struct Open {
    last: u64,
    connections: BTreeMap<u64, Arc<Live>>,
    sessions: BTreeMap<u64, Session>,
    targets: Targets,
}

/// One of the connections that a user may have.
struct Place {
    far: Arc<Far>,
    live: Arc<Live>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.far.lock();
        self.live.user.open(self.live.transport).fetch_sub(1, Relaxed);
        open.connections.remove(&self.live.id);
        let (down, up) = self.live.counts.get();
        // One that was denied has begun nowhere.
        if self.live.reached.get().is_some() || up + down > 0 {
            open.targets.add(&self.live.target, up, down);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Far {
    /// One with these rules.
    pub fn new(config: FarConfig) -> Arc<Self> {
        let FarConfig { limits, accounts, usage, only_target, allow_remote_listen, udp_idle, mark, sources, sink } = config;
        let users = Mutex::new(Users::new(limits, accounts, usage));
        Arc::new(Self {
            only_target,
            allow_remote_listen,
            udp_idle,
            mark,
            sources,
            sink,
            users,
            open: Mutex::default(),
            ids: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    /// Connections, associations and listeners of all keys at present.
    pub fn open(&self) -> usize {
        self.lock().connections.len()
    }

    /// Other limits and users from now on. Users that keep their names keep their counts. Connections go on, but for those that are not allowed any more.
    pub fn configure(&self, limits: Limits, accounts: Vec<Account>) {
        lock(&self.users).configure(limits, accounts);
        let connections: Vec<Arc<Live>> = self.lock().connections.values().cloned().collect();
        for live in connections {
            // It would keep the rates, quotas and rights of the user that its key was.
            if !Arc::ptr_eq(&lock(&self.users).of(live.key), &live.user) {
                live.end("its key belongs to another user now");
                continue;
            }
            if self.only_target.is_some() {
                continue;
            }
            let Some((address, _)) = live.reached.get() else { continue };
            let Ok(target) = live.target.parse::<Target>() else { continue };
            if live.user.limits().rules.check(&target.host, address.ip(), target.port).is_err() {
                live.end("the rules do not allow it any more");
            }
        }
    }

    /// What users have moved, to be kept.
    pub fn usage(&self) -> BTreeMap<String, Usage> {
        lock(&self.users).usage()
    }

    /// Users, targets, and how much there is of each.
    pub fn snapshot(&self) -> Snapshot {
        let (users, guests) = {
            let users = lock(&self.users);
            (users.all().collect::<Vec<_>>(), GuestsView::of(users.guest_traffic()))
        };
        let whose: Vec<PublicKey> = self.lock().sessions.values().map(Session::peer_key).collect();
        let whose: Vec<Arc<User>> = whose.into_iter().map(|key| lock(&self.users).of(key)).collect();
        let open = self.lock();
        let of = |user: &Arc<User>| {
            let count = |transport| user.open(transport).load(Relaxed);
            let sessions = whose.iter().filter(|of| Arc::ptr_eq(of, user)).count();
            UserView::of(user, sessions, count(Transport::Tcp) + count(Transport::Udp))
        };
        let (targets, other_targets) = open.targets.view(open.connections.values().map(|live| live.view()));
        Snapshot { users: users.iter().map(of).collect(), guests, connections: open.connections.len(), targets, other_targets }
    }

    /// Connections at present, in the order in which they began.
    pub fn connections(&self) -> Vec<ConnectionView> {
        self.lock().connections.values().map(|live| live.view()).collect()
    }

    /// Ends a connection; false if there is none of this number.
    pub fn kick_connection(&self, id: u64) -> bool {
        let live = self.lock().connections.get(&id).cloned();
        live.inspect(|live| live.end(KICKED)).is_some()
    }

    /// Ends all connections and sessions of a user, by its name or one of its keys; how many of both, `None` if there is no such user.
    /// It may open a session again as long as its key may.
    pub fn kick_user(&self, name: &str) -> Option<(usize, usize)> {
        let key = name.parse::<PublicKey>().ok();
        let user = {
            let mut users = lock(&self.users);
            let found = users.all().find(|user| user.name == name);
            // As the table of status cuts it.
            let beginning = name.trim_end_matches('…');
            let is_it = |user: &Arc<User>| !user.is_listed && beginning.len() >= LEAST_BEGINNING && user.name.starts_with(beginning);
            let mut begun: Vec<Arc<User>> = users.all().filter(is_it).collect();
            let found = found.or_else(|| begun.pop().filter(|_| begun.is_empty()));
            found.or_else(|| key.map(|key| users.of(key)).filter(|user| user.is_listed))?
        };
        let connections: Vec<Arc<Live>> = self.lock().connections.values().filter(|live| Arc::ptr_eq(&live.user, &user)).cloned().collect();
        connections.iter().for_each(|live| live.end(KICKED));
        let is_its = |key: &PublicKey| Arc::ptr_eq(&lock(&self.users).of(*key), &user);
        Some((connections.len(), self.end_sessions(is_its, KICKED)))
    }

    /// Ends the sessions of the keys for which `is_meant` is true; how many they were.
    pub fn end_sessions(&self, is_meant: impl Fn(&PublicKey) -> bool, why: &str) -> usize {
        let sessions: Vec<Session> = self.lock().sessions.values().cloned().collect();
        let meant = sessions.iter().filter(|session| is_meant(&session.peer_key()));
        meant.inspect(|session| session.abort(1, why)).count()
    }

    /// A place for a connection (or a listener), or for an association: datagrams take none from connections.
    fn place(self: &Arc<Self>, session: &Session, transport: Transport, source: String, target: String) -> Result<Place, Answer> {
        let what = if transport == Transport::Tcp { "connections" } else { "UDP sources" };
        let mut open = self.lock();
        // Within the lock: a change of users is followed by a walk over the connections, which finds this one then.
        let user = lock(&self.users).of(session.peer_key());
        let refused = user.admit(user.open(transport).load(Relaxed), what);
        user.add(|traffic| if refused.is_ok() { &traffic.connections } else { &traffic.refused }, 1);
        refused?;
        user.open(transport).fetch_add(1, Relaxed);
        open.last += 1;
        let counts = Arc::new(Counts::of(Arc::clone(&user)));
        let (id, begun, reached) = (open.last, Instant::now(), OnceLock::new());
        let key = session.peer_key();
        let live = Arc::new(Live { id, key, user, transport, source, target, begun, counts, reached });
        open.connections.insert(id, Arc::clone(&live));
        Ok(Place { far: Arc::clone(self), live })
    }

    /// A connection for which there is no place, in the log.
    fn refused(&self, session: &Session, transport: Transport, source: String, target: String, answer: Answer) {
        let user = Some(lock(&self.users).of(session.peer_key()).name.clone());
        let (to_target, from_target, wire, duration) = (0, 0, Wire::default(), Duration::ZERO);
        let (peer, rule, end) = (Some(session.peer_key()), None, End::Refused(answer));
        (self.sink)(&Report { peer, user, transport, source, target, rule, to_target, from_target, wire, duration, end });
    }

    /// A connection that has ended, in the log. `outward`: its socket is the target's; otherwise it is the client's.
    fn report(&self, session: &Session, live: &Live, outward: bool, end: End) {
        let (up, down) = live.counts.get();
        let (to_target, from_target) = if outward { (down, up) } else { (up, down) };
        if matches!(end, End::Refused(_)) {
            live.user.add(|traffic| &traffic.refused, 1);
        }
        let rule = live.reached.get().map(|(_, rule)| rule.clone()).or_else(|| self.denied_by(live, &end));
        (self.sink)(&Report {
            peer: Some(session.peer_key()),
            user: Some(live.user.name.clone()),
            transport: live.transport,
            source: live.source.clone(),
            target: live.target.clone(),
            rule,
            to_target,
            from_target,
            wire: live.counts.wire(),
            duration: live.begun.elapsed(),
            end,
        });
    }

    /// The rule that denied a target, where that does not depend on what its name led to.
    fn denied_by(&self, live: &Live, end: &End) -> Option<String> {
        match (end, live.target.parse::<Target>()) {
            (End::Refused(Answer { outcome: Outcome::Denied, .. }), Ok(target)) => match &target.host {
                Host::Ip(ip) => Some(live.user.limits().rules.reason(&target.host, *ip, target.port)),
                Host::Name(_) => live.user.limits().rules.by_name(&target),
            },
            _ => None,
        }
    }

    /// Serves a session until it ends; `first`: a flow of it that was accepted already.
    pub async fn serve(self: Arc<Self>, session: Session, first: Option<IncomingFlow>) {
        let mut tasks = JoinSet::new();
        let mut next = first;
        let number = {
            let mut open = self.lock();
            open.last += 1;
            let number = open.last;
            open.sessions.insert(number, session.clone());
            number
        };
        // Also where this future is dropped.
        let _listed = Listed { far: Arc::clone(&self), number };
        // What is counted for the key of a guest lasts as long as its session.
        let _user = lock(&self.users).of(session.peer_key());
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
        let meant = self.only_target.clone();
        let target = match &request {
            Record::Connect { target, .. } => meant.as_ref().unwrap_or(target).to_string(),
            Record::Associate { target, .. } => meant.as_ref().or(target.as_ref()).map_or_else(|| "any".to_owned(), Target::to_string),
            Record::Listen { bind, .. } => format!("listener {bind}"),
            _ => return refuse(send, incoming, Answer::new(Outcome::Unsupported, "")).await,
        };
        // A session that is over does not know it any more.
        let told = match &request {
            Record::Connect { source, .. } => self.sources.told(&session.peer_key(), source.as_ref()),
            _ => Ok(None),
        };
        let source = told.as_ref().ok().copied().flatten().map_or_else(|| source_of(&session), |at| at.to_string());
        let place = match self.place(&session, transport, source.clone(), target.clone()) {
            Ok(place) => place,
            Err(busy) => {
                if let Record::Associate { id, .. } = request {
                    udp::forget(&session, id);
                }
                self.refused(&session, transport, source, target, busy.clone());
                return refuse(send, incoming, busy).await;
            }
        };
        let (mut dialler, live) = (self.dialler(&place.live.user), Arc::clone(&place.live));
        match request {
            Record::Connect { target: asked, source: _ } => {
                let target = meant.unwrap_or(asked);
                let reached = |at| self.reached(&live, &target, at);
                let near = || session.far_address().map(|ip| SocketAddr::new(ip, 0)).or_else(|| session.remote_address());
                let at = told.as_ref().ok().copied().flatten();
                dialler.client = Some(Client { sources: Arc::clone(&self.sources), at: at.or_else(near) });
                let end = match told {
                    Ok(_) => serve_connect(send, incoming, &target, &dialler, &live.counts, reached).await,
                    Err(denied) => {
                        refuse(send, incoming, denied.clone()).await;
                        End::Refused(denied)
                    }
                };
                self.report(&session, &live, true, end);
            }
            Record::Associate { id, lifetime, target } => {
                let target = meant.or(target);
                let reached: Box<dyn Fn(SocketAddr) + Send + Sync> = match target.clone() {
                    Some(target) => {
                        let (far, live) = (Arc::clone(&self), Arc::clone(&live));
                        Box::new(move |at| far.reached(&live, &target, at))
                    }
                    None => Box::new(|_| {}),
                };
                let served = udp::Served { id, lifetime, target, dialler, idle: self.udp_idle, reached };
                let end = udp::serve(&session, send, incoming, served, &live.counts).await;
                self.report(&session, &live, true, end);
            }
            Record::Listen { id, transport, bind } => {
                tokio::select! {
                    () = self.listen(&session, send, incoming, id, transport, &bind) => {}
                    _ = live.counts.ended() => {}
                }
            }
            Record::Arrival { .. } | Record::Datagrams { .. } | Record::Answer(_) | Record::Hello => {}
        }
        drop(place);
    }

    /// Notes which address was dialled, and by which rule.
    fn reached(&self, live: &Live, target: &Target, at: SocketAddr) {
        let rule = match self.only_target {
            Some(_) => "only-target".into(),
            None => live.user.limits().rules.reason(&target.host, at.ip(), target.port),
        };
        let _ = live.reached.set((at, rule));
    }

    fn dialler(&self, user: &User) -> Dialler {
        let rules = match self.only_target {
            Some(_) => Rules { allow_private: true, ..Rules::default() },
            None => user.limits().rules.clone(),
        };
        Dialler { rules, lookups: user.lookups.clone(), mark: self.mark, client: None }
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
        if !self.allow_remote_listen {
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
        let target = tcp.local_addr().map_or_else(|_| "?".to_owned(), |a| a.to_string());
        let place = match self.place(&session, Transport::Tcp, source.to_string(), target.clone()) {
            Ok(place) => place,
            Err(busy) => {
                reset(&tcp);
                return self.refused(&session, Transport::Tcp, source.to_string(), target, busy);
            }
        };
        let counts = &place.live.counts;
        let end = match stream::open(&session, &Record::Arrival { listener, source: source.into() }, &[], Class::Bulk).await {
            Ok((send, incoming)) => relay(tcp, send, incoming, u64::MAX, true, counts).await,
            Err(answer) => {
                reset(&tcp);
                End::Refused(answer)
            }
        };
        self.report(&session, &place.live, false, end);
    }

    async fn take_datagrams(self: Arc<Self>, session: Session, socket: tokio::net::UdpSocket, listener: u32) {
        let target = socket.local_addr().map_or_else(|_| "?".to_owned(), |a| a.to_string());
        let (this, shown) = (&self, target.clone());
        let open = |source: SocketAddr| {
            let (session, this, target) = (session.clone(), Arc::clone(this), target.clone());
            async move {
                let place = this.place(&session, Transport::Udp, source.to_string(), target)?;
                let id = this.ids.fetch_add(1, Relaxed) | ACCEPTORS;
                let record = Record::Datagrams { listener, id, lifetime: udp::LIFETIME, source: source.into() };
                let association = udp::open(&session, &record, id, udp::LIFETIME).await?;
                Ok((Arc::clone(&place.live.counts), place, association))
            }
        };
        let (sink, peer) = (Arc::clone(&self.sink), Some(session.peer_key()));
        udp::listen(socket, self.udp_idle, open, move |source, counts: &Counts, begun, end| {
            let ((to_target, from_target), user) = (counts.get(), counts.user().map(|user| user.name.clone()));
            let (source, target, rule, transport) = (source.to_string(), shown.clone(), None, Transport::Udp);
            let (wire, duration) = (counts.wire(), begun.elapsed());
            sink(&Report { peer, user, transport, source, target, rule, to_target, from_target, wire, duration, end });
        })
        .await;
    }
}

/// A session among those that are open.
struct Listed {
    far: Arc<Far>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.far.lock().sessions.remove(&self.number);
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
/// `reached` hears which address it is.
pub(crate) async fn serve_connect(
    mut send: SendStream,
    incoming: Incoming,
    target: &Target,
    dialler: &Dialler,
    counts: &Counts,
    reached: impl Fn(SocketAddr),
) -> End {
    let dialled = tokio::select! {
        dialled = dial::dial(target, dialler) => dialled,
        end = counts.ended() => Err(Answer::new(Outcome::Denied, end.to_string())),
    };
    let mut tcp = match dialled {
        Ok(tcp) => tcp,
        Err(answer) => {
            refuse(send, incoming, answer.clone()).await;
            return End::Refused(answer);
        }
    };
    prepare(&tcp);
    if let Ok(at) = tcp.peer_addr() {
        reached(at);
    }
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
