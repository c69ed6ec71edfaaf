//! The user's file of hosts (`~/.config/noctule/config`): what need not be typed each time. The command line goes before it, and so does the
//! environment.

mod parse;

pub use parse::KEYWORDS;

use crate::address::{DEFAULT_PORT, HostPort};
use crate::cli::{DoctorArgs, GetArgs, HostsArgs, IdentityArgs, PeerArgs, PerfArgs, PingArgs, ProxyArgs, SendArgs, SendMode, ViaArgs};
use crate::failure::Failure;
use crate::further_path::FurtherPath;
use crate::identity;
use crate::units::{CcName, Patience, Rate};
use noctule::PublicKey;
use parse::Block;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What is said for a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub host_name: Option<String>,
    pub port: Option<u16>,
    pub peer_key: Option<PublicKey>,
    pub known_hosts: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub psk: Option<PathBuf>,
    pub via: Option<Vec<String>>,
    pub via_key: Option<Vec<PublicKey>>,
    pub via_psk: Option<PathBuf>,
    pub address: Option<IpAddr>,
    pub cc: Option<CcName>,
    pub limit_rate: Option<Rate>,
    pub mtu: Option<u16>,
    pub timeout: Option<Patience>,
    pub paths: Option<Vec<FurtherPath>>,
}

impl Settings {
    /// Takes over what is not said yet.
    fn fill(&mut self, other: &Self) {
        let Self { host_name, port, peer_key, known_hosts, key, psk, via, via_key, via_psk, address, cc, limit_rate, mtu, timeout, paths } =
            other;
        fn fill<T: Clone>(mine: &mut Option<T>, other: &Option<T>) {
            if mine.is_none() {
                mine.clone_from(other);
            }
        }
        fill(&mut self.host_name, host_name);
        fill(&mut self.port, port);
        fill(&mut self.peer_key, peer_key);
        fill(&mut self.known_hosts, known_hosts);
        fill(&mut self.key, key);
        fill(&mut self.psk, psk);
        fill(&mut self.via, via);
        fill(&mut self.via_key, via_key);
        fill(&mut self.via_psk, via_psk);
        fill(&mut self.address, address);
        fill(&mut self.cc, cc);
        fill(&mut self.limit_rate, limit_rate);
        fill(&mut self.mtu, mtu);
        fill(&mut self.timeout, timeout);
        fill(&mut self.paths, paths);
    }

    /// The same without what tells hosts apart: what a process can be only once.
    fn common(&self) -> Self {
        Self { host_name: None, port: None, peer_key: None, paths: None, ..self.clone() }
    }
}

/// The file, read.
pub struct HostConfig {
    path: Option<PathBuf>,
    blocks: Vec<Block>,
}

impl HostConfig {
    /// The file of the command line or the environment, or the user's own if it is there; `none` is no file.
    pub fn open(args: &HostsArgs) -> Result<Self, Failure> {
        let path = match args.client_config.as_deref() {
            Some(none) if none == Path::new("none") => None,
            Some(named) => Some(named.to_owned()),
            None => identity::config_file("config").filter(|path| path.exists()),
        };
        let Some(path) = path else { return Ok(Self { path: None, blocks: Vec::new() }) };
        let text = identity::read_trusted(&path)?;
        let blocks = parse::parse(&text, path.parent().unwrap_or(Path::new("")))
            .map_err(|(line, wrong)| Failure::Usage(format!("{}:{line}: {wrong}; noctule-config(5) describes the file", path.display())))?;
        Ok(Self { path: Some(path), blocks })
    }

    /// What is said for a host; of several that match, the first.
    fn settings(&self, host: &str) -> Settings {
        let mut settings = Settings::default();
        self.blocks.iter().filter(|block| block.is_for(host)).for_each(|block| settings.fill(&block.settings));
        settings
    }

    /// Names of hosts in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().flat_map(Block::names)
    }

    /// `HOST[:PORT]` as it is to be connected to, and what is said for it.
    fn resolve(&self, text: &str, port: Option<u16>) -> Result<(String, Settings), Failure> {
        if self.blocks.is_empty() {
            return Ok((text.to_owned(), Settings::default()));
        }
        let written: HostPort = text.parse().map_err(Failure::Usage)?;
        let settings = self.settings(written.host());
        let name = settings.host_name.as_deref().unwrap_or(written.host());
        // An address of the overlay has no port.
        let port = written.port().or(settings.port.filter(|_| port.is_none())).filter(|p| written.port().is_some() || *p != DEFAULT_PORT);
        let host = name.parse::<HostPort>().map_err(Failure::Usage)?;
        Ok((host.with(port).to_string(), settings))
    }

    fn wrong(&self, what: &str) -> Failure {
        let file = self.path.as_deref().unwrap_or(Path::new("config")).display();
        Failure::Usage(format!("{file}: {what}; -F none leaves the file out"))
    }

    /// What the groups of options share.
    fn apply(&self, settings: &Settings, identity: &mut IdentityArgs, via: &mut ViaArgs) -> Result<(), Failure> {
        let Settings { key, psk, mtu, timeout, .. } = settings.clone();
        identity.key = identity.key.take().or(key);
        identity.psk = identity.psk.take().or(psk);
        identity.mtu = identity.mtu.or(mtu);
        identity.timeout = identity.timeout.or(timeout);
        let Some(nodes) = settings.via.clone().filter(|_| via.via.is_empty()) else { return Ok(()) };
        via.via = nodes;
        via.via_key = settings.via_key.clone().unwrap_or_default();
        via.via_psk = settings.via_psk.clone();
        via.address = settings.address;
        if via.address.is_none() {
            return Err(self.wrong("Via needs Address, this side's own in the overlay"));
        }
        if identity.no_encryption {
            return Err(self.wrong("Via, over which everything is encrypted, does not go with --no-encryption"));
        }
        Ok(())
    }
}

/// Takes over what concerns the key of one host and the paths to it.
fn apply_peer(settings: &Settings, peer: &mut PeerArgs) {
    // One that is to be remembered is not pinned.
    if peer.peer_key.is_none() && !peer.accept_new {
        peer.peer_key = settings.peer_key;
    }
    if peer.known_hosts.is_none() && peer.peer_key.is_none() {
        peer.known_hosts.clone_from(&settings.known_hosts);
    }
    if peer.path.is_empty() {
        peer.path = settings.paths.clone().unwrap_or_default();
    }
}

impl PingArgs {
    /// Fills in what the file says for the host.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let config = HostConfig::open(&self.hosts)?;
        let settings;
        (self.host, settings) = config.resolve(&self.host, self.port)?;
        self.cc = self.cc.or(settings.cc);
        apply_peer(&settings, &mut self.peer);
        config.apply(&settings, &mut self.identity, &mut self.via)
    }
}

impl ProxyArgs {
    /// Fills in what the file says for the host.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let Some(host) = &self.host else { return Ok(()) };
        let config = HostConfig::open(&self.hosts)?;
        let (host, settings) = config.resolve(host, self.port)?;
        self.host = Some(host);
        self.cc = self.cc.or(settings.cc);
        apply_peer(&settings, &mut self.peer);
        config.apply(&settings, &mut self.identity, &mut self.via)
    }
}

impl PerfArgs {
    /// Fills in what the file says for the host.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let Some(host) = &self.client else { return Ok(()) };
        let config = HostConfig::open(&HostsArgs { client_config: self.client_config.clone() })?;
        let (host, settings) = config.resolve(host, self.listen.port)?;
        self.client = Some(host);
        self.cc = self.cc.or(settings.cc);
        apply_peer(&settings, &mut self.peer);
        config.apply(&settings, &mut self.identity, &mut self.via)
    }
}

impl DoctorArgs {
    /// Fills in what the file says for the host.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let Some(host) = &self.host else { return Ok(()) };
        let config = HostConfig::open(&self.hosts)?;
        let (host, settings) = config.resolve(host, self.port)?;
        self.host = Some(host);
        // It looks at the way to the host itself.
        config.apply(&Settings { via: None, ..settings }, &mut self.identity, &mut ViaArgs::default())
    }
}

impl GetArgs {
    /// Fills in what the file says for the host.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let config = HostConfig::open(&self.hosts)?;
        let Some(host) = crate::transfer::get::host_of(self).filter(|_| !config.blocks.is_empty()) else { return Ok(()) };
        let (host, settings) = config.resolve(&host, self.port)?;
        self.resolved = Some(host);
        self.cc = self.cc.or(settings.cc);
        self.limit_rate = self.limit_rate.or(settings.limit_rate);
        apply_peer(&settings, &mut self.peer);
        config.apply(&settings, &mut self.identity, &mut self.via)
    }
}

impl SendArgs {
    /// Fills in what the file says for the hosts.
    pub fn fill_in(&mut self) -> Result<(), Failure> {
        let config = HostConfig::open(&self.hosts)?;
        if config.blocks.is_empty() {
            return Ok(());
        }
        let first = match (self.mode, self.one_way) {
            (SendMode::Brctp, false) => 1,
            _ => self.words.len().saturating_sub(1),
        };
        let mut all: Vec<Settings> = Vec::new();
        for word in self.words.iter_mut().skip(first) {
            // What is no text is told where words are looked at.
            let Some(text) = word.to_str() else { continue };
            let (host, settings) = config.resolve(text, self.port)?;
            *word = OsString::from(host);
            all.push(settings);
        }
        let Some(settings) = all.first() else { return Ok(()) };
        if all.iter().any(|other| other.common() != settings.common()) {
            return Err(config.wrong(
                "the hosts differ in more than HostName, Port and PeerKey: one command has one key, one way and one rate for all of them",
            ));
        }
        self.cc = self.cc.or(settings.cc);
        if self.one_way {
            // No congestion control, no answers; the keys of receivers are named.
            if self.to.is_empty() {
                self.to.extend(settings.peer_key);
            }
        } else {
            self.limit_rate = self.limit_rate.or(settings.limit_rate);
            match &all[..] {
                [_] if self.to.is_empty() => apply_peer(settings, &mut self.peer),
                _ => self.pinned = all.iter().map(|s| s.peer_key).collect(),
            }
        }
        config.apply(settings, &mut self.identity, &mut self.via)
    }
}

/// Reads a file; whatever it is, a refusal names its line.
#[cfg(any(test, fuzzing))]
pub fn check(text: &str) {
    match parse::parse(text, Path::new("/home")) {
        Ok(blocks) => {
            let config = HostConfig { path: None, blocks };
            let _ = config.settings("hill.example.org");
        }
        Err((line, wrong)) => assert!(line > 0 && !wrong.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn key(n: u8) -> PublicKey {
        noctule::SecretKey::from_bytes([n; 32]).public()
    }

    /// A command as it is after the file was read.
    fn filled(file: &Path, line: &str) -> Result<Command, Failure> {
        let words = line.split_whitespace().map(|w| if w == "FILE" { file.to_str().unwrap() } else { w });
        let mut command = Cli::try_parse_from(std::iter::once("noctule").chain(words)).unwrap().command;
        match &mut command {
            Command::Send(a) => a.fill_in()?,
            Command::Get(a) => a.fill_in()?,
            Command::Ping(a) => a.fill_in()?,
            Command::Perf(a) => a.fill_in()?,
            Command::Doctor(a) => a.fill_in()?,
            _ => unreachable!(),
        }
        Ok(command)
    }

    #[test]
    fn first_match_counts_and_the_command_line_goes_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = format!(
            "Host hill\n  HostName 192.0.2.7\n  Port 5000\n  PeerKey {}\n  CC cubic\nHost h* !home\n  Port 6000\n  LimitRate 20mbit\n  PskFile psk\nHost over\n  HostName 10.9.0.7\n  Via gate:7 mast\n  Address 10.9.0.1\nHost *\n  IdentityFile /keys/own\n  CC reno\n",
            key(1)
        );
        std::fs::write(&path, text).unwrap();
        let ping = |line: &str| match filled(&path, &format!("ping -F FILE {line}")).unwrap() {
            Command::Ping(args) => args,
            _ => unreachable!(),
        };
        let hill = ping("hill");
        assert_eq!(
            (hill.host.as_str(), hill.peer.peer_key, hill.cc.unwrap().to_string()),
            ("192.0.2.7:5000", Some(key(1)), "cubic".to_owned())
        );
        assert_eq!((hill.identity.key, hill.identity.psk), (Some("/keys/own".into()), Some(dir.path().join("psk"))));
        assert_eq!(ping("hill:7").host, "192.0.2.7:7");
        let told = ping("-p 7 --cc bbr --key mine hill");
        assert_eq!((told.host.as_str(), told.port, told.identity.key), ("192.0.2.7", Some(7), Some("mine".into())));
        assert_eq!(told.cc.unwrap().to_string(), "bbr");
        assert_eq!((ping("home").host.as_str(), ping("hut").host.as_str()), ("home", "hut:6000"));
        let over = ping("over");
        assert_eq!((over.host.as_str(), over.via.via.len(), over.via.address), ("10.9.0.7", 2, Some("10.9.0.1".parse().unwrap())));
        assert!(ping("over --via other --address 10.9.0.2").via.via == ["other"]);
        let Command::Send(send) = filled(&path, "send -F FILE file hill").unwrap() else { unreachable!() };
        assert_eq!((send.words[1].to_str(), send.limit_rate.is_some(), send.peer.peer_key), (Some("192.0.2.7:5000"), true, Some(key(1))));
        let Command::Get(get) = filled(&path, "get -F FILE hill:docs .").unwrap() else { unreachable!() };
        assert_eq!((get.resolved.as_deref(), get.limit_rate.is_some()), (Some("192.0.2.7:5000"), true));
        let Command::Send(many) = filled(&path, "send --mode brctp -F FILE file hall hut").unwrap() else { unreachable!() };
        assert_eq!(many.pinned, [None, None]);
        let failure = filled(&path, "send --mode brctp -F FILE file hut home").map(|_| ()).unwrap_err().to_string();
        assert!(failure.contains("the hosts differ"), "{failure}");
        let Command::Ping(none) = filled(&path, "ping -F none hill").unwrap() else { unreachable!() };
        assert_eq!((none.host.as_str(), none.peer.peer_key), ("hill", None));
        let Command::Perf(perf) = filled(&path, "perf --client-config FILE -c hill").unwrap() else { unreachable!() };
        assert_eq!(perf.client.as_deref(), Some("192.0.2.7:5000"));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line_and_so_is_one_that_others_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let refused = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            filled(&path, "ping -F FILE hill").map(|_| ()).unwrap_err().to_string()
        };
        assert!(refused("\nHost hill\nPrt 5\n", 0o600).contains("config:3: unknown keyword"), "{}", refused("\nHost hill\nPrt 5\n", 0o600));
        assert!(refused("Host hill\nVia gate\n", 0o600).contains("Via needs Address"));
        assert!(refused("Host hill\n", 0o666).contains("chmod o-w"));
        std::fs::remove_file(&path).unwrap();
        assert!(filled(&path, "ping -F FILE hill").is_err());
    }
}
