//! Running the laboratory's binary in tests that need namespaces, and saying loudly when they cannot run.

#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

use std::io::Write;
use std::process::{Command, Output};

use noctule_lab::net::command::{NOT_PERMITTED, UNFAITHFUL};

/// The binary under test.
pub fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_noctule-lab"))
}

/// Runs it; `None`, after a notice, where the machine does not permit it or could not keep time three times in a row.
pub fn run(test: &str, command: &mut Command) -> Option<serde_json::Value> {
    for _ in 0..3 {
        let output = command.output().expect("the laboratory's binary starts");
        match output.status.code() {
            Some(0) => return Some(parse(&output)),
            Some(code) if code == i32::from(NOT_PERMITTED) => {
                skip(test, &String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Some(code) if code == i32::from(UNFAITHFUL) => {}
            _ => panic!("{test}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr)),
        }
    }
    skip(test, "this machine is too slow or too busy to keep the link's time");
    None
}

/// Past the test harness, which would swallow what a passing test prints.
pub fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "\n*** SKIPPED {test}: {}\n", why.trim());
}

fn parse(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
}

/// A number of the report.
pub fn number(report: &serde_json::Value, path: &str) -> f64 {
    report.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("{path} in {report}"))
}
