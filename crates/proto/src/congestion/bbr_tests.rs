//! Scripted laws of `bbr`; on the virtual bottleneck it runs in `tests/congestion.rs`.

use super::super::bbr_path::BETA;
use super::*;
use std::collections::VecDeque;

const DATAGRAM: u64 = 1200;
const RATE: f64 = 5e6;
const RTT: Duration = Duration::from_millis(20);

/// A path of a fixed rate and delay with an endless queue: packet by packet, acknowledged one by one.
struct World {
    bbr: Bbr,
    now: Time,
    flying: VecDeque<(Time, Time, u64, u64, bool)>,
    busy_until: Time,
    next_send: Time,
    sent: u64,
    acked: u64,
    in_flight: u64,
    newest_acked: (Time, Time, u64),
    /// Every so many packets one is lost, 0: none.
    lose_every: u64,
    /// Packets only of the state `up`, if set.
    lose_in: Option<BbrState>,
    /// States in order, each with when it began.
    states: Vec<(Time, BbrState)>,
}

impl World {
    fn new() -> Self {
        Self {
            bbr: Bbr::new(DATAGRAM, RTT, Time::ZERO),
            now: Time::ZERO,
            flying: VecDeque::new(),
            busy_until: Time::ZERO,
            next_send: Time::ZERO,
            sent: 0,
            acked: 0,
            in_flight: 0,
            newest_acked: (Time::ZERO, Time::ZERO, 0),
            lose_every: 0,
            lose_in: None,
            states: vec![(Time::ZERO, BbrState::Startup)],
        }
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            let ack = self.flying.front().map_or(Time::MAX, |f| f.0);
            let room = self.in_flight + DATAGRAM <= self.bbr.window();
            let send = if room { self.next_send.max(self.now) } else { Time::MAX };
            if ack <= send {
                self.now = ack;
                self.arrive();
            } else {
                self.now = send;
                self.send();
            }
            if self.states.last().is_some_and(|s| s.1 != self.bbr.state) {
                self.states.push((self.now, self.bbr.state));
            }
        }
    }

    fn send(&mut self) {
        let now = self.now;
        self.sent += DATAGRAM;
        if self.in_flight == 0 {
            self.newest_acked = (now, now, self.acked);
        }
        self.in_flight += DATAGRAM;
        let (in_flight, sent_offset) = (self.in_flight, self.sent);
        self.bbr.on_sent(&SentEvent { now, bytes: DATAGRAM, in_flight, is_app_limited: false, sent_offset, is_control: false });
        self.next_send = now + Duration::from_secs_f64(DATAGRAM as f64 / self.bbr.pacing_rate);
        self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(DATAGRAM as f64 / RATE);
        let due = self.lose_every > 0 && (self.sent / DATAGRAM).is_multiple_of(self.lose_every);
        let is_lost = due && self.lose_in.is_none_or(|s| s == self.bbr.state);
        self.flying.push_back((self.busy_until + RTT, now, self.sent, self.acked, is_lost));
    }

    fn arrive(&mut self) {
        let (now, sent_at, offset, acked_then, is_lost) = self.flying.pop_front().expect("a packet");
        self.in_flight -= DATAGRAM;
        if is_lost {
            self.bbr.on_loss(&LossEvent {
                now,
                lost_bytes: DATAGRAM,
                lost_packets: 1,
                largest_sent_at: sent_at,
                in_flight: self.in_flight,
                is_persistent: false,
            });
            return;
        }
        self.acked += DATAGRAM;
        // The queue's rate over the flight: what was acknowledged since this packet left.
        let interval = now.since(sent_at);
        let rate = Bandwidth::from_transfer(self.acked - acked_then, interval);
        self.bbr.on_ack(&AckEvent {
            now,
            acked_bytes: DATAGRAM,
            acked_packets: 1,
            ce_packets: 0,
            rtt: Some(interval),
            largest_sent_at: sent_at,
            smoothed_rtt: interval,
            min_rtt: RTT,
            delivery_rate: rate,
            sent_rate: rate,
            flight_loss: 0.0,
            loss_burst: 0.0,
            sample_interval: interval,
            is_app_limited: false,
            in_flight: self.in_flight,
            total_acked: self.acked,
            total_lost: self.bbr.path.lost,
            newest_offset: offset,
            arrived: now,
        });
    }

    fn first(&self, state: BbrState) -> Time {
        self.states.iter().find(|s| s.1 == state).unwrap_or_else(|| panic!("no {state:?} in {:?}", self.states)).0
    }
}

#[test]
fn the_states_follow_one_another_as_the_draft_draws_them() {
    let mut w = World::new();
    w.run(Time::from_millis(4500));
    let order: Vec<BbrState> = w.states.iter().map(|s| s.1).take(8).collect();
    use BbrState::*;
    // The acknowledgement that ends Drain finds nothing left for the first Down to drain.
    assert_eq!(order, [Startup, Drain, Cruise, Refill, Up, Down, Cruise, Refill], "{:?}", w.states);
    // Some ten doublings and three rounds of plateau.
    assert!(w.first(Drain) < Time::from_millis(400), "{:?}", w.states);
    let bw = w.bbr.path.bw();
    assert!((bw / RATE - 1.0).abs() < 0.05, "{bw} of {RATE}");
}

/// Table of §5.6.1.
#[test]
fn each_state_has_its_gains() {
    let gains = [
        (BbrState::Startup, 2.77, 2.0),
        (BbrState::Drain, 0.35, 2.0),
        (BbrState::Down, 0.9, 2.0),
        (BbrState::Cruise, 1.0, 2.0),
        (BbrState::Refill, 1.0, 2.0),
        (BbrState::Up, 1.25, 2.25),
        (BbrState::ProbeRtt, 1.0, 0.5),
    ];
    for (state, pacing, cwnd) in gains {
        assert_eq!((state.pacing_gain(), state.cwnd_gain()), (pacing, cwnd), "{state:?}");
    }
    let mut w = World::new();
    w.run(Time::from_millis(1500));
    assert_eq!(w.bbr.state, BbrState::Cruise);
    let pace = w.bbr.pacing_rate / w.bbr.path.bw();
    assert!((pace - 0.99).abs() < 1e-6, "{pace}: one per cent below the bandwidth");
    let bdps = w.bbr.cwnd / w.bbr.path.bdp().expect("known");
    assert!((2.0..2.4).contains(&bdps), "{bdps}");
}

/// §5.3.3.8: 63 rounds or two to three seconds.
#[test]
fn bandwidth_is_probed_after_two_to_three_seconds_or_63_rounds() {
    let mut w = World::new();
    w.run(Time::from_millis(4900));
    let ups: Vec<Time> = w.states.iter().filter(|s| s.1 == BbrState::Up).map(|s| s.0).collect();
    assert!(ups.len() >= 2, "{:?}", w.states);
    for pair in ups.windows(2) {
        let gap = pair[1].since(pair[0]);
        assert!((Duration::from_millis(1200)..Duration::from_millis(3300)).contains(&gap), "{gap:?}");
    }
}

/// §5.3.4: every five seconds 200 ms with half a BDP.
#[test]
fn the_minimum_rtt_is_looked_for_every_five_seconds_for_200_ms() {
    let mut w = World::new();
    let mut smallest = u64::MAX;
    while w.now < Time::from_millis(17_000) {
        w.run(w.now + Duration::from_millis(5));
        if w.bbr.state == BbrState::ProbeRtt {
            smallest = smallest.min(w.bbr.window());
        }
    }
    let visits: Vec<(Time, Time)> = w.states.windows(2).filter(|s| s[0].1 == BbrState::ProbeRtt).map(|s| (s[0].0, s[1].0)).collect();
    assert!(visits.len() >= 2, "{:?}", w.states);
    for (from, to) in &visits {
        assert!((Duration::from_millis(200)..Duration::from_millis(290)).contains(&to.since(*from)), "{visits:?}");
    }
    for pair in visits.windows(2) {
        let gap = pair[1].0.since(pair[0].1);
        assert!((Duration::from_millis(4900)..Duration::from_millis(5300)).contains(&gap), "{visits:?}");
    }
    let half = RATE * RTT.as_secs_f64() / 2.0;
    assert!((smallest as f64) < half * 1.1 && smallest as f64 > half * 0.8, "{smallest} of {half}");
}

/// §5.5.10.2: more than 2 % of a probing flight lost bounds the flight, by at most 0.7 of the target, and ends the probe.
#[test]
fn loss_above_two_per_cent_while_probing_bounds_the_flight() {
    let mut w = World::new();
    w.run(Time::from_millis(1000));
    assert!(w.bbr.path.inflight_longterm.is_infinite());
    w.lose_every = 10;
    w.lose_in = Some(BbrState::Up);
    w.run(w.now + Duration::from_millis(3000));
    let bound = w.bbr.path.inflight_longterm;
    let bdp = RATE * RTT.as_secs_f64();
    assert!((BETA * bdp * 0.95..=1.4 * bdp).contains(&bound), "{bound} of {bdp}");
    let up = w.states.iter().position(|s| s.1 == BbrState::Up).expect("a probe");
    assert_eq!(w.states[up + 1].1, BbrState::Down);
    assert!(w.states[up + 1].0.since(w.states[up].0) < Duration::from_millis(60), "{:?}", w.states);
    // Cruising leaves 15 % to others.
    w.run(w.now + Duration::from_millis(200));
    if w.bbr.state == BbrState::Cruise {
        assert!(w.bbr.cwnd <= 0.85 * w.bbr.path.inflight_longterm + 1.0);
    }
}

#[test]
fn loss_of_half_a_per_cent_while_probing_bounds_nothing() {
    let mut w = World::new();
    w.lose_every = 200;
    w.run(Time::from_millis(4500));
    assert!(w.states.iter().any(|s| s.1 == BbrState::Up));
    assert!(w.bbr.path.inflight_longterm.is_infinite(), "{}", w.bbr.path.inflight_longterm);
}

/// §5.5.11.
#[test]
fn a_loss_that_was_reordering_gives_the_bound_back_and_probes_again() {
    let mut w = World::new();
    w.run(Time::from_millis(1000));
    while w.bbr.state != BbrState::Up {
        w.run(w.now + Duration::from_millis(1));
    }
    let (cwnd, now) = (w.bbr.cwnd, w.now);
    w.run(now + RTT);
    w.bbr.on_loss(&LossEvent {
        now: w.now,
        lost_bytes: 20 * DATAGRAM,
        lost_packets: 20,
        largest_sent_at: now,
        in_flight: w.in_flight,
        is_persistent: false,
    });
    assert_eq!(w.bbr.state, BbrState::Down);
    assert!(w.bbr.path.inflight_longterm.is_finite());
    w.bbr.on_spurious_loss(w.now, 20 * DATAGRAM);
    assert_eq!(w.bbr.state, BbrState::Refill);
    assert!(w.bbr.path.inflight_longterm.is_infinite());
    assert!(w.bbr.cwnd >= cwnd);
}

#[test]
fn persistent_congestion_stops_the_flight_and_what_arrives_later_restores_it() {
    let mut w = World::new();
    w.run(Time::from_millis(1000));
    let before = w.bbr.cwnd;
    let now = w.now;
    w.bbr.on_loss(&LossEvent { now, lost_bytes: w.in_flight, lost_packets: 80, largest_sent_at: now, in_flight: 0, is_persistent: true });
    assert_eq!(w.bbr.window(), DATAGRAM);
    w.flying.clear();
    w.in_flight = 0;
    w.run(now + RTT * 4);
    assert!(w.bbr.cwnd > before / 2.0, "{} of {before}", w.bbr.cwnd);
}
