//! Inner connections through a tunnel over lossy hops, in virtual time: `cargo run --release -p noctule-lab --example inner_tcp -- cubic 20 7,8,9 [hops rate delay loss]`.

use std::time::Duration;

use noctule_lab::link::{LinkSpec, Time};
use noctule_lab::sim::Window;
use noctule_lab::sim::tunnel::{Inner, Load, TunnelRun};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default: &str| args.get(at).cloned().unwrap_or_else(|| default.to_owned());
    let load = |text: &str| match text.split(':').collect::<Vec<_>>()[..] {
        ["cubic"] => Load::Cubic,
        ["udp", size, mbit] => {
            let (size, mbit): (usize, f64) = (size.parse().expect("bytes"), mbit.parse().expect("Mbit/s"));
            Load::Datagrams(size + 28, mbit * 1e6 / 8.0 / size as f64)
        }
        ["ping", size, rate] => Load::Pings(size.parse().expect("bytes"), rate.parse().expect("a rate")),
        _ => panic!("cubic, udp:BYTES:MBIT or ping:BYTES:RATE"),
    };
    let loads: Vec<Load> = arg(0, "cubic").split(',').map(load).collect();
    let seconds: u64 = arg(1, "20").parse().expect("seconds");
    let mut spec = LinkSpec::default();
    let hops: usize = arg(3, "3").parse().expect("hops");
    spec.set_list(&arg(4, "rate=100mbit,delay=10ms,loss=5%")).expect("a valid list");
    for seed in arg(2, "7").split(',').map(|seed| seed.parse::<u64>().expect("a seed")) {
        let window = Window { from: Time::from_millis(5000), until: Time::from_millis(seconds * 1000) };
        let mut run = TunnelRun::start(&spec, hops, &loads, window, seed).expect("a run that starts");
        let verbose = std::env::var_os("VERBOSE").is_some();
        let step: u64 = std::env::var("STEP").ok().and_then(|s| s.parse().ok()).unwrap_or(500);
        let mut last: Vec<(u64, u64, u64)> = vec![(0, 0, 0); hops];
        let mut bytes = 0;
        while run.world.now() < window.until {
            let to = run.world.now() + Duration::from_millis(step);
            run.world.run_until(to).expect("a run that goes on");
            if !verbose {
                continue;
            }
            let (near, far) = run.channel(0);
            let state = match (&near.inner, &far.inner) {
                (Inner::Sender(tcp), Inner::Receiver(reader)) => {
                    let got = reader.meter.bytes - bytes;
                    bytes = reader.meter.bytes;
                    let mut rtt = tcp.round_trips.clone();
                    rtt.sort_unstable();
                    let at = |q: usize| rtt.get(rtt.len() * q / 100).map_or(0.0, |d| d.as_secs_f64() * 1e3);
                    format!(
                        "{:5.1} Mbit/s cwnd {:5.0} rtt {:5.1}/{:5.1}/{:5.1} red {} rto {} ooo {}",
                        got as f64 * 8e-3 / step as f64,
                        tcp.window(),
                        at(5),
                        at(50),
                        at(95),
                        tcp.reductions,
                        tcp.timeouts,
                        reader.out_of_order
                    )
                }
                (Inner::Ticker(sent), Inner::Listener(heard)) => {
                    let got = heard.meter.bytes - bytes;
                    bytes = heard.meter.bytes;
                    format!("{:5.1} Mbit/s sent {} heard {}", got as f64 * 8e-3 / step as f64, sent.sent, heard.heard)
                }
                _ => String::new(),
            };
            let mut links = String::new();
            let hosts: Vec<_> = run.world.hosts().collect();
            for (hop, host) in hosts.iter().take(hops).enumerate() {
                let link =
                    *host.links.iter().max_by_key(|l| host.node.link_stats(**l).map_or(0, |s| s.paths[0].sent_bytes)).expect("a link");
                let stats = host.node.link_stats(link).expect("stats");
                let p = &stats.paths[0];
                // Relayed flows: the sender's counts are in the link's totals.
                let sent = &stats.flows.sent;
                let (s, r, pro) = (sent.source_packets, sent.repair_packets, sent.proactive_packets);
                let was = std::mem::replace(&mut last[hop], (s, r, pro));
                let per = |a: u64, b: u64| (a - b) as f64 / (s - was.0).max(1) as f64;
                links += &format!(
                    " | {} {:5.1} pace {:5.1} q {:4.1} fl {:4}k p {:.1}% rep {:.3} pro {:.3}",
                    p.control.state,
                    p.control.capacity.mbit(),
                    p.control.pacing_rate.mbit(),
                    (p.latest_rtt.saturating_sub(p.min_rtt)).as_secs_f64() * 1e3,
                    p.in_flight / 1000,
                    p.loss.get() * 100.0,
                    per(r - pro, was.1 - was.2),
                    per(pro, was.2)
                );
            }
            let relayed: Vec<String> =
                hosts[1..hops].iter().map(|h| h.node.relayed_flows().map(|f| f.waiting).max().unwrap_or(0).to_string()).collect();
            println!(
                "{:5.1}s {state} queue {} dropped {}+{}{links} wait {}",
                to.as_secs_f64(),
                near.queue.len(),
                near.queue.counts.dropped,
                near.queue.counts.overflowed,
                relayed.join(",")
            );
            let first = run.ends.0;
            if let Inner::Sender(tcp) = &mut run.world.host_mut(first).channels[0].inner {
                tcp.round_trips.clear();
            }
        }
        let counted = (window.until.since(window.from)).as_secs_f64();
        for number in 0..loads.len() {
            let (near, far) = run.channel(number);
            let counts = near.queue.counts;
            match (&near.inner, &far.inner) {
                (Inner::Sender(tcp), Inner::Receiver(reader)) => println!(
                    "seed {seed}: {:.1} Mbit/s; waited {:.1?} {:.1?} there {:.1?} {:.1?} {:.1?} back {:.1?} {:.1?}; reductions {} time-outs {} out of order {}; left slow start {:?}; dropped {}+{}",
                    reader.meter.bytes_in_window as f64 * 8e-6 / counted,
                    near.waited.mean(),
                    near.waited.quantile(0.95),
                    reader.one_way.quantile(0.05),
                    reader.one_way.mean(),
                    reader.one_way.quantile(0.95),
                    tcp.acks_took.mean(),
                    tcp.acks_took.quantile(0.95),
                    tcp.reductions,
                    tcp.timeouts,
                    reader.out_of_order,
                    tcp.left_slow_start,
                    counts.dropped,
                    counts.overflowed
                ),
                (Inner::Ticker(sent), Inner::Listener(heard)) => println!(
                    "seed {seed}: {:.1} Mbit/s; lost {} of {} ({:.2} %); one way p50 {:?} p99 {:?}; rtt mean {:?} p50 {:?} p99 {:?}; dropped {}+{}",
                    heard.meter.bytes_in_window as f64 * 8e-6 / counted,
                    sent.sent.saturating_sub(heard.heard),
                    sent.sent,
                    100.0 * (1.0 - heard.heard as f64 / sent.sent.max(1) as f64),
                    heard.one_way.quantile(0.5),
                    heard.one_way.quantile(0.99),
                    sent.rtt.mean(),
                    sent.rtt.quantile(0.5),
                    sent.rtt.quantile(0.99),
                    counts.dropped,
                    counts.overflowed
                ),
                _ => {}
            }
        }
        let sent: Vec<String> = run
            .pipes
            .iter()
            .map(|(there, _)| {
                let s = run.world.pipe_stats(*there);
                format!("{:.1} Mbit/s q {:.1?}", s.carried_bytes as f64 * 8e-6 / seconds as f64, s.queue_delay.mean())
            })
            .collect();
        println!("    links {}", sent.join(", "));
        let bytes: Vec<String> = run.pipes.iter().map(|(there, _)| format!("{:?}", run.world.pipe_stats(*there))).collect();
        if verbose {
            println!("{}", bytes.join("\n"));
        }
    }
}
