//! Which key a host must have: pinned on the command line, remembered from an earlier time, or to be decided now.

use super::known_hosts::KnownHosts;
use crate::cli::{IdentityArgs, PeerArgs};
use crate::failure::Failure;
use noctule::{ConnectError, Endpoint, EndpointConfig, NodeConfig, PublicKey};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// A host whose key is settled.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Name and port.
    pub host: String,
    /// The key it must have.
    pub key: PublicKey,
    /// The line of the file of remembered keys that says so.
    remembered: Option<(PathBuf, usize)>,
}

impl Peer {
    /// Settles the key of `host` (with its port). An unknown host is asked for its key, with an identity that tells it nothing, and the user is
    /// asked whether it is the right one.
    pub async fn settle(host: &str, args: &PeerArgs, identity: &IdentityArgs) -> Result<Self, Failure> {
        let host = host.to_owned();
        if let Some(key) = args.peer_key {
            return Ok(Self { host, key, remembered: None });
        }
        let file = args.known_hosts.clone().or_else(|| super::config_file("known_hosts"));
        let file = file.ok_or_else(|| Failure::Usage("no home directory: pass --peer-key or --known-hosts FILE".into()))?;
        let mut hosts = KnownHosts::open(&file)?;
        if let Some(known) = hosts.find(&host)? {
            return Ok(Self { host, key: known.key, remembered: Some((file, known.line)) });
        }
        let key = ask_host(&host, identity).await?;
        if !args.accept_new {
            decide(&host, key).await?;
        }
        match hosts.remember(&host, key) {
            Ok(()) => eprintln!("noctule: the key of {host} ({}) is remembered in {}", key.fingerprint(), file.display()),
            Err(e) => eprintln!("noctule: warning: the key of {host} could not be remembered in {}: {e}", file.display()),
        }
        Ok(Self { host, key, remembered: None })
    }

    /// What a failed connection to this peer means to the user.
    pub fn failure(&self, ours: PublicKey, error: ConnectError) -> Failure {
        match (error, &self.remembered) {
            (ConnectError::WrongKey { got: Some(now), .. }, Some((file, line))) => {
                Failure::ChangedKey { host: self.host.clone(), file: file.display().to_string(), line: *line, known: self.key, now }
            }
            (error, _) => Failure::connect(&self.host, ours, self.key, error),
        }
    }
}

async fn ask_host(host: &str, identity: &IdentityArgs) -> Result<PublicKey, Failure> {
    let mut config = EndpointConfig::ephemeral().map_err(|e| Failure::system("no randomness from the operating system", e))?;
    config.node = NodeConfig { accept: false, ..NodeConfig::default() };
    super::protect(&mut config.node, identity)?;
    let nobody = config.identity.public();
    let endpoint = Endpoint::client(config)?;
    let key = endpoint.key_of_host(host).await.map_err(|e| Failure::connect(host, nobody, nobody, e))?;
    endpoint.wait_idle().await;
    Ok(key)
}

/// Asks on a terminal; elsewhere nobody can answer.
async fn decide(host: &str, key: PublicKey) -> Result<(), Failure> {
    let unknown = || Failure::UnknownHost { host: host.to_owned(), key, fingerprint: key.fingerprint() };
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(unknown());
    }
    eprint!(
        "{host} is not known yet. Its key is\n\n  {key}\n  fingerprint {}\n\nIs that what the other side shows (noctule recv prints both when it starts)?\nRemember it and go on [yes/no]? ",
        key.fingerprint()
    );
    let answer = tokio::task::spawn_blocking(|| {
        loop {
            let _ = io::stderr().flush();
            let mut line = String::new();
            match io::stdin().lock().read_line(&mut line).map(|_| line.trim().to_ascii_lowercase()) {
                Ok(word) if word == "yes" => return true,
                Ok(word) if !line.is_empty() && word != "no" && word != "n" => eprint!("Please type yes or no: "),
                _ => return false,
            }
        }
    });
    match answer.await {
        Ok(true) => Ok(()),
        _ => Err(unknown()),
    }
}
