//! Test files of Oasis through the command line: what they mean, what is refused, and where results go.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use noctule_lab::oasis::plan::{Place, runs};
use noctule_lab::oasis::suite::{self, Test};

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oasis")
}

fn oasis(args: &[&str], config: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_noctule-lab")).arg("oasis").args(args).arg("-p").arg(config).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn test(file: &str, name: &str) -> (Test, Vec<String>) {
    let mut notes = Vec::new();
    let mut tests = suite::tests(&config().join(file), Some(name), &config(), &mut notes).unwrap();
    (tests.remove(0), notes.iter().map(ToString::to_string).collect())
}

#[test]
fn a_linear_grid_becomes_the_links_that_oasis_would_shape() {
    let (test, _) = test("bulk.yaml", "two_hops");
    assert_eq!(test.topology.rounds.len(), 2, "step_num 1: two losses");
    assert_eq!(test.topology.describe(1), "Linear 2 hops \nloss 5%,latency 5ms,jitter 0ms,bandwidth 4Mbps.");
    let runs = runs(&test, Place::Simulator, 7, &mut Vec::new()).unwrap();
    assert_eq!(runs.len(), 2 * 3, "rounds, then protocols, then tools");
    let what = runs[3].what.as_ref().unwrap();
    assert_eq!((runs[3].round, &*runs[3].protocol.name, &*what.sender), (1, "tcp-cubic", "quic-cubic"));
    let hop = &what.scenario.hops[1].forward;
    assert_eq!((hop.loss.to_string(), hop.delay.to_string(), what.scenario.seconds.to_string()), ("5%".into(), "5ms".into(), "6s".into()));
    // tbf: a burst of R x 1.25 kb, 1 ms of latency besides.
    assert_eq!((hop.bucket.unwrap().to_string(), hop.queue.to_string()), ("4mbit:5120B".to_owned(), "5620B".to_owned()));
}

#[test]
fn a_mesh_is_crossed_by_the_fewest_hops_each_link_in_its_own_direction() {
    let (test, notes) = test("messages.yaml", "mesh");
    assert!(notes.iter().any(|note| note.contains("messages.yaml, line 6") && note.contains("no_such_protocol")), "{notes:?}");
    let runs = runs(&test, Place::Simulator, 7, &mut Vec::new()).unwrap();
    let what = runs[0].what.as_ref().unwrap();
    let links: Vec<String> =
        what.scenario.hops.iter().map(|hop| format!("{} {} {}", hop.forward.delay, hop.forward.loss, hop.reverse.delay)).collect();
    // 3 to 0 runs against the order of the matrix, 0 to 1 and 1 to 2 along it.
    assert_eq!(links, ["1ms 0% 1ms", "10ms 1% 20ms", "5ms 2% 5ms"]);
    let refused: Vec<&str> = runs.iter().filter_map(|run| run.what.as_ref().err().map(String::as_str)).collect();
    assert_eq!(refused.len(), 3, "kcp twice and sshping: {refused:?}");
    assert!(refused.iter().any(|reason| reason.contains("sshping")), "{refused:?}");
}

#[test]
fn a_file_runs_in_the_simulator_and_leaves_what_oasis_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_string_lossy().into_owned();
    let file = config().join("bulk.yaml");
    let output = oasis(&[&format!("{}:bats", file.display()), "--out", &out], &config());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("| topology-1 | Linear 2 hops  loss 5%"), "{}", text(&output.stdout));
    let folder = dir.path().join("test_results/bats/topology-0");
    let log = std::fs::read_to_string(folder.join("BRTP-NEXT_IperfBatsTest_bats_iperf_tcp_iperf3_h0_h2.log")).unwrap();
    assert!(log.contains("Mbits/sec") && log.trim_end().ends_with("receiver"), "{log}");
    assert!(std::fs::read_to_string(folder.join("topology_description.txt")).unwrap().starts_with("Linear 2 hops \nloss 0%"));
    assert!(dir.path().join("test.success").exists());
    assert_eq!(std::fs::read_to_string(dir.path().join("throughput_latency_loss.csv")).unwrap().lines().count(), 3);
    // All tests of the file are read; one is switched off.
    let check = oasis(&["bulk.yaml:all", "--check"], &config());
    assert!(check.status.success(), "{}", text(&check.stderr));
    assert!(text(&check.stdout).contains("two_hops: static_route, 2 rounds, 6 runs"), "{}", text(&check.stdout));
    assert!(text(&check.stderr).contains("tests.later: `if` is false"), "{}", text(&check.stderr));
    // What is not run is no success, unless the test allows it.
    let allowed = oasis(&["messages.yaml", "--json"], &config());
    assert!(allowed.status.success() && text(&allowed.stdout).contains("\"not_run\": \"`"), "{}", text(&allowed.stdout));
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_file_line_and_key() {
    let good = std::fs::read_to_string(config().join("bulk.yaml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["predefined.protocols.yaml", "predefined.topology.yaml", "diamond.json"] {
        std::fs::copy(config().join(name), dir.path().join(name)).unwrap();
    }
    let said = |file: &str, from: &str, to: &str| {
        let original = std::fs::read_to_string(config().join(file)).unwrap();
        assert!(original.contains(from), "{from}");
        std::fs::write(dir.path().join("bulk.yaml"), &good).unwrap();
        std::fs::write(dir.path().join(file), original.replacen(from, to, 1)).unwrap();
        let output = oasis(&["bulk.yaml", "--check"], dir.path());
        std::fs::write(dir.path().join(file), original).unwrap();
        assert_eq!(output.status.code(), Some(2), "{to}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    for (file, from, to, names) in [
        ("bulk.yaml", "    description:", "    descripton:", &["bulk.yaml, line 8, tests.two_hops.descripton", "no such key"][..]),
        ("bulk.yaml", "route: static_route", "route: olsr", &["line 13, tests.two_hops.route", "olsr_route"]),
        ("bulk.yaml", "interval_num: 6", "interval_num: six", &["line 17, tests.two_hops.test_tools.iperf.interval_num", "whole number"]),
        ("bulk.yaml", "        server_host: 2\n", "", &["line 16", "server_host", "missing"]),
        ("bulk.yaml", "server_host: 2\n", "server_host: 9\n", &["line 19", "from 0 to 2"]),
        ("bulk.yaml", "config_name: two_hops", "config_name: three", &["three", "two_hops, diamond"]),
        ("bulk.yaml", "[tcp-cubic, brtp, btp]", "[tcp_cubic]", &["nothing would run"]),
        ("bulk.yaml", "    if: yes", "    if: maybe", &["tests.bats.if", "true or false"]),
        (
            "predefined.topology.yaml",
            "      - link_loss:\n        init_value",
            "      - link_loss:\n          init_value",
            &["predefined.topology.yaml, line 7", "beside"],
        ),
        ("predefined.topology.yaml", "init_value: [4]", "init_value: [4, 4, 4, 4]", &["line 13", "4 values for 2 links"]),
        ("predefined.topology.yaml", "step_num: 1", "step_num: 50", &["link_loss is 105", "between 0 and 100"]),
        ("predefined.topology.yaml", "topology_type: linear", "topology_type: star", &["star"]),
        ("predefined.protocols.yaml", "version: cubic", "version: vegas", &["vegas"]),
        ("predefined.protocols.yaml", "    version: latest", "    verson: latest", &["predefined.protocols.yaml, line 12", "verson"]),
    ] {
        let error = said(file, from, to);
        assert!(names.iter().all(|name| error.contains(name)), "{to}: {error}");
    }
    let nowhere = oasis(&["bulk.yaml:no_such_test", "--check"], &config());
    assert!(text(&nowhere.stderr).contains("two_hops, bats, later"), "{}", text(&nowhere.stderr));
}

#[test]
fn matrices_that_cannot_be_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["predefined.protocols.yaml", "predefined.topology.yaml", "messages.yaml"] {
        std::fs::copy(config().join(name), dir.path().join(name)).unwrap();
    }
    let good = std::fs::read_to_string(config().join("diamond.json")).unwrap();
    for (from, to, names) in [
        ("[2, 0, 0, 0]]},\n  {\"matrix_type\": 2", "[2, 0, 0]]},\n  {\"matrix_type\": 2", "row 4 has 3 entries"),
        ("[[0, 8, 0, 2]", "[[0, -8, 0, 2]", "row 1"),
        ("[[0, 8, 0, 2]", "[[0, 0, 0, 2]", "0 and 1 are joined and have no bandwidth"),
        ("\"matrix_type\": 3", "\"matrix_type\": 5", "between 0 and 4"),
        ("\"matrix_type\": 2", "\"matrix_type\": 1", "second matrix of type 1"),
        ("\"matrix_type\": 0", "\"matrix_typ\": 0", "matrix_type"),
    ] {
        assert!(good.contains(from), "{from}");
        std::fs::write(dir.path().join("diamond.json"), good.replacen(from, to, 1)).unwrap();
        let output = oasis(&["messages.yaml", "--check"], dir.path());
        assert_eq!(output.status.code(), Some(2), "{to}");
        assert!(text(&output.stderr).contains("diamond.json") && text(&output.stderr).contains(names), "{to}: {}", text(&output.stderr));
    }
}
