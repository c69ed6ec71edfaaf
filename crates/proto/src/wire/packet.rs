//! Packet headers (P2, P3): what is visible outside the encryption.

use super::WireError;
use super::varint::Reader;
use smallvec::SmallVec;

/// A connection id of 4-8 bytes; empty only in version lists and packets of other versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnectionId(pub SmallVec<[u8; 8]>);

impl ConnectionId {
    /// Shortest id in bytes.
    pub const MIN_LEN: usize = 4;
    /// Longest id in bytes.
    pub const MAX_LEN: usize = 8;

    /// An id of 4-8 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (Self::MIN_LEN..=Self::MAX_LEN).contains(&bytes.len()).then(|| Self(SmallVec::from_slice(bytes)))
    }
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The version of this implementation: "noc2".
pub const VERSION: u32 = 0x6e6f_6332;
/// The version field of a version list (P1).
pub const VERSION_LIST: u32 = 0;
/// Bytes of the authentication tag at the end of a protected packet.
pub const TAG_LEN: usize = 16;
/// Bytes of an INITIATE's proof that its sender knows the responder's public key.
pub const MAC1_LEN: usize = 16;
/// Longest RETRY token in bytes.
pub const MAX_TOKEN: usize = 128;

const FORM_MASK: u8 = 0b1100_0000;
const FORM_PROTECTED: u8 = 0b0100_0000;
const FORM_HANDSHAKE: u8 = 0b1000_0000;

/// Where the receiver's id begins in a handshake packet, after its form, version and length; in a protected one it follows the form.
pub const HANDSHAKE_ID_AT: usize = 6;
/// The same in a protected packet.
pub const PROTECTED_ID_AT: usize = 1;
/// Set in the first byte of a handshake packet, and not in that of a protected one.
pub const HANDSHAKE_BIT: u8 = FORM_HANDSHAKE;

/// The first four bytes of the receiver's id of a datagram's first packet, if it is long enough; of what is no packet any four bytes.
pub fn label_word(datagram: &[u8]) -> Option<u32> {
    let at = if datagram.first()? & HANDSHAKE_BIT == 0 { PROTECTED_ID_AT } else { HANDSHAKE_ID_AT };
    Some(u32::from_be_bytes(*datagram.get(at..)?.first_chunk()?))
}

/// Header of a protected packet; also the additional data of its encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedHeader {
    /// Key generation modulo 4 (P3).
    pub generation: u8,
    /// The receiver's id.
    pub connection_id: ConnectionId,
    /// Low 32 bits of the packet number.
    pub packet_number: u32,
}

impl ProtectedHeader {
    /// Bytes of the header with a connection id of `cid_len` bytes.
    pub const fn len_with(cid_len: usize) -> usize {
        1 + cid_len + 4
    }
    /// Bytes of this header: the ciphertext starts there.
    pub fn encoded_len(&self) -> usize {
        Self::len_with(self.connection_id.0.len())
    }
    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(FORM_PROTECTED | (self.generation & 3) << 4);
        out.extend_from_slice(&self.connection_id.0);
        out.extend_from_slice(&self.packet_number.to_be_bytes());
    }
    /// Reads the header of the protected packet that fills `packet`; `cid_len` is what this node gives out. Shorter packets than header, one byte and
    /// tag are refused.
    pub fn parse(packet: &[u8], cid_len: usize) -> Result<Self, WireError> {
        let mut r = Reader::new(packet);
        let first = r.u8()?;
        if first & 0b1100_1111 != FORM_PROTECTED {
            return Err(WireError::Invalid("packet type"));
        }
        let connection_id = ConnectionId::new(r.bytes(cid_len)?).ok_or(WireError::Invalid("connection id length"))?;
        let packet_number = r.u32()?;
        if r.rest().len() <= TAG_LEN {
            return Err(WireError::Truncated);
        }
        Ok(Self { generation: first >> 4 & 3, connection_id, packet_number })
    }
}

/// Handshake pattern of an INITIATE (P19).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Pattern {
    /// The responder's key is known: one round trip.
    Ik = 0,
    /// First contact: the keys are learnt.
    Xx = 1,
    /// IK with a pre-shared key.
    IkPsk2 = 2,
    /// XX with a pre-shared key.
    XxPsk3 = 3,
}

impl Pattern {
    /// The initiator knows the responder's key.
    pub fn is_pinned(self) -> bool {
        matches!(self, Self::Ik | Self::IkPsk2)
    }

    fn from_u8(v: u8) -> Result<Self, WireError> {
        Ok(match v {
            0 => Self::Ik,
            1 => Self::Xx,
            2 => Self::IkPsk2,
            3 => Self::XxPsk3,
            _ => return Err(WireError::Invalid("handshake pattern")),
        })
    }
}

/// What a handshake packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeBody<'a> {
    /// First flight of the initiator.
    Initiate {
        /// Handshake pattern.
        pattern: Pattern,
        /// Shows that the sender knows the responder's public key; see [`crate::crypto::mac1`]. Zeros in the XX patterns, which do not.
        mac1: [u8; MAC1_LEN],
        /// Token of a RETRY, or empty.
        token: &'a [u8],
        /// First Noise message.
        message: &'a [u8],
    },
    /// The responder's answer: second Noise message.
    Respond(&'a [u8]),
    /// Third Noise message, of the XX patterns.
    Finish(&'a [u8]),
    /// Ask again with this token (P19).
    Retry {
        /// To be returned.
        token: &'a [u8],
    },
    /// The version asked for is not spoken here; these are (P1). Network-order 32-bit numbers.
    VersionList(&'a [u8]),
    /// A packet of a version that is not spoken here.
    OtherVersion,
}

/// A packet of the handshake. The first fields up to the source id are the same in every version, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakePacket<'a> {
    /// Version.
    pub version: u32,
    /// Id that the receiver chose, or a random one in an INITIATE.
    pub destination: ConnectionId,
    /// Id that the sender wants to be addressed by.
    pub source: ConnectionId,
    /// The rest.
    pub body: HandshakeBody<'a>,
}

impl<'a> HandshakePacket<'a> {
    /// Reads a handshake packet from the front of a datagram; also returns its length: what follows is padding or another packet.
    pub fn parse(datagram: &'a [u8]) -> Result<(Self, usize), WireError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if first & FORM_MASK != FORM_HANDSHAKE {
            return Err(WireError::Invalid("packet type"));
        }
        let version = r.u32()?;
        let destination = parse_id(&mut r)?;
        let source = parse_id(&mut r)?;
        if version != VERSION && version != VERSION_LIST {
            return Ok((Self { version, destination, source, body: HandshakeBody::OtherVersion }, datagram.len()));
        }
        let rest_len = usize::from(r.u16()?);
        let mut rest = Reader::new(r.bytes(rest_len)?);
        let len = datagram.len() - r.rest().len();
        if version == VERSION_LIST {
            let list = rest.take_rest();
            if list.is_empty() || !list.len().is_multiple_of(4) {
                return Err(WireError::Invalid("version list"));
            }
            return Ok((Self { version, destination, source, body: HandshakeBody::VersionList(list) }, len));
        }
        if first & 0x0f != 0 {
            return Err(WireError::Invalid("packet type"));
        }
        if destination.0.is_empty() || source.0.is_empty() {
            return Err(WireError::Invalid("connection id length"));
        }
        let body = match first >> 4 & 3 {
            0 => {
                let pattern = Pattern::from_u8(rest.u8()?)?;
                let mac1 = rest.array()?;
                let token = parse_token(&mut rest)?;
                HandshakeBody::Initiate { pattern, mac1, token, message: rest.take_rest() }
            }
            1 => HandshakeBody::Respond(rest.take_rest()),
            2 => HandshakeBody::Finish(rest.take_rest()),
            _ => {
                let token = parse_token(&mut rest)?;
                if token.is_empty() || !rest.is_empty() {
                    return Err(WireError::Invalid("RETRY"));
                }
                HandshakeBody::Retry { token }
            }
        };
        Ok((Self { version, destination, source, body }, len))
    }

    /// Appends the packet. Contents longer than a datagram are a defect of the caller and are cut to what the length field holds.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let kind = match self.body {
            HandshakeBody::Initiate { .. } | HandshakeBody::VersionList(_) | HandshakeBody::OtherVersion => 0,
            HandshakeBody::Respond(_) => 1,
            HandshakeBody::Finish(_) => 2,
            HandshakeBody::Retry { .. } => 3,
        };
        out.push(FORM_HANDSHAKE | kind << 4);
        out.extend_from_slice(&self.version.to_be_bytes());
        for id in [&self.destination, &self.source] {
            out.push(id.0.len() as u8);
            out.extend_from_slice(&id.0);
        }
        let length_at = out.len();
        out.extend_from_slice(&[0, 0]);
        match &self.body {
            HandshakeBody::Initiate { pattern, mac1, token, message } => {
                out.push(*pattern as u8);
                out.extend_from_slice(mac1);
                out.extend_from_slice(&(token.len() as u16).to_be_bytes());
                out.extend_from_slice(token);
                out.extend_from_slice(message);
            }
            HandshakeBody::Respond(message) | HandshakeBody::Finish(message) => out.extend_from_slice(message),
            HandshakeBody::Retry { token } => {
                out.extend_from_slice(&(token.len() as u16).to_be_bytes());
                out.extend_from_slice(token);
            }
            HandshakeBody::VersionList(list) => out.extend_from_slice(list),
            HandshakeBody::OtherVersion => {}
        }
        let length = (out.len() - length_at - 2).min(usize::from(u16::MAX));
        out.truncate(length_at + 2 + length);
        out[length_at..length_at + 2].copy_from_slice(&(length as u16).to_be_bytes());
    }

    /// What the Noise handshake that an INITIATE begins is bound to (P1, P19): version, pattern and everything of the INITIATE that can be seen, but `mac1`, which is computed over it.
    /// `None` for other packets.
    pub fn prologue(&self) -> Option<Vec<u8>> {
        let HandshakeBody::Initiate { pattern, token, .. } = self.body else { return None };
        let mut prologue = b"noctule".to_vec();
        prologue.extend_from_slice(&self.version.to_be_bytes());
        prologue.push(pattern as u8);
        for id in [&self.destination, &self.source] {
            prologue.push(id.0.len() as u8);
            prologue.extend_from_slice(&id.0);
        }
        prologue.extend_from_slice(&(token.len() as u16).to_be_bytes());
        prologue.extend_from_slice(token);
        Some(prologue)
    }
}

fn parse_id(r: &mut Reader<'_>) -> Result<ConnectionId, WireError> {
    let len = usize::from(r.u8()?);
    match len {
        0 => Ok(ConnectionId::default()),
        _ => ConnectionId::new(r.bytes(len)?).ok_or(WireError::Invalid("connection id length")),
    }
}

fn parse_token<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let len = usize::from(r.u16()?);
    if len > MAX_TOKEN {
        return Err(WireError::Invalid("token length"));
    }
    r.bytes(len)
}

/// The version list (P1): the answer to a packet of an unknown version, from `destination` and `source` of that packet.
pub fn emit_version_list(out: &mut Vec<u8>, destination: &ConnectionId, source: &ConnectionId) {
    HandshakePacket {
        version: VERSION_LIST,
        destination: source.clone(),
        source: destination.clone(),
        body: HandshakeBody::VersionList(&VERSION.to_be_bytes()),
    }
    .emit(out);
}

/// What begins at the front of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A protected packet; it extends to the end of the datagram.
    Protected(ProtectedHeader),
    /// A handshake packet and its length in bytes.
    Handshake(HandshakePacket<'a>, usize),
}

impl<'a> Packet<'a> {
    /// Reads the header at the front of `datagram`; `cid_len` is the length of the connection ids that this node gives out.
    pub fn parse(datagram: &'a [u8], cid_len: usize) -> Result<Self, WireError> {
        match datagram.first().ok_or(WireError::Truncated)? & FORM_MASK {
            FORM_PROTECTED => ProtectedHeader::parse(datagram, cid_len).map(Self::Protected),
            FORM_HANDSHAKE => HandshakePacket::parse(datagram).map(|(packet, len)| Self::Handshake(packet, len)),
            _ => Err(WireError::Invalid("packet type")),
        }
    }
}
