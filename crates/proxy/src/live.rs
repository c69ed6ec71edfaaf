//! What a server has at present, for those that look after it: users, connections, and the targets that have moved the most.

use crate::report::{Counts, End};
use crate::user::{Period, Traffic, User, seconds};
use crate::wire::Transport;
use noctule::PublicKey;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::time::Instant;

/// Targets that are told apart; the rest is counted together.
pub const MOST_TARGETS: usize = 256;

/// One connection, association or listener.
#[derive(Debug)]
pub(crate) struct Live {
    pub id: u64,
    pub key: PublicKey,
    pub user: Arc<User>,
    pub transport: Transport,
    pub source: String,
    pub target: String,
    pub begun: Instant,
    pub counts: Arc<Counts>,
    /// The address that was dialled, and the rule that allowed it.
    pub reached: OnceLock<(SocketAddr, String)>,
}

impl Live {
    /// Ends it.
    pub fn end(&self, why: &str) {
        self.counts.end(End::Closed(why.to_owned()));
    }

    pub fn view(&self) -> ConnectionView {
        let (down, up) = self.counts.get();
        ConnectionView {
            id: self.id,
            user: self.user.name.clone(),
            transport: if self.transport == Transport::Tcp { "tcp" } else { "udp" }.into(),
            source: self.source.clone(),
            target: self.target.clone(),
            address: self.reached.get().map(|(address, _)| address.to_string()),
            rule: self.reached.get().map(|(_, rule)| rule.clone()),
            up,
            down,
            seconds: seconds(self.begun.elapsed()),
        }
    }
}

/// A connection at present. Counts are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionView {
    /// Its number, for `kick`.
    pub id: u64,
    /// Whose it is.
    pub user: String,
    /// `tcp` or `udp`.
    pub transport: String,
    /// Where it comes from.
    pub source: String,
    /// What was asked for.
    pub target: String,
    /// What was dialled.
    pub address: Option<String>,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// To the target.
    pub up: u64,
    /// From the target.
    pub down: u64,
    /// Since it began.
    pub seconds: f64,
}

/// A user at present. Counts are since the start of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserView {
    /// Its name; of a guest, its key.
    pub name: String,
    /// It is listed.
    pub listed: bool,
    /// Sessions that are open.
    pub sessions: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Connections since the start.
    pub connections_total: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Datagrams beyond its rate or its quota.
    pub dropped: u64,
    /// Bytes to targets.
    pub up: u64,
    /// Bytes from targets.
    pub down: u64,
    /// Bytes per second to targets, of late.
    pub rate_up: u64,
    /// Bytes per second from targets.
    pub rate_down: u64,
    /// Most bytes per second to targets.
    pub max_rate_up: Option<u64>,
    /// Most bytes per second from targets.
    pub max_rate_down: Option<u64>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Its quotas.
    pub quotas: Vec<QuotaView>,
}

/// A quota at present.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaView {
    /// When it begins again.
    pub period: Period,
    /// Bytes that are allowed.
    pub bytes: u64,
    /// Bytes that were moved.
    pub used: u64,
}

impl UserView {
    pub(crate) fn of(user: &User, sessions: usize, connections: usize) -> Self {
        let (limits, usage, (rate_up, rate_down), traffic) = (user.limits(), user.usage(), user.rates(), &user.traffic);
        let now = SystemTime::now();
        Self {
            name: user.name.clone(),
            listed: user.is_listed,
            sessions,
            connections,
            connections_total: traffic.connections.load(Relaxed),
            refused: traffic.refused.load(Relaxed),
            dropped: traffic.dropped.load(Relaxed),
            up: traffic.up.load(Relaxed),
            down: traffic.down.load(Relaxed),
            rate_up,
            rate_down,
            max_rate_up: limits.rate_up,
            max_rate_down: limits.rate_down,
            max_connections: limits.max_connections,
            quotas: (limits.quotas.iter())
                .map(|quota| QuotaView { period: quota.period, bytes: quota.bytes, used: usage.of(quota.period, now) })
                .collect(),
        }
    }
}

/// What a target has moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetView {
    /// As it was asked for.
    pub target: String,
    /// Connections.
    pub connections: u64,
    /// Bytes to it.
    pub up: u64,
    /// Bytes from it.
    pub down: u64,
}

impl TargetView {
    fn add(&mut self, connections: u64, up: u64, down: u64) {
        self.connections += connections;
        self.up += up;
        self.down += down;
    }

    fn bytes(&self) -> u64 {
        self.up + self.down
    }
}

/// A server at present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Users of the file, by name, and guests that are there.
    pub users: Vec<UserView>,
    /// All guests since the start, those that have left too.
    pub guests: GuestsView,
    /// Connections that are open.
    pub connections: usize,
    /// The targets that have moved the most, the largest first.
    pub targets: Vec<TargetView>,
    /// All others together.
    pub other_targets: TargetView,
}

/// Counts of keys that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestsView {
    /// Connections since the start.
    pub connections_total: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Datagrams beyond rates or quotas.
    pub dropped: u64,
    /// Bytes to targets.
    pub up: u64,
    /// Bytes from targets.
    pub down: u64,
}

impl GuestsView {
    pub(crate) fn of(traffic: &Traffic) -> Self {
        Self {
            connections_total: traffic.connections.load(Relaxed),
            refused: traffic.refused.load(Relaxed),
            dropped: traffic.dropped.load(Relaxed),
            up: traffic.up.load(Relaxed),
            down: traffic.down.load(Relaxed),
        }
    }
}

/// Counts of targets, of connections that have ended. The smallest makes room for a larger one, and is part of the rest from then on.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    told: HashMap<String, TargetView>,
    other: TargetView,
}

impl Targets {
    pub fn add(&mut self, target: &str, up: u64, down: u64) {
        if let Some(known) = self.told.get_mut(target) {
            return known.add(1, up, down);
        }
        let new = TargetView { target: target.to_owned(), connections: 1, up, down };
        if self.told.len() >= MOST_TARGETS {
            let smallest = self.told.values().min_by_key(|t| t.bytes()).map(|t| (t.bytes(), t.target.clone()));
            match smallest.filter(|(bytes, _)| *bytes < new.bytes()).and_then(|(_, name)| self.told.remove(&name)) {
                Some(gone) => self.other.add(gone.connections, gone.up, gone.down),
                None => return self.other.add(1, up, down),
            }
        }
        self.told.insert(new.target.clone(), new);
    }

    /// Those that are told apart, the largest first, and the rest; `live`: connections that have not ended.
    pub fn view(&self, live: impl Iterator<Item = ConnectionView>) -> (Vec<TargetView>, TargetView) {
        let mut all = Self { told: self.told.clone(), other: self.other.clone() };
        live.for_each(|connection| all.add(&connection.target, connection.up, connection.down));
        let mut told: Vec<TargetView> = all.told.into_values().collect();
        told.sort_by(|a, b| b.bytes().cmp(&a.bytes()).then_with(|| a.target.cmp(&b.target)));
        (told, all.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_targets_are_told_apart_and_nothing_is_lost() {
        let mut targets = Targets::default();
        for n in 0..1000u64 {
            targets.add(&format!("t{n}"), n, 1);
        }
        targets.add("t999", 5, 0);
        let (told, other) = targets.view(std::iter::empty());
        assert_eq!((told.len(), told[0].target.as_str(), told[0].up, told[0].connections), (MOST_TARGETS, "t999", 1004, 2));
        assert_eq!(told.last().unwrap().target, format!("t{}", 1000 - MOST_TARGETS));
        let sum = told.iter().chain([&other]).fold((0, 0, 0), |(c, u, d), t| (c + t.connections, u + t.up, d + t.down));
        assert_eq!(sum, (1001, 999 * 500 + 5, 1000));
    }
}
