//! What carries the numbered messages of a ping to the far end and back: a flow of the protocol, or TCP.

use super::echo;
use crate::cli::PingArgs;
use crate::failure::Failure;
use crate::perf::client::Connection;
use crate::perf::pattern;
use crate::perf::protocol::{Mode, PING_TAG, Record, TcpOffer, VERSION};
use crate::perf::source::message_options;
use crate::transfer::records::Reader;
use noctule::{Class, FlowOptions, IncomingFlow, MessageOptions, MessageReceiver, MessageSender, SendStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A server's offer of a TCP port. It holds while the stream that it came by is open.
pub struct Offered {
    offer: TcpOffer,
    _stream: (SendStream, Reader),
}

/// Asks the responder for a port, if this ping goes over TCP.
pub async fn ask(connection: &Connection, args: &PingArgs) -> Result<Option<Offered>, Failure> {
    if args.mode != Mode::Tcp {
        return Ok(None);
    }
    let (ask, answers, offer) = connection.ask(&Record::EchoTcp { version: VERSION, length: args.length }).await?;
    let offer = offer.ok_or_else(|| Failure::Stranger("it offers no TCP port".into()))?;
    Ok(Some(Offered { offer, _stream: (ask, answers) }))
}

/// The sending half.
pub enum There {
    Messages(MessageSender),
    Tcp(OwnedWriteHalf),
}

/// The receiving half.
pub enum Back {
    /// The far end's flow is not open yet: it opens it when it sees ours.
    Awaited(noctule::Session),
    Messages(MessageReceiver),
    Tcp(OwnedReadHalf, Vec<u8>),
}

/// Opens both halves over a connection.
pub async fn open(connection: &Connection, offered: Option<&Offered>, args: &PingArgs) -> Result<(There, Back), Failure> {
    if let Some(Offered { offer, .. }) = offered {
        let (back, there) = connection.tcp(offer, args.tcp_cc.as_deref()).await?.into_split();
        return Ok((There::Tcp(there), Back::Tcp(back, vec![0; args.length])));
    }
    let is_ordered = args.mode == Mode::Brtp && !args.unordered;
    let options = FlowOptions { class: Class::Latency, ..message_options(args.mode, is_ordered, Some(args.lifetime()), PING_TAG) };
    Ok((There::Messages(connection.session.open_messages(options)?), Back::Awaited(connection.session.clone())))
}

impl There {
    /// Sends message `number`.
    pub async fn send(&mut self, number: u64, sent: u64, length: usize) -> Result<(), Failure> {
        let message = pattern::message(number, sent, length);
        match self {
            Self::Messages(flow) => flow.send(message, MessageOptions::default()).await.map(|_| ()).map_err(Into::into),
            Self::Tcp(half) => half.write_all(&message).await.map_err(broken),
        }
    }
}

impl Back {
    /// The number of the next answer, and how many of its bytes are wrong; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<(u64, u64)>, Failure> {
        if let Self::Awaited(session) = self {
            let IncomingFlow::Messages(recv) = session.accept_flow().await? else {
                return Err(Failure::Stranger("it is no `noctule perf -s`".into()));
            };
            *self = Self::Messages(recv);
        }
        let judge = |data: &[u8]| pattern::header(data).map(|(number, _)| (number, pattern::wrong_in_message(data)));
        match self {
            Self::Awaited(_) => Ok(None),
            Self::Messages(recv) => Ok(recv.recv().await?.and_then(|m| judge(&m.data))),
            Self::Tcp(half, buffer) => {
                half.read_exact(buffer).await.map_err(broken)?;
                Ok(judge(buffer))
            }
        }
    }
}

fn broken(e: std::io::Error) -> Failure {
    Failure::PeerGone(format!("the TCP connection broke: {e}"))
}

/// Refuses lengths that no responder takes, before any host is contacted.
pub fn check_length(length: usize) -> Result<(), Failure> {
    if echo::LENGTHS.contains(&length) { Ok(()) } else { Err(Failure::Usage(echo::length_error(length))) }
}
