//! Makes the report from the node's state.

use super::super::Daemon;
use super::super::one_way::{Inlet, Outlet, Passage, Stream};
use super::super::routes::Origin;
use super::super::split::{Far, SplitView};
use super::super::trees::{ChildView, TreeView};
use super::super::tunnel::{FlowView, Key, Tunnel, TunnelNode};
use super::*;
use noctule::{FlowStats, FlowTotals, LinkStats, PathStats, RelayedStats, SpanStats};
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

impl Daemon {
    /// The report of this moment.
    pub fn report(&self) -> Report {
        let config = self.config();
        let stats = self.endpoint.stats();
        let peers = self.peers();
        let nodes = peers.iter().map(|peer| {
            let view = peer.view();
            let link = view.link.as_ref().and_then(|l| l.stats()).map(|stats| link(&stats, view.up_for.unwrap_or_default(), view.links_up));
            NodeReport {
                name: view.config.name,
                key: peer.key.to_string(),
                is_neighbour: view.config.link.is_some(),
                endpoint: view.config.link.and_then(|l| l.endpoint),
                link,
                session: view.session.as_ref().map(|s| if s.far_address().is_some() { "relayed" } else { "direct" }.to_owned()),
                sessions: view.session.iter().chain(&view.further).count(),
                flows: view.session.as_ref().map(|s| {
                    let mut all = s.stats().flows;
                    view.further.iter().for_each(|further| all.merge(&further.stats().flows));
                    sums(&all)
                }),
                trouble: view.trouble.map(|(at, text)| Trouble { at_s: at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()), text }),
            }
        });
        let routes = self.routes().into_iter().map(|r| {
            let via = peers.iter().find(|p| p.key == r.via);
            RouteReport {
                to: r.route.to.to_string(),
                via: via.map_or_else(|| r.via.to_string(), |p| p.name()),
                metric: r.route.metric,
                origin: match r.origin {
                    Origin::Neighbour => "neighbour",
                    Origin::File => "file",
                    Origin::Kernel => "kernel",
                }
                .to_owned(),
                usable: via.is_some_and(|p| p.has_link()),
            }
        });
        Report {
            name: config.name.clone(),
            key: self.key.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("NOCTULE_COMMIT").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            listen: super::super::listening(&self.endpoint),
            addresses: config.addresses.iter().map(ToString::to_string).collect(),
            relay: config.relay,
            memory: MemoryReport { used_bytes: stats.memory.used, peak_bytes: stats.memory.peak, limit_bytes: stats.memory.limit },
            socket: SocketReport {
                sent_datagrams: stats.sent_datagrams,
                sent_bytes: stats.sent_bytes,
                received_datagrams: stats.received_datagrams,
                received_bytes: stats.received_bytes,
                send_errors: stats.send_errors,
                recv_errors: stats.recv_errors,
            },
            refused: (stats.refused.named().into_iter())
                .chain([("strange_links", self.strange_links.total()), ("strange_sessions", self.strange_sessions.total())])
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            nodes: nodes.collect(),
            routes: routes.collect(),
            relayed: self.endpoint.relayed_flows().iter().map(relayed).collect(),
            trees: self.trees.views().into_iter().map(tree).collect(),
            one_way: one_way(&self.one_ways.streams()),
            tunnel: self.tunnel.as_deref().map(tunnel),
        }
    }
}

fn one_way(streams: &[Stream]) -> OneWayReport {
    let mut report = OneWayReport::default();
    for stream in streams {
        match stream {
            Stream::To(outlet) => report.to.push(one_way_to(outlet)),
            Stream::From(inlet, _) => report.from.push(one_way_from(inlet)),
            Stream::Relay(passage, _) => report.relays.push(one_way_relay(passage)),
        }
    }
    report
}

fn one_way_to(outlet: &Outlet) -> OneWayToReport {
    let (config, view) = (outlet.config(), outlet.view());
    let source = view.sender.source;
    OneWayToReport {
        name: config.name.clone(),
        endpoint: config.endpoint.to_string(),
        rate_bits_per_second: config.rate.bytes_per_sec() * 8.0,
        block_packets: config.shape.block_packets(),
        redundancy: config.plan.redundancy(&config.shape),
        packets: source.messages,
        dropped: view.dropped,
        blocks: source.blocks,
        sent_datagrams: source.datagrams,
        sent_bytes: source.bytes,
        announcements: view.sender.announcements,
        streams: view.sender.streams,
        send_errors: view.errors,
    }
}

fn one_way_from(inlet: &Inlet) -> OneWayFromReport {
    let (view, heard) = inlet.view();
    let stats = view.receiver;
    let ignored = [
        ("garbage", stats.garbage),
        ("unknown", stats.unknown),
        ("source", view.strangers),
        ("unaddressed", stats.unaddressed),
        ("refused", stats.refused),
        ("replayed", stats.replayed),
        ("unread", stats.unread),
    ];
    let sender = |((name, _), (view, heard)): (&(String, _), (_, Option<std::time::Duration>))| {
        let noctule_proto::blind::SenderView { streams, sink, lost, .. } = view;
        OneWaySenderReport {
            name: name.clone(),
            streams,
            heard_s: heard.map(|h| h.as_secs_f64()),
            datagrams: sink.datagrams,
            innovative: sink.innovative,
            polluted: sink.polluted,
            over: sink.over,
            blocks: sink.blocks,
            given_up: sink.given_up,
            packets: sink.messages,
            recovered: sink.recovered,
            lost,
        }
    };
    OneWayFromReport {
        listen: inlet.config().listen.to_string(),
        ignored: ignored.into_iter().map(|(what, count)| (what.to_owned(), count)).collect(),
        senders: inlet.config().senders.iter().zip(view.senders.into_iter().zip(heard)).map(sender).collect(),
    }
}

fn one_way_relay(passage: &Passage) -> OneWayRelayReport {
    let (config, view) = (passage.config(), passage.view());
    OneWayRelayReport {
        listen: config.listen.to_string(),
        endpoint: config.endpoint.to_string(),
        rate_bits_per_second: config.rate.bytes_per_sec() * 8.0,
        received_datagrams: view.received.0,
        received_bytes: view.received.1,
        sent_datagrams: view.sent.0,
        sent_bytes: view.sent.1,
        passed: view.relay.passed,
        recoded: view.relay.recoded,
        redundant: view.relay.redundant,
        late: view.relay.late,
        dropped: view.relay.dropped,
        refused: view.relay.refused + view.strangers,
        announcements: view.relay.announcements,
        foreign: view.relay.foreign,
        send_errors: view.errors,
        queueing_delay_ms: view.queueing_delay.as_secs_f64() * 1e3,
        memory_bytes: view.memory,
        ranks: view.ranks,
    }
}

fn tree(view: TreeView) -> TreeReport {
    let TreeView { from, size, packets, sent, skipped, children } = view;
    let child = |ChildView { name, receivers, there, state }: ChildView| TreeChildReport {
        name,
        receivers,
        there_bytes: there,
        state: state.to_owned(),
    };
    TreeReport { from, size_bytes: size, packets, sent, skipped, to: children.into_iter().map(child).collect() }
}

fn link(stats: &LinkStats, up_for: std::time::Duration, times_up: u64) -> LinkReport {
    LinkReport {
        up_for_s: up_for.as_secs_f64(),
        times_up,
        paths: stats.paths.iter().map(path).collect(),
        undecryptable: stats.undecryptable,
        polluted: stats.polluted,
        flows: sums(&stats.flows),
        spans: spans(&stats.spans),
    }
}

fn spans(s: &SpanStats) -> SpanReport {
    SpanReport { rank_in: s.rank_in.clone(), rank_out: s.rank_out.clone(), recoded: s.recoded.clone() }
}

fn path(p: &PathStats) -> PathReport {
    let ms = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    PathReport {
        path: p.path.0,
        remote: p.remote.to_string(),
        local: p.local.map(|ip| ip.to_string()),
        state: p.state.word().to_owned(),
        coupled: p.coupled,
        mtu_bytes: p.mtu,
        rtt_ms: ms(p.smoothed_rtt),
        min_rtt_ms: ms(p.min_rtt),
        rtt_deviation_ms: ms(p.rtt_var),
        loss_ratio: p.loss.get(),
        delivery_rate_bits_per_second: p.delivery_rate.bytes_per_sec() * 8.0,
        in_flight_bytes: p.in_flight,
        sent_packets: p.sent_packets,
        sent_bytes: p.sent_bytes,
        received_packets: p.received_packets,
        received_bytes: p.received_bytes,
        lost_packets: p.lost_packets,
        spurious_losses: p.spurious_losses,
        ce_packets: p.ce_packets,
    }
}

fn sums(totals: &FlowTotals) -> FlowSums {
    FlowSums { sent: counts(&totals.sent), received: counts(&totals.received) }
}

fn counts(s: &FlowStats) -> FlowCounts {
    FlowCounts {
        source_packets: s.source_packets,
        repair_packets: s.repair_packets,
        proactive_packets: s.proactive_packets,
        decoded_packets: s.decoded_packets,
        redundant_packets: s.redundant_packets,
        refused_packets: s.refused_packets,
        coded_bytes: s.coded_bytes,
        messages: s.messages,
        expired_messages: s.expired_messages,
        outstanding: s.outstanding,
    }
}

fn relayed(r: &RelayedStats) -> RelayedReport {
    RelayedReport {
        source: r.source.to_string(),
        destination: r.destination.to_string(),
        index: r.index,
        part: r.part,
        rank_in: r.rank_in,
        rank_out: r.rank_out,
        redundant_packets: r.redundant_packets,
        passed_packets: r.passed_packets,
        recoded_packets: r.recoded_packets,
        spans: spans(&r.spans),
        dropped_packets: r.dropped_packets,
        waiting: r.waiting,
        queueing_delay_ms: r.queueing_delay.as_secs_f64() * 1e3,
        memory_bytes: r.memory,
    }
}

fn tunnel(tunnel: &Tunnel) -> TunnelReport {
    let totals = tunnel.totals();
    TunnelReport {
        device: tunnel.device().config.name.clone(),
        mtu_bytes: tunnel.device().config.mtu,
        unreachable: totals.unreachable,
        too_big: totals.too_big,
        malformed: totals.malformed,
        splits: tunnel.splits(),
        nodes: tunnel.nodes().iter().map(|n| (n.name(), tunnel_node(n, tunnel.splits()))).collect(),
    }
}

fn tunnel_node(node: &TunnelNode, splits: bool) -> TunnelNodeReport {
    let views = node.views();
    let sums = node.sums(&views);
    let mut flows: Vec<_> = views.iter().map(tunnel_flow).collect();
    flows.sort_by_key(|f| std::cmp::Reverse(f.bytes));
    TunnelNodeReport {
        sent_packets: sums.packets,
        sent_bytes: sums.bytes,
        marked: sums.marked,
        dropped: sums.dropped,
        received_packets: node.received.packets.load(Relaxed),
        received_bytes: node.received.bytes.load(Relaxed),
        received_refused: node.received.refused.load(Relaxed),
        refused_flows: sums.refused_flows,
        ended_flows: sums.ended_flows,
        flows,
        split: split(&node.peer().split.view(), splits),
    }
}

fn split(view: &SplitView, is_on: bool) -> SplitReport {
    SplitReport {
        tcp: if is_on { view.far } else { Far::Carries }.word().to_owned(),
        open: view.open,
        begun: view.begun,
        refused: view.refused,
        sent_bytes: view.sent,
        received_bytes: view.received,
    }
}

fn tunnel_flow(view: &FlowView) -> TunnelFlowReport {
    let Key { source, destination, protocol, ports, dscp } = view.key;
    let end = |address: std::net::IpAddr, port: u16| {
        if port == 0 { address.to_string() } else { std::net::SocketAddr::from((address, port)).to_string() }
    };
    TunnelFlowReport {
        source: end(source, ports.0),
        destination: end(destination, ports.1),
        protocol,
        dscp,
        packets: view.counts.passed,
        bytes: view.counts.bytes,
        marked: view.counts.marked,
        dropped: view.counts.dropped + view.counts.overflowed,
        waiting_packets: view.waiting.0,
        waiting_bytes: view.waiting.1,
        transport: view.transport.as_ref().map(counts),
    }
}
