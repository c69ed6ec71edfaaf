//! `noctule serve` and `noctule get`, with the built command on loopback: what is pulled, what is refused, what is gone on with, what is deleted.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, UNIX_EPOCH};
use support::*;

struct Places {
    _dir: tempfile::TempDir,
    root: PathBuf,
    served: PathBuf,
    into: PathBuf,
}

fn places() -> Places {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let (served, into) = (root.join("served"), root.join("in"));
    fs::create_dir(&served).unwrap();
    fs::create_dir(&into).unwrap();
    Places { _dir: dir, root, served, into }
}

/// A `serve --json` that listens.
struct Server {
    child: Kill,
    address: String,
    key: String,
    events: mpsc::Receiver<serde_json::Value>,
}

impl Server {
    /// The next event of this kind.
    fn event(&self, kind: &str) -> serde_json::Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).unwrap();
            if event["event"] == kind {
                return event;
            }
        }
    }

    fn get(&self, paths: &[&str], into: &Path, more: &[&str]) -> Command {
        let mut command = noctule();
        command.arg("get").args(paths.iter().map(|path| format!("{}:{path}", self.address))).arg(into);
        command.args(["--peer-key", &self.key]).args(more);
        command
    }
}

fn serve(directory: &Path, more: &[&str]) -> Server {
    let mut command = noctule();
    command.args(["serve", "--json", "--bind", "127.0.0.1:0"]).arg(directory).args(more);
    if !more.iter().any(|word| ["--allow", "--authorised-keys", "--code"].contains(word)) {
        command.arg("--anyone");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (out, events) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = out.send(serde_json::from_str(&line).unwrap());
        }
    });
    let first: serde_json::Value = events.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first["event"], "listening", "{first}");
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    Server { address: text("address"), key: text("public_key"), child: Kill(child), events }
}

fn ok(out: Output) -> String {
    assert!(out.status.success(), "{}\n{}", String::from_utf8_lossy(&out.stderr), String::from_utf8_lossy(&out.stdout));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

fn content(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32 / 4).flat_map(|i| (i ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn last(text: &str) -> serde_json::Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn tree_comes_as_it_is_and_both_ends_say_so() {
    let p = places();
    write(&p.served.join("things/sub/big"), content(3 << 20, 1));
    write(&p.served.join("things/small"), "small");
    write(&p.served.join("beside"), "b");
    symlink("sub/big", p.served.join("things/link")).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_000_000, 123_456_789);
    fs::File::options().write(true).open(p.served.join("things/small")).unwrap().set_modified(old).unwrap();
    let server = serve(&p.served, &[]);
    let listed = ok(run(server.get(&["things"], &p.into, &["--parallel", "2"])));
    assert!(listed.contains("things/sub/big"), "{listed}");
    assert_eq!(fs::read(p.into.join("things/sub/big")).unwrap(), content(3 << 20, 1));
    assert_eq!(fs::read_link(p.into.join("things/link")).unwrap(), Path::new("sub/big"));
    let there = fs::metadata(p.into.join("things/small")).unwrap();
    assert_eq!((there.mtime(), there.mtime_nsec()), (1_000_000, 123_456_789));
    assert_eq!(names(&p.into), ["things"]);
    let event = server.event("request");
    assert!(event["ok"] == true && event["names"][0] == "things" && event["files"] == 2, "{event}");
    assert!(event["address"].as_str().unwrap().starts_with("127.0.0.1:") && event["key"].as_str().unwrap().len() > 40, "{event}");
    // Everything, and what is there already does not travel.
    let done = last(&ok(run(server.get(&[""], &p.into, &["--json"]))));
    assert!(done["files"] == 3 && done["files_same"] == 2, "{done}");
    assert_eq!(names(&p.into), ["beside", "things"]);
    // Patterns are for the other side; a name that nothing has is told.
    fs::remove_dir_all(p.into.join("things")).unwrap();
    ok(run(server.get(&["things/s*"], &p.into, &[])));
    assert_eq!(names(&p.into), ["beside", "small", "sub"]);
    assert_fails(&run(server.get(&["nothing"], &p.into, &[])), 3, "cannot read nothing at the other side");
    assert_eq!(server.event("request")["ok"], true);
}

#[test]
fn lists_and_dry_runs_change_nothing() {
    let p = places();
    write(&p.served.join("d/f"), "content");
    write(&p.served.join("d/deep/g"), "g");
    let server = serve(&p.served, &[]);
    let list = |more: &[&str]| {
        let mut command = noctule();
        command.args(["get", "--list", &format!("{}:d", server.address), "--peer-key", &server.key]).args(more);
        ok(run(command))
    };
    let text = list(&[]);
    assert!(text.contains("d/f") && text.contains("d/deep") && !text.contains("d/deep/g") && text.starts_with('d'), "{text}");
    assert!(list(&["--recursive"]).contains("d/deep/g"));
    let entry: serde_json::Value = serde_json::from_str(list(&["--json"]).lines().last().unwrap()).unwrap();
    assert!(entry["event"] == "entry" && entry["bytes"] == 7, "{entry}");
    write(&p.into.join("d/f"), "content");
    write(&p.into.join("d/old"), "o");
    let plan = ok(run(server.get(&["d"], &p.into, &["-n", "--delete"])));
    assert!(
        plan.contains("there    file d/f") && plan.contains("new      file d/deep/g") && plan.contains("delete        d/old"),
        "{plan}"
    );
    assert_eq!(names(&p.into.join("d")), ["f", "old"]);
}

#[test]
fn names_that_lead_out_are_refused_with_their_reason() {
    let p = places();
    write(&p.root.join("secret"), "s");
    write(&p.served.join("f"), "f");
    symlink("../secret", p.served.join("out")).unwrap();
    symlink("..", p.served.join("up")).unwrap();
    let server = serve(&p.served, &[]);
    for (path, words) in [("../secret", "leads out"), ("/etc/passwd", "slash in front"), ("out", "leads out"), ("up/secret", "leads out")] {
        assert_fails(&run(server.get(&[path], &p.into, &[])), 11, words);
        let event = server.event("request");
        assert!(event["ok"] == false && event["message"].as_str().unwrap().contains(words), "{event}");
    }
    // A link that leads out is sent as a link, and refused here.
    let refused = run(server.get(&[""], &p.into, &[]));
    assert_fails(
        &refused,
        11,
        "out is a symbolic link to ../secret, which leads out of the directory: nothing was taken; leave it out (--exclude /out)",
    );
    assert_fails(&refused, 11, "take it as it is (--outside-links)");
    assert_eq!(names(&p.into), [""; 0]);
    let some = p.root.join("some");
    fs::create_dir(&some).unwrap();
    ok(run(server.get(&[""], &some, &["--exclude", "/out", "--exclude", "/up"])));
    assert_eq!(names(&some), ["f"]);
    let all = p.root.join("all");
    fs::create_dir(&all).unwrap();
    ok(run(server.get(&[""], &all, &["--outside-links"])));
    assert_eq!(fs::read_link(all.join("out")).unwrap(), Path::new("../secret"));
    // Sending files there is refused, too.
    assert_fails(&send(&[&p.root.join("secret")], &server.address, &server.key), 9, "--writable");
    assert_eq!(names(&p.served), ["f", "out", "up"]);
}

#[test]
fn only_keys_that_may_read_get_files_and_only_those_of_their_directory() {
    let p = places();
    write(&p.served.join("a/f"), "of a");
    write(&p.served.join("g"), "of all");
    let (reads, reader) = keygen(&p.root, "reads");
    let (writes, writer) = keygen(&p.root, "writes");
    let (stranger, _) = keygen(&p.root, "stranger");
    let list = p.root.join("authorised");
    fs::write(&list, format!("read,dir=\"a\" {reader}\nwrite {writer}\n")).unwrap();
    let server = serve(&p.served, &["--authorised-keys", list.to_str().unwrap()]);
    let with = |key: &Path, path: &str| run(server.get(&[path], &p.into, &["--key", key.to_str().unwrap()]));
    ok(with(&reads, ""));
    assert_eq!(names(&p.into), ["f"]);
    assert_fails(&with(&reads, "g"), 3, "cannot read g");
    assert_fails(&with(&writes, "g"), 9, "lacks the option `read`");
    assert_fails(&with(&stranger, "g"), 9, "does not accept this key");
    let closed = noctule().arg("serve").arg(&p.served).args(["--bind", "127.0.0.1:0", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut closed = Kill(closed);
    let mut line = String::new();
    BufReader::new(closed.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    let code = listening["code"].as_str().expect("closed by default: only who has the code");
    let mut command = noctule();
    let host = format!("{}:g", listening["address"].as_str().unwrap());
    command.args(["get", &host]).arg(&p.into).args(["--peer-key", listening["public_key"].as_str().unwrap()]);
    let out = run(command);
    assert_fails(&out, 9, "--code");
    let mut command = noctule();
    command.args(["get", &host]).arg(&p.into).args(["--peer-key", listening["public_key"].as_str().unwrap(), "--code", code]);
    ok(run(command));
    assert_eq!(fs::read_to_string(p.into.join("g")).unwrap(), "of all");
}

/// Either end is killed in mid-transfer; the next try goes on.
#[test]
fn transfer_whose_end_was_killed_goes_on_where_it_stopped() {
    let p = places();
    write(&p.served.join("big"), content(12 << 20, 7));
    let (own, _) = keygen(&p.root, "server");
    let grown = || -> u64 {
        let staging = fs::read_dir(p.into.join(".noctule-partial"));
        staging.into_iter().flatten().filter_map(|e| e.ok()?.metadata().ok()).map(|m| m.len()).max().unwrap_or(0)
    };
    let wait = |bytes: u64, child: &mut Kill| {
        while grown() < bytes {
            assert!(child.0.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let slow = ["--key", own.to_str().unwrap(), "--limit-rate", "20mbit"];
    let mut server = serve(&p.served, &slow);
    let mut first = Kill(server.get(&["big"], &p.into, &[]).stdout(Stdio::null()).spawn().unwrap());
    wait(2 << 20, &mut first);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    // The server, this time: what has arrived belongs to its key.
    let mut second = Kill(
        server.get(&["big"], &p.into, &["--timeout", "1s", "--give-up", "0"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    );
    wait(4 << 20, &mut second);
    server.child.0.kill().unwrap();
    assert!(!second.0.wait().unwrap().success());
    let server = serve(&p.served, &["--key", own.to_str().unwrap()]);
    let done = last(&ok(run(server.get(&["big"], &p.into, &["--json"]))));
    assert!(done["files_resumed"] == 1 && done["bytes_moved"].as_u64().unwrap() <= 8 << 20, "{done}");
    assert!(fs::read(p.into.join("big")).unwrap() == content(12 << 20, 7));
    assert_eq!(names(&p.into), ["big"]);
}

#[test]
fn one_file_comes_as_an_object_and_goes_on_where_it_was_interrupted() {
    let p = places();
    write(&p.served.join("d/big"), content(12 << 20, 5));
    write(&p.served.join("small"), "small");
    let server = serve(&p.served, &[]);
    let mut first = server.get(&["d/big"], &p.into, &["--mode", "brctp", "--json", "--limit-rate", "40mbit"]);
    let mut first = Kill(first.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(first.0.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "progress" && event["bytes"].as_u64() > Some(4 << 20) {
            break;
        }
    }
    drop(first);
    let done = last(&ok(run(server.get(&["d/b*"], &p.into, &["--mode", "brctp", "--json"]))));
    assert!(done["files_resumed"] == 1 && done["bytes_moved"].as_u64() < Some(11 << 20), "{done}");
    assert_eq!(fs::read(p.into.join("big")).unwrap(), content(12 << 20, 5));
    let event = server.event("request");
    assert!(event["ok"] == true && event["files"] == 1 && event["bytes"] == 12 << 20, "{event}");
    let done = last(&ok(run(server.get(&["d/big"], &p.into, &["--mode", "brctp", "--json"]))));
    assert!(done["files_same"] == 1 && done["bytes_moved"] == 0, "{done}");
    // An empty file has nothing to move either, and is there the second time only.
    write(&p.served.join("empty"), "");
    for same in [0, 1] {
        let done = last(&ok(run(server.get(&["empty"], &p.into, &["--mode", "brctp", "--json"]))));
        assert!(done["files_same"] == same && done["files_resumed"] == 0, "{done}");
    }
    assert!(fs::read(p.into.join("empty")).unwrap().is_empty());
    // What cannot come so is told in words.
    write(&p.into.join("small"), "other");
    let object = |path: &str, more: &[&str]| run(server.get(&[path], &p.into, &[&["--mode", "brctp"], more].concat()));
    assert_fails(&object("small", &[]), 14, "--overwrite");
    ok(object("small", &["--overwrite"]));
    assert_eq!(fs::read(p.into.join("small")).unwrap(), b"small");
    assert_fails(&object("d", &[]), 3, "one file, and this is none");
    assert_fails(&object("nothing", &[]), 3, "No such file");
    assert_fails(&object("", &[]), 2, "name it");
    assert_fails(&object("small", &["--delete"]), 2, "--delete is for files");
    write(&p.served.join("s2"), "x");
    assert_fails(&object("s*", &[]), 3, "2 were asked for");
}

#[test]
fn filters_and_update_choose_what_comes() {
    let p = places();
    for name in ["t/a.c", "t/a.o", "t/cache/x", "t/keep.o", "t/sub/b.c"] {
        write(&p.served.join(name), name);
    }
    let server = serve(&p.served, &[]);
    let rules = ["--include", "keep.o", "--exclude", "*.o", "--exclude", "cache/"];
    ok(run(server.get(&["t"], &p.into, &rules)));
    assert_eq!(names(&p.into.join("t")), ["a.c", "keep.o", "sub"]);
    // The same for `send`.
    let to = receiver("127.0.0.1:0", &p.into, &["--overwrite"]);
    let out = noctule().arg("send").arg(p.served.join("t")).args([&to.address, "--peer-key", &to.key, "--exclude", "*"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(&p.into.join("t")), ["a.c", "keep.o", "sub"]);
    assert_fails(&run(server.get(&["t"], &p.into, &["--exclude", "[x"])), 2, "--exclude \"[x\"");
    // Newer here stays, older is replaced.
    let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    for (dir, name, text, time) in [(&p.into, "a.c", "mine, newer", 3000), (&p.into, "keep.o", "mine, older", 1000)] {
        write(&dir.join("t").join(name), text);
        fs::File::options().write(true).open(dir.join("t").join(name)).unwrap().set_modified(at(time)).unwrap();
    }
    for name in ["a.c", "keep.o"] {
        fs::File::options().write(true).open(p.served.join("t").join(name)).unwrap().set_modified(at(2000)).unwrap();
    }
    assert_fails(&run(server.get(&["t"], &p.into, &rules)), 14, "exists already here");
    let plan = ok(run(server.get(&["t"], &p.into, &["-n", "--update"])));
    assert!(plan.contains("newer    file t/a.c"), "{plan}");
    let done = last(&ok(run(server.get(&["t"], &p.into, &["--update", "--json"]))));
    assert_eq!(done["files_newer"], 1, "{done}");
    assert_eq!(fs::read_to_string(p.into.join("t/a.c")).unwrap(), "mine, newer");
    assert_eq!(fs::read_to_string(p.into.join("t/keep.o")).unwrap(), "t/keep.o");
    write(&p.into.join("t/keep.o"), "mine, newer now");
    let to = receiver("127.0.0.1:0", &p.into, &["--overwrite"]);
    let out =
        noctule().arg("send").arg(p.served.join("t")).args([&to.address, "--peer-key", &to.key, "--update", "--json"]).output().unwrap();
    let done = last(&ok(out));
    assert_eq!(done["files_newer"], 2, "{done}");
    assert_eq!(fs::read_to_string(p.into.join("t/keep.o")).unwrap(), "mine, newer now");
}

#[test]
fn deleting_needs_the_flag_here_a_whole_list_and_everything_arrived() {
    let p = places();
    write(&p.served.join("t/f"), "f");
    write(&p.into.join("t/old/deep"), "o");
    write(&p.into.join("t/left.out"), "x");
    write(&p.into.join("beside"), "b");
    let server = serve(&p.served, &[]);
    ok(run(server.get(&["t"], &p.into, &[])));
    assert_eq!(names(&p.into.join("t")), ["f", "left.out", "old"], "without --delete nothing goes");
    // Something that is not sent: the list is not whole.
    let fifo = p.served.join("t/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let out = run(server.get(&["t"], &p.into, &["--delete"]));
    assert!(String::from_utf8_lossy(&out.stderr).contains("nothing is deleted"), "{}", String::from_utf8_lossy(&out.stderr));
    fs::remove_file(fifo).unwrap();
    // Something that does not arrive.
    write(&p.served.join("t/clash"), "theirs");
    write(&p.into.join("t/clash"), "mine");
    assert_fails(&run(server.get(&["t"], &p.into, &["--delete"])), 14, "nothing was deleted");
    assert_eq!(names(&p.into.join("t")), ["clash", "f", "left.out", "old"]);
    let done = last(&ok(run(server.get(&["t"], &p.into, &["--delete", "--overwrite", "--exclude", "*.out", "--json"]))));
    assert_eq!(done["deleted"], 2, "{done}");
    assert_eq!(
        (names(&p.into.join("t")), names(&p.into)),
        (vec!["clash".into(), "f".into(), "left.out".into()], vec!["beside".into(), "t".into()])
    );
    // With everything that is there, the directory itself is kept the same; one that is empty there deletes nothing.
    ok(run(server.get(&[""], &p.into, &["--delete", "--overwrite"])));
    assert_eq!(names(&p.into), ["t"]);
    fs::remove_dir_all(p.served.join("t")).unwrap();
    ok(run(server.get(&[""], &p.into, &["--delete"])));
    assert_eq!(names(&p.into), ["t"]);
}

#[test]
fn senders_delete_only_where_the_receiver_allows_it() {
    let p = places();
    write(&p.served.join("f"), "f");
    write(&p.into.join("served/old"), "o");
    write(&p.into.join("served/kept.o"), "o");
    let send = |to: &Receiver, more: &[&str]| {
        noctule()
            .arg("send")
            .arg(&p.served)
            .args([&to.address, "--peer-key", &to.key, "--delete", "--exclude", "*.o"])
            .args(more)
            .output()
            .unwrap()
    };
    let to = receiver("127.0.0.1:0", &p.into, &[]);
    assert_fails(&send(&to, &[]), 9, "--allow-delete");
    drop(to);
    assert_eq!(names(&p.into.join("served")), ["kept.o", "old"], "refused before anything is written");
    let to = receiver("127.0.0.1:0", &p.into, &["--allow-delete"]);
    let plan = ok(send(&to, &["-n"]));
    assert!(plan.contains("delete        served/old") && !plan.contains("kept.o"), "{plan}");
    let out = send(&to, &[]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("1 deleted"), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(&p.into.join("served")), ["f", "kept.o"]);
    // A served directory takes files only if it is writable.
    let server = serve(&p.into, &["--writable", "--allow-delete"]);
    fs::remove_file(p.served.join("f")).unwrap();
    write(&p.served.join("g"), "g");
    let out = noctule().arg("send").arg(&p.served).args([&server.address, "--peer-key", &server.key, "--delete"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(names(&p.into.join("served")), ["g"]);
}

#[test]
fn attributes_come_when_both_sides_ask_and_are_told_of_when_they_do_not() {
    let p = places();
    write(&p.served.join("t/f"), "f");
    let file = p.served.join("t/f");
    if xattr::set(&file, "user.note", b"n").is_err() {
        println!("*** SKIPPED: this file system has no extended attributes");
        return;
    }
    xattr::set(p.served.join("t"), "user.of-dir", b"d").unwrap();
    let access = acl(&[(0x01, 6, None), (0x02, 4, Some(12_345)), (0x04, 4, None), (0x10, 4, None), (0x20, 0, None)]);
    let default = acl(&[(0x01, 7, None), (0x02, 5, Some(12_345)), (0x04, 5, None), (0x10, 5, None), (0x20, 0, None)]);
    let has_acls = xattr::set(&file, "system.posix_acl_access", &access).is_ok()
        && xattr::set(p.served.join("t"), "system.posix_acl_default", &default).is_ok();
    if !has_acls {
        println!("*** SKIPPED: this file system has no ACLs");
    }
    let check_acls = || {
        let got = [("t/f", "system.posix_acl_access"), ("t", "system.posix_acl_default")];
        let got = got.map(|(name, attribute)| xattr::get(p.into.join(name), attribute).unwrap());
        assert!(!has_acls || got == [Some(access.clone()), Some(default.clone())], "{got:?}");
    };
    let server = serve(&p.served, &[]);
    ok(run(server.get(&["t"], &p.into, &["--xattrs"])));
    check_acls();
    assert_eq!(xattr::get(p.into.join("t/f"), "user.note").unwrap(), Some(b"n".to_vec()));
    assert_eq!(xattr::get(p.into.join("t"), "user.of-dir").unwrap(), Some(b"d".to_vec()));
    let send = |to: &Receiver, more: &[&str]| {
        fs::remove_dir_all(p.into.join("t")).unwrap();
        let out = noctule().arg("send").arg(p.served.join("t")).args([&to.address, "--peer-key", &to.key]).args(more).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        (String::from_utf8_lossy(&out.stderr).into_owned(), xattr::get(p.into.join("t/f"), "user.note").unwrap())
    };
    let (said, got) = send(&receiver("127.0.0.1:0", &p.into, &["--xattrs"]), &[]);
    assert!(said.contains("attributes or ACLs of 2 entries are not sent") && got.is_none(), "{said}");
    let (_, got) = send(&receiver("127.0.0.1:0", &p.into, &[]), &["--xattrs"]);
    assert!(got.is_none(), "the receiver did not ask for them");
    let (said, got) = send(&receiver("127.0.0.1:0", &p.into, &["--xattrs"]), &["--xattrs"]);
    assert!(!said.contains("warning") && got.is_some(), "{said}");
    check_acls();
}

/// An ACL as `setfacl` writes it: a version, and for each entry its tag, permissions and the number of a user or group.
fn acl(entries: &[(u16, u16, Option<u32>)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

/// A lower bound only: a busy machine makes it longer.
#[test]
fn the_smaller_of_both_ends_rates_holds() {
    let p = places();
    write(&p.served.join("file"), content(400_000, 1));
    for (name, there, here) in [("asked", "100mbit", "4mbit"), ("granted", "4mbit", "100mbit")] {
        let server = serve(&p.served, &["--limit-rate", there]);
        let into = p.root.join(name);
        fs::create_dir(&into).unwrap();
        let start = std::time::Instant::now();
        ok(run(server.get(&["file"], &into, &["--limit-rate", here])));
        // All but the last piece, which is of 20 ms.
        assert!(start.elapsed() >= Duration::from_millis(770), "{name}: {:?}", start.elapsed());
    }
}
