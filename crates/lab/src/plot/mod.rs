//! Figures as SVG.

mod goodput;

pub use goodput::{Curve, GoodputFigure, PlotError};
