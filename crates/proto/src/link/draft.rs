//! A packet under construction, and what one flow puts into it.

use crate::flow::{Outgoing, SendContext, Sender, Stage};
use crate::flows::OutFlow;
use crate::ids::{FlowLabel, Seq};
use crate::sent::{SentItem, SentItems};
use crate::units::Time;
use crate::wire::coded;
use crate::wire::frame::{Coefficients, Frame};

/// Bytes around the frames of a protected packet with a 4-byte connection id: type, id, packet number, tag (P6).
pub(crate) const PACKET_OVERHEAD: u16 = 1 + 4 + 4 + 16;
/// Smallest header of a CODED frame: type, flow, base, form and span, seed.
pub(crate) const MIN_CODED_HEADER: u16 = 1 + 1 + 1 + 1 + 2;
/// A symbol shorter than the room by more than this leaves space for another frame, so it is written with its length.
const SHARE_PACKET: usize = 256;

/// A packet under construction.
pub(super) struct Draft {
    /// Where the packet begins in the buffer.
    pub(super) start: usize,
    /// Where its frames begin.
    pub(super) frames: usize,
    /// Frames must not pass this index.
    pub(super) limit: usize,
    pub(super) items: SentItems,
    pub(super) is_ack_eliciting: bool,
    /// Datagrams of transparent flows are in it.
    pub(super) has_datagrams: bool,
    /// Nothing may follow in this packet.
    pub(super) is_full: bool,
}

impl Draft {
    pub(super) fn room(&self, buf: &[u8]) -> usize {
        if self.is_full { 0 } else { self.limit.saturating_sub(buf.len()) }
    }
    pub(super) fn is_empty(&self, buf: &[u8]) -> bool {
        buf.len() == self.frames
    }
    /// Writes a frame if it fits.
    pub(super) fn put(&mut self, frame: &Frame<'_>, item: Option<SentItem>, buf: &mut Vec<u8>) -> bool {
        debug_assert!(!self.has_datagrams, "a datagram reaches to the end of its packet");
        let before = buf.len();
        frame.emit(buf);
        if buf.len() > self.limit {
            buf.truncate(before);
            return false;
        }
        self.is_ack_eliciting = true;
        if let Some(item) = item {
            self.items.push(item);
        }
        true
    }
}

/// Fills a packet from one flow: FLOW_OPEN if the neighbour may not have it, then repair, then new data, then the flow's control frames.
/// Returns an encoded frame that no packet of this path can hold.
pub(super) fn fill_from(
    flow: &mut OutFlow,
    label: FlowLabel,
    now: Time,
    context: &SendContext,
    draft: &mut Draft,
    buf: &mut Vec<u8>,
) -> Option<(Vec<u8>, SentItem)> {
    let is_fresh = draft.is_empty(buf);
    let before = (buf.len(), draft.items.len());
    // FLOW_OPEN rides with data until the neighbour has it (P17).
    if !flow.is_open_acked && !draft.put(&Frame::FlowOpen(flow.open.clone()), Some(SentItem::FlowOpen(label)), buf) {
        return None;
    }
    flow.sender.expect_more(flow.low_water > 0 || flow.has_symbols(now));
    let header = flow_header(flow, label);
    let symbol_room = |draft: &Draft, buf: &[u8]| draft.room(buf).saturating_sub(header);
    let mut outgoing = flow.sender.poll(now, Stage::Repair, context, symbol_room(draft, buf));
    let mut cut = None;
    // A flow that the neighbour does not know goes nowhere before FLOW_OPEN, which then has a packet of its own.
    let is_told = flow.is_announced || flow.is_open_acked;
    if outgoing.is_none() && is_fresh && is_told && flow.sender.has(Stage::Repair) {
        // It does not fit beside FLOW_OPEN, or was made when numbers were shorter than the header is now reckoned with; if it does not fit alone either,
        // the path's MTU fell below it. Before anything new: a relay whose next link is full always has something new.
        let (open, items) = (buf.split_off(before.0), draft.items.len());
        if let Some(outgoing) = flow.sender.poll(now, Stage::Repair, context, usize::MAX) {
            draft.items.truncate(before.1);
            return put_outgoing(&flow.sender, label, &outgoing, draft, buf);
        }
        debug_assert_eq!(items, draft.items.len());
        buf.extend_from_slice(&open);
    }
    // What was made before cannot be cut smaller, at a relay or when a flow is opened again: it follows FLOW_OPEN in packets of its own.
    let passes = outgoing.is_none() && flow.open.relayed.is_some() && flow.sender.has(Stage::Source);
    if passes && is_fresh {
        outgoing = flow.sender.poll(now, Stage::Source, context, symbol_room(draft, buf));
        if outgoing.is_none() && is_told {
            buf.truncate(before.0);
            draft.items.truncate(before.1);
            let outgoing = flow.sender.poll(now, Stage::Source, context, usize::MAX)?;
            return put_outgoing(&flow.sender, label, &outgoing, draft, buf);
        }
    }
    let is_lead = flow.source.has_lead();
    if outgoing.is_none() && flow.sender.room() > 0 && flow.has_symbols(now) {
        let largest = symbol_room(draft, buf).min(usize::from(flow.open.symbol));
        // Do not cut small symbols off a bulk flow only because other frames came first.
        if (is_fresh || largest * 2 > usize::from(flow.open.symbol) || flow.source.buffered() + 16 <= largest)
            && let Some(symbol) = flow.source.poll_symbol(now, largest)
        {
            let seq = flow.sender.push(now, symbol.symbol, symbol.deadline);
            debug_assert_eq!(seq, symbol.seq, "symbols are pushed in the order in which they were made");
        }
    }
    if outgoing.is_none() {
        outgoing = flow.sender.poll(now, Stage::Source, context, symbol_room(draft, buf));
    }
    flow.end_if_drained();
    flow.is_announced = true;
    flow.sender.expect_more(flow.low_water > 0 || flow.has_symbols(now));
    if let Some(outgoing) = outgoing {
        cut = put_outgoing(&flow.sender, label, &outgoing, draft, buf);
    }
    // What the keys open must not come in one datagram with what makes them.
    draft.is_full |= is_lead;
    while !draft.is_full
        && let Some(control) = flow.sender.poll_control(now)
    {
        if !draft.put(&control.frame(), Some(control.item()), buf) {
            flow.sender.on_lost(now, &control.item());
            break;
        }
    }
    cut
}

/// Room kept for a FLOW_OPEN that rides along: more than any takes.
pub(super) const OPEN_ROOM: usize = 160;

/// Bytes of a CODED frame before its symbol, to the end of the packet: of a flow that passes relays the longest that any of them needs, because what
/// fills a packet here should fit into one there.
pub(super) fn flow_header(flow: &OutFlow, label: FlowLabel) -> usize {
    match flow.open.relayed {
        None => coded_header(label, flow.sender.next_seq()),
        Some(_) => relayed_header(flow.open.batch_size, flow.sender.next_seq()),
    }
}

/// See `flow_header`.
pub(crate) fn relayed_header(batch_size: u8, base: Seq) -> usize {
    let vector = [0; coded::MAX_SPAN as usize];
    coded::header_len(LONG_LABEL, base, batch_size, &Coefficients::Vector(&vector[..usize::from(batch_size).min(vector.len())]))
}

/// A label as a relay with many flows gives it.
const LONG_LABEL: FlowLabel = FlowLabel(1 << 20);

/// Bytes of a CODED frame before its symbol, seed form, to the end of the packet.
fn coded_header(flow: FlowLabel, base: Seq) -> usize {
    coded::header_len(flow, base, 16, &Coefficients::Seed(0))
}

/// Writes a coded packet; if it does not fit any packet of this path, returns it encoded, to be cut in two.
pub(super) fn put_outgoing(
    sender: &Sender,
    label: FlowLabel,
    outgoing: &Outgoing,
    draft: &mut Draft,
    buf: &mut Vec<u8>,
) -> Option<(Vec<u8>, SentItem)> {
    let symbol_len = outgoing.len;
    let room = draft.room(buf);
    let header = coded_header(label, outgoing.base);
    let with_length = room > symbol_len + header + SHARE_PACKET;
    let before = buf.len();
    if with_length {
        coded::emit_header_with_length(buf, label, outgoing.base, outgoing.n, &outgoing.coefficients(), symbol_len);
    } else {
        coded::emit_header(buf, label, outgoing.base, outgoing.n, &outgoing.coefficients());
    }
    sender.write_symbol(outgoing, buf);
    if buf.len() > draft.limit {
        let mut encoded = Vec::with_capacity(buf.len() - before);
        encoded.extend_from_slice(&buf[before..]);
        buf.truncate(before);
        return Some((encoded, outgoing.item.clone()));
    }
    draft.is_ack_eliciting = true;
    draft.items.push(outgoing.item.clone());
    draft.is_full |= !with_length;
    None
}
