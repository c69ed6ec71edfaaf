//! Packets needed beyond K: distribution over trials, with the real loss at half, once and twice the estimate, and after recoding over hops.

use crate::Report;
use crate::measure::quantile;
use crate::plot::{Line, lines};
use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile, Received};
use noctule_codes::prng::SplitMix64;
use noctule_codes::recoding::{Probability, RankDistribution};
use noctule_codes::span::SpanBuffer;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rank statistics do not depend on the length of packets; 16 bytes are one vector of the narrowest kernel.
const T: usize = 16;
const M: usize = 16;

#[derive(Default)]
struct Outcome {
    /// Innovative packets beyond K, per trial.
    extra: Vec<usize>,
    /// Of the ranks of whole batches at the destination: number, sum, sum of squares.
    batches: u64,
    sum: u64,
    squares: u64,
}

impl Outcome {
    /// Mean rank over M, and its standard error.
    fn rank(&self) -> (f64, f64) {
        let (n, mean) = (self.batches as f64, self.sum as f64 / self.batches as f64);
        let variance = self.squares as f64 / n - mean * mean;
        (mean / M as f64, (variance / n).sqrt() / M as f64)
    }

    fn add(&mut self, other: Self) {
        self.extra.extend(other.extra);
        self.batches += other.batches;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

/// Coefficients and data of the packets of one batch that reach the destination.
fn across(batch: Vec<(Vec<u8>, Vec<u8>)>, hops: usize, loss: f64, random: &mut SplitMix64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let n = batch.len();
    let mut packets = batch;
    for hop in 0..hops {
        packets.retain(|_| random.unit() >= loss);
        if hop + 1 == hops || packets.is_empty() {
            continue;
        }
        // Systematic recoding up to n packets.
        let mut span = SpanBuffer::new(n);
        for (coefficients, data) in &packets {
            span.receive(coefficients, data);
        }
        packets = (0..n)
            .map(|i| {
                let mut weights = vec![0; span.rank()];
                if i < weights.len() {
                    weights[i] = 1
                } else {
                    random.fill(&mut weights)
                }
                let (mut coefficients, mut data) = (vec![0; n], Vec::new());
                span.recode(&weights, &mut coefficients, &mut data);
                (coefficients, data)
            })
            .collect();
    }
    packets
}

/// One block, from the first batch until it is decoded.
fn trial(trial: u64, profile: Profile, data: &[u8], encoder: &mut BlockEncoder<'_>, loss: f64, hops: usize, outcome: &mut Outcome) {
    let mut random = SplitMix64::new(trial << 20 | (hops as u64) << 10 | (loss * 1000.0) as u64);
    let mut decoder = BlockDecoder::new(profile, T).expect("valid");
    let mut rank = 0;
    let first = profile.systematic_batches();
    let offset = random.below(1 << 24);
    'block: for batch in (0..first).chain(first + offset..) {
        let n = profile.batch_len(batch);
        let packets = (0..n).map(|i| {
            let (mut unit, mut out) = (vec![0; n], vec![0; T]);
            unit[i] = 1;
            encoder.packet(batch, i, &mut out).expect("a packet");
            (unit, out)
        });
        let before = rank;
        for (coefficients, payload) in across(packets.collect(), hops, loss, &mut random) {
            rank += usize::from(decoder.receive(batch, &coefficients, &payload) == Received::Innovative);
            if decoder.is_complete() {
                break 'block;
            }
        }
        // Systematic batches only: their number is fixed, so that where the block happens to end favours no rank.
        if n == M && batch < first {
            let rank = (rank - before) as u64;
            outcome.batches += 1;
            outcome.sum += rank;
            outcome.squares += rank * rank;
        }
    }
    assert!(decoder.data() == Some(data));
    outcome.extra.push(rank - profile.packets());
}

/// `count` blocks, shared out over the cores; a trial depends on its number alone.
fn trials(k: usize, low: u16, loss: f64, hops: usize, count: u64) -> Outcome {
    let profile = Profile::new(k, M, low).expect("valid");
    let mut data = vec![0u8; k * T];
    SplitMix64::new(k as u64).fill(&mut data);
    let next = AtomicU64::new(0);
    let worker = || {
        let mut encoder = BlockEncoder::new(profile, T, &data).expect("valid");
        let mut outcome = Outcome::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return outcome;
            }
            trial(number, profile, &data, &mut encoder, loss, hops, &mut outcome);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        handles.into_iter().for_each(|handle| all.add(handle.join().expect("no panic")));
    });
    all
}

/// One link.
pub fn run(report: &Report) {
    section(report, "overhead", &[(1000, 1, 2000), (10_000, 1, 1000)]);
}

/// Three and six links with recoding.
pub fn run_hops(report: &Report) {
    section(report, "overhead-hops", &[(1000, 3, 2000), (1000, 6, 2000), (10_000, 3, 1000), (10_000, 6, 1000)]);
}

fn section(report: &Report, name: &str, cases: &[(usize, usize, usize)]) {
    let mut text = String::from(
        "Innovative packets beyond K until the block is decoded. Estimate: 10 % loss per link, low end 5 % per link. From end to end that is 50, 95, 124 permille over 1, 3, 6 links. The real loss per link is as stated. M = 16, systematic recoding with 16 sends per hop. The ranks of the systematic batches stand beside the exact chain (`RankDistribution::after_link`); the last column is the difference in standard errors.\n\n\
         | K | links | real loss per link | trials | mean | share of K | p99 | max | mean rank of a batch / M | exact chain | difference |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut curves = Vec::new();
    for &(k, hops, count) in cases {
        for loss in [0.05, 0.1, 0.2] {
            // The low end of the estimate is half the loss on each link; end to end that follows from the rank chain.
            let half = Probability::new(0.05);
            let at_half = (0..hops).fold(RankDistribution::full(M), |ranks, _| ranks.after_link(half, &ranks.uniform(M as u32)));
            let low = (1000.0 * (1.0 - at_half.mean() / M as f64)) as u16;
            let count = report.repetitions(count) as u64;
            let outcome = trials(k, low, loss, hops, count);
            let mean = outcome.extra.iter().sum::<usize>() as f64 / count as f64;
            let p = Probability::new(loss);
            let exact = (0..hops).fold(RankDistribution::full(M), |ranks, _| ranks.after_link(p, &ranks.uniform(M as u32)));
            let (exact, (rank, error)) = (exact.mean() / M as f64, outcome.rank());
            let line = format!(
                "| {k} | {hops} | {:.0} % | {count} | {mean:.3} | {:.4} % | {} | {} | {rank:.4} | {exact:.4} | {:+.1} |\n",
                loss * 100.0,
                mean / k as f64 * 100.0,
                quantile(&outcome.extra, 0.99),
                outcome.extra.iter().max().unwrap_or(&0),
                (rank - exact) / error,
            );
            eprint!("{line}");
            text += &line;
            if hops == 1 {
                let share = |n: usize| outcome.extra.iter().filter(|e| **e <= n).count() as f64 / count as f64;
                let points = (0..=20).map(|n| (n as f64, share(n))).collect();
                curves.push(Line { name: format!("{k}, {:.0} %", loss * 100.0), points });
            }
        }
    }
    if !curves.is_empty() {
        lines(
            &report.plot_path(name),
            "Share of blocks decoded; K, real loss (estimate: 10 %, low end 5 %)",
            "packets beyond K",
            "share",
            false,
            &curves,
        );
        text += &format!("\n![share of blocks decoded over packets beyond K]({name}.svg)\n");
    }
    report.write(name, &text);
}
