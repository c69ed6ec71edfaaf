//! Real programs of others as contenders, each over one emulated link; what is not installed is skipped, and said.

mod net_common;

use std::process::Command;

use net_common::{lab, number, run, skip};

const LINK: &str = "--rate 10mbit --delay 5ms --loss 1% --queue 100ms --seconds 5 --warmup 1";

/// A run of this contender, or the reason why there is none.
fn contend(peer: &str, programs: &[&str], more: &[&str]) -> Option<serde_json::Value> {
    let test = format!("{peer} over a lossy link");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if let Some(missing) = programs.iter().find(|program| !is_here(program)) {
        skip(&test, &format!("there is no {missing} on this machine"));
        return None;
    }
    let words = "net --backend emulator --json --peer".split(' ').chain([peer]).chain(LINK.split(' ')).chain(more.iter().copied());
    let seen = run(&test, lab().args(words))?;
    assert_eq!(number(&seen, "/bytes_wrong"), 0.0, "{seen}");
    // A repair in the time that counts may complete what arrived before it.
    assert!(number(&seen, "/goodput_mbit") <= 1.02 * number(&seen, "/realised_limit_mbit"), "{seen}");
    let version = seen["peer_version"].as_str().unwrap_or_default();
    assert!(!version.is_empty() && version != "says nothing of its version", "{seen}");
    Some(seen)
}

#[test]
fn srt_carries_its_stream() {
    let Some(seen) = contend("srt", &["srt-live-transmit"], &[]) else { return };
    // The link loses 1 %, which SRT repairs. A machine that is busy may lose datagrams before they enter it.
    assert!(number(&seen, "/residual_loss") < 0.005, "{seen}");
    // 95 % of the limit is offered, after a connection that takes round trips of its own.
    assert!((0.8..0.97).contains(&number(&seen, "/share")), "{seen}");
}

#[test]
fn srt_carries_a_file() {
    let Some(seen) = contend("srt-file", &["srt-file-transmit"], &[]) else { return };
    assert!(number(&seen, "/bytes_delivered") > 200_000.0, "{seen}");
}

#[test]
fn uftp_carries_a_file() {
    for ip in ["4", "6"] {
        let Some(seen) = contend("uftp", &["uftp", "uftpd"], &["--ip", ip]) else { return };
        is_the_mean_of_the_file(&seen);
    }
}

fn is_the_mean_of_the_file(seen: &serde_json::Value) {
    let seconds = number(seen, "/contender/seconds_until_whole");
    // The file is as long as the path's limit for the length of the run, and no link carries more.
    assert!(seconds >= 5.0, "{seen}");
    let mean = number(seen, "/contender/file_bytes") * 8e-6 / seconds;
    assert!((number(seen, "/goodput_mbit") - mean).abs() < 0.05 * mean, "{seen}");
}

#[test]
fn quinn_carries_a_stream() {
    for peer in ["quinn-bbr", "quinn-cubic"] {
        let Some(seen) = contend(peer, &[], &[]) else { return };
        assert!(number(&seen, "/bytes_delivered") > 200_000.0, "{seen}");
    }
}

#[test]
fn kcptun_carries_a_connection() {
    let Some(seen) = contend("kcptun", &["kcptun-client", "kcptun-server"], &[]) else { return };
    assert!(number(&seen, "/bytes_delivered") > 200_000.0, "{seen}");
}

#[test]
fn a_missing_program_is_named_with_its_package_before_anything_runs() {
    let empty = tempfile::tempdir().unwrap();
    for (peer, program, package) in [
        ("srt", "srt-live-transmit", "srt-tools"),
        ("srt-file", "srt-file-transmit", "srt-tools"),
        ("uftp", "uftp", "uftp"),
        ("kcptun", "kcptun-client", "kcptun"),
        ("iperf3", "iperf3", "iperf3"),
        ("curl", "curl", "curl"),
    ] {
        let mut command: Command = lab();
        let output = command.env("PATH", empty.path()).args(["net", "--seconds", "2", "--warmup", "1", "--peer", peer]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(i32::from(noctule_lab::net::command::NOT_PERMITTED)) {
            skip("missing programs", &text);
            return;
        }
        assert_eq!(output.status.code(), Some(2), "{peer}: {text}");
        assert!(text.contains(&format!("there is no {program} ")) && text.contains(&format!("(Debian: {package})")), "{peer}: {text}");
    }
}

#[test]
fn contenders_that_the_links_set_do_not_go_through_a_tunnel() {
    for peer in ["srt", "srt-file", "uftp", "kcptun", "quinn-bbr"] {
        let words = "net --hops 2 --relays tunnel --seconds 2 --warmup 1 --peer".split(' ').chain([peer]);
        let output = lab().args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{peer}: {text}");
        assert!(text.contains("--relays tunnel"), "{peer}: {text}");
    }
}
