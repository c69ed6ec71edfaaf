//! A matrix as Markdown for people and CSV for programs, and how its axes are laid out on a plane.

use std::fmt::Write;

use super::summary::{Axis, Cell, Spread, Summary};

/// Two axes span the plane, every combination of the others is a plane of its own.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Downwards.
    pub rows: Axis,
    /// To the right.
    pub columns: Axis,
    /// Values of the other axes.
    pub planes: Vec<Vec<(String, String)>>,
}

/// An axis of one value, where a matrix has fewer than two.
fn no_axis() -> Axis {
    Axis { key: String::new(), values: vec![String::new()] }
}

impl Layout {
    /// By default delay to the right and loss downwards, as published tables have it, else what comes last; `rows` and `columns` say otherwise.
    pub fn of(summary: &Summary, rows: Option<&str>, columns: Option<&str>) -> Result<Self, String> {
        let mut axes: Vec<Axis> = summary.axes.iter().filter(|axis| axis.values.len() > 1).cloned().collect();
        let known = axes.iter().map(|axis| axis.key.clone()).collect::<Vec<_>>().join(", ");
        let mut take = |wanted: Option<&str>, usual: &str, reserved: Option<&str>| -> Result<Axis, String> {
            let at = match wanted {
                Some(key) => {
                    let at = axes.iter().position(|axis| axis.key == key);
                    Some(at.ok_or_else(|| format!("`{key}` is no axis of this matrix; it has {known}"))?)
                }
                None => {
                    let usual = axes.iter().position(|axis| axis.key == usual && Some(usual) != reserved);
                    usual.or_else(|| axes.iter().rposition(|axis| Some(&*axis.key) != reserved))
                }
            };
            Ok(at.map_or_else(no_axis, |at| axes.remove(at)))
        };
        if rows.is_some() && rows == columns {
            return Err(format!("`{}` cannot be both rows and columns", rows.unwrap_or_default()));
        }
        let columns = take(columns, "delay", rows)?;
        let rows = take(rows, "loss", None)?;
        let mut planes: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for axis in &axes {
            let longer = |plane: &Vec<(String, String)>, value: &String| {
                let mut plane = plane.clone();
                plane.push((axis.key.clone(), value.clone()));
                plane
            };
            planes = planes.iter().flat_map(|plane| axis.values.iter().map(move |value| longer(plane, value))).collect();
        }
        // Files with different keys do not fill every combination.
        planes.retain(|plane| summary.cells.iter().any(|cell| lies_in(cell, plane)));
        Ok(Self { rows, columns, planes })
    }

    /// The cell at a place, if it was run.
    pub fn cell<'a>(&self, summary: &'a Summary, plane: &[(String, String)], row: &str, column: &str) -> Option<&'a Cell> {
        let at = |cell: &Cell, axis: &Axis, value: &str| axis.key.is_empty() || cell.setting(&axis.key) == Some(value);
        summary.cells.iter().find(|cell| lies_in(cell, plane) && at(cell, &self.rows, row) && at(cell, &self.columns, column))
    }
}

fn lies_in(cell: &Cell, plane: &[(String, String)]) -> bool {
    plane.iter().all(|(key, value)| cell.setting(key) == Some(value))
}

/// `rate 10mbit, queue 1bdp`.
pub fn plane_name(plane: &[(String, String)]) -> String {
    plane.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// The head of a matrix.
#[derive(Debug, Clone)]
pub struct Heading {
    /// What was done.
    pub title: String,
    /// Under which conditions.
    pub conditions: String,
    /// Name of the published table, if one stands beside.
    pub beside: Option<String>,
}

/// Everything as Markdown: shares on planes, then every cell with all its figures.
pub fn markdown(summary: &Summary, layout: &Layout, heading: &Heading) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = String::new();
    let _ = writeln!(out, "## {}\n\n{}\n", heading.title, heading.conditions);
    for plane in &layout.planes {
        if !plane.is_empty() {
            let _ = writeln!(out, "### {}\n", plane_name(plane));
        }
        pivot(&mut out, summary, layout, plane, "share of the limit, median (least)", &|cell| {
            cell.share.map_or_else(|| goodput_text(cell), |s| format!("{} ({})", percent(s.median), percent(s.min)))
        });
        if let Some(name) = &heading.beside {
            pivot(&mut out, summary, layout, plane, &format!("Mbit/s: ours / {name} = factor"), &|cell| match (
                cell.goodput_mbit,
                cell.beside_mbit,
            ) {
                (Some(ours), Some(theirs)) => format!("{:.1} / {theirs:.1} = {:.2}", ours.median, ours.median / theirs),
                (Some(ours), None) => format!("{:.1} / -", ours.median),
                _ => "-".to_owned(),
            });
        }
    }
    let columns = columns(summary, heading);
    let keys: Vec<&str> = summary.axes.iter().map(|axis| &*axis.key).collect();
    let heads: Vec<&str> = keys.iter().copied().chain(columns.iter().map(|c| c.head)).collect();
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(heads.len()));
    for cell in &summary.cells {
        let settings = keys.iter().map(|key| cell.setting(key).unwrap_or("-").to_owned());
        let values: Vec<String> = settings.chain(columns.iter().map(|column| (column.text)(cell))).collect();
        let _ = writeln!(out, "| {} |", values.join(" | "));
    }
    let complaints: Vec<String> = summary
        .cells
        .iter()
        .flat_map(|cell| {
            let name = plane_name(&cell.settings);
            cell.complaints().into_iter().map(move |text| format!("- {name}, {text}"))
        })
        .collect();
    if !complaints.is_empty() {
        let _ = writeln!(out, "\nWhat does not count or is not as expected:\n\n{}", complaints.join("\n"));
    }
    out
}

fn pivot(out: &mut String, summary: &Summary, layout: &Layout, plane: &[(String, String)], what: &str, text: &dyn Fn(&Cell) -> String) {
    let corner = match (&*layout.rows.key, &*layout.columns.key) {
        ("", "") => String::new(),
        ("", column) => format!("{column} →"),
        (row, "") => format!("{row} ↓"),
        (row, column) => format!("{row} ↓ {column} →"),
    };
    let _ = writeln!(out, "{what}:\n\n| {corner} | {} |", layout.columns.values.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(layout.columns.values.len()));
    for row in &layout.rows.values {
        let cells = layout.columns.values.iter().map(|column| layout.cell(summary, plane, row, column).map_or("-".to_owned(), text));
        let _ = writeln!(out, "| {row} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    out.push('\n');
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn goodput_text(cell: &Cell) -> String {
    cell.goodput_mbit.map_or("failed".to_owned(), |g| format!("{:.2} Mbit/s", g.median))
}

struct Column {
    head: &'static str,
    text: Box<dyn Fn(&Cell) -> String>,
}

fn columns(summary: &Summary, heading: &Heading) -> Vec<Column> {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let median = |s: Option<Spread>| s.map(|s| s.median);
    let mut columns = vec![
        Column { head: "Mbit/s", text: Box::new(move |c| number(median(c.goodput_mbit), 2)) },
        Column { head: "least", text: Box::new(move |c| number(c.goodput_mbit.map(|s| s.min), 2)) },
        Column { head: "limit", text: Box::new(move |c| number(c.limit_mbit, 2)) },
        Column { head: "share", text: Box::new(|c| c.share.map_or("-".to_owned(), |s| percent(s.median))) },
        Column { head: "least", text: Box::new(|c| c.share.map_or("-".to_owned(), |s| percent(s.min))) },
        Column { head: "bytes per byte", text: Box::new(move |c| number(median(c.wire_per_byte), 4)) },
        Column { head: "back per byte", text: Box::new(move |c| number(median(c.reverse_wire_per_byte), 4)) },
        Column { head: "queue p95 ms", text: Box::new(move |c| number(median(c.queue_ms_p95), 2)) },
        Column { head: "most", text: Box::new(move |c| number(c.queue_ms_p95.map(|s| s.max), 2)) },
        Column { head: "wrong bytes", text: Box::new(|c| c.bytes_wrong.map_or("-".to_owned(), |n| n.to_string())) },
    ];
    if summary.cells.iter().any(|c| c.startup_rtts.is_some()) {
        columns.push(Column { head: "start-up RTT", text: Box::new(move |c| number(median(c.startup_rtts), 2)) });
        columns.push(Column { head: "most", text: Box::new(move |c| number(c.startup_rtts.map(|s| s.max), 2)) });
    }
    if summary.cells.iter().any(|c| c.memory_mib.is_some()) {
        columns.push(Column { head: "memory MiB", text: Box::new(move |c| number(c.memory_mib.map(|s| s.max), 1)) });
    }
    if summary.cells.iter().any(|c| c.rtt_ms_mean.is_some()) {
        columns.push(Column { head: "rtt mean ms", text: Box::new(move |c| number(median(c.rtt_ms_mean), 2)) });
        columns.push(Column { head: "rtt p99 ms", text: Box::new(move |c| number(median(c.rtt_ms_p99), 2)) });
        columns.push(Column { head: "residual loss", text: Box::new(move |c| number(median(c.residual_loss), 5)) });
    }
    if heading.beside.is_some() {
        columns.push(Column { head: "beside Mbit/s", text: Box::new(move |c| number(c.beside_mbit, 2)) });
    }
    columns
}

/// One line per cell; the names of the columns say the units. Empty where there is no value.
pub fn csv(summary: &Summary) -> String {
    let keys: Vec<&str> = summary.axes.iter().map(|axis| &*axis.key).collect();
    let quantities = "goodput_mbit,goodput_mbit_min,limit_mbit,share,share_min,wire_per_byte,wire_per_byte_max,reverse_wire_per_byte,\
                      queue_ms_p95,queue_ms_p95_max,startup_rtts,startup_rtts_max,memory_mib_max,bytes_wrong,rtt_ms_mean,rtt_ms_p99,residual_loss,beside_mbit,runs,complaints";
    let mut out = keys.iter().copied().chain([quantities]).collect::<Vec<_>>().join(",");
    out.push('\n');
    let text = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    let median = |s: Option<Spread>| text(s.map(|s| s.median));
    for cell in &summary.cells {
        let mut values: Vec<String> = keys.iter().map(|key| csv_field(cell.setting(key).unwrap_or_default())).collect();
        values.extend([
            median(cell.goodput_mbit),
            text(cell.goodput_mbit.map(|s| s.min)),
            text(cell.limit_mbit),
            median(cell.share),
            text(cell.share.map(|s| s.min)),
            median(cell.wire_per_byte),
            text(cell.wire_per_byte.map(|s| s.max)),
            median(cell.reverse_wire_per_byte),
            median(cell.queue_ms_p95),
            text(cell.queue_ms_p95.map(|s| s.max)),
            median(cell.startup_rtts),
            text(cell.startup_rtts.map(|s| s.max)),
            text(cell.memory_mib.map(|s| s.max)),
            cell.bytes_wrong.map_or(String::new(), |n| n.to_string()),
            median(cell.rtt_ms_mean),
            median(cell.rtt_ms_p99),
            median(cell.residual_loss),
            text(cell.beside_mbit),
            cell.runs.len().to_string(),
            csv_field(&cell.complaints().join("; ")),
        ]);
        let _ = writeln!(out, "{}", values.join(","));
    }
    out
}

/// A value of CSV. RFC 4180 §2: quotes around what contains a comma, a quote or a line break.
pub(crate) fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{case, outcome};
    use super::*;

    fn summary() -> Summary {
        let mut cases = Vec::new();
        let mut results = Vec::new();
        for queue in ["1bdp", "2bdp"] {
            for (delay, goodput) in [("10ms", 95.0), ("50ms", 80.0)] {
                for loss in ["2%", "10%"] {
                    for seed in [7, 8] {
                        cases.push(case(&[("rate", "100mbit"), ("queue", queue), ("delay", delay), ("loss", loss)], seed));
                        results.push(Ok(outcome(seed, goodput - seed as f64)));
                    }
                }
            }
        }
        Summary::of(&cases, results)
    }

    fn heading() -> Heading {
        Heading { title: "A grid".to_owned(), conditions: "brtp".to_owned(), beside: None }
    }

    #[test]
    fn delay_goes_right_loss_down_and_the_rest_are_planes() {
        let summary = summary();
        let layout = Layout::of(&summary, None, None).unwrap();
        assert_eq!((&*layout.columns.key, &*layout.rows.key), ("delay", "loss"));
        assert_eq!(layout.planes.iter().map(|p| plane_name(p)).collect::<Vec<_>>(), ["queue 1bdp", "queue 2bdp"]);
        let text = markdown(&summary, &layout, &heading());
        assert!(text.contains("| loss ↓ delay → | 10ms | 50ms |"), "{text}");
        assert!(text.contains("| 2% | 87.5 % (87.0 %) | 72.5 % (72.0 %) |"), "{text}");
        let layout = Layout::of(&summary, Some("delay"), Some("queue")).unwrap();
        assert_eq!((&*layout.columns.key, &*layout.rows.key, layout.planes.len()), ("queue", "delay", 2));
        let layout = Layout::of(&summary, Some("delay"), None).unwrap();
        assert_eq!((&*layout.columns.key, &*layout.rows.key), ("loss", "delay"));
        assert!(Layout::of(&summary, Some("mode"), None).unwrap_err().contains("queue, delay, loss"));
        assert!(Layout::of(&summary, Some("loss"), Some("loss")).is_err());
    }

    #[test]
    fn csv_has_a_line_per_cell_with_all_its_axes() {
        let text = csv(&summary());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 9);
        assert!(lines[0].starts_with("rate,queue,delay,loss,goodput_mbit,"), "{}", lines[0]);
        assert!(lines[1].starts_with("100mbit,1bdp,10ms,2%,87.5,87,100,0.875,0.87,1.05,1.05,0.01,7.5,8,,,,0,"), "{}", lines[1]);
        assert_eq!(lines[1].split(',').count(), lines[0].split(',').count());
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn figures_show_every_cell_and_both_tables() {
        let mut summary = summary();
        summary.cells[0].beside_mbit = Some(61.5);
        let layout = Layout::of(&summary, None, None).unwrap();
        let heading = Heading { beside: Some("bats".to_owned()), ..heading() };
        let figure = crate::plot::MatrixFigure { heading: &heading, summary: &summary, layout: &layout };
        let (heatmap, bars) = (figure.heatmap().unwrap(), figure.bars().unwrap());
        let count = |svg: &str, text: &str| svg.lines().filter(|line| line.trim() == text).count();
        assert_eq!((count(&heatmap, "87.5 %"), count(&heatmap, "72.5 %")), (4, 4), "{heatmap}");
        assert_eq!((count(&bars, "87.5"), count(&bars, "72.5"), count(&bars, "61.5")), (4, 4, 1), "{bars}");
        for text in ["queue 1bdp: bats", "queue 2bdp: noctule", "Mbit/s", "delay", "loss"] {
            assert!(count(&bars, text) >= 1, "{text}");
        }
        assert_eq!(count(&bars, "queue 2bdp: bats"), 0);
        for svg in [&heatmap, &bars] {
            assert_eq!(count(svg, "Each cell: the median of its seeds."), 1, "{svg}");
        }
    }

    #[test]
    fn a_matrix_of_one_cell_is_still_a_table() {
        let summary = Summary::of(&[case(&[], 7)], vec![Ok(outcome(7, 90.0))]);
        let layout = Layout::of(&summary, None, None).unwrap();
        assert!(markdown(&summary, &layout, &heading()).contains("90.0 %"));
    }
}
