//! Flows over several relayed routes at once (docs/spec/multipath.md 6): their rates add up, one that dies loses nothing, and the same stories without (P26).

use super::hostile::link_to;
use super::mesh::{Mesh, Stream, ip};
use super::pair::{Conditions, bytes};
use super::{MS, at};
use crate::event::Event;
use crate::ids::FlowLabel;
use crate::node::NodeConfig;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};
use crate::wire::Frames;
use crate::wire::frame::{FlowOpen, Frame, Relayed};
use core::cell::RefCell;
use std::rc::Rc;

/// A link of so many Mbit/s.
pub(super) fn link(mbit: f64, delay: Duration, loss: f64) -> Conditions {
    Conditions { loss, delay, rate: Some(mbit * 1e6 / 8.0), ..Conditions::default() }
}

/// From 0 to 3 by 1, 50 Mbit/s with 20 ms, and by 2, 30 Mbit/s with 60 ms; each of their links loses 3 %.
pub(super) fn two_routes(seed: u64) -> Mesh {
    let (fast, slow) = (link(50.0, MS(10), 0.03), link(30.0, MS(30), 0.03));
    let edges = [(0, 1, fast.clone()), (1, 3, fast), (0, 2, slow.clone()), (2, 3, slow)];
    let mut m = Mesh::new(4, &edges, seed);
    m.connect_all();
    route(&mut m);
    m
}

/// Both ends have two equal routes to each other.
pub(super) fn route(m: &mut Mesh) {
    let now = m.now;
    for (node, far) in [(0, 3), (3, 0)] {
        let routes = vec![m.route(far, 1, 0), m.route(far, 2, 0)];
        m.nodes[node].set_routes(now, routes);
    }
    for relay in [1, 2] {
        let routes = vec![m.route(0, 0, 0), m.route(3, 3, 0)];
        m.nodes[relay].set_routes(now, routes);
    }
}

/// What an application saw of a transfer.
struct Course {
    is_done: bool,
    /// What had been read by when.
    read: Vec<(Time, u64)>,
    took: Duration,
}

impl Course {
    fn mbit(&self, from: Time, to: Time) -> f64 {
        let by = |t: Time| self.read.iter().take_while(|(at, _)| *at <= t).last().map_or(0, |(_, n)| *n);
        (by(to) - by(from)) as f64 * 8.0 / to.since(from).as_secs_f64() / 1e6
    }

    /// The longest time without a byte that touches a span.
    fn gap(&self, from: Time, to: Time) -> Duration {
        let pairs = self.read.windows(2).filter(|w| w[1].0 >= from && w[0].0 <= to);
        pairs.map(|w| w[1].0.since(w[0].0)).max().unwrap_or(Duration::MAX)
    }
}

fn transfer(m: &mut Mesh, s: &mut Stream, to: usize, size: u64, limit: Duration) -> Course {
    let (began, mut read) = (m.now, vec![(m.now, 0)]);
    let is_done = m.run_until(limit, |m| {
        s.write(m, size);
        s.read(m, to);
        if s.got > read.last().unwrap().1 {
            read.push((m.now, s.got));
        }
        s.is_ended && s.is_delivered
    });
    assert!(s.is_right, "what arrived is what was sent");
    Course { is_done: is_done && s.got == size, read, took: m.now.since(began) }
}

#[test]
fn rates_of_two_routes_add_up() {
    let rate = |seed| {
        let mut m = two_routes(seed);
        let session = m.open(0, 3);
        let mut s = m.stream(0, session);
        let course = transfer(&mut m, &mut s, 3, 40_000_000, MS(30_000));
        assert!(course.is_done);
        println!("{:?} took {:?}", m.nodes[0].session_routes(session), course.took);
        course.mbit(at(2000), at(4000))
    };
    let both: Vec<f64> = (1..3).map(rate).collect();
    let one = without(Mechanism::Spreading, || rate(1));
    println!("{both:?} Mbit/s, {one} by one route");
    // Of 80 Mbit/s: headers, and 3 % loss.
    assert!(both.iter().all(|r| *r >= 0.9 * 80.0 * 0.97 * 0.95), "{both:?}");
    assert!(one < 50.0);
}

#[test]
fn a_node_that_keeps_to_one_route_takes_one_route() {
    let mut m = two_routes(1);
    m.configure(0, NodeConfig { several_routes: false, ..super::mesh::config() });
    m.connect(0);
    m.connect(2);
    m.run(MS(1000));
    route(&mut m);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    assert!(transfer(&mut m, &mut s, 3, 2_000_000, MS(10_000)).is_done);
    assert_eq!(m.nodes[0].session_routes(session), []);
    assert!(m.edges[2].sent[0] < 100_000, "{:?}", m.edges[2].sent);
}

#[test]
fn a_flow_without_data_is_heard_of_ends_and_is_answered_by_several_routes() {
    let mut m = two_routes(11);
    let session = m.open(0, 3);
    let now = m.now;
    let stream = FlowOptions { kind: FlowKind::Stream, bidirectional: true, ..Default::default() };
    let flow = m.nodes[0].open_flow(now, session, stream.clone()).unwrap();
    let mut incoming = None;
    assert!(m.run_until(MS(2000), |m| {
        incoming = m.take(3, |e| match e {
            Event::FlowIncoming { session, flow, .. } => Some((*session, *flow)),
            _ => None,
        });
        incoming.is_some()
    }));
    let (theirs, flow_in) = incoming.unwrap();
    let now = m.now;
    let back = FlowOptions { answers: Some(flow_in), bidirectional: false, ..stream };
    let answer = m.nodes[3].open_flow(now, theirs, back).unwrap();
    let data = bytes(3_000_000, 5);
    let (mut written, mut got, mut ours) = (0, Vec::new(), None);
    m.nodes[0].finish(now, flow).unwrap();
    let is_done = m.run_until(MS(10_000), |m| {
        while written < data.len() {
            let Ok(n) = m.nodes[3].write(m.now, answer, &data[written..]) else { break };
            written += n;
            if written == data.len() {
                m.nodes[3].finish(m.now, answer).unwrap();
            }
        }
        ours = ours.or_else(|| m.incoming_flow(0));
        while let Some(Ok(Some(chunk))) = ours.map(|flow| m.nodes[0].read(m.now, flow, 1 << 20)) {
            if chunk.is_empty() {
                break;
            }
            got.extend_from_slice(&chunk);
        }
        got.len() == data.len() && m.events[0].contains(&Event::FlowDelivered(flow))
    });
    assert!(is_done && got == data, "{} of {}", got.len(), data.len());
    assert_eq!(m.nodes[3].session_routes(theirs).len(), 2);
    assert!(m.nodes[0].session_routes(session).iter().all(|(_, r)| r.received_bytes > 100_000));
    // A graceful end knows that everything arrived.
    let now = m.now;
    m.nodes[0].close_session(now, session, 0, "", MS(2000)).unwrap();
    let outcome = |e: &Event| match e {
        Event::SessionClosed { outcome, .. } => Some(outcome.clone()),
        _ => None,
    };
    assert!(m.run_until(MS(3000), |m| m.events[0].iter().any(|e| outcome(e).is_some())));
    let ended = m.take(0, outcome).unwrap();
    assert!(ended.all_delivered && ended.all_received, "{ended:?}");
    // A repetition of the opening that comes after the end is taken for a new one, and given up after 5 s.
    m.run(MS(7000));
    assert_eq!([0, 3].map(|n| m.nodes[n].memory().used), [0, 0], "nothing is left");
    assert_eq!(m.nodes[1].relayed_flows().count() + m.nodes[2].relayed_flows().count(), 0);
}

/// A relay dies after 2 s of a transfer and comes back with nothing 1.5 s later: the longest time without a byte, and the rate at the end.
fn death(relay: usize, seed: u64) -> (Duration, f64) {
    let mut m = two_routes(seed);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let size = 50_000_000;
    let until = at(2000).since(m.now);
    let first = transfer(&mut m, &mut s, 3, size, until);
    m.dead[relay] = true;
    let second = transfer(&mut m, &mut s, 3, size, MS(1500));
    m.dead[relay] = false;
    m.restart(relay);
    for relay in [1, 2] {
        let routes = vec![m.route(0, 0, 0), m.route(3, 3, 0)];
        let now = m.now;
        m.nodes[relay].set_routes(now, routes);
    }
    let third = transfer(&mut m, &mut s, 3, size, MS(40_000));
    assert!(third.is_done, "{} of {size}", s.got);
    let read: Vec<_> = [first.read, second.read, third.read].concat().into_iter().filter(|r| r.1 > 0).collect();
    let all = Course { read, ..third };
    (all.gap(at(2000), at(3500)), all.mbit(at(5500), at(6300)))
}

#[test]
fn a_relay_that_dies_costs_nothing_and_no_more_time_than_a_route_that_fails() {
    let (alone, _) = without(Mechanism::Spreading, || death(1, 3));
    for relay in [1, 2] {
        let (gap, after) = death(relay, 3);
        println!("relay {relay}: a pause of {gap:?}, {alone:?} by one route; {after:.1} Mbit/s when it is back");
        // The control flow goes on by the slower route, and brings its news a round trip of that later.
        assert!(gap <= alone + MS(120), "{gap:?} {alone:?}");
        assert!(after > 60.0, "{after}");
    }
}

#[test]
fn what_a_dead_route_owes_goes_by_the_other_before_the_link_is_silent() {
    let (gap, _) = death(2, 4);
    let (waits, _) = without(Mechanism::LateCopies, || death(2, 4));
    println!("{gap:?}, {waits:?} without copies");
    assert!(gap < MS(600) && waits * 2 > gap * 3, "{gap:?} {waits:?}");
}

#[test]
fn a_reader_that_stands_still_holds_a_bounded_part_and_loses_nothing() {
    let mut m = two_routes(5);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let size = 40_000_000;
    let _ = transfer(&mut m, &mut s, 3, size, MS(2000));
    let written = s.written;
    m.run_until(MS(4000), |m| {
        s.write(m, size);
        false
    });
    let (held, more) = (m.nodes[3].memory().used, s.written - written);
    println!("{held} bytes held, {more} written meanwhile");
    assert!(held < 30_000_000 && more < 40_000_000, "{held} {more}");
    assert!(transfer(&mut m, &mut s, 3, size, MS(20_000)).is_done);
}

/// So many messages of up to 20 kB, all at once: whether all came, and came right.
fn messages(kind: FlowKind) -> bool {
    let mut m = two_routes(6);
    let session = m.open(0, 3);
    let now = m.now;
    let flow = m.nodes[0].open_flow(now, session, FlowOptions { kind, ..Default::default() }).unwrap();
    let (mut sent, mut incoming, mut got) = (0u64, None, Vec::new());
    let size = |id: u64| (id.wrapping_mul(7919) % 20_000) as usize + 1;
    m.run_until(MS(10_000), |m| {
        while sent < 1000 && m.nodes[0].send_message(m.now, flow, bytes(size(sent), sent), MessageOptions::default()).is_ok() {
            sent += 1;
        }
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while let Some(Ok(Some(message))) = incoming.map(|flow| m.nodes[3].recv_message(m.now, flow)) {
            assert!(message.data == bytes(size(message.id), message.id), "message {}", message.id);
            got.push(message.id);
        }
        got.len() == 1000
    });
    println!("{kind:?}: {:?}", m.nodes[0].session_routes(session));
    assert!(m.nodes[0].session_routes(session).iter().all(|(_, r)| r.sent_packets > 100));
    let is_ordered = got.is_sorted();
    got.sort_unstable();
    (is_ordered || kind != FlowKind::OrderedMessages) && got == (0..1000).collect::<Vec<_>>()
}

#[test]
fn messages_arrive_once_and_in_order_where_that_was_asked() {
    assert!(messages(FlowKind::OrderedMessages));
    assert!(messages(FlowKind::UnorderedMessages));
}

#[test]
fn messages_that_the_faster_route_can_carry_go_by_it_alone() {
    let mut m = two_routes(7);
    let session = m.open(0, 3);
    let now = m.now;
    let options = FlowOptions { class: Class::Latency, ..Default::default() };
    let flow = m.nodes[0].open_flow(now, session, options).unwrap();
    let (mut sent, mut late, mut incoming) = (Vec::new(), Vec::new(), None);
    let began = now + MS(500);
    m.wake_at = Some(began);
    m.run_until(MS(5000), |m| {
        while sent.len() < 200 && m.now >= began + MS(10) * sent.len() as u32 {
            m.nodes[0].send_message(m.now, flow, bytes(1000, sent.len() as u64), MessageOptions::default()).unwrap();
            sent.push(m.now);
            m.wake_at = Some(began + MS(10) * sent.len() as u32);
        }
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while let Some(Ok(Some(message))) = incoming.map(|flow| m.nodes[3].recv_message(m.now, flow)) {
            late.push(m.now.since(sent[message.id as usize]));
        }
        late.len() == 200
    });
    late.sort_unstable();
    println!("median {:?}, longest {:?}; {:?}", late[100], late[199], m.nodes[0].session_routes(session));
    assert!(late.len() == 200 && late[100] < MS(30), "{:?}", late[100]);
    assert!(m.edges[2].sent[0] * 4 < m.edges[0].sent[0]);
}

#[test]
fn a_neighbour_is_reached_straight_and_by_a_relay_at_once() {
    // 0 and 2 are neighbours, and 1 lies between them too.
    let straight = link(20.0, MS(30), 0.02);
    let edges = [(0, 2, straight), (0, 1, link(20.0, MS(10), 0.02)), (1, 2, link(20.0, MS(10), 0.02))];
    let mut m = Mesh::new(3, &edges, 8);
    m.connect_all();
    let now = m.now;
    for (node, far) in [(0, 2), (2, 0)] {
        let routes = vec![m.route(far, far, 0), m.route(far, 1, 0), m.route(1, 1, 0)];
        m.nodes[node].set_routes(now, routes);
    }
    let routes = vec![m.route(0, 0, 0), m.route(2, 2, 0)];
    m.nodes[1].set_routes(now, routes);
    let session = m.open(0, 2);
    // The relay has a session of its own with the far end.
    let beside = m.open(1, 2);
    let mut s = m.stream(0, session);
    let course = transfer(&mut m, &mut s, 2, 15_000_000, MS(20_000));
    assert!(course.is_done);
    let rate = course.mbit(at(1500), at(3000));
    println!("{rate} Mbit/s {:?}", m.nodes[0].session_routes(session));
    assert!(rate > 0.85 * 40.0 * 0.98 * 0.95, "{rate}");
    assert!(m.stream(1, beside).transfer(&mut m, 2, 500_000, MS(5000)));
}

#[test]
fn a_relay_that_alters_what_it_passes_on_is_left_and_the_other_route_carries_everything() {
    let mut m = two_routes(12);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let size = 20_000_000;
    let _ = transfer(&mut m, &mut s, 3, size, MS(1000));
    // What the slower route's relay passes on has a wrong byte at its end from now on.
    m.nodes[2].shared.lies.set(|frames| {
        if frames.len() > 1000 {
            frames[frames.len() - 1] ^= 0x55;
        }
    });
    let course = transfer(&mut m, &mut s, 3, size, MS(20_000));
    println!("took {:?} {:?}", course.took, m.nodes[0].session_routes(session));
    assert!(course.is_done);
    assert!(m.events[3].iter().any(|e| matches!(e, Event::Polluted { .. })), "it is named");
}

/// 0 reaches 4 by 1 and by 2, which both lead to 3, whose one link to 4 is the bottleneck; beside it a flow from 5 by 3 to 4. The share of the first.
fn share_at_a_last_relay() -> f64 {
    let wide = link(100.0, MS(5), 0.0);
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (5, 3)].map(|(a, b)| (a, b, wide.clone()));
    let edges = [edges.to_vec(), vec![(3, 4, link(20.0, MS(5), 0.0))]].concat();
    let mut m = Mesh::new(6, &edges, 9);
    m.connect_all();
    let now = m.now;
    let table: [(usize, &[(usize, usize)]); 6] = [
        (0, &[(4, 1), (4, 2)]),
        (1, &[(4, 3), (0, 0)]),
        (2, &[(4, 3), (0, 0)]),
        (3, &[(4, 4), (0, 1), (5, 5)]),
        (4, &[(0, 3), (5, 3)]),
        (5, &[(4, 3)]),
    ];
    for (node, routes) in table {
        let routes = routes.iter().map(|(to, via)| m.route(*to, *via, 0)).collect();
        m.nodes[node].set_routes(now, routes);
    }
    let (a, b) = (m.open(0, 4), m.open(5, 4));
    let mut one = m.stream(0, a);
    m.run_until(MS(500), |m| {
        one.write(m, u64::MAX);
        one.read(m, 4);
        false
    });
    let mut other = m.stream(5, b);
    let mut before = (0, 0);
    for round in 0..2 {
        before = if round == 1 { (one.got, other.got) } else { before };
        m.run_until(MS(4000), |m| {
            one.write(m, u64::MAX);
            other.write(m, u64::MAX);
            one.read(m, 4);
            other.read(m, 4);
            false
        });
    }
    let (first, second) = (one.got - before.0, other.got - before.1);
    println!("{first} beside {second}; {:?}", m.nodes[0].session_routes(a));
    assert!(m.nodes[0].session_routes(a).len() == 2 && (first + second) as f64 > 0.85 * 4.0 * 2.5e6);
    first as f64 / (first + second) as f64
}

#[test]
fn two_routes_that_meet_at_a_last_relay_take_the_share_of_one_flow_there() {
    let share = share_at_a_last_relay();
    let alone = without(Mechanism::SharedTurns, share_at_a_last_relay);
    assert!((0.42..0.58).contains(&share) && alone > 0.6, "{share} {alone}");
}

/// A relay that a part goes by opens further parts of the flow without end, of which no packet ever opens (P15, P22).
#[test]
fn parts_that_a_relay_invents_without_end_are_bounded_and_cost_the_flow_nothing() {
    let mut m = two_routes(15);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    // What the relay has to copy: the opening of the part that goes by it.
    let seen = Rc::new(RefCell::new(None));
    let found = Rc::clone(&seen);
    m.nodes[2].shared.lies.set(move |frames| {
        for frame in Frames::new(frames).flatten() {
            if let Frame::FlowOpen(open) = frame
                && open.part() > 0
            {
                *found.borrow_mut() = Some(open);
            }
        }
    });
    let size = 8_000_000;
    let course = transfer(&mut m, &mut s, 3, size, MS(1000));
    assert!(!course.is_done);
    let open: FlowOpen = seen.borrow().clone().expect("a part goes by the relay");
    let link = link_to(&m, 2, 3);
    let before = m.nodes[3].memory().used;
    for round in 0..200 {
        let mut bytes = Vec::new();
        for i in 0..5 {
            let number = 1000 + round * 5 + i;
            let relayed = open.relayed.map(|r| Relayed { part: number, ..r });
            Frame::FlowOpen(FlowOpen { label: FlowLabel(1_000_000 + number), relayed, ..open.clone() }).emit(&mut bytes);
        }
        let now = m.now;
        m.nodes[2].inject(now, link, bytes);
        let until = m.now + MS(2);
        m.run_until(MS(2), |m| {
            s.write(m, size);
            s.read(m, 3);
            m.now >= until
        });
    }
    let counters = m.nodes[3].counters();
    assert!(counters.refused_flows > 500, "{counters:?}");
    let kept = m.nodes[3].memory().used.saturating_sub(before);
    let bound = 64 * (8 * 1024 + 64 * u64::from(open.symbol));
    println!("{kept} bytes of {bound}");
    assert!((kept as u64) < bound, "{kept} bytes of {bound}");
    let course = transfer(&mut m, &mut s, 3, size, MS(20_000));
    println!("took {:?} {:?}", course.took, m.nodes[0].session_routes(session));
    assert!(course.is_done);
}

/// Two sessions whose messages live 300 ms and keep to the routes that `turns` say, 40 and 20 Mbit/s from second 1 on, the second relay dead from 3.5 s on if `dies`: the share of the
/// messages that arrived of those of the second before, and of those after 4 s.
fn datagrams(turns: [usize; 2], dies: bool) -> (f64, f64) {
    let mut m = two_routes(16);
    let now = m.now;
    let options =
        FlowOptions { mode: Mode::Btp, kind: FlowKind::UnorderedMessages, lifetime: Some(MS(300)), one_route: true, ..Default::default() };
    let flows = turns.map(|turn| {
        let session = m.nodes[0].open_session_by(now, ip(3), None, turn).unwrap();
        m.nodes[0].open_flow(now, session, options.clone()).unwrap()
    });
    let (began, bits) = (at(1000), 8000.0);
    let mut due = [0u64; 2];
    let mut incoming = Vec::new();
    let spans = [(at(2500), at(3500)), (at(4000), at(4500))];
    let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
    let within = |t: Time| spans.iter().position(|(from, to)| t >= *from && t < *to);
    m.wake_at = Some(began);
    m.run_until(at(4900).since(now), |m| {
        m.dead[2] = dies && m.now >= at(3500);
        let mut wake = Time::MAX;
        for (i, rate) in [40e6, 20e6].into_iter().enumerate() {
            let next = |n: u64| began + Duration::from_secs_f64(n as f64 * bits / rate);
            while next(due[i]) <= m.now && next(due[i]) < at(4500) {
                // What the flow has no room for is lost, as with any datagram.
                let stamp = ::bytes::Bytes::from([next(due[i]).as_nanos().to_be_bytes().as_slice(), &[0; 992]].concat());
                let _ = m.nodes[0].send_message(m.now, flows[i], stamp, MessageOptions::default());
                if let Some(span) = within(next(due[i])) {
                    sent[span] += 1;
                }
                due[i] += 1;
            }
            wake = wake.min(next(due[i]));
        }
        m.wake_at = (wake < at(4500)).then_some(wake);
        incoming.extend(m.incoming_flow(3));
        for flow in &incoming {
            while let Ok(Some(message)) = m.nodes[3].recv_message(m.now, *flow) {
                let stamp = u64::from_be_bytes(message.data[..8].try_into().unwrap());
                if let Some(span) = within(Time::from_nanos(stamp)) {
                    got[span] += 1;
                }
            }
        }
        false
    });
    let share = |i: usize| got[i] as f64 / sent[i] as f64;
    println!("turns {turns:?}: {sent:?} sent, {got:?} arrived");
    (share(0), share(1))
}

/// Flows that keep to one route: several sessions take turns at the routes that are equally good, and share what is left when one dies.
#[test]
fn sessions_that_take_turns_use_equally_good_routes_together() {
    let (apart, _) = datagrams([0, 1], false);
    let (together, _) = datagrams([0, 0], false);
    assert!(apart > 0.995 && together < 0.9, "{apart} {together}");
    let (before, after) = datagrams([0, 1], true);
    assert!(before > 0.97 && after > 0.7, "the other route takes what it can: {before} {after}");
}
