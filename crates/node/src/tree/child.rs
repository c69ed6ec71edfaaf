//! A neighbour that is asked to pass an object on, or to receive it: what it says, as events.

use super::{Branch, packets, tag};
use crate::transfer::wire::{Record, Records};
use noctule::{FlowOptions, MessageSender, Session};
use noctule_proto::object::{ChildId, Layout, Status};
use noctule_proto::wire::varint::Reader;
use std::time::Duration;
use tokio::sync::mpsc;

/// A child that has told nothing after so long is none: all receivers behind it have to answer first.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a child says.
pub enum Says {
    /// It is ready for packets, and so far already.
    Ready(MessageSender, Status),
    /// It is so far now.
    Status(Status),
    /// These receivers are not reached through it, or not any more, and why.
    Lost(Vec<u64>, String),
    /// It says nothing more; why.
    Ended(String),
}

/// Asks for a branch and tells what becomes of it, to its end, which is told last.
pub async fn follow(session: Session, branch: Branch, child: ChildId, events: mpsc::Sender<(ChildId, Says)>) {
    let why = match talk(&session, &branch, child, &events).await {
        Ok(()) => "it has ended".to_owned(),
        Err(why) => why,
    };
    let _ = events.send((child, Says::Ended(why))).await;
}

async fn talk(session: &Session, branch: &Branch, child: ChildId, events: &mpsc::Sender<(ChildId, Says)>) -> Result<(), String> {
    let of_flow = |error: &dyn std::fmt::Display| error.to_string();
    let tag = tag(branch.number);
    let (mut asks, answers) = session.open_bi(FlowOptions { tag, ..FlowOptions::default() }).map_err(|e| of_flow(&e))?;
    let mut asked = Vec::new();
    let mut body = Vec::new();
    branch.emit(&mut body);
    Record::Branch(body.into()).emit(&mut asked);
    asks.write_all(&asked).await.map_err(|e| of_flow(&e))?;
    let mut answers = Records::new(answers);
    let mut is_ready = false;
    loop {
        let next = answers.next();
        let record = match is_ready {
            true => next.await,
            false => tokio::time::timeout(PATIENCE, next).await.map_err(|_| "it does not answer".to_owned())?,
        };
        let says = match record.map_err(|e| of_flow(&e))? {
            None => return Ok(()),
            Some(Record::Status(bytes)) => {
                let status = parse(&bytes, &branch.layout)?;
                match std::mem::replace(&mut is_ready, true) {
                    true => Says::Status(status),
                    false => Says::Ready(session.open_messages(packets(tag)).map_err(|e| of_flow(&e))?, status),
                }
            }
            Some(Record::Lost { members, message }) => Says::Lost(members, message),
            Some(_) => return Err("it says what has no place in a tree".to_owned()),
        };
        if events.send((child, says)).await.is_err() {
            return Ok(());
        }
    }
}

fn parse(bytes: &[u8], layout: &Layout) -> Result<Status, String> {
    Status::parse(&mut Reader::new(bytes), layout).map_err(|e| e.to_string())
}
