//! The sending side of an application: bytes and messages in the amounts and at the times that the workload says.

use std::time::Duration;

use bytes::Bytes;
use noctule_proto::error::CommandError;
use noctule_proto::ids::FlowId;
use noctule_proto::options::MessageOptions;
use noctule_proto::units::Time;

use super::content::Content;
use super::machine::Machine;
use crate::scenario::SMALLEST_MESSAGE;

/// A message begins with its number and the moment at which it was to be sent, in nanoseconds; the rest is content.
pub(super) fn encode_message(content: Content, index: u64, sent: Time, size: usize) -> Bytes {
    let mut data = vec![0; size.max(SMALLEST_MESSAGE)];
    data[..8].copy_from_slice(&index.to_be_bytes());
    data[8..16].copy_from_slice(&sent.as_nanos().to_be_bytes());
    content.fill(index.wrapping_mul(0x1_0000_0000), &mut data[16..]);
    data.into()
}

/// Number, moment of sending, and how many bytes are wrong; none if it is too short to be a message at all.
pub(super) fn decode_message(content: Content, data: &[u8]) -> Option<(u64, Time, u64)> {
    let index = u64::from_be_bytes(data.get(..8)?.try_into().ok()?);
    let sent = Time::from_nanos(u64::from_be_bytes(data.get(8..16)?.try_into().ok()?));
    Some((index, sent, content.count_wrong(index.wrapping_mul(0x1_0000_0000), &data[16..])))
}

/// What is sent on a flow.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A byte stream: as much as goes, up to `limit`.
    Stream { flow: FlowId, content: Content, offset: u64, limit: u64, chunk: Vec<u8>, at: usize, finished: bool },
    /// Messages one after the other, as fast as they are taken.
    Flood { flow: FlowId, content: Content, next: u64, size: usize, lifetime: Option<Duration> },
    /// Messages at fixed times. What is not taken at its time waits, and its clock runs.
    Periodic { flow: FlowId, content: Content, begin: Time, interval: Duration, next: u64, size: usize, lifetime: Option<Duration> },
}

const CHUNK: usize = 16 * 1024;

impl Outgoing {
    pub(super) fn stream(flow: FlowId, content: Content, limit: u64) -> Self {
        Self::Stream { flow, content, offset: 0, limit, chunk: Vec::new(), at: 0, finished: false }
    }

    pub(super) fn flow(&self) -> FlowId {
        match self {
            Self::Stream { flow, .. } | Self::Flood { flow, .. } | Self::Periodic { flow, .. } => *flow,
        }
    }

    /// Messages handed over or due so far; bytes for a stream.
    pub(super) fn sent(&self) -> u64 {
        match self {
            Self::Stream { offset, .. } => *offset,
            Self::Flood { next, .. } | Self::Periodic { next, .. } => *next,
        }
    }

    /// Messages whose time of sending lies between two moments.
    pub(super) fn due_between(&self, from: Time, until: Time) -> u64 {
        let Self::Periodic { begin, interval, .. } = self else { return 0 };
        let before = |t: Time| t.since(*begin).as_nanos().div_ceil(interval.as_nanos()) as u64;
        before(until) - before(from.max(*begin))
    }

    /// When the next message is due; none for what is sent as fast as it goes.
    pub(super) fn next_time(&self) -> Option<Time> {
        match self {
            Self::Periodic { begin, interval, next, .. } => Some(nth(*begin, *interval, *next)),
            _ => None,
        }
    }

    /// Hands over what is due, as far as the node takes it. True if the node said `Blocked`.
    pub(super) fn feed(&mut self, now: Time, node: &mut dyn Machine) -> Result<bool, CommandError> {
        match self {
            Self::Stream { flow, content, offset, limit, chunk, at, finished } => loop {
                if *at == chunk.len() {
                    let len = (CHUNK as u64).min(*limit - *offset) as usize;
                    if len == 0 {
                        if !*finished {
                            *finished = true;
                            node.finish(now, *flow)?;
                        }
                        return Ok(false);
                    }
                    chunk.resize(len, 0);
                    content.fill(*offset, chunk);
                    *at = 0;
                }
                match node.write(now, *flow, &chunk[*at..]) {
                    Ok(taken) => {
                        *at += taken;
                        *offset += taken as u64;
                    }
                    Err(CommandError::Blocked) => return Ok(true),
                    Err(error) => return Err(error),
                }
            },
            Self::Flood { flow, content, next, size, lifetime } => loop {
                let options = MessageOptions { lifetime: *lifetime, ..MessageOptions::default() };
                match node.send_message(now, *flow, encode_message(*content, *next, now, *size), options) {
                    Ok(_) => *next += 1,
                    Err(CommandError::Blocked) => return Ok(true),
                    Err(error) => return Err(error),
                }
            },
            Self::Periodic { flow, content, begin, interval, next, size, lifetime } => loop {
                let due = nth(*begin, *interval, *next);
                if due > now {
                    return Ok(false);
                }
                // A message that waited for room has only the rest of its lifetime.
                let left = lifetime.map(|l| l.saturating_sub(now.since(due)));
                if left == Some(Duration::ZERO) {
                    *next += 1;
                    continue;
                }
                let options = MessageOptions { lifetime: left, ..MessageOptions::default() };
                match node.send_message(now, *flow, encode_message(*content, *next, due, *size), options) {
                    Ok(_) => *next += 1,
                    Err(CommandError::Blocked) => return Ok(true),
                    Err(error) => return Err(error),
                }
            },
        }
    }
}

fn nth(begin: Time, interval: Duration, n: u64) -> Time {
    begin + Duration::from_nanos((interval.as_nanos() as u64).saturating_mul(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_its_number_its_moment_and_content_that_can_be_checked() {
        let content = Content::new(1, 2);
        let mut data = encode_message(content, 9, Time::from_millis(3), 100).to_vec();
        assert_eq!(decode_message(content, &data), Some((9, Time::from_millis(3), 0)));
        data[50] ^= 0xff;
        assert_eq!(decode_message(content, &data), Some((9, Time::from_millis(3), 1)));
        assert_eq!(decode_message(content, &data[..15]), None);
    }

    #[test]
    fn messages_due_in_a_window_are_counted_by_their_times() {
        let p = Outgoing::Periodic {
            flow: FlowId(0),
            content: Content::new(1, 2),
            begin: Time::ZERO,
            interval: Duration::from_millis(10),
            next: 0,
            size: 100,
            lifetime: None,
        };
        assert_eq!(p.due_between(Time::ZERO, Time::from_millis(100)), 10);
        assert_eq!(p.due_between(Time::from_millis(95), Time::from_millis(105)), 1);
        assert_eq!(p.due_between(Time::from_millis(91), Time::from_millis(99)), 0);
    }
}
