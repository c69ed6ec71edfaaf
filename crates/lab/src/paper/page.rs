//! The page of a figure as Markdown, its runs as CSV, and the index of all pages.

use std::fmt::Write;

use super::chart::{course_axes, course_of};
use super::data::{CellRuns, Gathered, name_of, report};
use super::figure::{Chart, Contender, Extra, Figure, Statistic, Table};
use super::quantity::Quantity;
use super::values::Values;
use crate::matrix::csv_field;
use crate::report::{Report, count};
use crate::scenario::Workload;

/// A cell that is within this of another is as good.
const MARGIN: f64 = 0.01;
/// Lines about runs that do not count.
const MOST_COMPLAINTS: usize = 12;

/// What a page says besides its runs.
pub(super) struct Head<'a> {
    /// The command that makes it.
    pub(super) command: &'a str,
    /// The program.
    pub(super) build: &'a str,
    /// Names of the drawings, and what each shows.
    pub(super) drawings: &'a [(String, String)],
    /// Further files.
    pub(super) files: &'a [String],
    /// Whether these are all runs of the figure.
    pub(super) is_whole: bool,
}

/// A page, and how many cells are lost.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) lost: usize,
}

/// Writes the page of a figure; `values` stand beside its tables.
pub(super) fn page(figure: &Figure, gathered: &Gathered, values: &[Vec<Values>], head: &Head<'_>) -> Page {
    // Writing to a String cannot fail, here and below.
    let mut out = String::new();
    let runs: usize = gathered.cells.iter().map(|cell| cell.records.len()).sum();
    let _ = writeln!(out, "# {}\n\n{}.\n", figure.title, figure.source);
    let _ = writeln!(
        out,
        "**Question.** {}\n\n**Set-up.** {} In the simulator: virtual time, a host computes in no time.\n",
        figure.question, figure.setup
    );
    let _ = writeln!(
        out,
        "**Command.** `{}`: {} of {}, noctule-lab {}. All runs are kept: [{id}.csv]({id}.csv).",
        head.command,
        count(runs, "run"),
        count(gathered.cells.len(), "cell"),
        head.build,
        id = figure.id
    );
    let scenarios: Vec<String> = figure.runs.iter().map(|runs| format!("`{}`", runs.path)).collect();
    let _ = writeln!(out, "The runs are described in {}.\n", scenarios.join(", "));
    if !head.is_whole {
        let _ = writeln!(out, "These are not all runs of the figure: `--quick` or `--seeds` left some out.\n");
    }
    for (name, shows) in head.drawings {
        let _ = writeln!(out, "![{}]({name})\n", if shows.is_empty() { figure.title } else { shows });
    }
    if let Some(caption) = figure.chart.caption() {
        let _ = writeln!(out, "{caption}\n");
    }
    let mut lost = Vec::new();
    for (table, values) in figure.tables.iter().zip(values) {
        let _ = writeln!(out, "## {}\n", heading(table));
        pivot(&mut out, gathered, table, &|cell| text_of(cell, table));
        for beside in values {
            let notes = beside.notes().trim_end_matches('.');
            let notes = if notes.is_empty() { String::new() } else { format!(" ({notes})") };
            let _ = writeln!(out, "Ours / {}{notes}:\n", beside.name);
            pivot(&mut out, gathered, table, &|cell| both(cell, table, beside.at(cell)));
            if beside.is_rival {
                // A stand-in that is behind what it stands for is no loss of ours.
                let is_ours = |cell: &&CellRuns| figure.contender.is_none_or(|c| cell.setting(c.key) == Some(c.ours));
                let ours = gathered.cells.iter().filter(is_ours);
                lost.extend(ours.filter_map(|cell| is_below(cell, table, beside.name, beside.at(cell)?)));
            }
        }
    }
    lost.extend(beaten(figure, gathered));
    let _ = writeln!(out, "## Lost\n");
    let complaints = complaints(gathered);
    for line in lost.iter().chain(complaints.iter().take(MOST_COMPLAINTS)) {
        let _ = writeln!(out, "- {line}");
    }
    if complaints.len() > MOST_COMPLAINTS {
        let _ = writeln!(out, "- and {}.", count(complaints.len() - MOST_COMPLAINTS, "further run"));
    }
    if lost.is_empty() && complaints.is_empty() {
        let _ = writeln!(out, "No cell is behind what stands beside it, and every run counts.");
    }
    for extra in figure.extras {
        match extra {
            Extra::Links => links(&mut out, gathered),
            Extra::Batches => batches(&mut out, gathered),
        }
    }
    if !head.files.is_empty() {
        let links: Vec<String> = head.files.iter().map(|name| format!("[{name}]({name})")).collect();
        let _ = writeln!(out, "\nFurther files: {}.", links.join(", "));
    }
    Page { text: out, lost: lost.len() + complaints.len() }
}

fn heading(table: &Table) -> String {
    let mut label = table.quantity.label();
    if let Some(first) = label.get(..1).map(str::to_uppercase) {
        label.replace_range(..1, &first);
    }
    match table.statistic {
        Statistic::Mean => format!("{label}: mean (least to most)"),
        Statistic::Deviation => format!("{label}: standard deviation of the runs"),
    }
}

/// Rows by the axes that vary, columns by that of the table. Rows without any text are left out.
fn pivot(out: &mut String, gathered: &Gathered, table: &Table, text: &dyn Fn(&CellRuns) -> Option<String>) {
    let mut keys = gathered.varied(&[table.columns]);
    let columns = gathered.values(table.columns);
    if keys.is_empty() && columns == [""] {
        keys = gathered.axes.first().map_or(Vec::new(), |axis| vec![&*axis.key]);
    }
    let mut rows: Vec<String> = Vec::new();
    for cell in &gathered.cells {
        let name = name_of(cell, &keys);
        if !rows.contains(&name) {
            rows.push(name);
        }
    }
    let corner = keys.join(", ");
    let corner = if columns == [""] { corner } else { format!("{corner} ↓ {} →", table.columns).trim_start().to_owned() };
    let heads: Vec<&str> = columns.iter().map(|column| if column.is_empty() { table.quantity.name } else { *column }).collect();
    let _ = writeln!(out, "| {corner} | {} |\n|---|{}", heads.join(" | "), "---:|".repeat(heads.len()));
    for row in rows {
        let at = |column: &&str| {
            let is_here = |cell: &&CellRuns| name_of(cell, &keys) == row && cell.setting(table.columns).unwrap_or("") == *column;
            gathered.cells.iter().find(is_here).and_then(text)
        };
        let texts: Vec<Option<String>> = columns.iter().map(at).collect();
        if texts.iter().any(Option::is_some) {
            let texts: Vec<String> = texts.into_iter().map(|text| text.unwrap_or_else(|| "-".to_owned())).collect();
            let _ = writeln!(out, "| {} | {} |", if row.is_empty() { "noctule" } else { &row }, texts.join(" | "));
        }
    }
    out.push('\n');
}

fn number(value: f64, quantity: &Quantity) -> String {
    format!("{value:.*}", quantity.digits)
}

fn text_of(cell: &CellRuns, table: &Table) -> Option<String> {
    let Some(spread) = cell.spread(table.quantity) else {
        let has_failed = cell.records.iter().all(|record| report(record).is_none());
        return Some(if has_failed { "failed" } else { "none" }.to_owned());
    };
    let text = |value: f64| number(value, table.quantity);
    let missing = missing(cell, spread.runs).map_or(String::new(), |runs| format!(", {runs}"));
    Some(match table.statistic {
        Statistic::Deviation => text(spread.deviation) + &missing,
        Statistic::Mean if text(spread.least) == text(spread.most) => text(spread.mean) + &missing,
        Statistic::Mean => format!("{} ({} to {}{missing})", text(spread.mean), text(spread.least), text(spread.most)),
    })
}

/// How many runs have a value, if not all have.
fn missing(cell: &CellRuns, runs: usize) -> Option<String> {
    let all = cell.records.len();
    (runs < all).then(|| format!("{runs} of {all} runs"))
}

fn both(cell: &CellRuns, table: &Table, theirs: Option<f64>) -> Option<String> {
    let theirs = theirs?;
    let text = |value: f64| number(value, table.quantity);
    let Some(spread) = cell.spread(table.quantity) else {
        return text_of(cell, table).map(|ours| format!("{ours} / {}", text(theirs)));
    };
    let ours = spread.value(table.statistic);
    let missing = missing(cell, spread.runs).map_or(String::new(), |runs| format!(", {runs}"));
    let factor = if theirs.abs() > 1e-9 { format!(" = {:.2}", ours / theirs) } else { String::new() };
    Some(format!("{} / {}{factor}{missing}", text(ours), text(theirs)))
}

/// Whether `a` is worse than `b` by more than the margin.
fn is_worse(a: f64, b: f64, quantity: &Quantity) -> bool {
    if quantity.is_cost { a > b * (1.0 + MARGIN) } else { a < b * (1.0 - MARGIN) }
}

fn words(cell: &CellRuns, without: &[&str]) -> String {
    cell.others(without).iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// The value of a cell, and how many of its runs have one, in a sentence: `14.68`, `14.68 (3 of 5 runs)`, `failed`, `none`.
fn said(cell: &CellRuns, table: &Table) -> Option<String> {
    let Some(spread) = cell.spread(table.quantity) else { return text_of(cell, table) };
    let missing = missing(cell, spread.runs).map_or(String::new(), |runs| format!(" ({runs})"));
    Some(number(spread.value(table.statistic), table.quantity) + &missing)
}

/// A line of a cell of ours that has no value, is worse, or has fewer runs with a value than it has runs.
fn is_below(cell: &CellRuns, table: &Table, name: &str, theirs: f64) -> Option<String> {
    let is_behind = cell
        .spread(table.quantity)
        .is_none_or(|ours| ours.runs < cell.records.len() || is_worse(ours.value(table.statistic), theirs, table.quantity));
    let (ours, theirs) = (said(cell, table)?, number(theirs, table.quantity));
    is_behind.then(|| format!("{}: {} {ours}, {name} {theirs}", words(cell, &[]), table.quantity.label()))
}

/// Whether a cell has no value where another has one, is worse, or a smaller part of its runs has a value.
fn is_behind(ours: &CellRuns, theirs: &CellRuns, table: &Table) -> bool {
    let Some(other) = theirs.spread(table.quantity) else { return false };
    ours.spread(table.quantity).is_none_or(|own| {
        own.runs * theirs.records.len() < other.runs * ours.records.len()
            || is_worse(own.value(table.statistic), other.value(table.statistic), table.quantity)
    })
}

/// Cells in which another contender is better than noctule as it is by default, table by table.
fn beaten(figure: &Figure, gathered: &Gathered) -> Vec<String> {
    let Some(contender) = figure.contender else { return Vec::new() };
    // How much the runs of a cell differ is neither better nor worse: what is always slow differs little.
    let tables = figure.tables.iter().filter(|table| table.statistic == Statistic::Mean);
    let ours = || gathered.cells.iter().filter(|cell| cell.setting(contender.key) == Some(contender.ours));
    tables.flat_map(|table| ours().filter_map(move |cell| beaten_in(cell, contender, table, gathered))).collect()
}

/// A line of a cell of ours in which others are better.
fn beaten_in(ours: &CellRuns, contender: Contender, table: &Table, gathered: &Gathered) -> Option<String> {
    let conditions = ours.others(&[contender.key]);
    let others = gathered.cells.iter().filter(|cell| cell.others(&[contender.key]) == conditions && cell.settings != ours.settings);
    let better: Vec<String> = others
        .filter(|cell| is_behind(ours, cell, table))
        .filter_map(|cell| Some(format!("{} {}", cell.setting(contender.key)?, said(cell, table)?)))
        .collect();
    if better.is_empty() {
        return None;
    }
    let place = words(ours, &[contender.key]);
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let own = said(ours, table).unwrap_or_default();
    Some(format!("{place}{} of {} {own}, {}", table.quantity.label(), contender.ours, better.join(", ")))
}

/// Runs that do not count, or that miss what their scenario file expects.
fn complaints(gathered: &Gathered) -> Vec<String> {
    let of = |record: &crate::sweep::Record| {
        let complaints = record.complaints();
        (!complaints.is_empty()).then(|| format!("{}: `{}`", record.cell.case.name, complaints.join("; ")))
    };
    gathered.cells.iter().flat_map(|cell| cell.records.iter().filter_map(of)).collect()
}

/// Seconds that count in a run.
fn counted(report: &Report, cell: &CellRuns) -> f64 {
    let is_transfer = cell.scenario().is_some_and(|scenario| matches!(scenario.workload, Workload::Transfer { .. }));
    match report.transfer_s {
        Some(seconds) if is_transfer => seconds,
        _ => report.scenario.seconds - report.scenario.warmup,
    }
}

fn links(out: &mut String, gathered: &Gathered) {
    let keys = gathered.varied(&[]);
    let _ = writeln!(
        out,
        "\n## Each link, in the direction of the data (first run of each cell)\n\n| {} | link | offered Mbit/s | full queue dropped | lost | delivered Mbit/s |\n|---|---|---:|---:|---:|---:|",
        keys.join(", ")
    );
    for (cell, report) in first_runs(gathered) {
        for (link, number) in report.links.iter().map(|both| &both[0]).zip(1..) {
            let offered = link.offered_bytes as f64 * 8e-6 / counted(report, cell);
            let share = |packets: u64| packets as f64 / link.offered_packets.max(1) as f64;
            let _ = writeln!(
                out,
                "| {} | {number} | {offered:.2} | {:.1} % | {:.1} % | {:.2} |",
                name_of(cell, &keys),
                share(link.queue_drops) * 100.0,
                link.loss_share * 100.0,
                offered * share(link.delivered_packets)
            );
        }
    }
}

fn batches(out: &mut String, gathered: &Gathered) {
    let keys = gathered.varied(&[]);
    let _ = writeln!(
        out,
        "\n## Batches at each relay (first run of each cell)\n\nA batch counts when the relay is done with it.\n\n| {} | node | flow | batches | mean rank in | mean rank out | combined here, mean | full rank in |\n|---|---|---|---:|---:|---:|---:|---:|",
        keys.join(", ")
    );
    for (cell, report) in first_runs(gathered) {
        for relay in report.relays.iter().filter(|relay| !relay.batches_by_rank_in.is_empty()) {
            let batches: u64 = relay.batches_by_rank_in.iter().sum();
            let mean = |histogram: &[u64]| {
                let sum: u64 = histogram.iter().zip(0..).map(|(count, k)| count * k).sum();
                sum as f64 / histogram.iter().sum::<u64>().max(1) as f64
            };
            let full = relay.batches_by_rank_in.last().copied().unwrap_or(0) as f64 / batches.max(1) as f64;
            let _ = writeln!(
                out,
                "| {} | {} | {} to {} | {batches} | {:.2} | {:.2} | {:.2} | {:.1} % |",
                name_of(cell, &keys),
                relay.node,
                relay.from,
                relay.to,
                mean(&relay.batches_by_rank_in),
                mean(&relay.batches_by_rank_out),
                mean(&relay.batches_by_recoded),
                full * 100.0
            );
        }
    }
}

fn first_runs(gathered: &Gathered) -> impl Iterator<Item = (&CellRuns, &Report)> {
    gathered.cells.iter().filter_map(|cell| Some((cell, cell.records.iter().find_map(report)?)))
}

/// One line per run: its cell, its seed, every quantity, and why it does not count.
pub(super) fn csv(figure: &Figure, gathered: &Gathered) -> String {
    let keys: Vec<&str> = gathered.axes.iter().map(|axis| &*axis.key).collect();
    let mut quantities: Vec<&Quantity> = Vec::new();
    for table in figure.tables {
        if !quantities.iter().any(|quantity| quantity.name == table.quantity.name) {
            quantities.push(table.quantity);
        }
    }
    let heads = keys.iter().copied().map(csv_field).chain(["seed".to_owned()]).chain(quantities.iter().map(|q| csv_field(&q.label())));
    let mut out = heads.chain(["complaints".to_owned()]).collect::<Vec<_>>().join(",") + "\n";
    for cell in &gathered.cells {
        for record in &cell.records {
            let settings = keys.iter().map(|key| csv_field(cell.setting(key).unwrap_or_default()));
            let value = |quantity: &&Quantity| report(record).and_then(quantity.of).map_or(String::new(), |value| format!("{value:.6}"));
            let seed = record.cell.case.scenario.seed.to_string();
            let line = settings.chain([seed]).chain(quantities.iter().map(value)).chain([csv_field(&record.complaints().join("; "))]);
            out += &(line.collect::<Vec<_>>().join(",") + "\n");
        }
    }
    out
}

/// Further tables of a figure as CSV: name and text of each.
pub(super) fn further(figure: &Figure, gathered: &Gathered) -> Vec<(String, String)> {
    let keys = gathered.varied(&[]);
    let head = |last: &str| keys.iter().copied().map(csv_field).chain([last.to_owned()]).collect::<Vec<_>>().join(",") + "\n";
    let start = |cell: &CellRuns| keys.iter().map(|key| csv_field(cell.setting(key).unwrap_or_default()) + ",").collect::<String>();
    let mut files = Vec::new();
    if let Chart::Course { course, .. } = figure.chart {
        let (x, y) = course_axes(course);
        let mut text = head(&format!("{},{}", csv_field(x), csv_field(y)));
        for (cell, report) in first_runs(gathered) {
            for (x, y) in course_of(report, course) {
                let _ = writeln!(text, "{}{x},{y}", start(cell));
            }
        }
        files.push((format!("{}-course.csv", figure.id), text));
    }
    if figure.extras.contains(&Extra::Batches) {
        let mut text = head("node,from,to,histogram,packets,batches");
        for (cell, report) in first_runs(gathered) {
            for relay in &report.relays {
                let histograms = [
                    ("rank in", &relay.batches_by_rank_in),
                    ("rank out", &relay.batches_by_rank_out),
                    ("combined", &relay.batches_by_recoded),
                ];
                for (name, histogram) in histograms {
                    for (count, packets) in histogram.iter().zip(0..).filter(|(count, _)| **count > 0) {
                        let _ = writeln!(text, "{}{},{},{},{name},{packets},{count}", start(cell), relay.node, relay.from, relay.to);
                    }
                }
            }
        }
        files.push((format!("{}-batches.csv", figure.id), text));
    }
    files
}

/// Lines below `## Lost` of a page.
pub(super) fn lost_in(page: &str) -> usize {
    let section = page.split_once("\n## Lost\n").map_or("", |(_, rest)| rest);
    section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("- ")).count()
}

/// How a figure stands in the index.
pub(super) struct Entry {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) source: &'static str,
    /// What came of it, or why it is not made.
    pub(super) state: String,
    pub(super) has_page: bool,
}

/// The page that leads to all others.
pub(super) fn index(entries: &[Entry]) -> String {
    let mut out = String::from("# Figures of the founding documents, beside ours\n\n| figure | what | source | |\n|---|---|---|---|\n");
    for entry in entries {
        let name = if entry.has_page { format!("[{id}]({id}.md)", id = entry.id) } else { entry.id.to_owned() };
        let _ = writeln!(out, "| {name} | {} | {} | {} |", entry.title, entry.source, entry.state);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Beside, Kind};
    use super::*;
    use crate::scenario::ScenarioFile;
    use crate::sweep::{Build, Cell, Measured, Record};

    const THEIRS: Beside = Beside { name: "theirs", kind: Kind::Published("case,s\nnoctule,4\n"), is_rival: true };
    const SECONDS: Quantity = Quantity { name: "time", unit: "s", digits: 1, is_cost: true, of: |report| report.transfer_s };
    const JAIN: Quantity = Quantity { name: "evenness", unit: "", digits: 2, is_cost: false, of: |report| report.jain };
    const FIGURE: Figure = Figure {
        id: "test",
        title: "A test",
        source: "Nowhere",
        question: "?",
        setup: "None.",
        runs: &[],
        tables: &[Table { quantity: &SECONDS, statistic: Statistic::Mean, columns: "", besides: &[THEIRS] }],
        contender: Some(Contender { key: "case", ours: "noctule" }),
        extras: &[],
        chart: Chart::Matrix,
    };

    /// Runs of noctule and of a rival, each with what `change` makes of a report for one of these values.
    fn runs<T: Copy>(ours: &[T], rival: &[T], change: impl Fn(Report, T) -> Report) -> Gathered {
        let text = "name = \"small\"\n[link]\nrate = \"5mbit\"\n[run]\nseconds = \"200ms\"\nwarmup = \"0s\"\n[[case]]\nname = \"noctule\"\n[[case]]\nname = \"rival\"\n";
        let cases = toml::from_str::<ScenarioFile>(text).unwrap().cases(true).unwrap();
        let report = Report { failures: Vec::new(), ..crate::sim::run(&cases[0].scenario).unwrap() };
        let mut records = Vec::new();
        for (case, values) in cases.into_iter().zip([ours, rival]) {
            for value in values {
                let report = Some(Box::new(change(report.clone(), *value)));
                let measured = Measured::Run { outcome: crate::matrix::fixture(1, 1.0), second_mbit: None, report };
                let cell = Cell::from(case.clone());
                records.push(Record { id: Build::named("test").id(&cell), build: "test".to_owned(), place: 0, cell, measured });
            }
        }
        Gathered::of(records)
    }

    fn written(figure: &Figure, gathered: &Gathered) -> String {
        let head = Head { command: "", build: "", drawings: &[], files: &[], is_whole: true };
        let page = page(figure, gathered, &Values::beside_tables(figure).unwrap(), &head);
        assert_eq!(lost_in(&page.text), page.lost, "{}", page.text);
        page.text
    }

    /// What stands below `## Lost` if the runs of each contender took so long; none: no value.
    fn lost(ours: &[Option<f64>], rival: &[Option<f64>]) -> String {
        let text = written(&FIGURE, &runs(ours, rival, |report, value| Report { transfer_s: value, ..report }));
        text.split_once("## Lost\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn a_cell_without_a_value_of_ours_is_lost_and_one_with_some_says_of_how_many_runs() {
        let both =
            |ours: &str, rival: &str| format!("- case noctule: time (s) {ours}, theirs 4.0\n- time (s) of noctule {ours}, rival {rival}\n");
        assert_eq!(lost(&[None, None], &[Some(3.0), None]), both("none", "3.0 (1 of 2 runs)"));
        assert_eq!(lost(&[Some(2.0), None], &[Some(3.0), Some(3.0)]), both("2.0 (1 of 2 runs)", "3.0"));
        assert_eq!(lost(&[Some(2.0), Some(2.0)], &[Some(3.0), None]), "No cell is behind what stands beside it, and every run counts.\n");
        assert_eq!(lost(&[Some(5.0), Some(5.0)], &[Some(3.0), Some(3.0)]), both("5.0", "3.0"));
    }

    #[test]
    fn a_contender_that_is_better_in_any_table_is_named_but_not_for_differing_less() {
        let figure = Figure {
            tables: &[
                Table { quantity: &SECONDS, statistic: Statistic::Mean, columns: "", besides: &[] },
                Table { quantity: &SECONDS, statistic: Statistic::Deviation, columns: "", besides: &[] },
                Table { quantity: &JAIN, statistic: Statistic::Mean, columns: "", besides: &[] },
            ],
            ..FIGURE
        };
        let change = |report: Report, (seconds, jain)| Report { transfer_s: Some(seconds), jain: Some(jain), ..report };
        // Faster, and less even from run to run and from flow to flow.
        let text = written(&figure, &runs(&[(1.0, 0.5), (2.0, 0.5)], &[(3.0, 1.0), (3.0, 1.0)], change));
        assert!(text.ends_with("## Lost\n\n- evenness of noctule 0.50, rival 1.00\n"), "{text}");
    }

    #[test]
    fn a_page_says_which_runs_its_drawing_has_and_counts_them() {
        let courses = Figure { chart: Chart::Course { course: super::super::figure::Course::Goodput, plane: None }, ..FIGURE };
        let gathered = runs(&[Some(2.0)], &[Some(3.0)], |report, value| Report { transfer_s: value, ..report });
        let (map, course) = (written(&FIGURE, &gathered), written(&courses, &gathered));
        assert!(map.contains("\nEach cell of the drawing has the median of its runs, "), "{map}");
        assert!(course.contains("\nThe drawing has the first run of each cell that counts, "), "{course}");
        assert!(map.contains(": 2 runs of 2 cells, "), "{map}");
    }
}
