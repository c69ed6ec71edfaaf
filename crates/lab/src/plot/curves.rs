//! Any quantity over any other: one line per contender, axes that may be logarithmic, bars from the least to the most of several runs.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::goodput::PlotError;
use super::heatmap::wrapped;
use super::style::{COLOURS, FURTHER, INK, PALE, font};

/// Size of the figure in SVG units.
const SIZE: (u32, u32) = (1600, 900);
/// Width of the part with the legend.
const SIDE: u32 = 480;
const HEAD: i32 = 90;
const LINE: i32 = 34;

/// What an axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AxisOf<'a> {
    /// Name and unit.
    pub name: &'a str,
    /// Powers of ten at even distances; what is not above zero is left out.
    pub is_logarithmic: bool,
}

/// A point with the range that its runs span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RangedPoint {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Least and most of the runs.
    pub range: Option<(f64, f64)>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// From point to point.
    Line,
    /// Published or computed, not run here: dashed, with open marks.
    Reference,
    /// Its points have no place to the right: each is a line across the figure, without marks.
    Level,
}

/// One contender.
#[derive(Debug, Clone)]
pub struct RangedCurve {
    /// Its line in the legend.
    pub label: String,
    /// In order of `x`.
    pub points: Vec<RangedPoint>,
    /// How it is drawn.
    pub style: Style,
}

/// Everything in the figure.
#[derive(Debug, Clone)]
pub struct CurvesFigure<'a> {
    /// What was done.
    pub title: &'a str,
    /// Under which conditions.
    pub subtitle: &'a str,
    /// To the right.
    pub x: AxisOf<'a>,
    /// Upwards.
    pub y: AxisOf<'a>,
    /// The contenders; at most nine have colours of their own.
    pub curves: Vec<RangedCurve>,
    /// Marks at the points: for values, not for courses.
    pub has_marks: bool,
}

impl AxisOf<'_> {
    /// Where a value lies; none where it has no place.
    fn place(&self, value: f64) -> Option<f64> {
        match self.is_logarithmic {
            true => (value > 0.0).then(|| value.log10()),
            false => value.is_finite().then_some(value),
        }
    }

    /// Both ends of the axis for these places.
    fn span(&self, places: impl Iterator<Item = f64>) -> (f64, f64) {
        let (least, most) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), place| (a.min(place), b.max(place)));
        if least > most {
            return (0.0, 1.0);
        }
        if self.is_logarithmic {
            return (least.floor(), most.ceil().max(least.floor() + 1.0));
        }
        let from = least.min(0.0);
        (from, if most > from { from + (most - from) * 1.05 } else { from + 1.0 })
    }

    fn labels(&self, (from, to): (f64, f64)) -> usize {
        if self.is_logarithmic { (to - from).round() as usize + 1 } else { 9 }
    }

    fn text(&self, place: f64) -> String {
        if !self.is_logarithmic && place != 0.0 && place.abs() < 0.001 {
            return format!("{place:.0e}");
        }
        if !self.is_logarithmic {
            let text = format!("{place:.3}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return if text == "-0" { "0".to_owned() } else { text.to_owned() };
        }
        let value = 10f64.powf(place);
        if (0.001..100_000.0).contains(&value) { format!("{}", (value * 1000.0).round() / 1000.0) } else { format!("{value:.0e}") }
    }
}

impl CurvesFigure<'_> {
    /// The figure as SVG text.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let lines = wrapped(self.subtitle, 115);
            let (head, body) = root.split_vertically(HEAD + LINE * lines.len() as i32);
            head.draw(&Text::new(self.title.to_owned(), (40, 24), font(40)))?;
            for (line, number) in lines.into_iter().zip(0..) {
                head.draw(&Text::new(line, (40, 80 + LINE * number), font(26)))?;
            }
            let (left, right) = body.split_horizontally(SIZE.0 - SIDE);
            self.chart(&left)?;
            self.legend(&right)?;
            root.present()?;
        }
        Ok(text)
    }

    fn chart(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let placed = self.curves.iter().filter(|curve| curve.style != Style::Level).flat_map(|curve| &curve.points);
        let xs = self.x.span(placed.filter_map(|point| self.x.place(point.x)));
        let ends = points().flat_map(|point| [Some(point.y), point.range.map(|r| r.0), point.range.map(|r| r.1)]).flatten();
        let ys = self.y.span(ends.filter_map(|y| self.y.place(y)));
        let mut chart = ChartBuilder::on(area)
            .margin_left(25)
            .margin_right(40)
            .margin_bottom(10)
            .margin_top(16)
            .x_label_area_size(90)
            .y_label_area_size(130)
            .build_cartesian_2d(xs.0..xs.1, ys.0..ys.1)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(PALE)
            .axis_style(ShapeStyle::from(INK).stroke_width(2))
            .x_labels(self.x.labels(xs))
            .y_labels(self.y.labels(ys))
            .x_label_formatter(&|x| self.x.text(*x))
            .y_label_formatter(&|y| self.y.text(*y))
            .label_style(font(26))
            .x_desc(self.x.name)
            .y_desc(self.y.name)
            .axis_desc_style(font(30))
            .draw()?;
        // The first contender is drawn last, on top.
        for (index, curve) in self.curves.iter().enumerate().rev() {
            let style = ShapeStyle::from(colour(index)).stroke_width(4);
            if curve.style == Style::Level {
                for y in curve.points.iter().filter_map(|point| self.y.place(point.y)) {
                    chart.draw_series(LineSeries::new([(xs.0, y), (xs.1, y)], style))?;
                }
                continue;
            }
            let place = |x: f64, y: f64| Some((self.x.place(x)?, self.y.place(y)?));
            let line: Vec<(f64, f64)> = curve.points.iter().filter_map(|point| place(point.x, point.y)).collect();
            for point in &curve.points {
                let bar = point.range.and_then(|(low, high)| Some([place(point.x, low)?, place(point.x, high)?]));
                if let Some(bar) = bar.filter(|bar| bar[0] != bar[1]) {
                    chart.draw_series(std::iter::once(PathElement::new(bar.to_vec(), style.stroke_width(2))))?;
                }
            }
            let is_reference = curve.style == Style::Reference;
            if is_reference {
                chart.draw_series(DashedLineSeries::new(line.iter().copied(), 12, 8, style))?;
            } else {
                chart.draw_series(LineSeries::new(line.iter().copied(), style))?;
            }
            if self.has_marks {
                let mark = if is_reference { style } else { colour(index).filled() };
                chart.draw_series(line.iter().map(|point| Circle::new(*point, 7, mark)))?;
            }
        }
        Ok(())
    }

    fn legend(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let style = font(26).pos(Pos::new(HPos::Left, VPos::Center));
        for (index, curve) in self.curves.iter().enumerate() {
            let y = 30 + 44 * index as i32;
            let parts: &[(i32, i32)] = if curve.style == Style::Reference { &[(6, 22), (32, 48)] } else { &[(6, 48)] };
            for &(from, to) in parts {
                area.draw(&PathElement::new(vec![(from, y), (to, y)], ShapeStyle::from(colour(index)).stroke_width(6)))?;
            }
            area.draw(&Text::new(curve.label.clone(), (62, y), style.clone()))?;
        }
        Ok(())
    }
}

fn colour(index: usize) -> RGBColor {
    let all = COLOURS.len() + FURTHER.len();
    let index = index % all;
    if index < COLOURS.len() { COLOURS[index] } else { FURTHER[index - COLOURS.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure<'a>(points: &[(f64, f64)], is_logarithmic: bool) -> CurvesFigure<'a> {
        let points = points.iter().map(|&(x, y)| RangedPoint { x, y, range: Some((y * 0.9, y * 1.1)) }).collect();
        CurvesFigure {
            title: "Ten megabytes",
            subtitle: "over a link",
            x: AxisOf { name: "bit error rate", is_logarithmic },
            y: AxisOf { name: "goodput (Mbit/s)", is_logarithmic },
            curves: vec![RangedCurve { label: "model".to_owned(), points, style: Style::Line }],
            has_marks: true,
        }
    }

    #[test]
    fn axes_are_named_and_logarithmic_ones_have_powers_of_ten() {
        let svg = figure(&[(1e-8, 90.0), (1e-5, 0.2)], true).svg().unwrap();
        for text in ["Ten megabytes", "bit error rate", "goodput (Mbit/s)", "model", "1e-8", "0.1", "100"] {
            assert!(svg.lines().any(|line| line.trim() == text), "{text}");
        }
        assert_eq!(svg, figure(&[(1e-8, 90.0), (1e-5, 0.2)], true).svg().unwrap());
    }

    #[test]
    fn what_has_no_place_on_an_axis_is_left_out() {
        // One of three has a place on both axes; a circle is its mark.
        let svg = figure(&[(0.0, 1.0), (1e-3, 0.0), (1e-2, 2.0)], true).svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        assert!(!figure(&[], false).svg().unwrap().contains("<circle"));
        let axis = AxisOf { name: "", is_logarithmic: false };
        assert_eq!((axis.place(f64::NAN), axis.text(0.5), axis.text(0.0)), (None, "0.5".to_owned(), "0".to_owned()));
    }

    #[test]
    fn a_level_line_crosses_the_figure_and_has_no_part_in_the_axis_to_the_right() {
        let points = [(10.0, 1.0), (20.0, 2.0)];
        let mut leveled = figure(&points, false);
        let point = RangedPoint { x: 1e6, y: 1.5, range: None };
        leveled.curves.push(RangedCurve { label: "level".to_owned(), points: vec![point], style: Style::Level });
        let (without, with) = (figure(&points, false).svg().unwrap(), leveled.svg().unwrap());
        assert_eq!(with.matches("<circle").count(), without.matches("<circle").count());
        assert!(with.lines().any(|line| line.trim() == "level") && !with.contains("1000000"), "{with}");
        let ys = |svg: &str| svg.matches("<polyline").count() + svg.matches("<line").count();
        assert!(ys(&with) > ys(&without), "{with}");
    }
}
