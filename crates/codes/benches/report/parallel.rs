//! Blocks on two cores: a queue from which the least loaded worker takes the next block (P21). The codes themselves know no threads.

use crate::Report;
use crate::measure::{cpu_seconds, median};
use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile};
use noctule_codes::prng::SplitMix64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const K: usize = 500;
const T: usize = 1280;
const BLOCKS: usize = 24;

/// Encodes and decodes one block with 10 % of its packets lost; returns a digest of the repair packets.
fn job(block: usize, data: &[u8]) -> u64 {
    let profile = Profile::new(K, 16, 50).expect("valid");
    let mut encoder = BlockEncoder::new(profile, T, data).expect("valid");
    let mut decoder = BlockDecoder::new(profile, T).expect("valid");
    for j in (0..K).filter(|j| !(j + block).is_multiple_of(10)) {
        decoder.receive_uncoded(j as u32 / 16, j % 16, &data[j * T..][..T]);
    }
    let (mut digest, mut out) = (0u64, vec![0; T]);
    for n in 0.. {
        let batch = profile.systematic_batches() + n / 16;
        encoder.packet(batch, n as usize % 16, &mut out).expect("a packet");
        digest = out.iter().fold(digest, |d, b| d.wrapping_mul(31).wrapping_add(u64::from(*b)));
        decoder.receive_uncoded(batch, n as usize % 16, &out);
        if decoder.is_complete() {
            break;
        }
    }
    assert!(decoder.data() == Some(data));
    digest
}

/// Digests of all blocks, and the CPU seconds of the busiest worker.
fn run_on(workers: usize, data: &[u8]) -> (Vec<u64>, f64) {
    let next = AtomicUsize::new(0);
    let (mut digests, mut busiest) = (vec![0; BLOCKS], 0.0f64);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    let start = cpu_seconds();
                    loop {
                        let block = next.fetch_add(1, Ordering::Relaxed);
                        if block >= BLOCKS {
                            return (done, cpu_seconds() - start);
                        }
                        done.push((block, job(block, data)));
                    }
                })
            })
            .collect();
        for handle in handles {
            let (done, seconds) = handle.join().expect("no panic");
            busiest = busiest.max(seconds);
            done.into_iter().for_each(|(block, digest)| digests[block] = digest);
        }
    });
    (digests, busiest)
}

pub fn run(report: &Report) {
    let mut data = vec![0u8; K * T];
    SplitMix64::new(1).fill(&mut data);
    assert_eq!(run_on(1, &data).0, run_on(2, &data).0, "the same packets whatever the core");
    let (mut cpu, mut wall) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..report.repetitions(61) {
        for workers in [1, 2] {
            let start = Instant::now();
            cpu[workers - 1].push(run_on(workers, &data).1);
            wall[workers - 1].push(start.elapsed().as_secs_f64());
        }
    }
    let (cpu, wall) = (cpu.map(median), wall.map(median));
    let speed = |s: f64| (BLOCKS * K * T) as f64 / s / 1e6;
    let text = format!(
        "{BLOCKS} blocks of K = {K}, 1280 B, 10 % lost, encoded and decoded; results identical. By CPU time of the busiest worker (what an idle machine would show) and by the clock on the wall (what this machine had left).\n\n| workers | MB/s, CPU | times one | MB/s, wall | times one |\n|---|---|---|---|---|\n| 1 | {:.0} | 1.00 | {:.0} | 1.00 |\n| 2 | {:.0} | {:.2} | {:.0} | {:.2} |\n",
        speed(cpu[0]),
        speed(wall[0]),
        speed(cpu[1]),
        cpu[0] / cpu[1],
        speed(wall[1]),
        wall[0] / wall[1]
    );
    report.write("parallel", &text);
}
