//! The queue of one flow into a tunnel, before the transport: CoDel (RFC 8289) keeps its queueing delay short, by marking where the ends understand marks
//! (RFC 6040: the mark is put on the inner packet), by dropping where they do not.
//!
//! The tunnel's own congestion control answers the marks of the network below; it slows down, this queue grows, and the marks made here tell
//! the inner ends. So no mark is copied from the outer header to the inner one.

use crate::units::{Duration, Time};
use std::collections::VecDeque;

/// RFC 8289 §4.4: acceptable queueing delay, at least; the round trip over the tunnel where that is longer. Nobody but the flow itself waits in it, and a window
/// that CUBIC cuts to 0.7 (RFC 9438) still fills a path whose round trip repair lengthens by half.
const TARGET: Duration = Duration::from_millis(5);
/// RFC 8289 §4.3: a sliding minimum over about one round trip of the senders. Where the tunnel itself is long, four times its round trip: repair
/// on the path and this queue lengthen the round trip of an inner TCP.
const INTERVAL: Duration = Duration::from_millis(100);
/// Both grow up to this tunnel's.
const LONGEST: Duration = Duration::from_millis(400);
/// Packets beyond this are dropped as they come: a sender that hears nothing shall not fill the memory.
const MAX_PACKETS: usize = 1000;
/// A queue no longer than this is never shortened (RFC 8289 §5.4: less than one packet of the MTU).
const MIN_BYTES: usize = 1500;

/// What the queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that left it for the tunnel.
    pub passed: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these, marked.
    pub marked: u64,
    /// Dropped by CoDel.
    pub dropped: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct CodelQueue<P> {
    /// Marks a packet as having met congestion; false if its ends would not understand.
    mark: fn(&mut [u8]) -> bool,
    target: Duration,
    interval: Duration,
    packets: VecDeque<(Time, P)>,
    bytes: usize,
    /// A packet has left, and its taker has not asked for the next one: the packet may still wait for room in the transport.
    is_held: bool,
    first_above: Option<Time>,
    drop_next: Option<Time>,
    is_dropping: bool,
    count: u32,
    last_count: u32,
    /// What it did so far.
    pub counts: Counts,
}

impl<P: AsRef<[u8]> + AsMut<[u8]>> CodelQueue<P> {
    /// An empty queue of packets that `mark` marks as having met congestion; it says false of a packet whose ends would not understand.
    pub fn new(mark: fn(&mut [u8]) -> bool) -> Self {
        Self {
            mark,
            target: TARGET,
            interval: INTERVAL,
            packets: VecDeque::new(),
            bytes: 0,
            is_held: false,
            first_above: None,
            drop_next: None,
            is_dropping: false,
            count: 0,
            last_count: 0,
            counts: Counts::default(),
        }
    }

    /// The round trip over the tunnel.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        let round_trip = round_trip.min(LONGEST);
        self.target = TARGET.max(round_trip);
        self.interval = INTERVAL.max(round_trip * 4);
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends a packet at once if no other is before it and `send` has room for it, which else gives it back; true if it waits.
    pub fn offer(&mut self, now: Time, packet: P, send: impl FnOnce(P) -> Result<(), P>) -> bool {
        if !self.packets.is_empty() || self.is_held {
            return self.push(now, packet);
        }
        let bytes = packet.as_ref().len() as u64;
        match send(packet) {
            Ok(()) => {
                self.counts.passed += 1;
                self.counts.bytes += bytes;
                false
            }
            Err(packet) => self.push(now, packet),
        }
    }

    /// Puts a packet at the end; false if there is no room.
    pub fn push(&mut self, now: Time, packet: P) -> bool {
        if self.packets.len() >= MAX_PACKETS {
            self.counts.overflowed += 1;
            return false;
        }
        self.bytes += packet.as_ref().len();
        self.packets.push_back((now, packet));
        true
    }

    /// Takes back the packet that was put in last, as if it had never come.
    pub fn withdraw(&mut self) -> Option<P> {
        let (_, packet) = self.packets.pop_back()?;
        self.bytes -= packet.as_ref().len();
        Some(packet)
    }

    /// The next packet for the tunnel. Until it is asked for another, what is offered waits behind this one.
    pub fn pop(&mut self, now: Time) -> Option<P> {
        let next = self.next(now);
        self.is_held = next.is_some();
        next
    }

    /// RFC 8289 §5.5.
    fn next(&mut self, now: Time) -> Option<P> {
        let (mut packet, mut is_above) = self.take(now)?;
        if self.is_dropping {
            if !is_above {
                self.is_dropping = false;
            }
            while self.is_dropping && self.drop_next.is_some_and(|at| now >= at) {
                self.count += 1;
                let marked = self.punish(&mut packet);
                self.drop_next = self.drop_next.map(|at| self.control_law(at));
                if marked {
                    break;
                }
                let Some(next) = self.take(now) else {
                    self.is_dropping = false;
                    return None;
                };
                (packet, is_above) = next;
                if !is_above {
                    self.is_dropping = false;
                }
            }
        } else if is_above {
            if !self.punish(&mut packet) {
                (packet, _) = self.take(now)?;
            }
            self.is_dropping = true;
            // §5.5: if it was dropping not long ago, go on at the rate that controlled the queue then.
            let delta = self.count - self.last_count;
            let was_recent = self.drop_next.is_some_and(|at| now.since(at) < 16 * self.interval);
            self.count = if delta > 1 && was_recent { delta } else { 1 };
            self.drop_next = Some(self.control_law(now));
            self.last_count = self.count;
        }
        self.counts.passed += 1;
        self.counts.bytes += packet.as_ref().len() as u64;
        Some(packet)
    }

    /// Takes the first packet, and whether the delay has been above the target for an interval.
    fn take(&mut self, now: Time) -> Option<(P, bool)> {
        let Some((came, packet)) = self.packets.pop_front() else {
            self.first_above = None;
            return None;
        };
        self.bytes -= packet.as_ref().len();
        if now.since(came) < self.target || self.bytes <= MIN_BYTES {
            self.first_above = None;
            return Some((packet, false));
        }
        let is_above = match self.first_above {
            None => {
                self.first_above = Some(now + self.interval);
                false
            }
            Some(at) => now >= at,
        };
        Some((packet, is_above))
    }

    /// Marks the packet, or counts it as dropped; true if it was marked and goes on.
    fn punish(&mut self, packet: &mut P) -> bool {
        let is_marked = (self.mark)(packet.as_mut());
        *(if is_marked { &mut self.counts.marked } else { &mut self.counts.dropped }) += 1;
        is_marked
    }

    fn control_law(&self, at: Time) -> Time {
        at + self.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the first byte says it understands.
    fn mark(packet: &mut [u8]) -> bool {
        packet[1] |= packet[0];
        packet[0] > 0
    }

    fn sample(understands: u8) -> Vec<u8> {
        let mut packet = vec![0; 1028];
        packet[0] = understands;
        packet
    }

    /// Packets arrive every `arrive` and leave every `leave`, for `seconds`; the delays seen in the last second, longest.
    fn run(understands: u8, arrive: Duration, leave: Duration, seconds: u64, reacts: bool) -> (CodelQueue<Vec<u8>>, Duration) {
        let packet = sample(understands);
        let start = Time::ZERO;
        let mut queue = CodelQueue::new(mark);
        let (mut now, mut next_in, mut next_out) = (start, start, start);
        let (mut arrive, mut worst) = (arrive, Duration::ZERO);
        let end = start + Duration::from_secs(seconds);
        let mut told = 0;
        while now < end {
            if next_in <= next_out {
                now = next_in;
                queue.push(now, packet.clone());
                next_in += arrive;
            } else {
                now = next_out;
                let waited = queue.packets.front().map(|(came, _)| now - *came);
                queue.pop(now);
                if now + Duration::from_secs(1) > end {
                    worst = worst.max(waited.unwrap_or_default());
                }
                next_out += leave;
            }
            // A sender that slows by a tenth whenever it is told, and speeds up slowly.
            let news = queue.counts.marked + queue.counts.dropped;
            if reacts {
                arrive = if news > told { arrive.mul_f64(1.1) } else { arrive.mul_f64(0.9999) };
            }
            told = news;
        }
        (queue, worst)
    }

    #[test]
    fn a_queue_that_drains_is_left_alone() {
        let (queue, _) = run(1, Duration::from_millis(2), Duration::from_millis(1), 5, false);
        assert_eq!((queue.counts.marked, queue.counts.dropped, queue.counts.overflowed), (0, 0, 0));
    }

    #[test]
    fn a_sender_that_listens_is_held_near_the_target_by_marks_alone() {
        let (queue, worst) = run(1, Duration::from_micros(800), Duration::from_millis(1), 20, true);
        assert!(queue.counts.marked > 0 && queue.counts.dropped == 0 && queue.counts.overflowed == 0, "{:?}", queue.counts);
        assert!(worst < Duration::from_millis(60), "{worst:?}");
    }

    #[test]
    fn a_sender_that_understands_no_marks_loses_packets() {
        let (queue, worst) = run(0, Duration::from_micros(800), Duration::from_millis(1), 20, true);
        assert!(queue.counts.dropped > 0 && queue.counts.marked == 0, "{:?}", queue.counts);
        assert!(worst < Duration::from_millis(60), "{worst:?}");
    }

    /// A TCP sender in rounds of 120 ms that fills the path: its packets come in trains that take 118 ms to leave. What was dropped, and what left.
    fn trains(round_trip: Option<Duration>) -> (u64, usize) {
        let packet = sample(0);
        let (mut queue, mut now) = (CodelQueue::new(mark), Time::ZERO);
        if let Some(round_trip) = round_trip {
            queue.set_round_trip(round_trip);
        }
        let mut left = 0;
        for _ in 0..50 {
            (0..118).for_each(|_| assert!(queue.push(now, packet.clone())));
            for _ in 0..120 {
                left += usize::from(queue.pop(now).is_some());
                now += Duration::from_millis(1);
            }
        }
        (queue.counts.dropped, left)
    }

    #[test]
    fn over_a_long_tunnel_trains_that_drain_within_a_round_trip_are_left_alone() {
        let (dropped, _) = trains(None);
        let (spared, left) = trains(Some(Duration::from_millis(60)));
        assert!(dropped > 0 && spared == 0 && left == 5900, "{dropped} {spared} {left}");
    }

    /// A packet that was taken from the queue and waits for room in the transport is not overtaken by what comes then.
    #[test]
    fn what_is_offered_goes_at_once_but_never_before_what_waits() {
        let (mut queue, now) = (CodelQueue::new(mark), Time::ZERO);
        let mut sent = Vec::new();
        let mut go = |packet: Vec<u8>| {
            sent.push(packet[0]);
            Ok(())
        };
        assert!(!queue.offer(now, vec![1], &mut go), "nothing is before it");
        assert!(queue.offer(now, vec![2], Err), "the transport is full");
        let held = queue.pop(now).unwrap();
        assert!(queue.offer(now, vec![3], &mut go), "2 has not gone");
        go(held).unwrap();
        go(queue.pop(now).unwrap()).unwrap();
        assert_eq!(queue.pop(now), None);
        assert!(!queue.offer(now, vec![4], &mut go));
        assert_eq!(sent, [1, 2, 3, 4]);
        assert_eq!((queue.counts.passed, queue.counts.bytes), (4, 4));
    }

    #[test]
    fn marked_packets_carry_the_mark_and_memory_is_bounded() {
        let (mut queue, _) = run(1, Duration::from_micros(100), Duration::from_millis(1), 3, false);
        assert!(queue.len() <= MAX_PACKETS && queue.counts.overflowed > 0);
        let now = Time::ZERO + Duration::from_secs(60);
        let marked = std::iter::from_fn(|| queue.pop(now)).filter(|p| p[1] == 1).count();
        assert!(marked > 0);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }
}
