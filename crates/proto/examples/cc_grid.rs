//! Congestion control alone on a virtual bottleneck: a grid of rate x delay x loss, or the story of one link.
//!
//! `cargo run --release -p noctule-proto --example cc_grid -- grid|scenes|noise|bursts`, `… alone [CC]` (without loss and with 1 %), `… compete CC [SEEDS]` (model beside it), `… crowd|lossy|fair|unresponsive [SEEDS]`, or `… story MBIT DELAY_MS LOSS% [FLOWS] [SECONDS] [QUEUE_BDP] [POLICER_MS]`.

#[path = "../tests/bottleneck/mod.rs"]
mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link, Load, alone, beside_a_stream, jain, rates};
use noctule_proto::congestion::CongestionControl;
use noctule_proto::units::{Bandwidth, Duration, Time};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| args.get(i).and_then(|a| a.parse::<f64>().ok()).unwrap_or(default);
    match args.first().map(String::as_str) {
        Some("story") => story(
            number(1, 100.0),
            number(2, 10.0) as u64,
            number(3, 0.0) / 100.0,
            number(4, 1.0) as usize,
            number(5, 10.0),
            number(6, 1.0),
            number(7, 0.0),
        ),
        Some("scenes") => scenes(),
        Some("compete") => {
            let cells = if args.iter().any(|a| a == "other") { &OTHER } else { &ASKED };
            compete(named(args.get(1)).unwrap_or(CongestionControl::Cubic), number(2, 2.0) as u64, cells);
        }
        Some("alone") => {
            let all = CongestionControl::NAMED.into_iter().filter(|c| *c != CongestionControl::None).collect();
            alone_of_each(named(args.get(1)).map_or(all, |c| vec![c]));
        }
        Some("noise") => noise(),
        Some("bursts") => bursts(),
        Some("long") => long(number(1, 60.0) as u64),
        Some("crowd") => crowd(number(1, 2.0) as u64),
        Some("fair") => fair(number(1, 3.0) as u64),
        Some("unresponsive") => unresponsive(number(1, 1.0) as u64),
        Some("lossy") => lossy(number(1, 2.0) as u64),
        _ => grid(number(1, 0.3), &[10.0, 100.0, 1000.0], args.get(2).map(|s| s.parse().expect("queue in BDP")).unwrap_or(1.0)),
    }
}

fn grid(scale: f64, rates: &[f64], queue: f64) {
    for &mbit in rates {
        println!("{mbit} Mbit/s: share of C(1-p) / queue p95 ms");
        for delay in [1, 10, 50, 100] {
            print!("{delay:4} ms ");
            for loss in [0.0, 0.02, 0.05, 0.1, 0.2] {
                let r = alone(&Link::new(mbit, delay, loss).queue_bdp(queue), CongestionControl::Model, 1, scale);
                print!("  {:5.1}% {:6.2}", r.share * 100.0, r.queue_p95_ms);
            }
            println!();
        }
    }
}

fn story(mbit: f64, delay: u64, loss: f64, flows: usize, seconds: f64, queue: f64, policer_ms: f64) {
    let mut link = Link::new(mbit, delay, loss).queue_bdp(queue);
    link.hold_back = Duration::from_secs_f64(std::env::var("NOCTULE_HOLD_MS").map_or(0.0, |ms| ms.parse().expect("a number")) / 1e3);
    link.burst = std::env::var("NOCTULE_BURST").map_or(1.0, |packets| packets.parse().expect("a number"));
    link.policer = (policer_ms > 0.0).then(|| (link.capacity() * policer_ms / 1e3) as u64);
    // NOCTULE_CC=name instead of `model`.
    let control = named(std::env::var("NOCTULE_CC").ok().as_ref()).unwrap_or_default();
    let rival = named(std::env::var("NOCTULE_RIVAL").ok().as_ref());
    // NOCTULE_RIVAL=name comes 2 s later, or was there 2 s before with NOCTULE_LATE.
    let late = if std::env::var_os("NOCTULE_LATE").is_some() { 2000 } else { 0 };
    // NOCTULE_TIMES=n: every other flow has n times the RTT.
    let times: u64 = std::env::var("NOCTULE_TIMES").map_or(1, |n| n.parse().expect("a number"));
    let extra = |i: usize| Duration::from_millis(if i % 2 == 1 { delay * (times - 1) } else { 0 });
    let mut specs: Vec<FlowSpec> =
        (0..flows).map(|i| FlowSpec { extra_delay: extra(i), ..FlowSpec::bulk(control).at(late + i as u64 * 5000) }).collect();
    if let Some(rival) = rival {
        // NOCTULE_GONE=ms: when it leaves.
        let stop = std::env::var("NOCTULE_GONE").map_or(Time::MAX, |ms| Time::from_millis(ms.parse().expect("a number")));
        specs.push(FlowSpec { stop, ..FlowSpec::bulk(rival).at(2000 - late) });
    }
    let seed = std::env::var("NOCTULE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut b = Bottleneck::new(link, specs, seed);
    // NOCTULE_AT=ms:mbit:delay_ms:loss% changes the link in mid-run.
    for change in std::env::var("NOCTULE_AT").unwrap_or_default().split_whitespace() {
        let f: Vec<f64> = change.split(':').map(|v| v.parse().expect("a number")).collect();
        b.at(f[0] as u64, move |l| {
            l.mbit = f[1];
            l.delay = Duration::from_secs_f64(f[2] / 1e3);
            l.loss_after = f[3] / 100.0;
        });
    }
    b.record_every = Duration::from_secs_f64((delay as f64 / 500.0).max(seconds / 400.0));
    b.run_until(Time::ZERO + Duration::from_secs_f64(seconds));
    let records = std::mem::take(&mut b.records);
    for pair in records.windows(2) {
        let dt = (pair[1].at - pair[0].at).as_secs_f64();
        print!("{:7.3} q {:6.2}ms", pair[1].at.as_secs_f64(), pair[1].queue.as_secs_f64() * 1e3);
        for (a, c) in pair[0].flows.iter().zip(&pair[1].flows) {
            let got = (c.0 - a.0) as f64 * 8e-6 / dt;
            print!(
                " | {got:7.1} pace {:7.1} cap {:7.1} win {:6} p0 {:.3} {:9} min {:6.2}",
                c.1.pacing_rate.mbit(),
                c.1.capacity.mbit(),
                c.1.cwnd / 1472,
                c.1.base_loss,
                c.1.state,
                c.3.as_secs_f64() * 1e3
            );
        }
        println!();
    }
    println!("{:?}", b.path(0).stats());
}

/// Long bursts of loss: seeds that stay below 85 % of the share, and which.
fn long(seeds: u64) {
    for (delay, loss, burst) in [(50, 0.2, 10.0), (10, 0.2, 30.0), (50, 0.1, 30.0), (10, 0.1, 30.0)] {
        let mut link = Link::new(100.0, delay, loss);
        link.burst = burst;
        let shares: Vec<f64> = (1..=seeds).map(|seed| alone(&link, CongestionControl::Model, seed, 0.1).share).collect();
        let slow: Vec<String> = shares.iter().enumerate().filter(|(_, s)| **s < 0.85).map(|(i, s)| format!("{}:{s:.2}", i + 1)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!(
            "bursts of {burst}, {delay} ms, {loss}: {} of {seeds} below 85 %, mean {:.1} %  {}",
            slow.len(),
            mean * 100.0,
            slow.join(" ")
        );
    }
}

fn scenes() {
    let model = CongestionControl::Model;
    let show = |name: &str, link: Link| {
        let r = alone(&link, model, 3, 1.0);
        println!(
            "{name:40} share {:5.1}%  queue p95 {:6.2} ms  spurious {:.4}  reverse {:.4}",
            r.share * 100.0,
            r.queue_p95_ms,
            r.spurious,
            r.reverse
        );
    };
    show("queue 0.1 BDP, 10 ms, 0 %", Link::new(100.0, 10, 0.0).queue_bdp(0.1));
    show("queue 0.1 BDP, 50 ms, 5 %", Link::new(100.0, 50, 0.05).queue_bdp(0.1));
    show("queue 0.1 BDP, 50 ms, 20 %", Link::new(100.0, 50, 0.2).queue_bdp(0.1));
    for (delay, loss) in [(10, 0.0), (10, 0.1), (50, 0.0), (50, 0.05)] {
        let mut link = Link::new(100.0, delay, loss);
        link.policer = Some((link.capacity() * 0.011) as u64);
        show(&format!("policer 11 ms, {delay} ms, {loss}"), link);
    }
    for loss in [0.05, 0.2] {
        let mut link = Link::new(100.0, 25, 0.0);
        link.loss_before = loss;
        show(&format!("loss before, 25 ms, {loss}"), link);
    }
    for (delay, jitter) in [(5, 1), (5, 10), (50, 10)] {
        for loss in [0.0, 0.05] {
            let mut link = Link::new(100.0, delay, loss);
            link.jitter = Duration::from_millis(jitter);
            show(&format!("jitter {jitter} ms, {delay} ms, {loss}"), link);
        }
    }
    for (burst, delay) in [(8.0, 25), (10.0, 50), (30.0, 10)] {
        for loss in [0.02, 0.05, 0.1, 0.2] {
            let mut link = Link::new(100.0, delay, loss);
            link.burst = burst;
            show(&format!("bursts of {burst}, {delay} ms, {loss}"), link);
        }
    }
    let mut link = Link::new(100.0, 25, 0.05);
    link.ack_loss = 0.3;
    show("ACK loss 30 %, 25 ms, 5 %", link);
    show("2 Mbit/s, 50 ms, 5 %", Link::new(2.0, 50, 0.05));
    show("2 Mbit/s, 300 ms, 5 %", Link::new(2.0, 300, 0.05));
    show("10 Mbit/s, 300 ms, 5 %", Link::new(10.0, 300, 0.05));
    let mut link = Link::new(100.0, 10, 0.0);
    link.mark_above = Some(12_500);
    show("CE above 1 ms", link);
    // Steps.
    for (name, loss) in [("rate 100-20-100, 25 ms, 0 %", 0.0), ("rate 100-20-100, 25 ms, 5 %", 0.05)] {
        let mut b = Bottleneck::new(Link::new(100.0, 25, loss), vec![FlowSpec::bulk(model)], 5);
        b.at(6000, |l| l.mbit = 20.0);
        b.at(12000, |l| l.mbit = 100.0);
        let down = rates(&mut b, 1, 6600, 7600)[0];
        let queue = b.queue_ms(0.95);
        let up = rates(&mut b, 1, 13000, 13500)[0];
        println!("{name:40} after 12 RTT {down:.1} queue {queue:.1} ms; 20 RTT after the rise {up:.1}");
    }
    let mut b = Bottleneck::new(Link::new(100.0, 10, 0.0), vec![FlowSpec::bulk(model)], 5);
    b.at(6000, |l| l.delay = Duration::from_millis(60));
    b.at(14000, |l| l.delay = Duration::from_millis(10));
    println!(
        "delay 10-60-10 ms: {:?} {:?} {:?}",
        rates(&mut b, 1, 6000, 8000),
        rates(&mut b, 1, 8500, 13500),
        rates(&mut b, 1, 14500, 16000)
    );
    let mut b = Bottleneck::new(Link::new(100.0, 25, 0.0), vec![FlowSpec::bulk(model)], 5);
    b.at(6000, |l| l.loss_after = 0.2);
    b.at(12000, |l| l.loss_after = 0.0);
    println!("loss 0-20-0 %: {:?} {:?} {:?}", rates(&mut b, 1, 6000, 7000), rates(&mut b, 1, 7000, 11000), rates(&mut b, 1, 12000, 14000));
    for flows in [2, 4, 8] {
        for (delay, loss) in [(10, 0.0), (50, 0.02)] {
            let specs = (0..flows).map(|i| FlowSpec::bulk(model).at(i as u64 * 5000)).collect();
            let mut b = Bottleneck::new(Link::new(100.0, delay, loss), specs, 5);
            let end = flows as u64 * 5000 + 20_000;
            let r = rates(&mut b, flows, end - 15_000, end);
            println!(
                "{flows} flows, {delay} ms, {loss}: Jain {:.4} sum {:.1} queue {:.1}",
                jain(&r),
                r.iter().sum::<f64>(),
                b.queue_ms(0.95)
            );
        }
    }
}

/// Delay that varies and is no queue: packets held back in order, both ways.
fn noise() {
    for (mbit, delay, hold) in [
        (30.0, 20, 20.0),
        (20.0, 30, 40.0),
        (20.0, 30, 80.0),
        (100.0, 25, 4.0),
        (100.0, 2, 4.0),
        (100.0, 10, 20.0),
        (5.0, 50, 40.0),
        (500.0, 1, 3.0),
    ] {
        for loss in [0.0, 0.05] {
            let mut link = Link::new(mbit, delay, loss);
            link.hold_back = Duration::from_secs_f64(hold / 1e3);
            let r = alone(&link, CongestionControl::Model, 3, 0.3);
            print!("{mbit} Mbit/s, {delay} ms, 0..{hold} ms, {loss}: share {:5.1}%  queue p95 {:6.2} ms", r.share * 100.0, r.queue_p95_ms);
            let specs = (0..2).map(|i| FlowSpec::bulk(CongestionControl::Model).at(i as u64 * 5000)).collect();
            let mut b = Bottleneck::new(link.clone(), specs, 5);
            let two = rates(&mut b, 2, 15_000, 25_000);
            let specs = vec![FlowSpec::bulk(CongestionControl::Model), FlowSpec::bulk(CongestionControl::Cubic).at(2000)];
            let mut b = Bottleneck::new(link, specs, 5);
            let r = rates(&mut b, 2, 10_000, 20_000);
            println!("  two {two:.1?}  beside cubic {:4.1}% of {:.1}", 100.0 * r[0] / (r[0] + r[1]), r[0] + r[1]);
        }
    }
}

fn named(text: Option<&String>) -> Option<CongestionControl> {
    text.map(|t| CongestionControl::from_name(t).unwrap_or_else(|| panic!("{t}: not one of {}", CongestionControl::names())))
}

/// Each control alone: share of C(1-p) and queue with a queue of 1 BDP.
fn alone_of_each(controls: Vec<CongestionControl>) {
    for control in controls {
        for (mbit, delay) in [(20.0, 40), (100.0, 10), (100.0, 40)] {
            for loss in [0.0, 0.01] {
                let r = alone(&Link::new(mbit, delay, loss), control, 5, 1.0);
                let (name, rtt) = (control.name(), delay * 2);
                println!(
                    "{name:6} {mbit} Mbit/s RTT {rtt} ms loss {loss}: share {:5.1}%  queue p95 {:6.2} ms",
                    r.share * 100.0,
                    r.queue_p95_ms
                );
            }
        }
    }
}

/// `model` beside another control that starts 2 s later, or 2 s earlier with `is_late`: its share in % over the seeds.
fn compete(other: CongestionControl, seeds: u64, cells: &Cells) {
    for &mbit in cells.mbit {
        for &delay in cells.delay {
            print!("{mbit} Mbit/s RTT {} ms:", delay * 2);
            for &queue in cells.queue {
                let mut shares: Vec<f64> = Vec::new();
                for seed in 1..=seeds {
                    // Odd seeds: the other comes later; even ones: it was there before.
                    let (ours, theirs) = if seed % 2 == 1 { (0, 2000) } else { (2000, 0) };
                    let specs = vec![FlowSpec::bulk(CongestionControl::Model).at(ours), FlowSpec::bulk(other).at(theirs)];
                    let mut b = Bottleneck::new(Link::new(mbit, delay, 0.0).queue_bdp(queue), specs, seed);
                    let r = rates(&mut b, 2, 10_000, 60_000);
                    shares.push(100.0 * r[0] / (r[0] + r[1]));
                }
                let mean = shares.iter().sum::<f64>() / shares.len() as f64;
                let (low, high) = shares.iter().fold((100.0f64, 0.0f64), |(l, h), s| (l.min(*s), h.max(*s)));
                print!("  {queue}: {mean:4.1} ({low:4.1}-{high:4.1})");
            }
            println!();
        }
    }
}

/// Eight flows of TCP that fill the queue, and one of `model`: what it gets of what each would get of equal shares.
fn crowd(seeds: u64) {
    for (mbit, delay) in [(20.0, 40), (100.0, 10), (100.0, 40)] {
        for queue in [1.0, 2.0] {
            print!("{mbit} Mbit/s RTT {} ms queue {queue} BDP, 8 cubic: model has", delay * 2);
            for seed in 1..=seeds {
                let mut specs = vec![FlowSpec::bulk(CongestionControl::Model).at(if seed % 2 == 1 { 0 } else { 10_000 })];
                specs.extend((0..8).map(|i| FlowSpec::bulk(CongestionControl::Cubic).at(1000 + i * 300)));
                let mut b = Bottleneck::new(Link::new(mbit, delay, 0.0).queue_bdp(queue), specs, seed);
                let r = rates(&mut b, 9, 20_000, 60_000);
                print!(" {:.2}", 9.0 * r[0] / r.iter().sum::<f64>());
            }
            println!(" of an equal share");
        }
    }
}

/// Flows of `model` that start 5 s apart, of one RTT or of RTTs of 1:4: Jain's index over 15 s, 20 s after the last has come.
fn fair(seeds: u64) {
    for flows in [2, 4, 8] {
        for (delay, loss, times) in [(10, 0.0, 1), (10, 0.02, 1), (50, 0.0, 1), (50, 0.02, 1), (5, 0.0, 4), (20, 0.0, 4)] {
            print!(
                "{flows} flows, 100 Mbit/s, RTT {} ms{}, loss {loss}: Jain",
                2 * delay,
                if times > 1 { " and four times that" } else { "" }
            );
            for seed in 1..=seeds {
                let specs = (0..flows)
                    .map(|i| {
                        let extra_delay = Duration::from_millis(if i % 2 == 1 { delay * (times - 1) } else { 0 });
                        FlowSpec { extra_delay, ..FlowSpec::bulk(CongestionControl::Model).at(i as u64 * 5000) }
                    })
                    .collect();
                let mut b = Bottleneck::new(Link::new(100.0, delay, loss), specs, seed);
                let end = flows as u64 * 5000 + 30_000;
                let r = rates(&mut b, flows, end - 15_000, end);
                print!(" {:.3} (sum {:.1}, queue {:.1} ms)", jain(&r), r.iter().sum::<f64>(), b.queue_ms(0.95));
            }
            println!();
        }
    }
}

/// Beside a stream of a fixed rate that does not back off, at 100 Mbit/s with a queue of 1 BDP: what `model` has in Mbit/s, what of the stream arrives, what
/// `model` loses, and its highest rate from 5 s after the second has come on.
fn unresponsive(seeds: u64) {
    for (delay, loss) in [(5, 0.0), (5, 0.02), (40, 0.0), (40, 0.02)] {
        for (ours, theirs) in [(0, 5000), (5000, 0)] {
            println!("RTT {} ms, loss {loss}, the stream comes {}:", 2 * delay, if ours == 0 { "later" } else { "first" });
            for rate in [50.0, 80.0, 95.0, 105.0, 130.0, 300.0] {
                print!("  {rate:5.0} Mbit/s:");
                for seed in 1..=seeds {
                    let r = beside_a_stream(&Link::new(100.0, delay, loss), Bandwidth::from_mbit(rate), (ours, theirs), 40, seed);
                    print!("  {:5.1} and {:5.1}, lost {:5.3}, top {:6.1}", r.ours, r.theirs, r.lost, r.highest);
                }
                println!();
            }
        }
    }
}

/// TCP at 1 % of random loss, alone and beside `model`: what it keeps of what it reaches alone, at most half of the link.
fn lossy(seeds: u64) {
    for control in [CongestionControl::Cubic, CongestionControl::Reno, CongestionControl::Bbr] {
        for (mbit, delay) in [(20.0, 10), (20.0, 40), (100.0, 10), (100.0, 40)] {
            let link = Link::new(mbit, delay, 0.01);
            print!("{mbit} Mbit/s RTT {} ms, 1 % loss, {}:", delay * 2, control.name());
            for seed in 1..=seeds {
                let mut b = Bottleneck::new(link.clone(), vec![FlowSpec::bulk(control)], seed);
                let alone = rates(&mut b, 1, 10_000, 60_000)[0];
                let specs = vec![FlowSpec::bulk(CongestionControl::Model), FlowSpec::bulk(control).at(2000)];
                let mut b = Bottleneck::new(link.clone(), specs, seed);
                let r = rates(&mut b, 2, 10_000, 60_000);
                print!("  {:.1} of {alone:.1} ({:.0} %), model {:.1}", r[1], 100.0 * r[1] / alone.min(mbit / 2.0), r[0]);
            }
            println!();
        }
    }
}

/// Blocks of so many packets every 50 ms: how long one takes to leave, median and 95th percentile, in the first second and later.
fn bursts() {
    for (mbit, delay) in [(10_000.0, 5), (1000.0, 5), (100.0, 5), (100.0, 25)] {
        for (loss, packets) in [(0.0, 70), (0.06, 70), (0.06, 20)] {
            let mut spec = FlowSpec::bulk(CongestionControl::Model);
            spec.load = Load::Bursts(packets, Duration::from_millis(50));
            let mut b = Bottleneck::new(Link::new(mbit, delay, loss), vec![spec], 5);
            print!("{mbit} Mbit/s, RTT {} ms, {loss}, {packets} packets:", 2 * delay);
            for until in [1000, 5000, 20_000] {
                b.run_until(Time::from_millis(until));
                let mut took = b.take_bursts(0);
                took.sort_unstable();
                let at = |q: f64| took.get(((took.len() as f64 - 1.0) * q) as usize).map_or(f64::NAN, |d| d.as_secs_f64() * 1e3);
                let c = b.path(0).stats().control;
                print!("  until {} s {:.1} {:.1} ms {} {:.0} Mbit/s", until / 1000, at(0.5), at(0.95), c.state, c.pacing_rate.mbit());
            }
            println!("  queue p95 {:.1} ms", b.queue_ms(0.95));
        }
    }
}

/// Conditions of a grid: rates, one-way delays in ms, queues in bandwidth-delay products.
struct Cells {
    mbit: &'static [f64],
    delay: &'static [u64],
    queue: &'static [f64],
}

/// The cells that were asked for, and others.
const ASKED: Cells = Cells { mbit: &[20.0, 100.0], delay: &[10, 40], queue: &[0.5, 1.0, 2.0, 4.0] };
const OTHER: Cells = Cells { mbit: &[10.0, 50.0, 300.0], delay: &[5, 20, 60], queue: &[0.7, 1.5, 3.0] };
