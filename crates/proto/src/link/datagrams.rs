//! Transparent flows: a message goes into one packet as it is, and is handed over as it comes (docs/spec/flow.md, section 5).
//!
//! No coding, no acknowledgement of its own, no pacing. What is left of care for the network is the circuit breaker: once per round trip
//! a packet asks for an acknowledgement, and a neighbour that never answers ends the link (RFC 8084).

use super::draft::{Draft, OPEN_ROOM};
use super::{Link, LinkEvent};
use crate::error::{CloseReason, Code, Layer};
use crate::flows::InEvent;
use crate::ids::{FlowLabel, PathId};
use crate::options::Mode;
use crate::sent::SentItem;
use crate::shared::Shared;
use crate::units::{Duration, Time};
use crate::wire::frame::Frame;
use crate::wire::varint;
use bytes::Bytes;

/// Not more often than this is an acknowledgement asked for, however short the path.
const MIN_ASKING: Duration = Duration::from_millis(10);

/// Bytes by which the largest message of a transparent flow is shorter than the largest symbol: label and number as varints.
pub(crate) const DATAGRAM_ROOM: usize = 12;

/// Bytes of a DATAGRAM frame before its data.
fn header(flow: FlowLabel, number: u64) -> usize {
    1 + varint::size(flow.0) + varint::size(number)
}

impl Link {
    /// One datagram of the flow whose turn it is, whatever window and pacer say.
    pub(super) fn put_datagrams(&mut self, now: Time, path: PathId, draft: &mut Draft, shared: &mut Shared, buf: &mut Vec<u8>) {
        while let Some(label) = self.datagrams.front().copied() {
            let Some(flow) = self.labels.out(label, &mut shared.flows) else {
                self.datagrams.pop_front();
                continue;
            };
            let next = flow.source.peek_datagram();
            let room = draft.room(buf);
            // What fits no packet of this path at all is dropped; what only does not fit here waits for the next packet.
            let largest = if draft.is_empty(buf) { room } else { usize::MAX };
            if let Some((number, len)) = next
                && largest == usize::MAX
                && header(label, number) + len > room
            {
                return;
            }
            let largest = next.map_or(0, |(number, _)| largest.saturating_sub(header(label, number)));
            let sent = flow.source.poll_datagram(now, largest);
            flow.is_datagram_queued = false;
            self.datagrams.pop_front();
            if let Some((number, data)) = &sent {
                let rtt = self.paths.get(&path).map_or(MIN_ASKING, |p| p.rtt());
                if now.since(self.datagram_asked_at) >= rtt.max(MIN_ASKING) && draft.room(buf) > header(label, *number) + data.len() {
                    self.datagram_asked_at = now;
                    draft.put(&Frame::Ping, Some(SentItem::Ping), buf);
                }
                if !flow.is_open_acked && draft.room(buf) >= OPEN_ROOM + header(label, *number) + data.len() {
                    // P17: FLOW_OPEN rides with data until the neighbour has it.
                    Frame::FlowOpen(flow.open.clone()).emit(buf);
                    draft.items.push(SentItem::FlowOpen(label));
                }
                Frame::Datagram { flow: label, number: *number, data }.emit(buf);
                draft.has_datagrams = true;
                draft.is_full = true;
            }
            // Queues it again if it has more.
            self.touch_out(label, now, &mut shared.flows);
            self.settle_out(label, shared);
            if sent.is_some() {
                return;
            }
        }
    }

    /// A datagram came. One that overtook its FLOW_OPEN, or came after the flow's end, is lost, as the network might have lost it.
    pub(super) fn on_datagram(&mut self, flow: FlowLabel, number: u64, data: &[u8], shared: &mut Shared) -> bool {
        let Some(f) = self.labels.incoming(flow, &mut shared.flows) else {
            shared.counters.refused += 1;
            return false;
        };
        if f.open.mode != Mode::Transparent {
            let reason = CloseReason::local(Code::SessionProtocol, Layer::Session, "a datagram on a flow that is not transparent");
            self.events.push_back(LinkEvent::In(f.id, flow, InEvent::Closed(reason)));
            return false;
        }
        f.sink.on_datagram(number, Bytes::copy_from_slice(data));
        true
    }
}
