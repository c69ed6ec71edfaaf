//! Sentences of the pages that a stranger reads have at most 25 words, so that each is understood at the first reading.
//!
//! A *sentence* ends at `.`, `!`, `?` or `:` before a space and a capital letter, `*`, a span of code, `(` or `-`. A paragraph, an item of a list
//! and a cell of a table end one, too; so a sentence does not begin with a figure. A *word* has a letter or a digit. A span of code is one word,
//! the target of a link is none. Headings, comments, fences, and lines that are indented by four spaces (code) are not looked at.

use super::pages::files;
use super::read;

const MOST: usize = 25;
const PAGES: [&str; 5] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
const ROOMS: [&str; 3] = ["docs/guide/", "docs/results/", "docs/spec/"];

/// What stands in an item of a list: "- ...", "* ...", "12. ...".
fn item(line: &str) -> Option<&str> {
    let line = line.trim();
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marked = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    marked.or_else(|| after_number.strip_prefix(". ").filter(|_| after_number.len() < line.len()))
}

/// Paragraphs, items and cells of a page, each with the number of its first line.
fn parts(page: &str) -> Vec<(usize, String)> {
    let mut parts: Vec<(usize, String)> = Vec::new();
    let (mut in_fence, mut goes_on) = (false, false);
    for (n, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            (in_fence, goes_on) = (!in_fence, false);
        } else if in_fence || text.is_empty() || line.starts_with('#') || line.starts_with("<!--") {
            goes_on = false;
        } else if text.starts_with('|') {
            parts.extend(text.trim_matches('|').split(" | ").map(|cell| (n + 1, cell.trim().to_owned())));
            goes_on = false;
        } else if let Some(text) = item(line).or_else(|| (!goes_on && !line.starts_with("    ")).then_some(text)) {
            parts.push((n + 1, text.to_owned()));
            goes_on = true;
        } else if goes_on {
            let part = &mut parts.last_mut().unwrap().1;
            part.push(' ');
            part.push_str(text);
        }
    }
    parts
}

/// The text with `Code` for each span of code.
fn without_code(text: &str) -> String {
    let spans: Vec<&str> = text.split('`').collect();
    let whole = spans.len() - (spans.len() + 1) % 2;
    let shown = |(n, span): (usize, &&str)| if n % 2 == 1 && n < whole { "Code".to_owned() } else { (*span).to_owned() };
    spans.iter().enumerate().map(shown).collect()
}

/// The text with the words of a link in the place of `[words](target)`.
fn without_targets(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let (before, after) = rest.split_at(middle);
        let (Some(begin), Some(end)) = (before.rfind('['), after.find(')')) else { break };
        shown.push_str(&before[..begin]);
        shown.push_str(&before[begin + 1..]);
        rest = &after[end + 1..];
    }
    shown + rest
}

fn sentences(part: &str) -> Vec<String> {
    let text = without_targets(&without_code(part));
    let mut found = vec![String::new()];
    let words: Vec<&str> = text.split_whitespace().collect();
    for (n, word) in words.iter().enumerate() {
        let sentence = found.last_mut().unwrap();
        sentence.push_str(word);
        sentence.push(' ');
        let begins = |next: &&str| next.starts_with(|c: char| c.is_ascii_uppercase() || "*(-".contains(c));
        if word.ends_with(['.', '!', '?', ':']) && words.get(n + 1).is_some_and(begins) {
            found.push(String::new());
        }
    }
    found
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(|c: char| c.is_alphanumeric() || c == '_')).count()
}

/// Sentences of a page that are too long, with their lines.
fn long(page: &str) -> Vec<(usize, String)> {
    let all = parts(page).into_iter().flat_map(|(line, part)| sentences(&part).into_iter().map(move |s| (line, s)));
    all.filter(|(_, sentence)| words(sentence) > MOST).collect()
}

#[test]
fn sentences_have_at_most_25_words() {
    let is_held = |file: &str| PAGES.contains(&file) || (file.ends_with(".md") && ROOMS.iter().any(|room| file.starts_with(room)));
    let (mut pages, mut found) = (0, Vec::new());
    for file in files().iter().filter(|file| is_held(file)) {
        pages += 1;
        found.extend(long(&read(file)).iter().map(|(line, s)| format!("{file}:{line}: {} words: {s}", words(s))));
    }
    assert!(pages > 50, "{pages}");
    assert!(found.is_empty(), "{} sentences are too long. Make several of each, or a list or a table:\n{}", found.len(), found.join("\n"));
}

#[test]
fn sentences_are_told_apart_as_this_file_says() {
    let of = |n: usize| vec!["word"; n].join(" ");
    let counts = |page: &str| parts(page).iter().flat_map(|(_, part)| sentences(part)).map(|s| words(&s)).collect::<Vec<_>>();
    assert!(long(&of(25)).is_empty());
    assert_eq!(long(&format!("# {}\n\nShort.\n\n{}.\n", of(30), of(26))), [(5, format!("{}. ", of(26)))]);
    assert_eq!(counts("One two. Three\nfour: `five six` seven; e.g. eight 3.5 9\n"), [2, 2, 6]);
    assert_eq!(counts("1. One\n   two\n- Three\n\n```\nno words\n```\n\n    no words\n\n<!-- none -->\n"), [2, 1]);
    assert_eq!(counts("| one two | three. [Four five](six seven.md) |\n|---|---|\n"), [2, 1, 2, 0]);
}
