//! Figures as SVG.

mod bars;
mod goodput;
mod heatmap;

pub use bars::Bars;
pub use goodput::{Curve, GoodputFigure, PlotError};
pub use heatmap::Heatmap;
