//! Which key a host must have: pinned on the command line, remembered from an earlier time, or to be decided now.

use super::known_hosts::KnownHosts;
use crate::address::HostPort;
use crate::cli::{IdentityArgs, PeerArgs, ViaArgs};
use crate::code::{self, Code};
use crate::failure::Failure;
use crate::further_path::FurtherPath;
use crate::terminal::terminal;
use noctule::{ConnectError, Endpoint, EndpointConfig, NodeConfig, PublicKey, Session};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;

/// What the code for `--code` without one is read from.
const CODE_VARIABLE: &str = "NOCTULE_CODE";

/// A host whose key is settled, or will be by the code that it has to prove.
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
    /// What it has to prove before anything is sent to it.
    code: Option<Code>,
    /// Where it is to be remembered by this name, once it has proven the code.
    unknown: Option<(PathBuf, String)>,
}

impl Peer {
    /// Settles the key of `host` (with its port). An unknown host is asked for its key, with an identity that tells it nothing, and the user is
    /// asked whether it is the right one.
    pub async fn settle(host: &str, args: &PeerArgs, identity: &IdentityArgs) -> Result<Self, Failure> {
        let host = host.to_owned();
        let code = code_of(args).await?;
        let mut this = Self {
            host: host.clone(),
            key: PublicKey([0; 32]),
            overlay: None,
            paths: args.path.clone(),
            remembered: None,
            code,
            unknown: None,
        };
        if let Some(key) = args.peer_key {
            this.key = key;
            this.unknown = unknown(args, &host, this.code.is_some())?;
            return Ok(this);
        }
        let (file, mut hosts) = known_hosts(args)?;
        if let Some(known) = hosts.find(&host)? {
            (this.key, this.remembered) = (known.key, Some((file, known.line)));
            return Ok(this);
        }
        this.key = ask_host(&host, identity).await?;
        if this.code.is_some() {
            this.unknown = Some((file, host));
            return Ok(this);
        }
        let key = this.key;
        if !args.accept_new {
            decide(&host, key).await?;
        }
        remember(&mut hosts, &host, key);
        Ok(this)
    }

    /// Lets the far end of a new session prove that it has the code, if there is one, and proves the same to it; then its key is remembered. Without
    /// a code there is nothing to prove, and only a key of a link is remembered.
    pub async fn prove(&self, session: &Session, ours: PublicKey) -> Result<(), Failure> {
        if let Some(code) = &self.code {
            code::ask::present(session, ours, code).await?;
        }
        if let Some((file, name)) = &self.unknown {
            match KnownHosts::open(file) {
                Ok(mut hosts) => remember(&mut hosts, name, self.key),
                Err(failure) => tell!("noctule: warning: the key of {name} is not remembered: {failure}"),
            }
        }
        Ok(())
    }

    /// The same peer once it has proven the code.
    pub fn proven(self) -> Self {
        Self { code: None, unknown: None, ..self }
    }

    /// Whether it has to prove a code.
    pub fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// The same for the far end of a command: HOST, or with `--via` an address of the overlay, whose key has to be known already: it can only be asked
    /// over nodes that might answer in its place.
    pub async fn far_end(host: &str, port: Option<u16>, args: &PeerArgs, identity: &IdentityArgs, via: &ViaArgs) -> Result<Self, Failure> {
        let parsed: HostPort = host.parse().map_err(Failure::Usage)?;
        let named = parsed.named(port).map_err(Failure::Usage)?;
        if via.via.is_empty() {
            return Self::settle(&named, args, identity).await;
        }
        if !args.path.is_empty() {
            return Err(Failure::Usage(
                "--path adds to the link to the other side, which --via does not lead to; name paths in the node's file".into(),
            ));
        }
        if parsed.port().or(port).is_some() {
            return Err(Failure::Usage(format!(
                "with --via the other side is an address of the overlay, which has no ports: write {}",
                parsed.host()
            )));
        }
        let address: IpAddr = parsed
            .host()
            .parse()
            .map_err(|_| Failure::Usage(format!("with --via the other side is named by its address in the overlay; {host} is none")))?;
        if via.address.is_some_and(|ours| ours.is_ipv4() != address.is_ipv4()) {
            return Err(Failure::Usage(format!("--address has to be of the family of {address}")));
        }
        let (host, code, overlay) = (address.to_string(), code_of(args).await?, Some(address));
        if let Some(key) = args.peer_key {
            let unknown = unknown(args, &named, code.is_some())?;
            return Ok(Self { host, key, overlay, paths: Vec::new(), remembered: None, code, unknown });
        }
        let (file, hosts) = known_hosts(args)?;
        let known = hosts.find(&named)?.ok_or_else(|| {
            Failure::Usage(format!("the key of {address} is not known, and over nodes it cannot be asked for: pass --peer-key"))
        })?;
        let remembered = Some((file, known.line));
        Ok(Self { host, key: known.key, overlay, paths: Vec::new(), remembered, code, unknown: None })
    }

    /// What a failed connection to this peer means to the user.
    pub fn failure(&self, ours: PublicKey, error: ConnectError) -> Failure {
        match (error, &self.remembered) {
            (ConnectError::WrongKey { got: Some(now), .. }, Some((file, line))) => {
                Failure::ChangedKey { host: self.host.clone(), file: file.display().to_string(), line: *line, known: self.key, now }
            }
            // What comes back goes to the address that the node knows for this key.
            (ConnectError::Unreachable(_), None | Some(_)) if self.overlay.is_some() => {
                Failure::NoRoute(format!("no answer from {}; is --address the one that the node's file has for this side's key", self.host))
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

fn remember(hosts: &mut KnownHosts, host: &str, key: PublicKey) {
    match hosts.remember(host, key) {
        Ok(()) => note!("noctule: the key of {host} ({}) is remembered in {}", key.fingerprint(), hosts.path().display()),
        Err(e) => tell!("noctule: warning: the key of {host} could not be remembered in {}: {e}", hosts.path().display()),
    }
}

/// Where a pinned key is remembered once a code has proven it, or because a link says so: not in place of another.
fn unknown(args: &PeerArgs, name: &str, has_code: bool) -> Result<Option<(PathBuf, String)>, Failure> {
    if !has_code && !args.is_linked {
        return match args.known_hosts {
            Some(_) => Err(Failure::Usage("--peer-key says which key the host must have: --known-hosts has no use besides it".into())),
            None => Ok(None),
        };
    }
    // Without a home directory there is nothing to remember it in.
    let Ok((file, hosts)) = known_hosts(args) else { return Ok(None) };
    match hosts.find(name)? {
        None => Ok(Some((file, name.to_owned()))),
        Some(known) if args.is_linked && args.peer_key != Some(known.key) => Err(Failure::Usage(format!(
            "the link says another key for {name} than the one in {}, line {}: ask its owner which is right; if the host has a new key, noctule keygen --forget {name}",
            file.display(),
            known.line
        ))),
        Some(_) => Ok(None),
    }
}

/// The code that the user was told: on the command line, in the environment, or typed in.
async fn code_of(args: &PeerArgs) -> Result<Option<Code>, Failure> {
    match &args.code {
        None => Ok(None),
        Some(Some(code)) => Ok(Some(code.clone())),
        Some(None) => match std::env::var(CODE_VARIABLE) {
            Ok(text) => text.parse().map(Some).map_err(|e| Failure::Usage(format!("{CODE_VARIABLE}: {e}"))),
            Err(_) => {
                let asked = tokio::task::spawn_blocking(ask_for_code).await;
                asked.map_err(|e| Failure::system("a thread", e))?.map(Some)
            }
        },
    }
}

/// Asks on the terminal itself: standard input may be what is sent.
fn ask_for_code() -> Result<Code, Failure> {
    let nobody = |e: io::Error| {
        Failure::Usage(format!(
            "--code without a code asks for it on the terminal, and there is none ({e}): pass it, or set {CODE_VARIABLE}"
        ))
    };
    let terminal = terminal().map_err(nobody)?;
    let mut lines = BufReader::new(&terminal).lines();
    loop {
        (&terminal).write_all(b"The code that the other side shows: ").map_err(nobody)?;
        let line = lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into())).map_err(nobody)?;
        match line.parse() {
            Ok(code) => return Ok(code),
            Err(problem) => (&terminal).write_all(format!("{problem}\n").as_bytes()).map_err(nobody)?,
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
    // As ssh does: asks on the terminal, and only if stderr is one. Standard input may be what is sent.
    let Some(terminal) = terminal().ok().filter(|_| io::stderr().is_terminal()) else { return Err(unknown()) };
    crate::terminal::err(format_args!(
        "{host} is not known yet. Its key is\n\n  {key}\n  fingerprint {}\n\nIs that what the other side shows (noctule recv and perf -s print the fingerprint when they start)?\nRemember it and go on [yes/no]? ",
        key.fingerprint()
    ));
    let answer = tokio::task::spawn_blocking(|| {
        let mut lines = BufReader::new(terminal);
        loop {
            let mut line = String::new();
            match lines.read_line(&mut line).map(|_| line.trim().to_ascii_lowercase()) {
                Ok(word) if word == "yes" => return true,
                Ok(word) if !line.is_empty() && word != "no" && word != "n" => {
                    crate::terminal::err(format_args!("Please type yes or no: "))
                }
                _ => return false,
            }
        }
    });
    match answer.await {
        Ok(true) => Ok(()),
        _ => Err(unknown()),
    }
}
