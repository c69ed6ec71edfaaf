//! Keys in files.

use crate::cli::KeygenArgs;
use crate::failure::Failure;
use noctule::{EndpointConfig, SecretKey};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the key lies unless another file is named.
fn default_path() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(base.join("noctule/key"))
}

/// `noctule keygen`.
pub fn keygen(args: &KeygenArgs) -> Result<(), Failure> {
    let path = args.output.clone().or_else(default_path).ok_or_else(|| Failure::Usage("no home directory: name a file with -o".into()))?;
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|e| Failure::target(parent, &e))?;
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| Failure::system("no randomness from the operating system", e))?;
    let secret = SecretKey::from_bytes(bytes);
    // Never readable by others, not even for a moment; a key that exists is replaced as a whole or not at all.
    let fresh = if args.force { path.with_extension("new") } else { path.clone() };
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if args.force {
        match std::fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failure::target(&fresh, &e)),
            _ => {}
        }
    }
    let mut file = options.create_new(true).open(&fresh).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Failure::Exists(format!("{} (a key; --force replaces it)", path.display())),
        _ => Failure::target(&path, &e),
    })?;
    file.write_all(format!("{}\n", secret.to_text()).as_bytes()).and_then(|()| file.sync_all()).map_err(|e| Failure::target(&path, &e))?;
    if args.force {
        std::fs::rename(&fresh, &path).map_err(|e| Failure::target(&path, &e))?;
    }
    eprintln!("secret key in {}; public key:", path.display());
    println!("{}", secret.public());
    Ok(())
}

fn load(path: &Path) -> Result<SecretKey, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::source(path, e))?;
    if let Ok(meta) = std::fs::metadata(path)
        && meta.mode() & 0o077 != 0
    {
        eprintln!("noctule: warning: {} can be read by others: chmod 600 it", path.display());
    }
    text.parse().map_err(|e| Failure::source(path, e))
}

/// The identity for a run: the named file, else the default one, else a fresh one that nobody will know again.
pub fn endpoint_config(named: Option<&Path>) -> Result<(EndpointConfig, bool), Failure> {
    if let Some(path) = named {
        return Ok((EndpointConfig::new(load(path)?), false));
    }
    match default_path().filter(|p| p.exists()) {
        Some(path) => Ok((EndpointConfig::new(load(&path)?), false)),
        None => Ok((EndpointConfig::ephemeral().map_err(|e| Failure::system("no randomness from the operating system", e))?, true)),
    }
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
