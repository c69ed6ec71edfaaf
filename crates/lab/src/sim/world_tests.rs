//! Tests of the engine with hosts that are no protocol at all.

use std::time::Duration;

use super::*;

/// Sends `left` datagrams, one every `gap`, and answers what it hears if told to.
struct Toy {
    peer: SocketAddr,
    left: u32,
    gap: Duration,
    next: Time,
    outbox: Vec<Vec<u8>>,
    echo: bool,
    heard: Vec<(Time, Vec<u8>)>,
    spin: bool,
}

impl Toy {
    fn new(peer: SocketAddr, left: u32, gap: Duration, echo: bool) -> Self {
        Self { peer, left, gap, next: Time::ZERO, outbox: Vec::new(), echo, heard: Vec::new(), spin: false }
    }
}

impl Host for Toy {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, _local: IpAddr, _ecn: Ecn, data: &mut [u8]) {
        assert_eq!(remote, self.peer);
        self.heard.push((now, data.to_vec()));
        if self.echo {
            self.outbox.push(data.to_vec());
        }
    }
    fn handle_timeout(&mut self, _now: Time) {
        if self.left > 0 {
            self.outbox.push(vec![self.left as u8; 972]);
            self.left -= 1;
            self.next += self.gap;
        }
    }
    fn poll_transmit(&mut self, _now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        let first = self.outbox.first()?.len();
        // Everything that waits goes as one train.
        for data in self.outbox.drain(..) {
            buf.extend_from_slice(&data);
        }
        let segment_size = (buf.len() > first).then_some(first);
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size })
    }
    fn poll_timeout(&self) -> Option<Time> {
        if self.spin {
            return Some(Time::ZERO);
        }
        (self.left > 0).then_some(self.next)
    }
    fn pump(&mut self, _now: Time) -> bool {
        false
    }
}

fn addr(i: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, i], 4000))
}

/// Two toys, the second of which echoes.
fn world(list: &str, count: u32, gap: Duration) -> (World<Toy>, HostId, HostId, PipeId) {
    let mut spec = LinkSpec::default();
    spec.set_list(list).unwrap();
    let mut world = World::new(WireOverhead(28));
    let a = world.add_host(addr(1), Toy::new(addr(2), count, gap, false));
    let b = world.add_host(addr(2), Toy::new(addr(1), 0, gap, true));
    let there = world.add_pipe(&spec, 1).unwrap();
    let back = world.add_pipe(&spec, 2).unwrap();
    world.add_route(a, b, there);
    world.add_route(b, a, back);
    world.with_host(a, |_, _| ()).unwrap();
    world.with_host(b, |_, _| ()).unwrap();
    (world, a, b, there)
}

#[test]
fn an_echo_takes_two_crossings() {
    // 1000 B at 8 Mbit/s: 1 ms; 10 ms delay.
    let (mut world, a, b, _) = world("rate=8mbit,delay=10ms", 3, Duration::from_millis(5));
    world.run_until(Time::from_millis(100)).unwrap();
    let heard: Vec<u64> = world.host(b).heard.iter().map(|(at, _)| at.as_nanos() / 1_000).collect();
    assert_eq!(heard, [11_000, 16_000, 21_000]);
    let heard: Vec<u64> = world.host(a).heard.iter().map(|(at, _)| at.as_nanos() / 1_000).collect();
    assert_eq!(heard, [22_000, 27_000, 32_000]);
    assert_eq!(world.now(), Time::from_millis(100));
}

#[test]
fn trains_are_cut_into_datagrams() {
    let (mut world, _, b, there) = world("rate=8mbit", 4, Duration::ZERO);
    world.run_until(Time::from_millis(50)).unwrap();
    assert_eq!(world.pipe_stats(there).offered_packets, 4);
    assert!(world.host(b).heard.iter().all(|(_, data)| data.len() == 972));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let (mut world, a, _, there) = world("rate=8mbit,delay=10ms,loss=20%,jitter=3ms,corrupt=5%", 500, Duration::from_millis(1));
        world.run_until(Time::from_millis(2_000)).unwrap();
        (world.host(a).heard.clone(), world.pipe_stats(there).lost)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_host_that_asks_for_the_past_without_end_stops_the_run() {
    let (mut world, a, _, _) = world("rate=8mbit", 0, Duration::ZERO);
    world.with_host(a, |toy, _| toy.spin = true).unwrap();
    let error = world.run_until(Time::from_millis(1)).unwrap_err();
    assert!(matches!(error, WorldError::Spinning { host: 0, .. }), "{error}");
}

#[test]
fn what_is_sent_to_an_address_that_nobody_has_is_counted() {
    let (mut world, _, b, _) = world("rate=8mbit", 2, Duration::from_millis(1));
    world.rebind(b, addr(9));
    world.run_until(Time::from_millis(10)).unwrap();
    assert_eq!(world.unroutable(), 2);
    assert!(world.host(b).heard.is_empty());
}

#[test]
fn buffers_are_used_again() {
    let (mut world, _, _, _) = world("rate=8mbit,delay=1ms", 1_000, Duration::from_millis(2));
    world.run_until(Time::from_millis(3_000)).unwrap();
    assert!(world.pool.len() < 10, "{} buffers for one packet at a time", world.pool.len());
    assert_eq!(world.packets(), 2_000);
}
