//! Transfers over links that do everything wrong: each completes, is identical, and stays within the memory bound.
//!
//! One test per case of `scenarios/torture.toml`, with its first seed; `noctule-lab run --full scenarios/torture.toml` runs the others.

use std::path::Path;

use noctule_lab::scenario::{Case, ScenarioFile};
use noctule_lab::sim;

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/torture.toml");
    ScenarioFile::read(&path).expect("the file reads").cases(false).expect("its cases can be run")
}

fn survives(name: &str) {
    let wanted = format!("torture {name} seed=7");
    let case = cases().into_iter().find(|case| case.name == wanted).expect("the case is in the file");
    let report = sim::run(&case.scenario).expect("the run can be made");
    assert_eq!(report.failures, Vec::<String>::new(), "{}", case.name);
    assert_eq!(report.bytes_wrong, 0);
    assert!(report.memory_peak_bytes > 0 && report.memory_peak_bytes <= report.memory_limit_bytes);
    if let Some(limit) = case.scenario.flow_memory {
        // A node holds a flow in each direction at most here.
        assert!(report.memory_peak_bytes <= 2 * limit, "{} of {limit}", report.memory_peak_bytes);
    }
}

macro_rules! torture {
    ($($test:ident: $case:literal,)+) => {
        $(#[test] fn $test() { survives($case); })+

        #[test]
        fn every_case_of_the_file_is_run_here() {
            let here: Vec<String> = [$($case),+].iter().map(|case| format!("torture {case} seed=7")).collect();
            let file: Vec<String> = cases().into_iter().map(|case| case.name).collect();
            assert_eq!(here, file);
        }
    };
}

torture! {
    clean_link: "clean",
    loss_of_10_per_cent: "loss-10",
    loss_of_20_per_cent: "loss-20",
    loss_of_35_per_cent: "loss-35",
    loss_of_50_per_cent: "loss-50",
    bursts_of_ten_packets: "bursts-of-ten",
    bursts_in_time: "bursts-in-time",
    four_state_markov_loss: "markov",
    bit_errors: "bit-errors",
    corrupted_packets: "corruption",
    duplicated_packets: "duplication",
    packets_held_for_20_ms: "reordering",
    jitter_that_reorders: "jitter-that-reorders",
    outage_of_five_seconds: "outage",
    acknowledgements_lost_at_30_per_cent: "lost-acks",
    both_directions_at_once: "both-ways",
    thin_way_back: "thin-way-back",
    rate_falls_in_mid_transfer: "rate-falls",
    shallow_queue: "shallow-queue",
    small_memory: "small-memory",
    receiver_that_stalls: "receiver-stalls",
    key_epochs_of_1024_packets: "key-epochs",
    everything_at_once: "everything",
}
