//! The node's memory: every flow reserves its ceiling when it opens, so that the sum is bounded whatever the neighbours do (P15, P18).

use crate::stats::Memory;

/// Reservations and use, in bytes.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: usize,
    reserved: usize,
    used: usize,
    peak: usize,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, reserved: 0, used: 0, peak: 0 }
    }

    /// A ceiling for a new flow: `wanted`, but never more than a quarter of what is free, so that later flows find something; `None` if not even
    /// `reserve` bytes are free.
    pub(crate) fn reserve(&mut self, reserve: usize, wanted: usize) -> Option<usize> {
        let free = self.limit.saturating_sub(self.reserved);
        let granted = wanted.min(free / 4).max(reserve);
        if granted > free {
            return None;
        }
        self.reserved += granted;
        Some(granted)
    }

    /// Gives a reservation back.
    pub(crate) fn release(&mut self, granted: usize) {
        self.reserved = self.reserved.saturating_sub(granted);
    }

    /// A flow's use changed.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        self.used = (self.used + after).saturating_sub(before);
        self.peak = self.peak.max(self.used);
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { used: self.used, peak: self.peak, limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_the_limit_and_late_flows_still_get_their_reserve() {
        let mut l = Ledger::new(512 << 20);
        let first = l.reserve(50_000, 128 << 20).unwrap();
        assert_eq!(first, 128 << 20);
        let mut granted = first;
        let mut flows = 1;
        while let Some(g) = l.reserve(50_000, 128 << 20) {
            granted += g;
            flows += 1;
        }
        assert!(granted <= 512 << 20 && flows > 25, "{flows} flows");
        l.release(first);
        assert!(l.reserve(50_000, 128 << 20).is_some());
    }
}
