//! What `recv` may still touch when it serves: its directory, and what it was told of. Linux confines it by Landlock, from 5.19 on: older kernels
//! refuse every renaming between directories, by which files get their places.
//!
//! The confinement holds for the thread that asks for it and for those that it starts, so it comes before the runtime.

use crate::cli::RecvArgs;
use crate::identity;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
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
    /// Files that may be written; of a directory, new files below it.
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
}

static STATUS: OnceLock<bool> = OnceLock::new();

/// Whether this process is confined, wholly or as far as the kernel can.
pub fn is_on() -> bool {
    STATUS.get().copied().unwrap_or(false)
}

/// Confines this thread and those that it starts to what `recv` needs. Where the kernel cannot, it is said once, and `recv` goes on.
pub fn confine(args: &RecvArgs) {
    // A first start makes a key; afterwards nothing is written beside it. What fails here fails again where it is told.
    let _ = identity::lasting_config(args.identity.key.as_deref());
    let is_on = match restrict(&grants(args)) {
        Ok(status) => status != RulesetStatus::NotEnforced,
        Err(error) => {
            tell!("noctule: warning: recv could not be confined to its directory: {error}");
            false
        }
    };
    if !is_on {
        tell!("noctule: warning: this kernel does not confine recv to its directory (Landlock is missing, off, or older than Linux 5.19)");
    }
    let _ = STATUS.set(is_on);
}

/// The directory in which a file is made.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn grants(args: &RecvArgs) -> Grants {
    let mut grants = Grants { read: SYSTEM.iter().map(PathBuf::from).collect(), ..Grants::default() };
    if !args.stdout {
        grants.all.push(args.into.clone());
    }
    let file = |name: &str| identity::config_file(name);
    let authorised = args.access.authorised_keys.clone().or_else(|| file("authorised_keys"));
    // A trace is made anew: an empty file is there before it.
    if let Some(trace) = &args.trace.trace {
        let _ = std::fs::File::options().create(true).append(true).open(trace);
        grants.write.push(trace.clone());
    }
    let kept = [authorised.clone().filter(|_| args.access.remember), file("known_hosts").filter(|_| !args.via.via.is_empty())];
    for path in kept.into_iter().flatten() {
        // Where it does not exist yet, it is made in its directory.
        if !path.exists() {
            let _ = std::fs::create_dir_all(parent(&path));
            grants.write.push(parent(&path));
        } else {
            grants.write.push(path);
        }
    }
    // Each file by its own name, too: it may be a link to elsewhere.
    let own = ["key", "authorised_keys", "known_hosts"].map(file);
    let named = [args.identity.key.clone(), args.identity.psk.clone(), args.via.via_psk.clone(), authorised];
    grants.read.extend(named.into_iter().chain(own).flatten().chain(file("key").as_deref().map(parent)));
    grants
}

fn restrict(grants: &Grants) -> Result<RulesetStatus, RulesetError> {
    let write: BitFlags<AccessFs> = AccessFs::from_read(RIGHTS) | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::Truncate;
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
}
