//! `[tun] tcp = "split"`: TCP that is routed into the tunnel's device goes to the node of its destination as a stream, and that node dials the target.
//!
//! 1. Rules of the kernel's firewall divert a connection whose route leaves by the device ([`rules`]). 2. Its target chooses the node, as a packet's
//!    destination does. 3. The connection goes by the session that packets would go by. 4. The far node looks whether it would have delivered such packets
//!    ([`gate`]), and dials from the client's own address.
//!
//! Nodes say to each other whether they split (HELLO). Towards a node that does not, TCP is carried as packets. What is not known yet is asked: the first
//! packet of a connection is dropped meanwhile, and its sender repeats it.

mod gate;
mod peer;
mod rules;

pub use noctule_proxy::split::TAG;
pub use peer::{Far, PeerSplit, SplitView};
pub use rules::sweep;

use super::Peer;
use super::counted::Counted;
use super::strangers::Strangers;
use super::tunnel::Tunnel;
use crate::divert::{self, Found, NftError};
use crate::failure::Failure;
use noctule::{RecvStream, SendStream};
use noctule_proxy::split::{self, Asked, Connect, Diverted, Ports};
use noctule_proxy::{Answer, End, Listener, Outcome};
use rules::Rules;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::timeout;

/// How long a connection waits for a session with its node.
const PATIENCE: Duration = Duration::from_secs(10);
/// The rules in the kernel are looked at so often.
const LOOK: Duration = Duration::from_secs(5);
/// Connections that are open take no more than this part of the descriptors of the process, as a divisor: the node has other work.
const DESCRIPTORS: u64 = 2;
/// What a node hears that does not split.
const CARRIES: &str = "[tun] tcp is \"carry\" there";

/// See the file's heading. There is one for each tunnel, whatever its file says: a reload may switch it on.
pub struct Split {
    tunnel: Arc<Tunnel>,
    rules: Rules,
    is_on: watch::Sender<bool>,
    /// Connections of both kinds that are open.
    open: AtomicUsize,
    /// How many may be, of all nodes, and with each: its packets need flows of the same session.
    most: usize,
    most_of_node: AtomicUsize,
    /// Connections that were reset here, and refused to others: what a scan causes is a line now and then.
    resets: Refusals,
    refusals: Refusals,
    /// A node has said whether it splits.
    changed: Notify,
    state: Mutex<State>,
}

/// What is in the kernel for it.
#[derive(Default)]
struct State {
    listener: Option<(Listener, Ports)>,
    installed: Option<divert::Table>,
    /// What went wrong last; told once.
    trouble: Option<String>,
}

impl Split {
    /// Switched off.
    pub fn new(tunnel: Arc<Tunnel>) -> Arc<Self> {
        let rules = Rules::of(&tunnel.device().config.name);
        Arc::new(Self {
            tunnel,
            rules,
            is_on: watch::Sender::new(false),
            open: AtomicUsize::new(0),
            most: most_open(),
            most_of_node: AtomicUsize::new(0),
            resets: Refusals::default(),
            refusals: Refusals::default(),
            changed: Notify::new(),
            state: Mutex::default(),
        })
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        *self.is_on.borrow()
    }

    /// Switches it on or off, and takes over the tunnel's prefixes. Connections that are open go on. `most_of_node`: how many may be with one node.
    ///
    /// # Errors
    /// This process may not divert connections, there is no nft, or the kernel refuses the rules: then it is off.
    pub async fn apply(self: &Arc<Self>, wanted: bool, most_of_node: usize) -> Result<(), Failure> {
        self.most_of_node.store(most_of_node, Relaxed);
        let mut state = self.state.lock().await;
        if wanted && state.listener.is_none() {
            state.listener = Some(self.begin()?);
        }
        self.turn(wanted);
        let result = self.refresh(&mut state).await;
        if result.is_err() {
            self.turn(false);
        }
        result
    }

    fn turn(&self, on: bool) {
        self.tunnel.set_splits(on);
        self.is_on.send_if_modified(|is_on| std::mem::replace(is_on, on) != on);
    }

    fn begin(self: &Arc<Self>) -> Result<(Listener, Ports), Failure> {
        if !divert::is_permitted() {
            return Err(Failure::System(
                "[tun] tcp = \"split\" needs CAP_NET_ADMIN: run the node as root, or by its unit (packaging/noctule-node.service)".into(),
            ));
        }
        // With it the reverse path filter looks for a route by the mark, finds this host itself, and drops what is diverted.
        const VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";
        if std::fs::read_to_string(VALID_MARK).is_ok_and(|text| text.trim() == "1") {
            return Err(Failure::System(
                "[tun] tcp = \"split\" cannot be where net.ipv4.conf.all.src_valid_mark is 1 (wg-quick sets it): set it to 0, or tcp = \"carry\"".into(),
            ));
        }
        if tokio::task::block_in_place(|| self.rules.name().find()).map_err(told)? == Found::Others {
            let table = self.rules.name().name;
            return Err(Failure::System(format!(
                "[tun] tcp = \"split\": there is a table {table} that noctule did not make; remove or rename it: nft delete table {table}"
            )));
        }
        let this = Arc::downgrade(self);
        let handle = move |diverted: Diverted| {
            let this: Weak<Self> = Weak::clone(&this);
            async move {
                if let Some(this) = this.upgrade() {
                    this.carry(diverted).await;
                }
            }
        };
        split::divert(divert::OWN_MARK, handle).map_err(|error| Failure::System(format!("[tun] tcp = \"split\": {error}")))
    }

    /// Makes the kernel's rules what they should be.
    async fn refresh(&self, state: &mut State) -> Result<(), Failure> {
        let Some((_, ports)) = state.listener else { return Ok(()) };
        if !self.is_on() && self.open.load(Relaxed) == 0 {
            self.remove(state).await;
            return Ok(());
        }
        // What is open needs its rules until it is over; nothing begins without targets.
        let targets = if self.is_on() { self.tunnel.split_targets() } else { Vec::new() };
        let table = self.rules.table(ports, &targets);
        let missing = match state.installed.as_ref() == Some(&table) {
            true => tokio::task::block_in_place(|| table.differs()).map_err(told)?,
            false => None,
        };
        if missing.is_some() || state.installed.as_ref() != Some(&table) {
            tokio::task::block_in_place(|| table.put()).map_err(told)?;
        }
        let is_first = state.installed.is_none();
        state.installed = Some(table);
        let routing = self.rules.policy.set().await.map_err(|e| Failure::System(format!("[tun] tcp = \"split\": {e}")))?;
        match missing {
            Some(missing) => tracing::warn!("the rules for TCP as streams were put back: {missing}"),
            None if routing > 0 && !is_first => tracing::warn!("the routing of diverted packets was put back"),
            None => {}
        }
        Ok(())
    }

    async fn remove(&self, state: &mut State) {
        if state.listener.take().is_none() {
            return;
        }
        if state.installed.take().is_some() {
            self.rules.take_away().await;
        }
    }

    /// Takes away what would outlive the node.
    pub async fn clear(&self) {
        self.turn(false);
        let mut state = self.state.lock().await;
        self.remove(&mut state).await;
    }

    /// Follows what other nodes say, and what others do to the rules, for ever.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let _ = timeout(LOOK, self.changed.notified()).await;
            let mut state = self.state.lock().await;
            let trouble = self.refresh(&mut state).await.err().map(|failure| failure.to_string());
            if let Some(text) = trouble.as_ref().filter(|text| state.trouble.as_ref() != Some(*text)) {
                tracing::error!("the rules for TCP as streams are not what they should be: {text}");
            }
            state.trouble = trouble;
        }
    }

    /// Asks a node whether it splits, over every session with it, and keeps asking as long as this is on.
    pub async fn greet(self: Arc<Self>, peer: Arc<Peer>) {
        let (mut sessions, mut on) = (peer.sessions(), self.is_on.subscribe());
        loop {
            let session = sessions.borrow_and_update().clone().filter(|s| s.close_reason().is_none());
            match session {
                _ if !*on.borrow_and_update() => self.heard(&peer, Far::Unknown, ""),
                None => {}
                Some(session) => match split::greet(&session).await {
                    Ok(mut greeting) => {
                        self.heard(&peer, Far::Splits, "");
                        tokio::select! {
                            () = greeting.ended() => {
                                // A session that has ended says nothing about its node.
                                if session.close_reason().is_none() {
                                    self.heard(&peer, Far::Carries, CARRIES);
                                }
                            }
                            _ = on.changed() => continue,
                        }
                    }
                    Err(Answer { outcome: Outcome::Unreachable, .. }) => {}
                    Err(Answer { outcome: Outcome::Denied, text, .. }) => self.heard(&peer, Far::Carries, &text.to_string()),
                    // An older node does not know what is asked.
                    Err(answer) => self.heard(&peer, Far::Carries, &format!("it knows nothing of streams ({})", answer.words())),
                },
            }
            tokio::select! {
                changed = sessions.changed() => if changed.is_err() { return },
                changed = on.changed() => if changed.is_err() { return },
                () = peer.split.wakened() => {}
            }
        }
    }

    fn heard(&self, peer: &Peer, far: Far, why: &str) {
        if !peer.split.set_far(far) {
            return;
        }
        match far {
            Far::Unknown => {}
            Far::Splits => tracing::info!(node = %peer.name(), "TCP goes to it as streams"),
            Far::Carries => tracing::info!(node = %peer.name(), "TCP goes to it as packets: {why}"),
        }
        self.changed.notify_one();
    }

    /// A connection that the kernel has diverted here.
    async fn carry(self: Arc<Self>, diverted: Diverted) {
        let (source, target) = (diverted.source, diverted.target);
        let Some(node) = self.tunnel.node_of(target.ip()) else {
            // The file has changed since, or another tool's rules lead here.
            diverted.refuse(Answer::new(Outcome::Unreachable, ""));
            return;
        };
        let peer = Arc::clone(node.peer());
        let place = self.place(&peer);
        let live = peer.split.begin();
        let end = match &place {
            Err(full) => diverted.refuse(full.clone()),
            Ok(_) => match timeout(PATIENCE, node.session()).await {
                Ok((session, _)) => diverted.carry(&session, live.traffic()).await,
                Err(_) => diverted.refuse(Answer::new(Outcome::Unreachable, "there is no session with the node")),
            },
        };
        drop(place);
        live.end(&end);
        match &end {
            End::Refused(answer) => {
                if let Some(count) = self.resets.note(answer) {
                    tracing::info!(node = %peer.name(), %source, %target, count, "a connection was reset: {}", answer.words());
                }
            }
            end => tracing::debug!(node = %peer.name(), %source, %target, %end, "a split connection is over"),
        }
    }

    /// Takes a stream that another node has opened.
    pub async fn answer(self: Arc<Self>, peer: Arc<Peer>, send: SendStream, recv: RecvStream) {
        match split::asked(send, recv).await {
            Some(Asked::Hello(hello)) => {
                // One that asks splits itself.
                peer.split.wake();
                let mut on = self.is_on.subscribe();
                if !*on.borrow_and_update() {
                    return hello.refuse(Answer::new(Outcome::Denied, CARRIES)).await;
                }
                tokio::select! {
                    () = hello.accept() => {}
                    _ = on.changed() => {}
                }
            }
            Some(Asked::Connect(connect)) => self.dial(&peer, connect).await,
            None => {}
        }
    }

    /// A place for one more connection with a node.
    ///
    /// # Errors
    /// There are too many: of that node, whose packets need flows of its session, too, or of all.
    fn place(&self, peer: &Peer) -> Result<Counted<'_>, Answer> {
        let most = self.most_of_node.load(Relaxed);
        if peer.split.open() >= most {
            return Err(Answer::new(Outcome::Busy, format!("{most} connections with that node are open ([tun] max-flows)")));
        }
        let place = Counted::new(&self.open);
        if self.open.load(Relaxed) > self.most {
            return Err(Answer::new(Outcome::Busy, format!("{} connections are open (half of the limit of descriptors)", self.most)));
        }
        Ok(place)
    }

    async fn dial(&self, peer: &Peer, connect: Connect) {
        let (source, target) = (connect.source, connect.target);
        let allowed = match self.is_on() {
            true => self.gate(peer, source.ip(), target.ip()).await,
            false => Err(Answer::new(Outcome::Denied, CARRIES)),
        };
        let place = allowed.and_then(|()| self.place(peer));
        let live = peer.split.begin();
        let end = match &place {
            Ok(_) => connect.dial(self.rules.dialled_mark(), live.traffic()).await,
            Err(why) => connect.refuse(why.clone()).await,
        };
        drop(place);
        live.end(&end);
        match &end {
            End::Refused(answer) => {
                if let Some(count) = self.refusals.note(answer) {
                    tracing::info!(node = %peer.name(), %source, %target, count, "a connection of another node was refused: {}", answer.words());
                }
            }
            end => tracing::debug!(node = %peer.name(), %source, %target, %end, "a connection of another node is over"),
        }
    }
}

/// Connections that may be open at once, by the limit of descriptors.
fn most_open() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(u64::MAX) / DESCRIPTORS).unwrap_or(usize::MAX)
}

/// Answers a stream of another node where there is no tunnel.
pub async fn decline(send: SendStream, recv: RecvStream) {
    let none = || Answer::new(Outcome::Denied, "there is no [tun] there");
    match split::asked(send, recv).await {
        Some(Asked::Hello(hello)) => hello.refuse(none()).await,
        Some(Asked::Connect(connect)) => drop(connect.refuse(none()).await),
        None => {}
    }
}

/// Connections that did not stand: what the files of two nodes do not allow is told beside what a scan of ports causes.
#[derive(Default)]
struct Refusals {
    denied: Strangers,
    others: Strangers,
}

impl Refusals {
    /// If a line is due: how many there were since the last one.
    fn note(&self, answer: &Answer) -> Option<u64> {
        let kind = if answer.outcome == Outcome::Denied { &self.denied } else { &self.others };
        kind.note(Instant::now())
    }
}

fn told(error: NftError) -> Failure {
    Failure::System(match error {
        NftError::Missing => format!("[tun] tcp = \"split\": {error}; or carry TCP as packets: tcp = \"carry\""),
        error => format!("[tun] tcp = \"split\": {error}; does the kernel have nf_tables with tproxy, fib and conntrack?"),
    })
}
