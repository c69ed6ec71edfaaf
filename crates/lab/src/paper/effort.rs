//! About how long figures take.

use crate::scenario::Scenario;

/// Packets on a link per second of one core of the machine that this was measured on, release profile.
const PACKETS_PER_SECOND: f64 = 120_000.0;
/// Of one core: a run is set up and judged, however short it is.
const LEAST_SECONDS: f64 = 0.002;

/// Seconds of one core.
pub(super) fn seconds(scenario: &Scenario) -> f64 {
    (scenario.effort() / PACKETS_PER_SECOND).max(LEAST_SECONDS)
}

/// A time in words.
pub(super) fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1.5 => "about a second".to_owned(),
        s if s < 90.0 => format!("about {s:.0} s"),
        s => format!("about {:.0} min", s / 60.0),
    }
}
