//! A sliding bitmap over packet numbers: set bits are numbers of interest, words in front fall away as the window moves.

use std::collections::VecDeque;

/// Set of packet numbers within a window that only moves forward.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    first_word: u64,
    words: VecDeque<u64>,
}

impl Bitmap {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lowest number that the window still covers.
    pub fn start(&self) -> u64 {
        self.first_word * 64
    }

    /// The 64 bits from number `word * 64` on, bit 0 first; zero outside the window.
    pub fn word(&self, word: u64) -> u64 {
        word.checked_sub(self.first_word).and_then(|i| self.words.get(usize::try_from(i).ok()?)).copied().unwrap_or(0)
    }

    /// Adds a number; true if it was new. Numbers below the window are refused with false.
    ///
    /// The window grows up to `n`: the caller bounds how far `n` may lie ahead.
    pub fn insert(&mut self, n: u64) -> bool {
        let word = n / 64;
        if word < self.first_word {
            return false;
        }
        if self.words.is_empty() {
            self.first_word = word;
        }
        let index = (word - self.first_word) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (n % 64);
        let is_new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        is_new
    }

    /// Takes a number out; true if it was there.
    pub fn remove(&mut self, n: u64) -> bool {
        let Some(word) = (n / 64).checked_sub(self.first_word).and_then(|i| self.words.get_mut(i as usize)) else { return false };
        let bit = 1 << (n % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    /// Whether the number is in the set.
    pub fn contains(&self, n: u64) -> bool {
        self.word(n / 64) & (1 << (n % 64)) != 0
    }

    /// The lowest number of the set that is at least `n`.
    pub fn next_from(&self, n: u64) -> Option<u64> {
        self.next_within(n, u64::MAX)
    }

    /// The lowest number of the set from `n` to `last`. Costs no more than the words between them, whatever lies behind.
    pub fn next_within(&self, n: u64, last: u64) -> Option<u64> {
        let mut word = (n / 64).max(self.first_word);
        let mut bits = self.word(word);
        if word == n / 64 {
            bits &= u64::MAX << (n % 64);
        }
        let end = (self.first_word + self.words.len() as u64).min((last / 64).saturating_add(1));
        while bits == 0 {
            word += 1;
            if word >= end {
                return None;
            }
            bits = self.word(word);
        }
        Some(word * 64 + u64::from(bits.trailing_zeros())).filter(|n| *n <= last)
    }

    /// Moves the window so that whole words below `n` are forgotten.
    pub fn trim_below(&mut self, n: u64) {
        let word = n / 64;
        while self.first_word < word && self.words.pop_front().is_some() {
            self.first_word += 1;
        }
        if self.words.is_empty() {
            self.first_word = self.first_word.max(word);
        }
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_next_number_across_words_and_after_trimming() {
        let mut b = Bitmap::new();
        for n in [3, 64, 200, 1000] {
            assert!(b.insert(n));
        }
        assert!(!b.insert(64));
        assert_eq!(b.next_from(0), Some(3));
        assert_eq!(b.next_from(4), Some(64));
        assert_eq!(b.next_from(65), Some(200));
        assert_eq!(b.next_from(201), Some(1000));
        assert_eq!(b.next_from(1001), None);
        b.trim_below(130);
        assert!(!b.contains(3) && b.contains(200));
        assert!(!b.insert(5), "below the window");
        assert_eq!(b.next_from(0), Some(200));
        assert!(b.remove(200) && !b.remove(200));
        assert_eq!(b.next_from(0), Some(1000));
        b.trim_below(100_000);
        assert_eq!(b.next_from(0), None);
        assert!(b.insert(100_001));
    }
}
