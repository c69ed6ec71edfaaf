//! A relay that lies (P16): not one byte wrong at the destination, the link named, another route taken; and the same stories with each defence
//! switched off (P26).

use super::MS;
use super::mesh::{Mesh, Stream};
use super::pair::Conditions;
use crate::event::Event;
use crate::ids::LinkId;
use crate::switch::{Mechanism, without};
use crate::wire::Frames;
use crate::wire::frame::{Coefficients, Frame};
use core::ops::Range;

/// The relay of the preferred route from node 0 to node 3.
pub(super) const LIAR: usize = 1;

/// Two routes from node 0 to node 3, each 20 Mbit/s and 10 ms: by the liar, which is preferred, and by 2.
pub(super) fn diamond(loss: f64) -> Mesh {
    let link = Conditions { loss, delay: MS(5), rate: Some(2.5e6), ..Conditions::default() };
    let edges = [(0, LIAR), (LIAR, 3), (0, 2), (2, 3)].map(|(a, b)| (a, b, link.clone()));
    let mut m = Mesh::new(4, &edges, 4);
    m.connect_all();
    let now = m.now;
    for (node, far) in [(0, 3), (3, 0)] {
        let routes = vec![m.route(far, LIAR, 1), m.route(far, 2, 2)];
        m.nodes[node].set_routes(now, routes);
    }
    for relay in [LIAR, 2] {
        let routes = vec![m.route(0, 0, 0), m.route(3, 3, 0)];
        m.nodes[relay].set_routes(now, routes);
    }
    m
}

/// Where the symbols of coded packets lie, and whether each is uncoded.
pub(super) fn symbols(frames: &[u8]) -> Vec<(Range<usize>, bool)> {
    let coded = Frames::new(frames).filter_map(|frame| match frame {
        Ok(Frame::Coded(coded)) => {
            let at = coded.symbol.as_ptr() as usize - frames.as_ptr() as usize;
            Some((at..at + coded.symbol.len(), matches!(coded.coefficients, Coefficients::Index(_))))
        }
        _ => None,
    });
    coded.collect()
}

/// From now on the liar changes whatever it sends of others' flows.
pub(super) fn lie(m: &mut Mesh, tamper: impl FnMut(&mut [u8]) + 'static) {
    m.nodes[LIAR].shared.lies.set(tamper);
}

/// What a story ended with.
pub(super) struct End {
    pub(super) is_complete: bool,
    /// Polluted packets that the destination counted, by link.
    pub(super) polluted: Vec<(LinkId, u64)>,
    /// The link of the destination to the liar.
    pub(super) liar: LinkId,
    pub(super) named: Option<LinkId>,
}

pub(super) fn link_to(m: &Mesh, node: usize, far: usize) -> LinkId {
    m.nodes[node].next_hop(super::mesh::ip(far), &[]).unwrap()
}

pub(super) fn end(m: &mut Mesh, is_complete: bool) -> End {
    let liar = link_to(m, 3, 0);
    let links: Vec<LinkId> =
        m.events[3].iter().filter_map(|e| if let Event::LinkUp { link, .. } = e { Some(*link) } else { None }).collect();
    let polluted = links.into_iter().filter_map(|l| Some((l, m.nodes[3].link_stats(l)?.polluted))).collect();
    let named = m.events[3].iter().find_map(|e| if let Event::Polluted { link, .. } = e { Some(*link) } else { None });
    End { is_complete, polluted, liar, named }
}

/// 3 MB from 0 to 3 under loss; the liar begins after 300 ms.
fn story(tamper: impl FnMut(&mut [u8]) + 'static) -> End {
    let mut m = diamond(0.05);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let at = m.now + MS(300);
    m.run_until(MS(300), |m| {
        s.write(m, 3_000_000);
        s.read(m, 3);
        m.now >= at
    });
    assert!(s.got > 100_000 && s.got < 1_500_000, "in mid-transfer: {}", s.got);
    lie(&mut m, tamper);
    let is_complete = finish(&mut m, &mut s, 3_000_000);
    end(&mut m, is_complete)
}

/// True if all arrived; what arrived is right in any case.
pub(super) fn finish(m: &mut Mesh, s: &mut Stream, size: u64) -> bool {
    s.transfer(m, 3, size, MS(20_000))
}

pub(super) fn flip(at: impl Fn(&Range<usize>) -> usize + 'static, every: usize) -> impl FnMut(&mut [u8]) + 'static {
    let mut count = 0;
    move |frames| {
        for (range, _) in symbols(frames) {
            count += 1;
            if count % every == 0 && range.len() > 12 {
                frames[at(&range)] ^= 0x40;
            }
        }
    }
}

pub(super) fn assert_survived(end: &End) {
    assert!(end.is_complete);
    assert_eq!(end.named, Some(end.liar));
    for (link, count) in &end.polluted {
        assert_eq!(*count > 0, *link == end.liar, "link {link}: {count}");
    }
}

#[test]
fn altered_data_tags_and_lengths_are_rejected_and_another_route_is_taken() {
    for every in [1, 7] {
        assert_survived(&story(flip(|symbol| symbol.end - 1, every)));
        assert_survived(&story(flip(|symbol| symbol.start + 4, every)));
        assert_survived(&story(flip(|symbol| symbol.start + 1, every)));
    }
}

#[test]
fn without_the_check_altered_data_end_the_session() {
    assert!(!without(Mechanism::PollutionCheck, || story(flip(|symbol| symbol.end - 1, 7))).is_complete);
}

#[test]
fn without_another_route_a_transfer_through_a_liar_does_not_end() {
    assert!(!without(Mechanism::RouteAvoidance, || story(flip(|symbol| symbol.end - 1, 1))).is_complete);
}

#[test]
fn altered_coefficients_are_rejected() {
    let end = story(|frames| {
        for (range, is_source) in symbols(frames) {
            // Whatever stands before the symbol of a combination without length belongs to its seed or vector.
            if !is_source && range.end == frames.len() {
                frames[range.start - 1] ^= 1;
            }
        }
    });
    assert_survived(&end);
}

#[test]
fn old_packets_in_place_of_new_ones_bring_nothing_and_harm_nothing() {
    let mut first: Option<Vec<u8>> = None;
    let end = story(move |frames| {
        if let [(range, true)] = &symbols(frames)[..]
            && range.len() > 1000
        {
            match &first {
                Some(old) if old.len() == frames.len() => frames.copy_from_slice(old),
                Some(_) => {}
                None => first = Some(frames.to_vec()),
            }
        }
    });
    assert!(end.is_complete);
}

#[test]
fn invented_packets_are_rejected() {
    let mut state = 1u64;
    let end = story(move |frames| {
        for (range, _) in symbols(frames) {
            for byte in &mut frames[range] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        }
    });
    assert_survived(&end);
}

/// Everything is acknowledged and nothing passed on.
pub(super) fn swallow(frames: &mut [u8]) {
    if !symbols(frames).is_empty() {
        frames.fill(0);
    }
}

#[test]
fn what_is_acknowledged_and_not_delivered_goes_by_another_route() {
    assert!(story(swallow).is_complete);
}

#[test]
fn what_is_acknowledged_and_not_delivered_is_lost_to_an_end_that_never_looks() {
    assert!(!without(Mechanism::RouteAvoidance, || story(swallow)).is_complete);
}
