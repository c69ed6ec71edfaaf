//! Content that can be checked anywhere without keeping it: byte i of a stream follows from the seed and i alone.

/// The bytes of one stream or of one series of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

/// SplitMix64 (Steele, Lea, Flood 2014): every bit of the output depends on every bit of the input.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Content {
    /// The content of stream number `stream` in a run with `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { seed: mix(seed) ^ mix(stream.wrapping_mul(0x1000_0000_01b3)) }
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        self.walk(offset, out.len(), |at, expected| out[at..at + expected.len()].copy_from_slice(expected));
    }

    /// How many of `bytes` differ from the content at `offset`.
    pub fn count_wrong(self, offset: u64, bytes: &[u8]) -> u64 {
        let mut wrong = 0;
        self.walk(offset, bytes.len(), |at, expected| {
            let got = &bytes[at..at + expected.len()];
            if got != expected {
                wrong += got.iter().zip(expected).filter(|(a, b)| a != b).count() as u64;
            }
        });
        wrong
    }

    fn walk(self, offset: u64, len: usize, mut each: impl FnMut(usize, &[u8])) {
        let mut at = 0;
        while at < len {
            let position = offset + at as u64;
            let skip = (position % 8) as usize;
            let take = (8 - skip).min(len - at);
            each(at, &self.word(position / 8)[skip..skip + take]);
            at += take;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_a_stream_is_recognised() {
        let content = Content::new(7, 1);
        let mut whole = vec![0; 10_000];
        content.fill(0, &mut whole);
        for (from, to) in [(0, 10_000), (1, 2), (3, 4_099), (4_097, 9_999)] {
            assert_eq!(content.count_wrong(from as u64, &whole[from..to]), 0);
        }
    }

    #[test]
    fn wrong_moved_and_foreign_bytes_are_counted() {
        let content = Content::new(7, 1);
        let mut bytes = vec![0; 1_000];
        content.fill(500, &mut bytes);
        bytes[17] ^= 1;
        assert_eq!(content.count_wrong(500, &bytes), 1);
        assert!(content.count_wrong(501, &bytes) > 900);
        assert!(Content::new(7, 2).count_wrong(500, &bytes) > 900);
        assert!(Content::new(8, 1).count_wrong(500, &bytes) > 900);
    }
}
