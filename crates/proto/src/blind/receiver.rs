//! Receives streams that announce themselves, of senders whose keys are known: each sender has one stream at a time, and none comes back.

use super::{Announcement, Packet, Sink, SinkStats, StreamName};
use crate::admission::{Admission, Host};
use crate::crypto::{Addressed, PublicKey, SecretKey, SharedKey};
use crate::units::Time;
use bytes::Bytes;
use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

/// Announcements that are looked at in a second, of one host and of all hosts from which none was taken before: each costs two Diffie-Hellman operations, and
/// any host that knows this node's public key can make some. A sender makes five of each stream, and five a second.
const OF_ONE_HOST: u32 = 20;
const OF_STRANGERS: u32 = 100;
/// Bytes of a block, at most; three are held of each stream, and what is needed to solve them.
const MOST_BLOCK_BYTES: usize = 8 << 20;

/// Counts of what was no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Datagrams that are neither announcement nor packet of a stream.
    pub garbage: u64,
    /// Packets of streams that were not announced, or not any more.
    pub unknown: u64,
    /// Announcements whose maker did not know this node's public key.
    pub unaddressed: u64,
    /// Announcements that nobody on the list made for this node, or that ask for too much.
    pub refused: u64,
    /// Announcements that are no newer than one that was taken.
    pub replayed: u64,
    /// Announcements that came in a flood, and were not looked at.
    pub unread: u64,
}

/// What is known of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderView {
    /// Streams that it announced.
    pub streams: u64,
    /// Its newest announcement.
    pub stamp: u64,
    /// When something of it came that checked.
    pub heard_at: Option<Time>,
    /// Counts over all its streams.
    pub sink: SinkStats,
    /// Messages that it sent and that did not arrive, as far as it has said; those of a block that may still be solved may be among them.
    pub lost: u64,
}

/// Receives what some nodes send one way.
pub struct Receiver {
    secret: SecretKey,
    addressed: Addressed,
    psk: Option<SharedKey>,
    senders: Vec<Known>,
    admission: Admission,
    ready: VecDeque<(usize, Bytes)>,
    stats: ReceiverStats,
}

#[derive(Debug)]
struct Known {
    key: PublicKey,
    view: SenderView,
    /// From where its last announcement came.
    host: Option<Host>,
    current: Option<Current>,
    /// Of streams that are over.
    before: (SinkStats, u64),
}

#[derive(Debug)]
struct Current {
    stream: StreamName,
    sink: Sink,
    block_packets: u64,
    /// Messages that arrived, by block, of the blocks that the last announcement does not count; of all others; where the two meet.
    arrived: BTreeMap<u32, u64>,
    counted: u64,
    /// What the last announcement but one, and the last, said: a block, and the messages before it.
    said: [(u32, u64); 2],
    /// Messages before the first announcement that was heard.
    base: u64,
}

impl Receiver {
    /// A receiver for these senders, each with the stamp of the newest announcement that this node ever took from it (0: none); `seed` is random.
    pub fn new(secret: SecretKey, psk: Option<SharedKey>, senders: impl IntoIterator<Item = (PublicKey, u64)>, seed: [u8; 32]) -> Self {
        let known = |(key, stamp)| Known {
            key,
            view: SenderView { stamp, ..SenderView::default() },
            host: None,
            current: None,
            before: Default::default(),
        };
        Self {
            addressed: Addressed::to(&secret.public()),
            secret,
            psk,
            senders: senders.into_iter().map(known).collect(),
            admission: Admission::new(OF_ONE_HOST, OF_STRANGERS, seed),
            ready: VecDeque::new(),
            stats: ReceiverStats::default(),
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// What is known of the senders, in the order in which they were named.
    pub fn senders(&self) -> impl Iterator<Item = SenderView> + '_ {
        self.senders.iter().map(Known::view)
    }

    /// The next message with the place of its sender in the list, in the order in which they became known.
    pub fn poll_message(&mut self) -> Option<(usize, Bytes)> {
        self.ready.pop_front()
    }

    /// A datagram that came from such an address, whosever it is.
    pub fn handle_datagram(&mut self, now: Time, from: IpAddr, datagram: &[u8]) {
        if Announcement::is_one(datagram) {
            return self.on_announcement(now, from.into(), datagram);
        }
        let Ok(packet) = Packet::parse(datagram) else {
            self.stats.garbage += 1;
            return;
        };
        // Names are drawn, or copied, by senders: the key decides.
        let mut is_known = false;
        for (at, known) in self.senders.iter_mut().enumerate() {
            let Some(current) = known.current.as_mut().filter(|c| c.stream == packet.stream) else { continue };
            is_known = true;
            let before = current.sink.stats().innovative;
            let is_its = current.sink.handle_datagram(datagram);
            if current.sink.stats().innovative > before {
                known.view.heard_at = Some(now);
            }
            while let Some((number, message)) = current.sink.poll_message() {
                current.note((number / current.block_packets) as u32);
                self.ready.push_back((at, message));
            }
            if is_its {
                break;
            }
        }
        self.stats.unknown += u64::from(!is_known);
    }

    fn on_announcement(&mut self, now: Time, host: Host, datagram: &[u8]) {
        if self.addressed.check(datagram).is_none() {
            self.stats.unaddressed += 1;
            return;
        }
        let is_known = self.senders.iter().any(|known| known.host == Some(host));
        if !self.admission.admits(now, host, is_known) {
            self.stats.unread += 1;
            return;
        }
        let opened = Announcement::open(datagram, &self.addressed, &self.secret, self.psk.as_ref().map(SharedKey::as_bytes)).ok();
        let small = opened.filter(|(_, said)| said.shape.block_packets() * usize::from(said.shape.symbol()) <= MOST_BLOCK_BYTES);
        let Some((known, said)) = small.and_then(|(key, said)| Some((self.senders.iter_mut().find(|k| k.key == key)?, said))) else {
            self.stats.refused += 1;
            return;
        };
        if said.stamp <= known.view.stamp {
            self.stats.replayed += 1;
            return;
        }
        match &mut known.current {
            Some(current) if current.stream == said.stream => current.hear(&said),
            _ => {
                let Ok(mut sink) = Sink::new(said.stream, said.shape, &said.key) else {
                    self.stats.refused += 1;
                    return;
                };
                sink.begin_at(said.block);
                let place = (said.block, said.messages);
                let current = Current {
                    stream: said.stream,
                    sink,
                    block_packets: said.shape.block_packets() as u64,
                    arrived: BTreeMap::new(),
                    counted: 0,
                    said: [place; 2],
                    base: said.messages,
                };
                known.end_stream();
                known.current = Some(current);
                known.view.streams += 1;
            }
        }
        (known.view.stamp, known.view.heard_at, known.host) = (said.stamp, Some(now), Some(host));
    }
}

impl Known {
    fn view(&self) -> SenderView {
        let (past, lost) = self.before;
        let Some(current) = &self.current else { return SenderView { sink: past, lost, ..self.view } };
        SenderView { sink: sum(past, current.sink.stats()), lost: lost.saturating_add(current.lost()), ..self.view }
    }

    /// A newer stream takes its place.
    fn end_stream(&mut self) {
        if let Some(mut current) = self.current.take() {
            let [_, last] = current.said;
            current.count_before(last);
            self.before = (sum(self.before.0, current.sink.stats()), self.before.1.saturating_add(current.lost()));
        }
    }
}

impl Current {
    /// A message of a block arrived.
    fn note(&mut self, block: u32) {
        if block < self.said[0].0 {
            self.counted += 1;
        } else {
            *self.arrived.entry(block).or_default() += 1;
        }
    }

    /// What the announcement before said of is over now: announcements are as far apart as blocks last.
    fn hear(&mut self, said: &Announcement) {
        let [_, last] = self.said;
        self.count_before(last);
        self.said = [last, (said.block.max(last.0), said.messages.max(last.1))];
    }

    fn count_before(&mut self, place: (u32, u64)) {
        self.said[0] = place;
        let later = self.arrived.split_off(&place.0);
        self.counted += self.arrived.values().sum::<u64>();
        self.arrived = later;
    }

    fn lost(&self) -> u64 {
        self.said[0].1.saturating_sub(self.base.saturating_add(self.counted))
    }
}

fn sum(a: SinkStats, b: SinkStats) -> SinkStats {
    SinkStats {
        datagrams: a.datagrams + b.datagrams,
        innovative: a.innovative + b.innovative,
        polluted: a.polluted + b.polluted,
        over: a.over + b.over,
        blocks: a.blocks + b.blocks,
        given_up: a.given_up + b.given_up,
        missing: a.missing + b.missing,
        messages: a.messages + b.messages,
        recovered: a.recovered + b.recovered,
    }
}
