//! Goodput by loss per link: one line per contender, the limit as a dashed one.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::goodput::{PlotError, axes};
use super::style::{COLOURS, INK, font};

/// Size of the figure in SVG units.
const SIZE: (u32, u32) = (1600, 900);
/// Width of the part with the legend.
const SIDE: u32 = 560;

/// One contender.
#[derive(Debug, Clone)]
pub struct LossCurve {
    /// Its line in the legend.
    pub label: String,
    /// Loss per link in percent and goodput in Mbit/s, in order of loss.
    pub points: Vec<(f64, f64)>,
    /// Read off a published figure: drawn with open marks.
    pub is_published: bool,
}

/// Everything in the figure.
#[derive(Debug, Clone)]
pub struct LossFigure {
    /// What was done.
    pub title: String,
    /// Under which conditions.
    pub subtitle: String,
    /// The contenders; at most six have colours of their own.
    pub curves: Vec<LossCurve>,
    /// What the links allow.
    pub limit: Vec<(f64, f64)>,
}

impl LossFigure {
    /// The figure as SVG text.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let (head, body) = root.split_vertically(120);
            head.draw(&Text::new(self.title.clone(), (40, 24), font(40)))?;
            head.draw(&Text::new(self.subtitle.clone(), (40, 76), font(26)))?;
            let (left, right) = body.split_horizontally(SIZE.0 - SIDE);
            let all = || self.curves.iter().flat_map(|curve| &curve.points).chain(&self.limit);
            let (until, top) = all().fold((1.0f64, 1.0f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
            let mut chart = axes(&left, (until * 1.02, "loss on every link (%)", 5), top * 1.06)?;
            chart.draw_series(DashedLineSeries::new(self.limit.iter().copied(), 14, 10, ShapeStyle::from(INK).stroke_width(3)))?;
            // The first contender is drawn last, on top.
            for (index, curve) in self.curves.iter().enumerate().rev() {
                let colour = COLOURS[index % COLOURS.len()];
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), ShapeStyle::from(colour).stroke_width(5)))?;
                let mark = if curve.is_published { ShapeStyle::from(colour).stroke_width(4) } else { colour.filled() };
                chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 9, mark)))?;
            }
            let style = font(28).pos(Pos::new(HPos::Left, VPos::Center));
            let names = self.curves.iter().map(|curve| curve.label.as_str()).chain(["limit C(1-p)·1472/1500"]);
            for (index, name) in names.enumerate() {
                let y = 30 + 48 * index as i32;
                let colour = self.curves.get(index).map_or(INK, |_| COLOURS[index % COLOURS.len()]);
                // The limit's line is dashed, here as in the chart.
                let parts: &[(i32, i32)] = if index < self.curves.len() { &[(10, 60)] } else { &[(10, 24), (34, 48)] };
                for &(from, to) in parts {
                    right.draw(&PathElement::new(vec![(from, y), (to, y)], ShapeStyle::from(colour).stroke_width(6)))?;
                }
                right.draw(&Text::new(name.to_owned(), (76, y), style.clone()))?;
            }
            root.present()?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_names_its_axes_and_contenders_and_is_the_same_each_time() {
        let curve = |label: &str, top: f64| LossCurve {
            label: label.to_owned(),
            points: vec![(0.0, top), (10.0, top * 0.8), (20.0, top * 0.6)],
            is_published: label == "theirs",
        };
        let figure = LossFigure {
            title: "Six links".to_owned(),
            subtitle: "in a row".to_owned(),
            curves: vec![curve("ours", 280.0), curve("theirs", 270.0)],
            limit: vec![(0.0, 294.0), (20.0, 235.0)],
        };
        let svg = figure.svg().unwrap();
        for text in ["loss on every link (%)", "goodput (Mbit/s)", "ours", "theirs", "limit C(1-p)", "Six links"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, figure.svg().unwrap());
    }
}
