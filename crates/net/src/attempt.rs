//! A link that is coming up, and everything that can end its attempt: its far end, the own system at once, hosts on the path when nothing else is heard.

use crate::error::ConnectError;
use crate::hearsay::{self, Hearsay};
use crate::links::LinkEntry;
use crate::route::Route;
use crate::shared::Shared;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CommandError;
use noctule_proto::ids::LinkId;
use noctule_proto::units::Time;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Pauses, in milliseconds, after which the route is looked at again during an attempt: an ICMP "packet too big" that comes back changes what the kernel says of it.
const LOOKS: [u64; 7] = [3, 7, 15, 35, 80, 200, 500];

/// Begins a link with `start`; the node learns how large packets to it may be.
pub(crate) fn begin(
    shared: &Shared,
    remote: SocketAddr,
    start: impl FnOnce(&mut Node, Time) -> Result<LinkId, CommandError>,
    entry: LinkEntry,
) -> Result<LinkId, ConnectError> {
    let bound = shared.bound();
    if !bound.reaches(remote) {
        return Err(ConnectError::Family { local: bound.local_for(remote), remote });
    }
    // Where there is none, the first datagram is refused at once.
    let route = Route::towards(Some(bound.local_for(remote).ip()), remote).ok();
    let mut state = shared.lock();
    let now = state.now;
    if state.closed.is_some() {
        return Err(ConnectError::EndpointClosed);
    }
    let link = start(&mut state.node, now).map_err(ConnectError::from_command)?;
    state.tell_size(now, route, remote);
    state.links.insert(link, entry);
    state.kick();
    Ok(link)
}

/// The far end's key once the link is up, or why it is not.
pub(crate) async fn outcome(shared: &Shared, link: LinkId, remote: SocketAddr, peer: Option<PublicKey>) -> Result<PublicKey, ConnectError> {
    let mut hearsay = std::pin::pin!(hearsay::heard(shared.bound().local_for(remote), remote));
    let mut route = std::pin::pin!(follow_route(shared, remote));
    poll_fn(|cx| {
        let answer = shared.poll_state(
            cx,
            |state, _| match state.links.get(link) {
                Some(LinkEntry { down: Some(reason), up, .. }) => Some(Err(ConnectError::from_reason(reason.clone(), remote, peer, *up))),
                Some(LinkEntry { up: Some(key), .. }) => Some(Ok(*key)),
                Some(LinkEntry { refused: Some(errno), .. }) => {
                    Some(Err(ConnectError::Local { remote, source: io::Error::from_raw_os_error(*errno) }))
                }
                Some(_) => None,
                None => Some(Err(ConnectError::EndpointClosed)),
            },
            |state| state.links.get_mut(link).map(|l| &mut l.wakers),
        );
        if answer.is_pending() {
            // It never ends.
            let _ = route.as_mut().poll(cx);
            return hearsay.as_mut().poll(cx).map(|said| {
                Err(match said {
                    Hearsay::PortClosed => ConnectError::NobodyListens(remote),
                    Hearsay::Unreachable(words) => ConnectError::Prohibited { remote, words },
                })
            });
        }
        answer
    })
    .await
}

/// Tells the node when the kernel learns that packets to an address have to be smaller.
async fn follow_route(shared: &Shared, remote: SocketAddr) {
    let local = shared.bound().local_for(remote).ip();
    let look = || Route::towards(Some(local), remote).ok();
    let mut known = look();
    for pause in LOOKS {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let route = look();
        if route != known {
            known = route;
            let mut state = shared.lock();
            let now = state.now;
            state.tell_size(now, route, remote);
            state.kick();
        }
    }
    std::future::pending().await
}
