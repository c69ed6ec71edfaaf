//! Any parameters, and any text as a key: read or refused, and stable once read.

use noctule_proto::crypto::{PublicKey, SecretKey};
use noctule_proto::wire::params::Params;

pub fn run(bytes: &[u8]) {
    if let Ok(params) = Params::parse(bytes) {
        let mut out = Vec::new();
        params.emit(&mut out, bytes.len() as u8);
        assert_eq!(Params::parse(&out), Ok(params));
    }
    if let Ok(text) = str::from_utf8(bytes) {
        if let Ok(key) = text.parse::<PublicKey>() {
            assert_eq!(key.to_string(), text.trim().to_lowercase());
        }
        let _ = text.parse::<SecretKey>();
    }
}
