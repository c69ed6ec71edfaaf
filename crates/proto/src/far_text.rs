//! Text of another host, and the only form in which it may reach a terminal, a log, JSON or a metric.
//!
//! The sender of a text chooses its characters: escape sequences drive a terminal, line breaks forge lines of a log, and characters without a
//! shape of their own hide or reorder what stands beside them. [`FarText`] has no other `Display` than the escaped one. Code that needs the bytes
//! themselves calls [`FarText::raw`].

use core::fmt::{self, Write};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Longest text that is kept, bytes. Reasons on the wire have at most 255.
pub const MAX_FAR_TEXT: usize = 1024;

/// Text of another host, or text of this one that may stand beside it.
#[derive(Clone, PartialEq, Eq, Default, Hash)]
pub struct FarText(String);

impl FarText {
    /// Keeps at most [`MAX_FAR_TEXT`] bytes.
    pub fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(boundary(&text, MAX_FAR_TEXT));
        Self(text)
    }

    /// From bytes that should be UTF-8; what is not becomes U+FFFD. At most `max` bytes are kept.
    pub fn from_wire(bytes: &[u8], max: usize) -> Self {
        let max = max.min(MAX_FAR_TEXT);
        let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned();
        // A replacement character takes more room than what it replaces.
        text.truncate(boundary(&text, max));
        Self(text)
    }

    /// The text as it came: for sending on and for comparing, never for showing.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// The longest beginning of at most `max` bytes, as it came.
    pub fn raw_prefix(&self, max: usize) -> &str {
        &self.0[..boundary(&self.0, max)]
    }

    /// Nothing was said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The last boundary between characters that is not beyond `max` bytes.
fn boundary(text: &str, max: usize) -> usize {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

impl fmt::Display for FarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.0).fmt(f)
    }
}

impl fmt::Debug for FarText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The escaped form: what is written as JSON is shown somewhere.
impl Serialize for FarText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FarText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl From<&str> for FarText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for FarText {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl PartialEq<str> for FarText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for FarText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// `text` with every character that [`is_deceptive`] written as Rust writes it: `\n`, `\u{1b}`. Applied twice it changes nothing more.
pub fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// See [`escaped`].
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_deceptive(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// The last look at whole lines on their way out: line breaks and tabs stay, every other deceptive character is written as JSON writes it
/// (`\u001b`). A document of JSON has the same meaning afterwards, since such characters can only stand in its strings.
pub fn guarded(text: &str) -> Cow<'_, str> {
    let passes = |c: char| matches!(c, '\n' | '\t') || !is_deceptive(c);
    if text.chars().all(passes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if passes(c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(out)
}

/// Control characters (C0, C1, DEL), separators of lines and paragraphs, and what has no shape of its own: marks of direction, joiners, fillers,
/// tags, selectors of variants (Unicode's `Default_Ignorable_Code_Point`), and marks of interlinear annotation.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind.
    const DECEPTIVE: &str = "\x1b]0;owned\x07\r\n\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200b}\u{2028}\u{2029}\u{feff}\u{ad}\u{e0041}\u{3164}";

    #[test]
    fn no_form_of_far_text_that_is_shown_has_a_deceptive_character() {
        let text = FarText::new(DECEPTIVE);
        let json = serde_json::to_string(&text).unwrap();
        for shown in [text.to_string(), format!("{text:?}"), format!("{:#?}", Some(&text)), json] {
            assert!(!shown.chars().any(|c| is_deceptive(c) && c != '\n'), "{shown:?}");
        }
        assert_eq!(FarText::new("a\x1b[2J\nb").to_string(), "a\\u{1b}[2J\\nb");
        assert_eq!(FarText::new("grün 木 \u{1f600}").to_string(), "grün 木 \u{1f600}");
        assert_eq!(text.raw(), DECEPTIVE);
    }

    #[test]
    fn escaping_again_changes_nothing() {
        let once = escaped(DECEPTIVE).to_string();
        assert_eq!(escaped(&once).to_string(), once);
    }

    #[test]
    fn the_length_is_bounded_in_bytes_at_a_boundary() {
        assert_eq!(FarText::new("ä".repeat(MAX_FAR_TEXT)).raw().len(), MAX_FAR_TEXT);
        assert_eq!(FarText::new("x".to_owned() + &"ä".repeat(MAX_FAR_TEXT)).raw().len(), MAX_FAR_TEXT - 1);
        assert!(FarText::from_wire(&[0xff; 300], 255).raw().len() <= 255);
        assert_eq!(FarText::new("aä").raw_prefix(2), "a");
    }

    #[test]
    fn guarded_json_means_the_same_and_lines_stay_lines() {
        let value = serde_json::json!({ "name": DECEPTIVE });
        let line = value.to_string();
        let out = guarded(&line);
        assert!(!out.chars().any(is_deceptive), "{out:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap(), value);
        assert_eq!(guarded("a\tb\nc\r"), "a\tb\nc\\u000d");
        assert!(matches!(guarded("plain\n"), Cow::Borrowed(_)));
    }
}
