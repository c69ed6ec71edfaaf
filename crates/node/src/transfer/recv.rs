//! `noctule recv`: an endpoint that takes what senders bring.

use super::object;
use super::object::recv::Above;
use super::progress::Reporter;
use super::server::{self, Farewell, Server, Takes, limits, voices};
use super::shares::Shares;
use super::target::{Rules, Target};
use super::turn::Turns;
use crate::cli::RecvArgs;
use crate::code::gate::Gate;
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Wanted};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use crate::shell::quoted;
use noctule::{Endpoint, NodeConfig, PublicKey};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;

/// Receives until interrupted, or once.
pub async fn run(args: RecvArgs) -> Result<(), Failure> {
    if args.stdout && crate::terminal::was_closed(std::io::stdout()) {
        return Err(Failure::Usage("--stdout writes to standard output, which is closed".into()));
    }
    if args.one_way {
        return object::listen::run(args).await;
    }
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access, args.code, Wanted::Files)?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, authorised: access.keys(), ..NodeConfig::default() };
    crate::silence::notice(&mut config.node);
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule recv")?;
    let public = config.identity.public();
    let rules = Rules { may_delete: args.allow_delete, ..Rules::of(&args.keeping) };
    let takes = match args.stdout {
        true => Takes::Stdout,
        false => Takes::Into(Box::new(open_target(&args.into, rules)?), rules),
    };
    let endpoint = overlay::bind(&args.listen, &args.via, config)?;
    let _farewell = Farewell(endpoint.clone());
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    let reporter = Reporter::new(args.json, args.stdout).logging();
    let invitation = Invitation::new(endpoint.local_addr(), public, &args.identity, &args.via);
    let (tell, commands) = voices(&reporter, &invitation, &["send FILE..."]);
    let gate = Gate::new(access, public, tell, commands)?;
    greet(&args, &endpoint, public, is_ephemeral, &gate, &invitation);
    let above = gateway.as_ref().map(|g| Above { node: g.key(), flows: g.expected() });
    let server = Server {
        gate,
        takes,
        offered: None,
        once: args.once || args.stdout,
        reporter,
        above,
        turns: Turns::default(),
        shares: Shares::new(limits(&args.limits)),
    };
    server::run(server, &endpoint, gateway).await
}

/// The directory that files go to.
pub fn open_target(into: &Path, rules: Rules) -> Result<Target, Failure> {
    Target::open(into, rules).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::NoDirectory(quoted(into)),
        _ => Failure::target(into, &e),
    })
}

/// Says what the sender has to type.
fn greet(args: &RecvArgs, endpoint: &Endpoint, public: PublicKey, is_ephemeral: bool, gate: &Gate, invitation: &Invitation) {
    let local = endpoint.local_addr();
    identity::warn_of_plaintext(&args.identity);
    if args.json {
        let event = json!({
            "event": "listening", "address": local.to_string(), "public_key": public.to_string(), "fingerprint": public.fingerprint(),
            "ephemeral": is_ephemeral, "confined": crate::sandbox::is_on(), "code": gate.code().map(|code| code.to_string()), "command": invitation.command("send FILE...", gate.code().as_ref())
        });
        // Contents have standard output for themselves.
        if args.stdout {
            tell!("{event}")
        } else {
            say!("{event}")
        }
        return;
    }
    if crate::terminal::is_quiet() && gate.code().is_none() {
        return;
    }
    if is_ephemeral {
        note!("this key is for this run only, because none could be kept; noctule keygen -o FILE makes a lasting one, --key FILE uses it");
    }
    let into = if args.stdout { "to standard output".to_owned() } else { format!("into {}", args.into.display()) };
    tell!(
        "receiving {into} on {}; on the other host:\n\n{}\n\n{}; this side's fingerprint: {}{}",
        invitation.place(),
        gate.commands(),
        gate.access().shown(),
        public.fingerprint(),
        invitation.notes()
    );
}
