//! Drawings of a figure as SVG.

use super::data::{CellRuns, Gathered, name_of, report};
use super::figure::{Chart, Course, Figure, Kind, Statistic, Table};
use super::published::Published;
use super::quantity::{buffer, number_of};
use crate::matrix::{Heading, Layout, Summary};
use crate::plot::{AxisOf, CurvesFigure, MatrixFigure, RangedCurve, RangedPoint};
use crate::report::Report;

type Failure = Box<dyn std::error::Error>;

/// What the drawings of a chart share.
struct Lines<'a> {
    x: &'a str,
    x_name: &'a str,
    logarithmic: (bool, bool),
    plane: Option<&'a str>,
}

/// The drawings: what each shows beyond the title, and its SVG.
pub(super) fn drawings(figure: &Figure, gathered: &Gathered) -> Result<Vec<(String, String)>, Failure> {
    match figure.chart {
        Chart::Lines { x, x_name, logarithmic, plane } => lines(figure, gathered, &Lines { x, x_name, logarithmic, plane }),
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
    if plane.is_empty() { figure.source.to_owned() } else { format!("{plane}. {}", figure.source) }
}

fn lines(figure: &Figure, gathered: &Gathered, chart: &Lines<'_>) -> Result<Vec<(String, String)>, Failure> {
    let Some(table) = figure.tables.first() else { return Ok(Vec::new()) };
    let keys = gathered.varied(&[&[chart.x][..], chart.plane.as_slice()].concat());
    let label = table.quantity.label();
    let y_name = if table.statistic == Statistic::Deviation { format!("standard deviation of {label}") } else { label };
    let mut drawings = Vec::new();
    for (plane, cells) in planes(gathered, chart.plane) {
        let mut curves: Vec<RangedCurve> = Vec::new();
        let x_of = |cell: &CellRuns| cell.setting(chart.x).and_then(number_of);
        for cell in &cells {
            let spread = x_of(cell).zip(cell.spread(table.quantity));
            let Some((x, spread)) = spread else { continue };
            let range = (spread.runs > 1 && table.statistic == Statistic::Mean).then_some((spread.least, spread.most));
            let name = name_of(cell, &keys);
            add(
                &mut curves,
                if name.is_empty() { "noctule" } else { &name },
                RangedPoint { x, y: spread.value(table.statistic), range },
                false,
            );
        }
        let mut references = references(table, &cells, &keys, &x_of)?;
        curves.append(&mut references);
        for curve in &mut curves {
            curve.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        let drawing = CurvesFigure {
            title: figure.title,
            subtitle: &subtitle(figure, &plane),
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

fn add(curves: &mut Vec<RangedCurve>, label: &str, point: RangedPoint, is_reference: bool) {
    match curves.iter_mut().find(|curve| curve.label == label && curve.is_reference == is_reference) {
        Some(curve) => curve.points.push(point),
        None => curves.push(RangedCurve { label: label.to_owned(), points: vec![point], is_reference }),
    }
}

/// What stands beside, once each where all contenders have the same.
fn references(
    table: &Table,
    cells: &[&CellRuns],
    keys: &[&str],
    x_of: &dyn Fn(&CellRuns) -> Option<f64>,
) -> Result<Vec<RangedCurve>, Failure> {
    let mut curves: Vec<RangedCurve> = Vec::new();
    for beside in table.besides {
        let published = match beside.kind {
            Kind::Published(text) => Some(Published::parse(text)?),
            Kind::Equation(_) => None,
        };
        let mut of_this: Vec<RangedCurve> = Vec::new();
        for cell in cells {
            let value = match (beside.kind, &published) {
                (Kind::Equation(of), _) => cell.scenario().and_then(of),
                (_, Some(table)) => table.of(&cell.settings),
                _ => None,
            };
            if let Some((x, y)) = x_of(cell).zip(value) {
                let name = name_of(cell, keys);
                let label = if name.is_empty() { beside.name.to_owned() } else { format!("{}: {name}", beside.name) };
                add(&mut of_this, &label, RangedPoint { x, y, range: None }, true);
            }
        }
        let is_shared = of_this.iter().all(|curve| curve.points == of_this[0].points);
        if is_shared {
            of_this.truncate(1);
            of_this.iter_mut().for_each(|curve| beside.name.clone_into(&mut curve.label));
        }
        curves.append(&mut of_this);
    }
    Ok(curves)
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
            Some(RangedCurve { label: if name.is_empty() { "noctule".to_owned() } else { name }, points, is_reference: false })
        };
        let drawing = CurvesFigure {
            title: figure.title,
            subtitle: &subtitle(figure, &plane),
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
