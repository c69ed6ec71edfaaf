//! What strangers and eavesdroppers can do to streams that pass a relay: hosts that send datagrams without any key, some with a stream's name.

use super::*;
use crate::crypto::SecretKey;
use crate::units::{Bandwidth, Duration, Probability, Time};
use std::net::{IpAddr, Ipv4Addr};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const NAME: StreamName = StreamName(*b"live");
const START: Time = Time::from_millis(1000);
const MS: Duration = Duration::from_millis(1);

fn shape() -> Shape {
    Shape::new(64, 16, 4, 1200).unwrap()
}

fn source() -> Source {
    let plan = Plan::new(&shape(), &[Probability::new(0.1)]).unwrap();
    let config = SourceConfig { stream: NAME, shape: shape(), plan, key: [5; 32], rate: Bandwidth::from_mbit(4.0), patience: None };
    Source::new(config, [1; 32]).unwrap()
}

fn relay() -> Relay {
    Relay::new(RelayConfig::new(Bandwidth::from_mbit(5.0), Probability::new(0.1)), [2; 32])
}

/// A datagram that any host can write: a symbol of so many bytes.
fn invent(stream: StreamName, (batch_size, depth): (u8, u8), (block, batch): (u32, u16), index: u8, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let symbol = vec![1; len];
    Packet { stream, batch_size, depth, block, batch, coefficients: Coefficients::Index(index), symbol: &symbol }.emit(&mut out);
    out
}

/// Messages that arrive over a relay in so long, of how many, while `lie` gives the relay what it wants, once a millisecond.
fn stream_for(seconds: u64, lie: impl FnMut(u64, &[u8]) -> Vec<(IpAddr, Vec<u8>)>) -> (u64, u64, RelayStats) {
    stream_by(relay(), seconds, lie)
}

/// The same by a relay that has been told something before.
fn stream_by(mut relay: Relay, seconds: u64, mut lie: impl FnMut(u64, &[u8]) -> Vec<(IpAddr, Vec<u8>)>) -> (u64, u64, RelayStats) {
    let (mut source, mut sink) = (source(), Sink::new(NAME, shape(), &[5; 32]).unwrap());
    let (mut messages, mut pushed, mut out, mut last) = (0, 0, Vec::new(), Vec::new());
    for ms in 0..seconds * 1000 {
        let now = START + MS * ms as u32;
        while source.room() > 0 && source.push(vec![7; 1000]).is_ok() {
            pushed += 1;
        }
        while source.poll_transmit(now, &mut out) {
            relay.handle_datagram(now, HOME, &out);
            last.clone_from(&out);
        }
        for (from, datagram) in lie(ms, &last) {
            relay.handle_datagram(now, from, &datagram);
        }
        relay.handle_timeout(now);
        while relay.poll_transmit(now, &mut out) {
            sink.handle_datagram(&out);
        }
        while sink.poll_message().is_some() {
            messages += 1;
        }
    }
    (messages, pushed, relay.stats())
}

/// f18: a datagram with the stream's name and the last block there can be.
#[test]
fn one_forged_datagram_neither_moves_a_stream_nor_stops_it() {
    let (honest, ..) = stream_for(6, |_, _| Vec::new());
    let far = invent(NAME, (16, 4), (u32::MAX, u16::MAX), 0, 1);
    let near = |last: &[u8]| {
        let packet = Packet::parse(last).unwrap();
        invent(NAME, (16, 4), (packet.block, packet.batch + 4), 0, 1)
    };
    let recut = invent(NAME, (8, 2), (7, 0), 0, 1);
    for from in [HOME, STRANGER] {
        for (what, lie) in [("far", &far), ("another cut", &recut)] {
            let (forged, _, stats) = stream_for(6, |ms, _| if ms == 2000 { vec![(from, lie.clone())] } else { Vec::new() });
            assert!(forged + 8 >= honest, "{what} from {from}: {forged} of {honest} {stats:?}");
        }
        let (forged, _, stats) = stream_for(6, |ms, last| if ms == 2000 { vec![(from, near(last))] } else { Vec::new() });
        assert!(forged + 64 >= honest, "near from {from}: {forged} of {honest} {stats:?}");
    }
    // A quarter as many as the source sends, of groups that wander, from another address: nothing. With the source's own address they end groups early.
    let wandering = |from: IpAddr| {
        move |ms: u64, last: &[u8]| {
            let block = Packet::parse(last).map_or(0, |p| p.block);
            if ms.is_multiple_of(8) {
                vec![(from, invent(NAME, (16, 4), (block + 5 + ms as u32 % 13, 0), ms as u8 % 16, 1))]
            } else {
                Vec::new()
            }
        }
    };
    let (forged, _, stats) = stream_for(6, wandering(STRANGER));
    assert!(forged == honest, "{forged} of {honest} {stats:?}");
    let (forged, _, stats) = stream_for(6, wandering(HOME));
    assert!(forged * 10 >= honest * 8, "{forged} of {honest} {stats:?}");
}

/// Three datagrams of 14 bytes with the source's own address, 25 times a second.
#[test]
fn three_small_datagrams_do_not_carry_a_stream_off() {
    let (honest, ..) = stream_for(6, |_, _| Vec::new());
    let three = |ms: u64, last: &[u8]| {
        let block = Packet::parse(last).map_or(0, |p| p.block);
        let lie = |n: u8| (HOME, invent(NAME, (16, 4), (block + 1000 + ms as u32, 0), n, 1));
        if ms.is_multiple_of(40) { (0..3).map(lie).collect() } else { Vec::new() }
    };
    let (forged, _, stats) = stream_for(6, three);
    assert!(forged * 100 >= honest * 98, "{forged} of {honest} {stats:?}");
}

/// Sixteen invented addresses have a stream each, and keep it with ten small datagrams a second; or begin new ones without end.
#[test]
fn addresses_that_are_invented_do_not_keep_a_source_out() {
    let from = |n: u64| IpAddr::from((0x0a00_0000 + n as u32).to_be_bytes());
    for is_fresh in [false, true] {
        let (honest, ..) = stream_for(6, |_, _| Vec::new());
        let lies = |ms: u64, _: &[u8]| {
            let n = if is_fresh { 100 + ms } else { ms / 6 % 16 };
            let name = StreamName((n as u32).to_be_bytes());
            let at = ((ms / 2000) as u32, (ms / 500 % 4) as u16);
            if is_fresh || ms.is_multiple_of(6) { vec![(from(n), invent(name, (16, 4), at, (ms % 16) as u8, 1))] } else { Vec::new() }
        };
        let mut relay = relay();
        (0..96).for_each(|ms| lies(ms, &[]).into_iter().for_each(|(from, lie)| relay.handle_datagram(START, from, &lie)));
        assert!(is_fresh || relay.streams() == 16, "all places are taken before the source begins");
        let (got, _, stats) = stream_by(relay, 6, lies);
        assert!(got * 10 >= honest * 9, "{got} of {honest}, fresh {is_fresh}: {stats:?}");
    }
}

#[test]
fn a_stream_recovers_from_a_host_that_has_moved_it_with_many_packets() {
    // A hundred at once with the source's own address move it far ahead: what comes then lies behind, and prevails.
    let (honest, ..) = stream_for(6, |_, _| Vec::new());
    let burst = |ms: u64, _: &[u8]| {
        let lie = |n: u8| (HOME, invent(NAME, (16, 4), (u32::MAX, u16::from(n % 4)), n / 4, 1));
        if ms == 2000 { (0..64).map(lie).collect() } else { Vec::new() }
    };
    let (forged, _, stats) = stream_for(6, burst);
    assert!(forged + 160 >= honest, "{forged} of {honest} {stats:?}");
    // A host elsewhere that is first with the name is outnumbered as well.
    let first = |ms: u64, _: &[u8]| if ms == 0 { vec![(STRANGER, invent(NAME, (16, 4), (0, 0), 0, 1))] } else { Vec::new() };
    let (forged, _, stats) = stream_for(6, first);
    assert!(forged + 160 >= honest, "{forged} of {honest} {stats:?}");
}

#[test]
fn late_packets_do_not_keep_a_stream() {
    let mut relay = relay();
    let mut now = START;
    for index in 0..8 {
        relay.handle_datagram(now, STRANGER, &invent(NAME, (16, 1), (9, 0), index, 100));
    }
    assert!(relay.memory() > 0);
    let mut out = Vec::new();
    for n in 0..20u32 {
        now += MS * 400;
        relay.handle_timeout(now);
        while relay.poll_transmit(now, &mut out) {}
        relay.handle_datagram(now, STRANGER, &invent(NAME, (16, 1), (n % 7, 0), 0, 1));
    }
    // After five seconds there was room for a stream that began anew, with the packet that was late before.
    assert!(relay.memory() < 8 * 100, "{}", relay.memory());
}

/// f19: rows of 8 KB in groups of 1024 packets, of as many streams as there may be.
#[test]
fn strangers_fill_no_more_than_the_memory_that_a_relay_is_given() {
    const MEMORY: usize = 2 << 20;
    let rate = Bandwidth::from_mbit(1000.0);
    let config = |symbol| RelayConfig { symbol, memory: MEMORY, ..RelayConfig::new(rate, Probability::new(0.1)) };
    for (symbol, passes) in [(RelayConfig::SYMBOL, false), (8192, true)] {
        let mut relay = Relay::new(config(symbol), [2; 32]);
        let (mut now, mut most, mut out) = (START, 0, Vec::new());
        for stream in 0..20u32 {
            let host = IpAddr::from((0x0a00_0000 + stream % 5).to_be_bytes());
            for (group, batch, index) in (0..2).flat_map(|g| (0..16).flat_map(move |b| (0..64).map(move |i| (g, b, i)))) {
                now += Duration::from_micros(5);
                relay.handle_datagram(now, host, &invent(StreamName(stream.to_be_bytes()), (64, 16), (1 + group, batch), index, 8192));
                most = most.max(relay.memory());
                if index % 16 == 0 {
                    relay.poll_transmit(now, &mut out);
                }
            }
        }
        assert!(most <= MEMORY, "{most}");
        assert_eq!(relay.stats().passed > 0, passes, "{:?}", relay.stats());
        assert!(!passes || relay.stats().dropped > 0, "{:?}", relay.stats());
    }
}

#[test]
fn a_host_with_many_streams_leaves_places_and_its_part_of_the_queue_to_others() {
    let mut relay = relay();
    let mut out = Vec::new();
    // A stranger has all places, and sends ten times as much as the link carries.
    let flood = |relay: &mut Relay, now: Time, n: u64| {
        let (stream, n) = ((n % 16) as u32, n / 16);
        let at = ((n / 64) as u32, (n % 64 / 16) as u16);
        relay.handle_datagram(now, STRANGER, &invent(StreamName(stream.to_be_bytes()), (16, 4), at, (n % 16) as u8, 1000));
    };
    let (mut source, mut sink, mut sent, mut lies) = (source(), Sink::new(NAME, shape(), &[5; 32]).unwrap(), 0u64, 0);
    for ms in 0..4000u32 {
        let now = START + MS * ms;
        for _ in 0..6 {
            flood(&mut relay, now, lies);
            lies += 1;
        }
        // 1 Mbit/s and what is sent beside, of 5: less than half of the link's rate.
        while ms > 100 && ms < 3000 && source.room() > 0 && sent < u64::from(ms) / 8 && source.push(vec![7; 1000]).is_ok() {
            sent += 1;
        }
        while source.poll_transmit(now, &mut out) {
            relay.handle_datagram(now, HOME, &out);
        }
        relay.handle_timeout(now);
        while relay.poll_transmit(now, &mut out) {
            sink.handle_datagram(&out);
        }
    }
    assert!(sink.stats().messages * 10 >= sent * 9, "{} of {sent}: {:?} {:?}", sink.stats().messages, relay.stats(), sink.stats());
}

fn announce(receiver: u8, seed: u8) -> Vec<u8> {
    let said = Announcement { stamp: 9, stream: NAME, key: [5; 32], shape: shape(), block: 0, messages: 0 };
    said.seal(&SecretKey::from_bytes([1; 32]), &SecretKey::from_bytes([receiver; 32]).public(), None, [seed; 32]).unwrap()
}

#[test]
fn a_relay_that_knows_its_destinations_passes_nothing_for_others() {
    let destinations = vec![SecretKey::from_bytes([2; 32]).public(), SecretKey::from_bytes([3; 32]).public()];
    let config = RelayConfig { destinations, ..RelayConfig::new(Bandwidth::from_mbit(5.0), Probability::new(0.1)) };
    let mut relay = Relay::new(config, [2; 32]);
    let packet = |index| invent(NAME, (16, 4), (0, 0), index, 100);
    relay.handle_datagram(START, STRANGER, &announce(4, 1));
    relay.handle_datagram(START, STRANGER, &packet(0));
    let mut altered = announce(3, 1);
    altered[6] ^= 1;
    relay.handle_datagram(START, STRANGER, &altered);
    assert_eq!((relay.stats().refused, relay.memory()), (3, 0), "{:?}", relay.stats());
    relay.handle_datagram(START, HOME, &announce(3, 1));
    relay.handle_datagram(START, HOME, &packet(0));
    relay.handle_datagram(START, STRANGER, &packet(1));
    assert_eq!((relay.stats().announcements, relay.stats().passed, relay.stats().refused), (1, 1, 4), "{:?}", relay.stats());
    // Half a minute after its last announcement a host begins nothing new.
    let later = START + Duration::from_secs(31);
    relay.handle_datagram(later, HOME, &packet(0));
    assert_eq!((relay.stats().passed, relay.stats().refused), (1, 5), "{:?}", relay.stats());
}
