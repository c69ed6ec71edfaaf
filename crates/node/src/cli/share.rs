//! What `proxy share` takes on the command line, and where connections come from as `proxy serve` tells targets.

use super::exits::{self, EXITS};
use super::heading::{KEYS, PATH};
use crate::address::HostPort;
use crate::code::Code;
use crate::proxy::link::Name;
use clap::{Args, ValueHint};
use noctule::PublicKey;
use noctule_proxy::{Pattern, Sources, Trusted};
use std::path::PathBuf;
use std::str::FromStr;

/// `noctule proxy share`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ProxyShareArgs {
    /// Where others reach the server: HOST or HOST:PORT [default: this host's address, as it leads outside, and port 4242].
    #[arg(value_hint = ValueHint::Hostname)]
    pub host: Option<HostPort>,
    /// What people call the server; it is shown where the link is taken.
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,
    /// Put the code into the link that noctule proxy serve shows: it lets one peer in, once.
    #[arg(long, value_name = "CODE", help_heading = KEYS)]
    pub code: Option<Code>,
    /// The server's secret key, whose public half goes into the link [default: the one that keygen made].
    #[arg(long, value_name = "FILE", env = "NOCTULE_KEY_FILE", hide_env_values = true, help_heading = KEYS)]
    pub key: Option<PathBuf>,
    /// The public key of the server, if it is another host.
    #[arg(long, value_name = "KEY", conflicts_with = "key", help_heading = KEYS)]
    pub peer_key: Option<PublicKey>,
    /// UDP port of the server, where HOST names none [default: 4242].
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
}

/// How targets hear where a connection comes from. Goes into `proxy serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct SourceArgs {
    /// Tell these targets where a connection comes from, by a header of the PROXY protocol, version 2, before its bytes. Only for targets that expect it;
    /// all is every target. May be given several times.
    #[arg(long, value_name = "HOST|NET[:PORT[-PORT]]")]
    pub send_proxy_v2: Vec<Pattern>,
    /// Connect to these targets from the client's own address. Needs CAP_NET_ADMIN, and routes that bring their answers back here. May be given several times.
    #[arg(long, value_name = "HOST|NET[:PORT[-PORT]]")]
    pub as_client: Vec<Pattern>,
    /// Believe the other side with this key, or all, when it says where a connection comes from (proxy --tell-source) [default: the client is the other
    /// side itself]. May be given several times.
    #[arg(long, value_name = "KEY|all")]
    pub trust_source: Vec<Trust>,
}

/// A key, or every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// This one.
    Key(PublicKey),
    /// Whichever may use the proxy.
    All,
}

impl FromStr for Trust {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            key => key.parse().map(Self::Key).map_err(|e| format!("neither a key nor all: {e}")),
        }
    }
}

impl SourceArgs {
    /// The same for the proxy.
    pub fn sources(&self) -> Sources {
        let keys = self.trust_source.iter().map(|trust| match trust {
            Trust::Key(key) => Some(*key),
            Trust::All => None,
        });
        let trusted = keys.collect::<Option<Vec<_>>>().map_or(Trusted::All, Trusted::Keys);
        Sources { trusted, send_proxy_v2: self.send_proxy_v2.clone(), as_client: self.as_client.clone() }
    }
}
