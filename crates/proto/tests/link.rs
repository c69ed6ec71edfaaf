//! Links and sessions between two nodes in virtual time.

mod pair;

use noctule_proto::NodeConfig;
use noctule_proto::error::Code;
use noctule_proto::event::Event;
use noctule_proto::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use noctule_proto::units::{Duration, Time};
use pair::{A, B, Conditions, Pair, address, bytes, content, key};

fn down(pair: &mut Pair, node: usize) -> Option<Code> {
    pair.take(node, |e| match e {
        Event::LinkDown { reason, .. } => Some(reason.code),
        _ => None,
    })
}

#[test]
fn both_ends_learn_each_others_keys() {
    let mut p = Pair::simple(0.0, 1);
    p.connect();
    let up = |e: &Event| match e {
        Event::LinkUp { peer, .. } => Some(*peer),
        _ => None,
    };
    let (mut a, mut b) = (None, None);
    assert!(p.run_until(Duration::from_secs(2), |p| {
        a = a.or_else(|| p.take(A, up));
        b = b.or_else(|| p.take(B, up));
        a.is_some() && b.is_some()
    }));
    assert_eq!((a, b), (Some(key(1).public()), Some(key(0).public())));
}

#[test]
fn first_message_is_answered_within_two_round_trips() {
    let mut p = Pair::simple(0.0, 1);
    let start = p.now;
    let (_, session) = p.connect();
    let flow = p.nodes[A].open_flow(p.now, session, FlowOptions { bidirectional: true, ..Default::default() }).unwrap();
    p.nodes[A].send_message(p.now, flow, bytes(500, 1), MessageOptions::default()).unwrap();
    let mut incoming = None;
    let mut answer = None;
    assert!(p.run_until(Duration::from_secs(2), |p| {
        if incoming.is_none() {
            incoming = p.incoming_flow(B).map(|f| f.0);
        }
        if let Some(f) = incoming
            && let Ok(Some(m)) = p.nodes[B].recv_message(p.now, f)
        {
            let (s, _) = p
                .take(B, |e| match e {
                    Event::SessionIncoming { session, link, .. } => Some((*session, *link)),
                    _ => None,
                })
                .unwrap();
            let back = p.nodes[B].open_flow(p.now, s, FlowOptions { answers: Some(f), ..Default::default() }).unwrap();
            p.nodes[B].send_message(p.now, back, m.data, MessageOptions::default()).unwrap();
        }
        if answer.is_none() {
            answer = p.incoming_flow(A).map(|(f, o)| {
                assert_eq!(o.answers, Some(flow), "the answering flow names the one that it answers");
                f
            });
        }
        answer.is_some_and(|f| p.nodes[A].recv_message(p.now, f).unwrap().is_some_and(|m| m.data == bytes(500, 1)))
    }));
    // One round trip for the keys, one for the message: 2 x 20 ms, and nothing that waits.
    assert!(p.now.since(start) <= Duration::from_millis(45), "{:?}", p.now.since(start));
}

#[test]
fn a_stream_crosses_a_lossy_link_whole() {
    for (loss, seed) in [(0.0, 1), (0.02, 2), (0.1, 3), (0.3, 4), (0.5, 5)] {
        let mut p = Pair::simple(loss, seed);
        p.conditions[A].rate = Some(12.5e6);
        p.conditions[B].rate = Some(12.5e6);
        let (_, session) = p.connect();
        let data = content(2_000_000, seed);
        assert!(p.transfer(session, &data, Duration::from_secs(120)) == data, "loss {loss}");
        assert!(p.nodes[A].memory().peak <= p.nodes[A].memory().limit);
    }
}

#[test]
fn wrong_pinned_key_is_told_from_silence() {
    let mut p = Pair::simple(0.0, 1);
    let other = key(9).public();
    p.nodes[A].connect(p.now, address(B), Some(other)).unwrap();
    let mut code = None;
    assert!(p.run_until(Duration::from_secs(12), |p| {
        code = code.or(down(p, A));
        code.is_some()
    }));
    assert_eq!(code, Some(Code::WrongKey));

    let mut p = Pair::simple(1.0, 1);
    p.connect();
    let mut code = None;
    assert!(p.run_until(Duration::from_secs(12), |p| {
        code = code.or(down(p, A));
        code.is_some()
    }));
    assert_eq!(code, Some(Code::Unreachable));
}

#[test]
fn unauthorised_key_is_refused_and_told_so() {
    let config = NodeConfig { authorised: Some(vec![key(5).public()]), ..Default::default() };
    let mut p = Pair::new([NodeConfig::default(), config], Conditions::default(), 1);
    p.connect();
    let mut code = None;
    assert!(p.run_until(Duration::from_secs(12), |p| {
        code = code.or(down(p, A));
        code.is_some()
    }));
    assert_eq!(code, Some(Code::NotAuthorised));
}

#[test]
fn unknown_far_key_is_learnt_on_first_use() {
    let mut p = Pair::simple(0.1, 3);
    p.nodes[A].connect(p.now, address(B), None).unwrap();
    let mut peer = None;
    assert!(p.run_until(Duration::from_secs(5), |p| {
        peer = peer.or_else(|| {
            p.take(A, |e| match e {
                Event::LinkUp { peer, .. } => Some(*peer),
                _ => None,
            })
        });
        peer.is_some() && p.take(B, |e| matches!(e, Event::LinkUp { .. }).then_some(())).is_some()
    }));
    assert_eq!(peer, Some(key(1).public()));
}

#[test]
fn graceful_close_says_that_everything_arrived() {
    for loss in [0.0, 0.2] {
        let mut p = Pair::simple(loss, 11);
        let (_, session) = p.connect();
        let flow = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
        for i in 0..200 {
            p.nodes[A].send_message(p.now, flow, bytes(700, i), MessageOptions::default()).unwrap();
        }
        p.nodes[A].finish(p.now, flow).unwrap();
        p.nodes[A].close_session(p.now, session, 0, "done", Duration::from_secs(10)).unwrap();
        let mut incoming = None;
        let mut got = 0;
        let mut outcomes = [None, None];
        p.run_until(Duration::from_secs(20), |p| {
            if incoming.is_none() {
                incoming = p.incoming_flow(B).map(|f| f.0);
            }
            if let Some(f) = incoming {
                while let Ok(Some(_)) = p.nodes[B].recv_message(p.now, f) {
                    got += 1;
                }
            }
            for (n, outcome) in outcomes.iter_mut().enumerate() {
                if outcome.is_none() {
                    *outcome = p.take(n, |e| match e {
                        Event::SessionClosed { outcome, .. } => Some(outcome.clone()),
                        _ => None,
                    });
                }
            }
            outcomes.iter().all(Option::is_some)
        });
        assert_eq!(got, 200);
        let [a, b] = outcomes.map(|o| o.expect("both ends are told"));
        assert!(a.all_delivered && b.all_received && a.reason.is_clean() && b.reason.is_clean(), "{a:?} {b:?}");
    }
}

#[test]
fn silent_peer_ends_the_link_with_the_reason() {
    let mut p = Pair::simple(0.0, 1);
    let (_, session) = p.connect();
    assert!(p.transfer(session, &content(10_000, 1), Duration::from_secs(5)) == content(10_000, 1));
    let flow = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
    p.nodes[A].send_message(p.now, flow, bytes(700, 1), MessageOptions::default()).unwrap();
    p.conditions[A].loss = 1.0;
    p.conditions[B].loss = 1.0;
    let mut code = None;
    assert!(p.run_until(Duration::from_secs(60), |p| {
        code = code.or(down(p, A));
        code.is_some()
    }));
    assert!(matches!(code, Some(Code::IdleTimeout | Code::CircuitBreaker)), "{code:?}");
}

#[test]
fn outage_of_five_seconds_is_survived() {
    let mut p = Pair::simple(0.05, 7);
    p.conditions[A].rate = Some(2.5e6);
    let out = (p.now + Duration::from_millis(300), p.now + Duration::from_millis(5300));
    for c in &mut p.conditions {
        c.outages.push(out);
    }
    let (_, session) = p.connect();
    let data = content(3_000_000, 7);
    assert!(p.transfer(session, &data, Duration::from_secs(60)) == data);
    assert!(p.now < Time::ZERO + Duration::from_secs(12), "resumes soon after the outage: {:?}", p.now);
}

#[test]
fn key_epochs_change_in_mid_transfer() {
    let config = NodeConfig { epoch_packets: 1024, ..Default::default() };
    let mut p = Pair::new([config.clone(), config], Conditions { loss: 0.1, rate: Some(12.5e6), ..Default::default() }, 5);
    let (link, session) = p.connect();
    let data = content(6_000_000, 5);
    assert!(p.transfer(session, &data, Duration::from_secs(60)) == data);
    let stats = p.nodes[A].link_stats(link).unwrap();
    assert!(stats.key_epoch >= 4, "epoch {}", stats.key_epoch);
}

#[test]
fn btp_messages_expire_instead_of_arriving_late() {
    let mut p = Pair::simple(0.3, 9);
    let (_, session) = p.connect();
    let options =
        FlowOptions { mode: Mode::Btp, kind: FlowKind::UnorderedMessages, lifetime: Some(Duration::from_millis(60)), ..Default::default() };
    let flow = p.nodes[A].open_flow(p.now, session, options).unwrap();
    let mut incoming = None;
    let mut got = 0u32;
    let mut sent = 0u64;
    let mut next = p.now;
    p.run_until(Duration::from_secs(6), |p| {
        while next <= p.now && sent < 500 {
            p.nodes[A].send_message(p.now, flow, bytes(300, sent), MessageOptions::default()).unwrap();
            sent += 1;
            next += Duration::from_millis(10);
        }
        if incoming.is_none() {
            incoming = p.incoming_flow(B).map(|f| f.0);
        }
        if let Some(f) = incoming {
            while let Ok(Some(m)) = p.nodes[B].recv_message(p.now, f) {
                assert_eq!(m.data, bytes(300, m.id));
                got += 1;
            }
        }
        false
    });
    assert!(sent == 500 && got >= 480, "{got} of {sent}");
}

#[test]
fn what_finished_flows_counted_stays_with_their_session_and_link() {
    let mut p = Pair::simple(0.1, 21);
    for c in &mut p.conditions {
        c.rate = Some(12.5e6);
    }
    let (link, session) = p.connect();
    let mut sum = 0;
    for (i, len) in [400_000, 1, 70_000].into_iter().enumerate() {
        let data = content(len, i as u64);
        assert!(p.transfer(session, &data, Duration::from_secs(20)) == data);
        sum += len as u64;
        let totals = p.nodes[A].session_stats(session).unwrap();
        assert_eq!((totals.sent.app_bytes, totals.received.app_bytes), (sum, 0));
        assert_eq!(p.nodes[A].link_stats(link).unwrap().flows, totals);
    }
    let sent = p.nodes[A].session_stats(session).unwrap().sent;
    assert!(sent.repair_packets > 0 && sent.coded_bytes > sum && sent.outstanding == 0, "{sent:?}");
    let (theirs, at) = p.nodes[B].sessions().next().unwrap();
    let received = p.nodes[B].session_stats(theirs).unwrap().received;
    assert_eq!((received.app_bytes, received.source_packets), (sum, sent.source_packets));
    p.nodes[A].close_session(p.now, session, 0, "", Duration::from_secs(5)).unwrap();
    let mut totals = [None, None];
    assert!(p.run_until(Duration::from_secs(10), |p| {
        for (i, found) in totals.iter_mut().enumerate() {
            *found = found.take().or_else(|| {
                p.take(i, |e| match e {
                    Event::SessionClosed { totals, .. } => Some(totals.clone()),
                    _ => None,
                })
            });
        }
        totals.iter().all(Option::is_some)
    }));
    let [a, b] = totals.map(Option::unwrap);
    assert_eq!((a.sent.app_bytes, b.received.app_bytes), (sum, sum));
    assert_eq!(p.nodes[B].link_stats(at).unwrap().flows.received.app_bytes, sum);
}
