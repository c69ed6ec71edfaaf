//! Datagrams that are diverted here: each source has an association, in which every datagram names its target. Answers go back from the target's address.

use super::original::{self, Diverted};
use super::replies::Replies;
use super::{bound, circle};
use crate::near::Near;
use crate::report::{Counts, End};
use crate::senders::Senders;
use crate::target::{Host, Target};
use crate::udp::{LARGEST, MOST_WAITING};
use crate::wire::{Answer, Outcome, Transport};
use bytes::Bytes;
use socket2::Type;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

/// Targets of one source whose answers come back. More than that, and it begins to count anew.
const MOST_TARGETS: usize = 256;
/// A source that asks a name server asks once, from a port that it never uses again.
const ASKED_ONCE: Duration = Duration::from_secs(10);
const NAME_SERVICE: u16 = 53;

/// Where a source has sent to: what comes from elsewhere is not for it, as with a firewall that keeps state.
type Asked = Arc<Mutex<HashSet<SocketAddr>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens where the rules lead.
pub(super) fn listen(at: SocketAddr, mark: Option<u32>) -> io::Result<UdpSocket> {
    let socket = bound(at, Type::DGRAM, true, mark)?;
    original::ask(&socket, at.is_ipv4())?;
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

struct Source {
    queue: mpsc::Sender<(Option<Target>, Bytes)>,
    asked: Asked,
}

/// Carries datagrams for as long as the future is polled.
pub(super) async fn serve(near: Near, socket: UdpSocket) {
    let port = socket.local_addr().map_or(0, |at| at.port());
    let replies = Arc::new(Mutex::new(Replies::new(near.options.mark)));
    let mut sources: Senders<Source> = Senders::default();
    let (mut tasks, mut buffer) = (JoinSet::new(), vec![0; LARGEST]);
    // What goes wrong again and again is told once.
    let (mut is_full, mut is_circle) = (false, false);
    let idle = near.options.udp_idle;
    let mut sweep = interval(idle.max(Duration::from_secs(1)));
    loop {
        tokio::select! {
            received = original::receive(&socket, &mut buffer) => {
                // An error is about an answer that was sent before, or a datagram of nowhere.
                let Ok(Diverted { len, from, to }) = received else { continue };
                let refuse = |outcome, why: &str| {
                    let end = End::Refused(Answer::new(outcome, why));
                    near.report(None, Transport::Udp, from.to_string(), to.to_string(), Instant::now(), &Counts::default(), end);
                };
                if let Some(why) = circle(to, port, &near.uplink) {
                    if !std::mem::replace(&mut is_circle, true) {
                        refuse(Outcome::Denied, why);
                    }
                    continue;
                }
                let datagram = (Some(Target::from(to)), Bytes::copy_from_slice(&buffer[..len]));
                if let Some(source) = sources.heard(&from) {
                    note(&source.asked, to);
                    // Full: lost, as in any queue. Closed: its task is about to be taken away.
                    let _ = source.queue.try_send(datagram);
                    continue;
                }
                if !sources.has_room() {
                    if !std::mem::replace(&mut is_full, true) {
                        refuse(Outcome::Busy, crate::udp::FULL);
                    }
                    continue;
                }
                is_full = false;
                let (queue, waiting) = mpsc::channel(MOST_WAITING);
                let _ = queue.try_send(datagram);
                let asked = Asked::default();
                note(&asked, to);
                let was_answered = sources.insert(from, Source { queue, asked: Arc::clone(&asked) });
                let idle = if to.port() == NAME_SERVICE { idle.min(ASKED_ONCE) } else { idle };
                tasks.spawn(one(near.clone(), from, to, waiting, asked, was_answered, Arc::clone(&replies), idle));
            }
            Some(ended) = tasks.join_next() => match ended {
                Ok(from) => sources.forget(Some(&from), |source| source.queue.is_closed()),
                // A task that ended in a panic leaves its source behind.
                Err(_) => sources.forget(None, |source| source.queue.is_closed()),
            },
            _ = sweep.tick() => lock(&replies).close_idle(idle),
        }
    }
}

fn note(asked: &Asked, to: SocketAddr) {
    let mut asked = lock(asked);
    if asked.len() >= MOST_TARGETS && !asked.contains(&to) {
        asked.clear();
    }
    asked.insert(to);
}

/// The association of one source; returns it.
#[allow(clippy::too_many_arguments, reason = "one task's own")]
async fn one(
    near: Near,
    from: SocketAddr,
    first: SocketAddr,
    mut waiting: mpsc::Receiver<(Option<Target>, Bytes)>,
    asked: Asked,
    was_answered: Arc<AtomicBool>,
    replies: Arc<Mutex<Replies>>,
    idle: Duration,
) -> SocketAddr {
    let (begun, counts) = (Instant::now(), Counts::default());
    let deliver = |source: Option<Target>, data: &[u8]| {
        let Some(Target { host: Host::Ip(ip), port }) = source else { return };
        let source = SocketAddr::new(ip, port);
        if lock(&asked).contains(&source) {
            was_answered.store(true, Relaxed);
            lock(&replies).send(source, from, data);
        }
    };
    let end = match near.associate(None).await {
        Ok(association) => association.run(&mut waiting, idle, &counts, deliver).await,
        Err(answer) => End::Refused(answer),
    };
    near.report(None, Transport::Udp, from.to_string(), first.to_string(), begun, &counts, end);
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_source_has_asked_is_bounded() {
        let asked = Asked::default();
        for port in 1..=3 * MOST_TARGETS as u16 {
            note(&asked, SocketAddr::from(([192, 0, 2, 1], port)));
        }
        assert!(lock(&asked).len() <= MOST_TARGETS);
        assert!(lock(&asked).contains(&SocketAddr::from(([192, 0, 2, 1], 3 * MOST_TARGETS as u16))));
    }
}
