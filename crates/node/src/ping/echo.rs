//! The far end of a ping: sends every message back unchanged, in the mode in which it came.

use crate::failure::Failure;
use crate::perf::tcp::Offer;
use noctule::{FlowOptions, MessageOptions, MessageReceiver, Session};
use std::ops::RangeInclusive;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes that a message may have: its number, up to what fits any window.
pub const LENGTHS: RangeInclusive<usize> = 16..=1 << 20;

/// What is wrong with another length.
pub fn length_error(length: usize) -> String {
    format!("messages of {length} bytes: between {} and {} are possible", LENGTHS.start(), LENGTHS.end())
}

/// Sends messages back over a flow that was opened like theirs, until they end.
pub async fn messages(session: &Session, mut recv: MessageReceiver) -> Result<(), Failure> {
    let options = FlowOptions { answers: None, ..recv.options().clone() };
    let mut back = session.open_messages(options)?;
    // A client that leaves in the middle has enough, or tells its user itself: no failure of this side.
    while let Ok(Some(message)) = recv.recv().await {
        if back.send(message.data, MessageOptions::default()).await.is_err() {
            return Ok(());
        }
    }
    if back.finish().await.is_ok() {
        session.closed().await;
    }
    Ok(())
}

/// Sends messages of `length` bytes back over every connection that comes, until the caller has enough.
pub async fn connections(offer: &Offer, length: usize) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let stream = offer.accept().await?;
        // Finished connections are taken out: a client opens one after another.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(one(stream, length));
    }
}

async fn one(mut stream: TcpStream, length: usize) {
    let mut message = vec![0; length];
    // A connection that breaks is the client's to report.
    while stream.read_exact(&mut message).await.is_ok() && stream.write_all(&message).await.is_ok() {}
}
