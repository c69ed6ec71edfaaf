//! Stateless answers to a flood of first packets (P19): RETRY tokens that prove an address, and the tag that protects a RETRY against accidents.

use crate::units::{Duration, Time};
use crate::wire::packet::{ConnectionId, RETRY_TAG_LEN};
use crate::work;
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use ring::hmac;
use std::net::{IpAddr, SocketAddr};

/// A token is good for this long.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(10);
/// The secret behind tokens changes this often; the one before it is still good.
pub const SECRET_LIFETIME: Duration = Duration::from_secs(120);
/// Bytes of a token.
pub const TOKEN_LEN: usize = 8 + 32;

/// Makes and checks tokens without remembering any.
#[derive(Debug)]
pub struct Cookies {
    rng: ChaCha12Rng,
    secret: hmac::Key,
    previous: Option<hmac::Key>,
    since: Time,
}

fn fresh(rng: &mut ChaCha12Rng) -> hmac::Key {
    let mut secret = [0; 32];
    rng.fill_bytes(&mut secret);
    hmac::Key::new(hmac::HMAC_SHA256, &secret)
}

/// What a token speaks for: when, which address, which connection attempt.
fn statement(issued: Time, remote: SocketAddr, source: &ConnectionId) -> Vec<u8> {
    let mut out = issued.as_nanos().to_be_bytes().to_vec();
    match remote.ip().to_canonical() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&remote.port().to_be_bytes());
    out.extend_from_slice(source.as_bytes());
    out
}

impl Cookies {
    /// With secrets from `rng`.
    pub fn new(mut rng: ChaCha12Rng, now: Time) -> Self {
        let secret = fresh(&mut rng);
        Self { rng, secret, previous: None, since: now }
    }

    fn rotate(&mut self, now: Time) {
        if now.since(self.since) >= SECRET_LIFETIME {
            let secret = fresh(&mut self.rng);
            self.previous = Some(core::mem::replace(&mut self.secret, secret));
            self.since = now;
        }
    }

    /// A token for an INITIATE that came from `remote` with source id `source`.
    pub fn issue(&mut self, now: Time, remote: SocketAddr, source: &ConnectionId) -> Vec<u8> {
        self.rotate(now);
        work::hash();
        let mac = hmac::sign(&self.secret, &statement(now, remote, source));
        let mut token = now.as_nanos().to_be_bytes().to_vec();
        token.extend_from_slice(mac.as_ref());
        token
    }

    /// The token was issued here, not long ago, to the same address and source id.
    pub fn check(&mut self, now: Time, remote: SocketAddr, source: &ConnectionId, token: &[u8]) -> bool {
        self.rotate(now);
        let Some((time, mac)) = token.split_first_chunk::<8>() else { return false };
        let issued = Time::from_nanos(u64::from_be_bytes(*time));
        if issued > now || now.since(issued) > TOKEN_LIFETIME {
            return false;
        }
        let statement = statement(issued, remote, source);
        [Some(&self.secret), self.previous.as_ref()]
            .into_iter()
            .flatten()
            .inspect(|_| work::hash())
            .any(|key| hmac::verify(key, &statement, mac).is_ok())
    }
}

/// The tag of a RETRY: the first 16 bytes of HMAC-SHA-256 with the public key "noctule retry" over the ids of the INITIATE that it answers (each
/// with its length in one byte) and the token. Whoever did not see the INITIATE cannot make one.
pub fn retry_tag(initiate_destination: &ConnectionId, initiate_source: &ConnectionId, token: &[u8]) -> [u8; RETRY_TAG_LEN] {
    work::hash();
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, b"noctule retry"));
    for id in [initiate_destination, initiate_source] {
        context.update(&[id.as_bytes().len() as u8]);
        context.update(id.as_bytes());
    }
    context.update(token);
    let mut tag = [0; RETRY_TAG_LEN];
    tag.copy_from_slice(&context.sign().as_ref()[..RETRY_TAG_LEN]);
    tag
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn cookies() -> Cookies {
        Cookies::new(ChaCha12Rng::from_seed([1; 32]), Time::ZERO)
    }

    fn id(b: u8) -> ConnectionId {
        ConnectionId::new(&[b; 4]).unwrap()
    }

    fn address(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    #[test]
    fn a_token_serves_its_address_and_attempt_only() {
        let mut cookies = cookies();
        let (now, remote) = (Time::from_millis(5), address("192.0.2.1:7000"));
        let token = cookies.issue(now, remote, &id(1));
        assert_eq!(token.len(), TOKEN_LEN);
        assert!(cookies.check(now, remote, &id(1), &token));
        assert!(cookies.check(now, address("[::ffff:192.0.2.1]:7000"), &id(1), &token));
        assert!(!cookies.check(now, address("192.0.2.1:7001"), &id(1), &token));
        assert!(!cookies.check(now, address("192.0.2.2:7000"), &id(1), &token));
        assert!(!cookies.check(now, remote, &id(2), &token));
        for i in 0..token.len() {
            let mut wrong = token.clone();
            wrong[i] ^= 1;
            assert!(!cookies.check(now, remote, &id(1), &wrong), "byte {i}");
            assert!(!cookies.check(now, remote, &id(1), &token[..i]), "cut at {i}");
        }
    }

    #[test]
    fn a_token_ends_and_outlives_a_change_of_secret() {
        let mut cookies = cookies();
        let remote = address("[2001:db8::1]:7000");
        let issued = Time::ZERO + SECRET_LIFETIME.saturating_sub(Duration::from_secs(1));
        let token = cookies.issue(issued, remote, &id(1));
        assert!(cookies.check(issued + TOKEN_LIFETIME, remote, &id(1), &token));
        assert!(cookies.previous.is_some());
        assert!(!cookies.check(issued + TOKEN_LIFETIME + Duration::from_nanos(1), remote, &id(1), &token));
    }

    #[test]
    fn a_retry_tag_depends_on_every_part() {
        let tag = retry_tag(&id(1), &id(2), b"token");
        for other in [retry_tag(&id(3), &id(2), b"token"), retry_tag(&id(1), &id(3), b"token"), retry_tag(&id(1), &id(2), b"tokem")] {
            assert_ne!(tag, other);
        }
    }
}
