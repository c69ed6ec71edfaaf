//! What seals the source packets of a relayed session: one AEAD per source packet (P20) and a tag that survives recoding (P16).
//!
//! A sealed symbol is `length u16 | tag bytes[8] | ciphertext`. The tag stands in front of what varies in length, so that relays combine it like any
//! other byte of the symbol and know nothing of it. It covers the length field and the ciphertext. `docs/spec/session.md` §3 has the key schedule.

use super::aead::{PacketKey, expand};
use super::keys::RawKey;
use super::{CryptoError, Established};
use crate::ids::{PacketNumber, PathId, Seq};
use crate::options::{FlowKind, Mode};
use crate::wire::frame::FlowOpen;
use crate::wire::packet::TAG_LEN;
use crate::wire::params::Cipher;
use bytes::{Bytes, BytesMut};
use core::fmt;
use noctule_codes::mac::{MacKey, TAG_LEN as MAC_LEN, Tag};
use std::sync::Arc;
use zeroize::Zeroize;

/// Bytes of the tag that relays recode (P16).
pub const PREFIX: usize = MAC_LEN;
/// Bytes by which sealing lengthens a source packet in all (P6).
pub const OVERHEAD: usize = MAC_LEN + TAG_LEN;
/// Where the ciphertext of a symbol begins: behind length and tag.
const BODY: usize = 2 + PREFIX;
/// Binary logarithm of the source packets that share an AEAD key (RFC 9001 §6.6 allows 2^23).
const EPOCH_LOG2: u8 = 20;
/// Binary logarithm of the source packets whose pads are made at once.
const GROUP_LOG2: u8 = 4;
const GROUP: usize = 1 << GROUP_LOG2;
/// Groups of pads at hand: a span of 64 packets touches five at most.
const GROUPS: usize = 8;
/// Bytes of the MAC's key that one expansion gives.
const MAC_PIECE: usize = 4096;

/// The keys of both directions of a session.
#[derive(Debug)]
pub struct SessionKeys {
    /// For what this side sends.
    pub send: DirectionKeys,
    /// For what this side receives.
    pub receive: DirectionKeys,
}

impl SessionKeys {
    /// The keys that a handshake ended with.
    pub fn new(established: &Established, cipher: Cipher) -> Self {
        let direction = |secret: &RawKey| DirectionKeys { secret: secret.clone(), cipher, mac: None };
        Self { send: direction(&established.send), receive: direction(&established.receive) }
    }
}

/// The secret of one direction of a session.
#[derive(Debug)]
pub struct DirectionKeys {
    secret: RawKey,
    cipher: Cipher,
    /// Shared by the flows of the direction.
    mac: Option<Arc<SymbolMac>>,
}

impl DirectionKeys {
    #[cfg(test)]
    pub(super) fn from_secret(secret: RawKey, cipher: Cipher) -> Self {
        Self { secret, cipher, mac: None }
    }

    /// The key of a flow. It depends on what FLOW_OPEN says for the ends: a relay that changes that makes every packet of the flow fail.
    pub fn flow(&mut self, open: &FlowOpen) -> Result<FlowKey, CryptoError> {
        let longest = usize::from(open.symbol).max(BODY) - BODY;
        let mac = match &self.mac {
            Some(mac) if mac.body.longest() >= longest => mac.clone(),
            _ => self.mac.insert(Arc::new(SymbolMac::new(&self.secret, longest)?)).clone(),
        };
        let mut secret = [0; 32];
        expand(&self.secret, &[b"noctule session flow", &[self.cipher as u8], &binding(open)], &mut secret)?;
        let key = FlowKey::new(RawKey::new(secret), self.cipher, mac);
        secret.zeroize();
        key
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
struct SymbolMac {
    head: MacKey,
    body: MacKey,
}

impl SymbolMac {
    fn new(secret: &RawKey, longest: usize) -> Result<Self, CryptoError> {
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

/// Keys of one flow in one direction.
pub struct FlowKey {
    secret: RawKey,
    cipher: Cipher,
    mac: Arc<SymbolMac>,
    /// AEAD keys of two neighbouring epochs, by the epoch's lowest bit.
    epochs: [Option<(u64, PacketKey)>; 2],
    pad_key: PacketKey,
    pads: [Option<(u64, [u8; GROUP * MAC_LEN])>; GROUPS],
    /// Room that opened packets are cut from.
    slab: BytesMut,
}

/// Bytes of the slabs that opened packets are cut from.
const SLAB: usize = 64 << 10;

impl FlowKey {
    fn new(secret: RawKey, cipher: Cipher, mac: Arc<SymbolMac>) -> Result<Self, CryptoError> {
        let pad_key = PacketKey::expand(&secret, cipher, &[b"noctule session pads", &[cipher as u8]])?;
        Ok(Self { secret, cipher, mac, epochs: [None, None], pad_key, pads: [None; GROUPS], slab: BytesMut::new() })
    }

    /// The key of a stream that has no session (docs/spec/blind.md), from a secret of its own; symbols are at most `symbol` bytes long.
    ///
    /// # Errors
    /// None with 32 bytes.
    pub fn of_stream(secret: &[u8; 32], symbol: u16) -> Result<Self, CryptoError> {
        let cipher = Cipher::ChaCha20Poly1305; // nobody can be asked what he prefers
        let mut stream = [0; 32];
        expand(&RawKey::new(*secret), &[b"noctule blind stream", &[cipher as u8]], &mut stream)?;
        let key = RawKey::new(stream);
        stream.zeroize();
        let mac = Arc::new(SymbolMac::new(&key, usize::from(symbol).max(BODY) - BODY)?);
        Self::new(key, cipher, mac)
    }

    fn epoch_key(&mut self, seq: Seq) -> Result<&PacketKey, CryptoError> {
        let epoch = seq.0 >> EPOCH_LOG2;
        let slot = &mut self.epochs[(epoch & 1) as usize];
        if slot.as_ref().is_none_or(|(of, _)| *of != epoch) {
            let info: [&[u8]; 3] = [b"noctule session packet", &[self.cipher as u8], &epoch.to_be_bytes()];
            *slot = Some((epoch, PacketKey::expand(&self.secret, self.cipher, &info)?));
        }
        slot.as_ref().map(|(_, key)| key).ok_or(CryptoError::NoKey)
    }

    /// F(flow, sequence number) of the MAC: a pad is used for one packet only.
    ///
    /// # Errors
    /// None that can occur with a key of 32 bytes.
    pub fn pad(&mut self, seq: u64) -> Result<Tag, CryptoError> {
        let group = seq >> GROUP_LOG2;
        let slot = &mut self.pads[(group % GROUPS as u64) as usize];
        if slot.as_ref().is_none_or(|(of, _)| *of != group) {
            let mut stream = [0; GROUP * MAC_LEN];
            self.pad_key.seal(self.pad_key.nonce(PathId(0), PacketNumber(group)), &[], &mut stream)?;
            *slot = Some((group, stream));
        }
        let mut pad = [0; MAC_LEN];
        if let Some((_, stream)) = slot {
            let at = (seq % GROUP as u64) as usize * MAC_LEN;
            pad.copy_from_slice(&stream[at..at + MAC_LEN]);
        }
        Ok(pad)
    }

    /// Seals a symbol in place: `2 + PREFIX bytes | plaintext | 16 bytes` becomes `length | tag | ciphertext`.
    ///
    /// To be called once per sequence number (P20).
    pub fn seal(&mut self, seq: Seq, symbol: &mut [u8]) -> Result<(), CryptoError> {
        let pad = self.pad(seq.0)?;
        let key = self.epoch_key(seq)?;
        let end = symbol.len().checked_sub(TAG_LEN).filter(|end| *end >= BODY);
        let (front, trailer) = symbol.split_at_mut(end.ok_or(CryptoError::Misuse("a symbol to seal has no room for its tags"))?);
        trailer.copy_from_slice(&key.seal(key.nonce(PathId(0), PacketNumber(seq.0)), &[], &mut front[BODY..])?);
        let length = (symbol.len() - 2) as u16;
        symbol[..2].copy_from_slice(&length.to_be_bytes()); // P5
        let tag = self.mac.body.tag(&symbol[BODY..], self.mac.head.tag(&symbol[..2], pad));
        symbol[2..BODY].copy_from_slice(&tag);
        Ok(())
    }

    /// Opens what a symbol holds behind its length field: tag | ciphertext.
    pub fn open(&mut self, seq: Seq, sealed: &Bytes) -> Result<Bytes, CryptoError> {
        let sealed = sealed.get(PREFIX..).ok_or(CryptoError::Packet)?;
        if self.slab.capacity() < sealed.len() {
            self.slab.reserve(SLAB.max(sealed.len()));
        }
        let mut room = core::mem::take(&mut self.slab);
        room.extend_from_slice(sealed);
        let mut opened = room.split();
        self.slab = room;
        let key = self.epoch_key(seq)?;
        let len = key.open(key.nonce(PathId(0), PacketNumber(seq.0)), &[], &mut opened)?.len();
        opened.truncate(len);
        Ok(opened.freeze())
    }

    /// Whether `symbol` is the combination of sealed packets that it claims to be: `coefficients[j]` times packet `base + j`, summed (P16).
    ///
    /// Packets whose coefficient is 0 do not take part.
    pub fn is_sound(&mut self, base: Seq, coefficients: &[u8], symbol: &[u8]) -> bool {
        let mut pads = [[0; MAC_LEN]; noctule_codes::span::MAX_SPAN];
        if coefficients.len() > pads.len() {
            return false;
        }
        for (j, _) in coefficients.iter().enumerate().filter(|(_, c)| **c != 0) {
            let Some(seq) = base.0.checked_add(j as u64) else { return false };
            let Ok(pad) = self.pad(seq) else { return false };
            pads[j] = pad;
        }
        self.is_sound_with(&pads[..coefficients.len()], coefficients, symbol)
    }

    /// As [`is_sound`](Self::is_sound) for packets with these pads, which need not follow each other.
    pub fn is_sound_with(&self, pads: &[Tag], coefficients: &[u8], symbol: &[u8]) -> bool {
        // Zeros at the end are not sent (P5).
        let mut tag = [0; MAC_LEN];
        let given = symbol.get(2..).unwrap_or(&[]);
        let given = &given[..given.len().min(MAC_LEN)];
        tag[..given.len()].copy_from_slice(given);
        let tag = self.mac.head.tag(&symbol[..symbol.len().min(2)], tag);
        self.mac.body.check(symbol.get(BODY..).unwrap_or(&[]), coefficients, pads, tag)
    }

    /// Bytes of memory held, the MAC's key not counted, which all flows of a direction share.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.slab.capacity()
    }
}

impl fmt::Debug for SymbolMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SymbolMac(..)")
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FlowLabel, SessionKey};
    use crate::options::Class;
    use crate::units::Probability;
    use noctule_codes::gf256::{kernels, mul};

    const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    fn open(index: u64) -> FlowOpen {
        FlowOpen { index, ..crate::crypto::vector_tests::flow_open() }
    }

    fn direction(cipher: Cipher) -> DirectionKeys {
        DirectionKeys::from_secret(RawKey::new([7; 32]), cipher)
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
        let border = 1 << EPOCH_LOG2;
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
        let mut other = DirectionKeys::from_secret(RawKey::new([8; 32]), Cipher::Aes128Gcm).flow(&open(1)).unwrap();
        assert!(!other.is_sound(Seq(0), &[1], &a) && other.open(Seq(0), &a.slice(2..)).is_err());
    }

    #[test]
    fn the_longest_symbol_that_a_flow_can_have_is_sealed() {
        let mut keys = direction(Cipher::Aes128Gcm);
        let small = keys.flow(&open(1)).unwrap();
        assert!(small.mac.body.longest() < 2000);
        let mut large = keys.flow(&FlowOpen { symbol: u16::MAX, ..open(1) }).unwrap();
        let symbol = sealed(&mut large, 0, &vec![5; usize::from(u16::MAX) - 2 - OVERHEAD]);
        assert_eq!(symbol.len(), usize::from(u16::MAX));
        assert!(large.is_sound(Seq(0), &[1], &symbol));
        let mut small = small;
        let short = sealed(&mut small, 1, b"short");
        assert!(large.is_sound(Seq(1), &[1], &short), "a longer key begins like a shorter one");
        assert!(keys.flow(&open(3)).unwrap().mac.body.longest() > 60_000, "kept for further flows");
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
