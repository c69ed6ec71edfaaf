//! A matrix as a heat map: one rectangle per cell, its colour the share of the limit and its text the same in figures.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{INK, MEDIANS, NOT_RUN, font};
use super::{MatrixFigure, PlotError};
use crate::matrix::{Cell, plane_name};

const CELL: (i32, i32) = (150, 64);
/// Left of the cells: the values of the rows.
const LEFT: i32 = 210;
/// Above the first plane: title, conditions.
const HEAD: i32 = 130;
/// Above each plane: its name and the values of the columns.
const PLANE_HEAD: i32 = 150;
/// Below everything: the scale.
const FOOT: i32 = 120;

/// The scale is the same for every matrix, so that two of them can be compared: half the limit and all of it at its ends.
/// Colours after ColorBrewer's RdYlBu, told apart with any colour vision.
const SCALE: [(f64, [f64; 3]); 5] = [
    (0.5, [215.0, 48.0, 39.0]),
    (0.8, [253.0, 174.0, 97.0]),
    (0.9, [255.0, 245.0, 190.0]),
    (0.95, [145.0, 191.0, 219.0]),
    (1.0, [49.0, 90.0, 170.0]),
];

impl MatrixFigure<'_> {
    /// The heat map as SVG text.
    pub fn heatmap(&self) -> Result<String, PlotError> {
        let conditions = self.conditions(90);
        let head = HEAD + 34 * (conditions.len() as i32 - 1);
        let plane_height = PLANE_HEAD + CELL.1 * self.layout.rows.values.len() as i32;
        let width = (LEFT + CELL.0 * self.layout.columns.values.len() as i32 + 60).max(1240);
        let height = head + plane_height * self.layout.planes.len() as i32 + FOOT;
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (width as u32, height as u32)).into_drawing_area();
            root.fill(&WHITE)?;
            label(&root, &self.heading.title, (40, 44), 38, HPos::Left)?;
            for (line, y) in conditions.iter().zip(0..) {
                label(&root, line, (40, 92 + 34 * y), 26, HPos::Left)?;
            }
            for (plane, y) in self.layout.planes.iter().zip(0..) {
                self.plane(&root, plane, head + y * plane_height)?;
            }
            scale(&root, height - FOOT + 40)?;
            root.present()?;
        }
        Ok(text)
    }

    /// The lines below the title: under which conditions, and which of the seeds is shown.
    pub(super) fn conditions(&self, width: usize) -> Vec<String> {
        let mut lines = wrapped(&self.heading.conditions, width);
        lines.push(MEDIANS.to_owned());
        lines
    }

    fn plane(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, plane: &[(String, String)], top: i32) -> Result<(), PlotError> {
        let (rows, columns) = (&self.layout.rows, &self.layout.columns);
        label(root, &plane_name(plane), (LEFT, top + 54), 28, HPos::Left)?;
        label(root, format!("{} →", columns.key).trim_start_matches(" →"), (LEFT - 20, top + 100), 26, HPos::Right)?;
        label(root, format!("{} ↓", rows.key).trim_start_matches(" ↓"), (LEFT - 20, top + 132), 26, HPos::Right)?;
        for (column, x) in columns.values.iter().zip(0..) {
            label(root, column, (LEFT + CELL.0 * x + CELL.0 / 2, top + 116), 28, HPos::Center)?;
        }
        for (row, y) in rows.values.iter().zip(0..) {
            let above = top + PLANE_HEAD + CELL.1 * y;
            label(root, row, (LEFT - 20, above + CELL.1 / 2), 28, HPos::Right)?;
            for (column, x) in columns.values.iter().zip(0..) {
                let corner = (LEFT + CELL.0 * x, above);
                draw_cell(root, self.layout.cell(self.summary, plane, row, column), corner)?;
            }
        }
        Ok(())
    }
}

fn draw_cell(root: &DrawingArea<SVGBackend<'_>, Shift>, cell: Option<&Cell>, corner: (i32, i32)) -> Result<(), PlotError> {
    let share = cell.and_then(|cell| cell.share).map(|share| share.median);
    let colour = share.map_or(NOT_RUN, colour_of);
    let area = [(corner.0 + 1, corner.1 + 1), (corner.0 + CELL.0 - 1, corner.1 + CELL.1 - 1)];
    root.draw(&Rectangle::new(area, colour.filled()))?;
    let text = match (share, cell.and_then(|cell| cell.goodput_mbit), cell) {
        (Some(share), ..) => format!("{:.1} %", share * 100.0),
        (None, Some(goodput), _) => format!("{:.1} Mbit/s", goodput.median),
        (None, None, Some(_)) => "failed".to_owned(),
        (None, None, None) => "-".to_owned(),
    };
    let ink = if luminance(colour) < 140.0 { WHITE } else { INK };
    let style = font(28).color(&ink).pos(Pos::new(HPos::Center, VPos::Center));
    root.draw(&Text::new(text, (corner.0 + CELL.0 / 2, corner.1 + CELL.1 / 2), style))?;
    Ok(())
}

/// The colours with what they mean.
fn scale(root: &DrawingArea<SVGBackend<'_>, Shift>, top: i32) -> Result<(), PlotError> {
    let (left, step) = (LEFT, 16);
    for i in 0..=50 {
        let area = [(left + i * step, top), (left + (i + 1) * step, top + 28)];
        root.draw(&Rectangle::new(area, colour_of(0.5 + f64::from(i) * 0.01).filled()))?;
    }
    for i in [0, 10, 20, 30, 40, 45, 50] {
        let text = if i == 0 { "≤ 50 %".to_owned() } else { format!("{}", 50 + i) };
        label(root, &text, (left + i * step + step / 2, top + 48), 24, HPos::Center)?;
    }
    label(root, "share of limit", (left - 20, top + 14), 26, HPos::Right)
}

fn colour_of(share: f64) -> RGBColor {
    let share = share.clamp(SCALE[0].0, SCALE[SCALE.len() - 1].0);
    let upper = SCALE.iter().position(|(at, _)| share <= *at).unwrap_or(SCALE.len() - 1).max(1);
    let ((from, low), (to, high)) = (SCALE[upper - 1], SCALE[upper]);
    let part = (share - from) / (to - from);
    let mix = |i: usize| (low[i] + (high[i] - low[i]) * part).round() as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

fn luminance(colour: RGBColor) -> f64 {
    0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2)
}

/// Text at a place, centred in height.
pub(super) fn label(root: &DrawingArea<SVGBackend<'_>, Shift>, text: &str, at: (i32, i32), size: i32, side: HPos) -> Result<(), PlotError> {
    let style = font(size).pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// Lines of at most about `width` characters.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_half_and_at_all_of_the_limit() {
        assert_eq!(colour_of(0.2), RGBColor(215, 48, 39));
        assert_eq!(colour_of(1.2), RGBColor(49, 90, 170));
        assert_eq!(colour_of(0.95), RGBColor(145, 191, 219));
    }

    #[test]
    fn long_conditions_are_broken_between_words() {
        assert_eq!(wrapped("rate 100mbit, queue 1bdp", 14), ["rate 100mbit,", "queue 1bdp"]);
    }
}
