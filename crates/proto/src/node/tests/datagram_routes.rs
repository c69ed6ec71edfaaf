//! One flow of datagrams with a lifetime over several relayed routes at once (docs/spec/multipath.md 6.4): rates add up, nothing comes too late or twice, what a
//! dying route costs is bounded, and the same stories without (P26).

use super::mesh::Mesh;
use super::routes::{link, route, two_routes};
use super::{MS, at};
use crate::event::Event;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::stats::RouteStats;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};
use bytes::Bytes;

/// Messages of a size at a rate, from 0 to 3, and what happens to them in flight.
#[derive(Clone)]
struct Story {
    mbit: f64,
    size: usize,
    lifetime: Duration,
    kind: FlowKind,
    class: Class,
    /// The last message, after the beginning.
    ends: Time,
    /// What is counted.
    from: Time,
    /// A relay that is dead for a while, and comes back with nothing.
    dies: Option<(usize, Time, Time)>,
    /// The reader stands still for a while.
    stalls: Option<(Time, Time)>,
}

impl Default for Story {
    fn default() -> Self {
        Self {
            mbit: 60.0,
            size: 1200,
            lifetime: MS(300),
            kind: FlowKind::UnorderedMessages,
            class: Class::Bulk,
            ends: at(4000),
            from: at(2000),
            dies: None,
            stalls: None,
        }
    }
}

/// What became of them.
struct Course {
    sent: u64,
    /// Sent within the span that counts, by 100 ms: how many, and how many of them did not come in time.
    lost: Vec<(Time, u64, u64)>,
    late: u64,
    is_once: bool,
    is_in_order: bool,
    delays: Vec<Duration>,
    routes: Vec<RouteStats>,
    is_over: bool,
    held: usize,
}

impl Course {
    /// Share of the messages of a span that did not come in time.
    fn residual(&self, from: Time, to: Time) -> f64 {
        let of = || self.lost.iter().filter(|(at, ..)| *at >= from && *at < to);
        of().map(|(_, _, lost)| lost).sum::<u64>() as f64 / of().map(|(_, sent, _)| sent).sum::<u64>().max(1) as f64
    }

    fn delay(&self, share: f64) -> Duration {
        self.delays[((self.delays.len() - 1) as f64 * share) as usize]
    }

    fn show(&self) -> String {
        let routes: Vec<u64> = self.routes.iter().map(|r| r.sent_packets).collect();
        let delays = [0.5, 0.99, 1.0].map(|share| self.delay(share).as_millis());
        format!("{} sent, {} late, delays {delays:?} ms, by route {routes:?}", self.sent, self.late)
    }
}

impl Story {
    fn tell(&self, mut m: Mesh) -> Course {
        let session = m.open(0, 3);
        let now = m.now;
        let options =
            FlowOptions { mode: Mode::Btp, kind: self.kind, class: self.class, lifetime: Some(self.lifetime), ..Default::default() };
        let flow = m.nodes[0].open_flow(now, session, options).unwrap();
        let began = now + MS(100);
        let due = |n: u64| began + Duration::from_secs_f64(n as f64 * self.size as f64 * 8.0 / (self.mbit * 1e6));
        let (mut next, mut incoming, mut got) = (0u64, None, Vec::new());
        let (mut is_finished, mut restarted, mut held) = (false, false, 0);
        m.wake_at = Some(began);
        let until = self.ends.since(now) + MS(1500);
        m.run_until(until, |m| {
            if let Some((relay, from, to)) = self.dies {
                m.dead[relay] = m.now >= from && m.now < to;
                if m.now >= to && !core::mem::replace(&mut restarted, true) {
                    m.restart(relay);
                    let routes = vec![m.route(0, 0, 0), m.route(3, 3, 0)];
                    m.nodes[relay].set_routes(m.now, routes);
                }
            }
            while due(next) <= m.now && due(next) < self.ends {
                // What the flow has no room for is lost, as with any datagram.
                let stamp = Bytes::from([&next.to_be_bytes()[..], &vec![7; self.size - 8]].concat());
                let _ = m.nodes[0].send_message(m.now, flow, stamp, MessageOptions::default());
                next += 1;
            }
            m.wake_at = (due(next) < self.ends).then(|| due(next));
            if m.wake_at.is_none() && !core::mem::replace(&mut is_finished, true) {
                m.nodes[0].finish(m.now, flow).unwrap();
            }
            incoming = incoming.or_else(|| m.incoming_flow(3));
            held = held.max(m.nodes[3].memory().used);
            let is_still = self.stalls.is_some_and(|(from, to)| m.now >= from && m.now < to);
            while !is_still && let Some(Ok(Some(message))) = incoming.map(|flow| m.nodes[3].recv_message(m.now, flow)) {
                got.push((u64::from_be_bytes(message.data[..8].try_into().unwrap()), m.now));
            }
            false
        });
        let mut arrived: Vec<Option<Time>> = vec![None; next as usize];
        let mut course = Course {
            sent: next,
            lost: Vec::new(),
            late: 0,
            is_once: true,
            is_in_order: got.is_sorted_by_key(|(n, _)| *n),
            delays: Vec::new(),
            routes: m.nodes[0].session_routes(session).into_iter().map(|(_, r)| r).collect(),
            is_over: m.events[0].contains(&Event::FlowDelivered(flow)) && m.events[3].iter().any(|e| matches!(e, Event::FlowFinished(_))),
            held,
        };
        for (n, at) in got {
            course.is_once &= arrived[n as usize].replace(at).is_none();
        }
        for n in (0..next).filter(|n| due(*n) >= self.from) {
            let slot = Time::from_millis(due(n).as_nanos() / 100_000_000 * 100);
            if course.lost.last().is_none_or(|(at, ..)| *at != slot) {
                course.lost.push((slot, 0, 0));
            }
            let took = arrived[n as usize].map(|at| at.since(due(n)));
            let is_late = took.is_some_and(|took| took > self.lifetime);
            course.late += u64::from(is_late);
            course.delays.extend(took);
            let last = course.lost.last_mut().unwrap();
            (last.1, last.2) = (last.1 + 1, last.2 + u64::from(took.is_none() || is_late));
        }
        course.delays.sort_unstable();
        course
    }
}

/// What holds of every story.
fn sound(course: &Course) {
    assert!(course.is_once, "nothing comes twice");
    assert!(course.is_over, "both ends know that nothing follows");
}

#[test]
fn a_flow_that_no_route_carries_alone_arrives_by_two() {
    for (seed, class) in [(1, Class::Bulk), (2, Class::Latency)] {
        let story = Story { class, ..Story::default() };
        let both = story.tell(two_routes(seed));
        let residual = both.residual(at(2000), at(4000));
        println!("seed {seed}, {class:?}: {residual:.5} lost; {}", both.show());
        sound(&both);
        // Of some 24,000.
        assert!(residual <= 0.001 && both.late <= 2, "{residual} {}", both.late);
        assert!(both.is_over, "both ends know that it has ended");
    }
    let one = without(Mechanism::SpreadDatagrams, || Story::default().tell(two_routes(1)));
    let residual = one.residual(at(2000), at(4000));
    println!("by one route {residual:.3}");
    assert!(residual > 0.15, "{residual}");
}

#[test]
fn ordered_datagrams_arrive_in_order_by_two_routes() {
    let story = Story { kind: FlowKind::OrderedMessages, ..Story::default() };
    let both = story.tell(two_routes(3));
    println!("{:.5} lost; {}", both.residual(at(2000), at(4000)), both.show());
    sound(&both);
    assert!(both.is_in_order && both.residual(at(2000), at(4000)) <= 0.001);
}

#[test]
fn ten_per_cent_of_loss_on_each_link() {
    let (fast, slow) = (link(50.0, MS(10), 0.1), link(30.0, MS(30), 0.1));
    let mesh = |seed| {
        let edges = [(0, 1, fast.clone()), (1, 3, fast.clone()), (0, 2, slow.clone()), (2, 3, slow.clone())];
        let mut m = Mesh::new(4, &edges, seed);
        m.connect_all();
        route(&mut m);
        m
    };
    let both = Story { mbit: 50.0, lifetime: MS(400), ..Story::default() }.tell(mesh(4));
    println!("{:.5} lost; {}", both.residual(at(2000), at(4000)), both.show());
    sound(&both);
    assert!(both.residual(at(2000), at(4000)) <= 0.002);
}

/// What a relay's death costs: the share of a second's messages that did not come in time after it, and of the last half second.
fn death(relay: usize, mbit: f64, seed: u64) -> Course {
    let story = Story { mbit, class: Class::Latency, ends: at(6000), dies: Some((relay, at(2500), at(4000))), ..Story::default() };
    story.tell(two_routes(seed))
}

#[test]
fn a_relay_that_dies_costs_what_was_in_flight_and_the_other_route_goes_on() {
    // The route that is left carries it: until the silence of the dead one's link is noticed, and the return path with it, half a second.
    for relay in [1, 2] {
        let courses = [5, 6, 7, 8].map(|seed| death(relay, 20.0, seed));
        courses.iter().for_each(|course| println!("relay {relay}: {}", course.show()));
        courses.iter().for_each(sound);
        let lost: u64 = courses.iter().flat_map(|course| &course.lost).map(|(_, _, lost)| *lost).sum();
        let mean = |from, to| courses.iter().map(|course| course.residual(at(from), at(to))).sum::<f64>() / 4.0;
        println!("{lost} lost, {:.3} from a second after it, {:.3} when it is back", mean(3500, 4000), mean(5000, 6000));
        assert!(lost < 4 * 1800 && mean(3500, 4000) <= 0.05 && mean(5000, 6000) <= 0.001);
    }
    // It carries half of what is sent.
    for relay in [1, 2] {
        let mean = [3, 4, 5].map(|seed| {
            let course = death(relay, 60.0, seed);
            let [during, after] = [(at(2500), at(4000)), (at(5500), at(6000))].map(|(from, to)| course.residual(from, to));
            println!("relay {relay} of a full route, seed {seed}: {during:.4} lost, then {after:.4}; {}", course.show());
            sound(&course);
            assert!(after <= 0.002, "{after}");
            during
        });
        assert!(mean.iter().sum::<f64>() / 3.0 < 0.8, "{mean:?}");
    }
}

#[test]
fn a_reader_that_stands_still_costs_messages_and_no_memory_without_bound() {
    let story = Story { ends: at(6000), stalls: Some((at(2000), at(4000))), ..Story::default() };
    let course = story.tell(two_routes(6));
    println!("{} bytes held; {:.4} lost after; {}", course.held, course.residual(at(5000), at(6000)), course.show());
    sound(&course);
    assert!(course.held < 30_000_000);
    assert!(course.residual(at(5000), at(6000)) <= 0.001);
}

#[test]
fn a_route_that_would_bring_it_too_late_is_not_used() {
    let story = Story { mbit: 60.0, lifetime: MS(55), ..Story::default() };
    let course = story.tell(two_routes(7));
    println!("{:.4} lost; {}", course.residual(at(2000), at(4000)), course.show());
    sound(&course);
    // Copies by which it stays known, and what has waited for half of its lifetime before anything is known of it.
    assert!(course.routes[1].sent_packets < 300, "{:?}", course.routes);
    let blind = without(Mechanism::TimelyRoutes, || story.tell(two_routes(7)));
    println!("without: {:.4} lost; {}", blind.residual(at(2000), at(4000)), blind.show());
    assert!(blind.routes[1].sent_packets > 3000, "{:?}", blind.routes);
}

#[test]
fn messages_that_the_faster_route_can_carry_go_by_it_alone() {
    let story = Story { mbit: 0.8, size: 1000, class: Class::Latency, ..Story::default() };
    let course = story.tell(two_routes(8));
    println!("{}", course.show());
    sound(&course);
    assert!(course.residual(at(2000), at(4000)) == 0.0 && course.delay(0.5) < MS(25) && course.delay(1.0) < MS(60));
    assert!(course.routes.len() == 1, "{:?}", course.routes);
}

#[test]
fn more_than_all_routes_carry_loses_only_what_is_too_much() {
    for kind in [FlowKind::UnorderedMessages, FlowKind::OrderedMessages] {
        let story = Story { mbit: 100.0, ends: at(6000), kind, class: Class::Latency, ..Story::default() };
        let course = story.tell(two_routes(9));
        let residual = course.residual(at(3000), at(6000));
        println!("{kind:?}: {residual:.4} lost; {}", course.show());
        sound(&course);
        let alone = without(Mechanism::SpreadDatagrams, || story.tell(two_routes(9)));
        let by_one = alone.residual(at(3000), at(6000));
        println!("by one route {by_one:.4} lost; {}", alone.show());
        assert!(residual < by_one - 0.1, "{residual} {by_one}");
    }
}
