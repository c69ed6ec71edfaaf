//! `gcc` on a virtual bottleneck: the figures of docs/results/congestion.md. `cargo run -p noctule-proto --example gcc_media`

#[path = "../tests/bottleneck/mod.rs"]
mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link, rates};
use noctule_proto::congestion::CongestionControl::{self, Bbr, Cubic, Gcc, Model};
use noctule_proto::units::Duration;

const SEEDS: [u64; 3] = [1, 2, 3];

/// Mean over the seeds of each figure of a run.
fn mean<const N: usize>(run: impl Fn(u64) -> [f64; N]) -> [f64; N] {
    let runs = SEEDS.map(run);
    core::array::from_fn(|i| runs.iter().map(|r| r[i]).sum::<f64>() / runs.len() as f64)
}

/// Share of the link in %, queue p95 in ms, and what the queue dropped in %, from 10 to 40 s.
fn alone(link: &Link, control: CongestionControl) -> [f64; 3] {
    mean(|seed| {
        let mut b = Bottleneck::new(link.clone(), vec![FlowSpec::bulk(control)], seed);
        let limit = link.mbit * (1.0 - link.loss_after);
        let rate = rates(&mut b, 1, 10_000, 40_000)[0];
        let sent = b.path(0).stats().sent_packets as f64;
        [100.0 * rate / limit, b.queue_ms(0.95), 100.0 * b.dropped as f64 / sent]
    })
}

fn row(name: &str, [share, queue, dropped]: [f64; 3]) {
    println!("{name}: {share:5.1} % of the limit, queue p95 {queue:5.1} ms, dropped {dropped:4.1} %");
}

fn main() {
    println!("alone, queue of 8 BDP, then of one half");
    for bdp in [8.0, 0.5] {
        for (mbit, delay) in [(2.0, 10), (2.0, 50), (10.0, 10), (10.0, 50)] {
            let link = Link::new(mbit, delay, 0.0).queue_bdp(bdp);
            for control in [Gcc, Model, Bbr, Cubic] {
                let name = format!("{:6} {mbit} Mbit/s, RTT {} ms, {bdp} BDP", control.name(), delay * 2);
                row(&name, alone(&link, control));
            }
        }
    }
    println!("10 Mbit/s, RTT 50 ms, 8 BDP: loss at random");
    for loss in [0.01, 0.05, 0.08, 0.12, 0.2] {
        row(&format!("{:.0} %", loss * 100.0), alone(&Link::new(10.0, 25, loss).queue_bdp(8.0), Gcc));
    }
    println!("the same without loss, delay that varies (each packet, in order)");
    for ms in [1, 5, 20] {
        let mut link = Link::new(10.0, 25, 0.0).queue_bdp(8.0);
        link.hold_back = Duration::from_millis(ms);
        row(&format!("{ms} ms"), alone(&link, Gcc));
    }
    println!("10, 3 and 10 Mbit/s again, RTT 50 ms, 8 BDP: each second from 14 s");
    let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(8.0), vec![FlowSpec::bulk(Gcc)], 1);
    b.at(15_000, |l| l.mbit = 3.0);
    b.at(30_000, |l| l.mbit = 10.0);
    for from in (14_000..50_000).step_by(1000) {
        let rate = rates(&mut b, 1, from, from + 1000)[0];
        print!("{}: {rate:.1}/{:.0}  ", from / 1000, b.queue_ms(0.95));
    }
    println!("\nbeside another, RTT 50 ms: Mbit/s of gcc and of the other from 20 to 80 s; the other 5 s later, and 5 s before");
    for other in [Cubic, Bbr, Model, Gcc] {
        for mbit in [2.0, 10.0] {
            for bdp in [1.0, 2.0, 4.0] {
                print!("{:6} {mbit} Mbit/s, {bdp} BDP:", other.name());
                for (ours, theirs) in [(0, 5000), (5000, 0)] {
                    let [a, z] = mean(|seed| {
                        let specs = vec![FlowSpec::bulk(Gcc).at(ours), FlowSpec::bulk(other).at(theirs)];
                        let mut b = Bottleneck::new(Link::new(mbit, 25, 0.0).queue_bdp(bdp), specs, seed);
                        let r = rates(&mut b, 2, 20_000, 80_000);
                        [r[0], r[1]]
                    });
                    print!("  {a:.2} {z:.2}");
                }
                println!();
            }
        }
    }
    println!("two gcc, the second 5 s later, 10 Mbit/s, RTT 50 ms, 2 BDP: share of the second in %, six seeds");
    for from in [60_000, 180_000, 360_000] {
        print!("{} to {} s:", from / 1000, from / 1000 + 60);
        for seed in 1..=6 {
            let specs = vec![FlowSpec::bulk(Gcc), FlowSpec::bulk(Gcc).at(5000)];
            let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(2.0), specs, seed);
            let r = rates(&mut b, 2, from, from + 60_000);
            print!("  {:.0}", 100.0 * r[1] / (r[0] + r[1]));
        }
        println!();
    }
}
