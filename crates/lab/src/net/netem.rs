//! The same link description as commands for the kernel's own emulation: a bottleneck (HTB with a FIFO) in one
//! router namespace, delay and loss (netem) in the next, so that losses sit after the bottleneck.
//!
//! ```text
//! host A ── router near A ══ router near B ── host B
//!            HTB → A-to-B      netem → A-to-B
//!            netem ← B-to-A    HTB ← B-to-A
//! ```

use std::io;
use std::process::Stdio;
use std::time::Duration;

use thiserror::Error;

use super::namespace::Namespace;
use crate::link::{Aqm, Burst, JitterDist, LinkSpec, LossAt, LossModel, PieParameters, QueueLimit};

/// Something in the description that netem cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("netem cannot emulate {0}; use --backend emulator")]
pub struct NotExpressible(pub &'static str);

/// The `tc` arguments of one direction of a link, per device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectionCommands {
    /// On the sending host's device: losses before the bottleneck.
    pub host: Vec<Vec<String>>,
    /// On the first router's device towards the second: rate and queue.
    pub bottleneck: Vec<Vec<String>>,
    /// On the second router's device towards the receiving host: delay, and what happens to packets under way.
    pub propagation: Vec<Vec<String>>,
}

/// An Ethernet header, which the kernel counts and a rate in IP bytes does not.
const ETHERNET_BYTES: u64 = 14;
/// The smallest packets of interest (acknowledgements): how many may be under way decides netem's limit.
const SMALL_PACKET: u64 = 64;

impl DirectionCommands {
    /// Commands for `spec` on devices named `device`, with netem's own random generator seeded.
    pub fn new(spec: &LinkSpec, device: &str, seed: u64) -> Result<Self, NotExpressible> {
        let other_burst = matches!(spec.aqm, Some(Aqm::Pie(p)) if p.burst != PieParameters::default().burst);
        let unsupported = [
            (!spec.outage.is_empty(), "outages"),
            (!spec.at.is_empty(), "changes in mid-run"),
            (spec.reorder.is_some(), "reordering by holding packets back"),
            (spec.ecn.is_some(), "ECN marks at a queueing delay"),
            (spec.bucket.is_some(), "a token bucket beside the rate"),
            (spec.policer.is_some(), "a policer"),
            (spec.trace.is_some(), "a trace of opportunities to deliver"),
            (other_burst, "a burst of PIE other than 150 ms"),
            (!spec.jitter.0.is_zero() && !spec.jitter_reorder, "jitter that keeps the order"),
            (spec.jitter_dist == JitterDist::Pareto, "our Pareto jitter (shape 3)"),
        ];
        if let Some((_, what)) = unsupported.into_iter().find(|(wanted, _)| *wanted) {
            return Err(NotExpressible(what));
        }
        let loss = loss_words(spec)?;
        let mut commands = Self::default();
        if let Some(rate) = spec.rate {
            commands.bottleneck = bottleneck(spec, rate.bits_per_sec(), device);
        }
        if spec.loss_at == LossAt::Before && !loss.is_empty() {
            let mut words = netem_words(device, 100_000);
            words.extend(loss.clone());
            words.extend(seed_words(seed));
            commands.host.push(words);
        }
        let mut effects = Vec::new();
        if !spec.delay.0.is_zero() || !spec.jitter.0.is_zero() {
            effects.extend(["delay".to_owned(), micros(spec.delay.0)]);
            if !spec.jitter.0.is_zero() {
                effects.push(micros(spec.jitter.0));
                if spec.jitter_dist == JitterDist::Normal {
                    effects.extend(["distribution".to_owned(), "normal".to_owned()]);
                }
            }
        }
        if spec.loss_at == LossAt::After {
            effects.extend(loss);
        }
        for (word, share) in [("duplicate", spec.duplicate), ("corrupt", spec.corrupt)] {
            if !share.is_zero() {
                effects.extend([word.to_owned(), percent(share.get())]);
            }
        }
        if !effects.is_empty() {
            let mut words = netem_words(device, packets_in_flight(spec));
            words.extend(effects);
            words.extend(seed_words(seed.wrapping_add(1)));
            commands.propagation.push(words);
        }
        Ok(commands)
    }

    /// Whether any of the commands needs netem itself.
    pub fn needs_netem(&self) -> bool {
        !self.host.is_empty() || !self.propagation.is_empty()
    }
}

/// HTB counts frames; the size table takes the Ethernet header off again (tc-stab(8)).
fn bottleneck(spec: &LinkSpec, bits: u64, device: &str) -> Vec<Vec<String>> {
    let burst = (bits / 8 / 10_000).max(u64::from(spec.mtu) + ETHERNET_BYTES);
    let round_trip = spec.bdp_rtt.unwrap_or(2 * spec.delay.0);
    let (packets, bytes) = spec.queue.resolve(spec.rate, round_trip);
    let queue = if let Some(aqm) = spec.aqm {
        // The kernel's limit is in packets; one in bytes is turned into full ones.
        let limit = match spec.queue == QueueLimit::default() {
            true => aqm.usual_limit(),
            false => packets.min(bytes / u64::from(spec.mtu)).clamp(1, 1_000_000),
        };
        aqm_words(aqm, limit)
    } else if bytes == u64::MAX {
        format!("pfifo limit {}", packets.min(1_000_000))
    } else {
        format!("bfifo limit {}", bytes.min(u64::from(u32::MAX)))
    };
    [
        format!("qdisc replace dev {device} root handle 1: stab overhead -{ETHERNET_BYTES} linklayer ethernet htb default 10"),
        format!(
            "class add dev {device} parent 1: classid 1:10 htb rate {bits}bit ceil {bits}bit burst {burst}b cburst {burst}b \
             quantum {}",
            u64::from(spec.mtu) + ETHERNET_BYTES
        ),
        format!("qdisc add dev {device} parent 1:10 handle 10: {queue}"),
    ]
    .iter()
    .map(|line| line.split_whitespace().map(str::to_owned).collect())
    .collect()
}

/// The kernel's own queue discipline with the same parameters; tc-fq_codel(8), tc-pie(8).
fn aqm_words(aqm: Aqm, limit: u64) -> String {
    let ecn = |asked: bool| if asked { "ecn" } else { "noecn" };
    match aqm {
        Aqm::FqCodel(p) => format!(
            "fq_codel limit {limit} flows {} quantum {} target {} interval {} {}",
            p.flows,
            u64::from(p.quantum) + ETHERNET_BYTES,
            micros(p.target.0),
            micros(p.interval.0),
            ecn(p.ecn)
        ),
        // MAX_BURST is not a parameter of the kernel's.
        Aqm::Pie(p) => format!("pie limit {limit} target {} tupdate {} {}", micros(p.target.0), micros(p.update.0), ecn(p.ecn)),
    }
}

fn loss_words(spec: &LinkSpec) -> Result<Vec<String>, NotExpressible> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    Ok(match spec.loss_model {
        LossModel::Random if spec.loss.is_zero() => Vec::new(),
        LossModel::Random => words(format!("loss random {}", percent(spec.loss.get()))),
        LossModel::Gilbert(Burst::Packets(_)) if spec.loss.is_zero() => Vec::new(),
        LossModel::Gilbert(Burst::Packets(burst)) => {
            let loss = spec.loss.get();
            let leave = 1.0 / burst;
            let enter = (leave * loss / (1.0 - loss)).min(1.0);
            words(format!("loss gemodel {} {} 100% 0%", percent(enter), percent(leave)))
        }
        LossModel::Gilbert(Burst::Time(_)) => {
            return Err(NotExpressible("loss bursts counted in time"));
        }
        LossModel::GilbertElliott { p, r, loss_bad, loss_good } => words(format!(
            "loss gemodel {} {} {} {}",
            percent(p.get()),
            percent(r.get()),
            percent(loss_bad.get()),
            percent(loss_good.get())
        )),
        LossModel::Markov4 { p13, p31, p32, p23, p14 } => words(format!(
            "loss state {} {} {} {} {}",
            percent(p13.get()),
            percent(p31.get()),
            percent(p32.get()),
            percent(p23.get()),
            percent(p14.get())
        )),
        LossModel::BitErrors(_) => {
            return Err(NotExpressible("bit errors (loss that depends on packet size)"));
        }
    })
}

fn netem_words(device: &str, limit: u64) -> Vec<String> {
    format!("qdisc replace dev {device} root netem limit {limit}").split(' ').map(str::to_owned).collect()
}

/// netem drops what exceeds its limit, so the limit covers all that the delay can hold, in small packets.
fn packets_in_flight(spec: &LinkSpec) -> u64 {
    let longest = spec.delay.0 + 5 * spec.jitter.0;
    match spec.rate {
        Some(rate) => (2 * rate.bytes_in(longest) / SMALL_PACKET).clamp(10_000, 1_000_000),
        None => 1_000_000,
    }
}

/// iproute2 6.6 and newer seed netem; older ones refuse the word, and the run says so.
fn seed_words(seed: u64) -> [String; 2] {
    ["seed".to_owned(), seed.to_string()]
}

fn percent(share: f64) -> String {
    format!("{}%", (share * 1e8).round() / 1e6)
}

fn micros(duration: Duration) -> String {
    format!("{}us", duration.as_nanos() as f64 / 1e3)
}

/// Whether this kernel has the queue discipline of a link: tried on the loopback device of a namespace that is thrown away.
pub fn has_queue_discipline(aqm: Aqm) -> Result<(), io::Error> {
    let trial = Namespace::new("aqm-trial")?;
    let words: Vec<String> = format!("qdisc replace dev lo root {}", aqm_words(aqm, 1000)).split(' ').map(str::to_owned).collect();
    tc(&trial, &words)
}

/// Runs `tc` with the given arguments inside a namespace.
pub fn tc(namespace: &Namespace, arguments: &[String]) -> io::Result<()> {
    let output = namespace.command("tc").args(arguments).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            "the netem back end needs `tc`: install iproute2 (apt-get install iproute2), or use --backend emulator",
        ),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("tc {}: {}", arguments.join(" "), text.trim().replace('\n', "; "))))
}

/// Whether this kernel has netem: tried on the loopback device of a namespace that is thrown away.
pub fn is_available() -> Result<(), io::Error> {
    let trial = Namespace::new("netem-trial")?;
    let mut words = netem_words("lo", 1000);
    words.extend(["delay".to_owned(), "1ms".to_owned()]);
    tc(&trial, &words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Bandwidth;

    fn link(list: &str) -> LinkSpec {
        let mut spec = LinkSpec::new(Bandwidth::from_mbit(100), Duration::from_millis(50));
        spec.set_list(list).unwrap();
        spec
    }

    fn lines(commands: &[Vec<String>]) -> Vec<String> {
        commands.iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn loss_after_the_bottleneck_is_netem_behind_htb() {
        let commands = DirectionCommands::new(&link("loss=10%,queue=1000p"), "right", 7).unwrap();
        assert!(commands.host.is_empty());
        assert_eq!(
            lines(&commands.bottleneck),
            [
                "qdisc replace dev right root handle 1: stab overhead -14 linklayer ethernet htb default 10",
                "class add dev right parent 1: classid 1:10 htb rate 100000000bit ceil 100000000bit burst 1514b cburst 1514b quantum 1514",
                "qdisc add dev right parent 1:10 handle 10: pfifo limit 1000",
            ]
        );
        assert_eq!(lines(&commands.propagation), ["qdisc replace dev right root netem limit 19531 delay 50000us loss random 10% seed 8"]);
    }

    #[test]
    fn aqm_is_the_kernels_own_with_the_same_parameters() {
        let queue = |list: &str| lines(&DirectionCommands::new(&link(list), "right", 7).unwrap().bottleneck)[2].clone();
        assert_eq!(
            queue("aqm=fq_codel"),
            "qdisc add dev right parent 1:10 handle 10: \
             fq_codel limit 10240 flows 1024 quantum 1514 target 5000us interval 100000us noecn"
        );
        assert!(queue("aqm=pie:target=20ms:ecn,queue=100p").ends_with("pie limit 100 target 20000us tupdate 15000us ecn"));
    }

    #[test]
    fn loss_before_the_bottleneck_is_netem_on_the_host() {
        let commands = DirectionCommands::new(&link("loss=5%,loss-at=before,queue=64KB"), "left", 7).unwrap();
        assert_eq!(lines(&commands.host), ["qdisc replace dev left root netem limit 100000 loss random 5% seed 7"]);
        assert!(lines(&commands.bottleneck)[2].ends_with("bfifo limit 64000"));
        assert!(!lines(&commands.propagation)[0].contains("loss"));
    }

    #[test]
    fn bursts_become_the_gilbert_elliott_model_with_the_same_mean() {
        let commands = DirectionCommands::new(&link("loss=20%,loss-model=gilbert:10"), "right", 1).unwrap();
        // r = 1/10; p = r·loss/(1-loss) = 0.025: mean p/(p+r) = 20 %.
        assert!(lines(&commands.propagation)[0].contains("loss gemodel 2.5% 10% 100% 0%"));
        let commands = DirectionCommands::new(&link("loss-model=markov4:1%:30%:20%:50%:0.5%"), "right", 1).unwrap();
        assert!(lines(&commands.propagation)[0].contains("loss state 1% 30% 20% 50% 0.5%"));
    }

    #[test]
    fn jitter_that_may_reorder_is_netems_own() {
        let commands =
            DirectionCommands::new(&link("jitter=1ms,jitter-dist=normal,jitter-reorder=true,duplicate=1%,corrupt=0.1%"), "right", 1)
                .unwrap();
        assert!(lines(&commands.propagation)[0].contains("delay 50000us 1000us distribution normal duplicate 1% corrupt 0.1%"));
    }

    #[test]
    fn what_netem_cannot_do_is_refused_and_named() {
        for (list, what) in [
            ("jitter=1ms", "keeps the order"),
            ("jitter=1ms,jitter-reorder=true,jitter-dist=pareto", "Pareto"),
            ("outage=1s+1s", "outages"),
            ("loss=5%,loss-model=gilbert:20ms", "in time"),
            ("loss-model=ber:1e-6", "bit errors"),
            ("reorder=1%:20ms", "reordering"),
            ("policer=10mbit:64KB", "policer"),
        ] {
            let error = DirectionCommands::new(&link(list), "right", 1).unwrap_err();
            assert!(error.to_string().contains(what), "{list}: {error}");
        }
    }

    #[test]
    fn plain_rate_needs_no_netem() {
        let mut spec = LinkSpec::new(Bandwidth::from_mbit(10), Duration::ZERO);
        assert!(!DirectionCommands::new(&spec, "right", 1).unwrap().needs_netem());
        spec.rate = None;
        assert_eq!(DirectionCommands::new(&spec, "right", 1).unwrap(), DirectionCommands::default());
    }
}
