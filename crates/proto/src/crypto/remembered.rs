//! X25519 for fuzzers, which run the same handshakes a million times: what was computed once is looked up. Results are those of `snow`; never in a normal build.

use snow::Error;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Dh, Random};
use std::cell::RefCell;
use std::collections::HashMap;

type Key = [u8; 32];

/// Results that are kept; then it begins anew.
const MOST: usize = 4096;

thread_local! {
    /// By secret key, and by public key unless that is the secret's own.
    static KNOWN: RefCell<HashMap<(Key, Option<Key>), Key>> = RefCell::default();
}

fn key(bytes: &[u8]) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(&bytes[..32]);
    key
}

fn known(secret: Key, peer: Option<Key>) -> Key {
    if let Some(known) = KNOWN.with_borrow(|all| all.get(&(secret, peer)).copied()) {
        return known;
    }
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("snow has it");
    dh.set(&secret);
    let mut result = key(dh.pubkey());
    if let Some(peer) = peer {
        dh.dh(&peer, &mut result).expect("keys of 32 bytes");
    }
    KNOWN.with_borrow_mut(|all| {
        if all.len() >= MOST {
            all.clear();
        }
        all.insert((secret, peer), result)
    });
    result
}

#[derive(Default)]
pub(super) struct Remembered {
    secret: Key,
    public: Key,
}

impl Dh for Remembered {
    fn name(&self) -> &'static str {
        "25519"
    }
    fn pub_len(&self) -> usize {
        32
    }
    fn priv_len(&self) -> usize {
        32
    }
    fn set(&mut self, privkey: &[u8]) {
        (self.secret, self.public) = (key(privkey), known(key(privkey), None));
    }
    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut secret = [0; 32];
        rng.try_fill_bytes(&mut secret)?;
        self.set(&secret);
        Ok(())
    }
    fn pubkey(&self) -> &[u8] {
        &self.public
    }
    fn privkey(&self) -> &[u8] {
        &self.secret
    }
    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        out[..32].copy_from_slice(&known(self.secret, Some(key(pubkey))));
        Ok(())
    }
}
