//! Makes traces for `--trace`: `cargo run -p noctule-lab --example make_trace -- lte|handover > FILE`.
//!
//! `lte`: a rate that walks between 3 and 45 Mbit/s every 20 ms, as of one phone in a moving car, with a gap of 80 ms now and then.
//! `handover`: 50 Mbit/s for 5 s, nothing for 120 ms, 20 Mbit/s for 5 s, nothing for 120 ms, as between low satellites.

use std::io::Write;

/// Bytes per opportunity.
const MTU: f64 = 1500.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let mut random = Random(7);
    let mut rates: Vec<f64> = Vec::new();
    match &*kind {
        "lte" => {
            let mut mbit: f64 = 20.0;
            for step in 0..500 {
                mbit = (mbit * (0.8 + 0.42 * random.unit())).clamp(3.0, 45.0);
                let is_gap = step % 120 >= 116;
                rates.extend([if is_gap { 0.0 } else { mbit }; 20]);
            }
        }
        "handover" => {
            for mbit in [50.0, 20.0] {
                rates.extend(vec![mbit; 5000]);
                rates.extend([0.0; 120]);
            }
        }
        _ => return Err("lte or handover".into()),
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "# made by the example make_trace of noctule-lab: {kind}")?;
    let mut bytes = 0.0;
    for (ms, mbit) in (1..).zip(&rates) {
        bytes += mbit * 125.0;
        while bytes >= MTU {
            writeln!(out, "{ms}")?;
            bytes -= MTU;
        }
    }
    // The last line is the period: an opportunity at its very end.
    writeln!(out, "{}", rates.len())?;
    Ok(())
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
    }
}
