//! What bytes of others may cost (docs/spec/costs.md): every row of the table is measured, and every packet and frame of the registries has a row.
//!
//! Work is counted ([`Work`]), memory by the allocator, answers in bytes; no time is taken. Each row is measured beside 10 and beside 1000 links, ids or
//! flows of others: what costs more beside more is a defect. `cargo test -p noctule-proto --lib costs -- --nocapture` prints what was measured; with `COSTS_PRINT=1` it
//! holds nothing to the table and prints both sizes, for a table that is to be renewed.

mod far_end;
mod neighbour;
mod one_way;
mod strangers;

use crate::work::Work;
use std::collections::BTreeMap;

/// What one datagram costs the node that hears it.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    work: Work,
    /// Bytes that stay allocated when it is answered.
    kept: i64,
    /// Bytes of all datagrams that it causes at once.
    answered: usize,
}

impl Cost {
    /// The work of the dearest, the mean of what is kept, and the longest answer.
    fn of_several(costs: &[Self]) -> Self {
        let most = |count: fn(&Work) -> u64| costs.iter().map(|c| count(&c.work)).max().unwrap_or(0);
        Self {
            work: Work { dh: most(|w| w.dh), hash: most(|w| w.hash), aead: most(|w| w.aead), steps: most(|w| w.steps) },
            kept: costs.iter().map(|c| c.kept).sum::<i64>().div_euclid(costs.len().max(1) as i64),
            answered: costs.iter().map(|c| c.answered).max().unwrap_or(0),
        }
    }

    /// What `act`, which returns the bytes answered, costs.
    fn of(act: impl FnOnce() -> usize) -> Self {
        let mut found = Self::default();
        let memory = allocation_counter::measure(|| {
            let (work, answered) = Work::of(act);
            found = Self { work, kept: 0, answered };
        });
        Self { kept: memory.bytes_current, ..found }
    }
}

/// Steps of a row that ends what it grows with: each link and flow is ended once.
const GROWS: u64 = u64::MAX;

/// Rows that were measured: name and cost.
type Measured = Vec<(&'static str, Cost)>;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/costs.md");
    std::fs::read_to_string(path).unwrap()
}

/// The rows of the table under a heading: name and bounds.
fn table(heading: &str) -> BTreeMap<String, Cost> {
    let page = page();
    let part = page.split("\n## ").find(|part| part.starts_with(heading)).unwrap_or_else(|| panic!("no heading {heading} in costs.md"));
    let mut rows = BTreeMap::new();
    for line in part.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = |at: usize| -> u64 {
            if cells[at] == "grows" { GROWS } else { cells[at].replace(',', "").parse().unwrap_or_else(|e| panic!("{line}: {e}")) }
        };
        let cost = Cost {
            work: Work { dh: number(1), hash: number(2), aead: number(3), steps: number(4) },
            kept: number(5) as i64,
            answered: number(6) as usize,
        };
        let ends = cells.last().is_some_and(|limit| limit.starts_with("ends"));
        assert!(cost.work.steps != GROWS || ends, "only what ends the others' link or session may cost more for more of them: {line}");
        assert!(cells.len() == 10 && cells[7..].iter().all(|cell| !cell.is_empty()), "ten cells, and none empty: {line}");
        assert!(rows.insert(cells[0].to_owned(), cost).is_none(), "one row for each: {line}");
    }
    rows
}

/// Holds what was measured beside few and beside many to the table under a heading.
fn hold(heading: &str, few: &Measured, many: &Measured) {
    let mut rows = table(heading);
    if std::env::var_os("COSTS_PRINT").is_some() {
        for ((name, few), (_, many)) in few.iter().zip(many) {
            println!("S| {name} | {:?} {} {} | {:?} {} {} |", few.work, few.kept, few.answered, many.work, many.kept, many.answered);
        }
        return;
    }
    for ((name, few), (_, many)) in few.iter().zip(many) {
        let Work { dh, hash, aead, steps } = many.work;
        println!("| {name} | {dh} | {hash} | {aead} | {steps} | {} | {} |", many.kept, many.answered);
        let row = rows.remove(*name).unwrap_or_else(|| panic!("{name} has no row in costs.md"));
        let may_grow = row.work.steps == GROWS;
        assert!(few.work == many.work || may_grow, "{name}: {:?} beside 10, {:?} beside 1000 of others", few.work, many.work);
        assert!(many.work.is_within(&row.work), "{name}: {:?} measured, {:?} stated", many.work, row.work);
        assert!(few.kept.max(many.kept) <= row.kept, "{name}: {} or {} bytes kept, {} stated", few.kept, many.kept, row.kept);
        assert!(few.answered.max(many.answered) <= row.answered, "{name}: {} bytes answered, {} stated", many.answered, row.answered);
    }
    assert!(rows.is_empty(), "rows that nothing measures: {:?}", rows.keys());
}

/// The constants of a registry of types: `pub const NAME: u64 = ...`.
fn registry(source: &str) -> Vec<&str> {
    let body = source.split("pub mod frame_type {").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
    body.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split(':').next()).collect()
}

#[test]
fn every_packet_and_frame_of_the_registries_has_a_row() {
    let is_named = |rows: &BTreeMap<String, Cost>, name: &str| {
        rows.keys().any(|row| row.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' '])))
    };
    let rows = table("2");
    for name in registry(include_str!("../../../wire/frame_codec.rs")) {
        assert!(is_named(&rows, name), "the frame {name} has no row");
    }
    let rows = table("3");
    for name in registry(include_str!("../../../session/control.rs")) {
        assert!(is_named(&rows, name), "the session frame {name} has no row");
    }
    let rows = table("1");
    let source = include_str!("../../../wire/packet.rs");
    let body = source.split("pub enum HandshakeBody").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
    let kinds: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split(['(', ' ', ',']).next())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        .collect();
    assert!(kinds.len() >= 6, "{kinds:?}");
    for kind in kinds {
        let name = match kind {
            "VersionList" => "version list".to_owned(),
            "OtherVersion" => "other version".to_owned(),
            kind => kind.to_uppercase(),
        };
        assert!(is_named(&rows, &name), "the packet {name} has no row");
    }
    for name in ["protected", "blind packet", "announcement"] {
        assert!(is_named(&rows, name), "the packet {name} has no row");
    }
}

#[test]
fn without_keys_and_without_an_address_a_datagram_costs_one_hash_at_most_and_leaves_no_state() {
    let rows = table("1");
    for name in [
        "arbitrary bytes",
        "other version",
        "version list",
        "INITIATE, short",
        "INITIATE of XX",
        "INITIATE of IK, for another key",
        "RESPOND, unknown id",
        "RETRY, unknown id",
        "FINISH, unknown id",
        "FINISH, forged, other address",
        "protected, unknown id",
    ] {
        let row = rows.get(name).unwrap_or_else(|| panic!("no row {name}"));
        let Work { dh, hash, aead, steps } = row.work;
        assert!(dh == 0 && hash <= 1 && aead == 0 && steps == 0, "{name}: {:?}", row.work);
        // Room of the queue of answers, which is bounded.
        assert!(row.kept <= 160, "{name}: {} bytes kept", row.kept);
    }
}
