//! The contents of the book (docs/SUMMARY.md) name every page below docs.

use super::pages::files;
use super::{expect_generated, read};
use std::fmt::Write;

/// Parts of the book, their directory, and the pages that come first in each; the others follow by name.
const PARTS: [(&str, &str, &[&str]); 5] = [
    (
        "Guides",
        "guide/",
        &[
            "getting-started",
            "coming-from",
            "when-not",
            "sending-files",
            "identities",
            "measuring",
            "node",
            "doctor",
            "troubleshooting",
            "traces",
        ],
    ),
    ("Results", "results/", &["README", "foundation", "one-hop", "relays", "multi-path", "congestion"]),
    ("Specification", "spec/", &["rules", "wire", "flow", "session", "codes"]),
    ("Decisions", "decisions/", &["README"]),
    ("Notebook", "notebook/", &["README"]),
];

/// The first heading; the tables that a benchmark writes have none.
fn title(page: &str) -> String {
    let text = read(&format!("docs/{page}"));
    let stem = page.rsplit('/').next().unwrap().trim_end_matches(".md");
    text.lines().next().and_then(|l| l.strip_prefix("# ")).unwrap_or(stem).replace(['[', ']'], "")
}

#[test]
fn the_contents_of_the_book_name_every_page() {
    let all = files();
    let pages: Vec<&str> =
        all.iter().filter_map(|f| f.strip_prefix("docs/")).filter(|f| f.ends_with(".md") && *f != "SUMMARY.md").collect();
    let mut summary = "# Summary\n\n[Documents](README.md)\n\n".to_owned();
    let mut named = 1;
    for (part, directory, first) in PARTS {
        let rank = |page: &&str| {
            let name = &page[directory.len()..page.len() - ".md".len()];
            (first.iter().position(|f| *f == name).unwrap_or(first.len()), name.to_owned())
        };
        let mut inside: Vec<&str> = pages.iter().copied().filter(|p| p.starts_with(directory)).collect();
        inside.sort_by_key(rank);
        writeln!(summary, "# {part}\n").unwrap();
        for page in inside {
            named += 1;
            // Below an index, or below the page that has a directory of its own, pages are folded.
            let indent = match page[directory.len()..].contains('/') || (first == ["README"] && !page.ends_with("README.md")) {
                true => "  ",
                false => "",
            };
            writeln!(summary, "{indent}- [{}]({page})", title(page)).unwrap();
        }
        summary.push('\n');
    }
    let rest = ["policy.md", "glossary.md"];
    summary.push_str("# Reference\n\n");
    for page in rest {
        named += 1;
        writeln!(summary, "- [{}]({page})", title(page)).unwrap();
    }
    assert_eq!(named, pages.len(), "a page below docs/ stands in none of the parts of summary.rs");
    expect_generated("docs/SUMMARY.md", &summary);
}
