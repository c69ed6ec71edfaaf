//! Files of every kind, with the built command on loopback: what must arrive, what must be refused, what must be gone on with.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use support::*;

/// Source and target directories.
struct Places {
    _dir: tempfile::TempDir,
    root: PathBuf,
    source: PathBuf,
    into: PathBuf,
}

fn places() -> Places {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let (source, into) = (root.join("things"), root.join("in"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&into).unwrap();
    Places { _dir: dir, root, source, into }
}

fn ok(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn send_with(files: &[&Path], to: &Receiver, more: &[&str]) -> Output {
    noctule().arg("send").args(files).arg(&to.address).args(["--peer-key", &to.key]).args(more).output().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn content(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32 / 4).flat_map(|i| (i ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

/// A small transfer opens all of its flows in one datagram, and sends what is in them with the next ones.
#[test]
fn a_small_transfer_survives_the_loss_of_any_of_its_first_datagrams() {
    for nth in 1..=6 {
        let p = places();
        let file = p.source.join("small");
        fs::write(&file, content(6000, 7)).unwrap();
        let to = receiver("127.0.0.1:0", &p.into, &[]);
        let path = Lossy::nth_before(&to.address, nth);
        let out = send(&[&file], &path.address, &to.key);
        assert!(out.status.success(), "datagram {nth}: {}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(fs::read(p.into.join("small")).unwrap(), content(6000, 7));
    }
}

#[test]
fn names_modes_times_links_holes_and_empty_things_arrive_as_they_are() {
    let p = places();
    let odd = OsStr::from_bytes(b"new\nline \xff\x1b[31m");
    fs::write(p.source.join(odd), b"odd").unwrap();
    fs::write(p.source.join("empty"), b"").unwrap();
    fs::create_dir_all(p.source.join("read-only/empty-dir")).unwrap();
    fs::write(p.source.join("read-only/f"), b"f").unwrap();
    fs::set_permissions(p.source.join("read-only/f"), fs::Permissions::from_mode(0o400)).unwrap();
    symlink("../empty", p.source.join("read-only/link")).unwrap();
    symlink("nowhere", p.source.join("dangling")).unwrap();
    let mut sparse = fs::File::create(p.source.join("sparse")).unwrap();
    sparse.set_len(300 << 20).unwrap();
    std::io::Seek::seek(&mut sparse, std::io::SeekFrom::Start(100 << 20)).unwrap();
    sparse.write_all(&content(1 << 20, 1)).unwrap();
    drop(sparse);
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000, 123_456_789);
    for name in ["read-only/f", "read-only/empty-dir"] {
        fs::File::open(p.source.join(name)).unwrap().set_modified(old).unwrap();
    }
    fs::set_permissions(p.source.join("read-only"), fs::Permissions::from_mode(0o555)).unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let out = send_with(&[&p.source], &to, &["--parallel", "3"]);
    let listing = String::from_utf8(out.stdout.clone()).unwrap();
    assert!(ok(&out).contains("every hash verified") && !listing.contains('\x1b') && listing.contains("new\\nline"), "{listing}");
    let got = p.into.join("things");
    assert_eq!(fs::read(got.join(odd)).unwrap(), b"odd");
    assert_eq!(fs::read(got.join("empty")).unwrap(), b"");
    assert_eq!(fs::read_link(got.join("read-only/link")).unwrap(), Path::new("../empty"));
    assert_eq!(fs::read_link(got.join("dangling")).unwrap(), Path::new("nowhere"));
    for name in ["read-only", "read-only/f", "read-only/empty-dir", "sparse", "empty"] {
        let (here, there) = (fs::metadata(p.source.join(name)).unwrap(), fs::metadata(got.join(name)).unwrap());
        assert_eq!((here.mode(), here.mtime(), here.mtime_nsec()), (there.mode(), there.mtime(), there.mtime_nsec()), "{name}");
    }
    let there = fs::metadata(got.join("sparse")).unwrap();
    assert!(there.blocks() * 512 < 4 << 20, "holes stay holes: {} blocks", there.blocks());
    assert!(fs::read(got.join("sparse")).unwrap() == fs::read(p.source.join("sparse")).unwrap());
    assert_eq!(names(&p.into), ["things"]);
    assert_eq!(names(&got).len(), 5);
    // So that the temporary directory can be removed.
    for dir in [&got, &p.source] {
        fs::set_permissions(dir.join("read-only"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn links_that_lead_out_are_refused_unless_asked_for_and_never_followed() {
    let p = places();
    let outside = p.root.join("outside");
    fs::create_dir(&outside).unwrap();
    for to in ["../../outside", "/etc/passwd", "sub/../../../outside"] {
        let _ = fs::remove_file(p.source.join("out"));
        symlink(to, p.source.join("out")).unwrap();
        let to = receiver("127.0.0.1:0", &p.into, &[]);
        let refused = send_with(&[&p.source], &to, &[]);
        assert_fails(&refused, 11, "things/out is a symbolic link to ");
        assert_fails(&refused, 11, "leave it out (--exclude /things/out), or start the receiver with --outside-links");
        assert_eq!(names(&p.into), [""; 0], "refused before anything was written");
    }
    let to = receiver("127.0.0.1:0", &p.into, &["--outside-links"]);
    ok(&send_with(&[&p.source], &to, &[]));
    assert!(fs::symlink_metadata(p.into.join("things/out")).unwrap().is_symlink());
    // A link that lies in the target leads nowhere either.
    fs::remove_file(p.source.join("out")).unwrap();
    fs::remove_file(p.into.join("things/out")).unwrap();
    symlink(&outside, p.into.join("things/out")).unwrap();
    fs::create_dir(p.source.join("out")).unwrap();
    fs::write(p.source.join("out/f"), b"x").unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &["--overwrite"]);
    assert!(!send_with(&[&p.source], &to, &[]).status.success());
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn transfer_that_was_killed_goes_on_where_it_stopped() {
    let p = places();
    fs::write(p.source.join("a-small"), b"small").unwrap();
    fs::write(p.source.join("big"), content(12 << 20, 7)).unwrap();
    fs::write(p.into.join("bystander"), b"mine").unwrap();
    // One receiver for all: the next try ends what the killed one has left open there.
    let (address, key, _child) = {
        let (key_file, _) = keygen(&p.root, "r");
        let mut child = noctule()
            .args(["recv", "--json", "--anyone", "--bind", "127.0.0.1:0", "--key", key_file.to_str().unwrap(), "--into"])
            .arg(&p.into)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        (first["address"].as_str().unwrap().to_owned(), first["public_key"].as_str().unwrap().to_owned(), Kill(child))
    };
    // What has arrived belongs to the sender's key.
    let (own, _) = keygen(&p.root, "s");
    let command = |rate: &str| {
        let mut command = noctule();
        command.arg("send").arg(&p.source).args([&address, "--peer-key", &key, "--limit-rate", rate, "--json", "--key"]).arg(&own);
        command
    };
    let mut first = Kill(command("20mbit").stdout(Stdio::null()).spawn().unwrap());
    let staging = p.into.join(".noctule-partial");
    let grown = || -> u64 {
        fs::read_dir(&staging).into_iter().flatten().filter_map(|e| e.ok()?.metadata().ok()).map(|m| m.len()).max().unwrap_or(0)
    };
    while grown() < 3 << 20 {
        assert!(first.0.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    first.0.kill().unwrap();
    let out = command("1gbit").output().unwrap();
    ok(&out);
    let lines = String::from_utf8(out.stdout).unwrap();
    let done: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    // The small file does not wait to hear that it is there already.
    assert_eq!(done["files_resumed"], 1, "{done}");
    assert!(done["bytes_moved"].as_u64().unwrap() <= 5 + (9 << 20), "{done}");
    assert!(fs::read(p.into.join("things/big")).unwrap() == content(12 << 20, 7));
    assert_eq!(names(&p.into), ["bystander", "things"], "the staging directory is gone");
    // And once more: everything is there.
    let done = command("1gbit").output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let done: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(done["files_same"].as_u64() >= Some(1) && done["bytes_moved"].as_u64() <= Some(5), "{done}");
}

#[test]
fn part_that_no_longer_fits_its_source_is_not_gone_on_with() {
    let p = places();
    let file = p.source.join("big");
    fs::write(&file, content(4 << 20, 1)).unwrap();
    let (own, _) = keygen(&p.root, "s");
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let mut child = Kill(
        noctule()
            .arg("send")
            .arg(&p.source)
            .args([&to.address, "--peer-key", &to.key, "--limit-rate", "10mbit", "--key"])
            .arg(&own)
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let staging = p.into.join(".noctule-partial");
    let part = loop {
        let found = fs::read_dir(&staging).into_iter().flatten().flatten().find(|e| e.metadata().is_ok_and(|m| m.len() > 1 << 20));
        if let Some(found) = found {
            break found.path();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    child.0.kill().unwrap();
    drop(to);
    // Damaged while nobody looked: its hash tells, and the file is sent from its beginning.
    let file_part = fs::OpenOptions::new().write(true).open(&part).unwrap();
    std::os::unix::fs::FileExt::write_at(&file_part, b"damage", 1000).unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    ok(&send_with(&[&p.source], &to, &["--key", own.to_str().unwrap()]));
    assert!(fs::read(p.into.join("things/big")).unwrap() == content(4 << 20, 1));
    assert_eq!(names(&p.into), ["things"]);
}

#[test]
fn standard_input_and_output_carry_a_stream() {
    let p = places();
    let data = content(3 << 20, 3);
    let mut to = receiver_on("127.0.0.1:0", &["--stdout"]);
    let send = |address: &str, key: &str, more: &[&str]| {
        let mut child = noctule()
            .args(["send", "-", address, "--peer-key", key])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&data).unwrap();
        child.wait_with_output().unwrap()
    };
    let out = send(&to.address, &to.key, &[]);
    ok(&out);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains(&format!("1 file, {} bytes in ", data.len())), "the size is known in the end: {said}");
    assert!(to.child.wait().unwrap().success());
    assert!(to.output() == data);
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    ok(&send(&to.address, &to.key, &["--name", "from a pipe"]));
    assert!(fs::read(p.into.join("from a pipe")).unwrap() == data);
    let to = receiver_on("127.0.0.1:0", &["--stdout"]);
    assert_fails(&send_with(&[&p.into], &to, &[]), 4, "one file at a time");
}

#[test]
fn dry_run_lists_what_would_happen_and_changes_nothing() {
    let p = places();
    for (name, text) in [("same", "1"), ("other", "2"), ("new", "3")] {
        fs::write(p.source.join(name), text).unwrap();
    }
    fs::create_dir(p.into.join("things")).unwrap();
    fs::write(p.into.join("things/other"), "mine").unwrap();
    fs::write(p.into.join("things/same"), "1").unwrap();
    let stamp = fs::metadata(p.source.join("same")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(p.into.join("things/same")).unwrap().set_modified(stamp).unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let out = send_with(&[&p.source], &to, &["--dry-run"]);
    ok(&out);
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(|l| l.rsplit_once(" (").unwrap().0).collect();
    assert_eq!(lines, ["there    dir  things", "new      file things/new", "differs  file things/other", "there    file things/same"]);
    assert_eq!(names(&p.into), ["things"]);
    assert_eq!(names(&p.into.join("things")), ["other", "same"]);
    // The receiver, which runs --once, still waits for a real transfer.
    assert_fails(&send_with(&[&p.source], &to, &[]), 14, "things/other exists");
}

#[test]
fn file_that_changes_or_cannot_be_read_is_told_and_the_others_arrive() {
    let p = places();
    fs::write(p.source.join("a"), b"a").unwrap();
    fs::write(p.source.join("b-big"), content(3 << 20, 9)).unwrap();
    fs::write(p.source.join("c"), b"c").unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let growing = p.source.join("b-big");
    let writer = std::thread::spawn({
        let staging = p.into.join(".noctule-partial");
        move || {
            while fs::read_dir(&staging).map_or(0, Iterator::count) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            fs::OpenOptions::new().append(true).open(growing).unwrap().write_all(b"more").unwrap();
        }
    });
    let out = send_with(&[&p.source], &to, &["--limit-rate", "20mbit"]);
    writer.join().unwrap();
    assert_fails(&out, 12, "1 of the entries did not arrive");
    assert_fails(&out, 12, "things/b-big: it changed while it was sent");
    assert_eq!(names(&p.into.join("things")), ["a", "c"]);
    assert_eq!(names(&p.into), ["things"], "nothing unfinished stays of what turned out wrong");
}

#[test]
fn many_senders_write_at_once() {
    let p = places();
    let (key_file, _) = keygen(&p.root, "r");
    let mut child = noctule()
        .args(["recv", "--json", "--anyone", "--bind", "127.0.0.1:0", "--key", key_file.to_str().unwrap(), "--into"])
        .arg(&p.into)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let _child = Kill(child);
    let (address, key) = (first["address"].as_str().unwrap(), first["public_key"].as_str().unwrap());
    let senders: Vec<_> = (0..5)
        .map(|i| {
            let dir = p.root.join(format!("from-{i}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("f"), content(1 << 20, i)).unwrap();
            let child = noctule().arg("send").arg(&dir).args([address, "--peer-key", key]).stdout(Stdio::null()).spawn().unwrap();
            (i, child)
        })
        .collect();
    for (i, mut child) in senders {
        assert!(child.wait().unwrap().success());
        assert!(fs::read(p.into.join(format!("from-{i}/f"))).unwrap() == content(1 << 20, i));
    }
    assert_eq!(names(&p.into).len(), 5);
}

#[test]
fn interrupted_sender_says_how_to_go_on_and_the_receiver_hears_of_it() {
    let p = places();
    fs::write(p.source.join("big"), content(8 << 20, 5)).unwrap();
    let (own, _) = keygen(&p.root, "s");
    let mut to = receiver("127.0.0.1:0", &p.into, &[]);
    let child = noctule()
        .arg("send")
        .arg(&p.source)
        .args([&to.address, "--peer-key", &to.key, "--limit-rate", "8mbit", "--key"])
        .arg(&own)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !p.into.join(".noctule-partial").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix_pid(child.id());
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_fails(&out, 130, "run the same command again");
    assert_eq!(names(&p.into), [".noctule-partial", "things"], "what has arrived is kept");
    // The receiver, which runs --once, waits for the next try.
    ok(&send_with(&[&p.source], &to, &["--key", own.to_str().unwrap()]));
    assert!(to.child.wait().unwrap().success());
    let said = String::from_utf8(to.output()).unwrap();
    assert!(said.contains("\"code\":7"), "it heard of the interruption: {said}");
    assert_eq!(names(&p.into), ["things"]);
}

/// F4, S21: two senders of the same names, sizes and times; the second ended the first one's transfer.
#[test]
fn second_sender_of_the_same_is_told_so_and_the_first_goes_on() {
    let p = places();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(315_532_800);
    let sources = ["one", "two"].map(|name| {
        let dir = p.root.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("backup.tar"), content(4 << 20, name.len() as u32 + u32::from(name == "two"))).unwrap();
        fs::File::open(dir.join("backup.tar")).unwrap().set_modified(old).unwrap();
        dir.join("backup.tar")
    });
    let mut to = receiver("127.0.0.1:0", &p.into, &[]);
    let first = noctule()
        .arg("send")
        .arg(&sources[0])
        .args([&to.address, "--peer-key", &to.key, "--limit-rate", "10mbit"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !p.into.join(".noctule-partial").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_fails(&send_with(&[&sources[1]], &to, &[]), 17, "another sender");
    ok(&first.wait_with_output().unwrap());
    assert!(to.child.wait().unwrap().success());
    assert!(fs::read(p.into.join("backup.tar")).unwrap() == fs::read(&sources[0]).unwrap());
}

/// F11: "has that very content: then they count as done"; and a file that exists already fails alone.
#[test]
fn same_content_with_another_time_is_done_and_a_file_in_the_way_fails_alone() {
    let p = places();
    let big = content(1 << 20, 4);
    for (name, text) in [("1", &b"one"[..]), ("2", b"two"), ("big", &big)] {
        fs::write(p.source.join(name), text).unwrap();
    }
    ok(&send_with(&[&p.source], &receiver("127.0.0.1:0", &p.into, &[]), &[]));
    for name in ["2", "big"] {
        let late = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
        fs::File::open(p.source.join(name)).unwrap().set_modified(late).unwrap();
    }
    let out = send_with(&[&p.source], &receiver("127.0.0.1:0", &p.into, &[]), &["--json"]);
    ok(&out);
    let text = String::from_utf8(out.stdout).unwrap();
    let done: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(done["bytes_moved"].as_u64().unwrap() < 1000, "a large file is compared, not sent: {done}");
    fs::write(p.source.join("1"), b"ONE").unwrap();
    fs::write(p.source.join("4"), b"four").unwrap();
    fs::write(p.source.join("big"), content(1 << 20, 5)).unwrap();
    let out = send_with(&[&p.source], &receiver("127.0.0.1:0", &p.into, &[]), &[]);
    assert_fails(&out, 14, "2 of the entries did not arrive");
    assert_eq!(fs::read(p.into.join("things/4")).unwrap(), b"four");
    assert_eq!(fs::read(p.into.join("things/1")).unwrap(), b"one");
    assert!(fs::read(p.into.join("things/big")).unwrap() == big);
}

/// F3: both ends waited for ever, and what was whole was not put in place.
#[test]
fn file_that_becomes_a_pipe_before_its_turn_fails_alone() {
    let p = places();
    fs::write(p.source.join("1big"), content(4 << 20, 1)).unwrap();
    fs::write(p.source.join("2small"), b"x").unwrap();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let child = noctule()
        .arg("send")
        .arg(&p.source)
        .args([&to.address, "--peer-key", &to.key, "--limit-rate", "20mbit"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !p.into.join(".noctule-partial").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fs::remove_file(p.source.join("2small")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, p.source.join("2small"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert_fails(&child.wait_with_output().unwrap(), 12, "no file any more");
    assert_eq!(names(&p.into.join("things")), ["1big"]);
}

/// F2, F9: `--mode brctp` believed the size of stat, and filled holes.
#[test]
fn an_object_is_read_as_carefully_as_files_are() {
    let p = places();
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    let brctp = |file: &Path, more: &[&str]| send_with(&[file], &to, &[&["--mode", "brctp"], more].concat());
    let cpus = Path::new("/proc/cpuinfo");
    assert_fails(
        &noctule().args(["send", "--mode", "brctp"]).arg(cpus).arg("127.0.0.1:9").output().unwrap(),
        12,
        "more content than its size",
    );
    assert!(!p.into.join("cpuinfo").exists());
    let sparse = p.source.join("sparse");
    fs::File::create(&sparse).unwrap().set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&fs::File::options().write(true).open(&sparse).unwrap(), b"data", 20 << 20).unwrap();
    ok(&brctp(&sparse, &[]));
    let there = fs::metadata(p.into.join("sparse")).unwrap();
    assert!(there.len() == 40 << 20 && there.blocks() * 512 < 1 << 20, "{} blocks", there.blocks());
    assert!(fs::read(p.into.join("sparse")).unwrap() == fs::read(&sparse).unwrap());
}

fn rustix_pid(id: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(id as i32).unwrap()
}
