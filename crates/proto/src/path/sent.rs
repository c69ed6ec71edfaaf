//! Packets sent on a path and not yet forgotten: a ring indexed by packet number.
//!
//! Two bitmaps beside it make both walks cheap: acknowledged ranges touch only numbers whose fate is news, and loss detection only packets in flight.

use super::bitmap::Bitmap;
use super::delivery::Snapshot;
use crate::sent::SentItems;
use crate::units::Time;
use std::collections::VecDeque;

/// What became of a packet number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Ack-eliciting, counted as in flight.
    InFlight,
    /// Only acknowledgements and the like: never declared lost, not counted in flight.
    Uncounted,
    /// Declared lost; may still turn up (spurious loss).
    Lost,
    /// Acknowledged.
    Acked,
    /// Never sent (P3): acknowledging it is an attack.
    Skipped,
}

/// One packet.
#[derive(Clone, Debug)]
pub struct SentPacket {
    /// When it left.
    pub sent_at: Time,
    /// Number and time of sending of the ack-eliciting packet before it, if there was one.
    pub before: Option<(u64, Time)>,
    /// Bytes of UDP payload.
    pub bytes: u16,
    /// What became of it.
    pub fate: Fate,
    /// It left with an ECN-capable codepoint.
    pub is_ect: bool,
    /// It was a probe of the path MTU: its loss says nothing about congestion.
    pub is_mtu_probe: bool,
    /// Its flows were told that it is lost when its path fell silent.
    pub is_given_up: bool,
    /// Delivery at the time of sending.
    pub snapshot: Snapshot,
    /// What it carried; empty once handed out for good.
    pub items: SentItems,
}

/// The ring.
#[derive(Debug, Default)]
pub struct SentPackets {
    base: u64,
    ring: VecDeque<SentPacket>,
    /// Numbers whose acknowledgement would be news: not acknowledged yet, or skipped.
    pending: Bitmap,
    /// Numbers in flight.
    in_flight: Bitmap,
}

impl SentPackets {
    /// Nothing sent; the first packet gets this number.
    pub fn starting_at(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// The number that the next pushed packet gets.
    pub fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// Appends the packet with number [`next`](Self::next).
    pub fn push(&mut self, packet: SentPacket) {
        let pn = self.next();
        self.pending.insert(pn);
        if packet.fate == Fate::InFlight {
            self.in_flight.insert(pn);
        }
        self.ring.push_back(packet);
    }

    /// The packet with this number, unless forgotten or never pushed.
    pub fn get(&self, pn: u64) -> Option<&SentPacket> {
        self.ring.get(usize::try_from(pn.checked_sub(self.base)?).ok()?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, pn: u64) -> Option<&mut SentPacket> {
        self.ring.get_mut(usize::try_from(pn.checked_sub(self.base)?).ok()?)
    }

    /// Lowest number remembered.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The lowest number from `from` to `last` whose acknowledgement would be news.
    pub fn next_pending(&self, from: u64, last: u64) -> Option<u64> {
        self.pending.next_within(from, last)
    }

    /// Marks a number as acknowledged; gives the packet with the fate that it had before.
    pub fn acknowledge(&mut self, pn: u64) -> Option<(Fate, &mut SentPacket)> {
        if !self.pending.remove(pn) {
            return None;
        }
        self.in_flight.remove(pn);
        let packet = self.ring.get_mut(usize::try_from(pn.checked_sub(self.base)?).ok()?)?;
        let before = packet.fate;
        if before != Fate::Skipped {
            packet.fate = Fate::Acked;
        }
        Some((before, packet))
    }

    /// Marks a packet in flight as lost.
    pub fn lose(&mut self, pn: u64) -> Option<&mut SentPacket> {
        if !self.in_flight.remove(pn) {
            return None;
        }
        let packet = self.ring.get_mut(usize::try_from(pn.checked_sub(self.base)?).ok()?)?;
        packet.fate = Fate::Lost;
        Some(packet)
    }

    /// The oldest packet in flight with a number of at least `from`.
    pub fn next_in_flight(&self, from: u64) -> Option<u64> {
        self.in_flight.next_from(from)
    }

    /// Forgets the front: what was acknowledged, and the rest once it was sent before `horizon`.
    pub fn forget(&mut self, horizon: Time) {
        while let Some(p) = self.ring.front() {
            if p.fate == Fate::InFlight || (p.fate != Fate::Acked && p.sent_at >= horizon) {
                break;
            }
            self.ring.pop_front();
            self.base += 1;
        }
        self.pending.trim_below(self.base);
        self.in_flight.trim_below(self.base);
    }

    /// Bytes held, spilled items not counted.
    pub fn memory(&self) -> usize {
        self.ring.capacity() * size_of::<SentPacket>() + self.pending.memory() + self.in_flight.memory()
    }
}
