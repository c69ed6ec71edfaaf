//! Figures as SVG.

mod bars;
mod curves;
mod goodput;
mod heatmap;
mod losses;
mod style;

use crate::matrix::{Heading, Layout, Summary};

pub use curves::{AxisOf, CurvesFigure, RangedCurve, RangedPoint, Style};
pub use goodput::{Curve, GoodputFigure, PlotError};
pub use losses::{LossCurve, LossFigure};

/// A matrix to draw, as heat map or as bars.
#[derive(Debug, Clone, Copy)]
pub struct MatrixFigure<'a> {
    /// Title and conditions.
    pub heading: &'a Heading,
    /// The cells.
    pub summary: &'a Summary,
    /// Where they lie.
    pub layout: &'a Layout,
}
