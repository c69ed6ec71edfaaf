//! `noctule perf` and `noctule ping` on loopback, as a user runs them.

mod support;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Kill, assert_fails, keygen, noctule};

/// A `perf -s` that serves; ended when dropped.
struct Server {
    child: Child,
    port: String,
    key: String,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (file, key) = keygen(dir.path(), "k");
        // A port that was free a moment ago: perf takes its port from the command line.
        let port = std::net::UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string();
        let mut child =
            noctule().args(["perf", "-s", "--anyone", "-p", &port, "--key"]).arg(&file).args(more).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
        words.find(|l| l.as_ref().is_ok_and(|l| l.contains("serving"))).unwrap().unwrap();
        std::thread::spawn(move || words.for_each(drop));
        Self { child, port, key, _dir: dir }
    }

    fn perf(&self, more: &[&str]) -> Output {
        noctule().args(["perf", "-c", "127.0.0.1", "-p", &self.port, "--peer-key", &self.key]).args(more).output().unwrap()
    }

    fn ping(&self, more: &[&str]) -> Output {
        noctule().args(["ping", "127.0.0.1", "-p", &self.port, "--peer-key", &self.key]).args(more).output().unwrap()
    }
}

fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stdout)))
}

#[test]
fn perf_counts_every_byte_in_every_mode_and_direction_on_one_server() {
    let server = Server::start(&[]);
    for more in [
        &["--mode", "brtp"][..],
        &["--mode", "brtp", "-r", "-P", "2", "--cc", "cubic"],
        &["--mode", "brtp", "--bidir"],
        &["--mode", "brtp", "-l", "5000", "-b", "20mbit"],
        &["--mode", "btp", "-b", "5mbit", "--lifetime", "3s"],
        &["--mode", "transparent", "-b", "5mbit", "-l", "1000"],
        &["--mode", "transparent", "-b", "5mbit", "-r"],
        &["--mode", "tcp", "-P", "2"],
        &["--mode", "tcp", "-r"],
        &["--mode", "tcp", "--bidir"],
    ] {
        let report = json(&server.perf(&[&["-J", "-t", "1", "-i", "0.2"], more].concat()));
        let sum: u64 = report["intervals"].as_array().unwrap().iter().map(|i| i["sum"]["bytes"].as_u64().unwrap()).sum();
        let end = &report["end"];
        let bytes = end["bytes"].as_u64().unwrap();
        assert!(bytes > 100_000 && sum <= bytes, "{more:?}: {sum} of {bytes}");
        assert_eq!(end["bytes_wrong"], 0, "{more:?}");
        assert_eq!(end["sum_received"]["bytes"], end["bytes"]);
        let mode = more[1];
        assert_eq!(report["start"]["mode"], mode);
        if more.contains(&"--bidir") {
            assert!(end["bidir_reverse"]["bytes"].as_u64().unwrap() > 100_000, "{more:?}: {end}");
            assert_eq!(end["bidir_reverse"]["bytes_wrong"], 0);
            assert!(report["intervals"][1]["sum_bidir_reverse"]["bytes"].as_u64().unwrap() > 0);
        }
        if end["messages_sent"].as_u64().unwrap() > 0 {
            assert!(end["residual_loss"].as_f64().unwrap() < 0.05, "{more:?}: {end}");
            assert!(end["sum_received"]["jitter_ms"].as_f64().is_some(), "{more:?}");
        }
    }
}

#[test]
fn a_file_as_source_arrives_whole_and_its_hash_is_told() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>()).unwrap();
    for mode in ["brtp", "tcp"] {
        let report = json(&server.perf(&["-J", "--mode", mode, "-F", file.to_str().unwrap()]));
        assert_eq!(report["end"]["bytes"], 3_000_000);
        assert_eq!(report["end"]["blake3"], blake3::hash(&fs::read(&file).unwrap()).to_hex().to_string());
    }
    assert_fails(&server.perf(&["-F", "/nonexistent/f"]), 3, "/nonexistent/f");
}

#[test]
fn a_server_that_stands_still_is_told_of_while_measurements_wait() {
    let server = Server::start(&[]);
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_raw(server.child.id() as i32).unwrap(), signal).unwrap();
    let mut clients = Vec::new();
    for words in [&["perf", "-t", "12", "-b", "1mbit", "-c"][..], &["ping", "-c", "28", "-i", "450ms"]] {
        let mut client = noctule();
        client.args(words).args(["127.0.0.1", "-p", &server.port, "--peer-key", &server.key]);
        let mut child = Kill(client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut figures = BufReader::new(child.0.stdout.take().unwrap()).lines();
        // The headline, and what was measured first.
        (0..3).for_each(|_| drop(figures.next().unwrap().unwrap()));
        std::thread::spawn(move || figures.for_each(drop));
        let lines = BufReader::new(child.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        clients.push((words[0], child, lines));
    }
    signal(rustix::process::Signal::STOP);
    for (name, _, lines) in &mut clients {
        assert!(lines.any(|line| line.contains("no answer from 127.0.0.1")), "{name} says that nothing is heard");
    }
    signal(rustix::process::Signal::CONT);
    for (name, child, lines) in &mut clients {
        assert!(lines.any(|line| line.contains("is there again")), "{name} says that it is heard again");
        let rest: Vec<String> = lines.collect();
        assert!(rest.is_empty() && child.0.wait().unwrap().success(), "{name}: {rest:?}");
    }
}

/// Runs a client, interrupts it after some lines or `after`, and gives what it printed.
fn interrupted(mut client: std::process::Command, after: Duration) -> Output {
    let child = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn interrupted_measurements_tell_what_they_have() {
    let server = Server::start(&[]);
    let client = |command: &[&str], more: &[&str]| {
        let mut c = noctule();
        c.args(command).args(["-p", &server.port, "--peer-key", &server.key]).args(more);
        c
    };
    let perf = |more: &[&str]| interrupted(client(&["perf", "-c", "127.0.0.1"], more), Duration::from_secs(3));
    for more in [&[][..], &["-r"], &["--mode", "btp"], &["--mode", "tcp"]] {
        let out = perf(&[&["-t", "60", "-b", "2mbit", "-i", "0.2", "-J"], more].concat());
        assert_eq!(out.status.code(), Some(130), "{more:?}");
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(report["error"], "interrupted", "{more:?}");
        assert!(report["intervals"].as_array().unwrap().len() > 2, "{more:?}: {report}");
        assert!(report["end"]["sum_received"]["bytes"].as_u64().unwrap() > 20_000, "{more:?}: {report}");
        assert_eq!(report["end"]["sum_received"]["lost_packets"].as_u64().unwrap_or(0), 0, "{more:?}");
    }
    let out = perf(&["-t", "60", "-b", "2mbit"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("MB in ") && String::from_utf8_lossy(&out.stderr).contains("interrupted"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("p.csv");
    let out =
        interrupted(client(&["ping", "127.0.0.1"], &["-c", "1000", "-i", "20ms", "--csv", csv.to_str().unwrap()]), Duration::from_secs(3));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.code() == Some(130) && text.contains("residual loss 0.000 %"), "{text}");
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 20);
}

#[test]
fn a_far_end_that_goes_leaves_the_report_of_what_there_was() {
    let mut server = Server::start(&[]);
    let args = ["-t", "60", "-b", "2mbit", "-i", "0.2", "-J", "--timeout", "2s"];
    let client = noctule()
        .args(["perf", "-c", "127.0.0.1", "-p", &server.port, "--peer-key", &server.key])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    server.child.kill().unwrap();
    let out = client.wait_with_output().unwrap();
    assert!(matches!(out.status.code(), Some(6 | 7)), "{:?}", out.status);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(report["error"].is_string() && report["end"]["bytes"].as_u64().unwrap() > 20_000, "{report}");
}

#[test]
fn reports_have_what_the_parser_of_iperf3_asks_for() {
    let server = Server::start(&[]);
    for more in [&["-P", "2"][..], &["-r"], &["--mode", "btp", "-b", "5mbit"], &["--mode", "tcp", "-O", "0.4"]] {
        let report = json(&server.perf(&[&["-J", "-t", "1", "-i", "0.2"], more].concat()));
        let start = &report["start"];
        for name in ["system_info", "version"] {
            assert!(start[name].is_string(), "{more:?}: {name}");
        }
        assert!(start["timestamp"]["time"].is_string() && start["timestamp"]["timesecs"].is_u64());
        for name in ["local_host", "local_port", "remote_host", "remote_port"] {
            assert!(!start["connected"][0][name].is_null(), "{more:?}: {name}: {start}");
        }
        for name in ["protocol", "num_streams", "blksize", "omit", "duration", "reverse"] {
            assert!(!start["test_start"][name].is_null(), "{more:?}: {name}");
        }
        let end = &report["end"];
        let cpu = end["cpu_utilization_percent"].as_object().unwrap();
        assert!(
            ["host_total", "host_user", "host_system", "remote_total", "remote_user", "remote_system"].iter().all(|n| cpu.contains_key(*n))
        );
        if start["test_start"]["protocol"] == "UDP" {
            for name in ["bytes", "bits_per_second", "jitter_ms", "packets", "lost_packets", "lost_percent", "seconds"] {
                assert!(end["sum"][name].is_number(), "{more:?}: {name}");
            }
        } else {
            assert!(end["sum_sent"]["bits_per_second"].is_number() && end["sum_received"]["bytes"].is_number());
        }
        let flows = if more.contains(&"-P") { 2 } else { 1 };
        assert_eq!(report["intervals"][1]["streams"].as_array().unwrap().len(), flows, "{more:?}");
        assert_eq!(end["streams"].as_array().unwrap().len(), flows, "{more:?}");
        if more.contains(&"tcp") {
            assert!(end["sender_tcp_congestion"].is_string() && start["cc"] == end["sender_tcp_congestion"], "{end}");
            assert_eq!(report["intervals"][0]["sum"]["omitted"], true);
        }
    }
}

#[test]
fn options_of_iperf3_work_or_are_refused_with_what_to_say_instead() {
    let server = Server::start(&[]);
    let report = json(&server.perf(&["-J", "-n", "2M", "-R"]));
    assert_eq!((report["end"]["bytes"].as_u64(), report["start"]["test_start"]["reverse"].as_u64()), (Some(2 << 20), Some(1)));
    let out = server.perf(&["-t", "500ms", "-f", "K", "-P", "2"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("KiB/s"), "{}", String::from_utf8_lossy(&out.stdout));
    for (option, instead) in
        [("-u", "--mode btp"), ("-4", "IPv4 address"), ("-6", "IPv6 address"), ("--connect-timeout=5", "--timeout"), ("-w=1M", "windows")]
    {
        assert_fails(&server.perf(&[option]), 2, instead);
    }
}

#[test]
fn lines_go_to_a_log_file_with_the_time_of_day() {
    let server = Server::start(&["--once"]);
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let out = server.perf(&["-t", "0.5", "-i", "0.2", "--timestamps", "--logfile", log.to_str().unwrap()]);
    assert!(out.status.success() && out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().filter(|l| !l.is_empty()).all(|l| l.starts_with("20") && l.as_bytes()[10] == b'T'), "{text}");
    assert!(text.contains("goodput") && text.contains("bit/s") && text.contains("per useful byte"), "{text}");
}

#[test]
fn tests_that_make_no_sense_are_refused_in_words() {
    let (_, key) = keygen(tempfile::tempdir().unwrap().path(), "k");
    let perf = |more: &[&str]| noctule().args(["perf", "-c", "127.0.0.1", "--peer-key", &key]).args(more).output().unwrap();
    assert_fails(&perf(&["--mode", "transparent"]), 2, "give one with -b");
    assert_fails(&perf(&["-l", "3"]), 2, "between 16 bytes");
    assert_fails(&perf(&["--mode", "tcp", "-l", "1000"]), 2, "byte stream");
    assert_fails(&perf(&["-t", "0"]), 2, "between 0.1");
    assert_fails(&perf(&["--mode", "quic"]), 2, "transparent");
    assert_fails(&perf(&["-F", "f", "-P", "2"]), 2, "one byte stream");
    assert_fails(&perf(&["--logfile", "/nonexistent/log"]), 4, "/nonexistent/log");
    let ping = |more: &[&str]| noctule().args(["ping", "127.0.0.1", "--peer-key", &key]).args(more).output().unwrap();
    assert_fails(&ping(&["-l", "3"]), 2, "between 16");
    assert_fails(&ping(&["-i", "1us"]), 2, "100us");
    assert_fails(&ping(&["--csv", "/nonexistent/p.csv"]), 4, "/nonexistent/p.csv");
    assert_fails(&ping(&["-p", "9"]), 6, "nobody listens");
    assert_fails(&perf(&["-p", "9"]), 6, "nobody listens");
}

#[test]
fn ping_gets_every_answer_in_every_mode_and_writes_its_tables_and_figures() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let text = |p: &Path| p.to_str().unwrap().to_owned();
    for mode in
        [&["--mode", "brtp"][..], &["--mode", "brtp", "--unordered"], &["--mode", "btp"], &["--mode", "transparent"], &["--mode", "tcp"]]
    {
        let (csv, svg) = (path("p.csv"), path("p.svg"));
        let (csv_text, svg_text) = (text(&csv), text(&svg));
        let report =
            json(&server.ping(&[&["-J", "-c", "25", "-i", "10ms", "-l", "500", "--csv", &csv_text, "--svg", &svg_text], mode].concat()));
        let summary = &report["summary"];
        assert_eq!((summary["sent"].as_u64(), summary["received"].as_u64()), (Some(25), Some(25)), "{mode:?}: {report}");
        let ms = |name: &str| summary[name].as_f64().unwrap();
        assert!(0.0 < ms("min_ms") && ms("min_ms") <= ms("p50_ms") && ms("p50_ms") <= ms("p99_ms") && ms("p99_ms") <= ms("max_ms"));
        assert_eq!(report["tens"].as_array().unwrap().len(), 3);
        assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 26);
        assert!(fs::read_to_string(&svg).unwrap().contains("<circle"));
    }
    let out = server.ping(&["-c", "20", "-i", "5ms"]);
    let words = String::from_utf8_lossy(&out.stdout);
    for expected in ["messages 10-19: mean", "p99.9", "residual loss 0.000 %", "first answer after"] {
        assert!(words.contains(expected), "{expected:?} is not in {words}");
    }
}

#[test]
fn a_server_of_measurements_says_what_it_is_to_clients_of_other_services() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (file, host) = (dir.path().join("f"), format!("127.0.0.1:{}", server.port));
    fs::write(&file, "f").unwrap();
    let (file, into) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    for words in [
        &["send", file, &host][..],
        &["send", "--mode", "brctp", file, &host],
        &["get", &format!("{host}:f"), into],
        &["get", "--mode", "brctp", &format!("{host}:f"), into],
        &["proxy", &host, "-W", "127.0.0.1:9"],
    ] {
        let out = noctule().args(words).args(["--peer-key", &server.key]).output().unwrap();
        assert_fails(&out, 7, "noctule perf -s runs there: send needs `noctule recv`");
        assert!(!String::from_utf8_lossy(&out.stderr).contains("what has arrived is kept"), "{words:?}: nothing has arrived");
    }
}

#[test]
fn ping_measures_fresh_starts() {
    let server = Server::start(&[]);
    for mode in ["brtp", "btp", "transparent", "tcp"] {
        let report = json(&server.ping(&["-J", "--first", "3", "--mode", mode]));
        assert_eq!(report["samples"].as_array().unwrap().len(), 3, "{mode}");
        assert!(report["mean"]["answer_ms"].as_f64().unwrap() > 0.0 && report["mean"]["connect_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn ping_of_something_that_is_no_responder_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = support::receiver("127.0.0.1:0", dir.path(), &[]);
    let out = noctule().args(["ping", &receiver.address, "--peer-key", &receiver.key, "-c", "3", "-W", "500ms"]).output().unwrap();
    assert!(!out.status.success());
    assert!(
        String::from_utf8_lossy(&out.stderr)
            .contains("recv or serve runs there: send needs `noctule recv`, get `noctule serve`, perf and ping `noctule perf -s`"),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The records of a JSON text sequence.
fn records(path: &Path) -> Vec<Value> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.first(), Some(&0x1e));
    bytes.split(|b| *b == 0x1e).skip(1).map(|r| serde_json::from_slice(r).unwrap()).collect()
}

#[test]
fn a_killed_process_leaves_the_trace_of_all_that_happened() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("server.sqlog");
    let mut server = Server::start(&["--trace", trace.to_str().unwrap()]);
    assert!(server.perf(&["-t", "0.1", "-b", "2mbit"]).status.success());
    // Nothing comes after the end of the session that would push it out of a buffer.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(&trace).unwrap().contains("connectivity:connection_closed") {
        assert!(Instant::now() < deadline, "the end of the session is not in the file");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.child.kill().unwrap();
    assert!(records(&trace).iter().any(|event| event["name"] == "transport:packet_received"));
}

#[test]
fn traces_tell_what_both_ends_did_packet_by_packet() {
    let dir = tempfile::tempdir().unwrap();
    let (theirs, ours) = (dir.path().join("server.sqlog"), dir.path().join("client.sqlog"));
    let mut server = Server::start(&["--once", "--trace", theirs.to_str().unwrap()]);
    let out = server.perf(&["-t", "0.5", "-l", "1000", "-b", "2mbit", "--trace", ours.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(server.child.wait().unwrap().success());
    let (ours, theirs) = (records(&ours), records(&theirs));
    assert_eq!(ours[0]["qlog_format"], "JSON-SEQ");
    assert_eq!(
        (&ours[0]["trace"]["vantage_point"]["type"], &theirs[0]["trace"]["vantage_point"]["type"]),
        (&"client".into(), &"server".into())
    );
    for (events, names) in [
        (&ours, &["transport:packet_sent", "recovery:metrics_updated", "noctule:flow_opened", "noctule:flow_closed"][..]),
        (&theirs, &["transport:packet_received", "noctule:flow_opened", "connectivity:connection_closed"]),
    ] {
        for name in [&["connectivity:connection_started", "connectivity:connection_state_updated"], names].concat() {
            assert!(events.iter().any(|e| e["name"] == name), "{name} is missing");
        }
        let times: Vec<f64> = events[1..].iter().map(|e| e["time"].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "events come in the order of time");
    }
    // Every packet that came had been sent.
    let numbers = |events: &[Value], name: &str| -> std::collections::BTreeSet<u64> {
        events.iter().filter(|e| e["name"] == name).map(|e| e["data"]["header"]["packet_number"].as_u64().unwrap()).collect()
    };
    let (sent, came) = (numbers(&ours, "transport:packet_sent"), numbers(&theirs, "transport:packet_received"));
    assert!(came.len() > 50 && came.is_subset(&sent));
}

#[test]
fn doctor_says_what_it_found_and_what_to_do() {
    let server = Server::start(&[]);
    let out = noctule().args(["doctor", "--json", "127.0.0.1", "-p", &server.port]).output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let problems = findings.iter().filter(|f| f["level"] == "problem").count();
    assert_eq!(report["problems"], problems);
    assert_eq!(out.status.code(), Some(if problems > 0 { 18 } else { 0 }), "{}", String::from_utf8_lossy(&out.stderr));
    for name in ["kernel", "clock", "timers", "buffers", "GSO", "GRO", "ECN", "tunnels", "namespaces", "answer", "handshake", "path MTU"] {
        assert!(findings.iter().any(|f| f["name"] == name), "{name} was not looked at: {report}");
    }
    assert!(findings.iter().all(|f| f["level"] == "good" || f["advice"].is_string()), "{report}");
    let out = noctule().args(["doctor", "127.0.0.1", "-p", "9"]).output().unwrap();
    assert_fails(&out, 18, "found");
    assert!(String::from_utf8_lossy(&out.stdout).contains("nobody listens"));
}

#[test]
fn manual_pages_and_completions_come_from_the_same_definitions_as_help() {
    let dir = tempfile::tempdir().unwrap();
    assert!(noctule().arg("man").arg(dir.path()).output().unwrap().status.success());
    let new = dir.path().join("share/man/man1");
    assert!(noctule().arg("man").arg(&new).output().unwrap().status.success() && new.join("noctule-send.1").exists());
    for (page, words) in [("noctule", "perf"), ("noctule-perf", "bidir"), ("noctule-ping", "unordered"), ("noctule-send", "EXIT STATUS")] {
        let text = fs::read_to_string(dir.path().join(format!("{page}.1"))).unwrap();
        assert!(text.starts_with(".ie") || text.contains(".TH"), "{page}");
        let plain = text.replace("\\-", "-");
        assert!(plain.contains(words), "{page} does not mention {words}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let out = noctule().args(["completions", shell]).output().unwrap();
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("bidir"), "{shell}");
    }
    assert_fails(&noctule().args(["man", "/dev/null/man1"]).output().unwrap(), 4, "/dev/null/man1");
    assert_fails(&noctule().args(["completions", "cmd.exe"]).output().unwrap(), 2, "bash");
}
