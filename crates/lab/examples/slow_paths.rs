//! Slow and long paths that nobody chose: conditions drawn by chance, and what share of the limit a byte stream reached on each.
//!
//! `cargo run --release -p noctule-lab --example slow_paths -- 60 2027` (how many, seed of the draw). docs/results/one-hop.md has the figures.

use clap::Parser;
use noctule_lab::cli::{Cli, Command};
use noctule_lab::sim;

/// SplitMix64 (Steele, Lea, Flood 2014): the same draws on every machine.
struct Draw(u64);

impl Draw {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    fn log_within(&mut self, low: f64, high: f64) -> f64 {
        self.within(low.ln(), high.ln()).exp()
    }
}

/// One run as `noctule-lab sim` takes it, and its rate in kbit/s. One in two is a single link; the others are chains of up to 32, whose links are faster.
fn condition(draw: &mut Draw, seed: u64) -> (String, f64) {
    let hops = if draw.unit() < 0.5 { 1 } else { draw.within(2.0, 33.0) as u32 };
    let rate = if hops == 1 { draw.log_within(2.4, 100.0) } else { draw.log_within(10.0, 1000.0) };
    // Of the whole path, one direction.
    let delay = draw.log_within(50.0, 1000.0);
    let loss = draw.within(0.0, 10.0);
    let bdp = rate * 2.0 * delay / 8.0 / 1500.0;
    let queue = (bdp * draw.log_within(1.0, 10.0)).max(4.0) as u32;
    let each = delay / f64::from(hops);
    let flags = format!("--hops {hops} --rate {rate:.1}kbit --delay {each:.1}ms --loss {loss:.1}% --queue {queue}p --seed {seed}");
    (flags, rate)
}

fn quantiles(name: &str, mut shares: Vec<f64>) {
    shares.sort_by(f64::total_cmp);
    let at = |q: f64| shares[((shares.len() - 1) as f64 * q).round() as usize] * 100.0;
    if !shares.is_empty() {
        let [least, p10, p25, p50, p90] = [0.0, 0.1, 0.25, 0.5, 0.9].map(at);
        println!("{name}: {} runs, least {least:.0} %, p10 {p10:.0} %, p25 {p25:.0} %, p50 {p50:.0} %, p90 {p90:.0} %", shares.len());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let count: u64 = words.next().map_or(Ok(60), |w| w.parse())?;
    let seed: u64 = words.next().map_or(Ok(2027), |w| w.parse())?;
    let mut draw = Draw(seed);
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (flags, rate) = condition(&mut draw, seed + number);
        let line = format!("noctule-lab sim {flags} --mode brtp --connect-timeout 30s --warmup 90 --seconds 390");
        let Command::Sim { run, .. } = Cli::try_parse_from(line.split(' '))?.command else { return Err("not a run".into()) };
        let report = sim::run(&run.scenario()?)?;
        let why = report.failures.first().map(|f| format!("  {f:?}")).unwrap_or_default();
        let share = report.share.unwrap_or_default();
        println!("{:5.1} %  {flags}{why}", share * 100.0);
        if rate < 10.0 { slow.push(share) } else { fast.push(share) }
    }
    quantiles("below 10 kbit/s", slow);
    quantiles("10 kbit/s and more", fast);
    Ok(())
}
