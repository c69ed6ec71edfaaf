//! `noctule proxy HOST`: the end with the listeners, and the session that they use, opened again whenever it ends.

use super::intercept::{self, Plan};
use super::{configure, failure, stdio, transport};
use crate::cli::ProxyArgs;
use crate::failure::Failure;
use crate::identity;
use crate::overlay::{self, Gateway};
use crate::silence::{self, NO_WORD, Silence, Word};
use crate::transfer::Farewell;
use crate::units::time;
use noctule::{Endpoint, NodeConfig, PublicKey, Session};
use noctule_proxy::{End, Greeting, Listener, Near, NearOptions, Outcome, Remote, Report, Uplink};
use serde_json::json;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Between the end of a session and the next try, at first; then twice as long each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Rules of interception are looked at so often.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What can be said of a command line without doing anything.
pub fn check(args: &ProxyArgs) -> Result<(), Failure> {
    if args.host.is_none() && args.from_link.is_none() {
        return Err(Failure::Usage("a host is missing: noctule proxy HOST -D 1080".into()));
    }
    if args.local.is_empty() && args.dynamic.is_empty() && args.remote.is_empty() && args.stdio.is_none() && !args.intercepts() {
        return Err(Failure::Usage(
            "nothing to listen for: say -D PORT (SOCKS and HTTP), -L PORT:TARGET:PORT, -R PORT:TARGET:PORT, -W TARGET:PORT or --intercept own".into(),
        ));
    }
    if args.intercepts() {
        Plan::new(&args.intercept, &[]).map_err(Failure::Usage)?;
    }
    Ok(())
}

/// Runs until interrupted, or until the one connection of `-W` has ended.
pub async fn run(args: ProxyArgs) -> Result<(), Failure> {
    check(&args)?;
    let host = args.host.clone().unwrap_or_default();
    let (mut config, _) = identity::lasting_config(args.identity.key.as_deref())?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, accept: false, ..NodeConfig::default() };
    configure(&mut config.node);
    identity::protect(&mut config.node, &args.identity)?;
    args.trace.apply(&mut config, "noctule proxy")?;
    overlay::configure(&mut config.node, &args.via, None)?;
    let ours = config.identity.public();
    let uplink = Uplink::default();
    let mark = args.intercepts().then_some(intercept::OWN_MARK);
    config.mark = mark;
    let options = NearOptions {
        udp_idle: args.udp_idle.0,
        udp_lifetime: args.udp_lifetime.0,
        interactive: args.interactive.clone(),
        mark,
        tell_source: args.tell_source,
        accept_proxy: args.accept_proxy.clone(),
    };
    let near = Near::new(uplink.clone(), options, Arc::new(log));
    // Before any host is asked for anything: a port that is taken is an error of this command.
    let mut listeners = listen(&near, &args)?;
    let mut rules = intercepted(&near, &args, &mut listeners).await?;
    let peer = identity::Peer::far_end(&host, args.port, &args.peer, &args.identity, &args.via).await?;
    let endpoint = Endpoint::client(config)?;
    let farewell = Farewell(endpoint.clone());
    let gateway = Gateway::attach(&endpoint, ours, &args.via, &args.identity, false).await?;
    let mut reach = Reach { args: &args, endpoint, ours, gateway, peer, named: None, last: None };
    // What is wrong from the beginning is told and ends the command; later all of it may be over in a while.
    let (session, greeting) = reach.session().await?;
    uplink.set(Some(session.clone()));
    if let Some(target) = &args.stdio {
        let result = stdio::run(&near, target.clone()).await;
        session.close(0, "").await;
        drop(reach);
        farewell.0.wait_idle().await;
        return result;
    }
    if let Some(rules) = &mut rules {
        rules.up(&servers(&session)).await?;
    }
    tell_listeners(&args, &host, &listeners);
    let remote: Vec<_> = args.remote.iter().flat_map(|forwards| forwards.0.clone()).collect();
    let mut next = Some((session, greeting));
    let mut pause = FIRST_PAUSE;
    loop {
        let (session, greeting) = match next.take() {
            Some(current) => current,
            // Rules that fail closed hold while the server is away, too.
            None => match beside(&mut rules, reach.session()).await {
                Ok(current) => {
                    note!("noctule: {host} is there again");
                    event(&args, || json!({"event": "session", "up": true}));
                    current
                }
                Err(why) => {
                    tracing::warn!("{why}; trying again in {} s", pause.as_secs_f64());
                    beside(&mut rules, tokio::time::sleep(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            },
        };
        pause = FIRST_PAUSE;
        uplink.set(Some(session.clone()));
        let (told, mut refusals) = mpsc::unbounded_channel();
        let is_json = args.json;
        let serving = near.serve(session.clone(), &remote, move |remote| {
            let refused = refused_for_good(remote);
            if is_json || refused.is_none() {
                tell_remote(remote, is_json);
            }
            if let Some(failure) = refused {
                let _ = told.send(failure);
            }
        });
        if let Some(rules) = &mut rules
            // The server may have another address now.
            && let Err(failure) = rules.up(&servers(&session)).await
        {
            tracing::error!("{failure}");
        }
        let refused = tokio::select! {
            () = serving => None,
            never = look_after(&mut rules) => match never {},
            () = tell_silence(&session) => None,
            failure = all_refused(&mut refusals, remote.len(), !listeners.is_empty(), is_json) => Some(failure),
        };
        if let Some(rules) = &mut rules {
            rules.down().await;
        }
        uplink.set(None);
        if let Some(failure) = refused {
            session.close(0, "").await;
            drop(reach);
            farewell.0.wait_idle().await;
            return Err(failure);
        }
        drop(greeting);
        let why = session.close_reason().map_or_else(String::new, |reason| format!(": {reason}"));
        tracing::warn!("the session with {host} ended{why}; connections wait for the next one");
        event(&args, || json!({"event": "session", "up": false}));
        drop(session);
        reach.begin_again(rules.is_some());
        beside(&mut rules, tokio::time::sleep(pause)).await;
    }
}

/// Logs that the server says nothing, and that it is there again; never ends.
async fn tell_silence(session: &Session) {
    let (mut silence, mut look) = (Silence::default(), tokio::time::interval(silence::LOOK_EVERY));
    loop {
        look.tick().await;
        match silence.look(session) {
            Some((Word::Silent, address)) => tracing::warn!("no answer from {address} for {}; connections wait", time(NO_WORD)),
            Some((Word::Heard, address)) => tracing::warn!("{address} is there again"),
            None => {}
        }
    }
}

/// How the server is reached.
struct Reach<'a> {
    args: &'a ProxyArgs,
    endpoint: Endpoint,
    ours: PublicKey,
    gateway: Option<Gateway>,
    peer: identity::Peer,
    /// How the server is named, where the next try goes to its last address instead.
    named: Option<String>,
    /// Where it was reached.
    last: Option<SocketAddr>,
}

impl Reach<'_> {
    /// A session that the server's proxy serves.
    async fn session(&mut self) -> Result<(Session, Greeting), Failure> {
        let session = overlay::reach(&self.endpoint, &self.peer, self.ours, self.gateway.as_ref()).await?;
        let result = async {
            identity::check_protection(&session, &self.args.identity)?;
            self.peer.prove(&session, self.ours).await?;
            Near::greet(&session).await.map_err(|answer| match session.close_reason() {
                Some(reason) if !reason.is_clean() => Failure::closed(self.ours, &reason),
                _ => failure("this key".into(), &answer),
            })
        };
        match result.await {
            Ok(greeting) => {
                self.last = session.remote_address().or(self.last);
                self.peer = self.peer.clone().proven();
                Ok((session, greeting))
            }
            Err(failure) => {
                session.abort(1, "failed");
                Err(failure)
            }
        }
    }

    /// The next try leaves from another port, in case a router on the path blocks this one. Over nodes their links look after themselves.
    ///
    /// Where programs of this host are intercepted, so is its resolver, which has to wait for the session that is to be opened: every other try goes to the
    /// last address.
    fn begin_again(&mut self, is_intercepted: bool) {
        if is_intercepted && let Some(last) = self.last {
            match self.named.take() {
                Some(named) => self.peer.host = named,
                None => self.named = Some(std::mem::replace(&mut self.peer.host, last.to_string())),
            }
        }
        if self.gateway.is_none() {
            let any = match self.endpoint.local_addr() {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            // Without another port the old one has to do.
            let _ = self.endpoint.rebind(any);
        }
    }
}

/// Every port of this host, in the order of the command line.
fn listen(near: &Near, args: &ProxyArgs) -> Result<Vec<(String, Listener)>, Failure> {
    let failed = |error: noctule_proxy::BindError| {
        let advice = match error.error.kind() {
            ErrorKind::AddrInUse => "; choose another port, or end the program that has it",
            ErrorKind::AddrNotAvailable => "; this host does not have that address: leave it out, or see ip address",
            ErrorKind::PermissionDenied => "; ports below 1024 need rights (CAP_NET_BIND_SERVICE): choose a higher one",
            _ => "",
        };
        Failure::Listen(format!("{error}{advice}"))
    };
    let mut listeners = Vec::new();
    for forward in args.local.iter().flat_map(|forwards| &forwards.0) {
        listeners.push((forward.target.to_string(), near.forward(forward).map_err(failed)?));
    }
    for bind in &args.dynamic {
        listeners.push(("SOCKS and HTTP".into(), near.front(bind).map_err(failed)?));
    }
    Ok(listeners)
}

/// Listens for what is intercepted, if anything is to be; what will make the rules, unless another tool does.
async fn intercepted(near: &Near, args: &ProxyArgs, listeners: &mut Vec<(String, Listener)>) -> Result<Option<intercept::Rules>, Failure> {
    if !args.intercepts() {
        return Ok(None);
    }
    let plan = Plan::new(&args.intercept, &[]).map_err(Failure::Usage)?;
    intercept::permitted()?;
    let rules = match args.no_rules {
        true => None,
        false => Some(intercept::Rules::prepare(&args.intercept).await?),
    };
    let listener = near.intercept(&plan.interception()).map_err(|error| {
        let advice = match error.error.kind() {
            ErrorKind::AddrInUse => "; choose another port by --intercept-port, or end the program that has it",
            ErrorKind::PermissionDenied => "; transparent sockets need CAP_NET_ADMIN",
            _ => "",
        };
        Failure::Listen(format!("{error}{advice}"))
    })?;
    listeners.push(("where it was sent (intercepted)".into(), listener));
    Ok(rules)
}

/// Addresses that are left alone.
fn servers(session: &Session) -> Vec<IpAddr> {
    session.remote_address().map(|at| at.ip()).into_iter().collect()
}

/// Why the server will never listen there, if it said so.
fn refused_for_good(remote: &Remote) -> Option<Failure> {
    let answer = remote.result.as_ref().err().filter(|answer| matches!(answer.outcome, Outcome::Denied | Outcome::Unsupported))?;
    Some(failure(format!("-R {}", remote.forward), answer))
}

/// The last of the `asked` refusals, if nothing else is listened for; tells of the others. Never ends while anything works.
async fn all_refused(refusals: &mut mpsc::UnboundedReceiver<Failure>, asked: usize, listens: bool, is_json: bool) -> Failure {
    let mut left = asked;
    while let Some(failure) = refusals.recv().await {
        left -= 1;
        match (left, listens, is_json) {
            (0, false, _) => return failure,
            // Its event says it.
            (_, _, true) => {}
            (_, true, false) => tell!("noctule: {failure}; goes on without it"),
            (_, false, false) => tell!("noctule: {failure}"),
        }
    }
    std::future::pending().await
}

/// Puts back rules that others take away, for as long as the future is polled.
async fn look_after(rules: &mut Option<intercept::Rules>) -> Infallible {
    let Some(rules) = rules else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        match rules.mend().await {
            Ok(None) => {}
            Ok(Some(missing)) => tracing::warn!("the rules of interception were put back: {missing}"),
            Err(failure) => tracing::error!("the rules of interception cannot be put back: {failure}"),
        }
    }
}

/// Waits for something, and looks after the rules meanwhile.
async fn beside<T>(rules: &mut Option<intercept::Rules>, what: impl Future<Output = T>) -> T {
    tokio::select! {
        done = what => done,
        never = look_after(rules) => match never {},
    }
}

fn event(args: &ProxyArgs, event: impl FnOnce() -> serde_json::Value) {
    if args.json {
        say!("{}", event());
    }
}

fn tell_listeners(args: &ProxyArgs, host: &str, listeners: &[(String, Listener)]) {
    let shown = |listener: &Listener| listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all: Vec<_> = listeners.iter().map(|(to, listener)| json!({"addresses": shown(listener), "to": to})).collect();
    event(args, || json!({"event": "listening", "host": host, "listeners": all}));
    if !args.json {
        note!("noctule: the proxy on {host} is there");
        for (to, listener) in listeners {
            note!("  {} -> {to}", shown(listener).join(", "));
        }
    }
}

fn tell_remote(remote: &Remote, is_json: bool) {
    let to = remote.forward.target.to_string();
    match (&remote.result, is_json) {
        (Ok(bound), true) => say!("{}", json!({"event": "remote", "address": bound.to_string(), "to": to})),
        (Ok(bound), false) => note!("  {bound} of the other side -> {to}"),
        (Err(answer), true) => say!("{}", json!({"event": "remote", "address": null, "to": to, "message": answer.words()})),
        (Err(answer), false) => tell!("noctule: -R {}: {}", remote.forward, answer.words()),
    }
}

/// A line for each connection; those that ended well are logged at a finer level.
fn log(report: &Report) {
    let Report { source, target, to_target, from_target, end, .. } = report;
    let (seconds, transport) = (report.duration.as_secs_f64(), transport(report));
    match end {
        End::Refused(_) | End::Lost(_) => tracing::warn!(transport, %source, %target, seconds, "{end}"),
        _ => tracing::debug!(transport, %source, %target, to_target, from_target, seconds, "{end}"),
    }
}
