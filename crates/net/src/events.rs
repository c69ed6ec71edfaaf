//! What happens to a session or link while it lives, as a stream: paths that change, silence, the far end's close.

use crate::shared::Shared;
use futures_core::Stream;
use noctule_proto::error::CloseReason;
use noctule_proto::ids::PathId;
use noctule_proto::path::PathState;
use noctule_proto::units::Bandwidth;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Events that one reader may leave unread. Older ones make room, and are counted.
const KEPT: usize = 256;

/// Something that happened to a session, or to a link.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// A further path began to carry, or a path fell silent or is heard again.
    PathChanged {
        /// Which path.
        path: PathId,
        /// Its far address.
        remote: SocketAddr,
        /// What it is fit for now.
        state: PathState,
    },
    /// The neighbour owes answers for half a second and three probes. The link stays until its idle timeout.
    Silent,
    /// The neighbour is heard again.
    Heard,
    /// The rate that the application should produce has changed by a twentieth or more, with a congestion control that is made for media (`gcc`): bytes
    /// of applications in full packets, headers and what repairs the mean loss taken off. It is the link's, shared by all its sessions.
    /// [`Session::target_rates`](crate::Session::target_rates) has this alone.
    TargetRate(Bandwidth),
    /// The far end has begun to close the session: what it finished is still delivered.
    Closing(CloseReason),
    /// The session, or the link, is over. Nothing follows.
    Closed(CloseReason),
    /// This many events are missing here: the reader was too slow.
    Missed(u64),
}

/// The events of one session or link, from the moment at which it was asked for ([`Session::events`](crate::Session::events),
/// [`Link::events`](crate::Link::events)). Ends after [`LinkEvent::Closed`].
///
/// **Dropping** it has no effect on the session or link.
pub struct LinkEvents {
    pub(crate) shared: Arc<Shared>,
    queue: Arc<EventQueue>,
}

/// Where an entry leaves events for one reader; guarded by the endpoint's lock.
#[derive(Debug, Default)]
pub(crate) struct EventQueue(std::sync::Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<LinkEvent>,
    missed: u64,
    is_over: bool,
    waker: Option<Waker>,
}

/// The readers of one entry.
#[derive(Debug, Default)]
pub(crate) struct Readers(Vec<std::sync::Weak<EventQueue>>);

impl EventQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn push(&self, event: LinkEvent) -> Option<Waker> {
        let mut waiting = self.lock();
        if waiting.is_over {
            return None;
        }
        waiting.is_over = matches!(event, LinkEvent::Closed(_));
        if waiting.events.len() >= KEPT {
            waiting.events.pop_front();
            waiting.missed += 1;
        }
        waiting.events.push_back(event);
        waiting.waker.take()
    }
}

impl Readers {
    /// Tells every reader; gives the tasks that are to be woken once the lock is free.
    pub(crate) fn tell(&mut self, event: &LinkEvent, woken: &mut crate::state::Woken) {
        self.0.retain(|reader| match reader.upgrade() {
            Some(queue) => {
                woken.extend(queue.push(event.clone()));
                true
            }
            None => false,
        });
    }

    /// A further reader.
    pub(crate) fn add(&mut self) -> Arc<EventQueue> {
        self.0.retain(|reader| reader.strong_count() > 0);
        let queue = Arc::new(EventQueue::default());
        self.0.push(Arc::downgrade(&queue));
        queue
    }
}

impl LinkEvents {
    /// `readers`: those of the session or link, or why it is over.
    pub(crate) fn new(shared: Arc<Shared>, queue: Result<Arc<EventQueue>, CloseReason>) -> Self {
        let queue = queue.unwrap_or_else(|reason| {
            let queue = EventQueue::default();
            queue.push(LinkEvent::Closed(reason));
            Arc::new(queue)
        });
        Self { shared, queue }
    }

    /// The next event; `None` after [`LinkEvent::Closed`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// The form of [`next`](Self::next) for tasks that poll.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<LinkEvent>> {
        // What the node has to tell is told before this task goes to sleep.
        drop(self.shared.lock());
        let mut waiting = self.queue.lock();
        if waiting.missed > 0 {
            return Poll::Ready(Some(LinkEvent::Missed(std::mem::take(&mut waiting.missed))));
        }
        match waiting.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if waiting.is_over => Poll::Ready(None),
            None => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for LinkEvents {
    type Item = LinkEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LinkEvent>> {
        self.poll_event(cx)
    }
}

impl std::fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkEvents").finish_non_exhaustive()
    }
}
