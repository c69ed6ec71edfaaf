//! Keys and datagrams where there is no return path (docs/spec/object.md 5).
//!
//! The sender knows each receiver's public key and says everything once, in an *announcement* for each of them: a message of the one-way pattern X of Noise,
//! which only this receiver can read and only the sender can have made. It holds the object's root and a fresh key; the packets of the object are
//! sealed with that key, for all receivers alike. A receiver could therefore invent packets for the others: what they decode then does not match the root, and is
//! thrown away.

use super::{Layout, MAX_ABOUT, ObjectError, PacketId, Root};
use crate::crypto::{ANNOUNCEMENT_HEAD, Addressed, CryptoError, ObjectKey, PublicKey, SecretKey, open_announcement, seal_announcement};
use crate::wire::packet::{TAG_LEN, VERSION};
use crate::wire::varint::{Reader, emit_prefixed};

const ANNOUNCEMENT: u8 = 0x41;
const DATA: u8 = 0x44;
/// Type, key's name, number.
const DATA_HEADER: usize = 1 + 4 + 8;
/// Bytes of a data datagram beside the packet.
pub const DATA_OVERHEAD: usize = DATA_HEADER + TAG_LEN;

/// Everything that a receiver has to know before the first packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The key of the packets.
    pub key: [u8; 32],
    /// The object's root hash.
    pub root: Root,
    /// Its cut.
    pub layout: Layout,
    /// What it is, in the application's words.
    pub about: Vec<u8>,
}

/// Why a datagram is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OneWayError {
    /// It cannot be read.
    #[error("a datagram that noctule did not send")]
    Malformed,
    /// Another version of the protocol.
    #[error("the sender speaks version {0:#x}, this side {VERSION:#x}")]
    Version(u32),
    /// It is not for this receiver, or was altered.
    #[error("not for this receiver's key, or altered: {0}")]
    Crypto(#[from] CryptoError),
    /// What it announces is not permitted.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl Announcement {
    /// The datagram for one receiver; `seed` is random and of one use. The same bytes may be sent as often as wished.
    ///
    /// # Errors
    /// A description longer than [`MAX_ABOUT`], or a key that is none.
    pub fn seal(&self, secret: &SecretKey, receiver: &PublicKey, psk: Option<&[u8; 32]>, seed: [u8; 32]) -> Result<Vec<u8>, OneWayError> {
        if self.about.len() > MAX_ABOUT {
            return Err(ObjectError::Root.into());
        }
        let mut payload = Vec::new();
        payload.extend_from_slice(&self.key);
        payload.extend_from_slice(&self.root.0);
        self.layout.emit(&mut payload);
        emit_prefixed(&mut payload, &self.about);
        let head = announcement_head();
        let message = seal_announcement(&head, secret, receiver, psk, seed, &payload)?;
        Ok(Addressed::to(receiver).emit(&head, &message))
    }

    /// The key of its sender, and what it says. Cost: one hash if it is not `addressed` to this receiver, otherwise two Diffie-Hellman operations.
    ///
    /// # Errors
    /// It is none, or none for this receiver, or from another version.
    pub fn open(
        datagram: &[u8],
        addressed: &Addressed,
        secret: &SecretKey,
        psk: Option<&[u8; 32]>,
    ) -> Result<(PublicKey, Self), OneWayError> {
        let mut r = Reader::new(datagram);
        let head = (r.u8().ok(), r.u32().ok());
        let (Some(ANNOUNCEMENT), Some(version)) = head else { return Err(OneWayError::Malformed) };
        if version != VERSION {
            return Err(OneWayError::Version(version));
        }
        let message = addressed.check(datagram).ok_or(CryptoError::Authentication)?;
        let (sender, payload) = open_announcement(&announcement_head(), secret, psk, message)?;
        let mut r = Reader::new(&payload);
        let read = |r: &mut Reader<'_>| -> Result<Self, ObjectError> {
            Ok(Self { key: r.array()?, root: Root(r.array()?), layout: Layout::parse(r)?, about: r.prefixed()?.to_vec() })
        };
        let announcement = read(&mut r)?;
        if announcement.about.len() > MAX_ABOUT {
            return Err(OneWayError::Malformed);
        }
        Ok((sender, announcement))
    }

    /// Seals or opens the packets.
    ///
    /// # Errors
    /// None that can occur with a key of 32 bytes.
    pub fn data_key(&self) -> Result<DataKey, OneWayError> {
        let key = ObjectKey::new(&self.key, &self.root.0)?;
        let [a, b, c, d, ..] = self.root.0;
        Ok(DataKey { key, name: [a, b, c, d] })
    }
}

fn announcement_head() -> [u8; ANNOUNCEMENT_HEAD] {
    let [a, b, c, d] = VERSION.to_be_bytes();
    [ANNOUNCEMENT, a, b, c, d]
}

/// Whether a datagram is an announcement, by its first byte.
pub fn is_announcement(datagram: &[u8]) -> bool {
    datagram.first() == Some(&ANNOUNCEMENT)
}

/// The key of an object's packets.
#[derive(Debug)]
pub struct DataKey {
    key: ObjectKey,
    name: [u8; 4],
}

impl DataKey {
    /// Begins a datagram: a packet of the object is to be appended to `out`, and [`finish`](Self::finish) seals it.
    pub fn begin(&self, id: PacketId, out: &mut Vec<u8>) {
        out.clear();
        out.push(DATA);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&id.0.to_be_bytes());
    }

    /// Seals what [`begin`](Self::begin) began; what was appended must be the packet that was named there.
    ///
    /// # Errors
    /// `out` was not begun.
    pub fn finish(&self, out: &mut Vec<u8>) -> Result<(), OneWayError> {
        let PacketId(number) = id_of(out).ok_or(OneWayError::Malformed)?;
        let (header, body) = out.split_at_mut(DATA_HEADER);
        let tag = self.key.seal(number, header, body)?;
        out.extend_from_slice(&tag);
        Ok(())
    }

    /// Whether a datagram says that it is sealed with this key.
    pub fn is_mine(&self, datagram: &[u8]) -> bool {
        datagram.len() >= DATA_OVERHEAD && datagram[0] == DATA && datagram[1..5] == self.name
    }

    /// The packet in a datagram, opened in place. Replays open again: a packet twice is redundant.
    ///
    /// # Errors
    /// It was not sealed with this key.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<&'a [u8], OneWayError> {
        if !self.is_mine(datagram) {
            return Err(OneWayError::Malformed);
        }
        let PacketId(number) = id_of(datagram).ok_or(OneWayError::Malformed)?;
        let (header, sealed) = datagram.split_at_mut(DATA_HEADER);
        Ok(self.key.open(number, header, sealed)?)
    }
}

/// Which packet a data datagram holds, as far as its header can be believed: what a relay goes by.
pub fn id_of(datagram: &[u8]) -> Option<PacketId> {
    let number = datagram.first_chunk::<DATA_HEADER>().filter(|header| header[0] == DATA)?.last_chunk()?;
    Some(PacketId(u64::from_be_bytes(*number)))
}
