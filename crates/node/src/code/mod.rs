//! One-time codes: how a sender and a receiver that have never met learn each other's key. `docs/spec/code.md` describes the bytes.
//!
//! The receiver shows a code, its owner reads it to the sender's user, and both ends prove to each other that they have it ([`exchange`]).
//! [`gate`] bounds the number of guesses and the cost of each; [`ask`] is the sender's end.

pub mod ask;
mod exchange;
pub mod gate;
mod guesses;
mod places;
mod records;
mod words;

use crate::failure::Failure;
use std::fmt;
use std::str::FromStr;
use words::WORDS;
use zeroize::{Zeroize, Zeroizing};

/// Tag of the stream that the exchange runs on: "code".
pub const TAG: u64 = 0x636f_6465;
/// The application's code for closing a session that has to begin with a code.
pub const WANTED: u64 = 0x6e6f_6b65;
/// The largest number in front of the words; the smallest is 1.
const NUMBERS: u64 = 99;

/// A number and two words of a list: one of 99 * 256 * 256, or 22.6 bits. Its memory is cleared when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    number: u8,
    /// Indexes into the list of words.
    words: [u8; 2],
}

impl Drop for Code {
    fn drop(&mut self) {
        self.number.zeroize();
        self.words.zeroize();
    }
}

impl Code {
    /// A fresh code, of the system's randomness.
    pub fn random() -> Result<Self, Failure> {
        let mut bytes = Zeroizing::new([0; 10]);
        getrandom::fill(&mut *bytes).map_err(|e| Failure::system("no randomness from the operating system", e))?;
        let [first, second, number @ ..] = *bytes;
        // 2^64 is no multiple of 99, so some numbers are likelier than others, by a factor of 1 + 2^-57.
        let number = u64::from_be_bytes(number) % NUMBERS + 1;
        Ok(Self { number: number as u8, words: [first, second] })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.words.map(|at| WORDS[usize::from(at)]);
        write!(f, "{}-{first}-{second}", self.number)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

/// Typing errors are found here, before they cost a guess: two typing errors make no word of the list into another one.
impl FromStr for Code {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is no code: a code is a number from 1 to {NUMBERS} and two words, like 4-otter-lagoon");
        let parts: Zeroizing<Vec<String>> = Zeroizing::new(
            text.split(|c: char| c == '-' || c.is_whitespace()).filter(|part| !part.is_empty()).map(str::to_lowercase).collect(),
        );
        let [number, first, second] = &parts[..] else { return Err(form()) };
        let number = number.parse().ok().filter(|n| (1..=NUMBERS).contains(&u64::from(*n))).ok_or_else(form)?;
        Ok(Self { number, words: [word(first)?, word(second)?] })
    }
}

fn word(text: &str) -> Result<u8, String> {
    if let Some(at) = (0..=u8::MAX).find(|at| WORDS[usize::from(*at)] == text) {
        return Ok(at);
    }
    let near = WORDS.iter().map(|word| (words::distance(word, text), word)).min().filter(|(distance, _)| *distance < words::DISTANCE);
    let hint = near.map_or_else(String::new, |(_, word)| format!(": did you mean {word}?"));
    Err(format!("{text:?} is no word of codes{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_written_or_spoken() {
        let code: Code = "4-otter-lagoon".parse().unwrap();
        assert_eq!(code.to_string(), "4-otter-lagoon");
        assert_eq!("  4 Otter  LAGOON\n".parse(), Ok(code.clone()));
        assert_eq!(format!("{code:?}"), "Code(..)", "no log shows it by mistake");
        for _ in 0..100 {
            let code = Code::random().unwrap();
            assert_eq!(code.to_string().parse(), Ok(code));
        }
    }

    #[test]
    fn codes_are_wiped() {
        assert!(std::mem::needs_drop::<Code>());
    }

    #[test]
    fn typing_errors_are_told_before_they_cost_a_guess() {
        for (text, words) in [
            ("4-oter-lagoon", "did you mean otter"),
            ("4-otter-xylophone", "no word of codes"),
            ("0-otter-lagoon", "from 1 to 99"),
            ("100-otter-lagoon", "from 1 to 99"),
            ("4-otter", "two words"),
            ("4-otter-lagoon-otter", "two words"),
            ("file.txt", "like 4-otter-lagoon"),
            ("", "like 4-otter-lagoon"),
        ] {
            let error = text.parse::<Code>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
