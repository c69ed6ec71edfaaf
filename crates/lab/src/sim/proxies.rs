//! A chain of per-hop proxies (RFC 3135): on each link a connection of its own, joined by the nodes between, which pass on what they read.
//!
//! The simulator has no TCP. What stands in for it is QUIC's sans-IO machine (`quinn-proto`), whose congestion controls are TCP's and whose recovery from loss is
//! at least as good; kernel TCP itself runs on namespaces (`noctule-lab net --relays proxy --peer tcp-bbr`).

use std::net::{IpAddr, SocketAddr};

use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};

use super::build;
use super::measure::{Metered, Sides, measure_meters};
use super::meter::Window;
use super::quic::{QuicCongestion, QuicHost, QuicLoad, QuicPair, QuicPlan};
use super::run::SimError;
use super::sampler::{self, Look, Sampler, Watch};
use super::world::{Host, HostId, WireOverhead, World};
use crate::report::Report;
use crate::scenario::{Congestion, Scenario, Workload};

/// Bytes that may be under way on a link: quinn-proto ends a connection whose stream has more than a thousand gaps.
const RECEIVE_WINDOW: u32 = 2 << 20;
/// Bytes that a proxy holds; it reads no more while they wait.
const HELD: usize = 4 << 20;

/// A node: the connection by which data come, and the one by which they leave.
struct Proxy {
    up: Option<QuicHost>,
    down: Option<QuicHost>,
    next: Option<SocketAddr>,
}

impl Proxy {
    fn ends(&mut self) -> impl Iterator<Item = &mut QuicHost> {
        self.down.iter_mut().chain(&mut self.up)
    }

    fn failure(&self) -> Option<&String> {
        [&self.up, &self.down].into_iter().flatten().find_map(|end| end.failure.as_ref())
    }
}

impl Host for Proxy {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        let end = if Some(remote) == self.next { &mut self.down } else { &mut self.up };
        if let Some(end) = end {
            end.handle_datagram(now, remote, local, ecn, data);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ends().filter(|end| end.poll_timeout().is_some_and(|at| at <= now)).for_each(|end| end.handle_timeout(now));
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.ends().find_map(|end| end.poll_transmit(now, buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        [&self.up, &self.down].into_iter().flatten().filter_map(Host::poll_timeout).min()
    }

    fn pump(&mut self, now: Time) -> bool {
        let mut any = self.ends().fold(false, |any, end| end.pump(now) | any);
        if let (Some(up), Some(down)) = (&mut self.up, &mut self.down)
            && down.held() < HELD
        {
            let read = up.take(now);
            any |= !read.is_empty();
            down.pass_on(now, read);
        }
        any
    }
}

/// Runs a scenario whose relays are proxies.
pub(super) fn run(scenario: &Scenario, watch: Option<Watch>) -> Result<Report, SimError> {
    scenario.check()?;
    let congestion = checked(scenario)?;
    let hops = scenario.hops.len();
    let until = Time::ZERO + scenario.seconds.0;
    let window = Window { from: Time::ZERO + scenario.warmup.0, until };
    let mut nodes: Vec<Proxy> =
        (0..=hops).map(|node| Proxy { up: None, down: None, next: (node < hops).then(|| build::socket(scenario.ip, node + 1)) }).collect();
    for (hop, links) in scenario.hops.iter().enumerate() {
        let mtu = links.forward.mtu.min(links.reverse.mtu);
        let datagram = (mtu - scenario.ip.overhead()) as u16;
        let seed = build::sub_seed(scenario.seed, 3_000 + hop as u64);
        let load = if hop == 0 { QuicLoad::Bulk } else { QuicLoad::Relayed };
        let plan = QuicPlan { receive_window: RECEIVE_WINDOW, load, ..QuicPlan::bulk(congestion, datagram, window, seed) };
        let mut pair = QuicPair::new(plan, build::socket(scenario.ip, hop + 1)).map_err(SimError::Unsupported)?;
        if hop + 1 < hops {
            pair.server.waits_for_its_reader();
        }
        nodes[hop].down = Some(pair.client);
        nodes[hop + 1].up = Some(pair.server);
    }
    let mut world = World::new(WireOverhead(scenario.ip.overhead()));
    let pipes = build::pipes(scenario, &mut world)?;
    let hosts: Vec<HostId> =
        nodes.into_iter().enumerate().map(|(node, proxy)| world.add_host(build::socket(scenario.ip, node), proxy)).collect();
    for (hop, &(forward, reverse)) in pipes.iter().enumerate() {
        world.add_route(hosts[hop], hosts[hop + 1], forward);
        world.add_route(hosts[hop + 1], hosts[hop], reverse);
    }
    for &host in &hosts {
        world.with_host(host, |host, now| host.down.iter_mut().for_each(|down| down.start(now)))?;
    }
    let mut sampler = watch.map(|watch| Sampler::new(scenario, &pipes, watch));
    let look = |world: &World<Proxy>| Look { bytes: world.host(hosts[hops]).up.as_ref().map_or(0, |up| up.meter.bytes), rtt: None };
    sampler::run_until(&mut world, window.from, &mut sampler, look)?;
    let warm = Sides::of_links(&world, &pipes);
    world.clear_pipe_stats();
    sampler::run_until(&mut world, until, &mut sampler, look)?;
    let done = Sides::of_links(&world, &pipes);
    let named =
        |(node, &host): (usize, &HostId)| world.host(host).failure().map(|failure| format!("{}: {failure}", scenario.network.nodes[node]));
    let failures = hosts.iter().enumerate().filter_map(named).collect();
    let last = world.host(hosts[hops]).up.as_ref().map(|up| &up.meter);
    let meter = last.ok_or_else(|| SimError::Unsupported("a chain of proxies has a last node".to_owned()))?;
    let metered = Metered { senders: congestion.to_string(), meters: &[meter], transfer_s: None, datagrams: world.packets(), failures };
    Ok(measure_meters(scenario, &warm, &done, metered))
}

/// What proxies cannot do is said before anything runs.
fn checked(scenario: &Scenario) -> Result<QuicCongestion, SimError> {
    let unsupported = |text: String| Err(SimError::Unsupported(text));
    let network = &scenario.network;
    if !network.is_chain() || network.flows.len() != 1 || scenario.pairs > 1 || scenario.both {
        return unsupported("--relays proxy in the simulator: a chain with one flow in one direction".to_owned());
    }
    if scenario.ack_every.is_some() {
        return unsupported("--ack-every is noctule's; --relays proxy has no noctule nodes".to_owned());
    }
    if scenario.workload != Workload::Bulk {
        return unsupported(format!("--relays proxy in the simulator passes on a bulk transfer, not {}", scenario.workload));
    }
    for (hop, links) in scenario.hops.iter().enumerate() {
        let rate = links.forward.capacity().map_or(0.0, |rate| rate.bits_per_sec() as f64);
        let rtt = (links.forward.delay.0 + links.reverse.delay.0).as_secs_f64();
        if 2.0 * rate * rtt / 8.0 > f64::from(RECEIVE_WINDOW) {
            return unsupported(format!(
                "--relays proxy in the simulator: hop {} carries more than 1 MiB per round trip, its connection does not",
                hop + 1
            ));
        }
    }
    match scenario.cc {
        // The control of noctule nodes, of which there are none here: proxies have the best of theirs.
        Congestion::Model | Congestion::Bbr => Ok(QuicCongestion::Bbr),
        Congestion::Cubic => Ok(QuicCongestion::Cubic),
        Congestion::Reno => Ok(QuicCongestion::Reno),
        other => unsupported(format!("--relays proxy: proxies have the congestion controls bbr, cubic and reno, not {other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::link::{LinkSpec, Period};
    use crate::scenario::{Hop, Relays};

    fn chain(rates: &[&str], loss: f64) -> Scenario {
        let hops = rates.iter().map(|rate| {
            let mut spec = LinkSpec::default();
            spec.set_list(&format!("rate={rate},delay=5ms,loss={loss}%")).unwrap();
            Hop { forward: spec.clone(), reverse: spec }
        });
        let mut scenario = Scenario::new(hops.collect());
        scenario.network.relays = Relays::Proxy;
        scenario.set_default_length(Some(Period(Duration::from_secs(12))), Some(Period(Duration::from_secs(2))));
        scenario
    }

    #[test]
    fn proxies_make_up_for_loss_on_each_link_where_one_connection_over_all_could_not() {
        let report = run(&chain(&["20mbit", "20mbit", "20mbit"], 5.0), None).unwrap();
        assert_eq!(report.failures, Vec::<String>::new());
        assert!(report.share > Some(0.75), "{:?}", report.share);
        assert!(report.share < Some(1.0), "{:?}", report.share);
        let mut cubic = chain(&["20mbit", "20mbit", "20mbit"], 5.0);
        cubic.cc = Congestion::Cubic;
        assert!(run(&cubic, None).unwrap().share < Some(0.3), "CUBIC loses to random loss on each link");
    }

    #[test]
    fn a_proxy_before_a_slow_link_holds_what_it_may_and_no_more() {
        let report = run(&chain(&["80mbit", "10mbit"], 0.0), None).unwrap();
        assert_eq!(report.failures, Vec::<String>::new());
        assert!(report.share > Some(0.9), "{:?}", report.share);
        // After the proxy and its windows are full, the first link carries what the second does.
        let per_byte = report.wire_per_byte[0].unwrap();
        assert!(per_byte < 1.2, "{per_byte}");
    }

    #[test]
    fn what_proxies_cannot_do_is_named() {
        let mut messages = chain(&["20mbit", "20mbit"], 0.0);
        messages.workload = "messages:10/s:100B".parse().unwrap();
        let mut wide = chain(&["200mbit", "200mbit"], 0.0);
        wide.hops[1].forward.delay = Period(Duration::from_millis(50));
        let mut vegas = chain(&["20mbit", "20mbit"], 0.0);
        vegas.cc = Congestion::Vegas;
        for (scenario, names) in [(messages, "messages"), (wide, "hop 2"), (vegas, "vegas")] {
            let error = run(&scenario, None).expect_err(names).to_string();
            assert!(error.contains(names), "{error}");
        }
    }
}
