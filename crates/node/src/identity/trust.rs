//! Which key a host must have: pinned on the command line, remembered from an earlier time, or to be decided now.

use super::known_hosts::KnownHosts;
use crate::cli::{IdentityArgs, PeerArgs, ViaArgs};
use crate::failure::Failure;
use crate::further_path::FurtherPath;
use noctule::{ConnectError, Endpoint, EndpointConfig, NodeConfig, PublicKey};
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;

/// A host whose key is settled.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Name and port.
    pub host: String,
    /// The key it must have.
    pub key: PublicKey,
    /// Its address, if it is reached over nodes.
    pub overlay: Option<IpAddr>,
    /// Further paths to it.
    pub paths: Vec<FurtherPath>,
    /// The line of the file of remembered keys that says so.
    remembered: Option<(PathBuf, usize)>,
}

impl Peer {
    /// Settles the key of `host` (with its port). An unknown host is asked for its key, with an identity that tells it nothing, and the user is
    /// asked whether it is the right one.
    pub async fn settle(host: &str, args: &PeerArgs, identity: &IdentityArgs) -> Result<Self, Failure> {
        let host = host.to_owned();
        if let Some(key) = args.peer_key {
            return Ok(Self { host, key, overlay: None, paths: args.path.clone(), remembered: None });
        }
        let (file, mut hosts) = known_hosts(args)?;
        if let Some(known) = hosts.find(&host)? {
            return Ok(Self { host, key: known.key, overlay: None, paths: args.path.clone(), remembered: Some((file, known.line)) });
        }
        let key = ask_host(&host, identity).await?;
        if !args.accept_new {
            decide(&host, key).await?;
        }
        match hosts.remember(&host, key) {
            Ok(()) => tell!("noctule: the key of {host} ({}) is remembered in {}", key.fingerprint(), file.display()),
            Err(e) => tell!("noctule: warning: the key of {host} could not be remembered in {}: {e}", file.display()),
        }
        Ok(Self { host, key, overlay: None, paths: args.path.clone(), remembered: None })
    }

    /// The same for the far end of a command: HOST, or with `--via` an address of the overlay, whose key has to be known already: it can only be asked
    /// over nodes that might answer in its place.
    pub async fn far_end(host: &str, port: u16, args: &PeerArgs, identity: &IdentityArgs, via: &ViaArgs) -> Result<Self, Failure> {
        let named = super::host_with_port(host, port);
        if via.via.is_empty() {
            return Self::settle(&named, args, identity).await;
        }
        if !args.path.is_empty() {
            return Err(Failure::Usage(
                "--path adds to the link to the other side, which --via does not lead to; name paths in the node's file".into(),
            ));
        }
        let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
            Failure::Usage(format!("with --via the other side is named by its address in the overlay, without a port; {host} is none"))
        })?;
        if via.address.is_some_and(|ours| ours.is_ipv4() != address.is_ipv4()) {
            return Err(Failure::Usage(format!("--address has to be of the family of {address}")));
        }
        if let Some(key) = args.peer_key {
            return Ok(Self { host: address.to_string(), key, overlay: Some(address), paths: Vec::new(), remembered: None });
        }
        let (file, hosts) = known_hosts(args)?;
        let known = hosts.find(&named)?.ok_or_else(|| {
            Failure::Usage(format!("the key of {address} is not known, and over nodes it cannot be asked for: pass --peer-key"))
        })?;
        Ok(Self {
            host: address.to_string(),
            key: known.key,
            overlay: Some(address),
            paths: Vec::new(),
            remembered: Some((file, known.line)),
        })
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

fn known_hosts(args: &PeerArgs) -> Result<(PathBuf, KnownHosts), Failure> {
    let file = args.known_hosts.clone().or_else(|| super::config_file("known_hosts"));
    let file = file.ok_or_else(|| Failure::Usage("no home directory: pass --peer-key or --known-hosts FILE".into()))?;
    let hosts = KnownHosts::open(&file)?;
    Ok((file, hosts))
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
