//! `noctule send`: finds the files, and transfers them to one receiver or several.

use super::again::Again;
use super::attributes;
use super::entry::{Kind, shown};
use super::filter::Filter;
use super::progress::Reporter;
use super::sending::{Options, Sending};
use super::server::Farewell;
use super::source::{self, Choice, Sources};
use super::wire::Records;
use super::{CONTROL_TAG, object};
use crate::cli::{GetArgs, IdentityArgs, SendArgs, SendMode, TraceArgs, ViaArgs};
use crate::failure::Failure;
use crate::identity;
use crate::overlay::{self, Gateway};
use crate::units::CcName;
use noctule::{Endpoint, EndpointConfig, FlowOptions, NodeConfig, PublicKey, Session};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Sends everything and waits until the receiver has verified it.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    if let [only] = &args.words[..] {
        let text = format!("{only:?} is the only argument: name the files first, then the host (noctule send FILE... HOST)");
        return Err(Failure::Usage(text));
    }
    match (args.mode, args.one_way) {
        (SendMode::Brctp, true) => return object::one_way::run(args).await,
        (SendMode::Brctp, false) => return object::send::run(args).await,
        (SendMode::Brtp, true) => return Err(Failure::Usage("--one-way needs --mode brctp: files in the usual mode need answers".into())),
        (SendMode::Brtp, false) if !args.to.is_empty() => {
            return Err(Failure::Usage("--to is for --mode brctp; the key of the only receiver is said with --peer-key".into()));
        }
        (SendMode::Brtp, false) => {}
    }
    let (host, names) = args.words.split_last().ok_or_else(|| Failure::Usage("name files and a host".into()))?;
    let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let has_stream = names.iter().map(|name| source::stream(name)).collect::<Result<Vec<_>, _>>()?.iter().any(Option::is_some);
    if args.name.is_some() && !has_stream {
        return Err(Failure::Usage("--name names what comes from standard input or a pipe, but '-' is not among the sources".into()));
    }
    let mut files = Files { args: &args, names, found: None, reporter: Reporter::new(args.json, false) };
    let found = files.look().await?;
    attributes::tell_left_out(found.lessened, args.xattrs.unwrap_or_default());
    for path in &found.skipped {
        tell!("noctule: not sent, because it is no file, directory or link: {}", shown(path.as_os_str().as_encoded_bytes()));
    }
    for (_, failure) in &found.failed {
        tell!("noctule: not sent: {failure}");
    }
    if args.delete && !found.is_complete() {
        tell!("noctule: warning: nothing will be deleted there, because not everything here can be sent");
    }
    // What was read from standard input cannot be read again.
    let is_streamed = found.items.iter().any(|i| i.entry.kind == Kind::Stream);
    let give_up = if is_streamed { Duration::ZERO } else { args.give_up.0 };
    files.found = Some(found);
    files.reporter = files.reporter.with_patience(give_up);
    let host = host.to_str().ok_or_else(|| Failure::Usage(format!("{host:?} is no host: it is the last argument")))?;
    let near = Reach::from(&args);
    let config = Base::config(&near)?;
    let peer = identity::Peer::far_end(host, args.port, &args.peer, &args.identity, &args.via).await?;
    let reporter = files.reporter.clone();
    persist(&near, config, peer, give_up, &reporter, files).await.map_err(|failure| failure.of_transfer(true))
}

/// What is sent.
struct Files<'a> {
    args: &'a SendArgs,
    names: Vec<PathBuf>,
    /// What was found when the command began, for the first try. Later tries look again, since files may have changed.
    found: Option<Sources>,
    reporter: Reporter,
}

impl Files<'_> {
    /// What there is to send, as it is now.
    async fn look(&self) -> Result<Sources, Failure> {
        let args = self.args;
        let (names, stdin_name) = (self.names.clone(), args.name.clone());
        let filter = Filter::new(&args.filter.rules).map_err(Failure::Usage)?;
        let choice = Choice { filter, kept: args.xattrs.unwrap_or_default(), is_shallow: false };
        let sources = tokio::task::spawn_blocking(move || source::collect(&names, stdin_name.as_deref(), &choice)).await;
        sources.map_err(|e| Failure::system("reading", e))?
    }
}

impl Try for Files<'_> {
    async fn once(&mut self, session: &Session) -> Result<(), Failure> {
        let sources = match self.found.take() {
            Some(sources) => sources,
            None => self.look().await?,
        };
        let args = self.args;
        let options = Options {
            is_dry: args.dry_run,
            is_update: args.update,
            deletes: args.delete,
            rules: if args.delete { args.filter.rules.clone() } else { Vec::new() },
            streams: u64::from(args.parallel),
            limit: args.limit_rate.map(|rate| rate.0),
            patience: None,
        };
        let (control, answers) = session.open_bi(FlowOptions { tag: CONTROL_TAG, ..FlowOptions::default() })?;
        Sending::new(sources, options, control, Records::new(answers)).run(session, &self.reporter).await.map(drop)
    }
}

/// A transfer that can be tried again.
pub(super) trait Try: Send {
    /// Tries it over an open session.
    fn once(&mut self, session: &Session) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Transfers, and tries again after a silence. The receiver keeps what has arrived, and a new session begins with what is missing.
pub(super) async fn persist(
    near: &Reach<'_>,
    config: EndpointConfig,
    mut peer: identity::Peer,
    give_up: Duration,
    reporter: &Reporter,
    mut transfer: impl Try,
) -> Result<(), Failure> {
    let mut again = Again::new(give_up, config.node.idle_timeout);
    let base = Base::attach(near, config).await?;
    let result = loop {
        let result = async {
            let session = base.reach(near, &peer).await?;
            again.heard();
            let result = transfer.once(&session).await;
            part(&session, base.ours, result).await
        };
        let Err(failure) = result.await else { break Ok(()) };
        if again.is_heard() {
            // Both ends have proven the code: another session needs no code.
            peer = peer.proven();
        }
        if let Err(failure) = again.after(failure, reporter).await {
            break Err(failure);
        }
        base.begin_again();
    };
    base.leave().await;
    result
}

/// Ends a session after this result. If it failed and the receiver gave a reason, that is the failure.
pub(super) async fn part<T>(session: &Session, ours: PublicKey, result: Result<T, Failure>) -> Result<T, Failure> {
    match result {
        Ok(value) => {
            session.close(0, "").await;
            Ok(value)
        }
        Err(failure) => {
            let failure = match session.close_reason() {
                Some(reason) if matches!(failure, Failure::PeerGone(_) | Failure::Silence(_)) && !reason.is_clean() => {
                    Failure::closed(ours, &reason)
                }
                _ => failure,
            };
            session.abort(1, "failed");
            Err(failure)
        }
    }
}

/// A command's arguments about reaching the other side.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    command: &'static str,
    identity: &'a IdentityArgs,
    via: &'a ViaArgs,
    trace: &'a TraceArgs,
    cc: CcName,
}

impl<'a> From<&'a SendArgs> for Reach<'a> {
    fn from(args: &'a SendArgs) -> Self {
        let SendArgs { identity, via, trace, cc, .. } = args;
        Self { command: "noctule send", identity, via, trace, cc: cc.unwrap_or_default() }
    }
}

impl<'a> From<&'a GetArgs> for Reach<'a> {
    fn from(args: &'a GetArgs) -> Self {
        let GetArgs { identity, via, trace, cc, .. } = args;
        Self { command: "noctule get", identity, via, trace, cc: cc.unwrap_or_default() }
    }
}

/// This end, attached to a node if `--via` says so.
pub(super) struct Base {
    endpoint: Endpoint,
    /// Tells the receivers if this side goes.
    farewell: Farewell,
    /// Its key.
    pub ours: PublicKey,
    /// The node.
    pub gateway: Option<Gateway>,
}

impl Base {
    /// The configuration of this end by the arguments.
    pub(super) fn config(args: &Reach<'_>) -> Result<EndpointConfig, Failure> {
        // A lasting key: a receiver keeps an interrupted transfer for this key, and trusts it after a code.
        let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
        if is_ephemeral && args.command == "noctule send" {
            tell!(
                "noctule: no key could be kept here: if this transfer is interrupted, the next try begins anew; noctule keygen -o FILE makes a key, --key FILE uses it"
            );
        }
        config.node = NodeConfig { congestion: args.cc.0, accept: false, ..NodeConfig::default() };
        crate::silence::notice(&mut config.node);
        identity::protect(&mut config.node, args.identity)?;
        args.trace.apply(&mut config, args.command)?;
        overlay::configure(&mut config.node, args.via, None)?;
        Ok(config)
    }

    /// Opens the endpoint, and attaches it to its node.
    pub(super) async fn attach(args: &Reach<'_>, config: EndpointConfig) -> Result<Self, Failure> {
        let ours = config.identity.public();
        let endpoint = Endpoint::client(config)?;
        let farewell = Farewell(endpoint.clone());
        let gateway = Gateway::attach(&endpoint, ours, args.via, args.identity, false).await?;
        Ok(Self { endpoint, farewell, ours, gateway })
    }

    /// Opens a session with a receiver, early: the first file is sent before the receiver has accepted. A refusal comes with the session's end.
    pub(super) async fn reach(&self, args: &Reach<'_>, peer: &identity::Peer) -> Result<Session, Failure> {
        let session = overlay::reach(&self.endpoint, peer, self.ours, self.gateway.as_ref()).await?;
        identity::check_protection(&session, args.identity)?;
        peer.prove(&session, self.ours).await?;
        Ok(session)
    }

    /// Before another try: moves to another port, in case a middlebox on the path blocks this one. Links to nodes do that themselves.
    pub(super) fn begin_again(&self) {
        if self.gateway.is_none() {
            let any = if self.endpoint.local_addr().is_ipv4() {
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
            } else {
                (Ipv6Addr::UNSPECIFIED, 0).into()
            };
            // If no other port can be bound, the old one stays.
            let _ = self.endpoint.rebind(any);
        }
    }

    /// Waits until the last packets have left.
    pub(super) async fn leave(self) {
        drop(self.gateway);
        self.farewell.0.wait_idle().await;
    }
}
