//! Programs in C and C++ over the library: compiled, linked and run as a user would, over loopback, under sanitizers and under valgrind.
//!
//! Needed: a C and a C++ compiler (`cc`, `c++`) with their sanitizers, and valgrind for the tests that say so (Debian: build-essential, valgrind).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the library that these tests are built with.
fn libraries() -> PathBuf {
    let place = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    assert!(place.join("libnoctule_c.so").exists(), "no libnoctule_c.so in {}: run these tests by cargo test -p noctule-c", place.display());
    place
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}. Debian has it in build-essential or valgrind"))
}

fn succeed(command: &mut Command) -> String {
    let out = output(command);
    let words = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{words}", out.status);
    words
}

/// Compiles a program of `tests/programs` and gives where it is.
fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let place = libraries();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    succeed(
        Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-g", "-pthread"])
            .args(flags)
            .arg(here().join("tests/programs").join(source))
            .arg("-I")
            .arg(here().join("include"))
            .arg("-I")
            .arg(here().join("../cpp"))
            .arg("-L")
            .arg(&place)
            .arg(format!("-Wl,-rpath,{}", place.display()))
            .args(["-lnoctule_c", "-o"])
            .arg(&out),
    );
    out
}

fn sanitized(source: &'static str) -> &'static Path {
    static POLL: OnceLock<PathBuf> = OnceLock::new();
    static CALLBACKS: OnceLock<PathBuf> = OnceLock::new();
    let cell = if source == "poll" { &POLL } else { &CALLBACKS };
    cell.get_or_init(|| compile("cc", &format!("{source}.c"), &format!("{source}-sanitized"), &[SANITIZED, &["-std=gnu11"]].concat()))
}

fn plain(source: &'static str) -> &'static Path {
    static POLL: OnceLock<PathBuf> = OnceLock::new();
    static CALLBACKS: OnceLock<PathBuf> = OnceLock::new();
    let cell = if source == "poll" { &POLL } else { &CALLBACKS };
    cell.get_or_init(|| compile("cc", &format!("{source}.c"), &format!("{source}-plain"), &["-std=gnu11"]))
}

fn run_sanitized(source: &'static str, test: &str) {
    succeed(Command::new(sanitized(source)).arg(test));
}

#[test]
fn ten_megabytes_come_back_by_a_stream_in_the_programs_own_loop() {
    run_sanitized("poll", "echo");
}

#[test]
fn messages_keep_order_priority_and_lifetime() {
    run_sanitized("poll", "messages");
}

#[test]
fn datagrams_arrive_and_wait_for_a_buffer_that_is_large_enough() {
    run_sanitized("poll", "datagrams");
}

#[test]
fn a_wrong_pin_an_unknown_host_and_a_stranger_are_told_apart() {
    run_sanitized("poll", "connecting");
}

#[test]
fn null_and_wrong_lengths_are_errors_with_words() {
    run_sanitized("poll", "arguments");
}

#[test]
fn every_call_knows_a_handle_that_was_freed() {
    run_sanitized("poll", "closed_handles");
}

#[test]
fn the_descriptor_is_readable_while_an_event_waits() {
    run_sanitized("poll", "descriptor");
}

#[test]
fn a_thousand_connections_leave_no_descriptor_thread_or_memory_behind() {
    eprintln!("{}", succeed(Command::new(plain("poll")).arg("thousand")));
}

#[test]
fn ten_megabytes_come_back_by_callbacks() {
    run_sanitized("callbacks", "echo");
}

#[test]
fn a_callback_may_free_its_flow_its_session_and_the_context() {
    run_sanitized("callbacks", "destroy");
}

#[test]
fn nothing_is_told_of_a_handle_after_callbacks_were_waited_for() {
    run_sanitized("callbacks", "threads");
}

#[test]
fn a_callback_that_blocks_does_not_stop_the_network() {
    run_sanitized("callbacks", "blocking");
}

/// Reads and writes of memory that is not theirs, and what is lost: in the library's code too, which no sanitizer has compiled.
fn run_in_valgrind(source: &'static str, test: &str) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("*** SKIPPED: there is no valgrind here");
        return;
    }
    let report = succeed(
        Command::new("valgrind")
            .args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--fair-sched=yes"])
            .arg(format!("--suppressions={}", here().join("tests/programs/valgrind.supp").display()))
            .arg(plain(source))
            .arg(test),
    );
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
}

#[test]
fn valgrind_finds_nothing_in_wrong_arguments() {
    run_in_valgrind("poll", "arguments");
}

#[test]
fn valgrind_finds_nothing_in_the_use_of_freed_handles() {
    run_in_valgrind("poll", "closed_handles");
}

#[test]
fn valgrind_finds_nothing_in_callbacks_that_free_everything() {
    run_in_valgrind("callbacks", "destroy");
}
