//! Paths of one link through one bottleneck take what one flow would have there (P7).

use super::super::MS;
use super::super::mesh::{Mesh, address};
use super::super::pair::Conditions;
use super::bundle::{paths, wire};
use crate::NodeConfig;
use crate::congestion::CongestionControl;
use crate::switch::{Mechanism, without};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
/// Long enough for all that may be written.
const ENDLESS: u64 = 1 << 40;

/// What a link of two paths from A to B and one of one path from C to D carried between second 8 and 16, in Mbit/s.
struct Story {
    two: f64,
    one: f64,
    is_coupled: bool,
}

impl Story {
    fn share(&self) -> f64 {
        self.two / (self.two + self.one)
    }
}

fn story(control: CongestionControl, wires: [Conditions; 3], is_shared: bool, seed: u64) -> Story {
    let [first, second, third] = wires;
    let mut m = Mesh::new(4, &[(A, B, first), (A, B, second), (C, D, third)], seed);
    for node in 0..4 {
        m.configure(node, NodeConfig { congestion: control, ..NodeConfig::default() });
    }
    m.buffer = MS(40);
    if is_shared {
        m.edges[1].trunk = Some(0);
        m.edges[2].trunk = Some(0);
    }
    let link = m.connect(0);
    m.nodes[A].add_path(m.now, link, address(1, B), Some(address(1, A).ip())).unwrap();
    let beside = m.connect(2);
    let mut streams = [(A, B, link), (C, D, beside)].map(|(from, to, link)| {
        let session = m.nodes[from].open_session(m.now, link).unwrap();
        (m.stream(from, session), to)
    });
    let mut run = |m: &mut Mesh, time| {
        m.run_until(time, |m| {
            for (stream, to) in &mut streams {
                stream.write(m, ENDLESS);
                stream.read(m, *to);
            }
            false
        });
        streams.each_ref().map(|(stream, _)| stream.got)
    };
    let before = run(&mut m, MS(8000));
    let after = run(&mut m, MS(8000));
    let [two, one] = [0, 1].map(|i| (after[i] - before[i]) as f64 * 8e-6 / 8.0);
    let is_coupled = paths(&m, A).iter().all(|path| path.coupled == 1);
    println!("{control:?}, seed {seed}: {two:.1} Mbit/s by two paths, {one:.1} by one, coupled: {is_coupled}");
    Story { two, one, is_coupled }
}

fn alike() -> [Conditions; 3] {
    [wire(40.0, MS(15), 0.01), wire(40.0, MS(15), 0.01), wire(40.0, MS(15), 0.01)]
}

#[test]
fn two_paths_through_one_bottleneck_take_the_share_of_one_flow() {
    for seed in 1..3 {
        let with = story(CongestionControl::Model, alike(), true, seed);
        let without = without(Mechanism::Coupling, || story(CongestionControl::Model, alike(), true, seed));
        assert!(with.is_coupled && (0.38..0.6).contains(&with.share()), "{}", with.share());
        assert!(!without.is_coupled && without.share() > 0.6, "{}", without.share());
    }
}

#[test]
fn a_longer_path_to_the_same_bottleneck_is_coupled_too() {
    let [near, _, beside] = alike();
    let far = story(CongestionControl::Model, [near, wire(40.0, MS(40), 0.01), beside], true, 1);
    assert!(far.is_coupled && (0.35..0.6).contains(&far.share()), "{}", far.share());
}

#[test]
fn windows_of_coupled_paths_weigh_less() {
    // Without random loss one story is one rhythm of windows: the mean of three round trips.
    let mean = |control| {
        let of = |ms| {
            let wires = alike().map(|wire| Conditions { loss: 0.0, delay: MS(ms), ..wire });
            let story = story(control, wires, true, 1);
            assert_eq!(story.is_coupled, !crate::switch::is_off(Mechanism::Coupling));
            story.share()
        };
        [13, 15, 17].map(of).iter().sum::<f64>() / 3.0
    };
    for control in [CongestionControl::Cubic, CongestionControl::Reno] {
        let (with, without) = (mean(control), without(Mechanism::Coupling, || mean(control)));
        println!("{control:?}: {with:.3}, {without:.3} without");
        assert!((0.38..0.58).contains(&with) && without > with + 0.1, "{control:?}: {with} and {without}");
    }
}

#[test]
fn paths_through_bottlenecks_of_their_own_are_not_coupled() {
    let apart = story(CongestionControl::Model, alike(), false, 1);
    assert!(!apart.is_coupled && apart.two > 1.9 * apart.one, "{} {}", apart.two, apart.one);
}
