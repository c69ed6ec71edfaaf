//! Jobs of blocks on any number of threads: what comes out is what one thread makes (P21).

use super::*;
use std::sync::mpsc;

/// Packets of a carousel as a lossy channel delivers them, some twice, one altered.
fn stream(object: &Object) -> Vec<Vec<u8>> {
    let mut carousel = Carousel::new(object.layout, object.tree.clone(), Plan::Endless);
    let (mut chance, mut packets) = (Chance::new(5), Vec::new());
    loop {
        let mut packet = Vec::new();
        match carousel.poll(&mut packet) {
            Step::Load(block) => carousel.load(block, object.block(block)).unwrap(),
            Step::End => unreachable!("it has none"),
            Step::Packet(_) if packets.len() as u64 > object.layout.packets() * 3 => return packets,
            Step::Packet(_) if chance.hits(0.25) => {}
            Step::Packet(_) => {
                if packets.len() == 70
                    && let Some(last) = packet.last_mut()
                {
                    *last ^= 1;
                }
                packets.extend(std::iter::repeat_n(packet, 1 + usize::from(chance.hits(0.05))));
            }
        }
    }
}

/// Takes `packets` with jobs on `threads` threads, of which results are heard after each `pause` packets only.
fn receive(object: &Object, packets: &[Vec<u8>], threads: usize, pause: usize) -> (Vec<u8>, ReceiverStats) {
    let mut receiver = object.receiver(1 << 20);
    let mut got = Got::default();
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        let workers: Vec<mpsc::Sender<BlockJob>> = (0..threads)
            .map(|_| {
                let (give, jobs) = mpsc::channel::<BlockJob>();
                let done = done.clone();
                scope.spawn(move || jobs.into_iter().for_each(|job| done.send(job.run()).unwrap()));
                give
            })
            .collect();
        let mut running = 0;
        for (i, packet) in packets.iter().enumerate() {
            receiver.offer(packet);
            while let Some(job) = receiver.poll_job() {
                workers[job.block() as usize % threads].send(job).unwrap();
                running += 1;
            }
            if i % pause == 0 {
                while running > 0 {
                    receiver.on_result(results.recv().unwrap());
                    running -= 1;
                }
            }
            got.take(&mut receiver);
        }
        for _ in 0..running {
            receiver.on_result(results.recv().unwrap());
        }
        got.take(&mut receiver);
    });
    (got.data(), receiver.stats())
}

#[test]
fn blocks_that_threads_decode_are_those_that_one_thread_decodes() {
    let object = Object::of(200_000);
    let packets = stream(&object);
    let mut alone = object.receiver(1 << 20);
    let mut got = Got::default();
    for packet in &packets {
        alone.on_packet(packet);
        got.take(&mut alone);
    }
    assert!(got.data() == object.data, "what was altered is thrown away and comes again");
    assert_eq!(alone.stats().spoiled_blocks, 1);
    for threads in [1, 2, 5] {
        let (data, stats) = receive(&object, &packets, threads, 1);
        assert!(data == got.data());
        assert_eq!(stats, alone.stats(), "{threads} threads");
        // Results that are late change no byte.
        for pause in [7, 40] {
            assert!(receive(&object, &packets, threads, pause).0 == got.data(), "{threads} threads, {pause}");
        }
    }
}

#[test]
fn packets_that_threads_make_are_those_that_one_thread_makes() {
    let object = Object::of(60_000);
    let block = SourceBlock::new(object.layout, 1, object.block(1), &object.tree.leaves()[1]).unwrap();
    let mut alone = block.clone();
    let expected: Vec<Vec<u8>> = (0..200)
        .map(|number| {
            let mut out = Vec::new();
            alone.write(number, &mut out);
            out
        })
        .collect();
    let mut shared = block;
    shared.prepare();
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..4)
            .map(|part| {
                let shared = &shared;
                let make = move |number| {
                    let mut out = Vec::new();
                    shared.write_shared(number, &mut out);
                    (number, out)
                };
                scope.spawn(move || (0..200).filter(|n| n % 4 == part).map(make).collect::<Vec<_>>())
            })
            .collect();
        for (number, packet) in parts.into_iter().flat_map(|p| p.join().unwrap()) {
            assert_eq!(packet, expected[number as usize]);
        }
    });
}
