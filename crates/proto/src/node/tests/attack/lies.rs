//! What a hostile neighbour says of the victim's packets and flows: acknowledgements, credit, ranks, connection ids, keys.

use super::*;
use crate::ids::PacketNumber;
use crate::ids::PathId;
use crate::wire::ack::{self, AckHead};
use crate::wire::packet::ConnectionId;

fn acknowledge(largest: u64, lowest: u64) -> Vec<u8> {
    let head = AckHead { path: PathId(0), largest: PacketNumber(largest), delay: Duration::ZERO, ecn: None };
    let mut out = Vec::new();
    ack::emit(&mut out, &head, |_| u64::MAX, PacketNumber(lowest), 1200).unwrap();
    out
}

/// The victim sends to the hostile node, which acknowledges everything that was or may have been sent.
fn optimist(every: Duration) -> End {
    let mut s = siege(NodeConfig::default());
    let theirs = s.m.events[VICTIM].iter().find_map(|e| match e {
        Event::SessionIncoming { session, link, .. } if *link == s.victims_link => Some(*session),
        _ => None,
    });
    let now = s.m.now;
    let options = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
    let flow = s.m.nodes[VICTIM].open_flow(now, theirs.unwrap(), options).unwrap();
    s.withstand(every, MS(3000), move |s, _| {
        let now = s.m.now;
        while s.m.nodes[VICTIM].write(now, flow, &[1; 16384]).is_ok() {}
        let sent = s.m.nodes[VICTIM].link_stats(s.victims_link).map_or(0, |l| l.paths[0].sent_packets);
        // Numbers up to what was sent, the skipped ones among them: a receiver that wants to seem faster than it is.
        if sent > 50 {
            s.send_raw(acknowledge(sent - 1, 0));
        }
    })
}

#[test]
fn who_acknowledges_what_was_never_sent_loses_its_link() {
    let end = optimist(MS(5));
    end.assert_withstood();
    assert_eq!(end.closed, Some(Code::AckOfSkipped));
    assert_eq!(end.counters.violations, 1);
}

#[test]
fn an_acknowledgement_of_the_future_ends_the_link() {
    let end = siege(NodeConfig::default()).withstand(MS(20), MS(500), |s, round| {
        if round == 10 {
            s.send_raw(acknowledge(1 << 40, (1 << 40) - 60));
        }
    });
    end.assert_withstood();
    assert_eq!((end.closed, end.counters.violations), (Some(Code::AckOfSkipped), 1));
}

#[test]
fn credit_ranks_and_refusals_about_flows_of_the_victim_change_nothing_for_others() {
    let end = siege(NodeConfig::default()).withstand(MS(2), MS(500), |s, round| {
        let [a, b, c, d] = numbers(round);
        for label in [0, 1, a, c] {
            let flow = FlowLabel(label);
            s.send(&[
                Frame::Credit { flow, limit: seq(b), done: seq(d) },
                Frame::Credit { flow, limit: seq(MOST), done: seq(MOST) },
                Frame::Rank { flow, base: seq(d), n: 64 - (a % 64) as u8, rank: (b % 65) as u8, missing: 0 },
                Frame::Rank { flow, base: seq(0), n: 64, rank: 64, missing: u64::MAX },
                Frame::FlowRefused { flow, base: seq(a), reason: Code::UnknownFlow as u64 },
                Frame::FlowRefused { flow, base: seq(c), reason: Code::NoMemory as u64 },
            ]);
        }
    });
    end.assert_withstood();
}

#[test]
fn connection_ids_without_end_are_a_violation() {
    let end = siege(NodeConfig::default()).withstand(MS(5), MS(500), |s, round| {
        for i in 0..16 {
            let n = 100 + 16 * round + i;
            let id = ConnectionId::new(&(n as u32).to_be_bytes()).unwrap();
            s.send(&[Frame::NewConnectionId { path: PathId((n % 7) as u32), sequence: n, id }]);
        }
    });
    end.assert_withstood();
    assert_eq!((end.closed, end.counters.violations), (Some(Code::TooMany), 1));
}

#[test]
fn retired_ids_challenges_and_pings_without_end_are_answered_in_bounded_memory() {
    let end = siege(NodeConfig::default()).withstand(MS(1), MS(1000), |s, round| {
        let mut bytes = Vec::new();
        for i in 0..60 {
            Frame::RetireConnectionId { sequence: round * 4 + i % 4 }.emit(&mut bytes);
            Frame::PathChallenge((round * 100 + i).to_be_bytes()).emit(&mut bytes);
            Frame::Ping.emit(&mut bytes);
        }
        s.send_raw(bytes);
    });
    end.assert_withstood();
    assert_eq!(end.closed, None);
}

#[test]
fn keys_out_of_turn_and_frames_that_do_not_exist_end_the_link() {
    let rekey = |generation, step| {
        let mut out = Vec::new();
        Frame::Rekey { generation, step, message: &[9; 48] }.emit(&mut out);
        out
    };
    let frames = [rekey(1, 0), rekey(MOST, 0), vec![0x3e, 0, 0], vec![0x02, 0xff, 0xff]];
    for (at, frames) in frames.into_iter().enumerate() {
        let end = siege(NodeConfig::default()).withstand(MS(20), MS(500), |s, round| {
            if round == 5 {
                s.send_raw(frames.clone());
            }
        });
        end.assert_withstood();
        assert!(end.closed.is_some() && end.counters.violations == 1, "case {at}: {:?}", end.closed);
    }
}
