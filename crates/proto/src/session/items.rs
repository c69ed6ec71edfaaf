//! Framing inside the source packets of a message flow: which bytes belong to which message.
//!
//! A source packet is `[TAIL | ABORT] WHOLE* [HEAD]`, or one MIDDLE. The parts of a message lie in consecutive source packets, because a message
//! that has been begun is never interrupted; a continuation therefore names its message by the distance to the packet with its head and needs
//! no offset. An item is a lead byte `kind (3 bits) | I | N | 000`, with I: a message number follows (otherwise: the number of the item before
//! plus one), N: a length follows (otherwise: to the end of the packet).

use super::message::Message;
use super::violation;
use crate::error::CloseReason;
use crate::ids::Seq;
use crate::wire::varint::{self, Reader};
use bytes::{BufMut, Bytes};

const WHOLE: u8 = 0;
const HEAD: u8 = 1;
const MIDDLE: u8 = 2;
const TAIL: u8 = 3;
const ABORT: u8 = 4;

const HAS_ID: u8 = 1 << 4;
const HAS_LENGTH: u8 = 1 << 3;

/// What a source packet begins with if a message from an earlier packet concerns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// Some of a message, neither its first nor its last part.
    Middle { distance: u64, data: Bytes },
    /// The last part of a message.
    Tail { distance: u64, data: Bytes },
    /// The message will not be continued.
    Abort { distance: u64 },
}

/// The first part of a message that goes on in the next packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub id: u64,
    pub total: u64,
    pub data: Bytes,
}

/// Whole messages of one source packet, taken out one by one: they are not unpacked before the application asks, so many tiny messages cost no more memory than their packet.
#[derive(Clone, Debug)]
pub(super) struct Wholes {
    pub seq: u64,
    rest: Bytes,
    previous: Option<u64>,
}

impl Wholes {
    /// Bytes still held.
    pub fn len(&self) -> usize {
        self.rest.len()
    }
    /// All messages have been taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// The next message.
    pub fn take(&mut self) -> Option<Message> {
        let mut reader = Reader::new(&self.rest);
        // The items were checked when the packet was parsed; anything else ends the packet.
        let Ok(Item::Whole { id, data }) = Item::read(&mut reader, self.previous) else {
            self.rest = Bytes::new();
            return None;
        };
        let message = Message { id, data: self.rest.slice_ref(data) };
        let rest = self.rest.slice_ref(reader.rest());
        self.rest = rest;
        self.previous = Some(id);
        Some(message)
    }
}

/// A source packet of a message flow, checked.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub front: Option<Front>,
    pub wholes: Option<Wholes>,
    pub head: Option<Head>,
}

enum Item<'a> {
    Whole { id: u64, data: &'a [u8] },
    Head { id: u64, total: u64, data: &'a [u8] },
    Middle { distance: u64, data: &'a [u8] },
    Tail { distance: u64, data: &'a [u8] },
    Abort { distance: u64 },
}

impl<'a> Item<'a> {
    fn read(r: &mut Reader<'a>, previous: Option<u64>) -> Result<Self, CloseReason> {
        let cut = |_| violation("a message item is cut off");
        let lead = r.u8().map_err(cut)?;
        let kind = lead >> 5;
        let flags = match kind {
            WHOLE => HAS_ID | HAS_LENGTH,
            HEAD => HAS_ID,
            TAIL => HAS_LENGTH,
            MIDDLE | ABORT => 0,
            _ => return Err(violation("an unknown kind of message item")),
        };
        if lead & 0x1f & !flags != 0 {
            return Err(violation("a message item has an unknown flag"));
        }
        if kind == WHOLE || kind == HEAD {
            let id = if lead & HAS_ID != 0 {
                r.varint().map_err(cut)?
            } else {
                previous.ok_or_else(|| violation("the first message of a packet has no number"))?.saturating_add(1)
            };
            if kind == HEAD {
                let total = r.varint().map_err(cut)?;
                let data = r.take_rest();
                if data.is_empty() || total <= data.len() as u64 {
                    return Err(violation("the head of a message contradicts its length"));
                }
                return Ok(Self::Head { id, total, data });
            }
            let data = if lead & HAS_LENGTH != 0 { r.prefixed().map_err(cut)? } else { r.take_rest() };
            return Ok(Self::Whole { id, data });
        }
        let distance = r.varint().map_err(cut)?;
        if distance == 0 {
            return Err(violation("a message continues in the packet it began in"));
        }
        if kind == ABORT {
            return Ok(Self::Abort { distance });
        }
        let data = if lead & HAS_LENGTH != 0 { r.prefixed().map_err(cut)? } else { r.take_rest() };
        if data.is_empty() {
            return Err(violation("a part of a message is empty"));
        }
        Ok(if kind == MIDDLE { Self::Middle { distance, data } } else { Self::Tail { distance, data } })
    }
}

impl Contents {
    /// Checks the whole packet; nothing is copied and nothing allocated.
    pub fn parse(seq: Seq, payload: &Bytes) -> Result<Self, CloseReason> {
        let mut reader = Reader::new(payload);
        let mut contents = Self { front: None, wholes: None, head: None };
        let mut previous = None;
        let mut wholes: Option<(usize, usize)> = None;
        let mut is_first = true;
        if reader.is_empty() {
            return Err(violation("an empty source packet"));
        }
        while !reader.is_empty() {
            let start = payload.len() - reader.rest().len();
            let item = Item::read(&mut reader, previous)?;
            let end = payload.len() - reader.rest().len();
            match item {
                Item::Whole { id, .. } => {
                    wholes = Some((wholes.map_or(start, |(first, _)| first), end));
                    previous = Some(id);
                }
                Item::Head { id, total, data } => contents.head = Some(Head { id, total, data: payload.slice_ref(data) }),
                _ if !is_first => return Err(violation("a part of an earlier message stands behind other messages")),
                Item::Middle { distance, data } => contents.front = Some(Front::Middle { distance, data: payload.slice_ref(data) }),
                Item::Tail { distance, data } => contents.front = Some(Front::Tail { distance, data: payload.slice_ref(data) }),
                Item::Abort { distance } => contents.front = Some(Front::Abort { distance }),
            }
            is_first = false;
        }
        contents.wholes = wholes.map(|(start, end)| Wholes { seq: seq.0, rest: payload.slice(start..end), previous: None });
        Ok(contents)
    }
}

/// Bytes before the data of a WHOLE.
pub(super) fn whole_overhead(id: Option<u64>, length: Option<usize>) -> usize {
    1 + id.map_or(0, varint::size) + length.map_or(0, |n| varint::size(n as u64))
}

/// Bytes before the data of a HEAD.
pub(super) fn head_overhead(id: Option<u64>, total: usize) -> usize {
    1 + id.map_or(0, varint::size) + varint::size(total as u64)
}

/// Bytes before the data of a MIDDLE or TAIL.
pub(super) fn continuation_overhead(distance: u64, length: Option<usize>) -> usize {
    1 + varint::size(distance) + length.map_or(0, |n| varint::size(n as u64))
}

fn put_lead(out: &mut impl BufMut, kind: u8, has_id: bool, has_length: bool) {
    out.put_u8(kind << 5 | if has_id { HAS_ID } else { 0 } | if has_length { HAS_LENGTH } else { 0 });
}

fn put_data(out: &mut impl BufMut, data: &[u8], with_length: bool) {
    if with_length {
        varint::emit(out, data.len() as u64);
    }
    out.put_slice(data);
}

/// Appends a whole message; without a length it must be the last item of its packet.
pub(super) fn put_whole(out: &mut impl BufMut, id: Option<u64>, data: &[u8], with_length: bool) {
    put_lead(out, WHOLE, id.is_some(), with_length);
    if let Some(id) = id {
        varint::emit(out, id);
    }
    put_data(out, data, with_length);
}

/// Appends the first part of a message; it is the last item of its packet.
pub(super) fn put_head(out: &mut impl BufMut, id: Option<u64>, total: usize, data: &[u8]) {
    put_lead(out, HEAD, id.is_some(), false);
    if let Some(id) = id {
        varint::emit(out, id);
    }
    varint::emit(out, total as u64);
    out.put_slice(data);
}

/// Appends a middle part of a message; it is the only item of its packet.
pub(super) fn put_middle(out: &mut impl BufMut, distance: u64, data: &[u8]) {
    put_lead(out, MIDDLE, false, false);
    varint::emit(out, distance);
    out.put_slice(data);
}

/// Appends the last part of a message.
pub(super) fn put_tail(out: &mut impl BufMut, distance: u64, data: &[u8], with_length: bool) {
    put_lead(out, TAIL, false, with_length);
    varint::emit(out, distance);
    put_data(out, data, with_length);
}

/// Says that the message which began `distance` packets ago will not be continued.
pub(super) fn put_abort(out: &mut impl BufMut, distance: u64) {
    put_lead(out, ABORT, false, false);
    varint::emit(out, distance);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<Contents, CloseReason> {
        Contents::parse(Seq(9), &Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_packet_of_several_messages_has_these_bytes() {
        let mut out = Vec::new();
        put_tail(&mut out, 2, b"end", true);
        put_whole(&mut out, Some(5), b"ab", true);
        put_whole(&mut out, None, b"", true);
        put_head(&mut out, None, 300, b"start");
        assert_eq!(out, b"\x68\x02\x03end\x18\x05\x02ab\x08\x00\x20\x41\x2cstart");
        let mut c = parse(&out).expect("well formed");
        assert_eq!(c.front, Some(Front::Tail { distance: 2, data: Bytes::from_static(b"end") }));
        assert_eq!(c.head, Some(Head { id: 7, total: 300, data: Bytes::from_static(b"start") }));
        let wholes = c.wholes.as_mut().expect("two whole messages");
        assert_eq!(wholes.take(), Some(Message { id: 5, data: Bytes::from_static(b"ab") }));
        assert_eq!(wholes.take(), Some(Message { id: 6, data: Bytes::new() }));
        assert_eq!(wholes.take(), None);
    }

    #[test]
    fn one_short_message_costs_two_bytes_and_a_middle_part_two() {
        let mut out = Vec::new();
        put_whole(&mut out, Some(63), b"x", false);
        assert_eq!(out, b"\x10\x3fx");
        out.clear();
        put_middle(&mut out, 63, b"x");
        assert_eq!(out, b"\x40\x3fx");
    }

    #[test]
    fn packets_that_break_the_grammar_are_violations() {
        for bad in [
            &b""[..],
            b"\x00x",                // first message without a number
            b"\x10",                 // number cut off
            b"\x18\x00\x05x",        // length beyond the packet
            b"\x17\x00",             // unknown flag
            b"\xa0\x01",             // unknown kind
            b"\x40\x00x",            // distance 0
            b"\x40\x01",             // empty middle
            b"\x60\x01",             // empty tail
            b"\x30\x00\x01x",        // head that is the whole message
            b"\x30\x00\x05",         // empty head
            b"\x18\x00\x00\x80\x01", // abort behind a message
            b"\x88\x01",             // abort with a length
        ] {
            assert!(parse(bad).is_err(), "{bad:02x?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_whole_messages_lie_within(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(contents) = parse(&bytes) && let Some(mut wholes) = contents.wholes {
                let mut total = 0;
                while !wholes.is_empty() {
                    total += wholes.take().expect("checked when parsed").data.len();
                }
                prop_assert!(total <= bytes.len());
            }
        }
    }
}
