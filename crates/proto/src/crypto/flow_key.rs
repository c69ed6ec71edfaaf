//! The keys of one flow of a relayed session: what seals, checks and opens its source packets, and how they pass from one generation to the next.
//!
//! Nothing on the wire says which generation sealed a packet: relays must not know. A receiver has the keys of two for as long as packets of the older one may come,
//! and finds out where the border lies: its MAC fits under one of them only. What seals has one generation and leaves it at any packet.

use super::CryptoError;
use super::aead::{PacketKey, expand};
use super::keys::RawKey;
use super::session_keys::{BODY, PREFIX, SymbolMac};
use crate::ids::{PacketNumber, PathId, Seq};
use crate::wire::packet::TAG_LEN;
use crate::wire::params::Cipher;
use bytes::{Bytes, BytesMut};
use core::fmt;
use noctule_codes::gf256::mul;
use noctule_codes::mac::{TAG_LEN as MAC_LEN, Tag};
use noctule_codes::span::MAX_SPAN;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroize;

/// Binary logarithm of the source packets that share an AEAD key (RFC 9001 §6.6 allows 2^23).
const EPOCH_LOG2: u8 = 20;
/// Binary logarithm of the source packets whose pads are made at once.
const GROUP_LOG2: u8 = 4;
const GROUP: usize = 1 << GROUP_LOG2;
/// Groups of pads at hand: a span of 64 packets touches five at most.
const GROUPS: usize = 8;
/// Bytes of the slabs that opened packets are cut from.
const SLAB: usize = 64 << 10;

/// The keys of one flow in one generation.
pub struct FlowGeneration {
    secret: RawKey,
    cipher: Cipher,
    /// AEAD keys of two neighbouring epochs, by the epoch's lowest bit.
    epochs: [Option<(u64, PacketKey)>; 2],
    pad_key: PacketKey,
    pads: [Option<(u64, [u8; GROUP * MAC_LEN])>; GROUPS],
    /// Packets sealed or opened in the generation, by all flows of the direction.
    packets: Arc<AtomicU64>,
}

impl FlowGeneration {
    pub(super) fn new(secret: RawKey, cipher: Cipher, packets: Arc<AtomicU64>) -> Result<Self, CryptoError> {
        let pad_key = PacketKey::expand(&secret, cipher, &[b"noctule session pads", &[cipher as u8]])?;
        Ok(Self { secret, cipher, epochs: [None, None], pad_key, pads: [None; GROUPS], packets })
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

    /// F(flow, sequence number) of the MAC.
    fn pad(&mut self, seq: u64) -> Result<Tag, CryptoError> {
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

    /// Opens a copy of what was sealed.
    fn open(&mut self, seq: Seq, sealed: &[u8], slab: &mut BytesMut) -> Result<Bytes, CryptoError> {
        if slab.capacity() < sealed.len() {
            slab.reserve(SLAB.max(sealed.len()));
        }
        let mut room = core::mem::take(slab);
        room.extend_from_slice(sealed);
        let mut opened = room.split();
        *slab = room;
        let key = self.epoch_key(seq)?;
        let len = key.open(key.nonce(PathId(0), PacketNumber(seq.0)), &[], &mut opened)?.len();
        opened.truncate(len);
        self.packets.fetch_add(1, Ordering::Relaxed);
        Ok(opened.freeze())
    }
}

/// The generation before the newest, as long as packets that it sealed may come.
struct Older {
    layer: FlowGeneration,
    /// Packets below are its own, those from `upper` on the newest's; between lies the border.
    lower: u64,
    upper: u64,
}

/// What is kept of a generation that is gone: the pads of its last packets, which combinations over the border are checked with. They open nothing.
struct Edge {
    /// First packet of the generation after it.
    border: u64,
    /// Pads of the packets before that.
    pads: Vec<Tag>,
}

impl Edge {
    fn pad(&self, seq: u64) -> Option<Tag> {
        let back = usize::try_from(self.border.checked_sub(seq)?).ok()?;
        self.pads.get(self.pads.len().checked_sub(back)?).copied()
    }
}

/// Keys of one flow in one direction.
pub struct FlowKey {
    newest: FlowGeneration,
    older: Option<Older>,
    edge: Option<Edge>,
    mac: Arc<SymbolMac>,
    /// Room that opened packets are cut from.
    slab: BytesMut,
}

impl FlowKey {
    pub(super) fn new(layer: FlowGeneration, mac: Arc<SymbolMac>) -> Self {
        Self { newest: layer, older: None, edge: None, mac, slab: BytesMut::new() }
    }

    /// The key of a stream that has no session (docs/spec/blind.md), from a secret of its own; symbols are at most `symbol` bytes long.
    ///
    /// # Errors
    /// None with 32 bytes.
    pub fn of_stream(secret: &[u8; 32], symbol: u16) -> Result<Self, CryptoError> {
        let cipher = Cipher::ChaCha20Poly1305; // nobody can be asked for a preference
        let mut stream = [0; 32];
        expand(&RawKey::new(*secret), &[b"noctule blind stream", &[cipher as u8]], &mut stream)?;
        let key = RawKey::new(stream);
        stream.zeroize();
        let mac = Arc::new(SymbolMac::new(&key, usize::from(symbol).max(BODY) - BODY)?);
        Ok(Self::new(FlowGeneration::new(key, cipher, Arc::default())?, mac))
    }

    /// Sending: the next packet is the first that the next generation seals. What was sealed before stays as it is, and its key is gone.
    pub fn renew(&mut self, next: FlowGeneration) {
        self.newest = next;
    }

    /// Receiving: from some packet on the next generation seals. To be called only when nothing of the generation before the present one is missing.
    pub fn expect(&mut self, next: FlowGeneration) {
        let layer = core::mem::replace(&mut self.newest, next);
        let lower = self.edge.as_ref().map_or(0, |edge| edge.border);
        self.older = Some(Older { layer, lower, upper: u64::MAX });
    }

    /// Bytes of the longest ciphertext that the key of the MAC covers.
    #[cfg(test)]
    pub(super) fn longest(&self) -> usize {
        self.mac.body.longest()
    }

    /// Receiving: packets of the generation before the newest may still come, and the far end has said, or its packets have shown, how many there are.
    pub fn has_older_with_border(&self) -> bool {
        self.older.as_ref().is_some_and(|older| older.upper < u64::MAX)
    }

    /// Receiving: the far end has nothing more of the generation before, of which all that there was is below `done`.
    pub fn end_older(&mut self, done: u64) {
        if let Some(older) = &mut self.older
            && older.upper == u64::MAX
        {
            (older.lower, older.upper) = (done, done);
        }
    }

    /// Receiving: packets of the generation before the newest may still come.
    pub fn has_older(&self) -> bool {
        self.older.is_some()
    }

    /// Receiving: the far end says which packet is the first of the newest generation.
    pub fn set_border(&mut self, first: u64) {
        if let Some(older) = &mut self.older {
            // What its own packets have shown before is the same, or it lies to its own harm.
            (older.lower, older.upper) = (first, first);
        }
    }

    /// Receiving: all packets below `done` are here or given up. The older generation is forgotten when it has sealed nothing else.
    pub fn settle(&mut self, done: u64) -> Result<(), CryptoError> {
        let Some(older) = &mut self.older else { return Ok(()) };
        if older.upper > done {
            return Ok(());
        }
        let border = older.upper;
        let mut pads = Vec::with_capacity(MAX_SPAN);
        for seq in border.saturating_sub(MAX_SPAN as u64)..border {
            let before = self.edge.as_ref().filter(|edge| seq < edge.border);
            pads.push(match before {
                Some(edge) => edge.pad(seq).unwrap_or_default(),
                None => older.layer.pad(seq)?,
            });
        }
        self.edge = Some(Edge { border, pads });
        self.older = None;
        Ok(())
    }

    /// F(flow, sequence number) of the MAC in the newest generation: a pad is used for one packet only.
    ///
    /// # Errors
    /// None that can occur with a key of 32 bytes.
    pub fn pad(&mut self, seq: u64) -> Result<Tag, CryptoError> {
        self.newest.pad(seq)
    }

    /// Seals a symbol in place: `2 + PREFIX bytes | plaintext | 16 bytes` becomes `length | tag | ciphertext`.
    ///
    /// To be called once per sequence number (P20).
    pub fn seal(&mut self, seq: Seq, symbol: &mut [u8]) -> Result<(), CryptoError> {
        let pad = self.newest.pad(seq.0)?;
        self.newest.packets.fetch_add(1, Ordering::Relaxed);
        let key = self.newest.epoch_key(seq)?;
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
        let Some(older) = &mut self.older else { return self.newest.open(seq, sealed, &mut self.slab) };
        if seq.0 >= older.lower
            && let Ok(opened) = self.newest.open(seq, sealed, &mut self.slab)
        {
            older.upper = older.upper.min(seq.0);
            return Ok(opened);
        }
        if seq.0 >= older.upper {
            return Err(CryptoError::Packet);
        }
        let opened = older.layer.open(seq, sealed, &mut self.slab)?;
        older.lower = older.lower.max(seq.0 + 1);
        Ok(opened)
    }

    /// Whether `symbol` is the combination of sealed packets that it claims to be: `coefficients[j]` times packet `base + j`, summed (P16).
    ///
    /// Packets whose coefficient is 0 do not take part. What covers nothing but packets of a generation that is gone is sound: all of these are known, so that it
    /// tells nothing and changes nothing.
    pub fn is_sound(&mut self, base: Seq, coefficients: &[u8], symbol: &[u8]) -> bool {
        let mut pads = [[0; MAC_LEN]; MAX_SPAN];
        if coefficients.len() > pads.len() || base.0.checked_add(coefficients.len() as u64).is_none() {
            return false;
        }
        let border = self.edge.as_ref().map_or(0, |edge| edge.border);
        let taking_part = || coefficients.iter().zip(base.0..).enumerate().filter(|(_, (c, _))| **c != 0);
        if border > 0 && taking_part().all(|(_, (_, seq))| seq < border) {
            return true;
        }
        for (j, (_, seq)) in taking_part() {
            let pad = match &self.edge {
                Some(edge) if seq < edge.border => edge.pad(seq),
                _ => match &mut self.older {
                    Some(older) if seq < older.lower => older.layer.pad(seq).ok(),
                    _ => self.newest.pad(seq).ok(),
                },
            };
            let Some(pad) = pad else { return false };
            pads[j] = pad;
        }
        if self.is_sound_with(&pads[..coefficients.len()], coefficients, symbol) {
            // The first that is no more than perhaps the older one's is the newest's.
            if let Some(older) = &mut self.older
                && let Some((_, (_, first))) = taking_part().find(|(_, (_, seq))| *seq >= older.lower)
            {
                older.upper = older.upper.min(first);
            }
            return true;
        }
        self.is_sound_over_border(base.0, coefficients, symbol, &mut pads)
    }

    /// The same where the border lies somewhere among the packets: it is moved up by one until the tag fits. `pads`: as if all in doubt were the newest's.
    fn is_sound_over_border(&mut self, base: u64, coefficients: &[u8], symbol: &[u8], pads: &mut [Tag; MAX_SPAN]) -> bool {
        let Some((lower, upper)) = self.older.as_ref().map(|older| (older.lower, older.upper)) else { return false };
        // What the tag lacks with the pads as they are.
        let mut rest = self.rest(coefficients, symbol, &pads[..coefficients.len()]);
        for (j, (c, seq)) in coefficients.iter().zip(base..).enumerate() {
            if *c == 0 || seq < lower {
                continue;
            }
            if seq >= upper {
                break;
            }
            let Some(older) = &mut self.older else { return false };
            let Ok(pad) = older.layer.pad(seq) else { return false };
            rest.iter_mut().zip(pad).zip(pads[j]).for_each(|((r, old), new)| *r ^= mul(*c, old ^ new));
            if rest.iter().fold(0, |all, r| all | r) == 0 {
                older.lower = older.lower.max(seq + 1);
                let next = coefficients.iter().zip(base..).find(|(c, later)| **c != 0 && *later > seq);
                older.upper = next.map_or(older.upper, |(_, first)| older.upper.min(first));
                return true;
            }
        }
        false
    }

    /// The tag of a symbol without its content and these pads: zero if all of it is right.
    fn rest(&self, coefficients: &[u8], symbol: &[u8], pads: &[Tag]) -> Tag {
        let tag = self.mac.body.tag(symbol.get(BODY..).unwrap_or(&[]), self.head_of(symbol));
        let sum = noctule_codes::mac::combine(coefficients, pads);
        let mut rest = tag;
        rest.iter_mut().zip(sum).for_each(|(r, s)| *r ^= s);
        rest
    }

    /// The tag without what the length field adds to it.
    fn head_of(&self, symbol: &[u8]) -> Tag {
        // Zeros at the end are not sent (P5).
        let mut tag = [0; MAC_LEN];
        let given = symbol.get(2..).unwrap_or(&[]);
        let given = &given[..given.len().min(MAC_LEN)];
        tag[..given.len()].copy_from_slice(given);
        self.mac.head.tag(&symbol[..symbol.len().min(2)], tag)
    }

    /// As [`is_sound`](Self::is_sound) for packets with these pads, which need not follow each other.
    pub fn is_sound_with(&self, pads: &[Tag], coefficients: &[u8], symbol: &[u8]) -> bool {
        self.mac.body.check(symbol.get(BODY..).unwrap_or(&[]), coefficients, pads, self.head_of(symbol))
    }

    /// Bytes of memory held, the MAC's key not counted, which all flows of a direction share.
    pub fn memory(&self) -> usize {
        let older = if self.older.is_some() { size_of::<Older>() } else { 0 };
        size_of::<Self>() + older + self.edge.as_ref().map_or(0, |edge| edge.pads.capacity() * MAC_LEN) + self.slab.capacity()
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey").field("cipher", &self.newest.cipher).field("has_older", &self.older.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::DirectionKeys;
    use crate::wire::frame::FlowOpen;
    use noctule_codes::gf256::kernels;

    fn open() -> FlowOpen {
        crate::crypto::vector_tests::flow_open()
    }

    fn keys() -> DirectionKeys {
        DirectionKeys::new(RawKey::new([7; 32]), Cipher::ChaCha20Poly1305).unwrap()
    }

    fn sealed(key: &mut FlowKey, seq: u64) -> Bytes {
        let mut symbol = BytesMut::zeroed(BODY);
        symbol.extend_from_slice(&[seq as u8; 50]);
        symbol.extend_from_slice(&[0; TAG_LEN]);
        key.seal(Seq(seq), &mut symbol).unwrap();
        symbol.freeze()
    }

    fn combine(rows: &[(u8, &Bytes)]) -> Vec<u8> {
        let mut out = vec![0; rows[0].1.len()];
        rows.iter().for_each(|(c, s)| kernels().mul_add(&mut out, s, *c));
        out
    }

    /// Packets 0 to 31, the next generation from `border` on, and a receiver that expects it.
    fn renewed(border: u64) -> (Vec<Bytes>, FlowKey) {
        let (mut ours, mut theirs) = (keys(), keys());
        let (mut sender, mut receiver) = (ours.flow(&open()).unwrap(), theirs.flow(&open()).unwrap());
        let mut symbols: Vec<Bytes> = (0..border).map(|seq| sealed(&mut sender, seq)).collect();
        ours.renew(RawKey::new([8; 32]), false);
        theirs.renew(RawKey::new([8; 32]), true);
        sender.renew(ours.next_generation(&open()).unwrap());
        receiver.expect(theirs.next_generation(&open()).unwrap());
        symbols.extend((border..32).map(|seq| sealed(&mut sender, seq)));
        (symbols, receiver)
    }

    fn take(receiver: &mut FlowKey, symbols: &[Bytes], seq: u64) {
        let symbol = &symbols[seq as usize];
        assert!(receiver.is_sound(Seq(seq), &[1], symbol), "{seq}");
        assert_eq!(receiver.open(Seq(seq), &symbol.slice(2..)).unwrap(), vec![seq as u8; 50]);
        assert!(!receiver.is_sound(Seq(seq), &[1], &symbols[(seq as usize + 1) % 32]));
    }

    #[test]
    fn a_receiver_finds_the_border_of_two_generations_whatever_comes_first() {
        for border in [0, 1, 7, 16, 31] {
            for order in 0..3 {
                let (symbols, mut receiver) = renewed(border);
                let mut seqs: Vec<u64> = (0..32).collect();
                match order {
                    0 => {}
                    1 => seqs.reverse(),
                    _ => seqs.sort_by_key(|seq| seq * 13 % 32),
                }
                for seq in seqs {
                    take(&mut receiver, &symbols, seq);
                }
                let (lower, upper) = receiver.older.as_ref().map(|o| (o.lower, o.upper)).unwrap();
                assert_eq!((lower, upper), (border, border), "{order}");
            }
        }
    }

    #[test]
    fn combinations_over_the_border_are_checked_before_it_is_known_and_after_the_older_key_is_gone() {
        for border in [3, 10, 20] {
            let (symbols, mut receiver) = renewed(border);
            let coefficients: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(29) & 0xfd).collect();
            let rows: Vec<_> = coefficients.iter().copied().zip(&symbols).collect();
            let mixed = combine(&rows);
            let mut wrong = mixed.clone();
            wrong[40] ^= 1;
            for is_settled in [false, true] {
                assert!(!receiver.is_sound(Seq(0), &coefficients, &wrong), "border {border}");
                assert!(receiver.is_sound(Seq(0), &coefficients, &mixed), "border {border}");
                if !is_settled {
                    for seq in (0..32).rev() {
                        take(&mut receiver, &symbols, seq);
                    }
                    receiver.settle(border - 1).unwrap();
                    assert!(receiver.has_older(), "one is missing");
                    receiver.settle(border).unwrap();
                    assert!(!receiver.has_older());
                }
            }
            assert!(receiver.open(Seq(border - 1), &symbols[border as usize - 1].slice(2..)).is_err(), "what was recorded opens no more");
            assert!(receiver.is_sound(Seq(0), &[1], &symbols[0]), "what is known does no harm");
        }
    }

    #[test]
    fn what_the_far_end_says_of_the_border_settles_a_flow_that_is_idle() {
        let (symbols, mut receiver) = renewed(5);
        (0..5).for_each(|seq| take(&mut receiver, &symbols, seq));
        receiver.settle(5).unwrap();
        assert!(receiver.has_older(), "there may be more");
        receiver.set_border(5);
        receiver.settle(5).unwrap();
        assert!(!receiver.has_older());
        take(&mut receiver, &symbols, 5);
    }
}
