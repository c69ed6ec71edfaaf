//! `noctule proxy serve`: the end that connects to targets.

use super::{configure, intercept, transport};
use crate::cli::ProxyServeArgs;
use crate::code::Code;
use crate::code::gate::Gate;
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Wanted};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use crate::transfer::{Farewell, Reporter, voices};
use noctule::{IncomingFlow, NodeConfig, PublicKey, Session};
use noctule_proxy::{Answer, End, Far, FarConfig, Outcome, Report, Rules, TAG, is_datagrams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// How long the other end of a session may take to say what it is for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The command for the other side.
const PROXY: &str = "proxy -D 1080";

/// Serves until interrupted.
pub async fn run(args: ProxyServeArgs) -> Result<(), Failure> {
    if !args.source.as_client.is_empty() {
        noctule_proxy::may_dial_as_client().map_err(|error| {
            Failure::System(format!(
                "--as-client: this process may not connect from addresses of clients ({error}): it needs CAP_NET_ADMIN; run it as root, or by a unit with AmbientCapabilities=CAP_NET_ADMIN"
            ))
        })?;
    }
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
    let far = Far::new(FarConfig {
        rules: Rules { rules: args.targets.rules.clone(), allow_private: args.allow_private },
        only_target: args.only_target.clone(),
        allow_remote_listen: args.allow_remote_listen,
        max_connections: args.max_connections as usize,
        udp_idle: args.udp_idle.0,
        // A proxy on this host may intercept; without the right to mark, it has to leave this user alone.
        mark: intercept::permitted().is_ok().then_some(intercept::OWN_MARK),
        sources: Arc::new(args.source.sources()),
        sink: Arc::new(log),
    });
    while let Some(session) = endpoint.accept().await {
        if gateway.as_ref().is_some_and(|g| g.takes(&session)) {
            continue;
        }
        let (gate, far) = (Arc::clone(&gate), Arc::clone(&far));
        tokio::spawn(async move {
            let span = gate.span("proxy", &session);
            serve(&gate, far, session).instrument(span).await;
        });
    }
    Err(Failure::System("the endpoint was closed".into()))
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
    match args.targets.rules.len() {
        0 => private.to_owned(),
        count => format!("{private}, but for {}", crate::units::counted(count as u64, "rule")),
    }
}

async fn serve(gate: &Gate, far: Arc<Far>, session: Session) {
    let Some(first) = gate.first_flow_if(&session, PATIENCE, |options| !is_datagrams(options)).await else { return };
    if first.options().tag != TAG || !matches!(first, IncomingFlow::Stream { send: Some(_), .. }) {
        session.abort(1, "this is noctule proxy serve");
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
    let Report { source, target, to_target, from_target, end, .. } = report;
    let (key, seconds, transport) = (report.peer.map(|key| key.to_string()), report.duration.as_secs_f64(), transport(report));
    match end {
        End::Refused(_) => tracing::warn!(key, transport, %source, %target, seconds, "refused: {end}"),
        _ => tracing::info!(key, transport, %source, %target, to_target, from_target, seconds, "{end}"),
    }
}
