//! One object over one link: blocks in, status back, the outer code for what the link gave up.

use super::MS;
use super::pair::Conditions;
use super::tree::Tree;
use crate::object::RelayConfig;
use crate::switch::{Mechanism, without};
use crate::units::Time;

fn pair(conditions: Conditions, size: usize, seed: u64) -> Tree {
    Tree::new(2, &[(0, 1, conditions)], size, RelayConfig::default(), seed)
}

/// 40 Mbit/s, 20 ms one way.
fn link(loss: f64) -> Conditions {
    Conditions { loss, delay: MS(20), rate: Some(5e6), ..Conditions::default() }
}

#[test]
fn an_object_arrives_whole_under_loss_at_the_price_of_the_loss() {
    for loss in [0.0, 0.1, 0.2] {
        let mut tree = pair(link(loss), 6_000_000, 1);
        assert!(tree.run(MS(20_000), |_| true) && tree.is_right(), "{loss}");
        let cost = tree.cost(0) * (1.0 - loss);
        assert!(cost < 1.12, "{loss}: {cost:.3}");
    }
}

/// 20 MB over a link that falls silent for longer than its packets live. Fresh packets sent, if everything arrived.
fn outage() -> Option<u64> {
    let mut conditions = link(0.1);
    let start = Time::from_millis(2_500);
    conditions.outages = vec![(start, start + MS(3_000))];
    let mut tree = pair(conditions, 20_000_000, 2);
    let is_done = tree.run(MS(30_000), |_| true);
    (is_done && tree.is_right()).then(|| tree.sender.stats().repair_packets)
}

#[test]
fn what_an_outage_took_beyond_the_packets_lifetime_is_made_up_for_by_fresh_packets() {
    assert!(outage().is_some_and(|fresh| fresh > 0));
    assert_eq!(without(Mechanism::FreshPackets, outage), None);
}

/// `cargo test -p noctule-proto --lib -- --ignored --nocapture table_of_objects`: 30 MB over 40 Mbit/s, 20 ms one way, loss in both directions, start included.
#[test]
#[ignore = "a table, not a test"]
fn table_of_objects_over_one_link() {
    for loss in [0.0, 0.05, 0.1, 0.15, 0.2] {
        let mut tree = pair(link(loss), 30_000_000, 7);
        assert!(tree.run(MS(60_000), |_| true) && tree.is_right());
        let seconds = tree.m.now.since(tree.started).as_secs_f64();
        // The limit of 1500-byte packets, after loss.
        let limit = 5e6 * (1.0 - loss) * 1472.0 / 1500.0;
        println!(
            "loss {:>2.0} %: {seconds:.2} s, {:.1} % of the limit, {:.3} bytes of IP per byte, x (1-p) {:.3}, {:?}",
            loss * 100.0,
            100.0 * 30e6 / seconds / limit,
            tree.cost(0),
            tree.cost(0) * (1.0 - loss),
            tree.sender.stats()
        );
    }
}
