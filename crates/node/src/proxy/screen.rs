//! What `noctule proxy status` shows.

use super::api::Report;
use crate::daemon::status::{Screen, Section};
use crate::units::{self, Scale, counted, size};
use noctule_proxy::{ConnectionView, QuotaView, TargetView, UserView};
use std::time::Duration;

/// Targets that are shown.
const TARGETS: usize = 10;
/// Characters of a name or a target.
const NAME: usize = 24;

fn short(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn rate(now: u64, most: Option<u64>) -> String {
    let shown = |bytes: u64| Scale::Auto.rate(bytes as f64 * 8.0);
    match most {
        Some(most) => format!("{} of {}", shown(now), shown(most)),
        None => shown(now),
    }
}

fn quota(quota: &QuotaView) -> String {
    let period = format!("{:?}", quota.period).to_lowercase();
    let end = if quota.used >= quota.bytes { ", used up" } else { "" };
    format!("{period} {} of {}{end}", size(quota.used as f64), size(quota.bytes as f64))
}

fn user(user: &UserView) -> String {
    let quotas: Vec<String> = user.quotas.iter().map(quota).collect();
    format!(
        "{:NAME$}  {:>8}  {:>7}  {:>10}  {:>10}  {:<30}  {:<30}  {}",
        short(&user.name, NAME),
        format!("{}/{}", user.connections, user.max_connections),
        user.refused,
        size(user.up as f64),
        size(user.down as f64),
        rate(user.rate_up, user.max_rate_up),
        rate(user.rate_down, user.max_rate_down),
        quotas.join("; ")
    )
}

fn target(target: &TargetView) -> String {
    format!("{:40}  {:>7}  {:>10}  {:>10}", short(&target.target, 40), target.connections, size(target.up as f64), size(target.down as f64))
}

fn connection(view: &ConnectionView) -> String {
    format!(
        "{:>6}  {:NAME$}  {:3}  {:28}  {:32}  {:>10}  {:>10}  {:>8}  {}",
        view.id,
        short(&view.user, NAME),
        view.transport,
        short(&view.source, 28),
        short(&view.target, 32),
        size(view.up as f64),
        size(view.down as f64),
        units::time(Duration::from_secs_f64(view.seconds.max(0.0))),
        view.rule.as_deref().unwrap_or("-")
    )
}

/// A report as text.
pub fn print(report: &Report, connections: Option<&[ConnectionView]>, screen: Screen) -> String {
    let now = &report.now;
    let dropped: u64 = now.users.iter().filter(|user| user.listed).map(|user| user.dropped).sum::<u64>() + now.guests.dropped;
    let mut first = format!(
        "noctule proxy serve {}, up {}: {}, {}",
        report.version,
        units::time(Duration::from_secs_f64(report.uptime_s.max(0.0))),
        counted(now.users.len() as u64, "user"),
        counted(now.connections as u64, "connection")
    );
    if dropped > 0 {
        first += &format!("; {} beyond their rate or quota dropped", counted(dropped, "datagram"));
    }
    let mut sections = vec![Section { text: vec![first], ..Section::default() }];
    if !now.users.is_empty() {
        let heading = format!(
            "{:NAME$}  {:>8}  {:>7}  {:>10}  {:>10}  {:<30}  {:<30}  QUOTAS",
            "USER", "OPEN", "REFUSED", "UP", "DOWN", "RATE UP", "RATE DOWN"
        );
        sections.push(Section { heading: Some(heading), rows: now.users.iter().map(user).collect(), ..Section::default() });
    }
    if !now.targets.is_empty() {
        let mut rows: Vec<String> = now.targets.iter().take(TARGETS).map(target).collect();
        let mut other = TargetView { target: "others".into(), ..now.other_targets.clone() };
        for hidden in now.targets.iter().skip(TARGETS) {
            other.connections += hidden.connections;
            other.up += hidden.up;
            other.down += hidden.down;
        }
        if other.connections > 0 {
            rows.push(target(&other));
        }
        let heading = format!("{:40}  {:>7}  {:>10}  {:>10}", "TARGET", "BEGUN", "UP", "DOWN");
        sections.push(Section { heading: Some(heading), rows, ..Section::default() });
    }
    if let Some(connections) = connections.filter(|connections| !connections.is_empty()) {
        let heading = format!(
            "{:>6}  {:NAME$}  {:3}  {:28}  {:32}  {:>10}  {:>10}  {:>8}  RULE",
            "NUMBER", "USER", "", "SOURCE", "TARGET", "UP", "DOWN", "TIME"
        );
        sections.push(Section { heading: Some(heading), rows: connections.iter().map(connection).collect(), ..Section::default() });
    }
    screen.fit(sections)
}
