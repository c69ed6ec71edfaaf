//! Stateless answers to first packets (P19): RETRY tokens that prove an address.

use crate::units::{Duration, Time};
use crate::wire::packet::ConnectionId;
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

/// What the token of a first packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It was issued here, not long ago, to the same address and source id.
    Good,
    /// There is none, or its time is over: another one helps.
    Missing,
    /// Its time is right and nothing else.
    Forged,
}

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
        // Shards look at different instants: a time before the change of secret would name the other secret.
        let now = now.max(self.since);
        work::hash();
        let mac = hmac::sign(&self.secret, &statement(now, remote, source));
        let mut token = now.as_nanos().to_be_bytes().to_vec();
        token.extend_from_slice(mac.as_ref());
        token
    }

    /// What a token is worth. Costs one HMAC at most, and none if no token of these seconds could look like it.
    pub fn judge(&mut self, now: Time, remote: SocketAddr, source: &ConnectionId, token: &[u8]) -> Token {
        self.rotate(now);
        let Some((time, mac)) = token.split_first_chunk::<8>() else { return Token::Missing };
        let issued = Time::from_nanos(u64::from_be_bytes(*time));
        if token.len() != TOKEN_LEN || issued > now || now.since(issued) > TOKEN_LIFETIME {
            return Token::Missing;
        }
        // Which secret it was follows from its time.
        let key = if issued >= self.since { Some(&self.secret) } else { self.previous.as_ref() };
        let statement = statement(issued, remote, source);
        work::hash();
        match key {
            Some(key) if hmac::verify(key, &statement, mac).is_ok() => Token::Good,
            _ => Token::Forged,
        }
    }
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
        assert_eq!(cookies.judge(now, remote, &id(1), &token), Token::Good);
        assert_eq!(cookies.judge(now, address("[::ffff:192.0.2.1]:7000"), &id(1), &token), Token::Good);
        assert_eq!(cookies.judge(now, address("192.0.2.1:7001"), &id(1), &token), Token::Forged);
        assert_eq!(cookies.judge(now, address("192.0.2.2:7000"), &id(1), &token), Token::Forged);
        assert_eq!(cookies.judge(now, remote, &id(2), &token), Token::Forged);
        for i in 0..token.len() {
            let mut wrong = token.clone();
            wrong[i] ^= 1;
            assert_ne!(cookies.judge(now, remote, &id(1), &wrong), Token::Good, "byte {i}");
            assert_eq!(cookies.judge(now, remote, &id(1), &token[..i]), Token::Missing, "cut at {i}");
        }
    }

    #[test]
    fn a_token_ends_and_outlives_a_change_of_secret() {
        let mut cookies = cookies();
        let remote = address("[2001:db8::1]:7000");
        let issued = Time::ZERO + SECRET_LIFETIME.saturating_sub(Duration::from_secs(1));
        let token = cookies.issue(issued, remote, &id(1));
        assert_eq!(cookies.judge(issued + TOKEN_LIFETIME, remote, &id(1), &token), Token::Good);
        assert!(cookies.previous.is_some());
        assert_eq!(cookies.judge(issued + TOKEN_LIFETIME + Duration::from_nanos(1), remote, &id(1), &token), Token::Missing);
    }

    #[test]
    fn a_token_of_a_shard_that_lags_behind_a_change_of_secret_is_good() {
        let mut cookies = cookies();
        let remote = address("192.0.2.1:7000");
        let changed = Time::ZERO + SECRET_LIFETIME;
        cookies.issue(changed, remote, &id(1));
        let token = cookies.issue(changed.saturating_sub(Duration::from_millis(5)), remote, &id(2));
        assert_eq!(cookies.judge(changed + Duration::from_millis(20), remote, &id(2), &token), Token::Good);
    }
}
