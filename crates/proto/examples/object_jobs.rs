//! What the jobs of an object gain from a second core (P21): sending with 30 % more packets, coded and sealed, and receiving with 15 % lost, on one
//! thread and on two. Results are compared byte by byte. `cargo run --release -p noctule-proto --example object_jobs [MEGABYTES [ROUNDS]]`

use noctule_proto::crypto::SecretKey;
use noctule_proto::object::one_way::{Announcement, DataKey};
use noctule_proto::object::{BlockJob, Carousel, HashTree, Layout, Next, PacketJob, Plan, Receiver, Root, SourceBlock, leaf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Object {
    data: Vec<u8>,
    layout: Layout,
    tree: HashTree,
    key: DataKey,
    root: Root,
}

impl Object {
    fn block(&self, block: u32) -> &[u8] {
        let range = self.layout.range(block);
        &self.data[range.start as usize..range.end as usize]
    }
}

/// Does `jobs` on so many threads, each taking the next, and returns their results in order, and the time of the threads' work.
fn on<J: Sync, R: Send>(threads: usize, jobs: &[J], work: impl Fn(&J) -> R + Sync) -> (Vec<R>, Duration) {
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    let run = || {
        let mut done = Vec::new();
        while let Some((at, job)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, jobs.get(at)?))) {
            done.push((at, work(job)));
        }
        done
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mine = run();
        mine.into_iter().chain(others.into_iter().flat_map(|t| t.join().expect("no panic"))).collect()
    });
    let took = start.elapsed();
    results.sort_by_key(|(at, _)| *at);
    (results.into_iter().map(|(_, result)| result).collect(), took)
}

/// All datagrams of one pass with 30 % more packets than the object has.
fn send(object: &Object, threads: usize) -> (Vec<Vec<u8>>, Duration) {
    let blocks: Vec<u32> = (0..object.layout.blocks()).collect();
    let (sources, loading) = on(threads, &blocks, |block| {
        let mut source = SourceBlock::new(object.layout, *block, object.block(*block).to_vec(), &object.tree.leaves()[*block as usize])
            .expect("unchanged");
        source.prepare();
        source
    });
    let mut carousel = Carousel::new(object.layout, object.tree.clone(), Plan::Once { overhead: 300 });
    let mut jobs: Vec<PacketJob> = Vec::new();
    loop {
        match carousel.poll_job() {
            Next::Packet(job) => jobs.push(job),
            Next::Load(block) => carousel.add(sources[block as usize].clone()),
            Next::End => break,
        }
    }
    let runs: Vec<&[PacketJob]> = jobs.chunks(64).collect();
    let (datagrams, making) = on(threads, &runs, |run| {
        run.iter()
            .map(|job| {
                let mut out = Vec::new();
                object.key.begin(job.id(), &mut out);
                job.write(&mut out);
                object.key.finish(&mut out).expect("sealed");
                out
            })
            .collect::<Vec<_>>()
    });
    (datagrams.concat(), loading + making)
}

/// The time of decoding, solving and hashing what 15 % of loss leave.
fn receive(object: &Object, packets: &[Vec<u8>], threads: usize) -> (Vec<u8>, Duration) {
    let mut receiver = Receiver::new(object.layout, b"", object.root, 1 << 30).expect("its root");
    receiver.set_leaves(object.tree.leaves().to_vec()).expect("its leaves");
    let mut jobs: Vec<BlockJob> = Vec::new();
    let (mut got, mut took) = (Vec::new(), Duration::ZERO);
    for (i, packet) in packets.iter().enumerate() {
        if i * 7 % 100 >= 15 {
            receiver.offer(packet);
        }
        jobs.extend(std::iter::from_fn(|| receiver.poll_job()));
        // As many at a time as there would be of a fast sender whose blocks take turns.
        if jobs.len() >= 16 || i + 1 == packets.len() {
            let jobs: Vec<_> = jobs.drain(..).map(|job| std::sync::Mutex::new(Some(job))).collect();
            let (results, time) = on(threads, &jobs, |job| job.lock().expect("no panic").take().expect("taken once").run());
            took += time;
            results.into_iter().for_each(|result| receiver.on_result(result));
        }
        got.extend(std::iter::from_fn(|| receiver.poll_block()));
    }
    got.sort_by_key(|(block, _)| *block);
    (got.into_iter().flat_map(|(_, content)| content).collect(), took)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn main() {
    let number = |at: usize, default: usize| std::env::args().nth(at).map_or(default, |n| n.parse().expect("a number"));
    let (size, rounds) = (number(1, 100) * 1_000_000, number(2, 7));
    let data: Vec<u8> = (0..size as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let layout = Layout::new(size as u64, 1344, 1024, 16, 20).expect("permitted");
    let slice = |b: u32| &data[layout.range(b).start as usize..layout.range(b).end as usize];
    let blocks: Vec<u32> = (0..layout.blocks()).collect();
    let (leaves, _) = on(1, &blocks, |b| leaf(slice(*b)));
    let hashing = |threads| on(threads, &blocks, |b| leaf(slice(*b)));
    assert!(hashing(2).0 == leaves);
    let hash: [f64; 2] = [1, 2].map(|threads| median((0..rounds).map(|_| hashing(threads).1).collect()));
    let tree = HashTree::new(leaves);
    let root = Root::of(&layout, b"", &tree.top()).expect("short");
    let announcement = Announcement { key: [7; 32], root, layout, about: Vec::new() };
    // Made as a receiver would get it: the same key on both sides.
    let sealed = announcement.seal(&SecretKey::from_bytes([1; 32]), &SecretKey::from_bytes([2; 32]).public(), None, [3; 32]);
    assert!(sealed.is_ok());
    let key = announcement.data_key().expect("a key");
    let object = Object { data, layout, tree, key, root };
    let mut packets: Vec<Vec<u8>> = send(&object, 1).0;
    assert!(packets == send(&object, 2).0, "the same datagrams in the same order");
    let sending: [f64; 2] = [1, 2].map(|threads| median((0..rounds).map(|_| send(&object, threads).1).collect()));
    packets = packets.iter().map(|d| object.key.open(&mut d.clone()).expect("its own").to_vec()).collect();
    for threads in [1, 2] {
        assert!(receive(&object, &packets, threads).0 == object.data, "the object");
    }
    let receiving: [f64; 2] = [1, 2].map(|threads| median((0..rounds).map(|_| receive(&object, &packets, threads).1).collect()));
    println!(
        "{} MB, {} blocks; results identical\n\n| jobs | MB/s, one thread | two | times |\n|---|---:|---:|---:|",
        size / 1_000_000,
        layout.blocks()
    );
    for (what, [one, two]) in [("hashing", hash), ("sending, 30 % more packets, sealed", sending), ("receiving, 15 % lost", receiving)] {
        println!("| {what} | {:.0} | {:.0} | {:.2} |", size as f64 / one / 1e6, size as f64 / two / 1e6, one / two);
    }
}
