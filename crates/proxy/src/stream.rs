//! A stream of a connection: the records in front of its bytes.

use crate::wire::{Answer, HEAD, MOST_BODY, Outcome, Record, RecordError, TAG};
use bytes::{Buf, Bytes, BytesMut};
use noctule::{Class, Code, FlowError, FlowOptions, Layer, OpenError, RecvStream, SendStream, Session};
use std::time::Duration;
use tokio::time::timeout;

/// How long a refused end may take to hear why.
const LAST_WORD: Duration = Duration::from_secs(5);
/// How long the record in front of a stream may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer may take: a look-up and the last of sixteen attempts to connect take 64 s together (`dial`).
const LONGEST: Duration = Duration::from_secs(90);
/// Code of a stream whose TCP connection was reset.
pub(crate) const RESET: u64 = 1;

/// What comes of a stream.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub recv: RecvStream,
    /// Came with a record, and belongs to what follows it.
    rest: BytesMut,
}

/// Why no record came.
#[derive(Debug)]
pub(crate) enum NoRecord {
    Flow(FlowError),
    Bad(RecordError),
    /// The stream ended before it.
    End,
    Late,
}

impl NoRecord {
    /// For people.
    pub fn words(&self) -> String {
        match self {
            Self::Flow(error) => error.to_string(),
            Self::Bad(error) => error.to_string(),
            Self::End => "the other side ended the stream".into(),
            Self::Late => "the other side says nothing".into(),
        }
    }
}

impl Incoming {
    pub fn new(recv: RecvStream) -> Self {
        Self { recv, rest: BytesMut::new() }
    }

    /// The next record.
    pub async fn record(&mut self) -> Result<Record, NoRecord> {
        loop {
            match Record::parse(&self.rest) {
                Ok((record, len)) => {
                    self.rest.advance(len);
                    return Ok(record);
                }
                Err(RecordError::Short) => {}
                Err(error) => return Err(NoRecord::Bad(error)),
            }
            // No more than a record and what came in the same packet: the rest waits where it is counted.
            match self.recv.read_chunk(HEAD + MOST_BODY).await.map_err(NoRecord::Flow)? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None => return Err(NoRecord::End),
            }
        }
    }

    /// The record in front, which comes at once.
    pub async fn request(&mut self) -> Result<Record, NoRecord> {
        timeout(PATIENCE, self.record()).await.unwrap_or(Err(NoRecord::Late))
    }

    /// The answer to a request. It may take as long as the far end's dialler takes.
    pub async fn answer(&mut self) -> Answer {
        self.answer_within(LONGEST).await
    }

    /// The same for a connection: one that stood and was reset at once may lose its answer, which the reset overtakes.
    ///
    /// # Errors
    /// The stream was reset. What is refused ends in good order.
    pub async fn answer_or_reset(&mut self) -> Result<Answer, FlowError> {
        match timeout(LONGEST, self.record()).await.unwrap_or(Err(NoRecord::Late)) {
            Err(NoRecord::Flow(error)) if is_reset(&error) => Err(error),
            record => Ok(answer_of(record, LONGEST)),
        }
    }

    /// The answer to a request for which the far end asks nobody.
    pub async fn prompt_answer(&mut self) -> Answer {
        self.answer_within(PATIENCE).await
    }

    async fn answer_within(&mut self, time: Duration) -> Answer {
        answer_of(timeout(time, self.record()).await.unwrap_or(Err(NoRecord::Late)), time)
    }

    /// What came with the record.
    pub fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest).freeze()
    }

    /// Waits until the far end leaves; what it says is passed over.
    pub async fn ended(&mut self) {
        while let Ok(Some(_)) = self.recv.read_chunk(MOST_BODY).await {}
    }
}

/// Whether the far end has reset the stream, as the proxy does it or without a code.
pub(crate) fn is_reset(error: &FlowError) -> bool {
    matches!(error, FlowError::Closed(reason) if reason.code == Code::Reset || reason.layer == Layer::Application && reason.application == RESET)
}

/// What a record, or the lack of one after this time, says of a request.
fn answer_of(record: Result<Record, NoRecord>, time: Duration) -> Answer {
    match record {
        Ok(Record::Answer(answer)) => answer,
        Err(NoRecord::Late) => {
            Answer::new(Outcome::TimedOut, format!("the proxy on the other side has not answered for {} s", time.as_secs()))
        }
        Ok(_) => Answer::new(Outcome::Failed, "the other side does not answer the request"),
        Err(NoRecord::Flow(FlowError::Session(closed))) => {
            Answer::new(Outcome::Unreachable, format!("the session with the other side ended: {}", closed.0.reason))
        }
        Err(NoRecord::Flow(error)) => no_room(&error).unwrap_or_else(|| Answer::new(Outcome::Failed, error.to_string())),
        Err(why) => Answer::new(Outcome::Failed, why.words()),
    }
}

/// What a connection hears if the other side has no room for its stream, and what to do about it.
pub(crate) fn no_room(error: &FlowError) -> Option<Answer> {
    let FlowError::Closed(reason) = error else { return None };
    let what = match reason.code {
        Code::NoMemory => "memory",
        Code::TooMany => "place",
        _ => return None,
    };
    let text = format!("the other side has no {what} for one more: end some, or let a client with another key take a part of them");
    Some(Answer::new(Outcome::Busy, text))
}

/// Opens a stream with this record in front, and the bytes that are there already in the same breath.
pub(crate) async fn open(session: &Session, request: &Record, first: &[u8], class: Class) -> Result<(SendStream, Incoming), Answer> {
    open_as(TAG, session, request, first, class).await
}

/// The same with another tag.
pub(crate) async fn open_as(
    tag: u64,
    session: &Session,
    request: &Record,
    first: &[u8],
    class: Class,
) -> Result<(SendStream, Incoming), Answer> {
    let failed = |error: FlowError| {
        let outcome = if matches!(error, FlowError::Session(_)) { Outcome::Unreachable } else { Outcome::Failed };
        no_room(&error).unwrap_or_else(|| Answer::new(outcome, error.to_string()))
    };
    let opened = session.open_bi(FlowOptions { tag, class, ..FlowOptions::default() });
    let (mut send, recv) = opened.map_err(|error| match &error {
        OpenError::Session(_) => Answer::new(Outcome::Unreachable, error.to_string()),
        OpenError::Limit { .. } => Answer::new(Outcome::Busy, error.to_string()),
        _ => Answer::new(Outcome::Failed, error.to_string()),
    })?;
    let mut bytes = Vec::with_capacity(64 + first.len());
    request.emit(&mut bytes);
    bytes.extend_from_slice(first);
    send.write_all(&bytes).await.map_err(failed)?;
    Ok((send, Incoming::new(recv)))
}

/// Answers a request, and goes on.
pub(crate) async fn accept(send: &mut SendStream, answer: Answer) -> Result<(), FlowError> {
    let mut bytes = Vec::new();
    Record::Answer(answer).emit(&mut bytes);
    send.write_all(&bytes).await
}

/// Answers that it will not be, and ends the stream once that was heard: a stream that is stopped before might hide why.
pub(crate) async fn refuse(mut send: SendStream, incoming: Incoming, answer: Answer) {
    let said = async {
        accept(&mut send, answer).await?;
        send.finish().await
    };
    let _ = timeout(LAST_WORD, said).await;
    drop(incoming);
}
