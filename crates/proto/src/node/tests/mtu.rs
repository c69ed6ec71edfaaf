//! The path's MTU falls and rises again under a transfer (P5), and what the own system says of it.

use super::pair::{A, B, Conditions, Pair, content};
use super::{MS, at, lossy};
use crate::NodeConfig;
use crate::event::Event;
use crate::switch::{Mechanism, without};
use crate::trace::What;
use crate::units::Duration;

/// 8 MB over a path that takes 1252 bytes of UDP payload (IP packets of 1280) from 200 ms on, and, if they arrive, 8 MB more, in the middle of which it
/// takes 1472 again; some seconds later one more. Whether each arrived in 20 s, and the size of datagrams after it.
fn story() -> Vec<(bool, u16)> {
    let mut p = Pair::new(Default::default(), lossy(), 5);
    let (link, session) = p.connect();
    let data = content(8_000_000, 5);
    let mut seen = Vec::new();
    for (mtu, pause) in [(1252, 0), (1472, 7000), (1472, 0)] {
        let change = p.now + MS(200);
        p.changes.push_back((change, Box::new(move |c| c.iter_mut().for_each(|c| c.mtu = mtu))));
        let (got, is_done) = p.attempt(session, &data, MS(20_000), |_| true);
        assert!(!is_done || (got == data && p.now > change + MS(200)), "the change came in mid-transfer");
        seen.push((is_done, p.nodes[A].link_stats(link).map_or(0, |s| s.paths[0].mtu)));
        if !is_done {
            break;
        }
        p.run_until(MS(pause), |_| false);
    }
    seen
}

#[test]
fn a_path_that_shrinks_to_1280_in_mid_transfer_and_grows_again_is_used_at_its_size() {
    let seen = story();
    assert!(seen[0].0 && (1200..=1252).contains(&seen[0].1), "{seen:?}");
    assert!(seen[1].0, "{seen:?}");
    assert_eq!(seen[2], (true, 1472));
}

/// A transfer over a path that takes 996 bytes of UDP payload (IP packets of 1024), told to the nodes or not, at 10 % loss. When the link was up, if
/// ever, and the size of datagrams after the transfer.
fn narrow(max_datagram: u16) -> Option<(Duration, u16)> {
    let config = || NodeConfig { max_datagram, ..NodeConfig::default() };
    let mut p = Pair::new([config(), config()], Conditions { mtu: 996, ..lossy() }, 5);
    let start = p.now;
    let (link, session) = p.connect();
    let is_up = |p: &Pair| p.events[A].iter().any(|e| matches!(e, Event::LinkUp { .. }));
    if !p.run_until(MS(9000), |p| is_up(p)) {
        return None;
    }
    let up = p.now.since(start);
    let data = content(4_000_000, 5);
    assert!(p.transfer(session, &data, MS(20_000)) == data);
    Some((up, p.nodes[A].link_stats(link)?.paths[0].mtu))
}

#[test]
fn a_path_of_1024_bytes_is_found_out_by_smaller_first_flights() {
    let (up, mtu) = narrow(1472).expect("up");
    // An unknown key is answered with a cookie first: each exchange has to find its size, at 10 % of loss.
    assert!(up < MS(2500) && (900..=996).contains(&mtu), "{up:?} {mtu}");
    assert_eq!(without(Mechanism::SmallFirstFlights, || narrow(1472)), None);
}

#[test]
fn a_path_of_1024_bytes_that_is_told_costs_no_attempt() {
    let (up, mtu) = narrow(996).expect("up");
    assert!(up < MS(400) && mtu == 996, "{up:?} {mtu}");
}

#[test]
fn a_path_that_shrinks_to_1024_in_mid_transfer_goes_on() {
    let mut p = Pair::new(Default::default(), lossy(), 5);
    let (link, session) = p.connect();
    let change = p.now + MS(200);
    p.changes.push_back((change, Box::new(|c| c.iter_mut().for_each(|c| c.mtu = 996))));
    let data = content(8_000_000, 5);
    assert!(p.transfer(session, &data, MS(20_000)) == data && p.now > change + MS(200));
    let mtu = p.nodes[A].link_stats(link).map(|s| s.paths[0].mtu);
    assert!(mtu.is_some_and(|m| (800..=996).contains(&m)), "{mtu:?}");
}

#[test]
fn without_the_detection_of_black_holes_it_swallows_the_rest() {
    assert!(!without(Mechanism::BlackHoleDetection, story)[0].0);
}

#[test]
fn without_fragments_the_packets_made_before_never_arrive() {
    assert!(!without(Mechanism::Fragments, story)[0].0);
}

#[test]
fn without_probes_nobody_knows_that_it_has_grown() {
    let seen = without(Mechanism::MtuProbes, story);
    assert!(seen[2].0 && seen[2].1 < 1472, "{seen:?}");
}

#[test]
fn a_black_hole_is_noticed_by_its_losses_and_data_flows_again_within_three_round_trips() {
    let (rtt, shrinks) = (MS(20), at(400));
    for seed in 1..5 {
        let config = NodeConfig { trace: true, ..NodeConfig::default() };
        let mut p = Pair::new([config, NodeConfig::default()], lossy(), seed);
        p.changes.push_back((shrinks, Box::new(|c| c.iter_mut().for_each(|c| c.mtu = 1252))));
        p.arrivals = Some(Default::default());
        let (_, session) = p.connect();
        let data = content(8_000_000, seed);
        assert!(p.transfer(session, &data, MS(20_000)) == data);
        let falls = std::iter::from_fn(|| p.nodes[A].poll_trace()).filter(|e| e.time > shrinks && matches!(e.what, What::Mtu { .. }));
        let noticed = falls.map(|e| e.time).next().expect("traced");
        let data_at: Vec<_> = p.arrivals.unwrap()[B].iter().filter(|a| a.1 > 600).map(|a| a.0).collect();
        let again = *data_at.iter().find(|t| **t > noticed).unwrap();
        let pauses = data_at.windows(2).filter(|w| w[0] <= noticed && w[1] >= shrinks).map(|w| w[1].since(w[0]));
        let (noticed, again, pause) = (noticed.since(shrinks), again.since(noticed), pauses.max().unwrap());
        println!("noticed {noticed:?} after the change, data again {again:?} after that; longest time without data {pause:?}");
        assert!(noticed < rtt * 15 && again <= rtt * 3, "{noticed:?} {again:?}");
    }
}

/// A pair whose path takes datagrams of this size.
fn sized(mtu: usize, seed: u64) -> Pair {
    Pair::new(Default::default(), Conditions { mtu, ..Conditions::default() }, seed)
}

/// Both ends at addresses of IPv6.
fn over_v6(p: &mut Pair) {
    p.addresses = ["[fd77::1]:4000".parse().unwrap(), "[fd77::2]:4000".parse().unwrap()];
}

/// How long A takes until its link is up.
fn up(p: &mut Pair) -> Duration {
    let start = p.now;
    assert!(p.run_until(MS(9000), |p| p.events[A].iter().any(|e| matches!(e, Event::LinkUp { .. }))));
    p.now.since(start)
}

fn size_of(p: &Pair, node: usize, link: crate::ids::LinkId) -> u16 {
    p.nodes[node].link_stats(link).map_or(0, |s| s.paths[0].mtu)
}

#[test]
fn over_ipv6_packets_have_1500_bytes_with_its_longer_header() {
    // What more than 1452 bytes would be is fragmented or refused: here it vanishes.
    let mut p = sized(1452, 5);
    over_v6(&mut p);
    let (link, session) = p.connect();
    assert!(up(&mut p) < MS(25));
    let data = content(1_000_000, 5);
    assert!(p.transfer(session, &data, MS(10_000)) == data);
    assert_eq!(size_of(&p, A, link), 1452);
}

#[test]
fn a_path_narrower_than_the_own_link_costs_25_ms_and_its_size_is_found_while_nothing_is_sent() {
    // IP packets of 1492 (PPPoE), 1420 (WireGuard), 1280 and 1228 bytes over IPv4, 1280 over IPv6; nobody tells of it.
    for (mtu, is_v6) in [(1464, false), (1392, false), (1252, false), (1200, false), (1232, true)] {
        let mut p = sized(mtu, 5);
        if is_v6 {
            over_v6(&mut p);
        }
        let (link, _) = p.connect();
        let up = up(&mut p);
        assert!(up <= MS(50), "{mtu}: {up:?}");
        p.run_until(MS(8000), |_| false);
        let found = [size_of(&p, A, link), size_of(&p, B, the_link(&p, B))];
        assert!(found.iter().all(|f| usize::from(*f) <= mtu && mtu < usize::from(*f) + 17), "{mtu}: {found:?}");
    }
}

#[test]
fn what_the_route_takes_is_sent_first_and_used_at_once() {
    for mtu in [1464, 1252, 996] {
        let mut p = sized(mtu, 5);
        let (link, _) = p.connect();
        p.nodes[A].on_route_size(p.now, p.addresses[B].ip(), mtu as u16);
        assert!(up(&mut p) < MS(25), "{mtu}");
        assert_eq!(usize::from(size_of(&p, A, link)), mtu);
    }
}

#[test]
fn what_the_own_system_refuses_is_made_again_smaller_without_a_timer() {
    let mut p = sized(1472, 5);
    p.own_limit = [1252, 1472];
    let (link, session) = p.connect();
    assert!(up(&mut p) < MS(25), "the first datagram was made again at once");
    assert!(p.refused[A] > 0);
    let data = content(1_000_000, 5);
    assert!(p.transfer(session, &data, MS(10_000)) == data);
    let path = |p: &Pair| p.nodes[A].link_stats(link).unwrap().paths[0].clone();
    let (first, refused) = (path(&p), p.refused[A]);
    // A network card, or a route, takes less from now on: what is sent next is refused.
    p.own_limit[A] = 1000;
    assert!(p.transfer(session, &data, MS(10_000)) == data);
    let second = path(&p);
    assert!((800..=1000).contains(&second.mtu), "{}", second.mtu);
    assert!(p.refused[A] > refused);
    // Nothing waited for a probe time-out, and nothing of it counts as loss of the path.
    assert!(second.ptos - first.ptos <= first.ptos && second.lost_packets == 0, "{} {} {}", first.ptos, second.ptos, second.lost_packets);
}

#[test]
fn a_route_that_is_said_to_take_less_is_followed_and_tried_above_before_long() {
    let mut p = sized(1472, 5);
    let (link, _) = p.connect();
    up(&mut p);
    p.run_until(MS(100), |_| false);
    assert_eq!(size_of(&p, A, link), 1472);
    // A forged "packet too big", for instance.
    p.nodes[A].on_route_size(p.now, p.addresses[B].ip(), 900);
    assert_eq!(size_of(&p, A, link), 900);
    p.run_until(MS(6000), |_| false);
    assert_eq!(size_of(&p, A, link), 1472, "a probe has shown it wrong");
    // The path itself grows: the route says so.
    let mut p = sized(1252, 5);
    let (link, _) = p.connect();
    p.nodes[A].on_route_size(p.now, p.addresses[B].ip(), 1252);
    up(&mut p);
    p.run_until(MS(100), |_| false);
    p.conditions.iter_mut().for_each(|c| c.mtu = 1472);
    p.nodes[A].on_route_size(p.now, p.addresses[B].ip(), 1472);
    p.run_until(MS(500), |_| false);
    assert_eq!(size_of(&p, A, link), 1472);
}

#[test]
fn an_answer_that_the_own_system_refuses_is_made_again_smaller() {
    let mut p = sized(1472, 5);
    p.own_limit = [1472, 1000];
    let (link, _) = p.connect();
    assert!(up(&mut p) < MS(25));
    p.run_until(MS(3000), |_| false);
    let there = the_link(&p, B);
    assert_eq!(size_of(&p, A, link), 1472);
    assert!((800..=1000).contains(&size_of(&p, B, there)));
}

fn the_link(p: &Pair, node: usize) -> crate::ids::LinkId {
    *p.nodes[node].links.keys().max().unwrap()
}
