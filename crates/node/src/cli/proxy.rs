//! What `proxy` and `proxy serve` take on the command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::{INTERCEPTION, KEYS, PATH};
use super::intercept::InterceptArgs;
use super::ordered::mixed;
use super::{AccessArgs, HostsArgs, IdentityArgs, ListenArgs, PeerArgs, ProxyShareArgs, SourceArgs, TraceArgs, ViaArgs};
use crate::failure::Failure;
use crate::proxy::link::Link;
use crate::units::{CcName, Span};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueHint};
use ipnet::IpNet;
use noctule_proxy::{Bind, Forwards, Pattern, Rule, Target};
use std::io::{BufRead, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Least lifetime of a datagram, and least time after which a UDP source is forgotten.
const LEAST_TIME: Duration = Duration::from_millis(1);

/// `noctule proxy`.
#[derive(Debug, Args)]
#[command(
    after_help = exits::help(EXITS),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "noctule proxy [OPTIONS] HOST -L PORT:TARGET:PORT... -D PORT... -R PORT:TARGET:PORT...\n       noctule proxy [OPTIONS] HOST -W TARGET:PORT\n       noctule proxy [OPTIONS] HOST --intercept own|clients...\n       noctule proxy [OPTIONS] --from-link LINK -D PORT...\n       noctule proxy --config FILE [--check]\n       noctule proxy serve [OPTIONS]\n       noctule proxy rules [OPTIONS] [HOST]\n       noctule proxy share [OPTIONS] [HOST]\n       noctule proxy status [OPTIONS]\n       noctule proxy kick USER|CONNECTION"
)]
pub struct ProxyArgs {
    /// Be the other side.
    #[command(subcommand)]
    pub task: Option<ProxyTask>,
    /// The host that runs `noctule proxy serve`.
    #[arg(required_unless_present_any = ["config", "plugin", "from_link"], value_hint = ValueHint::Hostname)]
    pub host: Option<String>,
    /// Take server, key and perhaps a code from a link of noctule proxy share; - reads it from standard input, so that no list of processes shows it. The
    /// key is remembered for the host.
    #[arg(long, value_name = "LINK", conflicts_with_all = ["host", "peer_key", "accept_new", "code", "port", "via"])]
    pub from_link: Option<FromLink>,
    /// Listen on PORT of this host and connect to TARGET from the other side, which resolves its name. BIND is an address of this host, or * for all of
    /// them [default: localhost]; an IPv6 address is in brackets; udp: in front is for UDP; PORT may be a range, as 8000-8010:TARGET:9000-9010. May be given several times.
    #[arg(short = 'L', long, value_name = "[udp:][BIND:]PORT:TARGET:PORT")]
    pub local: Vec<Forwards>,
    /// Listen on PORT of this host for SOCKS 5, SOCKS 4 and 4a, and HTTP, whichever a program speaks. May be given several times.
    #[arg(short = 'D', long, value_name = "[BIND:]PORT")]
    pub dynamic: Vec<Bind>,
    /// Listen on PORT of the other side and connect to TARGET from this one; the other side needs --allow-remote-listen. May be given several times.
    #[arg(short = 'R', long, value_name = "[udp:][BIND:]PORT:TARGET:PORT")]
    pub remote: Vec<Forwards>,
    /// Connect standard input and output to TARGET, for ProxyCommand of ssh: noctule proxy HOST -W %h:%p.
    #[arg(short = 'W', long, value_name = "TARGET:PORT", conflicts_with_all = ["local", "dynamic", "remote", "intercept", "json"])]
    pub stdio: Option<Target>,
    /// How long a UDP datagram may be under way before it is given up.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = some_time)]
    pub udp_lifetime: Span,
    /// Forget a UDP source that has neither sent nor received anything for so long.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    pub udp_idle: Span,
    /// Connections to these ports go before others and are repaired ahead of losses: for typing.
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_value = "22,23,3389,5900")]
    pub interactive: Vec<u16>,
    /// Tell the server from which address each TCP connection comes; it believes that if it has --trust-source for this key.
    #[arg(long)]
    pub tell_source: bool,
    /// Connections from this address or network to the ports of -L and -D begin with a header of the PROXY protocol, version 1 or 2, which says where they
    /// come from: for HAProxy or nginx in front. One without is reset. May be given several times.
    #[arg(long, value_name = "IP|NET", value_parser = net)]
    pub accept_proxy: Vec<IpNet>,
    #[command(flatten)]
    pub intercept: InterceptArgs,
    /// Only listen: another tool makes the rules of the firewall, after noctule proxy rules.
    #[arg(long, requires = "intercept", help_heading = INTERCEPTION)]
    pub no_rules: bool,
    /// Take options from FILE (TOML): its keys are the long options and host. Those of the command line go before it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only check the file, and say which command it stands for.
    #[arg(long, requires = "config")]
    pub check: bool,
    /// Be the plugin of a program that starts it as SIP003 says (shadowsocks): all is said in SS_REMOTE_HOST, SS_REMOTE_PORT, SS_LOCAL_HOST, SS_LOCAL_PORT
    /// and SS_PLUGIN_OPTIONS (long options, joined by ;, and server).
    #[arg(long, exclusive = true)]
    pub plugin: bool,
    /// UDP port of HOST, where it names none [default: 4242].
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
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
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Bytes of standard input in which a link has to stand.
const MOST_OF_A_LINE: u64 = 4096;

/// A link on the command line, or one that is to be read.
#[derive(Clone, Debug)]
pub enum FromLink {
    /// Of standard input, a line.
    Stdin,
    /// This one.
    Link(Box<Link>),
}

impl FromStr for FromLink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Stdin),
            link => Ok(Self::Link(Box::new(link.parse()?))),
        }
    }
}

impl ProxyArgs {
    /// Puts what the link says in its place.
    pub fn take_link(&mut self) -> Result<(), Failure> {
        let link = match self.from_link.take() {
            None => return Ok(()),
            Some(FromLink::Link(link)) => *link,
            Some(FromLink::Stdin) => {
                let mut line = String::new();
                // More than any link has.
                std::io::stdin().lock().take(MOST_OF_A_LINE).read_line(&mut line).map_err(|e| Failure::system("standard input", e))?;
                line.trim().parse().map_err(|e| Failure::Usage(format!("--from-link -: {e}")))?
            }
        };
        let called = link.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        note!("noctule: the link leads to {}{called}, whose key has the fingerprint {}", link.host(), link.key.fingerprint());
        self.host = Some(link.host());
        (self.peer.peer_key, self.peer.code, self.peer.is_linked) = (Some(link.key), link.code.map(Some), true);
        Ok(())
    }

    /// Something is to be intercepted.
    pub fn intercepts(&self) -> bool {
        !self.intercept.intercept.is_empty()
    }

    /// Errors are to be printed as JSON.
    pub fn has_json_errors(&self) -> bool {
        match &self.task {
            Some(ProxyTask::Serve(args)) => args.json,
            Some(ProxyTask::Status(args)) => args.json,
            Some(ProxyTask::Rules(_) | ProxyTask::Share(_) | ProxyTask::Kick(_)) => false,
            None => self.json,
        }
    }
}

/// The other side.
#[derive(Debug, Subcommand)]
pub enum ProxyTask {
    /// Connect to what `noctule proxy` on the other side asks for; prints the command for it.
    Serve(Box<ProxyServeArgs>),
    /// Show users, connections, rates and quotas of the `noctule proxy serve` that runs on this host.
    Status(ProxyStatusArgs),
    /// End the connections and sessions of a user, or one connection.
    Kick(ProxyKickArgs),
    /// Print the rules of the firewall by which connections are intercepted, for nft or iptables; `noctule proxy` installs them itself.
    Rules(Box<ProxyRulesArgs>),
    /// Print a link that leads to a server, and its QR code: for `noctule proxy --from-link` on other hosts.
    Share(Box<ProxyShareArgs>),
}

/// Where the server is asked.
#[derive(Clone, Debug, Default, Args)]
pub struct ProxyApiArgs {
    /// Its socket, or its address on loopback, as --api of proxy serve names it [default: the one socket in the runtime directory that answers].
    #[arg(long, value_name = "PATH|ADDR:PORT")]
    pub api: Option<String>,
    /// The file with the secret of an address.
    #[arg(long, value_name = "FILE", requires = "api")]
    pub api_secret: Option<PathBuf>,
}

/// `noctule proxy status`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ProxyStatusArgs {
    #[command(flatten)]
    pub api: ProxyApiArgs,
    /// Show every connection, not only how many there are.
    #[arg(long)]
    pub connections: bool,
    /// As JSON, for programs.
    #[arg(long)]
    pub json: bool,
    /// Again and again, this far apart.
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = some_time)]
    pub watch: Option<Span>,
}

/// `noctule proxy kick`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ProxyKickArgs {
    /// Name or key of a user, or the number of a connection, as noctule proxy status shows them.
    #[arg(value_name = "USER|CONNECTION")]
    pub what: String,
    #[command(flatten)]
    pub api: ProxyApiArgs,
}

/// `noctule proxy rules`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ProxyRulesArgs {
    /// The host that runs `noctule proxy serve`, which is left alone.
    #[arg(value_hint = ValueHint::Hostname)]
    pub host: Option<String>,
    #[command(flatten)]
    pub intercept: InterceptArgs,
    /// For iptables and ip6tables, as a script of a shell.
    #[arg(long)]
    pub iptables: bool,
    /// Print nothing, and take away what a proxy that was killed has left in nft's tables and in the routing.
    #[arg(long, conflicts_with_all = ["intercept", "iptables", "host"])]
    pub remove: bool,
}

/// `noctule proxy serve`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct ProxyServeArgs {
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Let targets have any address: those of this host (127.0.0.1), of its own networks (10.0.0.0/8, 192.168.0.0/16), and link-local ones.
    #[arg(long)]
    pub allow_private: bool,
    /// Connect to this target, whatever is asked for.
    #[arg(long, value_name = "TARGET:PORT", conflicts_with_all = ["allow_target", "deny_target"])]
    pub only_target: Option<Target>,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Let the other side listen here (proxy -R), on any port that this user may bind.
    #[arg(long)]
    pub allow_remote_listen: bool,
    /// Connections, UDP sources and listeners of one key at a time.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,
    /// Forget a UDP source that has neither sent nor received anything for so long.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    pub udp_idle: Span,
    /// Take options from FILE (TOML): its keys are the long options, and [[user]] tables say what each user may do. Options of the command line go before it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only check the file, and say which command it stands for.
    #[arg(long, requires = "config")]
    pub check: bool,
    /// Where the status is told and users are ended: a Unix socket, an address on loopback (with --api-secret), or no [default: a socket in the runtime directory].
    #[arg(long, value_name = "PATH|ADDR:PORT|no")]
    pub api: Option<String>,
    /// A file with the secret that questions to an address have to name.
    #[arg(long, value_name = "FILE", requires = "api")]
    pub api_secret: Option<PathBuf>,
    /// Where the bytes of quotas are kept over restarts [default: proxy-quotas.json in the state directory].
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Show a code that lets one more peer in, besides the keys that may connect [default: if nothing else says which keys may].
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
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// A network, or one address.
fn net(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address).ok_or_else(|| format!("{text:?} is no address and no network: write 192.0.2.1 or 192.0.2.0/24"))
}

/// A time in which something can happen.
fn some_time(text: &str) -> Result<Span, String> {
    let time: Span = text.parse()?;
    if time.0 < LEAST_TIME { Err(format!("{text:?}: {} ms at least", LEAST_TIME.as_millis())) } else { Ok(time) }
}

/// `--allow-target` and `--deny-target`, in the order in which they stand on the command line.
#[derive(Clone, Debug, Default)]
pub struct TargetArgs {
    /// The first that matches decides.
    pub rules: Vec<Rule>,
}

impl FromArgMatches for TargetArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let rules = mixed(matches, "allow_target", "deny_target").into_iter();
        Ok(Self { rules: rules.map(|(allows, pattern)| Rule { allows, pattern }).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for TargetArgs {
    fn augment_args(command: Command) -> Command {
        let rule = |id: &'static str, name: &'static str| {
            Arg::new(id)
                .long(name)
                .value_name("HOST|NET[:PORT[-PORT]]")
                .value_parser(clap::value_parser!(Pattern))
                .action(ArgAction::Append)
        };
        command
            .arg(rule("allow_target", "allow-target").help(
                "Let these targets be reached, private ones too; the first --allow-target or --deny-target that matches decides. HOST is a name as it is asked for, whatever its address (.example.org: every name below it, too), or an address; all is every target",
            ))
            .arg(rule("deny_target", "deny-target").help("Let these not be reached (all:25 is that port everywhere), whatever a later --allow-target says"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command, ProxyTask};
    use clap::Parser;

    fn parse(line: &str) -> Result<super::ProxyArgs, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?;
        match cli.command {
            Command::Proxy(args) => Ok(args),
            _ => unreachable!(),
        }
    }

    #[test]
    fn rules_keep_their_order_and_forwards_repeat() {
        let args = parse("noctule proxy serve --deny-target 10.0.0.5 --allow-target 10.0.0.0/8 --deny-target all").unwrap();
        let Some(ProxyTask::Serve(serve)) = args.task else { panic!() };
        let shown: Vec<_> = serve.targets.rules.iter().map(|r| (r.allows, r.pattern.to_string())).collect();
        assert_eq!(shown, [(false, "10.0.0.5/32".into()), (true, "10.0.0.0/8".into()), (false, "all".into())]);
        let args =
            parse("noctule proxy hill -L 5432:db.internal:5432 -L udp:53:192.0.2.1:53 -D 1080 -D [::1]:1081 -R 8080:localhost:80").unwrap();
        assert_eq!((args.local.len(), args.dynamic.len(), args.remote.len()), (2, 2, 1));
    }

    #[test]
    fn what_contradicts_itself_is_told() {
        for (line, words) in [
            ("noctule proxy", "required"),
            ("noctule proxy hill -L 5432", "[BIND:]PORT:HOST:PORT"),
            ("noctule proxy hill -W h:1 -L 1:h:1", "cannot be used with"),
            ("noctule proxy hill -W h", "lacks a port"),
            ("noctule proxy serve --allow-target h:x", "no port"),
            ("noctule proxy serve --anyone --code", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
