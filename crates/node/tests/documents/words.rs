//! Comments speak of flows, packets and peers as the field does: each is *it*.

use super::pages::files;
use super::read;

/// Where comments are held to it: all code.
const ROOTS: [&str; 3] = ["bindings/", "crates/", "fuzz/"];

/// Endings of files whose comments begin with `//`.
const CODE: [&str; 6] = [".rs", ".c", ".cc", ".cpp", ".h", ".hpp"];

/// Words of persons.
const PERSONS: [&str; 7] = ["who", "whoever", "whom", "he", "his", "him", "himself"];

fn comment(line: &str) -> &str {
    line.find("//").filter(|at| !line[..*at].ends_with(':')).map_or("", |at| &line[at..])
}

fn persons(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|w| PERSONS.contains(&w.to_lowercase().as_str())).collect()
}

#[test]
fn a_flow_a_packet_or_a_peer_is_it() {
    let mut found = Vec::new();
    let is_held = |file: &str| ROOTS.iter().any(|root| file.starts_with(root)) && CODE.iter().any(|end| file.ends_with(end));
    for file in files().iter().filter(|file| is_held(file)) {
        for (n, line) in read(file).lines().enumerate() {
            found.extend(persons(comment(line)).iter().map(|w| format!("{file}:{}: {w}: {}", n + 1, line.trim())));
        }
    }
    assert!(found.is_empty(), "{} comments speak of persons:\n{}", found.len(), found.join("\n"));
    assert_eq!(persons(comment(concat!("    x(); /", "/ Who sends: the rest is his, whose? The other"))), ["Who", "his"]);
    assert_eq!(persons(comment("let url = \"https://he\";")), Vec::<&str>::new());
}
