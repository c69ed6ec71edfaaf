//! Packets per second of the link model alone: `cargo run --release -p noctule-lab --example link_speed`.

use std::time::Instant;

use noctule_lab::link::{Ecn, LinkModel, LinkSpec, Time};

fn main() {
    for list in [
        "rate=1gbit,delay=50ms,loss=10%",
        "rate=1gbit,delay=50ms,loss=10%,loss-model=gilbert:10",
        "rate=1gbit,delay=50ms,loss=10%,jitter=1ms,jitter-reorder=true,duplicate=1%,corrupt=1%",
    ] {
        let mut spec = LinkSpec::default();
        spec.set_list(list).expect("a valid list");
        let mut link = LinkModel::new(&spec, 7).expect("a valid link");
        let packets = 5_000_000u64;
        let mut arrived = 0u64;
        let begun = Instant::now();
        for i in 0..packets {
            let now = Time::from_nanos(i * 12_100);
            while let Some(due) = link.next_deadline().filter(|&t| t <= now) {
                while let Some(delivery) = link.poll_deliver(due) {
                    arrived += u64::from(delivery.packet != u32::MAX);
                }
            }
            let _ = link.enqueue(now, 1500, Ecn::NotEct, i as u32);
            while link.poll_discarded().is_some() {}
        }
        let rate = packets as f64 / begun.elapsed().as_secs_f64() / 1e6;
        println!("{rate:6.2} M packets/s, {arrived} arrived: {list}");
    }
}
