//! Deterministic content: endless bytes from a seed that a receiver can check without a copy.

use std::io::{self, Read, Write};

/// Bytes after which the pattern repeats: a prime, so that no packet or buffer size divides it and bytes that are
/// missing, doubled or swapped show.
const PERIOD: usize = 1_048_573;

/// An endless pattern; as a [`Read`] it never ends.
#[derive(Debug, Clone)]
pub struct Pattern {
    bytes: Vec<u8>,
    at: usize,
}

impl Pattern {
    /// The pattern of this seed, from its beginning.
    pub fn new(seed: u64) -> Self {
        let mut bytes = vec![0u8; PERIOD];
        blake3::Hasher::new_derive_key("noctule-lab 2026 test pattern").update(&seed.to_be_bytes()).finalize_xof().fill(&mut bytes);
        Self { bytes, at: 0 }
    }

    /// Compares with the next bytes of the pattern and tells how many differ.
    pub fn differing(&mut self, mut data: &[u8]) -> u64 {
        let mut wrong = 0;
        while !data.is_empty() {
            let expected = self.next(data.len());
            let (head, tail) = data.split_at(expected.len());
            if head != expected {
                wrong += head.iter().zip(expected).filter(|(a, b)| a != b).count() as u64;
            }
            data = tail;
        }
        wrong
    }

    /// At most `length` next bytes.
    fn next(&mut self, length: usize) -> &[u8] {
        let start = self.at;
        let end = (start + length).min(PERIOD);
        self.at = end % PERIOD;
        &self.bytes[start..end]
    }
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.next(buffer.len());
        let length = bytes.len();
        buffer[..length].copy_from_slice(bytes);
        Ok(length)
    }
}

/// Writes `length` bytes that do not repeat, made from the seed, and returns their BLAKE3.
pub fn write_unique(seed: u64, length: u64, to: &mut impl Write) -> io::Result<blake3::Hash> {
    let mut source = blake3::Hasher::new_derive_key("noctule-lab 2026 file content").update(&seed.to_be_bytes()).finalize_xof();
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0u8; 256 << 10];
    let mut left = length;
    while left > 0 {
        let size = left.min(chunk.len() as u64) as usize;
        source.fill(&mut chunk[..size]);
        hasher.update(&chunk[..size]);
        to.write_all(&chunk[..size])?;
        left -= size as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_agrees_with_itself_in_any_cut() {
        let mut source = Pattern::new(7);
        let mut check = Pattern::new(7);
        let mut buffer = vec![0u8; 100_000];
        for size in [1usize, 1472, 65_536, 100_000].into_iter().cycle().take(60) {
            let length = source.read(&mut buffer[..size]).unwrap();
            assert_eq!(check.differing(&buffer[..length]), 0);
        }
    }

    #[test]
    fn a_missing_byte_shows() {
        let mut source = Pattern::new(7);
        let mut buffer = vec![0u8; 2000];
        source.read_exact(&mut buffer).unwrap();
        buffer.remove(500);
        assert!(Pattern::new(7).differing(&buffer) > 1000);
        assert!(Pattern::new(8).differing(&buffer) > 1000);
    }

    #[test]
    fn file_content_is_the_same_for_a_seed() {
        let mut first = Vec::new();
        let hash = write_unique(1, 300_000, &mut first).unwrap();
        assert_eq!(first.len(), 300_000);
        assert_eq!(hash, blake3::hash(&first));
        assert_eq!(write_unique(1, 300_000, &mut io::sink()).unwrap(), hash);
        assert_ne!(write_unique(2, 300_000, &mut io::sink()).unwrap(), hash);
    }
}
