//! Two nodes with a session, whose neighbours send each other any frames with the right keys while their applications work. Nothing panics, memory
//! and work keep within bounds, and the nodes come to rest.

use super::Input;
use super::any_frame;
use super::pair::{A, B, Conditions, Pair};
use noctule_proto::NodeConfig;
use noctule_proto::event::Event;
use noctule_proto::ids::FlowId;
use noctule_proto::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use noctule_proto::units::Duration;
use noctule_proto::work::Work;

/// Steps of one run: few, so that a million runs are a matter of hours, and an input of a hundred bytes is used up.
const STEPS: usize = 32;
/// Longest pause of a step.
const PAUSE: u8 = 64;
/// Work of one run, both nodes and their applications together: four seconds in which each may send some hundred packets.
const DEAREST: Work = Work { dh: 64, hash: 2000, aead: 20_000, steps: 20_000 };

fn options(choice: u8) -> FlowOptions {
    let kind = [FlowKind::Stream, FlowKind::OrderedMessages, FlowKind::UnorderedMessages][usize::from(choice % 3)];
    let mode = match (choice / 3 % 4, kind) {
        (3, FlowKind::UnorderedMessages) => Mode::Transparent,
        (2, FlowKind::OrderedMessages | FlowKind::UnorderedMessages) => Mode::Btp,
        _ => Mode::Brtp,
    };
    let lifetime = (mode != Mode::Brtp).then_some(Duration::from_millis(50));
    FlowOptions { mode, kind, lifetime, bidirectional: choice & 128 != 0, ..FlowOptions::default() }
}

/// Reads everything that can be read.
fn read(p: &mut Pair, node: usize, flows: &mut Vec<FlowId>) {
    while let Some((flow, _)) = p.incoming_flow(node) {
        flows.push(flow);
    }
    for flow in flows.iter() {
        for _ in 0..100 {
            match p.nodes[node].read(p.now, *flow, 4096) {
                Ok(Some(bytes)) if !bytes.is_empty() => {}
                _ => break,
            }
        }
        while let Ok(Some(_)) = p.nodes[node].recv_message(p.now, *flow) {}
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let config = NodeConfig {
        node_memory: 2 << 20,
        flow_memory: 256 << 10,
        max_message: 64 << 10,
        max_sessions: 4,
        max_flows: 8,
        rekey_packets: 200,
        epoch_packets: 1024,
        ..NodeConfig::default()
    };
    let mut p = Pair::new([config.clone(), config], Conditions { delay: Duration::from_millis(2), ..Conditions::default() }, 1);
    let (link, session) = p.connect();
    let mut links = [link; 2];
    let is_up = p.run_until(Duration::from_millis(50), |p| p.events[B].iter().any(|e| matches!(e, Event::SessionIncoming { .. })));
    assert!(is_up, "an honest session comes up");
    let (their_link, theirs) = p.events[B]
        .iter()
        .find_map(|e| match e {
            Event::SessionIncoming { link, session, .. } => Some((*link, *session)),
            _ => None,
        })
        .expect("just seen");
    links[B] = their_link;
    let sessions = [session, theirs];
    let names: Vec<_> = p.nodes[A].session_key(session).into_iter().collect();
    let mut out: [Vec<FlowId>; 2] = Default::default();
    let mut incoming: [Vec<FlowId>; 2] = Default::default();
    let before = Work::done();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let choice = input.u8();
        let node = usize::from(choice & 1);
        let now = p.now;
        match choice >> 1 & 7 {
            0 | 1 => {
                let mut frames = Vec::new();
                for _ in 0..=input.u8() % 8 {
                    any_frame::emit(&mut input, &names, &[], &mut frames);
                }
                p.nodes[node].inject(now, links[node], frames);
            }
            2 => p.nodes[node].inject(now, links[node], input.bytes().to_vec()),
            3 => {
                p.run_until(Duration::from_micros(100) * u32::from(input.u8()), |_| false);
            }
            4 => {
                if let Ok(flow) = p.nodes[node].open_flow(now, sessions[node], options(input.u8())) {
                    out[node].push(flow);
                }
            }
            5 => {
                let what = input.u8();
                if let Some(flow) = out[node].get(usize::from(what & 7)).copied() {
                    let content = vec![what; usize::from(input.u16() % 4096)];
                    let _ = match what >> 3 & 7 {
                        0..=2 => p.nodes[node].write(now, flow, &content).map(drop),
                        3..=5 => p.nodes[node].send_message(now, flow, content.into(), MessageOptions::default()).map(drop),
                        6 => p.nodes[node].finish(now, flow),
                        _ => p.nodes[node].reset(now, flow, 7),
                    };
                }
            }
            6 => read(&mut p, node, &mut incoming[node]),
            _ => {
                p.run_until(Duration::from_millis(2) * u32::from(input.u8() % PAUSE), |_| false);
                if choice & 128 != 0 {
                    let _ = p.nodes[node].close_session(p.now, sessions[node], 1, "enough", Duration::from_millis(100));
                }
            }
        }
        for node in &p.nodes {
            let memory = node.memory();
            assert!(memory.peak <= memory.limit, "{memory:?}");
        }
    }
    for node in [A, B] {
        read(&mut p, node, &mut incoming[node]);
    }
    p.run_until(Duration::from_millis(30), |_| false);
    let work = Work::done() - before;
    assert!(work.is_within(&DEAREST), "{work:?}");
}
