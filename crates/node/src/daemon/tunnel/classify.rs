//! Chooses a packet's flow of the transport, and what that flow promises.
//!
//! TCP packets of a 5-tuple stay in order, because reordering lowers TCP's goodput. They have a longer lifetime, because TCP would send a missing packet again,
//! and lower its rate. All other packets are handed over as they arrive, and given up soon: late packets are worth nothing.

use super::packet::{self, Header};
use crate::daemon::config::Treatment;
use noctule::{Class, FlowKind, FlowOptions, Mode};
use std::net::IpAddr;

/// Tag of flows that carry IP packets; the lowest byte is the version of this use.
pub const TAG: u64 = 0x6970_0001;
/// Bytes that may wait in the transport's own queue: a few packets, so that queueing delay arises in CoDel's queue, which can act on it.
const SEND_BUFFER: usize = 32 * 1024;
/// From class selector 4 on (CS4, AF4x, VA, EF, CS6: RFC 4594 §2): interactive traffic.
const INTERACTIVE_DSCP: u8 = 32;

/// What identifies a flow: the 5-tuple and the class of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// Protocol above IP.
    pub protocol: u8,
    /// Ports of TCP and UDP.
    pub ports: (u16, u16),
    /// Differentiated services code point.
    pub dscp: u8,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, destination, protocol, ports: (from, to), dscp } = self;
        write!(f, "{source}:{from}-{destination}:{to}/{protocol}/{dscp}")
    }
}

impl Key {
    /// The key of a packet.
    pub fn of(header: &Header) -> Self {
        let Header { source, destination, protocol, ports, dscp, .. } = *header;
        Self { source, destination, protocol, ports, dscp }
    }

    /// The key of the flow that packets of this kind share when a node has too many flows.
    pub fn shared(self) -> Self {
        let any = |a: IpAddr| if a.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let protocol = if self.protocol == packet::TCP { packet::TCP } else { packet::UDP };
        let dscp = if self.is_interactive() { INTERACTIVE_DSCP } else { 0 };
        Self { source: any(self.source), destination: any(self.destination), protocol, ports: (0, 0), dscp }
    }

    /// Whether the packets are of interactive traffic.
    fn is_interactive(&self) -> bool {
        self.dscp >= INTERACTIVE_DSCP || matches!(self.protocol, packet::ICMP | packet::ICMPV6)
    }

    /// How the transport carries them.
    pub fn options(&self, treatment: &Treatment) -> FlowOptions {
        let is_tcp = self.protocol == packet::TCP;
        FlowOptions {
            mode: Mode::Btp,
            kind: if is_tcp { FlowKind::OrderedMessages } else { FlowKind::UnorderedMessages },
            class: if self.is_interactive() { Class::Latency } else { Class::Bulk },
            lifetime: Some(if is_tcp { treatment.tcp_lifetime } else { treatment.datagram_lifetime }),
            tag: TAG,
            send_buffer: Some(SEND_BUFFER),
            // One flow stays on one route: reordering between routes looks like loss to an inner TCP. Sessions are spread over the routes instead (peer.rs).
            one_route: true,
            ..FlowOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::samples::*;
    use super::*;
    use std::time::Duration;

    const TREATMENT: Treatment = Treatment {
        datagram_lifetime: Duration::from_millis(500),
        tcp_lifetime: Duration::from_secs(2),
        flow_idle: Duration::from_secs(60),
        max_flows: 8,
    };

    fn options(packet: &[u8]) -> FlowOptions {
        Key::of(&Header::parse(packet).expect("a packet")).options(&TREATMENT)
    }

    #[test]
    fn tcp_keeps_its_order_and_everything_else_its_pace() {
        let tcp = options(&syn_v4(&[]));
        assert_eq!((tcp.mode, tcp.kind, tcp.lifetime), (Mode::Btp, FlowKind::OrderedMessages, Some(TREATMENT.tcp_lifetime)));
        for packet in [v4(packet::UDP, 0, &udp(b"")), v6(packet::UDP, 0, &udp(b"")), v4(47, 0, &[0; 8]), v6(packet::ICMPV6, 0, &[128, 0])] {
            let other = options(&packet);
            assert_eq!((other.kind, other.lifetime), (FlowKind::UnorderedMessages, Some(TREATMENT.datagram_lifetime)));
        }
    }

    #[test]
    fn the_class_of_service_is_the_class_of_the_flow() {
        for (dscp, class) in
            [(0, Class::Bulk), (8, Class::Bulk), (10, Class::Bulk), (26, Class::Bulk), (34, Class::Latency), (46, Class::Latency)]
        {
            assert_eq!(options(&v4(packet::UDP, dscp << 2, &udp(b""))).class, class, "{dscp}");
            assert_eq!(options(&v6(packet::TCP, dscp << 2, &[0; 20])).class, class, "{dscp}");
        }
        assert_eq!(options(&v4(packet::ICMP, 0, &[8, 0])).class, Class::Latency);
    }

    #[test]
    fn ports_tell_flows_apart_and_sharing_keeps_family_order_and_class() {
        let key = |packet: &[u8]| Key::of(&Header::parse(packet).unwrap());
        let mut other = v4(packet::UDP, 0, &udp(b""));
        other[21] ^= 1;
        assert_ne!(key(&other), key(&v4(packet::UDP, 0, &udp(b""))));
        assert_eq!(key(&other).shared(), key(&v4(47, 0, &[0; 8])).shared());
        assert_ne!(key(&other).shared(), key(&syn_v4(&[])).shared());
        assert_ne!(key(&other).shared(), key(&v6(packet::UDP, 0, &udp(b""))).shared());
        let urgent = key(&v4(packet::UDP, 46 << 2, &udp(b""))).shared();
        assert_eq!(urgent.options(&TREATMENT).class, Class::Latency);
    }
}
