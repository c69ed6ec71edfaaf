//! Goodput over time: one curve per contender, with the limit of the link as a dashed line.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{COLOURS, INK, PALE, font};

/// Size of the figure in SVG units; plotters rounds to whole ones, so the canvas is large and scales down.
const SIZE: (u32, u32) = (1600, 900);
/// Height of the part with title and legend.
const HEAD: i32 = 150;
/// Height of a line of the legend.
const LEGEND_LINE: i32 = 42;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure: {0}")]
pub struct PlotError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// One contender.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Its line in the legend, with what came of it.
    pub label: String,
    /// Seconds and Mbit/s, in order of time.
    pub points: Vec<(f64, f64)>,
    /// Second at which everything had arrived.
    pub done: Option<f64>,
}

/// Everything in the figure.
#[derive(Debug, Clone)]
pub struct GoodputFigure {
    /// What was done.
    pub title: String,
    /// Under which conditions.
    pub subtitle: String,
    /// The contenders; at most six have colours of their own.
    pub curves: Vec<Curve>,
    /// Goodput that the link allows, in Mbit/s.
    pub limit_mbit: f64,
    /// Right end of the time axis in seconds.
    pub until: f64,
}

impl GoodputFigure {
    /// The figure as SVG text.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            self.draw(&root)?;
            root.present()?;
        }
        Ok(text)
    }

    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let (head, body) = root.split_vertically(HEAD.max(30 + LEGEND_LINE * self.curves.len() as i32));
        head.draw(&Text::new(self.title.clone(), (40, 30), font(40)))?;
        head.draw(&Text::new(self.subtitle.clone(), (40, 84), font(26)))?;
        self.draw_legend(&head)?;
        let peak = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(self.limit_mbit, f64::max);
        let top = peak * 1.1;
        let mut chart = axes(&body, (self.until, "time since the sender started (s)", 11), top)?;
        let limit = [(0.0, self.limit_mbit), (self.until, self.limit_mbit)];
        chart.draw_series(DashedLineSeries::new(limit, 14, 10, ShapeStyle::from(INK).stroke_width(3)))?;
        let note = font(26).pos(Pos::new(HPos::Right, VPos::Bottom));
        let text = format!("limit of the link: {:.1} Mbit/s", self.limit_mbit);
        chart.draw_series(std::iter::once(Text::new(text, (self.until, self.limit_mbit + top * 0.008), note)))?;
        // The first contender is drawn last, on top.
        for (index, curve) in self.curves.iter().enumerate().rev() {
            self.draw_curve(&mut chart, curve, COLOURS[index % COLOURS.len()])?;
        }
        Ok(())
    }

    fn draw_curve(&self, chart: &mut Chart<'_, '_>, curve: &Curve, colour: RGBColor) -> Result<(), PlotError> {
        let visible = curve.points.iter().copied().filter(|point| point.0 <= self.until);
        chart.draw_series(LineSeries::new(visible, ShapeStyle::from(colour).stroke_width(5)))?;
        if let Some(done) = curve.done.filter(|done| *done <= self.until) {
            let end = curve.points.last().map_or(0.0, |point| point.1);
            chart.draw_series(std::iter::once(Circle::new((done, end), 11, colour.filled())))?;
        }
        Ok(())
    }

    /// At the right of the head, where no curve can pass behind it.
    fn draw_legend(&self, head: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let style = font(30).pos(Pos::new(HPos::Left, VPos::Center));
        let widest = self.curves.iter().map(|curve| curve.label.chars().count()).max().unwrap_or(0) as i32;
        // 13 units per character: sans-serif of this size is narrower on average.
        let left = head.dim_in_pixel().0 as i32 - 120 - widest * 13;
        for (index, curve) in self.curves.iter().enumerate() {
            let y = 40 + LEGEND_LINE * index as i32;
            let colour = COLOURS[index % COLOURS.len()];
            head.draw(&PathElement::new(vec![(left, y), (left + 50, y)], ShapeStyle::from(colour).stroke_width(6)))?;
            head.draw(&Text::new(curve.label.clone(), (left + 68, y), style.clone()))?;
        }
        Ok(())
    }
}

/// Goodput over something: the name and end of the horizontal axis and about how many figures stand along it, and the end of the vertical.
pub(super) fn axes<'a, 'b>(
    area: &DrawingArea<SVGBackend<'b>, Shift>,
    (right, name, figures): (f64, &str, usize),
    top: f64,
) -> Result<Chart<'a, 'b>, PlotError> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(25)
        .margin_right(40)
        .margin_bottom(10)
        .x_label_area_size(90)
        .y_label_area_size(120)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(PALE)
        .axis_style(ShapeStyle::from(INK).stroke_width(2))
        .x_labels(figures)
        .y_labels(8)
        .x_label_formatter(&|x| tidy(*x))
        .y_label_formatter(&|rate| tidy(*rate))
        .label_style(font(28))
        .x_desc(name)
        .y_desc("goodput (Mbit/s)")
        .axis_desc_style(font(32))
        .draw()?;
    Ok(chart)
}

/// A number on an axis, without digits that say nothing.
fn tidy(value: f64) -> String {
    if (value - value.round()).abs() < 1e-6 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> GoodputFigure {
        GoodputFigure {
            title: "A file".to_owned(),
            subtitle: "over a link".to_owned(),
            curves: vec![
                Curve { label: "noctule: 10.2 s".to_owned(), points: vec![(0.5, 20.0), (1.0, 85.0), (10.0, 86.0)], done: Some(10.2) },
                Curve { label: "TCP <CUBIC>".to_owned(), points: vec![(0.5, 0.5), (30.0, 0.2)], done: None },
            ],
            limit_mbit: 88.3,
            until: 20.0,
        }
    }

    #[test]
    fn figure_names_its_axes_units_limit_and_contenders() {
        let svg = figure().svg().unwrap();
        for text in ["(s)", "(Mbit/s)", "limit of the link: 88.3 Mbit/s", "noctule: 10.2 s", "TCP &lt;CUBIC&gt;", "A file"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(svg.ends_with("</svg>\n") || svg.ends_with("</svg>"));
    }

    #[test]
    fn same_data_give_the_same_figure() {
        assert_eq!(figure().svg().unwrap(), figure().svg().unwrap());
    }

    #[test]
    fn figure_without_data_is_still_a_figure() {
        let empty = GoodputFigure { curves: Vec::new(), ..figure() };
        assert!(empty.svg().unwrap().contains("limit"));
    }
}
