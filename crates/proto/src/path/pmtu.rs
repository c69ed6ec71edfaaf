//! Path MTU discovery with probes of our own (DPLPMTUD, RFC 8899). All sizes are bytes of UDP payload.
//!
//! Two things come from the own system. What its *route* is believed to take is a hint, for an ICMP message that any host can forge may be behind it
//! (RFC 8899 §4.6.1): the search begins with it, and larger sizes are tried again later. What it *refused* to send does not leave this host: that is
//! acted on at once.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Size that a path is taken to carry until it shows otherwise (`BASE_PLPMTU`).
pub const BASE: u16 = 1200;
/// Size that every path must carry (`MIN_PLPMTU`): two fragments of it hold what one packet of 1500 bytes does (P5, docs/decisions/0075).
pub const FLOOR: u16 = crate::wire::params::MIN_DATAGRAM;
/// Probes of one size before it counts as too large (`MAX_PROBES`; more than the RFC's 3, for lossy paths: at 20 % loss both ways 6 fail by chance once in 470 times).
const MAX_PROBES: u8 = 6;
/// Sizes closer than this are the same for us.
const RESOLUTION: u16 = 16;
/// A larger size is tried again after this (`PMTU_RAISE_TIMER`).
const RAISE: Duration = Duration::from_secs(600);
/// The same where the route said less than the maximum, which may be a lie or out of date: at first, then twice as long each time.
const RAISE_AFTER_HINT: Duration = Duration::from_secs(30);
/// The same after a fall, which may have been an outage or a detour: at first, then twice as long each time.
const RAISE_AFTER_FALL: Duration = Duration::from_secs(5);
/// Losses of packets above the size that would be left in a row, in the order of sending, that betray a black hole.
const BLACK_HOLE_LOSSES: u32 = 32;
/// PTOs in a row after which only packets of the base are worth trying, and after which only the smallest.
const BLACK_HOLE_PTOS: u32 = 3;
const FLOOR_PTOS: u32 = 5;

/// The search.
#[derive(Clone, Debug)]
pub struct PathMtu {
    current: u16,
    max: u16,
    /// What the route is believed to take, `max` at most.
    route: u16,
    /// Smallest size that is known not to pass.
    too_large: u16,
    /// Size that worked before a fall: the first to be tried again.
    restore: Option<u16>,
    /// Packets below this number were sent before the fall, and bring no size back.
    restore_from: u64,
    in_flight: Option<u16>,
    tries: u8,
    next_probe: Time,
    /// The search is over, for now: the next probe is one of those that look again.
    is_found: bool,
    /// When nothing larger passes now, it is tried again after this.
    raise: Duration,
    lost_run: u32,
    /// Highest number of a packet above the size that a fall would leave, and of any other, that arrived.
    newest_large: Option<u64>,
    newest_small: Option<u64>,
}

impl PathMtu {
    /// `confirmed`: what the handshake has shown to pass; `max`: configured maximum; `route`: what the host's route is believed to take, if it is known.
    pub fn new(confirmed: u16, max: u16, route: Option<u16>, now: Time) -> Self {
        let max = max.max(FLOOR);
        let current = confirmed.clamp(FLOOR, max);
        // What has passed shows a smaller hint wrong.
        let route = route.unwrap_or(max).clamp(current, max);
        Self {
            current,
            max,
            route,
            too_large: route.saturating_add(1),
            is_found: false,
            restore: None,
            restore_from: 0,
            in_flight: None,
            tries: 0,
            next_probe: now,
            raise: if route < max { RAISE_AFTER_HINT } else { RAISE },
            lost_run: 0,
            newest_large: None,
            newest_small: None,
        }
    }

    /// Largest size known to pass.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// What the path carries as far as anything is known: the size in use, or a larger one that has not failed yet.
    pub fn likely(&self) -> u16 {
        if self.too_large > self.route { self.route.max(self.current) } else { self.current }
    }

    /// No larger size is being looked for at present.
    pub fn is_found(&self) -> bool {
        self.is_found || self.candidate().is_none()
    }

    /// When the next probe of a search is due, if one is under way and its probe has a fate.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.is_found && self.in_flight.is_none() && self.candidate().is_some()).then_some(self.next_probe)
    }

    /// The host's route is believed to take this now, from packet `next` on; true if the size fell.
    pub fn on_route(&mut self, now: Time, size: u16, next: u64) -> bool {
        let size = size.clamp(FLOOR, self.max);
        let before = core::mem::replace(&mut self.route, size);
        if size == before {
            return false;
        }
        if size < self.current {
            // Tried again before long: the hint may be a lie, or an end of it may not be told.
            let old = self.current;
            self.shrink(now, size);
            self.restore = Some(self.restore.map_or(old, |r| r.max(old)));
            self.restore_from = next;
            (self.raise, self.next_probe) = (RAISE_AFTER_FALL, now + RAISE_AFTER_FALL);
            return true;
        }
        if size > before || self.too_large > size + 1 {
            self.too_large = size.saturating_add(1);
            self.restore = self.restore.filter(|r| *r <= size);
            (self.in_flight, self.tries, self.is_found, self.next_probe) = (None, 0, false, now);
        }
        false
    }

    /// The own system refused a packet of this size: nothing that large leaves this host. True if the size fell.
    pub fn on_refused(&mut self, now: Time, size: u16) -> bool {
        if size <= FLOOR {
            return false; // There is nothing below.
        }
        self.too_large = self.too_large.min(size);
        self.restore = self.restore.filter(|r| *r < size);
        if self.in_flight.is_some_and(|probe| probe >= size) {
            (self.in_flight, self.tries, self.next_probe) = (None, 0, now);
        }
        if size > self.current {
            return false;
        }
        let next = [self.route, BASE, FLOOR].into_iter().find(|s| *s < size).unwrap_or(FLOOR);
        self.shrink(now, next);
        self.too_large = size;
        true
    }

    fn shrink(&mut self, now: Time, size: u16) {
        self.current = size;
        self.lost_run = 0;
        (self.in_flight, self.tries, self.is_found, self.next_probe) = (None, 0, false, now);
    }

    /// What a fall leaves.
    fn below(&self) -> u16 {
        if self.current > BASE { BASE } else { FLOOR }
    }

    fn candidate(&self) -> Option<u16> {
        if let Some(size) = self.restore {
            return Some(size);
        }
        let top = self.too_large - 1;
        let is_bound = top == self.max || top == self.route;
        if top < self.current + RESOLUTION && !is_bound || top <= self.current {
            return None;
        }
        // What the route takes, or the maximum, first: on most paths it passes. Then halve.
        Some(if is_bound { top } else { self.current + (top - self.current).div_ceil(2) })
    }

    /// Size of a probe to send now; the caller sends it. `rtt` spaces probes of one size.
    pub fn poll_probe(&mut self, now: Time, rtt: Duration) -> Option<u16> {
        if self.in_flight.is_some() || now < self.next_probe {
            return None;
        }
        let Some(size) = self.candidate() else {
            // Done: look again for something larger later.
            self.too_large = self.max.saturating_add(1);
            self.is_found = true;
            self.next_probe = now + self.raise;
            self.raise = (self.raise * 2).min(RAISE);
            return None;
        };
        self.in_flight = Some(size);
        self.is_found = false;
        self.next_probe = now + rtt;
        Some(size)
    }

    /// A probe arrived; true if the size grew.
    pub fn on_probe_acked(&mut self, size: u16) -> bool {
        if self.in_flight == Some(size) {
            self.in_flight = None;
        }
        self.tries = 0;
        if self.restore.is_some_and(|r| r <= size) {
            self.restore = None;
        }
        if size <= self.current {
            return false;
        }
        self.current = size.min(self.max);
        self.route = self.route.max(self.current);
        self.too_large = self.too_large.max(self.current + 1);
        true
    }

    /// A probe was lost.
    pub fn on_probe_lost(&mut self, size: u16) {
        if self.in_flight != Some(size) {
            return;
        }
        self.in_flight = None;
        self.tries += 1;
        if self.tries >= MAX_PROBES {
            self.tries = 0;
            // What passes below it is searched for at once.
            self.restore = None;
            self.too_large = size;
        }
    }

    /// Packet `pn` of this size arrived; true if the size was restored by it.
    pub fn on_acked(&mut self, pn: u64, size: u16) -> bool {
        if size > self.below() {
            self.newest_large = self.newest_large.max(Some(pn));
            self.lost_run = 0;
        } else {
            self.newest_small = self.newest_small.max(Some(pn));
        }
        if self.restore.is_some() && size > self.current && pn >= self.restore_from {
            return self.on_probe_acked(size);
        }
        false
    }

    /// Packet `pn` of this size was lost while others arrive; true if the size fell.
    ///
    /// Losses are heard of late and many at a time: only those count that were sent after every large packet that arrived.
    pub fn on_lost(&mut self, now: Time, pn: u64, size: u16) -> bool {
        // What is larger than the present size was sent before the last fall.
        if size <= self.below() || size > self.current || self.newest_large > Some(pn) {
            return false;
        }
        self.lost_run += 1;
        self.lost_run >= BLACK_HOLE_LOSSES && self.newest_small > self.newest_large && self.fall(now)
    }

    /// The `count`-th PTO in a row; true if the size fell.
    pub fn on_pto(&mut self, now: Time, count: u32) -> bool {
        count >= (if self.below() == BASE { BLACK_HOLE_PTOS } else { FLOOR_PTOS }) && self.fall(now)
    }

    fn fall(&mut self, now: Time) -> bool {
        self.lost_run = 0;
        if self.current == FLOOR || switch::is_off(Mechanism::BlackHoleDetection) {
            return false;
        }
        self.restore = self.restore.or(Some(self.current));
        self.restore_from = 0;
        self.raise = RAISE_AFTER_FALL;
        let below = self.below();
        self.shrink(now, below);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const RTT: Duration = Duration::from_millis(20);

    fn search(real: u16, confirmed: u16, max: u16) -> (u16, u32) {
        let mut m = PathMtu::new(confirmed, max, None, Time::ZERO);
        let mut probes = 0;
        for i in 0..400 {
            let now = Time::from_millis(i * 20);
            if let Some(size) = m.poll_probe(now, RTT) {
                probes += 1;
                if size <= real {
                    m.on_probe_acked(size);
                } else {
                    m.on_probe_lost(size);
                }
            }
        }
        (m.current(), probes)
    }

    #[test]
    fn finds_what_passes() {
        assert_eq!(search(1472, 1200, 1472), (1472, 1));
        assert_eq!(search(1472, 1472, 1472), (1472, 0));
        for real in [996, 1200, 1252, 1333, 1400, 8972] {
            let (found, probes) = search(real, real.min(1200), 8972);
            assert!(found <= real && real - found <= RESOLUTION, "{real}: {found}");
            assert!(probes <= 80, "{real}: {probes} probes");
        }
    }

    #[test]
    fn a_black_hole_is_left_and_the_old_size_comes_back() {
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        m.on_acked(0, 1472);
        m.on_acked(99, 200);
        for i in 0..BLACK_HOLE_LOSSES {
            assert_eq!(m.on_lost(Time::ZERO, 1 + u64::from(i), 1472), i + 1 == BLACK_HOLE_LOSSES);
        }
        assert_eq!(m.current(), BASE);
        assert_eq!(m.poll_probe(Time::ZERO, RTT), Some(1472));
        m.on_probe_lost(1472);
        assert_eq!(m.poll_probe(Time::from_millis(20), RTT), Some(1472));
        assert!(m.on_probe_acked(1472));
        assert_eq!(m.current(), 1472);
    }

    #[test]
    fn a_path_that_takes_less_than_the_base_is_found_out_in_two_falls() {
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        // The flight that was under way at the first fall does not count towards the second.
        m.on_acked(1, 200);
        assert_eq!((2..2 + 2 * u64::from(BLACK_HOLE_LOSSES)).filter(|&pn| m.on_lost(Time::ZERO, pn, 1472)).count(), 1);
        assert_eq!(m.current(), BASE);
        m.on_acked(100, 200);
        assert_eq!((101..101 + u64::from(BLACK_HOLE_LOSSES)).filter(|&pn| m.on_lost(Time::ZERO, pn, BASE)).count(), 1);
        assert_eq!(m.current(), FLOOR);
        assert!(!m.on_pto(Time::ZERO, 100), "there is nothing below");
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        assert_eq!(
            (1..=FLOOR_PTOS)
                .map(|count| {
                    m.on_pto(Time::ZERO, count);
                    m.current()
                })
                .collect::<Vec<_>>(),
            [1472, 1472, BASE, BASE, FLOOR]
        );
    }

    #[test]
    fn after_a_fall_the_size_that_passes_is_found_and_the_old_one_is_tried_again_soon() {
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        assert!(m.on_pto(Time::ZERO, BLACK_HOLE_PTOS));
        let mut run = |real: u16, from: u64, to: u64| {
            for now in (from..to).step_by(20).map(Time::from_millis) {
                if let Some(size) = m.poll_probe(now, RTT) {
                    if size <= real { _ = m.on_probe_acked(size) } else { m.on_probe_lost(size) }
                }
            }
            m.current()
        };
        assert!((1236..=1252).contains(&run(1252, 0, 3000)));
        assert_eq!(run(1472, 3000, 9000), 1472);
    }

    #[test]
    fn random_loss_is_no_black_hole() {
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        for i in 0..10_000u64 {
            if i % 10 < 8 {
                m.on_lost(Time::ZERO, i, 1472)
            } else {
                m.on_acked(i, 1472)
            };
        }
        assert_eq!(m.current(), 1472);
    }

    #[test]
    fn losses_heard_of_all_at_once_are_no_black_hole_if_large_packets_arrived_after_them() {
        // 10 % of a flight of 1000 packets; acknowledgements were lost, the next one tells of all of them, the last of which was small.
        let mut m = PathMtu::new(1472, 1472, None, Time::ZERO);
        assert!((0..1000).filter(|pn| pn % 10 != 0).all(|pn| !m.on_acked(pn, 1472)));
        m.on_acked(1000, 90);
        assert!((0..1000).step_by(10).all(|pn| !m.on_lost(Time::ZERO, pn, 1472)));
        assert_eq!(m.current(), 1472);
    }
}
