//! Relative links lead somewhere, and files that a page or a comment cites are there.

use super::pages::{Line, files, lines};
use super::{read, root};
use std::collections::HashSet;
use std::path::{Component, Path};

/// Targets of `[text](target)` in a line's prose, but for those on other hosts.
fn targets(prose: &str) -> impl Iterator<Item = &str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).filter(|t| !t.contains("://") && !t.starts_with("mailto:"))
}

/// Anchor of a heading as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let mut text = heading.trim_start_matches('#').trim().to_lowercase();
    while let Some((before, rest)) = text.split_once("](").map(|(b, r)| (b.to_owned(), r.to_owned())) {
        text = before + rest.split_once(')').map_or("", |(_, after)| after);
    }
    text.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// `docs/guide` and `../spec/wire.md` give `docs/spec/wire.md`.
fn joined(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(page).parent().unwrap().join(target).components().collect::<Vec<_>>() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(Box::leak(name.to_str().unwrap().to_owned().into_boxed_str())),
            _ => {}
        }
    }
    parts.join("/")
}

fn fault(line: &Line, target: &str) -> Option<String> {
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { line.page.clone() } else { joined(&line.page, file) };
    if !root().join(&path).exists() {
        return Some(format!("{}: {target} is not there", line.place()));
    }
    let missing =
        !fragment.is_empty() && path.ends_with(".md") && !read(&path).lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == fragment);
    missing.then(|| format!("{}: {path} has no heading #{fragment}", line.place()))
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let (mut checked, mut faults) = (0, Vec::new());
    for line in lines().iter().filter(|l| !l.in_fence) {
        for target in targets(&line.code_and_prose().1) {
            checked += 1;
            faults.extend(fault(line, target));
        }
    }
    assert!(checked > 300, "{checked}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let line = Line { page: "docs/guide/node.md".into(), number: 1, text: "see [a](../spec/gone.md)".into(), in_fence: false };
    assert!(targets(&line.code_and_prose().1).any(|t| fault(&line, t).is_some()));
    assert!(fault(&line, "../spec/wire.md#no-such-heading").is_some());
    assert_eq!(fault(&line, "../spec/flow.md#5-transparent-flows"), None);
}

/// Whether a word is the name of a file of the tree: those that a user would have are others.
fn names_a_file(word: &str) -> bool {
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    let source = [".rs", ".md", ".py", ".svg", ".csv", ".lua"].iter().any(|e| word.ends_with(e));
    plain && word.len() > 4 && !word.starts_with(['/', '.']) && (source || (word.contains('/') && word.ends_with(".toml")))
}

#[test]
fn every_file_that_a_page_cites_is_in_the_tree() {
    let all = files();
    let mut ends = HashSet::new();
    for file in &all {
        ends.insert(file.as_str());
        ends.extend(file.match_indices('/').map(|(at, _)| &file[at + 1..]));
    }
    let (mut cited, mut missing) = (0, Vec::new());
    for line in lines().iter().filter(|l| !l.in_fence) {
        let (code, _) = line.code_and_prose();
        for word in code.into_iter().filter(|w| names_a_file(w)) {
            cited += 1;
            if !ends.contains(word) {
                missing.push(format!("{}: {word}", line.place()));
            }
        }
    }
    assert!(cited > 100, "{cited}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A comment cites a page as `docs/spec/wire.md` or a decision as `docs/decisions/0053`.
#[test]
fn every_page_that_the_code_cites_is_in_the_tree() {
    let all = files();
    let (mut cited, mut missing) = (0, Vec::new());
    for file in all.iter().filter(|f| f.ends_with(".rs") || f.ends_with(".toml") || f.ends_with(".lua")) {
        for (n, line) in read(file).lines().enumerate() {
            for (at, _) in line.match_indices("docs/").filter(|(at, _)| !line[..*at].ends_with(|c: char| c == '/' || c.is_alphanumeric())) {
                let word: &str = line[at..].split(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c))).next().unwrap();
                let word = word.trim_end_matches(['.', '/']);
                cited += 1;
                if !all.iter().any(|f| f.starts_with(word)) {
                    missing.push(format!("{file}:{}: {word}", n + 1));
                }
            }
        }
    }
    assert!(cited > 40, "{cited}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
