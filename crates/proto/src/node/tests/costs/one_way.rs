//! Datagrams of one-way streams, which have no handshake: at a relay and at a receiver.

use super::{Cost, Measured};
use crate::blind::{Announcement, Receiver, Relay, RelayConfig, Shape, StreamName};
use crate::crypto::SecretKey;
use crate::units::{Bandwidth, Duration, Probability, Time};
use std::net::{IpAddr, Ipv4Addr};

const EACH: u32 = 32;
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32])
}

fn packet(stream: u32, batch: u16, index: u8, len: usize) -> Vec<u8> {
    let mut out = vec![0x42];
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(1);
    out.extend_from_slice(&1u32.to_be_bytes());
    out.extend_from_slice(&batch.to_be_bytes());
    out.push(index);
    out.resize(len, 1);
    out
}

/// Rows beside so many senders that a receiver knows.
pub(super) fn rows(beside: usize) -> Measured {
    let mut rows = Measured::new();
    let mut row = |name, mut act: Box<dyn FnMut(u32) -> usize>| {
        let costs: Vec<Cost> = (0..EACH).map(|n| Cost::of(|| act(n))).collect();
        rows.push((name, Cost::of_several(&costs)));
    };
    let mut now = Time::from_millis(1000);
    let mut tick = move || {
        now += Duration::from_millis(30);
        now
    };
    let relay = || Relay::new(RelayConfig::new(Bandwidth::from_mbit(10.0), Probability::new(0.1)), [2; 32]);
    let senders = (0..beside).map(|n| (secret((n % 200) as u8).public(), 0)).collect::<Vec<_>>();
    let receiver = || Receiver::new(secret(200), None, senders.clone(), [3; 32]);

    let mut at = relay();
    row("blind packet, at a relay", {
        let mut out = Vec::with_capacity(1 << 16);
        let packets: Vec<_> = (0..EACH).map(|n| packet(1, (n / 16) as u16, (n % 16) as u8, 1400)).collect();
        Box::new(move |n| {
            at.handle_datagram(tick(), FROM, &packets[n as usize]);
            if at.poll_transmit(tick(), &mut out) { out.len() } else { 0 }
        })
    });
    let mut at = receiver();
    row("blind packet, of an unknown stream", {
        let packets: Vec<_> = (0..EACH).map(|n| packet(n, 0, 0, 1400)).collect();
        Box::new(move |n| {
            at.handle_datagram(tick(), FROM, &packets[n as usize]);
            0
        })
    });
    let said = |n: u32, from: u8| {
        let shape = Shape::new(32, 8, 2, 64).unwrap();
        let said = Announcement { stamp: 9, stream: StreamName(*b"live"), key: [5; 32], shape, block: 0, messages: 0 };
        said.seal(&secret(from), &secret(200).public(), None, [n as u8; 32]).unwrap()
    };
    let altered = |n: u32| {
        let mut out = said(n, 201);
        let last = out.len() - 1;
        out[last] ^= 1;
        out
    };
    let garbage: Vec<Vec<u8>> = (0..EACH).map(altered).collect();
    let mut at = relay();
    row("announcement, altered, at a relay", {
        let (mut out, garbage) = (Vec::with_capacity(1 << 16), garbage.clone());
        Box::new(move |n| {
            at.handle_datagram(tick(), FROM, &garbage[n as usize]);
            if at.poll_transmit(tick(), &mut out) { out.len() } else { 0 }
        })
    });
    let mut at = receiver();
    row("announcement, altered", {
        Box::new(move |n| {
            at.handle_datagram(tick(), FROM, &garbage[n as usize]);
            0
        })
    });
    let said: Vec<Vec<u8>> = (0..EACH).map(|n| said(n, 201)).collect();
    let mut at = receiver();
    row("announcement, of a key that is not on the list", {
        Box::new(move |n| {
            at.handle_datagram(tick(), FROM, &said[n as usize]);
            0
        })
    });
    rows
}
