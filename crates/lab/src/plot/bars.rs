//! A matrix as bars in three dimensions, as the published figures have it: one axis to the right, one into the depth, goodput upwards.
//! Where a published table stands beside ours, it is drawn to the same scale.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::heatmap::label;
use super::style::{INK, OURS, PALE, THEIRS};
use super::{MatrixFigure, PlotError};
use crate::matrix::{Cell, plane_name};

/// Width of a bar's place, and how far the next row is shifted to the right and up.
const STEP: i32 = 110;
const DEPTH: (i32, i32) = (48, 34);
/// Share of its place that a bar fills.
const FILL: f64 = 0.62;
const HEIGHT: i32 = 420;
const LEFT: i32 = 170;
const RIGHT: i32 = 190;
const HEAD: i32 = 130;
const PLANE_HEAD: i32 = 60;
const PLANE_FOOT: i32 = 110;

/// One set of bars on one plane.
struct Stage<'a> {
    name: String,
    colour: RGBColor,
    height_of: &'a dyn Fn(&Cell) -> Option<f64>,
    plane: &'a [(String, String)],
    /// Of its lowest front left corner.
    origin: (i32, i32),
    top_mbit: f64,
}

impl MatrixFigure<'_> {
    /// The bars as SVG text.
    pub fn bars(&self) -> Result<String, PlotError> {
        let (across, deep) = (self.layout.columns.values.len() as i32, self.layout.rows.values.len() as i32);
        let stage = (LEFT + across * STEP + deep * DEPTH.0 + RIGHT, PLANE_HEAD + HEIGHT + deep * DEPTH.1 + PLANE_FOOT);
        let sets = if self.heading.beside.is_some() { 2 } else { 1 };
        let width = (stage.0 * sets).max(1000);
        let conditions = self.conditions((width / 14) as usize);
        let head = HEAD + 34 * (conditions.len() as i32 - 1);
        let size = (width as u32, (head + stage.1 * self.layout.planes.len() as i32) as u32);
        let ours = |cell: &Cell| cell.goodput_mbit.map(|goodput| goodput.median);
        let theirs = |cell: &Cell| cell.beside_mbit;
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            root.fill(&WHITE)?;
            label(&root, &self.heading.title, (40, 44), 38, HPos::Left)?;
            for (line, y) in conditions.iter().zip(0..) {
                label(&root, line, (40, 92 + 34 * y), 26, HPos::Left)?;
            }
            for (plane, y) in self.layout.planes.iter().zip(0..) {
                let in_plane = |cell: &&Cell| plane.iter().all(|(key, value)| cell.setting(key) == Some(value));
                let heights = self.summary.cells.iter().filter(in_plane).flat_map(|cell| [ours(cell), theirs(cell)]);
                let top_mbit = round_up(heights.flatten().fold(0.0, f64::max));
                let bottom = head + (y + 1) * stage.1 - PLANE_FOOT;
                let named =
                    |who: &str| [plane_name(plane), who.to_owned()].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(": ");
                let ours_name = if sets == 2 { named("noctule") } else { named("") };
                let first = Stage { name: ours_name, colour: OURS, height_of: &ours, plane, origin: (LEFT, bottom), top_mbit };
                self.stage(&root, &first)?;
                let has_theirs = self.summary.cells.iter().filter(in_plane).any(|cell| cell.beside_mbit.is_some());
                if let Some(beside) = self.heading.beside.as_ref().filter(|_| has_theirs) {
                    let origin = (LEFT + stage.0, bottom);
                    self.stage(&root, &Stage { name: named(beside), colour: THEIRS, height_of: &theirs, origin, ..first })?;
                }
            }
            root.present()?;
        }
        Ok(text)
    }

    fn stage(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, stage: &Stage<'_>) -> Result<(), PlotError> {
        let (rows, columns) = (&self.layout.rows, &self.layout.columns);
        let (across, deep) = (columns.values.len() as i32, rows.values.len() as i32);
        self.walls(root, stage, across, deep)?;
        // From the back to the front and from left to right: what is nearer covers what is farther.
        for (row, depth) in rows.values.iter().zip((0..deep).rev()) {
            for (column, x) in columns.values.iter().zip(0..) {
                if let Some(mbit) = self.layout.cell(self.summary, stage.plane, row, column).and_then(stage.height_of) {
                    stage.bar(root, x, depth, mbit)?;
                }
            }
        }
        // Figures last, above every bar that could cover them.
        for (row, depth) in rows.values.iter().zip((0..deep).rev()) {
            for (column, x) in columns.values.iter().zip(0..) {
                if let Some(mbit) = self.layout.cell(self.summary, stage.plane, row, column).and_then(stage.height_of) {
                    let (left, bottom) = stage.foot(x, depth);
                    let wide = (f64::from(STEP) * FILL) as i32;
                    let text = if mbit >= 100.0 { format!("{mbit:.0}") } else { format!("{mbit:.1}") };
                    let at = (left + wide / 2 + DEPTH.0 / 4, bottom - stage.pixels(mbit) - DEPTH.1 / 4);
                    label(root, &text, at, 20, HPos::Center)?;
                }
            }
        }
        for (column, x) in columns.values.iter().zip(0..) {
            label(root, column, (stage.origin.0 + x * STEP + STEP / 2, stage.origin.1 + 24), 26, HPos::Center)?;
        }
        label(root, &columns.key, (stage.origin.0 + across * STEP / 2, stage.origin.1 + 62), 28, HPos::Center)?;
        for (row, depth) in rows.values.iter().zip((0..deep).rev()) {
            let x = stage.origin.0 + across * STEP + depth * DEPTH.0 + DEPTH.0 / 2 + 14;
            label(root, row, (x, stage.origin.1 - depth * DEPTH.1 - DEPTH.1 / 2 + 6), 26, HPos::Left)?;
        }
        let key_at = (stage.origin.0 + across * STEP + DEPTH.0 / 2 + 14, stage.origin.1 + 24);
        label(root, &rows.key, key_at, 28, HPos::Left)
    }

    /// Floor, back wall with lines at round values, and the axis of goodput.
    fn walls(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, stage: &Stage<'_>, across: i32, deep: i32) -> Result<(), PlotError> {
        let (x0, y0) = stage.origin;
        let back = (x0 + deep * DEPTH.0, y0 - deep * DEPTH.1);
        let line = ShapeStyle::from(PALE).stroke_width(2);
        label(root, &stage.name, (x0, y0 - HEIGHT - deep * DEPTH.1 - 40), 28, HPos::Left)?;
        for i in 0..=5 {
            let up = HEIGHT * i / 5;
            let points = vec![(x0, y0 - up), (back.0, back.1 - up), (back.0 + across * STEP, back.1 - up)];
            root.draw(&PathElement::new(points, line))?;
            label(root, &tidy(stage.top_mbit * f64::from(i) / 5.0), (x0 - 14, y0 - up), 24, HPos::Right)?;
        }
        label(root, "Mbit/s", (x0 - 14, y0 - HEIGHT - 36), 26, HPos::Right)?;
        let floor = vec![(x0, y0), (x0 + across * STEP, y0), (back.0 + across * STEP, back.1), back, (x0, y0)];
        root.draw(&PathElement::new(floor, ShapeStyle::from(INK).stroke_width(2)))?;
        root.draw(&PathElement::new(vec![(x0, y0), (x0, y0 - HEIGHT)], ShapeStyle::from(INK).stroke_width(2)))?;
        Ok(())
    }
}

impl Stage<'_> {
    /// Front left corner of a bar.
    fn foot(&self, x: i32, depth: i32) -> (i32, i32) {
        let inset = (1.0 - FILL) / 2.0;
        let (right, up) = (f64::from(STEP) * inset + f64::from(DEPTH.0) * inset, f64::from(DEPTH.1) * inset);
        (self.origin.0 + x * STEP + depth * DEPTH.0 + right as i32, self.origin.1 - depth * DEPTH.1 - up as i32)
    }

    fn pixels(&self, mbit: f64) -> i32 {
        (mbit / self.top_mbit * f64::from(HEIGHT)) as i32
    }

    fn bar(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, x: i32, depth: i32, mbit: f64) -> Result<(), PlotError> {
        let (left, bottom) = self.foot(x, depth);
        let wide = (f64::from(STEP) * FILL) as i32;
        let (dx, dy) = ((f64::from(DEPTH.0) * FILL) as i32, (f64::from(DEPTH.1) * FILL) as i32);
        let top = bottom - self.pixels(mbit);
        let right = left + wide;
        let faces = [
            (1.0, vec![(left, bottom), (right, bottom), (right, top), (left, top)]),
            (0.72, vec![(right, bottom), (right + dx, bottom - dy), (right + dx, top - dy), (right, top)]),
            (1.35, vec![(left, top), (right, top), (right + dx, top - dy), (left + dx, top - dy)]),
        ];
        for (light, points) in faces {
            root.draw(&Polygon::new(points.clone(), lit(self.colour, light).filled()))?;
            let edge = points.iter().copied().chain(points.first().copied()).collect::<Vec<_>>();
            root.draw(&PathElement::new(edge, ShapeStyle::from(WHITE).stroke_width(1)))?;
        }
        Ok(())
    }
}

/// Darker below one, nearer to white above it.
fn lit(colour: RGBColor, light: f64) -> RGBColor {
    let channel = |c: u8| {
        let c = f64::from(c);
        (if light <= 1.0 { c * light } else { c + (255.0 - c) * (light - 1.0) }).round() as u8
    };
    RGBColor(channel(colour.0), channel(colour.1), channel(colour.2))
}

/// A round number not below `value`, five of whose parts are round too.
fn round_up(value: f64) -> f64 {
    let value = value.max(1e-3);
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 10.0]
        .map(|n| n * decade)
        .into_iter()
        .find(|n| *n >= value * 0.999_999)
        .unwrap_or(10.0 * decade)
}

fn tidy(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number_above_every_bar() {
        for (value, top) in [(98.1, 100.0), (100.0, 100.0), (101.0, 150.0), (981.0, 1000.0), (0.7, 0.75), (0.0, 0.001)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}: {}", round_up(value));
        }
        assert_eq!((tidy(20.0), tidy(0.15), tidy(0.0)), ("20".to_owned(), "0.15".to_owned(), "0".to_owned()));
    }
}
