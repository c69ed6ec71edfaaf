//! Is the emulated link what its description says? Rate, delay, loss and jitter, measured between two namespaces.

mod net_common;

use net_common::{lab, number, run};

/// Half a quantum to be read, half a quantum to be handed out, and the lateness that a valid run may have.
const DELAY_TOLERANCE_MS: f64 = 0.6;
const RATE_TOLERANCE: f64 = 0.015;

fn measure(test: &str, link: &str, seed: u64) -> Option<serde_json::Value> {
    let seed = seed.to_string();
    let words = ["fidelity", link, "--backend", "emulator", "--probing", "4s", "--filling", "2s", "--json", "--seed", &seed];
    run(test, lab().args(words))
}

#[test]
fn random_loss_delay_and_rate_are_as_described() {
    let Some(seen) = measure("fidelity with random loss", "rate=60mbit,delay=30ms,loss=5%", 1) else { return };
    // 4,000 probes: the standard deviation of the mean loss is 0.34 %.
    let loss = number(&seen, "/loss");
    assert!((loss - 0.05).abs() < 0.014, "loss {loss}");
    let (delay, promised) = (number(&seen, "/delay_ms"), number(&seen, "/delay_promised_ms"));
    assert!(delay > promised && delay - promised < DELAY_TOLERANCE_MS, "delay {delay} ms against {promised}");
    let (rate, promised) = (number(&seen, "/rate_mbit"), number(&seen, "/rate_promised_mbit"));
    assert!((rate / promised - 1.0).abs() < RATE_TOLERANCE, "rate {rate} Mbit/s against {promised}");
    assert_eq!(number(&seen, "/overtaken"), 0.0);
}

#[test]
fn loss_comes_in_bursts_when_asked() {
    let Some(seen) = measure("fidelity with bursts", "delay=5ms,loss=10%,loss-model=gilbert:8", 2) else { return };
    // Bursts of 8 widen the deviation of the mean to about 1.8 %.
    let loss = number(&seen, "/loss");
    assert!((loss - 0.1).abs() < 0.075, "loss {loss}");
    let burst = number(&seen, "/mean_burst");
    assert!((4.5..13.0).contains(&burst), "mean burst {burst}");
}

#[test]
fn jitter_has_its_shape_and_reorders_only_when_allowed() {
    let link = "delay=20ms,jitter=3ms,jitter-dist=uniform,jitter-reorder=true";
    // Uniform between -3 and +3 ms: standard deviation 6 / sqrt(12) = 1.732 ms. A machine that stands still for a moment widens it, and a run in which
    // it does so seldom counts as faithful: what a wrong shape would do, it does each time.
    let (mut measured, mut tries) = (None, 0);
    while tries < 3 && measured.as_ref().is_none_or(|seen| number(seen, "/delay_sd_ms") > 1.882) {
        let Some(seen) = measure("fidelity with jitter", link, 3) else { return };
        (measured, tries) = (Some(seen), tries + 1);
    }
    let seen = measured.expect("measured at least once");
    let deviation = number(&seen, "/delay_sd_ms");
    assert!((deviation - 1.732).abs() < 0.15, "deviation {deviation} ms");
    let delay = number(&seen, "/delay_ms");
    assert!((delay - 20.0).abs() < DELAY_TOLERANCE_MS, "delay {delay} ms");
    assert!(number(&seen, "/overtaken") > 100.0);
    let link = "delay=20ms,jitter=3ms,jitter-dist=uniform";
    let Some(seen) = measure("fidelity with ordered jitter", link, 3) else { return };
    assert_eq!(number(&seen, "/overtaken"), 0.0);
}
