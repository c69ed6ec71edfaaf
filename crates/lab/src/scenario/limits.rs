//! The limit of goodput that follows from the configuration: `min over hops of C(1-p) (MTU-28)/MTU` (P24).

use crate::link::{LinkSpec, LossAt, Time};
use std::collections::BTreeMap;

use super::{Crossing, FlowEnds, Scenario};

/// Limits of a scenario in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bits per second of application data towards the receiver, mean over the part of the run that is counted; infinite without a rate.
    pub forward: f64,
    /// The same back.
    pub reverse: f64,
    /// The same as `forward` over the whole run.
    pub forward_whole: f64,
}

impl Limits {
    /// The limits of `scenario`, counted after its warm-up.
    pub fn of(scenario: &Scenario) -> Self {
        Self::between(scenario, Time::ZERO + scenario.warmup.0, Time::ZERO + scenario.seconds.0)
    }

    /// The limits between two moments of `scenario`: of its flow; of several flows only if all go the same route, which is then shared.
    pub fn between(scenario: &Scenario, begin: Time, end: Time) -> Self {
        let network = &scenario.network;
        let first = Self::of_flow(scenario, &network.flows[0], begin, end);
        let routes = network.routes(&network.flows[0]);
        if network.flows.iter().any(|flow| network.routes(flow) != routes) {
            return Self { forward: f64::INFINITY, reverse: f64::INFINITY, forward_whole: f64::INFINITY };
        }
        first
    }

    /// The limits of a flow that has its routes for itself.
    pub fn of_flow(scenario: &Scenario, flow: &FlowEnds, begin: Time, end: Time) -> Self {
        let (there, back) = scenario.network.routes(flow);
        let least = |from: Time, route: &[Crossing]| {
            // Links side by side are paths of one: their rates add up.
            let limit = |&crossing: &Crossing| -> f64 {
                let lanes = scenario.network.lanes(crossing);
                lanes.map(|lane| mean_limit(scenario.crossed(lane), scenario.ip.overhead(), from, end)).sum()
            };
            route.iter().map(limit).fold(f64::INFINITY, f64::min)
        };
        // Of several routes at once, each takes what those before it leave of the links that they share.
        let routes = scenario.network.routes_at_once(flow);
        let sum = |from: Time| {
            let mut left = BTreeMap::new();
            let mut sum = 0.0;
            for route in &routes {
                for crossing in route {
                    left.entry(*crossing).or_insert_with(|| least(from, std::slice::from_ref(crossing)));
                }
                let own = route.iter().filter_map(|crossing| left.get(crossing)).fold(f64::INFINITY, |a, b| a.min(*b));
                for crossing in route {
                    left.entry(*crossing).and_modify(|rest| *rest -= own);
                }
                sum += own;
            }
            sum
        };
        let forward = |from: Time| if routes.len() > 1 { sum(from) } else { least(from, &there) };
        Self { forward: forward(begin), reverse: least(begin, &back), forward_whole: forward(Time::ZERO) }
    }
}

/// What controls that take every loss for congestion keep in the long run, bits per second of application data, at most the limit.
///
/// Mathis, Semke, Mahdavi, Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm (CCR 27(3), 1997). Its equation, MSS / RTT x C / sqrt(p),
/// with C = sqrt(3/2): an acknowledgement of every packet. p is the loss of the forward links together, as of a chain. The RTT is without queueing. Infinite
/// where neither loss nor rate bounds it.
pub fn mathis(scenario: &Scenario) -> f64 {
    let limit = Limits::of(scenario).forward;
    let lost = lost_in_a_row(scenario);
    let Some(spec) = scenario.hops.first().map(|hop| &hop.forward) else { return limit };
    if lost <= 0.0 {
        return limit;
    }
    let payload_bits = 8.0 * f64::from(spec.mtu.saturating_sub(scenario.ip.overhead()));
    (payload_bits / scenario.base_rtt().as_secs_f64() * (1.5 / lost).sqrt()).min(limit)
}

/// Share of full packets that the forward links lose together, after their last change: 1 - (1-p1)(1-p2)...
pub fn lost_in_a_row(scenario: &Scenario) -> f64 {
    1.0 - scenario.hops.iter().map(|hop| 1.0 - hop.forward.last_state().mean_loss(hop.forward.mtu)).product::<f64>()
}

/// Share of an IP packet of `mtu` bytes that is UDP payload.
pub fn payload_share(mtu: u32, overhead: u32) -> f64 {
    f64::from(mtu - overhead) / f64::from(mtu)
}

/// C(1-p) (MTU-overhead)/MTU of one state of a link.
fn state_limit(spec: &LinkSpec, overhead: u32) -> f64 {
    let Some(capacity) = spec.capacity() else { return f64::INFINITY };
    capacity.bits_per_sec() as f64 * passed(spec) * payload_share(spec.mtu, overhead)
}

/// The mean of the limit between `begin` and `end`, through changes in mid-run and outages.
fn mean_limit(spec: &LinkSpec, overhead: u32, begin: Time, end: Time) -> f64 {
    let mut states = vec![(Time::ZERO, spec.clone())];
    states.extend(spec.states().unwrap_or_default());
    let mut bits = 0.0;
    for (i, (from, state)) in states.iter().enumerate() {
        let until = states.get(i + 1).map_or(end, |next| next.0.min(end));
        let (from, until) = ((*from).max(begin), until.max(begin));
        if until <= from {
            continue;
        }
        if state.trace.is_some() {
            bits += traced_bits(state, overhead, from, until);
            continue;
        }
        let out: f64 = state.outage.iter().map(|o| overlap(Time::ZERO + o.at.0, Time::ZERO + o.at.0 + o.lasts.0, from, until)).sum();
        let up = (until.since(from).as_secs_f64() - out).max(0.0);
        bits += state_limit(state, overhead) * up;
    }
    let seconds = end.since(begin).as_secs_f64();
    if seconds > 0.0 { bits / seconds } else { state_limit(spec, overhead) }
}

/// The sum of a trace's opportunities from `from` to `until`, less those in outages. A policer below the trace's mean is not seen here.
fn traced_bits(spec: &LinkSpec, overhead: u32, from: Time, until: Time) -> f64 {
    let Some(trace) = &spec.trace else { return 0.0 };
    let within = |a: Time, b: Time| trace.opportunities(a.max(from), b.min(until));
    let out: u64 = spec.outage.iter().map(|o| within(Time::ZERO + o.at.0, Time::ZERO + o.at.0 + o.lasts.0)).sum();
    let opportunities = within(from, until).saturating_sub(out);
    opportunities as f64 * f64::from(spec.mtu) * 8.0 * passed(spec) * payload_share(spec.mtu, overhead)
}

/// Share of what the bottleneck sends that arrives.
fn passed(spec: &LinkSpec) -> f64 {
    match spec.loss_at {
        LossAt::After => 1.0 - spec.mean_loss(spec.mtu),
        LossAt::Before => 1.0,
    }
}

/// Seconds that two intervals share.
fn overlap(a: Time, b: Time, from: Time, until: Time) -> f64 {
    b.min(until).since(a.max(from)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::super::{Hop, Ip};
    use super::*;

    fn scenario(list: &str) -> Scenario {
        let mut spec = LinkSpec::default();
        spec.set_list(list).unwrap();
        Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }])
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b, "{a} against {b}");
    }

    #[test]
    fn the_limit_is_capacity_less_loss_less_headers() {
        near(Limits::of(&scenario("rate=100mbit,loss=10%")).forward, 90e6 * 1472.0 / 1500.0);
        near(Limits::of(&scenario("rate=100mbit,loss=10%,loss-at=before")).forward, 100e6 * 1472.0 / 1500.0);
        let mut six = scenario("rate=100mbit");
        six.ip = Ip::V6;
        near(Limits::of(&six).forward, 100e6 * 1452.0 / 1500.0);
    }

    #[test]
    fn the_narrowest_hop_decides() {
        let wide = scenario("rate=100mbit").hops[0].clone();
        let mut narrow = wide.clone();
        narrow.forward.set_list("rate=50mbit,loss=20%").unwrap();
        let s = Scenario::new(vec![wide, narrow]);
        near(Limits::of(&s).forward, 40e6 * 1472.0 / 1500.0);
        near(Limits::of(&s).reverse, 100e6 * 1472.0 / 1500.0);
    }

    #[test]
    fn changes_and_outages_count_for_the_time_they_last() {
        // Counted: 5 s to 30 s; 100 Mbit/s until 10 s, then 20.
        let mut s = scenario("rate=100mbit");
        s.hops[0].forward.at.push("10s:rate=20mbit".parse().unwrap());
        near(Limits::of(&s).forward, (5.0 * 100e6 + 20.0 * 20e6) / 25.0 * 1472.0 / 1500.0);
        let mut s = scenario("rate=100mbit");
        s.hops[0].forward.outage.push("3s+7s".parse().unwrap());
        near(Limits::of(&s).forward, 100e6 * 20.0 / 25.0 * 1472.0 / 1500.0);
        near(Limits::of(&s).forward_whole, 100e6 * 23.0 / 30.0 * 1472.0 / 1500.0);
    }

    #[test]
    fn the_limit_of_a_trace_is_the_sum_of_its_opportunities_after_the_warm_up() {
        // One per 10 ms in the first second of ten, then one per ms.
        let text: String = (1..=100).map(|i| i * 10).chain(1001..=10_000).map(|ms| format!("{ms}\n")).collect();
        let trace = crate::link::Trace::parse("generated", &text).unwrap();
        let mut s = scenario("loss=10%");
        s.hops[0].forward.trace = Some(trace);
        // 5 s to 30 s: rounds of 9100 opportunities, the first half of one missing; the edges count where they lie.
        let opportunities = f64::from(5_001 + 2 * 9100 - 1);
        near(Limits::of(&s).forward, opportunities * 1472.0 * 8.0 * 0.9 / 25.0);
        near(Limits::of(&s).forward_whole, f64::from(3 * 9100 - 1) * 1472.0 * 8.0 * 0.9 / 30.0);
        s.hops[0].forward.outage.push("10s+1s".parse().unwrap());
        // The opportunity at 10 s is the last of its round, and in the outage.
        near(Limits::of(&s).forward, (opportunities - 100.0) * 1472.0 * 8.0 * 0.9 / 25.0);
    }

    #[test]
    fn the_equation_of_mathis_ends_at_the_limit() {
        // 1472 bytes per 0.1 s x sqrt(1.5 / 0.01).
        near(mathis(&scenario("rate=100mbit,delay=50ms,loss=1%")), 1472.0 * 80.0 * 150f64.sqrt());
        near(mathis(&scenario("rate=10mbit,delay=1ms,loss=0.01%")), 10e6 * 0.9999 * 1472.0 / 1500.0);
        near(mathis(&scenario("rate=10mbit,delay=1ms")), 10e6 * 1472.0 / 1500.0);
        assert_eq!(mathis(&scenario("delay=1ms")), f64::INFINITY);
    }

    #[test]
    fn loss_adds_up_over_links() {
        let mut two = scenario("rate=10mbit,loss=10%,loss-at=before");
        two.hops.push(two.hops[0].clone());
        near(lost_in_a_row(&two), 0.19);
        two.hops[1].forward.at.push("1s:loss=50%".parse().unwrap());
        near(lost_in_a_row(&two), 0.55);
    }

    #[test]
    fn a_run_is_as_long_as_its_round_trip_asks() {
        assert_eq!(scenario("delay=10ms").seconds.to_string(), "30s");
        // 2 s RTT: 24 s + 120 s.
        assert_eq!(scenario("delay=1s").seconds.to_string(), "144s");
    }
}
