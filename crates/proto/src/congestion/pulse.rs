//! Start-up by pulses (P11): for a short time twice, then four times the rate that is proven, then so little that the whole round trip carries no more
//! than that. The spacing in which a pulse arrives says what the path carries, the two slopes of its delay what others have of it; the queue that it leaves,
//! if it met the bottleneck, is gone before the next.

use super::{AckEvent, SentEvent};
use crate::units::{Duration, Time};

/// Times the proven rate at which the first and the second half of a pulse go.
const GAINS: [f64; 2] = [2.0, 4.0];
/// A pulse lasts for this part of a round trip: the queue that it leaves in front of a bottleneck of the proven rate is a quarter of the bandwidth-delay product.
const PART: f64 = 0.125;
/// Times the proven rate on average.
const MEAN: f64 = (GAINS[0] + GAINS[1]) / 2.0;
/// What is left for the rest of a round trip if that shall carry no more than is proven.
const REST: f64 = (1.0 - MEAN * PART) / (1.0 - PART);
/// From this round trip on half a pulse has three acknowledgements (P8). Below, doubling takes less than half a second, and many flows that begin by pulses
/// share badly (decision 116).
pub(super) const SHORTEST_RTT: Duration = Duration::from_millis(48);
/// A pulse has at least so many packets ...
const LEAST: f64 = 16.0;
/// ... and between two arrivals that are compared there are so many.
const MIN_PACKETS: f64 = 8.0;
/// A queue of ours grows in a straight line: round trips that scatter about it by more than this part of its rise are the path's own doing, and so may be
/// the rise. Of so few one can't tell ...
const STRAIGHT: f64 = 0.05;
const FEW: f64 = 5.0;
/// ... and so many are no chance. With less, a second pulse has to show the same but for this part.
const MANY: f64 = 16.0;
const ALIKE: f64 = 0.2;
/// A pulse that becomes longer on the path by this part of its length has met the bottleneck.
const MET: u32 = 4;
/// Less than this, and than so many packets take, happens anywhere.
const LEAST_DELAY: Duration = Duration::from_millis(2);
const FEW_PACKETS: f64 = 4.0;
/// A pulse that arrives by a tenth more slowly than it left was not alone, or not all of it passed: it proves no more than the rate of its slower half.
const SLOWED: u32 = 10;
/// The slower half makes the queue grow by so much per second: cross traffic fills the bottleneck.
const CROWDED: f64 = 0.1;
/// What left no faster than this, times the proven rate, proves nothing new.
const FASTER: f64 = 1.25;
/// After so many pulses in a row of which less is seen than the rate of their slower half acknowledgements are too rare for them.
const MAX_MISSES: u32 = 2;
/// Share of a bottleneck that a newcomer takes at first: they are one, or many.
const FAIR: f64 = 0.25;

/// Round trips of packets against the time at which they left, in seconds: sums for the straight line through them.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    fn slope(&self) -> f64 {
        (self.xy - self.x * self.y / self.n) / (self.xx - self.x * self.x / self.n).max(f64::MIN_POSITIVE)
    }

    /// The scatter about it is not small beside `rise`.
    fn is_scattered(&self, rise: f64) -> bool {
        let xy = self.xy - self.x * self.y / self.n;
        let rest = (self.yy - self.y * self.y / self.n - self.slope() * xy).max(0.0) / (self.n - 2.0);
        self.n >= FEW && rest.sqrt() >= STRAIGHT * rise
    }
}

/// Where an acknowledgement stood.
#[derive(Clone, Copy, Debug)]
struct Point {
    offset: u64,
    acked: u64,
    sent_at: Time,
    arrived: Time,
}

impl Point {
    /// Time to leave and to arrive since `earlier`.
    fn since(&self, earlier: &Self) -> (Duration, Duration) {
        (self.sent_at.since(earlier.sent_at), self.arrived.since(earlier.arrived))
    }

    /// Bytes per second at which packets left since `earlier`.
    fn rate_since(&self, earlier: &Self) -> f64 {
        (self.offset - earlier.offset) as f64 / self.sent_at.since(earlier.sent_at).as_secs_f64().max(1e-9)
    }
}

/// A pulse from its first packet on.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    /// Bytes sent before it, up to the middle of its time, and up to its end.
    from: u64,
    middle: u64,
    until: u64,
    began: Time,
    /// Nothing else was in flight then.
    is_alone: bool,
    /// The application had too little for it: it ends with what was there.
    is_limited: bool,
    first: Option<Point>,
    /// The first of the second half.
    second: Option<Point>,
    last: Option<Point>,
    lines: [Line; 2],
}

impl Pulse {
    /// What to take where others fill the bottleneck: what they leave, or a fair share. The slopes of the delay are those of (what we send + what they
    /// send - capacity) / capacity.
    fn beside_others(&self, end: &Point) -> Option<f64> {
        let (first, second) = (self.first?, self.second?);
        if self.lines.iter().any(|line| line.n < FEW) {
            return None;
        }
        let [slow, fast] = self.lines.map(|line| line.slope());
        if slow <= CROWDED || fast <= slow {
            return None;
        }
        let sent = [second.rate_since(&first), end.rate_since(&second)];
        let capacity = (sent[1] - sent[0]) / (fast - slow);
        Some((sent[1] - fast * capacity).max(FAIR * capacity))
    }
}

/// Why a pulse arrived more slowly than it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stretch {
    /// It did not, or not by enough.
    None,
    /// The delay varies by itself.
    Scatter,
    /// It seems to have met the bottleneck.
    Likely,
    /// It has.
    Bottleneck,
}

/// What a pulse showed. Rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) sent: f64,
    pub(super) delivered: f64,
    pub(super) loss: f64,
    pub(super) packets: f64,
    pub(super) stretch: Stretch,
    /// By how much longer its packets took to arrive than to leave.
    pub(super) delay: Duration,
    /// What was seen to pass without waiting for others.
    pub(super) proven: f64,
    /// What to take of the bottleneck, if others fill it.
    pub(super) share: Option<f64>,
    /// A queue is longer than this.
    pub(super) threshold: Duration,
    /// The application had too little to send.
    pub(super) is_limited: bool,
}

/// The pulses of one start-up.
#[derive(Clone, Debug)]
pub(super) struct Pulses {
    /// Bytes per second; at first what the initial window is in a round trip.
    proven: f64,
    rtt: Duration,
    pulse: Option<Pulse>,
    /// The rate at which the one before arrived, if it seems to have met the bottleneck.
    likely: Option<f64>,
    /// The application had too little for the latest.
    is_limited: bool,
    /// So many in a row said nothing.
    misses: u32,
    sent_offset: u64,
    acked: u64,
}

impl Pulses {
    pub(super) fn new(proven: f64, rtt: Duration) -> Self {
        Self { proven, rtt, pulse: None, likely: None, is_limited: false, misses: 0, sent_offset: 0, acked: 0 }
    }

    fn length(&self) -> Duration {
        self.rtt.mul_f64(PART)
    }

    /// What is proven.
    pub(super) fn proven(&self) -> f64 {
        self.proven
    }

    /// So much is proven now, whatever was thought before.
    pub(super) fn set(&mut self, rate: f64) {
        self.proven = rate;
    }

    /// The rate at which the next packet may leave.
    pub(super) fn rate(&self) -> f64 {
        let gain = match self.pulse {
            Some(p) if self.sent_offset >= p.until && !p.is_limited => REST,
            Some(p) if self.sent_offset >= p.middle => GAINS[1],
            _ => GAINS[0],
        };
        gain * self.proven
    }

    /// Too little of what leaves is acknowledged for pulses to say anything.
    pub(super) fn are_blind(&self) -> bool {
        self.misses >= MAX_MISSES
    }

    /// The application has too little for them: what queues is what it sends now and then.
    pub(super) fn are_limited(&self) -> bool {
        self.is_limited
    }

    /// The packet that ends there is one of a pulse: these leave the queue longer and longer, those in between shorter and shorter.
    pub(super) fn is_within(&self, offset: u64) -> bool {
        self.pulse.is_some_and(|p| p.from < offset && offset <= p.until)
    }

    /// The delay by which a pulse must become longer on the path if it met the bottleneck, where the delay does not vary by itself.
    fn threshold(&self, datagram: f64) -> Duration {
        let packets = Duration::from_secs_f64((FEW_PACKETS * datagram / (GAINS[1] * self.proven).max(1.0)).min(0.05));
        (self.length() / MET).max(packets).max((self.rtt / 16).min(LEAST_DELAY))
    }

    pub(super) fn on_sent(&mut self, event: &SentEvent, datagram: f64) {
        self.sent_offset = event.sent_offset;
        let begins = self.pulse.is_none_or(|p| p.is_limited && event.sent_offset > p.until);
        if begins {
            let from = event.sent_offset - event.bytes;
            let bytes = (MEAN * self.proven * self.length().as_secs_f64()).max(LEAST * datagram);
            self.pulse = Some(Pulse {
                from,
                middle: from + (bytes * GAINS[0] / (GAINS[0] + GAINS[1])) as u64,
                until: from + bytes as u64,
                began: event.now,
                is_alone: event.in_flight == event.bytes,
                is_limited: false,
                first: None,
                second: None,
                last: None,
                lines: [Line::default(); 2],
            });
        }
        if let Some(pulse) = &mut self.pulse
            && event.is_app_limited
            && event.sent_offset < pulse.until
        {
            pulse.until = event.sent_offset;
            pulse.is_limited = true;
            self.is_limited = true;
        }
    }

    /// What the pulse says, if it says anything: when it is over, or from the moment on at which it surely has met the bottleneck. `noise`: of the delay;
    /// `unrest`: by so much the delay varies otherwise, while the pulse was under way.
    pub(super) fn on_ack(&mut self, event: &AckEvent, datagram: f64, noise: Duration, unrest: Duration) -> Option<Answer> {
        let threshold = (self.threshold(datagram) + noise).max(unrest);
        // Where it varies by more, a bottleneck of half of the faster rate may be hidden.
        let is_hidden = noise.max(unrest) > self.length() / 2;
        let acked = std::mem::replace(&mut self.acked, event.total_acked);
        let rtt = event.rtt?;
        self.rtt = event.min_rtt.max(Duration::from_micros(1));
        let pulse = self.pulse.as_mut().filter(|p| event.newest_offset > p.from)?;
        let here = Point { offset: event.newest_offset, acked: event.total_acked, sent_at: event.largest_sent_at, arrived: event.arrived };
        let is_whole = here.offset >= pulse.until;
        // The first packet, with nobody before it, takes the smallest RTT.
        let alone =
            pulse.is_alone.then_some(Point { offset: pulse.from, acked, sent_at: pulse.began, arrived: pulse.began + event.min_rtt });
        let first = *pulse.first.get_or_insert(alone.unwrap_or(here));
        if here.offset <= pulse.until {
            let half = usize::from(here.offset > pulse.middle);
            pulse.lines[half].add(here.sent_at.since(pulse.began).as_secs_f64(), rtt.as_secs_f64());
        }
        let second = if here.offset > pulse.middle { *pulse.second.get_or_insert(here) } else { first };
        // What follows the pulse left more slowly.
        let end = match pulse.last {
            Some(last) if here.offset > pulse.until && last.offset.saturating_sub(second.offset) >= (pulse.until - pulse.from) / 3 => last,
            _ => here,
        };
        pulse.last = Some(here);
        let (sending, arriving) = end.since(&first);
        let delay = arriving.saturating_sub(sending);
        let seen = pulse.lines[0].n + pulse.lines[1].n;
        let stretch = if delay <= threshold {
            Stretch::None
        } else if pulse.lines.iter().any(|line| line.is_scattered(delay.as_secs_f64())) {
            Stretch::Scatter
        } else if seen >= MANY && pulse.lines[1].n >= FEW {
            Stretch::Bottleneck
        } else {
            Stretch::Likely
        };
        if !is_whole && stretch != Stretch::Bottleneck {
            return None;
        }
        // The second half by itself, if there is enough of it.
        let packets = |from: &Point| (end.offset - from.offset) as f64 / datagram;
        let start = if packets(&second) >= MIN_PACKETS || !is_whole { second } else { first };
        let (sending, arriving) = end.since(&start);
        let (seconds, bytes, packets) = (sending.max(arriving).as_secs_f64(), (end.offset - start.offset) as f64, packets(&start));
        if !is_whole && packets < MIN_PACKETS {
            return None;
        }
        let sent = bytes / seconds;
        let again = self.likely.filter(|_| is_whole && stretch == Stretch::Likely);
        let is_alike = again.is_none_or(|before| (sent / before - 1.0).abs() < ALIKE);
        let stretch = if again.is_some() && is_alike { Stretch::Bottleneck } else { stretch };
        let is_slowed = arriving > sending + sending / SLOWED;
        let answer = Answer {
            sent,
            proven: if is_slowed { sent.min(GAINS[0] * self.proven) } else { sent },
            delivered: end.acked.saturating_sub(start.acked) as f64 / seconds,
            loss: (1.0 - end.acked.saturating_sub(start.acked) as f64 / bytes).clamp(0.0, 1.0),
            packets,
            stretch,
            delay,
            share: pulse.beside_others(&end),
            threshold,
            is_limited: pulse.is_limited || event.is_app_limited,
        };
        let left = bytes / sending.as_secs_f64().max(1e-9);
        let is_telling = packets >= MIN_PACKETS
            && seconds > 0.0
            && (stretch != Stretch::None || (!is_hidden && (answer.is_limited || left > FASTER * self.proven)));
        if is_whole {
            self.is_limited = pulse.is_limited;
            self.pulse = None;
            let is_hit = is_telling && is_alike && (stretch != Stretch::None || left > GAINS[0] * self.proven);
            self.misses = if is_hit || answer.is_limited { 0 } else { self.misses + 1 };
        }
        if !is_telling {
            return None;
        }
        self.likely = (stretch == Stretch::Likely).then_some(sent);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bandwidth;

    const DATAGRAM: u64 = 1000;
    const RTT: Duration = Duration::from_millis(100);

    fn rate(packets: f64) -> f64 {
        packets * DATAGRAM as f64 / RTT.as_secs_f64()
    }

    /// One pulse over a bottleneck of `capacity` packets per round trip that others send `others` through, every arrival held back by `noise` of its number.
    fn answer_of(proven: f64, capacity: f64, others: f64, noise: impl Fn(u64) -> Duration) -> Answer {
        next_answer(&mut Pulses::new(rate(proven), RTT), capacity, others, noise, 1, Duration::ZERO).expect("a pulse that has arrived")
    }

    /// The next of these pulses, of which so many packets are acknowledged at once, where the delay varies by `unrest`.
    fn next_answer(
        pulses: &mut Pulses,
        capacity: f64,
        others: f64,
        noise: impl Fn(u64) -> Duration,
        at_once: usize,
        unrest: Duration,
    ) -> Option<Answer> {
        let mut offset = pulses.sent_offset;
        let mut now = Time::ZERO + RTT * (1 + (offset / DATAGRAM) as u32);
        let (began, mut sent) = (now, Vec::new());
        // Something is in flight before it.
        while pulses.pulse.is_none_or(|p| offset < p.until) {
            offset += DATAGRAM;
            sent.push((now, offset));
            pulses.on_sent(
                &SentEvent { now, bytes: DATAGRAM, in_flight: 2 * offset, is_app_limited: false, sent_offset: offset, is_control: false },
                DATAGRAM as f64,
            );
            now += Duration::from_secs_f64(DATAGRAM as f64 / pulses.rate());
        }
        // Seconds of queue: what comes, ours and others', over what goes.
        let (mut queue, mut last): (f64, Time) = (0.0, began);
        let mut answer = None;
        for (i, &(at, newest_offset)) in sent.iter().enumerate() {
            let (gap, first) = (at.since(last).as_secs_f64(), if i == 0 { 0.0 } else { DATAGRAM as f64 });
            queue = (queue + (first + gap * rate(others)) / rate(capacity) - gap).max(0.0);
            last = at;
            let arrived = at + RTT + Duration::from_secs_f64(queue) + noise(i as u64);
            if (i + 1) % at_once != 0 && i + 1 < sent.len() {
                continue;
            }
            let total_acked = newest_offset;
            answer = answer.or(pulses.on_ack(
                &AckEvent {
                    now: arrived,
                    acked_bytes: DATAGRAM,
                    acked_packets: 1,
                    ce_packets: 0,
                    rtt: Some(arrived.since(at)),
                    largest_sent_at: at,
                    smoothed_rtt: RTT,
                    min_rtt: RTT,
                    delivery_rate: Bandwidth::from_bytes_per_sec(0.0),
                    sent_rate: Bandwidth::from_bytes_per_sec(0.0),
                    flight_loss: 0.0,
                    loss_burst: 0.0,
                    sample_interval: RTT,
                    is_app_limited: false,
                    in_flight: 0,
                    total_acked,
                    total_lost: 0,
                    newest_offset,
                    arrived,
                },
                DATAGRAM as f64,
                Duration::ZERO,
                unrest,
            ));
        }
        answer
    }

    fn packets(rate: f64) -> f64 {
        rate * RTT.as_secs_f64() / DATAGRAM as f64
    }

    #[test]
    fn a_pulse_over_an_empty_path_proves_four_times_what_was_proven() {
        let answer = answer_of(500.0, 1e6, 0.0, |_| Duration::ZERO);
        assert!(answer.stretch == Stretch::None && answer.share.is_none(), "{answer:?}");
        assert!((packets(answer.sent) / 2000.0 - 1.0).abs() < 0.05 && answer.proven == answer.sent, "{answer:?}");
    }

    #[test]
    fn a_pulse_that_meets_the_bottleneck_says_what_it_carries() {
        for capacity in [600.0, 1000.0, 1200.0] {
            let answer = answer_of(500.0, capacity, 0.0, |_| Duration::ZERO);
            assert_eq!(answer.stretch, Stretch::Bottleneck, "{answer:?}");
            assert!((packets(answer.sent) / capacity - 1.0).abs() < 0.05, "{capacity}: {answer:?}");
            // Whatever is told of others, there are none: all of it may be taken.
            assert!(answer.share.is_none_or(|share| packets(share) > 0.9 * capacity), "{capacity}: {answer:?}");
        }
    }

    #[test]
    fn others_that_fill_the_bottleneck_are_seen_in_the_slopes() {
        let answer = answer_of(500.0, 2000.0, 2000.0, |_| Duration::ZERO);
        // The arrivals by themselves say half of it.
        assert!((packets(answer.sent) / 1000.0 - 1.0).abs() < 0.15, "{answer:?}");
        let share = answer.share.expect("others");
        assert!((packets(share) / (FAIR * 2000.0) - 1.0).abs() < 0.1, "{answer:?}");
        // Half of it is free.
        let share = answer_of(1000.0, 2000.0, 1000.0, |_| Duration::ZERO).share.expect("others");
        assert!((packets(share) / 1000.0 - 1.0).abs() < 0.1, "{share}");
    }

    #[test]
    fn delay_that_jumps_is_no_bottleneck() {
        let answer = answer_of(500.0, 1e6, 0.0, |i| Duration::from_millis(if i % 7 < 3 { 0 } else { i / 20 }));
        assert_eq!(answer.stretch, Stretch::Scatter, "{answer:?}");
    }
    #[test]
    fn pulses_that_nothing_is_seen_of_end() {
        // Where more may be hidden than a pulse would show, and where too few acknowledgements come.
        for (at_once, unrest) in [(1, RTT / 8), (16, Duration::ZERO)] {
            let mut pulses = Pulses::new(rate(32.0), RTT);
            for _ in 0..MAX_MISSES {
                assert!(!pulses.are_blind());
                let answer = next_answer(&mut pulses, 1e6, 0.0, |_| Duration::ZERO, at_once, unrest);
                assert!(answer.is_none_or(|a| a.sent < 2.5 * rate(32.0)), "{answer:?}");
            }
            assert!(pulses.are_blind(), "{at_once} {unrest:?}");
        }
    }

    #[test]
    fn two_pulses_that_are_not_alike_are_no_bottleneck() {
        let of = |second| {
            let mut pulses = Pulses::new(rate(32.0), RTT);
            [40.0, second].map(|capacity| next_answer(&mut pulses, capacity, 0.0, |_| Duration::ZERO, 3, Duration::ZERO).map(|a| a.stretch))
        };
        assert_eq!(of(40.0), [Some(Stretch::Likely), Some(Stretch::Bottleneck)]);
        assert_eq!(of(20.0), [Some(Stretch::Likely), Some(Stretch::Likely)]);
    }
}
