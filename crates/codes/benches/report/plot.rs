//! Line plots.

use plotters::prelude::*;
use std::path::Path;

/// One line of a plot.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Draws lines with linear y and, if wished, logarithmic x.
pub fn lines(path: &Path, title: &str, x: &str, y: &str, log_x: bool, lines: &[Line]) {
    let all = || lines.iter().flat_map(|l| l.points.iter());
    let (mut low, mut high, mut top) = (f64::INFINITY, 0.0f64, 0.0f64);
    for (x, y) in all() {
        low = low.min(*x);
        high = high.max(*x);
        top = top.max(*y);
    }
    let root = SVGBackend::new(path, (760, 440)).into_drawing_area();
    root.fill(&WHITE).expect("drawing");
    let mut builder = ChartBuilder::on(&root);
    builder.caption(title, ("sans-serif", 18)).margin(12).x_label_area_size(38).y_label_area_size(64);
    macro_rules! draw {
        ($range:expr) => {{
            let mut chart = builder.build_cartesian_2d($range, 0.0..top * 1.08).expect("drawing");
            chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).draw().expect("drawing");
            for (i, line) in lines.iter().enumerate() {
                let color = Palette99::pick(i).mix(1.0);
                let series = LineSeries::new(line.points.iter().copied(), color.stroke_width(2)).point_size(3);
                let drawn = chart.draw_series(series).expect("drawing").label(line.name.clone());
                drawn.legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
            }
            chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw().expect("drawing");
        }};
    }
    if log_x {
        draw!((low * 0.95..high * 1.05).log_scale())
    } else {
        draw!(low..high)
    }
    root.present().expect("drawing");
}
