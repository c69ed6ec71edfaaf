//! Datagrams per second of the engine with hosts that do nothing: `cargo run --release -p noctule-lab --example engine_speed`.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use noctule_lab::link::{Ecn, LinkSpec, Time};
use noctule_lab::sim::{Host, WireOverhead, World};
use noctule_proto::node::Transmit;

/// Sends a datagram every `gap`, and one back for every second one that it hears.
struct Idle {
    peer: SocketAddr,
    gap: Option<Duration>,
    next: Time,
    due: u32,
    heard: u64,
}

impl Host for Idle {
    fn handle_datagram(&mut self, _: Time, _: SocketAddr, _: IpAddr, _: Ecn, _: &mut [u8]) {
        self.heard += 1;
        if self.gap.is_none() && self.heard.is_multiple_of(2) {
            self.due += 1;
        }
    }
    fn handle_timeout(&mut self, _: Time) {
        if let Some(gap) = self.gap {
            self.due += 1;
            self.next += gap;
        }
    }
    fn poll_transmit(&mut self, _: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.due = self.due.checked_sub(1)?;
        buf.clear();
        buf.resize(if self.gap.is_some() { 1472 } else { 60 }, 0);
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::Ect0, len: buf.len(), segment_size: None })
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.gap.map(|_| self.next)
    }
    fn pump(&mut self, _: Time) -> bool {
        false
    }
}

fn main() {
    let mut spec = LinkSpec::default();
    spec.set_list("rate=1gbit,delay=50ms,loss=10%").expect("a valid list");
    let addr = |i: u8| SocketAddr::from(([10, 0, 0, i], 4000));
    let mut world = World::new(WireOverhead(28));
    let host = |peer, gap| Idle { peer, gap, next: Time::ZERO, due: 0, heard: 0 };
    let a = world.add_host(addr(1), host(addr(2), Some(Duration::from_micros(12))));
    let b = world.add_host(addr(2), host(addr(1), None));
    let there = world.add_pipe(&spec, 1).expect("a valid link");
    let back = world.add_pipe(&spec, 2).expect("a valid link");
    world.add_route(a, b, there);
    world.add_route(b, a, back);
    world.with_host(a, |_, _| ()).expect("a host that does not spin");
    let begun = Instant::now();
    world.run_until(Time::from_millis(20_000)).expect("a run that goes on");
    let rate = world.packets() as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.2} M datagrams/s, {} in 20 s of virtual time", world.packets());
}
