//! Hashing of files on disk: in pieces, so that progress is shown and the work can be stopped. Holes are hashed without being read.

use blake3::Hasher;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Progress of a transfer's hashing, for display, and whether its result is still wanted.
#[derive(Debug, Default)]
pub struct Comparing {
    /// Bytes that were compared.
    pub done: AtomicU64,
    /// Bytes of all files whose comparison has begun.
    pub total: AtomicU64,
    /// The transfer is over, and the result is not wanted any more.
    pub is_over: AtomicBool,
}

impl Comparing {
    /// Bytes done and bytes in all; `None` when nothing is left to do.
    pub fn under_way(&self) -> Option<(u64, u64)> {
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        (done < total).then_some((done, total))
    }

    /// # Errors
    /// The transfer is over.
    pub fn check(&self) -> io::Result<()> {
        match self.is_over.load(Relaxed) {
            true => Err(io::Error::other("the transfer is over")),
            false => Ok(()),
        }
    }
}

/// The next data of a file of `size` bytes at or behind `at`, and its end. A file system that knows no holes has data everywhere.
pub fn segment(file: &File, at: u64, size: u64) -> (u64, u64) {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.min(size),
        // Nothing but a hole from here on.
        Err(rustix::io::Errno::NXIO) => size,
        Err(_) => at,
    };
    let end = if data < size { rustix::fs::seek(file, SeekFrom::Hole(data)).map_or(size, |end| end.min(size)) } else { size };
    (data, end.max(data))
}

/// Hashes up to so many zeros, and returns how many it hashed.
pub fn hash_zeros(hasher: &mut Hasher, length: u64) -> u64 {
    let part = usize::try_from(length).unwrap_or(usize::MAX).min(ZEROS.len());
    hasher.update(&ZEROS[..part]);
    part as u64
}

/// The hash of a file, piece by piece.
pub struct FileHash {
    hasher: Hasher,
    at: u64,
    limit: u64,
    /// Where the data found last begin and end.
    data: (u64, u64),
    buffer: Vec<u8>,
}

impl FileHash {
    /// Begins the hash of the first `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { hasher: Hasher::new(), at: 0, limit, data: (0, 0), buffer: Vec::new() }
    }

    /// Hashes about `budget` bytes more. True at the end, which comes early if the file is shorter than its size.
    pub fn step(&mut self, file: &File, budget: u64, comparing: &Comparing) -> io::Result<bool> {
        let stop = self.limit.min(self.at.saturating_add(budget));
        self.buffer.resize(super::CHUNK, 0);
        let length = file.metadata()?.len();
        while self.at < stop {
            comparing.check()?;
            if self.at >= self.data.1 {
                // Procfs and the like have content beyond their length; there is no hole to be found in them.
                self.data = if self.at < length { segment(file, self.at, length.min(self.limit)) } else { (self.at, self.limit) };
            }
            let n = match self.at < self.data.0 {
                true => hash_zeros(&mut self.hasher, self.data.0.min(stop) - self.at),
                false => {
                    let want = usize::try_from(self.data.1.min(stop) - self.at).unwrap_or(usize::MAX).min(self.buffer.len());
                    match file.read_at(&mut self.buffer[..want], self.at) {
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                        Err(e) => return Err(e),
                        Ok(0) => return Ok(true),
                        Ok(n) => {
                            self.hasher.update(&self.buffer[..n]);
                            n as u64
                        }
                    }
                }
            };
            self.at += n;
            comparing.done.fetch_add(n, Relaxed);
        }
        Ok(self.at == self.limit)
    }

    /// The hasher, and how many bytes it was given.
    pub fn end(self) -> (Hasher, u64) {
        (self.hasher, self.at)
    }
}

/// Hashes at most `limit` bytes of a file from its beginning, and returns how many there were.
pub fn hash_file(file: &File, limit: u64, comparing: &Comparing) -> io::Result<(Hasher, u64)> {
    let mut hash = FileHash::new(limit);
    while !hash.step(file, u64::MAX, comparing)? {}
    Ok(hash.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn hash_of_a_file_with_holes_is_that_of_its_bytes_in_whatever_pieces() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_at(b"middle", 1 << 20).unwrap();
        file.write_at(b"x", (3 << 20) - 1).unwrap();
        file.flush().unwrap();
        let mut all = vec![0; 3 << 20];
        file.read_exact_at(&mut all, 0).unwrap();
        for (limit, budget) in [(3 << 20, u64::MAX), (3 << 20, 70_000), (2_000_000, 1), (5 << 20, 1 << 20)] {
            let (mut hash, comparing) = (FileHash::new(limit), Comparing::default());
            let mut budget = budget;
            while !hash.step(&file, budget, &comparing).unwrap() {
                budget = budget.saturating_mul(3);
            }
            let (hasher, n) = hash.end();
            let expected = &all[..all.len().min(limit as usize)];
            assert_eq!((hasher.finalize(), n), (blake3::hash(expected), expected.len() as u64));
            assert_eq!(comparing.done.load(Relaxed), n);
        }
    }

    #[test]
    fn hashing_ends_when_nobody_wants_it_any_more() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 50).unwrap_or_else(|_| file.set_len(1 << 40).unwrap());
        let comparing = Comparing::default();
        let mut hash = FileHash::new(1 << 40);
        assert!(!hash.step(&file, 1 << 20, &comparing).unwrap());
        comparing.is_over.store(true, Relaxed);
        assert!(hash.step(&file, u64::MAX, &comparing).is_err());
        assert_eq!(hash.end().1, 1 << 20);
    }
}
