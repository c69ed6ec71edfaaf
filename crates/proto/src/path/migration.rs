//! Addresses that a path may move to, tested before they are used (RFC 9000 §8.2 and §9.3), and the end's own move.
//!
//! A packet of the far end that comes from another address than before makes that address a *candidate*: it is sent PATH_CHALLENGE and some of what
//! is to be sent anyway, never more than three times what came from it (P19). The address in use stays in use meanwhile and is challenged as well.
//! An answer to a candidate's challenge moves the path there, unless the address in use answers too: then another host may have sent the copy of a
//! packet, and nothing is gained by moving. An end that moves on purpose says so by a challenge of its own, and is believed without the second condition.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};

/// Addresses tested at once.
const MAX_CANDIDATES: usize = 4;
/// Bytes to an address that has not shown that the far end is there, for each byte that came from it (P19).
const AMPLIFICATION: u64 = 3;
/// Room for a packet with a challenge or an answer and nothing else.
const SMALLEST: u64 = 64;
/// A challenge is repeated after this, then after twice as long, up to [`LAST_WAIT`]: what lost the first may lose one more.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LAST_WAIT: Duration = Duration::from_millis(160);
/// Challenges that an answer may belong to.
const REMEMBERED: usize = 16;
/// A candidate that has not answered by then, or within three PTOs, is forgotten.
const PATIENCE: Duration = Duration::from_secs(1);
/// An address that came up while the one in use answered is not tested again for so long.
const SHUN: Duration = Duration::from_secs(1);
/// Packets besides challenges that a candidate gets at once; the others are spread over the round trip.
const FIRST_PACKETS: u32 = 4;

/// An address pair of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Far address.
    pub remote: SocketAddr,
    /// Local address, where it is known and matters.
    pub local: Option<IpAddr>,
}

/// The data of a PATH_CHALLENGE and of its answer.
pub type Token = [u8; 8];

/// Challenges to one address.
#[derive(Clone, Debug)]
struct Challenge {
    sent: SmallVec<[(Token, Time); 4]>,
    next: Time,
    wait: Duration,
}

impl Challenge {
    fn new(now: Time) -> Self {
        Self { sent: SmallVec::new(), next: now, wait: FIRST_WAIT }
    }

    fn poll(&mut self, now: Time, rng: &mut ChaCha12Rng) -> Option<Token> {
        if now < self.next {
            return None;
        }
        let mut token = [0; 8];
        rng.fill_bytes(&mut token);
        if self.sent.len() == REMEMBERED {
            self.sent.remove(0);
        }
        self.sent.push((token, now));
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(LAST_WAIT);
        Some(token)
    }

    /// When the challenge with this token left.
    fn answered(&self, token: &Token) -> Option<Time> {
        self.sent.iter().find(|(t, _)| t == token).map(|(_, at)| *at)
    }
}

/// An address that is being tested.
#[derive(Clone, Debug)]
struct Candidate {
    address: Address,
    challenge: Challenge,
    /// Answers to challenges that came from it.
    answers: SmallVec<[Token; 2]>,
    received: u64,
    sent: u64,
    /// Packets besides challenges.
    packets: u32,
    next_packet: Time,
    /// The far end itself tests it: it has moved there.
    is_deliberate: bool,
    until: Time,
}

impl Candidate {
    fn allowance(&self) -> u64 {
        (self.received * AMPLIFICATION).saturating_sub(self.sent)
    }
}

/// What a packet to an address under test is to carry.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Where to.
    pub address: Address,
    /// Bytes that may go there at most.
    pub room: u64,
    /// PATH_CHALLENGE to put in.
    pub challenge: Option<Token>,
    /// PATH_RESPONSEs to put in.
    pub answers: SmallVec<[Token; 2]>,
}

/// What an answer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Late, or of nothing that was asked.
    Nothing,
    /// The far end is there now; the round trip if it was measured.
    Move(Address, Duration),
    /// The address in use answers: it stays.
    Stay,
    /// The address that this end has moved to itself, or that it opens a path to, works; the round trip.
    Settled(Duration),
}

/// See the file's heading.
#[derive(Clone, Debug, Default)]
pub struct Migration {
    candidates: SmallVec<[Candidate; 1]>,
    /// To the address in use, while there are candidates.
    incumbent: Option<Challenge>,
    /// To the address in use, since this end moved; ends with an answer.
    own: Option<(Challenge, Time)>,
    shunned: SmallVec<[(Address, Time); 2]>,
}

impl Migration {
    /// An authentic packet of `bytes` came from another address than the one in use. `is_newest`: no later one has come before. `pto`: of the path.
    pub fn on_stray(&mut self, now: Time, address: Address, bytes: u64, is_newest: bool, pto: Duration) {
        if let Some(known) = self.candidates.iter_mut().find(|c| c.address == address) {
            known.received += bytes;
            return;
        }
        self.shunned.retain(|(_, until)| now < *until);
        let is_shunned = self.shunned.iter().any(|(a, _)| *a == address);
        if !is_newest || is_shunned || self.candidates.len() == MAX_CANDIDATES || switch::is_off(Mechanism::Migration) {
            return;
        }
        self.incumbent.get_or_insert_with(|| Challenge::new(now));
        self.candidates.push(Candidate {
            address,
            challenge: Challenge::new(now),
            answers: SmallVec::new(),
            received: bytes,
            sent: 0,
            packets: 0,
            next_packet: now,
            is_deliberate: false,
            until: now + PATIENCE.max(pto * 3),
        });
    }

    /// The far end tests its path from `address`, which is not the one in use. False if nothing is known of that address.
    pub fn on_challenge(&mut self, address: Address, token: Token) -> bool {
        let Some(candidate) = self.candidates.iter_mut().find(|c| c.address == address) else { return false };
        candidate.is_deliberate = true;
        if candidate.answers.len() < 2 {
            candidate.answers.push(token);
        }
        true
    }

    /// An answer came, from wherever: it counts for the address that its challenge was sent to.
    pub fn on_answer(&mut self, now: Time, token: &Token) -> Verdict {
        if let Some(sent_at) = self.own.as_ref().and_then(|(own, _)| own.answered(token)) {
            self.own = None;
            return Verdict::Settled(now.since(sent_at));
        }
        if self.incumbent.as_ref().is_some_and(|i| i.answered(token).is_some()) {
            self.incumbent = None;
            for candidate in self.candidates.iter().filter(|c| !c.is_deliberate) {
                self.shunned.truncate(MAX_CANDIDATES);
                self.shunned.insert(0, (candidate.address, now + SHUN));
            }
            self.candidates.retain(|c| c.is_deliberate);
            return Verdict::Stay;
        }
        let found = self.candidates.iter().find_map(|c| Some((c.address, c.challenge.answered(token)?)));
        let Some((address, sent_at)) = found else { return Verdict::Nothing };
        self.forget();
        Verdict::Move(address, now.since(sent_at))
    }

    /// The path has moved, by the far end or by this one: nothing else is tested.
    pub fn forget(&mut self) {
        (self.candidates, self.incumbent, self.own) = Default::default();
        self.shunned.clear();
    }

    /// This end has moved: the far end is to see it, and to answer.
    pub fn begin_own(&mut self, now: Time, pto: Duration) {
        self.forget();
        self.own = Some((Challenge::new(now), now + PATIENCE.max(pto * 3)));
    }

    /// Challenges are under way.
    pub fn is_idle(&self) -> bool {
        self.candidates.is_empty() && self.own.is_none() && self.incumbent.is_none()
    }

    /// A challenge for the address in use that is due, and whether it is because this end has moved.
    pub fn poll_challenge(&mut self, now: Time, rng: &mut ChaCha12Rng) -> Option<(Token, bool)> {
        if let Some(token) = self.own.as_mut().and_then(|(own, _)| own.poll(now, rng)) {
            return Some((token, true));
        }
        Some((self.incumbent.as_mut()?.poll(now, rng)?, false))
    }

    /// The next packet for an address under test. `rtt`: of the path as it was; `full`: bytes of a full datagram.
    pub fn poll_trial(&mut self, now: Time, rtt: Duration, full: u64, rng: &mut ChaCha12Rng) -> Option<Trial> {
        self.candidates.iter_mut().find_map(|c| {
            let room = c.allowance();
            if room < SMALLEST {
                return None;
            }
            let challenge = c.challenge.poll(now, rng);
            if challenge.is_none() && c.answers.is_empty() {
                // What is to be sent anyway: if the far end has moved it has it a round trip sooner, if not it is repaired.
                if room < full || now < c.next_packet {
                    return None;
                }
                c.packets += 1;
                if c.packets >= FIRST_PACKETS {
                    c.next_packet = now + (rtt / 16).max(FIRST_WAIT / 5);
                }
            }
            Some(Trial { address: c.address, room, challenge, answers: core::mem::take(&mut c.answers) })
        })
    }

    /// So many bytes went to an address under test.
    pub fn on_sent(&mut self, address: Address, bytes: u64) {
        if let Some(c) = self.candidates.iter_mut().find(|c| c.address == address) {
            c.sent += bytes;
        }
    }

    /// When something is due. Unless it `may_send` nothing goes to any address before more comes from the one in use (P19): only its patience ends.
    pub fn poll_timeout(&self, may_send: bool) -> Option<Time> {
        if !may_send {
            return self.candidates.iter().map(|c| c.until).chain(self.own.iter().map(|(_, until)| *until)).min();
        }
        let candidates = self.candidates.iter().map(|c| if c.allowance() < SMALLEST { c.until } else { c.until.min(c.challenge.next) });
        let own = self.own.iter().map(|(own, until)| own.next.min(*until));
        candidates.chain(own).chain(self.incumbent.iter().map(|i| i.next)).min()
    }

    /// Forgets what did not answer.
    pub fn handle_timeout(&mut self, now: Time) {
        self.candidates.retain(|c| now < c.until);
        if self.candidates.is_empty() {
            self.incumbent = None;
        }
        self.own.take_if(|(_, until)| now >= *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    const START: Time = Time::from_millis(1000);
    const MS: Duration = Duration::from_millis(1);

    fn address(last: u8, port: u16) -> Address {
        Address { remote: SocketAddr::from(([10, 0, 0, last], port)), local: None }
    }

    fn rng() -> ChaCha12Rng {
        ChaCha12Rng::seed_from_u64(1)
    }

    /// Sends all that a candidate gets at `now`, packets of 1000 bytes; the challenges among them.
    fn drain(m: &mut Migration, now: Time) -> (u64, Vec<Token>) {
        let (mut sent, mut tokens) = (0, Vec::new());
        while let Some(trial) = m.poll_trial(now, MS * 20, 1000, &mut rng()) {
            let bytes = trial.room.min(1000);
            m.on_sent(trial.address, bytes);
            sent += bytes;
            tokens.extend(trial.challenge);
        }
        (sent, tokens)
    }

    #[test]
    fn where_nothing_may_be_sent_only_the_end_of_patience_is_due() {
        let mut m = Migration::default();
        m.begin_own(START, MS * 50);
        m.on_stray(START, address(9, 1), 500, true, MS * 50);
        assert_eq!((m.poll_timeout(true), m.poll_timeout(false)), (Some(START), Some(START + PATIENCE)));
        m.handle_timeout(START + PATIENCE);
        assert_eq!(m.poll_timeout(false), None);
    }

    #[test]
    fn an_address_under_test_gets_three_times_what_came_from_it_at_most() {
        let mut m = Migration::default();
        m.on_stray(START, address(9, 1), 500, true, MS * 50);
        let mut sent = 0;
        for i in 0..500 {
            sent += drain(&mut m, START + MS * i).0;
        }
        assert!((1..=1500).contains(&sent), "{sent}");
        m.on_stray(START, address(9, 1), 500, false, MS * 50);
        for i in 500..900 {
            sent += drain(&mut m, START + MS * i).0;
        }
        assert!((1501..=3000).contains(&sent), "{sent}");
        m.handle_timeout(START + PATIENCE);
        assert!(m.is_idle() && m.poll_timeout(true).is_none());
    }

    #[test]
    fn the_first_answer_decides_and_the_address_in_use_has_precedence() {
        let mut m = Migration::default();
        m.on_stray(START, address(9, 1), 500, true, MS * 50);
        let (_, tokens) = drain(&mut m, START);
        let mut moved = m.clone();
        assert_eq!(moved.on_answer(START + MS * 20, &tokens[0]), Verdict::Move(address(9, 1), MS * 20));
        assert!(moved.is_idle());
        let (incumbent, _) = m.poll_challenge(START, &mut rng()).unwrap();
        // The same random numbers in this test: the incumbent's is asked for first.
        assert_eq!(m.on_answer(START + MS * 20, &incumbent), Verdict::Stay);
        assert_eq!(m.on_answer(START + MS * 21, &[7; 8]), Verdict::Nothing);
        // Copies of packets go on to come from there.
        m.on_stray(START + MS * 30, address(9, 1), 500, true, MS * 50);
        assert!(m.is_idle());
        m.on_stray(START + MS * 30 + SHUN, address(9, 1), 500, true, MS * 50);
        assert!(!m.is_idle());
    }

    #[test]
    fn an_end_that_says_that_it_has_moved_is_believed_although_the_old_address_answers() {
        let mut m = Migration::default();
        m.on_stray(START, address(9, 1), 500, true, MS * 50);
        assert!(m.on_challenge(address(9, 1), [3; 8]) && !m.on_challenge(address(8, 1), [3; 8]));
        let trial = m.poll_trial(START, MS * 20, 1000, &mut rng()).unwrap();
        assert_eq!(trial.answers.as_slice(), [[3; 8]]);
        let (incumbent, _) = m.poll_challenge(START, &mut ChaCha12Rng::seed_from_u64(2)).unwrap();
        assert_eq!(m.on_answer(START + MS, &incumbent), Verdict::Stay);
        assert!(matches!(m.on_answer(START + MS * 20, &trial.challenge.unwrap()), Verdict::Move(..)));
    }

    #[test]
    fn late_packets_from_where_the_far_end_was_change_nothing() {
        let mut m = Migration::default();
        m.on_stray(START, address(1, 1), 500, false, MS * 50);
        assert!(m.is_idle());
    }
}
