//! Datagrams that arrive, alone or in trains (GRO).
//!
//! Whatever changes more than what a flow has received is settled at once, datagram by datagram. What is for flows alone waits for some more of its train:
//! to look at a flow and at its link for each packet cost a seventh of a receiver's time (docs/decisions/0122).

use super::Node;
use crate::ids::{LinkId, PathId};
use crate::link::Reading;
use crate::path::Address;
use crate::shared::CID_LEN;
use crate::units::{Ecn, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, Packet};
use std::net::{IpAddr, SocketAddr};

/// Datagrams after which flows are looked at in any case: what waits takes memory that their receivers have promised to others.
const TOGETHER: u32 = 16;

/// A link whose flows have not been looked at since packets came for them.
#[derive(Debug)]
struct Held {
    link: LinkId,
    path: PathId,
    cid: ConnectionId,
    packets: u32,
}

impl Node {
    /// A datagram arrived. Decrypts in place. Nothing that a datagram contains makes this panic.
    pub fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, ecn: Ecn, data: &mut [u8]) {
        self.handle_train(now, remote, local, ecn, data, usize::MAX);
    }

    /// Datagrams that arrived together, each of `stride` bytes but the last, which may be shorter: the same as
    /// [`handle_datagram`](Self::handle_datagram) for each of them, for less. Returns how many they were.
    pub fn handle_train(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, ecn: Ecn, data: &mut [u8], stride: usize) -> u64 {
        let (mut count, mut held) = (0, None);
        for datagram in data.chunks_mut(stride.max(1)) {
            count += 1;
            let may_wait = self.handle_one(now, Address { remote, local }, ecn, datagram, &mut held);
            if !may_wait || held.as_ref().is_some_and(|h| h.packets >= TOGETHER) {
                self.let_go(now, &mut held);
            }
        }
        self.let_go(now, &mut held);
        count
    }

    /// What came for flows is passed on.
    fn let_go(&mut self, now: Time, held: &mut Option<Held>) {
        let Some(Held { link: id, .. }) = held.take() else { return };
        if let Some(link) = self.links.get_mut(&id) {
            link.touch_held(now, &mut self.shared);
        }
        self.settle(now, id);
    }

    /// One datagram. True if what it did to the link in `held` may wait.
    fn handle_one(&mut self, now: Time, from: Address, ecn: Ecn, data: &mut [u8], held: &mut Option<Held>) -> bool {
        let Address { remote, local } = from;
        let size = data.len();
        let mut at = 0;
        // A handshake packet may be followed by a protected one in the same datagram.
        while at < size {
            match Packet::parse(&data[at..], CID_LEN) {
                Ok(Packet::Protected(header)) => {
                    if held.as_ref().is_some_and(|h| h.cid != header.connection_id) {
                        self.let_go(now, held);
                    }
                    let place = held.as_ref().map(|h| (h.link, h.path)).or_else(|| self.shared.lookup_cid(&header.connection_id));
                    let link = place.and_then(|(id, path)| Some((id, path, self.links.get_mut(&id)?)));
                    let Some((id, path, link)) = link else {
                        self.shared.counters.unknown += 1;
                        return false;
                    };
                    let packet = &mut data[at..];
                    if let Some(mut reading) = link.open(now, path, &header, from, ecn, packet, &mut self.shared) {
                        self.read_packet(now, id, &mut reading, packet);
                    }
                    let may_wait = self.links.get(&id).is_some_and(|link| link.events.is_empty());
                    let packets = held.as_ref().map_or(0, |h| h.packets) + 1;
                    *held = Some(Held { link: id, path, cid: header.connection_id, packets });
                    return may_wait;
                }
                // Only a protected packet may follow: many first flights in one datagram would each be answered at its full size (P19).
                Ok(Packet::Handshake(..)) if at > 0 => return false,
                Ok(Packet::Handshake(packet, len)) => {
                    self.let_go(now, held);
                    match &packet.body {
                        HandshakeBody::OtherVersion => self.refuse_version(remote, local, &packet, size),
                        HandshakeBody::Initiate { .. } => self.on_initiate(now, remote, local, &packet, size),
                        HandshakeBody::Finish(message) => {
                            if let Some((id, _)) = self.shared.lookup_cid(&packet.destination) {
                                self.on_finish(now, remote, id, message);
                            }
                        }
                        _ => {
                            if let Some((id, _)) = self.shared.lookup_cid(&packet.destination)
                                && let Some(link) = self.links.get_mut(&id)
                            {
                                link.on_handshake(now, &packet, size, &mut self.shared);
                                self.settle(now, id);
                            }
                        }
                    }
                    at += len;
                    // What follows a handshake packet is padding or a protected packet.
                    if data.get(at).is_none_or(|b| *b == 0) {
                        return false;
                    }
                }
                Err(_) => {
                    self.shared.counters.malformed += 1;
                    return false;
                }
            }
        }
        false
    }

    /// The frames of a packet. What a flow is that the neighbour offers is decided before what follows is read, which may be its first packets.
    fn read_packet(&mut self, now: Time, id: LinkId, reading: &mut Reading, packet: &[u8]) {
        while let Some(link) = self.links.get_mut(&id)
            && let Some(open) = link.read(now, reading, packet, &mut self.shared)
        {
            match open.relayed {
                Some(ends) => self.on_relayed_open(now, id, *open, ends),
                None => self.on_neighbours_open(now, id, *open),
            }
        }
    }
}
