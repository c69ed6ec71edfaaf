//! What the two ends say to each other in front of a stream's bytes, and in each datagram. `docs/spec/proxy.md` describes the bytes.

use crate::target::{AddressError, NONE, Target, field};
use noctule::FarText;
use std::time::Duration;

/// Version of these records.
pub const VERSION: u8 = 1;
/// Tag of the streams: "prxy".
pub const TAG: u64 = 0x7072_7879;
/// Tag of the flows of datagrams, "pxu", above the number of their association.
pub const DATAGRAM_TAG: u64 = 0x70_7875 << 32;
/// Bytes of a record's type and length.
pub const HEAD: usize = 3;
/// Bytes of the longest body.
pub const MOST_BODY: usize = 1024;
/// Bytes of the longest text of an answer.
const MOST_TEXT: usize = 255;
/// The number of an association or a listener that the acceptor of the session chose has this bit.
pub const ACCEPTORS: u32 = 1 << 31;

mod kind {
    pub const CONNECT: u8 = 0x00;
    pub const ASSOCIATE: u8 = 0x02;
    pub const LISTEN: u8 = 0x04;
    pub const ARRIVAL: u8 = 0x06;
    pub const DATAGRAMS: u8 = 0x08;
    pub const ANSWER: u8 = 0x0a;
    pub const HELLO: u8 = 0x0c;
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The connection stands, the listener listens.
    Connected = 0,
    /// The target refused the connection.
    Refused = 1,
    /// No route leads to the target.
    Unreachable = 2,
    /// The target did not answer in time.
    TimedOut = 3,
    /// The rules of the far end do not allow it.
    Denied = 4,
    /// The name of the target has no address.
    NameNotFound = 5,
    /// Too many connections.
    Busy = 6,
    /// Something else went wrong there.
    Failed = 7,
    /// The request is not understood there.
    Unsupported = 8,
}

impl Outcome {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Connected,
            1 => Self::Refused,
            2 => Self::Unreachable,
            3 => Self::TimedOut,
            4 => Self::Denied,
            5 => Self::NameNotFound,
            6 => Self::Busy,
            8 => Self::Unsupported,
            // What a later version distinguishes.
            _ => Self::Failed,
        }
    }

    /// A few words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Refused => "connection refused",
            Self::Unreachable => "no route to the target",
            Self::TimedOut => "the target does not answer",
            Self::Denied => "denied",
            Self::NameNotFound => "name not found",
            Self::Busy => "too many connections",
            Self::Failed => "failed",
            Self::Unsupported => "not understood by the other side",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What came of it.
    pub outcome: Outcome,
    /// The address at the far end: of its side of the connection, or where the listener listens.
    pub bound: Option<Target>,
    /// Why, for people; empty if the outcome says it all. Shown escaped.
    pub text: FarText,
}

impl Answer {
    /// One without an address.
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, bound: None, text: FarText::new(text) }
    }

    /// Outcome and reason.
    pub fn words(&self) -> String {
        match (self.text.is_empty(), self.outcome) {
            (true, outcome) => outcome.words().to_owned(),
            // It is not the way to the target that is missing.
            (false, Outcome::Unreachable) => self.text.to_string(),
            (false, outcome) => format!("{}: {}", outcome.words(), self.text),
        }
    }
}

/// What a listener at the far end takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Connect to a target; the stream's bytes are the connection's.
    Connect {
        /// Which.
        target: Target,
        /// Where the connection came from, if the near end says so.
        source: Option<Target>,
    },
    /// Send and receive datagrams for as long as this stream lives.
    Associate {
        /// Names the flows of the datagrams.
        id: u32,
        /// Lifetime of those that come back.
        lifetime: Duration,
        /// Where those without an address go.
        target: Option<Target>,
    },
    /// Listen for as long as this stream lives.
    Listen {
        /// Names the listener in what arrives.
        id: u32,
        /// For what.
        transport: Transport,
        /// Where: an address, or `localhost`.
        bind: Target,
    },
    /// A connection came in at a listener.
    Arrival {
        /// Which.
        listener: u32,
        /// From where.
        source: Target,
    },
    /// Datagrams from one source came in at a listener.
    Datagrams {
        /// Which.
        listener: u32,
        /// Names the flows of the datagrams.
        id: u32,
        /// Lifetime of those that go back.
        lifetime: Duration,
        /// From where.
        source: Target,
    },
    /// What came of a request.
    Answer(Answer),
    /// This session is for a proxy; its stream lives as long as the opener wants it served.
    Hello,
}

/// Bytes that are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// More has to come.
    #[error("cut off")]
    Short,
    /// It is longer than any.
    #[error("a record of {0} bytes")]
    Long(usize),
    /// Another version, or a type that this one does not know.
    #[error("a request of another version")]
    Unknown,
    /// A field is not what it should be.
    #[error("a malformed record: {0}")]
    Malformed(&'static str),
}

impl From<AddressError> for RecordError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::Short => Self::Malformed("cut off"),
            AddressError::Kind(_) => Self::Malformed("an unknown type of address"),
            AddressError::Name => Self::Malformed("no host name"),
        }
    }
}

fn millis(lifetime: Duration) -> [u8; 4] {
    u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX).to_be_bytes()
}

fn optional(target: Option<&Target>, out: &mut Vec<u8>) {
    match target {
        Some(target) => target.emit(out),
        None => out.push(NONE),
    }
}

impl Record {
    /// Appends the record.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, at) = (self.kind(), out.len());
        out.extend([kind, 0, 0]);
        if kind != kind::ANSWER {
            out.push(VERSION);
        }
        match self {
            Self::Hello => {}
            Self::Connect { target, source } => {
                target.emit(out);
                // One that is not said takes no byte: version 1 began without it.
                if let Some(source) = source {
                    source.emit(out);
                }
            }
            Self::Associate { id, lifetime, target } => {
                out.extend(id.to_be_bytes());
                out.extend(millis(*lifetime));
                optional(target.as_ref(), out);
            }
            Self::Listen { id, transport, bind } => {
                out.extend(id.to_be_bytes());
                out.push(match transport {
                    Transport::Tcp => 0,
                    Transport::Udp => 1,
                });
                bind.emit(out);
            }
            Self::Arrival { listener, source } => {
                out.extend(listener.to_be_bytes());
                source.emit(out);
            }
            Self::Datagrams { listener, id, lifetime, source } => {
                out.extend(listener.to_be_bytes());
                out.extend(id.to_be_bytes());
                out.extend(millis(*lifetime));
                source.emit(out);
            }
            Self::Answer(Answer { outcome, bound, text }) => {
                out.push(*outcome as u8);
                optional(bound.as_ref(), out);
                out.extend(text.raw_prefix(MOST_TEXT).as_bytes());
            }
        }
        let len = (out.len() - at - HEAD) as u16;
        out[at + 1..at + HEAD].copy_from_slice(&len.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Connect { .. } => kind::CONNECT,
            Self::Associate { .. } => kind::ASSOCIATE,
            Self::Listen { .. } => kind::LISTEN,
            Self::Arrival { .. } => kind::ARRIVAL,
            Self::Datagrams { .. } => kind::DATAGRAMS,
            Self::Answer(_) => kind::ANSWER,
            Self::Hello => kind::HELLO,
        }
    }

    /// Takes a record from the front of `bytes`, and how long it was. What follows the known fields of its body is left for later versions.
    ///
    /// # Errors
    /// [`RecordError::Short`] while more has to come; otherwise it is none.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), RecordError> {
        let [kind, high, low] = field(bytes, 0).map_err(|_| RecordError::Short)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len > MOST_BODY {
            return Err(RecordError::Long(len));
        }
        let body = bytes.get(HEAD..HEAD + len).ok_or(RecordError::Short)?;
        Ok((Self::parse_body(kind, body)?, HEAD + len))
    }

    fn parse_body(kind: u8, body: &[u8]) -> Result<Self, RecordError> {
        if kind == kind::ANSWER {
            let outcome = Outcome::from_u8(*body.first().ok_or(RecordError::Malformed("cut off"))?);
            let (bound, len) = optional_target(&body[1..])?;
            return Ok(Self::Answer(Answer { outcome, bound, text: FarText::from_wire(&body[1 + len..], MOST_TEXT) }));
        }
        let (version, rest) = body.split_first().ok_or(RecordError::Malformed("cut off"))?;
        if *version != VERSION {
            return Err(RecordError::Unknown);
        }
        let number = |at| field(rest, at).map(u32::from_be_bytes);
        let target = |at: usize| Target::parse_bytes(rest.get(at..).unwrap_or_default()).map(|(target, _)| target);
        let time = |at| number(at).map(|ms| Duration::from_millis(ms.into()));
        Ok(match kind {
            kind::HELLO => Self::Hello,
            kind::CONNECT => {
                let (target, len) = Target::parse_bytes(rest)?;
                let source = match rest.get(len..) {
                    None | Some([]) => None,
                    Some(more) => optional_target(more)?.0,
                };
                Self::Connect { target, source }
            }
            kind::ASSOCIATE => {
                let target = optional_target(rest.get(8..).unwrap_or_default())?.0;
                Self::Associate { id: number(0)?, lifetime: time(4)?, target }
            }
            kind::LISTEN => {
                let transport = match rest.get(4) {
                    Some(0) => Transport::Tcp,
                    Some(1) => Transport::Udp,
                    Some(_) => return Err(RecordError::Unknown),
                    None => return Err(RecordError::Malformed("cut off")),
                };
                Self::Listen { id: number(0)?, transport, bind: target(5)? }
            }
            kind::ARRIVAL => Self::Arrival { listener: number(0)?, source: target(4)? },
            kind::DATAGRAMS => Self::Datagrams { listener: number(0)?, id: number(4)?, lifetime: time(8)?, source: target(12)? },
            _ => return Err(RecordError::Unknown),
        })
    }
}

fn optional_target(bytes: &[u8]) -> Result<(Option<Target>, usize), AddressError> {
    match bytes.first() {
        Some(&NONE) => Ok((None, 1)),
        _ => Target::parse_bytes(bytes).map(|(target, len)| (Some(target), len)),
    }
}

/// Writes a datagram: where it goes or came from, and its bytes. `None`: the target that the association was made for.
pub fn emit_datagram(target: Option<&Target>, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 20);
    optional(target, &mut out);
    out.extend(data);
    out
}

/// Reads a datagram.
///
/// # Errors
/// It does not begin with an address.
pub fn parse_datagram(bytes: &[u8]) -> Result<(Option<Target>, &[u8]), RecordError> {
    let (target, len) = optional_target(bytes)?;
    Ok((target, &bytes[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let target: Target = "example.org:443".parse().unwrap();
        let source: Target = "[2001:db8::1]:9".parse().unwrap();
        let lifetime = Duration::from_millis(700);
        vec![
            Record::Connect { target: target.clone(), source: Some(source.clone()) },
            Record::Connect { target: target.clone(), source: None },
            Record::Associate { id: 7, lifetime, target: Some(target.clone()) },
            Record::Associate { id: 8, lifetime, target: None },
            Record::Listen { id: 1, transport: Transport::Tcp, bind: target.clone() },
            Record::Listen { id: 2, transport: Transport::Udp, bind: target },
            Record::Arrival { listener: 1, source: source.clone() },
            Record::Datagrams { listener: 2, id: ACCEPTORS | 3, lifetime, source: source.clone() },
            Record::Answer(Answer { outcome: Outcome::Connected, bound: Some(source), text: FarText::default() }),
            Record::Answer(Answer::new(Outcome::Denied, "a private address")),
            Record::Hello,
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written_and_cut_ones_wait_for_more() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.emit(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(Record::parse(&bytes[..len]), Err(RecordError::Short));
            }
            bytes.extend(b"the stream's own");
            assert_eq!(Record::parse(&bytes), Ok((record, bytes.len() - 16)));
        }
    }

    #[test]
    fn what_later_versions_add_is_passed_over_and_what_is_no_record_is_told() {
        let mut bytes = Vec::new();
        samples()[0].emit(&mut bytes);
        bytes.extend(b"more");
        bytes[2] += 4;
        assert_eq!(Record::parse(&bytes), Ok((samples().remove(0), bytes.len())));
        bytes[3] = 2;
        assert_eq!(Record::parse(&bytes), Err(RecordError::Unknown), "another version");
        bytes[0] = 0x7e;
        bytes[3] = 1;
        assert_eq!(Record::parse(&bytes), Err(RecordError::Unknown), "another type");
        assert_eq!(Record::parse(&[0, 0xff, 0xff]), Err(RecordError::Long(0xffff)));
        assert_eq!(Record::parse(&[0, 0, 0]), Err(RecordError::Malformed("cut off")));
        assert_eq!(Record::parse(&[0, 0, 2, 1, 9]), Err(RecordError::Malformed("an unknown type of address")));
    }

    #[test]
    fn the_example_of_the_specification() {
        let mut bytes = Vec::new();
        Record::Connect { target: "192.0.2.1:80".parse().unwrap(), source: None }.emit(&mut bytes);
        assert_eq!(bytes, [0x00, 0x00, 0x08, 0x01, 0x01, 192, 0, 2, 1, 0, 80]);
        bytes.clear();
        let source = Some("198.51.100.9:4000".parse().unwrap());
        Record::Connect { target: "192.0.2.1:80".parse().unwrap(), source }.emit(&mut bytes);
        assert_eq!(bytes, [0x00, 0x00, 0x0f, 0x01, 0x01, 192, 0, 2, 1, 0, 80, 0x01, 198, 51, 100, 9, 0x0f, 0xa0]);
        bytes.clear();
        Record::Answer(Answer::new(Outcome::Refused, "")).emit(&mut bytes);
        assert_eq!(bytes, [0x0a, 0x00, 0x02, 0x01, 0x00]);
    }

    #[test]
    fn words_name_what_is_missing() {
        assert_eq!(Answer::new(Outcome::Unreachable, "").words(), "no route to the target");
        assert_eq!(Answer::new(Outcome::Unreachable, "there is no session").words(), "there is no session");
        assert_eq!(Answer::new(Outcome::Failed, "Too many open files").words(), "failed: Too many open files");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut bytes = Vec::new();
        Record::Answer(Answer::new(Outcome::Failed, "ä".repeat(200))).emit(&mut bytes);
        let (Record::Answer(answer), _) = Record::parse(&bytes).unwrap() else { panic!() };
        assert_eq!(answer.text.raw(), "ä".repeat(127));
    }

    #[test]
    fn datagrams_carry_an_address_or_none() {
        let target: Target = "192.0.2.1:53".parse().unwrap();
        assert_eq!(parse_datagram(&emit_datagram(Some(&target), b"x")), Ok((Some(target), &b"x"[..])));
        assert_eq!(parse_datagram(&emit_datagram(None, b"")), Ok((None, &b""[..])));
        assert!(parse_datagram(&[]).is_err() && parse_datagram(&[1, 2]).is_err());
    }
}
