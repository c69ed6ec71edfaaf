//! The initiator's attempts at a handshake: first messages with one key or another, in datagrams of several sizes, until one is answered (P19).

use crate::config::NodeConfig;
use crate::crypto::cookie::TOKEN_LIFETIME;
use crate::crypto::mac1::Mac1;
use crate::crypto::{CryptoError, Established, Initiator, PublicKey, RawKey};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{LinkId, PathId};
use crate::path::BASE_DATAGRAM;
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, MAC1_LEN, Pattern, VERSION};
use crate::wire::params::MIN_DATAGRAM;
use smallvec::SmallVec;
use std::net::SocketAddr;

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
/// Flights with a pinned key before the peer is asked for its key: a peer with another key cannot even read the first kind.
const FLIGHTS_BEFORE_ASKING: u32 = 2;

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
    /// A key that answered in place of the expected one. A host on the path can make such an answer: it is the verdict only if no better one comes.
    wrong: Option<PublicKey>,
    /// A version list came that lacks ours, from any host.
    is_version_refused: bool,
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

    /// Why the time is over without an answer. What any host on the path could have said is told only now.
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

    /// Where it goes.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The key that answered in place of the expected one.
    pub(super) fn wrong(&self) -> Option<PublicKey> {
        self.wrong
    }

    /// The host's route to the far end is believed to take this.
    pub(super) fn on_route(&mut self, now: Time, size: u16) {
        // A datagram that is under way was larger than the route takes: it is not waited for.
        let is_smaller = self.route.is_some_and(|before| size < before);
        self.route = Some(size);
        if is_smaller && self.sends > 0 {
            self.shrink(now, size.saturating_add(1));
        }
    }

    /// What is under way may have no answer.
    pub(super) fn hurry(&mut self, now: Time) {
        self.next_send = now;
    }

    pub(super) fn poll_timeout(&self) -> Time {
        self.next_send.min(self.deadline)
    }

    /// The verdict, when the time is over.
    pub(super) fn handle_timeout(&self, now: Time, config: &NodeConfig) -> Option<CloseReason> {
        (now >= self.deadline).then(|| self.verdict(config))
    }

    /// The next datagram, and where it goes.
    pub(super) fn poll(&mut self, now: Time, link: LinkId, shared: &mut Shared, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        if now < self.next_send || self.attempts.is_empty() {
            return None;
        }
        if self.sends > 0 && switch::is_off(Mechanism::HandshakeRepetition) {
            self.next_send = self.deadline;
            return None;
        }
        if self.flights == FLIGHTS_BEFORE_ASKING && self.expected.is_some() && self.wrong.is_none() && self.attempts.len() == 1 {
            let source = shared.new_cid(link, PathId(0));
            self.add_attempt(now, source, false, Vec::new(), shared);
        }
        let size = usize::from(self.datagram_size(&shared.config));
        // Of flights with one datagram every second asks the other question.
        let is_other = if self.flights < FULL_FLIGHTS { self.copies % 2 == 1 } else { self.flights % 2 == 1 };
        let attempt = if is_other { self.attempts.last_mut() } else { self.attempts.first_mut() }?;
        HandshakePacket {
            version: VERSION,
            destination: self.destination.clone(),
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
        self.sends += 1;
        self.first_sent.get_or_insert(now);
        self.copies += 1;
        let has_smaller = self.flights == 0 && size > usize::from(MIN_DATAGRAM) && !switch::is_off(Mechanism::SmallFirstFlights);
        if (1..FULL_FLIGHTS).contains(&self.flights) && self.copies < COPIES {
            self.next_send = now + COPY_DELAY;
        } else if has_smaller && self.copies == 1 {
            self.next_send = now + SMALLER_AFTER;
        } else {
            self.next_send = now + (FIRST_RETRY * (1 << self.flights.min(8))).min(RETRY_CAP);
            if self.copies == 2 {
                self.next_send = self.next_send.saturating_sub(SMALLER_AFTER);
            }
            self.flights += 1;
            self.copies = 0;
        }
        Some(self.remote)
    }

    /// RESPOND, RETRY or a version list came for one of the attempts. What it came to, if the keys stand.
    pub(super) fn on_packet(&mut self, now: Time, packet: &HandshakePacket<'_>, size: usize, shared: &mut Shared) -> Option<Box<Answered>> {
        match &packet.body {
            HandshakeBody::Respond(message) => {
                let at = self.attempts.iter().position(|a| a.source == packet.destination)?;
                let attempt = &mut self.attempts[at];
                let payload = shared.params_payload(Some(u16::try_from(size).unwrap_or(u16::MAX)), true);
                match attempt.initiator.finish(message, &payload) {
                    Ok(established) => {
                        let source = attempt.source.clone();
                        return Some(Box::new(self.answered(now, established, source, size)));
                    }
                    // A host on the path can answer the question for a key, too: the expected key is called until the time is over.
                    Err(CryptoError::WrongKey { actual, .. }) => {
                        self.wrong = Some(actual);
                        let attempt = self.attempts.remove(at);
                        shared.forget_cid(&attempt.source);
                    }
                    // An answer that does not verify could have been sent by anyone: the attempt stands.
                    Err(_) => {}
                }
            }
            // Only a host that saw the INITIATE knows both of its ids.
            HandshakeBody::Retry { token } if packet.source == self.destination => {
                let at = self.attempts.iter().position(|a| a.source == packet.destination)?;
                let attempt = &self.attempts[at];
                // A token that still serves is kept: the first message came in several copies, and each gets one.
                if !attempt.token.is_empty() && now < attempt.token_at + TOKEN_LIFETIME {
                    return None;
                }
                let attempt = self.attempts.remove(at);
                if let [(_, sent_at)] = attempt.sent[..] {
                    self.retry_rtt = Some(now.since(sent_at));
                }
                self.add_attempt(now, attempt.source, attempt.pattern.is_pinned(), token.to_vec(), shared);
                // The order of attempts stays: a known key first.
                if at < self.attempts.len() {
                    self.attempts[at..].rotate_right(1);
                }
                // At once, and as a first flight: a cookie does not live long, and its loss is not waited for longer than that of the first.
                self.copies = u32::from(at > 0);
                self.flights = if at > 0 { self.flights } else { 1 };
                self.next_send = now;
            }
            // A list that contains our version answers something that we did not send.
            HandshakeBody::VersionList(list)
                if packet.source == self.destination && !list.chunks_exact(4).any(|v| v == VERSION.to_be_bytes()) =>
            {
                self.is_version_refused = true;
            }
            _ => {}
        }
        None
    }

    fn answered(&self, now: Time, established: Established, source: ConnectionId, size: usize) -> Answered {
        let first_sent = self.first_sent.unwrap_or(now);
        let attempt = self.attempts.iter().find(|a| a.source == source);
        Answered {
            remote: self.remote,
            route: self.route,
            first_sent,
            deadline: self.deadline,
            rtt: attempt.and_then(|a| a.rtt(now, size)).or(self.retry_rtt),
            longest_rtt: attempt.and_then(|a| a.sent.first()).map(|(_, at)| now.since(*at)),
            // Each datagram that was sent may stand in front of what goes now, and take as long as the exchange took.
            patience: if switch::is_off(Mechanism::SlowPaths) { Duration::ZERO } else { now.since(first_sent) * (self.sends + 2) },
            others: self.attempts.iter().filter(|a| a.source != source).map(|a| a.source.clone()).collect(),
            established,
            source,
        }
    }
}

/// What one of the attempts came to.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) established: Established,
    /// The id of the attempt, which names the first path.
    pub(super) source: ConnectionId,
    pub(super) remote: SocketAddr,
    /// Bytes of UDP payload that the host's route is believed to take.
    pub(super) route: Option<u16>,
    pub(super) first_sent: Time,
    pub(super) deadline: Time,
    /// Round trip of the exchange, if it is unambiguous.
    pub(super) rtt: Option<Duration>,
    /// It was no longer than this.
    pub(super) longest_rtt: Option<Duration>,
    /// How long the responder may take to be heard.
    pub(super) patience: Duration,
    /// Ids of the attempts that are not needed any more.
    pub(super) others: Vec<ConnectionId>,
}
