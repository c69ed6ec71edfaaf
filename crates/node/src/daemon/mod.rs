//! `noctule node`: a node of a network that runs until it is told to end.
//!
//! It keeps links to its neighbours, relays flows of others if it may, carries IP packets through a TUN device, and follows routes of its file and of
//! the kernel's table. Its parts are tasks that know each other by [`Peer`]s; this file starts them and, at a reload, tells them what changed.

pub mod config;
pub mod control;
mod counted;
mod kernel;
mod lanes;
pub mod metrics;
mod neighbours;
mod one_way;
mod peer;
pub mod places;
mod routes;
pub mod setup;
mod split;
pub mod status;
pub mod strangers;
mod trees;
mod tunnel;

pub use config::RemoteNode;
pub use control::{reload, status};
pub use neighbours::call;
pub use peer::Peer;
pub use tunnel::{PROTOCOL as OUR_PROTOCOL, unless};

use crate::address::DEFAULT_PORT;
use crate::cli::{NodeArgs, NodeTask};
use crate::failure::Failure;
use crate::identity::{self, refused};
use config::{Config, ConfigError, TunConfig, TunTcp};
use noctule::{BindError, Endpoint, EndpointConfig, IncomingFlow, NodeConfig, PublicKey, RelayLimits, Session, SessionAccess, SharedKey};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tunnel::{Device, Tunnel};

/// How long the node, when it ends, waits until its links are closed.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the last packets of sessions over relays have to leave the host.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A running node.
pub struct Daemon {
    file: PathBuf,
    config: RwLock<Arc<Config>>,
    /// The configuration at the start. Its values that no reload can change still hold.
    started_with: Config,
    endpoint: Endpoint,
    key: PublicKey,
    started: Instant,
    peers: Mutex<HashMap<PublicKey, Running>>,
    tunnel: Option<Arc<Tunnel>>,
    /// TCP through the tunnel as streams.
    split: Option<Arc<split::Split>>,
    /// Sessions that other nodes have opened.
    accepted: Mutex<Vec<Session>>,
    /// Addresses to which the names of neighbours resolved when the node started.
    known: HashMap<PublicKey, SocketAddr>,
    one_ways: one_way::OneWays,
    /// Objects that it passes on.
    trees: trees::Trees,
    kernel: watch::Sender<Vec<kernel::KernelRoute>>,
    kernel_task: Mutex<Option<(config::KernelRoutes, JoinHandle<()>)>>,
    /// Notified when links or the configuration have changed: routes may lead elsewhere.
    routes_changed: Notify,
    reloads: tokio::sync::Mutex<()>,
    /// Links and sessions of nodes that the file does not name.
    strange_links: strangers::Strangers,
    strange_sessions: strangers::Strangers,
    /// It takes no more sessions.
    is_ending: AtomicBool,
}

/// The result of applying a configuration.
#[derive(Default)]
struct Applied {
    /// One line for each thing that changed.
    notes: Vec<String>,
    failures: Vec<Failure>,
}

/// A peer and its tasks.
struct Running {
    peer: Arc<Peer>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// `noctule node`.
pub async fn run(args: NodeArgs) -> Result<(), Failure> {
    if let Some(task) = &args.task {
        if args.check || args.example {
            return Err(Failure::Usage("--check and --example go without init and add-neighbour".into()));
        }
        return match task {
            NodeTask::Init(init) => setup::init(&args.config, init),
            NodeTask::AddNeighbour(neighbour) => setup::add_neighbour(&args.config, neighbour),
        };
    }
    if args.example {
        crate::terminal::out(format_args!("{}", setup::EXAMPLE));
        return Ok(());
    }
    let config = Config::read(&args.config)?;
    let identity = identity::endpoint_config(Some(&config.key))?.0;
    if args.check {
        crate::terminal::out(format_args!("{}", status::describe(&config, identity.identity.public())));
        return Ok(());
    }
    let daemon = Daemon::start(args.config, config, identity).await?;
    daemon.serve().await
}

impl Daemon {
    async fn start(file: PathBuf, config: Config, identity: EndpointConfig) -> Result<Arc<Self>, Failure> {
        let key = identity.identity.public();
        if let Some(own) = config.nodes.iter().find(|n| n.key == key) {
            return Err(Failure::Usage(format!(
                "{}: {:?} has the key of this node itself ({}): name only other nodes, or give this node a key of its own",
                file.display(),
                own.name,
                config.key.display()
            )));
        }
        let node = NodeConfig {
            congestion: config.congestion,
            idle_timeout: config.idle_timeout,
            keep_alive: config.keep_alive,
            node_memory: config.limits.memory,
            flow_memory: config.limits.flow_memory,
            max_links: config.limits.links,
            answer: config.answer,
            max_sessions: config.limits.sessions,
            // Packets and split connections have as many each.
            max_flows: config.tun.as_ref().map_or(256, |t| 2 * t.treatment.max_flows + 16).max(256),
            authorised: Some(neighbours_of(&config)),
            sessions_from: SessionAccess::Keys(keys_of(&config)),
            psk: config.psk.clone(),
            neighbour_psks: psks_of(&config),
            one_process_per_key: true,
            ..identity.node.clone()
        };
        let one_ways = one_way::OneWays::new(identity.identity.clone(), config.state.clone());
        let endpoint = bind(&config.listen, identity.with_node(node))?;
        // The control socket before the device: a second node of the same file fails without touching the first one's.
        let listener = control::listen(&config.control, &control::CONTROL)?;
        let metrics = match &config.metrics {
            Some(metrics) => Some(metrics::listen(metrics.listen).await?),
            None => None,
        };
        let tunnel = match &config.tun {
            Some(tun) => {
                let ports = endpoint.local_addrs().iter().map(SocketAddr::port).collect();
                let device = Device::make(tun, ports).await.map_err(|e| Failure::System(e.to_string()))?;
                split::sweep(&tun.name).await;
                Some(Tunnel::new(device))
            }
            None => None,
        };
        let called = config.neighbours().filter_map(|(node, link)| Some((node.key, link.endpoint.clone()?)));
        let known = neighbours::resolve(called).await;
        let daemon = Arc::new(Self {
            file,
            started_with: config.clone(),
            config: RwLock::new(Arc::new(config)),
            endpoint,
            key,
            started: Instant::now(),
            peers: Mutex::default(),
            split: tunnel.as_ref().map(|tunnel| split::Split::new(Arc::clone(tunnel))),
            tunnel,
            accepted: Mutex::default(),
            known,
            one_ways,
            trees: trees::Trees::default(),
            kernel: watch::Sender::new(Vec::new()),
            kernel_task: Mutex::default(),
            routes_changed: Notify::new(),
            reloads: Default::default(),
            strange_links: strangers::Strangers::default(),
            strange_sessions: strangers::Strangers::default(),
            is_ending: AtomicBool::new(false),
        });
        if let Some(failure) = daemon.apply().await.failures.into_iter().next() {
            daemon.clear_kernel().await;
            return Err(failure);
        }
        daemon.begin(listener, metrics);
        tracing::info!(name = %daemon.config().name, %key, listen = %listening(&daemon.endpoint), "node started");
        Ok(daemon)
    }

    /// Starts the tasks that live as long as the node.
    fn begin(self: &Arc<Self>, control: control::Listener, metrics: Option<tokio::net::TcpListener>) {
        tokio::spawn(control::serve(control, Arc::clone(self)));
        if let Some(metrics) = metrics {
            tokio::spawn(metrics::serve(metrics, Arc::clone(self)));
        }
        if let Some(tunnel) = &self.tunnel {
            tokio::spawn(Arc::clone(tunnel).read_device());
        }
        if let Some(split) = &self.split {
            tokio::spawn(Arc::clone(split).keep());
        }
        let this = Arc::clone(self);
        tokio::spawn(refused::log_all(self.endpoint.clone()));
        tokio::spawn(neighbours::answer(self.endpoint.clone(), move |link| {
            let neighbour = this.peer(link.peer_key()).filter(|p| p.config().link.is_some());
            if neighbour.is_none()
                && let Some(count) = this.strange_links.note(Instant::now())
            {
                tracing::warn!(key = %link.peer_key(), remote = link.remote_address().map(display), count, "nodes that the file does not name have called; refused");
            }
            neighbour
        }));
        tokio::spawn(accept_sessions(Arc::clone(self)));
        tokio::spawn(routes::keep(Arc::clone(self)));
    }

    /// Runs until told to end; reloads on SIGHUP.
    async fn serve(self: Arc<Self>) -> Result<(), Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let signal_error = |e| Failure::system("cannot listen for signals", e);
        let mut hangup = signal(SignalKind::hangup()).map_err(signal_error)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(signal_error)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(signal_error)?;
        let outcome = loop {
            tokio::select! {
                _ = hangup.recv() => match self.reload().await {
                    Ok(notes) => tracing::info!(notes = notes.join("; "), "reloaded"),
                    Err(error) => tracing::error!("not reloaded, the node goes on as it was: {error}"),
                },
                _ = interrupt.recv() => break Ok(()),
                _ = terminate.recv() => break Ok(()),
                error = keep_tunnel(self.tunnel.as_ref()) => break Err(Failure::System(error.to_string())),
            }
        };
        tracing::info!("ending");
        self.take_leave().await;
        tokio::task::block_in_place(|| self.one_ways.end());
        self.endpoint.close(0, "the node ends");
        let _ = tokio::time::timeout(FAREWELL, self.endpoint.wait_idle()).await;
        self.clear_kernel().await;
        outcome
    }

    /// Takes away what would outlive the node.
    async fn clear_kernel(&self) {
        if let Some(split) = &self.split {
            split.clear().await;
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.device().clear().await;
        }
    }

    /// Ends sessions over relays. The close of a link ends sessions with neighbours only.
    async fn take_leave(&self) {
        self.is_ending.store(true, Relaxed);
        let mut sessions = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sessions.extend(self.peers().iter().flat_map(|p| {
            let view = p.view();
            view.session.into_iter().chain(view.further)
        }));
        sessions.retain(|s| s.far_address().is_some() && s.close_reason().is_none());
        // Without peers no task opens new sessions.
        self.lock_peers().clear();
        if sessions.is_empty() {
            return;
        }
        sessions.iter().for_each(|s| s.abort(0, "the node ends"));
        // The last packets leave at once; no answer is waited for.
        tokio::time::sleep(LAST_WORDS).await;
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock_peers(&self) -> MutexGuard<'_, HashMap<PublicKey, Running>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self, key: PublicKey) -> Option<Arc<Peer>> {
        self.lock_peers().get(&key).map(|r| Arc::clone(&r.peer))
    }

    /// Every peer, in the order of the file.
    fn peers(&self) -> Vec<Arc<Peer>> {
        let config = self.config();
        let peers = self.lock_peers();
        config.nodes.iter().filter_map(|n| peers.get(&n.key)).map(|r| Arc::clone(&r.peer)).collect()
    }

    /// Reads the file again and makes the running node, and what the kernel holds for it, what the file says. Tells what it has changed and what it cannot.
    ///
    /// # Errors
    /// The file is wrong: nothing changes.
    pub async fn reload(self: &Arc<Self>) -> Result<Vec<String>, ConfigError> {
        let new = Config::read(&self.file)?;
        let _one_at_a_time = self.reloads.lock().await;
        let old = std::mem::replace(&mut *self.config.write().unwrap_or_else(PoisonError::into_inner), Arc::new(new.clone()));
        self.endpoint.set_authorised(Some(neighbours_of(&new)), SessionAccess::Keys(keys_of(&new)));
        self.endpoint.set_neighbour_psks(psks_of(&new));
        let Applied { mut notes, failures } = self.apply().await;
        notes.extend(changed_values(&old, &new));
        notes.extend(needs_restart(&self.started_with, &new));
        for failure in failures {
            tracing::error!("{failure}");
            notes.push(failure.to_string());
        }
        if notes.is_empty() {
            notes.push("nothing to change: the node and the kernel's routes are as the file says".into());
        }
        Ok(notes)
    }

    /// Makes peers, tunnel, streams and routes what the configuration says, whatever they are now.
    async fn apply(self: &Arc<Self>) -> Applied {
        let config = self.config();
        let mut applied = Applied::default();
        self.apply_peers(&config, &mut applied.notes);
        self.endpoint.set_addresses(&config.addresses);
        self.endpoint.enable_relaying(config.relay.then_some(RelayLimits { flows: config.limits.relayed_flows }));
        self.follow_kernel(config.kernel_routes.as_ref());
        // Blocks: waits for the threads of streams that ended.
        let (notes, failures) = tokio::task::block_in_place(|| self.one_ways.apply(&config, self.tunnel.as_ref()));
        applied.notes.extend(notes);
        applied.failures = failures;
        if let (Some(tunnel), Some(tun)) = (&self.tunnel, &config.tun) {
            match tunnel.configure(&self.peers(), &self.one_ways.outlets(), tun).await {
                Ok(changes) => applied.notes.extend(changes.into_iter().map(|c| format!("[tun] {c}"))),
                Err(error) => applied.failures.push(Failure::System(error.to_string())),
            }
        }
        if let (Some(split), Some(tun)) = (&self.split, &config.tun)
            && let Err(failure) = split.apply(tun.tcp == TunTcp::Split, tun.treatment.max_flows).await
        {
            applied.failures.push(failure);
        }
        self.routes_changed.notify_one();
        applied
    }

    fn apply_peers(self: &Arc<Self>, config: &Config, notes: &mut Vec<String>) {
        let mut peers = self.lock_peers();
        peers.retain(|key, running| {
            let stays = config.nodes.iter().any(|n| n.key == *key);
            if !stays {
                tracing::info!(node = %running.peer.name(), "removed from the file");
                notes.push(format!("{:?} removed", running.peer.name()));
                running.peer.drop_links("this node is not a neighbour any more");
            }
            stays
        });
        for node in &config.nodes {
            match peers.get(&node.key).map(|running| running.peer.config()) {
                Some(was) if was == *node => {}
                Some(was) if was.link == node.link => {
                    notes.push(format!("{:?} changed", node.name));
                    if let Some(running) = peers.get(&node.key) {
                        running.peer.set_config(node.clone());
                    }
                }
                Some(_) => {
                    notes.push(format!("{:?} changed: its links and its session begin anew", node.name));
                    // It may be called at another address now, or calls itself.
                    if let Some(running) = peers.remove(&node.key) {
                        running.peer.drop_links("the neighbour's entry changed");
                    }
                    peers.insert(node.key, self.start_peer(node));
                }
                None => {
                    notes.push(format!("{:?} added", node.name));
                    peers.insert(node.key, self.start_peer(node));
                }
            }
        }
    }

    fn start_peer(self: &Arc<Self>, node: &config::RemoteNode) -> Running {
        let peer = Peer::new(self.endpoint.clone(), node.clone());
        let mut tasks = vec![tokio::spawn(Arc::clone(&peer).keep_session())];
        if let Some(link) = &node.link
            && let Some(host) = link.endpoint.clone()
        {
            tasks.push(tokio::spawn(neighbours::call(
                self.endpoint.clone(),
                Arc::clone(&peer),
                host,
                link.paths.clone(),
                self.known.get(&node.key).copied(),
            )));
        }
        if let Some(split) = &self.split {
            tasks.push(tokio::spawn(Arc::clone(split).greet(Arc::clone(&peer))));
        }
        Running { peer, tasks }
    }

    fn follow_kernel(&self, new: Option<&config::KernelRoutes>) {
        let mut task = self.kernel_task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().map(|(followed, _)| followed) == new {
            return;
        }
        if let Some((_, task)) = task.take() {
            task.abort();
        }
        self.kernel.send_replace(Vec::new());
        *task = new.map(|config| (config.clone(), tokio::spawn(kernel::follow(config.clone(), self.kernel.clone()))));
    }
}

/// Returns when the tunnel's device is lost; never, without one.
async fn keep_tunnel(tunnel: Option<&Arc<Tunnel>>) -> tunnel::DeviceError {
    match tunnel {
        Some(tunnel) => tunnel.device().keep().await,
        None => std::future::pending().await,
    }
}

/// Sessions of other nodes.
async fn accept_sessions(daemon: Arc<Daemon>) {
    while let Some(session) = daemon.endpoint.accept().await {
        // Those that it knew are forgotten already, and would be told that it does not know them.
        if daemon.is_ending.load(Relaxed) {
            session.abort(0, "the node ends");
            continue;
        }
        let Some(peer) = daemon.peer_of(&session) else {
            if let Some(count) = daemon.strange_sessions.note(Instant::now()) {
                tracing::warn!(key = %session.peer_key(), far = session.far_address().map(display), count, "sessions of nodes that the file does not name; refused");
            }
            session.abort(noctule::Code::NotAuthorised as u64, "this node does not know you");
            continue;
        };
        tracing::debug!(node = %peer.name(), far = session.far_address().map(display), "session accepted");
        {
            let mut accepted = daemon.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.retain(|s| s.close_reason().is_none());
            accepted.push(session.clone());
        }
        tokio::spawn(take_flows(Arc::clone(&daemon), session, peer));
    }
}

/// Takes the flows that another node opens in a session, until that is over.
async fn take_flows(daemon: Arc<Daemon>, session: Session, peer: Arc<Peer>) {
    while let Ok(flow) = session.accept_flow().await {
        let flow = match (flow, &daemon.split) {
            (IncomingFlow::Stream { recv, send: Some(send) }, split) if recv.options().tag == split::TAG => {
                // A reload may have begun the peer anew since the session was accepted.
                match split.as_ref().zip(daemon.peer_of(&session)) {
                    Some((split, peer)) => drop(tokio::spawn(Arc::clone(split).answer(peer, send, recv))),
                    None => drop(tokio::spawn(split::decline(send, recv))),
                }
                continue;
            }
            (flow, _) => flow,
        };
        match &daemon.tunnel {
            // A neighbour gives this node an object over a link.
            _ if crate::tree::is_tag(flow.tag()) && session.far_address().is_none() => daemon.take_branch(&peer, flow),
            Some(tunnel) => tunnel.take(flow, peer.key),
            // Dropped: the far end is told that nobody wants it.
            None => {}
        }
    }
}

impl Daemon {
    /// The peer of a session, by the key that its far end has proved to own.
    fn peer_of(&self, session: &Session) -> Option<Arc<Peer>> {
        self.peer(session.peer_key())
    }
}

/// Keys that may have a link with this node.
fn neighbours_of(config: &Config) -> Vec<PublicKey> {
    config.neighbours().map(|(n, _)| n.key).collect()
}

/// Keys that may have a session with this node.
fn keys_of(config: &Config) -> Vec<PublicKey> {
    config.nodes.iter().map(|n| n.key).collect()
}

/// The pre-shared keys of single neighbours.
fn psks_of(config: &Config) -> BTreeMap<PublicKey, SharedKey> {
    config.neighbours().filter_map(|(node, link)| Some((node.key, link.psk.clone()?))).collect()
}

/// The addresses on which an endpoint listens, as text.
fn listening(endpoint: &Endpoint) -> String {
    endpoint.local_addrs().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn bind(listen: &[SocketAddr], config: EndpointConfig) -> Result<Endpoint, Failure> {
    let result = match listen {
        [_, ..] => Endpoint::bind_each(listen, config),
        [] => match Endpoint::bind((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into(), config.clone()) {
            Err(BindError::NotAvailable(_)) => Endpoint::bind((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into(), config),
            result => result,
        },
    };
    result.map_err(|error| match error {
        BindError::InUse(at) => Failure::Listen(format!(
            "{error}: end the program that has it (ss -ulpn 'sport = :{}' names it), or set [node] listen",
            at.port()
        )),
        BindError::Permission(_) => {
            Failure::Listen(format!("{error}: ports below 1024 need CAP_NET_BIND_SERVICE; choose another in [node] listen"))
        }
        BindError::NotAvailable(_) => {
            Failure::Listen(format!("{error}: set [node] listen to an address that this host has (ip address), or to [::]:{DEFAULT_PORT}"))
        }
        error => Failure::System(error.to_string()),
    })
}

/// Names of the values that a reload has changed.
fn changed_values(old: &Config, new: &Config) -> Vec<String> {
    let tun = |c: &Config| c.tun.as_ref().map(|t| (t.treatment, t.install_routes, t.lan, t.tcp));
    let changed = [
        ("[node] name", old.name != new.name),
        ("[node] addresses", old.addresses != new.addresses),
        ("[node] relay", old.relay != new.relay),
        ("[[route]]", old.routes != new.routes),
        ("[kernel-routes]", old.kernel_routes != new.kernel_routes),
        ("[tun]", tun(old) != tun(new)),
    ];
    changed.iter().filter(|(_, is)| *is).map(|(what, _)| format!("{what} changed")).collect()
}

/// Names of the values that differ from those at the start and that no reload can change.
fn needs_restart(started: &Config, new: &Config) -> Vec<String> {
    let fixed = |c: &TunConfig| (c.name.clone(), c.mtu, c.addresses.clone());
    // All fields are named: a new one must either be applied by a reload or told here.
    let Config {
        name: _,
        addresses: _,
        relay: _,
        nodes: _,
        routes: _,
        kernel_routes: _,
        one_ways: _,
        key,
        listen,
        answer,
        psk,
        congestion,
        idle_timeout,
        keep_alive,
        state,
        tun,
        limits,
        control,
        metrics,
    } = new;
    let changed = [
        ("[node] key", started.key != *key),
        ("[node] listen", started.listen != *listen),
        ("[node] answer", started.answer != *answer),
        ("[node] psk", started.psk != *psk),
        ("[node] congestion", started.congestion != *congestion),
        ("[node] idle-timeout", started.idle_timeout != *idle_timeout),
        ("[node] keep-alive", started.keep_alive != *keep_alive),
        ("[node] state", started.state != *state),
        ("[tun] name, mtu or addresses", started.tun.as_ref().map(fixed) != tun.as_ref().map(fixed)),
        ("[limits]", started.limits != *limits),
        ("[control]", started.control != *control),
        ("[metrics]", started.metrics != *metrics),
    ];
    changed.iter().filter(|(_, is)| *is).map(|(what, _)| format!("{what} changed: takes effect when the node is restarted")).collect()
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Read { path, error } => Self::Source {
                path: path.display().to_string(),
                error: format!("{error}; name the node's file with --config, or make one with noctule node init"),
            },
            ConfigError::Wrong(complaints) => Self::Usage(complaints.to_string()),
        }
    }
}
