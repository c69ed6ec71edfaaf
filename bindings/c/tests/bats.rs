//! The BATS API (bindings/bats): built by CMake as its users do, its programs run over loopback under AddressSanitizer.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use support::{has_cmake, here, install, output, succeed};

/// A key as openssl writes one; it is only hashed, so its bytes need not be a key.
const PEM: &str = "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn prefix() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bats-prefix")
}

fn configure(build: &Path, flags: &[&str]) {
    let source = here().join("../bats");
    succeed(
        Command::new("cmake")
            .arg("-S")
            .arg(source)
            .arg("-B")
            .arg(build)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))
            .args(["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"])
            .args(flags),
    );
}

/// The package with its test programs, under sanitizers; `None` without CMake.
fn build() -> Option<&'static Path> {
    static BUILD: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = BUILD.get_or_init(|| {
        if !has_cmake() {
            return None;
        }
        install(&prefix());
        let build = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bats-build");
        let flags = "-fsanitize=address,undefined -fno-sanitize-recover=all -g1 -Werror";
        configure(&build, &["-DNOCTULE_BATS_TESTS=ON", &format!("-DCMAKE_CXX_FLAGS={flags}"), &format!("-DCMAKE_C_FLAGS={flags}")]);
        succeed(Command::new("cmake").arg("--build").arg(&build).arg("-j2"));
        Some(build)
    });
    made.as_deref()
}

/// A port that was free for UDP and TCP a moment ago, as the one below it.
fn free_port() -> u16 {
    loop {
        let Ok(udp) = UdpSocket::bind("127.0.0.1:0") else { continue };
        let port = udp.local_addr().unwrap().port();
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port - 1) {
            return port;
        }
    }
}

fn run(test: &str) {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let public = |bytes: [u8; 32]| noctule::SecretKey::from_bytes(bytes).public().to_string();
    succeed(
        Command::new(build.join("tests/behaviour"))
            .args([test.as_ref(), directory.path().as_os_str()])
            .env("EXPECTED_KEY", public(KEY_OF_PEM))
            .env("OTHER_KEY", public([7; 32])),
    );
}

/// SHA-256 of "noctule bats key file 1", a nul, and the 66 zeros of the test's key file. A change of the rule would change the keys that users have pinned.
const KEY_OF_PEM: [u8; 32] = [
    23, 110, 198, 49, 41, 11, 94, 67, 84, 122, 89, 138, 239, 214, 241, 188, 132, 190, 174, 133, 153, 24, 168, 212, 141, 106, 77, 50, 139,
    242, 40, 132,
];

macro_rules! behaviour {
    ($($(#[$doc:meta])* $name:ident: $test:literal;)*) => {
        $($(#[$doc])* #[test] fn $name() { run($test); })*
    };
}

behaviour! {
    events_come_in_order_and_messages_keep_their_borders_in_every_mode: "order";
    callbacks_of_a_context_have_one_thread_which_is_not_the_callers: "threads";
    what_is_not_between_one_byte_and_the_ideal_length_is_refused: "lengths";
    empty_messages_of_a_far_end_of_another_make_are_left_out: "empty_messages";
    data_that_was_not_consumed_is_offered_again: "offered_again";
    data_and_the_end_are_held_until_there_is_a_callback: "held";
    an_exception_in_a_callback_closes_its_connection_and_nothing_else: "exceptions";
    a_callback_may_destroy_its_connection_its_protocol_and_its_context: "destroyed_in_callbacks";
    a_callback_that_blocks_does_not_stop_the_network: "blocking_callbacks";
    a_far_end_that_left_before_it_was_accepted_is_heard_first: "gone_before_accepted";
    what_cannot_be_had_fails_with_an_event: "refused";
    a_key_file_is_an_identity_and_a_public_key_in_a_certificate_file_a_pin: "keys";
    connections_that_outlive_their_protocol_say_that_they_are_closed: "lifetimes";
    a_connection_without_data_ends_after_its_timeout: "idle";
    files_arrive_whole_and_only_in_reliable_modes: "files";
    signals_are_told_to_every_context_and_given_back: "signals";
    connections_that_were_opened_and_dropped_leave_no_descriptor_and_no_thread: "many";
    configurations_are_copied_deeply_and_layouts_stay: "configurations";
}

/// The package, compiled with a header whose ABI number is not the library's.
#[test]
fn a_library_of_another_version_is_refused() {
    let Some(_) = build() else { return };
    let place = tempfile::tempdir().unwrap();
    let header = fs::read_to_string(here().join("include/noctule.h")).unwrap();
    assert!(header.contains("#define NOCTULE_ABI 1\n"));
    fs::write(place.path().join("noctule.h"), header.replace("#define NOCTULE_ABI 1\n", "#define NOCTULE_ABI 2\n")).unwrap();
    let bats = here().join("../bats");
    let include = [place.path().to_owned(), bats.clone(), bats.join("include/cpp"), bats.join("include/c"), here().join("../cpp")];
    let sources = ["coded", "connection", "identity", "iocontext", "log", "loop", "protocol", "settings", "signals", "tcp"];
    // One translation unit, so that the headers are compiled once.
    let unit = place.path().join("unit.cc");
    let lines = sources.map(|name| format!("#include \"{}\"\n", bats.join("src").join(name).with_extension("cc").display()));
    fs::write(&unit, format!("{}#include \"{}\"\n", lines.concat(), bats.join("tests/behaviour.cc").display())).unwrap();
    let program = place.path().join("behaviour");
    succeed(
        Command::new("c++")
            .args(["-std=c++17", "-pthread"])
            .args(include.iter().map(|path| format!("-I{}", path.display())))
            .arg(&unit)
            .arg("-L")
            .arg(prefix().join("lib"))
            .arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))
            .args(["-lnoctule", "-o"])
            .arg(&program),
    );
    let words = succeed(Command::new(&program).arg("version"));
    assert!(words.contains("compiled with a header of ABI 2, this library has 1: compile it anew"), "{words}");
}

/// The first program of the guide's page, unchanged but for its port.
#[test]
fn the_program_of_the_guide_runs() {
    let Some(build) = build() else { return };
    let place = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(here().join("../../docs/guide/bats-api.md")).unwrap();
    let code = text.split("```cpp\n").nth(1).unwrap().split("```").next().unwrap();
    let source = place.path().join("guide.cc");
    // The page's port may be in use on this host.
    fs::write(&source, code.replace("42420", &free_port().to_string())).unwrap();
    let bats = here().join("../bats");
    let program = place.path().join("guide");
    succeed(
        Command::new("c++")
            .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-pthread"])
            .args(["-I".as_ref(), bats.as_os_str(), "-I".as_ref(), bats.join("include/cpp").as_os_str()])
            .arg(&source)
            .arg(build.join("libnoctule-bats.a"))
            .arg("-L")
            .arg(prefix().join("lib"))
            .arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))
            .args(["-lnoctule", "-o"])
            .arg(&program),
    );
    let out = output(&mut Command::new(&program));
    assert!(out.status.success(), "{out:?}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "across a lossy link\n");
}

#[test]
fn wrong_handles_of_c_are_errors() {
    let Some(build) = build() else { return };
    succeed(Command::new(build.join("tests/handles")).arg(free_port().to_string()));
}

/// A program that is started, waited for until it prints a given word, and ended with the test.
struct Server {
    child: Child,
    words: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(command: &mut Command, until: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(until) {
            line.clear();
            assert!(words.read_line(&mut line).unwrap() > 0, "{command:?} ended before it said {until:?}");
        }
        Self { child, words }
    }
    /// Its remaining output until it ends, and its exit code.
    fn rest(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.words.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
    fn interrupt(&self) {
        succeed(Command::new("kill").args(["-INT", &self.child.id().to_string()]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The three programs that were written from the description of the published ones: client and server in C++, server in C.
#[test]
fn the_small_programs_understand_each_other() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    let pair = [file("server.cert", CERTIFICATE), file("server.key", PEM)];
    let tests = build.join("tests");
    for (program, mode) in [("server", "1"), ("server", "10"), ("echo_server", "1")] {
        let port = free_port().to_string();
        let server = Server::start(Command::new(tests.join(program)).args(&pair).args([mode, &port]), "listening");
        succeed(Command::new(tests.join("client")).args(["20", mode, &port]));
        let (rest, code) = server.rest();
        assert_eq!(code, Some(0), "{program} {mode}: {rest}");
        let expected = if program == "server" { "20 messages, 2621440 bytes\n" } else { "closed\n" };
        assert!(rest.ends_with(expected), "{program} {mode}: {rest}");
    }
    // The server ends by SIGINT without a connection, and by an error if its files are missing.
    let server = Server::start(Command::new(tests.join("server")).args(&pair).args(["1", &free_port().to_string()]), "listening");
    server.interrupt();
    assert_eq!(server.rest(), ("0 messages, 0 bytes\n".to_owned(), Some(0)));
    assert_eq!(output(Command::new(tests.join("server")).args(["/no/cert", "/no/key"])).status.code(), Some(1));
}

/// What the readers' patterns find in a line of an interval or a summary: rate, jitter, lost and total datagrams.
#[derive(Debug, PartialEq)]
struct Line {
    bits_per_second: f64,
    jitter_ms: f64,
    lost: i64,
    total: i64,
    percent: f64,
}

/// Parses as the readers' patterns do: digits before a unit of bytes, white space, a number, one blank and a unit of bits; the number between `bits/sec` and ` ms`;
/// `ms`, white space, `A/B`, white space, `(X%)`.
fn read_line(line: &str) -> Option<Line> {
    let (before, after) = line.split_once("bits/sec")?;
    let (before, unit) = match before.chars().last()? {
        'K' => (&before[..before.len() - 1], 1e3),
        'M' => (&before[..before.len() - 1], 1e6),
        'G' => (&before[..before.len() - 1], 1e9),
        _ => (before, 1.0),
    };
    let number = before.strip_suffix(' ')?.rsplit(' ').next()?;
    let bytes = before.trim_end_matches([' ', '.']).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end();
    let is_bytes = ["KBytes", "MBytes", "GBytes", "Bytes"]
        .iter()
        .any(|unit| bytes.strip_suffix(unit).and_then(|b| b.strip_suffix(' ')).is_some_and(|b| b.ends_with(|c: char| c.is_ascii_digit())));
    if !is_bytes {
        return None;
    }
    let (jitter, rest) = after.split_once(" ms")?;
    let (counts, rest) = rest.trim_start().split_once(' ')?;
    let (lost, total) = counts.split_once('/')?;
    let percent = rest.trim_start().strip_prefix('(')?.split_once("%)")?.0;
    Some(Line {
        bits_per_second: number.parse::<f64>().ok()? * unit,
        jitter_ms: jitter.trim().parse().ok()?,
        lost: lost.parse().ok()?,
        total: total.parse().ok()?,
        percent: percent.parse().ok()?,
    })
}

#[test]
fn lines_of_bats_iperf_are_read_as_oasis_reads_them() {
    // As they are published.
    let line = read_line("[ 1]  0.00-1.00 sec   1.03 GBytes  8.22 Gbits/sec  0.000 ms   0/7244 (0%)").unwrap();
    assert_eq!(line, Line { bits_per_second: 8.22 * 1e9, jitter_ms: 0.0, lost: 0, total: 7244, percent: 0.0 });
    let line = read_line("[ 1]  .00-.00  sec   10.92 GBytes  8.74 Gbits/sec  0.255 ms   0/76826 (0.0%) receiver").unwrap();
    assert_eq!((line.bits_per_second, line.jitter_ms), (8.74 * 1e9, 0.255));
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = build.join("iperf/noctule-bats-iperf");
    let port = free_port().to_string();
    let log = directory.path().join("logs/BRTP_IperfBatsTest_bats_iperf_tcp_iperf3_h0_h1.log");
    let mut server = Command::new(&program);
    server.args(["-s", "-I", "lo", "-p", &port, "-l"]).arg(&log);
    let server = Server::start(&mut server, "Server listening on");
    for (mode, streams) in [("0", "1"), ("1", "2"), ("10", "1")] {
        let out = output(Command::new(&program).args([
            "-c",
            "127.0.0.1",
            "-p",
            &port,
            "-m",
            mode,
            "-P",
            streams,
            "-t",
            "0.4",
            "-i",
            "0.2",
            "-b",
            "20",
        ]));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "mode {mode}: {text}{}", String::from_utf8_lossy(&out.stderr));
        let lines: Vec<&str> = text.lines().collect();
        let rule = "-".repeat(59);
        let signals = port.parse::<u16>().unwrap() - 1;
        assert_eq!((lines[0], lines[2], lines[4]), ("* Linux/Unix platform", &*rule, &*rule));
        assert_eq!(lines[3], format!("Connecting to host 127.0.0.1, port {signals}"));
        let header = "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams";
        assert_eq!(lines.iter().filter(|line| **line == header).count(), 2);
        let streams: usize = streams.parse().unwrap();
        assert_eq!(lines.iter().filter(|line| read_line(line).is_some()).count(), 3 * streams, "{text}");
        assert_eq!(lines.iter().filter(|line| line.ends_with(" sender")).count(), streams);
    }
    server.interrupt();
    let (rest, code) = server.rest();
    assert_eq!(code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(rest.lines().last().unwrap()), "the log has the report");
    let read: Vec<(&str, Line)> = text.lines().filter_map(|line| Some((line, read_line(line)?))).collect();
    // Two intervals and two summaries of each stream; stream numbers go on from client to client.
    assert_eq!(read.len(), 16, "{text}");
    assert!(text.contains("[ 4]  .00-.00  sec   "), "{text}");
    for (line, read) in &read {
        let is_summary = line.ends_with(" receiver") || line.ends_with(" sender");
        assert_eq!(line.contains("sec   0.00 Bytes  0.00 bits/sec"), read.bits_per_second == 0.0, "{line}");
        assert!(read.total > 0 && read.percent == 0.0 && read.lost == 0, "{line}");
        assert!(!is_summary || read.bits_per_second > 1e6, "{line}");
    }
    assert!(text.contains("Interval           Received     Bitrate"));
}

#[test]
fn files_go_by_bats_iperf_and_their_checksums_are_looked_at() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    fs::create_dir_all(&to).unwrap();
    let content: Vec<u8> = (0..600_000u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
    let files = [("a.tar.gz", &content[..]), ("empty", &[]), ("one.a-very-long-extension", &content[..1]), ("spoilt", &content[..9])];
    for (name, bytes) in files {
        fs::write(from.join(name), bytes).unwrap();
    }
    fs::write(from.join("spoilt.sha256sum"), "0".repeat(64)).unwrap();
    let program = build.join("iperf/noctule-bats-iperf");
    let port = free_port().to_string();
    let mut server = Command::new(&program);
    server.args(["-s", "-I", "loopback", "-p", &port]).current_dir(&to);
    let server = Server::start(&mut server, "Server listening on");
    let send = |names: &[&str]| {
        output(Command::new(&program).args(["-c", "127.0.0.1", "-p", &port, "-m", "1", "-P", "2", "-f"]).args(names).current_dir(&from))
    };
    let out = send(&["a.tar.gz", "empty", "missing", "one.a-very-long-extension"]);
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && words.contains("missing is no file, and skipped"), "{words}");
    for (name, bytes) in &files[..3] {
        assert!(fs::read(to.join(name)).unwrap_or_else(|e| panic!("{name}: {e}")) == *bytes, "{name}");
    }
    let out = send(&["empty", "spoilt"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("spoilt is not what spoilt.sha256sum says"));
    assert!(!to.join("spoilt").exists());
    // What lies there and did not come from here stays, and so does what a link leads to.
    fs::write(to.join("kept"), "kept").unwrap();
    std::os::unix::fs::symlink(to.join("kept"), to.join(".linked.part")).unwrap();
    for name in ["kept", "linked", ".hidden", "odd\x1b[2J\nname"] {
        fs::write(from.join(name), "sent").unwrap();
    }
    for (name, is_taken) in [("kept", false), (".hidden", false), ("linked", true), ("odd\x1b[2J\nname", true)] {
        let out = send(&["empty", name]);
        assert_eq!(out.status.success(), is_taken, "{name:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    assert_eq!(fs::read_to_string(to.join("kept")).unwrap(), "kept");
    assert!(!to.join(".hidden").exists() && fs::read_to_string(to.join("linked")).unwrap() == "sent");
    server.interrupt();
    let (lines, _) = server.rest();
    assert!(lines.contains(r"odd\x1b[2J\x0aname") && !lines.contains('\x1b'), "{lines}");
}

#[test]
fn wrong_command_lines_of_bats_iperf_say_why() {
    let Some(build) = build() else { return };
    let port = free_port().to_string();
    for (words, why) in [
        ("", "-s or -c HOST is needed"),
        ("-s", "-s needs -I INTERFACE"),
        ("-s -c host -I lo", "exclude each other"),
        ("-s -I lo -b 5", "-b is for clients"),
        ("-s -I no-such-interface", "no such interface"),
        ("-c host -m 12", "not built"),
        ("-c host -C", "compression is not built"),
        ("-c host -m 0 -f /etc/passwd", "-f needs -m 1 or -m 2"),
        ("-c host -t x", "-t x: not a number in its range"),
        ("-c host -P 40", "-P 40"),
    ] {
        let out = output(Command::new(build.join("iperf/noctule-bats-iperf")).args(words.split_whitespace()));
        assert_eq!(out.status.code(), Some(1), "{words}");
        assert!(String::from_utf8_lossy(&out.stderr).contains(why), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let out = output(Command::new(build.join("iperf/noctule-bats-iperf")).args(["-c", "127.0.0.1", "-p", &port]));
    assert_eq!(out.status.code(), Some(1));
    let signals = port.parse::<u16>().unwrap() - 1;
    assert!(String::from_utf8_lossy(&out.stdout).contains(&format!("Client failed to connect to host 127.0.0.1, port {signals}")));
}

/// Installed, nothing has a name that n-hop's package has, until it is asked for.
#[test]
fn an_installed_package_is_found_and_has_names_of_its_own() {
    let Some(build) = build() else { return };
    let place = tempfile::tempdir().unwrap();
    succeed(Command::new("cmake").arg("--install").arg(build).arg("--prefix").arg(place.path()));
    assert!(!place.path().join("bin").exists(), "no program is installed unasked");
    let source = place.path().join("source");
    fs::create_dir_all(&source).unwrap();
    let program = here().join("../bats/examples/client.cc");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(p LANGUAGES C CXX)\nset(NOCTULE_BATS_ALIAS ON)\nfind_package(noctule-bats 0.1 REQUIRED)\n\
         add_executable(p {})\ntarget_link_libraries(p PRIVATE bats::protocol)\n",
        program.display()
    );
    fs::write(source.join("CMakeLists.txt"), text).unwrap();
    succeed(
        Command::new("cmake")
            .arg("-S")
            .arg(&source)
            .arg("-B")
            .arg(source.join("build"))
            .arg(format!("-DCMAKE_PREFIX_PATH={};{}", place.path().display(), prefix().display()))
            .arg("-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined"),
    );
    succeed(Command::new("cmake").arg("--build").arg(source.join("build")));
}
