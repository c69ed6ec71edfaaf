//! `noctule keygen`: makes keys, shows their fingerprints, forgets those of others.

use super::known_hosts::KnownHosts;
use super::{config_file, load};
use crate::address::host_port;
use crate::cli::KeygenArgs;
use crate::failure::Failure;
use crate::whole_file;
use noctule::{PublicKey, SecretKey, SharedKey};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A key that lies in a file.
pub trait FileKey {
    /// From 32 random bytes.
    fn from_random(bytes: [u8; 32]) -> Self;
    /// The text of its file.
    fn text(&self) -> String;
}

impl FileKey for SecretKey {
    fn from_random(bytes: [u8; 32]) -> Self {
        Self::from_bytes(bytes)
    }
    fn text(&self) -> String {
        self.to_text()
    }
}

impl FileKey for SharedKey {
    fn from_random(bytes: [u8; 32]) -> Self {
        Self::from_bytes(bytes)
    }
    fn text(&self) -> String {
        self.to_text()
    }
}

/// `noctule keygen`.
pub fn run(args: &KeygenArgs) -> Result<(), Failure> {
    if let Some(host) = &args.forget {
        return forget(host, args.known_hosts.clone());
    }
    let default = config_file(if args.shared { "shared-key" } else { "key" });
    let path = || args.output.clone().or(default).ok_or_else(|| Failure::Usage("no home directory: name a file with -o".into()));
    match args.fingerprint {
        Some(Some(key)) => print_public(key),
        Some(None) => print_public(load::<SecretKey>(&path()?)?.public()),
        None if args.shared => {
            let path = path()?;
            make::<SharedKey>(&path, args.force)?;
            note!(
                "pre-shared key in {}: copy it to the other side by a safe channel, and pass --psk {} on both",
                path.display(),
                path.display()
            );
        }
        None => {
            let path = path()?;
            let public = make::<SecretKey>(&path, args.force)?.public();
            note!("secret key in {}; fingerprint {}; public key:", path.display(), public.fingerprint());
            say!("{public}");
        }
    }
    Ok(())
}

fn print_public(key: PublicKey) {
    say!("{} {key}", key.fingerprint());
}

/// Makes a key in a file: never readable by others, not even for a moment; one that exists is replaced as a whole or not at all.
pub fn make<K: FileKey>(path: &Path, force: bool) -> Result<K, Failure> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|e| Failure::target(parent, &e))?;
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| Failure::system("no randomness from the operating system", e))?;
    let key = K::from_random(bytes);
    let text = format!("{}\n", key.text());
    if force {
        whole_file::replace(path, text.as_bytes(), None).map_err(|e| Failure::target(path, &e))?;
        return Ok(key);
    }
    let mut file = OpenOptions::new().write(true).mode(0o600).create_new(true).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Failure::KeyExists(path.display().to_string()),
        _ => Failure::target(path, &e),
    })?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|e| Failure::target(path, &e))?;
    Ok(key)
}

fn forget(host: &str, file: Option<PathBuf>) -> Result<(), Failure> {
    let file = file.or_else(|| config_file("known_hosts"));
    let file = file.ok_or_else(|| Failure::Usage("no home directory: name the file with --known-hosts".into()))?;
    let host = host_port(host, None).map_err(Failure::Usage)?;
    let mut hosts = KnownHosts::open(&file)?;
    match hosts.forget(&host)? {
        0 => Err(Failure::Usage(format!("no key of {host} is remembered in {}", hosts.path().display()))),
        _ => {
            note!("the key of {host} is forgotten; the next connection asks about the one that it has then");
            Ok(())
        }
    }
}
