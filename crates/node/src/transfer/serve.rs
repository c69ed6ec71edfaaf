//! `noctule serve`: a directory for `noctule get`, and with `--writable` for `noctule send`, too.

use super::object::recv::Above;
use super::offer::Offer;
use super::progress::Reporter;
use super::recv::open_target;
use super::server::{self, Farewell, Offered, Server, Takes, limits, voices};
use super::shares::Shares;
use super::target::Rules;
use super::turn::Turns;
use crate::cli::ServeArgs;
use crate::code::gate::Gate;
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Wanted};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use noctule::NodeConfig;
use serde_json::json;

/// Commands for the other side.
const GET: &str = "get HOST:PATH DIR";
const SEND: &str = "send FILE...";

/// Serves until interrupted.
pub async fn run(args: ServeArgs) -> Result<(), Failure> {
    if let Some(option) = args.for_writers().filter(|_| !args.writable) {
        return Err(Failure::Usage(format!("{option} is about files that are sent here: it needs --writable")));
    }
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access, args.code, Wanted::Offer { is_writable: args.writable })?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, authorised: access.keys(), ..NodeConfig::default() };
    crate::silence::notice(&mut config.node);
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule serve")?;
    let public = config.identity.public();
    let rules = Rules { may_delete: args.allow_delete, ..Rules::of(&args.keeping) };
    let takes = match args.writable {
        true => Takes::Into(Box::new(open_target(&args.directory, rules)?), rules),
        false => Takes::Nothing,
    };
    let offer = Offer::open(&args.directory).map_err(|e| Failure::source(&args.directory, e))?;
    let endpoint = overlay::bind(&args.listen, &args.via, config)?;
    let _farewell = Farewell(endpoint.clone());
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    let reporter = Reporter::new(args.json, false).logging();
    let invitation = Invitation::new(endpoint.local_addr(), public, &args.identity, &args.via);
    let words: &[&str] = if args.writable { &[GET, SEND] } else { &[GET] };
    let (tell, commands) = voices(&reporter, &invitation, words);
    let gate = Gate::new(access, public, tell, commands)?;
    identity::warn_of_plaintext(&args.identity);
    let local = endpoint.local_addr();
    if args.json {
        say!(
            "{}",
            json!({
                "event": "listening", "address": local.to_string(), "public_key": public.to_string(), "fingerprint": public.fingerprint(),
                "ephemeral": is_ephemeral, "confined": crate::sandbox::is_on(), "writable": args.writable,
                "code": gate.code().map(|code| code.to_string()), "command": invitation.command(GET, gate.code().as_ref())
            })
        );
    } else if !crate::terminal::is_quiet() || gate.code().is_some() {
        if is_ephemeral {
            note!(
                "this key is for this run only, because none could be kept; noctule keygen -o FILE makes a lasting one, --key FILE uses it"
            );
        }
        let what = if args.writable { "offering, and writing to," } else { "offering" };
        tell!(
            "{what} {} on {}; on the other host:\n\n{}\n\n{}; this side's fingerprint: {}{}",
            args.directory.display(),
            invitation.place(),
            gate.commands(),
            gate.access().shown(),
            public.fingerprint(),
            invitation.notes()
        );
    }
    let above = gateway.as_ref().map(|g| Above { node: g.key(), flows: g.expected() });
    let offered = Some(Offered { offer, limit: args.limit_rate.map(|rate| rate.0) }.into());
    let server =
        Server { gate, takes, offered, once: false, reporter, above, turns: Turns::default(), shares: Shares::new(limits(&args.limits)) };
    server::run(server, &endpoint, gateway).await
}
