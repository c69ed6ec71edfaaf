//! Congestion control alone on a virtual bottleneck: a grid of rate x delay x loss, or the story of one link.
//!
//! `cargo run --release -p noctule-proto --example cc_grid -- grid` or `… story MBIT DELAY_MS LOSS% [FLOWS] [SECONDS] [QUEUE_BDP]`.

#[path = "../tests/bottleneck/mod.rs"]
mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link, alone};
use noctule_proto::congestion::CongestionControl;
use noctule_proto::units::{Duration, Time};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| args.get(i).and_then(|a| a.parse::<f64>().ok()).unwrap_or(default);
    match args.first().map(String::as_str) {
        Some("story") => story(
            number(1, 100.0),
            number(2, 10.0) as u64,
            number(3, 0.0) / 100.0,
            number(4, 1.0) as usize,
            number(5, 10.0),
            number(6, 1.0),
        ),
        _ => grid(number(1, 0.3), &[10.0, 100.0, 1000.0], args.get(2).map(|s| s.parse().expect("queue in BDP")).unwrap_or(1.0)),
    }
}

fn grid(scale: f64, rates: &[f64], queue: f64) {
    for &mbit in rates {
        println!("{mbit} Mbit/s: share of C(1-p) / queue p95 ms");
        for delay in [1, 10, 50, 100] {
            print!("{delay:4} ms ");
            for loss in [0.0, 0.02, 0.05, 0.1, 0.2] {
                let r = alone(&Link::new(mbit, delay, loss).queue_bdp(queue), CongestionControl::Model, 1, scale);
                print!("  {:5.1}% {:6.2}", r.share * 100.0, r.queue_p95_ms);
            }
            println!();
        }
    }
}

fn story(mbit: f64, delay: u64, loss: f64, flows: usize, seconds: f64, queue: f64) {
    let link = Link::new(mbit, delay, loss).queue_bdp(queue);
    let specs = (0..flows).map(|i| FlowSpec::bulk(CongestionControl::Model).at(i as u64 * 5000)).collect();
    let mut b = Bottleneck::new(link, specs, 1);
    b.record_every = Duration::from_secs_f64((delay as f64 / 500.0).max(seconds / 400.0));
    b.run_until(Time::ZERO + Duration::from_secs_f64(seconds));
    let records = std::mem::take(&mut b.records);
    for pair in records.windows(2) {
        let dt = (pair[1].at - pair[0].at).as_secs_f64();
        print!("{:7.3} q {:6.2}ms", pair[1].at.as_secs_f64(), pair[1].queue.as_secs_f64() * 1e3);
        for (a, c) in pair[0].flows.iter().zip(&pair[1].flows) {
            let got = (c.0 - a.0) as f64 * 8e-6 / dt;
            print!(
                " | {got:7.1} pace {:7.1} cap {:7.1} win {:6} p0 {:.3} {:9} min {:6.2}",
                c.1.pacing_rate.mbit(),
                c.1.capacity.mbit(),
                c.1.cwnd / 1472,
                c.1.base_loss,
                c.1.state,
                c.3.as_secs_f64() * 1e3
            );
        }
        println!();
    }
    println!("{:?}", b.path(0).stats());
}
