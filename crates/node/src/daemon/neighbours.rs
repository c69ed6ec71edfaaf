//! Links to neighbours: called for ever where the file says where, taken from those that call.

use super::peer::{Backoff, Peer};
use crate::further_path::FurtherPath;
use noctule::{ConnectError, Endpoint, Link};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sending for so long without hearing anything makes a neighbour suspect.
const SILENCE: Duration = Duration::from_secs(3);
/// How often the counts are looked at.
const GLANCE: Duration = Duration::from_millis(500);
/// A link that lasted so long is no sign of trouble.
const STEADY: Duration = Duration::from_secs(20);

/// Calls a neighbour whenever there is no link to it, with growing pauses, for ever.
/// Links get `paths` beside their first.
pub async fn call(endpoint: Endpoint, peer: Arc<Peer>, host: String, paths: Vec<FurtherPath>) {
    let mut backoff = Backoff::default();
    loop {
        // It may have called us.
        if let Some(link) = peer.newest_link() {
            let began = Instant::now();
            tokio::select! {
                _ = link.closed() => {}
                // It may have restarted and forgotten us: if it answers a new call, the old link is of no use. If it does not, the old one may
                // yet outlive the outage.
                new = call_again(&endpoint, &peer, &host, &link) => {
                    add_paths(&peer, &new, &paths).await;
                    let old = peer.take_links();
                    peer.add_link(new);
                    old.iter().for_each(|l| l.close(0, "another link took its place"));
                }
            }
            // One that ends at once would end at once again.
            if began.elapsed() > STEADY {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next()).await;
            continue;
        }
        tracing::debug!(node = %peer.name(), host, "calling");
        match endpoint.connect_link_host(&host, peer.key).await {
            Ok(link) => {
                add_paths(&peer, &link, &paths).await;
                peer.add_link(link);
            }
            Err(ConnectError::EndpointClosed) => return,
            Err(error) => {
                peer.note_trouble(explain(&host, &error));
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

/// A path that cannot be made is said, and the link does without.
async fn add_paths(peer: &Peer, link: &Link, paths: &[FurtherPath]) {
    for path in paths {
        if let Err(error) = path.add(link).await {
            tracing::warn!(node = %peer.name(), "{error}");
        }
    }
}

/// Resolves when the link has been sending for [`SILENCE`] without hearing anything.
async fn watch(link: &Link) {
    let counts = || link.stats().map(|s| s.paths.iter().fold((0, 0), |(o, i), p| (o + p.sent_packets, i + p.received_packets)));
    // Packets sent when something was last heard, and since when there has been one more.
    let (mut heard, mut asked): ((u64, u64), Option<Instant>) = ((0, 0), None);
    loop {
        tokio::time::sleep(GLANCE).await;
        let Some((sent, received)) = counts() else { return std::future::pending().await };
        if received != heard.1 {
            (heard, asked) = ((sent, received), None);
        } else if sent > heard.0 && asked.get_or_insert_with(Instant::now).elapsed() >= SILENCE {
            return;
        }
    }
}

/// Once the link is silent, calls until somebody answers.
async fn call_again(endpoint: &Endpoint, peer: &Peer, host: &str, link: &Link) -> Link {
    watch(link).await;
    tracing::info!(node = %peer.name(), "silent; calling again");
    let mut backoff = Backoff::default();
    loop {
        match endpoint.connect_link_host(host, peer.key).await {
            Ok(link) => return link,
            Err(error) => tracing::debug!(node = %peer.name(), "{}", explain(host, &error)),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// What to do about a neighbour that cannot be reached.
fn explain(host: &str, error: &ConnectError) -> String {
    match error {
        ConnectError::Unreachable(_) => {
            format!("no answer from {host}: is the node running there, does a firewall let UDP pass, do both have the same psk?")
        }
        ConnectError::NobodyListens(at) => format!("nobody listens at {at}: is the node running there, on this port?"),
        ConnectError::WrongKey { got: Some(got), .. } => {
            format!("{host} is another node than the file says: its key is {got}; correct key or endpoint")
        }
        ConnectError::NotAuthorised => format!("{host} does not know this node's key: name it there as [[neighbour]]"),
        ConnectError::Family { local, .. } => format!("{error}: listen on [::] to reach both families, not on {local}"),
        error => error.to_string(),
    }
}

/// Takes the links of those that call; `find` knows who may.
pub async fn answer(endpoint: Endpoint, find: impl Fn(&Link) -> Option<Arc<Peer>>) {
    while let Some(link) = endpoint.accept_link().await {
        match find(&link) {
            Some(peer) => peer.add_link(link),
            None => link.close(noctule::Code::NotAuthorised as u64, "this node is not among the neighbours"),
        }
    }
}
