//! Draws goodput by loss from tables `rate,loss,mbit` with comments: `cargo run -p noctule-lab --example loss_figure -- TITLE SUBTITLE MBIT OUT.svg
//! LABEL=FILE.csv…`. A label that ends in `*` is a figure that others published. MBIT: the links' rate.

use noctule_lab::plot::{LossCurve, LossFigure};

fn points(file: &str) -> Result<Vec<(f64, f64)>, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("rate") && !line.is_empty());
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, loss, mbit, ..] = fields[..] else { return Err(format!("{file}: `{line}` is not rate,loss,mbit").into()) };
            Ok((loss.trim_end_matches('%').parse()?, mbit.parse()?))
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [title, subtitle, mbit, out, curves @ ..] = &words[..] else {
        return Err("TITLE SUBTITLE MBIT OUT.svg LABEL=FILE.csv…, please".into());
    };
    let rate: f64 = mbit.parse()?;
    let mut read = Vec::new();
    for curve in curves {
        let (label, file) = curve.split_once('=').ok_or_else(|| format!("{curve}: LABEL=FILE.csv, please"))?;
        read.push(LossCurve { label: label.trim_end_matches('*').to_owned(), points: points(file)?, is_published: label.ends_with('*') });
    }
    let until = read.iter().flat_map(|c| &c.points).map(|p| p.0).fold(0.0, f64::max);
    let limit = [0.0, until].map(|p| (p, rate * (1.0 - p / 100.0) * 1472.0 / 1500.0)).to_vec();
    let figure = LossFigure { title: title.clone(), subtitle: subtitle.clone(), curves: read, limit };
    std::fs::write(out, figure.svg()?)?;
    Ok(())
}
