//! Line plots: ticks where measurements are, the legend in the head, where no line passes behind it.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// One line of a plot.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
    RGBColor(86, 180, 233),
];

/// Another mark for every line, so that lines which coincide still show.
fn mark<'a>(number: usize, at: (i32, i32), color: RGBColor) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    match number % 4 {
        0 => Circle::new(at, 3, color.filled()).into_dyn(),
        1 => TriangleMarker::new(at, 5, color.filled()).into_dyn(),
        2 => Cross::new(at, 4, color.stroke_width(2)).into_dyn(),
        _ => Circle::new(at, 6, color.stroke_width(1)).into_dyn(),
    }
}

/// Draws lines with linear y from 0 and, if wished, logarithmic x.
pub fn lines(path: &Path, title: &str, x: &str, y: &str, log_x: bool, lines: &[Line]) {
    let place = |x: f64| if log_x { x.log10() } else { x };
    let mut ticks: Vec<f64> = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let top = lines.iter().flat_map(|l| l.points.iter()).fold(0.0f64, |top, p| top.max(p.1));
    let (low, high) = (place(ticks[0]), place(ticks[ticks.len() - 1]));
    let margin = (high - low) * 0.02;

    let root = SVGBackend::new(path, (760, 460)).into_drawing_area();
    root.fill(&WHITE).expect("drawing");
    let font = |size: i32| ("sans-serif", size).into_font();
    root.draw(&Text::new(title.to_string(), (76, 14), font(18))).expect("drawing");
    let mut left = 76;
    for (i, line) in lines.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        root.draw(&PathElement::new([(left, 50), (left + 22, 50)], color.stroke_width(2))).expect("drawing");
        root.draw(&mark(i, (left + 11, 50), color)).expect("drawing");
        root.draw(&Text::new(line.name.clone(), (left + 28, 44), font(12))).expect("drawing");
        left += 44 + 7 * line.name.len() as i32;
    }
    let body = root.margin(64, 8, 8, 20);
    let mut builder = ChartBuilder::on(&body);
    builder.x_label_area_size(44).y_label_area_size(64);
    let mut chart = builder.build_cartesian_2d(low - margin..high + margin, 0.0..top * 1.05).expect("drawing");
    let whole = |v: &f64| if top < 5.0 { format!("{v:.1}") } else { format!("{v:.0}") };
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(0).disable_x_mesh().x_desc(x).y_desc(y).y_label_formatter(&whole).light_line_style(WHITE).draw().expect("drawing");
    // Labels that would touch the one before are left out; the line of the tick stays.
    let mut free = i32::MIN;
    for tick in ticks {
        let at = place(tick);
        chart.draw_series([PathElement::new([(at, 0.0), (at, top * 1.05)], BLACK.mix(0.12))]).expect("drawing");
        let (pixel, bottom) = chart.plotting_area().map_coordinate(&(at, 0.0));
        let text = format!("{tick}");
        let half = 4 * text.len() as i32;
        if pixel - half > free {
            let style = TextStyle::from(font(12)).pos(Pos::new(HPos::Center, VPos::Top));
            root.draw(&Text::new(text, (pixel, bottom + 8), style)).expect("drawing");
            free = pixel + half;
        }
    }
    for (i, line) in lines.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        let points: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (place(*x), *y)).collect();
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2))).expect("drawing");
        for point in &points {
            let pixel = chart.plotting_area().map_coordinate(point);
            root.draw(&mark(i, pixel, color)).expect("drawing");
        }
    }
    root.present().expect("drawing");
}
