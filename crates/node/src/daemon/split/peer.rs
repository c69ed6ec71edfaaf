//! What is known of another node about split connections, and counts of them.

use noctule_proxy::End;
use noctule_proxy::split::Traffic;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Whether a node takes connections as streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Far {
    /// It has not been asked yet.
    #[default]
    Unknown,
    /// It does.
    Splits,
    /// It does not: TCP goes to it as packets.
    Carries,
}

impl Far {
    /// For status.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Splits => "split",
            Self::Carries => "carry",
        }
    }
}

/// See the file's heading.
#[derive(Debug, Default)]
pub struct PeerSplit {
    inner: Mutex<Inner>,
    asking: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    far: Far,
    last: u64,
    live: HashMap<u64, Traffic>,
    ended: SplitView,
}

/// Counts at present, those of connections that ended included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitView {
    /// Whether the node takes connections.
    pub far: Far,
    /// Connections that are open, of both directions.
    pub open: usize,
    /// Connections that began.
    pub begun: u64,
    /// Connections that did not stand.
    pub refused: u64,
    /// Bytes to the node, and from it.
    pub sent: u64,
    /// Bytes from the node.
    pub received: u64,
}

impl PeerSplit {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node takes connections.
    pub fn far(&self) -> Far {
        self.lock().far
    }

    /// Notes it; whether that is news.
    pub(super) fn set_far(&self, far: Far) -> bool {
        std::mem::replace(&mut self.lock().far, far) != far
    }

    /// The node has said that it splits: it is to be asked, unless that is known.
    pub(super) fn wake(&self) {
        if self.far() != Far::Splits {
            self.asking.notify_one();
        }
    }

    /// Waits until it is to be asked.
    pub(super) async fn wakened(&self) {
        self.asking.notified().await;
    }

    /// A connection begins.
    pub(super) fn begin(&self) -> LiveConnection<'_> {
        let mut inner = self.lock();
        inner.last += 1;
        let (number, traffic) = (inner.last, Traffic::default());
        inner.live.insert(number, traffic.clone());
        LiveConnection { peer: self, number, traffic }
    }

    /// Connections that are open.
    pub(super) fn open(&self) -> usize {
        self.lock().live.len()
    }

    /// For status.
    pub fn view(&self) -> SplitView {
        let inner = self.lock();
        let mut view = SplitView { far: inner.far, open: inner.live.len(), begun: inner.last, ..inner.ended };
        for (sent, received) in inner.live.values().map(Traffic::bytes) {
            view.sent += sent;
            view.received += received;
        }
        view
    }
}

/// A connection that is open; dropping it ends its counting.
#[derive(Debug)]
pub(super) struct LiveConnection<'a> {
    peer: &'a PeerSplit,
    number: u64,
    traffic: Traffic,
}

impl LiveConnection<'_> {
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// It is over.
    pub fn end(self, end: &End) {
        if matches!(end, End::Refused(_)) {
            self.peer.lock().ended.refused += 1;
        }
    }
}

impl Drop for LiveConnection<'_> {
    fn drop(&mut self) {
        let (sent, received) = self.traffic.bytes();
        let mut inner = self.peer.lock();
        inner.live.remove(&self.number);
        inner.ended.sent += sent;
        inner.ended.received += received;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_proxy::{Answer, Outcome};

    #[test]
    fn connections_are_counted_while_they_are_open_and_after() {
        let peer = PeerSplit::default();
        let first = peer.begin();
        drop(peer.begin());
        assert_eq!(peer.view(), SplitView { open: 1, begun: 2, ..SplitView::default() });
        first.end(&End::Refused(Answer::new(Outcome::Refused, "")));
        assert_eq!(peer.view(), SplitView { begun: 2, refused: 1, ..SplitView::default() });
    }

    #[test]
    fn what_is_known_already_is_no_news() {
        let peer = PeerSplit::default();
        assert!(peer.set_far(Far::Carries) && !peer.set_far(Far::Carries) && peer.set_far(Far::Splits));
    }
}
