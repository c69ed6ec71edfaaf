//! Whether sealing on another core pays (P21): `cargo run --release -p noctule-proto --example job_speed`
//!
//! One thread assigns packet numbers, writes packets and does so much other work per packet as is said; either it seals each train itself, or it
//! hands it to a second thread. Both must make the same bytes. Medians of interleaved runs.

use noctule_proto::crypto::{RawKey, SealJob, SendKeys, preferred_ciphers};
use noctule_proto::ids::{PacketNumber, PathId};
use std::hint::black_box;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

const PACKET: usize = 1472;
const HEADER: usize = 11;
const RUN: Duration = Duration::from_millis(150);
const RUNS: usize = 9;

/// A train of packets and the jobs that seal them.
struct Train {
    bytes: Vec<u8>,
    jobs: Vec<SealJob>,
}

impl Train {
    fn seal(&mut self) {
        for (packet, job) in self.bytes.chunks_exact_mut(PACKET).zip(&self.jobs) {
            job.seal(packet, HEADER).expect("the packet is long enough");
        }
    }
}

/// The thread that owns the state: numbers, headers, payload, and `other` of work beside them.
struct Owner {
    keys: SendKeys,
    next: u64,
    other: Duration,
}

impl Owner {
    fn new(other: Duration) -> Self {
        Self { keys: SendKeys::new(RawKey::new([7; 32]), preferred_ciphers()[0], 20), next: 0, other }
    }

    fn fill(&mut self, train: &mut Train, packets: usize) {
        train.bytes.resize(packets * PACKET, 0);
        train.jobs.clear();
        for packet in train.bytes.chunks_exact_mut(PACKET) {
            let until = Instant::now() + self.other;
            packet.fill(self.next as u8);
            train.jobs.push(self.keys.seal_job(PathId(0), PacketNumber(self.next)).expect("far from the limit of the key"));
            self.next += 1;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }
}

fn inline(packets: usize, other: Duration) -> f64 {
    let mut owner = Owner::new(other);
    let mut train = Train { bytes: Vec::new(), jobs: Vec::new() };
    let start = Instant::now();
    while start.elapsed() < RUN {
        owner.fill(&mut train, packets);
        train.seal();
        black_box(&train.bytes);
    }
    owner.next as f64 / start.elapsed().as_secs_f64()
}

fn worker(work: &Receiver<Train>, done: &SyncSender<Train>) {
    while let Ok(mut train) = work.recv() {
        train.seal();
        black_box(&train.bytes);
        if done.send(train).is_err() {
            break;
        }
    }
}

fn handed_over(packets: usize, other: Duration) -> f64 {
    let (to_worker, work) = sync_channel(4);
    let (done, from_worker) = sync_channel(4);
    std::thread::scope(|scope| {
        scope.spawn(move || worker(&work, &done));
        let mut owner = Owner::new(other);
        let start = Instant::now();
        let mut sealed = 0u64;
        let mut under_way = 0;
        while start.elapsed() < RUN {
            let mut train = match under_way < 4 {
                true => Train { bytes: Vec::new(), jobs: Vec::new() },
                false => {
                    under_way -= 1;
                    let train: Train = from_worker.recv().expect("the worker lives");
                    sealed += train.jobs.len() as u64;
                    train
                }
            };
            owner.fill(&mut train, packets);
            to_worker.send(train).expect("the worker lives");
            under_way += 1;
        }
        let rate = sealed as f64 / start.elapsed().as_secs_f64();
        drop(to_worker);
        rate
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // The same bytes on any core.
    let (mut here, mut there) = (Train { bytes: Vec::new(), jobs: Vec::new() }, Train { bytes: Vec::new(), jobs: Vec::new() });
    Owner::new(Duration::ZERO).fill(&mut here, 32);
    Owner::new(Duration::ZERO).fill(&mut there, 32);
    here.seal();
    let there = std::thread::spawn(move || {
        there.seal();
        there
    });
    assert_eq!(here.bytes, there.join().expect("sealing does not panic").bytes, "sealing depends on the core");

    println!("{:>10} {:>12} {:>16} {:>16} {:>7}", "train", "other work", "inline, 1/s", "handed over, 1/s", "ratio");
    for packets in [8, 32] {
        for other in [0, 1000, 2000, 4000].map(Duration::from_nanos) {
            let (mut one, mut two) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                one.push(inline(packets, other));
                two.push(handed_over(packets, other));
            }
            let (one, two) = (median(one), median(two));
            println!("{packets:>10} {:>9} ns {one:>16.0} {two:>16.0} {:>7.2}", other.as_nanos(), two / one);
        }
    }
}
