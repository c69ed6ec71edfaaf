//! Equations that stand beside figures, each in the unit of its figure; none where an equation has no value.

use crate::scenario::{Limits, Scenario, lost_in_a_row, mathis};

/// Goodput of controls that take every loss for congestion, Mbit/s: [`mathis`].
pub(super) fn mathis_mbit(scenario: &Scenario) -> Option<f64> {
    Some(mathis(scenario) / 1e6).filter(|mbit| mbit.is_finite())
}

/// Share of packets that links in a row lose together: [`lost_in_a_row`].
pub(super) fn lost_share(scenario: &Scenario) -> Option<f64> {
    Some(lost_in_a_row(scenario))
}

/// What the links allow, Mbit/s. Over links with independent losses it is the cut-set bound: that of the narrowest link.
pub(super) fn limit_mbit(scenario: &Scenario) -> Option<f64> {
    Some(Limits::of(scenario).forward / 1e6).filter(|mbit| mbit.is_finite())
}

/// First message over a TCP connection without loss, ms. RFC 9293 §3.5: one round trip for SYN and its answer, and one for message and echo.
pub(super) fn two_round_trips_ms(scenario: &Scenario) -> Option<f64> {
    Some(2.0 * scenario.base_rtt().as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunLine;

    fn scenario(line: &str) -> Scenario {
        RunLine(line.split(' ').map(str::to_owned).collect()).scenario().unwrap()
    }

    #[test]
    fn values_have_the_units_of_their_figures() {
        let chain = scenario("--hops=2 --rate=10mbit --delay=50ms --loss=10%");
        let values = [mathis_mbit, lost_share, limit_mbit, two_round_trips_ms].map(|of| of(&chain).unwrap());
        // 1472 bytes per 0.2 s x sqrt(1.5 / 0.19); 10 Mbit/s x 0.9 x 1472/1500.
        let expected = [0.058_88 * (1.5f64 / 0.19).sqrt(), 0.19, 8.832, 400.0];
        for (value, expected) in values.into_iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6 * expected, "{values:?}");
        }
        let endless = scenario("--rate=none --delay=50ms");
        assert_eq!((mathis_mbit(&endless), limit_mbit(&endless)), (None, None));
    }
}
