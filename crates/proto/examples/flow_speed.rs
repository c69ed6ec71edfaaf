//! How long sender and receiver of a flow take per source packet, with 17,000 packets in flight: `cargo run --release --example flow_speed`.
//!
//! Combinations are made and decoded; sealing, packets and paths are not included. CPU time as Linux counts it.
//! One line per loss rate, median of five rounds.

use bytes::Bytes;
use noctule_proto::flow::{FlowControlFrame, Receiver, ReceiverConfig, SendContext, Sender, SenderConfig, Stage, Symbol};
use noctule_proto::ids::FlowLabel;
use noctule_proto::options::{Class, Mode};
use noctule_proto::redundancy::LossEstimate;
use noctule_proto::sent::SentItem;
use noctule_proto::units::{Duration, Probability, Time};
use noctule_proto::wire::frame::Coded;
use std::collections::VecDeque;

const SYMBOL: usize = 1400;
const IN_FLIGHT: usize = 17_000;

fn round(loss: f64, packets: u64) -> (f64, f64) {
    let (label, memory, symbol) = (FlowLabel(1), 256 << 20, SYMBOL as u16);
    let mut sender = Sender::new(SenderConfig {
        label,
        batch_size: 16,
        symbol,
        class: Class::Bulk,
        mode: Mode::Brtp,
        waits_in_order: false,
        no_retransmit: Probability::new(0.999),
        memory,
        initial_credit: 100_000,
    });
    let mut receiver = Receiver::new(ReceiverConfig { label, batch_size: 16, symbol, memory, initial_credit: 100_000 });
    let mut payload = vec![7u8; SYMBOL];
    payload[..2].copy_from_slice(&(SYMBOL as u16 - 2).to_be_bytes());
    let payload = Bytes::from(payload);
    let rtt = Duration::from_millis(200);
    let context = SendContext {
        rtt,
        rtt_var: Duration::ZERO,
        min_rtt: rtt,
        loss: LossEstimate::default(),
        gap: Duration::ZERO,
        spare: false,
        idle_share: Probability::ZERO,
        heard: 1024,
        slack: false,
        uncontrolled: false,
    };
    let mut fates: VecDeque<(SentItem, bool)> = VecDeque::new();
    let (mut buffer, mut dice, mut now) = (Vec::with_capacity(2000), 88172645463325252u64, Time::from_millis(1));
    let (mut taken, mut delivered) = (0u64, 0u64);
    let mut times = (Duration::ZERO, Duration::ZERO);
    let step = rtt / IN_FLIGHT as u32;
    while delivered < packets {
        // In slices of 256 packets, so that the clock is read rarely.
        let started = cpu_time();
        let mut out = Vec::with_capacity(256);
        while out.len() < 256 {
            while sender.room() > 0 {
                sender.push(now, Symbol::whole(payload.clone()), None);
            }
            now += step;
            let next = sender.poll(now, Stage::Repair, &context, SYMBOL).or_else(|| sender.poll(now, Stage::Source, &context, SYMBOL));
            let Some(next) = next else { break };
            buffer.clear();
            sender.write_symbol(&next, &mut buffer);
            out.push((next, buffer.clone()));
        }
        times.0 += cpu_time() - started;
        let started = cpu_time();
        for (next, symbol) in out {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let arrives = (dice >> 11) as f64 / (1u64 << 53) as f64 >= loss;
            if arrives {
                receiver
                    .on_coded(now, &Coded { flow: label, base: next.base, n: next.n, coefficients: next.coefficients(), symbol: &symbol });
                while let Some((seq, _)) = receiver.poll_delivery() {
                    (delivered, taken) = (delivered + 1, taken.max(seq.0));
                }
                receiver.consume(receiver.done().0);
            }
            fates.push_back((next.item, arrives));
        }
        let report = receiver.poll_report(now, rtt);
        times.1 += cpu_time() - started;
        let started = cpu_time();
        if let Some(FlowControlFrame::Credit { limit, done, .. }) = report {
            sender.on_credit(limit, done);
        }
        while fates.len() > IN_FLIGHT {
            if let Some((item, arrived)) = fates.pop_front() {
                if arrived { sender.on_acked(now, &item) } else { sender.on_lost(now, &item) }
            }
        }
        times.0 += cpu_time() - started;
    }
    (times.0.as_nanos() as f64 / delivered as f64, times.1.as_nanos() as f64 / delivered as f64)
}

/// Time that this thread has run: other work on the machine does not count.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn main() {
    println!("loss   sender ns/packet   receiver ns/packet");
    for loss in [0.0, 0.02, 0.1, 0.2] {
        let mut rounds: Vec<_> = (0..5).map(|_| round(loss, 300_000)).collect();
        rounds.sort_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        println!("{:>4.0} %  {:>16.0}   {:>18.0}", loss * 100.0, rounds[2].0, rounds[2].1);
    }
}
