//! What `recv`, `serve` and `get` may still touch: their directory, to read if that is enough, and what they were told of. Linux confines it by Landlock, from 5.19 on: older kernels
//! refuse every renaming between directories, by which files get their places.
//!
//! The confinement holds for the thread that asks for it and for those that it starts, so it comes before the runtime.

use crate::cli::{AccessArgs, Command, IdentityArgs, PeerArgs, TraceArgs, ViaArgs};
use crate::identity;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The newest rights that are asked for: truncation and renaming between directories among them. An older kernel confines as far as it can.
const RIGHTS: ABI = ABI::V3;

/// What names are resolved by, libraries, terminals: of these only reading is left.
const SYSTEM: [&str; 10] = ["/etc", "/etc/resolv.conf", "/usr", "/lib", "/lib64", "/nix/store", "/proc", "/run", "/dev", "/sys"];

/// What this process may do by paths.
#[derive(Debug, Default)]
struct Grants {
    /// Everything below.
    all: Vec<PathBuf>,
    /// Files that may be written.
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
}

static STATUS: OnceLock<bool> = OnceLock::new();

/// Whether this process is confined, wholly or as far as the kernel can.
pub fn is_on() -> bool {
    STATUS.get().copied().unwrap_or(false)
}

/// Confines this thread and those that it starts to what the command needs, if it is one that takes or gives files. Where the kernel cannot, it is said
/// once, and the command goes on.
pub fn confine(command: &Command) {
    let (name, key) = match command {
        Command::Recv(args) => ("recv", &args.identity.key),
        Command::Serve(args) => ("serve", &args.identity.key),
        Command::Get(args) => ("get", &args.identity.key),
        _ => return,
    };
    // A first start makes a key; afterwards nothing is written beside it. What fails here fails again where it is told.
    let _ = identity::lasting_config(key.as_deref());
    let is_on = match restrict(&grants(command)) {
        Ok(status) => status != RulesetStatus::NotEnforced,
        Err(error) => {
            tell!("noctule: warning: {name} could not be confined to its directory: {error}");
            false
        }
    };
    if !is_on {
        tell!(
            "noctule: warning: this kernel does not confine {name} to its directory (Landlock is missing, off, or older than Linux 5.19)"
        );
    }
    let _ = STATUS.set(is_on);
}

/// Makes a file if it is not there: by paths this process may write to it then, and to nothing beside it.
fn make(path: &Path) {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    }
    let _ = File::options().create(true).append(true).mode(0o600).open(path);
}

/// What a command was told of.
#[derive(Default)]
struct Told<'a> {
    read: Vec<Option<&'a PathBuf>>,
    write: Vec<Option<PathBuf>>,
}

impl<'a> Told<'a> {
    /// What every command with a link may be told of.
    fn of(identity: &'a IdentityArgs, via: &'a ViaArgs, trace: &'a TraceArgs) -> Self {
        let known = identity::config_file("known_hosts").filter(|_| !via.via.is_empty());
        let read = vec![identity.key.as_ref(), identity.psk.as_ref(), via.via_psk.as_ref()];
        Self { read, write: vec![trace.trace.clone(), known] }
    }

    /// And every one that listens.
    fn listens(mut self, access: &'a AccessArgs) -> Self {
        let default = || identity::config_file("authorised_keys");
        self.read.push(access.authorised_keys.as_ref());
        self.write.push(access.authorised_keys.clone().or_else(default).filter(|_| access.remember));
        self
    }

    /// And every one that connects.
    fn connects(mut self, peer: &PeerArgs) -> Self {
        self.write.push(
            peer.known_hosts
                .clone()
                .or_else(|| identity::config_file("known_hosts"))
                .filter(|_| peer.peer_key.is_none() || peer.code.is_some()),
        );
        // Where people are asked.
        self.write.push(Some(PathBuf::from("/dev/tty")));
        self
    }
}

fn grants(command: &Command) -> Grants {
    let mut grants = Grants { read: SYSTEM.iter().map(PathBuf::from).collect(), ..Grants::default() };
    let told = match command {
        Command::Recv(args) => {
            grants.all.extend((!args.stdout).then(|| args.into.clone()));
            Told::of(&args.identity, &args.via, &args.trace).listens(&args.access)
        }
        Command::Serve(args) => {
            let place = if args.writable { &mut grants.all } else { &mut grants.read };
            place.push(args.directory.clone());
            Told::of(&args.identity, &args.via, &args.trace).listens(&args.access)
        }
        Command::Get(args) => {
            grants.all.extend(args.words.last().filter(|_| !args.list).map(PathBuf::from));
            Told::of(&args.identity, &args.via, &args.trace).connects(&args.peer)
        }
        _ => return grants,
    };
    for path in told.write.into_iter().flatten() {
        make(&path);
        grants.write.push(path);
    }
    // Each file by its own name, too: it may be a link to elsewhere.
    let own = ["key", "authorised_keys", "known_hosts"].map(identity::config_file);
    let beside = own[0].as_deref().and_then(Path::parent).map(Path::to_owned);
    grants.read.extend(told.read.into_iter().flatten().cloned().chain(own.into_iter().flatten()).chain(beside));
    grants
}

fn restrict(grants: &Grants) -> Result<RulesetStatus, RulesetError> {
    let write: BitFlags<AccessFs> = AccessFs::from_read(RIGHTS) | AccessFs::WriteFile | AccessFs::Truncate;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(&grants.all, AccessFs::from_all(RIGHTS)))?
        .add_rules(path_beneath_rules(&grants.write, write))?
        .add_rules(path_beneath_rules(&grants.read, AccessFs::from_read(RIGHTS)))?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_the_granted_directories_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["into", "keys", "elsewhere"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("elsewhere/secret"), "s").unwrap();
        fs::write(path("keys/key"), "k").unwrap();
        fs::write(path("log"), "old").unwrap();
        let grants = Grants { all: vec![path("into")], write: vec![path("log")], read: vec![path("keys")] };
        let root = dir.path().to_owned();
        // The confinement is the thread's: that of the test runner stays free.
        std::thread::spawn(move || {
            if restrict(&grants).unwrap() == RulesetStatus::NotEnforced {
                println!("*** SKIPPED: this kernel has no Landlock");
                return;
            }
            let path = |name: &str| root.join(name);
            fs::write(path("into/new"), "n").unwrap();
            fs::rename(path("into/new"), path("into/renamed")).unwrap();
            fs::remove_file(path("into/renamed")).unwrap();
            // As a file gets from the staging directory to its place.
            fs::create_dir_all(path("into/a")).unwrap();
            fs::create_dir_all(path("into/b")).unwrap();
            fs::write(path("into/a/new"), "n").unwrap();
            fs::rename(path("into/a/new"), path("into/b/new")).unwrap();
            fs::write(path("log"), "l").unwrap();
            assert_eq!(fs::read(path("keys/key")).unwrap(), b"k");
            let denied = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EACCES));
            denied(fs::read(path("elsewhere/secret")).map(drop));
            denied(fs::write(path("elsewhere/new"), "n"));
            denied(fs::write(path("log2"), "n"));
            denied(fs::write(path("keys/key"), "other"));
            denied(fs::remove_file(path("keys/key")));
            // Neither by a link that a sender left there.
            std::os::unix::fs::symlink(path("elsewhere"), path("into/out")).unwrap();
            denied(fs::write(path("into/out/new"), "n"));
        })
        .join()
        .unwrap();
        fs::write(path("elsewhere/after"), "a").unwrap();
    }

    /// Remains of issue 39: a file that was not there yet left its whole directory writable.
    #[test]
    fn file_that_is_not_there_yet_is_made_and_nothing_beside_it_may_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        let keys = config.join("authorised_keys");
        let words = ["noctule", "recv", "--code", "--remember", "--authorised-keys", keys.to_str().unwrap(), "--into", "/nowhere"];
        let cli = <crate::cli::Cli as clap::Parser>::parse_from(words);
        let grants = grants(&cli.command);
        assert!(grants.write.contains(&keys) && !grants.write.contains(&config) && keys.exists());
        std::thread::spawn(move || {
            if restrict(&grants).unwrap() == RulesetStatus::NotEnforced {
                println!("*** SKIPPED: this kernel has no Landlock");
                return;
            }
            fs::File::options().append(true).open(&keys).unwrap();
            assert_eq!(fs::write(config.join("key"), "stolen").unwrap_err().raw_os_error(), Some(libc::EACCES));
        })
        .join()
        .unwrap();
    }
}
