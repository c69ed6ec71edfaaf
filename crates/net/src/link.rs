//! Links to a node's neighbours that exist without a session, whichever end opened them.
//!
//! [`Endpoint::connect`](crate::Endpoint::connect) opens a link for one session and takes it down with that session. A node of a network keeps
//! its links whether or not a session of its own runs over them.

use crate::attempt;
use crate::error::{ConnectError, OpenError};
use crate::events::LinkEvents;
use crate::links::LinkEntry;
use crate::session::Session;
use crate::shared::Shared;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, CommandError, Layer};
use noctule_proto::ids::{LinkId, PathId};
use noctule_proto::stats::LinkStats;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A link to a neighbour.
///
/// **Dropping** it ends the link and all that runs over it. A link without a session sends nothing and ends after the idle timeout (P23). To keep it,
/// open a session over it at either end.
pub struct Link {
    shared: Arc<Shared>,
    id: LinkId,
    peer: PublicKey,
}

impl Link {
    /// The link's name at this node.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The neighbour's static key, authenticated by the handshake.
    pub fn peer_key(&self) -> PublicKey {
        self.peer
    }

    /// The neighbour's address on the first path.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        let state = self.shared.lock();
        let known = state.node.link_stats(self.id).and_then(|s| s.paths.first().map(|p| p.remote));
        known.or_else(|| state.links.get(self.id)?.remote)
    }

    /// Adds a path to the link: another pair of addresses to the same neighbour. Its rate adds to that of the others, and it goes on when they break.
    /// `remote`: another address of the neighbour; `None`: the one that it has on the first path. `local`: the address of this host to send from;
    /// `None`: as the system chooses. The path is opened as soon as the neighbour answers there, and tried again until then; [`Self::stats`] tells.
    ///
    /// # Errors
    /// The link is down, has as many paths as a link may have, or the addresses are of two families.
    pub fn add_path(&self, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError> {
        add_path(&self.shared, self.id, remote, local)
    }

    /// Statistics of the link and its paths; `None` when it is gone.
    pub fn stats(&self) -> Option<LinkStats> {
        self.shared.lock().node.link_stats(self.id)
    }

    /// What happens to the link from now on: paths that change, silence, its end.
    pub fn events(&self) -> LinkEvents {
        let mut state = self.shared.lock();
        let queue = match state.links.get_mut(self.id) {
            Some(LinkEntry { down: Some(reason), .. }) => Err(reason.clone()),
            Some(entry) => Ok(entry.readers.add()),
            None => Err(CloseReason::local(Code::Shutdown, Layer::Link, "the endpoint is closed")),
        };
        drop(state);
        LinkEvents::new(Arc::clone(&self.shared), queue)
    }

    /// Opens a session with the neighbour; flows can be opened and written at once. Whether the neighbour takes it is told by
    /// [`Session::accepted`]. The link stays when the session ends.
    ///
    /// # Errors
    /// The link is down, or there are too many sessions.
    pub fn open_session(&self) -> Result<Session, OpenError> {
        let mut state = self.shared.lock();
        let now = state.now;
        let session = match state.node.open_session(now, self.id) {
            Ok(session) => session,
            Err(CommandError::Limit { what, limit }) => return Err(OpenError::Limit { what, limit }),
            Err(error) => return Err(OpenError::Misuse(error.to_string())),
        };
        state.add_session(session, self.id, self.peer);
        state.kick();
        Ok(Session::new(Arc::clone(&self.shared), session, self.peer))
    }

    /// Waits until the link is down and says why.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn closed(&self) -> CloseReason {
        poll_fn(|cx| {
            self.shared.poll_state(
                cx,
                |state, _| match state.links.get(self.id) {
                    Some(entry) => entry.down.clone(),
                    None => Some(CloseReason::local(Code::Shutdown, Layer::Link, "the endpoint is closed")),
                },
                |state| state.links.get_mut(self.id).map(|l| &mut l.wakers),
            )
        })
        .await
    }

    /// Ends the link at once, with a code and a reason for the neighbour.
    pub fn close(&self, code: u64, reason: &str) {
        let mut state = self.shared.lock();
        let now = state.now;
        state.close_link(now, self.id, code, reason);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let now = state.now;
        let is_up = state.links.get(self.id).is_some_and(|l| l.down.is_none());
        if let Some(entry) = state.links.get_mut(self.id) {
            entry.is_watched = false;
        }
        if is_up {
            state.close_link(now, self.id, 0, "");
        } else {
            state.links.remove(self.id);
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// See [`Link::add_path`].
pub(crate) fn add_path(shared: &Shared, link: LinkId, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError> {
    let bound = shared.bound();
    let mut state = shared.lock();
    let first = state.node.link_address(link).map(|a| a.0).or_else(|| state.links.get(link)?.remote);
    let Some(remote) = remote.or(first) else { return Err(OpenError::Misuse("the link is down".into())) };
    if let Some(local) = local.filter(|local| local.is_ipv4() != remote.is_ipv4()) {
        return Err(OpenError::Misuse(format!("a path from {local} to {remote}: both addresses have to be of one family")));
    }
    if let Some(local) = local.filter(|local| !bound.sends_from(*local)) {
        return Err(OpenError::Misuse(format!(
            "an endpoint bound to {} cannot send from {local}: bind it to that address too, or to all",
            bound.local()
        )));
    }
    if !bound.reaches(remote) {
        return Err(OpenError::Misuse(format!("an endpoint bound to {} cannot reach {remote}", bound.local())));
    }
    let now = state.now;
    let path = state.node.add_path(now, link, remote, local).map_err(|error| match error {
        CommandError::Limit { what, limit } => OpenError::Limit { what, limit },
        error => OpenError::Misuse(error.to_string()),
    })?;
    state.kick();
    Ok(path)
}

/// A link to `remote`; resolves when keys are agreed, after one round trip. The neighbour may still decline: then the link goes down.
pub(crate) async fn connect(shared: &Arc<Shared>, remote: SocketAddr, peer: PublicKey) -> Result<Link, ConnectError> {
    let entry = LinkEntry::kept(remote);
    let id = attempt::begin(shared, remote, |node, now| node.connect(now, remote, Some(peer)), entry)?;
    // Given up when the future is dropped.
    let link = Link { shared: Arc::clone(shared), id, peer };
    let key = attempt::outcome(shared, id, remote, Some(peer)).await?;
    if key != peer {
        return Err(ConnectError::WrongKey { expected: Some(peer), got: Some(key) });
    }
    Ok(link)
}

/// The next link that a neighbour opened; `None` once the endpoint is closed.
pub(crate) fn poll_accept(shared: &Arc<Shared>, cx: &mut Context<'_>) -> Poll<Option<Link>> {
    let next = ready!(shared.poll_state(
        cx,
        |state, _| loop {
            state.take_links();
            let Some(id) = state.incoming_links.pop_front() else { return state.closed.is_some().then_some(None) };
            if let Some(entry) = state.links.get_mut(id).filter(|l| l.down.is_none())
                && let Some(peer) = entry.up
            {
                entry.is_watched = true;
                return Some(Some((id, peer)));
            }
        },
        |state| Some(&mut state.accept_wakers),
    ));
    Poll::Ready(next.map(|(id, peer)| Link { shared: Arc::clone(shared), id, peer }))
}
