//! Kernel TCP between namespaces: a contender that needs nothing but the kernel, and a check of the links themselves.

mod net_common;

use net_common::{lab, number, run};

fn tcp(test: &str, flags: &str) -> Option<serde_json::Value> {
    let common = "net --peer tcp-reno --backend emulator --json --seconds 4 --warmup 1";
    run(test, lab().args(common.split(' ')).args(flags.split(' ')))
}

#[test]
fn tcp_delivers_every_byte_over_a_lossy_link() {
    let Some(seen) = tcp("TCP over a lossy link", "--rate 20mbit --delay 5ms --loss 2%") else { return };
    assert_eq!(number(&seen, "/bytes_wrong"), 0.0);
    assert!(number(&seen, "/bytes_delivered") > 100_000.0, "{seen}");
    assert!(number(&seen, "/share") <= 1.0, "{seen}");
    assert!(number(&seen, "/goodput_mbit") <= number(&seen, "/realised_limit_mbit"), "{seen}");
    let applied = number(&seen, "/links/0/0/loss_share");
    assert!((0.005..0.05).contains(&applied), "{seen}");
}

#[test]
fn clean_link_is_filled_to_its_rate_over_ipv6() {
    let Some(seen) = tcp("TCP over IPv6", "--rate 20mbit --delay 2ms --ip 6 --queue 100ms") else { return };
    // 1428 of 1500 bytes are data with timestamps; the limit counts 1452.
    let share = number(&seen, "/share");
    assert!((0.9..=1.0).contains(&share), "{seen}");
    assert_eq!(number(&seen, "/links/0/0/loss_share"), 0.0);
}

#[test]
fn three_links_in_a_row_are_as_slow_as_the_narrowest() {
    let flags = "--hops 3 --rate 30mbit --hop 2:rate=10mbit --delay 2ms --queue 100ms";
    let Some(seen) = tcp("TCP over three links", flags) else { return };
    let goodput = number(&seen, "/goodput_mbit");
    assert!((8.5..=9.82).contains(&goodput), "{seen}");
    assert_eq!(seen["wire_per_byte"].as_array().map(Vec::len), Some(3));
}

#[test]
fn flags_that_namespaces_cannot_do_are_errors() {
    for (flags, names) in [
        ("--pairs 2", "--pairs"),
        ("--both", "--both"),
        ("--workload block:10KB", "workloads"),
        ("--cc cubic", "--cc"),
        ("--flow-memory 16MiB", "--flow-memory"),
    ] {
        let words = "net --peer tcp-reno --seconds 2 --warmup 1".split(' ').chain(flags.split(' '));
        let output = lab().args(words).output().expect("the laboratory's binary starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {text}");
        assert!(text.contains(names), "{flags}: {text}");
    }
}
