//! A `Path` against a `Path` under a scripted clock: fates, probes, replays, marks, path MTU. Each mechanism is forced and shown to matter (P26).

use noctule_proto::congestion::CongestionControl;
use noctule_proto::error::Code;
use noctule_proto::ids::{PacketNumber, PathId};
use noctule_proto::path::{Fates, Path, PathConfig};
use noctule_proto::sent::{SentItem, SentItems};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::wire::ack::{self, AckHead, AckView};
use noctule_proto::wire::frame::Frame;
use noctule_proto::wire::varint::Reader;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

const RTT: Duration = Duration::from_millis(40);

fn path(config: PathConfig) -> Path {
    let config = PathConfig { initial_rtt: Some(RTT), congestion: CongestionControl::None, ..config };
    let addr = "192.0.2.1:4000".parse().expect("address");
    Path::new(PathId(3), addr, None, config, ChaCha12Rng::seed_from_u64(7), Time::ZERO)
}

/// One whose search for larger packets has begun, and finds nothing.
fn path_of_one_size() -> Path {
    let mut path = path(PathConfig::default());
    path.poll_mtu_probe(Time::ZERO);
    path
}

fn send(p: &mut Path, now: Time, bytes: u16, item: SentItem) -> PacketNumber {
    let pn = p.next_packet_number();
    p.on_sent(now, pn, bytes, true, false, SentItems::from_iter([item]));
    pn
}

fn coded(i: u64) -> SentItem {
    SentItem::Rank { flow: noctule_proto::ids::FlowLabel(1), base: noctule_proto::ids::Seq(i) }
}

/// An ACK of these numbers.
fn ack_of(numbers: &[u64], now: Time, p: &mut Path, fates: &mut Fates) -> Result<(), Code> {
    let largest = *numbers.iter().max().expect("a number");
    let word = |w: u64| numbers.iter().filter(|&&n| n / 64 == w).fold(0u64, |bits, n| bits | 1 << (n % 64));
    let head = AckHead { path: PathId(3), largest: PacketNumber(largest), delay: Duration::ZERO, ecn: None };
    let mut out = Vec::new();
    ack::emit(&mut out, &head, word, PacketNumber(*numbers.iter().min().expect("a number")), 1200).expect("fits");
    p.on_ack(now, &view(&out), fates)
}

fn view(bytes: &[u8]) -> AckView<'_> {
    match Frame::parse(&mut Reader::new(bytes)) {
        Ok(Some(Frame::Ack(view))) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn acknowledging_a_number_that_was_never_sent_is_an_error() {
    // P3: of 3000 numbers some are skipped.
    let mut p = path(PathConfig::default());
    let mut sent = Vec::new();
    for i in 0..3000 {
        sent.push(send(&mut p, Time::from_micros(i * 10), 1200, coded(i)).0);
    }
    let skipped: Vec<u64> = (0..*sent.last().expect("sent")).filter(|n| sent.binary_search(n).is_err()).collect();
    assert!((1..60).contains(&skipped.len()), "{} skipped", skipped.len());
    let mut fates = Fates::default();
    assert_eq!(ack_of(&[sent[0], sent[1]], Time::from_millis(50), &mut p, &mut fates), Ok(()));
    assert_eq!(ack_of(&[skipped[0] - 1, skipped[0]], Time::from_millis(51), &mut p, &mut fates), Err(Code::AckOfSkipped));
    assert_eq!(ack_of(&[sent[sent.len() - 1] + 1], Time::from_millis(51), &mut p, &mut fates), Err(Code::AckOfSkipped));
}

#[test]
fn every_packet_has_exactly_one_fate_and_spurious_losses_are_told() {
    let mut p = path(PathConfig::default());
    let pns: Vec<u64> = (0..10).map(|i| send(&mut p, Time::from_millis(i * 2), 1200, coded(i)).0).collect();
    let mut fates = Fates::default();
    // The fourth is missing; the ninth was sent ten ms later and is there: a window of RTT/8 = 5 ms has passed.
    ack_of(&[0, 1, 2, 4, 5, 6, 7, 8].map(|i: usize| pns[i]), Time::from_millis(60), &mut p, &mut fates).expect("honest");
    assert_eq!(fates.acked.len(), 8);
    assert_eq!(fates.lost, vec![coded(3)]);
    fates.clear();
    let before = p.reordering_window();
    ack_of(&[pns[3], pns[9]], Time::from_millis(62), &mut p, &mut fates).expect("honest");
    assert_eq!((fates.acked.len(), fates.spurious.clone()), (1, vec![coded(3)]));
    assert!(p.reordering_window() > before, "P10: a spurious loss widens the window");
    fates.clear();
    ack_of(&pns, Time::from_millis(63), &mut p, &mut fates).expect("honest");
    assert!(fates.acked.is_empty() && fates.lost.is_empty() && fates.spurious.is_empty());
    assert_eq!(p.in_flight(), 0);
}

#[test]
fn a_lost_tail_wakes_two_probes_and_probes_back_off_beyond_a_second_before_a_sample() {
    let mut p = path_of_one_size();
    let mut fates = Fates::default();
    send(&mut p, Time::ZERO, 1200, coded(0));
    let mut now = Time::ZERO;
    let mut gaps = Vec::new();
    for probes in [2, 2, 1, 1, 1, 1] {
        let due = p.poll_timeout().expect("a PTO");
        gaps.push(due.since(now));
        now = due;
        p.handle_timeout(now, &mut fates);
        for _ in 0..probes {
            assert!(p.probe_wanted());
            send(&mut p, now, 1200, SentItem::Ping);
        }
        assert!(!p.probe_wanted());
    }
    assert!(gaps.windows(2).all(|w| w[1] >= w[0]), "{gaps:?}");
    // Nothing was measured yet: a second may be less than a packet takes (docs/decisions/0170).
    assert!(*gaps.last().expect("gaps") > Duration::from_secs(1), "{gaps:?}");
    assert_eq!(p.send_allowance(now), 0, "stalled: nothing but probes, even without congestion control");
    assert!(!p.is_circuit_open(now));
    while now < Time::from_millis(31_000) {
        now = p.poll_timeout().expect("a PTO");
        p.handle_timeout(now, &mut fates);
        send(&mut p, now, 1200, SentItem::Ping);
    }
    assert!(p.is_circuit_open(now), "RFC 8084");
    // An answer to the last probe ends it all; what came before is lost.
    let last = p.next_number().0 - 1;
    fates.clear();
    ack_of(&[last], now + RTT, &mut p, &mut fates).expect("honest");
    assert!(p.send_allowance(now + RTT) > 0 && !p.is_circuit_open(now + RTT));
    assert!(fates.lost.contains(&coded(0)));
}

/// Both directions for a while; `lose` says which data packets are dropped. Gives the sender.
fn converse(seconds: u64, lose: impl Fn(u64, u16) -> bool, mark: impl Fn(u64) -> Ecn, config: PathConfig) -> (Path, u64) {
    let (mut a, mut b) = (path(config.clone()), path(config));
    let mut fates = Fates::default();
    let mut delivered = 0;
    let half = RTT / 2;
    let mut forward: std::collections::VecDeque<(Time, PacketNumber, u16, Ecn)> = Default::default();
    let mut back: std::collections::VecDeque<(Time, Vec<u8>)> = Default::default();
    for step in 0..seconds * 1000 {
        let now = Time::from_millis(step);
        while forward.front().is_some_and(|f| f.0 <= now) {
            let Some((_, pn, bytes, ecn)) = forward.pop_front() else { break };
            if !b.is_duplicate(pn) {
                b.on_received(now, pn, ecn, bytes, true);
                delivered += u64::from(bytes);
            }
        }
        if b.ack_due(now) {
            let mut out = Vec::new();
            b.write_ack(now, 1000, &mut out).expect("something arrived");
            back.push_back((now + half, out));
        }
        while back.front().is_some_and(|f| f.0 <= now) {
            let Some((_, bytes)) = back.pop_front() else { break };
            fates.clear();
            a.on_ack(now, &view(&bytes), &mut fates).expect("honest");
        }
        if a.poll_timeout().is_some_and(|t| t <= now) {
            a.handle_timeout(now, &mut fates);
        }
        let probe = a.poll_mtu_probe(now);
        let room = if a.send_allowance(now) > 0 || a.probe_wanted() { 4 } else { 0 };
        let sizes = probe.into_iter().map(|s| (s, true)).chain((0..room).map(|_| (a.datagram_size(), false))).collect::<Vec<_>>();
        for (size, is_probe) in sizes {
            let ecn = a.ecn_codepoint();
            let pn = send(&mut a, now, size, if is_probe { SentItem::MtuProbe(size) } else { SentItem::Ping });
            if !lose(pn.0, size) {
                let ecn = if ecn == Ecn::Ect0 { mark(pn.0) } else { ecn };
                forward.push_back((now + half, pn, size, ecn));
            }
        }
    }
    (a, delivered)
}

#[test]
fn the_path_mtu_rises_to_what_passes_and_falls_out_of_a_black_hole() {
    let config = PathConfig { max_datagram: 1472, initial_datagram: 1200, ..PathConfig::default() };
    let (a, _) = converse(10, |pn, size| size > 1400 || pn % 10 == 3, |_| Ecn::Ect0, config.clone());
    assert!((1384..=1400).contains(&a.datagram_size()), "{}", a.datagram_size());
    // From packet 2000 on only 1300 bytes pass (a route has changed): data must flow again.
    let config = PathConfig { initial_datagram: 1472, ..config };
    let (a, delivered) = converse(20, |pn, size| pn > 2000 && size > 1300, |_| Ecn::Ect0, config);
    assert!((1200..=1300).contains(&a.datagram_size()), "{}", a.datagram_size());
    assert!(delivered > 40_000_000, "{delivered} bytes");
}

#[test]
fn marks_are_counted_and_bleaching_ends_marking() {
    let (a, _) = converse(3, |_, _| false, |pn| if pn % 10 == 0 { Ecn::Ce } else { Ecn::Ect0 }, PathConfig::default());
    let share = a.stats().ce_packets as f64 / a.stats().sent_packets as f64;
    assert!((0.09..0.11).contains(&share), "{share}");
    assert_eq!(a.ecn_codepoint(), Ecn::Ect0);
    let (a, _) = converse(3, |_, _| false, |_| Ecn::NotEct, PathConfig::default());
    assert_eq!(a.ecn_codepoint(), Ecn::NotEct);
}

#[test]
fn loss_statistics_tell_bursts_from_single_losses() {
    let (single, _) = converse(5, |pn, _| pn % 20 == 7, |_| Ecn::Ect0, PathConfig::default());
    let s = single.loss_stats();
    assert!((s.mean.get() - 0.05).abs() < 0.01 && s.burst_packets < 1.1, "{s:?}");
    let (burst, _) = converse(5, |pn, _| pn % 80 < 8, |_| Ecn::Ect0, PathConfig::default());
    let s = burst.loss_stats();
    assert!((s.mean.get() - 0.1).abs() < 0.02 && (7.0..9.0).contains(&s.burst_packets), "{s:?}");
    assert!(s.burst_duration >= Duration::from_millis(1), "{s:?}");
}

#[test]
fn memory_follows_the_flight_and_not_the_history() {
    let (a, _) = converse(60, |pn, _| pn % 10 == 7, |_| Ecn::Ect0, PathConfig::default());
    assert!(a.stats().sent_packets > 200_000);
    assert!(a.memory() < 400_000, "{} bytes", a.memory());
}

#[test]
fn an_idle_path_asks_for_nothing() {
    let mut p = path_of_one_size();
    let mut fates = Fates::default();
    let pn = send(&mut p, Time::ZERO, 1200, coded(1));
    ack_of(&[pn.0], Time::from_millis(40), &mut p, &mut fates).expect("honest");
    assert_eq!(p.poll_timeout(), None);
}

#[test]
fn a_burst_leaves_capacity_to_spare_and_a_backlog_does_not() {
    let mut p = path(PathConfig::default());
    let mut number = 0;
    let mut waits = |p: &mut Path, from: u64, ms: u64| {
        // A packet per millisecond with more behind it; the last one finds nothing behind it.
        for at in from..from + ms {
            let (now, pn) = (Time::from_millis(at), p.next_packet_number());
            p.on_sent(now, pn, 100, true, at + 1 == from + ms, [coded(number)].into_iter().collect());
            number += 1;
        }
    };
    waits(&mut p, 1000, 8);
    assert!(p.spare_allowance(Time::from_millis(1009)) > 0, "a message of eight packets does not fill the path");
    waits(&mut p, 1100, 20);
    assert_eq!(p.spare_allowance(Time::from_millis(1121)), 0, "data waited for half a round trip");
    assert!(p.spare_allowance(Time::from_millis(1300)) > 0, "that is long ago");
}
