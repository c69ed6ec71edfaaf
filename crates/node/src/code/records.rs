//! The records of an exchange on their stream.

use super::exchange::{ELEMENT, PROOF};
use noctule::{FlowError, RecvStream, SendStream};
use tokio::io::AsyncWriteExt;

/// Version of the exchange.
pub const VERSION: u8 = 1;

/// A record in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Sender: its element.
    Begin {
        /// [`VERSION`].
        version: u8,
        /// SPAKE2.
        element: [u8; ELEMENT],
    },
    /// Receiver: its element.
    Answer([u8; ELEMENT]),
    /// Sender: it has the code.
    Proof([u8; PROOF]),
    /// Receiver: it has the code, too, and takes the sender.
    Admitted([u8; PROOF]),
    /// Receiver: no.
    Declined(Why),
}

/// Why a receiver declines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The proof is wrong.
    Wrong = 0,
    /// It takes no codes.
    NoCodes = 1,
    /// Another key has used the code.
    Used = 2,
    /// The code is not valid any more.
    Withdrawn = 3,
    /// Another version.
    Version = 4,
}

/// What came is none of these records.
#[derive(Debug)]
pub struct Malformed;

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Self::Begin { .. } => 0x00,
            Self::Answer(_) => 0x02,
            Self::Proof(_) => 0x04,
            Self::Admitted(_) => 0x06,
            Self::Declined(_) => 0x08,
        }
    }

    /// Its bytes on the stream.
    pub fn emit(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Begin { version, element } => {
                body.push(*version);
                body.extend_from_slice(element);
            }
            Self::Answer(bytes) | Self::Proof(bytes) | Self::Admitted(bytes) => body.extend_from_slice(bytes),
            Self::Declined(why) => body.push(*why as u8),
        }
        [&[self.kind(), body.len() as u8], &body[..]].concat()
    }

    fn parse(kind: u8, body: &[u8]) -> Result<Self, Malformed> {
        let fixed = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).map_err(|_| Malformed);
        Ok(match (kind, body) {
            (0x00, [version, element @ ..]) => Self::Begin { version: *version, element: fixed(element)? },
            (0x02, body) => Self::Answer(fixed(body)?),
            (0x04, body) => Self::Proof(fixed(body)?),
            (0x06, body) => Self::Admitted(fixed(body)?),
            (0x08, [why]) => {
                let all = [Why::Wrong, Why::NoCodes, Why::Used, Why::Withdrawn, Why::Version];
                Self::Declined(all.into_iter().find(|w| *w as u8 == *why).ok_or(Malformed)?)
            }
            _ => return Err(Malformed),
        })
    }
}

/// The two directions of the stream.
pub struct Line {
    out: SendStream,
    back: RecvStream,
    bytes: Vec<u8>,
}

impl Line {
    /// Of a stream in both directions.
    pub fn new(out: SendStream, back: RecvStream) -> Self {
        Self { out, back, bytes: Vec::new() }
    }

    /// Says one.
    pub async fn say(&mut self, record: &Record) -> Result<(), FlowError> {
        self.out.write_all(&record.emit()).await
    }

    /// Says the last one: it is delivered without the line.
    pub async fn part(mut self, record: &Record) -> Result<(), FlowError> {
        self.say(record).await?;
        // An error here is one of the session, which ends the wait for the answer.
        let _ = self.out.shutdown().await;
        Ok(())
    }

    /// The next one. Never holds more than one record: its length takes a byte.
    pub async fn hear(&mut self) -> Result<Result<Record, Malformed>, FlowError> {
        loop {
            if let [kind, len, rest @ ..] = &self.bytes[..]
                && let Some(body) = rest.get(..usize::from(*len))
            {
                let (record, used) = (Record::parse(*kind, body), 2 + body.len());
                self.bytes.drain(..used);
                return Ok(record);
            }
            match self.back.read_chunk(256 + 2 - self.bytes.len()).await? {
                Some(chunk) => self.bytes.extend_from_slice(&chunk),
                None => return Ok(Err(Malformed)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written_and_nothing_else_is() {
        let all = [
            Record::Begin { version: VERSION, element: [7; 32] },
            Record::Answer([1; 32]),
            Record::Proof([2; 32]),
            Record::Admitted([3; 32]),
            Record::Declined(Why::Used),
        ];
        for record in all {
            let bytes = record.emit();
            assert_eq!(usize::from(bytes[1]), bytes.len() - 2);
            assert_eq!(Record::parse(bytes[0], &bytes[2..]).unwrap(), record);
            assert!(Record::parse(bytes[0], &bytes[2..bytes.len() - 1]).is_err());
            assert!(Record::parse(bytes[0], &[&bytes[2..], &[0]].concat()).is_err());
        }
        assert!(Record::parse(0x08, &[5]).is_err() && Record::parse(0x0a, &[]).is_err());
    }
}
