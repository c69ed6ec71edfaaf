//! Datagrams that leave one by one at a given rate.

use crate::admission::Host;
use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Time};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of IP and UDP header that the rate counts as well (IPv4).
const HEADERS: usize = 28;
/// What leaves together where nothing waited before (P11).
const BURST: Duration = Duration::from_micros(100);
/// What waited for its time and was called late leaves at once, so much of it at most: a busy host wakes a thread milliseconds late, each time
/// (decision 22).
const LATE: Duration = Duration::from_millis(8);
const LATE_BYTES: u64 = 64 << 10;

/// What stands in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    pub(super) datagrams: usize,
    pub(super) bytes: usize,
}

/// A queue with a pacer.
#[derive(Debug)]
pub(super) struct PacedQueue {
    datagrams: VecDeque<(Option<Host>, Vec<u8>)>,
    /// What stands here of each host whose datagrams are counted.
    shares: BTreeMap<Host, Backlog>,
    spare: Vec<Vec<u8>>,
    rate: Bandwidth,
    next_at: Time,
    /// When something last left, more was there.
    is_waiting: bool,
    pub(super) bytes: usize,
    /// Bytes of a datagram, of late.
    mean: f64,
}

impl PacedQueue {
    pub(super) fn new(rate: Bandwidth) -> Self {
        Self {
            datagrams: VecDeque::new(),
            shares: BTreeMap::new(),
            spare: Vec::new(),
            rate,
            next_at: Time::ZERO,
            is_waiting: false,
            bytes: 0,
            mean: 0.0,
        }
    }

    /// An empty buffer for a datagram.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn push(&mut self, datagram: Vec<u8>) {
        self.push_of(None, datagram);
    }

    /// A datagram that a host's share pays for.
    pub(super) fn push_of(&mut self, host: Option<Host>, datagram: Vec<u8>) {
        if let Some(host) = host {
            let share = self.shares.entry(host).or_default();
            (share.datagrams, share.bytes) = (share.datagrams + 1, share.bytes + datagram.len());
        }
        self.bytes += datagram.len();
        let len = datagram.len() as f64;
        self.mean = if self.mean == 0.0 { len } else { self.mean + (len - self.mean) / 64.0 };
        self.datagrams.push_back((host, datagram));
    }

    pub(super) fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// How long what stands here takes to leave.
    pub(super) fn delay(&self) -> Duration {
        self.rate.time_for((self.bytes + self.len() * HEADERS) as u64)
    }

    /// What stands here of a host.
    pub(super) fn share(&self, host: Host) -> Backlog {
        self.shares.get(&host).copied().unwrap_or_default()
    }

    /// How long so much takes to leave.
    pub(super) fn time_for(&self, backlog: Backlog) -> Duration {
        self.rate.time_for((backlog.bytes + backlog.datagrams * HEADERS) as u64)
    }

    /// Datagrams like those of late that leave in such a time, and the fraction of the last one.
    pub(super) fn packets_in(&self, time: Duration) -> f64 {
        self.rate.bytes_per_sec() * time.as_secs_f64() / (self.mean + HEADERS as f64)
    }

    /// When the next datagram may leave.
    pub(super) fn due(&self) -> Time {
        self.next_at
    }

    /// The owner has more that waits for its time.
    pub(super) fn has_more_behind(&mut self) {
        self.is_waiting = true;
    }

    /// The next datagram, if one may leave now: `out` becomes its bytes.
    pub(super) fn pop(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if now < self.next_at {
            return false;
        }
        let Some((host, mut datagram)) = self.datagrams.pop_front() else { return false };
        self.bytes -= datagram.len();
        if let Some(host) = host
            && let Some(share) = self.shares.get_mut(&host)
        {
            (share.datagrams, share.bytes) = (share.datagrams - 1, share.bytes - datagram.len());
            if share.datagrams == 0 {
                self.shares.remove(&host);
            }
        }
        let is_late = self.is_waiting && !switch::is_off(Mechanism::LateHosts);
        let made_up = if is_late { LATE.min(self.rate.time_for(LATE_BYTES)).max(BURST) } else { BURST };
        self.is_waiting = !self.is_empty();
        self.next_at = self.next_at.max(now.saturating_sub(made_up)) + self.rate.time_for((datagram.len() + HEADERS) as u64);
        core::mem::swap(out, &mut datagram);
        datagram.clear();
        if self.spare.len() < 64 {
            self.spare.push(datagram);
        }
        true
    }
}
