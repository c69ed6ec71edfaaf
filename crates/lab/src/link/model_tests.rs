//! Tests of the link model: rate, delay, order, limits and changes.

use super::*;
use crate::link::{Bandwidth, Period, Trace};

fn spec(list: &str) -> LinkSpec {
    let mut spec = LinkSpec::default();
    spec.set_list(list).unwrap();
    spec
}

/// Offers packets (time in us, wire length) and returns (time of arrival in ns, index).
fn run(spec: &LinkSpec, seed: u64, packets: impl IntoIterator<Item = (u64, u32)>) -> (Vec<(u64, usize)>, LinkStats) {
    let mut link = LinkModel::new(spec, seed).unwrap();
    let mut arrivals = Vec::new();
    for (i, (at_us, wire_len)) in packets.into_iter().enumerate() {
        let now = Time::from_nanos(at_us * 1_000);
        while let Some(due) = link.next_deadline().filter(|&t| t < now) {
            while let Some(d) = link.poll_deliver(due) {
                assert_eq!(d.at, due, "a delivery was announced late");
                arrivals.push((d.at.as_nanos(), d.packet));
            }
            assert!(link.next_deadline().is_none_or(|t| t > due), "a deadline that does not move");
        }
        let _ = link.enqueue(now, wire_len, Ecn::Ect0, i);
    }
    while let Some(due) = link.next_deadline() {
        while let Some(d) = link.poll_deliver(due) {
            arrivals.push((d.at.as_nanos(), d.packet));
        }
    }
    let stats = link.stats().clone();
    (arrivals, stats)
}

#[test]
fn rate_and_delay_are_exact() {
    let (arrivals, stats) = run(&spec("rate=100mbit,delay=50ms"), 1, [(0, 1500), (0, 1500), (0, 750), (1_000, 1500)]);
    assert_eq!(arrivals, [(50_120_000, 0), (50_240_000, 1), (50_300_000, 2), (51_120_000, 3)]);
    assert_eq!(stats.queue_delay.max(), Duration::from_micros(240));
    assert_eq!(stats.delivered_bytes, 5_250);
}

#[test]
fn rate_has_no_drift_when_a_packet_is_no_whole_number_of_nanoseconds() {
    // 1000 B at 300 Mbit/s take 26,666.67 ns; 30,000 of them exactly 800 ms.
    let (arrivals, _) = run(&spec("rate=300mbit,queue=none"), 1, (0..30_000).map(|_| (0, 1000)));
    assert_eq!(arrivals.last().unwrap().0, 800_000_000);
}

#[test]
fn packets_keep_their_order_with_jitter_unless_overtaking_is_asked() {
    let packets = || (0..2_000).map(|i| (i * 100, 1000));
    let inversions = |list: &str| {
        let (arrivals, _) = run(&spec(list), 4, packets());
        assert_eq!(arrivals.len(), 2_000);
        arrivals.windows(2).filter(|w| w[0].1 > w[1].1).count()
    };
    assert_eq!(inversions("rate=100mbit,delay=20ms,jitter=5ms"), 0);
    assert_eq!(inversions("rate=100mbit,delay=20ms,jitter=5ms,jitter-dist=pareto"), 0);
    assert!(inversions("rate=100mbit,delay=20ms,jitter=5ms,jitter-reorder=true") > 500);
    assert!(inversions("rate=100mbit,delay=20ms,reorder=10%:5ms") > 100);
}

#[test]
fn jitter_stays_within_its_size_and_keeps_the_mean() {
    // Packets 10 ms apart cannot hold each other up.
    let (arrivals, _) = run(&spec("delay=20ms,jitter=1ms"), 4, (0..20_000).map(|i| (i * 10_000, 1000)));
    let delays: Vec<f64> = arrivals.iter().map(|&(at, i)| (at - i as u64 * 10_000_000) as f64 / 1e6).collect();
    assert!(delays.iter().all(|d| (19.0..=21.0).contains(d)));
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((mean - 20.0).abs() < 0.02, "{mean}");
}

#[test]
fn queue_limits_hold_in_packets_bytes_time_and_bdp() {
    let taken = |list: &str| run(&spec(list), 1, (0..1_000).map(|_| (0, 1500))).1.carried_packets;
    assert_eq!(taken("rate=100mbit,delay=10ms,queue=100p"), 100);
    assert_eq!(taken("rate=100mbit,delay=10ms,queue=30KB"), 20);
    assert_eq!(taken("rate=100mbit,delay=10ms,queue=12ms"), 100);
    // 100 Mbit/s x 20 ms = 250 KB.
    assert_eq!(taken("rate=100mbit,delay=10ms,queue=1bdp"), 166);
}

#[test]
fn loss_before_the_bottleneck_leaves_its_capacity_and_loss_after_uses_it() {
    let packets = || (0..20_000).map(|i| (i * 120, 1500));
    let (_, before) = run(&spec("rate=100mbit,loss=50%,loss-at=before"), 2, packets());
    let (_, after) = run(&spec("rate=100mbit,loss=50%,loss-at=after"), 2, packets());
    assert_eq!(after.carried_packets, 20_000);
    assert_eq!(before.carried_packets, before.delivered_packets);
    for stats in [before, after] {
        assert!((stats.loss_share() - 0.5).abs() < 0.015, "{}", stats.loss_share());
        assert_eq!(stats.offered_packets, stats.lost + stats.delivered_packets);
    }
}

#[test]
fn a_change_of_rate_takes_hold_in_the_middle_of_a_packet() {
    let mut spec = spec("rate=12mbit,queue=none");
    spec.at.push("1500us:rate=6mbit".parse().unwrap());
    spec.at.push("4500us:rate=12mbit,delay=1ms".parse().unwrap());
    // A packet takes 1 ms at 12 Mbit/s. The second has half left at 1.5 ms, which takes 1 ms; the third goes on to 4.5.
    let (arrivals, _) = run(&spec, 1, [(0, 1500), (0, 1500), (0, 1500), (0, 1500)]);
    assert_eq!(arrivals.iter().map(|a| a.0 / 1_000).collect::<Vec<_>>(), [1_000, 2_500, 5_500, 6_500]);
}

#[test]
fn nothing_arrives_in_an_outage_and_everything_after_it() {
    let (arrivals, stats) = run(&spec("rate=100mbit,outage=1s+500ms"), 1, (0..2_000).map(|i| (i * 1_000, 1500)));
    assert_eq!(stats.outage_lost, 500);
    assert!(arrivals.iter().all(|(at, _)| !(1_000_120_000..1_500_000_000).contains(at)));
}

#[test]
fn duplicates_and_corrupted_packets_come_in_their_shares() {
    let (arrivals, stats) = run(&spec("duplicate=5%,corrupt=2%"), 9, (0..100_000).map(|i| (i, 100)));
    assert_eq!(arrivals.len() as u64, 100_000 + stats.duplicated);
    assert!((4_700..5_300).contains(&stats.duplicated), "{}", stats.duplicated);
    assert!((1_800..2_200).contains(&stats.corrupted), "{}", stats.corrupted);
    let useless = stats.duplicated + stats.corrupted;
    // Some corrupted packets are copies too.
    assert!(stats.useful_bytes >= (arrivals.len() as u64 - useless) * 100);
    let mut bytes = [0u8; 50];
    flip_bits(&mut bytes, 3);
    assert!(bytes.iter().any(|&b| b != 0));
}

#[test]
fn a_policer_drops_and_a_shaper_delays_what_exceeds_its_rate() {
    let packets = || (0..10_000).map(|i| (i * 120, 1500)); // 100 Mbit/s for 1.2 s
    let (_, policed) = run(&spec("rate=1gbit,policer=50mbit:30KB"), 1, packets());
    assert!((4_900..5_100).contains(&policed.delivered_packets), "{}", policed.delivered_packets);
    let (arrivals, shaped) = run(&spec("rate=1gbit,bucket=50mbit:30KB,queue=none"), 1, packets());
    assert_eq!(shaped.delivered_packets, 10_000);
    let seconds = arrivals.last().unwrap().0 as f64 / 1e9;
    assert!((seconds - 2.4).abs() < 0.01, "{seconds}");
}

#[test]
fn ecn_marks_packets_that_waited_too_long() {
    let mut link = LinkModel::new(&spec("rate=12mbit,ecn=5ms,queue=none"), 1).unwrap();
    for i in 0..10 {
        link.enqueue(Time::ZERO, 1500, if i == 9 { Ecn::NotEct } else { Ecn::Ect0 }, i).unwrap();
    }
    let mut fields = Vec::new();
    while let Some(d) = link.poll_deliver(Time::from_nanos(1_000_000_000)) {
        fields.push(d.ecn);
    }
    assert_eq!(fields[..6], [Ecn::Ect0; 6]);
    assert_eq!(fields[6..9], [Ecn::Ce; 3]);
    assert_eq!(fields[9], Ecn::NotEct);
}

#[test]
fn packets_above_the_mtu_disappear_also_after_it_falls() {
    let mut spec = spec("mtu=1500");
    spec.at.push("1s:mtu=1400".parse().unwrap());
    let (arrivals, stats) = run(&spec, 1, [(0, 1500), (0, 1501), (2_000_000, 1500), (2_000_000, 1400)]);
    assert_eq!(arrivals.iter().map(|a| a.1).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(stats.too_big, 2);
}

#[test]
fn a_seed_is_a_run() {
    let spec = spec("rate=50mbit,delay=10ms,loss=10%,jitter=3ms,jitter-reorder=true,duplicate=1%,corrupt=1%,reorder=5%:10ms");
    let packets = || (0..5_000).map(|i| (i * 200, 1200));
    assert_eq!(run(&spec, 42, packets()).0, run(&spec, 42, packets()).0);
    assert_ne!(run(&spec, 42, packets()).0, run(&spec, 43, packets()).0);
}

#[test]
fn switching_jitter_on_does_not_change_which_packets_are_lost() {
    let lost = |list: &str| {
        let (arrivals, _) = run(&spec(list), 5, (0..3_000).map(|i| (i * 1_000, 1200)));
        let mut ids: Vec<usize> = arrivals.into_iter().map(|a| a.1).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(lost("rate=50mbit,loss=10%"), lost("rate=50mbit,loss=10%,delay=5ms,jitter=2ms"));
}

#[test]
fn lost_packets_come_back_for_their_memory_in_bounded_number() {
    let mut link = LinkModel::new(&spec("rate=1gbit,loss=100%,queue=none"), 1).unwrap();
    for i in 0..10_000 {
        link.enqueue(Time::ZERO, 1500, Ecn::NotEct, i).unwrap();
    }
    assert!(link.poll_deliver(Time::from_nanos(1_000_000_000)).is_none());
    let back = std::iter::from_fn(|| link.poll_discarded()).count();
    assert_eq!(back, DISCARDED_KEPT);
}

#[test]
fn a_description_that_contradicts_itself_makes_no_link() {
    let mut spec = LinkSpec::new(Bandwidth::from_mbit(1), Duration::ZERO);
    spec.delay = Period::from_millis(1);
    spec.mtu = 100;
    assert!(LinkModel::<u32>::new(&spec, 1).is_err());
}

#[test]
fn a_trace_delivers_one_mtu_per_line_and_what_is_not_used_is_gone() {
    let mut spec = spec("delay=5ms,queue=none");
    spec.trace = Some(Trace::parse("generated", "10\n20\n20\n50\n").unwrap());
    let (arrivals, stats) = run(&spec, 1, [(0, 1500), (0, 700), (0, 700), (0, 700), (0, 1500), (71_000, 1500)]);
    let ms: Vec<u64> = arrivals.iter().map(|a| a.0 / 1_000_000).collect();
    // 1500 at 10 ms; 700 + 700 at 20 ms, the third 700 with 100 of that opportunity and 600 of the next; 1500 with the 900 left of it and 50 ms.
    // The second round is 60, 70, 70, 100: at 71 ms only the last is left.
    assert_eq!(ms, [15, 25, 25, 25, 55, 105]);
    assert_eq!(stats.queue_delay.max(), Duration::from_millis(29));
}

#[test]
fn a_trace_that_is_always_busy_carries_the_sum_of_its_opportunities() {
    let mut spec = spec("queue=64KB");
    let mut lines = String::new();
    let mut ms = 0;
    for i in 0..500u64 {
        ms += (i * i) % 7;
        lines.push_str(&format!("{}\n", ms + 1));
    }
    let trace = Trace::parse("generated", &lines).unwrap();
    spec.trace = Some(trace.clone());
    let (_, stats) = run(&spec, 1, (0..400_000).map(|i| (i * 50, 700 + (i % 700) as u32)));
    let seconds = Duration::from_secs(20);
    let sum = trace.opportunities(Time::ZERO, Time::ZERO + seconds) * 1500;
    let share = stats.carried_bytes as f64 / sum as f64;
    assert!((0.999..=1.01).contains(&share), "{share}");
}

#[test]
fn aqm_keeps_the_delay_near_its_target_where_drop_tail_lets_it_grow() {
    // 110 % of the capacity for 10 s, from a sender that does not slow down.
    let p95 = |list: &str| {
        let (_, stats) = run(&spec(&format!("rate=12mbit,delay=10ms,{list}")), 3, (0..11_000).map(|i| (i * 909, 1500)));
        let lost = stats.queue_drops + stats.aqm_drops;
        assert_eq!(stats.offered_packets, stats.carried_packets + lost, "{list}");
        (stats.queue_delay.quantile(0.95).as_secs_f64() * 1e3, stats.aqm_drops)
    };
    assert!(p95("queue=500ms").0 > 400.0);
    let (pie, drops) = p95("aqm=pie");
    // Its probability has to grow from nothing first, in small steps.
    assert!(pie < 100.0 && drops > 500, "{pie} ms, {drops} drops");
    // CoDel's drops come ever faster and need seconds against one that does not listen.
    let (codel, drops) = p95("aqm=fq_codel,queue=500ms");
    assert!(codel < 400.0 && drops > 100, "{codel} ms, {drops} drops");
}

#[test]
fn flows_have_queues_of_their_own_in_fq_codel() {
    let delay_of_thin = |list: &str| {
        let mut link = LinkModel::new(&spec(&format!("rate=12mbit,{list}")), 3).unwrap();
        let mut worst = Duration::ZERO;
        for ms in 0..1_000u64 {
            let now = Time::from_nanos(ms * 1_000_000);
            while let Some(d) = link.poll_deliver(now) {
                if let Some(sent) = d.packet {
                    worst = worst.max(d.at.since(sent));
                }
            }
            for _ in 0..2 {
                let _ = link.enqueue_of_flow(now, 1, 1500, Ecn::NotEct, None);
            }
            if ms % 10 == 0 {
                let _ = link.enqueue_of_flow(now, 2, 200, Ecn::NotEct, Some(now));
            }
        }
        worst
    };
    assert!(delay_of_thin("queue=100ms") > Duration::from_millis(90));
    assert!(delay_of_thin("aqm=fq_codel,queue=100ms") < Duration::from_millis(3));
}
