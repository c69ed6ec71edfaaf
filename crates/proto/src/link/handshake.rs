//! Getting keys: the initiator's attempts, and what both ends do when the keys stand (P19). The responder's answer is in `answer.rs`.

use super::answer::Responding;
use super::{Control, Link, LinkEvent, State};
use crate::config::{AckWish, NodeConfig};
use crate::crypto::cookie::TOKEN_LIFETIME;
use crate::crypto::mac1::Mac1;
use crate::crypto::{CryptoError, Established, Initiator, LinkKeys, LinkKeysConfig, PublicKey, RawKey};
use crate::datagram::Transmit;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::PathId;
use crate::path::{AckConfig, BASE_DATAGRAM, Path, PathConfig};
use crate::shared::Admission;
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Ecn, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, MAC1_LEN, Pattern, VERSION};
use crate::wire::params::{Cipher, MIN_DATAGRAM, Params};
use rand_chacha::ChaCha12Rng;
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};

/// First retransmission of a handshake packet, and the cap of its growth (P19).
const FIRST_RETRY: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(1);
/// Flights before those of one datagram of the smallest size. What so many do not bring across is not lost by chance: the path is slow, or away, and
/// more would only wait in front of what is to follow (docs/decisions/0170).
const FULL_FLIGHTS: u32 = 4;
/// A first message that is repeated goes out in so many datagrams, so far apart: what lost the first may well lose one more, and the next timer is far
/// away (docs/decisions/0030).
const COPIES: u32 = 3;
const COPY_DELAY: Duration = Duration::from_millis(10);
/// The first datagram is followed by a smaller one after this: on a path that takes less than the host's own link, or that lost the first, that is all the
/// time that is lost. A path with a round trip above it pays for it with one datagram (docs/decisions/0166).
const SMALLER_AFTER: Duration = Duration::from_millis(25);
/// The initiator shows itself to the responder after this long again, then after twice as long, and so on, until it hears it.
const FIRST_CONFIRMATION: Duration = Duration::from_millis(10);
/// From here on the path's own probes, which know its round trip, are enough.
const LAST_CONFIRMATION: Duration = Duration::from_millis(160);
/// Keys that no exchange has followed die this long after one is due (WireGuard: 60 s), or two idle timeouts, whichever is more.
const REKEY_PATIENCE: Duration = Duration::from_secs(60);
/// Packets of one generation, both directions together, after which it dies: sixteen times as many as an exchange is due after by default.
const REJECT_PACKETS: u64 = 16 * crate::crypto::GENERATION_PACKETS;
/// Flights with a pinned key before the peer is asked who it is: a peer with another key cannot even read the first kind.
const FLIGHTS_BEFORE_ASKING: u32 = 2;

/// One handshake in progress.
#[derive(Debug)]
pub(crate) enum Handshake {
    Initiator(Box<Initiating>),
    Responder(Box<Responding>),
}

/// The initiator's side.
#[derive(Debug)]
pub(crate) struct Initiating {
    remote: SocketAddr,
    expected: Option<PublicKey>,
    attempts: Vec<Attempt>,
    destination: ConnectionId,
    /// Datagrams sent.
    sends: u32,
    /// Flights sent: two datagrams in the first, [`COPIES`] in each later one.
    flights: u32,
    /// Datagrams of the present flight that were sent.
    copies: u32,
    first_sent: Option<Time>,
    /// Bytes of UDP payload that the host's route is believed to take.
    route: Option<u16>,
    /// Smallest size that the own system has refused.
    refused: u16,
    /// Of RETRY, which answers a single datagram.
    retry_rtt: Option<Duration>,
    deadline: Time,
    next_send: Time,
    /// A key that answered in place of the expected one. Somebody on the path can make such an answer: it is the verdict only if no better one comes.
    wrong: Option<PublicKey>,
    /// A version list came that lacks ours, from anybody.
    is_version_refused: bool,
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

/// One kind of first message, under an id of its own so that the answer finds it.
#[derive(Debug)]
struct Attempt {
    source: ConnectionId,
    pattern: Pattern,
    mac1: [u8; MAC1_LEN],
    token: Vec<u8>,
    /// When the token came.
    token_at: Time,
    initiator: Initiator,
    message: Vec<u8>,
    /// Datagrams with this message: their sizes, and when they left; the first ones.
    sent: SmallVec<[(u16, Time); 4]>,
}

/// Datagrams of an attempt that are remembered: more are sent only where no round trip can be told any more.
const REMEMBERED: usize = 8;

impl Attempt {
    fn on_sent(&mut self, size: usize, now: Time) {
        if self.sent.len() < REMEMBERED {
            self.sent.push((u16::try_from(size).unwrap_or(u16::MAX), now));
        }
    }

    /// Karn: an answer that could be to either of two datagrams gives no round trip. An answer is as long as what it answers, so those of different sizes are
    /// told apart.
    fn rtt(&self, now: Time, size: usize) -> Option<Duration> {
        if self.sent.len() == REMEMBERED {
            return None;
        }
        let mut fitting = self.sent.iter().filter(|(of, _)| self.sent.len() == 1 || usize::from(*of) == size);
        let (_, at) = fitting.next()?;
        fitting.next().is_none().then(|| now.since(*at))
    }
}

impl Initiating {
    /// Begins to reach `remote`.
    pub(crate) fn start(now: Time, link: crate::ids::LinkId, remote: SocketAddr, expected: Option<PublicKey>, shared: &mut Shared) -> Self {
        let mut this = Self {
            remote,
            expected,
            attempts: Vec::new(),
            destination: shared.random_cid(),
            sends: 0,
            flights: 0,
            copies: 0,
            first_sent: None,
            route: None,
            refused: u16::MAX,
            retry_rtt: None,
            deadline: now + shared.config.connect_timeout,
            next_send: now,
            wrong: None,
            is_version_refused: false,
        };
        let source = shared.new_cid(link, PathId(0));
        this.add_attempt(now, source, expected.is_some(), Vec::new(), shared);
        this
    }

    fn add_attempt(&mut self, now: Time, source: ConnectionId, is_key_known: bool, token: Vec<u8>, shared: &mut Shared) {
        let psk = shared.config.psks().of(self.expected).copied().map(RawKey::new);
        let pattern = match (is_key_known, psk.is_some()) {
            (true, false) => Pattern::Ik,
            (false, false) => Pattern::Xx,
            (true, true) => Pattern::IkPsk2,
            (false, true) => Pattern::XxPsk3,
        };
        let packet = |message| HandshakePacket {
            version: VERSION,
            destination: self.destination.clone(),
            source: source.clone(),
            body: HandshakeBody::Initiate { pattern, mac1: [0; MAC1_LEN], token: &token, message },
        };
        let prologue = packet(&[]).prologue().unwrap_or_default();
        // Anyone on the path can read what the first message of XX says.
        let payload = shared.params_payload(None, is_key_known);
        let mut rng = shared.fork_rng();
        match Initiator::start_with(
            pattern,
            &shared.identity,
            self.expected,
            psk.as_ref().map(RawKey::as_bytes),
            &prologue,
            &payload,
            &mut rng,
        ) {
            Ok((initiator, message)) => {
                let responder = self.expected.filter(|_| pattern.is_pinned());
                let mac1 = responder.and_then(|key| Mac1::new(&key).of(&packet(&message))).unwrap_or_default();
                self.attempts.push(Attempt { source, pattern, mac1, token, token_at: now, initiator, message, sent: SmallVec::new() });
            }
            // Only a peer key that is no curve point can fail here: the attempts then run into the deadline with a clear reason.
            Err(_) => shared.forget_cid(&source),
        }
    }
}

impl Initiating {
    /// Why the time is over without an answer. What anybody on the path could have said is told only now.
    fn verdict(&self, config: &NodeConfig) -> CloseReason {
        let remote = self.remote;
        if let Some((expected, actual)) = self.expected.zip(self.wrong) {
            let e = CryptoError::WrongKey { expected, actual };
            return CloseReason::local(Code::WrongKey, Layer::Crypto, format!("{remote}: {e}"));
        }
        if self.is_version_refused {
            return CloseReason::local(Code::VersionMismatch, Layer::Wire, "the peer does not speak this version of noctule");
        }
        let text = format!("{remote} did not answer {} attempts in {:.0} s", self.sends, config.connect_timeout.as_secs_f64());
        CloseReason::local(Code::Unreachable, Layer::Link, text)
    }

    /// Bytes of the next datagram. The first is as large as the host's route takes and so probes the path MTU, the second is smaller. In later flights each
    /// of the three datagrams has another size, down to what every path must carry, and within three flights each kind of first message had each size.
    fn datagram_size(&self, config: &NodeConfig) -> u16 {
        let max = self.largest(config.max_datagram_to(self.remote));
        if switch::is_off(Mechanism::SmallFirstFlights) {
            return max;
        }
        let smaller = [BASE_DATAGRAM, MIN_DATAGRAM].into_iter().find(|s| *s < max).unwrap_or(MIN_DATAGRAM);
        match (self.flights, self.copies) {
            (0, 0) => max,
            (0, _) => smaller,
            (FULL_FLIGHTS.., _) => MIN_DATAGRAM,
            _ => [smaller, MIN_DATAGRAM, max][((self.copies + self.flights + 1) % COPIES) as usize],
        }
    }

    /// The largest size that is worth trying.
    fn largest(&self, max: u16) -> u16 {
        let max = self.route.map_or(max, |route| route.min(max)).max(MIN_DATAGRAM);
        [max, BASE_DATAGRAM].into_iter().find(|s| *s < self.refused).unwrap_or(MIN_DATAGRAM)
    }

    /// The own system refused a datagram of this size: it is made again, smaller, at once.
    pub(super) fn on_refused(&mut self, now: Time, size: u16) {
        if self.shrink(now, size) {
            for attempt in &mut self.attempts {
                attempt.sent.retain(|(sent, _)| *sent < size);
            }
        }
    }

    /// Datagrams of this size are not sent any more; the present one is sent again, as if it had not been. False: that was so before, or it is as small as any.
    fn shrink(&mut self, now: Time, size: u16) -> bool {
        if size <= MIN_DATAGRAM || size >= self.refused {
            return false;
        }
        self.refused = size;
        (self.flights, self.copies) = if self.copies == 0 { (self.flights.saturating_sub(1), 0) } else { (self.flights, self.copies - 1) };
        self.next_send = now;
        true
    }
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
            Self::Initiator(i) => i.wrong,
            Self::Responder(_) => None,
        }
    }

    /// Packets leave from another address: what is under way may have no answer.
    /// Where it goes.
    pub(super) fn remote(&self) -> SocketAddr {
        match self {
            Self::Initiator(i) => i.remote,
            Self::Responder(r) => r.remote(),
        }
    }

    /// The host's route to the far end is believed to take this. False: that is no matter to an answer.
    pub(super) fn on_route(&mut self, now: Time, size: u16) -> bool {
        let Self::Initiator(i) = self else { return false };
        // A datagram that is under way was larger than the route takes: it is not waited for.
        let is_smaller = i.route.is_some_and(|before| size < before);
        i.route = Some(size);
        if is_smaller && i.sends > 0 {
            i.shrink(now, size.saturating_add(1));
        }
        true
    }

    pub(super) fn hurry(&mut self, now: Time) {
        if let Self::Initiator(i) = self {
            i.next_send = now;
        }
    }

    pub(crate) fn poll_timeout(&self, _config: &NodeConfig) -> Option<Time> {
        match self {
            Self::Initiator(i) => Some(i.next_send.min(i.deadline)),
            Self::Responder(r) => Some(r.expires),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, config: &NodeConfig) -> Option<CloseReason> {
        match self {
            Self::Initiator(i) if now >= i.deadline => Some(i.verdict(config)),
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
        let State::Handshaking(handshake) = &mut self.state else { return None };
        let (remote, local) = match handshake {
            Handshake::Initiator(i) => {
                if now < i.next_send || i.attempts.is_empty() {
                    return None;
                }
                if i.sends > 0 && switch::is_off(Mechanism::HandshakeRepetition) {
                    i.next_send = i.deadline;
                    return None;
                }
                if i.flights == FLIGHTS_BEFORE_ASKING && i.expected.is_some() && i.wrong.is_none() && i.attempts.len() == 1 {
                    let source = shared.new_cid(id, PathId(0));
                    i.add_attempt(now, source, false, Vec::new(), shared);
                }
                let size = usize::from(i.datagram_size(&shared.config));
                // Of flights with one datagram every second asks the other question.
                let is_other = if i.flights < FULL_FLIGHTS { i.copies % 2 == 1 } else { i.flights % 2 == 1 };
                let attempt = if is_other { i.attempts.last_mut() } else { i.attempts.first_mut() }?;
                HandshakePacket {
                    version: VERSION,
                    destination: i.destination.clone(),
                    source: attempt.source.clone(),
                    body: HandshakeBody::Initiate {
                        pattern: attempt.pattern,
                        mac1: attempt.mac1,
                        token: &attempt.token,
                        message: &attempt.message,
                    },
                }
                .emit(buf);
                let size = size.max(buf.len());
                buf.resize(size, 0);
                attempt.on_sent(size, now);
                i.sends += 1;
                i.first_sent.get_or_insert(now);
                i.copies += 1;
                let has_smaller = i.flights == 0 && size > usize::from(MIN_DATAGRAM) && !switch::is_off(Mechanism::SmallFirstFlights);
                if (1..FULL_FLIGHTS).contains(&i.flights) && i.copies < COPIES {
                    i.next_send = now + COPY_DELAY;
                } else if has_smaller && i.copies == 1 {
                    i.next_send = now + SMALLER_AFTER;
                } else {
                    i.next_send = now + (FIRST_RETRY * (1 << i.flights.min(8))).min(RETRY_CAP);
                    if i.copies == 2 {
                        i.next_send = i.next_send.saturating_sub(SMALLER_AFTER);
                    }
                    i.flights += 1;
                    i.copies = 0;
                }
                (i.remote, None)
            }
            Handshake::Responder(r) => r.poll_answer(now, buf)?,
        };
        self.handshake_packets += 1;
        Some(Transmit { remote, local, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    /// RESPOND, RETRY or a version list came for one of our attempts.
    pub(crate) fn on_handshake(&mut self, now: Time, packet: &HandshakePacket<'_>, size: usize, shared: &mut Shared) {
        let State::Handshaking(Handshake::Initiator(i)) = &mut self.state else { return };
        match &packet.body {
            HandshakeBody::Respond(message) => {
                let Some(at) = i.attempts.iter().position(|a| a.source == packet.destination) else { return };
                let attempt = &mut i.attempts[at];
                let payload = shared.params_payload(Some(u16::try_from(size).unwrap_or(u16::MAX)), true);
                match attempt.initiator.finish(message, &payload) {
                    Ok(established) => {
                        let source = attempt.source.clone();
                        self.on_established_as_initiator(now, established, source, packet.source.clone(), size, shared);
                    }
                    // Somebody on the path can answer the question who is there, too: the expected key is called until the time is over.
                    Err(CryptoError::WrongKey { actual, .. }) => {
                        i.wrong = Some(actual);
                        let attempt = i.attempts.remove(at);
                        shared.forget_cid(&attempt.source);
                    }
                    // An answer that does not verify could have been sent by anyone: the attempt stands.
                    Err(_) => {}
                }
            }
            // Only who saw the INITIATE knows both of its ids.
            HandshakeBody::Retry { token } if packet.source == i.destination => {
                let Some(at) = i.attempts.iter().position(|a| a.source == packet.destination) else { return };
                let attempt = &i.attempts[at];
                // A token that still serves is kept: the first message came in several copies, and each gets one.
                if !attempt.token.is_empty() && now < attempt.token_at + TOKEN_LIFETIME {
                    return;
                }
                let attempt = i.attempts.remove(at);
                if let [(_, sent_at)] = attempt.sent[..] {
                    i.retry_rtt = Some(now.since(sent_at));
                }
                i.add_attempt(now, attempt.source, attempt.pattern.is_pinned(), token.to_vec(), shared);
                // The order of attempts stays: a known key first.
                if at < i.attempts.len() {
                    i.attempts[at..].rotate_right(1);
                }
                // At once, and as a first flight: a cookie does not live long, and its loss is not waited for longer than that of the first.
                i.copies = u32::from(at > 0);
                i.flights = if at > 0 { i.flights } else { 1 };
                i.next_send = now;
            }
            // A list that contains our version answers something that we did not send.
            HandshakeBody::VersionList(list)
                if packet.source == i.destination && !list.chunks_exact(4).any(|v| v == VERSION.to_be_bytes()) =>
            {
                i.is_version_refused = true;
            }
            _ => {}
        }
    }

    fn on_established_as_initiator(
        &mut self,
        now: Time,
        established: Established,
        ours: ConnectionId,
        theirs: ConnectionId,
        size: usize,
        shared: &mut Shared,
    ) {
        let State::Handshaking(Handshake::Initiator(i)) = &self.state else { return };
        let (remote, route, first_sent, deadline) = (i.remote, i.route, i.first_sent.unwrap_or(now), i.deadline);
        let answered = i.attempts.iter().find(|a| a.source == ours);
        let rtt = answered.and_then(|a| a.rtt(now, size)).or(i.retry_rtt);
        let longest_rtt = answered.and_then(|a| a.sent.first()).map(|(_, at)| now.since(*at));
        // Each datagram that was sent may stand in front of what goes now, and take as long as the exchange took.
        let patience = if switch::is_off(Mechanism::SlowPaths) { Duration::ZERO } else { now.since(first_sent) * (i.sends + 2) };
        let others: Vec<_> = i.attempts.iter().filter(|a| a.source != ours).map(|a| a.source.clone()).collect();
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
        for flow in self.flows.out.values_mut() {
            flow.sender.on_credit(crate::ids::Seq(params.initial_credit), crate::ids::Seq(0));
        }
        self.peer_params = params;
        true
    }

    /// First authenticated protected packet: the responder's link is up; the initiator need not repeat FINISH.
    pub(super) fn on_first_protected(&mut self, now: Time, shared: &mut Shared) {
        self.finish_packet = None;
        self.confirmation = None;
        self.confirm_by = None;
        if let State::Handshaking(Handshake::Responder(_)) = &self.state {
            self.handshake_time = now.since(self.opened_at);
            self.become_up(now, shared);
        }
    }

    fn become_up(&mut self, now: Time, shared: &mut Shared) {
        self.state = State::Up;
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
            if let Some(remote) = self.paths.get(&PathId(0)).map(|path| path.remote()) {
                shared.refusals.note(now, *peer, remote, Code::NotAuthorised);
            }
            self.close(now, CloseReason::local(Code::NotAuthorised, Layer::Crypto, "this key is not among the authorised ones"));
        }
        let labels: Vec<_> = self.flows.out.keys().copied().collect();
        for label in labels {
            self.touch_out(label, now);
        }
    }

    /// Whether there is a place for a link that another node opened. Who is not authorised needs none.
    fn is_admitted(&mut self, now: Time, shared: &mut Shared) -> bool {
        let remote = self.paths.get(&PathId(0)).map(|path| path.remote());
        let Some((peer, remote)) = self.peer.zip(remote).filter(|_| !self.is_initiator) else { return true };
        if shared.config.authorised.as_ref().is_some_and(|allowed| !allowed.contains(&peer)) {
            return true;
        }
        match shared.admitted.admit(self.id, peer, remote.ip(), &shared.config) {
            Admission::Taken => true,
            Admission::Instead(older) => {
                self.events.push_back(LinkEvent::Supersedes(older));
                true
            }
            Admission::Refused => {
                shared.counters.throttled += 1;
                shared.refusals.note(now, peer, remote, Code::TooMany);
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
