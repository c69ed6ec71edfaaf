//! What seals the source packets of a relayed session: one AEAD per source packet (P20) and a tag that survives recoding (P16).
//!
//! A sealed symbol is `length u16 | tag bytes[8] | ciphertext`. The tag stands in front of what varies in length, so that relays combine it like any
//! other byte of the symbol and know nothing of it. It covers the length field and the ciphertext. `docs/spec/session.md` §3 has the key schedule.

use super::aead::expand;
use super::flow_key::{FlowGeneration, FlowKey};
use super::keys::RawKey;
use super::session_renewal::Renewal;
use super::{CryptoError, Established};
use crate::options::{FlowKind, Mode};
use crate::wire::frame::FlowOpen;
use crate::wire::frame::OpeningProof;
use crate::wire::packet::TAG_LEN;
use crate::wire::params::Cipher;
use crate::work;
use core::fmt;
use noctule_codes::mac::{MacKey, TAG_LEN as MAC_LEN};
use ring::hmac;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroize;

/// Bytes of the tag that relays recode (P16).
pub const PREFIX: usize = MAC_LEN;
/// Bytes by which sealing lengthens a source packet in all (P6).
pub const OVERHEAD: usize = MAC_LEN + TAG_LEN;
/// Where the ciphertext of a symbol begins: behind length and tag.
pub(super) const BODY: usize = 2 + PREFIX;
/// Bytes of the MAC's key that one expansion gives.
const MAC_PIECE: usize = 4096;

/// The keys of both directions of a session.
#[derive(Debug)]
pub struct SessionKeys {
    /// For what this side sends.
    pub send: DirectionKeys,
    /// For what this side receives.
    pub receive: DirectionKeys,
    /// How the next ones are agreed.
    pub renewal: Renewal,
}

impl SessionKeys {
    /// The keys that a handshake ended with.
    ///
    /// # Errors
    /// None with secrets of 32 bytes.
    pub fn new(established: &Established, cipher: Cipher, is_opener: bool) -> Result<Self, CryptoError> {
        let (send, receive) = (&established.send, &established.receive);
        let (from_opener, from_acceptor) = if is_opener { (send, receive) } else { (receive, send) };
        Ok(Self {
            send: DirectionKeys::new(send.clone(), cipher)?,
            receive: DirectionKeys::new(receive.clone(), cipher)?,
            renewal: Renewal::new(from_opener, from_acceptor, established.hash, is_opener)?,
        })
    }

    /// Packets sealed and opened under the newest secrets.
    pub fn packets(&self) -> u64 {
        self.send.packets() + self.receive.packets()
    }
}

/// The secrets of one direction of a session.
#[derive(Debug)]
pub struct DirectionKeys {
    /// Of the newest generation.
    secret: RawKey,
    /// Of the generation before, until all that it sealed is here.
    older: Option<RawKey>,
    cipher: Cipher,
    /// What the key of the MAC is made from, in all generations: combinations reach over the border between two.
    mac_secret: RawKey,
    /// Shared by the flows of the direction.
    mac: Option<Arc<SymbolMac>>,
    openings: hmac::Key,
    /// Packets under the newest secret.
    packets: Arc<AtomicU64>,
}

impl DirectionKeys {
    /// From the secret of the first generation.
    pub(super) fn new(secret: RawKey, cipher: Cipher) -> Result<Self, CryptoError> {
        let derived = |label: &[u8]| {
            let mut key = [0; 32];
            expand(&secret, &[label], &mut key)?;
            let made = RawKey::new(key);
            key.zeroize();
            Ok::<_, CryptoError>(made)
        };
        let (mac_secret, openings) = (derived(b"noctule session mac secret")?, derived(b"noctule session opening")?);
        let openings = hmac::Key::new(hmac::HMAC_SHA256, openings.as_bytes());
        Ok(Self { secret, older: None, cipher, mac_secret, mac: None, openings, packets: Arc::default() })
    }

    /// The next generation. The present secret is kept until [`forget_older`](Self::forget_older) if packets that it sealed may still come.
    pub fn renew(&mut self, secret: RawKey, keeps_older: bool) {
        let old = core::mem::replace(&mut self.secret, secret);
        self.older = keeps_older.then_some(old);
        self.packets = Arc::default();
    }

    /// Nothing that the generation before sealed is missing.
    pub fn forget_older(&mut self) {
        self.older = None;
    }

    /// The generation before is still needed.
    pub fn has_older(&self) -> bool {
        self.older.is_some()
    }

    fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// The newest generation's key for a flow that has one of the generation before.
    ///
    /// # Errors
    /// None with secrets of 32 bytes.
    pub fn next_generation(&self, open: &FlowOpen) -> Result<FlowGeneration, CryptoError> {
        self.layer(&self.secret, open)
    }

    fn layer(&self, secret: &RawKey, open: &FlowOpen) -> Result<FlowGeneration, CryptoError> {
        let mut of_flow = [0; 32];
        expand(secret, &[b"noctule session flow", &[self.cipher as u8], &binding(open)], &mut of_flow)?;
        let layer = FlowGeneration::new(RawKey::new(of_flow), self.cipher, self.packets.clone());
        of_flow.zeroize();
        layer
    }

    /// What shows the destination that the source opens a flow as this FLOW_OPEN says: the flow, its part, its incarnation and its first packet.
    pub fn opening_proof(&self, open: &FlowOpen) -> OpeningProof {
        work::hash();
        let mut statement = binding(open);
        let (incarnation, first) = open.relayed.map_or((0, 0), |r| (r.incarnation, r.first.0));
        statement.extend_from_slice(&open.part().to_be_bytes());
        statement.extend_from_slice(&incarnation.to_be_bytes());
        statement.extend_from_slice(&first.to_be_bytes());
        let mut proof = OpeningProof::default();
        let tag = hmac::sign(&self.openings, &statement);
        proof.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        proof
    }

    /// The owner of the keys opens the flow as this FLOW_OPEN says.
    pub fn proves_opening(&self, open: &FlowOpen) -> bool {
        let Some(proof) = open.relayed.and_then(|r| r.proof) else { return false };
        // In constant time.
        self.opening_proof(open).iter().zip(proof).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }

    /// The key of a flow. It depends on what FLOW_OPEN says for the ends: a relay that changes that makes every packet of the flow fail.
    pub fn flow(&mut self, open: &FlowOpen) -> Result<FlowKey, CryptoError> {
        let longest = usize::from(open.symbol).max(BODY) - BODY;
        let mac = match &self.mac {
            Some(mac) if mac.body.longest() >= longest => mac.clone(),
            _ => self.mac.insert(Arc::new(SymbolMac::new(&self.mac_secret, longest)?)).clone(),
        };
        let newest = self.layer(&self.secret, open)?;
        Ok(match &self.older {
            // It may have begun under the generation before.
            Some(older) => {
                let mut key = FlowKey::new(self.layer(older, open)?, mac);
                key.expect(newest);
                key
            }
            None => FlowKey::new(newest, mac),
        })
    }
}

/// What the two ends agree on and no relay may change.
fn binding(open: &FlowOpen) -> Vec<u8> {
    let mut out = open.index.to_be_bytes().to_vec();
    out.push(match open.mode {
        Mode::Brtp => 0,
        Mode::Btp => 1,
        Mode::Transparent => 2,
    });
    out.push(match open.kind {
        FlowKind::OrderedMessages => 0,
        FlowKind::UnorderedMessages => 1,
        FlowKind::Stream => 2,
    });
    out.push(open.batch_size);
    out.push(u8::from(open.answers.is_some()) << 1 | u8::from(open.bidirectional) << 2);
    out.extend_from_slice(&open.answers.unwrap_or(0).to_be_bytes());
    out.extend_from_slice(&open.tag.to_be_bytes());
    if open.part() > 0 {
        out.extend_from_slice(&open.part().to_be_bytes());
    }
    out
}

/// The MAC's key: eight bytes for the length field, the rest for the ciphertext.
pub(super) struct SymbolMac {
    pub(super) head: MacKey,
    pub(super) body: MacKey,
}

impl SymbolMac {
    pub(super) fn new(secret: &RawKey, longest: usize) -> Result<Self, CryptoError> {
        let mut material = vec![0; MAC_LEN + longest.next_multiple_of(MAC_LEN).max(MAC_LEN)];
        for (i, piece) in material.chunks_mut(MAC_PIECE).enumerate() {
            expand(secret, &[b"noctule session mac", &(i as u32).to_be_bytes()], piece)?;
        }
        let keys = (MacKey::new(&material[..MAC_LEN]), MacKey::new(&material[MAC_LEN..]));
        material.zeroize();
        match keys {
            (Some(head), Some(body)) => Ok(Self { head, body }),
            _ => Err(CryptoError::Misuse("the key of the MAC has no whole elements")),
        }
    }
}

impl fmt::Debug for SymbolMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SymbolMac(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FlowLabel, Seq, SessionKey};
    use crate::options::Class;
    use crate::units::Probability;
    use bytes::{Bytes, BytesMut};
    use noctule_codes::gf256::{kernels, mul};

    const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    fn open(index: u64) -> FlowOpen {
        FlowOpen { index, ..crate::crypto::vector_tests::flow_open() }
    }

    fn direction(cipher: Cipher) -> DirectionKeys {
        DirectionKeys::new(RawKey::new([7; 32]), cipher).unwrap()
    }

    fn sealed(key: &mut FlowKey, seq: u64, plain: &[u8]) -> Bytes {
        let mut symbol = BytesMut::zeroed(BODY);
        symbol.extend_from_slice(plain);
        symbol.extend_from_slice(&[0; TAG_LEN]);
        key.seal(Seq(seq), &mut symbol).unwrap();
        assert_eq!(symbol.len(), 2 + OVERHEAD + plain.len());
        symbol.freeze()
    }

    /// A combination as a relay makes it: over symbols of different length, padded.
    fn combine(rows: &[(u8, &Bytes)]) -> Vec<u8> {
        let mut out = vec![0; rows.iter().map(|(_, s)| s.len()).max().unwrap()];
        rows.iter().for_each(|(c, s)| kernels().mul_add(&mut out[..s.len()], s, *c));
        out
    }

    #[test]
    fn a_packet_survives_sealing_recoding_and_opening_with_every_cipher() {
        for cipher in CIPHERS {
            let mut sender = direction(cipher).flow(&open(1)).unwrap();
            let mut receiver = direction(cipher).flow(&open(1)).unwrap();
            let plain: Vec<Vec<u8>> = (0..16u8).map(|i| vec![i; 1 + usize::from(i) * 80]).collect();
            let symbols: Vec<Bytes> = plain.iter().enumerate().map(|(i, p)| sealed(&mut sender, 32 + i as u64, p)).collect();
            let coefficients: Vec<u8> = (0..16u8).map(|i| i.wrapping_mul(37) & 0xfe).collect();
            let rows: Vec<_> = coefficients.iter().copied().zip(&symbols).collect();
            let mixed = combine(&rows);
            assert!(receiver.is_sound(Seq(32), &coefficients, &mixed), "{cipher:?}");
            // A relay recodes what it recoded before.
            let twice = combine(&[(9, &mixed.clone().into()), (1, &symbols[3])]);
            let mut vector: Vec<u8> = coefficients.iter().map(|c| mul(9, *c)).collect();
            vector[3] ^= 1;
            assert!(receiver.is_sound(Seq(32), &vector, &twice));
            for (i, symbol) in symbols.iter().enumerate().rev() {
                assert!(receiver.is_sound(Seq(32 + i as u64), &[1], symbol));
                assert_eq!(receiver.open(Seq(32 + i as u64), &symbol.slice(2..)).unwrap(), plain[i]);
            }
        }
    }

    #[test]
    fn every_single_changed_byte_of_symbol_or_coefficients_is_noticed() {
        let mut key = direction(Cipher::ChaCha20Poly1305).flow(&open(1)).unwrap();
        let symbols: Vec<Bytes> = (0..4).map(|i| sealed(&mut key, i, &[i as u8; 40])).collect();
        let coefficients = [3, 0, 90, 255];
        let rows: Vec<_> = coefficients.iter().copied().zip(&symbols).collect();
        let mixed = combine(&rows);
        for at in 0..mixed.len() {
            let mut wrong = mixed.clone();
            wrong[at] ^= 0x10;
            assert!(!key.is_sound(Seq(0), &coefficients, &wrong), "byte {at}");
        }
        for at in 0..4 {
            let mut wrong = coefficients;
            wrong[at] ^= 1;
            assert!(!key.is_sound(Seq(0), &wrong, &mixed), "coefficient {at}");
        }
        assert!(!key.is_sound(Seq(1), &coefficients, &mixed), "another place of the flow");
        assert!(!key.is_sound(Seq(0), &coefficients, &mixed[..mixed.len() - 1]), "cut off");
        assert!(!key.is_sound(Seq(0), &[1], &[]), "nothing at all");
        assert!(!key.is_sound(Seq(u64::MAX), &[1, 1], &mixed), "beyond the last sequence number");
        assert!(!key.is_sound(Seq(0), &[1; 65], &mixed), "a span too long");
    }

    #[test]
    fn what_flow_open_says_for_the_ends_is_part_of_the_key_and_what_relays_lower_is_not() {
        let base = open(1);
        let is_same = |other: FlowOpen| {
            let mut keys = direction(Cipher::Aes128Gcm);
            let symbol = sealed(&mut keys.flow(&base).unwrap(), 5, b"hello");
            keys.flow(&other).unwrap().is_sound(Seq(5), &[1], &symbol)
        };
        let b = || base.clone();
        assert!(is_same(b()));
        assert!(is_same(FlowOpen { symbol: 1201, hop_limit: 2, lifetime: None, label: FlowLabel(99), class: Class::Bulk, ..b() }));
        for other in [
            FlowOpen { index: 2, ..b() },
            FlowOpen { mode: Mode::Brtp, ..b() },
            FlowOpen { kind: FlowKind::Stream, ..b() },
            FlowOpen { batch_size: 32, ..b() },
            FlowOpen { answers: None, ..b() },
            FlowOpen { answers: Some(3), ..b() },
            FlowOpen { bidirectional: false, ..b() },
            FlowOpen { tag: 78, ..b() },
        ] {
            assert!(!is_same(other.clone()), "{other:?}");
        }
        assert!(
            is_same(FlowOpen { session: SessionKey(1), no_retransmit: Probability::new(0.5), ..b() }),
            "bound by the handshake, or a wish"
        );
    }

    #[test]
    fn packets_of_neighbouring_key_epochs_open_in_any_order() {
        let mut sender = direction(Cipher::Aes256Gcm).flow(&open(1)).unwrap();
        let mut receiver = direction(Cipher::Aes256Gcm).flow(&open(1)).unwrap();
        let border = 1 << 20;
        let symbols: Vec<(u64, Bytes)> = (border - 3..border + 3).map(|seq| (seq, sealed(&mut sender, seq, b"x"))).collect();
        for (seq, symbol) in symbols.iter().rev().chain(&symbols) {
            assert!(receiver.is_sound(Seq(*seq), &[1], symbol));
            assert_eq!(receiver.open(Seq(*seq), &symbol.slice(2..)).unwrap(), &b"x"[..]);
            assert!(receiver.open(Seq(*seq + 1), &symbol.slice(2..)).is_err(), "a packet opens in its place only");
        }
    }

    #[test]
    fn equal_plaintexts_differ_everywhere_once_sealed_and_directions_do_not_mix() {
        let mut key = direction(Cipher::Aes128Gcm).flow(&open(1)).unwrap();
        let (a, b) = (sealed(&mut key, 0, &[0; 64]), sealed(&mut key, 1, &[0; 64]));
        assert!(a[2..10] != b[2..10] && a[10..26] != b[10..26]);
        let mut other = DirectionKeys::new(RawKey::new([8; 32]), Cipher::Aes128Gcm).unwrap().flow(&open(1)).unwrap();
        assert!(!other.is_sound(Seq(0), &[1], &a) && other.open(Seq(0), &a.slice(2..)).is_err());
    }

    #[test]
    fn the_longest_symbol_that_a_flow_can_have_is_sealed() {
        let mut keys = direction(Cipher::Aes128Gcm);
        let small = keys.flow(&open(1)).unwrap();
        assert!(small.longest() < 2000);
        let mut large = keys.flow(&FlowOpen { symbol: u16::MAX, ..open(1) }).unwrap();
        let symbol = sealed(&mut large, 0, &vec![5; usize::from(u16::MAX) - 2 - OVERHEAD]);
        assert_eq!(symbol.len(), usize::from(u16::MAX));
        assert!(large.is_sound(Seq(0), &[1], &symbol));
        let mut small = small;
        let short = sealed(&mut small, 1, b"short");
        assert!(large.is_sound(Seq(1), &[1], &short), "a longer key begins like a shorter one");
        assert!(keys.flow(&open(3)).unwrap().longest() > 60_000, "kept for further flows");
    }

    #[test]
    fn rubbish_never_opens_and_never_panics() {
        let mut key = direction(Cipher::ChaCha20Poly1305).flow(&open(1)).unwrap();
        for len in [0, 1, 7, 8, 23, 24, 25, 3000] {
            let rubbish = Bytes::from(vec![0xa5; len]);
            assert!(key.open(Seq(0), &rubbish).is_err());
            assert!(!key.is_sound(Seq(0), &[1], &rubbish));
        }
    }
}
