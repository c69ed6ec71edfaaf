//! The figure of a ping: round trips over time, and their distribution.

use super::summary::{Samples, TEN};
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (1600, 760);
const HEAD: u32 = 60;
/// Okabe and Ito's palette: told apart with any colour vision.
const POINT: RGBColor = RGBColor(86, 180, 233);
const MEAN: RGBColor = RGBColor(0, 114, 178);
const LOST: RGBColor = RGBColor(213, 94, 0);
const PALE: RGBColor = RGBColor(225, 225, 225);
const INK: RGBColor = RGBColor(40, 40, 40);

/// A figure that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure: {0}")]
pub struct FigureError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for FigureError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// The figure as SVG text.
pub fn svg(title: &str, samples: &Samples) -> Result<String, FigureError> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD);
        head.draw(&Text::new(title.to_owned(), (30, 20), ("sans-serif", 30).into_font().color(&INK)))?;
        let (over_time, distribution) = body.split_horizontally(SIZE.0 * 3 / 5);
        draw_over_time(&over_time, samples)?;
        draw_distribution(&distribution, samples)?;
        root.present()?;
    }
    Ok(text)
}

fn draw_over_time(area: &DrawingArea<SVGBackend<'_>, Shift>, samples: &Samples) -> Result<(), FigureError> {
    let answers: Vec<(usize, f64)> = samples.answers().collect();
    let end = samples.all.last().map_or(1.0, |s| s.due).max(1e-3);
    let top = answers.iter().map(|(_, t)| *t).fold(0.0, f64::max).max(0.1) * 1.1;
    let mut chart = ChartBuilder::on(area).margin(20).x_label_area_size(60).y_label_area_size(90).build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(PALE)
        .x_desc("seconds; orange: no answer in time; dark: mean of ten")
        .y_desc("round trip, ms")
        .label_style(("sans-serif", 20))
        .axis_desc_style(("sans-serif", 22))
        .draw()?;
    chart.draw_series(answers.iter().map(|(i, t)| Circle::new((samples.all[*i].due, *t), 3, POINT.filled())))?;
    let lost = samples.all.iter().filter(|s| s.rtt_ms.is_none_or(|t| t > samples.wait_ms));
    chart.draw_series(lost.map(|s| PathElement::new(vec![(s.due, top * 0.97), (s.due, top)], LOST.stroke_width(3))))?;
    let middle = |first: usize| samples.all.get((first + TEN / 2).min(samples.all.len() - 1)).map_or(0.0, |s| s.due);
    let means = samples.tens();
    let means = means.iter().filter_map(|ten| ten.mean_ms.map(|m| (middle(ten.first), m)));
    chart.draw_series(LineSeries::new(means, MEAN.stroke_width(3)))?;
    Ok(())
}

/// Share of all messages, lost ones included, that were answered within a time.
fn draw_distribution(area: &DrawingArea<SVGBackend<'_>, Shift>, samples: &Samples) -> Result<(), FigureError> {
    let mut times: Vec<f64> = samples.answers().map(|(_, t)| t).collect();
    times.sort_by(f64::total_cmp);
    let from = times.first().copied().unwrap_or(0.0) * 0.98;
    let to = (times.last().copied().unwrap_or(1.0) * 1.02).max(from + 0.01);
    let mut chart = ChartBuilder::on(area).margin(20).x_label_area_size(60).y_label_area_size(90).build_cartesian_2d(from..to, 0.0..1.0)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(PALE)
        .x_desc("round trip, ms")
        .y_desc("share of messages answered within it")
        .label_style(("sans-serif", 20))
        .axis_desc_style(("sans-serif", 22))
        .draw()?;
    let all = samples.all.len().max(1) as f64;
    let mut steps = vec![(from, 0.0)];
    for (i, t) in times.iter().enumerate() {
        steps.push((*t, i as f64 / all));
        steps.push((*t, (i + 1) as f64 / all));
    }
    steps.push((to, times.len() as f64 / all));
    chart.draw_series(LineSeries::new(steps, MEAN.stroke_width(3)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::summary::Sample;
    use super::*;

    #[test]
    fn figures_are_drawn_with_and_without_answers() {
        for count in [0, 1, 50] {
            let sample = |i: u32| Sample { due: f64::from(i) * 0.1, rtt_ms: (!i.is_multiple_of(7)).then(|| 40.0 + f64::from(i)) };
            let samples = Samples { all: (0..count).map(sample).collect(), wait_ms: 1000.0 };
            let text = svg("a title", &samples).unwrap();
            assert!(text.starts_with("<svg") && text.contains("a title"), "{count}");
            assert_eq!(text.matches("<circle").count(), samples.answers().count());
        }
    }
}
