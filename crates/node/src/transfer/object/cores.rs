//! Coding, hashing and sealing of blocks on as many threads as there are cores (P21). What is done does not depend on where and in which order:
//! results have the order of their jobs, or are told apart by their blocks.

use super::super::hashing::Comparing;
use crate::failure::Failure;
use noctule_proto::object::{BlockResult, Digest, Layout, Receiver, leaf};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::{JoinHandle, JoinSet};

/// Jobs that run at the same time.
pub fn width() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The hashes of all blocks of a file, as far as it can be read: `None` from the first block on that cannot, or once nobody wants them. Blocks.
pub fn leaves(file: &File, layout: &Layout, width: usize, comparing: &Comparing) -> (Vec<Digest>, Option<std::io::Error>) {
    let next = AtomicU32::new(0);
    comparing.total.fetch_add(layout.size(), Ordering::Relaxed);
    let work = || {
        let mut done = Vec::new();
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= layout.blocks() {
                return (done, None);
            }
            match comparing.check().and_then(|()| super::file::read(file, layout, block)) {
                Ok(content) => {
                    done.push((block, leaf(&content)));
                    comparing.done.fetch_add(content.len() as u64, Ordering::Relaxed);
                }
                Err(e) => {
                    // Nobody need go on after it.
                    next.store(layout.blocks(), Ordering::Relaxed);
                    return (done, Some((block, e)));
                }
            }
        }
    };
    let parts = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..width).map(|_| scope.spawn(work)).collect();
        let mut parts = vec![work()];
        // A thread that panicked has told standard error why; what it should have hashed is missing below.
        parts.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        parts
    });
    let (mut found, mut failed) = (vec![None; layout.blocks() as usize], Vec::new());
    for (done, failure) in parts {
        done.into_iter().for_each(|(block, leaf)| found[block as usize] = Some(leaf));
        failed.extend(failure);
    }
    let leaves: Vec<Digest> = found.into_iter().map_while(|leaf| leaf).collect();
    let error = failed.into_iter().min_by_key(|(block, _)| *block).map(|(_, e)| e);
    let is_short = leaves.len() < layout.blocks() as usize;
    (leaves, error.or_else(|| is_short.then(|| std::io::Error::other("a thread that hashes it failed"))))
}

/// Jobs whose results come in the order in which they were given.
pub struct InOrder<T> {
    running: VecDeque<JoinHandle<T>>,
    width: usize,
}

impl<T: Send + 'static> InOrder<T> {
    /// As many as there are cores, and as many again that wait for one: no core waits for the order.
    pub fn new() -> Self {
        Self { running: VecDeque::new(), width: 2 * width() }
    }

    /// One more may be given.
    pub fn has_room(&self) -> bool {
        self.running.len() < self.width
    }

    /// Gives one.
    pub fn push(&mut self, job: impl FnOnce() -> T + Send + 'static) {
        self.running.push_back(tokio::task::spawn_blocking(job));
    }

    /// The result of the oldest; `None` if there is none. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The job panicked.
    pub async fn next(&mut self) -> Option<Result<T, Failure>> {
        let result = self.running.front_mut()?.await;
        self.running.pop_front();
        Some(result.map_err(|e| Failure::system("a thread", e)))
    }
}

/// A receiver whose blocks are decoded beside the task that takes its packets.
pub struct Decoding {
    receiver: Receiver,
    jobs: JoinSet<BlockResult>,
    width: usize,
}

impl Decoding {
    /// On as many threads as there are cores.
    pub fn new(receiver: Receiver) -> Self {
        Self { receiver, jobs: JoinSet::new(), width: width() }
    }

    /// What is here.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// A packet that came.
    pub fn on_packet(&mut self, packet: &[u8]) {
        self.receiver.offer(packet);
        self.start();
    }

    /// The next block that is complete and verified.
    pub fn poll_block(&mut self) -> Option<(u32, Vec<u8>)> {
        self.receiver.poll_block()
    }

    /// Waits until a job is done, for ever if there is none. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The job panicked.
    pub async fn worked(&mut self) -> Result<(), Failure> {
        match self.jobs.join_next().await {
            Some(result) => {
                self.receiver.on_result(result.map_err(|e| Failure::system("a thread", e))?);
                self.start();
                Ok(())
            }
            None => std::future::pending().await,
        }
    }

    fn start(&mut self) {
        while self.jobs.len() < self.width
            && let Some(job) = self.receiver.poll_job()
        {
            self.jobs.spawn_blocking(move || job.run());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(len: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        file.write_all(&data).unwrap();
        file
    }

    #[test]
    fn the_hashes_of_a_file_do_not_depend_on_how_many_threads_make_them() {
        let layout = Layout::new(100_000, 100, 20, 16, 5).unwrap();
        let file = file(100_000);
        let (alone, error) = leaves(&file, &layout, 1, &Comparing::default());
        assert!(alone.len() == layout.blocks() as usize && error.is_none());
        for width in [2, 3, 8] {
            assert_eq!(leaves(&file, &layout, width, &Comparing::default()).0, alone);
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_hashed_as_far_as_it_goes() {
        let layout = Layout::new(100_000, 100, 20, 16, 5).unwrap();
        let whole = leaves(&file(100_000), &layout, 1, &Comparing::default()).0;
        for width in [1, 4] {
            let (found, error) = leaves(&file(50_000), &layout, width, &Comparing::default());
            assert!(error.is_some());
            assert_eq!(found, whole[..25]);
        }
    }

    #[tokio::test]
    async fn results_come_in_the_order_of_their_jobs() {
        let mut jobs = InOrder::new();
        let mut got = Vec::new();
        for i in 0..50u64 {
            while !jobs.has_room() {
                got.push(jobs.next().await.unwrap().unwrap());
            }
            // The first take longest.
            jobs.push(move || (0..(50 - i) * 10_000).fold(i, |result, _| std::hint::black_box(result)));
        }
        while let Some(result) = jobs.next().await {
            got.push(result.unwrap());
        }
        assert_eq!(got, (0..50).collect::<Vec<_>>());
    }
}
