//! Credit that runs out, readers that sleep, refusals that are lost (P9, P15, P18).

use super::pair::{A, B, Conditions, Pair, content};
use super::{MS, at, deaf, lossy};
use crate::NodeConfig;
use crate::error::Code;
use crate::event::Event;
use crate::options::FlowOptions;
use crate::switch::{Mechanism, without};

/// 12 MB to a reader that sleeps from 150 ms to 3 s and may hold 1 MiB: whether all arrived, and the most that was held.
fn sleeper() -> (bool, usize) {
    let small = NodeConfig { flow_memory: 1 << 20, max_message: 64 * 1024, ..NodeConfig::default() };
    let mut p = Pair::new([NodeConfig::default(), small], lossy(), 8);
    for t in [150, 3000] {
        p.changes.push_back((at(t), Box::new(|_| {})));
    }
    let (_, session) = p.connect();
    let data = content(12_000_000, 8);
    let (got, is_done) = p.attempt(session, &data, MS(20_000), |now| now < at(150) || now >= at(3000));
    assert!(!is_done || got == data);
    (is_done, p.nodes[B].memory().peak)
}

#[test]
fn credit_runs_out_while_the_reader_sleeps_and_the_transfer_goes_on_when_it_wakes() {
    let (is_done, peak) = sleeper();
    // The flow's packets, the rows that some of them are decoded from, tables, and the session's control flows.
    assert!(is_done && peak < 3 << 19, "{is_done} {peak}");
}

#[test]
fn without_credit_and_rank_reports_it_stops_at_the_first_window() {
    assert!(!without(Mechanism::FlowReports, sleeper).0);
}

/// One session too many for B, whose packets are lost just when it says so. When A was told, in ms.
fn refusal() -> Option<Code> {
    let mut p = Pair::new([NodeConfig::default(), NodeConfig { max_sessions: 1, ..NodeConfig::default() }], Conditions::default(), 4);
    let (link, session) = p.connect();
    assert!(p.transfer(session, b"first", MS(1000)) == b"first");
    p.run_until(MS(200), |_| false);
    let now = p.now;
    deaf(&mut p, B, now, now + MS(25));
    let second = p.nodes[A].open_session(p.now, link).unwrap();
    let flow = p.nodes[A].open_flow(p.now, second, FlowOptions::default()).unwrap();
    p.nodes[A].finish(p.now, flow).unwrap();
    let mut code = None;
    p.run_until(MS(5000), |p| {
        code = code.or(p.take(A, |e| match e {
            Event::SessionClosed { session, outcome, .. } if *session == second => Some(outcome.reason.code),
            _ => None,
        }));
        code.is_some()
    });
    code
}

#[test]
fn a_refusal_that_is_lost_is_said_again() {
    assert_eq!(refusal(), Some(Code::TooMany));
    assert_eq!(without(Mechanism::RefusalRepetition, refusal), None);
}
