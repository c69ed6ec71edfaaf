//! What concerns keys on the command line: `keygen`, and the options that every command with a link shares.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::{KEYS, PATH};
use crate::code::Code;
use crate::further_path::FurtherPath;
use crate::units::Patience;
use clap::Args;
use noctule::PublicKey;
use std::path::PathBuf;

/// Bytes of the smallest IPv4 packet that the protocol can live with.
pub const LEAST_MTU: u16 = 828;

/// `noctule keygen`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct KeygenArgs {
    /// File of the key [default: $XDG_CONFIG_HOME/noctule/key or ~/.config/noctule/key; shared-key there with --shared].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a key that exists: peers that pinned the old one will refuse the new one.
    #[arg(long)]
    pub force: bool,
    /// Make a pre-shared key for --psk instead: copy its file to the other side.
    #[arg(long)]
    pub shared: bool,
    /// Make nothing: print public key and fingerprint of the key in FILE, or of the public key that is given here.
    #[arg(long, value_name = "KEY", num_args = 0..=1, conflicts_with_all = ["force", "shared"])]
    pub fingerprint: Option<Option<PublicKey>>,
    /// Make nothing: forget the remembered key of this host (HOST or HOST:PORT), because it has a new one.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["output", "force", "shared", "fingerprint"])]
    pub forget: Option<String>,
    /// The file of remembered keys [default: known_hosts beside the default key].
    #[arg(long, value_name = "FILE", requires = "forget")]
    pub known_hosts: Option<PathBuf>,
}

/// This side's key, how the link is protected, and what it may send. Part of every command that has a link.
#[derive(Clone, Debug, Default, Args)]
pub struct IdentityArgs {
    /// This side's secret key [default: the one that keygen made].
    #[arg(long, value_name = "FILE", env = "NOCTULE_KEY_FILE", hide_env_values = true, help_heading = KEYS)]
    pub key: Option<PathBuf>,
    /// Pre-shared key (keygen --shared) that both sides must have, besides their own keys.
    #[arg(long, value_name = "FILE", env = "NOCTULE_PSK_FILE", hide_env_values = true, help_heading = KEYS)]
    pub psk: Option<PathBuf>,
    /// Encrypt nothing, for measurements. Only if the other side says so too, otherwise it is an error: nothing is sent in the clear by mistake.
    #[arg(long, help_heading = KEYS)]
    pub no_encryption: bool,
    /// Largest packet to send, in bytes with its IP header, 828 to 65535 [default: 1500]: a ceiling. What this host's route and the path take below it is
    /// found out by itself; above 1500 it lets larger packets be tried.
    #[arg(long, value_name = "BYTES", help_heading = PATH, value_parser = clap::value_parser!(u16).range(i64::from(LEAST_MTU)..))]
    pub mtu: Option<u16>,
    /// Give the other side up when it has said nothing for so long although it was asked, 1s to 30s; the shorter of both sides' holds [default: 30s]. An
    /// attempt to connect ends after this, too, if it is less than 10 s.
    #[arg(long, value_name = "TIME", help_heading = PATH)]
    pub timeout: Option<Patience>,
}

/// The host that this side wants to reach. Part of every command that connects.
#[derive(Clone, Debug, Default, Args)]
pub struct PeerArgs {
    /// The public key that the other side must have, as it prints it [default: the key remembered for the host].
    #[arg(long, value_name = "KEY", help_heading = KEYS)]
    pub peer_key: Option<PublicKey>,
    /// Take and remember the key of a host that is not known yet, without asking. A key that changed is still refused.
    #[arg(long, conflicts_with = "peer_key", help_heading = KEYS)]
    pub accept_new: bool,
    /// The code that the other side shows: proves both keys, so that nobody is asked, and the other side takes this one. Without CODE it is taken from
    /// the environment (NOCTULE_CODE) or asked for, and no list of processes shows it.
    #[arg(long, value_name = "CODE", num_args = 0..=1, conflicts_with = "accept_new", help_heading = KEYS)]
    pub code: Option<Option<Code>>,
    /// The file of remembered keys [default: known_hosts beside the default key].
    #[arg(long, value_name = "FILE", help_heading = KEYS)]
    pub known_hosts: Option<PathBuf>,
    /// Use another path to the host at the same time: from this address of this host, to that one of the other's; may be given several times.
    /// Their rates add up, and one that breaks is replaced by the others.
    #[arg(long, value_name = "FROM[,TO]", help_heading = PATH)]
    pub path: Vec<FurtherPath>,
    /// Host and key are those of a link: the key is remembered, and may not contradict one that is.
    #[arg(skip)]
    pub is_linked: bool,
}

/// Which keys may connect, or that a code lets one in. Part of every command that listens.
#[derive(Clone, Debug, Default, Args)]
pub struct AccessArgs {
    /// Let only these public keys connect, for everything that this command serves; may be given several times.
    #[arg(long, value_name = "KEY", help_heading = KEYS)]
    pub allow: Vec<PublicKey>,
    /// Let only the keys in FILE connect, each with its options [default: authorised_keys beside the default key, if it exists].
    #[arg(long, visible_alias = "authorized-keys", value_name = "FILE", help_heading = KEYS)]
    pub authorised_keys: Option<PathBuf>,
    /// Let every peer in that reaches the port.
    #[arg(long, conflicts_with_all = ["allow", "authorised_keys", "code", "remember"], help_heading = KEYS)]
    pub anyone: bool,
    /// Add the key of a sender that had the code to the file of authorised keys: next time it needs none.
    #[arg(long, help_heading = KEYS)]
    pub remember: bool,
}
