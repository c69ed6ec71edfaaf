//! Transport parameters: what each side says about itself inside the handshake (P1). Id-length-value; unknown ids are ignored.

use super::WireError;
use super::packet::ConnectionId;
use super::varint::{self, Reader, emit_prefixed};
use crate::units::Duration;
use smallvec::SmallVec;

/// Ciphers for protected packets (P3, P20).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Cipher {
    /// Nothing is sealed; for measurement, and only if both sides set [`Params::plaintext`].
    Plaintext = 0,
    /// AES-128-GCM.
    Aes128Gcm = 1,
    /// AES-256-GCM.
    Aes256Gcm = 2,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305 = 3,
}

impl Cipher {
    /// The cipher with this number.
    pub fn from_u8(v: u8) -> Option<Self> {
        [Self::Plaintext, Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305].into_iter().find(|&c| c as u8 == v)
    }
}

/// Transport parameters. A parameter that is absent on the wire has the default given here.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Ids by which the sender wants to be addressed, in order of preference; at most [`MAX_IDS`]. Default: the source id of the packet's header only.
    pub connection_ids: SmallVec<[ConnectionId; 2]>,
    /// Versions spoken, most wanted first; at most [`MAX_VERSIONS`] (P1: a downgrade shows here). Default: the version in use.
    pub versions: SmallVec<[u32; 2]>,
    /// Initiator: ciphers that it accepts, most wanted first. Responder: the one in use. Default: ChaCha20-Poly1305.
    pub ciphers: SmallVec<[Cipher; 4]>,
    /// Nothing heard for this long ends the link (P23); whole milliseconds. Default 30 s.
    pub idle_timeout: Duration,
    /// Largest datagram that the sender takes, bytes of UDP payload. Default 1472, at least [`MIN_DATAGRAM`].
    pub max_datagram: u16,
    /// Wish: no acknowledgement of the sender's packets waits longer (P8); whole microseconds. Default 25 ms.
    pub max_ack_delay: Duration,
    /// Wish: one acknowledgement per this many packets (P8). Default 32.
    pub ack_every: u64,
    /// Source packets that may be sent on each new flow before the first CREDIT (P15). Default 32.
    pub initial_credit: u64,
    /// Largest message that the sender takes, in bytes (P18). Default 16 MiB.
    pub max_message: u64,
    /// Flows per session and direction that the sender takes. Default 256.
    pub max_flows: u64,
    /// Base-2 logarithm of the packets per key epoch in what the sender sends (P3), 10..=22
    /// (RFC 9001 §6.6: AES-GCM seals at most 2^23 packets under one key). Default 20.
    pub epoch_log2: u8,
    /// The sender wants no encryption; takes effect only if both say so (P20). Default false.
    pub plaintext: bool,
    /// Size in bytes of the datagram that is being answered: what is known to pass in that direction. Default: not told.
    pub answered_size: Option<u16>,
    /// The sender's process: a random number that it chose when it started. Another number under the same key is another process, and nothing of the one
    /// before is left. Default: not told.
    pub restart_epoch: Option<u64>,
}

/// Ids in [`Params::connection_ids`] at most.
pub const MAX_IDS: usize = 8;
/// Versions in [`Params::versions`] at most.
pub const MAX_VERSIONS: usize = 16;
/// Smallest datagram that every node takes and every path must carry, bytes of UDP payload.
pub const MIN_DATAGRAM: u16 = 800;

impl Default for Params {
    fn default() -> Self {
        Self {
            connection_ids: SmallVec::new(),
            versions: SmallVec::new(),
            ciphers: SmallVec::new(),
            idle_timeout: Duration::from_secs(30),
            max_datagram: 1472,
            max_ack_delay: Duration::from_millis(25),
            ack_every: 32,
            initial_credit: 32,
            max_message: 16 << 20,
            max_flows: 256,
            epoch_log2: 20,
            plaintext: false,
            answered_size: None,
            restart_epoch: None,
        }
    }
}

/// Registered parameter ids.
mod id {
    pub const CONNECTION_ID: u64 = 0x01;
    pub const VERSIONS: u64 = 0x02;
    pub const CIPHERS: u64 = 0x03;
    pub const IDLE_TIMEOUT: u64 = 0x04;
    pub const MAX_DATAGRAM: u64 = 0x05;
    pub const MAX_ACK_DELAY: u64 = 0x06;
    pub const ACK_EVERY: u64 = 0x07;
    pub const INITIAL_CREDIT: u64 = 0x08;
    pub const MAX_MESSAGE: u64 = 0x09;
    pub const MAX_FLOWS: u64 = 0x0a;
    pub const EPOCH_LOG2: u64 = 0x0b;
    pub const PLAINTEXT: u64 = 0x0c;
    pub const ANSWERED_SIZE: u64 = 0x0d;
    pub const RESTART_EPOCH: u64 = 0x0e;
    /// Ids `31 n + 27` are never registered (P1).
    pub const fn grease(n: u8) -> u64 {
        31 * n as u64 + 27
    }
}

impl Params {
    /// Appends the parameters and one of an unregistered id, chosen by `grease`, that a receiver must ignore (P1).
    pub fn emit(&self, out: &mut Vec<u8>, grease: u8) {
        // Not the first one: an id below that of a known parameter must not matter.
        emit_number(out, id::IDLE_TIMEOUT, u64::try_from(self.idle_timeout.as_millis()).unwrap_or(varint::MAX));
        varint::emit(out, id::grease(grease));
        emit_prefixed(out, &[grease; 3][..usize::from(grease & 3)]);
        for connection_id in self.connection_ids.iter().take(MAX_IDS) {
            varint::emit(out, id::CONNECTION_ID);
            emit_prefixed(out, connection_id.as_bytes());
        }
        if !self.versions.is_empty() {
            varint::emit(out, id::VERSIONS);
            let versions = &self.versions[..self.versions.len().min(MAX_VERSIONS)];
            varint::emit(out, 4 * versions.len() as u64);
            versions.iter().for_each(|v| out.extend_from_slice(&v.to_be_bytes()));
        }
        if !self.ciphers.is_empty() {
            varint::emit(out, id::CIPHERS);
            varint::emit(out, self.ciphers.len() as u64);
            out.extend(self.ciphers.iter().map(|&c| c as u8));
        }
        emit_number(out, id::MAX_DATAGRAM, u64::from(self.max_datagram));
        emit_number(out, id::MAX_ACK_DELAY, u64::try_from(self.max_ack_delay.as_micros()).unwrap_or(varint::MAX));
        emit_number(out, id::ACK_EVERY, self.ack_every);
        emit_number(out, id::INITIAL_CREDIT, self.initial_credit);
        emit_number(out, id::MAX_MESSAGE, self.max_message);
        emit_number(out, id::MAX_FLOWS, self.max_flows);
        emit_number(out, id::EPOCH_LOG2, u64::from(self.epoch_log2));
        if self.plaintext {
            varint::emit(out, id::PLAINTEXT);
            varint::emit(out, 0);
        }
        if let Some(size) = self.answered_size {
            emit_number(out, id::ANSWERED_SIZE, u64::from(size));
        }
        if let Some(epoch) = self.restart_epoch {
            emit_number(out, id::RESTART_EPOCH, epoch);
        }
    }

    /// Reads parameters up to the end of `bytes`. A known one that is given twice (except connection ids) or has an impossible value is an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let mut params = Self::default();
        let mut seen = 0u64;
        while !r.is_empty() {
            let id = r.varint()?;
            let value = r.prefixed()?;
            if id > id::RESTART_EPOCH || id == 0 {
                continue;
            }
            if id != id::CONNECTION_ID && seen >> id & 1 == 1 {
                return Err(WireError::Invalid("parameter given twice"));
            }
            seen |= 1 << id;
            params.set(id, value)?;
        }
        Ok(params)
    }

    fn set(&mut self, id: u64, value: &[u8]) -> Result<(), WireError> {
        let number = || {
            let mut r = Reader::new(value);
            let number = r.varint().map_err(|_| WireError::Invalid("parameter value"))?;
            if r.is_empty() { Ok(number) } else { Err(WireError::Invalid("parameter value")) }
        };
        match id {
            id::CONNECTION_ID => {
                let connection_id = ConnectionId::new(value).ok_or(WireError::Invalid("connection id length"))?;
                if self.connection_ids.len() == MAX_IDS {
                    return Err(WireError::Invalid("number of connection ids"));
                }
                self.connection_ids.push(connection_id);
            }
            id::VERSIONS => {
                if value.is_empty() || !value.len().is_multiple_of(4) || value.len() > 4 * MAX_VERSIONS {
                    return Err(WireError::Invalid("version list"));
                }
                self.versions = value.chunks_exact(4).map(|v| u32::from_be_bytes([v[0], v[1], v[2], v[3]])).collect();
            }
            // Ciphers of later versions are left out.
            id::CIPHERS => {
                for cipher in value.iter().take(16).filter_map(|&v| Cipher::from_u8(v)) {
                    if !self.ciphers.contains(&cipher) {
                        self.ciphers.push(cipher);
                    }
                }
            }
            id::IDLE_TIMEOUT => self.idle_timeout = Duration::from_millis(number()?),
            id::MAX_DATAGRAM => self.max_datagram = in_range(number()?, u64::from(MIN_DATAGRAM), u64::from(u16::MAX))? as u16,
            id::MAX_ACK_DELAY => self.max_ack_delay = Duration::from_micros(in_range(number()?, 0, 1_000_000)?),
            id::ACK_EVERY => self.ack_every = in_range(number()?, 1, varint::MAX)?,
            id::INITIAL_CREDIT => self.initial_credit = number()?,
            id::MAX_MESSAGE => self.max_message = number()?,
            id::MAX_FLOWS => self.max_flows = number()?,
            id::EPOCH_LOG2 => self.epoch_log2 = in_range(number()?, 10, 22)? as u8,
            id::PLAINTEXT => self.plaintext = true,
            id::ANSWERED_SIZE => self.answered_size = Some(in_range(number()?, 0, u64::from(u16::MAX))? as u16),
            _ => self.restart_epoch = Some(number()?),
        }
        Ok(())
    }
}

fn in_range(value: u64, low: u64, high: u64) -> Result<u64, WireError> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(WireError::Invalid("parameter value")) }
}

fn emit_number(out: &mut Vec<u8>, id: u64, value: u64) {
    varint::emit(out, id);
    varint::emit(out, varint::size(value) as u64);
    varint::emit(out, value);
}
