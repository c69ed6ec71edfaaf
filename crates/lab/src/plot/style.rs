//! Colours and letters of all figures.

use plotters::prelude::*;

/// Okabe and Ito's palette: told apart with any colour vision.
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// After these, where a figure has more curves.
pub(super) const FURTHER: [RGBColor; 3] = [RGBColor(20, 20, 20), RGBColor(140, 140, 140), RGBColor(130, 90, 40)];
/// Ours, and a published table beside it.
pub(super) const OURS: RGBColor = COLOURS[0];
pub(super) const THEIRS: RGBColor = COLOURS[4];
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
/// Lines of a grid.
pub(super) const PALE: RGBColor = RGBColor(225, 225, 225);
/// A cell that was not run.
pub(super) const NOT_RUN: RGBColor = RGBColor(235, 235, 235);
/// What a reader of SVG takes for this family.
const FAMILY: &str = "sans-serif";
/// Which of the seeds of a cell a matrix shows.
pub(super) const MEDIANS: &str = "Each cell: the median of its seeds.";

/// Dark letters of a size in SVG units.
pub(super) fn font(size: i32) -> TextStyle<'static> {
    TextStyle::from((FAMILY, size).into_font()).color(&INK)
}
