//! The queue before the transmitter: drop-tail, or one that decides itself what to drop.

use std::collections::VecDeque;

use noctule_proto::units::{Ecn, Time};

use super::aqm::Aqm;
use super::fq_codel::FqCodel;
use super::pie::{Pie, Refused};

/// A packet in the queue.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    pub(super) since: Time,
    pub(super) wire_len: u32,
    pub(super) ecn: Ecn,
    /// What tells flows apart, for queues that do.
    pub(super) flow: u64,
    pub(super) packet: P,
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { packets: u64::MAX, bytes: u64::MAX }
    }
}

impl Limits {
    pub(super) fn exceeded(self, packets: u64, bytes: u64) -> bool {
        packets > self.packets || bytes > self.bytes
    }
}

/// The queue. Packets that it drops are given back: their memory is used again.
#[derive(Debug)]
pub(super) enum Discipline<P> {
    /// First in, first out; the model checks the limit, which includes the packet in transmission.
    Tail(VecDeque<Waiting<P>>),
    FqCodel(Box<FqCodel<P>>),
    Pie(Box<Pie<P>>),
}

impl<P> Discipline<P> {
    pub(super) fn new(aqm: Option<Aqm>, seed: u64) -> Self {
        match aqm {
            None => Self::Tail(VecDeque::new()),
            Some(Aqm::FqCodel(parameters)) => Self::FqCodel(Box::new(FqCodel::new(parameters, seed))),
            Some(Aqm::Pie(parameters)) => Self::Pie(Box::new(Pie::new(parameters, seed))),
        }
    }

    pub(super) fn is_tail(&self) -> bool {
        matches!(self, Self::Tail(_))
    }

    pub(super) fn set_limits(&mut self, limits: Limits, mtu: u32) {
        match self {
            Self::Tail(_) => {}
            Self::FqCodel(queue) => queue.set_limits(limits, mtu),
            Self::Pie(queue) => queue.set_limits(limits, mtu),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Tail(queue) => queue.len(),
            Self::FqCodel(queue) => queue.len(),
            Self::Pie(queue) => queue.len(),
        }
    }

    /// Takes a packet and says whether it was marked; `dropped` gets others that had to go for it.
    pub(super) fn push(&mut self, now: Time, waiting: Waiting<P>, dropped: &mut Vec<Waiting<P>>) -> Result<bool, (Refused, Waiting<P>)> {
        match self {
            Self::Tail(queue) => queue.push_back(waiting),
            Self::FqCodel(queue) => queue.push(waiting, dropped),
            Self::Pie(queue) => return queue.push(now, waiting),
        }
        Ok(false)
    }

    /// The next packet to send and whether it was marked; `dropped` gets those that were dropped at the head.
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Waiting<P>>) -> Option<(Waiting<P>, bool)> {
        match self {
            Self::Tail(queue) => queue.pop_front().map(|waiting| (waiting, false)),
            Self::FqCodel(queue) => queue.pop(now, dropped),
            Self::Pie(queue) => queue.pop(now).map(|waiting| (waiting, false)),
        }
    }
}
