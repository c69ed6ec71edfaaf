//! Static keys and how people write them.

use super::noise;
use crate::work;
use core::fmt;
use core::str::FromStr;
use ring::digest;
use zeroize::Zeroize;

/// A node's static X25519 public key.
///
/// As text: 56 characters of base32 (RFC 4648 §6, lower case, no padding) over the 32 bytes and a 3-byte checksum, so that a typing error is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

/// A node's static X25519 secret key; its memory is cleared when it is dropped.
///
/// As text ([`SecretKey::to_text`]): `secret-` and 56 characters as in [`PublicKey`], with a checksum of its own, so that one is not taken for the other.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

/// Why a text is not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyTextError {
    /// Not as many characters as a key has.
    #[error("a key has {expected} characters, this has {found}")]
    Length {
        /// Characters of a key.
        expected: usize,
        /// Characters found.
        found: usize,
    },
    /// A character that no key contains.
    #[error("'{0}' does not occur in a key (letters a-z and digits 2-7 do)")]
    Character(char),
    /// The checksum does not fit.
    #[error("there is a typing error in the key: its checksum does not fit")]
    Checksum,
    /// A secret key was given where a public one belongs.
    #[error("this is a secret key; keep it secret and give the public key instead")]
    IsSecret,
    /// A public key was given where a secret one belongs.
    #[error("this is not a secret key: it does not begin with '{SECRET_PREFIX}'")]
    IsNotSecret,
    /// Another kind of key was given where a pre-shared one belongs.
    #[error("this is not a pre-shared key: it does not begin with '{SHARED_PREFIX}'")]
    IsNotShared,
}

const SECRET_PREFIX: &str = "secret-";
const CHECKSUM_LEN: usize = 3;
const TEXT_LEN: usize = (32 + CHECKSUM_LEN) * 8 / 5;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const PUBLIC_LABEL: &[u8] = b"noctule public key";
const SECRET_LABEL: &[u8] = b"noctule secret key";
const SHARED_PREFIX: &str = "shared-";
const SHARED_LABEL: &[u8] = b"noctule shared key";
const FINGERPRINT_LABEL: &[u8] = b"noctule fingerprint";
/// Bytes of a fingerprint: 120 bits, 24 characters.
const FINGERPRINT_LEN: usize = 15;

fn checksum(label: &[u8], key: &[u8; 32]) -> [u8; CHECKSUM_LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(label);
    context.update(key);
    let hash = context.finish();
    let hash = hash.as_ref();
    [hash[0], hash[1], hash[2]]
}

fn encode(label: &[u8], key: &[u8; 32]) -> String {
    let mut bytes = [0; 32 + CHECKSUM_LEN];
    bytes[..32].copy_from_slice(key);
    bytes[32..].copy_from_slice(&checksum(label, key));
    let text = base32(&bytes);
    bytes.zeroize();
    text
}

/// Whole groups of 5 bytes as 8 characters.
fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5);
    for group in bytes.chunks_exact(5) {
        let bits = group.iter().fold(0u64, |bits, &b| bits << 8 | u64::from(b));
        text.extend((0..8).rev().map(|i| char::from(ALPHABET[(bits >> (5 * i) & 31) as usize])));
    }
    text
}

fn decode(label: &[u8], text: &str) -> Result<[u8; 32], KeyTextError> {
    let mut bytes = [0; 32 + CHECKSUM_LEN];
    let (mut bits, mut count, mut at) = (0u32, 0, 0);
    for c in text.chars() {
        let lower = c.to_ascii_lowercase();
        let value = ALPHABET.iter().position(|&a| char::from(a) == lower).ok_or(KeyTextError::Character(c))?;
        (bits, count) = (bits << 5 | value as u32, count + 5);
        if count >= 8 {
            count -= 8;
            *bytes.get_mut(at).ok_or(KeyTextError::Length { expected: TEXT_LEN, found: text.len() })? = (bits >> count) as u8;
            at += 1;
        }
    }
    if text.len() != TEXT_LEN {
        return Err(KeyTextError::Length { expected: TEXT_LEN, found: text.len() });
    }
    let mut key = [0; 32];
    key.copy_from_slice(&bytes[..32]);
    let is_right = bytes[32..] == checksum(label, &key);
    bytes.zeroize();
    if is_right { Ok(key) } else { Err(KeyTextError::Checksum) }
}

impl PublicKey {
    /// A short form for two people to compare, as by telephone: the first 120 bits of SHA-256("noctule fingerprint" || key) in base32, six groups of
    /// four. Not a key: nothing can be connected to with it.
    pub fn fingerprint(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(FINGERPRINT_LABEL);
        context.update(&self.0);
        let text = base32(&context.finish().as_ref()[..FINGERPRINT_LEN]);
        let groups: Vec<&str> = (0..text.len()).step_by(4).map(|at| &text[at..at + 4]).collect();
        groups.join("-")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(PUBLIC_LABEL, &self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let text = text.trim();
        if text.get(..SECRET_PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(SECRET_PREFIX)) {
            return Err(KeyTextError::IsSecret);
        }
        decode(PUBLIC_LABEL, text).map(Self)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({}..)", &encode(PUBLIC_LABEL, &self.0)[..8])
    }
}

impl SecretKey {
    /// From 32 bytes of a secure random source (clamped when used).
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The secret bytes, for storing in a key file.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        let mut public = [0; 32];
        if let Some(mut dh) = noise::curve25519() {
            work::dh();
            dh.set(&self.0);
            public.copy_from_slice(dh.pubkey());
        }
        PublicKey(public)
    }
    /// The text form, for a key file.
    pub fn to_text(&self) -> String {
        format!("{SECRET_PREFIX}{}", encode(SECRET_LABEL, &self.0))
    }
}

impl FromStr for SecretKey {
    type Err = KeyTextError;
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let text = text.trim();
        let rest = text.strip_prefix(SECRET_PREFIX).ok_or(KeyTextError::IsNotSecret)?;
        decode(SECRET_LABEL, rest).map(Self)
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// A key that both sides of a link share and mix into the handshake; its memory is cleared when it is dropped.
///
/// As text ([`SharedKey::to_text`]): `shared-` and 56 characters as in [`PublicKey`], with a checksum of its own.
#[derive(Clone)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// From 32 bytes of a secure random source.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The secret bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// The text form, for a key file.
    pub fn to_text(&self) -> String {
        format!("{SHARED_PREFIX}{}", encode(SHARED_LABEL, &self.0))
    }
}

impl FromStr for SharedKey {
    type Err = KeyTextError;
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let rest = text.trim().strip_prefix(SHARED_PREFIX).ok_or(KeyTextError::IsNotShared)?;
        decode(SHARED_LABEL, rest).map(Self)
    }
}

/// In a time that does not depend on where they differ.
impl PartialEq for SharedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

impl Eq for SharedKey {}

impl Drop for SharedKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        PublicKey(core::array::from_fn(|i| i as u8 * 7 + 1))
    }

    #[test]
    fn the_public_key_is_that_of_rfc_7748() {
        // RFC 7748 §5.2: one iteration from the base point with the scalar 9.
        let mut nine = [0; 32];
        nine[0] = 9;
        let hex: String = SecretKey::from_bytes(nine).public().0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }

    #[test]
    fn a_key_survives_its_text_in_either_case() {
        let text = key().to_string();
        assert_eq!(text.len(), TEXT_LEN);
        assert_eq!(text.parse(), Ok(key()));
        assert_eq!(format!(" {}\n", text.to_uppercase()).parse(), Ok(key()));
        let secret = SecretKey::from_bytes([5; 32]);
        assert_eq!(secret.to_text().parse::<SecretKey>().unwrap().as_bytes(), &[5; 32]);
    }

    #[test]
    fn a_fingerprint_is_six_groups_of_four_and_tells_keys_apart() {
        let print = key().fingerprint();
        assert_eq!(print, "edq4-qe3j-2c5f-3q3x-cqkq-mi2h");
        let mut other = key();
        other.0[31] ^= 1;
        assert_ne!(print, other.fingerprint());
    }

    #[test]
    fn a_shared_key_survives_its_text_and_is_not_taken_for_another_kind() {
        let shared = SharedKey::from_bytes([5; 32]);
        assert_eq!(shared.to_text().parse::<SharedKey>().unwrap().as_bytes(), &[5; 32]);
        let secret = SecretKey::from_bytes([5; 32]).to_text();
        assert_eq!(secret.parse::<SharedKey>().map(|_| ()), Err(KeyTextError::IsNotShared));
        assert_eq!(secret.replace("secret-", "shared-").parse::<SharedKey>().map(|_| ()), Err(KeyTextError::Checksum));
    }

    #[test]
    fn every_wrong_character_and_every_swap_is_told() {
        let text = key().to_string();
        for i in 0..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[i] = if wrong[i] == b'a' { b'b' } else { b'a' };
            assert_eq!(String::from_utf8(wrong).unwrap().parse::<PublicKey>(), Err(KeyTextError::Checksum));
        }
        for i in 1..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong.swap(i - 1, i);
            let wrong = String::from_utf8(wrong).unwrap();
            assert!(wrong == text || wrong.parse::<PublicKey>().is_err());
        }
    }

    #[test]
    fn what_is_no_key_is_told_why() {
        let text = key().to_string();
        assert_eq!(text[..55].parse::<PublicKey>(), Err(KeyTextError::Length { expected: 56, found: 55 }));
        assert_eq!(format!("{text}a").parse::<PublicKey>(), Err(KeyTextError::Length { expected: 56, found: 57 }));
        assert_eq!(format!("{text}{text}").parse::<PublicKey>(), Err(KeyTextError::Length { expected: 56, found: 112 }));
        assert_eq!(text.replacen(&text[3..4], "1", 1).parse::<PublicKey>(), Err(KeyTextError::Character('1')));
        assert_eq!("é".parse::<PublicKey>(), Err(KeyTextError::Character('é')));
        assert_eq!(SecretKey::from_bytes([5; 32]).to_text().parse::<PublicKey>(), Err(KeyTextError::IsSecret));
        assert_eq!(text.parse::<SecretKey>().map(|_| ()), Err(KeyTextError::IsNotSecret));
    }
}
