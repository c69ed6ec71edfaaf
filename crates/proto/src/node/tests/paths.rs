//! ECN, a lossy return path, outages, reordering and duplicates (P3, P8, P10, P12).

use super::pair::{A, B, Conditions, EcnFate, Pair, content};
use super::{MS, at, lossy};
use crate::congestion::CongestionControl;
use crate::stats::PathStats;
use crate::switch::{Mechanism, without};
use crate::units::Duration;
use crate::{AckWish, NodeConfig};

struct Story {
    p: Pair,
    /// Whether all of 6 MB arrived in 20 s.
    is_done: bool,
    /// The sender's and the receiver's view, as long as their link exists.
    sender: Option<PathStats>,
    receiver: Option<PathStats>,
}

fn story(config: NodeConfig, change: impl Fn(&mut [Conditions; 2])) -> Story {
    let mut p = Pair::new([config, NodeConfig::default()], lossy(), 6);
    change(&mut p.conditions);
    let (link, session) = p.connect();
    let data = content(6_000_000, 6);
    let (got, is_done) = p.attempt(session, &data, MS(20_000), |_| true);
    assert!(!is_done || got == data);
    let sender = p.nodes[A].link_stats(link).map(|mut s| s.paths.remove(0));
    let theirs = p.nodes[B].sessions().next().map(|(_, l)| l);
    let receiver = theirs.and_then(|l| p.nodes[B].link_stats(l)).map(|mut s| s.paths.remove(0));
    Story { p, is_done, sender, receiver }
}

impl Story {
    fn sender(&self) -> &PathStats {
        self.sender.as_ref().expect("the link exists")
    }
}

fn cubic(ecn: bool) -> NodeConfig {
    NodeConfig { congestion: CongestionControl::Cubic, ecn, ..NodeConfig::default() }
}

#[test]
fn marks_slow_the_sender_down_before_the_queue_overflows() {
    let marking = |c: &mut [Conditions; 2]| {
        for c in c {
            *c = Conditions { loss: 0.0, rate: Some(2.5e6), ecn: EcnFate::Marked(MS(10)), ..lossy() };
        }
    };
    let with = story(cubic(true), marking);
    assert!(with.is_done && with.sender().ce_packets > 0, "{:?}", with.sender());
    let without = story(cubic(false), marking);
    assert!(without.sender().ce_packets == 0 && without.is_done);
    let (with, without) = (with.p.overflowed[A], without.p.overflowed[A]);
    assert!(with * 3 < without, "{with} datagrams overflowed with marks, {without} without");
}

#[test]
fn a_path_that_bleaches_marks_is_sent_none_and_one_that_drops_them_is_used_all_the_same() {
    let on = |ecn| move |c: &mut [Conditions; 2]| c.iter_mut().for_each(|c| c.ecn = ecn);
    let bleached = || story(NodeConfig::default(), on(EcnFate::Bleached));
    let s = bleached();
    assert!(s.is_done && s.p.sent_ect[A] <= 100, "{} of {} marked as capable", s.p.sent_ect[A], s.p.sent[A]);
    let s = without(Mechanism::EcnValidation, bleached);
    assert!(s.p.sent_ect[A] > 1000);

    let dropped = || story(NodeConfig::default(), on(EcnFate::Dropped));
    assert!(dropped().is_done);
    assert!(!without(Mechanism::EcnValidation, dropped).is_done);
}

#[test]
fn a_path_that_marks_whatever_comes_is_sent_no_marks() {
    let marking = || story(cubic(true), |c| c.iter_mut().for_each(|c| (c.ecn, c.loss) = (EcnFate::AllMarked, 0.0)));
    let with = marking();
    assert!(with.is_done && with.p.sent_ect[A] * 2 < with.p.sent[A], "{} of {} marked as capable", with.p.sent_ect[A], with.p.sent[A]);
    let without = without(Mechanism::EcnValidation, marking);
    assert!(without.p.sent_ect[A] * 10 > without.p.sent[A] * 9, "the last mark says what the first one said");
}

#[test]
fn a_path_that_changes_the_codepoint_is_sent_none() {
    let changing = || story(NodeConfig::default(), |c| c.iter_mut().for_each(|c| c.ecn = EcnFate::Remarked));
    let s = changing();
    assert!(s.is_done && s.p.sent_ect[A] <= 100, "{} of {} marked as capable", s.p.sent_ect[A], s.p.sent[A]);
    assert!(without(Mechanism::EcnValidation, changing).p.sent_ect[A] > 1000);
}

#[test]
fn marks_that_end_in_mid_transfer_end_marking() {
    // The path changes at 300 ms, and bleaches from then on.
    let story = || {
        let mut p = Pair::new(Default::default(), Conditions { ecn: EcnFate::Marked(MS(1000)), ..lossy() }, 6);
        p.changes.push_back((at(300), Box::new(|c| c.iter_mut().for_each(|c| c.ecn = EcnFate::Bleached))));
        let (_, session) = p.connect();
        assert!(p.attempt(session, &content(6_000_000, 6), MS(20_000), |_| true).1);
        p
    };
    let share = |p: &Pair| p.sent_ect[A] as f64 / p.sent[A] as f64;
    let with = share(&story());
    assert!((0.1..0.7).contains(&with), "{with}");
    assert!(share(&without(Mechanism::EcnValidation, story)) > 0.95);
}

#[test]
fn thirty_percent_loss_on_the_return_path_costs_the_path_there_little() {
    let on = |c: &mut [Conditions; 2]| c[B].loss = 0.3;
    let spurious = |s: &Story| s.sender().spurious_losses as f64 / s.sender().sent_packets as f64;
    let per_byte = |s: &Story| s.p.sent_bytes[A] as f64 / 6e6;
    let with = story(NodeConfig::default(), on);
    assert!(with.is_done && spurious(&with) < 0.02 && per_byte(&with) < 1.2 / 0.9, "{} {}", spurious(&with), per_byte(&with));
    let without = without(Mechanism::AckRepetition, || story(NodeConfig::default(), on));
    // What is never reported counts as lost: 30 % more seem to be.
    let seen = |s: &Story| s.sender().lost_packets as f64 / s.sender().sent_packets as f64;
    assert!(seen(&without) > 0.25 && seen(&with) < 0.15, "{} {}", seen(&without), seen(&with));
    assert!(per_byte(&without) > per_byte(&with) * 1.1, "{} {}", per_byte(&without), per_byte(&with));
}

#[test]
fn acknowledgements_come_as_often_as_the_sender_wishes() {
    // 100 Mbit/s and 20 ms: a packet each 0.12 ms.
    let packets = |acks| {
        let s = story(NodeConfig { acks, ..NodeConfig::default() }, |_| ());
        assert!(s.is_done);
        s.p.sent[B] as f64 / s.p.sent[A] as f64
    };
    let often = packets(AckWish { every: 2, ..AckWish::default() });
    let usual = packets(AckWish::default());
    assert!(often > 0.35 && usual < 0.2, "{often:.3} and {usual:.3} packets back for each one there");
}

/// 12 MB at 50 Mbit/s; half-way so many packets in a row are lost on the return path, by a burst that ends after packets, not after a time. How long it takes.
fn lost_in_a_row(mut packets: u32) -> Duration {
    let mut p = Pair::new(Default::default(), Conditions { rate: Some(6.25e6), loss: 0.0, ..lossy() }, 6);
    let (_, session) = p.connect();
    p.filter = Some(Box::new(move |by, now, _| {
        let is_lost = by == B && now >= at(1000) && packets > 0;
        packets -= u32::from(is_lost);
        is_lost
    }));
    assert!(p.attempt(session, &content(12_000_000, 6), MS(20_000), |_| true).1);
    p.now.since(at(0))
}

#[test]
fn a_hundred_packets_lost_in_a_row_on_the_return_path_stop_no_sender() {
    let usual = lost_in_a_row(0);
    let with = [60, 80, 100].map(lost_in_a_row);
    assert!(with.iter().all(|t| *t < usual + MS(400)), "{with:?}, {usual:?} without losses");
    let without = without(Mechanism::SilentWindow, || lost_in_a_row(100));
    assert!(without > with[2] + MS(300), "{without:?} {with:?} {usual:?}");
}

#[test]
fn an_outage_of_five_seconds_is_over_a_second_after_its_end() {
    // When a probe that backs off meets the end of an outage is chance: sixteen outages.
    let finish = |start: u64| {
        let s = story(NodeConfig::default(), |c: &mut [Conditions; 2]| {
            for c in c {
                c.outages.push((at(start), at(start + 5000)));
                c.delay = MS(50);
            }
        });
        assert!(s.is_done);
        s.p.now.since(at(start + 5000))
    };
    let starts = || (600..=900).step_by(20);
    let with: Vec<_> = starts().map(finish).collect();
    let without: Vec<_> = without(Mechanism::SilenceProbes, || starts().map(finish).collect());
    assert!(with.iter().all(|t| *t < MS(1500)), "small probes, then the rest of the transfer: {with:?}");
    assert!(without.iter().sum::<Duration>() > with.iter().sum::<Duration>() + MS(2000), "{without:?} {with:?}");
}

#[test]
fn duplicates_are_taken_once() {
    let on = |c: &mut [Conditions; 2]| c.iter_mut().for_each(|c| (c.duplicates, c.jitter) = (0.2, MS(20)));
    let with = story(NodeConfig::default(), on);
    let received = with.receiver.as_ref().unwrap();
    assert!(with.is_done && received.replayed > 300 && received.received_packets <= with.sender().sent_packets, "{received:?}");
    let without = without(Mechanism::ReplayWindow, || story(NodeConfig::default(), on));
    let (received, sent) = (without.receiver.as_ref().unwrap().received_packets, without.sender().sent_packets);
    assert!(received > sent, "{received} packets received of {sent}");
}

#[test]
fn reordering_is_learnt_and_not_taken_for_loss() {
    let on = |c: &mut [Conditions; 2]| c.iter_mut().for_each(|c| (c.loss, c.jitter) = (0.02, MS(10)));
    let spurious = |s: &Story| s.sender().spurious_losses as f64 / s.sender().sent_packets as f64;
    let with = story(NodeConfig::default(), on);
    let without = without(Mechanism::ReorderingWindow, || story(NodeConfig::default(), on));
    assert!(with.is_done && spurious(&with) < 0.05, "{}", spurious(&with));
    assert!(spurious(&without) > 3.0 * spurious(&with) && spurious(&without) > 0.1, "{} {}", spurious(&without), spurious(&with));
}

#[test]
fn hosts_that_are_busy_with_other_things_do_not_take_that_for_a_slow_path() {
    // Each gets a turn every 5 ms, on a path that needs half a millisecond.
    let story = || {
        let mut p = Pair::new(
            Default::default(),
            Conditions { rate: Some(12.5e6), delay: MS(0) + Duration::from_micros(250), ..Conditions::default() },
            3,
        );
        p.turns = [Some(MS(5)); 2];
        let (_, session) = p.connect();
        let data = content(4_000_000, 3);
        let (got, is_done) = p.attempt(session, &data, MS(20_000), |_| true);
        assert!(!is_done || got == data);
        p.now.since(at(0))
    };
    let (with, alone) = (story(), without(Mechanism::LateHosts, story));
    println!("4 MB in {with:?}, {alone:?} where nothing is made up for");
    assert!(with < MS(2500) && alone > with * 3, "{with:?} {alone:?}");
}
