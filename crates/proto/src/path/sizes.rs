//! What the own system says of the size of packets, as a path takes it. The search itself is in `pmtu.rs`.

use super::{Fates, Path};
use crate::sent::SentItem;
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Path {
    /// The host's route to the far end is believed to take datagrams of `size` bytes.
    pub fn on_route(&mut self, now: Time, size: u16) {
        if self.mtu.on_route(now, size, self.sent.next()) {
            self.on_size(now);
        }
    }

    /// The own system refused datagrams of `size` bytes that were made at `since`: they never left, and say nothing of congestion or loss. What they carried
    /// is made anew, in smaller ones.
    pub fn on_refused(&mut self, now: Time, size: u16, since: Time, fates: &mut Fates) {
        if self.mtu.on_refused(now, size) {
            self.on_size(now);
        }
        let mut from = self.sent.next_in_flight(self.sent.base());
        while let Some(pn) = from {
            from = self.sent.next_in_flight(pn + 1);
            let is_it = self.sent.get(pn).is_some_and(|p| p.bytes >= size && p.sent_at >= since);
            let Some(packet) = is_it.then(|| self.sent.lose(pn)).flatten() else { continue };
            let bytes = u64::from(packet.bytes);
            if pn >= self.history {
                self.in_flight -= bytes;
                self.delivery.on_lost(bytes);
            }
            if !packet.is_given_up {
                fates.lost.extend(packet.items.iter().filter(|item| !matches!(item, SentItem::MtuProbe(_))).cloned());
            }
        }
        if self.in_flight == 0 {
            self.unanswered_since = None;
        }
        self.after_fates(now);
    }

    fn on_size(&mut self, now: Time) {
        self.control.on_mtu(u64::from(self.mtu.current()));
        if self.trace.is_on() {
            self.trace_changes(now);
        }
    }

    /// When the search for a larger size goes on, while nothing else is sent.
    pub(super) fn mtu_search_at(&self) -> Option<Time> {
        let may_send = self.untested_room() >= u64::from(self.mtu.current());
        let may_probe = may_send && self.pto_count == 0 && self.is_open() && !switch::is_off(Mechanism::MtuProbes);
        self.mtu.poll_timeout().filter(|_| may_probe)
    }
}
