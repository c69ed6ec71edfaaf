//! Equations that stand beside figures.

use crate::scenario::{Limits, Scenario};

/// Mathis, Semke, Mahdavi, Ott 1997: MSS / RTT x sqrt(3/2) / sqrt(p) for acknowledgements of every packet, at most the limit; Mbit/s.
pub(super) fn mathis(scenario: &Scenario) -> Option<f64> {
    let spec = &scenario.hops.first()?.forward;
    let payload = f64::from(spec.mtu.saturating_sub(scenario.ip.overhead()));
    let survives: f64 = scenario.hops.iter().map(|hop| 1.0 - hop.forward.last_state().mean_loss(hop.forward.mtu)).product();
    let limit = Limits::of(scenario).forward / 1e6;
    let lost = 1.0 - survives;
    if lost <= 0.0 {
        return limit.is_finite().then_some(limit);
    }
    let mbit = payload * 8e-6 / scenario.base_rtt().as_secs_f64() * (1.5 / lost).sqrt();
    Some(mbit.min(limit))
}

/// Loss that adds up over links: 1 - (1 - p)^n.
pub(super) fn accumulated(scenario: &Scenario) -> Option<f64> {
    Some(1.0 - scenario.hops.iter().map(|hop| 1.0 - hop.forward.last_state().mean_loss(hop.forward.mtu)).product::<f64>())
}

/// What the links allow, Mbit/s.
pub(super) fn limit(scenario: &Scenario) -> Option<f64> {
    let limit = Limits::of(scenario).forward / 1e6;
    limit.is_finite().then_some(limit)
}

/// A TCP connection without loss: SYN, SYN and ACK, message, echo; ms.
pub(super) fn two_round_trips(scenario: &Scenario) -> Option<f64> {
    Some(scenario.base_rtt().as_secs_f64() * 2e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunLine;

    fn scenario(line: &str) -> Scenario {
        RunLine(line.split(' ').map(str::to_owned).collect()).scenario().unwrap()
    }

    #[test]
    fn the_equation_of_mathis_is_in_megabits_and_ends_at_the_limit() {
        // 1472 bytes per 0.1 s x sqrt(150).
        let lossy = mathis(&scenario("--rate=100mbit --delay=50ms --loss=1%")).unwrap();
        assert!((lossy - 1472.0 * 8e-5 * 150f64.sqrt()).abs() < 1e-6, "{lossy}");
        assert!((mathis(&scenario("--rate=10mbit --delay=1ms --loss=0%")).unwrap() - 9.813).abs() < 0.01);
    }

    #[test]
    fn loss_adds_up_over_links() {
        let lost = accumulated(&scenario("--hops=2 --rate=10mbit --loss=10%")).unwrap();
        assert!((lost - 0.19).abs() < 1e-9);
    }
}
