//! Options and arguments of `serve` and `get`, and those that they share with `send` and `recv`.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::{KEYS, PATH};
use super::ordered::mixed;
use super::{AccessArgs, HostsArgs, IdentityArgs, ListenArgs, PeerArgs, SendMode, TraceArgs, ViaArgs};
use crate::transfer::{Kept, Rule};
use crate::units::{CcName, GiveUp, Rate, Size};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;
use std::path::PathBuf;

/// `noctule serve`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ServeArgs {
    /// The directory to offer; nothing outside of it can be asked for.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Take what `noctule send` brings, too, from keys that may write.
    #[arg(long)]
    pub writable: bool,
    /// Send contents no faster than this (500kbit, 20mbit); to each that asks.
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<Rate>,
    /// Show a code that lets one more peer in, besides the keys that may get files [default: if no other option lets a peer in].
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
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

impl ServeArgs {
    /// An option that is given and says something about files that are sent here.
    pub fn for_writers(&self) -> Option<&'static str> {
        let KeepArgs { overwrite, outside_links, preserve_modes, max_size, xattrs } = &self.keeping;
        [
            ("--overwrite", *overwrite),
            ("--outside-links", *outside_links),
            ("--preserve-modes", *preserve_modes),
            ("--max-size", max_size.is_some()),
            ("--xattrs", xattrs.is_some()),
            ("--allow-delete", self.allow_delete),
        ]
        .into_iter()
        .find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// `noctule get`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS), override_usage = "noctule get [OPTIONS] HOST:PATH... DIR\n       noctule get --list [OPTIONS] HOST:PATH...")]
pub struct GetArgs {
    /// What to get of a host that runs `noctule serve`: HOST:PATH, HOST:PORT:PATH or [IPV6]:PATH, files and directories, and patterns that the other side
    /// resolves (quote them); HOST: alone is everything there. Then the directory to put it into; it must exist.
    #[arg(required = true, num_args = 1.., value_name = "HOST:PATH... DIR")]
    pub words: Vec<OsString>,
    /// Get nothing: list what is there, of a directory what lies directly in it.
    #[arg(long, conflicts_with_all = ["delete", "update", "overwrite"])]
    pub list: bool,
    /// With --list: all that lies below, too.
    #[arg(short, long, requires = "list")]
    pub recursive: bool,
    /// Get nothing: list what would happen to each entry.
    #[arg(short = 'n', long, conflicts_with = "list")]
    pub dry_run: bool,
    /// Leave files as they are that are newer here, and replace those that are older.
    #[arg(long)]
    pub update: bool,
    /// Delete what is here and not there, in the directories that are got, once all of it has arrived. With HOST: alone that is DIR itself.
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub keeping: KeepArgs,
    /// Ask for contents no faster than this (500kbit, 20mbit, 2MB: bits or bytes per second), which the other side keeps.
    #[arg(long, value_name = "RATE", conflicts_with = "list")]
    pub limit_rate: Option<Rate>,
    /// How contents travel. With brctp one file is got, as a rateless object.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub mode: SendMode,
    /// Refuse lists of more files, directories and links.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub max_entries: u64,
    /// When the other side falls silent: go on by itself for so long after it was last heard (90s, 15min, 2h); 0 ends with the first silence.
    #[arg(long, value_name = "TIME", default_value = "15min", help_heading = PATH)]
    pub give_up: GiveUp,
    /// Streams that carry files side by side; the other side opens 4 at most.
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub parallel: u8,
    /// UDP port of HOST, where it names none [default: 4242].
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
    /// The host as the file of hosts has it.
    #[arg(skip)]
    pub resolved: Option<String>,
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
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How arriving files are stored. Part of every command that receives files.
#[derive(Clone, Debug, Default, Args)]
pub struct KeepArgs {
    /// Replace files that exist.
    #[arg(long)]
    pub overwrite: bool,
    /// Make symbolic links that lead out of the directory, too.
    #[arg(long)]
    pub outside_links: bool,
    /// Give files the permissions that they have at the sender, write permission of group and others included [default: without that, and within the
    /// umask].
    #[arg(long)]
    pub preserve_modes: bool,
    /// Refuse transfers of more bytes, holes included [default: what is free on the disk].
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<Size>,
    /// Keep extended attributes (user.*) and POSIX ACLs that come; with =security those of security modules, too, which only root can set.
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "user")]
    pub xattrs: Option<Kept>,
}

/// Bounds of transfers. Part of every command that serves them.
#[derive(Clone, Debug, Args)]
pub struct LimitArgs {
    /// Refuse transfers of more files, directories and links.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub max_entries: u64,
    /// Transfers at a time, of all peers; one has at most 16.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub max_transfers: u16,
    /// Memory for the lists of files of all transfers; one takes at most half of it.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub manifest_memory: Size,
    /// Memory for the blocks of all objects (--mode brctp) that travel at a time; those of one key take at most half of it, each at most 64 MiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub object_memory: Size,
}

/// `--exclude` and `--include`, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub struct FilterArgs {
    /// The first that matches decides.
    pub rules: Vec<Rule>,
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let rules = mixed(matches, "include", "exclude").into_iter();
        Ok(Self { rules: rules.map(|(is_include, pattern)| Rule { is_include, pattern }).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let rule = |name: &'static str| Arg::new(name).long(name).value_name("GLOB").action(ArgAction::Append);
        command
            .arg(rule("exclude").help(
                "Leave out what matches; the first --exclude or --include that matches decides. '*.o' is for names at any depth, '/top/x' for the whole name, 'cache/' for directories; '**' matches '/', too",
            ))
            .arg(rule("include").help("Take what matches, whatever a later --exclude says"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterArgs,
    }

    #[test]
    fn rules_keep_their_order_on_the_command_line() {
        let line = Line::parse_from(["x", "--include", "a", "--exclude=b", "--include", "c", "--exclude", "*"]);
        let rules: Vec<_> = line.filter.rules.iter().map(|rule| (rule.is_include, rule.pattern.as_str())).collect();
        assert_eq!(rules, [(true, "a"), (false, "b"), (true, "c"), (false, "*")]);
    }
}
