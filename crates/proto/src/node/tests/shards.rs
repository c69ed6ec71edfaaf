//! The shards of one endpoint: what it promises of keys, hosts, places and memory holds for all of them together (docs/decisions/0212).

use super::MS;
use super::pair::key;
use super::strangers::{flight_of, with_token};
use crate::config::NodeConfig;
use crate::congestion::CongestionControl;
use crate::error::Code;
use crate::event::Event;
use crate::ids::{FlowId, LinkId, SessionId};
use crate::link::Control;
use crate::node::{Node, TimerKey};
use crate::options::{FlowKind, FlowOptions, MessageOptions};
use crate::units::{Duration, Ecn, Time};
use crate::work::Work;
use std::net::SocketAddr;

const START: Time = Time::from_millis(1000);
const SHARDS: usize = 4;

fn server() -> SocketAddr {
    "192.0.2.1:4242".parse().unwrap()
}

/// One endpoint in several shards, and nodes that call it, without delay and loss.
struct World {
    now: Time,
    shards: Vec<Node>,
    callers: Vec<(SocketAddr, Node)>,
    events: Vec<Vec<Event>>,
    heard: Vec<Vec<Event>>,
}

impl World {
    fn new(count: usize, config: NodeConfig, callers: u8) -> Self {
        let caller =
            |n: u8| (SocketAddr::from(([198, 51, 100, n], 7000)), Node::new(NodeConfig::default(), key(10 + n), [n + 1; 32], START));
        Self {
            now: START,
            shards: Node::shards(config, key(1), [3; 32], START, count),
            callers: (0..callers).map(caller).collect(),
            events: vec![Vec::new(); count],
            heard: vec![Vec::new(); callers.into()],
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        let mut buf = Vec::new();
        while self.now < end {
            let now = self.now;
            for (at, (address, caller)) in self.callers.iter_mut().enumerate() {
                caller.handle_timeout(now);
                while let Some(sent) = caller.poll_transmit(now, 1, &mut buf) {
                    assert_eq!(sent.remote, server());
                    let to = self.shards[0].steering().of_datagram(&buf).unwrap();
                    self.shards[to].handle_datagram(now, *address, None, Ecn::NotEct, &mut buf);
                }
                self.heard[at].extend(std::iter::from_fn(|| caller.poll_event()));
            }
            for at in 0..self.shards.len() {
                let shard = &mut self.shards[at];
                shard.handle_timeout(now);
                while let Some(sent) = shard.poll_transmit(now, 1, &mut buf) {
                    if let Some((_, caller)) = self.callers.iter_mut().find(|(address, _)| *address == sent.remote) {
                        caller.handle_datagram(now, server(), None, Ecn::NotEct, &mut buf);
                    }
                }
                self.events[at].extend(std::iter::from_fn(|| shard.poll_event()));
                let gone: Vec<LinkId> = std::iter::from_fn(|| shard.poll_superseded()).collect();
                for link in gone {
                    let other = shard_of(&self.shards, link);
                    assert_ne!(other, at);
                    self.shards[other].give_place(now, link);
                }
            }
            self.now += MS(1);
        }
    }

    /// A link of a caller, and how the caller hears of its end.
    fn connect(&mut self, caller: usize) -> LinkId {
        let (now, peer) = (self.now, self.shards[0].public_key());
        self.callers[caller].1.connect(now, server(), Some(peer)).unwrap()
    }

    fn up(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.links.values().filter(|link| link.is_up()).count()).collect()
    }

    fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().flatten().filter(|event| is(event)).count()
    }
}

fn shard_of(shards: &[Node], link: LinkId) -> usize {
    shards[0].steering().of_link(link)
}

fn told(events: &[Event], code: Code) -> usize {
    events.iter().filter(|e| matches!(e, Event::LinkDown { reason, .. } if reason.code == code && reason.is_remote)).count()
}

#[test]
fn links_are_divided_among_shards_and_stay_there_when_they_move() {
    let mut w = World::new(SHARDS, NodeConfig::default(), 2);
    let links: Vec<LinkId> = (0..24).map(|n| w.connect(n % 2)).collect();
    w.run(MS(1000));
    let up = w.up();
    assert!(up.iter().sum::<usize>() == 24 && up.iter().all(|n| *n > 0), "{up:?}");
    // From other addresses, under other labels, twice.
    for port in [8000, 8001] {
        for (at, link) in links.iter().enumerate() {
            let now = w.now;
            let (address, caller) = &mut w.callers[at % 2];
            address.set_port(port);
            caller.migrate_link(now, *link);
            let session = caller.open_session(now, *link).unwrap();
            let flow = caller.open_flow(now, session, FlowOptions::default()).unwrap();
            caller.send_message(now, flow, bytes::Bytes::from_static(b"here"), MessageOptions::default()).unwrap();
        }
        w.run(MS(1000));
    }
    assert_eq!((w.up(), w.count(|e| matches!(e, Event::FlowIncoming { .. }))), (up, 48));
    let unknown: u64 = w.shards.iter().map(|shard| shard.counters().unknown).sum();
    assert_eq!(unknown, 0, "every packet came to the shard of its link");
}

#[test]
fn one_process_answers_from_all_shards_and_names_are_given_once() {
    let w = World::new(SHARDS, NodeConfig::default(), 0);
    assert!(w.shards.iter().all(|shard| shard.shared.restart_epoch == w.shards[0].shared.restart_epoch));
    assert!(w.shards.iter().all(|shard| shard.public_key() == key(1).public()));
}

#[test]
fn a_key_has_its_newest_links_over_all_shards() {
    let config = NodeConfig { max_links: 64, max_links_per_key: 4, ..NodeConfig::default() };
    let mut w = World::new(SHARDS, config, 1);
    for _ in 0..30 {
        w.connect(0);
        w.run(MS(20));
    }
    w.run(MS(500));
    assert_eq!(w.count(|e| matches!(e, Event::LinkUp { .. })), 30);
    assert_eq!((w.up().iter().sum::<usize>(), told(&w.heard[0], Code::TooMany)), (4, 26));
}

#[test]
fn links_and_sessions_have_the_places_of_one_endpoint() {
    let config = NodeConfig { max_links: 8, max_sessions: 16, ..NodeConfig::default() };
    let mut w = World::new(SHARDS, config, 12);
    let links: Vec<LinkId> = (0..12).map(|caller| w.connect(caller)).collect();
    w.run(MS(1000));
    assert_eq!(w.up().iter().sum::<usize>(), 8, "{:?}", w.up());
    for _ in 0..10 {
        for (caller, link) in links.iter().enumerate() {
            let now = w.now;
            let node = &mut w.callers[caller].1;
            if let Ok(session) = node.open_session(now, *link)
                && let Ok(flow) = node.open_flow(now, session, FlowOptions::default())
            {
                node.send_message(now, flow, bytes::Bytes::from_static(b"x"), MessageOptions::default()).unwrap();
            }
        }
        w.run(MS(50));
    }
    let open = w.count(|e| matches!(e, Event::SessionIncoming { .. }));
    assert!((8..=16).contains(&open), "{open} sessions");
    // What is given back others have.
    for (caller, link) in links.iter().enumerate().take(12) {
        let now = w.now;
        let _ = w.callers[caller].1.close_link(now, *link, 0, "");
    }
    w.run(MS(500));
    let places = |shard: &Node| shard.sessions.places_taken();
    assert_eq!((w.up().iter().sum::<usize>(), w.shards.iter().map(places).max()), (0, Some(0)));
}

#[test]
fn a_host_with_cookies_has_its_tokens_and_places_once() {
    for count in [1, SHARDS] {
        let mut shards = Node::shards(NodeConfig::default(), key(1), [3; 32], START, count);
        let from: SocketAddr = "192.0.2.7:7000".parse().unwrap();
        let flight = flight_of(1, None, 0x5eed_5eed, b"");
        let place = flight.windows(4).position(|w| w == [0x5e, 0xed, 0x5e, 0xed]).unwrap();
        let (work, ()) = Work::of(|| {
            for n in 0..1000u32 {
                let mut datagram = flight.clone();
                // Another label and another attempt each time, so that all shards are met.
                datagram[6..10].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_be_bytes());
                datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
                let source = crate::wire::packet::ConnectionId::new(&(n + 1).to_be_bytes()).unwrap();
                // A cookie of one shard is one of all.
                let token = shards[0].throttle.lock().issue_for_tests(START, from, &source);
                let mut datagram = with_token(&datagram, &token);
                let to = shards[0].steering().of_datagram(&datagram).unwrap();
                shards[to].handle_datagram(START, from, None, Ecn::NotEct, &mut datagram);
            }
        });
        let half_open: Vec<usize> = shards.iter().map(|shard| shard.half_open.len()).collect();
        assert!(half_open.iter().sum::<usize>() == 40 && half_open.iter().all(|n| *n > 0), "{half_open:?}");
        assert_eq!(work.dh, 4 * 40, "{count} shards");
    }
}

#[test]
fn strangers_that_know_the_key_are_answered_as_often_as_by_one_node() {
    let mut shards = Node::shards(NodeConfig::default(), key(1), [3; 32], START, SHARDS);
    for n in 0..400u32 {
        let from = SocketAddr::from(([198, 51, 100, (n % 250) as u8], 7000 + n as u16));
        let mut datagram = flight_of(1, Some(key(1).public()), n + 1, b"");
        shards[n as usize % SHARDS].handle_datagram(START, from, None, Ecn::NotEct, &mut datagram);
    }
    let answered: usize = shards.iter().map(|shard| shard.half_open.len()).sum();
    let cookies: u64 = shards.iter().map(|shard| shard.counters().retries).sum();
    assert_eq!((answered, cookies), (100, 300));
}

/// Regression: each look of a shard that lags behind another filled the bucket for the time between them again.
#[test]
fn shards_that_look_at_different_instants_fill_no_bucket_twice() {
    let mut shards = Node::shards(NodeConfig::default(), key(1), [3; 32], START, 2);
    for n in 0..2000u32 {
        let from = SocketAddr::from(([198, 51, (n >> 8) as u8, n as u8], 7000));
        let mut datagram = flight_of(1, Some(key(1).public()), n + 1, b"");
        let at = n as usize % 2;
        shards[at].handle_datagram(START + MS(5) * at as u32, from, None, Ecn::NotEct, &mut datagram);
    }
    let answered: usize = shards.iter().map(|shard| shard.half_open.len()).sum();
    assert!(answered <= 102, "{answered}");
}

#[test]
fn half_open_links_of_all_shards_are_as_many_as_those_of_one_node() {
    let mut shards = Node::shards(NodeConfig::default(), key(1), [3; 32], START, SHARDS);
    // Slowly, as strangers without a cookie may; none is confirmed.
    let mut now = START;
    for n in 0..1500u32 {
        now += MS(10);
        let from = SocketAddr::from(([198, 51, (n >> 8) as u8, n as u8], 7000));
        let mut datagram = flight_of(1, Some(key(1).public()), n + 1, b"");
        // All to one shard, as if its labels were known: it has its part and no more.
        shards[0].handle_datagram(now, from, None, Ecn::NotEct, &mut datagram);
        assert!(shards[0].half_open.len() <= super::super::half_open::MAX_HALF_OPEN / SHARDS);
    }
    assert_eq!(shards[0].half_open.len(), super::super::half_open::MAX_HALF_OPEN / SHARDS);
}

/// Regression: a link that was closed from elsewhere, and whose driver came after the end of its closing time, went without a word.
#[test]
fn a_link_that_gives_its_place_says_so_however_late_its_shard_is() {
    let mut w = World::new(SHARDS, NodeConfig::default(), 1);
    w.connect(0);
    w.run(MS(500));
    let (at, link) = (0..SHARDS).find_map(|at| Some((at, *w.shards[at].links.keys().next()?))).expect("it is up");
    let now = w.now;
    w.shards[at].give_place(now, link);
    w.now += MS(5000);
    w.run(MS(500));
    assert_eq!((told(&w.heard[0], Code::TooMany), w.up().iter().sum::<usize>()), (1, 0));
    assert!(w.shards[at].links.is_empty(), "and then it is gone");
}

impl World {
    /// The flow that came to a shard first.
    fn flow_in(&mut self, at: usize) -> Option<FlowId> {
        let found = self.events[at].iter().position(|e| matches!(e, Event::FlowIncoming { .. }))?;
        match self.events[at].remove(found) {
            Event::FlowIncoming { flow, .. } => Some(flow),
            _ => None,
        }
    }

    /// A session of each of two callers, by a link to the shard of the same number.
    fn one_in_each(&mut self) -> [SessionId; 2] {
        [0, 1].map(|caller| {
            (0..64)
                .find_map(|_| {
                    let link = self.connect(caller);
                    let before = self.up();
                    self.run(MS(50));
                    let is_there = self.up()[caller] > before[caller];
                    is_there.then(|| self.callers[caller].1.open_session(self.now, link).unwrap())
                })
                .expect("one of many labels is of this shard")
        })
    }

    /// A caller sends so much in one message; the flow at its shard.
    fn send(&mut self, caller: usize, session: SessionId, size: usize) -> FlowId {
        let (now, node) = (self.now, &mut self.callers[caller].1);
        let flow = node.open_flow(now, session, FlowOptions::default()).unwrap();
        node.send_message(now, flow, vec![caller as u8; size].into(), MessageOptions::default()).unwrap();
        self.run(MS(3000));
        self.flow_in(caller).expect("it has come")
    }
}

/// Regression: a message that waited for the budget of all shards went on only when another message of its own shard was read.
#[test]
fn a_message_goes_on_when_another_shard_gives_back_room() {
    let size = 15 << 16;
    let config = NodeConfig { node_memory: 2 << 20, max_message: 1 << 20, ..NodeConfig::default() };
    let mut w = World::new(2, config, 2);
    let sessions = w.one_in_each();
    let flows = [0, 1].map(|caller| w.send(caller, sessions[caller], size));
    assert!(!w.shards[1].shared.starved.is_empty(), "it waits");
    let whole = |w: &mut World, at: usize, flow| w.shards[at].recv_message(w.now, flow).unwrap().map(|message| message.data.len());
    assert_eq!(whole(&mut w, 0, flows[0]), Some(size));
    w.run(MS(5000));
    assert_eq!(whole(&mut w, 1, flows[1]), Some(size));
    w.run(MS(100));
    assert!(w.shards.iter().all(|shard| shard.shared.starved.is_empty() && !shard.timers.has(TimerKey::Others)), "nothing is looked for");
}

/// Regression: a flow that waited for its floor of memory was invited only when something happened in its own shard.
#[test]
fn a_flow_is_invited_when_another_shard_gives_back_memory() {
    const FLOWS: usize = 20;
    let mut w = World::new(2, NodeConfig { node_memory: 3 << 20, ..NodeConfig::default() }, 2);
    let sessions = w.one_in_each();
    for caller in [0, 1] {
        let (now, node) = (w.now, &mut w.callers[caller].1);
        for _ in 0..FLOWS {
            let flow = node.open_flow(now, sessions[caller], FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() }).unwrap();
            node.write(now, flow, &[7; 60_000]).unwrap();
        }
        w.run(MS(3000));
    }
    assert!(!w.shards[1].shared.waiting.is_empty(), "some wait");
    let now = w.now;
    w.callers[0].1.close_session(now, sessions[0], 0, "", Duration::ZERO).unwrap();
    w.run(MS(500));
    assert!(w.shards[1].shared.waiting.is_empty() && !w.shards[1].timers.has(TimerKey::Others));
    let now = w.now;
    let mut read = 0;
    while let Some(flow) = w.flow_in(1) {
        read += std::iter::from_fn(|| w.shards[1].read(now, flow, 1 << 20).unwrap()).map(|chunk| chunk.len()).sum::<usize>();
    }
    // What found no memory to begin with was refused at once.
    let refused = w.shards[1].counters().refused_flows as usize;
    assert!(refused < FLOWS / 4, "{refused}");
    assert_eq!(read, (FLOWS - refused) * 60_000);
}

/// Regression: a link that had given its place lived as long as its neighbour kept sending and came before each look at the clock.
#[test]
fn a_link_that_gives_its_place_is_gone_although_its_neighbour_goes_on() {
    let mut w = World::new(2, NodeConfig::default(), 1);
    let mine = w.connect(0);
    w.run(MS(500));
    let (at, link) = (0..2).find_map(|at| Some((at, *w.shards[at].links.keys().next()?))).expect("it is up");
    let (address, caller) = &mut w.callers[0];
    caller.set_congestion(w.now, mine, CongestionControl::None).unwrap();
    w.shards[at].give_place(w.now, link);
    let (mut buf, mut came) = (Vec::new(), 0);
    for _ in 0..10_000 {
        // It hears no CLOSE.
        caller.links.get_mut(&mine).unwrap().send_control(Control::Ping);
        caller.mark_ready(mine);
        while caller.poll_transmit(w.now, 1, &mut buf).is_some() {
            came += 1;
            w.shards[at].handle_datagram(w.now, *address, None, Ecn::NotEct, &mut buf);
        }
        w.shards[at].handle_timeout(w.now);
        while w.shards[at].poll_transmit(w.now, 1, &mut buf).is_some() {}
        w.now += MS(1);
    }
    assert!(came > 5000, "{came}");
    assert!(w.shards[at].links.is_empty());
}
