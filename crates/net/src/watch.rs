//! Looks after links whose far end is silent, or whose near end may have moved.
//!
//! - *Has this host another address now?* Asked when the kernel refuses to send, when a link falls silent, and every [`ROUTINE`] while links exist:
//!   the address from which the kernel would send to a link's far end. If it is another than before, the link moves (P7).
//! - *Is the far end still there?* Asked of silent links that this end opened, for only they lead to a port that takes strangers. A closed port is told
//!   by the host (`closed_port.rs`); a process that was started anew takes a handshake, proves its key, and knows nothing of the link. Neither can
//!   be forged by somebody who is not on the way, and a link that is heard is never asked about (docs/decisions/0051). Of links that others opened
//!   only those from this very host are asked about, and only whether the port is closed: no router stands between that could answer in its place.

use crate::closed_port;
use crate::connect;
use crate::error::ConnectError;
use crate::shared::Shared;
use crate::sockets::source_towards;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::ids::LinkId;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often addresses are looked at while links exist and nothing is wrong.
const ROUTINE: Duration = Duration::from_secs(1);
/// The same while something is wrong.
const TROUBLE: Duration = Duration::from_millis(50);
/// Trouble that was not heard of again is over.
const CALM: Duration = Duration::from_millis(500);
/// A far end that takes handshakes has so long to be heard on the link: two of the link's own probes, which are a second apart at most.
const LAST_CHANCE: Duration = Duration::from_millis(2500);
/// Between two questions to a far end that does not answer them.
const ASK_AGAIN: Duration = Duration::from_secs(2);

const NOBODY: &str = "nobody listens at the peer's port any more";

/// Runs until the endpoint's driver has ended.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut sources = HashMap::new();
    let asked = Arc::new(Mutex::new(HashSet::new()));
    let mut trouble_until = Instant::now();
    loop {
        let Some(links) = watched(&shared) else { return };
        let has_links = !links.is_empty();
        for link in &links {
            // Not asked twice at a time.
            if link.is_silent
                && (link.is_ours || is_of_this_host(link.remote.ip()))
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
        look_at_addresses(&shared, links, &mut sources);
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
            let (remote, local) = state.node.link_address(*id)?;
            let is_silent = l.silent_since.is_some();
            let is_heard = !is_silent || is_heard(&state.node, *id);
            Some(Watched { id: *id, remote, local, peer: l.up, is_silent, is_ours: l.remote.is_some(), is_heard })
        })
        .collect(),
    )
}

fn is_heard(node: &Node, link: LinkId) -> bool {
    node.link_stats(link).is_some_and(|stats| stats.paths.iter().any(|path| path.received_packets > 0))
}

fn look_at_addresses(shared: &Shared, links: Vec<Watched>, sources: &mut HashMap<LinkId, IpAddr>) {
    if !shared.bound().local().ip().is_unspecified() {
        return; // Bound to addresses of its own: they cannot be others.
    }
    sources.retain(|id, _| links.iter().any(|l| l.id == *id));
    // Many links of a server have one local address, and many of a client one far one.
    let mut is_local = HashMap::new();
    let mut source = HashMap::new();
    let mut moved = Vec::new();
    for link in links {
        if let Some(ip) = link.local {
            if !*is_local.entry(ip).or_insert_with(|| is_of_this_host(ip)) {
                moved.push(link.id);
            }
        } else if let Some(now) = *source.entry(link.remote.ip()).or_insert_with(|| source_towards(link.remote))
            && sources.insert(link.id, now).is_some_and(|before| before != now)
        {
            moved.push(link.id);
        }
    }
    if moved.is_empty() {
        return;
    }
    let mut state = shared.lock();
    let now = state.now;
    for link in moved {
        state.node.migrate_link(now, link);
    }
    state.kick();
}

fn is_of_this_host(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Asks the host of a silent link's far end for what is left of it; ends the link if that is nothing.
async fn ask(shared: &Arc<Shared>, link: &Watched) {
    let is_silent = || shared.lock().links.get(&link.id).is_some_and(|l| l.silent_since.is_some() && l.down.is_none());
    while is_silent() {
        let found = if link.is_ours { what_is_left(shared, link).await } else { is_port_closed(shared, link).await };
        let Some(why) = found else {
            sleep(ASK_AGAIN).await;
            continue;
        };
        if is_silent() {
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

/// Asks the kernel whether anybody holds the port of a peer on this host.
async fn is_port_closed(shared: &Shared, link: &Watched) -> Option<&'static str> {
    let local = shared.bound().local_for(link.remote);
    tokio::time::timeout(ASK_AGAIN, closed_port::found(local, link.remote)).await.ok().map(|()| NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_addresses_are_not_of_this_host() {
        let here: IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
        assert!(is_of_this_host(here) && !is_of_this_host("192.0.2.1".parse().unwrap()));
    }
}
