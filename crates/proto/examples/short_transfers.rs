//! Streams that end after a few round trips, each over a new link, in virtual time: how long they take from the first packet of the handshake, which is
//! repeated after 200 ms, until the sender knows of their delivery.
//!
//! `cargo run --release -p noctule-proto --example short_transfers -- BYTES MBIT DELAY_MS LOSS [COUNT]`
//!
//! Rate in Mbit/s of IP packets, one-way delay in ms, loss in each direction as a fraction; seeds 1 to COUNT (1000).

#[path = "../tests/pair/mod.rs"]
mod pair;

use noctule_proto::units::Duration;
use pair::{Conditions, Pair, content};

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let [bytes, mbit, delay, loss, ..] = arguments[..] else {
        eprintln!("short_transfers BYTES MBIT DELAY_MS LOSS [COUNT]");
        std::process::exit(2);
    };
    let conditions = Conditions { loss, delay: Duration::from_secs_f64(delay / 1e3), rate: Some(mbit * 125e3), ..Conditions::default() };
    let data = content(bytes as usize, 1);
    let took = |seed: u64| {
        let mut p = Pair::new(Default::default(), conditions.clone(), seed);
        let (_, session) = p.connect();
        let start = p.now;
        let (got, is_done) = p.attempt(session, &data, Duration::from_secs(120), |_| true);
        assert!(got.len() <= data.len() && got[..] == data[..got.len()], "seed {seed}: a wrong byte");
        is_done.then(|| p.now.since(start))
    };
    let count = arguments.get(4).copied().unwrap_or(1000.0) as u64;
    let all: Vec<_> = (1..=count).map(took).collect();
    let mut times: Vec<Duration> = all.iter().flatten().copied().collect();
    times.sort();
    let Some(last) = times.len().checked_sub(1) else {
        eprintln!("none of {count} transfers ended within two minutes");
        std::process::exit(1);
    };
    let at = |share: f64| times[(last as f64 * share) as usize].as_millis();
    println!(
        "{} of {count} ended; ms: p50 {}, p90 {}, p99 {}, p99.9 {}, most {}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
