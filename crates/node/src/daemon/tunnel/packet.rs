//! What a tunnel reads of an IP packet and what it may change in it: addresses, ports, DSCP, ECN, the maximum segment size of TCP.
//!
//! Packets come from this host's kernel and, out of the tunnel, from another node: nothing in them is trusted to be well-formed.

use bytes::{Bytes, BytesMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IANA protocol numbers.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// ICMPv6.
pub const ICMPV6: u8 = 58;

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// Extension headers that are looked through at most (RFC 8200 knows six).
const MAX_EXTENSIONS: usize = 8;

/// What an IP packet says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its sender.
    pub source: IpAddr,
    /// Its receiver.
    pub destination: IpAddr,
    /// Protocol above IP, extension headers passed over.
    pub protocol: u8,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// Source and destination port of TCP and UDP; 0 for others, and for all fragments, so that those of one packet stay together.
    pub ports: (u16, u16),
    /// Where the header of the upper protocol begins; `None` in fragments after the first.
    pub upper: Option<usize>,
    /// IPv4's "don't fragment"; always true for IPv6, which no router fragments.
    pub may_not_fragment: bool,
}

/// Whether it begins a TCP connection: SYN without ACK (RFC 9293 §3.1).
pub fn is_first_of_tcp(packet: &[u8], header: &Header) -> bool {
    const FLAGS: usize = 13;
    let [fin, syn, rst, ack] = [1, 2, 4, 16];
    let flags = header.upper.filter(|_| header.protocol == TCP).and_then(|upper| packet.get(upper + FLAGS));
    flags.is_some_and(|flags| flags & (fin | syn | rst | ack) == syn)
}

impl Header {
    /// Reads a packet; `None` if it is not a whole IPv4 or IPv6 packet.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let length = usize::from(packet[0] & 15) * 4;
        let total = usize::from(word(packet, 2)?);
        if length < V4_HEADER || total < length || packet.len() != total {
            return None;
        }
        let fragment = word(packet, 6)?;
        let (is_fragment, is_first) = (fragment & 0x3fff != 0, fragment & 0x1fff == 0);
        let protocol = packet[9];
        Some(Self {
            source: Ipv4Addr::from(<[u8; 4]>::try_from(&packet[12..16]).ok()?).into(),
            destination: Ipv4Addr::from(<[u8; 4]>::try_from(&packet[16..20]).ok()?).into(),
            protocol,
            dscp: packet[1] >> 2,
            ports: if is_fragment { (0, 0) } else { ports(packet, protocol, length) },
            upper: is_first.then_some(length),
            may_not_fragment: fragment & 0x4000 != 0,
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        if packet.len() < V6_HEADER || packet.len() != V6_HEADER + usize::from(word(packet, 4)?) {
            return None;
        }
        let (mut protocol, mut at) = (packet[6], V6_HEADER);
        let (mut is_fragment, mut is_first) = (false, true);
        for _ in 0..MAX_EXTENSIONS {
            // RFC 8200 §4: hop-by-hop, routing, destination options; fragment has a fixed length.
            match protocol {
                0 | 43 | 60 => {
                    let (next, units) = (*packet.get(at)?, *packet.get(at + 1)?);
                    (protocol, at) = (next, at + 8 + usize::from(units) * 8);
                }
                44 => {
                    is_fragment = true;
                    is_first = word(packet, at + 2)? & 0xfff8 == 0;
                    (protocol, at) = (*packet.get(at)?, at + 8);
                    if !is_first {
                        break;
                    }
                }
                _ => break,
            }
        }
        Some(Self {
            source: Ipv6Addr::from(<[u8; 16]>::try_from(&packet[8..24]).ok()?).into(),
            destination: Ipv6Addr::from(<[u8; 16]>::try_from(&packet[24..40]).ok()?).into(),
            protocol,
            dscp: (word(packet, 0)? >> 6) as u8 & 63,
            ports: if is_fragment { (0, 0) } else { ports(packet, protocol, at) },
            upper: is_first.then_some(at),
            may_not_fragment: true,
        })
    }
}

/// Two bytes at `at`, in network order.
fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

fn ports(packet: &[u8], protocol: u8, at: usize) -> (u16, u16) {
    match protocol {
        TCP | UDP => (word(packet, at).unwrap_or(0), word(packet, at + 2).unwrap_or(0)),
        _ => (0, 0),
    }
}

/// Marks a packet as having met congestion, if its ends understand that (RFC 3168 §5); false if they do not and it must be dropped instead.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= V4_HEADER => {
            if packet[1] & 3 == 0 {
                return false;
            }
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            amend_checksum(packet, 10, old, new);
            true
        }
        Some(6) if packet.len() >= V6_HEADER => {
            if packet[1] & 0x30 == 0 {
                return false;
            }
            packet[1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// Lowers the maximum segment size that a TCP SYN announces to what passes a tunnel of `mtu` bytes; true if it was higher. Routers do the same
/// (RFC 4459 §3.2 speaks of it): path MTU discovery fails too often where ICMP is filtered.
pub fn clamp_segment_size(packet: &mut [u8], header: &Header, mtu: u16) -> bool {
    const SYN: u8 = 2;
    let Some(at) = header.upper.filter(|_| header.protocol == TCP) else { return false };
    let headers = if header.source.is_ipv4() { V4_HEADER } else { V6_HEADER } as u16 + 20;
    let Some(limit) = mtu.checked_sub(headers) else { return false };
    let (Some(&offset), Some(&flags)) = (packet.get(at + 12), packet.get(at + 13)) else { return false };
    let end = (at + usize::from(offset >> 4) * 4).min(packet.len());
    if flags & SYN == 0 {
        return false;
    }
    let mut option = at + 20;
    while option < end {
        match packet[option] {
            0 => return false,
            1 => option += 1,
            kind => {
                let Some(length) = packet.get(option + 1).map(|l| usize::from(*l)).filter(|l| *l >= 2) else { return false };
                // RFC 9293 §3.2: kind 2, length 4.
                if kind == 2 && length == 4 && option + 4 <= end {
                    let Some(old) = word(packet, option + 2) else { return false };
                    if old <= limit {
                        return false;
                    }
                    packet[option + 2..option + 4].copy_from_slice(&limit.to_be_bytes());
                    // An option may begin at an odd offset: then its bytes are swapped in the sum.
                    let swap = |v: u16| if (option - at) % 2 == 0 { v } else { v.swap_bytes() };
                    amend_checksum(packet, at + 16, swap(old), swap(limit));
                    return true;
                }
                option += length;
            }
        }
    }
    false
}

/// The packet with its segment size clamped; a copy only of the SYNs in which that changes something.
pub fn clamped(packet: Bytes, header: &Header, mtu: u16) -> Bytes {
    const SYN: u8 = 2;
    let is_syn = header.upper.and_then(|at| packet.get(at + 13)).is_some_and(|flags| flags & SYN != 0);
    if !is_syn {
        return packet;
    }
    let mut copy = BytesMut::from(&packet[..]);
    if clamp_segment_size(&mut copy, header, mtu) { copy.freeze() } else { packet }
}

/// RFC 1624 §3: HC' = ~(~HC + ~m + m').
fn amend_checksum(packet: &mut [u8], at: usize, old: u16, new: u16) {
    let Some(checksum) = word(packet, at) else { return };
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// The Internet checksum (RFC 1071) over parts that are joined, each of even length except the last.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = 0;
    for part in parts {
        let (pairs, rest) = part.as_chunks::<2>();
        sum += pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>();
        sum += rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
pub mod samples {
    //! Packets as a kernel would make them.
    use super::*;

    /// An IPv4 packet with this protocol and body.
    pub fn v4(protocol: u8, tos: u8, body: &[u8]) -> Vec<u8> {
        let total = (20 + body.len()) as u16;
        let mut packet = vec![0x45, tos, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = checksum(&[&packet]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(body);
        packet
    }

    /// An IPv6 packet with this next header, traffic class and body.
    pub fn v6(next: u8, class: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60 | class >> 4, class << 4 | 0x0a, 0xbb, 0xcc];
        packet.extend_from_slice(&(body.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[next, 64]);
        packet.extend_from_slice(&"fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(&"fd00::2".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(body);
        packet
    }

    /// UDP from port 1000 to 2000.
    pub fn udp(payload: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 232, 7, 208];
        body.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(payload);
        body
    }

    /// A TCP SYN with these options, with a right checksum, in an IPv4 packet.
    pub fn syn_v4(options: &[u8]) -> Vec<u8> {
        let mut segment = vec![3, 232, 7, 208, 0, 0, 0, 9, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0];
        segment.extend_from_slice(options);
        segment[12] = ((segment.len() / 4) as u8) << 4;
        let sum = tcp_sum_v4(&segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        v4(TCP, 0, &segment)
    }

    /// What the checksum of a TCP segment between the sample addresses should complete to; 0 if it is right.
    pub fn tcp_sum_v4(segment: &[u8]) -> u16 {
        let pseudo = [&[10, 9, 0, 1, 10, 9, 0, 2, 0, TCP][..], &(segment.len() as u16).to_be_bytes()].concat();
        checksum(&[&pseudo, segment])
    }
}

#[cfg(test)]
mod tests {
    use super::samples::*;
    use super::*;

    #[test]
    fn both_versions_show_addresses_ports_and_class() {
        for packet in [v4(UDP, 0xb8, &udp(b"hello")), v6(UDP, 0xb8, &udp(b"hello"))] {
            let header = Header::parse(&packet).expect("a packet");
            assert_eq!((header.protocol, header.dscp, header.ports), (UDP, 46, (1000, 2000)));
            assert_eq!(header.upper, Some(packet.len() - 13));
            assert!(header.may_not_fragment);
        }
    }

    #[test]
    fn fragments_of_one_packet_have_the_same_key_and_extension_headers_are_passed_over() {
        let mut first = v4(UDP, 0, &udp(&[0; 64]));
        first[6] = 0x20;
        let mut second = first.clone();
        second[7] = 9;
        let keys = [&first, &second].map(|p| Header::parse(p).map(|h| (h.protocol, h.ports)).unwrap());
        assert_eq!(keys, [(UDP, (0, 0)); 2]);
        assert_eq!(Header::parse(&second).unwrap().upper, None);
        // Hop-by-hop, then destination options, then UDP.
        let body = [&[60, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 0, 0, 0, 0, 0][..], &udp(b"x")].concat();
        let header = Header::parse(&v6(0, 0, &body)).unwrap();
        assert_eq!((header.protocol, header.ports, header.upper), (UDP, (1000, 2000), Some(56)));
        let fragment = [&[UDP, 0, 0, 9, 0, 0, 0, 1][..], &udp(b"x")].concat();
        let header = Header::parse(&v6(44, 0, &fragment)).unwrap();
        assert_eq!((header.protocol, header.ports, header.upper), (UDP, (0, 0), None));
    }

    #[test]
    fn scraps_and_lies_about_length_are_no_packets_and_never_panic() {
        for packet in [v4(TCP, 0, &[0; 40]), v6(0, 0, &[0xff; 40]), v6(44, 0, &[0; 6])] {
            for length in 0..packet.len() {
                assert_eq!(Header::parse(&packet[..length]), None, "{length}");
                let mut scrap = packet[..length].to_vec();
                mark_congestion(&mut scrap);
            }
        }
        for first in 0..=255u8 {
            let noise = vec![first; 64];
            if let Some(header) = Header::parse(&noise) {
                clamp_segment_size(&mut noise.clone(), &header, 1300);
            }
        }
    }

    #[test]
    fn congestion_is_marked_only_where_the_ends_understand_it_and_the_checksum_stays_right() {
        let mut deaf = v4(UDP, 0xb8, &udp(b""));
        assert!(!mark_congestion(&mut deaf));
        for ecn in [1, 2, 3] {
            let mut packet = v4(UDP, 0xb8 | ecn, &udp(b""));
            assert!(mark_congestion(&mut packet));
            assert_eq!((packet[1], checksum(&[&packet[..20]])), (0xbb, 0));
            let mut packet = v6(UDP, 0xb8 | ecn, &udp(b""));
            assert!(mark_congestion(&mut packet));
            assert_eq!((packet[1] & 0x30, packet[1] & 0x0f, packet[0]), (0x30, 0x0a, 0x6b));
        }
        assert!(!mark_congestion(&mut v6(UDP, 0xb8, &udp(b""))));
    }

    #[test]
    fn segment_sizes_are_lowered_never_raised_wherever_the_option_stands() {
        for (options, clamped) in [
            (&[2, 4, 0x05, 0xb4][..], true),
            (&[1, 2, 4, 0x05, 0xb4, 0, 0, 0], true),
            (&[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0x05, 0xb4, 0, 0], true),
            (&[2, 4, 0x02, 0x00], false),
            (&[0, 2, 4, 0x05], false),
            (&[], false),
        ] {
            let mut packet = syn_v4(options);
            let header = Header::parse(&packet).unwrap();
            assert_eq!(clamp_segment_size(&mut packet, &header, 1300), clamped, "{options:?}");
            assert_eq!(tcp_sum_v4(&packet[20..]), 0, "{options:?}");
            assert_eq!(packet.windows(2).any(|w| w == 1260u16.to_be_bytes()), clamped);
            assert_eq!(super::clamped(syn_v4(options).into(), &header, 1300), packet);
        }
        // Not a SYN: the bytes mean nothing.
        let mut packet = syn_v4(&[2, 4, 0x05, 0xb4]);
        packet[33] = 0x10;
        let header = Header::parse(&packet).unwrap();
        assert!(!clamp_segment_size(&mut packet, &header, 1300));
        // An option that lies about its length leads nowhere.
        let mut packet = syn_v4(&[9, 0, 2, 4]);
        let header = Header::parse(&packet).unwrap();
        assert!(!clamp_segment_size(&mut packet, &header, 1300));
    }
}
