//! Nothing is left behind: neither processes nor namespaces, even when the laboratory is killed, nor files when it is interrupted.

mod net_common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use net_common::{lab, skip};

const PATIENCE: Duration = Duration::from_secs(30);

/// Network namespaces that a process holds by descriptor.
fn namespaces_of(pid: u32) -> BTreeSet<String> {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    descriptors
        .flatten()
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .filter(|target| target.starts_with("net:["))
        .collect()
}

/// Processes that are inside one of the namespaces or hold one of them.
fn users_of(namespaces: &BTreeSet<String>) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
        .filter(|pid| {
            let inside = std::fs::read_link(format!("/proc/{pid}/ns/net")).map(|link| link.to_string_lossy().into_owned());
            inside.is_ok_and(|link| namespaces.contains(&link)) || !namespaces_of(*pid).is_disjoint(namespaces)
        })
        .collect()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `noctule` that opens its port, says where it is and then does nothing for a long time.
fn idle_noctule(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("noctule");
    let script = "#!/bin/sh\ncase $1 in keygen) echo key; exit 0;; --version) echo noctule 0; exit 0;; esac\necho \"$$\" >> \"$IDLE_PIDS\"\nexec sleep 1000\n";
    std::fs::write(&path, script).expect("a script can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("and made executable");
    path
}

/// Starts a run whose noctule never answers; gives the laboratory's process and the namespaces that it holds.
fn start(test: &str, directory: &Path) -> Option<(Child, BTreeSet<String>)> {
    let mut child = lab()
        .args(["net", "--backend", "emulator", "--seconds", "1000", "--rate", "10mbit"])
        .env("NOCTULE_BIN", idle_noctule(directory))
        .env("IDLE_PIDS", directory.join("pids"))
        .env("TMPDIR", directory)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the laboratory's binary starts");
    let mut namespaces = BTreeSet::new();
    let mut ended = false;
    wait_until("namespaces and a child, or an error,", || {
        ended = child.try_wait().expect("the child can be asked").is_some();
        namespaces = namespaces_of(child.id());
        ended || (namespaces.len() == 2 && directory.join("pids").exists())
    });
    if ended {
        let mut line = String::new();
        let errors = child.stderr.take().expect("standard error is piped");
        BufReader::new(errors).read_line(&mut line).expect("and can be read");
        assert!(line.contains("not permitted") || line.contains("/dev/net/tun"), "{line}");
        skip(test, &line);
        return None;
    }
    Some((child, namespaces))
}

#[test]
fn killed_laboratory_leaves_neither_processes_nor_namespaces() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some((mut child, namespaces)) = start("clean-up after SIGKILL", directory.path()) else { return };
    assert!(users_of(&namespaces).len() >= 2, "the laboratory and its child use the namespaces");
    child.kill().expect("SIGKILL");
    child.wait().expect("and reaped");
    // The kernel frees a namespace with its last process and descriptor, and its children die with the laboratory.
    wait_until("nobody uses the namespaces", || users_of(&namespaces).is_empty());
}

#[test]
fn interrupted_laboratory_removes_its_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some((mut child, namespaces)) = start("clean-up after SIGINT", directory.path()) else { return };
    let scratch = || {
        let entries = std::fs::read_dir(directory.path()).expect("the temporary directory");
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("noctule-lab-keys")).count()
    };
    assert_eq!(scratch(), 1);
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("the laboratory ends").code(), Some(130));
    assert_eq!(scratch(), 0);
    wait_until("nobody uses the namespaces", || users_of(&namespaces).is_empty());
}
