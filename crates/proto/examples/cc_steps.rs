//! `model` through steps of rate, delay and loss, as numbers and as one SVG per step: received rate above, queue at the bottleneck below.
//!
//! `cargo run --release -p noctule-proto --example cc_steps -- DIRECTORY [SEEDS]`: seeds 1 to SEEDS (3).

#[path = "../tests/bottleneck/mod.rs"]
mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link};
use noctule_proto::congestion::CongestionControl;
use noctule_proto::units::{Duration, Time};
use std::fmt::Write;

/// A change of the link, and the link as it is from then on.
struct Step {
    at_ms: u64,
    mbit: f64,
    delay_ms: u64,
    loss: f64,
}

/// One moment of a run: seconds, Mbit/s received since the moment before, ms of queue.
type Moment = (f64, f64, f64);

fn main() {
    let directory = std::env::args().nth(1).expect("a directory for the figures: cc_steps DIRECTORY [SEEDS]");
    let seeds: u64 = std::env::args()
        .nth(2)
        .map_or(3, |n| n.parse().unwrap_or_else(|_| panic!("{n} is no number of seeds: cc_steps DIRECTORY [SEEDS]")));
    std::fs::create_dir_all(&directory).unwrap_or_else(|e| panic!("{directory}: {e}"));
    let step = |at_ms, mbit, delay_ms, loss| Step { at_ms, mbit, delay_ms, loss };
    let stories = [
        ("rate", "100, 20, 100 Mbit/s at RTT 40 ms", [step(0, 100.0, 20, 0.0), step(8000, 20.0, 20, 0.0), step(16_000, 100.0, 20, 0.0)]),
        (
            "delay",
            "20, 120, 20 ms one way at 100 Mbit/s",
            [step(0, 100.0, 20, 0.0), step(8000, 100.0, 120, 0.0), step(16_000, 100.0, 20, 0.0)],
        ),
        (
            "loss",
            "0, 20, 0 % loss at 100 Mbit/s, RTT 40 ms",
            [step(0, 100.0, 20, 0.0), step(8000, 100.0, 20, 0.2), step(16_000, 100.0, 20, 0.0)],
        ),
    ];
    for (name, title, steps) in stories {
        for seed in 1..=seeds {
            let moments = run(&steps, seed);
            println!("{title}, seed {seed}{}", judged(&moments, &steps));
            if seed == 1 {
                let file = format!("{directory}/step-{name}.svg");
                std::fs::write(&file, drawn(title, &moments, &steps)).unwrap_or_else(|e| panic!("{file}: {e}"));
            }
        }
    }
}

const END_MS: u64 = 24_000;

fn run(steps: &[Step], seed: u64) -> Vec<Moment> {
    let first = &steps[0];
    let mut b = Bottleneck::new(Link::new(first.mbit, first.delay_ms, first.loss), vec![FlowSpec::bulk(CongestionControl::Model)], seed);
    for &Step { at_ms, mbit, delay_ms, loss } in &steps[1..] {
        b.at(at_ms, move |l| (l.mbit, l.delay, l.loss_after) = (mbit, Duration::from_millis(delay_ms), loss));
    }
    b.record_every = Duration::from_millis(20);
    b.run_until(Time::from_millis(END_MS));
    let rate = |a: u64, c: u64, dt: f64| (c - a) as f64 * 8e-6 / dt;
    b.records
        .windows(2)
        .map(|w| {
            let dt = w[1].at.since(w[0].at).as_secs_f64();
            (w[1].at.as_secs_f64(), rate(w[0].flows[0].0, w[1].flows[0].0, dt), w[1].queue.as_secs_f64() * 1e3)
        })
        .collect()
}

/// What is left of the limit by loss.
fn limit(step: &Step) -> f64 {
    step.mbit * (1.0 - step.loss)
}

fn judged(moments: &[Moment], steps: &[Step]) -> String {
    let mut text = String::new();
    for (before, step) in steps.iter().zip(&steps[1..]) {
        let (at, rtt) = (step.at_ms as f64 / 1e3, 2.0 * step.delay_ms as f64 / 1e3);
        // Means over five RTT, as a moment is shorter than an RTT.
        let mean = |from: f64| {
            let span: Vec<f64> = moments.iter().filter(|m| m.0 >= from && m.0 < from + 5.0 * rtt).map(|m| m.1).collect();
            span.iter().sum::<f64>() / span.len() as f64
        };
        let p95 = |from: f64| {
            let mut queue: Vec<f64> = moments.iter().filter(|m| m.0 >= from && m.0 < from + 10.0 * rtt).map(|m| m.2).collect();
            queue.sort_by(f64::total_cmp);
            queue.get(queue.len().saturating_sub(1) * 95 / 100).copied().unwrap_or(f64::NAN)
        };
        let reached = moments.iter().map(|m| m.0).find(|&t| t >= at && mean(t) >= 0.9 * limit(step)).map_or(f64::NAN, |t| (t - at) / rtt);
        let _ = write!(
            text,
            "; at {at:.0} s 90 % of {:.0} Mbit/s from {reached:.0} RTT on, {:.1} Mbit/s after 20",
            limit(step),
            mean(at + 20.0 * rtt)
        );
        if step.mbit < before.mbit {
            // What was in flight at the old rate has left the queue when less than two packets and a millisecond stand there.
            let empty = 1.0 + 24.0 / step.mbit;
            let drained = moments.iter().find(|m| m.0 > at + rtt && m.2 < empty).map_or(f64::NAN, |m| m.0);
            let _ =
                write!(text, ", old flight drained after {:.1} RTT, then queue p95 {:.1} ms in 10 RTT", (drained - at) / rtt, p95(drained));
        } else {
            let _ = write!(text, ", queue p95 {:.1} ms in 10 RTT", p95(at));
        }
    }
    text
}

fn drawn(title: &str, moments: &[Moment], steps: &[Step]) -> String {
    const WIDTH: f64 = 860.0;
    const PLOT: f64 = 780.0;
    const HEIGHT: f64 = 150.0;
    let x = |t: f64| 60.0 + t / (END_MS as f64 / 1e3) * PLOT;
    let most_rate = 120.0;
    let most_queue = moments.iter().map(|m| m.2).fold(10.0, f64::max);
    let y = |top: f64, value: f64, most: f64| top + HEIGHT * (1.0 - (value / most).min(1.0));
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 420\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"60\" y=\"22\" font-size=\"14\">{title}</text>\n"
    );
    for (top, label, most) in [(40.0, "Mbit/s", most_rate), (230.0, "queue, ms", most_queue)] {
        let _ = writeln!(s, "<rect x=\"60\" y=\"{top}\" width=\"{PLOT}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>");
        let _ = writeln!(s, "<text x=\"64\" y=\"{}\">{label}</text>", top + 14.0);
        for value in [0.0, most / 2.0, most] {
            let _ = writeln!(s, "<text x=\"54\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>", y(top, value, most) + 4.0);
        }
    }
    for second in (0..=END_MS / 1000).step_by(4) {
        let _ = writeln!(s, "<text x=\"{:.1}\" y=\"396\" text-anchor=\"middle\">{second} s</text>", x(second as f64));
    }
    let line = |values: Vec<(f64, f64)>, colour: &str, dash: &str| {
        let points: Vec<String> = values.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!("<polyline fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>\n", points.join(" "))
    };
    let mut limits = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let end = steps.get(i + 1).map_or(END_MS, |next| next.at_ms);
        limits.extend([step.at_ms, end].map(|ms| (x(ms as f64 / 1e3), y(40.0, limit(step), most_rate))));
    }
    s.push_str(&line(limits, "#c33", "5 3"));
    s.push_str(&line(moments.iter().map(|m| (x(m.0), y(40.0, m.1, most_rate))).collect(), "#246", "none"));
    s.push_str(&line(moments.iter().map(|m| (x(m.0), y(230.0, m.2, most_queue))).collect(), "#284", "none"));
    s.push_str("</svg>\n");
    s
}
