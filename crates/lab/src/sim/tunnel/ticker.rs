//! Datagrams at a fixed rate through a tunnel, one way, as `iperf3 -u` sends them; and small ones that are echoed, as `ping` does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};

use crate::link::Histogram;
use crate::sim::meter::{Meter, Window};
use crate::sim::world::Host;

/// Sends `burst` packets of `size` bytes every `interval`; hears of those that come back.
pub struct Ticker {
    peer: SocketAddr,
    size: usize,
    burst: u32,
    interval: Duration,
    next: Option<Time>,
    due: u32,
    window: Window,
    /// Packets sent whose time lies in the window.
    pub sent: u64,
    number: u64,
    /// Round trips of those that came back.
    pub rtt: Histogram,
}

impl Ticker {
    /// Sends nothing before it is started.
    pub fn new(peer: SocketAddr, size: usize, burst: u32, interval: Duration, window: Window) -> Self {
        Self { peer, size, burst, interval, next: None, due: 0, window, sent: 0, number: 0, rtt: Histogram::default() }
    }

    /// Begins.
    pub fn start(&mut self, now: Time) {
        self.next = Some(now);
    }
}

impl Host for Ticker {
    fn handle_datagram(&mut self, now: Time, _: SocketAddr, _: IpAddr, _: Ecn, data: &mut [u8]) {
        let Some(sent) = data.get(..8).and_then(|word| word.try_into().ok()).map(u64::from_be_bytes).map(Time::from_nanos) else { return };
        if self.window.holds(sent) {
            self.rtt.record(now.since(sent));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(at) = self.next.filter(|at| *at <= now) {
            self.due += self.burst;
            self.next = Some(at + self.interval);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.due = self.due.checked_sub(1)?;
        self.sent += u64::from(self.window.holds(now));
        buf.clear();
        buf.extend_from_slice(&now.as_nanos().to_be_bytes());
        buf.extend_from_slice(&self.number.to_be_bytes());
        self.number += 1;
        buf.resize(self.size, 0x5a);
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    fn pump(&mut self, _: Time) -> bool {
        false
    }
}

/// Counts what comes, and sends it back if it is to.
pub struct Listener {
    peer: SocketAddr,
    window: Window,
    echoes: bool,
    back: std::collections::VecDeque<Vec<u8>>,
    /// What came.
    pub meter: Meter,
    /// Packets whose sending lies in the window.
    pub heard: u64,
    /// How long they took.
    pub one_way: Histogram,
}

impl Listener {
    /// Nothing heard yet.
    pub fn new(peer: SocketAddr, echoes: bool, window: Window) -> Self {
        let back = std::collections::VecDeque::new();
        Self { peer, window, echoes, back, meter: Meter::new(window), heard: 0, one_way: Histogram::default() }
    }
}

impl Host for Listener {
    fn handle_datagram(&mut self, now: Time, _: SocketAddr, _: IpAddr, _: Ecn, data: &mut [u8]) {
        let Some(sent) = data.get(..8).and_then(|word| word.try_into().ok()).map(u64::from_be_bytes).map(Time::from_nanos) else { return };
        self.meter.read(now, data.len(), 0);
        if self.window.holds(sent) {
            self.heard += 1;
            self.one_way.record(now.since(sent));
        }
        if self.echoes {
            self.back.push_back(data.to_vec());
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        *buf = self.back.pop_front()?;
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn pump(&mut self, _: Time) -> bool {
        false
    }
}
