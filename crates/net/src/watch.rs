//! Looks after links whose far end is silent, or whose near end may have moved.
//!
//! - *Has this host another address now?* Asked when the kernel refuses to send, when a link falls silent, and every [`ROUTINE`] while links exist:
//!   the address from which the kernel would send to a link's far end. If it is another than before, the link moves (P7). The kernel also says how large
//!   packets may be; the node is told when that changes.
//! - *Is this pair of ports blocked?* A link that this end opened, that was heard and is silent, goes on from a fresh local port, and where that does not help
//!   from its own again, in turn, with longer and longer pauses (docs/decisions/0168).
//! - *Is the far end still there?* Asked of silent links that this end opened, for only they lead to a port that takes strangers. A closed port is told
//!   by the host (`hearsay.rs`); a process that was started anew takes a handshake, proves its key, and knows nothing of the link. Neither can
//!   be forged by a host off the path, and a link that is heard is never asked about (docs/decisions/0051). Of links that others opened
//!   only those from this very host are asked about, and only whether the port is closed: no router stands between that could answer in its place.

use crate::connect;
use crate::error::ConnectError;
use crate::hearsay;
use crate::route::{Route, is_of_this_host};
use crate::shared::Shared;
use crate::state::Detour;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::ids::LinkId;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};

/// How often addresses are looked at while links exist and nothing is wrong.
const ROUTINE: Duration = Duration::from_secs(1);
/// The same while something is wrong.
const TROUBLE: Duration = Duration::from_millis(50);
/// Trouble that was not heard of again is over.
const CALM: Duration = Duration::from_millis(500);
/// A far end that takes handshakes has so long to be heard on the link: two of the link's own probes, which are a second apart at most.
const LAST_CHANCE: Duration = Duration::from_millis(2500);
/// A link that has been silent for so long tries another port; then each time after twice as long.
const FIRST_DETOUR: Duration = Duration::from_secs(2);
/// Links that are looked at for the size of packets every [`ROUTINE`]; of more, only those that are silent.
const LOOKED_AT: usize = 64;
/// Between two questions to a far end that does not answer them.
const ASK_AGAIN: Duration = Duration::from_secs(2);

const NOBODY: &str = "nobody listens at the peer's port any more";

/// Runs until the endpoint's driver has ended.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut routes = HashMap::new();
    let mut detours = Detours::default();
    let asked = Arc::new(Mutex::new(HashSet::new()));
    let mut trouble_until = Instant::now();
    loop {
        let Some(links) = watched(&shared) else { return };
        let has_links = !links.is_empty();
        for link in &links {
            // Not asked twice at a time.
            if link.is_silent
                && (link.is_ours || is_of_this_host(link.remote.ip(), link.remote))
                && asked.lock().unwrap_or_else(PoisonError::into_inner).insert(link.id)
            {
                let (shared, asked, link) = (Arc::clone(&shared), Arc::clone(&asked), link.clone());
                tokio::spawn(async move {
                    ask(&shared, &link).await;
                    asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&link.id);
                });
            }
        }
        let is_trouble = Instant::now() < trouble_until || links.iter().any(|l| l.is_silent);
        let moved = look_at_routes(&shared, &links, &mut routes);
        detours.look(&shared, &links, &moved, &routes);
        let pause = if is_trouble { TROUBLE } else { ROUTINE };
        let next = Instant::now() + pause;
        tokio::select! {
            () = sleep_until(next), if has_links => {}
            () = shared.trouble.notified() => {
                trouble_until = Instant::now() + CALM;
                // However often the kernel refuses: one look per pause.
                sleep(TROUBLE / 5).await;
            }
        }
    }
}

/// What is to be known of a link.
#[derive(Clone, Debug)]
struct Watched {
    id: LinkId,
    remote: SocketAddr,
    /// The local address that its packets are sent from, if it is given to the kernel.
    local: Option<IpAddr>,
    peer: Option<PublicKey>,
    is_silent: bool,
    /// This end opened it.
    is_ours: bool,
    /// Something came by it after the handshake.
    is_heard: bool,
}

/// Links that are up; `None` when there is no driver any more.
fn watched(shared: &Shared) -> Option<Vec<Watched>> {
    let state = shared.lock();
    if state.is_driverless() {
        return None;
    }
    let up = state.links.iter().filter(|(_, l)| l.up.is_some() && l.down.is_none());
    Some(
        up.filter_map(|(id, l)| {
            let (remote, local) = state.node.link_address(id)?;
            let is_silent = l.silent_since.is_some();
            let is_heard = !is_silent || is_heard(&state.node, id);
            Some(Watched { id, remote, local, peer: l.up, is_silent, is_ours: l.remote.is_some(), is_heard })
        })
        .collect(),
    )
}

fn is_heard(node: &Node, link: LinkId) -> bool {
    node.link_stats(link).is_some_and(|stats| stats.paths.iter().any(|path| path.received_packets > 0))
}

/// Moves the links whose local address is another now, and tells the node how large packets may be; the links that moved.
fn look_at_routes(shared: &Shared, links: &[Watched], routes: &mut HashMap<LinkId, Route>) -> Vec<LinkId> {
    // Bound to an address of its own: it cannot be another.
    let local = Some(shared.bound().local().ip()).filter(|ip| !ip.is_unspecified());
    let there: HashSet<LinkId> = links.iter().map(|l| l.id).collect();
    routes.retain(|id, _| there.contains(id));
    // Many links of a server have one local address, and many of a client one far one.
    let mut is_local = HashMap::new();
    let mut found = HashMap::new();
    let (mut moved, mut sizes) = (Vec::new(), HashMap::new());
    for link in links {
        if local.is_none()
            && let Some(ip) = link.local
            && !*is_local.entry(ip).or_insert_with(|| is_of_this_host(ip, link.remote))
        {
            moved.push(link.id);
        }
        if links.len() > LOOKED_AT && !link.is_silent && link.local.is_some() && routes.contains_key(&link.id) {
            continue;
        }
        let from = link.local.or_else(|| local.map(|_| shared.bound().local_for(link.remote).ip()));
        let Some(route) = *found.entry((from, link.remote.ip())).or_insert_with(|| Route::towards(from, link.remote).ok()) else {
            continue;
        };
        let before = routes.insert(link.id, route);
        if before.is_some_and(|before| before.source != route.source) && link.local.is_none() && local.is_none() {
            moved.push(link.id);
        }
        if before.is_none_or(|before| before != route) {
            sizes.insert(link.remote, route);
        }
    }
    if moved.is_empty() && sizes.is_empty() {
        return moved;
    }
    let mut state = shared.lock();
    let now = state.now;
    for link in &moved {
        state.node.migrate_link(now, *link);
    }
    for (remote, route) in sizes {
        state.tell_size(now, Some(route), remote);
    }
    state.kick();
    moved
}

/// Links that have left their port, or are about to.
#[derive(Debug, Default)]
struct Detours(HashMap<LinkId, Trial>);

/// What was tried for a silent link.
#[derive(Debug)]
struct Trial {
    remote: SocketAddr,
    /// How often it has changed its port: after an odd number it is on a fresh one.
    tries: u32,
    next: Instant,
}

impl Detours {
    /// `routes`: where links go by, as far as that is known.
    fn look(&mut self, shared: &Shared, links: &[Watched], moved: &[LinkId], routes: &HashMap<LinkId, Route>) {
        let mut wanted = Vec::new();
        let now = Instant::now();
        let silent: HashMap<LinkId, bool> =
            if self.0.is_empty() { HashMap::new() } else { links.iter().map(|l| (l.id, l.is_silent)).collect() };
        self.0.retain(|id, trial| match silent.get(id) {
            Some(is_silent) => *is_silent,
            // It ended without having been heard: the next attempt leaves from the endpoint's own port.
            None => {
                if trial.tries % 2 == 1 {
                    wanted.push(Detour { link: *id, remote: trial.remote, is_fresh: false });
                }
                false
            }
        });
        for link in links.iter().filter(|l| l.is_silent && l.is_ours && l.is_heard && !is_of_this_host(l.remote.ip(), l.remote)) {
            // In front of a tunnel that takes everything stands a rule that lets the endpoint's own ports through, and no others.
            if routes.get(&link.id).is_some_and(|route| shared.lock().node.has_address(route.source)) {
                continue;
            }
            let trial = self.0.entry(link.id).or_insert_with(|| Trial { remote: link.remote, tries: 0, next: now + FIRST_DETOUR });
            if moved.contains(&link.id) {
                // That explains the silence.
                trial.next = now + FIRST_DETOUR;
            }
            if now >= trial.next {
                trial.tries += 1;
                trial.next = now + FIRST_DETOUR * (1 << trial.tries.min(8));
                wanted.push(Detour { link: link.id, remote: link.remote, is_fresh: trial.tries % 2 == 1 });
            }
        }
        if !wanted.is_empty() {
            let mut state = shared.lock();
            state.detours.extend(wanted);
            state.kick();
        }
    }
}

/// Asks the host of a silent link's far end for what is left of it; ends the link if that is nothing.
async fn ask(shared: &Arc<Shared>, link: &Watched) {
    let silence = || shared.lock().links.get(link.id).filter(|l| l.down.is_none()).and_then(|l| l.silent_since);
    let since = silence();
    // A link that was heard meanwhile is known there, though it may have fallen silent again: that is another question.
    let is_same = || since.is_some() && silence() == since;
    while is_same() {
        let found = if link.is_ours { what_is_left(shared, link).await } else { is_port_closed(shared, link).await };
        let Some(why) = found else {
            sleep(ASK_AGAIN).await;
            continue;
        };
        if is_same() {
            let mut state = shared.lock();
            let now = state.now;
            state.abandon_link(now, link.id, CloseReason::local(Code::Gone, Layer::Link, why));
        }
        return;
    }
}

/// Asks the far end of a link that this end opened; why the link is of no use any more, if it is not.
async fn what_is_left(shared: &Arc<Shared>, link: &Watched) -> Option<&'static str> {
    match connect::answers(shared, link.remote, link.peer).await {
        // With another pre-shared key at the far end a link comes up at this end only, and a question is answered all the same: it shows the far
        // end's own key, no more. That it is up nowhere else is found out by itself (`confirm_by`).
        Ok(()) if !link.is_heard => None,
        Ok(()) => {
            sleep(LAST_CHANCE).await;
            Some("the peer was started anew and does not know this link any more")
        }
        Err(ConnectError::NobodyListens(_)) => Some(NOBODY),
        Err(_) => None,
    }
}

/// Asks the kernel whether the port of a peer on this host is held.
async fn is_port_closed(shared: &Shared, link: &Watched) -> Option<&'static str> {
    let local = shared.bound().local_for(link.remote);
    tokio::time::timeout(ASK_AGAIN, hearsay::port_closed(local, link.remote)).await.ok()?;
    // A connected socket, for instance of a proxy or a port forwarder, takes packets from its peer alone, and the kernel calls its port closed to
    // all others. A held port cannot be bound.
    UdpSocket::bind(link.remote).await.ok().map(|_| NOBODY)
}
