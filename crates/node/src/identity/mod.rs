//! Keys in files, and who trusts whom.

pub mod authorised;
pub mod keygen;
mod known_hosts;
mod trust;

pub use trust::Peer;

use crate::cli::IdentityArgs;
use crate::failure::Failure;
use noctule::{EndpointConfig, NodeConfig, SecretKey, Session, SharedKey};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file of the user's own configuration.
fn config_file(name: &str) -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(base.join("noctule").join(name))
}

fn load<K: FromStr<Err: std::fmt::Display>>(path: &Path) -> Result<K, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::source(path, e))?;
    if let Ok(meta) = std::fs::metadata(path)
        && meta.mode() & 0o077 != 0
    {
        tell!("noctule: warning: {} can be read by others: chmod 600 it", path.display());
    }
    text.parse().map_err(|e| Failure::source(path, e))
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

/// As [`endpoint_config`], but makes a lasting key where there is none: who remembered a receiver wants to find it again. A fresh one (then true)
/// only where nothing can be written.
pub fn lasting_config(named: Option<&Path>) -> Result<(EndpointConfig, bool), Failure> {
    if named.is_none()
        && let Some(path) = config_file("key").filter(|p| !p.exists())
        && keygen::make::<SecretKey>(&path, false).is_ok()
    {
        tell!("made a key for this host: {}", path.display());
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
    }
    Ok(())
}

/// The pre-shared key in a file, as the node wants it.
pub fn shared_key(path: &Path) -> Result<[u8; 32], Failure> {
    Ok(*load::<SharedKey>(path)?.as_bytes())
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

/// HOST, HOST:PORT, IPv4, IPv6 bare or in brackets: made into what can be connected to.
pub fn host_with_port(host: &str, port: u16) -> String {
    if let Ok(v6) = host.parse::<std::net::Ipv6Addr>() {
        return format!("[{v6}]:{port}");
    }
    if host.starts_with('[') {
        return if host.ends_with(']') { format!("{host}:{port}") } else { host.to_owned() };
    }
    if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_host_gets_its_port() {
        for (given, expected) in [
            ("example.org", "example.org:7"),
            ("example.org:99", "example.org:99"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ] {
            assert_eq!(host_with_port(given, 7), expected);
        }
    }
}
