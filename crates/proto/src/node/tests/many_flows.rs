//! Many flows through one relay in both directions, with memory for their floors and little more (P15): all go on, the relay keeps within its bound,
//! and a receiver that does not read costs the others nothing.

use super::MS;
use super::mesh::{Mesh, config, ip};
use super::pair::{Conditions, key};
use crate::Node;
use crate::error::Code;
use crate::event::Event;
use crate::ids::{FlowId, SessionId};
use crate::node::{NodeConfig, RelayLimits};
use crate::options::{FlowKind, FlowOptions};
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};
use std::collections::{BTreeSet, HashMap};

/// How often the applications look.
const GLANCE: Duration = Duration::from_millis(10);

/// A stream at one of the ends.
#[derive(Default)]
struct End {
    written: u64,
    is_finished: bool,
    got: u64,
    is_ended: bool,
}

/// Nodes A, B, C; streams from A to C and from C to A; B has little memory.
struct Crowd {
    m: Mesh,
    /// Streams that leave from each end, and those that come to it.
    out: [HashMap<FlowId, End>; 2],
    incoming: [HashMap<FlowId, End>; 2],
    /// Those that can be written to, or read.
    writable: [BTreeSet<FlowId>; 2],
    readable: [BTreeSet<FlowId>; 2],
    delivered: usize,
    /// Flows that the relay had no memory for.
    refused: usize,
    /// Whatever else ended before its time.
    broken: Vec<Event>,
}

/// Node of an end.
const AT: [usize; 2] = [0, 2];

/// A byte of the content at a place.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Crowd {
    /// The relay's memory is `room` bytes; each link has a rate in bytes per second and a delay.
    fn new(room: usize, links: [(f64, Duration); 2], seed: u64) -> Self {
        let link = |(rate, delay)| Conditions { loss: 0.02, delay, rate: Some(rate), ..Conditions::default() };
        let mut m = Mesh::new(3, &[(0, 1, link(links[0])), (1, 2, link(links[1]))], seed);
        let mut relay = Node::new(NodeConfig { node_memory: room, ..config() }, key(1), [77; 32], m.now);
        relay.set_addresses(&[ip(1)]);
        relay.enable_relaying(Some(RelayLimits::default()));
        m.nodes[1] = relay;
        m.connect_all();
        (0..3).for_each(|node| m.route_by_chain(node));
        Self {
            m,
            out: Default::default(),
            incoming: Default::default(),
            writable: Default::default(),
            readable: Default::default(),
            delivered: 0,
            refused: 0,
            broken: Vec::new(),
        }
    }

    /// So many streams from each end, in sessions of 250.
    fn open(&mut self, flows: usize) {
        let sessions: Vec<(usize, usize, SessionId)> = (0..2)
            .flat_map(|end| (0..flows).step_by(250).map(move |first| (end, (flows - first).min(250))))
            .map(|(end, count)| (end, count, self.m.open(AT[end], AT[1 - end])))
            .collect();
        // How many flows a session may have, the far end says.
        self.m.run(MS(500));
        for (end, count, session) in sessions {
            for _ in 0..count {
                let options = FlowOptions { kind: FlowKind::Stream, ..Default::default() };
                // Where not even the session was taken there is none any more.
                let Ok(flow) = self.m.nodes[AT[end]].open_flow(self.m.now, session, options) else {
                    self.refused += 1;
                    continue;
                };
                self.out[end].insert(flow, End::default());
                self.writable[end].insert(flow);
            }
        }
    }

    fn look(&mut self) {
        for (end, at) in AT.into_iter().enumerate() {
            for event in std::mem::take(&mut self.m.events[at]) {
                match event {
                    Event::FlowIncoming { flow, .. } => {
                        self.incoming[end].insert(flow, End::default());
                        self.readable[end].insert(flow);
                    }
                    Event::FlowReadable(flow) | Event::FlowFinished(flow) => drop(self.readable[end].insert(flow)),
                    Event::FlowWritable(flow) => drop(self.writable[end].insert(flow)),
                    Event::FlowDelivered(_) => self.delivered += 1,
                    Event::FlowClosed { reason, .. } if reason.code == Code::NoMemory => self.refused += 1,
                    Event::FlowClosed { .. } | Event::SessionClosed { .. } | Event::LinkDown { .. } => self.broken.push(event),
                    _ => {}
                }
            }
        }
    }

    /// The applications write `size` bytes to each stream and read what comes; the first stream that came to C is left alone if `is_stalled`.
    fn act(&mut self, size: u64, is_stalled: bool) {
        self.look();
        let stalled = self.incoming[1].keys().min().copied().filter(|_| is_stalled);
        for (end, at) in AT.into_iter().enumerate() {
            let (node, now) = (&mut self.m.nodes[at], self.m.now);
            for flow in std::mem::take(&mut self.writable[end]) {
                let Some(stream) = self.out[end].get_mut(&flow) else { continue };
                while stream.written < size {
                    let piece: Vec<u8> = (stream.written..size.min(stream.written + 16_384)).map(byte).collect();
                    match node.write(now, flow, &piece) {
                        Ok(n) if n > 0 => stream.written += n as u64,
                        _ => break,
                    }
                }
                if stream.written == size && !stream.is_finished {
                    stream.is_finished = node.finish(now, flow).is_ok();
                }
            }
            for flow in std::mem::take(&mut self.readable[end]) {
                if end == 1 && Some(flow) == stalled {
                    continue;
                }
                let Some(stream) = self.incoming[end].get_mut(&flow) else { continue };
                while !stream.is_ended {
                    match node.read(now, flow, 1 << 20) {
                        Ok(Some(bytes)) if bytes.is_empty() => stream.is_ended = true,
                        Ok(Some(bytes)) => {
                            assert!(bytes.iter().zip(stream.got..).all(|(b, at)| *b == byte(at)), "what arrived is what was sent");
                            stream.got += bytes.len() as u64;
                        }
                        _ => break,
                    }
                }
            }
        }
    }

    /// Runs until `done` or for `limit`; true if it was done.
    fn run(&mut self, limit: Duration, size: u64, is_stalled: bool, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.m.now + limit;
        while self.m.now < end {
            self.act(size, is_stalled);
            if done(self) {
                return true;
            }
            let next = self.m.now + GLANCE;
            self.m.wake_at = Some(next);
            self.m.run_until(GLANCE, |m| m.now >= next);
        }
        false
    }

    fn complete(&self, size: u64) -> usize {
        self.incoming.iter().flat_map(HashMap::values).filter(|s| s.is_ended && s.got == size).count()
    }
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    complete: usize,
    refused: usize,
    /// When each tenth of the flows that were not refused was complete.
    tenths: Vec<Duration>,
    /// Most that the relay held, and its bound.
    memory: (usize, usize),
}

/// `flows` from each end of `size` bytes each, over links of 50 Mbit/s; the relay's memory is `room` bytes.
fn opposing(flows: usize, size: u64, room: usize) -> Outcome {
    let mut c = Crowd::new(room, [(6.25e6, MS(5)); 2], 11);
    c.open(flows);
    let begin: Time = c.m.now;
    let mut tenths = Vec::new();
    c.run(MS(30_000), size, false, |c| {
        let (complete, all) = (c.complete(size), 2 * flows - c.refused);
        while complete * 10 > all * tenths.len() && complete * 10 >= all * (tenths.len() + 1) {
            tenths.push(c.m.now.since(begin));
        }
        complete == all && c.delivered == all
    });
    assert!(c.complete(size) == 0 || c.broken.is_empty(), "nothing but what was refused: {:?}", c.broken);
    let memory = c.m.nodes[1].memory();
    Outcome { complete: c.complete(size), refused: c.refused, tenths, memory: (memory.peak, memory.limit) }
}

/// A relay that has memory for the floors of 180 streams and some is asked for 200.
fn full() -> Outcome {
    opposing(100, 40_000, 20 << 20)
}

#[test]
fn opposing_flows_through_a_relay_whose_memory_is_full_all_go_on() {
    let o = full();
    println!("{o:?}");
    assert!((1..40).contains(&o.refused), "the memory is full: {o:?}");
    assert_eq!(o.complete + o.refused, 200, "{o:?}");
    assert!(o.memory.0 <= o.memory.1, "{o:?}");
    // 4 MB each way are 0.67 s at best; nobody waits for all others.
    assert!(o.tenths.last().is_some_and(|t| *t < MS(1500)), "{o:?}");
}

#[test]
fn without_lending_that_relay_takes_none_of_them() {
    let o = without(Mechanism::Lending, full);
    assert_eq!(o.complete, 0, "{o:?}");
}

#[test]
#[ignore = "figures: cargo test -p noctule-proto --lib -- --ignored --nocapture a_thousand_opposing_flows"]
fn a_thousand_opposing_flows_all_go_on() {
    let o = opposing(500, 40_000, 116 << 20);
    println!("{o:?}");
    assert_eq!((o.complete, o.refused), (1000, 0));
    assert!(o.memory.0 <= o.memory.1, "{o:?}");
}

/// `flows` streams without end from A to C, beside what else `c` carries.
fn from_a(c: &mut Crowd, flows: usize) {
    let session = c.m.open(0, 2);
    c.m.run(MS(500));
    for _ in 0..flows {
        let options = FlowOptions { kind: FlowKind::Stream, ..Default::default() };
        let flow = c.m.nodes[0].open_flow(c.m.now, session, options).unwrap();
        c.out[0].insert(flow, End::default());
        c.writable[0].insert(flow);
    }
}

/// Bytes that C reads in two seconds of `flows` streams over a link that is slower than the one before, when the first of them, which nobody reads if it is
/// there at all, has filled what C keeps for it.
fn beside_a_stalled(flows: usize, is_there: bool) -> u64 {
    let mut c = Crowd::new(4 << 20, [(12.5e6, MS(5)), (2.5e6, MS(5))], 12);
    let flows = flows - usize::from(!is_there);
    from_a(&mut c, flows);
    c.run(MS(5000), u64::MAX, is_there, |_| false);
    let read = |c: &Crowd| c.incoming[1].values().map(|s| s.got).sum::<u64>();
    let before = read(&c);
    c.run(MS(2000), u64::MAX, is_there, |_| false);
    assert_eq!((c.broken.len(), c.refused, c.incoming[1].len()), (0, 0, flows));
    read(&c) - before
}

#[test]
fn a_receiver_that_does_not_read_costs_the_others_nothing() {
    let [with, alone] = [true, false].map(|is_there| beside_a_stalled(6, is_there));
    println!("{with} {alone}");
    assert!(with as f64 > 0.98 * alone as f64, "{with} of {alone} bytes");
    // 2 s of 2.5 MB/s, of which 2 % is lost: what is lost in the first packets of a flow is repaired though new ones wait all the time.
    assert!(alone > 4_400_000, "{alone}");
}

#[test]
fn without_reports_of_flows_it_stops_them() {
    let with = without(Mechanism::FlowReports, || beside_a_stalled(6, true));
    assert!(with < 1_000_000, "{with} bytes");
}

/// Most that a relay of 2 MB holds of streams over a next link that has 2.5 MB in flight, and what C has read in six seconds.
fn long_next_link() -> (usize, u64) {
    let mut c = Crowd::new(2 << 20, [(6.25e6, MS(5)), (6.25e6, MS(200))], 13);
    from_a(&mut c, 4);
    c.run(MS(6000), u64::MAX, false, |_| false);
    assert_eq!((c.broken.len(), c.refused), (0, 0));
    (c.m.nodes[1].memory().peak, c.incoming[1].values().map(|s| s.got).sum())
}

#[test]
fn a_relay_lets_come_what_its_memory_has_room_for_beside_what_the_next_link_has_not_delivered() {
    let (peak, got) = long_next_link();
    println!("{peak} {got}");
    assert!(peak <= 2 << 20 && got > 5_000_000, "{peak} {got}");
}

#[test]
fn without_that_it_holds_more_than_it_may() {
    let (peak, got) = without(Mechanism::RelayMemory, long_next_link);
    println!("{peak} {got}");
    assert!(peak > 2 << 20, "{peak} {got}");
}
