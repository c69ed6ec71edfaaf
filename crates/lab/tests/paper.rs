//! `noctule-lab paper` as a user runs it: the cheapest figures, quick.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn paper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_noctule-lab")).arg("paper").args(args).output().expect("the laboratory starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rows below the first table head of a page that begins so.
fn rows<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let after = page.split_once(head).unwrap_or_else(|| panic!("no table begins with {head}:\n{page}")).1;
    after.lines().skip(2).take_while(|line| line.starts_with('|')).collect()
}

#[test]
fn quick_figures_have_all_cells_the_command_and_what_was_published_and_are_not_run_twice() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("figures");
    let out_text = out.to_string_lossy().into_owned();
    let names = ["000-accumulated", "001-first-rtt", "002-throughput", "002-deviation", "004-blocks"];
    let args = [&names[..], &["--quick", "--out", &out_text]].concat();
    let first = paper(&args);
    assert!(first.status.success() && text(&first.stderr).contains("done, about"), "{}", text(&first.stderr));
    for name in names {
        let page = read(&out.join(format!("{name}.md")));
        assert!(page.contains(&format!("`noctule-lab paper {name} --out {out_text} --quick`")), "{page}");
        assert!(page.contains("**Question.**") && page.contains("## Lost") && page.contains("These are not all runs"), "{page}");
        assert!(read(&out.join(format!("{name}.svg"))).contains("</svg>"));
        assert!(read(&out.join("index.md")).contains(&format!("[{name}]({name}.md)")));
    }
    // Every cell has a value: eight controls and the fixed rate.
    let throughput = read(&out.join("002-throughput.md"));
    let cells = rows(&throughput, "| case ↓ loss-model → |");
    assert_eq!(cells.len(), 9, "{throughput}");
    assert!(cells.iter().all(|row| !row.contains("| - ") && !row.contains("failed")), "{cells:?}");
    assert_eq!(read(&out.join("002-throughput.csv")).lines().count(), 10);
    // The published value stands beside ours, and the equation too.
    let blocks = read(&out.join("004-blocks.md"));
    assert!(blocks.contains(" / 4.0 = ") && blocks.contains("none / 100.0 |"), "{blocks}");
    assert!(read(&out.join("000-accumulated.md")).contains(" / 0.1900 = "));
    // A kept cell is read, and the page is the same.
    let again = paper(&args);
    let said = text(&again.stderr);
    assert!(again.status.success() && !said.contains("done, about"), "{said}");
    assert_eq!(read(&out.join("004-blocks.md")), blocks);
}

#[test]
fn a_file_with_fewer_seeds_than_asked_is_named_and_its_page_is_whole_without_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("figures");
    let said = paper(&["001-first-rtt", "000-accumulated", "--quick", "--seeds", "4", "--out", &out.to_string_lossy()]);
    let errors = text(&said.stderr);
    assert!(said.status.success(), "{errors}");
    assert!(errors.contains("scenarios/paper/000-accumulated.toml has only 3 seeds: all of them are run"), "{errors}");
    assert!(!errors.contains("001-first-rtt.toml has"), "{errors}");
    assert!(read(&out.join("000-accumulated.md")).contains(": 6 runs of 2 cells, "));
}

#[test]
fn the_list_names_every_figure_its_source_and_what_is_not_made() {
    let list = paper(&["--list"]);
    let said = text(&list.stdout);
    assert!(list.status.success(), "{}", text(&list.stderr));
    for name in ["000-six-hops", "001-matrix", "002-mathis", "003-matrix", "004-video", "scenarios/bulk-grid.toml", "108 runs", "about"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    for (name, why) in [("004-coding-time", "no CPU time"), ("002-scps", "no free implementation")] {
        let entry = said.split("\n\n").find(|entry| entry.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(entry.contains(why), "{entry}");
    }
}

#[test]
fn what_cannot_be_made_is_said_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("figures").to_string_lossy().into_owned();
    for (args, names) in [
        (&["002-speed", "--out", &out][..], "no figure is named 002-speed; there are 000-accumulated"),
        (&["004-coding-time", "--out", &out], "not made in the simulator: the simulator has no CPU time"),
        (&["002-throughput"], "--out"),
        (&["002-throughput", "--out", &out, "--seeds", "0"], "--seeds"),
        (&["002-throughput", "--out", &out, "--seeds", "31"], "--seeds 31: no file of these figures has more than 30 seeds"),
        (&["002-throughput", "--list", "--seeds", "31"], "more than 30 seeds"),
        (&["002-throughput", "--list", "--out", &out], "'--list' cannot be used with"),
        (&["002-throughput", "--out", "/proc/nowhere"], "cannot be written"),
    ] {
        let refused = paper(args);
        assert!(!refused.status.success() && text(&refused.stderr).contains(names), "{args:?}: {}", text(&refused.stderr));
    }
    assert!(!dir.path().join("figures").exists());
}
