//! What `recv` may still touch when it serves: its directory, and what it was told of. Linux confines it by Landlock, from 5.13 on.
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
const SYSTEM: [&str; 8] = ["/etc", "/usr", "/lib", "/lib64", "/proc", "/run", "/dev", "/sys"];

/// What this process may do by paths.
#[derive(Debug, Default)]
struct Grants {
    /// Everything below.
    all: Vec<PathBuf>,
    /// New files below may be made and written.
    append: Vec<PathBuf>,
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
        tell!("noctule: warning: this kernel does not confine recv to its directory (Landlock is missing or off)");
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
    let configuration = identity::config_file("key").as_deref().map(parent);
    let authorised = args.access.authorised_keys.clone();
    grants.append.extend(args.trace.trace.as_deref().map(parent));
    if args.access.remember {
        grants.append.extend(authorised.as_deref().map(parent).or(configuration.clone()));
    }
    if !args.via.via.is_empty() {
        // The key of a node may be asked about and remembered.
        grants.append.extend(configuration.clone());
    }
    let named = [args.identity.key.clone(), args.identity.psk.clone(), args.via.via_psk.clone(), authorised, configuration];
    grants.read.extend(named.into_iter().flatten());
    grants
}

fn restrict(grants: &Grants) -> Result<RulesetStatus, RulesetError> {
    let append: BitFlags<AccessFs> = AccessFs::from_read(RIGHTS) | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::Truncate;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(&grants.all, AccessFs::from_all(RIGHTS)))?
        .add_rules(path_beneath_rules(&grants.append, append))?
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
        let grants = Grants { all: vec![path("into")], append: Vec::new(), read: vec![path("keys")] };
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
            assert_eq!(fs::read(path("keys/key")).unwrap(), b"k");
            let denied = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EACCES));
            denied(fs::read(path("elsewhere/secret")).map(drop));
            denied(fs::write(path("elsewhere/new"), "n"));
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
