//! The test vectors of `docs/spec/vectors.txt`: a second implementation can check itself against them, and this one cannot change without notice.
//!
//! `NOCTULE_WRITE_VECTORS=1 cargo test -p noctule-proto vectors` writes the file anew.

use super::aead::PacketKey;
use super::mac1::Mac1;
use super::rekey::{OF_LINKS, Root, Secrets};
use super::session_keys::DirectionKeys;
use super::{Established, Initiator, PreSharedKeys, PublicKey, RawKey, Responder, ResponderStep, SealJob, SecretKey};
use crate::blind::{Announcement, Shape, StreamName};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{FlowLabel, PacketNumber, PathId, Seq, SessionKey};
use crate::options::{Class, FlowKind, Mode};
use crate::units::{Duration, Probability};
use crate::wire::ack::{self, AckHead, EcnCounts};
use crate::wire::coded;
use crate::wire::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Pattern, ProtectedHeader, TAG_LEN, VERSION, emit_version_list};
use crate::wire::params::{Cipher, Params};
use crate::wire::{Frames, varint};
use core::fmt::Write;
use noctule_codes::gf256::kernels;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::sync::Arc;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/vectors.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

struct Book(String);

impl Book {
    fn section(&mut self, title: &str) {
        let _ = write!(self.0, "\n[{title}]\n");
    }
    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        self.text(name, &hex(bytes));
    }
    fn text(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.0, "{name} = {text}");
    }
    fn frame(&mut self, name: &str, bytes: &[u8]) {
        let frame = Frames::new(bytes).next().unwrap().unwrap();
        let _ = writeln!(self.0, "# {frame}");
        self.bytes(name, bytes);
    }
}

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

pub(super) fn flow_open() -> FlowOpen {
    FlowOpen {
        session: SessionKey(0x0123_4567_89ab_cdef),
        index: 1,
        label: FlowLabel(3),
        symbol: 1437,
        mode: Mode::Btp,
        kind: FlowKind::UnorderedMessages,
        class: Class::Latency,
        lifetime: Some(Duration::from_millis(250)),
        batch_size: 16,
        hop_limit: 8,
        no_retransmit: Probability::new(0.999),
        answers: Some(2),
        bidirectional: true,
        tag: 77,
        relayed: None,
    }
}

/// That of the third part of a flow that takes several routes at once.
fn open_part() -> FlowOpen {
    let relayed = Relayed {
        destination: "10.9.0.3".parse().unwrap(),
        source: "10.9.0.1".parse().unwrap(),
        incarnation: 0,
        first: Seq(0),
        fits: 1300,
        part: 3,
        proof: None,
    };
    FlowOpen { relayed: Some(relayed), mode: Mode::Brtp, lifetime: None, ..flow_open() }
}

fn varints(book: &mut Book) {
    book.section("varint");
    for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, varint::MAX] {
        let mut out = Vec::new();
        varint::emit(&mut out, value);
        book.bytes(&value.to_string(), &out);
    }
}

fn frames(book: &mut Book) {
    book.section("frames");
    let flow = FlowLabel(5);
    let vector: Vec<u8> = (1..=16).collect();
    let coded = |n, coefficients| Frame::Coded(Coded { flow, base: Seq(4096), n, coefficients, symbol: &[0, 3, 0xaa, 0xbb, 0xcc] });
    let plain = [
        ("padding", Frame::Padding),
        ("ping", Frame::Ping),
        ("coded_length_index", coded(16, Coefficients::Index(7))),
        ("coded_length_seed", coded(16, Coefficients::Seed(300))),
        ("coded_length_bitmap", coded(12, Coefficients::BitmapSeed { bitmap: 0x0f05, seed: 2 })),
        ("coded_length_vector", coded(16, Coefficients::Vector(&vector))),
        ("flow_open", Frame::FlowOpen(flow_open())),
        (
            "flow_open_plain",
            Frame::FlowOpen(FlowOpen { lifetime: None, answers: None, bidirectional: false, mode: Mode::Brtp, ..flow_open() }),
        ),
        (
            "flow_open_relayed",
            Frame::FlowOpen(FlowOpen {
                answers: None,
                relayed: Some(Relayed {
                    destination: "10.9.0.3".parse().unwrap(),
                    source: "fd00::1".parse().unwrap(),
                    incarnation: 1,
                    first: Seq(4096),
                    fits: 1300,
                    part: 0,
                    proof: Some(*b"only its source "),
                }),
                ..flow_open()
            }),
        ),
        ("flow_open_part", Frame::FlowOpen(open_part())),
        ("flow_end", Frame::FlowEnd { flow, end: Seq(100_000) }),
        ("flow_refused", Frame::FlowRefused { flow, base: Seq(16), reason: Code::NoMemory as u64 }),
        ("flow_reset", Frame::FlowReset { flow, reason: Code::Reset as u64 }),
        ("flow_stop", Frame::FlowStop { flow, reason: Code::Stopped as u64 }),
        ("flow_skip", Frame::FlowSkip { flow, floor: Seq(48) }),
        ("rank", Frame::Rank { flow, base: Seq(32), n: 10, rank: 8, missing: 0x0201 }),
        ("credit", Frame::Credit { flow, limit: Seq(2048), done: Seq(1024) }),
        ("new_connection_id", Frame::NewConnectionId { path: PathId(1), sequence: 4, id: id(&[0xde, 0xad, 0xbe, 0xef]) }),
        ("retire_connection_id", Frame::RetireConnectionId { sequence: 4 }),
        ("path_challenge", Frame::PathChallenge(*b"question")),
        ("path_response", Frame::PathResponse(*b"question")),
        ("rekey", Frame::Rekey { generation: 1, step: 0, message: b"noise" }),
        ("fragment", Frame::Fragment { id: 9, index: 1, data: b"part" }),
        ("close", Frame::Close(CloseReason::local(Code::IdleTimeout, Layer::Link, "silence"))),
    ];
    for (name, frame) in plain {
        let mut out = Vec::new();
        frame.emit(&mut out);
        book.frame(name, &out);
    }
    let mut out = Vec::new();
    coded::emit_header(&mut out, flow, Seq(4096), 16, &Coefficients::Index(7));
    out.extend_from_slice(&[0, 3, 0xaa, 0xbb, 0xcc]);
    book.frame("coded", &out);

    // A run of 1000 without loss, then every third of 128 missing.
    let arrived = |pn: u64| (2000..3000).contains(&pn) || (1872..2000).contains(&pn) && !pn.is_multiple_of(3);
    let words = |i: u64| (0..64).fold(0, |w, j| w | u64::from(arrived(64 * i + j)) << j);
    let head = AckHead { path: PathId(1), largest: PacketNumber(2999), delay: Duration::from_micros(850), ecn: None };
    let mut out = Vec::new();
    assert_eq!(ack::emit(&mut out, &head, words, PacketNumber(1872), 100), Some(PacketNumber(1872)));
    book.frame("ack", &out);
    let head = AckHead { ecn: Some(EcnCounts { ect0: 1000, ect1: 0, ce: 7 }), ..head };
    let mut out = Vec::new();
    assert_eq!(ack::emit(&mut out, &head, words, PacketNumber(2990), 100), Some(PacketNumber(2990)));
    book.frame("ack_ecn", &out);
}

fn packets(book: &mut Book) {
    book.section("packets");
    let (destination, source) = (id(&[1, 2, 3, 4, 5, 6, 7, 8]), id(&[0xa0, 0xa1, 0xa2, 0xa3]));
    let mut out = Vec::new();
    ProtectedHeader { generation: 2, connection_id: source.clone(), packet_number: 0x0102_0304 }.emit(&mut out);
    book.bytes("protected_header", &out);
    let packet = |body| {
        let mut out = Vec::new();
        HandshakePacket { version: VERSION, destination: destination.clone(), source: source.clone(), body }.emit(&mut out);
        out
    };
    let initiate = |pattern| HandshakePacket {
        version: VERSION,
        destination: destination.clone(),
        source: source.clone(),
        body: HandshakeBody::Initiate { pattern, mac1: [0; 16], token: b"tok", message: b"noise" },
    };
    book.bytes("initiate", &packet(initiate(Pattern::Xx).body));
    book.bytes("initiate_prologue", &initiate(Pattern::Xx).prologue().unwrap());
    let responder = SecretKey::from_bytes([0x22; 32]).public();
    let mut pinned = initiate(Pattern::Ik);
    Mac1::new(&responder).sign(&mut pinned);
    book.bytes("responder_public", &responder.0);
    book.bytes("initiate_pinned", &packet(pinned.body));
    book.bytes("respond", &packet(HandshakeBody::Respond(b"noise")));
    book.bytes("finish", &packet(HandshakeBody::Finish(b"noise")));
    // A RETRY goes the other way: its ids are those of the INITIATE, swapped.
    let mut out = Vec::new();
    let body = HandshakeBody::Retry { token: b"tok" };
    HandshakePacket { version: VERSION, destination: source.clone(), source: destination.clone(), body }.emit(&mut out);
    book.bytes("retry", &out);
    let mut out = Vec::new();
    emit_version_list(&mut out, &destination, &source);
    book.bytes("version_list", &out);
    let params = Params {
        connection_ids: [source].into_iter().collect(),
        versions: [VERSION].into_iter().collect(),
        ciphers: [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305].into_iter().collect(),
        plaintext: true,
        answered_size: Some(1200),
        restart_epoch: Some(0x0123_4567),
        ..Params::default()
    };
    let mut out = Vec::new();
    params.emit(&mut out, 3);
    book.bytes("params_grease_3", &out);
}

fn identities(book: &mut Book) {
    book.section("identities");
    for secret in [SecretKey::from_bytes([0x11; 32]), SecretKey::from_bytes([0x22; 32])] {
        book.bytes("secret", secret.as_bytes());
        book.text("secret_text", &secret.to_text());
        book.bytes("public", &secret.public().0);
        book.text("public_text", &secret.public().to_string());
    }
}

fn announcement(book: &mut Book) {
    let [sender, receiver] = [[0x11; 32], [0x22; 32]].map(SecretKey::from_bytes);
    let shape = Shape::new(64, 16, 2, 1400).unwrap();
    let said = Announcement { stamp: 1_700_000_000_000_000, stream: StreamName(*b"name"), key: [0x55; 32], shape, block: 7, messages: 448 };
    book.section("announcement");
    book.bytes("sender_static", &[0x11; 32]);
    book.bytes("receiver_static", &[0x22; 32]);
    book.bytes("name", &said.stream.0);
    book.bytes("secret", &said.key);
    book.text("stamp, K, M, d, T, block, messages", "1700000000000000, 64, 16, 2, 1400, 7, 448");
    book.bytes("datagram", &said.seal(&sender, &receiver.public(), None, [0x33; 32]).unwrap());
}

fn packet_keys(book: &mut Book) {
    // The low half of the packet number stands in the header.
    let header = [0x60, 1, 2, 3, 4, 0, 0x50, 0, 9];
    for cipher in [Cipher::Plaintext, Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        book.section(&format!("packet protection {cipher:?}"));
        let secret = RawKey::new([0x77; 32]);
        let (path, epoch, number) = (PathId(2), 5, PacketNumber(5 << 20 | 9));
        let key = PacketKey::derive(&secret, cipher, path, epoch).unwrap();
        book.bytes("generation_secret", secret.as_bytes());
        book.text("path, epoch, packet number", &format!("{path}, {epoch}, {number}"));
        book.bytes("nonce", &key.nonce(path, number));
        book.bytes("header", &header);
        book.bytes("payload", b"noctule flies at dusk");
        let mut packet = [&header[..], b"noctule flies at dusk", &[0; TAG_LEN]].concat();
        SealJob { nonce: key.nonce(path, number), key: Arc::new(key) }.seal(&mut packet, header.len()).unwrap();
        book.bytes("packet", &packet);
    }
}

fn sessions(book: &mut Book) {
    let flows = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305].map(|cipher| (cipher, flow_open()));
    for (cipher, open) in flows.into_iter().chain([(Cipher::ChaCha20Poly1305, open_part())]) {
        let part = if open.part() > 0 { " part" } else { "" };
        book.section(&format!("session {cipher:?}{part}"));
        let secret = RawKey::new([0x66; 32]);
        book.bytes("direction_secret", secret.as_bytes());
        let mut out = Vec::new();
        Frame::FlowOpen(open.clone()).emit(&mut out);
        book.frame("flow_open", &out);
        let mut keys = DirectionKeys::new(secret, cipher).unwrap();
        if open.part() > 0 {
            book.bytes("opening_proof", &keys.opening_proof(&open));
        }
        let mut key = keys.flow(&open).unwrap();
        let mut mixed = Vec::new();
        let coefficients = [0x8e, 0x35];
        for (seq, plain) in [((1 << 20) - 1, &b"the last packet of an epoch"[..]), (1 << 20, b"the first of the next")] {
            let mut symbol = [&[0; 10], plain, &[0; TAG_LEN]].concat();
            key.seal(Seq(seq), &mut symbol).unwrap();
            book.text("sequence number", &seq.to_string());
            book.bytes("payload", plain);
            book.bytes("symbol", &symbol);
            mixed.resize(mixed.len().max(symbol.len()), 0);
            kernels().mul_add(&mut mixed[..symbol.len()], &symbol, coefficients[usize::from(seq == 1 << 20)]);
        }
        assert!(key.is_sound(Seq((1 << 20) - 1), &coefficients, &mixed));
        book.bytes("coefficients", &coefficients);
        book.bytes("combination", &mixed);
    }
}

/// The ephemeral secret that a handshake draws from a generator seeded with `seed`.
fn ephemeral(seed: [u8; 32], depth: usize) -> [u8; 32] {
    (0..=depth).fold(seed, |seed, _| {
        let mut out = [0; 32];
        ChaCha12Rng::from_seed(seed).fill_bytes(&mut out);
        out
    })
}

fn results(book: &mut Book, established: &Established) {
    book.bytes("hash", &established.hash);
    book.bytes("initiator_to_responder", established.send.as_bytes());
    book.bytes("responder_to_initiator", established.receive.as_bytes());
}

fn handshakes(book: &mut Book) {
    let (alice, bob) = (SecretKey::from_bytes([0x11; 32]), SecretKey::from_bytes([0x22; 32]));
    for (pattern, peer, psk) in [
        (Pattern::Ik, Some(bob.public()), None),
        (Pattern::Xx, None, None),
        (Pattern::IkPsk2, Some(bob.public()), Some([0x44; 32])),
        (Pattern::XxPsk3, None, Some([0x44; 32])),
    ] {
        book.section(&format!("handshake {pattern:?}"));
        let (seed_a, seed_b) = ([1; 32], [2; 32]);
        book.bytes("initiator_static", alice.as_bytes());
        book.bytes("responder_static", bob.as_bytes());
        let ephemeral_a = SecretKey::from_bytes(ephemeral(seed_a, 1));
        let ephemeral_b = SecretKey::from_bytes(ephemeral(seed_b, 2));
        book.bytes("initiator_ephemeral", ephemeral_a.as_bytes());
        book.bytes("responder_ephemeral", ephemeral_b.as_bytes());
        if let Some(psk) = psk {
            book.bytes("psk", &psk);
        }
        book.bytes("prologue", b"prologue");
        for (name, payload) in [("payload1", "one"), ("payload2", "two"), ("payload3", "three")] {
            book.bytes(name, payload.as_bytes());
        }
        let mut rng_a = ChaCha12Rng::from_seed(seed_a);
        let (mut initiator, first) = Initiator::start(&alice, peer, psk.as_ref(), b"prologue", b"one", &mut rng_a).unwrap();
        assert_eq!(PublicKey(*first.first_chunk().unwrap()), ephemeral_a.public());
        book.bytes("message1", &first);
        let reply = |_: Option<PublicKey>, _: &[u8]| Ok(b"two".to_vec());
        let step = Responder::respond(
            &bob,
            PreSharedKeys::one(psk.as_ref()),
            pattern,
            b"prologue",
            &first,
            reply,
            &mut ChaCha12Rng::from_seed(seed_b),
        )
        .unwrap();
        let (ResponderStep::Established { reply: second, .. } | ResponderStep::Waiting { reply: second, .. }) = step;
        assert_eq!(PublicKey(*second.first_chunk().unwrap()), ephemeral_b.public());
        book.bytes("message2", &second);
        let established = initiator.finish(&second, b"three").unwrap();
        if let Some(third) = &established.third_message {
            book.bytes("message3", third);
        }
        results(book, &established);
        if pattern == Pattern::Ik {
            rekey(book, &established, OF_LINKS, "");
            rekey(book, &established, b"noctule session rekey", " of a session");
        }
    }
}

fn rekey(book: &mut Book, established: &Established, label: &'static [u8], of: &str) {
    book.section(&format!("generation 1{of} after handshake Ik"));
    let root = Root::new(label, &established.send, &established.receive, established.hash).unwrap();
    book.bytes("psk", root.psk());
    book.bytes("initiator_ephemeral", &ephemeral([3; 32], 1));
    book.bytes("responder_ephemeral", &ephemeral([4; 32], 1));
    let (mut state, first) = root.start(1, &mut ChaCha12Rng::from_seed([3; 32])).unwrap();
    let (_, second) = root.answer(1, &first, &mut ChaCha12Rng::from_seed([4; 32])).unwrap();
    book.bytes("message1", &first);
    book.bytes("message2", &second);
    let secrets = Secrets::finish(&mut state, &second).unwrap();
    book.bytes("hash", &secrets.hash);
    book.bytes("initiator_to_responder", secrets.from_initiator.as_bytes());
    book.bytes("responder_to_initiator", secrets.from_responder.as_bytes());
}

#[test]
fn vectors_are_as_published() {
    let mut book = Book(String::from(
        "# Test vectors of wire.md and session.md. Bytes in hexadecimal; a line with # says what the bytes below it mean.\n",
    ));
    varints(&mut book);
    frames(&mut book);
    packets(&mut book);
    identities(&mut book);
    packet_keys(&mut book);
    sessions(&mut book);
    handshakes(&mut book);
    announcement(&mut book);
    if std::env::var_os("NOCTULE_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &book.0).unwrap();
    }
    let published = std::fs::read_to_string(FILE).unwrap();
    for (number, (ours, theirs)) in book.0.lines().zip(published.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of vectors.txt", number + 1);
    }
    assert_eq!(book.0.len(), published.len());
}
