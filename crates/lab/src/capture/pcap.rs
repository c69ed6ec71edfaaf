//! A file of packets that tcpdump and Wireshark read: IP packets as they are, or the simulator's datagrams with the headers that they would have.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};

use noctule_proto::units::{Ecn, Time};

use super::bounded::{Bounded, Kept};

/// Times are in nanoseconds (draft-ietf-opsawg-pcap).
const MAGIC: u32 = 0xa1b2_3c4d;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u32 = 101;
const SNAP_LEN: u32 = 65_535;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// The file.
#[derive(Debug)]
pub struct Pcap<W: Write = BufWriter<File>> {
    out: Bounded<W>,
    packet: Vec<u8>,
}

impl<W: Write> Pcap<W> {
    /// Begins a capture of at most so many bytes.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(out: W, limit: u64) -> io::Result<Self> {
        let mut head = MAGIC.to_le_bytes().to_vec();
        head.extend_from_slice(&[2, 0, 4, 0]); // version 2.4
        head.extend_from_slice(&[0; 8]); // reserved
        head.extend_from_slice(&SNAP_LEN.to_le_bytes());
        head.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        Ok(Self { out: Bounded::new(out, limit, &head)?, packet: Vec::new() })
    }

    /// An IP packet was seen, so many nanoseconds after the beginning of the clock.
    pub fn record_packet(&mut self, nanos: u64, packet: &[u8]) {
        let whole = packet.len() as u32;
        let packet = &packet[..packet.len().min(SNAP_LEN as usize)];
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let mut head = [0; 16];
        for (slot, word) in head.chunks_exact_mut(4).zip([seconds as u32, nanos as u32, packet.len() as u32, whole]) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        self.out.put(&[&head, packet]);
    }

    /// A datagram was seen.
    pub fn record(&mut self, now: Time, from: SocketAddr, to: SocketAddr, ecn: Ecn, data: &[u8]) {
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        put_packet(&mut packet, from, to, ecn, data);
        self.record_packet(now.as_nanos(), &packet);
        self.packet = packet;
    }

    /// What was recorded is in the file from now on.
    pub fn flush(&mut self) {
        self.out.flush();
    }

    /// Everything is written; what the file of this name holds.
    ///
    /// # Errors
    /// Something was not written.
    pub fn finish(&mut self, file: &str) -> io::Result<Kept> {
        self.out.finish(file)
    }
}

/// IP and UDP headers and the datagram. Hosts of one run speak one version of IP.
fn put_packet(out: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, ecn: Ecn, data: &[u8]) {
    let ecn = match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    };
    let udp_len = (8 + data.len()) as u16;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            // RFC 791 §3.1; Don't Fragment is set, as on real sockets.
            out.extend_from_slice(&[0x45, ecn]);
            out.extend_from_slice(&(20 + udp_len).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, UDP, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
            let sum = checksum(sum_of(out));
            out[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (source, destination) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            // RFC 8200 §3.
            out.extend_from_slice(&[0x60, ecn << 4, 0, 0]);
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[UDP, HOP_LIMIT]);
            out.extend_from_slice(&six(source).octets());
            out.extend_from_slice(&six(destination).octets());
        }
    }
    let addresses = if out[0] == 0x45 { 12..20 } else { 8..40 };
    let pseudo = sum_of(&out[addresses]) + u32::from(UDP) + u32::from(udp_len);
    let start = out.len();
    for field in [from.port(), to.port(), udp_len, 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(data);
    // RFC 768: a checksum of zero is sent as all ones.
    let sum = match checksum(pseudo + sum_of(&out[start..])) {
        0 => 0xffff,
        sum => sum,
    };
    out[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
}

/// Sum of 16-bit words; a packet's fits 32 bits.
fn sum_of(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0))).sum()
}

/// RFC 1071.
fn checksum(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(from: &str, to: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut pcap = Pcap::new(&mut bytes, u64::MAX).unwrap();
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        pcap.record(Time::from_nanos(3_000_000_007), from, to, Ecn::Ect0, b"hello");
        pcap.finish("name").unwrap();
        bytes
    }

    #[test]
    fn a_packet_has_its_time_its_headers_and_sums_that_hold() {
        let bytes = capture("10.0.0.1:4242", "10.0.0.2:99");
        assert_eq!(bytes[..4], MAGIC.to_le_bytes());
        assert_eq!(bytes[20..24], 101u32.to_le_bytes());
        let record = &bytes[24..];
        assert_eq!((record[0], record[4], record[8]), (3, 7, 33));
        let packet = &record[16..];
        assert_eq!(packet.len(), 33);
        assert_eq!((packet[1], packet[9]), (2, UDP));
        assert_eq!(checksum(sum_of(&packet[..20])), 0, "a header with its own sum gives zero");
        assert_eq!(&packet[20..26], [0x10, 0x92, 0, 99, 0, 13]);
        assert_eq!(checksum(sum_of(&packet[12..20]) + 17 + 13 + sum_of(&packet[20..])), 0);
        assert_eq!(&packet[28..], b"hello");
    }

    #[test]
    fn ipv6_has_its_own_header() {
        let bytes = capture("[fd00::1]:1", "[fd00::2]:2");
        let packet = &bytes[40..];
        assert_eq!((packet[0] >> 4, packet.len(), packet[6]), (6, 53, UDP));
        assert_eq!(checksum(sum_of(&packet[8..40]) + 17 + 13 + sum_of(&packet[40..])), 0);
    }
}
