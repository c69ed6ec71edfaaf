//! A relay that lies from the first packet on, or about where a flow ends (P16): the same promises as in mid-transfer, and the same stories without
//! the defence (P26).

use super::MS;
use super::hostile::{End, LIAR, assert_survived, diamond, end, finish, flip, lie, swallow, symbols};
use crate::event::Event;
use crate::ids::SessionId;
use crate::options::{FlowKind, FlowOptions, MessageOptions};
use crate::switch::{Mechanism, without};
use crate::wire::Frames;
use crate::wire::frame::{Coefficients, Frame};
use bytes::Bytes;

/// What a relay does to the frames of a flow.
type Lie = Box<dyn FnMut(&mut [u8])>;

/// Other bytes in every symbol.
fn inventing() -> Lie {
    let mut state = 1u64;
    Box::new(move |frames| {
        for (range, _) in symbols(frames) {
            for byte in &mut frames[range] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        }
    })
}

/// The first large packet in the place of all others.
fn replaying() -> Lie {
    let mut first: Option<Vec<u8>> = None;
    Box::new(move |frames| {
        if let [(range, true)] = &symbols(frames)[..]
            && range.len() > 1000
        {
            match &first {
                Some(old) if old.len() == frames.len() => frames.copy_from_slice(old),
                Some(_) => frames.fill(0),
                None => first = Some(frames.to_vec()),
            }
        }
    })
}

/// Every coded packet in three is not sent, and acknowledged like the others.
fn dropping() -> Lie {
    let mut count = 0;
    Box::new(move |frames| {
        count += 1;
        if count % 3 == 0 {
            swallow(frames);
        }
    })
}

fn corrupting() -> Lie {
    Box::new(flip(|symbol| symbol.end - 1, 1))
}

fn swallowing() -> Lie {
    Box::new(swallow)
}

/// A flow of 1 MB begins through a relay that lies from then on; the session stands.
fn from_the_first_packet_of_a_flow(tamper: Lie) -> End {
    let mut m = diamond(0.05);
    let session = m.open(0, 3);
    assert!(m.run_until(MS(2000), |m| m.events[0].iter().any(|e| matches!(e, Event::SessionOpened { .. }))));
    m.run(MS(100));
    lie(&mut m, tamper);
    let mut s = m.stream(0, session);
    let is_complete = finish(&mut m, &mut s, 1_000_000);
    end(&mut m, is_complete)
}

/// The relay has never passed anything on as it was; its acknowledgements are perfect.
fn from_the_first_packet_of_all(tamper: Lie) -> Result<(), String> {
    let mut m = diamond(0.05);
    lie(&mut m, tamper);
    let session: SessionId = m.open(0, 3);
    let mut s = m.stream(0, session);
    let is_complete = finish(&mut m, &mut s, 500_000);
    if is_complete { Ok(()) } else { Err(format!("{} bytes, {:?}, {:?}", s.got, m.events[0], m.events[3])) }
}

#[test]
fn a_relay_that_alters_or_invents_from_a_flow_s_first_packet_on_is_named_and_passed_by() {
    assert_survived(&from_the_first_packet_of_a_flow(corrupting()));
    assert_survived(&from_the_first_packet_of_a_flow(inventing()));
}

#[test]
fn a_relay_that_swallows_drops_or_replays_from_a_flow_s_first_packet_on_costs_time_and_no_byte() {
    for tamper in [swallowing(), dropping(), replaying()] {
        assert!(from_the_first_packet_of_a_flow(tamper).is_complete);
    }
}

#[test]
fn without_another_route_nothing_ends_that_a_liar_holds_from_the_beginning() {
    for (name, tamper) in [("corrupting", corrupting()), ("inventing", inventing()), ("swallowing", swallowing())] {
        assert!(!without(Mechanism::RouteAvoidance, || from_the_first_packet_of_a_flow(tamper)).is_complete, "{name}");
    }
}

#[test]
fn a_handshake_through_a_liar_is_made_by_another_route() {
    for (name, tamper) in [("corrupting", corrupting()), ("inventing", inventing()), ("swallowing", swallowing()), ("dropping", dropping())]
    {
        assert_eq!(from_the_first_packet_of_all(tamper), Ok(()), "{name}");
    }
}

#[test]
fn a_handshake_through_a_liar_comes_to_nothing_without_another_route() {
    for (name, tamper) in [("corrupting", corrupting()), ("inventing", inventing()), ("swallowing", swallowing())] {
        assert!(without(Mechanism::RouteAvoidance, || from_the_first_packet_of_all(tamper)).is_err(), "{name}");
    }
}

/// In the place of a coded packet from `after` on: what `forge` makes of its flow and the packets that it covers. `every`: of so many one; 0 is the
/// first source packet of each batch.
fn forging(after: u64, every: u32, forge: fn(crate::ids::FlowLabel, crate::ids::Seq) -> Frame<'static>) -> Lie {
    let mut count = 0;
    Box::new(move |frames| {
        let coded = Frames::new(frames).find_map(|f| match f {
            Ok(Frame::Coded(c)) => Some((c.flow, c.base, c.coefficients == Coefficients::Index(0))),
            _ => None,
        });
        let Some((flow, base, is_first)) = coded.filter(|(_, base, _)| base.0 >= after && frames.len() > 100) else { return };
        count += 1;
        if (every == 0 && is_first) || (every > 0 && count % every == 0) {
            let mut forged = Vec::new();
            forge(flow, base).emit(&mut forged);
            frames.fill(0);
            frames[..forged.len()].copy_from_slice(&forged);
        }
    })
}

/// 2 MB through a relay that forges: what the destination read, whether it took it for all, and how it ended otherwise.
fn forged(tamper: Lie) -> (u64, bool, End) {
    let mut m = diamond(0.05);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    lie(&mut m, tamper);
    let is_complete = finish(&mut m, &mut s, 2_000_000);
    (s.got, s.is_ended, end(&mut m, is_complete))
}

fn ending_early(every: u32) -> Lie {
    forging(200, every, |flow, end| Frame::FlowEnd { flow, end })
}

#[test]
fn a_relay_cannot_cut_a_stream_short() {
    for every in [0, 7] {
        let (got, is_ended, end) = forged(ending_early(every));
        assert!(is_ended && got == 2_000_000 && end.is_complete, "{every}: {got}");
        assert_eq!(end.named, Some(end.liar), "who says what cannot be is named");
    }
    // Where nothing contradicts it yet, a hop's word would be the end.
    let (got, is_ended, _) = without(Mechanism::FarEnds, || forged(ending_early(0)));
    assert!(!(is_ended && got == 2_000_000), "{got}");
}

#[test]
fn a_relay_cannot_leave_out_what_was_promised() {
    let lie = || forging(200, 7, |flow, base| Frame::FlowSkip { flow, floor: crate::ids::Seq(base.0 + 16) });
    let (got, is_ended, end) = forged(lie());
    assert!(is_ended && got == 2_000_000 && end.is_complete, "{got}");
    let (got, is_ended, _) = without(Mechanism::FarEnds, || forged(lie()));
    assert!(!(is_ended && got == 2_000_000), "{got}");
}

#[test]
fn messages_through_a_liar_arrive_once_and_unchanged() {
    let mut m = diamond(0.05);
    let session = m.open(0, 3);
    let now = m.now;
    let flow = m.nodes[0].open_flow(now, session, FlowOptions { kind: FlowKind::UnorderedMessages, ..Default::default() }).unwrap();
    lie(&mut m, flip(|symbol| symbol.end - 1, 3));
    let content = |i: u64| Bytes::from(vec![i as u8; 900]);
    let (mut sent, mut got, mut incoming) = (0u64, Vec::new(), None);
    let begin = m.now;
    m.wake_at = Some(begin);
    let is_complete = m.run_until(MS(20_000), |m| {
        if sent < 300 && m.now >= begin + MS(5) * sent as u32 {
            m.nodes[0].send_message(m.now, flow, content(sent), MessageOptions::default()).unwrap();
            sent += 1;
            m.wake_at = Some(begin + MS(5) * sent as u32);
        }
        incoming = incoming.or_else(|| m.incoming_flow(3));
        while let Some(message) = incoming.and_then(|f| m.nodes[3].recv_message(m.now, f).unwrap()) {
            assert_eq!(message.data, content(message.id));
            got.push(message.id);
        }
        got.len() == 300
    });
    assert!(is_complete);
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..300), "each once");
    assert!(m.nodes[LIAR].relayed_flows().count() == 0, "the flow has left the liar");
}
