//! Reading and writing every frame but CODED and ACK, which have files of their own (P1).
//!
//! Even types are mandatory: a receiver that does not know one closes the link. Odd types are optional and carry their length, so that they can be
//! skipped.

use super::ack::AckView;
use super::coded::{emit_bitmap, parse_bitmap};
use super::frame::{Coded, FlowOpen, Frame, Relayed};
use super::packet::ConnectionId;
use super::varint::{self, Reader, emit_prefixed};
use super::{WireError, coded};
use crate::error::{CloseReason, Code, Layer};
use crate::far_text::FarText;
use crate::ids::{FlowLabel, PathId, Seq, SessionKey};
use crate::options::{Class, FlowKind, Mode};
use crate::units::{Duration, Probability};
use std::net::IpAddr;

/// Registered frame types.
pub mod frame_type {
    /// PADDING.
    pub const PADDING: u64 = 0x00;
    /// PING.
    pub const PING: u64 = 0x02;
    /// ACK without ECN counts.
    pub const ACK: u64 = 0x04;
    /// ACK with ECN counts.
    pub const ACK_ECN: u64 = 0x06;
    /// CODED to the end of the packet.
    pub const CODED: u64 = 0x08;
    /// CODED with the length of its symbol.
    pub const CODED_LENGTH: u64 = 0x0a;
    /// FLOW_OPEN.
    pub const FLOW_OPEN: u64 = 0x0c;
    /// FLOW_END.
    pub const FLOW_END: u64 = 0x0e;
    /// FLOW_REFUSED.
    pub const FLOW_REFUSED: u64 = 0x10;
    /// FLOW_RESET.
    pub const FLOW_RESET: u64 = 0x12;
    /// FLOW_STOP.
    pub const FLOW_STOP: u64 = 0x14;
    /// FLOW_SKIP.
    pub const FLOW_SKIP: u64 = 0x16;
    /// RANK.
    pub const RANK: u64 = 0x18;
    /// CREDIT.
    pub const CREDIT: u64 = 0x1a;
    /// NEW_CONNECTION_ID.
    pub const NEW_CONNECTION_ID: u64 = 0x1c;
    /// RETIRE_CONNECTION_ID.
    pub const RETIRE_CONNECTION_ID: u64 = 0x1e;
    /// PATH_CHALLENGE.
    pub const PATH_CHALLENGE: u64 = 0x20;
    /// PATH_RESPONSE.
    pub const PATH_RESPONSE: u64 = 0x22;
    /// REKEY.
    pub const REKEY: u64 = 0x24;
    /// FRAGMENT.
    pub const FRAGMENT: u64 = 0x26;
    /// CLOSE.
    pub const CLOSE: u64 = 0x28;
    /// DATAGRAM.
    pub const DATAGRAM: u64 = 0x2a;
}
use frame_type as t;

/// Longest reason of a CLOSE, in bytes of UTF-8.
const MAX_REASON: usize = 255;

/// The frames of a packet, front to back. Unknown optional ones are skipped, runs of padding are one frame; after an error nothing more comes.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// The frames in the opened payload of a protected packet.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new(payload) }
    }

    /// What was not read.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, WireError>;
    fn next(&mut self) -> Option<Self::Item> {
        let frame = Frame::parse(&mut self.reader).transpose();
        if !matches!(frame, Some(Ok(_))) {
            self.reader.take_rest();
        }
        frame
    }
}

impl<'a> Frame<'a> {
    /// Reads the next known frame; `None` at the end of the packet. Unknown optional frames are skipped.
    pub fn parse(r: &mut Reader<'a>) -> Result<Option<Self>, WireError> {
        loop {
            if r.is_empty() {
                return Ok(None);
            }
            let frame_type = r.varint()?;
            if frame_type & 1 == 1 {
                r.prefixed()?;
                continue;
            }
            return Self::parse_body(frame_type, r).map(Some);
        }
    }

    fn parse_body(frame_type: u64, r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(match frame_type {
            t::PADDING => {
                let rest = r.take_rest();
                let zeros = rest.iter().take_while(|&&b| b == 0).count();
                *r = Reader::new(&rest[zeros..]);
                Self::Padding
            }
            t::PING => Self::Ping,
            t::ACK => Self::Ack(AckView::parse_body(r, false)?),
            t::ACK_ECN => Self::Ack(AckView::parse_body(r, true)?),
            t::CODED => Self::Coded(Coded::parse_body(r, false)?),
            t::CODED_LENGTH => Self::Coded(Coded::parse_body(r, true)?),
            t::FLOW_OPEN => Self::FlowOpen(FlowOpen::parse_body(r)?),
            t::FLOW_END => Self::FlowEnd { flow: label(r)?, end: Seq(r.varint()?) },
            t::FLOW_REFUSED => Self::FlowRefused { flow: label(r)?, base: Seq(r.varint()?), reason: r.varint()? },
            t::FLOW_RESET => Self::FlowReset { flow: label(r)?, reason: r.varint()? },
            t::FLOW_STOP => Self::FlowStop { flow: label(r)?, reason: r.varint()? },
            t::FLOW_SKIP => Self::FlowSkip { flow: label(r)?, floor: Seq(r.varint()?) },
            t::RANK => {
                let (flow, base, n, rank) = (label(r)?, Seq(r.varint()?), r.u8()?, r.u8()?);
                if !(1..=coded::MAX_SPAN).contains(&n) || rank > n {
                    return Err(WireError::Invalid("RANK: span or rank"));
                }
                Self::Rank { flow, base, n, rank, missing: parse_bitmap(r, n)? }
            }
            t::CREDIT => Self::Credit { flow: label(r)?, limit: Seq(r.varint()?), done: Seq(r.varint()?) },
            t::NEW_CONNECTION_ID => {
                let path = u32::try_from(r.varint()?).map_err(|_| WireError::Invalid("NEW_CONNECTION_ID: path id"))?;
                let sequence = r.varint()?;
                let id = ConnectionId::new(r.prefixed()?).ok_or(WireError::Invalid("NEW_CONNECTION_ID: length"))?;
                Self::NewConnectionId { path: PathId(path), sequence, id }
            }
            t::RETIRE_CONNECTION_ID => Self::RetireConnectionId { sequence: r.varint()? },
            t::PATH_CHALLENGE => Self::PathChallenge(r.array()?),
            t::PATH_RESPONSE => Self::PathResponse(r.array()?),
            t::REKEY => Self::Rekey { generation: r.varint()?, step: r.u8()?, message: r.prefixed()? },
            t::FRAGMENT => {
                let (id, index) = (r.varint()?, r.u8()?);
                if index > 1 {
                    return Err(WireError::Invalid("FRAGMENT: index"));
                }
                Self::Fragment { id, index, data: r.prefixed()? }
            }
            t::CLOSE => Self::Close(parse_close(r)?),
            t::DATAGRAM => Self::Datagram { flow: label(r)?, number: r.varint()?, data: r.take_rest() },
            unknown => return Err(WireError::UnknownFrame(unknown)),
        })
    }

    /// The registered type, as named in CLOSE.
    pub fn frame_type(&self) -> u64 {
        match self {
            Self::Padding => t::PADDING,
            Self::Ping => t::PING,
            Self::Ack(ack) => match ack.ecn() {
                None => t::ACK,
                Some(_) => t::ACK_ECN,
            },
            Self::Coded(_) => t::CODED_LENGTH,
            Self::FlowOpen(_) => t::FLOW_OPEN,
            Self::FlowEnd { .. } => t::FLOW_END,
            Self::FlowRefused { .. } => t::FLOW_REFUSED,
            Self::FlowReset { .. } => t::FLOW_RESET,
            Self::FlowStop { .. } => t::FLOW_STOP,
            Self::FlowSkip { .. } => t::FLOW_SKIP,
            Self::Rank { .. } => t::RANK,
            Self::Credit { .. } => t::CREDIT,
            Self::NewConnectionId { .. } => t::NEW_CONNECTION_ID,
            Self::RetireConnectionId { .. } => t::RETIRE_CONNECTION_ID,
            Self::PathChallenge(_) => t::PATH_CHALLENGE,
            Self::PathResponse(_) => t::PATH_RESPONSE,
            Self::Rekey { .. } => t::REKEY,
            Self::Fragment { .. } => t::FRAGMENT,
            Self::Close(_) => t::CLOSE,
            Self::Datagram { .. } => t::DATAGRAM,
        }
    }

    /// The frame asks for an acknowledgement: everything but ACK, PADDING, CLOSE and DATAGRAM.
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Padding | Self::Ack(_) | Self::Close(_) | Self::Datagram { .. })
    }

    /// Appends the frame; CODED in the form with a length ([`Coded::emit_last`] is the other one).
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ack(ack) => return ack.emit(out),
            Self::Coded(coded) => return coded.emit(out),
            _ => varint::emit(out, self.frame_type()),
        }
        match self {
            Self::Padding | Self::Ping | Self::Ack(_) | Self::Coded(_) => {}
            Self::FlowOpen(open) => open.emit_body(out),
            Self::FlowEnd { flow, end } => emit_all(out, &[flow.0, end.0]),
            Self::FlowRefused { flow, base, reason } => emit_all(out, &[flow.0, base.0, *reason]),
            Self::FlowReset { flow, reason } | Self::FlowStop { flow, reason } => emit_all(out, &[flow.0, *reason]),
            Self::FlowSkip { flow, floor } => emit_all(out, &[flow.0, floor.0]),
            Self::Rank { flow, base, n, rank, missing } => {
                emit_all(out, &[flow.0, base.0]);
                out.extend_from_slice(&[*n, *rank]);
                emit_bitmap(out, *missing, *n);
            }
            Self::Credit { flow, limit, done } => emit_all(out, &[flow.0, limit.0, done.0]),
            Self::NewConnectionId { path, sequence, id } => {
                emit_all(out, &[u64::from(path.0), *sequence]);
                emit_prefixed(out, &id.0);
            }
            Self::RetireConnectionId { sequence } => varint::emit(out, *sequence),
            Self::PathChallenge(data) | Self::PathResponse(data) => out.extend_from_slice(data),
            Self::Rekey { generation, step, message } => {
                varint::emit(out, *generation);
                out.push(*step);
                emit_prefixed(out, message);
            }
            Self::Fragment { id, index, data } => {
                varint::emit(out, *id);
                out.push(*index);
                emit_prefixed(out, data);
            }
            Self::Close(reason) => emit_close(out, reason),
            Self::Datagram { flow, number, data } => {
                emit_all(out, &[flow.0, *number]);
                out.extend_from_slice(data);
            }
        }
    }
}

/// Appends an optional frame of an unregistered odd type: what a receiver must skip (P1). `n` chooses among the types `0x21 + 0x40 n`.
pub fn emit_grease(out: &mut Vec<u8>, n: u8, content: &[u8]) {
    varint::emit(out, 0x21 + 0x40 * u64::from(n));
    emit_prefixed(out, content);
}

fn label(r: &mut Reader<'_>) -> Result<FlowLabel, WireError> {
    r.varint().map(FlowLabel)
}

fn emit_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&n| varint::emit(out, n));
}

/// Probabilities travel in parts per 10^9.
const PARTS: f64 = 1e9;

const HAS_LIFETIME: u8 = 1;
const HAS_ANSWERS: u8 = 2;
const IS_BIDIRECTIONAL: u8 = 4;
const IS_RELAYED: u8 = 8;
const IS_PART: u8 = 16;
const IS_PROVEN: u8 = 32;

impl FlowOpen {
    /// Bytes after the last field that is known are left for later versions.
    fn parse_body(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let r = &mut Reader::new(r.prefixed()?);
        let session = SessionKey(r.u64()?);
        let (index, label, symbol) = (r.varint()?, FlowLabel(r.varint()?), r.u16()?);
        let mode = match r.u8()? {
            0 => Mode::Brtp,
            1 => Mode::Btp,
            2 => Mode::Transparent,
            _ => return Err(WireError::Invalid("FLOW_OPEN: mode")),
        };
        let kind = match r.u8()? {
            0 => FlowKind::OrderedMessages,
            1 => FlowKind::UnorderedMessages,
            2 => FlowKind::Stream,
            _ => return Err(WireError::Invalid("FLOW_OPEN: kind")),
        };
        let class = match r.u8()? {
            0 => Class::Latency,
            1 => Class::Bulk,
            _ => return Err(WireError::Invalid("FLOW_OPEN: class")),
        };
        let batch_size = r.u8()?;
        if !matches!(batch_size, 8 | 16 | 32 | 64) {
            return Err(WireError::Invalid("FLOW_OPEN: batch size"));
        }
        let hop_limit = r.u8()?;
        let no_retransmit = Probability::new(r.varint()? as f64 / PARTS);
        let tag = r.varint()?;
        let flags = r.u8()?;
        let lifetime = match flags & HAS_LIFETIME {
            0 => None,
            _ => Some(Duration::from_millis(r.varint()?)),
        };
        let answers = match flags & HAS_ANSWERS {
            0 => None,
            _ => Some(r.varint()?),
        };
        let bidirectional = flags & IS_BIDIRECTIONAL != 0;
        let relayed = match flags & IS_RELAYED {
            0 => None,
            _ => Some(Relayed {
                destination: address(r)?,
                source: address(r)?,
                incarnation: r.varint()?,
                first: Seq(r.varint()?),
                fits: r.u16()?,
                part: if flags & IS_PART != 0 { r.varint()? } else { 0 },
                proof: if flags & IS_PROVEN != 0 { Some(r.array()?) } else { None },
            }),
        };
        Ok(Self {
            session,
            index,
            label,
            symbol,
            mode,
            kind,
            class,
            lifetime,
            batch_size,
            hop_limit,
            no_retransmit,
            answers,
            bidirectional,
            tag,
            relayed,
        })
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        // At most 8 + 9 varints of 8 + 8 single bytes + 2 addresses of 17 + 4 + 16: the length always takes two bytes in the form 0b01.
        let length_at = out.len();
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.session.0.to_be_bytes());
        emit_all(out, &[self.index, self.label.0]);
        out.extend_from_slice(&self.symbol.to_be_bytes());
        out.push(match self.mode {
            Mode::Brtp => 0,
            Mode::Btp => 1,
            Mode::Transparent => 2,
        });
        out.push(match self.kind {
            FlowKind::OrderedMessages => 0,
            FlowKind::UnorderedMessages => 1,
            FlowKind::Stream => 2,
        });
        out.push(match self.class {
            Class::Latency => 0,
            Class::Bulk => 1,
        });
        out.extend_from_slice(&[self.batch_size, self.hop_limit]);
        emit_all(out, &[(self.no_retransmit.get() * PARTS).round() as u64, self.tag]);
        let flag = |condition: bool, bit: u8| if condition { bit } else { 0 };
        out.push(
            flag(self.lifetime.is_some(), HAS_LIFETIME)
                | flag(self.answers.is_some(), HAS_ANSWERS)
                | flag(self.bidirectional, IS_BIDIRECTIONAL)
                | flag(self.relayed.is_some(), IS_RELAYED)
                | flag(self.part() > 0, IS_PART)
                | flag(self.relayed.is_some_and(|r| r.proof.is_some()), IS_PROVEN),
        );
        if let Some(lifetime) = self.lifetime {
            varint::emit(out, u64::try_from(lifetime.as_micros().div_ceil(1000)).unwrap_or(varint::MAX));
        }
        if let Some(answers) = self.answers {
            varint::emit(out, answers);
        }
        if let Some(relayed) = &self.relayed {
            emit_address(out, relayed.destination);
            emit_address(out, relayed.source);
            emit_all(out, &[relayed.incarnation, relayed.first.0]);
            out.extend_from_slice(&relayed.fits.to_be_bytes());
            if relayed.part > 0 {
                varint::emit(out, relayed.part);
            }
            out.extend_from_slice(relayed.proof.as_ref().map_or(&[], |proof| &proof[..]));
        }
        let length = (out.len() - length_at - 2) as u16;
        out[length_at..length_at + 2].copy_from_slice(&(length | 0x4000).to_be_bytes());
    }
}

/// An IP address: its length in bytes tells the family.
fn address(r: &mut Reader<'_>) -> Result<IpAddr, WireError> {
    let bytes = r.prefixed()?;
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        Ok(v4.into())
    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
        Ok(v6.into())
    } else {
        Err(WireError::Invalid("FLOW_OPEN: address"))
    }
}

fn emit_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => emit_prefixed(out, &v4.octets()),
        IpAddr::V6(v6) => emit_prefixed(out, &v6.octets()),
    }
}

fn parse_close(r: &mut Reader<'_>) -> Result<CloseReason, WireError> {
    let number = r.varint()?;
    let layer = match r.u8()? {
        0 => Layer::Wire,
        1 => Layer::Crypto,
        3 => Layer::Flow,
        4 => Layer::Session,
        5 => Layer::Application,
        _ => Layer::Link,
    };
    let (application, frame) = (r.varint()?, r.varint()?);
    let text = r.prefixed()?;
    let mut reason = FarText::from_wire(text, MAX_REASON);
    let code = Code::from_u64(number).unwrap_or_else(|| {
        // A code of a later version: its number is all that can be told.
        reason = FarText::from_wire(format!("unknown code {number:#x} {}", reason.raw()).as_bytes(), MAX_REASON);
        Code::Internal
    });
    Ok(CloseReason { code, layer, application, frame, reason, is_remote: true })
}

fn emit_close(out: &mut Vec<u8>, close: &CloseReason) {
    varint::emit(out, close.code as u64);
    out.push(close.layer as u8);
    emit_all(out, &[close.application, close.frame]);
    emit_prefixed(out, close.reason.raw_prefix(MAX_REASON).as_bytes());
}
