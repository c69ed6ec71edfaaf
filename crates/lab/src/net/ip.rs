//! The ECN field of real IP packets, for links that mark (RFC 3168), and what of the kernel's own chatter to keep off.

use crate::link::Ecn;

/// ECN field of an IPv4 or IPv6 packet; `NotEct` for anything else.
pub fn ecn(packet: &[u8]) -> Ecn {
    let bits = match (packet.first().map(|byte| byte >> 4), packet.get(1)) {
        (Some(4), Some(tos)) => tos & 3,
        (Some(6), Some(class_and_label)) => (class_and_label >> 4) & 3,
        _ => 0,
    };
    match bits {
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        3 => Ecn::Ce,
        _ => Ecn::NotEct,
    }
}

/// Sets Congestion Experienced and, for IPv4, makes the header checksum right again (RFC 1624).
pub fn mark_congestion_experienced(packet: &mut [u8]) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            // RFC 1624 §3: HC' = ~(~HC + ~m + m').
            let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        Some(6) if packet.len() >= 40 => packet[1] |= 3 << 4,
        _ => {}
    }
}

/// A number for the 5-tuple of a packet, to tell flows apart; of an IPv6 packet with extension headers, addresses and protocol only.
pub fn flow(packet: &[u8]) -> u64 {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let (addresses, protocol, ports_at) = match packet.first().map(|byte| byte >> 4) {
        Some(4) => (12..20, 9, usize::from(packet[0] & 15) * 4),
        Some(6) => (8..40, 6, 40),
        _ => return 0,
    };
    let protocol = packet.get(protocol).copied().unwrap_or(0);
    // Fragments after the first have no ports; the link carries none of ours.
    let ports = packet.get(ports_at..ports_at + 4).filter(|_| matches!(protocol, TCP | UDP)).unwrap_or_default();
    let bytes = packet.get(addresses).unwrap_or_default().iter().chain(ports).chain(std::iter::once(&protocol));
    // FNV-1a, 64 bits (draft-eastlake-fnv).
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// IPv6 multicast: listener reports and the like, which the kernel sends by itself when a device comes up.
pub fn is_link_chatter(packet: &[u8]) -> bool {
    packet.first().is_some_and(|byte| byte >> 4 == 6) && packet.get(24) == Some(&0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_flow_is_its_addresses_ports_and_protocol_and_nothing_else() {
        let packet = |changes: &[(usize, u8)]| {
            let mut packet = [0u8; 60];
            (packet[0], packet[9]) = (0x45, 17);
            for &(at, byte) in changes {
                packet[at] = byte;
            }
            flow(&packet)
        };
        let first = packet(&[]);
        for at in [9, 12, 19, 20, 23] {
            assert_ne!(packet(&[(at, 9)]), first, "byte {at}");
        }
        for at in [1, 2, 5, 8, 10, 24, 40] {
            assert_eq!(packet(&[(at, 9)]), first, "byte {at}");
        }
        for length in 0..60 {
            flow(&[0x4f; 60][..length]);
            flow(&[0x60; 60][..length]);
        }
    }

    #[test]
    fn marking_keeps_the_ipv4_checksum_right() {
        for tos in [1u8, 2, 0xb8 | 2, 0xfc | 1] {
            let mut packet = [0u8; 20];
            packet[0] = 0x45;
            packet[1] = tos;
            packet[8] = 64;
            packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            mark_congestion_experienced(&mut packet);
            assert_eq!(ecn(&packet), Ecn::Ce);
            assert_eq!(packet[1] & 0xfc, tos & 0xfc);
            assert_eq!(checksum(&packet), 0);
        }
    }

    #[test]
    fn ipv6_keeps_its_flow_label_when_marked() {
        let mut packet = [0u8; 40];
        packet[0] = 0x60;
        packet[1] = 0x2f;
        assert_eq!(ecn(&packet), Ecn::Ect0);
        mark_congestion_experienced(&mut packet);
        assert_eq!(ecn(&packet), Ecn::Ce);
        assert_eq!(packet[1], 0x3f);
        packet[24] = 0xff;
        assert!(is_link_chatter(&packet));
    }

    #[test]
    fn scraps_are_neither_read_nor_marked() {
        for length in 0..20 {
            let mut packet = vec![0x45u8; length];
            let before = packet.clone();
            ecn(&packet);
            mark_congestion_experienced(&mut packet);
            assert_eq!(packet, before);
        }
    }
}
