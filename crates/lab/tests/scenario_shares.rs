//! The quick cells of every scenario file, against the shares that were kept: a change that costs a point is seen.
//!
//! `NOCTULE_UPDATE=1` keeps the shares of this run. All cells and seeds: `noctule-lab run --full scenarios/*.toml --against FILE`.

use std::path::Path;

use noctule_lab::report::{Row, differences, shares_table};
use noctule_lab::scenario::{Case, ScenarioFile};
use noctule_lab::sim;

/// Packets. Cases that take as long as 6 Gbit of simulated traffic are left to the command. So all this stays below a minute on two cores without
/// optimisation.
const MOST_EFFORT: f64 = 500_000.0;

#[test]
fn shares_of_the_quick_cells_stay_within_a_point_of_those_that_were_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<_> = std::fs::read_dir(root.join("scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    let mut cases: Vec<Case> = files.iter().flat_map(|path| ScenarioFile::read(path).unwrap().cases(false).unwrap()).collect();
    cases.retain(|case| case.scenario.effort() < MOST_EFFORT);
    let results = sim::run_cases(&cases, sim::all_cores(), |_, _| ());
    let share = |(case, result): (&Case, Result<_, _>)| -> Row {
        let report: noctule_lab::report::Report = Result::unwrap_or_else(result, |e: sim::SimError| panic!("{}: {e}", case.name));
        // What a file expects of its cells holds here too.
        assert_eq!(sim::violations(case, &report), Vec::<String>::new(), "{}", case.name);
        (case.name.clone(), report.share)
    };
    let rows: Vec<Row> = cases.iter().zip(results).map(share).collect();
    let path = root.join("crates/lab/tests/snapshots/scenario_shares.txt");
    if std::env::var_os("NOCTULE_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, shares_table(&rows)).unwrap();
    }
    let differences = differences(&std::fs::read_to_string(&path).unwrap(), &rows);
    assert!(differences.is_empty(), "look at these, then NOCTULE_UPDATE=1:\n{}", differences.join("\n"));
}
