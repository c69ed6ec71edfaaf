//! Streams that announce themselves, over links that lose, in virtual time: senders and receivers that begin anew, and what others make of recordings.

use super::*;
use crate::crypto::{SecretKey, SharedKey};
use crate::units::{Bandwidth, Duration, Probability, Time};
use crate::work::Work;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::net::{IpAddr, Ipv4Addr};

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32])
}

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SENDER: u8 = 1;
const RECEIVER: u8 = 2;

fn config(loss: f64) -> SenderConfig {
    let shape = Shape::new(64, 16, 1, 126).unwrap();
    SenderConfig {
        secret: secret(SENDER),
        receiver: secret(RECEIVER).public(),
        psk: None,
        plan: Plan::new(&shape, &[Probability::new(loss)]).unwrap(),
        shape,
        rate: Bandwidth::from_mbit(10.0),
        patience: Duration::from_millis(50),
        renew_after: SenderConfig::RENEW_AFTER,
    }
}

fn receiver(stamp: u64) -> Receiver {
    Receiver::new(secret(RECEIVER), None, [(secret(SENDER).public(), stamp)], [7; 32])
}

fn message(number: u32) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message.resize(8 + number as usize % 80, 7);
    message
}

/// A sender, a link that loses, and a receiver.
struct TestPath {
    now: Time,
    sender: Sender,
    receiver: Receiver,
    loss: f64,
    rng: ChaCha12Rng,
    pushed: u32,
    arrived: Vec<u32>,
    /// Everything that was sent.
    tape: Vec<Vec<u8>>,
}

impl TestPath {
    fn new(config: SenderConfig, loss: f64) -> Self {
        let now = Time::from_millis(1);
        let sender = Sender::new(config, now, 1000, [3; 32]).unwrap();
        let rng = ChaCha12Rng::seed_from_u64(5);
        Self { now, sender, receiver: receiver(0), loss, rng, pushed: 0, arrived: Vec::new(), tape: Vec::new() }
    }

    fn give(&mut self, datagram: &[u8]) {
        self.give_from(HOME, datagram);
    }

    fn give_from(&mut self, from: IpAddr, datagram: &[u8]) {
        self.receiver.handle_datagram(self.now, from, datagram);
        while let Some((0, data)) = self.receiver.poll_message() {
            let number = u32::from_be_bytes(*data.first_chunk().unwrap());
            assert_eq!(data, message(number), "not one byte wrong");
            self.arrived.push(number);
        }
    }

    /// So many messages, `gap` between them; then so much time.
    fn run(&mut self, messages: u32, gap: Duration, rest: Duration) {
        let last = self.pushed + messages;
        let (mut push_at, end) = (self.now, self.now + gap * messages + rest);
        while self.now < end {
            if self.pushed < last && self.now >= push_at && self.sender.room() > 0 {
                self.sender.push(message(self.pushed)).unwrap();
                (self.pushed, push_at) = (self.pushed + 1, push_at + gap);
            }
            let mut out = Vec::new();
            while self.sender.poll_transmit(self.now, &mut out) {
                if (self.rng.next_u32() as f64) >= self.loss * f64::from(u32::MAX) {
                    self.give(&out.clone());
                }
                self.tape.push(core::mem::take(&mut out));
            }
            let next = if self.pushed < last { push_at } else { end };
            self.now = self.sender.poll_timeout().min(next).max(self.now + Duration::from_micros(10));
        }
    }

    fn view(&self) -> SenderView {
        self.receiver.senders().next().unwrap()
    }

    fn assert_each_once(&mut self, share: f64) {
        let all = self.arrived.len();
        self.arrived.sort_unstable();
        self.arrived.dedup();
        assert_eq!(self.arrived.len(), all, "each once");
        assert!(all as f64 >= share * f64::from(self.pushed), "{all} of {}: {:?}", self.pushed, self.view());
    }
}

#[test]
fn messages_of_a_trickle_do_not_wait_for_a_full_block() {
    let mut path = TestPath::new(config(0.1), 0.1);
    path.run(1000, Duration::from_millis(5), Duration::from_secs(1));
    path.assert_each_once(1.0);
    assert!(path.view().sink.recovered > 50, "{:?}", path.view());
    assert_eq!(path.view().lost, 0);
    // Ten messages come while a block is open, and 54 empty packets fill it up.
    let sent = path.sender.stats().source;
    assert!(sent.blocks > 80 && sent.messages == 1000, "{sent:?}");
    // Where blocks wait until they are full, what is lost of the last one is not made up for in time.
    let mut path = TestPath::new(SenderConfig { patience: Duration::from_secs(1000), ..config(0.1) }, 0.1);
    path.run(1000, Duration::from_millis(5), Duration::from_secs(1));
    assert!(path.arrived.len() < 1000 && path.sender.stats().source.blocks == 15, "{} {:?}", path.arrived.len(), path.view());
}

#[test]
fn a_plan_for_no_loss_loses_and_the_receiver_knows_how_much() {
    let mut path = TestPath::new(config(0.0), 0.1);
    path.run(1000, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(0.85);
    let missing = u64::from(path.pushed) - path.arrived.len() as u64;
    assert!(missing > 50, "{missing}");
    assert_eq!(path.view().lost, missing);
}

#[test]
fn a_receiver_that_begins_in_mid_stream_takes_part_from_the_next_announcement() {
    let mut path = TestPath::new(config(0.1), 0.0);
    path.run(300, Duration::from_millis(1), Duration::ZERO);
    let stamp = path.view().stamp;
    path.receiver = receiver(stamp);
    path.run(700, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(0.75);
    assert!(path.arrived.contains(&999) && path.view().streams == 1, "{:?}", path.view());
}

#[test]
fn a_sender_that_begins_anew_has_another_key_and_is_heard_at_once() {
    let mut path = TestPath::new(config(0.1), 0.0);
    path.run(300, Duration::from_millis(1), Duration::from_millis(200));
    let stamp = path.sender.stamp();
    path.sender = Sender::new(config(0.1), path.now, stamp + 1, [4; 32]).unwrap();
    path.run(300, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(1.0);
    assert_eq!((path.view().streams, path.view().lost), (2, 0));
    // Nonces: the first packets of both streams, cut alike, have nothing in common.
    let first = |path: &TestPath, at: usize| path.tape.iter().filter(|d| d[0] == 0x42).nth(at).unwrap().clone();
    let second = path.tape.iter().rposition(|d| d[0] == 0x42 && d[6..10] == [0; 4] && d[10..13] == [0; 3]).unwrap();
    assert!(first(&path, 0)[13..] != path.tape[second][13..]);
    // With a stamp that is not newer it is not believed.
    path.sender = Sender::new(config(0.1), path.now, 1, [5; 32]).unwrap();
    let known = path.arrived.len();
    path.run(100, Duration::from_millis(1), Duration::from_millis(50));
    assert_eq!(path.arrived.len(), known);
    assert!(path.receiver.stats().replayed >= 5 && path.receiver.stats().unknown >= 100, "{:?}", path.receiver.stats());
}

#[test]
fn a_stream_that_is_long_is_followed_by_one_with_another_key() {
    let mut path = TestPath::new(SenderConfig { renew_after: 4, ..config(0.1) }, 0.1);
    path.run(1500, Duration::from_millis(2), Duration::from_secs(1));
    path.assert_each_once(0.98);
    let (view, sent) = (path.view(), path.sender.stats());
    assert!(view.streams >= 6 && sent.streams == view.streams, "{view:?} {sent:?}");
    assert_eq!(sent.source.messages, 1500);
}

#[test]
fn what_is_played_again_is_not_handed_over_again_even_to_a_receiver_that_was_started_anew() {
    let mut path = TestPath::new(config(0.1), 0.0);
    path.run(1000, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(1.0);
    let (stamp, tape) = (path.view().stamp, core::mem::take(&mut path.tape));
    path.now += Duration::from_secs(2);
    tape.iter().for_each(|datagram| path.give(datagram));
    assert_eq!(path.arrived.len(), 1000);
    let view = path.view();
    assert!(path.receiver.stats().replayed > 5 && view.sink.over > 900, "{:?} {view:?}", path.receiver.stats());
    // Started anew with what it had kept: nothing is believed. With nothing kept, all is: that is what is kept for.
    for (kept, expected) in [(stamp, 1000), (0, 2000)] {
        path.receiver = receiver(kept);
        path.now += Duration::from_secs(2);
        tape.iter().for_each(|datagram| path.give(datagram));
        assert_eq!(path.arrived.len(), expected);
    }
}

#[test]
fn only_senders_on_the_list_are_heard() {
    for (name, other) in [
        ("another sender", SenderConfig { secret: secret(9), ..config(0.1) }),
        ("for another node", SenderConfig { receiver: secret(9).public(), ..config(0.1) }),
        ("another pre-shared key", SenderConfig { psk: Some(SharedKey::from_bytes([1; 32])), ..config(0.1) }),
    ] {
        let mut path = TestPath::new(other, 0.0);
        path.run(100, Duration::from_millis(1), Duration::from_secs(1));
        assert!(
            path.arrived.is_empty() && path.receiver.stats().refused + path.receiver.stats().unaddressed > 5,
            "{name}: {:?}",
            path.receiver.stats()
        );
    }
    let mut path = TestPath::new(SenderConfig { psk: Some(SharedKey::from_bytes([1; 32])), ..config(0.1) }, 0.0);
    path.receiver = Receiver::new(secret(RECEIVER), Some(SharedKey::from_bytes([1; 32])), [(secret(SENDER).public(), 0)], [7; 32]);
    path.run(100, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(1.0);
}

/// An announcement that another node made for the receiver: it knows the public key, and is on no list.
fn strangers(n: u32) -> Vec<u8> {
    let said = Announcement { stamp: 9, stream: StreamName(*b"evil"), key: [1; 32], shape: config(0.1).shape, block: 0, messages: 0 };
    let mut seed = [8; 32];
    seed[..4].copy_from_slice(&n.to_be_bytes());
    said.seal(&secret(9), &secret(RECEIVER).public(), None, seed).unwrap()
}

#[test]
fn who_does_not_know_the_receivers_key_makes_it_do_no_more_than_one_hash() {
    let mut path = TestPath::new(config(0.1), 0.0);
    path.run(50, Duration::from_millis(1), Duration::ZERO);
    let flood = [&path.tape[0][..5], &[9; 170]].concat();
    let (cost, ()) = Work::of(|| {
        for _ in 0..10_000 {
            path.now += Duration::from_micros(100);
            path.give(&flood);
        }
    });
    assert_eq!(cost, Work { hash: 10_000, ..Work::default() });
    let stats = path.receiver.stats();
    assert_eq!((stats.unaddressed, stats.refused, stats.unread), (10_000, 0, 0), "{stats:?}");
    path.run(50, Duration::from_millis(1), Duration::from_secs(1));
    path.assert_each_once(1.0);
}

#[test]
fn a_flood_of_announcements_for_the_right_key_neither_keeps_a_sender_out_nor_costs_more_than_its_share() {
    // From one host, and from as many as it invents; by a sender that has been heard before, and by one that has not.
    let inventions: Vec<Vec<u8>> = (0..20).map(strangers).collect();
    for (hosts, is_known) in [(1, false), (1, true), (10_000, true)] {
        let mut path = TestPath::new(config(0.1), 0.0);
        if is_known {
            path.run(50, Duration::from_millis(1), Duration::from_secs(1));
        }
        for n in 0..2_000u32 {
            path.now += Duration::from_micros(100);
            path.give_from(IpAddr::from((0x0a00_0000 + n % hosts).to_be_bytes()), &inventions[n as usize % 20]);
        }
        let stats = path.receiver.stats();
        // Three shares of one host; 100 (1 + ln 20) of all.
        assert!(stats.refused <= if hosts == 1 { 60 } else { 500 }, "{stats:?}");
        // In the same second the sender begins anew, and is heard before its first packet comes.
        let stamp = path.sender.stamp();
        path.sender = Sender::new(config(0.1), path.now, stamp + 1, [4; 32]).unwrap();
        path.run(100, Duration::from_millis(1), Duration::from_secs(1));
        path.assert_each_once(1.0);
    }
    // Nothing is known of the sender, and the flood comes from everywhere: it is heard later, but it is heard.
    let mut path = TestPath::new(config(0.1), 0.0);
    for second in 0..12u32 {
        for n in 0..400u32 {
            path.now += Duration::from_micros(10);
            path.give_from(IpAddr::from((0x0a00_0000 + second * 1000 + n).to_be_bytes()), &inventions[n as usize % 20]);
        }
        path.run(20, Duration::from_millis(10), Duration::from_millis(795));
    }
    assert!(path.arrived.contains(&(path.pushed - 1)), "{:?}", path.receiver.stats());
}

#[test]
fn a_sender_that_copies_the_name_of_anothers_stream_takes_nothing_from_it() {
    const COPIER: u8 = 3;
    let mut path = TestPath::new(config(0.1), 0.0);
    let senders = [(secret(COPIER).public(), 0), (secret(SENDER).public(), 0)];
    path.receiver = Receiver::new(secret(RECEIVER), None, senders, [7; 32]);
    let mut out = Vec::new();
    while !out.starts_with(&[0x42]) {
        path.sender.push(message(0)).ok();
        path.now = path.sender.poll_timeout().max(path.now);
        if path.sender.poll_transmit(path.now, &mut out) {
            path.receiver.handle_datagram(path.now, HOME, &out);
        }
    }
    let stream = StreamName(*out[1..].first_chunk().unwrap());
    // Both have one stream of this name; of the other one no block lies ahead of what comes.
    let said = Announcement { stamp: 9, stream, key: [1; 32], shape: config(0.1).shape, block: 0, messages: 0 };
    let copied = said.seal(&secret(COPIER), &secret(RECEIVER).public(), None, [8; 32]).unwrap();
    path.receiver.handle_datagram(path.now, HOME, &copied);
    let before = path.receiver.senders().nth(1).unwrap().sink.messages;
    for number in 1..40 {
        path.sender.push(message(number)).unwrap();
    }
    for _ in 0..200 {
        path.now += Duration::from_millis(1);
        while path.sender.poll_transmit(path.now, &mut out) {
            path.receiver.handle_datagram(path.now, HOME, &out);
        }
    }
    let views: Vec<_> = path.receiver.senders().collect();
    assert_eq!((views[0].streams, views[0].sink.messages), (1, 0));
    assert!(views[1].sink.messages >= before + 39, "{views:?}");
    while let Some((sender, _)) = path.receiver.poll_message() {
        assert_eq!(sender, 1);
    }
}

#[test]
fn a_relay_passes_each_announcement_once_and_not_more_than_its_share() {
    let config = RelayConfig::new(Bandwidth::from_mbit(100.0), Probability::new(0.1));
    let mut relay = Relay::new(config, [1; 32]);
    let mut path = TestPath::new(super::announced_tests::config(0.1), 0.0);
    path.run(0, Duration::ZERO, Duration::from_secs(1));
    let said = path.tape.clone();
    assert!(said.len() > 5);
    let (mut now, mut out, mut passed) = (Time::from_millis(1), Vec::new(), Vec::new());
    for datagram in said.iter().chain(&said) {
        relay.handle_datagram(now, HOME, datagram);
        now += Duration::from_millis(1);
        while relay.poll_transmit(now, &mut out) {
            passed.push(out.clone());
        }
    }
    assert!(passed == said, "as they are, and those that come around again no more");
    // Inventions: three shares of a hundred in the first second.
    for n in 0..1000u32 {
        relay.handle_datagram(now, HOME, &[&said[0][..21], &n.to_be_bytes(), &[9; 150]].concat());
    }
    assert!(relay.stats().announcements <= 300 + said.len() as u64 && relay.stats().dropped >= 700, "{:?}", relay.stats());
    relay.handle_datagram(now, HOME, b"neither this nor that");
    assert_eq!(relay.stats().foreign, 1);
}
