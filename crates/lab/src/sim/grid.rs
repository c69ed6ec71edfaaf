//! Many runs side by side: each is single-threaded and deterministic, so their order and number of threads do not matter.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::run::{SimError, run};
use crate::report::Report;
use crate::scenario::{Case, Hop};

/// One thread per core.
pub fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs every case, on `threads` threads; results in the order of the cases. `each` hears of every result as it comes.
pub fn run_cases(cases: &[Case], threads: usize, each: impl Fn(&Case, &Result<Report, SimError>) + Sync) -> Vec<Result<Report, SimError>> {
    side_by_side(cases, threads, |case| {
        let result = run(&case.scenario);
        each(case, &result);
        result
    })
}

/// Does `work` on every item, on `threads` threads; what comes of it in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((i, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(item);
                    // A poisoned lock means that another run panicked; the scope reports that.
                    if let Ok(mut results) = results.lock() {
                        results[i] = Some(result);
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().flatten().collect()
}

/// What a case's result violates: its own failures, the file's expectations, or that it could not be run.
pub fn violations(case: &Case, report: &Report) -> Vec<String> {
    // What a link loses is what a useful byte costs there at least.
    let network = &case.scenario.network;
    let pass = |(link, hop): (usize, &Hop)| {
        let spec = if network.data_is_forward(link).unwrap_or(true) { &hop.forward } else { &hop.reverse };
        1.0 - spec.last_state().mean_loss(spec.mtu)
    };
    let pass: Vec<f64> = case.scenario.hops.iter().enumerate().map(pass).collect();
    report.violations(&case.expect, &pass, report.scenario.base_rtt_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ScenarioFile;

    #[test]
    fn results_and_their_order_are_the_same_for_any_number_of_threads() {
        let text = r#"
            name = "small"
            [link]
            rate = "5mbit"
            delay = "10ms"
            [run]
            seconds = "3s"
            warmup = "1s"
            [grid]
            loss = ["0%", "5%"]
            aqm = ["none", "fq_codel", "pie"]
        "#;
        let cases = toml::from_str::<ScenarioFile>(text).unwrap().cases(true).unwrap();
        let shares = |threads| -> Vec<String> {
            let text = |result: Result<Report, SimError>| serde_json::to_string(&result.unwrap()).unwrap();
            run_cases(&cases, threads, |_, _| ()).into_iter().map(text).collect()
        };
        let one = shares(1);
        assert_eq!(one.len(), 6);
        assert!(one == shares(2) && one == shares(5));
    }
}
