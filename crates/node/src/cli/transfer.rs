//! Options and arguments of `send` and `recv`.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::{KEYS, PATH};
use super::{AccessArgs, FilterArgs, HostsArgs, IdentityArgs, KeepArgs, LimitArgs, ListenArgs, PeerArgs, TraceArgs, ViaArgs};
use crate::transfer::Kept;
use crate::units::{CcName, GiveUp, Rate, Share};
use clap::{Args, ValueEnum, ValueHint};
use noctule::PublicKey;
use std::ffi::OsString;
use std::path::PathBuf;

/// How contents travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SendMode {
    /// Files and directories, with whatever the receiver has taken into account.
    #[default]
    Brtp,
    /// One file as a rateless object, to one receiver or, by `send`, to many: blocks of coded packets until they have them; the only mode for --one-way.
    Brctp,
}

/// `noctule send`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS), override_usage = "noctule send [OPTIONS] FILE... HOST\n       noctule send --mode brctp [OPTIONS] FILE HOST...")]
pub struct SendArgs {
    /// Files and directories ('-': standard input), then HOST, HOST:PORT or [IPV6]:PORT as the last argument. With --mode brctp one file, then
    /// any number of hosts.
    #[arg(required = true, num_args = 1.., value_name = "FILE... HOST", value_hint = ValueHint::Hostname)]
    pub words: Vec<OsString>,
    /// UDP port of the hosts that name none [default: 4242].
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
    /// The name that standard input gets at the receiver [default: stdin].
    #[arg(long, value_name = "NAME")]
    pub name: Option<OsString>,
    /// Send contents no faster than this (500kbit, 20mbit, 2MB: bits or bytes per second); to each of several receivers.
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<Rate>,
    /// When the other side falls silent: go on by itself for so long after it was last heard (90s, 15min, 2h); 0 ends with the first silence.
    #[arg(long, value_name = "TIME", default_value = "15min", conflicts_with = "one_way", help_heading = PATH)]
    pub give_up: GiveUp,
    /// Streams that carry files side by side.
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub parallel: u8,
    /// Send nothing: ask the receiver what it has, and list what would happen to each entry.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Leave files as they are that are newer at the receiver.
    #[arg(long)]
    pub update: bool,
    /// Let the receiver delete what is not here, in the directories that are sent, once all of it has arrived; it has to run with --allow-delete.
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Send extended attributes (user.*) and POSIX ACLs, too; with =security those of security modules, which only root can read.
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "user")]
    pub xattrs: Option<Kept>,
    /// How contents travel.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub mode: SendMode,
    /// With --mode brctp: expect no answer at all, to `noctule recv --one-way` at any number of receivers; HOST may be a multicast address.
    #[arg(long, conflicts_with_all = ["accept_new", "known_hosts", "dry_run", "limit_rate", "name", "via"])]
    pub one_way: bool,
    /// With --one-way: the rate, headers included. There is no congestion control: use what is reserved for this.
    #[arg(long, value_name = "RATE", requires = "one_way")]
    pub rate: Option<Rate>,
    /// With --mode brctp and several hosts: the public key of a receiver, as it prints it, once for each, in their order [default: the keys remembered for
    /// them]. With --one-way: once for each receiver.
    #[arg(long, value_name = "KEY", help_heading = KEYS)]
    pub to: Vec<PublicKey>,
    /// With --one-way: send so much more than the file (30%), then end.
    #[arg(long, value_name = "SHARE", requires = "one_way", conflicts_with = "carousel")]
    pub overhead: Option<Share>,
    /// With --one-way: go on until interrupted, with fresh packets each time round.
    #[arg(long, requires = "one_way")]
    pub carousel: bool,
    /// Keys that the file of hosts has for several hosts.
    #[arg(skip)]
    pub pinned: Vec<Option<PublicKey>>,
    #[command(flatten)]
    pub hosts: HostsArgs,
    #[command(flatten)]
    pub peer: PeerArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
    #[command(flatten)]
    pub via: ViaArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Congestion control: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE for reserved bandwidth (rate:100mbit) [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `noctule recv`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct RecvArgs {
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Directory to write to; must exist.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub into: PathBuf,
    /// Receive what `noctule send --mode brctp --one-way` sends, and send nothing at all; --bind may be a multicast address.
    #[arg(long, conflicts_with = "via")]
    pub one_way: bool,
    /// Write the content of one file to standard output instead, and end.
    #[arg(long, conflicts_with_all = ["into", "overwrite", "outside_links", "preserve_modes", "max_size", "xattrs", "allow_delete"])]
    pub stdout: bool,
    /// Show a code that lets one more sender in, besides the keys that may send [default: if no other option lets a sender in].
    #[arg(long, help_heading = KEYS)]
    pub code: bool,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
    #[command(flatten)]
    pub via: ViaArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub keeping: KeepArgs,
    /// Let senders delete what they do not have (send --delete), in the directories that they send.
    #[arg(long)]
    pub allow_delete: bool,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// End after one transfer that succeeded. What was refused or broke off leaves it waiting.
    #[arg(long)]
    pub once: bool,
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}
