//! What people run, through the TUN devices of nodes: real processes on every host of a lossy chain.

mod net_common;

use net_common::{lab, number, run, skip};

/// The binary `noctule` is built beside the laboratory's by `cargo test --workspace`, and by `cargo build -p noctule-node`.
fn tunnel(test: &str, flags: &str) -> Option<serde_json::Value> {
    if !std::path::Path::new(env!("CARGO_BIN_EXE_noctule-lab")).with_file_name("noctule").is_file() {
        skip(test, "the binary noctule was not built: cargo build -p noctule-node");
        return None;
    }
    let common = "net --relays tunnel --backend emulator --json --hops 2 --rate 10mbit --delay 5ms --loss 5% --seconds 4 --warmup 1";
    run(test, lab().args(common.split(' ')).args(flags.split(' ')))
}

#[test]
fn tcp_through_nodes_delivers_every_byte_faster_than_without_them() {
    let Some(seen) = tunnel("TCP through nodes", "--peer tcp-cubic") else { return };
    assert_eq!(number(&seen, "/bytes_wrong"), 0.0);
    // By itself TCP would carry 1.22 segments per round trip over the root of the loss (Mathis and others): 1.1 MB in 4 s over two such links.
    assert!(number(&seen, "/bytes_delivered") > 1_500_000.0, "{seen}");
}

#[test]
fn messages_over_tcp_through_nodes_are_all_answered() {
    let Some(seen) = tunnel("messages through nodes", "--peer tcp-cubic --workload messages:50/s:100B") else { return };
    assert_eq!(number(&seen, "/residual_loss"), 0.0, "{seen}");
    assert_eq!(number(&seen, "/message_rtt_ms/count"), 200.0, "{seen}");
    // Two links of 5 ms, there and back.
    assert!(number(&seen, "/message_rtt_ms/p50") >= 20.0, "{seen}");
}

#[test]
fn what_does_not_fit_a_tunnel_is_an_error() {
    for (flags, names) in [("--peer curl --workload messages:10/s:100B", "workloads"), ("--peer iperf3 --relays proxy", "--relays proxy")] {
        let words = "net --hops 2 --seconds 2 --warmup 1".split(' ').chain(flags.split(' '));
        let output = lab().args(words).output().expect("the laboratory's binary starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {text}");
        assert!(text.contains(names), "{flags}: {text}");
    }
    let output = lab().args("sim --hops 2 --relays tunnel --seconds 2 --warmup 1".split(' ')).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("namespaces"), "{text}");
}
