//! Opening a session: one address, or all addresses of a name, whichever answers first.

use crate::address;
use crate::attempt;
use crate::error::ConnectError;
use crate::eyeballs::{interleave, race};
use crate::link::{self, Link};
use crate::links::LinkEntry;
use crate::session::Session;
use crate::shared::Shared;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{Code, CommandError};
use noctule_proto::ids::LinkId;
use noctule_proto::units::Time;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// A link that is coming up; given up when dropped.
pub(crate) struct Attempt<'a> {
    shared: &'a Shared,
    link: LinkId,
    is_taken: bool,
}

impl<'a> Attempt<'a> {
    fn begin(
        shared: &'a Shared,
        remote: SocketAddr,
        start: impl FnOnce(&mut Node, Time) -> Result<LinkId, CommandError>,
    ) -> Result<Self, ConnectError> {
        let link = attempt::begin(shared, remote, start, LinkEntry::outgoing(remote))?;
        Ok(Self { shared, link, is_taken: false })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let now = state.now;
        if !self.is_taken {
            state.close_link(now, self.link, 0, "");
        }
        match state.links.get_mut(self.link) {
            Some(entry) if entry.down.is_none() => entry.is_watched = false,
            _ => state.links.remove(self.link),
        }
    }
}

/// Whether a node with `peer`'s key takes handshakes at `remote`. No link comes up by asking.
pub(crate) async fn answers(shared: &Shared, remote: SocketAddr, peer: Option<PublicKey>) -> Result<(), ConnectError> {
    let attempt = Attempt::begin(shared, remote, |node, now| node.ask(now, remote, peer))?;
    match attempt::outcome(shared, attempt.link, remote, peer).await {
        Err(ConnectError::Failed(reason)) if reason.code == Code::NoError => Ok(()),
        other => other.map(drop),
    }
}

/// Brings a link up: one round trip. The far end's key, which is `peer` if that was asked for.
pub(crate) async fn link_up(
    shared: &Shared,
    remote: SocketAddr,
    peer: Option<PublicKey>,
) -> Result<(Attempt<'_>, PublicKey), ConnectError> {
    let attempt = Attempt::begin(shared, remote, |node, now| node.connect(now, remote, peer))?;
    let key = attempt::outcome(shared, attempt.link, remote, peer).await?;
    if let Some(expected) = peer.filter(|p| *p != key) {
        return Err(ConnectError::WrongKey { expected: Some(expected), got: Some(key) });
    }
    Ok((attempt, key))
}

/// Connects without waiting for the far end's consent: one round trip.
pub(crate) async fn to_address(shared: &Arc<Shared>, remote: SocketAddr, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
    let (mut attempt, key) = link_up(shared, remote, peer).await?;
    let link = attempt.link;
    let session = {
        let mut state = shared.lock();
        let now = state.now;
        let session = state.node.open_session(now, link).map_err(ConnectError::from_command)?;
        state.add_session(session, link, key);
        state.kick();
        session
    };
    attempt.is_taken = true;
    Ok(Session::new(Arc::clone(shared), session, key))
}

pub(crate) async fn to_host(shared: &Arc<Shared>, host: &str, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(to_address(shared, remote, peer)), telling)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
}

/// A link to whichever of the name's addresses answers first with the right key.
pub(crate) async fn link_to_host(shared: &Arc<Shared>, host: &str, peer: PublicKey) -> Result<Link, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(link::connect(shared, remote, peer)), telling)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
}

/// The key that the first answering address of `host` proves to own; the link ends at once.
pub(crate) async fn key_of_host(shared: &Arc<Shared>, host: &str) -> Result<PublicKey, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(key_at(shared, remote)), telling)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
}

async fn key_at(shared: &Shared, remote: SocketAddr) -> Result<PublicKey, ConnectError> {
    let attempt = Attempt::begin(shared, remote, |node, now| node.connect(now, remote, None))?;
    let outcome = attempt::outcome(shared, attempt.link, remote, None).await;
    // A host that refuses this end has proven its key first, which may be heard at the same moment.
    outcome.or_else(|error| shared.lock().links.get(attempt.link).and_then(|entry| entry.up).ok_or(error))
}

async fn resolve(shared: &Shared, host: &str) -> Result<VecDeque<SocketAddr>, ConnectError> {
    let found = address::lookup(host).await?;
    let Some(first) = found.first().copied() else { return Err(ConnectError::NoAddress(host.to_owned())) };
    let bound = shared.bound();
    let reachable = interleave(found.into_iter().filter(|a| bound.reaches(*a)));
    if reachable.is_empty() {
        return Err(ConnectError::Family { local: bound.local_for(first), remote: first });
    }
    Ok(reachable)
}

/// Which of several failures to report: a node that answered and declined says more than silence.
fn telling(error: &ConnectError) -> u8 {
    match error {
        ConnectError::Family { .. } => 0,
        // That this host has no IPv6, for instance, says less than that nobody answers by IPv4.
        ConnectError::Local { .. } => 1,
        ConnectError::Unreachable(_) => 2,
        ConnectError::Prohibited { .. } => 3,
        ConnectError::NobodyListens(_) => 4,
        ConnectError::Failed(_) => 5,
        ConnectError::VersionMismatch => 6,
        ConnectError::WrongKey { .. } => 7,
        _ => 8,
    }
}
