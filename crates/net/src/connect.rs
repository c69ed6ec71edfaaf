//! Opening a session: one address, or all addresses of a name, whichever answers first.

use crate::address;
use crate::attempt;
use crate::error::ConnectError;
use crate::link::{self, Link};
use crate::session::Session;
use crate::shared::Shared;
use crate::state::{LinkEntry, SessionEntry};
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{Code, CommandError};
use noctule_proto::ids::LinkId;
use noctule_proto::units::Time;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// RFC 8305 §5: "Connection Attempt Delay", recommended value.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried at most.
const MAX_ADDRESSES: usize = 16;

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
        match state.links.get_mut(&self.link) {
            Some(entry) if entry.down.is_none() => entry.is_watched = false,
            _ => drop(state.links.remove(&self.link)),
        }
    }
}

/// Whether whoever has `peer`'s key takes handshakes at `remote`; nothing comes up there.
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
        state.sessions.insert(session, SessionEntry::new(link, key));
        state.kick();
        session
    };
    attempt.is_taken = true;
    Ok(Session::new(Arc::clone(shared), session, key))
}

pub(crate) async fn to_host(shared: &Arc<Shared>, host: &str, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(to_address(shared, remote, peer)), ATTEMPT_DELAY)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
}

/// A link to whichever of the name's addresses answers first with the right key.
pub(crate) async fn link_to_host(shared: &Arc<Shared>, host: &str, peer: PublicKey) -> Result<Link, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(link::connect(shared, remote, peer)), ATTEMPT_DELAY)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
}

/// The key that the first answering address of `host` proves to own; the link ends at once.
pub(crate) async fn key_of_host(shared: &Arc<Shared>, host: &str) -> Result<PublicKey, ConnectError> {
    let addresses = resolve(shared, host).await?;
    race(addresses, |remote| Box::pin(async move { Ok(link_up(shared, remote, None).await?.1) }), ATTEMPT_DELAY)
        .await
        .unwrap_or_else(|| Err(ConnectError::NoAddress(host.to_owned())))
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

/// RFC 8305 §4: the families take turns, beginning with the family that the resolver put first.
fn interleave(found: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let (mut first, mut second) = (VecDeque::new(), VecDeque::new());
    for address in found {
        let list = if first.front().is_none_or(|a: &SocketAddr| a.is_ipv4() == address.is_ipv4()) { &mut first } else { &mut second };
        if !list.contains(&address) {
            list.push_back(address);
        }
    }
    let mut turns = VecDeque::new();
    while !(first.is_empty() && second.is_empty()) {
        turns.extend(first.pop_front());
        turns.extend(second.pop_front());
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

/// An attempt in progress.
type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ConnectError>> + Send + 'a>>;

/// Starts the attempts one after the other, `delay` apart or as soon as the one before has failed (RFC 8305 §5); the first success wins, the others are
/// dropped. `None` if there was nothing to try.
async fn race<'a, T>(
    mut addresses: VecDeque<SocketAddr>,
    start: impl Fn(SocketAddr) -> Pending<'a, T>,
    delay: Duration,
) -> Option<Result<T, ConnectError>> {
    let mut running: Vec<Pending<'a, T>> = Vec::new();
    let mut worst: Option<ConnectError> = None;
    let mut pause = Box::pin(tokio::time::sleep(Duration::ZERO));
    let mut is_due = false;
    poll_fn(move |cx| {
        loop {
            let mut index = 0;
            while index < running.len() {
                match running[index].as_mut().poll(cx) {
                    Poll::Ready(Ok(value)) => return Poll::Ready(Some(Ok(value))),
                    Poll::Ready(Err(error)) => {
                        drop(running.remove(index));
                        // The last that was started: the next need not wait.
                        is_due |= index == running.len();
                        if worst.as_ref().is_none_or(|w| telling(&error) > telling(w)) {
                            worst = Some(error);
                        }
                    }
                    Poll::Pending => index += 1,
                }
            }
            let Some(next) = addresses.front().copied() else {
                return if running.is_empty() { Poll::Ready(worst.take().map(Err)) } else { Poll::Pending };
            };
            if !(running.is_empty() || is_due) && pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_due = false;
            addresses.pop_front();
            running.push(start(next));
            pause.as_mut().reset(tokio::time::Instant::now() + delay);
        }
    })
    .await
}

/// Which of several failures to report: someone who answered and declined says more than silence.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn addresses(list: &[&str]) -> VecDeque<SocketAddr> {
        list.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_beginning_with_the_first_and_no_address_comes_twice() {
        let found = addresses(&["[::1]:1", "[::2]:1", "[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        assert_eq!(interleave(found.into_iter()), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_by_a_quarter_second_and_a_refusing_one_not_at_all() {
        let started = tokio::time::Instant::now();
        let log = Mutex::new(Vec::new());
        let list = addresses(&["[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let won = race(
            list,
            |remote| {
                log.lock().unwrap().push((remote.ip().to_string(), started.elapsed().as_millis()));
                Box::pin(async move {
                    match remote.to_string().as_str() {
                        "[::1]:1" => std::future::pending().await,
                        "1.1.1.1:1" => Err(ConnectError::NotAuthorised),
                        _ => Ok(remote),
                    }
                })
            },
            ATTEMPT_DELAY,
        )
        .await;
        assert_eq!(won.unwrap().unwrap(), "2.2.2.2:1".parse().unwrap());
        let log = log.into_inner().unwrap();
        assert_eq!(log[0], ("::1".into(), 0));
        assert!((250..=252).contains(&log[1].1), "{log:?}");
        assert_eq!(log.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_telling_failure_is_reported() {
        let list = addresses(&["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]);
        let lost: Option<Result<(), _>> = race(
            list,
            |remote| {
                Box::pin(async move {
                    Err(if remote.ip().to_string() == "2.2.2.2" { ConnectError::NotAuthorised } else { ConnectError::Unreachable(remote) })
                })
            },
            ATTEMPT_DELAY,
        )
        .await;
        assert!(matches!(lost, Some(Err(ConnectError::NotAuthorised))));
    }
}
