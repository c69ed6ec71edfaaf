//! Getting keys: what both ends do when the keys stand (P19). The initiator's attempts are in `initiate.rs`, the responder's answer in `answer.rs`.

use super::answer::Responding;
use super::initiate::{Answered, Initiating};
use super::{Control, Link, LinkEvent, LinkState};
use crate::config::{AckWish, NodeConfig};
use crate::crypto::{Established, LinkKeys, LinkKeysConfig, PublicKey};
use crate::datagram::Transmit;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{PathId, Seq};
use crate::path::{AckConfig, Path, PathConfig};
use crate::shared::Admission;
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Ecn, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, VERSION};
use crate::wire::params::{Cipher, MIN_DATAGRAM, Params};
use rand_chacha::ChaCha12Rng;
use std::net::{IpAddr, SocketAddr};

/// The initiator shows itself to the responder after this long again, then after twice as long, and so on, until it hears it.
const FIRST_CONFIRMATION: Duration = Duration::from_millis(10);
/// From here on the path's own probes, which know its round trip, are enough.
const LAST_CONFIRMATION: Duration = Duration::from_millis(160);
/// Keys that no exchange has followed die this long after one is due (WireGuard: 60 s), or two idle timeouts, whichever is more.
const REKEY_PATIENCE: Duration = Duration::from_secs(60);
/// Packets of one generation, both directions together, after which it dies: sixteen times as many as an exchange is due after by default.
const REJECT_PACKETS: u64 = 16 * crate::crypto::GENERATION_PACKETS;
/// One handshake in progress.
#[derive(Debug)]
pub(crate) enum Handshake {
    Initiator(Box<Initiating>),
    Responder(Box<Responding>),
}

/// What the handshake showed of the first path.
pub(super) struct FirstPath {
    pub(super) is_initiator: bool,
    pub(super) remote: SocketAddr,
    pub(super) local: Option<IpAddr>,
    /// Size of the peer's handshake datagram.
    pub(super) received_size: u16,
    /// What the host's route is believed to take.
    pub(super) route: Option<u16>,
    /// Round trip of the handshake, if it is unambiguous.
    pub(super) rtt: Option<Duration>,
    /// It was no longer than this.
    pub(super) longest_rtt: Option<Duration>,
    /// Cipher that we chose, as responder.
    pub(super) cipher: Option<Cipher>,
    /// The path's own.
    pub(super) rng: ChaCha12Rng,
}

/// How the initiator shows itself to a responder that it has not heard yet.
#[derive(Debug)]
pub(super) struct Confirmation {
    pub(super) at: Time,
    wait: Duration,
}

impl Handshake {
    /// The key that answered in place of the expected one.
    pub(super) fn wrong_key(&self) -> Option<PublicKey> {
        match self {
            Self::Initiator(i) => i.wrong(),
            Self::Responder(_) => None,
        }
    }

    /// Where it goes.
    pub(super) fn remote(&self) -> SocketAddr {
        match self {
            Self::Initiator(i) => i.remote(),
            Self::Responder(r) => r.remote(),
        }
    }

    /// The host's route to the far end is believed to take this. False: that is no matter to an answer.
    pub(super) fn on_route(&mut self, now: Time, size: u16) -> bool {
        let Self::Initiator(i) = self else { return false };
        i.on_route(now, size);
        true
    }

    /// Packets leave from another address: what is under way may have no answer.
    pub(super) fn hurry(&mut self, now: Time) {
        if let Self::Initiator(i) = self {
            i.hurry(now);
        }
    }

    pub(crate) fn poll_timeout(&self, _config: &NodeConfig) -> Option<Time> {
        match self {
            Self::Initiator(i) => Some(i.poll_timeout()),
            Self::Responder(r) => Some(r.expires),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, config: &NodeConfig) -> Option<CloseReason> {
        match self {
            Self::Initiator(i) => i.handle_timeout(now, config),
            Self::Responder(r) if now >= r.expires => {
                Some(CloseReason::local(Code::Unreachable, Layer::Link, "the handshake was never confirmed"))
            }
            _ => None,
        }
    }
}

impl Link {
    /// The next handshake datagram.
    pub(super) fn poll_handshake(&mut self, now: Time, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<Transmit> {
        let id = self.id;
        let LinkState::Handshaking(handshake) = &mut self.state else { return None };
        let (remote, local) = match handshake {
            Handshake::Initiator(i) => (i.poll(now, id, shared, buf)?, None),
            Handshake::Responder(r) => r.poll_answer(now, buf)?,
        };
        self.handshake_packets += 1;
        Some(Transmit { remote, local, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    /// RESPOND, RETRY or a version list came for one of our attempts.
    pub(crate) fn on_handshake(&mut self, now: Time, packet: &HandshakePacket<'_>, size: usize, shared: &mut Shared) {
        let LinkState::Handshaking(Handshake::Initiator(i)) = &mut self.state else { return };
        if let Some(answered) = i.on_packet(now, packet, size, shared) {
            self.on_established_as_initiator(now, *answered, packet.source.clone(), size, shared);
        }
    }

    fn on_established_as_initiator(&mut self, now: Time, answered: Answered, theirs: ConnectionId, size: usize, shared: &mut Shared) {
        let Answered { established, source: ours, remote, route, first_sent, deadline, rtt, longest_rtt, patience, others } = answered;
        for id in others {
            shared.forget_cid(&id);
        }
        let finish = established.third_message.as_ref().map(|message| {
            let mut out = Vec::new();
            HandshakePacket { version: VERSION, destination: theirs.clone(), source: ours.clone(), body: HandshakeBody::Finish(message) }
                .emit(&mut out);
            out
        });
        self.cids.issue(PathId(0), ours);
        self.cids.accept(PathId(0), 0, theirs);
        self.finish_packet = finish;
        self.handshake_time = now.since(first_sent);
        if !self.install(
            now,
            established,
            FirstPath {
                is_initiator: true,
                remote,
                local: None,
                received_size: size as u16,
                route,
                rtt,
                longest_rtt,
                cipher: None,
                rng: shared.fork_rng(),
            },
            shared,
        ) {
            return;
        }
        if self.is_question {
            // Never confirmed: at the far end nothing comes up.
            return self.die(CloseReason::local(Code::NoError, Layer::Link, "the far end takes handshakes"));
        }
        self.confirm_by = Some(deadline.max(now + patience));
        self.confirmation =
            (!switch::is_off(Mechanism::Confirmation)).then_some(Confirmation { at: now + FIRST_CONFIRMATION, wait: FIRST_CONFIRMATION });
        self.become_up(now, shared);
        // The responder waits for a protected packet as proof of life.
        self.send_control(Control::Ping);
    }

    /// The responder was not heard yet: whatever was sent may have been lost, and any packet of ours will do.
    pub(super) fn repeat_confirmation(&mut self, now: Time) {
        let Some(confirmation) = self.confirmation.as_mut().filter(|c| c.at <= now) else { return };
        let is_silent = self.last_sent + confirmation.wait <= now;
        confirmation.wait *= 2;
        confirmation.at = now + confirmation.wait;
        if confirmation.wait > LAST_CONFIRMATION {
            self.confirmation = None;
        }
        if is_silent {
            self.send_control(Control::Ping);
        }
    }

    /// Connection ids that the handshake agreed on; a link that is only half open does not keep tables of them.
    pub(super) fn name_first_path(&mut self, ids: Option<(ConnectionId, ConnectionId)>) {
        if let Some((ours, theirs)) = ids {
            self.cids.issue(PathId(0), ours);
            self.cids.accept(PathId(0), 0, theirs);
        }
    }

    /// Keys and the first path. False if the peer's parameters are unusable.
    pub(super) fn install(&mut self, now: Time, established: Established, first: FirstPath, shared: &mut Shared) -> bool {
        let FirstPath { is_initiator, remote, local, received_size, route, rtt, longest_rtt, cipher, rng } = first;
        let params = match Params::parse(&established.payload) {
            Ok(params) => params,
            Err(e) => {
                self.die(CloseReason::local(Code::Parameter, Layer::Wire, e.to_string()));
                return false;
            }
        };
        let cipher =
            params.ciphers.first().copied().filter(|c| is_initiator && (*c != Cipher::Plaintext || shared.config.plaintext)).or(cipher);
        let Some(cipher) = cipher else {
            self.die(CloseReason::local(Code::Parameter, Layer::Crypto, "no common cipher"));
            return false;
        };
        let key_config = LinkKeysConfig {
            is_initiator,
            cipher,
            send_epoch_log2: shared.local_params(None).epoch_log2,
            receive_epoch_log2: params.epoch_log2,
            rekey_after: shared.config.rekey_after,
            rekey_packets: shared.config.rekey_packets,
            reject_after: shared.config.rekey_after + REKEY_PATIENCE.max(shared.config.idle_timeout * 2),
            reject_packets: REJECT_PACKETS.max(shared.config.rekey_packets.saturating_mul(16)),
        };
        let keys = LinkKeys::new(key_config, &established, now);
        let keys = match keys {
            Ok(keys) => keys,
            Err(e) => {
                self.die(CloseReason::local(Code::Parameter, Layer::Crypto, e.to_string()));
                return false;
            }
        };
        self.epoch_log2 = key_config.send_epoch_log2;
        self.peer = Some(established.peer);
        self.keys = Some(Box::new(keys));
        // What is known to pass towards the peer: the size it says it answers, or (responder) the size that came from it.
        let max_datagram = shared.config.max_datagram_to(remote).min(params.max_datagram);
        let known = params.answered_size.unwrap_or(received_size).clamp(MIN_DATAGRAM, max_datagram);
        let config = PathConfig {
            max_datagram,
            initial_datagram: known,
            route_datagram: route,
            initial_rtt: rtt,
            longest_rtt,
            trace: shared.tracer.of(self.id),
            ack: wished_acks(&params),
            ..shared.path_config()
        };
        self.paths.insert(PathId(0), Box::new(Path::new(PathId(0), remote, local, config, rng, now)));
        for (_, id) in self.labels.all_out() {
            if let Some(flow) = shared.flows.out_mut(id) {
                flow.sender.on_credit(Seq(params.initial_credit), Seq(0));
            }
        }
        self.peer_params = params;
        true
    }

    /// First authenticated protected packet: the responder's link is up; the initiator need not repeat FINISH.
    pub(super) fn on_first_protected(&mut self, now: Time, shared: &mut Shared) {
        self.finish_packet = None;
        self.confirmation = None;
        self.confirm_by = None;
        if let LinkState::Handshaking(Handshake::Responder(_)) = &self.state {
            self.handshake_time = now.since(self.opened_at);
            self.become_up(now, shared);
        }
    }

    fn become_up(&mut self, now: Time, shared: &mut Shared) {
        self.state = LinkState::Up;
        self.last_heard = now;
        self.last_sent = now;
        if !self.is_admitted(now, shared) {
            return self.close(now, CloseReason::local(Code::TooMany, Layer::Link, "this node has as many links as it takes"));
        }
        self.stock_cids(PathId(0), shared);
        self.announce_plans(shared);
        self.events.push_back(LinkEvent::Up);
        if let (Some(allowed), Some(peer)) = (&shared.config.authorised, &self.peer)
            && !self.is_initiator
            && !allowed.contains(peer)
        {
            let peer = *peer;
            if let Some(remote) = self.paths.get(&PathId(0)).map(|path| path.remote()) {
                shared.note_refusal(now, peer, remote, Code::NotAuthorised);
            }
            self.close(now, CloseReason::local(Code::NotAuthorised, Layer::Crypto, "this key is not among the authorised ones"));
        }
        let labels: Vec<_> = self.labels.all_out().map(|(label, _)| label).collect();
        for label in labels {
            self.touch_out(label, now, &mut shared.flows);
        }
    }

    /// Whether there is a place for a link that another node opened. A node that is not authorised needs none.
    fn is_admitted(&mut self, now: Time, shared: &mut Shared) -> bool {
        let remote = self.paths.get(&PathId(0)).map(|path| path.remote());
        let Some((peer, remote)) = self.peer.zip(remote).filter(|_| !self.is_initiator) else { return true };
        if shared.config.authorised.as_ref().is_some_and(|allowed| !allowed.contains(&peer)) {
            return true;
        }
        let admission = shared.admitted.lock().admit(self.id, peer, remote.ip(), &shared.config);
        match admission {
            Admission::Taken => true,
            Admission::Instead(older) => {
                self.events.push_back(LinkEvent::Supersedes(older));
                true
            }
            Admission::Refused => {
                shared.counters.throttled += 1;
                shared.note_refusal(now, peer, remote, Code::TooMany);
                false
            }
        }
    }

    /// FINISH goes in front of every datagram until the responder is heard; returns its length.
    pub(super) fn handshake_prefix(&mut self, path: PathId, buf: &mut Vec<u8>) -> usize {
        match &self.finish_packet {
            Some(packet) if path == PathId(0) => {
                buf.extend_from_slice(packet);
                packet.len()
            }
            _ => 0,
        }
    }
}

/// Acknowledgements as the peer wants them (P8), within bounds.
pub(super) fn wished_acks(peer: &Params) -> AckConfig {
    let every = u16::try_from(peer.ack_every).unwrap_or(u16::MAX);
    let wish = AckWish { every, max_delay: peer.max_ack_delay }.bounded();
    AckConfig { packets: wish.every.into(), max_delay: wish.max_delay, ..AckConfig::default() }
}
