//! A session over a relay whose neighbours, or which itself, send any frames with the right keys. Nothing panics, memory and work keep within bounds, and
//! what the destination reads of the honest stream is what was sent.

use super::Input;
use super::any_frame;
use super::mesh::{Mesh, ip};
use super::pair::Conditions;
use noctule_proto::event::Event;
use noctule_proto::ids::LinkId;
use noctule_proto::units::Duration;
use noctule_proto::work::Work;

/// Steps of one run: few, so that a million runs are a matter of hours.
const STEPS: usize = 24;
/// Longest pause of a step.
const PAUSE: u8 = 64;
/// Work of one run, of the three nodes together: three seconds, and at most 200 kB of the stream.
const DEAREST: Work = Work { dh: 200, hash: 4000, aead: 40_000, steps: 40_000 };

/// A node's link that leads to another.
fn link(m: &Mesh, node: usize, to: usize) -> LinkId {
    m.nodes[node].next_hop(ip(to), &[]).expect("an honest chain has routes")
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let conditions = Conditions { delay: Duration::from_millis(2), ..Conditions::default() };
    let mut m = Mesh::chain(&[conditions.clone(), conditions], 3);
    let session = m.open(0, 2);
    let mut stream = m.stream(0, session);
    let mut size = 3000;
    m.run_until(Duration::from_millis(50), |m| {
        stream.write(m, size);
        m.events[2].iter().any(|e| matches!(e, Event::SessionIncoming { .. }))
    });
    let links = [link(&m, 0, 2), link(&m, 1, 0), link(&m, 1, 2), link(&m, 2, 0)];
    let names: Vec<_> = m.nodes[0].session_key(session).into_iter().collect();
    let nodes: Vec<_> = (0..4).map(ip).collect();
    let before = Work::done();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let choice = input.u8();
        let (now, at) = (m.now, usize::from(choice & 3));
        let node = [0, 1, 1, 2][at];
        match choice >> 2 & 7 {
            0..=2 => {
                let mut frames = Vec::new();
                for _ in 0..=input.u8() % 6 {
                    any_frame::emit(&mut input, &names, &nodes, &mut frames);
                }
                m.nodes[node].inject(now, links[at], frames);
            }
            3 => m.nodes[node].inject(now, links[at], input.bytes().to_vec()),
            4 => {
                size += u64::from(input.u16() % 8192);
                stream.write(&mut m, size);
            }
            5 => stream.read(&mut m, 2),
            6 => m.run(Duration::from_micros(200) * u32::from(input.u8())),
            _ => m.run(Duration::from_millis(2) * u32::from(input.u8() % PAUSE)),
        }
        assert!(stream.is_right, "what arrived is what was sent");
        for node in &m.nodes {
            let memory = node.memory();
            assert!(memory.peak <= memory.limit, "{memory:?}");
        }
    }
    m.run(Duration::from_millis(30));
    stream.read(&mut m, 2);
    assert!(stream.is_right, "what arrived is what was sent");
    let work = Work::done() - before;
    assert!(work.is_within(&DEAREST), "{work:?}");
}
