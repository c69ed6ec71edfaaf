//! What an endpoint keeps of its links: how many live, and which is to be taken down next, without a walk over all of them.

use crate::events::Readers;
use crate::state::Wakers;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CloseReason;
use noctule_proto::ids::LinkId;
use noctule_proto::units::Time;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct LinkEntry {
    /// This end opened it, for one session, and takes it down when that session is over.
    pub(crate) is_ours: bool,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) up: Option<PublicKey>,
    /// Set by [`Links::end`] alone.
    pub(crate) down: Option<CloseReason>,
    /// A task still wants to know how the attempt ended.
    pub(crate) is_watched: bool,
    pub(crate) wakers: Wakers,
    /// Take it down at this instant.
    close_at: Option<Time>,
    /// The own system does not send there (errno).
    pub(crate) refused: Option<i32>,
    /// Something was sent and nothing heard for some probes: since when that is known.
    pub(crate) silent_since: Option<Time>,
    pub(crate) readers: Readers,
}

impl LinkEntry {
    pub(crate) fn outgoing(remote: SocketAddr) -> Self {
        Self { is_ours: true, remote: Some(remote), is_watched: true, ..Self::incoming() }
    }

    /// One that this end opens for its own sake.
    pub(crate) fn kept(remote: SocketAddr) -> Self {
        Self { is_ours: false, ..Self::outgoing(remote) }
    }

    fn incoming() -> Self {
        Self {
            is_ours: false,
            remote: None,
            up: None,
            down: None,
            is_watched: false,
            wakers: Wakers::default(),
            close_at: None,
            refused: None,
            silent_since: None,
            readers: Readers::default(),
        }
    }
}

/// See the file's heading.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: HashMap<LinkId, LinkEntry>,
    /// Those that are not down.
    live: usize,
    /// Those with a `close_at`.
    closing: BTreeSet<(Time, LinkId)>,
}

impl Links {
    /// Every link is down.
    pub(crate) fn is_idle(&self) -> bool {
        self.live == 0
    }

    pub(crate) fn get(&self, link: LinkId) -> Option<&LinkEntry> {
        self.all.get(&link)
    }

    pub(crate) fn get_mut(&mut self, link: LinkId) -> Option<&mut LinkEntry> {
        self.all.get_mut(&link)
    }

    /// All of them, in any order: for what happens once in a while.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &LinkEntry)> {
        self.all.iter().map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut LinkEntry> {
        self.all.values_mut()
    }

    /// A link that this end has begun.
    pub(crate) fn insert(&mut self, link: LinkId, entry: LinkEntry) {
        self.remove(link);
        self.live += usize::from(entry.down.is_none());
        self.all.insert(link, entry);
    }

    /// A link that is up; one that is not known was opened by its far end. True if that is so.
    pub(crate) fn heard(&mut self, link: LinkId, peer: PublicKey) -> (bool, &mut LinkEntry) {
        let is_incoming = !self.all.contains_key(&link);
        self.live += usize::from(is_incoming);
        let entry = self.all.entry(link).or_insert_with(LinkEntry::incoming);
        entry.up = Some(peer);
        (is_incoming, entry)
    }

    /// It is down.
    pub(crate) fn end(&mut self, link: LinkId, reason: CloseReason) -> Option<&mut LinkEntry> {
        let entry = self.all.get_mut(&link)?;
        self.live -= usize::from(entry.down.is_none());
        entry.down = Some(reason);
        if let Some(at) = entry.close_at.take() {
            self.closing.remove(&(at, link));
        }
        Some(entry)
    }

    /// Nobody asks for it any more.
    pub(crate) fn remove(&mut self, link: LinkId) {
        let Some(entry) = self.all.remove(&link) else { return };
        self.live -= usize::from(entry.down.is_none());
        if let Some(at) = entry.close_at {
            self.closing.remove(&(at, link));
        }
    }

    /// It is to be taken down at this instant, if not before. False if it is down.
    pub(crate) fn close_at(&mut self, link: LinkId, at: Time) -> bool {
        let Some(entry) = self.all.get_mut(&link).filter(|entry| entry.down.is_none()) else { return false };
        if let Some(before) = entry.close_at {
            self.closing.remove(&(before, link));
        }
        let at = entry.close_at.map_or(at, |before| before.min(at));
        entry.close_at = Some(at);
        self.closing.insert((at, link));
        true
    }

    /// When the next one is to be taken down.
    pub(crate) fn next_close(&self) -> Option<Time> {
        self.closing.first().map(|(at, _)| *at)
    }

    /// One whose time has come; it is told once.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<LinkId> {
        let (at, link) = self.closing.first().copied().filter(|(at, _)| *at <= now)?;
        self.closing.remove(&(at, link));
        if let Some(entry) = self.all.get_mut(&link) {
            entry.close_at = None;
        }
        Some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_proto::error::CloseReason;

    #[test]
    fn what_lives_and_what_closes_next_is_known_without_a_walk() {
        let (mut links, peer) = (Links::default(), PublicKey([1; 32]));
        assert!(links.is_idle() && links.next_close().is_none());
        links.insert(LinkId(1), LinkEntry::outgoing("192.0.2.1:1".parse().unwrap()));
        assert!(!links.heard(LinkId(1), peer).0 && links.heard(LinkId(2), peer).0 && links.heard(LinkId(3), peer).0);
        let at = |ms| Time::from_millis(ms);
        assert!(links.close_at(LinkId(1), at(20)) && links.close_at(LinkId(2), at(30)) && links.close_at(LinkId(2), at(10)));
        assert!(links.close_at(LinkId(2), at(40)), "the earliest counts");
        assert_eq!((links.next_close(), links.pop_due(at(9)), links.pop_due(at(10))), (Some(at(10)), None, Some(LinkId(2))));
        let end = || CloseReason::application(0, "");
        for id in [1, 1, 2] {
            links.end(LinkId(id), end());
        }
        assert_eq!((links.next_close(), links.is_idle(), links.close_at(LinkId(1), at(1))), (None, false, false));
        links.remove(LinkId(3));
        assert!(links.is_idle());
        (1..=3).for_each(|id| links.remove(LinkId(id)));
        assert!(links.is_idle() && links.iter().next().is_none());
    }
}
