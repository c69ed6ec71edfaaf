//! Sweeps as users run them: draws that their commands repeat, and results that survive kills, full disks and company.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use noctule_lab::holdout::{self, Kind};
use noctule_lab::sweep::Record;

const LAB: &str = env!("CARGO_BIN_EXE_noctule-lab");

/// Twelve cells of three simulated seconds.
const SMALL: &str = r#"
    name = "small"
    [link]
    rate = "2mbit"
    delay = "5ms"
    [run]
    seconds = "3s"
    warmup = "1s"
    [grid]
    loss = ["0%", "1%", "2%", "3%", "4%", "5%"]
    mtu = ["1400", "1500"]
"#;
const CELLS: usize = 12;

fn lab(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(LAB);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for name in ["SLURM_ARRAY_TASK_ID", "HQ_TASK_ID", "JOB_COMPLETION_INDEX", "PARALLEL_SEQ"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str], folder: &Path) -> Output {
    lab(args, folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with the cells of [`SMALL`] in `cells.json`.
fn with_cells() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("small.toml"), SMALL).unwrap();
    let cells = run(&["cells", "--full", "small.toml"], dir.path());
    assert!(cells.status.success(), "{}", text(&cells.stderr));
    std::fs::write(dir.path().join("cells.json"), cells.stdout).unwrap();
    dir
}

/// Names of the results with their inodes: one that is written again has another.
fn results(folder: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap);
    // Only what is finished stays: other files may be gone when they are looked at.
    let finished = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json"));
    finished.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().ino())).collect()
}

fn have(name: &str) -> bool {
    let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

#[test]
fn the_command_of_a_draw_repeats_its_run_and_draws_merge() {
    let dir = tempfile::tempdir().unwrap();
    // The cheapest of a hundred: in this test nothing is optimised.
    let cells = holdout::cells(Kind::Bulk, 11, 0, 100).unwrap();
    let mut numbers: Vec<usize> = (0..100).collect();
    numbers.sort_by(|&a, &b| cells[a].effort().total_cmp(&cells[b].effort()));
    let mut lines = Vec::new();
    for number in &numbers[..2] {
        let args = ["holdout", "1", "--seed", "11", "--first", &number.to_string(), "--json", "--results", "kept"];
        let output = run(&args, dir.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let record: Record = serde_json::from_slice(&output.stdout).unwrap();
        let command = record.cell.case.command.clone().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
        let report: serde_json::Value = serde_json::from_slice(&run(&words, dir.path()).stdout).unwrap();
        let outcome = record.result().unwrap();
        assert_eq!(report["goodput_mbit"].as_f64(), Some(outcome.goodput_mbit), "{command}");
        assert_eq!(report["share"].as_f64(), outcome.share, "{command}");
        lines.push(text(&output.stdout));
    }
    // As lines, as a folder, and both: two draws each time, and the same figures.
    for (i, line) in lines.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{i}.jsonl")), line).unwrap();
    }
    let merged = run(&["merge", "0.jsonl", "1.jsonl", "--jsonl", "both.jsonl"], dir.path());
    assert!(merged.status.success() && text(&merged.stdout).contains("2 draws of seed 11"), "{}", text(&merged.stdout));
    for from in [&["kept"][..], &["both.jsonl"], &["kept", "1.jsonl"]] {
        let again = run(&[&["merge"], from].concat(), dir.path());
        assert_eq!(text(&again.stdout), text(&merged.stdout), "{from:?}");
    }
}

#[test]
fn a_killed_worker_loses_the_cell_in_hand_and_no_other() {
    let dir = with_cells();
    let kept = dir.path().join("kept");
    let args = ["cell", "--of", "cells.json", "--shard", "1/1", "--results", "kept", "--workers", "1"];
    let mut worker = lab(&args, dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while results(&kept).len() < 3 {
        assert!(worker.try_wait().unwrap().is_none() || results(&kept).len() >= 3, "it ended by itself");
        std::thread::yield_now();
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    let before = results(&kept);
    let second = run(&args, dir.path());
    assert!(second.status.success(), "{}", text(&second.stderr));
    let after = results(&kept);
    assert_eq!(after.len(), CELLS);
    assert!(before.iter().all(|(name, inode)| after.get(name) == Some(inode)), "a finished cell was run again");
    let left: Vec<_> = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), CELLS, "halves and claims are gone: {left:?}");
    // And a third run does nothing.
    assert!(text(&run(&args, dir.path()).stderr).contains("12 of 12 cells are in kept already"));
    assert_eq!(results(&kept), after);
}

#[test]
fn two_runs_in_one_folder_share_the_cells() {
    let dir = with_cells();
    let args = ["matrix", "--full", "small.toml", "--results", "kept", "--workers", "2"];
    let start = || lab(&args, dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (one, two) = (start(), start());
    let (one, two) = (one.wait_with_output().unwrap(), two.wait_with_output().unwrap());
    assert!(one.status.success() && two.status.success(), "{}{}", text(&one.stderr), text(&two.stderr));
    assert_eq!(text(&one.stdout), text(&two.stdout), "both have the whole table");
    // A line of progress per cell that was run: by one of them each.
    let told = text(&one.stderr) + &text(&two.stderr);
    let ran = told.lines().filter(|line| line.contains(" done, about ") && !line.contains("(by another run)")).count();
    assert_eq!(ran, CELLS, "{told}");
    // `run` finds what `matrix` has run, and says what it says without a folder.
    let again = run(&["run", "--full", "small.toml", "--results", "kept"], dir.path());
    assert!(text(&again.stderr).contains("12 of 12 cells are in kept already"), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout), text(&run(&["run", "--full", "small.toml"], dir.path()).stdout));
}

#[test]
fn a_full_disk_stops_a_sweep_that_goes_on_when_there_is_room() {
    let dir = with_cells();
    let script = format!(
        r#"mkdir disk && mount -t tmpfs -o size=16k tmpfs disk || exit 77
        {LAB} cell --of cells.json --shard 1/1 --results disk --workers 2; echo "first $?"
        ls -i disk/*.json > before
        mount -o remount,size=4m disk
        {LAB} cell --of cells.json --shard 1/1 --results disk --workers 2 >/dev/null; echo "second $?"
        ls -i disk/*.json > after; ls -A disk | wc -l"#
    );
    let output = Command::new("unshare").args(["-rm", "sh", "-c", &script]).current_dir(dir.path()).output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && output.status.success() => output,
        _ => return eprintln!("SKIPPED: no mount namespaces here"),
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.contains("first 2") && out.contains("second 0"), "{out}{err}");
    assert!(err.contains("cannot be written") && err.contains("of 12 cells are kept in disk"), "{err}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (before, after) = (read("before"), read("after"));
    assert!((1..CELLS).contains(&before.lines().count()), "{before}");
    assert_eq!(after.lines().count(), CELLS);
    assert!(before.lines().all(|line| after.contains(line)), "a finished cell was run again");
    assert!(out.trim_end().ends_with("12"), "nothing but results is left: {out}");
}

#[test]
fn gnu_parallel_hands_out_cells() {
    let dir = with_cells();
    if !have("parallel") {
        return;
    }
    let parallel = |args: &[&str]| {
        let mut command = Command::new("parallel");
        let output = command.args(["--will-cite", "--jobs", "2"]).args(args).current_dir(dir.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // By its own number: four jobs, each a part. Then the numbers of cells.
    parallel(&["-N0", LAB, "cell", "--of", "cells.json", "--shards", "4", "--results", "kept", ":::", "a", "b", "c", "d"]);
    let merged = run(&["merge", "kept", "--of", "cells.json", "--csv", "table.csv"], dir.path());
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    assert_eq!(std::fs::read_to_string(dir.path().join("table.csv")).unwrap().lines().count(), 1 + CELLS);
    let before = results(&dir.path().join("kept"));
    parallel(&[LAB, "cell", "--of", "cells.json", "{}", "--results", "kept", ":::", "0", "5", "11"]);
    assert_eq!(results(&dir.path().join("kept")), before, "they were there");
}

/// Slurm's two daemons on this host, for one test; without munge, since nobody else is asked.
struct Slurm {
    daemons: Vec<Child>,
    conf: PathBuf,
}

impl Slurm {
    fn start(dir: &Path) -> Option<Self> {
        // SAFETY: a plain call without arguments.
        let is_root = unsafe { libc::geteuid() } == 0;
        let is_there = |name: &str| Command::new(name).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !is_root || !["slurmctld", "slurmd", "sbatch", "sinfo"].into_iter().all(is_there) {
            eprintln!("SKIPPED: slurmctld, slurmd, slurm-client and root are needed");
            return None;
        }
        let host = text(&Command::new("hostname").arg("-s").output().unwrap().stdout);
        let (host, at) = (host.trim(), dir.display());
        // Both are free as long as nobody else takes them now.
        let ports = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [control, node] = ports.map(|listener| listener.local_addr().unwrap().port());
        for folder in ["state", "spool"] {
            std::fs::create_dir(dir.join(folder)).unwrap();
        }
        let conf = dir.join("slurm.conf");
        let settings = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\n\
             SlurmctldPort={control}\nSlurmdPort={node}\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool\n\
             SlurmctldPidFile={at}/control.pid\nSlurmdPidFile={at}/node.pid\nSlurmctldLogFile={at}/control.log\nSlurmdLogFile={at}/node.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             MpiDefault=none\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\nPartitionName=all Nodes={host} Default=YES State=UP\n"
        );
        std::fs::write(&conf, settings).unwrap();
        let daemon = |name: &str| {
            let mut command = Command::new(name);
            command.args(["-D", "-f"]).arg(&conf).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let slurm = Self { daemons: vec![daemon("slurmctld"), daemon("slurmd")], conf: conf.clone() };
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let state = slurm.client("timeout").args(["5", "sinfo", "-h", "-o", "%t"]).output().unwrap();
            if text(&state.stdout).trim() == "idle" {
                return Some(slurm);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("SKIPPED: Slurm's daemons did not come up here");
        None
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", &self.conf);
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            // Ended already is ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn slurm_hands_out_cells() {
    let dir = with_cells();
    let Some(slurm) = Slurm::start(dir.path()) else { return };
    let script = format!("#!/bin/sh\nexec {LAB} cell --of cells.json --shards 3 --results kept --workers 1\n");
    std::fs::write(dir.path().join("job.sh"), script).unwrap();
    let args = ["300", "sbatch", "--wait", "--array=0-2", "--output=task.%a", "job.sh"];
    let sent = slurm.client("timeout").args(args).current_dir(dir.path()).output().unwrap();
    let said = |task: usize| std::fs::read_to_string(dir.path().join(format!("task.{task}"))).unwrap_or_default();
    assert!(sent.status.success(), "{}{}{}{}", text(&sent.stderr), said(0), said(1), said(2));
    let merged = run(&["merge", "kept", "--of", "cells.json"], dir.path());
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    assert_eq!(results(&dir.path().join("kept")).len(), CELLS);
}

#[test]
fn an_array_job_runs_its_cell_and_merge_says_which_are_missing() {
    let dir = with_cells();
    let task = |number: &str| {
        let args = ["cell", "--of", "cells.json", "--results", "kept"];
        lab(&args, dir.path()).env("SLURM_ARRAY_TASK_ID", number).output().unwrap()
    };
    for number in ["0", "7", "3"] {
        assert!(task(number).status.success());
    }
    let wrong = task("12");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("0 to 11"), "{}", text(&wrong.stderr));
    let merged = run(&["merge", "kept", "--of", "cells.json"], dir.path());
    assert_eq!(merged.status.code(), Some(1));
    assert!(text(&merged.stderr).contains("9 of 12 cells have no result: 1-2,4-6,8-11"), "{}", text(&merged.stderr));
    let nowhere = run(&["cell", "--of", "cells.json", "--results", "kept"], dir.path());
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stderr).contains("SLURM_ARRAY_TASK_ID"), "{}", text(&nowhere.stderr));
}

#[test]
fn lists_that_are_none_are_refused_with_their_place() {
    let dir = with_cells();
    let cells = std::fs::read_to_string(dir.path().join("cells.json")).unwrap();
    for (content, names) in [
        ("[\n{}\n]", "line 2"),
        (&*cells.replacen("\"2mbit\"", "\"2mbt\"", 1), "2mbt"),
        (&*cells.replacen("\"seed\":7", "\"sed\":7", 1), "sed"),
        (&*cells.replacen("\"pairs\":1", "\"pairs\":0", 1), "cell 0"),
    ] {
        std::fs::write(dir.path().join("wrong.json"), content).unwrap();
        let output = run(&["cell", "--of", "wrong.json", "0", "--results", "kept"], dir.path());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("wrong.json") && text(&output.stderr).contains(names), "{names}: {}", text(&output.stderr));
    }
}
