//! What the tunnel tells the senders of packets that it cannot carry: too big, or nobody there (RFC 792, RFC 1191, RFC 4443).

use super::packet::{self, Header};
use std::net::IpAddr;

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is larger than so many bytes, which is what the tunnel takes.
    TooBig(u16),
    /// No node of the overlay has this destination, or it cannot be reached now.
    Unreachable,
}

/// RFC 1812 §4.3.2.3: as much of the packet as fits into 576 bytes.
const QUOTE_V4: usize = 576 - 28;
/// RFC 4443 §2.4: as much as fits into the minimum MTU.
const QUOTE_V6: usize = 1280 - 48;

/// The message for the sender of `refused`, as if it came from `from`; `None` where none may be sent: about ICMP errors, about fragments after the
/// first, to addresses that are not one host's, and without an address of the same family to speak from.
pub fn message(refused: &[u8], header: &Header, refusal: Refusal, from: IpAddr) -> Option<Vec<u8>> {
    let upper = header.upper?;
    if !is_one_host(header.source) {
        return None;
    }
    match (from, header.source, header.destination) {
        (IpAddr::V4(from), IpAddr::V4(to), IpAddr::V4(destination)) => {
            // RFC 1122 §3.2.2: no errors about errors, nor about multicast and broadcast.
            let is_error = header.protocol == packet::ICMP && refused.get(upper).is_none_or(|kind| !matches!(kind, 0 | 8 | 13..=18));
            if is_error || destination.is_multicast() || destination.is_broadcast() {
                return None;
            }
            let quote = &refused[..refused.len().min(QUOTE_V4)];
            let rest = match refusal {
                Refusal::TooBig(mtu) => [3, 4, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8],
                Refusal::Unreachable => [3, 1, 0, 0, 0, 0, 0, 0],
            };
            let total = (20 + 8 + quote.len()) as u16;
            let mut out = vec![0x45, 0xc0, 0, 0, 0, 0, 0, 0, 64, packet::ICMP, 0, 0];
            out[2..4].copy_from_slice(&total.to_be_bytes());
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
            let sum = packet::checksum(&[&out]);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            let sum = packet::checksum(&[&rest, quote]);
            out.extend_from_slice(&rest);
            out[22..24].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(quote);
            Some(out)
        }
        (IpAddr::V6(from), IpAddr::V6(to), IpAddr::V6(destination)) => {
            let is_error = header.protocol == packet::ICMPV6 && refused.get(upper).is_none_or(|kind| kind & 0x80 == 0);
            // RFC 4443 §2.4 (e): too big is told even about multicast.
            if is_error || (destination.is_multicast() && refusal == Refusal::Unreachable) {
                return None;
            }
            let quote = &refused[..refused.len().min(QUOTE_V6)];
            let rest = match refusal {
                Refusal::TooBig(mtu) => [2, 0, 0, 0, 0, 0, (mtu >> 8) as u8, mtu as u8],
                Refusal::Unreachable => [1, 0, 0, 0, 0, 0, 0, 0],
            };
            let length = (8 + quote.len()) as u16;
            let mut out = vec![0x60, 0, 0, 0, 0, 0, packet::ICMPV6, 64];
            out[4..6].copy_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
            let sum = packet::checksum(&[&out[8..40], &u32::from(length).to_be_bytes(), &[0, 0, 0, packet::ICMPV6], &rest, quote]);
            out.extend_from_slice(&rest);
            out[42..44].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(quote);
            Some(out)
        }
        _ => None,
    }
}

fn is_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || v4.is_loopback()),
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast() || v6.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::samples::*;
    use super::*;

    fn refuse(packet: &[u8], refusal: Refusal) -> Option<Vec<u8>> {
        let header = Header::parse(packet).expect("a packet");
        let from = if header.source.is_ipv4() { "10.9.0.9" } else { "fd00::9" };
        message(packet, &header, refusal, from.parse().unwrap())
    }

    #[test]
    fn too_big_names_the_mtu_quotes_the_packet_and_has_right_checksums() {
        let answer = refuse(&v4(packet::UDP, 0, &udp(&[7; 1400])), Refusal::TooBig(1300)).expect("an answer");
        let header = Header::parse(&answer).expect("a packet");
        assert_eq!((header.protocol, header.destination.to_string()), (packet::ICMP, "10.9.0.1".to_owned()));
        assert_eq!((packet::checksum(&[&answer[..20]]), packet::checksum(&[&answer[20..]])), (0, 0));
        assert_eq!((answer[20], answer[21], u16::from_be_bytes([answer[26], answer[27]]), answer.len()), (3, 4, 1300, 576));

        let answer = refuse(&v6(packet::UDP, 0, &udp(&[7; 1400])), Refusal::TooBig(1300)).expect("an answer");
        let header = Header::parse(&answer).expect("a packet");
        assert_eq!((header.protocol, header.destination.to_string()), (packet::ICMPV6, "fd00::1".to_owned()));
        let length = (answer.len() - 40) as u32;
        assert_eq!(packet::checksum(&[&answer[8..40], &length.to_be_bytes(), &[0, 0, 0, packet::ICMPV6], &answer[40..]]), 0);
        assert_eq!((answer[40], u32::from_be_bytes(answer[44..48].try_into().unwrap()), answer.len()), (2, 1300, 1280));
    }

    #[test]
    fn nothing_is_said_about_errors_and_to_groups() {
        let error = v4(packet::ICMP, 0, &[3, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(refuse(&error, Refusal::Unreachable), None);
        let echo = v4(packet::ICMP, 0, &[8, 0, 0, 0, 0, 0, 0, 0]);
        assert!(refuse(&echo, Refusal::Unreachable).is_some());
        assert_eq!(refuse(&v6(packet::ICMPV6, 0, &[1, 0, 0, 0, 0, 0, 0, 0]), Refusal::Unreachable), None);
        let mut to_group = v4(packet::UDP, 0, &udp(b""));
        to_group[16] = 224;
        assert_eq!(refuse(&to_group, Refusal::Unreachable), None);
        let mut from_nobody = v4(packet::UDP, 0, &udp(b""));
        from_nobody[12..16].fill(0);
        assert_eq!(refuse(&from_nobody, Refusal::Unreachable), None);
    }
}
