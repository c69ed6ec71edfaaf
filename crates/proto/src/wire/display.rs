//! Packets and frames as one line each, in the manner of tcpdump.

use super::ack::AckView;
use super::frame::{Coded, Coefficients, Frame};
use super::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, ProtectedHeader};
use crate::units::Duration;
use core::fmt::{Display, Formatter, Result};

fn milliseconds(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

impl Display for ConnectionId {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.0.is_empty() {
            return f.write_str("-");
        }
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl Display for ProtectedHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "protected to {} gen {} pn ..{}", self.connection_id, self.generation, self.packet_number)
    }
}

impl Display for HandshakePacket<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let ids = |f: &mut Formatter<'_>| write!(f, " v{:08x} {} > {}", self.version, self.source, self.destination);
        match &self.body {
            HandshakeBody::Initiate { pattern, token, message, .. } => {
                f.write_str("INITIATE")?;
                ids(f)?;
                write!(f, " {pattern:?} token {} noise {}", token.len(), message.len())
            }
            HandshakeBody::Respond(message) => {
                f.write_str("RESPOND")?;
                ids(f)?;
                write!(f, " noise {}", message.len())
            }
            HandshakeBody::Finish(message) => {
                f.write_str("FINISH")?;
                ids(f)?;
                write!(f, " noise {}", message.len())
            }
            HandshakeBody::Retry { token, .. } => {
                f.write_str("RETRY")?;
                ids(f)?;
                write!(f, " token {}", token.len())
            }
            HandshakeBody::VersionList(list) => {
                f.write_str("VERSIONS")?;
                ids(f)?;
                list.chunks_exact(4).try_for_each(|v| write!(f, " {:02x}{:02x}{:02x}{:02x}", v[0], v[1], v[2], v[3]))
            }
            HandshakeBody::OtherVersion => {
                f.write_str("HANDSHAKE")?;
                ids(f)?;
                f.write_str(" of another version")
            }
        }
    }
}

impl Display for Packet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Protected(header) => header.fmt(f),
            Self::Handshake(packet, len) => write!(f, "{packet} len {len}"),
        }
    }
}

impl Display for Coefficients<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Index(index) => write!(f, "index {index}"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::BitmapSeed { bitmap, seed } => write!(f, "bitmap {bitmap:#x} seed {seed}"),
            Self::Vector(vector) => {
                f.write_str("vector ")?;
                vector.iter().try_for_each(|c| write!(f, "{c:02x}"))
            }
        }
    }
}

impl Display for Coded<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "CODED flow {} span {}+{} {} len {}", self.flow, self.base, self.n, self.coefficients, self.symbol.len())
    }
}

impl Display for AckView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "ACK path {} {}..={} delay {:.3} ms", self.path(), self.lowest(), self.largest(), milliseconds(self.delay()))?;
        if let Some(ecn) = self.ecn() {
            write!(f, " ecn {}/{}/{}", ecn.ect0, ecn.ect1, ecn.ce)?;
        }
        let mut ranges = self.ranges();
        for (i, range) in ranges.by_ref().take(4).enumerate() {
            f.write_str(if i == 0 { " [" } else { " " })?;
            match range.smallest == range.largest {
                true => write!(f, "{}", range.largest)?,
                false => write!(f, "{}-{}", range.largest, range.smallest)?,
            }
        }
        f.write_str(if ranges.next().is_some() { " ..]" } else { "]" })
    }
}

impl Display for Frame<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Padding => f.write_str("PADDING"),
            Self::Ping => f.write_str("PING"),
            Self::Ack(ack) => ack.fmt(f),
            Self::Coded(coded) => coded.fmt(f),
            Self::FlowOpen(open) => {
                write!(f, "FLOW_OPEN flow {} session {:016x} index {}", open.label, open.session.0, open.index)?;
                write!(f, " {:?} {:?} {:?} T {} M {}", open.mode, open.kind, open.class, open.symbol, open.batch_size)?;
                write!(f, " hops {} tag {}", open.hop_limit, open.tag)?;
                if let Some(lifetime) = open.lifetime {
                    write!(f, " lifetime {} ms", lifetime.as_millis())?;
                }
                if let Some(answers) = open.answers {
                    write!(f, " answers {answers}")?;
                }
                if let Some(r) = &open.relayed {
                    write!(f, " from {} to {} incarnation {}", r.source, r.destination, r.incarnation)?;
                    write!(f, " first {} fits {}", r.first, r.fits)?;
                    if r.part > 0 {
                        write!(f, " part {}", r.part)?;
                    }
                }
                f.write_str(if open.bidirectional { " bidirectional" } else { "" })
            }
            Self::FlowEnd { flow, end } => write!(f, "FLOW_END flow {flow} end {end}"),
            Self::FlowRefused { flow, base, reason } => write!(f, "FLOW_REFUSED flow {flow} base {base} reason {reason:#x}"),
            Self::FlowReset { flow, reason } => write!(f, "FLOW_RESET flow {flow} reason {reason:#x}"),
            Self::FlowStop { flow, reason } => write!(f, "FLOW_STOP flow {flow} reason {reason:#x}"),
            Self::FlowSkip { flow, floor } => write!(f, "FLOW_SKIP flow {flow} floor {floor}"),
            Self::Rank { flow, base, n, rank, missing } => write!(f, "RANK flow {flow} span {base}+{n} rank {rank} missing {missing:#x}"),
            Self::Credit { flow, limit, done } => write!(f, "CREDIT flow {flow} limit {limit} done {done}"),
            Self::NewConnectionId { path, sequence, id } => write!(f, "NEW_CONNECTION_ID path {path} sequence {sequence} id {id}"),
            Self::RetireConnectionId { sequence } => write!(f, "RETIRE_CONNECTION_ID sequence {sequence}"),
            Self::PathChallenge(data) => write!(f, "PATH_CHALLENGE {:016x}", u64::from_be_bytes(*data)),
            Self::PathResponse(data) => write!(f, "PATH_RESPONSE {:016x}", u64::from_be_bytes(*data)),
            Self::Rekey { generation, step, message } => write!(f, "REKEY generation {generation} step {step} noise {}", message.len()),
            Self::Fragment { id, index, data } => write!(f, "FRAGMENT id {id} index {index} len {}", data.len()),
            Self::Datagram { flow, number, data } => write!(f, "DATAGRAM flow {flow} number {number} len {}", data.len()),
            Self::Close(reason) => {
                write!(f, "CLOSE {:?} code {:#x} frame {:#x} {:?}", reason.layer, reason.code as u16, reason.frame, reason.reason)
            }
        }
    }
}
