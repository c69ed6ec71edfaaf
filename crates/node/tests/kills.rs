//! Senders and receivers that die at random moments (SIGKILL): no file has its name unless it is whole, nothing else in the target
//! directory is touched, and the next try goes on until everything is there.
//!
//! The long form: `KILLS=200 cargo test -p noctule-node --test kills -- --ignored --nocapture`; `SEED=N` repeats a run's moments.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::*;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A tree of every kind of thing.
fn make_source(dir: &Path, random: &mut Random) {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    let mut bytes = |len: u64| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    fs::write(dir.join("big-1"), bytes(3 << 20)).unwrap();
    fs::write(dir.join("deep/big-2"), bytes(2 << 20)).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    sparse.write_at(&bytes(500_000), 7 << 20).unwrap();
    for i in 0..200u64 {
        let at = ["", "deep", "deep/er"][i as usize % 3];
        fs::write(dir.join(at).join(format!("small-{i}")), bytes(i * 37 % 4000)).unwrap();
    }
    symlink("../big-1", dir.join("deep/link")).unwrap();
    fs::set_permissions(dir.join("deep/big-2"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(dir.join("deep/er"), fs::Permissions::from_mode(0o750)).unwrap();
}

#[derive(Debug, PartialEq)]
struct Found {
    mode: u32,
    mtime: (i64, i64),
    content: Option<blake3::Hash>,
}

/// Everything below `dir` but what is in staging.
fn look(dir: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap() == ".noctule-partial" {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() {
                Some(blake3::hash(&fs::read(&path).unwrap()))
            } else if meta.is_symlink() {
                Some(blake3::hash(fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes()))
            } else {
                left.push(path.clone());
                None
            };
            let name = path.strip_prefix(dir).unwrap().to_owned();
            found.insert(name, Found { mode: meta.mode(), mtime: (meta.mtime(), meta.mtime_nsec()), content });
        }
    }
    found
}

struct World {
    _dir: tempfile::TempDir,
    source: PathBuf,
    into: PathBuf,
    key_file: PathBuf,
    /// Of the sender: what has arrived belongs to it.
    own: PathBuf,
    key: String,
    address: String,
}

impl World {
    fn receiver(&self) -> Kill {
        let mut command = noctule();
        command.args(["recv", "--json", "--anyone", "--bind", &self.address, "--key"]).arg(&self.key_file).arg("--into").arg(&self.into);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.next().unwrap().unwrap().contains("listening"));
        std::thread::spawn(move || lines.for_each(drop));
        Kill(child)
    }

    fn sender(&self, mbit: u64) -> Child {
        let mut command = noctule();
        command.arg("send").arg(&self.source).args([
            &self.address,
            "--peer-key",
            &self.key,
            "--limit-rate",
            &format!("{mbit}mbit"),
            "--key",
        ]);
        command.arg(&self.own);
        command
            .args(["--parallel", if mbit.is_multiple_of(2) { "1" } else { "3" }])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The file under its name is whole.
    fn check_whole(&self, expected: &BTreeMap<PathBuf, Found>) {
        for (name, found) in look(&self.into.join("things")) {
            let wanted = &expected.get(&name).unwrap_or_else(|| panic!("{} was never sent", name.display()));
            assert_eq!(found.content, wanted.content, "{}", name.display());
        }
    }
}

fn run(kills: u64, seed: u64) {
    eprintln!("SEED={seed}");
    let random = &mut Random(seed | 1);
    let dir = tempfile::tempdir().unwrap();
    let (source, into) = (dir.path().join("things"), dir.path().join("in"));
    fs::create_dir_all(into.join("mine")).unwrap();
    fs::write(into.join("mine/precious"), b"not yours").unwrap();
    fs::write(into.join("big-1"), b"the same name elsewhere").unwrap();
    let (key_file, key) = keygen(dir.path(), "r");
    let (own, _) = keygen(dir.path(), "s");
    // A port that was free a moment ago.
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let world = World { source, into, key_file, own, key, address, _dir: dir };
    let bystanders = look(&world.into);
    let (mut done, mut whole, mut receivers) = (0, 0, 0);
    while done < kills {
        make_source(&world.source, random);
        let expected = look(&world.source);
        let _ = fs::remove_dir_all(world.into.join("things"));
        let mut receiver = world.receiver();
        loop {
            // A whole transfer takes between a third of a second and a second and a half.
            let mut sender = world.sender(40 + random.below(120));
            let end = Instant::now() + Duration::from_millis(random.below(900));
            while done < kills && Instant::now() < end && sender.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if done < kills && sender.try_wait().unwrap().is_none() {
                done += 1;
                if random.below(2) == 0 {
                    receivers += 1;
                    receiver.0.kill().unwrap();
                    world.check_whole(&expected);
                    receiver.0.wait().unwrap();
                    receiver = world.receiver();
                }
                sender.kill().unwrap();
                sender.wait().unwrap();
                world.check_whole(&expected);
                continue;
            }
            let out = sender.wait_with_output().unwrap();
            assert!(out.status.success(), "after {done} kills: {}", String::from_utf8_lossy(&out.stderr));
            assert_eq!(look(&world.into.join("things")), expected, "after {done} kills");
            break;
        }
        whole += 1;
        // The receiver tidies up while the sender takes its leave, or when a session of a sender that was killed has fallen silent.
        let end = Instant::now() + Duration::from_secs(40);
        while world.into.join(".noctule-partial").exists() {
            let left = || std::process::Command::new("ls").arg("-laR").arg(world.into.join(".noctule-partial")).output().unwrap().stdout;
            assert!(Instant::now() < end, "the last transfer leaves no staging directory: {}", String::from_utf8_lossy(&left()));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(receiver);
        fs::remove_dir_all(world.into.join("things")).unwrap();
        assert_eq!(look(&world.into), bystanders);
    }
    eprintln!(
        "{done} kills ({receivers} of them of the receiver too), {whole} transfers, every one whole in the end, bystanders untouched"
    );
}

fn seed() -> u64 {
    std::env::var("SEED").ok().map_or_else(|| std::process::id().into(), |s| s.parse().expect("SEED is a number"))
}

#[test]
fn transfers_survive_a_few_random_kills() {
    run(8, seed());
}

#[test]
#[ignore = "minutes; see the heading"]
fn transfers_survive_any_number_of_random_kills() {
    run(std::env::var("KILLS").map_or(200, |k| k.parse().expect("KILLS is a number")), seed());
}
