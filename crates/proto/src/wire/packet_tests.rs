//! Laws of packet headers and transport parameters, and the header budget of P6.

use super::WireError;
use super::coded;
use super::frame::Coefficients;
use super::packet::{
    ConnectionId, HandshakeBody, HandshakePacket, Packet, Pattern, ProtectedHeader, TAG_LEN, VERSION, emit_version_list, label_word,
};
use super::params::{Cipher, Params};
use super::varint;
use crate::ids::{FlowLabel, Seq};
use crate::units::Duration;
use proptest::prelude::*;
use smallvec::SmallVec;

fn id() -> impl Strategy<Value = ConnectionId> {
    proptest::collection::vec(any::<u8>(), 4..9).prop_map(|v| ConnectionId::new(&v).unwrap())
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (0usize..4).prop_map(|i| [Pattern::Ik, Pattern::Xx, Pattern::IkPsk2, Pattern::XxPsk3][i])
}

fn body() -> impl Strategy<Value = HandshakeBody<'static>> {
    // Leaked: a few kilobytes per run, so that packets can borrow.
    let bytes = |range| proptest::collection::vec(any::<u8>(), range).prop_map(|v| &*v.leak());
    prop_oneof![
        (pattern(), any::<[u8; 16]>(), bytes(0..129), bytes(0..600)).prop_map(|(pattern, mac1, token, message)| HandshakeBody::Initiate {
            pattern,
            mac1,
            token,
            message
        }),
        bytes(0..600).prop_map(HandshakeBody::Respond),
        bytes(0..600).prop_map(HandshakeBody::Finish),
        bytes(1..129).prop_map(|token| HandshakeBody::Retry { token }),
    ]
}

proptest! {
    #[test]
    fn handshake_packets_that_are_emitted_are_parsed(destination in id(), source in id(), body in body(), padding in 0usize..100) {
        let packet = HandshakePacket { version: VERSION, destination, source, body };
        let mut datagram = Vec::new();
        packet.emit(&mut datagram);
        let len = datagram.len();
        datagram.resize(len + padding, 0);
        prop_assert_eq!(label_word(&datagram), packet.destination.as_bytes().first_chunk().map(|word| u32::from_be_bytes(*word)));
        prop_assert_eq!(Packet::parse(&datagram, 4), Ok(Packet::Handshake(packet, len)));
        for cut in 0..len {
            prop_assert!(Packet::parse(&datagram[..cut], 4).is_err());
        }
    }

    #[test]
    fn protected_headers_that_are_emitted_are_parsed(generation in 0u8..4, connection_id in id(), packet_number in any::<u32>()) {
        let header = ProtectedHeader { generation, connection_id, packet_number };
        let cid_len = header.connection_id.as_bytes().len();
        let mut packet = Vec::new();
        header.emit(&mut packet);
        prop_assert_eq!(label_word(&packet), header.connection_id.as_bytes().first_chunk().map(|word| u32::from_be_bytes(*word)));
        prop_assert_eq!(packet.len(), header.encoded_len());
        packet.resize(packet.len() + TAG_LEN, 0);
        prop_assert_eq!(Packet::parse(&packet, cid_len), Err(WireError::Truncated));
        packet.push(0);
        prop_assert_eq!(Packet::parse(&packet, cid_len), Ok(Packet::Protected(header)));
        for bit in 0..4 {
            packet[0] |= 1 << bit;
            prop_assert!(Packet::parse(&packet, cid_len).is_err());
            packet[0] &= 0xf0;
        }
    }

    #[test]
    fn arbitrary_datagrams_never_panic(mut datagram in proptest::collection::vec(any::<u8>(), 0..300), cid_len in 0usize..12, form in 0u8..4) {
        if let Some(first) = datagram.first_mut() {
            *first = form << 6 | (*first & 0x30);
        }
        if datagram.len() > 4 && form == 2 {
            datagram[1..5].copy_from_slice(&VERSION.to_be_bytes());
        }
        if let Ok(packet) = Packet::parse(&datagram, cid_len) {
            let _ = packet.to_string();
        }
    }

    #[test]
    fn parameters_that_are_emitted_are_parsed(
        ids in proptest::collection::vec(id(), 0..8),
        versions in proptest::collection::vec(any::<u32>(), 0..16),
        ciphers in 0usize..4,
        numbers in (0u64..1 << 40, 800u16.., 0u64..=1_000_000, 1u64..=varint::MAX),
        more in (0..=varint::MAX, 0..=varint::MAX, 0..=varint::MAX, 10u8..=22),
        plaintext in any::<bool>(),
        answered_size in any::<Option<u16>>(),
        restart_epoch in proptest::option::of(0..=varint::MAX),
        grease in any::<u8>(),
    ) {
        let params = Params {
            connection_ids: ids.into_iter().collect(),
            versions: versions.into_iter().collect(),
            ciphers: [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm][..ciphers].iter().copied().collect(),
            idle_timeout: Duration::from_millis(numbers.0),
            max_datagram: numbers.1,
            max_ack_delay: Duration::from_micros(numbers.2),
            ack_every: numbers.3,
            initial_credit: more.0,
            max_message: more.1,
            max_flows: more.2,
            epoch_log2: more.3,
            plaintext,
            answered_size,
            restart_epoch,
        };
        let mut out = Vec::new();
        params.emit(&mut out, grease);
        prop_assert_eq!(Params::parse(&out), Ok(params));
    }

    #[test]
    fn arbitrary_parameters_never_panic(bytes in proptest::collection::vec(0u8..40, 0..100)) {
        if let Ok(params) = Params::parse(&bytes) {
            let mut out = Vec::new();
            params.emit(&mut out, 0);
            prop_assert_eq!(Params::parse(&out), Ok(params));
        }
    }
}

#[test]
fn absent_parameters_have_their_defaults_and_unknown_ones_are_ignored() {
    assert_eq!(Params::parse(&[]), Ok(Params::default()));
    assert_eq!(Params::parse(&[27, 2, 1, 2, 0x3f, 0]), Ok(Params::default()));
    let ciphers: SmallVec<[Cipher; 4]> = [Cipher::ChaCha20Poly1305].into_iter().collect();
    // Cipher 200 is of a later version.
    assert_eq!(Params::parse(&[3, 2, 200, 3]), Ok(Params { ciphers, ..Params::default() }));
}

#[test]
fn impossible_parameters_are_refused() {
    let cases: &[(&str, &[u8])] = &[
        ("given twice", &[4, 1, 1, 4, 1, 1]),
        ("no value", &[4, 0]),
        ("more than a value", &[4, 2, 1, 1]),
        ("datagram below 800", &[5, 2, 0x43, 0x1f]),
        ("acknowledgements later than a second", &[6, 4, 0x80, 0x0f, 0x42, 0x41]),
        ("an acknowledgement per 0 packets", &[7, 1, 0]),
        ("epochs of 512 packets", &[11, 1, 9]),
        ("epochs of 2^23 packets", &[11, 1, 23]),
        ("a connection id of three bytes", &[1, 3, 1, 2, 3]),
        ("half a version", &[2, 2, 0, 1]),
    ];
    for (what, bytes) in cases {
        assert!(matches!(Params::parse(bytes), Err(WireError::Invalid(_))), "{what}");
    }
    assert_eq!(Params::parse(&[4, 2, 1]), Err(WireError::Truncated));
}

#[test]
fn an_unknown_version_is_recognised_and_answered_with_the_list() {
    let (destination, source) = (ConnectionId::new(&[1; 8]).unwrap(), ConnectionId::new(&[2; 4]).unwrap());
    let mut datagram = Vec::new();
    let body = HandshakeBody::Initiate { pattern: Pattern::Xx, mac1: [0; 16], token: b"", message: b"anything" };
    HandshakePacket { version: 0x6e6f_6339, destination: destination.clone(), source: source.clone(), body }.emit(&mut datagram);
    // Beyond the ids nothing is known of another version.
    datagram.truncate(1 + 4 + 9 + 5);
    datagram.extend_from_slice(&[0xff; 9]);
    let Ok(Packet::Handshake(packet, len)) = Packet::parse(&datagram, 4) else { panic!() };
    assert_eq!((&packet.body, len), (&HandshakeBody::OtherVersion, datagram.len()));
    let mut answer = Vec::new();
    emit_version_list(&mut answer, &packet.destination, &packet.source);
    let list =
        HandshakePacket { version: 0, destination: source, source: destination, body: HandshakeBody::VersionList(&VERSION.to_be_bytes()) };
    assert_eq!(Packet::parse(&answer, 4), Ok(Packet::Handshake(list, answer.len())));
    assert!(answer.len() <= datagram.len() + 4, "no amplification worth the name");
}

#[test]
fn the_prologue_covers_all_that_can_be_seen() {
    let packet = |version, destination, source, pattern, token| {
        let id = |b: u8| ConnectionId::new(&[b; 4]).unwrap();
        let body = HandshakeBody::Initiate { pattern, mac1: [0; 16], token, message: b"" };
        HandshakePacket { version, destination: id(destination), source: id(source), body }.prologue().unwrap()
    };
    let reference = packet(VERSION, 1, 2, Pattern::Ik, b"");
    for other in [
        packet(VERSION + 1, 1, 2, Pattern::Ik, b""),
        packet(VERSION, 3, 2, Pattern::Ik, b""),
        packet(VERSION, 1, 3, Pattern::Ik, b""),
        packet(VERSION, 1, 2, Pattern::Xx, b""),
        packet(VERSION, 1, 2, Pattern::Ik, b"t"),
    ] {
        assert_ne!(reference, other);
    }
}

/// P6: bytes above UDP that are not application data, in a packet with one CODED frame of a bulk flow.
fn overhead(flow: u64, base: u64, n: u8, coefficients: &Coefficients<'_>, session_tag: usize) -> usize {
    const CONNECTION_ID: usize = 4;
    const SYMBOL_LENGTH: usize = 2;
    let packet = ProtectedHeader::len_with(CONNECTION_ID) + TAG_LEN;
    packet + coded::header_len(FlowLabel(flow), Seq(base), n, coefficients) + SYMBOL_LENGTH + session_tag
}

#[test]
fn headers_stay_within_their_budget() {
    // The session's own framing of bytes and messages has to fit into the rest.
    const FRAMING: usize = 4;
    let index = Coefficients::Index(15);
    let vector = [1; 16];
    let vector = Coefficients::Vector(&vector);
    // Flows 0..=63 and the first 2^30 source packets (1.5 TB): CODED takes 8 bytes before the symbol in index form.
    assert_eq!(coded::header_len(FlowLabel(63), Seq((1 << 30) - 1), 16, &index), 8);
    assert_eq!(overhead(63, (1 << 30) - 1, 16, &index, 0), 35);
    const SEALED: usize = crate::crypto::SESSION_OVERHEAD;
    assert_eq!(overhead(63, (1 << 30) - 1, 16, &vector, SEALED), 74);
    // P6 beyond that too.
    assert!(overhead(63, varint::MAX, 16, &index, 0) + FRAMING - 2 <= 41);
    assert!(overhead(63, (1 << 30) - 1, 16, &index, 0) + FRAMING <= 41);
    assert!(overhead((1 << 14) - 1, varint::MAX, 16, &vector, SEALED) + FRAMING <= 77 + 8);
}
