//! Links to neighbours: called for ever where the file says where, taken from those that call.

use super::peer::{Backoff, Peer};
use crate::further_path::FurtherPath;
use noctule::{ConnectError, Endpoint, Link, PublicKey};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Sending for so long, or for so many round trips, without hearing anything makes a neighbour suspect.
const SILENCE: Duration = Duration::from_secs(1);
const SILENT_RTTS: u32 = 3;
/// How often the counts are looked at.
const GLANCE: Duration = Duration::from_millis(200);
/// A name that is not resolved after so long is looked for where it was last: the resolver may be reached by the tunnel only.
const RESOLVER_PATIENCE: Duration = Duration::from_millis(500);
/// A link that lasted so long is no sign of trouble.
const STEADY: Duration = Duration::from_secs(20);

/// Calls a neighbour whenever there is no link to it, with growing pauses, for ever.
/// Links get `paths` beside their first.
pub async fn call(endpoint: Endpoint, peer: Arc<Peer>, host: String, paths: Vec<FurtherPath>, known: Option<SocketAddr>) {
    let caller = Caller { endpoint, host, known: Mutex::new(known) };
    let host = &caller.host;
    let mut backoff = Backoff::default();
    loop {
        // It may have called us.
        if let Some(link) = peer.newest_link() {
            let began = Instant::now();
            tokio::select! {
                // The answer of a neighbour that has restarted also ends the old link.
                biased;
                // It may have restarted and forgotten us: if it answers a new call, the old link is of no use. If it does not, the old one may
                // yet outlive the outage.
                new = call_again(&caller, &peer, &link) => {
                    add_paths(&peer, &new, &paths).await;
                    let old = peer.take_links();
                    peer.add_link(new);
                    old.iter().for_each(|l| l.close(0, "another link took its place"));
                }
                _ = link.closed() => {}
            }
            // One that ends at once would end at once again.
            if began.elapsed() > STEADY {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next()).await;
            continue;
        }
        tracing::debug!(node = %peer.name(), host, "calling");
        match caller.connect(peer.key).await {
            Ok(link) => {
                add_paths(&peer, &link, &paths).await;
                peer.add_link(link);
            }
            Err(ConnectError::EndpointClosed) => return,
            Err(error) => {
                peer.note_trouble(explain(host, &error));
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

/// Reaches one neighbour where its name leads now, or where it was last.
struct Caller {
    endpoint: Endpoint,
    host: String,
    known: Mutex<Option<SocketAddr>>,
}

impl Caller {
    async fn connect(&self, key: PublicKey) -> Result<Link, ConnectError> {
        let by_name = self.endpoint.connect_link_host(&self.host, key);
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match known {
            None => by_name.await,
            Some(at) => {
                let where_it_was = async {
                    tokio::time::sleep(RESOLVER_PATIENCE).await;
                    match self.endpoint.connect_link(at, key).await {
                        Ok(link) => link,
                        // What the name says is the answer.
                        Err(_) => std::future::pending().await,
                    }
                };
                tokio::select! {
                    result = by_name => match result {
                        Err(ConnectError::Resolve { .. }) => self.endpoint.connect_link(at, key).await,
                        result => result,
                    },
                    link = where_it_was => Ok(link),
                }
            }
        };
        if let Some(at) = result.as_ref().ok().and_then(Link::remote_address) {
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        }
        result
    }
}

/// Where names of neighbours lead, before the tunnel takes the packets that ask for it; what is not known in time is found later.
pub async fn resolve(hosts: impl Iterator<Item = (PublicKey, String)>) -> HashMap<PublicKey, SocketAddr> {
    const PATIENCE: Duration = Duration::from_secs(3);
    let lookups: Vec<_> = hosts
        .map(|(key, host)| {
            tokio::spawn(async move {
                let found = tokio::time::timeout(PATIENCE, noctule::lookup_address(&host)).await;
                Some((key, found.ok()?.ok()?.into_iter().next()?))
            })
        })
        .collect();
    let mut known = HashMap::new();
    for lookup in lookups {
        known.extend(lookup.await.ok().flatten());
    }
    known
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
    let patience = || {
        let rtt = link.stats().and_then(|s| s.paths.iter().map(|p| p.smoothed_rtt).max());
        rtt.map_or(SILENCE, |rtt| SILENCE.max(Duration::from_nanos(rtt.as_nanos() as u64) * SILENT_RTTS))
    };
    // Packets sent when something was last heard, and since when there has been one more.
    let (mut heard, mut asked): ((u64, u64), Option<Instant>) = ((0, 0), None);
    loop {
        tokio::time::sleep(GLANCE).await;
        let Some((sent, received)) = counts() else { return std::future::pending().await };
        if received != heard.1 {
            (heard, asked) = ((sent, received), None);
        } else if sent > heard.0 && asked.get_or_insert_with(Instant::now).elapsed() >= patience() {
            return;
        }
    }
}

/// Once the link is silent, calls until the neighbour answers.
async fn call_again(caller: &Caller, peer: &Peer, link: &Link) -> Link {
    watch(link).await;
    tracing::info!(node = %peer.name(), "silent; calling again");
    let mut backoff = Backoff::default();
    loop {
        match caller.connect(peer.key).await {
            Ok(link) => return link,
            Err(error) => tracing::debug!(node = %peer.name(), "{}", explain(&caller.host, &error)),
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

/// Takes the links of those that call; `find` knows which may.
pub async fn answer(endpoint: Endpoint, find: impl Fn(&Link) -> Option<Arc<Peer>>) {
    while let Some(link) = endpoint.accept_link().await {
        match find(&link) {
            Some(peer) => peer.add_link(link),
            None => link.close(noctule::Code::NotAuthorised as u64, "this node is not among the neighbours"),
        }
    }
}
