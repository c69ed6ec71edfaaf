//! A far end that restarts: the process that answers now is not the one that links and sessions were opened with, and knows nothing of them.
//!
//! Handshakes name the process by its restart epoch, a random number. Only a handshake that is proven to be fresh ends what belonged to another epoch of the
//! same key: a word of a host on the route ("I do not know this session") is a reason to look for another route or to open anew, and never more.

use super::Node;
use super::sessions::Far;
use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{LinkId, SessionId};
use crate::session::SessionRole;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use std::net::IpAddr;

/// A far end is asked again whether it is another process after this long.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Questions under way, of all sessions.
const MOST_QUESTIONS: usize = 16;

impl Node {
    /// A link is up: links with the same neighbour that another process of it made have nobody at their other end.
    pub(super) fn end_links_of_earlier_process(&mut self, now: Time, id: LinkId) {
        if !self.shared.config.one_process_per_key || switch::is_off(Mechanism::RestartEpochs) {
            return;
        }
        let Some((peer, epoch)) = self.links.get(&id).and_then(|l| Some((l.peer?, l.peer_params.restart_epoch?))) else { return };
        let is_earlier =
            |other: &&crate::link::Link| other.id < id && other.peer_params.restart_epoch.is_some_and(|theirs| theirs != epoch);
        // Links are numbered as they are begun. What proves this one fresh was said after it had begun, and so not before anything that began later was said: a
        // handshake that a host on the route held back ends nothing that is newer.
        let earlier: Vec<LinkId> = self.links_with(peer).filter(is_earlier).map(|link| link.id).collect();
        for link in earlier {
            if let Some(link) = self.links.get_mut(&link) {
                link.abandon(CloseReason::local(Code::Gone, Layer::Link, "the neighbour has restarted"));
            }
            self.settle(now, link);
        }
    }

    /// The far end of a relayed session has proven itself in a fresh handshake: its sessions of another process are over.
    pub(super) fn end_sessions_of_earlier_process(&mut self, now: Time, id: SessionId) {
        if switch::is_off(Mechanism::RestartEpochs) {
            return;
        }
        let process = |node: &Self, id: SessionId| -> Option<(IpAddr, PublicKey, u64)> {
            let entry = node.sessions.entry(id)?;
            let (peer, epoch) = entry.securing.as_ref()?.far_process()?;
            Some((entry.far.address()?, peer, epoch))
        };
        let Some(this) = process(self, id) else { return };
        self.end_sessions_of_other_processes(now, id, this);
    }

    /// Sessions that were begun before this one with another process of the same far end. As with links, what began later may be newer than this handshake's
    /// last message.
    fn end_sessions_of_other_processes(&mut self, now: Time, id: SessionId, (far, peer, epoch): (IpAddr, PublicKey, u64)) {
        let relayed: Vec<SessionId> = self.sessions.relayed().into_iter().map(|(id, ..)| id).filter(|other| *other < id).collect();
        for other in relayed {
            let Some(entry) = self.sessions.entry(other) else { continue };
            let theirs = entry.securing.as_ref().and_then(|s| s.far_process());
            if entry.far.address() == Some(far) && theirs.is_some_and(|(p, e)| p == peer && e != epoch) {
                self.lose_session(now, other, CloseReason::local(Code::Gone, Layer::Session, "the far end has restarted"));
            }
        }
    }

    /// Asks the far end of a session whether it is still the same process: a handshake that becomes no session. Once a second at most.
    pub(super) fn ask_far_end(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let (far, turn) = (entry.far, entry.turn);
        let (Far::Relayed { far: address, .. }, Some((peer, _))) = (far, entry.securing.as_ref().and_then(|s| s.far_process())) else {
            return;
        };
        if entry.asked_end_at.is_some_and(|at| now.since(at) < ASK_AGAIN) {
            return;
        }
        entry.asked_end_at = Some(now);
        let is_asked = |e: &super::sessions::Entry| e.far == far && e.securing.as_ref().is_some_and(|s| s.asks());
        let under_way = self.sessions.questions().count();
        if under_way >= MOST_QUESTIONS || self.sessions.questions().any(is_asked) {
            return;
        }
        let Some(link) = self.next_hop_by(address, turn, &[]) else { return };
        // Where there is no place for it, time tells.
        let _ = self.create_question(now, far, link, peer);
    }

    /// It only asks.
    pub(super) fn is_question(&self, id: SessionId) -> bool {
        let entry = self.sessions.entry(id);
        entry.is_some_and(|e| e.session.role() == SessionRole::Opener && e.securing.as_ref().is_some_and(|s| s.asks()))
    }

    /// The far end has proven its key, and says which process it is.
    pub(super) fn on_question_answered(&mut self, now: Time, id: SessionId, peer: PublicKey, epoch: Option<u64>) {
        let far = self.sessions.entry(id).and_then(|e| e.far.address());
        if let Some((far, epoch)) = far.zip(epoch) {
            self.end_sessions_of_other_processes(now, id, (far, peer, epoch));
        }
        self.lose_session(now, id, CloseReason::local(Code::NoError, Layer::Session, "the far end has answered"));
    }
}
