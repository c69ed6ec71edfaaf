//! Datagrams of strangers: first flights, version answers, and what keeps a flood of them cheap (P19, P22).

use super::Node;
use crate::crypto::cookie;
use crate::link::Link;
use crate::switch::{self, Mechanism};
use crate::trace::What;
use crate::units::{Duration, Time};
use crate::wire::packet::{HandshakeBody, HandshakePacket, emit_version_list};
use crate::work;
use rand_chacha::ChaCha12Rng;
use std::net::{IpAddr, SocketAddr};

/// Half-open handshakes at most (P19).
pub(super) const MAX_HALF_OPEN: usize = 1024;
/// Of these from one host at most: who has cookies for one address does not keep others out.
pub(super) const MAX_HALF_OPEN_OF_ONE: usize = MAX_HALF_OPEN / 8;
/// New handshakes per second above which strangers must show that they receive at their address (P19).
const FREE_PER_SECOND: f64 = 100.0;
/// Replies without a link that wait to be sent, at most.
const MAX_REPLIES: usize = 256;

/// Decides when a first flight is answered with a cookie instead of work.
#[derive(Debug)]
pub(super) struct Throttle {
    cookies: cookie::Cookies,
    tokens: f64,
    filled_at: Time,
}

impl Throttle {
    pub(super) fn new(now: Time, rng: ChaCha12Rng) -> Self {
        Self { cookies: cookie::Cookies::new(rng, now), tokens: FREE_PER_SECOND, filled_at: now }
    }

    /// A cookie, as if it had been asked for.
    #[cfg(test)]
    pub(super) fn issue_for_tests(&mut self, now: Time, remote: SocketAddr, source: &crate::wire::packet::ConnectionId) -> Vec<u8> {
        self.cookies.issue(now, remote, source).to_vec()
    }

    /// One more handshake without a cookie?
    fn is_free(&mut self, now: Time, half_open: usize) -> bool {
        let passed: Duration = now.since(self.filled_at);
        self.filled_at = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * FREE_PER_SECOND).min(FREE_PER_SECOND);
        if half_open >= MAX_HALF_OPEN || self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

/// What is one host's for certain: an IPv4 address, or the 64 bits of an IPv6 network, within which a host has as many addresses as it likes.
fn host_of(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => (u128::from(v6) >> 64 << 64).to_be_bytes(),
    }
}

impl Node {
    fn half_open_of(&self, address: IpAddr) -> usize {
        let host = host_of(address);
        self.half_open.keys().inspect(|_| work::step()).filter(|(remote, _)| host_of(remote.ip()) == host).count()
    }

    pub(super) fn refuse_version(&mut self, remote: SocketAddr, local: Option<IpAddr>, packet: &HandshakePacket<'_>, size: usize) {
        let mut out = Vec::new();
        emit_version_list(&mut out, &packet.destination, &packet.source);
        // P19: never more than three times what came in; a version list only for what could have been a first flight.
        if size >= out.len() {
            self.reply(remote, local, out);
        }
    }

    fn reply(&mut self, remote: SocketAddr, local: Option<IpAddr>, datagram: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((remote, local, datagram));
        }
    }

    pub(super) fn on_initiate(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, packet: &HandshakePacket<'_>, size: usize) {
        let HandshakeBody::Initiate { token, .. } = packet.body else { return };
        if !self.shared.config.accept {
            return;
        }
        let key = (remote, packet.source.clone());
        if let Some(id) = self.half_open.get(&key).copied() {
            if let Some(link) = self.links.get_mut(&id) {
                link.on_repeated_initiate(size);
            }
            self.mark_ready(id);
            return;
        }
        let has_cookie = !token.is_empty() && self.throttle.cookies.check(now, remote, &packet.source, token);
        if !has_cookie && !self.throttle.is_free(now, self.half_open.len()) {
            self.shared.counters.throttled += 1;
            if switch::is_off(Mechanism::Cookies) {
                return;
            }
            let token = self.throttle.cookies.issue(now, remote, &packet.source);
            let tag = cookie::retry_tag(&packet.destination, &packet.source, &token);
            let mut out = Vec::new();
            HandshakePacket {
                version: packet.version,
                destination: packet.source.clone(),
                source: packet.destination.clone(),
                body: HandshakeBody::Retry { token: &token, tag },
            }
            .emit(&mut out);
            if size >= out.len() {
                self.shared.counters.retries += 1;
                self.reply(remote, local, out);
            }
            return;
        }
        // Even with cookies the number of half-open links is bounded, as is the number of links.
        if self.half_open.len() >= MAX_HALF_OPEN
            || self.half_open_of(remote.ip()) >= MAX_HALF_OPEN_OF_ONE
            || self.links.len() >= self.shared.config.max_links + MAX_HALF_OPEN
        {
            self.shared.counters.throttled += 1;
            return;
        }
        let id = self.shared.next_link_id();
        match Link::answer(now, id, remote, local, packet, size, &mut self.shared) {
            Ok(mut link) => {
                link.half_open_key = Some(key.clone());
                link.trace = self.shared.tracer.of(id);
                link.trace.emit(now, || What::LinkStarted { remote });
                self.half_open.insert(key, id);
                self.links.insert(id, Box::new(link));
                self.settle(now, id);
            }
            Err(_) => {
                self.shared.counters.malformed += 1;
                self.shared.forget_link(id);
            }
        }
    }
}
