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

/// A line of what has passed, one of rates if there are any, and one for each quota.
fn user(user: &UserView) -> Vec<String> {
    let mut rows = vec![format!(
        "{:NAME$}  {:>9}  {:>7}  {:>10}  {:>10}",
        short(&user.name, NAME),
        format!("{}/{}", user.connections, user.max_connections),
        user.refused,
        size(user.up as f64),
        size(user.down as f64)
    )];
    if user.rate_up + user.rate_down > 0 || user.max_rate_up.is_some() || user.max_rate_down.is_some() {
        rows.push(format!("    now {} up, {} down", rate(user.rate_up, user.max_rate_up), rate(user.rate_down, user.max_rate_down)));
    }
    rows.extend(user.quotas.iter().map(|one| format!("    quota: {}", quota(one))));
    rows
}

fn target(target: &TargetView) -> String {
    format!("{:40}  {:>7}  {:>10}  {:>10}", short(&target.target, 40), target.connections, size(target.up as f64), size(target.down as f64))
}

/// A line of what it is and has passed, and one of where it comes from.
fn connection(view: &ConnectionView) -> Vec<String> {
    vec![
        format!(
            "{:>6}  {:16}  {:3}  {:26}  {:>9}  {:>9}",
            view.id,
            short(&view.user, 16),
            view.transport,
            short(&view.target, 26),
            size(view.up as f64),
            size(view.down as f64)
        ),
        format!(
            "        from {}, {}, by {}",
            short(&view.source, 28),
            units::time(seconds(view.seconds)),
            view.rule.as_deref().unwrap_or("no rule yet")
        ),
    ]
}

/// What a server says; one that says what cannot be is shown as one that has just started.
fn seconds(said: f64) -> Duration {
    Duration::try_from_secs_f64(said).unwrap_or_default()
}

/// A report as text.
pub fn print(report: &Report, connections: Option<&[ConnectionView]>, screen: Screen) -> String {
    let now = &report.now;
    let dropped: u64 = now.users.iter().filter(|user| user.listed).fold(now.guests.dropped, |sum, user| sum.saturating_add(user.dropped));
    let mut first = format!(
        "noctule proxy serve {}, up {}: {}, {}",
        report.version,
        units::time(seconds(report.uptime_s)),
        counted(now.users.len() as u64, "user"),
        counted(now.connections as u64, "connection")
    );
    if dropped > 0 {
        first += &format!("; {} beyond their rate or quota dropped", counted(dropped, "datagram"));
    }
    let mut sections = vec![Section { text: vec![first], ..Section::default() }];
    if !now.users.is_empty() {
        let heading = format!("{:NAME$}  {:>9}  {:>7}  {:>10}  {:>10}", "USER", "OPEN", "REFUSED", "UP", "DOWN");
        sections.push(Section { heading: Some(heading), rows: now.users.iter().flat_map(user).collect(), ..Section::default() });
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
        let heading = format!("{:>6}  {:16}  {:3}  {:26}  {:>9}  {:>9}", "NUMBER", "USER", "", "TARGET", "UP", "DOWN");
        let rows = connections.iter().flat_map(connection).collect();
        sections.push(Section { heading: Some(heading), rows, ..Section::default() });
    }
    screen.fit(sections)
}
