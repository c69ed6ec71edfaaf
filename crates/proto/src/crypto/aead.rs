//! Sealing and opening one packet: pure jobs that any core can run (P21).

use super::CryptoError;
use super::keys::RawKey;
use crate::ids::{PacketNumber, PathId};
use crate::wire::packet::TAG_LEN;
use crate::wire::params::Cipher;
use crate::work;
use core::fmt;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use smallvec::SmallVec;
use std::sync::Arc;
use zeroize::Zeroize;

const KEY_LEN: usize = 32;
const IV_LEN: usize = 12;

/// Output of a HKDF expansion with a length that is known beforehand.
pub(super) struct Len(pub usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand from a secret into all of `out`, at most 8160 bytes.
pub(super) fn expand(secret: &RawKey, info: &[&[u8]], out: &mut [u8]) -> Result<(), CryptoError> {
    work::hash();
    let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret.as_bytes());
    prk.expand(info, Len(out.len())).and_then(|okm| okm.fill(out)).map_err(|_| CryptoError::NoKey)
}

const fn algorithm(cipher: Cipher) -> Option<&'static Algorithm> {
    match cipher {
        Cipher::Plaintext => None,
        Cipher::Aes128Gcm => Some(&AES_128_GCM),
        Cipher::Aes256Gcm => Some(&AES_256_GCM),
        Cipher::ChaCha20Poly1305 => Some(&CHACHA20_POLY1305),
    }
}

/// Packets that may fail to open under one generation's keys before the link has to end: far below what makes a forgery likely (RFC 9001 §6.6).
pub(super) const fn integrity_limit(cipher: Cipher) -> u64 {
    match cipher {
        Cipher::ChaCha20Poly1305 => 1 << 36,
        _ => 1 << 52,
    }
}

fn has_aes() -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    {
        std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    {
        false
    }
}

/// The ciphers of this machine, fastest first: AES where the processor has instructions for it, ChaCha20-Poly1305 elsewhere.
pub fn preferred_ciphers() -> SmallVec<[Cipher; 4]> {
    if has_aes() {
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305].into_iter().collect()
    } else {
        [Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm, Cipher::Aes256Gcm].into_iter().collect()
    }
}

/// The responder's choice (P20): nothing is sealed only if both sides wish so; ChaCha20-Poly1305 if either side wants it most; else the responder's
/// favourite among what the initiator offers. `None`: nothing in common.
pub fn choose_cipher(offered: &[Cipher], own: &[Cipher], both_want_plaintext: bool) -> Option<Cipher> {
    if both_want_plaintext {
        return Some(Cipher::Plaintext);
    }
    // An absent list has this default.
    let offered = if offered.is_empty() { &[Cipher::ChaCha20Poly1305] } else { offered };
    let is_common = |c: &Cipher| *c != Cipher::Plaintext && offered.contains(c) && own.contains(c);
    let slow = Cipher::ChaCha20Poly1305;
    if is_common(&slow) && (offered.first() == Some(&slow) || own.first() == Some(&slow)) {
        return Some(slow);
    }
    own.iter().copied().find(is_common)
}

/// Key and IV of one epoch of one path and direction.
pub(super) struct PacketKey {
    /// `None`: plaintext.
    key: Option<LessSafeKey>,
    iv: [u8; IV_LEN],
}

impl PacketKey {
    /// HKDF-Expand from the generation's secret over cipher, path and epoch (P3). Epochs are independent of each other, so that any can be had at once
    /// after an outage.
    pub(super) fn derive(secret: &RawKey, cipher: Cipher, path: PathId, epoch: u64) -> Result<Self, CryptoError> {
        Self::expand(secret, cipher, &[b"noctule packet", &[cipher as u8], &path.0.to_be_bytes(), &epoch.to_be_bytes()])
    }

    /// Key and IV from a secret, for the purpose that `info` names.
    pub(super) fn expand(secret: &RawKey, cipher: Cipher, info: &[&[u8]]) -> Result<Self, CryptoError> {
        let mut material = [0; KEY_LEN + IV_LEN];
        expand(secret, info, &mut material)?;
        let key = match algorithm(cipher) {
            None => None,
            Some(algorithm) => {
                let unbound = UnboundKey::new(algorithm, &material[..algorithm.key_len()]).map_err(|_| CryptoError::NoKey)?;
                Some(LessSafeKey::new(unbound))
            }
        };
        let mut iv = [0; IV_LEN];
        iv.copy_from_slice(&material[KEY_LEN..]);
        material.zeroize();
        Ok(Self { key, iv })
    }

    /// Seals `data` in place and returns its tag. Each nonce must be used once only.
    pub(super) fn seal(&self, nonce: [u8; IV_LEN], header: &[u8], data: &mut [u8]) -> Result<[u8; TAG_LEN], CryptoError> {
        work::aead();
        let Some(key) = &self.key else { return Ok(plain_trailer(&nonce)) };
        let made = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(header), data);
        let made = made.map_err(|_| CryptoError::Misuse("a packet is too long to seal"))?;
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(made.as_ref());
        Ok(tag)
    }

    /// Opens `sealed` = ciphertext | tag in place and returns the plaintext. On failure the content is undefined.
    pub(super) fn open<'a>(&self, nonce: [u8; IV_LEN], header: &[u8], sealed: &'a mut [u8]) -> Result<&'a mut [u8], CryptoError> {
        work::aead();
        match &self.key {
            None => {
                let payload_len = sealed.len().checked_sub(TAG_LEN).ok_or(CryptoError::Packet)?;
                let (payload, tag) = sealed.split_at_mut(payload_len);
                if *tag == plain_trailer(&nonce) { Ok(payload) } else { Err(CryptoError::Packet) }
            }
            Some(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, Aad::from(header), sealed).map_err(|_| CryptoError::Packet)
            }
        }
    }

    /// Nonce = IV xor (path id | packet number), 32 and 64 bits (P3).
    pub(super) fn nonce(&self, path: PathId, number: PacketNumber) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        let position = path.0.to_be_bytes().into_iter().chain(number.0.to_be_bytes());
        nonce.iter_mut().zip(position).for_each(|(n, p)| *n ^= p);
        nonce
    }
}

/// Trailer of a packet that is not sealed: the nonce and zeros. It finds packets taken for others, not bytes changed on the path.
fn plain_trailer(nonce: &[u8; IV_LEN]) -> [u8; TAG_LEN] {
    let mut trailer = [0; TAG_LEN];
    trailer[..IV_LEN].copy_from_slice(nonce);
    trailer
}

/// Seals one packet.
#[derive(Clone)]
pub struct SealJob {
    pub(super) key: Arc<PacketKey>,
    pub(super) nonce: [u8; IV_LEN],
}

impl SealJob {
    /// Seals `packet` = header of `header_len` bytes | payload | [`TAG_LEN`] bytes of any content, in place.
    pub fn seal(&self, packet: &mut [u8], header_len: usize) -> Result<(), CryptoError> {
        let misuse = CryptoError::Misuse("a packet to seal is shorter than its header and tag");
        let body_len = packet.len().checked_sub(TAG_LEN).filter(|&n| n >= header_len).ok_or(misuse)?;
        let (header, rest) = packet.split_at_mut(header_len);
        let (payload, tag) = rest.split_at_mut(body_len - header_len);
        tag.copy_from_slice(&self.key.seal(self.nonce, header, payload)?);
        Ok(())
    }
}

/// Opens one packet.
#[derive(Clone)]
pub struct OpenJob {
    pub(super) key: Arc<PacketKey>,
    pub(super) nonce: [u8; IV_LEN],
    pub(super) path: PathId,
    pub(super) epoch: u64,
    pub(super) generation: u64,
}

impl OpenJob {
    /// Opens `packet` = header of `header_len` bytes | sealed payload | tag, in place; returns the payload. On failure the content is undefined.
    pub fn open<'a>(&self, packet: &'a mut [u8], header_len: usize) -> Result<&'a mut [u8], CryptoError> {
        let (header, sealed) = packet.split_at_mut_checked(header_len).ok_or(CryptoError::Packet)?;
        self.key.open(self.nonce, header, sealed)
    }
    /// Generation of the key (P3).
    pub fn generation(&self) -> u64 {
        self.generation
    }
    /// Epoch of the key (P3).
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Debug for SealJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealJob").finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, epoch, generation, .. } = self;
        f.debug_struct("OpenJob").field("path", path).field("generation", generation).field("epoch", epoch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_cipher_serves_the_slower_side() {
        use Cipher::{Aes128Gcm as A, Aes256Gcm as B, ChaCha20Poly1305 as C, Plaintext as P};
        for (offered, own, plaintext, chosen) in [
            (&[A, B, C][..], &[A, B, C][..], false, Some(A)),
            (&[C, A], &[A, B, C], false, Some(C)),
            (&[A, C], &[C, A], false, Some(C)),
            (&[B], &[A, B, C], false, Some(B)),
            (&[A], &[C], false, None),
            (&[], &[A, C], false, Some(C)),
            (&[P], &[P, A], false, None),
            (&[A], &[A], true, Some(P)),
        ] {
            assert_eq!(choose_cipher(offered, own, plaintext), chosen, "{offered:?} {own:?}");
        }
    }
}
