//! What a link counts.

use super::histogram::Histogram;

/// Counters of one direction of a link since they were last cleared. Bytes are IP bytes.
#[derive(Debug, Clone, Default)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Dropped because larger than the MTU.
    pub too_big: u64,
    /// Dropped by the policer.
    pub policed: u64,
    /// Dropped because the queue was full.
    pub queue_drops: u64,
    /// Dropped by active queue management, before the queue was full.
    pub aqm_drops: u64,
    /// Lost by the loss model, on either side of the bottleneck.
    pub lost: u64,
    /// Lost in an outage.
    pub outage_lost: u64,
    /// Packets that left the transmitter.
    pub carried_packets: u64,
    /// Their bytes: what the capacity was used for.
    pub carried_bytes: u64,
    /// Packets marked CE.
    pub marked: u64,
    /// Packets with flipped bits.
    pub corrupted: u64,
    /// Extra copies made.
    pub duplicated: u64,
    /// Packets held back to be overtaken.
    pub reordered: u64,
    /// Packets handed out at the far end, extra copies included.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Bytes handed out at the far end, extra copies and corrupted packets not counted: what could be of use there.
    pub useful_bytes: u64,
    /// Most bytes that ever waited.
    pub queue_bytes_max: u64,
    /// Time from arrival at the queue to the first bit on the wire, of packets carried.
    pub queue_delay: Histogram,
}

impl LinkStats {
    /// Sets every counter to zero.
    pub fn clear(&mut self) {
        let mut queue_delay = std::mem::take(&mut self.queue_delay);
        queue_delay.clear();
        *self = Self { queue_delay, ..Self::default() };
    }

    /// Share of the packets subject to the loss model that it took.
    pub fn loss_share(&self) -> f64 {
        let subject = self.lost + self.outage_lost + self.delivered_packets.saturating_sub(self.duplicated);
        if subject == 0 { 0.0 } else { self.lost as f64 / subject as f64 }
    }
}
