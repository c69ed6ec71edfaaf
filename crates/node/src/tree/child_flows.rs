//! The flows by which one object's packets go to several children.

use bytes::Bytes;
use noctule::{FlowError, MessageOptions, MessageSender, TrySendError};
use noctule_proto::object::{ChildId, Layout, PacketId, Poll, Relay, RelayConfig, RelayStats, Status};
use noctule_proto::units::Time;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll as Ready;

type Sending = Pin<Box<dyn Future<Output = Result<u64, FlowError>> + Send>>;

/// A child's flow.
struct ChildFlow {
    data: Arc<MessageSender>,
    /// A packet that has no room yet: no other is given to it meanwhile.
    sending: Option<Sending>,
}

/// What giving waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The next packet.
    Packet,
    /// Room with a child, or this time.
    Room(Time),
}

/// Gives packets to children, as [`Relay`] says.
pub struct ChildFlows {
    relay: Relay,
    flows: BTreeMap<ChildId, ChildFlow>,
}

impl ChildFlows {
    /// Without children.
    pub fn new(layout: Layout) -> Self {
        Self { relay: Relay::new(layout, RelayConfig::default()), flows: BTreeMap::new() }
    }

    /// A child that has told how far it is.
    pub fn add(&mut self, child: ChildId, data: MessageSender, status: Status) {
        self.relay.add(child);
        self.relay.on_status(child, status);
        self.flows.insert(child, ChildFlow { data: Arc::new(data), sending: None });
    }

    /// A child that gets nothing more; what it told last stays if it has everything.
    pub fn end(&mut self, child: ChildId, layout: &Layout) {
        self.flows.remove(&child);
        if !self.is_complete(child, layout) {
            self.relay.remove(child);
        }
    }

    /// Whether a child has told that it has everything.
    pub fn is_complete(&self, child: ChildId, layout: &Layout) -> bool {
        self.relay.child_status(child).is_some_and(|status| status.is_complete(layout))
    }

    /// Whether it is given packets.
    pub fn has(&self, child: ChildId) -> bool {
        self.flows.contains_key(&child)
    }

    /// A child told how far it is.
    pub fn on_status(&mut self, child: ChildId, status: Status) {
        self.relay.on_status(child, status);
    }

    /// What all children need together; `None` without any.
    pub fn status(&self) -> Option<Status> {
        self.relay.status()
    }

    /// How far a child said it is.
    pub fn child_status(&self, child: ChildId) -> Option<&Status> {
        self.relay.child_status(child)
    }

    /// Blocks and packets of them that never left for a child and that it cannot do without.
    pub fn missed(&self, child: ChildId) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.relay.missed(child)
    }

    /// Whether a child lags.
    pub fn lags(&self, child: ChildId) -> bool {
        self.relay.lagging().any(|id| id == child)
    }

    /// Counts.
    pub fn stats(&self) -> RelayStats {
        self.relay.stats()
    }

    /// Gives packets as long as `next` has one that is wanted and some child has room.
    pub fn give(&mut self, now: Time, mut next: impl FnMut() -> Option<(PacketId, Bytes)>) -> Waits {
        loop {
            if self.flows.is_empty() {
                // Without a child a packet would be lost: the next child wants it.
                return Waits::Room(Time::MAX);
            }
            let flows = &self.flows;
            match self.relay.poll(now, |child| flows.get(&child).is_some_and(|flow| flow.sending.is_none())) {
                Poll::Wait(at) => return Waits::Room(at),
                Poll::Want => match next() {
                    Some((id, packet)) => self.relay.push(id, packet),
                    None => return Waits::Packet,
                },
                Poll::Send(child, packet) => {
                    if let Some(flow) = self.flows.get_mut(&child) {
                        flow.send(packet);
                    }
                }
            }
        }
    }

    /// Resolves when a child has room again, or, with its name, when its flow is over. Dropping the future loses nothing.
    pub async fn room(&mut self) -> Result<(), ChildId> {
        std::future::poll_fn(|cx| {
            for (child, flow) in &mut self.flows {
                if let Some(sending) = &mut flow.sending
                    && let Ready::Ready(result) = sending.as_mut().poll(cx)
                {
                    flow.sending = None;
                    return Ready::Ready(result.map(drop).map_err(|_| *child));
                }
            }
            Ready::Pending
        })
        .await
    }
}

impl ChildFlow {
    fn send(&mut self, packet: Bytes) {
        match self.data.try_send(packet, MessageOptions::default()) {
            Ok(_) => {}
            Err(TrySendError::Full(packet)) => {
                let data = Arc::clone(&self.data);
                self.sending = Some(Box::pin(async move { data.send(packet, MessageOptions::default()).await }));
            }
            Err(TrySendError::Failed { error, .. }) => self.sending = Some(Box::pin(std::future::ready(Err(error)))),
        }
    }
}
