//! A far end that restarts: the process that answers now is not the one that links and sessions were opened with, and knows nothing of them.
//!
//! Handshakes name the process by its restart epoch, a random number. Only a handshake that is proven to be fresh ends what belonged to another epoch of the
//! same key: a word of somebody on the way ("I do not know this session") is a reason to look for another route or to open anew, and never more.

use super::Node;
use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{LinkId, SessionId};
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Node {
    /// A link is up: links with the same neighbour that another process of it made have nobody at their other end.
    pub(super) fn end_links_of_earlier_process(&mut self, now: Time, id: LinkId) {
        if !self.shared.config.one_process_per_key || switch::is_off(Mechanism::RestartEpochs) {
            return;
        }
        let Some((peer, epoch)) = self.links.get(&id).and_then(|l| Some((l.peer?, l.peer_params.restart_epoch?))) else { return };
        let is_earlier = |other: &crate::link::Link| {
            other.is_up() && other.peer == Some(peer) && other.peer_params.restart_epoch.is_some_and(|theirs| theirs != epoch)
        };
        let earlier: Vec<LinkId> = self.links.iter().filter(|(other, link)| **other != id && is_earlier(link)).map(|(id, _)| *id).collect();
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
        let process = |node: &Self, id: SessionId| -> Option<(std::net::IpAddr, PublicKey, u64)> {
            let entry = node.shared.sessions.entry(id)?;
            let (peer, epoch) = entry.securing.as_ref()?.far_process()?;
            Some((entry.far.address()?, peer, epoch))
        };
        let Some((far, peer, epoch)) = process(self, id) else { return };
        let relayed: Vec<SessionId> = self.shared.sessions.relayed().into_iter().map(|(id, ..)| id).collect();
        for other in relayed {
            if process(self, other).is_some_and(|(f, p, e)| f == far && p == peer && e != epoch) {
                self.lose_session(now, other, CloseReason::local(Code::Gone, Layer::Session, "the far end has restarted"));
            }
        }
    }
}
