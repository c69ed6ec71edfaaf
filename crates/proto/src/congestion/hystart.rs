//! HyStart++ (RFC 9406): leave slow start when the round's smallest RTT rises, before the queue overflows.

use super::AckEvent;
use crate::units::Duration;

/// RFC 9406 §4.3.
const MIN_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_THRESHOLD: Duration = Duration::from_millis(16);
const SAMPLES: u32 = 8;
const CSS_ROUNDS: u32 = 5;
const CSS_GROWTH_DIVISOR: f64 = 4.0;

/// Rounds of slow start and their smallest RTT.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    round_end: u64,
    last_min: Duration,
    this_min: Duration,
    samples: u32,
    /// Rounds left of Conservative Slow Start, and the smallest RTT when it began.
    css: Option<(u32, Duration)>,
}

impl HyStart {
    pub(super) fn new() -> Self {
        Self { round_end: 0, last_min: Duration::MAX, this_min: Duration::MAX, samples: 0, css: None }
    }

    /// In Conservative Slow Start.
    pub(super) fn is_conservative(&self) -> bool {
        self.css.is_some()
    }

    /// Factor on the growth that slow start takes from this acknowledgement; `true`: slow start ends here.
    pub(super) fn on_ack(&mut self, event: &AckEvent) -> (f64, bool) {
        let mut is_over = false;
        if event.newest_offset >= self.round_end {
            self.round_end = event.newest_offset + event.in_flight;
            self.last_min = self.this_min;
            self.this_min = Duration::MAX;
            self.samples = 0;
            if let Some((rounds, _)) = &mut self.css {
                *rounds = rounds.saturating_sub(1);
                is_over = *rounds == 0;
            }
        }
        if let Some(rtt) = event.rtt {
            self.this_min = self.this_min.min(rtt);
            self.samples += 1;
        }
        if self.samples >= SAMPLES && self.last_min != Duration::MAX {
            let threshold = (self.last_min / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
            match self.css {
                None if self.this_min >= self.last_min + threshold => self.css = Some((CSS_ROUNDS, self.last_min)),
                Some((_, base)) if self.this_min < base => self.css = None,
                _ => {}
            }
        }
        (if self.css.is_some() { 1.0 / CSS_GROWTH_DIVISOR } else { 1.0 }, is_over)
    }
}
