//! Tests of the lab's instruments, on a machine that is no protocol: datagrams as they come, nothing repaired, nothing checked.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, CommandError, Layer};
use noctule_proto::event::{Event, SessionOutcome};
use noctule_proto::ids::{FlowId, LinkId, PathId, SessionId};
use noctule_proto::node::{Message, Transmit};
use noctule_proto::options::{FlowKind, FlowOptions, MessageOptions};
use noctule_proto::stats::{FlowStats, LinkStats, Memory};
use noctule_proto::units::Ecn;

use super::*;
use crate::link::{LinkSpec, Period};
use crate::scenario::Hop;

/// One datagram per message or piece of a stream: kind, number, data. Paced, since nothing else holds it back.
struct Bare {
    is_server: bool,
    peer: Option<SocketAddr>,
    max: usize,
    gap: Duration,
    ready_at: Time,
    outbox: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    flows: Vec<FlowOptions>,
    inbox: VecDeque<Bytes>,
    knows_peer_flow: bool,
    blocked: bool,
    partial: Vec<u8>,
    memory: Memory,
}

const QUEUE: usize = 8;

impl Bare {
    fn new(config: NodeConfig, gap: Duration) -> Self {
        Self {
            is_server: true,
            peer: None,
            max: config.max_datagram as usize,
            gap,
            ready_at: Time::ZERO,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            flows: Vec::new(),
            inbox: VecDeque::new(),
            knows_peer_flow: false,
            blocked: false,
            partial: Vec::new(),
            memory: Memory { used: 0, peak: 1_000, limit: 2_000 },
        }
    }

    fn push(&mut self, flow: FlowId, data: &[u8]) -> Result<(), CommandError> {
        if self.outbox.len() >= QUEUE {
            self.blocked = true;
            return Err(CommandError::Blocked);
        }
        let options = &self.flows[flow.0 as usize];
        let mut datagram = vec![u8::from(options.kind == FlowKind::Stream), options.tag as u8];
        datagram.extend_from_slice(data);
        self.outbox.push_back(datagram);
        Ok(())
    }
}

/// Flows of the far end are named from here on.
const FAR: u64 = 1 << 20;

impl Machine for Bare {
    fn handle_datagram(&mut self, _: Time, remote: SocketAddr, _: Option<IpAddr>, _: Ecn, data: &mut [u8]) {
        let (kind, tag) = (if data[0] == 1 { FlowKind::Stream } else { FlowKind::UnorderedMessages }, u64::from(data[1]));
        let session = SessionId(0);
        if self.is_server && self.peer.is_none() {
            self.events.push_back(Event::SessionIncoming { session, link: LinkId(0), peer: PublicKey([0; 32]), far: None });
        }
        self.peer = Some(remote);
        if !self.knows_peer_flow {
            self.knows_peer_flow = true;
            let options = FlowOptions { kind, tag, ..FlowOptions::default() };
            self.events.push_back(Event::FlowIncoming { session, flow: FlowId(FAR), options });
        }
        self.inbox.push_back(Bytes::copy_from_slice(&data[2..]));
        self.events.push_back(Event::FlowReadable(FlowId(FAR)));
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, now: Time, _: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        if now < self.ready_at {
            return None;
        }
        let datagram = self.outbox.pop_front()?;
        self.ready_at = now + self.gap;
        if std::mem::take(&mut self.blocked) {
            self.events.push_back(Event::FlowWritable(FlowId(0)));
        }
        buf.clear();
        buf.extend_from_slice(&datagram);
        Some(Transmit { remote: self.peer?, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }
    fn poll_timeout(&self) -> Option<Time> {
        (!self.outbox.is_empty()).then_some(self.ready_at)
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    fn connect(&mut self, _: Time, remote: SocketAddr, _: Option<PublicKey>) -> Result<LinkId, CommandError> {
        self.is_server = false;
        self.peer = Some(remote);
        Ok(LinkId(0))
    }
    fn add_path(&mut self, _: Time, _: LinkId, _: SocketAddr, _: Option<IpAddr>) -> Result<PathId, CommandError> {
        Err(CommandError::Misuse("it has one way only"))
    }
    fn open_session(&mut self, _: Time, _: LinkId) -> Result<SessionId, CommandError> {
        Ok(SessionId(0))
    }
    fn close_session(&mut self, _: Time, session: SessionId, _: u64, _: &str, _: Duration) -> Result<(), CommandError> {
        let reason = CloseReason::local(Code::NoError, Layer::Session, "");
        let outcome = SessionOutcome { reason, all_delivered: false, all_received: false };
        self.events.push_back(Event::SessionClosed { session, outcome, totals: Box::default() });
        Ok(())
    }
    fn open_session_to(&mut self, _: Time, _: IpAddr, _: Option<PublicKey>) -> Result<SessionId, CommandError> {
        Err(CommandError::Misuse("it knows its neighbour only"))
    }
    fn session_link(&self, _: SessionId) -> Option<LinkId> {
        Some(LinkId(0))
    }
    fn set_addresses(&mut self, _: &[IpAddr]) {}
    fn set_routes(&mut self, _: Time, _: Vec<noctule_proto::node::routing::Route>) {}
    fn enable_relaying(&mut self, _: Option<noctule_proto::node::RelayLimits>) {}
    fn relayed_flows(&self) -> Vec<noctule_proto::stats::RelayedStats> {
        Vec::new()
    }
    fn open_flow(&mut self, _: Time, _: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        self.flows.push(options);
        Ok(FlowId(self.flows.len() as u64 - 1))
    }
    fn send_message(&mut self, _: Time, flow: FlowId, data: Bytes, _: MessageOptions) -> Result<u64, CommandError> {
        self.push(flow, &data).map(|()| 0)
    }
    fn recv_message(&mut self, _: Time, _: FlowId) -> Result<Option<Message>, CommandError> {
        Ok(self.inbox.pop_front().map(|data| Message { id: 0, data }))
    }
    fn write(&mut self, _: Time, flow: FlowId, data: &[u8]) -> Result<usize, CommandError> {
        if self.outbox.len() >= QUEUE {
            self.blocked = true;
            return Err(CommandError::Blocked);
        }
        let taken = data.len().min(self.max - 2 - self.partial.len());
        self.partial.extend_from_slice(&data[..taken]);
        if self.partial.len() == self.max - 2 {
            let full = std::mem::take(&mut self.partial);
            self.push(flow, &full)?;
        }
        Ok(taken)
    }
    fn read(&mut self, _: Time, _: FlowId, _: usize) -> Result<Option<Bytes>, CommandError> {
        Ok(self.inbox.pop_front())
    }
    fn finish(&mut self, _: Time, _: FlowId) -> Result<(), CommandError> {
        Ok(())
    }
    fn link_stats(&self, _: LinkId) -> Option<LinkStats> {
        None
    }
    fn flow_stats(&self, _: FlowId) -> Option<FlowStats> {
        None
    }
    fn poll_trace(&mut self) -> Option<noctule_proto::trace::TraceEvent> {
        None
    }
    fn memory(&self) -> Memory {
        self.memory
    }
}

fn run_bare(link: &str, gap_us: u64, adapt: impl FnOnce(&mut Scenario)) -> Report {
    let mut spec = LinkSpec::default();
    spec.set_list(link).unwrap();
    let mut scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
    scenario.set_default_length(Some(Period::from_millis(12_000)), Some(Period::from_millis(2_000)));
    adapt(&mut scenario);
    let mut sim = Simulation::with_machines(&scenario, |config, _, _| Bare::new(config, Duration::from_micros(gap_us))).unwrap();
    sim.go().unwrap();
    sim.report()
}

fn messages(scenario: &mut Scenario) {
    scenario.workload = "messages:100/s:500B".parse().unwrap();
    scenario.mode = "btp".parse().unwrap();
    scenario.lifetime = Some(Period::from_millis(100));
}

#[test]
fn a_full_link_without_loss_is_at_its_limit_and_at_the_realised_one() {
    // 1500 B every 120 us are 100 Mbit/s; a stream sent without loss or reordering arrives right.
    let r = run_bare("rate=100mbit,delay=10ms", 120, |_| ());
    assert_eq!(r.failures, Vec::<String>::new());
    assert_eq!(r.bytes_wrong, 0);
    let share = r.share.unwrap();
    // Two bytes of 1472 are the machine's own header.
    assert!((0.998..0.9987).contains(&share), "{share}");
    assert!((0.998..=1.0).contains(&r.share_realised.unwrap()), "{:?}", r.share_realised);
    assert!((r.wire_per_byte[0].unwrap() - 1500.0 / 1470.0).abs() < 1e-3);
    assert_eq!(r.goodput_mbit_by_second.len(), 12);
    assert!(r.queue_ms_p95 < 0.01);
}

#[test]
fn a_lost_piece_of_a_stream_is_seen_as_wrong_bytes_and_fails_the_run() {
    let r = run_bare("rate=100mbit,delay=10ms,loss=0.01%", 120, |_| ());
    assert!(r.bytes_wrong > 0);
    assert!(r.failures.iter().any(|f| f.contains("bytes wrong")), "{:?}", r.failures);
}

#[test]
fn flipped_bits_and_repeated_messages_are_seen() {
    let flipped = run_bare("rate=10mbit,delay=10ms,corrupt=2%", 120, messages);
    assert!(flipped.bytes_wrong > 0);
    let repeated = run_bare("rate=10mbit,delay=10ms,duplicate=2%", 120, messages);
    assert!(repeated.bytes_wrong >= 500, "{}", repeated.bytes_wrong);
}

#[test]
fn residual_loss_and_round_trips_are_those_of_the_link() {
    let r = run_bare("rate=10mbit,delay=10ms,loss=20%", 1, messages);
    assert_eq!(r.messages_due, 1_000);
    let loss = r.residual_loss.unwrap();
    assert!((0.15..0.25).contains(&loss), "{loss}");
    // 530 B of IP at 10 Mbit/s are 424 us, both ways, and 20 ms of delay; 64 % of the echoes come back.
    let rtt = r.message_rtt_ms.unwrap();
    assert!((rtt.mean - 20.848).abs() < 0.02, "{rtt:?}");
    assert!((550..730).contains(&rtt.count), "{rtt:?}");
    assert!((r.message_one_way_ms.unwrap().p50 - 10.424).abs() < 0.1);
}

#[test]
fn a_message_later_than_its_lifetime_is_lost() {
    let late = |lifetime| {
        run_bare("rate=10mbit,delay=50ms", 1, |s| {
            messages(s);
            s.lifetime = Some(Period::from_millis(lifetime));
        })
        .residual_loss
    };
    assert_eq!(late(51), Some(0.0));
    assert_eq!(late(50), Some(1.0));
}

#[test]
fn what_never_arrives_in_brtp_fails_the_run() {
    let r = run_bare("rate=10mbit,delay=10ms,loss=20%", 1, |s| {
        s.workload = "messages:100/s:500B".parse().unwrap();
        s.unordered = true;
    });
    assert!(r.failures.iter().any(|f| f.contains("missing")), "{:?}", r.failures);
    let r = run_bare("rate=10mbit,delay=10ms", 1, |s| s.workload = "transfer:1MB".parse().unwrap());
    assert!(r.failures.iter().any(|f| f.contains("not complete")), "{:?}", r.failures);
}

#[test]
fn overtaking_on_an_ordered_flow_fails_the_run() {
    let overtaken = |unordered| {
        run_bare("rate=100mbit,delay=10ms,reorder=20%:50ms", 1, |s| {
            s.workload = "messages:1000/s:500B".parse().unwrap();
            s.unordered = unordered;
        })
        .failures
        .iter()
        .any(|f| f.contains("out of order"))
    };
    assert!(overtaken(false));
    assert!(!overtaken(true));
}

#[test]
fn pairs_share_the_link_and_are_compared() {
    let r = run_bare("rate=100mbit,delay=10ms", 480, |s| s.pairs = 4);
    assert!(r.share.unwrap() > 0.99, "{:?}", r.share);
    assert!(r.jain.unwrap() > 0.999);
    assert_eq!(r.pairs_mbit.len(), 4);
}

#[test]
fn a_memory_bound_that_does_not_hold_fails_the_run() {
    let spec = LinkSpec::new("10mbit".parse().unwrap(), Duration::from_millis(1));
    let mut scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
    scenario.set_default_length(Some(Period::from_millis(2_000)), Some(Period::from_millis(1_000)));
    let make = |config, _, _| Bare { memory: Memory { used: 0, peak: 3_000, limit: 2_000 }, ..Bare::new(config, Duration::from_millis(2)) };
    let mut sim = Simulation::with_machines(&scenario, make).unwrap();
    sim.go().unwrap();
    assert!(sim.report().failures.iter().any(|f| f.contains("memory")));
}

fn chain(links: &[&str], relays: &str) -> Scenario {
    let hop = |list: &&str| {
        let mut spec = LinkSpec::default();
        spec.set_list(list).unwrap();
        Hop { forward: spec.clone(), reverse: spec }
    };
    let mut scenario = Scenario::new(links.iter().map(hop).collect());
    scenario.set_default_length(Some(Period::from_millis(12_000)), Some(Period::from_millis(2_000)));
    scenario.network.relays = relays.parse().unwrap();
    scenario
}

#[test]
fn routers_pass_on_what_the_links_before_them_delivered() {
    // Plain datagrams over three links that lose 10 % each: what is left of the first link's rate is 0.9^3.
    let mut scenario = chain(&["rate=10mbit,delay=5ms,loss=10%"; 3], "ip");
    messages(&mut scenario);
    let mut sim = Simulation::with_machines(&scenario, |config, _, _| Bare::new(config, Duration::from_micros(1))).unwrap();
    sim.go().unwrap();
    let r = sim.report();
    let loss = r.residual_loss.unwrap();
    assert!((0.22..0.32).contains(&loss), "{loss}");
    let offered: Vec<u64> = r.links.iter().map(|[forward, _]| forward.offered_packets).collect();
    assert_eq!(offered[0] - r.links[0][0].lost, offered[1]);
    assert_eq!(offered[1] - r.links[1][0].lost, offered[2]);
    // 424 us of transmission on each link, and 15 ms of delay.
    assert!((r.message_one_way_ms.unwrap().p50 - 16.272).abs() < 0.2);
    assert_eq!(r.flows[0].links, [1, 2, 3]);
}

#[test]
fn the_narrowest_link_of_a_route_bounds_it_and_every_link_says_what_it_carried_per_byte() {
    let scenario =
        chain(&["rate=100mbit,delay=1ms,queue=none", "rate=50mbit,delay=1ms,queue=none", "rate=80mbit,delay=1ms,queue=none"], "ip");
    let mut sim = Simulation::with_machines(&scenario, |config, _, _| Bare::new(config, Duration::from_micros(240))).unwrap();
    sim.go().unwrap();
    let r = sim.report();
    assert_eq!(r.failures, Vec::<String>::new());
    assert!((0.998..0.9987).contains(&r.share.unwrap()), "{:?}", r.share);
    assert_eq!(r.wire_per_byte.len(), 3);
    assert!(r.wire_per_byte.iter().all(|wire| (wire.unwrap() - 1500.0 / 1470.0).abs() < 1e-3), "{:?}", r.wire_per_byte);
}

#[test]
fn noctule_sends_from_end_to_end_over_routers() {
    let mut scenario = chain(&["rate=20mbit,delay=5ms,loss=2%"; 3], "ip");
    scenario.workload = "transfer:2MB".parse().unwrap();
    let r = run(&scenario).unwrap();
    assert_eq!(r.failures, Vec::<String>::new());
    assert_eq!(r.bytes_delivered, 2_000_000);
}

#[test]
fn relays_make_up_on_each_link_for_what_routers_lose_on_all_of_them() {
    let share = |relays: &str| {
        let mut scenario = chain(&["rate=10mbit,delay=2ms,loss=10%"; 3], relays);
        scenario.set_default_length(Some(Period::from_millis(10_000)), Some(Period::from_millis(4_000)));
        let r = run(&scenario).unwrap();
        assert_eq!(r.failures, Vec::<String>::new());
        assert_eq!(r.relays.len(), if relays == "recode" { 2 } else { 0 }, "{:?}", r.relays);
        assert!(r.relays.iter().all(|relay| relay.rank_in > 0 && relay.rank_out > 0 && relay.recoded_packets > 0), "{:?}", r.relays);
        r.share.unwrap()
    };
    let (recoding, routers) = (share("recode"), share("ip"));
    // Three links that lose 10 % each leave 81 % of what one of them leaves.
    assert!(routers < 0.82, "{routers}");
    assert!(recoding > 0.85, "{recoding}");
}

#[test]
fn flows_of_a_mesh_find_their_ways_over_relays() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/multi-hop-mesh.toml");
    let case = crate::scenario::ScenarioFile::read(&path).unwrap().cases(false).unwrap().remove(0);
    let mut scenario = case.scenario;
    scenario.network.relays = "recode".parse().unwrap();
    let r = run(&scenario).unwrap();
    assert_eq!(r.failures, Vec::<String>::new());
    assert_eq!(r.flows.len(), 3);
    assert!(r.flows.iter().all(|flow| flow.bytes_delivered > 0 && flow.bytes_wrong == 0), "{:?}", r.flows);
    assert!(r.relays.iter().all(|relay| relay.node == "centre"), "{:?}", r.relays);
}

#[test]
fn a_run_says_the_same_twice() {
    let json = || serde_json::to_string(&run_bare("rate=10mbit,delay=10ms,loss=20%,jitter=2ms", 1, messages)).unwrap();
    assert_eq!(json(), json());
}
