//! What a node tells its owner: links and sessions that come and go, flows that can be read or written.

use crate::crypto::PublicKey;
use crate::error::{CloseReason, Code};
use crate::ids::{FlowId, LinkId, PathId, SessionId};
use crate::options::FlowOptions;
use crate::stats::{FlowTotals, PathState};
use std::net::{IpAddr, SocketAddr};

/// Something that happened; drained with [`Node::poll_event`](crate::Node::poll_event).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A link is usable: keys are agreed and the neighbour is authenticated.
    LinkUp {
        /// Which link.
        link: LinkId,
        /// The neighbour's static key.
        peer: PublicKey,
    },
    /// A link ended or never came up. Its sessions end with events of their own, emitted before this one.
    LinkDown {
        /// Which link.
        link: LinkId,
        /// Why.
        reason: CloseReason,
        /// The key that the far end has shown to own, if it came to that. With `WrongKey` this is the key that answered.
        peer: Option<PublicKey>,
    },
    /// A link was refused to a caller that has shown its key, by its first message at least. Told once a second at most, and sixteen times at once.
    LinkRefused {
        /// The caller's static key.
        peer: PublicKey,
        /// Where it called from.
        remote: SocketAddr,
        /// `NotAuthorised`: the key is not among those that may call. `TooMany`: there is no place for another link of it, or of any node.
        reason: Code,
        /// Refusals before this one, and after the one that was told before, that were not told.
        left_out: u64,
    },
    /// A link's neighbour owes answers for half a second and three probes, or is heard again after that. The link stays: outages may last until the
    /// idle timeout. An owner that can find out more, from the neighbour's host say, may end it sooner.
    LinkSilent {
        /// Which link.
        link: LinkId,
        /// Nothing is heard; false: it is heard again.
        is_silent: bool,
    },
    /// A further path of a link began to carry, a path fell silent, or is heard again; data go by the others meanwhile.
    PathChanged {
        /// Which link.
        link: LinkId,
        /// Which of its paths.
        path: PathId,
        /// Its far address.
        remote: SocketAddr,
        /// What it is fit for now.
        state: PathState,
    },
    /// The other end opened a session.
    SessionIncoming {
        /// Which session.
        session: SessionId,
        /// The link it came by.
        link: LinkId,
        /// The far end's static key.
        peer: PublicKey,
        /// The far end's address, if the session is relayed; as the far end states it.
        far: Option<IpAddr>,
    },
    /// A session that this side opened was accepted by the far end.
    ///
    /// A relayed session is open when its keys stand: the far end has proven its key, and data go.
    SessionOpened {
        /// Which session.
        session: SessionId,
    },
    /// The far end has begun to close a session: what it finished is still delivered.
    SessionClosing {
        /// Which session.
        session: SessionId,
        /// The far end's words.
        reason: CloseReason,
    },
    /// A session ended. No further events of it follow.
    SessionClosed {
        /// Which session.
        session: SessionId,
        /// How it ended.
        outcome: SessionOutcome,
        /// What its data flows counted until then.
        totals: Box<FlowTotals>,
    },
    /// The far end opened a flow towards us.
    FlowIncoming {
        /// The session it belongs to.
        session: SessionId,
        /// The receiving half.
        flow: FlowId,
        /// What the far end asked for; `answers` names our own flow if this one carries its answers.
        options: FlowOptions,
    },
    /// Packets of a sealed session that came by this link were altered by the neighbour, or by a node behind it (P16). They were rejected; told at the
    /// first of each flow, and at ever larger numbers.
    Polluted {
        /// The session.
        session: SessionId,
        /// The link that they came by.
        link: LinkId,
    },
    /// A message or bytes can be read; once until a read finds nothing more.
    FlowReadable(FlowId),
    /// After `Blocked`: there is room again.
    FlowWritable(FlowId),
    /// Receiving half: the far end finished and everything was read.
    FlowFinished(FlowId),
    /// Sending half: finished, and the far end has everything.
    FlowDelivered(FlowId),
    /// A flow was reset by the far end, refused or stopped.
    FlowClosed {
        /// Which flow.
        flow: FlowId,
        /// Why.
        reason: CloseReason,
    },
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOutcome {
    /// Why it ended.
    pub reason: CloseReason,
    /// Everything that this side sent on `brtp` flows is known to have been delivered to the far application's flows.
    pub all_delivered: bool,
    /// Everything that the far end says it sent on `brtp` flows was received here.
    pub all_received: bool,
}
