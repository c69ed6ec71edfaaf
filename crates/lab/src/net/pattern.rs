//! Deterministic content: endless bytes from a seed that a receiver can check without a copy.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

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

    /// Goes on at this place, counted from the beginning.
    pub fn seek(&mut self, place: u64) {
        self.at = (place % PERIOD as u64) as usize;
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

/// Writes a file of so many bytes of the pattern.
pub fn write_file(path: &Path, seed: u64, length: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    io::copy(&mut Pattern::new(seed).take(length), &mut file)?;
    file.flush()
}

/// How many bytes of a file differ from the pattern.
pub fn differing_in_file(path: &Path, seed: u64) -> io::Result<u64> {
    let (mut file, mut pattern, mut wrong) = (File::open(path)?, Pattern::new(seed), 0);
    let mut chunk = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(wrong),
            length => wrong += pattern.differing(&chunk[..length]),
        }
    }
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
    fn pattern_goes_on_at_any_place_also_beyond_its_period() {
        let mut whole = vec![0u8; 2 * PERIOD];
        Pattern::new(7).read_exact(&mut whole).unwrap();
        for place in [0, 1472, PERIOD - 1, PERIOD + 5] {
            let mut pattern = Pattern::new(7);
            pattern.seek(place as u64);
            assert_eq!(pattern.differing(&whole[place..place + 2000]), 0, "{place}");
        }
    }

    #[test]
    fn a_changed_byte_of_a_file_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_file(&path, 7, 600_000).unwrap();
        assert_eq!((std::fs::metadata(&path).unwrap().len(), differing_in_file(&path, 7).unwrap()), (600_000, 0));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[300_000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(differing_in_file(&path, 7).unwrap(), 1);
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
