//! Drawings of a figure as SVG.

use super::data::{CellRuns, Gathered, name_of, report};
use super::figure::{Chart, Course, Figure, Statistic};
use super::quantity::{buffer, number_of};
use super::values::Values;
use crate::matrix::{Heading, Layout, Summary};
use crate::plot::{AxisOf, CurvesFigure, MatrixFigure, RangedCurve, RangedPoint, Style};
use crate::report::Report;

type Failure = Box<dyn std::error::Error>;

/// What the drawings of a chart share.
struct Lines<'a> {
    x: &'a str,
    x_name: &'a str,
    logarithmic: (bool, bool),
    plane: Option<&'a str>,
}

/// The drawings: what each shows beyond the title, and its SVG. `values` stand beside the tables.
pub(super) fn drawings(figure: &Figure, gathered: &Gathered, values: &[Vec<Values>]) -> Result<Vec<(String, String)>, Failure> {
    match figure.chart {
        Chart::Lines { x, x_name, logarithmic, plane } => {
            lines(figure, gathered, values.first().map_or(&[], Vec::as_slice), &Lines { x, x_name, logarithmic, plane })
        }
        Chart::Matrix => Ok(vec![(String::new(), heat_map(figure, gathered)?)]),
        Chart::Course { course, plane } => courses(figure, gathered, course, plane),
    }
}

/// Cells for each value of the axis that has a drawing for each.
fn planes<'a>(gathered: &'a Gathered, plane: Option<&str>) -> Vec<(String, Vec<&'a CellRuns>)> {
    let Some(key) = plane.filter(|key| gathered.values(key).len() > 1) else {
        return vec![(String::new(), gathered.cells.iter().collect())];
    };
    let of = |value: &str| gathered.cells.iter().filter(|cell| cell.setting(key) == Some(value)).collect();
    gathered.values(key).into_iter().map(|value| (format!("{key} {value}"), of(value))).collect()
}

fn subtitle(figure: &Figure, plane: &str) -> String {
    let source = figure.source.trim_end_matches('.');
    if plane.is_empty() { source.to_owned() } else { format!("{plane}. {source}") }
}

fn lines(figure: &Figure, gathered: &Gathered, values: &[Values], chart: &Lines<'_>) -> Result<Vec<(String, String)>, Failure> {
    let Some(table) = figure.tables.first() else { return Ok(Vec::new()) };
    let keys = gathered.varied(&[&[chart.x][..], chart.plane.as_slice()].concat());
    let label = table.quantity.label();
    let y_name = if table.statistic == Statistic::Deviation { format!("standard deviation of {label}") } else { label };
    let mut drawings = Vec::new();
    for (plane, cells) in planes(gathered, chart.plane) {
        let mut curves: Vec<RangedCurve> = Vec::new();
        let mut levels: Vec<RangedCurve> = Vec::new();
        let x_of = |cell: &CellRuns| cell.setting(chart.x).and_then(number_of);
        for cell in &cells {
            let Some(spread) = cell.spread(table.quantity) else { continue };
            let range = (spread.runs > 1 && table.statistic == Statistic::Mean).then_some((spread.least, spread.most));
            let name = name_of(cell, &keys);
            let y = spread.value(table.statistic);
            match x_of(cell) {
                Some(x) => add(&mut curves, if name.is_empty() { "noctule" } else { &name }, RangedPoint { x, y, range }, Style::Line),
                None => {
                    let value = cell.setting(chart.x).unwrap_or_default();
                    let label = if name.is_empty() { value.to_owned() } else { format!("{name}, {value}") };
                    add(&mut levels, &label, RangedPoint { x: 0.0, y, range }, Style::Level);
                }
            }
        }
        let mut references = references(values, &cells, &keys, &x_of);
        curves.append(&mut references);
        for curve in &mut curves {
            curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        let mut subtitle = subtitle(figure, &plane);
        if !levels.is_empty() {
            let names: Vec<&str> = levels.iter().map(|curve| &*curve.label).collect();
            subtitle += &format!(". Without a value on this axis, and so a level line: {}", names.join(", "));
        }
        curves.append(&mut levels);
        let drawing = CurvesFigure {
            title: figure.title,
            subtitle: &subtitle,
            x: AxisOf { name: chart.x_name, is_logarithmic: chart.logarithmic.0 },
            y: AxisOf { name: &y_name, is_logarithmic: chart.logarithmic.1 },
            curves,
            has_marks: true,
        };
        let svg = drawing.svg()?;
        drawings.push((plane, svg));
    }
    Ok(drawings)
}

fn add(curves: &mut Vec<RangedCurve>, label: &str, point: RangedPoint, style: Style) {
    match curves.iter_mut().find(|curve| curve.label == label && curve.style == style) {
        Some(curve) => curve.points.push(point),
        None => curves.push(RangedCurve { label: label.to_owned(), points: vec![point], style }),
    }
}

/// What stands beside, once each where all contenders have the same.
fn references(values: &[Values], cells: &[&CellRuns], keys: &[&str], x_of: &dyn Fn(&CellRuns) -> Option<f64>) -> Vec<RangedCurve> {
    let mut curves: Vec<RangedCurve> = Vec::new();
    for beside in values {
        let mut of_this: Vec<RangedCurve> = Vec::new();
        for cell in cells {
            if let Some((x, y)) = x_of(cell).zip(beside.at(cell)) {
                let name = name_of(cell, keys);
                let label = if name.is_empty() { beside.name.to_owned() } else { format!("{}: {name}", beside.name) };
                add(&mut of_this, &label, RangedPoint { x, y, range: None }, Style::Reference);
            }
        }
        let is_shared = of_this.iter().all(|curve| curve.points == of_this[0].points);
        if is_shared {
            of_this.truncate(1);
            of_this.iter_mut().for_each(|curve| beside.name.clone_into(&mut curve.label));
        }
        curves.append(&mut of_this);
    }
    curves
}

fn heat_map(figure: &Figure, gathered: &Gathered) -> Result<String, Failure> {
    let records = || gathered.cells.iter().flat_map(|cell| &cell.records);
    let cases: Vec<_> = records().map(|record| record.cell.case.clone()).collect();
    let summary = Summary::of(&cases, records().map(crate::sweep::Record::result).collect());
    let layout = Layout::of(&summary, None, None)?;
    let heading = Heading { title: figure.title.to_owned(), conditions: figure.source.to_owned(), beside: None };
    Ok(MatrixFigure { heading: &heading, summary: &summary, layout: &layout }.heatmap()?)
}

/// Points of a run as it goes on.
pub(super) fn course_of(report: &Report, course: Course) -> Vec<(f64, f64)> {
    let seconds = |values: Vec<f64>| values.into_iter().zip(1..).map(|(value, second)| (f64::from(second), value)).collect();
    match course {
        Course::Goodput => seconds(report.goodput_mbit_by_second.clone()),
        Course::Buffer(mbit) => seconds(buffer(report, mbit)),
        Course::RoundTrips => seconds(report.message_rtt_ms_by_ten.clone()),
        Course::Distribution => report.message_rtt_ms_percentiles.iter().zip(0..).map(|(ms, share)| (*ms, f64::from(share))).collect(),
    }
}

/// Names of the axes of a course.
pub(super) fn course_axes(course: Course) -> (&'static str, &'static str) {
    match course {
        Course::Goodput => ("time (s)", "goodput (Mbit/s)"),
        Course::Buffer(_) => ("time (s)", "video in the buffer (s)"),
        Course::RoundTrips => ("tens of messages", "mean round trip of ten (ms)"),
        Course::Distribution => ("round trip (ms)", "messages that are back (%)"),
    }
}

fn courses(figure: &Figure, gathered: &Gathered, course: Course, plane: Option<&str>) -> Result<Vec<(String, String)>, Failure> {
    let keys = gathered.varied(plane.as_slice());
    let (x, y) = course_axes(course);
    let mut drawings = Vec::new();
    for (plane, cells) in planes(gathered, plane) {
        let curve = |cell: &&CellRuns| {
            let points = course_of(cell.records.iter().find_map(report)?, course);
            let points = points.into_iter().map(|(x, y)| RangedPoint { x, y, range: None }).collect();
            let name = name_of(cell, &keys);
            Some(RangedCurve { label: if name.is_empty() { "noctule".to_owned() } else { name }, points, style: Style::Line })
        };
        let drawing = CurvesFigure {
            title: figure.title,
            subtitle: &format!("First run of each cell. {}", subtitle(figure, &plane)),
            x: AxisOf { name: x, is_logarithmic: false },
            y: AxisOf { name: y, is_logarithmic: false },
            curves: cells.iter().filter_map(curve).collect(),
            has_marks: false,
        };
        let svg = drawing.svg()?;
        drawings.push((plane, svg));
    }
    Ok(drawings)
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::FIGURES;
    use super::super::figure::Amount;
    use super::*;

    #[test]
    fn every_cell_has_a_place_on_the_axes_or_is_a_level_line() {
        for figure in FIGURES {
            let Chart::Lines { x, logarithmic, .. } = figure.chart else { continue };
            let mut levels = Vec::new();
            for case in figure.cases(Amount { is_quick: false, seeds: Some(1) }).unwrap() {
                let value = case.cell.iter().find(|(key, _)| key == x).map(|(_, value)| value.clone());
                let value = value.unwrap_or_else(|| panic!("{}: {} has no {x}", figure.id, case.name));
                match number_of(&value) {
                    Some(number) => assert!(number > 0.0 || !logarithmic.0, "{}: {value} has no logarithm", figure.id),
                    None => levels.push(value),
                }
            }
            // What has no number is a contender, and the set-up says how it is drawn.
            let ours = figure.contender.map_or("", |contender| contender.ours);
            let is_said = figure.setup.contains(&format!("`{ours}`")) && figure.setup.contains("level line");
            assert!(levels.is_empty() || (levels == [ours] && is_said), "{}: {levels:?}", figure.id);
        }
    }

    #[test]
    fn a_cell_without_a_number_is_drawn_across_and_named() {
        let figure = FIGURES.iter().find(|figure| figure.id == "002-overrun").unwrap();
        let mut cases = figure.cases(Amount { is_quick: true, seeds: None }).unwrap();
        cases.truncate(2);
        let mut records = Vec::new();
        for (mut case, cc) in cases.into_iter().zip(["rate:10mbit", "model"]) {
            let report = Some(Box::new(crate::sim::run(&case.scenario).unwrap()));
            case.cell = vec![("cc".to_owned(), cc.to_owned())];
            let cell = crate::sweep::Cell::from(case);
            let measured = crate::sweep::Measured::Run { outcome: crate::matrix::fixture(1, 1.0), second_mbit: None, report };
            let id = crate::sweep::Build::named("test").id(&cell);
            records.push(crate::sweep::Record { id, build: "test".to_owned(), place: 0, cell, measured });
        }
        let drawings = drawings(figure, &Gathered::of(records), &Values::beside_tables(figure).unwrap()).unwrap();
        let svg = &drawings[0].1;
        assert!(svg.contains("a level line: model") && svg.lines().any(|line| line.trim() == "model"), "{svg}");
    }
}
