//! `noctule proxy serve`: the end that connects to targets.

use super::state::{self, Keeper};
use super::users::{self, User};
use super::{api, configure, intercept, transport, words};
use crate::cli::{Cli, Command, ProxyServeArgs, ProxyTask};
use crate::code::Code;
use crate::code::gate::Gate;
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Wanted};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use crate::service::Service;
use crate::transfer::{Farewell, Reporter, voices};
use clap::Parser;
use noctule::{Endpoint, IncomingFlow, NodeConfig, PublicKey, Session, SessionAccess};
use noctule_proxy::{Account, Answer, End, Far, FarConfig, Limits, Outcome, Report, Rules, TAG, is_datagrams};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tracing::Instrument;

/// How long the other end of a session may take to say what it is for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of quotas are kept so often: what a kill of the process loses.
const KEEP: Duration = Duration::from_secs(10);
/// The command for the other side.
const PROXY: &str = "proxy -D 1080";

/// Serves until interrupted.
pub async fn run(mut args: ProxyServeArgs) -> Result<(), Failure> {
    if !args.source.as_client.is_empty() {
        noctule_proxy::may_dial_as_client().map_err(|error| {
            Failure::System(format!(
                "--as-client: this process may not connect from addresses of clients ({error}): it needs CAP_NET_ADMIN; run it as root, or by a unit with AmbientCapabilities=CAP_NET_ADMIN"
            ))
        })?;
    }
    // From now on: one that comes before the server is whole must not end it.
    let hangup = signal(SignalKind::hangup()).map_err(|e| Failure::system("cannot listen for signals", e))?;
    let users = users_of(&mut args)?;
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access, args.code, Wanted::Proxy)?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, authorised: access.keys(), ..NodeConfig::default() };
    configure(&mut config.node);
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule proxy serve")?;
    let public = config.identity.public();
    let endpoint = overlay::bind(&args.listen, &args.via, config)?;
    let _farewell = Farewell(endpoint.clone());
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    let status = api::bind(args.api.as_deref(), args.api_secret.as_deref(), endpoint.local_addr()).await?;
    let (state, usage) = kept(&args, &users)?;
    let reporter = Reporter::new(args.json, false).logging();
    let invitation = Invitation::new(endpoint.local_addr(), public, &args.identity, &args.via);
    let (tell, commands) = voices(&reporter, &invitation, &[PROXY]);
    let gate = Arc::new(Gate::new(access, public, tell, commands)?);
    identity::warn_of_plaintext(&args.identity);
    if args.allow_private && args.access.anyone {
        tell!("noctule: warning: --anyone and --allow-private: every peer that reaches this port reaches this host's own network by it");
    }
    if args.json {
        say!(
            "{}",
            json!({
                "event": "listening", "address": endpoint.local_addr().to_string(), "public_key": public.to_string(), "fingerprint": public.fingerprint(),
                "ephemeral": is_ephemeral, "code": gate.code().map(|code| code.to_string()), "command": invitation.command(PROXY, gate.code().as_ref())
            })
        );
    } else if !crate::terminal::is_quiet() || gate.code().is_some() {
        if is_ephemeral {
            note!(
                "this key is for this run only, because none could be kept; noctule keygen -o FILE makes a lasting one, --key FILE uses it"
            );
        }
        tell!(
            "proxy on {}; on the other host:\n\n{}\n\nprograms there use localhost:1080 as SOCKS or HTTP proxy then; -L PORT:TARGET:PORT leads to one target\n{}{}; {}; this side's fingerprint: {}{}",
            invitation.place(),
            gate.commands(),
            share(&args, &invitation, gate.code().as_ref(), public),
            gate.access().shown(),
            reach(&args),
            public.fingerprint(),
            invitation.notes()
        );
    }
    let (limits, accounts) = limits_of(&args, &users);
    let far = Far::new(FarConfig {
        limits,
        accounts,
        usage: usage.clone(),
        only_target: args.only_target.clone(),
        allow_remote_listen: args.allow_remote_listen,
        udp_idle: args.udp_idle.0,
        // A proxy on this host may intercept; without the right to mark, it has to leave this user alone.
        mark: intercept::permitted().is_ok().then_some(intercept::OWN_MARK),
        sources: Arc::new(args.source.sources()),
        sink: Arc::new(log),
    });
    let keeper = state.map(|(file, lock)| Keeper::new(file, lock, Arc::clone(&far), usage));
    let serving = async {
        match status {
            // Its file goes with this future.
            Some(status) => api::serve(status, Arc::clone(&far)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = accept(&endpoint, gateway.as_ref(), &gate, &far) => result,
        result = look_after(&args, hangup, keeper.as_ref(), &endpoint, &gate, &far) => result,
        () = serving => Ok(()),
    }
}

async fn accept(endpoint: &Endpoint, gateway: Option<&Gateway>, gate: &Arc<Gate>, far: &Arc<Far>) -> Result<(), Failure> {
    while let Some(session) = endpoint.accept().await {
        if gateway.is_some_and(|g| g.takes(&session)) {
            continue;
        }
        let (gate, far) = (Arc::clone(gate), Arc::clone(far));
        tokio::spawn(async move {
            let span = gate.span("proxy", &session);
            serve(&gate, far, session).instrument(span).await;
        });
    }
    Err(Failure::System("the endpoint was closed".into()))
}

/// The users of the file, whose keys may connect.
fn users_of(args: &mut ProxyServeArgs) -> Result<Vec<User>, Failure> {
    let users = match &args.config {
        Some(file) => users::load(file, args.only_target.is_some())?,
        None => Vec::new(),
    };
    args.access.allow.extend(users.iter().flat_map(|user| user.keys()));
    Ok(users)
}

/// What all users may do, and each of them.
fn limits_of(args: &ProxyServeArgs, users: &[User]) -> (Limits, Vec<Account>) {
    let rules = Rules { rules: args.targets.rules.clone(), allow_private: args.allow_private };
    let limits = Limits { rules, max_connections: args.max_connections as usize, ..Limits::default() };
    let accounts = users.iter().map(|user| user.account(&limits)).collect();
    (limits, accounts)
}

type Kept = (Option<(std::path::PathBuf, state::Lock)>, BTreeMap<String, noctule_proxy::Usage>);

/// Where the bytes of quotas are kept, if that is wanted, and what was kept. That it can be written is found out now.
fn kept(args: &ProxyServeArgs, users: &[User]) -> Result<Kept, Failure> {
    let file = match &args.state {
        Some(file) => file.clone(),
        None if users.iter().any(User::has_quota) => state::default_file()?,
        None => return Ok((None, BTreeMap::new())),
    };
    let (lock, usage) = state::open(&file)?;
    Ok((Some((file, lock)), usage))
}

/// Reads the file again when that is asked for, and keeps quotas.
async fn look_after(
    args: &ProxyServeArgs,
    mut hangup: Signal,
    keeper: Option<&Keeper>,
    endpoint: &Endpoint,
    gate: &Gate,
    far: &Far,
) -> Result<(), Failure> {
    let mut keep = interval(KEEP);
    keep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = 0;
    loop {
        tokio::select! {
            _ = hangup.recv() => match reload(args, keeper.is_some(), endpoint, gate, far) {
                Ok(notes) => tracing::info!(notes, "reloaded"),
                Err(error) => tracing::error!("not reloaded, the server goes on as it was: {error}"),
            },
            _ = keep.tick() => {
                if let Some(keeper) = keeper && let Err(error) = tokio::task::block_in_place(|| keeper.save()) {
                    tracing::error!("what counts for quotas cannot be kept: {error}");
                }
                tell_of_refused(endpoint, &mut refused);
            }
        }
    }
}

/// What the node refused never became a connection: it is in no other line of the log.
fn tell_of_refused(endpoint: &Endpoint, before: &mut u64) {
    let stats = endpoint.stats();
    let refused = stats.refused.refused_flows.saturating_sub(stats.refused.stale_flows);
    let connections = refused.saturating_sub(core::mem::replace(before, refused));
    if connections > 0 {
        tracing::warn!(
            connections,
            "clients were refused connections: there are too many, or no memory for more; close some, or let several clients, each with its own key, share them"
        );
    }
}

/// What a reload does not change.
fn fixed(args: &ProxyServeArgs) -> [(&'static str, String); 11] {
    [
        ("bind and port", format!("{:?}", args.listen)),
        ("only-target", format!("{:?}", args.only_target)),
        ("allow-remote-listen", args.allow_remote_listen.to_string()),
        ("udp-idle", format!("{:?}", args.udp_idle)),
        ("code, anyone and remember", format!("{} {} {}", args.code, args.access.anyone, args.access.remember)),
        ("keys of this side", format!("{:?}", args.identity)),
        ("via", format!("{:?}", args.via)),
        ("cc", format!("{:?}", args.cc)),
        ("api and api-secret", format!("{:?} {:?}", args.api, args.api_secret)),
        ("what targets hear of clients", format!("{:?}", args.source)),
        ("state", format!("{:?}", args.state)),
    ]
}

/// Reads file and lists of keys again: users, limits, targets, and the keys that may connect. Connections go on that are still allowed.
fn reload(before: &ProxyServeArgs, has_state: bool, endpoint: &Endpoint, gate: &Gate, far: &Far) -> Result<String, Failure> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let cli = Cli::try_parse_from(&line).map_err(|e| Failure::Usage(e.to_string()))?;
    let Some(Cli { command: Command::Proxy(args), .. }) = words::expand(cli, &line)? else {
        return Err(Failure::Usage("the command line says something else now".into()));
    };
    let Some(ProxyTask::Serve(mut args)) = args.task else {
        return Err(Failure::Usage("the file says something else than proxy serve now".into()));
    };
    let changed: Vec<&str> =
        fixed(before).into_iter().zip(fixed(&args)).filter(|(before, now)| before != now).map(|((name, _), _)| name).collect();
    if !changed.is_empty() {
        return Err(Failure::Usage(format!("{} cannot change while the server runs: start it again", changed.join(", "))));
    }
    let users = users_of(&mut args)?;
    if !has_state && users.iter().any(User::has_quota) {
        return Err(Failure::Usage(
            "the first quota needs a new start, or --state FILE from the beginning: its bytes are kept there".into(),
        ));
    }
    let access = gate.access().again(&args.access)?;
    let sessions = match args.via.via.is_empty() {
        true => SessionAccess::AsLinks,
        false => access.keys().map_or(SessionAccess::Anyone, SessionAccess::Keys),
    };
    endpoint.set_authorised(access.keys(), sessions);
    gate.set_access(access);
    let (limits, accounts) = limits_of(&args, &users);
    far.configure(limits, accounts);
    let ended = far.end_sessions(|key| !gate.grant(key).is_some_and(|grant| grant.may_proxy), "this key may not use the proxy any more");
    let counted = |count: usize, thing| crate::units::counted(count as u64, thing);
    Ok(format!("{}, {} ended", counted(users.len(), "user"), counted(ended, "session")))
}

/// A line about links, if one says all that leads here.
fn share(args: &ProxyServeArgs, invitation: &Invitation, code: Option<&Code>, public: PublicKey) -> String {
    if !args.via.via.is_empty() || args.identity.psk.is_some() || args.identity.no_encryption {
        return String::new();
    }
    let code = code.map_or_else(String::new, |code| format!(" --code {code}"));
    format!("the same as a link and a QR code: noctule proxy share {} --peer-key {public}{code}\n", invitation.host())
}

/// What may be reached, in words.
fn reach(args: &ProxyServeArgs) -> String {
    if let Some(target) = &args.only_target {
        return format!("only {target} is reached");
    }
    let private = if args.allow_private { "every address may be reached" } else { "this host's own network may not be reached" };
    match args.targets.rules.iter().filter(|rule| rule.allows).count() {
        0 => private.to_owned(),
        count => format!("{private}, but for {}", crate::units::counted(count as u64, "rule")),
    }
}

async fn serve(gate: &Gate, far: Arc<Far>, session: Session) {
    let Some(first) = gate.first_flow_if(&session, PATIENCE, |options| !is_datagrams(options)).await else { return };
    if first.options().tag != TAG || !matches!(first, IncomingFlow::Stream { send: Some(_), .. }) {
        session.abort(Service::Proxy.code(), "noctule proxy serve runs there");
        tracing::warn!("refused: it is not `noctule proxy`");
        return;
    }
    if !gate.grant(&session.peer_key()).unwrap_or_default().may_proxy {
        let why = "the other side lets this key connect, but not by its proxy: its line in the file of authorised keys there lacks the option `proxy`";
        Far::decline(first, Answer::new(Outcome::Denied, why)).await;
        session.abort(1, "not allowed");
        tracing::warn!("refused: its key lacks the option `proxy`");
        return;
    }
    tracing::info!("connected");
    far.serve(session.clone(), Some(first)).await;
    match session.close_reason() {
        Some(reason) if !reason.is_clean() => tracing::info!("left: {reason}"),
        _ => tracing::info!("left"),
    }
}

/// A line for each connection.
fn log(report: &Report) {
    let Report { source, target, to_target, from_target, end, user, rule, wire, .. } = report;
    let (key, seconds, transport) = (report.peer.map(|key| key.to_string()), report.duration.as_secs_f64(), transport(report));
    match end {
        End::Refused(_) => tracing::warn!(key, user, transport, %source, %target, rule, seconds, "refused: {end}"),
        _ => tracing::info!(
            key,
            user,
            transport,
            %source,
            %target,
            rule,
            to_target,
            from_target,
            wire_sent = wire.sent,
            wire_received = wire.received,
            repairs_sent = wire.repairs,
            repaired = wire.repaired,
            seconds,
            "{end}"
        ),
    }
}
