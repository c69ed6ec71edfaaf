//! Datagrams of strangers: first flights, version answers, and what keeps a flood of them cheap (P19, P22).
//!
//! The order is that of docs/spec/wire.md 2.5: size, proof of the responder's key, address, token of the host, and only then a Diffie-Hellman; whether the key may
//! call, as soon as that has shown the key.

use super::half_open::{Caller, MAX_HALF_OPEN, MAX_HALF_OPEN_OF_ONE};
use super::hosts::{Hosts, Payer};
use super::{Answer, Node};
use crate::admission::Host;
use crate::crypto::cookie::{self, Token};
use crate::crypto::mac1;
use crate::error::Code;
use crate::ids::LinkId;
use crate::link::Link;
use crate::link::answer::{Finished, Unanswered};
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Duration, Time};
use crate::wire::packet::{HandshakeBody, HandshakePacket, emit_version_list};
use crate::wire::params::MIN_DATAGRAM;
use rand_chacha::ChaCha12Rng;
use std::net::{IpAddr, SocketAddr};

/// First flights with a proof of the key per second that are answered without a cookie (P19).
const FREE_PER_SECOND: f64 = 100.0;
/// Replies without a link that wait to be sent, at most.
const MAX_REPLIES: usize = 256;

/// Decides when a first flight is answered with a cookie instead of work.
#[derive(Debug)]
pub(super) struct Throttle {
    cookies: cookie::Cookies,
    hosts: Hosts,
    tokens: f64,
    filled_at: Time,
}

impl Throttle {
    pub(super) fn new(now: Time, mut rng: ChaCha12Rng) -> Self {
        let hosts = Hosts::new(&mut rng);
        Self { cookies: cookie::Cookies::new(rng, now), hosts, tokens: FREE_PER_SECOND, filled_at: now }
    }

    /// A cookie, as if it had been asked for.
    #[cfg(test)]
    pub(super) fn issue_for_tests(&mut self, now: Time, remote: SocketAddr, source: &crate::wire::packet::ConnectionId) -> Vec<u8> {
        self.cookies.issue(now, remote, source).to_vec()
    }

    /// A link came from there, or leads there.
    pub(super) fn on_link_from(&mut self, now: Time, remote: IpAddr) {
        self.hosts.remember(now, Host::from(remote));
    }

    /// One more handshake without a cookie?
    fn is_free(&mut self, now: Time, is_full: bool) -> bool {
        // Shards look at different instants: going back would fill it for the same time again.
        let now = now.max(self.filled_at);
        let passed: Duration = now.since(self.filled_at);
        self.filled_at = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * FREE_PER_SECOND).min(FREE_PER_SECOND);
        if is_full || self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

impl Node {
    pub(super) fn refuse_version(&mut self, remote: SocketAddr, local: Option<IpAddr>, packet: &HandshakePacket<'_>, size: usize) {
        let config = &self.shared.config;
        // Only what could be a first flight is answered, and only by a node that answers any host.
        if !config.accept || config.answer == Answer::Known || size < usize::from(MIN_DATAGRAM) {
            return;
        }
        let mut out = Vec::new();
        emit_version_list(&mut out, &packet.destination, &packet.source);
        self.reply(remote, local, out);
    }

    fn reply(&mut self, remote: SocketAddr, local: Option<IpAddr>, datagram: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((remote, local, datagram));
        }
    }

    pub(super) fn on_initiate(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, packet: &HandshakePacket<'_>, size: usize) {
        let HandshakeBody::Initiate { pattern, token, .. } = packet.body else { return };
        if size < usize::from(MIN_DATAGRAM) {
            self.shared.counters.malformed += 1;
            return;
        }
        let is_pinned = pattern.is_pinned();
        if !self.shared.config.accept || (!is_pinned && self.shared.config.answer == Answer::Known) {
            return;
        }
        let mut proof = None;
        if is_pinned {
            proof = self.shared.mac1.of(packet).filter(|proof| mac1::is_shown(packet, proof));
            if proof.is_none() {
                self.shared.counters.throttled += 1;
                return;
            }
        }
        let caller = (remote, packet.source.clone());
        let known = self.half_open.find(&caller);
        if let Some(id) = known
            && let Some(link) = self.links.get_mut(&id)
            && proof.or_else(|| self.shared.mac1.of(packet)).is_some_and(|proof| link.is_answer_to(&proof))
        {
            link.on_repeated_initiate(size);
            self.keep_attempts_from(now, remote);
            return self.mark_ready(id);
        }
        let verdict = self.throttle.lock().cookies.judge(now, remote, &packet.source, token);
        let is_proven = verdict == Token::Good;
        if let Some(id) = known {
            // Another message under the same id counts only if its sender has got a cookie since: then the first one's answer was lost, or not its own.
            if !is_proven || self.half_open.is_proven(id) {
                return;
            }
            self.forget_link(id);
        }
        if !is_proven {
            // Nothing is computed for a stranger that knows neither key nor cookie.
            let may_be_free = is_pinned || switch::is_off(Mechanism::Cookies);
            if !may_be_free || !self.throttle.lock().is_free(now, self.is_door_full()) {
                self.shared.counters.throttled += 1;
                if (is_pinned || verdict == Token::Missing) && !switch::is_off(Mechanism::Cookies) {
                    self.retry(now, remote, local, packet);
                }
                return;
            }
        } else {
            let host = Host::from(remote.ip());
            let has_link = self.shared.admitted.lock().has_one_from(host);
            let is_known = has_link || self.throttle.lock().hosts.knows(now, host);
            let payer = if is_known { Payer::Known } else { Payer::Stranger };
            if self.half_open.of_host(host) >= MAX_HALF_OPEN_OF_ONE || !self.throttle.lock().hosts.charge(now, host, payer) {
                self.shared.counters.throttled += 1;
                return;
            }
        }
        self.answer(now, local, packet, size, caller, is_proven);
    }

    /// As many links are half open as may be. Each shard has its part of these places, and the one that is full makes room itself.
    fn is_door_full(&self) -> bool {
        self.half_open.len() >= self.shared.shard.part_of(MAX_HALF_OPEN)
    }

    /// Whichever attempt an initiator goes on with, its packets stand behind those of all others in a slow link's queue.
    fn keep_attempts_from(&mut self, now: Time, remote: SocketAddr) {
        if switch::is_off(Mechanism::SlowPaths) {
            return;
        }
        for id in self.half_open.attempts_from(remote) {
            if let Some(link) = self.links.get_mut(&id) {
                link.keep_half_open(now);
            }
        }
    }

    fn retry(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, packet: &HandshakePacket<'_>) {
        let token = self.throttle.lock().cookies.issue(now, remote, &packet.source);
        let mut out = Vec::new();
        HandshakePacket {
            version: packet.version,
            destination: packet.source.clone(),
            source: packet.destination.clone(),
            body: HandshakeBody::Retry { token: &token },
        }
        .emit(&mut out);
        self.shared.counters.retries += 1;
        self.reply(remote, local, out);
    }

    /// The Diffie-Hellman, and a half-open link if it comes out well.
    fn answer(&mut self, now: Time, local: Option<IpAddr>, packet: &HandshakePacket<'_>, size: usize, caller: Caller, is_proven: bool) {
        // With cookies alone the table can be full: the newest has the best prospects.
        if self.is_door_full()
            && let Some(oldest) = self.half_open.oldest()
        {
            self.forget_link(oldest);
        }
        let remote = caller.0;
        let id = self.shared.next_link_id();
        match Link::answer(now, id, remote, local, packet, size, &mut self.shared) {
            Ok(mut link) => {
                link.trace = self.shared.tracer.of(id);
                link.trace.emit(now, || What::LinkStarted { remote });
                self.keep_attempts_from(now, remote);
                self.half_open.insert(id, caller, is_proven);
                self.links.insert(id, Box::new(link));
                self.settle(now, id);
            }
            // The host's token stays spent.
            Err(Unanswered::NotAuthorised(peer)) => {
                self.shared.counters.throttled += 1;
                self.shared.note_refusal(now, peer, remote, Code::NotAuthorised);
            }
            Err(Unanswered::Unreadable) => self.shared.counters.malformed += 1,
        }
    }

    /// FINISH, for a link that waits for it: paid for by the host that the INITIATE came from, and given back to honest ones.
    pub(super) fn on_finish(&mut self, now: Time, remote: SocketAddr, id: LinkId, message: &[u8]) {
        let Some(link) = self.links.get_mut(&id).filter(|l| l.awaits_finish_from(remote)) else { return };
        let host = Host::from(remote.ip());
        if !self.throttle.lock().hosts.charge_host(now, host) {
            self.shared.counters.throttled += 1;
            return;
        }
        match link.on_finish(now, message, &mut self.shared) {
            Finished::Keys => self.throttle.lock().hosts.refund_host(now, host),
            Finished::Nothing => {}
            Finished::TooOften => return self.forget_link(id),
        }
        self.settle(now, id);
    }
}
