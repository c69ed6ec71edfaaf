//! Blind streams over links in virtual time that lose, and through relays that recode or lie.

use super::*;
use crate::switch::{Mechanism, without};
use crate::units::{Bandwidth, Duration, Probability, Time};
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
const STREAM: StreamName = StreamName(*b"test");
const KEY: [u8; 32] = [9; 32];
const LEN: usize = 1000;

fn message(number: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at * 77) >> 13) as u8).collect()
}

/// What each link does to its n-th packet: true if it loses it.
type Loss = Box<dyn FnMut() -> bool>;

fn independent(p: f64, seed: u64) -> Loss {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    Box::new(move || (rng.next_u32() as f64) < p * f64::from(u32::MAX))
}

/// Runs of `length` lost packets, a share `p` of all.
fn bursts(p: f64, length: u32, seed: u64) -> Loss {
    let (mut rng, mut left) = (ChaCha12Rng::seed_from_u64(seed), 0);
    let begin = p / (1.0 - p) / f64::from(length);
    Box::new(move || {
        if left == 0 && (rng.next_u32() as f64) < begin * f64::from(u32::MAX) {
            left = length;
        }
        left = u32::saturating_sub(left, 1);
        left > 0
    })
}

/// Changes a datagram; given how many the source has sent.
type Tamper = fn(&mut Vec<u8>, u64);

struct Story {
    shape: Shape,
    plan: Plan,
    losses: Vec<Loss>,
    /// Stated to the relays.
    stated: f64,
    blocks: u64,
    /// What a relay does to a datagram that it sends: by number of the relay.
    lie: Option<(usize, Tamper)>,
}

struct End {
    sink: SinkStats,
    right: u64,
    sent: u64,
    relays: Vec<RelayStats>,
    memory: usize,
    queueing_delay: Duration,
}

/// Time goes in steps of one packet of the links' rate.
fn run(mut story: Story) -> End {
    let rate = Bandwidth::from_mbit(10.0);
    let config = SourceConfig { stream: STREAM, shape: story.shape, plan: story.plan, key: KEY, rate, patience: None };
    let mut source = Source::new(config, [1; 32]).unwrap();
    let hops = story.losses.len();
    let relay = |i| Relay::new(RelayConfig::new(rate, Probability::new(story.stated)), [2 + i as u8; 32]);
    let mut relays: Vec<Relay> = (1..hops).map(relay).collect();
    let mut sink = Sink::new(STREAM, story.shape, &KEY).unwrap();
    let wanted = story.blocks * story.shape.block_packets() as u64;
    let (mut now, mut out, mut pushed, mut sent) = (Time::from_millis(1), Vec::new(), 0, 0);
    let mut seen = BTreeSet::new();
    let (mut memory, mut queueing_delay, mut idle) = (0, Duration::ZERO, 0);
    while idle < 3000 {
        now += Duration::from_micros(20);
        idle += 1;
        while pushed < wanted && source.room() > 0 {
            assert_eq!(source.push(message(pushed)), Ok(pushed));
            pushed += 1;
        }
        if pushed == wanted {
            source.finish();
        }
        for hop in 0..hops {
            loop {
                let is_sent = if hop == 0 {
                    source.poll_transmit(now, &mut out)
                } else {
                    let relay = &mut relays[hop - 1];
                    if relay.poll_timeout().is_some_and(|at| at <= now) {
                        relay.handle_timeout(now);
                    }
                    relay.poll_transmit(now, &mut out)
                };
                if !is_sent {
                    break;
                }
                idle = 0;
                sent += u64::from(hop == 0);
                if let Some((_, lie)) = story.lie.as_ref().filter(|(at, _)| *at == hop) {
                    lie(&mut out, sent);
                }
                if (story.losses[hop])() {
                    continue;
                }
                match relays.get_mut(hop) {
                    Some(relay) => {
                        relay.handle_datagram(now, HOME, &out);
                        memory = memory.max(relay.memory());
                        queueing_delay = queueing_delay.max(relay.queueing_delay());
                    }
                    None => {
                        sink.handle_datagram(&out);
                    }
                }
            }
        }
        while let Some((number, data)) = sink.poll_message() {
            assert_eq!(data, message(number), "not one byte wrong");
            assert!(seen.insert(number), "each once");
        }
    }
    assert!(source.is_done());
    let right = seen.len() as u64;
    End { sink: sink.stats(), right, sent, relays: relays.iter().map(Relay::stats).collect(), memory, queueing_delay }
}

fn six_hops(loss: f64, depth: u8, seed: u64) -> Story {
    let shape = Shape::new(512, 16, depth, (LEN + 26) as u16).unwrap();
    Story {
        shape,
        plan: Plan::new(&shape, &[Probability::new(loss); 6]).unwrap(),
        losses: (0..6).map(|hop| independent(loss, 100 * seed + hop)).collect(),
        stated: loss,
        blocks: 6,
        lie: None,
    }
}

#[test]
fn without_one_word_back_everything_arrives_over_six_links_that_lose_a_fifth() {
    let mut blocks = 0;
    for seed in 1..4 {
        let end = run(six_hops(0.2, 1, seed));
        blocks += end.sink.blocks;
        assert!(end.right >= 5 * 512, "{:?} {:?}", end.sink, end.relays);
        // 0.70 of the rate is the code's limit; a block of 512 packets in batches of 16 leaves a tenth of that for chance.
        assert!((end.sent as f64) < 3072.0 / 0.60, "{} datagrams", end.sent);
        assert!(end.relays.iter().all(|r| r.recoded > 0 && r.dropped == 0), "{:?}", end.relays);
        assert!(end.queueing_delay < Duration::from_millis(50), "{:?} stood in a relay", end.queueing_delay);
        assert!(end.memory < 128 << 10, "{} bytes in a relay", end.memory);
    }
    // Blocks as small as these are planned to fall short once in 2000 times; at the beginning a relay does not know what comes yet.
    assert!(blocks >= 16, "{blocks} of 18");
}

#[test]
fn relays_that_forward_only_do_not_bring_a_block_through() {
    let end = without(Mechanism::BlindRecoding, || run(six_hops(0.2, 1, 1)));
    assert_eq!(end.sink.blocks, 0, "{:?}", end.sink);
    assert!(end.right < 6 * 512 / 2, "{}", end.right);
}

#[test]
fn where_nothing_is_lost_nothing_is_added() {
    let end = run(six_hops(0.0, 1, 1));
    assert_eq!((end.right, end.sent), (6 * 512, 6 * 512));
    assert!(end.relays.iter().all(|r| r.passed == 6 * 512), "{:?}", end.relays);
}

#[test]
fn batches_that_take_turns_outlive_bursts_that_take_whole_batches_otherwise() {
    let story = |depth| {
        let mut story = six_hops(0.1, depth, 1);
        story.losses = (0..6).map(|hop| bursts(0.1, 12, hop)).collect();
        run(story)
    };
    let (turns, none) = (story(16), story(1));
    assert!(turns.sink.blocks > none.sink.blocks && turns.right > none.right, "{:?} and {:?}", turns.sink, none.sink);
}

#[test]
fn what_a_relay_alters_is_thrown_away_before_it_is_used() {
    let lying = || {
        let mut story = six_hops(0.05, 1, 1);
        // Every 40th packet of the relay before the last: a loss of a fortieth more, for which there is room.
        story.plan = Plan::new(&story.shape, &[Probability::new(0.08); 6]).unwrap();
        story.lie = Some((5, |datagram, sent| {
            if sent % 40 == 0
                && let Some(byte) = datagram.last_mut()
            {
                *byte ^= 0x40;
            }
        }));
        story
    };
    let end = run(lying());
    assert!(end.sink.polluted > 20, "{:?}", end.sink);
    assert_eq!(end.right, 6 * 512, "what it spoils counts as lost");
    let end = without(Mechanism::PollutionCheck, || run(lying()));
    assert!(end.right < 6 * 512, "one wrong combination spoils a block: {:?}", end.sink);
}

/// Seconds in which a source on a host that turns to it every five milliseconds sends 1500 messages; and how much left in its fastest turn.
fn seconds_on_a_busy_host() -> (f64, usize) {
    let shape = Shape::new(512, 16, 1, (LEN + 26) as u16).unwrap();
    let plan = Plan::new(&shape, &[Probability::ZERO]).unwrap();
    let rate = Bandwidth::from_mbit(50.0);
    let mut source = Source::new(SourceConfig { stream: STREAM, shape, plan, key: KEY, rate, patience: None }, [1; 32]).unwrap();
    let (begin, mut out, mut pushed, mut most) = (Time::from_millis(100), Vec::new(), 0, 0);
    let mut now = begin;
    while source.stats().datagrams < 1500 {
        while pushed < 1500 && source.room() > 0 {
            source.push(message(pushed)).unwrap();
            pushed += 1;
        }
        let mut turn = 0;
        while source.poll_transmit(now, &mut out) {
            turn += out.len() + 28;
        }
        most = most.max(turn);
        now += Duration::from_millis(5);
    }
    (now.since(begin).as_secs_f64(), most)
}

#[test]
fn a_busy_host_keeps_the_rate_and_no_more() {
    // 1500 packets of 1067 bytes with headers take 256 ms at 50 Mbit/s.
    let (seconds, most) = seconds_on_a_busy_host();
    assert!((0.25..0.29).contains(&seconds) && most <= 34_000, "{seconds} {most}");
    let (without, _) = without(Mechanism::LateHosts, seconds_on_a_busy_host);
    assert!(without > 2.0, "{without}");
}

#[test]
fn relays_in_a_circle_pass_nothing_twice() {
    let mut story = six_hops(0.1, 4, 1);
    let rate = Bandwidth::from_mbit(10.0);
    let config = SourceConfig { stream: STREAM, shape: story.shape, plan: story.plan, key: KEY, rate, patience: None };
    let mut source = Source::new(config, [1; 32]).unwrap();
    let relay = |seed| Relay::new(RelayConfig::new(Bandwidth::from_mbit(20.0), Probability::new(0.1)), [seed; 32]);
    let (mut one, mut other) = (relay(2), relay(3));
    let (mut now, mut out, mut given, mut idle) = (Time::from_millis(1), Vec::new(), 0u64, 0);
    while idle < 3000 {
        now += Duration::from_micros(20);
        idle += 1;
        while given < 1024 && source.room() > 0 {
            source.push(message(given)).unwrap();
            given += 1;
        }
        while source.poll_transmit(now, &mut out) {
            idle = 0;
            if !(story.losses[0])() {
                one.handle_datagram(now, HOME, &out);
            }
        }
        one.handle_timeout(now);
        other.handle_timeout(now);
        while one.poll_transmit(now, &mut out) {
            idle = 0;
            other.handle_datagram(now, FIRST, &out);
        }
        while other.poll_transmit(now, &mut out) {
            idle = 0;
            one.handle_datagram(now, SECOND, &out);
        }
    }
    // All that the one passed came from the source, and what the other sent back told it nothing.
    let (a, b) = (one.stats(), other.stats());
    assert!(a.passed <= source.stats().datagrams && b.passed + b.recoded <= a.refused, "{a:?} {b:?}");
    assert!(b.passed > 1000, "{b:?}");
}

#[test]
fn messages_that_do_not_fit_are_refused_in_words() {
    let story = six_hops(0.0, 1, 1);
    let config =
        SourceConfig { stream: STREAM, shape: story.shape, plan: story.plan, key: KEY, rate: Bandwidth::from_mbit(1.0), patience: None };
    let mut source = Source::new(config, [1; 32]).unwrap();
    assert!(source.push(vec![1; LEN + 1]).unwrap_err().to_string().contains("1001 bytes"));
    assert_eq!(source.push(Vec::new()), Err(BlindError::Empty));
    (0..256).for_each(|_| assert!(source.push(vec![1]).is_ok()));
    assert_eq!(source.push(vec![1]), Err(BlindError::Full));
    source.finish();
    assert_eq!(source.push(vec![1]), Err(BlindError::Finished));
}

#[test]
fn repair_packets_that_somebody_forges_cost_the_pads_of_a_block_once() {
    let shape = Shape::new(64, 16, 1, (LEN + 26) as u16).unwrap();
    let plan = Plan::new(&shape, &[Probability::new(0.2)]).unwrap();
    let rate = Bandwidth::from_mbit(10.0);
    let mut source = Source::new(SourceConfig { stream: STREAM, shape, plan, key: KEY, rate, patience: None }, [1; 32]).unwrap();
    let mut sink = Sink::new(STREAM, shape, &KEY).unwrap();
    (0..128).for_each(|n| assert_eq!(source.push(message(n)), Ok(n)));
    let (mut now, mut out, mut sent) = (Time::from_millis(1), Vec::new(), Vec::new());
    source.finish();
    while !source.is_done() {
        now += Duration::from_millis(1);
        while source.poll_transmit(now, &mut out) {
            sent.push(out.clone());
        }
    }
    let forge = |sink: &mut Sink, block: u32| {
        for n in 0..500u16 {
            let batch = 4 + n % 7;
            let lie =
                Packet { stream: STREAM, batch_size: 16, depth: 1, block, batch, coefficients: Coefficients::Index(3), symbol: &[9; 100] };
            let mut out = Vec::new();
            lie.emit(&mut out);
            assert!(!sink.handle_datagram(&out));
        }
    };
    forge(&mut sink, 0);
    forge(&mut sink, 1);
    assert_eq!(sink.padded, 1, "the first block's, and none of blocks that may never be");
    let of_block = |block: u32| sent.iter().filter(move |d| d[6..10] == block.to_be_bytes());
    of_block(0).for_each(|d| {
        sink.handle_datagram(d);
    });
    assert_eq!(sink.stats().messages, 64);
    forge(&mut sink, 1);
    forge(&mut sink, 2);
    forge(&mut sink, 9);
    assert_eq!(sink.padded, 2, "and the next one's");
    of_block(1).for_each(|d| {
        sink.handle_datagram(d);
    });
    assert_eq!((sink.stats().messages, sink.padded), (128, 2), "which serve the block itself");
}

#[test]
fn a_stream_ends_with_an_error_where_its_numbers_end() {
    let shape = Shape::new(64, 16, 1, (LEN + 26) as u16).unwrap();
    let plan = Plan::new(&shape, &[Probability::ZERO]).unwrap();
    let rate = Bandwidth::from_mbit(10.0);
    let mut source = Source::new(SourceConfig { stream: STREAM, shape, plan, key: KEY, rate, patience: None }, [1; 32]).unwrap();
    source.skip_to(u32::MAX);
    (0..64).for_each(|n| assert_eq!(source.push(message(n)), Ok(n)));
    assert_eq!(source.push(message(64)), Err(BlindError::Exhausted));
    let (mut now, mut out, mut sent) = (Time::from_millis(1), Vec::new(), 0);
    for _ in 0..1000 {
        now += Duration::from_millis(1);
        while source.poll_transmit(now, &mut out) {
            assert_eq!(out[6..10], u32::MAX.to_be_bytes(), "no number begins again");
            sent += 1;
        }
        assert_eq!(source.room(), 0);
    }
    assert_eq!((sent, source.push(message(64))), (64, Err(BlindError::Exhausted)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_leave_relay_and_sink_standing(datagrams in prop::collection::vec((0u8..64, any::<u32>(), 0u16..80, prop::collection::vec(any::<u8>(), 0..140)), 0..200)) {
        let shape = Shape::new(64, 8, 1, 126).unwrap();
        let mut relay = Relay::new(RelayConfig::new(Bandwidth::from_mbit(1.0), Probability::new(0.5)), [1; 32]);
        let mut sink = Sink::new(STREAM, shape, &KEY).unwrap();
        let (mut now, mut out) = (Time::from_millis(1), Vec::new());
        for (flags, block, batch, rest) in datagrams {
            let mut datagram = vec![0x42];
            datagram.extend_from_slice(&STREAM.0);
            datagram.push(flags);
            datagram.extend_from_slice(&block.to_be_bytes());
            datagram.extend_from_slice(&batch.to_be_bytes());
            datagram.extend_from_slice(&rest);
            now += Duration::from_micros(300);
            relay.handle_datagram(now, HOME, &datagram);
            relay.handle_timeout(now);
            relay.poll_transmit(now, &mut out);
            sink.handle_datagram(&datagram);
            prop_assert!(relay.memory() < 4 << 20 && sink.poll_message().is_none());
        }
    }

    #[test]
    fn parse_of_emit_is_the_packet(size in 0usize..4, depth in 0u32..8, block: u32, batch: u16, index in 0u8..8, combined: bool, symbol in prop::collection::vec(any::<u8>(), 1..60)) {
        prop_assume!((8 << size) << depth <= 1024);
        let vector = vec![7; 8 << size];
        let mut symbol = symbol;
        symbol.push(1);
        let packet = Packet {
            stream: STREAM,
            batch_size: 8 << size,
            depth: 1 << depth,
            block,
            batch,
            coefficients: if combined { Coefficients::Vector(&vector) } else { Coefficients::Index(index) },
            symbol: &symbol,
        };
        let mut out = Vec::new();
        packet.emit(&mut out);
        prop_assert_eq!(Packet::parse(&out), Ok(packet));
    }
}
