//! One object to many receivers over a tree of nodes that pass it on (docs/spec/object.md 6).

use super::MS;
use super::pair::Conditions;
use super::tree::Tree;
use crate::object::RelayConfig;
use crate::switch::{Mechanism, without};

/// 20 Mbit/s, 5 ms one way.
fn link(loss: f64) -> Conditions {
    Conditions { loss, delay: MS(5), rate: Some(2.5e6), ..Conditions::default() }
}

/// A source, a node under it, and four receivers under that.
fn star(losses: [f64; 5], rates: [f64; 4], size: usize, seed: u64) -> Tree {
    let mut links = vec![(0, 1, link(losses[0]))];
    for (i, rate) in rates.into_iter().enumerate() {
        links.push((1, 2 + i, Conditions { rate: Some(rate), ..link(losses[i + 1]) }));
    }
    Tree::new(6, &links, size, RelayConfig::default(), seed)
}

const SAME: [f64; 4] = [2.5e6; 4];

#[test]
fn receivers_with_different_loss_all_complete_and_each_link_carries_each_packet_about_once() {
    let losses = [0.05, 0.01, 0.05, 0.1, 0.2];
    let mut tree = star(losses, SAME, 3_000_000, 1);
    assert!(tree.run(MS(20_000), |_| true) && tree.is_right());
    for (edge, loss) in losses.into_iter().enumerate() {
        let cost = tree.cost(edge) * (1.0 - loss);
        assert!(cost < 1.15, "link {edge}: {cost:.3} / (1 - p) bytes per byte");
    }
}

/// When the last of the three other receivers had everything, in seconds, with one whose link has this rate.
fn others(slow: f64) -> f64 {
    let mut tree = star([0.01; 5], [slow, 2.5e6, 2.5e6, 2.5e6], 8_000_000, 2);
    assert!(tree.run(MS(120_000), |node| node != 2));
    (3..6).filter_map(|n| tree.leaves[&n].done_at).max().unwrap().since(tree.started).as_secs_f64()
}

#[test]
fn a_receiver_at_a_twentieth_of_the_rate_costs_the_others_little() {
    let (alike, beside) = (others(2.5e6), others(2.5e6 / 20.0));
    assert!(beside < alike * 1.05, "{beside:.2} s instead of {alike:.2} s");
}

#[test]
fn with_relays_that_wait_for_everybody_the_slowest_sets_the_pace() {
    let (alike, beside) = (others(2.5e6), without(Mechanism::SkippingChildren, || others(2.5e6 / 20.0)));
    assert!(beside > alike * 3.0, "{beside:.2} s instead of {alike:.2} s");
}

#[test]
fn a_receiver_that_lags_is_completed_when_the_others_are_done() {
    let mut tree = star([0.01; 5], [2.5e6 / 8.0, 2.5e6, 2.5e6, 2.5e6], 3_000_000, 3);
    assert!(tree.run(MS(60_000), |_| true) && tree.is_right());
    assert!(tree.relay(1).stats().skipped > 500, "{:?}", tree.relay(1).stats());
    // What it missed crossed the first link again, and no more than that.
    assert!(tree.cost(0) < 2.4, "{:.2} bytes per byte", tree.cost(0));
    assert!(tree.cost(1) < 1.2, "{:.2} bytes per byte to the slow one", tree.cost(1));
}

/// A source, node 1 under it, nodes 2 to 5 under that, five receivers under each; losses of the 25 links between 1 and 20 %, in each direction.
fn broad(size: usize, slow: f64, seed: u64) -> (Tree, Vec<(usize, usize, f64)>) {
    let mut ends = vec![(0, 1)];
    ends.extend((2..6).map(|node| (1, node)));
    ends.extend((0..20).map(|i| (2 + i / 5, 6 + i)));
    let links: Vec<_> = (0..).zip(ends).map(|(i, (a, b))| (a, b, 0.01 + 0.01 * f64::from(i * 7 % 20))).collect();
    let rate = |to: usize| if to == 6 { 2.5e6 / slow } else { 2.5e6 };
    let all: Vec<_> =
        links.iter().map(|(a, b, loss)| (*a, *b, Conditions { rate: Some(rate(*b)), delay: MS(10), ..link(*loss) })).collect();
    (Tree::new(26, &all, size, RelayConfig::default(), seed), links)
}

/// Bytes per link: `cargo test -p noctule-proto --lib -- --ignored --nocapture table_of_bytes_per_link`. With `SLOW=20` the first receiver has a twentieth of the rate,
/// `MBYTES` and `SEED` change size and seed.
#[test]
#[ignore = "a table, not a test"]
fn table_of_bytes_per_link_of_a_tree_with_twenty_receivers() {
    let number = |name: &str, default: f64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (mbytes, slow, seed) = (number("MBYTES", 10.0), number("SLOW", 1.0), number("SEED", 7.0) as u64);
    let (mut tree, links) = broad((mbytes * 1e6) as usize, slow, seed);
    let others = tree.run(MS(600_000), |node| slow == 1.0 || node != 6);
    let others_after = tree.m.now.since(tree.started).as_secs_f64();
    let all = tree.run(MS(3_600_000), |_| true);
    let all_after = tree.m.now.since(tree.started).as_secs_f64();
    println!(
        "{mbytes} MB, seed {seed}, first receiver at 1/{slow} of the rate: {others} after {others_after:.3} s, all {all} after {all_after:.3} s"
    );
    println!("right: {}; {:?}", tree.is_right(), tree.sender.stats());
    for (edge, (a, b, loss)) in links.iter().enumerate() {
        let (cost, done) = (tree.cost(edge), tree.leaves.get(b).and_then(|leaf| leaf.done_at));
        let done = done.map_or(String::new(), |at| format!(", done after {:.3} s", at.since(tree.started).as_secs_f64()));
        println!("{a:>2} -> {b:<2} {:>4.0} %: {cost:.3} bytes of IP per byte, x (1-p) {:.3}{done}", loss * 100.0, cost * (1.0 - loss));
    }
    for node in 1..6 {
        println!("node {node}: {:?}, lagging: {:?}", tree.relay(node).stats(), tree.relay(node).lagging().collect::<Vec<_>>());
    }
}
