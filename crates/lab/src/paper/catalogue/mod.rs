//! Every figure and table of the founding documents, in the order of their names.

mod bats;
mod matrices;
mod space;
mod sphinx;

use super::figure::{Elsewhere, Figure, Runs};

/// A scenario file of the repository that holds all cells.
macro_rules! runs {
    ($path:literal) => {
        super::Runs { path: concat!("scenarios/", $path), text: include_str!(concat!("../../../../../scenarios/", $path)), only: &[] }
    };
    ($path:literal, $only:expr) => {
        super::Runs { path: concat!("scenarios/", $path), text: include_str!(concat!("../../../../../scenarios/", $path)), only: $only }
    };
}

/// A published table.
macro_rules! published {
    ($name:literal, $path:literal) => {
        crate::paper::figure::Beside {
            name: $name,
            kind: crate::paper::figure::Kind::Published(include_str!(concat!("../../../../../scenarios/paper/published/", $path))),
            is_rival: true,
        }
    };
}

use {published, runs};

/// What the simulator makes.
pub static FIGURES: &[&Figure] = &[
    &bats::ACCUMULATED,
    &bats::LATENCY,
    &bats::OVERLOAD,
    &bats::SIX_HOPS,
    &bats::THREE_HOPS,
    &bats::FIRST_RTT,
    &bats::TABLE,
    &bats::RTT_DISTRIBUTION,
    &bats::RTT_OVER_TIME,
    &bats::THROUGHPUT,
    &bats::UDP,
    &space::ACKNOWLEDGEMENTS,
    &space::DEVIATION,
    &space::MATHIS,
    &space::OVERRUN,
    &space::RATE,
    &space::SLOW_START,
    &space::THREE_FLOWS,
    &space::THROUGHPUT,
    &space::TRANSACTIONS,
    &matrices::BBR,
    &matrices::BRTP,
    &sphinx::BLOCKS,
    &sphinx::FIVE_PAIRS,
    &sphinx::PACKETS_PER_SECOND,
    &sphinx::VIDEO,
];

/// What it does not make.
pub static ELSEWHERE: &[Elsewhere] = &[
    Elsewhere {
        id: "000-kcp",
        title: "KCP in the latency cases and the throughput of three hops",
        source: "Document 000, figures 1.3 to 1.5 and the table before them",
        reason: "the simulator has no KCP; published values are named on the pages, and `noctule-lab proxy` runs kcptun where it is installed",
    },
    Elsewhere {
        id: "001-tcp",
        title: "Round trips of TCP programs: kernel TCP, KCP and proxies",
        source: "Document 001, figures 3.1 to 3.3 and 3.5 to 3.7",
        reason: "the simulator has no kernel: messages go by noctule itself; `noctule-lab proxy messages` and `noctule-lab proxy first` run programs on namespaces",
    },
    Elsewhere {
        id: "002-scps",
        title: "SCPS-TP (Van Jacobson, Vegas, pure rate) and MDP themselves",
        source: "Document 002, slides 14 to 19",
        reason: "no free implementation runs in the simulator; noctule's controls of the same kinds and QUIC's stand in, and the slides give no numbers",
    },
    Elsewhere {
        id: "004-redundancy",
        title: "Redundancy of semi-random LT and LT codes",
        source: "Document 004, figure 7",
        reason: "a matter of codes, not of links: `cargo bench -p noctule-codes --features rs,isal --bench report -- fountain` makes it",
    },
    Elsewhere {
        id: "004-coding-time",
        title: "Encoding and decoding time of four codes",
        source: "Document 004, figure 8",
        reason: "the simulator has no CPU time: `cargo bench -p noctule-codes --features rs,isal --bench report -- fountain` makes it",
    },
    Elsewhere {
        id: "004-schemes",
        title: "Sphinx with LT and RS codes, without instant compensation, with more workers",
        source: "Document 004, figures 9 and 10",
        reason: "noctule's transport has one code, and CPU time, which tells these schemes apart there, is not simulated; 004-pps and 004-blocks have noctule and QUIC's controls",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::paper::figure::{Amount, Kind};
    use crate::paper::published::Published;

    #[test]
    fn every_figure_has_cells_in_full_and_quick_and_every_published_value_one_of_them() {
        for figure in FIGURES {
            let all = figure.cases(Amount { is_quick: false, seeds: None }).unwrap_or_else(|e| panic!("{}: {e}", figure.id));
            let quick = figure.cases(Amount { is_quick: true, seeds: None }).unwrap_or_else(|e| panic!("{}: {e}", figure.id));
            assert!(!quick.is_empty() && quick.len() < all.len(), "{}: {} of {}", figure.id, quick.len(), all.len());
            for beside in figure.tables.iter().flat_map(|table| table.besides) {
                let Kind::Published(text) = beside.kind else { continue };
                let table = Published::parse(text).unwrap();
                for (row, _) in &table.rows {
                    let is_cell = all.iter().any(|case| row.iter().all(|setting| case.cell.contains(setting)));
                    assert!(is_cell, "{}: {row:?} is no cell", figure.id);
                }
            }
            if let Some(contender) = figure.contender {
                let is_ours = |(key, value): &(String, String)| key == contender.key && value == contender.ours;
                assert!(all.iter().any(|case| case.cell.iter().any(is_ours)), "{}: nobody is {}", figure.id, contender.ours);
            }
        }
    }

    #[test]
    fn published_tables_of_the_figures_and_of_the_page_agree() {
        let text = |name: &str| {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            std::fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        for (figure, page, digits) in [
            ("001-table-3.4.2.csv", "brtp-100mbit.csv", 1),
            // The page has one digit less than the document.
            ("003-brtp.csv", "brtp-1gbit.csv", 1),
        ] {
            let ours = Published::parse(&text(&format!("scenarios/paper/published/{figure}"))).unwrap();
            let theirs = Published::parse(&text(&format!("crates/lab/src/page/published/{page}"))).unwrap();
            let rows = |table: &Published| -> BTreeSet<String> {
                let of = |(row, value): &(Vec<(String, String)>, f64)| {
                    let keys: Vec<String> =
                        row.iter().filter(|(key, _)| key != "rate").map(|(key, value)| format!("{key} {value}")).collect();
                    let keys: BTreeSet<String> = keys.into_iter().collect();
                    format!("{keys:?}: {value:.digits$}")
                };
                table.rows.iter().map(of).collect()
            };
            let (ours, theirs) = (rows(&ours), rows(&theirs));
            let differing: Vec<_> = ours.symmetric_difference(&theirs).collect();
            assert!(differing.is_empty() && ours.len() >= 24, "{figure} and {page}: {differing:?}");
        }
    }

    #[test]
    fn names_are_in_order_and_given_once() {
        let made: Vec<&str> = FIGURES.iter().map(|figure| figure.id).collect();
        assert!(made.is_sorted(), "{made:?}");
        let all: BTreeSet<&str> = made.iter().copied().chain(ELSEWHERE.iter().map(|elsewhere| elsewhere.id)).collect();
        assert_eq!(all.len(), FIGURES.len() + ELSEWHERE.len());
    }

    #[test]
    fn only_the_asked_number_of_seeds_is_run() {
        let figure = FIGURES.iter().find(|figure| figure.id == "002-rate").unwrap();
        let count = |seeds| figure.cases(Amount { is_quick: false, seeds }).unwrap().len();
        assert_eq!((count(Some(2)), count(None)), (24, 240));
    }
}
