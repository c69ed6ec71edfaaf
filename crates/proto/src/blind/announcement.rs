//! What the destination has to know of a stream before its first packet, where nobody can be asked: name, cut, key, and what was sent so far.

use super::{Shape, ShapeError, StreamName};
use crate::crypto::{ANNOUNCEMENT_HEAD as HEAD, Addressed, CryptoError, PublicKey, SecretKey, open_announcement, seal_announcement};
use crate::wire::WireError;
use crate::wire::packet::VERSION;
use crate::wire::varint::Reader;

const TYPE: u8 = 0x43;
/// Head, tag, and a Noise message of the pattern X with this payload: ephemeral key, static key and payload with their tags.
const LONGEST: usize = 512;

/// Everything that the destination of a stream has to know.
#[derive(Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Greater than in any announcement that this source has made before, of this stream or an older one: microseconds of a clock, mended where it
    /// went back.
    pub stamp: u64,
    /// The stream.
    pub stream: StreamName,
    /// The secret of its packets.
    pub key: [u8; 32],
    /// Its cut.
    pub shape: Shape,
    /// The block that is cut now.
    pub block: u32,
    /// Messages in all blocks before.
    pub messages: u64,
}

/// Why an announcement is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// It cannot be read.
    #[error("an announcement that noctule did not send: {0}")]
    Malformed(#[from] WireError),
    /// Another version of the protocol.
    #[error("the sender speaks version {0:#x}, this side {VERSION:#x}")]
    Version(u32),
    /// It is not for this receiver, or was altered.
    #[error("not for this node's key (or pre-shared key), or altered: {0}")]
    Crypto(#[from] CryptoError),
    /// What it announces is not permitted.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

fn head() -> [u8; HEAD] {
    let [a, b, c, d] = VERSION.to_be_bytes();
    [TYPE, a, b, c, d]
}

impl Announcement {
    /// The datagram for one receiver; `seed` is random and of one use.
    ///
    /// # Errors
    /// The receiver's key is none.
    pub fn seal(&self, secret: &SecretKey, receiver: &PublicKey, psk: Option<&[u8; 32]>, seed: [u8; 32]) -> Result<Vec<u8>, CryptoError> {
        let mut payload = self.stamp.to_be_bytes().to_vec();
        payload.extend_from_slice(&self.stream.0);
        payload.extend_from_slice(&self.key);
        payload.extend_from_slice(&(self.shape.block_packets() as u16).to_be_bytes());
        payload.extend_from_slice(&[self.shape.batch_size(), self.shape.depth()]);
        payload.extend_from_slice(&self.shape.symbol().to_be_bytes());
        payload.extend_from_slice(&self.block.to_be_bytes());
        payload.extend_from_slice(&self.messages.to_be_bytes());
        let head = head();
        let message = seal_announcement(&head, secret, receiver, psk, seed, &payload)?;
        Ok(Addressed::to(receiver).emit(&head, &message))
    }

    /// The key of its maker, and what it says. Cost: one hash if it is not `addressed` to this receiver, otherwise two Diffie-Hellman operations.
    ///
    /// # Errors
    /// It is none, or none for this receiver, or from another version.
    pub fn open(
        datagram: &[u8],
        addressed: &Addressed,
        secret: &SecretKey,
        psk: Option<&[u8; 32]>,
    ) -> Result<(PublicKey, Self), AnnouncementError> {
        let mut r = Reader::new(datagram);
        let (kind, version) = (r.u8()?, r.u32()?);
        if kind != TYPE || datagram.len() > LONGEST {
            return Err(WireError::Invalid("type or length of an announcement").into());
        }
        if version != VERSION {
            return Err(AnnouncementError::Version(version));
        }
        let message = addressed.check(datagram).ok_or(CryptoError::Authentication)?;
        let (sender, payload) = open_announcement(&head(), secret, psk, message)?;
        let mut r = Reader::new(&payload);
        let (stamp, stream, key) = (r.u64()?, StreamName(r.array()?), r.array()?);
        let shape = Shape::new(r.u16()?, r.u8()?, r.u8()?, r.u16()?)?;
        Ok((sender, Self { stamp, stream, key, shape, block: r.u32()?, messages: r.u64()? }))
    }

    /// Whether a datagram is one, by type and length.
    pub fn is_one(datagram: &[u8]) -> bool {
        datagram.first() == Some(&TYPE) && datagram.len() <= LONGEST
    }

    /// What tells an announcement from others, for a relay that cannot read it. None if it is no announcement.
    pub fn mark(datagram: &[u8]) -> Option<[u8; 32]> {
        Self::is_one(datagram).then(|| *blake3::hash(datagram).as_bytes())
    }
}
