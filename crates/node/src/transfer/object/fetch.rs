//! `noctule get --mode brctp`: asks for one file as an object, then receives it as `noctule recv` does.

use super::super::asked::Asked;
use super::super::progress::Reporter;
use super::super::receive::{Destination, IDLE, Stop, gone};
use super::super::shares::{Limits, Shares};
use super::super::target::{Refused, Target};
use super::super::wire::{Record, Records};
use super::super::writer::protocol;
use super::{OBJECT_TAG, recv};
use crate::failure::Failure;
use noctule::{IncomingFlow, RecvStream, SendStream, Session};
use std::time::Duration;

/// How long the other side may take to read why it is refused.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Receives what was asked for on the stream of `control`, which says why it does not come.
/// What is not `asked` for is refused there.
pub async fn run(session: &Session, control: &mut Records, target: Target, asked: &Asked, reporter: &Reporter) -> Result<(), Stop> {
    let (flow, mut answers) = offered(session, control, reporter).await?;
    let mut records = Records::new(flow);
    let mut place = Shares::new(Limits::default()).enter(session.peer_key())?;
    records.set_idle(IDLE);
    let offer = recv::offer(&mut records, &mut place).await?;
    records.set_idle(Duration::MAX);
    asked.check(offer.path())?;
    let to = Destination::Directory(target);
    let received = tokio::select! {
        result = recv::run(session, &mut records, &mut answers, to, offer, place, None, reporter, std::future::pending()) => result,
        stop = refusal(control) => Err(stop),
    };
    if let Err(Stop::Refused(refused)) = &received {
        let _ = tokio::time::timeout(LAST_WORD, answers.write_all(&Record::from(refused.clone()).bytes())).await;
    }
    let _ = tokio::time::timeout(LAST_WORD, answers.finish()).await;
    received?;
    // The other side looks once more whether it has sent what it announced.
    control.set_idle(IDLE);
    loop {
        match control.next().await? {
            None => return Ok(()),
            Some(record) => unasked(record)?,
        }
    }
}

/// What may come beside an object: why it ends. What was said while the file was hashed may be overtaken by the object's stream.
fn unasked(record: Record) -> Result<(), Stop> {
    match record {
        Record::Working { .. } => Ok(()),
        Record::Refused { refusal, path, message } => Err(Stop::Denied(Refused { refusal, path, message })),
        _ => Err(protocol("a record came that has no place beside an object").into()),
    }
}

/// The object's stream, or the reason why there is none. Meanwhile the other side hashes the file.
async fn offered(session: &Session, control: &mut Records, reporter: &Reporter) -> Result<(RecvStream, SendStream), Stop> {
    loop {
        tokio::select! {
            record = control.next() => match record? {
                Some(Record::Working { done, total }) => reporter.comparing(done, total),
                Some(Record::Refused { refusal, path, message }) => return Err(Stop::Denied(Refused { refusal, path, message })),
                Some(_) => return Err(protocol("the other side offers files and no object: it may be older than this one").into()),
                None => return Err(gone().into()),
            },
            flow = session.accept_flow() => match flow.map_err(Failure::from)? {
                IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == OBJECT_TAG => return Ok((recv, send)),
                _ => return Err(protocol("a flow came that has no place in the transfer of an object").into()),
            },
        }
    }
}

/// Why the other side ends what it has begun, or that it says what has no place here; never, if it says nothing.
async fn refusal(control: &mut Records) -> Stop {
    loop {
        match control.next().await {
            Ok(Some(record)) => {
                if let Err(stop) = unasked(record) {
                    return stop;
                }
            }
            Ok(None) | Err(_) => return std::future::pending().await,
        }
    }
}
