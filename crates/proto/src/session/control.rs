//! Session frames: what the two ends of a session tell each other on its control flow.
//!
//! A control message is a sequence of frames `type | length | body`, both numbers varints. An even type is mandatory, an odd one may be skipped
//! by a receiver that does not know it (P1).

use super::violation;
use crate::error::{CloseReason, Code, Layer};
use crate::far_text::FarText;
use crate::options::Mode;
use crate::units::Duration;
use crate::wire::WireError;
use crate::wire::varint::{self, Reader, emit_prefixed};

/// Frame types.
pub mod frame_type {
    /// PARAMS.
    pub const PARAMS: u64 = 0x00;
    /// ACCEPT.
    pub const ACCEPT: u64 = 0x02;
    /// FLOW_DELIVERED.
    pub const FLOW_DELIVERED: u64 = 0x04;
    /// RESET.
    pub const RESET: u64 = 0x06;
    /// STOP.
    pub const STOP: u64 = 0x08;
    /// CLOSE.
    pub const CLOSE: u64 = 0x0a;
    /// CLOSED.
    pub const CLOSED: u64 = 0x0c;
    /// FITS.
    pub const FITS: u64 = 0x0e;
    /// END.
    pub const END: u64 = 0x10;
    /// SKIP.
    pub const SKIP: u64 = 0x12;
    /// POLLUTED.
    pub const POLLUTED: u64 = 0x14;
    /// PART_DELIVERED.
    pub const PART_DELIVERED: u64 = 0x16;
    /// WINDOW.
    pub const WINDOW: u64 = 0x18;
    /// REKEY.
    pub const REKEY: u64 = 0x1a;
    /// KEYS.
    pub const KEYS: u64 = 0x1c;
}

/// Parameter ids within PARAMS. Unknown ids are ignored.
mod param {
    pub const MAX_MESSAGE: u64 = 1;
    pub const MAX_FLOWS: u64 = 2;
    pub const CREDIT: u64 = 3;
}

/// What an end of a session takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Largest message, in bytes (P18).
    pub max_message: u64,
    /// Flows towards it that may be open at once, control flow not counted.
    pub max_flows: u64,
    /// Source packets of a new flow that may be sent before the first CREDIT (P15).
    pub credit: u64,
}

impl Default for SessionLimits {
    /// 16 MiB, 256 flows, 1024 packets.
    fn default() -> Self {
        Self { max_message: 16 << 20, max_flows: 256, credit: 1024 }
    }
}

/// How much there is to receive, as the sending end says when it closes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// `brtp` data flows opened in all.
    pub opened: u64,
    /// For flows that are finished and not yet known to be delivered: index and number of packets.
    pub ends: Vec<(u64, u64)>,
}

/// A session frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionFrame {
    /// First frame of either side: its limits.
    Params(SessionLimits),
    /// The acceptor took the session.
    Accept,
    /// The destination received the first `packets` packets of a flow of the other side, all that there were so far (P14).
    FlowDelivered {
        /// Flow, in the numbering of its sender.
        index: u64,
        /// Packets.
        packets: u64,
    },
    /// The sender of a flow gave it up.
    Reset {
        /// Flow, in the numbering of the sender of this frame.
        index: u64,
        /// Promise that it had, for a receiver that has not heard of the flow.
        mode: Mode,
        /// The application's code.
        code: u64,
    },
    /// The receiver of a flow wants no more of it.
    Stop {
        /// Flow, in the numbering of the receiver of this frame.
        index: u64,
        /// The application's code.
        code: u64,
    },
    /// This side has nothing more to send and asks to end the session.
    Close {
        /// Why.
        reason: CloseReason,
        /// How long it will wait.
        linger: Duration,
        /// What it sent.
        totals: Totals,
    },
    /// The answer to CLOSE, after which its sender neither sends nor receives.
    Closed {
        /// Everything that CLOSE announced was received.
        all_received: bool,
        /// What the sender of this frame had sent.
        totals: Totals,
    },
    /// Symbols of up to so many bytes reach the sender of this frame uncut (P5).
    Fits {
        /// Bytes.
        symbol: u64,
    },
    /// A flow of the sender of this frame has so many packets in all. On a sealed flow nothing else says so with authority (P16).
    End {
        /// Flow, in the numbering of the sender of this frame.
        index: u64,
        /// Packets.
        packets: u64,
    },
    /// The sender of a flow gave up its first packets.
    Skip {
        /// Flow, in the numbering of the sender of this frame.
        index: u64,
        /// First packet that still counts.
        floor: u64,
    },
    /// Packets of a flow were altered on the route here: another route is wanted.
    Polluted {
        /// Flow, in the numbering of the receiver of this frame; 0 is its control flow.
        index: u64,
        /// How many so far.
        packets: u64,
    },
    /// The destination received the first `packets` packets of a part of a flow of the other side (multipath.md 6).
    PartDelivered {
        /// Flow, in the numbering of its sender.
        index: u64,
        /// Part.
        part: u64,
        /// Packets.
        packets: u64,
    },
    /// A flow of the other side that takes several routes may send its packets below `limit`.
    Window {
        /// Flow, in the numbering of its sender.
        index: u64,
        /// One past the last packet.
        limit: u64,
    },
    /// A Noise message of a fresh Diffie-Hellman for generation `generation` of the session's keys.
    Rekey {
        /// Generation being agreed.
        generation: u64,
        /// 0: the opener's message, 1: the acceptor's.
        step: u8,
        /// Noise message.
        message: Vec<u8>,
    },
    /// The sender of this frame seals with generation `generation` from now on.
    Keys {
        /// Generation.
        generation: u64,
        /// All flows have been named.
        is_last: bool,
        /// Flows of the sender of this frame that have packets of generations before: index, part, first packet of this one.
        firsts: Vec<(u64, u64, u64)>,
    },
}

impl SessionFrame {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let b = &mut body;
        let kind = match self {
            Self::Params(limits) => {
                for (id, value) in
                    [(param::MAX_MESSAGE, limits.max_message), (param::MAX_FLOWS, limits.max_flows), (param::CREDIT, limits.credit)]
                {
                    varint::emit(b, id);
                    varint::emit(b, varint::size(value) as u64);
                    varint::emit(b, value);
                }
                frame_type::PARAMS
            }
            Self::Accept => frame_type::ACCEPT,
            Self::FlowDelivered { index, packets } => {
                varint::emit(b, *index);
                varint::emit(b, *packets);
                frame_type::FLOW_DELIVERED
            }
            Self::Reset { index, mode, code } => {
                varint::emit(b, *index);
                b.push(match mode {
                    Mode::Brtp => 0,
                    Mode::Btp => 1,
                    Mode::Transparent => 2,
                });
                varint::emit(b, *code);
                frame_type::RESET
            }
            Self::Fits { symbol } => {
                varint::emit(b, *symbol);
                frame_type::FITS
            }
            Self::End { index, packets } => {
                varint::emit(b, *index);
                varint::emit(b, *packets);
                frame_type::END
            }
            Self::Skip { index, floor } => {
                varint::emit(b, *index);
                varint::emit(b, *floor);
                frame_type::SKIP
            }
            Self::Polluted { index, packets } => {
                varint::emit(b, *index);
                varint::emit(b, *packets);
                frame_type::POLLUTED
            }
            Self::PartDelivered { index, part, packets } => {
                varint::emit(b, *index);
                varint::emit(b, *part);
                varint::emit(b, *packets);
                frame_type::PART_DELIVERED
            }
            Self::Window { index, limit } => {
                varint::emit(b, *index);
                varint::emit(b, *limit);
                frame_type::WINDOW
            }
            Self::Rekey { generation, step, message } => {
                varint::emit(b, *generation);
                b.push(*step);
                b.extend_from_slice(message);
                frame_type::REKEY
            }
            Self::Keys { generation, is_last, firsts } => {
                varint::emit(b, *generation);
                b.push(u8::from(*is_last));
                varint::emit(b, firsts.len() as u64);
                for (index, part, first) in firsts {
                    [index, part, first].into_iter().for_each(|n| varint::emit(b, *n));
                }
                frame_type::KEYS
            }
            Self::Stop { index, code } => {
                varint::emit(b, *index);
                varint::emit(b, *code);
                frame_type::STOP
            }
            Self::Close { reason, linger, totals } => {
                emit_reason(b, reason);
                varint::emit(b, u64::try_from(linger.as_millis()).unwrap_or(varint::MAX));
                emit_totals(b, totals);
                frame_type::CLOSE
            }
            Self::Closed { all_received, totals } => {
                b.push(u8::from(*all_received));
                emit_totals(b, totals);
                frame_type::CLOSED
            }
        };
        varint::emit(out, kind);
        emit_prefixed(out, &body);
    }

    /// Reads the next frame of a control message; `Ok(None)` at its end. Unknown optional frames are skipped.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Option<Self>, CloseReason> {
        while !reader.is_empty() {
            let kind = reader.varint().map_err(|e| malformed(0, e))?;
            let body = reader.prefixed().map_err(|e| malformed(kind, e))?;
            if let Some(frame) = Self::parse_body(kind, body)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn parse_body(kind: u64, body: &[u8]) -> Result<Option<Self>, CloseReason> {
        let mut r = Reader::new(body);
        let frame = match kind {
            frame_type::PARAMS => return parse_params(body).map(|limits| Some(Self::Params(limits))),
            frame_type::ACCEPT => Ok(Self::Accept),
            frame_type::FLOW_DELIVERED => pair(&mut r).map(|(index, packets)| Self::FlowDelivered { index, packets }),
            frame_type::RESET => parse_reset(&mut r),
            frame_type::STOP => pair(&mut r).map(|(index, code)| Self::Stop { index, code }),
            frame_type::FITS => r.varint().map(|symbol| Self::Fits { symbol }),
            frame_type::END => pair(&mut r).map(|(index, packets)| Self::End { index, packets }),
            frame_type::SKIP => pair(&mut r).map(|(index, floor)| Self::Skip { index, floor }),
            frame_type::POLLUTED => pair(&mut r).map(|(index, packets)| Self::Polluted { index, packets }),
            frame_type::PART_DELIVERED => {
                pair(&mut r).and_then(|(index, part)| Ok(Self::PartDelivered { index, part, packets: r.varint()? }))
            }
            frame_type::WINDOW => pair(&mut r).map(|(index, limit)| Self::Window { index, limit }),
            frame_type::REKEY => parse_rekey(&mut r),
            frame_type::KEYS => parse_keys(&mut r),
            frame_type::CLOSE => parse_close(&mut r),
            frame_type::CLOSED => parse_closed(&mut r),
            unknown if unknown % 2 == 1 => return Ok(None), // P1: optional
            unknown => return Err(malformed(unknown, WireError::UnknownFrame(unknown))),
        }
        .map_err(|e| malformed(kind, e))?;
        if r.is_empty() { Ok(Some(frame)) } else { Err(malformed(kind, WireError::Invalid("bytes behind a session frame"))) }
    }
}

fn malformed(kind: u64, error: WireError) -> CloseReason {
    let code = if matches!(error, WireError::UnknownFrame(_)) { Code::UnknownFrame } else { Code::SessionProtocol };
    CloseReason { frame: kind, ..CloseReason::local(code, Layer::Session, error.to_string()) }
}

fn pair(r: &mut Reader<'_>) -> Result<(u64, u64), WireError> {
    Ok((r.varint()?, r.varint()?))
}

fn parse_params(body: &[u8]) -> Result<SessionLimits, CloseReason> {
    let mut r = Reader::new(body);
    let mut seen = [false; 3];
    let mut limits = SessionLimits { max_message: 0, max_flows: 0, credit: 0 };
    let cut = |e| malformed(frame_type::PARAMS, e);
    while !r.is_empty() {
        let id = r.varint().map_err(cut)?;
        let mut value = Reader::new(r.prefixed().map_err(cut)?);
        let (at, field) = match id {
            param::MAX_MESSAGE => (0, &mut limits.max_message),
            param::MAX_FLOWS => (1, &mut limits.max_flows),
            param::CREDIT => (2, &mut limits.credit),
            _ => continue, // P1
        };
        *field = value.varint().map_err(cut)?;
        if !value.is_empty() || seen[at] {
            return Err(cut(WireError::Invalid("session parameter")));
        }
        seen[at] = true;
    }
    if seen.contains(&false) {
        return Err(violation("a session parameter is missing"));
    }
    Ok(limits)
}

fn parse_reset(r: &mut Reader<'_>) -> Result<SessionFrame, WireError> {
    let index = r.varint()?;
    let mode = match r.u8()? {
        0 => Mode::Brtp,
        1 => Mode::Btp,
        2 => Mode::Transparent,
        _ => return Err(WireError::Invalid("mode")),
    };
    Ok(SessionFrame::Reset { index, mode, code: r.varint()? })
}

fn parse_rekey(r: &mut Reader<'_>) -> Result<SessionFrame, WireError> {
    let (generation, step) = (r.varint()?, r.u8()?);
    let message = r.rest().to_vec();
    *r = Reader::new(&[]);
    Ok(SessionFrame::Rekey { generation, step, message })
}

fn parse_keys(r: &mut Reader<'_>) -> Result<SessionFrame, WireError> {
    let generation = r.varint()?;
    let is_last = parse_flag(r)?;
    let count = r.varint()?;
    // Each entry takes three bytes at least, so the message itself bounds the list.
    if count > r.rest().len() as u64 / 3 {
        return Err(WireError::Truncated);
    }
    let firsts = (0..count).map(|_| Ok((r.varint()?, r.varint()?, r.varint()?))).collect::<Result<_, _>>()?;
    Ok(SessionFrame::Keys { generation, is_last, firsts })
}

fn parse_flag(r: &mut Reader<'_>) -> Result<bool, WireError> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Invalid("flag")),
    }
}

fn parse_close(r: &mut Reader<'_>) -> Result<SessionFrame, WireError> {
    let reason = parse_reason(r)?;
    let linger = Duration::from_millis(r.varint()?);
    Ok(SessionFrame::Close { reason, linger, totals: parse_totals(r)? })
}

fn parse_closed(r: &mut Reader<'_>) -> Result<SessionFrame, WireError> {
    let all_received = parse_flag(r)?;
    Ok(SessionFrame::Closed { all_received, totals: parse_totals(r)? })
}

fn emit_totals(out: &mut Vec<u8>, totals: &Totals) {
    varint::emit(out, totals.opened);
    varint::emit(out, totals.ends.len() as u64);
    for &(index, end) in &totals.ends {
        varint::emit(out, index);
        varint::emit(out, end);
    }
}

fn parse_totals(r: &mut Reader<'_>) -> Result<Totals, WireError> {
    let opened = r.varint()?;
    let count = r.varint()?;
    // Each entry takes two bytes at least, so the message itself bounds the list.
    if count > r.rest().len() as u64 / 2 {
        return Err(WireError::Truncated);
    }
    let ends = (0..count).map(|_| pair(r)).collect::<Result<_, _>>()?;
    Ok(Totals { opened, ends })
}

/// Longest text of a reason, bytes.
const MAX_REASON: usize = 255;

fn emit_reason(out: &mut Vec<u8>, reason: &CloseReason) {
    varint::emit(out, reason.code as u64);
    out.push(reason.layer as u8);
    varint::emit(out, reason.application);
    varint::emit(out, reason.frame);
    emit_prefixed(out, reason.reason.raw_prefix(MAX_REASON).as_bytes());
}

fn parse_reason(r: &mut Reader<'_>) -> Result<CloseReason, WireError> {
    // A code from a newer release is still a reason to close.
    let code = Code::from_u64(r.varint()?).unwrap_or(Code::Internal);
    let layer = match r.u8()? {
        0 => Layer::Wire,
        1 => Layer::Crypto,
        2 => Layer::Link,
        3 => Layer::Flow,
        4 => Layer::Session,
        5 => Layer::Application,
        _ => return Err(WireError::Invalid("layer")),
    };
    let application = r.varint()?;
    let frame = r.varint()?;
    let text = r.prefixed()?;
    if text.len() > MAX_REASON {
        return Err(WireError::Invalid("length of a reason"));
    }
    let reason = FarText::from_wire(text, MAX_REASON);
    Ok(CloseReason { code, layer, application, frame, reason, is_remote: true })
}
