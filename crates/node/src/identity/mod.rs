//! Keys in files, and which keys are trusted.

pub mod authorised;
pub mod keygen;
pub mod known_hosts;
pub mod refused;
mod trust;

pub use trust::Peer;

use crate::cli::IdentityArgs;
use crate::directories;
use crate::failure::Failure;
use crate::shell::quoted;
use noctule::{EndpointConfig, NodeConfig, SecretKey, Session, SharedKey};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use zeroize::Zeroizing;

/// A file of the user's own configuration.
pub fn config_file(name: &str) -> Option<PathBuf> {
    let base = directories::named_by("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")))?;
    Some(base.join("noctule").join(name))
}

/// The home directory.
pub fn home() -> Option<PathBuf> {
    directories::named_by("HOME")
}

fn load<K: FromStr<Err: std::fmt::Display>>(path: &Path) -> Result<K, Failure> {
    let (mut file, mut text) = (File::open(path).map_err(|e| Failure::source(path, e))?, Zeroizing::new(String::new()));
    // Of the descriptor: what is looked at is what is read.
    let meta = file.metadata().map_err(|e| Failure::source(path, e))?;
    is_secret(path, meta.mode(), meta.uid(), &User::this()).map_err(|e| Failure::source(path, e))?;
    file.read_to_string(&mut text).map_err(|e| Failure::source(path, e))?;
    text.parse().map_err(|e| Failure::source(path, e))
}

/// The text of a file of trusted keys, if only this user or root can have written it. Its group may write too: users often have a group of their own.
pub fn read_trusted(path: &Path) -> Result<String, Failure> {
    let (mut file, mut text) = (File::open(path).map_err(|e| Failure::source(path, e))?, String::new());
    let meta = file.metadata().map_err(|e| Failure::source(path, e))?;
    let user = User::this();
    let shown = quoted(path);
    if meta.mode() & 0o002 != 0 {
        return Err(Failure::source(
            path,
            format!("everybody on this host may write it, so it says nothing about who is trusted: chmod o-w {shown}"),
        ));
    }
    if !user.trusts(meta.uid()) {
        let (owner, ours) = (meta.uid(), user.uid);
        return Err(Failure::source(
            path,
            format!("it belongs to another user (uid {owner}); if you trust that user, sudo chown {ours} {shown}"),
        ));
    }
    file.read_to_string(&mut text).map_err(|e| Failure::source(path, e))?;
    Ok(text)
}

/// A text that only this user, or root, may have read.
pub fn read_secret(path: &Path) -> Result<String, Failure> {
    load(path)
}

/// The user that runs this, and the owner of the home directory that it was given.
struct User {
    uid: u32,
    home: Option<u32>,
}

impl User {
    fn this() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), home: home().and_then(|path| std::fs::metadata(path).ok()).map(|meta| meta.uid()) }
    }

    /// Whether a file of this owner counts as the user's own. Root can write every file anyway. Root that was given a user's home, as by `sudo -E`, acts for
    /// that user.
    fn trusts(&self, owner: u32) -> bool {
        owner == self.uid || owner == 0 || (self.uid == 0 && self.home == Some(owner))
    }
}

/// A key that others can read, or that another user gave, is no secret of this one; root can read every file anyway.
fn is_secret(path: &Path, mode: u32, owner: u32, user: &User) -> Result<(), String> {
    let shown = quoted(path);
    if !user.trusts(owner) {
        let ours = user.uid;
        return Err(format!(
            "it belongs to another user (uid {owner}), who knows the key: make one of your own (noctule keygen), or, if you trust that user, sudo chown {ours} {shown}"
        ));
    }
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!(
            "others may open it (mode {:04o}), so it may be no secret any more: chmod 600 {shown}, and make a new key if somebody may have read it",
            mode & 0o7777
        )),
    }
}

/// The identity for a run: the named file, else the default one, else a fresh one that nobody will know again (then true).
pub fn endpoint_config(named: Option<&Path>) -> Result<(EndpointConfig, bool), Failure> {
    if let Some(path) = named {
        return Ok((EndpointConfig::new(load(path)?), false));
    }
    match config_file("key").filter(|p| p.exists()) {
        Some(path) => Ok((EndpointConfig::new(load(&path)?), false)),
        None => Ok((EndpointConfig::ephemeral().map_err(|e| Failure::system("no randomness from the operating system", e))?, true)),
    }
}

/// As [`endpoint_config`], but makes a lasting key where there is none, so that senders that remembered this receiver know it again.
/// A fresh key (then true) only where none can be written.
pub fn lasting_config(named: Option<&Path>) -> Result<(EndpointConfig, bool), Failure> {
    if named.is_none()
        && let Some(path) = config_file("key").filter(|p| !p.exists())
        && keygen::make::<SecretKey>(&path, false).is_ok()
    {
        note!("made a key for this host: {}", path.display());
    }
    endpoint_config(named)
}

/// Bytes of the headers of IPv4 and UDP.
const IPV4_UDP_HEADERS: u16 = 28;

/// Applies what was said about the link's protection, the size of its packets, and how long silence is borne.
pub fn protect(node: &mut NodeConfig, args: &IdentityArgs) -> Result<(), Failure> {
    node.plaintext = args.no_encryption;
    node.psk = args.psk.as_deref().map(shared_key).transpose()?;
    if let Some(mtu) = args.mtu {
        node.max_datagram = mtu - IPV4_UDP_HEADERS;
    }
    if let Some(patience) = args.timeout {
        node.idle_timeout = patience.0;
        node.connect_timeout = node.connect_timeout.min(patience.0);
    }
    Ok(())
}

/// The pre-shared key in a file.
pub fn shared_key(path: &Path) -> Result<SharedKey, Failure> {
    load(path)
}

/// Warns that a listening side takes peers without encryption.
pub fn warn_of_plaintext(args: &IdentityArgs) {
    if args.no_encryption {
        tell!(
            "noctule: warning: --no-encryption: what peers send that say so too is NOT ENCRYPTED, and can be read and changed on the path"
        );
    }
}

/// Without encryption only if both sides said so: the one that wants none learns that the other did not.
pub fn check_protection(session: &Session, args: &IdentityArgs) -> Result<(), Failure> {
    match (args.no_encryption, session.stats().link.is_plaintext) {
        (true, false) => return Err(Failure::Encrypted),
        (_, true) => tell!("noctule: warning: both sides said --no-encryption: this link is NOT ENCRYPTED"),
        (false, false) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_in_a_user_s_home_takes_that_user_s_files_and_no_others() {
        let root = |home| User { uid: 0, home };
        assert!(root(Some(1000)).trusts(1000) && root(Some(1000)).trusts(0));
        assert!(!root(Some(1000)).trusts(1001) && !root(Some(0)).trusts(1000) && !root(None).trusts(1000));
    }

    #[test]
    fn a_key_file_of_others_or_open_to_others_is_refused_with_what_to_do() {
        let check = |mode, owner| is_secret(Path::new("/k e y"), mode, owner, &User { uid: 1000, home: Some(1001) });
        assert_eq!((check(0o100_600, 1000), check(0o100_400, 0)), (Ok(()), Ok(())));
        for mode in [0o100_640, 0o100_604, 0o100_660, 0o100_601] {
            assert!(check(mode, 1000).unwrap_err().contains("chmod 600 '/k e y'"));
        }
        assert!(check(0o100_600, 1001).unwrap_err().contains("sudo chown 1000 '/k e y'"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        keygen::make::<SecretKey>(&path, false).unwrap();
        assert!(load::<SecretKey>(&path).is_ok());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(load::<SecretKey>(&path).unwrap_err().to_string().contains("mode 0644"));
    }
}
