//! What the links of a run do, written twice a second while it goes on.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::contest::Course;
use crate::report::round;
use crate::scenario::Scenario;
use crate::sim::{LinkSampler, Sample};
use crate::sweep::samples::SampleFile;

/// From one sample to the next.
const INTERVAL: Duration = Duration::from_millis(500);

/// Waits for the parts of a run, and writes samples meanwhile, if there is a file for them.
pub(super) struct Watch<'a> {
    course: &'a Course,
    scenario: &'a Scenario,
    samples: Option<SampleFile>,
    started: Instant,
    at: Instant,
    payload: u64,
    links: LinkSampler,
}

impl<'a> Watch<'a> {
    /// From now on.
    pub(super) fn new(course: &'a Course, scenario: &'a Scenario, samples: Option<SampleFile>) -> Self {
        let now = Instant::now();
        Self { course, scenario, samples, started: now, at: now, payload: 0, links: LinkSampler::default() }
    }

    /// Waits so long; false if the work was over before, or has failed.
    pub(super) fn wait(&mut self, work: &Receiver<()>, patience: Duration) -> io::Result<bool> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let step = if self.samples.is_some() { left.min(INTERVAL) } else { left };
            // Whatever is heard says that the work is over.
            if work.recv_timeout(step) != Err(RecvTimeoutError::Timeout) {
                return Ok(false);
            }
            if self.samples.is_some() {
                self.look()?;
            }
            if step == left {
                return Ok(true);
            }
        }
    }

    fn look(&mut self) -> io::Result<()> {
        let account = self.course.account(self.scenario)?;
        let now = Instant::now();
        let seconds = now.duration_since(self.at).as_secs_f64();
        let bytes = account.delivered_payload.saturating_sub(self.payload);
        // Netem tells nothing of queues and losses: then there are no links here, and both stay null.
        let (queue_ms, loss) = self.links.since(account.links.iter().map(|link| &link.forward));
        let sample = Sample {
            t: round(now.duration_since(self.started).as_secs_f64(), 3),
            goodput_mbit: (seconds > 0.0).then(|| round(bytes as f64 * 8e-6 / seconds, 4)),
            queue_ms,
            rtt_ms: None,
            loss,
        };
        (self.at, self.payload) = (now, account.delivered_payload);
        if let Some(samples) = &mut self.samples {
            samples.line(&sample);
        }
        Ok(())
    }
}
