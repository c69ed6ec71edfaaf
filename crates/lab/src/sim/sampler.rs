//! A run looked at while it goes on: goodput, queueing delay, round trip and loss of one interval after the other.

use std::time::Duration;

use noctule_proto::units::Time;
use serde::{Deserialize, Serialize};

use super::world::{Host, PipeId, World, WorldError};
use crate::link::LinkStats;
use crate::report::round;
use crate::scenario::{Scenario, Workload};

/// Intervals of a run whose length is known.
const INTERVALS: u32 = 200;
/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// One interval of a run. A value is null where nothing happened in the interval, or where the back end cannot see it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// End of the interval: seconds since the start of the run.
    pub t: f64,
    /// Bytes that the receiving applications read in it, Mbit/s. On namespaces: UDP payload that the last link brought.
    pub goodput_mbit: Option<f64>,
    /// Mean queueing delay of the packets that left a queue in it, ms; of the link where that is longest.
    pub queue_ms: Option<f64>,
    /// Smoothed round trip that the first sender has measured, ms.
    pub rtt_ms: Option<f64>,
    /// Packets that a link dropped or lost over those handed to it, in the direction of the data; of the link where that is most.
    pub loss: Option<f64>,
}

/// Hears of every interval as soon as it is over.
pub type Watch = Box<dyn FnMut(&Sample) + Send>;

/// What a run says of itself at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    /// Bytes read so far.
    pub bytes: u64,
    /// Smoothed round trip, if there is one.
    pub rtt: Option<Duration>,
}

/// What a link had counted at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    offered: u64,
    gone: u64,
    queued: u64,
    waited_s: f64,
}

impl Counted {
    fn of(stats: &LinkStats) -> Self {
        let gone = stats.too_big + stats.policed + stats.queue_drops + stats.aqm_drops + stats.lost + stats.outage_lost;
        let queued = stats.queue_delay.count();
        Self { offered: stats.offered_packets, gone, queued, waited_s: stats.queue_delay.mean().as_secs_f64() * queued as f64 }
    }
}

/// The difference of two accounts of each link: the longest mean queueing delay in ms, and the largest share that was lost.
#[derive(Debug, Clone, Default)]
pub struct LinkSampler {
    last: Vec<Counted>,
}

impl LinkSampler {
    /// What happened on `links` since the last call.
    pub fn since<'a>(&mut self, links: impl Iterator<Item = &'a LinkStats>) -> (Option<f64>, Option<f64>) {
        let now: Vec<Counted> = links.map(Counted::of).collect();
        self.last.resize(now.len(), Counted::default());
        let (mut queue, mut loss) = (None::<f64>, None::<f64>);
        for (now, last) in now.iter().zip(&self.last) {
            // Counters begin anew after the warm-up.
            let last = if now.offered < last.offered || now.queued < last.queued { Counted::default() } else { *last };
            if now.queued > last.queued {
                let ms = (now.waited_s - last.waited_s).max(0.0) * 1e3 / (now.queued - last.queued) as f64;
                queue = Some(queue.map_or(ms, |most| most.max(ms)));
            }
            if now.offered > last.offered {
                let share = (now.gone.saturating_sub(last.gone) as f64 / (now.offered - last.offered) as f64).min(1.0);
                loss = Some(loss.map_or(share, |most| most.max(share)));
            }
        }
        self.last = now;
        (queue.map(|ms| round(ms, 3)), loss.map(|share| round(share, 5)))
    }
}

/// Looks at a simulated run at even intervals of its virtual time. It changes nothing: the run is the same without it.
pub(super) struct Sampler {
    watch: Watch,
    pipes: Vec<PipeId>,
    /// None: a transfer, whose length nobody knows; its intervals grow with its age.
    interval: Option<Duration>,
    next: Time,
    at: Time,
    bytes: u64,
    links: LinkSampler,
}

impl Sampler {
    /// Of a run over these links, forward and back.
    pub(super) fn new(scenario: &Scenario, pipes: &[(PipeId, PipeId)], watch: Watch) -> Self {
        let network = &scenario.network;
        let of_data =
            |(link, &(forward, back)): (usize, &(PipeId, PipeId))| Some(if network.data_is_forward(link)? { forward } else { back });
        let is_timed = !matches!(scenario.workload, Workload::Transfer { .. });
        let interval = is_timed.then(|| (scenario.seconds.0 / INTERVALS).max(SHORTEST));
        let next = Time::ZERO + interval.unwrap_or(SHORTEST);
        let pipes = pipes.iter().enumerate().filter_map(of_data).collect();
        Self { watch, pipes, interval, next, at: Time::ZERO, bytes: 0, links: LinkSampler::default() }
    }

    fn look<H: Host>(&mut self, world: &World<H>, look: Look) {
        let now = world.now();
        let seconds = now.since(self.at).as_secs_f64();
        let (queue_ms, loss) = self.links.since(self.pipes.iter().map(|&pipe| world.pipe_stats(pipe)));
        let bytes = look.bytes.saturating_sub(self.bytes);
        let sample = Sample {
            t: round(now.as_secs_f64(), 3),
            goodput_mbit: (seconds > 0.0).then(|| round(bytes as f64 * 8e-6 / seconds, 4)),
            queue_ms,
            rtt_ms: look.rtt.map(|rtt| round(rtt.as_secs_f64() * 1e3, 3)),
            loss,
        };
        (self.watch)(&sample);
        (self.at, self.bytes) = (now, look.bytes);
        self.next = now + self.interval.unwrap_or_else(|| SHORTEST.max(Duration::from_secs_f64(now.as_secs_f64() / 100.0)));
    }
}

/// Runs the world until then, and looks at it where an interval ends on the way.
pub(super) fn run_until<H: Host>(
    world: &mut World<H>,
    until: Time,
    sampler: &mut Option<Sampler>,
    look: impl Fn(&World<H>) -> Look,
) -> Result<(), WorldError> {
    if let Some(sampler) = sampler {
        while sampler.next <= until {
            world.run_until(sampler.next.max(world.now()))?;
            sampler.look(world, look(world));
        }
    }
    world.run_until(until)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::cli::RunLine;

    fn watched(line: &str) -> (crate::report::Report, Vec<Sample>) {
        let scenario = RunLine(line.split(' ').map(str::to_owned).collect()).scenario().unwrap();
        let samples = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&samples);
        let report = crate::sim::run_watched(&scenario, Some(Box::new(move |sample| heard.lock().unwrap().push(*sample)))).unwrap();
        let plain = crate::sim::run(&scenario).unwrap();
        // Looking changes nothing.
        assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&plain).unwrap());
        let samples = std::mem::take(&mut *samples.lock().unwrap());
        (report, samples)
    }

    fn mean(samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> f64 {
        let values: Vec<f64> = samples.iter().filter_map(of).collect();
        assert!(!values.is_empty());
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn samples_add_up_to_the_report_and_change_nothing() {
        let (report, samples) = watched("--rate=4mbit --delay=20ms --loss=5% --seconds=6 --warmup=2 --seed=3");
        assert_eq!((samples.len(), samples.last().map(|s| s.t)), (200, Some(6.0)));
        let counted: Vec<Sample> = samples.iter().copied().filter(|sample| sample.t > 2.0).collect();
        let goodput = mean(&counted, |s| s.goodput_mbit);
        assert!((goodput - report.goodput_mbit).abs() < 0.05, "{goodput} {}", report.goodput_mbit);
        let loss = mean(&counted, |s| s.loss);
        assert!((loss - 0.05).abs() < 0.02, "{loss}");
        let rtt = samples.last().and_then(|s| s.rtt_ms).unwrap();
        assert!((40.0..200.0).contains(&rtt), "{rtt}");
        assert!(mean(&counted, |s| s.queue_ms) < report.queue_ms_p95 + 1.0);
    }

    #[test]
    fn transfers_and_senders_of_other_kinds_are_seen_too() {
        let (report, samples) = watched("--rate=4mbit --delay=5ms --workload=transfer:300KB --seconds=60 --warmup=0");
        assert!(report.transfer_s.unwrap() < 5.0 && samples.len() > 20, "{}", samples.len());
        let (_, samples) = watched("--rate=4mbit --delay=5ms --senders=quic-cubic --seconds=4 --warmup=1");
        assert!(mean(&samples, |s| s.goodput_mbit) > 2.0);
        let (_, samples) = watched("--hops=2 --relays=proxy --cc=cubic --rate=4mbit --delay=5ms --seconds=4 --warmup=1");
        assert!(mean(&samples, |s| s.goodput_mbit) > 2.0);
    }
}
