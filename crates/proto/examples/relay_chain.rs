//! Bulk over a chain of relays in virtual time: goodput, packets per link, delay in the relays.
//!
//! `cargo run --release -p noctule-proto --example relay_chain -- HOPS MBIT DELAY_MS LOSS [SECONDS] [SEED] [NEXT_MBIT]`
//!
//! Rates in Mbit/s of IP packets, one-way delay of a link in ms, loss of each link in each direction as a fraction. `NEXT_MBIT` is the rate of the last
//! link, if it differs.

#[path = "../tests/mesh/mod.rs"]
mod mesh;
#[path = "../tests/pair/mod.rs"]
mod pair;

use mesh::Mesh;
use noctule_proto::units::Duration;
use pair::Conditions;

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let [hops, mbit, delay, loss, ..] = arguments[..] else {
        eprintln!("relay_chain HOPS MBIT DELAY_MS LOSS [SECONDS] [SEED] [NEXT_MBIT]");
        std::process::exit(2);
    };
    let seconds = arguments.get(4).copied().unwrap_or(20.0);
    let seed = arguments.get(5).copied().unwrap_or(1.0) as u64;
    let last = arguments.get(6).copied().unwrap_or(mbit);
    let link =
        |mbit: f64| Conditions { loss, delay: Duration::from_secs_f64(delay / 1e3), rate: Some(mbit * 1e6 / 8.0), ..Conditions::default() };
    let mut links = vec![link(mbit); hops as usize];
    if let Some(l) = links.last_mut() {
        *l = link(last);
    }
    let mut m = Mesh::chain(&links, seed);
    let to = hops as usize;
    let session = m.open(0, to);
    let mut s = m.stream(0, session);
    let warm_up = Duration::from_secs_f64(5.0_f64.max(12.0 * 2.0 * delay * hops / 1e3));
    let mut delays = vec![(0.0_f64, 0.0_f64, 0u32); to];
    let mut sample_at = m.now;
    let mut pass = |m: &mut Mesh, s: &mut mesh::Stream, time: Duration, delays: &mut Vec<(f64, f64, u32)>| {
        m.run_until(time, |m| {
            s.write(m, u64::MAX);
            s.read(m, to);
            if m.now >= sample_at {
                sample_at = m.now + Duration::from_millis(10);
                for (node, sum) in delays.iter_mut().enumerate().skip(1) {
                    for r in m.nodes[node].relayed_flows().filter(|r| r.index > 0) {
                        let ms = r.queueing_delay.as_secs_f64() * 1e3;
                        *sum = (sum.0 + ms, sum.1.max(ms), sum.2 + 1);
                    }
                }
            }
            false
        });
    };
    pass(&mut m, &mut s, warm_up, &mut delays.clone());
    let (got, sent): (u64, Vec<u64>) = (s.got, m.edges.iter().map(|e| e.sent[0]).collect());
    pass(&mut m, &mut s, Duration::from_secs_f64(seconds), &mut delays);
    assert!(s.is_right);
    let got = (s.got - got) as f64;
    let limit = mbit.min(last) * 1e6 / 8.0 * (1.0 - loss) * 1472.0 / 1500.0 * seconds;
    println!("{hops} hops, {mbit} Mbit/s, {delay} ms, loss {loss}, seed {seed}");
    println!("goodput {:.2} Mbit/s, {:.1} % of the limit", got * 8e-6 / seconds, got / limit * 100.0);
    for (i, (e, before)) in m.edges.iter().zip(&sent).enumerate() {
        let per_byte = (e.sent[0] - before) as f64 / got * (1.0 - loss);
        println!("link {i}: bytes sent per useful byte x (1-p): {per_byte:.3}, longest queue {:.1} ms", e.queue[0].as_secs_f64() * 1e3);
    }
    for (node, (sum, most, count)) in delays.iter().enumerate().skip(1) {
        println!("relay {node}: queueing delay mean {:.2} ms, most {most:.2} ms", sum / f64::from((*count).max(1)));
    }
    for node in 1..to {
        for r in m.nodes[node].relayed_flows().filter(|r| r.index > 0) {
            println!("{r:?}");
        }
    }
}
