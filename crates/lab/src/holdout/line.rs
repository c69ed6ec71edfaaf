//! A draw as the flags of `noctule-lab sim`.

use super::Kind;
use super::distribution::{Burst, Conditions, QueueKind};
use crate::cli::RunLine;
use crate::link::{Bandwidth, LinkSpec};
use crate::scenario::{Congestion, Scenario, payload_share};

/// Share of the narrowest link that the second run of a bulk draw is told.
pub const TOLD: f64 = 0.97;

/// The command of a draw.
pub fn of(c: &Conditions) -> RunLine {
    let mut words: Vec<String> = Vec::new();
    let mut add = |flag: &str, value: String| words.push(format!("--{flag}={value}"));
    let hops = c.rates_mbit.len();
    if hops > 1 {
        add("hops", hops.to_string());
        if c.draw.kind == Kind::Beside {
            add("relays", "ip".to_owned());
        }
    }
    add("rate", format!("{}mbit", c.rates_mbit[0]));
    add("delay", format!("{}ms", c.delays_ms[0]));
    // What one link has and the others have not; the first link has the flags themselves where it can.
    let mut on_link: Vec<Vec<String>> = vec![Vec::new(); hops];
    for (link, keys) in on_link.iter_mut().enumerate().skip(1) {
        if c.rates_mbit[link] != c.rates_mbit[0] {
            keys.push(format!("rate={}mbit", c.rates_mbit[link]));
        }
        keys.push(format!("delay={}ms", c.delays_ms[link]));
    }
    if let Some(loss) = &c.loss {
        let model = match loss.burst {
            Burst::None => None,
            Burst::Packets(n) => Some(format!("gilbert:{n}")),
            Burst::Ms(ms) => Some(format!("gilbert:{ms}ms")),
        };
        let keys = [Some(("loss", format!("{}%", loss.percent))), model.map(|model| ("loss-model", model))];
        let at = loss.before.then(|| ("loss-at", "before".to_owned()));
        for (key, value) in keys.into_iter().chain([at]).flatten() {
            match loss.link {
                None => add(key, value),
                Some(link) => on_link[link].push(format!("{key}={value}")),
            }
        }
        if let Some(back) = loss.back_percent {
            add("rev-loss", format!("{back}%"));
        }
    }
    if let Some(jitter) = &c.jitter {
        on_link[jitter.link].extend([format!("jitter={}ms", jitter.ms), format!("jitter-dist={}", jitter.shape)]);
        if jitter.reorders {
            on_link[jitter.link].push("jitter-reorder=true".to_owned());
        }
    }
    if let Some((percent, ms)) = c.reorder {
        add("reorder", format!("{percent}%:{ms}ms"));
    }
    match c.queue {
        QueueKind::DropTail(bdp) => add("queue", format!("{bdp}bdp")),
        QueueKind::Aqm(aqm) => add("aqm", aqm.to_owned()),
    }
    if c.mtu != 1500 {
        add("mtu", c.mtu.to_string());
    }
    if c.ip != 4 {
        add("ip", c.ip.to_string());
    }
    if let Some(mbit) = c.back_mbit {
        add("rev", format!("rate={mbit}mbit"));
    }
    for (link, keys) in on_link.iter().enumerate().filter(|(_, keys)| !keys.is_empty()) {
        add("hop", format!("{}:{}", link + 1, keys.join(",")));
    }
    if let Some((at, lasts)) = c.outage {
        add("outage", format!("{at}s+{lasts}s"));
    }
    for (at, mbit) in &c.changes {
        add("at", format!("{at}s:rate={mbit}mbit"));
    }
    match c.draw.kind {
        Kind::Bulk => {}
        Kind::Btp => {
            add("mode", "btp".to_owned());
            add("lifetime", format!("{}ms", c.lifetime_ms));
        }
        Kind::Beside => add("senders", format!("noctule,{}", c.other)),
        Kind::Messages => add("workload", format!("messages:{}/s:{}B", c.messages.0, c.messages.1)),
    }
    add("seconds", c.seconds.to_string());
    add("warmup", c.warmup_s.to_string());
    add("seed", c.run_seed.to_string());
    RunLine(words)
}

/// The rate that a sender would be told: 97 % of what the narrowest link carries of UDP payload, at its slowest.
pub fn told(scenario: &Scenario) -> Congestion {
    let states =
        |spec: &LinkSpec| spec.states().unwrap_or_default().into_iter().map(|(_, state)| state).chain([spec.clone()]).collect::<Vec<_>>();
    let payload = |spec: LinkSpec| Some(spec.capacity()?.bits_per_sec() as f64 * payload_share(spec.mtu, scenario.ip.overhead()));
    let least = scenario.hops.iter().flat_map(|hop| states(&hop.forward)).filter_map(payload).fold(f64::INFINITY, f64::min);
    // Whole kbit/s: the command that repeats it is typed by people.
    Congestion::Rate(Bandwidth::from_bits_per_sec((TOLD * least / 1e3) as u64 * 1000))
}
