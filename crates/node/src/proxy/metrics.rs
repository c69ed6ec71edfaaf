//! What Prometheus is told of a server. Targets are no label: there are as many as others name.

use crate::daemon::metrics::families::{Families, Labels, Process};
use noctule_proxy::{Snapshot, UserView};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::SystemTime;

/// The label of all guests together; no name has spaces.
const GUESTS: &str = "not listed";

/// A server in Prometheus's text format.
pub fn text(now: Snapshot, start: SystemTime) -> String {
    let mut out = String::new();
    let mut process = Registry::default();
    process.register_collector(Box::new(Process { start }));
    let mut proxy = Registry::with_prefix("noctule_proxy");
    proxy.register_collector(Box::new(Proxy(now)));
    for registry in [&process, &proxy] {
        prometheus_text::encode(&mut out, registry).expect("writing to a String cannot fail");
    }
    out
}

#[derive(Debug)]
struct Proxy(Snapshot);

fn user(name: &str) -> Labels {
    vec![("user", name.to_owned())]
}

fn labels(name: &str, direction: &str) -> Labels {
    vec![("user", name.to_owned()), ("direction", direction.to_owned())]
}

impl Collector for Proxy {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (now, mut out) = (&self.0, Families(encoder));
        let listed: Vec<&UserView> = now.users.iter().filter(|user| user.listed).collect();
        // Of guests those that have left count, too.
        let each = |of: fn(&UserView) -> u64, guests: u64| -> Vec<(Labels, u64)> {
            listed.iter().map(|u| (user(&u.name), of(u))).chain([(user(GUESTS), guests)]).collect()
        };
        out.gauge("connections", "Connections, UDP sources and listeners that are open.", [(Labels::new(), now.connections as f64)])?;
        out.gauge(
            "user_connections",
            "The same of each user.",
            now.users.iter().filter(|u| u.listed).map(|u| (user(&u.name), u.connections as f64)),
        )?;
        out.counter("user_connections_begun", "Connections that began.", each(|u| u.connections_total, now.guests.connections_total))?;
        out.counter("user_refused", "Connections that were refused.", each(|u| u.refused, now.guests.refused))?;
        out.counter("user_dropped_datagrams", "Datagrams beyond the rate or the quota.", each(|u| u.dropped, now.guests.dropped))?;
        let bytes = listed.iter().flat_map(|u| [(labels(&u.name, "up"), u.up), (labels(&u.name, "down"), u.down)]);
        out.counter(
            "user_bytes",
            "Bytes to targets (up) and from them (down).",
            bytes.chain([(labels(GUESTS, "up"), now.guests.up), (labels(GUESTS, "down"), now.guests.down)]),
        )?;
        let quota = |of: fn(&noctule_proxy::QuotaView) -> u64| {
            listed.iter().flat_map(move |u| {
                u.quotas.iter().map(move |quota| {
                    let period = format!("{:?}", quota.period).to_lowercase();
                    (vec![("user", u.name.clone()), ("period", period)], of(quota) as f64)
                })
            })
        };
        out.gauge("user_quota_bytes", "Bytes that a quota allows.", quota(|quota| quota.bytes))?;
        out.gauge("user_quota_used_bytes", "Bytes of it that were moved.", quota(|quota| quota.used))
    }
}
