//! Figures: the index of results is made from marks in their pages, and every number in the README is in one of them.
//!
//! A mark is a comment of its own line: `<!-- figure: 97.6 % | what it is | command -->`.

use super::{expect_generated, read, root};
use std::fmt::Write;
use std::fs;

fn pages() -> Vec<String> {
    let names = fs::read_dir(root().join("docs/results")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| n.ends_with(".md") && n != "README.md").collect();
    names.sort();
    names
}

/// Lines of a page that are marks: figure, what it is, command.
fn marks(page: &str, text: &str) -> Vec<[String; 3]> {
    let marks = text.lines().filter_map(|l| l.strip_prefix("<!-- figure: ")?.strip_suffix(" -->"));
    let parts = marks.map(|m| {
        let parts: Vec<String> = m.split(" | ").map(|p| p.trim().to_owned()).collect();
        <[String; 3]>::try_from(parts).unwrap_or_else(|p| panic!("{page}: a mark has three parts, not {p:?}"))
    });
    parts.collect()
}

/// Numbers of a text: "1.061", "97.6". A sign, a unit and a sentence's full stop are no part of them.
fn numbers(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || ".,_".contains(c)));
    words.map(|w| w.trim_matches(['.', ','])).filter(|w| w.starts_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn the_index_of_results_is_what_their_pages_say() {
    let mut index = "# Results\n\nWhat noctule reaches, and where it falls short. Each page states the question, the set-up, the command, the table, when and on which code\n\
                     it was measured, and what was lost. This page is made from marks in the others (`./x index`).\n\n\
                     | figure | what | page | command |\n|---|---|---|---|\n"
        .to_owned();
    let mut marked = 0;
    for name in pages() {
        let text = read(&format!("docs/results/{name}"));
        let title = text.lines().next().unwrap().trim_start_matches("# ").to_owned();
        let visible: String = text.lines().filter(|l| !l.starts_with("<!--")).collect::<Vec<_>>().join("\n");
        for [figure, what, command] in marks(&name, &text) {
            marked += 1;
            let known = numbers(&visible);
            for number in numbers(&figure) {
                assert!(known.contains(&number), "docs/results/{name}: {number} of a mark stands nowhere in the page");
            }
            // The page may name a flag's value by a letter, for several values.
            let begins: Vec<&str> =
                command.split(' ').take_while(|w| !w.starts_with('-') && w.contains(|c: char| c.is_lowercase())).collect();
            assert!(visible.contains(&begins.join(" ")), "docs/results/{name}: the page does not name the command `{command}`");
            writeln!(index, "| {figure} | {what} | [{title}]({name}) | `{command}` |").unwrap();
        }
    }
    assert!(marked >= 12, "{marked}");
    expect_generated("docs/results/README.md", &index);
}

#[test]
fn a_page_of_results_states_question_set_up_date_and_what_was_lost() {
    for name in pages() {
        let text = read(&format!("docs/results/{name}"));
        for head in ["\n**Question.** ", "\n**Set-up.** ", "\n**Lost.** "] {
            assert!(text.contains(head), "docs/results/{name} has no {head:?}");
        }
        assert!(text.contains("Measured 20"), "docs/results/{name} does not say when it was measured");
        for diary in ["before decision", "Before [decision", "before [decision", "Since [decision", "since [decision", "earlier version"] {
            assert!(!text.contains(diary), "docs/results/{name}: {diary:?} is for docs/notebook, results are of the present");
        }
    }
}

/// What follows a number that was measured or set.
const UNITS: [&str; 12] = ["%", "ms", "us", "s", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "GB/s", "MB/s", "MiB", "RTT"];

/// Figures of a text: numbers with a unit, and the first of "39 to 50 %".
fn figures(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "|(".contains(c)).filter(|w| !w.is_empty()).collect();
    let number = |w: &str| w.parse::<f64>().is_ok();
    let unit = |w: &str| UNITS.contains(&w.trim_end_matches(['.', ',', ';', ':', ')']));
    let mut found = Vec::new();
    for i in 0..words.len().saturating_sub(1) {
        let range = words[i + 1] == "to" && i + 3 < words.len() && number(words[i + 2]) && unit(words[i + 3]);
        if number(words[i]) && (unit(words[i + 1]) || range) {
            found.push(words[i].to_owned());
        }
    }
    found
}

#[test]
fn every_figure_of_the_readme_stands_in_a_results_page() {
    let all: String = pages().iter().map(|name| read(&format!("docs/results/{name}"))).collect();
    let known = numbers(&all);
    let readme = read("README.md");
    let found = figures(&readme);
    assert!(found.len() >= 4, "{found:?}");
    let unknown: Vec<&String> = found.iter().filter(|f| !known.contains(&f.as_str())).collect();
    assert!(unknown.is_empty(), "README.md has figures that no page of docs/results has: {unknown:?}");
    assert_eq!(figures("gets 39 to 50 % at 100 Mbit/s, in 3 steps"), ["39", "50", "100"]);
}
