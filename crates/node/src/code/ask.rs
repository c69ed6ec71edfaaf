//! The sender's end of the exchange: proves to the receiver that it has the code, and hears that the receiver has it.

use super::exchange::{self, Proof};
use super::records::{Line, Malformed, Record, VERSION, Why};
use super::{Code, TAG};
use crate::failure::Failure;
use noctule::{Class, FlowError, FlowOptions, PublicKey, Session};
use std::time::Duration;

/// How long the receiver may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the exchange over a new session, before anything else is sent. Afterwards the far end has proven that it knows the code: its key is
/// the one that the user meant, and it takes what this end sends.
pub async fn present(session: &Session, ours: PublicKey, code: &Code) -> Result<(), Failure> {
    match tokio::time::timeout(PATIENCE, run(session, ours, code)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(match session.close_reason() {
            Some(reason) if !reason.is_clean() && matches!(failure, Failure::PeerGone(_)) => Failure::closed(ours, &reason),
            _ => failure,
        }),
        Err(_) => Err(Failure::PeerGone("it does not answer to the code".into())),
    }
}

async fn run(session: &Session, ours: PublicKey, code: &Code) -> Result<(), Failure> {
    let (out, back) = session.open_bi(FlowOptions { tag: TAG, class: Class::Latency, ..FlowOptions::default() })?;
    let mut line = Line::new(out, back);
    let (begun, element) = exchange::sender(code, ours, session.peer_key());
    line.say(&Record::Begin { version: VERSION, element }).await?;
    let proofs = match heard(line.hear().await, ours)? {
        Record::Answer(element) => begun.finish(&element).ok_or_else(stranger)?,
        _ => return Err(stranger()),
    };
    line.say(&Record::Proof(*proofs.sender.as_bytes())).await?;
    match heard(line.hear().await, ours)? {
        Record::Admitted(proof) if Proof::from_bytes(proof) == proofs.receiver => Ok(()),
        Record::Admitted(_) => Err(Failure::WrongCode),
        _ => Err(stranger()),
    }
}

fn heard(record: Result<Result<Record, Malformed>, FlowError>, ours: PublicKey) -> Result<Record, Failure> {
    match record? {
        Ok(Record::Declined(Why::Wrong)) => Err(Failure::WrongCode),
        Ok(Record::Declined(why)) => Err(Failure::NoCode(match why {
            Why::NoCodes => {
                format!("it takes no codes: leave out --code, and if it then refuses this key, ask its owner to add --allow {ours}")
            }
            Why::Used => {
                "another sender has used this code: ask for another one, which the other side shows when it is started again".into()
            }
            Why::Withdrawn | Why::Wrong => {
                "the code is not valid any more, because it is too old or wrong ones came too often: ask for the one that is shown now"
                    .into()
            }
            Why::Version => "it speaks another version: the same release of noctule is needed on both sides".into(),
        })),
        Ok(record) => Ok(record),
        Err(Malformed) => Err(stranger()),
    }
}

fn stranger() -> Failure {
    Failure::Stranger("it does not know what to do with a code".into())
}
