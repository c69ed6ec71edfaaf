//! Shares of the limit kept as a table in the tree, so that a later change that costs a point is seen.
//!
//! Runs are deterministic, and still the table has a tolerance: a change that is neither better nor worse moves shares by tenths.

use std::fmt::Write;

/// Points (hundredths of the limit) by which a share may differ from the table, either way: a gain that is not kept can be lost unseen.
pub const TOLERANCE_POINTS: f64 = 1.0;

/// The result of a case: its share of the limit, none where the link has no limit or the run failed.
pub type Row = (String, Option<f64>);

/// The table as it is kept: `share in % | case`, one per line.
pub fn shares_table(rows: &[Row]) -> String {
    let mut out = String::from("# share of the limit in % | case; tolerance one point\n");
    for (name, share) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:>8} | {name}", share.map_or("-".to_owned(), |s| format!("{:.2}", s * 100.0)));
    }
    out
}

/// What differs from the table that was kept by more than the tolerance, in words; empty if nothing does.
pub fn differences(kept: &str, rows: &[Row]) -> Vec<String> {
    let mut left: Vec<(&str, &str)> =
        kept.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" | ")).map(|(s, n)| (n, s.trim())).collect();
    let mut out = Vec::new();
    for (name, share) in rows {
        let Some(at) = left.iter().position(|(kept, _)| kept == name) else {
            out.push(format!("{name}: not in the table"));
            continue;
        };
        let (_, before) = left.remove(at);
        let now = share.map(|s| s * 100.0);
        match (before.parse::<f64>().ok(), now) {
            // The table has two digits.
            (Some(before), Some(now)) if (now - before).abs() <= TOLERANCE_POINTS + 0.005 => {}
            (None, None) => {}
            (Some(before), Some(now)) => {
                out.push(format!(
                    "{name}: {now:.2} %, {:.2} points {} than the {before:.2} % that were kept",
                    (now - before).abs(),
                    if now < before { "less" } else { "more" }
                ));
            }
            (_, now) => out.push(format!("{name}: {}, kept was {before}", now.map_or("no share".to_owned(), |n| format!("{n:.2} %")))),
        }
    }
    out.extend(left.iter().map(|(name, _)| format!("{name}: in the table and not run")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(shares: &[(&str, Option<f64>)]) -> Vec<Row> {
        shares.iter().map(|&(name, share)| (name.to_owned(), share)).collect()
    }

    #[test]
    fn a_point_is_within_the_tolerance_and_more_is_seen_either_way() {
        let kept = shares_table(&rows(&[("bulk loss=2% seed=7", Some(0.95)), ("free", None)]));
        for (share, seen) in [(0.95, 0), (0.9401, 0), (0.9599, 0), (0.9389, 1), (0.9611, 1)] {
            let differences = differences(&kept, &rows(&[("bulk loss=2% seed=7", Some(share)), ("free", None)]));
            assert_eq!(differences.len(), seen, "{share}: {differences:?}");
        }
        let words = differences(&kept, &rows(&[("bulk loss=2% seed=7", Some(0.9)), ("free", None)]));
        assert_eq!(words, ["bulk loss=2% seed=7: 90.00 %, 5.00 points less than the 95.00 % that were kept"]);
    }

    #[test]
    fn cases_that_came_or_went_are_seen() {
        let kept = shares_table(&rows(&[("a", Some(0.95)), ("b", Some(0.5))]));
        let words = differences(&kept, &rows(&[("a", None), ("c", Some(0.5))]));
        assert_eq!(words, ["a: no share, kept was 95.00", "c: not in the table", "b: in the table and not run"]);
    }
}
