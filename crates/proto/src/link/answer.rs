//! Answering a first flight, and the half-open link that waits to be confirmed (P19).

use super::handshake::{FirstPath, Handshake};
use super::{Link, LinkState};
use crate::crypto::{CryptoError, Established, OpenJob, PublicKey, ReceiveKeys, Responder, ResponderStep, choose_cipher};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::PathId;
use crate::path::Path;
use crate::shared::Shared;
use crate::units::{Duration, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, MAC1_LEN, ProtectedHeader, VERSION};
use crate::wire::params::{Cipher, MIN_DATAGRAM, Params};
use std::net::{IpAddr, SocketAddr};

/// A link that was answered but never confirmed is forgotten so long after the last INITIATE from its initiator's address (P19). The packet that
/// confirms it stands behind all of these, takes 5 s at 2.4 kbit/s, and a few may be lost.
pub(crate) const HALF_OPEN_LIFETIME: Duration = Duration::from_secs(20);
/// However often its INITIATE comes again.
const LONGEST_HALF_OPEN: Duration = Duration::from_secs(120);
/// RESPONDs of one half-open link, at most: its INITIATE comes again and again until one arrives.
const MAX_ANSWERS: u8 = 8;
/// Bytes that leave for each that came from an address that has shown nothing, at most (P19, RFC 9000 §8.1).
const AMPLIFICATION: usize = 3;
/// FINISHes that do not verify before a half-open link is given up: each costs two Diffie-Hellmans.
const MAX_FAILURES: u8 = 4;

/// The responder's side: answered, not yet confirmed by a protected packet.
#[derive(Debug)]
pub(crate) struct Responding {
    remote: SocketAddr,
    local: Option<IpAddr>,
    /// RESPOND, without padding.
    response: Vec<u8>,
    /// Waits for the third message of XX.
    waiting: Option<Responder>,
    /// IK: keys stand, but a path is made only for an initiator that shows that it has them: the first flight may be a replay, and a path is five times as large as
    /// all this.
    established: Option<Established>,
    /// The connection ids of the first path, ours and the initiator's.
    ids: Option<(ConnectionId, ConnectionId)>,
    /// What the INITIATE says, as its proof would: a repetition says the same.
    proof: [u8; MAC1_LEN],
    /// Sizes of INITIATE datagrams that were not answered yet.
    due: Vec<usize>,
    received: usize,
    sent: usize,
    answers: u8,
    began_at: Time,
    /// When the first answer left.
    answered_at: Option<Time>,
    /// FINISHes that did not verify.
    failures: u8,
    /// The initiator's parameter, which its first packet is opened with.
    epoch_log2: u8,
    pub(super) expires: Time,
    answered_size: usize,
    cipher: Option<Cipher>,
    /// Smallest size that the own system has refused to send.
    refused: usize,
}

/// What came of a FINISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// It verified.
    Keys,
    /// It did not.
    Nothing,
    /// As the ones before it did not: the link is to be forgotten.
    TooOften,
}

/// Why a first flight gets no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It is not for us, or not understood.
    Unreadable,
    /// Its sender's key, which may not call.
    NotAuthorised(PublicKey),
}

impl From<CryptoError> for Unanswered {
    fn from(_: CryptoError) -> Self {
        Self::Unreadable
    }
}

impl Responding {
    /// The own system refused an answer of this size, which has not left; it is made again as small as every path must carry.
    pub(super) fn on_refused(&mut self, size: u16) {
        let size = usize::from(size);
        if size > usize::from(MIN_DATAGRAM) && size < self.refused {
            self.refused = size;
            self.sent = self.sent.saturating_sub(size);
            self.due.push(size);
        }
    }

    /// The largest size that is known to pass, in the direction of INITIATE or in this one.
    fn passed(&self) -> u16 {
        if self.answered_size < self.refused { u16::try_from(self.answered_size).unwrap_or(u16::MAX) } else { MIN_DATAGRAM }
    }

    /// Where its INITIATE came from.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The next RESPOND, and where it goes.
    pub(super) fn poll_answer(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<(SocketAddr, Option<IpAddr>)> {
        let size = self.due.pop()?;
        let size = if size < self.refused { size } else { usize::from(MIN_DATAGRAM) };
        let len = size.max(self.response.len());
        if self.answers >= MAX_ANSWERS || self.sent + len > AMPLIFICATION * self.received {
            return None;
        }
        self.answers += 1;
        self.answered_at.get_or_insert(now);
        self.sent += len;
        buf.extend_from_slice(&self.response);
        buf.resize(len, 0);
        Some((self.remote, self.local))
    }
}

impl Link {
    /// A half-open link that its initiator has to finish, from the address that it began from.
    pub(crate) fn awaits_finish_from(&self, from: SocketAddr) -> bool {
        match &self.state {
            LinkState::Handshaking(Handshake::Responder(r)) => {
                r.waiting.is_some() && (r.remote.ip().to_canonical(), r.remote.port()) == (from.ip().to_canonical(), from.port())
            }
            _ => false,
        }
    }

    /// FINISH came for our answer.
    pub(crate) fn on_finish(&mut self, now: Time, message: &[u8], shared: &mut Shared) -> Finished {
        let LinkState::Handshaking(Handshake::Responder(r)) = &mut self.state else { return Finished::Nothing };
        let Some(waiting) = &r.waiting else { return Finished::Nothing };
        // An initiator with a pre-shared key of its own shows it, which takes the pattern that names the sender first.
        let established = waiting.complete(message).ok().filter(|e| !shared.config.neighbour_psks.contains_key(&e.peer));
        let Some(established) = established else {
            // The handshake stands as it was: a forged message does not end it, several do.
            r.failures += 1;
            return if r.failures >= MAX_FAILURES { Finished::TooOften } else { Finished::Nothing };
        };
        r.waiting = None;
        let ids = r.ids.take();
        let (remote, local, size, cipher) = (r.remote, r.local, r.passed(), r.cipher);
        let longest_rtt = r.answered_at.map(|at| now.since(at));
        self.name_first_path(ids);
        let first = FirstPath {
            is_initiator: false,
            remote,
            local,
            received_size: size,
            route: None,
            rtt: None,
            longest_rtt,
            cipher,
            rng: shared.fork_rng(),
        };
        self.install(now, established, first, shared);
        Finished::Keys
    }

    /// Whether this link answers an INITIATE that says this.
    pub(crate) fn is_answer_to(&self, proof: &[u8; MAC1_LEN]) -> bool {
        matches!(&self.state, LinkState::Handshaking(Handshake::Responder(r)) if r.proof == *proof)
    }

    /// The same INITIATE again: our answer was lost.
    pub(crate) fn on_repeated_initiate(&mut self, size: usize) {
        if let LinkState::Handshaking(Handshake::Responder(r)) = &mut self.state {
            r.received += size;
            if r.due.len() < 2 {
                r.due.push(size);
            }
        }
    }

    /// Its initiator was heard again.
    pub(crate) fn keep_half_open(&mut self, now: Time) {
        if let LinkState::Handshaking(Handshake::Responder(r)) = &mut self.state {
            r.expires = (now + HALF_OPEN_LIFETIME).min(r.began_at + LONGEST_HALF_OPEN);
        }
    }

    /// Answers an INITIATE.
    pub(crate) fn answer(
        now: Time,
        id: crate::ids::LinkId,
        remote: SocketAddr,
        local: Option<IpAddr>,
        packet: &HandshakePacket<'_>,
        size: usize,
        shared: &mut Shared,
    ) -> Result<Self, Unanswered> {
        let HandshakeBody::Initiate { pattern, message, .. } = packet.body else { return Err(CryptoError::Malformed.into()) };
        let prologue = packet.prologue().unwrap_or_default();
        let answered = u16::try_from(size).unwrap_or(u16::MAX);
        let mut rng = shared.fork_rng();
        let grease = shared.random_bytes::<1>()[0];
        let mut params = shared.local_params(Some(answered));
        let (mut cipher, mut refused) = (None, None);
        let step = Responder::respond(
            &shared.identity,
            shared.config.psks(),
            pattern,
            &prologue,
            message,
            |peer, payload| {
                // Before the other half of the Diffie-Hellmans, and before anything is kept. An initiator that is answered nevertheless is refused when its link comes up.
                let stranger = peer.filter(|peer| shared.config.authorised.as_ref().is_some_and(|allowed| !allowed.contains(peer)));
                if let Some(peer) = stranger
                    && !shared.may_tell_refusal(now, remote)
                {
                    refused = Some(peer);
                    return Err(CloseReason::local(Code::NotAuthorised, Layer::Crypto, ""));
                }
                let offered = Params::parse(payload).map_err(|e| CloseReason::local(Code::Parameter, Layer::Wire, e.to_string()))?;
                let chosen = choose_cipher(&offered.ciphers, &params.ciphers, offered.plaintext && params.plaintext)
                    .ok_or_else(|| CloseReason::local(Code::Parameter, Layer::Crypto, "no common cipher"))?;
                cipher = Some(chosen);
                params.ciphers = core::iter::once(chosen).collect();
                let mut out = Vec::new();
                params.emit(&mut out, grease);
                Ok(out)
            },
            &mut rng,
        );
        if let Some(peer) = refused {
            return Err(Unanswered::NotAuthorised(peer));
        }
        let (reply, waiting, established) = match step? {
            ResponderStep::Established { reply, established } => (reply, None, Some(established)),
            ResponderStep::Waiting { reply, responder } => (reply, Some(responder), None),
        };
        let epoch_log2 = match &established {
            Some(established) => Params::parse(&established.payload).map_err(|_| CryptoError::Malformed)?.epoch_log2,
            None => Params::default().epoch_log2,
        };
        let mut link = Self::new(id, now, LinkState::Closed);
        let ours = shared.new_cid(id, PathId(0));
        let mut response = Vec::new();
        HandshakePacket {
            version: VERSION,
            destination: packet.source.clone(),
            source: ours.clone(),
            body: HandshakeBody::Respond(&reply),
        }
        .emit(&mut response);
        response.shrink_to_fit();
        link.state = LinkState::Handshaking(Handshake::Responder(Box::new(Responding {
            remote,
            local,
            response,
            waiting,
            established,
            ids: Some((ours, packet.source.clone())),
            proof: shared.mac1.of(packet).ok_or(CryptoError::Malformed)?,
            due: vec![size],
            received: size,
            sent: 0,
            answers: 0,
            began_at: now,
            answered_at: None,
            failures: 0,
            epoch_log2,
            expires: now + HALF_OPEN_LIFETIME,
            answered_size: size,
            cipher,
            refused: usize::MAX,
        })));
        Ok(link)
    }

    /// What opens the first protected packet of a link that was answered. Nothing is made for a packet until it has opened.
    pub(super) fn answered_job(&self, now: Time, path: PathId, header: &ProtectedHeader) -> Option<OpenJob> {
        let LinkState::Handshaking(Handshake::Responder(r)) = &self.state else { return None };
        let (established, cipher) = (r.established.as_ref().filter(|_| path == PathId(0))?, r.cipher?);
        let number = Path::expand_first(header.packet_number);
        let mut keys = ReceiveKeys::new(established.receive.clone(), cipher, r.epoch_log2, 0);
        keys.open_job(now, path, number).filter(|_| header.generation == 0)
    }

    /// A protected packet opened for a link that was answered: its sender has had our answer.
    pub(super) fn install_answered(&mut self, now: Time, shared: &mut Shared) {
        let LinkState::Handshaking(Handshake::Responder(r)) = &mut self.state else { return };
        let Some(established) = r.established.take() else { return };
        let ids = r.ids.take();
        let first = FirstPath {
            is_initiator: false,
            remote: r.remote,
            local: r.local,
            received_size: r.passed(),
            route: None,
            rtt: None,
            longest_rtt: r.answered_at.map(|at| now.since(at)),
            cipher: r.cipher,
            rng: shared.fork_rng(),
        };
        self.name_first_path(ids);
        self.install(now, established, first, shared);
    }
}
