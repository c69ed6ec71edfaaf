//! Laws of the frame formats: what is emitted is parsed, arbitrary bytes never panic, the golden bytes stay.

use super::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use super::packet::ConnectionId;
use super::{Frames, Reader, WireError, frame_type, varint};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{FlowLabel, PathId, Seq, SessionKey};
use crate::options::{Class, FlowKind, Mode};
use crate::units::{Duration, Probability};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..64, 0u64..20_000, 0..=varint::MAX]
}

fn bytes(range: std::ops::Range<usize>) -> impl Strategy<Value = &'static [u8]> {
    // Leaked: a few kilobytes per run, so that frames can borrow.
    proptest::collection::vec(any::<u8>(), range).prop_map(|v| &*v.leak())
}

fn mask(n: u8) -> u64 {
    u64::MAX >> (64 - n)
}

fn coded() -> impl Strategy<Value = Frame<'static>> {
    let coefficients = (1u8..=64).prop_flat_map(|n| {
        let forms = prop_oneof![
            (0..n).prop_map(Coefficients::Index),
            any::<u16>().prop_map(Coefficients::Seed),
            (any::<u64>(), any::<u16>()).prop_map(move |(b, seed)| Coefficients::BitmapSeed { bitmap: (b & mask(n)).max(1), seed }),
            bytes(n.into()..usize::from(n) + 1).prop_map(Coefficients::Vector),
        ];
        (Just(n), forms)
    });
    (number(), number(), coefficients, bytes(2..200)).prop_map(|(flow, base, (n, coefficients), symbol)| {
        Frame::Coded(Coded { flow: FlowLabel(flow), base: Seq(base), n, coefficients, symbol })
    })
}

fn flow_open() -> impl Strategy<Value = Frame<'static>> {
    let numbers = (any::<u64>(), number(), number(), any::<u16>(), number());
    let kinds = (0u8..3, 0u8..3, any::<bool>(), prop_oneof![Just(8u8), Just(16), Just(32), Just(64)], any::<u8>());
    let options = (proptest::option::of(number()), proptest::option::of(number()), any::<bool>(), 0u32..=1_000_000_000, relayed());
    (numbers, kinds, options).prop_map(|((session, index, label, symbol, tag), (btp, kind, bulk, batch_size, hop_limit), options)| {
        let (lifetime, answers, bidirectional, probability, relayed) = options;
        Frame::FlowOpen(FlowOpen {
            session: SessionKey(session),
            index,
            label: FlowLabel(label),
            symbol,
            mode: [Mode::Brtp, Mode::Btp, Mode::Transparent][usize::from(btp)],
            kind: [FlowKind::OrderedMessages, FlowKind::UnorderedMessages, FlowKind::Stream][usize::from(kind)],
            class: if bulk { Class::Bulk } else { Class::Latency },
            lifetime: lifetime.map(Duration::from_millis),
            batch_size,
            hop_limit,
            no_retransmit: Probability::new(f64::from(probability) / 1e9),
            answers,
            bidirectional,
            tag,
            relayed,
        })
    })
}

fn relayed() -> impl Strategy<Value = Option<Relayed>> {
    proptest::option::of((any::<std::net::IpAddr>(), any::<std::net::IpAddr>(), number(), number(), any::<u16>(), number()).prop_map(
        |(destination, source, incarnation, first, fits, part)| Relayed {
            destination,
            source,
            incarnation,
            first: Seq(first),
            fits,
            part,
            proof: (incarnation % 2 == 1).then_some([incarnation as u8; 16]),
        },
    ))
}

fn close() -> impl Strategy<Value = Frame<'static>> {
    (0u16..0x40, 0u8..6, number(), number(), "[a-zé]{0,40}").prop_map(|(code, layer, application, frame, reason)| {
        Frame::Close(CloseReason {
            code: Code::from_u64(code.into()).unwrap_or(Code::NoError),
            layer: [Layer::Wire, Layer::Crypto, Layer::Link, Layer::Flow, Layer::Session, Layer::Application][usize::from(layer)],
            application,
            frame,
            reason: reason.into(),
            is_remote: true,
        })
    })
}

fn frame() -> impl Strategy<Value = Frame<'static>> {
    let flow = || number().prop_map(FlowLabel);
    let seq = || number().prop_map(Seq);
    prop_oneof![
        4 => coded(),
        2 => flow_open(),
        1 => close(),
        1 => Just(Frame::Ping),
        1 => (flow(), seq()).prop_map(|(flow, end)| Frame::FlowEnd { flow, end }),
        1 => (flow(), seq(), number()).prop_map(|(flow, base, reason)| Frame::FlowRefused { flow, base, reason }),
        1 => (flow(), number()).prop_map(|(flow, reason)| Frame::FlowReset { flow, reason }),
        1 => (flow(), number()).prop_map(|(flow, reason)| Frame::FlowStop { flow, reason }),
        1 => (flow(), seq()).prop_map(|(flow, floor)| Frame::FlowSkip { flow, floor }),
        1 => (flow(), seq(), 1u8..=64, any::<u8>(), any::<u64>()).prop_map(|(flow, base, n, rank, missing)| {
            Frame::Rank { flow, base, n, rank: rank % (n + 1), missing: missing & mask(n) }
        }),
        1 => (flow(), seq(), seq()).prop_map(|(flow, limit, done)| Frame::Credit { flow, limit, done }),
        1 => (any::<u32>(), number(), bytes(4..9)).prop_map(|(path, sequence, id)| {
            Frame::NewConnectionId { path: PathId(path), sequence, id: ConnectionId::new(id).unwrap() }
        }),
        1 => number().prop_map(|sequence| Frame::RetireConnectionId { sequence }),
        1 => any::<[u8; 8]>().prop_map(Frame::PathChallenge),
        1 => any::<[u8; 8]>().prop_map(Frame::PathResponse),
        1 => (number(), 0u8..2, bytes(0..120)).prop_map(|(generation, step, message)| Frame::Rekey { generation, step, message }),
        1 => (number(), 0u8..2, bytes(0..700)).prop_map(|(id, index, data)| Frame::Fragment { id, index, data }),
    ]
}

fn parse_all(payload: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    Frames::new(payload).collect()
}

proptest! {
    #[test]
    fn frames_that_are_emitted_are_parsed(frames in proptest::collection::vec(frame(), 1..8), grease in any::<u8>(), last in coded()) {
        let mut payload = Vec::new();
        for frame in &frames {
            frame.emit(&mut payload);
            super::frame_codec::emit_grease(&mut payload, grease, &[grease; 5]);
        }
        let Frame::Coded(last_coded) = &last else { unreachable!() };
        let before = payload.len();
        last_coded.emit_last(&mut payload);
        let header = super::coded::header_len(last_coded.flow, last_coded.base, last_coded.n, &last_coded.coefficients);
        prop_assert_eq!(payload.len() - before, header + last_coded.symbol.len());
        let mut expected = frames;
        expected.push(last);
        prop_assert_eq!(parse_all(&payload), Ok(expected));
    }

    #[test]
    fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        for frame in Frames::new(&payload).flatten() {
            // What was understood can be said again and means the same.
            let _ = frame.to_string();
            let mut out = Vec::new();
            frame.emit(&mut out);
            prop_assert_eq!(parse_all(&out), Ok(vec![frame]));
        }
    }

    #[test]
    fn a_cut_or_changed_frame_never_panics(frame in frame(), cut in any::<proptest::sample::Index>(), flip in any::<proptest::sample::Index>()) {
        let mut out = Vec::new();
        frame.emit(&mut out);
        let _ = parse_all(&out[..cut.index(out.len())]);
        let at = flip.index(out.len() * 8);
        out[at / 8] ^= 1 << (at % 8);
        let _ = parse_all(&out);
    }
}

#[test]
fn an_unknown_mandatory_frame_is_named_and_ends_the_packet() {
    let payload = [0x02, 0x40, 0x7e, 0x02];
    let frames: Vec<_> = Frames::new(&payload).collect();
    assert_eq!(frames, [Ok(Frame::Ping), Err(WireError::UnknownFrame(0x7e))]);
    assert_eq!(WireError::UnknownFrame(0x7e).code(), Code::UnknownFrame);
}

#[test]
fn padding_is_one_frame() {
    let mut payload = vec![0; 1000];
    payload.push(frame_type::PING as u8);
    assert_eq!(parse_all(&payload), Ok(vec![Frame::Padding, Frame::Ping]));
}

#[test]
fn fields_that_later_versions_add_to_flow_open_are_ignored() {
    let open = FlowOpen {
        session: SessionKey(1),
        index: 2,
        label: FlowLabel(3),
        symbol: 1400,
        mode: Mode::Brtp,
        kind: FlowKind::Stream,
        class: Class::Bulk,
        lifetime: None,
        batch_size: 16,
        hop_limit: 8,
        no_retransmit: Probability::new(0.999),
        answers: None,
        bidirectional: true,
        tag: 0,
        relayed: None,
    };
    let mut payload = Vec::new();
    Frame::FlowOpen(open.clone()).emit(&mut payload);
    payload[2] += 3;
    payload.extend_from_slice(&[9, 9, 9]);
    Frame::Ping.emit(&mut payload);
    assert_eq!(parse_all(&payload), Ok(vec![Frame::FlowOpen(open), Frame::Ping]));
}

#[test]
fn a_close_with_a_code_of_a_later_version_tells_its_number() {
    let payload = [0x28, 0x7f, 0x00, 2, 0, 0, 2, b'h', b'i'];
    let frames = parse_all(&payload).unwrap();
    let [Frame::Close(close)] = &frames[..] else { panic!() };
    assert_eq!((close.code, close.reason.raw()), (Code::Internal, "unknown code 0x3f00 hi"));
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let mut payload = Vec::new();
    Frame::Close(CloseReason::local(Code::Internal, Layer::Link, "é".repeat(200))).emit(&mut payload);
    let frames = parse_all(&payload).unwrap();
    let Frame::Close(close) = &frames[0] else { panic!() };
    assert_eq!(close.reason.raw(), "é".repeat(127));
}

#[test]
fn fields_out_of_range_are_refused() {
    let invalid: &[(&str, &[u8])] = &[
        ("index beyond the span", &[0x08, 1, 1, 0x02, 3, 0, 1, 9]),
        ("bitmap beyond the span", &[0x08, 1, 1, 0x82, 8, 0, 1, 0, 1, 9]),
        ("empty bitmap", &[0x08, 1, 1, 0x82, 0, 0, 1, 0, 1, 9]),
        ("symbol without its length", &[0x08, 1, 1, 0x02, 2, 0]),
        ("rank above its span", &[0x18, 1, 1, 4, 5, 0]),
        ("span of 0", &[0x18, 1, 1, 0, 0]),
        ("span of 65", &[0x18, 1, 1, 65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("third fragment", &[0x26, 1, 2, 1, 0]),
        ("short connection id", &[0x1c, 0, 0, 3, 1, 2, 3]),
        ("path id of 33 bits", &[0x1c, 0xc0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4]),
    ];
    for (what, payload) in invalid {
        assert!(matches!(parse_all(payload), Err(WireError::Invalid(_))), "{what}");
    }
    assert_eq!(Frame::parse(&mut Reader::new(&[0x20, 1])), Err(WireError::Truncated));
}
