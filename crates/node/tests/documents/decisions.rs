//! Every decision has a number of its own, a status, a date, and a line in the index.

use super::{expect_generated, read, root};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// Characters that a page holds. A decision that needs more has a diary in it, which belongs to docs/notebook.
const PAGE: usize = 3600;

struct Decision {
    file: String,
    title: String,
    status: String,
    date: String,
}

/// Decisions by number. The head of a file is `# NNNN Title`, an empty line, `Status: ...`, `Date: YYYY-MM-DD`.
fn decisions() -> BTreeMap<u32, Decision> {
    let mut found = BTreeMap::new();
    let mut files: Vec<String> = fs::read_dir(root().join("docs/decisions"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|f| f != "README.md")
        .collect();
    files.sort();
    for file in files {
        let text = read(&format!("docs/decisions/{file}"));
        let lines: Vec<&str> = text.lines().take(4).collect();
        let head = || -> Option<(u32, &str, &str, &str)> {
            let (number, title) = lines[0].strip_prefix("# ")?.split_once(' ')?;
            let (status, date) = (lines[2].strip_prefix("Status: ")?, lines[3].strip_prefix("Date: ")?);
            (number.len() == 4 && file.starts_with(&format!("{number}-")) && lines[1].is_empty()).then_some(())?;
            Some((number.parse().ok()?, title, status, date))
        };
        let Some((number, title, status, date)) = (lines.len() == 4).then(head).flatten() else {
            panic!("docs/decisions/{file} does not begin with `# NNNN Title`, an empty line, `Status: ...` and `Date: YYYY-MM-DD`");
        };
        assert!(!title.contains('|'), "{file}: a title with `|` breaks the table of the index");
        let decision = Decision { title: title.to_owned(), status: status.to_owned(), date: date.to_owned(), file };
        if let Some(other) = found.insert(number, decision) {
            panic!("two decisions have number {number}: {} and {}", other.file, found[&number].file);
        }
    }
    found
}

/// Numbers of the decisions that a status links to: `[0092](0092-title.md), [0112](0112-title.md)`.
fn linked(list: &str, all: &BTreeMap<u32, Decision>) -> Result<Vec<u32>, String> {
    let one = |link: &str| -> Option<u32> {
        let (number, file) = link.strip_prefix('[')?.strip_suffix(')')?.split_once("](")?;
        let number = number.parse().ok()?;
        (all.get(&number)?.file == file).then_some(number)
    };
    list.split(", ").map(|link| one(link).ok_or_else(|| format!("{link:?} is no link to a decision that exists"))).collect()
}

/// What is wrong with a status, if anything.
fn fault(number: u32, status: &str, all: &BTreeMap<u32, Decision>) -> Option<String> {
    let list = status.strip_prefix("replaced by ").or_else(|| status.strip_prefix("accepted, amended by "));
    match (status, list) {
        ("proposed" | "accepted" | "rejected", _) => None,
        (_, Some(list)) => match linked(list, all) {
            Ok(numbers) => numbers.iter().find(|n| **n <= number).map(|n| format!("{n} is not later than {number}")),
            Err(e) => Some(e),
        },
        _ => Some(format!("{status:?} is none of: proposed; accepted; rejected; replaced by LINK; accepted, amended by LINK, LINK")),
    }
}

fn is_date(text: &str) -> bool {
    let digits = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_digit());
    matches!(text.split('-').collect::<Vec<_>>()[..], [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2))
}

#[test]
fn every_decision_has_a_number_a_status_and_a_date_and_stands_in_the_index() {
    let all = decisions();
    let mut index = "# Decisions\n\nWhat was chosen, why, and what else was looked at. Numbers are for citing, and are not used twice; some were never given.\n\
                     A new decision begins as the others do, with `Status:` and `Date:` below its title; `./x index` writes this page.\n\
                     *Amended* means that the choice stands, except where a later decision says otherwise.\n\n\
                     | number | decision | status | date |\n|---|---|---|---|\n"
        .to_owned();
    for (number, d) in &all {
        assert!(fault(*number, &d.status, &all).is_none(), "{}: {}", d.file, fault(*number, &d.status, &all).unwrap());
        assert!(is_date(&d.date), "{}: {:?} is no date", d.file, d.date);
        writeln!(index, "| {number:04} | [{}]({}) | {} | {} |", d.title, d.file, d.status, d.date).unwrap();
    }
    expect_generated("docs/decisions/README.md", &index);
}

#[test]
fn a_decision_is_one_page() {
    // Those of congestion control hold how each law was found; they are to become one page of laws.
    for (_, d) in decisions().iter().filter(|(n, _)| !(101..=126).contains(*n)) {
        let length = read(&format!("docs/decisions/{}", d.file)).chars().count();
        assert!(length <= PAGE, "{} has {length} characters, {PAGE} are a page: move measurements to docs/notebook", d.file);
    }
}

#[test]
fn a_status_that_leads_nowhere_is_refused() {
    let all = decisions();
    assert_eq!(fault(67, "replaced by [0092](0092-a-flow-over-several-routes-is-parted-at-its-ends.md)", &all), None);
    for bad in [
        "done",
        "replaced by 0092",
        "replaced by [0092](0092-gone.md)",
        "replaced by [9999](9999-no.md)",
        "accepted, amended by [0001](0001-first-flight-probes-the-path-mtu.md)",
    ] {
        assert!(fault(67, bad, &all).is_some(), "{bad}");
    }
}
