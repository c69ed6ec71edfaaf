//! A path that moves to other addresses (P7): what came by another path, packets for addresses under test, this end's own move.
//! What is tested and when is decided by the path (`path/migration.rs`).

use super::schedule::Wanted;
use super::{Control, Link, LinkState};
use crate::datagram::Transmit;
use crate::flows::Flows;
use crate::ids::{PacketNumber, PathId};
use crate::path::{Address, BASE_DATAGRAM, Trial, Verdict};
use crate::sent::SentItem;
#[cfg(test)]
use crate::session::CONTROL_INDEX;
use crate::shared::Shared;
use crate::units::{Ecn, Time};
use crate::wire::frame::Frame;

/// An ACK frame needs this room at most, however much it would like to say.
const ACK_ROOM: usize = 64;

impl Link {
    /// An authentic packet came; told before its frames are read.
    pub(super) fn note_address(&mut self, now: Time, path: PathId, from: Address, number: PacketNumber, bytes: usize) {
        self.arriving = None;
        let Some(p) = self.paths.get_mut(&path).filter(|p| !p.is_current(from.remote, from.local)) else { return };
        self.arriving = Some(from);
        p.on_stray(now, from, bytes as u64, number);
    }

    /// PATH_CHALLENGE: answered to where it came from.
    pub(super) fn on_path_challenge(&mut self, path: PathId, token: [u8; 8]) {
        let is_answered_there = match (self.arriving, self.paths.get_mut(&path)) {
            (Some(from), Some(p)) => p.on_stray_challenge(from, token),
            _ => false,
        };
        if !is_answered_there {
            self.send_control(Control::PathResponse(path, token));
        }
    }

    /// PATH_RESPONSE, by whichever path.
    pub(super) fn on_path_response(&mut self, now: Time, token: [u8; 8]) {
        let moved = self.paths.values_mut().find_map(|p| match p.on_path_response(now, &token) {
            Verdict::Nothing => None,
            verdict => Some((p.id(), verdict)),
        });
        if let Some((path, Verdict::Move(..))) = moved {
            self.change_cid(path);
            // Something whose fate tells of what went to the old address.
            self.send_control(Control::Ping);
        }
    }

    /// Datagrams leave from another address of this host from now on.
    pub(crate) fn move_away(&mut self, now: Time) {
        match &mut self.state {
            LinkState::Handshaking(handshake) => handshake.hurry(now),
            LinkState::Up => {
                let paths: smallvec::SmallVec<[PathId; 4]> = self.paths.keys().copied().collect();
                for path in paths {
                    self.change_cid(path);
                    if let Some(p) = self.paths.get_mut(&path) {
                        p.on_own_move(now);
                    }
                }
            }
            LinkState::Closing { .. } | LinkState::Closed => {}
        }
    }

    /// P2: an observer of both addresses shall not find the same id on both.
    fn change_cid(&mut self, path: PathId) {
        if let Some(sequence) = self.cids.advance(path) {
            self.send_control(Control::RetireConnectionId(sequence));
        }
    }

    /// A packet for an address that is being tested, or a challenge for the one in use.
    pub(super) fn poll_migration(&mut self, now: Time, path: PathId, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<Transmit> {
        let p = self.paths.get_mut(&path)?;
        if p.is_settled() {
            return None;
        }
        if let Some((token, is_own)) = p.poll_challenge(now) {
            // Our own move: room for answers, and what every path must carry is shown to pass (P19).
            return self.build_challenge(now, path, token, if is_own { BASE_DATAGRAM } else { 0 }, &mut shared.flows, buf);
        }
        let (is_ack_due, may_send) = (p.ack_due(now), p.send_allowance(now) > 0);
        let is_worthwhile = is_ack_due || (may_send && self.has_backlog(now, &mut shared.flows));
        let trial = self.paths.get_mut(&path)?.poll_trial(now, is_worthwhile)?;
        self.build_trial(now, path, &trial, shared, buf)
    }

    /// Data have ceased although flows wait for more: what is due anyway, padded, in case this end has another address and does not know it.
    pub(super) fn poll_gap_probe(&mut self, now: Time, path: PathId, flows: &mut Flows, buf: &mut Vec<u8>) -> Option<Transmit> {
        let p = self.paths.get_mut(&path)?;
        if !p.is_gap_probe_due() {
            return None;
        }
        #[cfg(test)]
        let by_asking_all = {
            let mut all = self.labels.all_in().filter_map(|(_, id)| flows.incoming(id));
            all.any(|f| f.open.index != CONTROL_INDEX && !f.receiver.is_complete())
        };
        let labels = &self.labels;
        let is_wanted = self.coming.any(|label| {
            let Some(flow) = labels.incoming(label, flows) else { return false };
            flow.is_coming_noted = !flow.receiver.is_complete();
            flow.is_coming_noted
        });
        #[cfg(test)]
        assert_eq!(is_wanted, by_asking_all);
        let p = self.paths.get_mut(&path)?;
        if !p.poll_gap_probe(is_wanted) {
            return None;
        }
        let size = usize::from(self.paths.get(&path)?.datagram_size());
        let mut draft = self.begin(path, size, buf)?;
        self.put_acks(now, path, &mut draft, buf);
        draft.put(&Frame::Ping, Some(SentItem::Ping), buf);
        buf.resize(draft.limit.min(usize::from(BASE_DATAGRAM)).max(buf.len()), 0);
        self.finish_alone(now, path, draft, flows, buf)
    }

    fn build_challenge(
        &mut self,
        now: Time,
        path: PathId,
        token: [u8; 8],
        padded: u16,
        flows: &mut Flows,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let size = usize::from(self.paths.get(&path)?.datagram_size());
        let mut draft = self.begin(path, size, buf)?;
        draft.put(&Frame::PathChallenge(token), Some(SentItem::Ping), buf);
        buf.resize(draft.limit.min(usize::from(padded)).max(buf.len()), 0);
        self.finish_alone(now, path, draft, flows, buf)
    }

    fn build_trial(&mut self, now: Time, path: PathId, trial: &Trial, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<Transmit> {
        let size = u64::from(self.paths.get(&path)?.datagram_size()).min(trial.room) as usize;
        let cid = self.cids.spare(path).or_else(|| self.cids.remote_for(path))?.clone();
        let mut draft = self.begin_with(&cid, size, buf)?;
        if let Some(token) = trial.challenge {
            draft.put(&Frame::PathChallenge(token), Some(SentItem::Ping), buf);
        }
        for token in &trial.answers {
            draft.put(&Frame::PathResponse(*token), Some(SentItem::Ping), buf);
        }
        if draft.room(buf) >= ACK_ROOM {
            self.put_acks(now, path, &mut draft, buf);
        }
        if trial.challenge.is_none() && trial.answers.is_empty() && self.paths.get(&path)?.send_allowance(now) > 0 {
            self.put_coded(now, path, Wanted::ALL, &mut draft, shared, buf);
        }
        if draft.is_empty(buf) {
            buf.clear();
            return None;
        }
        let transmit = self.finish_alone(now, path, draft, &mut shared.flows, buf)?;
        self.paths.get_mut(&path)?.on_trial_sent(trial.address, buf.len() as u64);
        Some(Transmit { remote: trial.address.remote, local: trial.address.local, ..transmit })
    }

    /// Seals a packet that goes in no train, without a codepoint: what an untested path does to it would say nothing.
    fn finish_alone(
        &mut self,
        now: Time,
        path: PathId,
        draft: super::draft::Draft,
        flows: &mut Flows,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.paths.get_mut(&path)?.set_train(Some(Ecn::NotEct));
        let is_app_limited = !self.has_backlog(now, flows);
        let finished = self.finish(now, path, draft, is_app_limited, buf);
        let p = self.paths.get_mut(&path)?;
        p.set_train(None);
        finished?;
        let transmit = Transmit { remote: p.remote(), local: p.local(), ecn: Ecn::NotEct, len: buf.len(), segment_size: None };
        self.last_sent = now;
        Some(transmit)
    }
}
