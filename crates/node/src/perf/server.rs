//! `noctule perf -s`: the one responder for measurements. It serves one test after another, and sends pings back, to keys that may measure.

use super::end::{self, Carrier, Role};
use super::protocol::{CONTROL_TAG, Direction, Mode, PING_TAG, Record, Request, Sent, Total, VERSION};
use super::tcp::{self, Offer};
use super::turns::{Asked, MOST_WAITING, Turn, Turns};
use crate::cli::PerfArgs;
use crate::code::{Code, gate::Gate};
use crate::failure::Failure;
use crate::identity::authorised::{Access, Wanted};
use crate::identity::{self, refused};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use crate::ping::echo;
use crate::service::Service;
use crate::transfer::records::{self, Reader};
use crate::units::{CcName, Scale, counted, size};
use noctule::{Endpoint, FarText, IncomingFlow, NodeConfig, SendStream, Session};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::Instrument;

/// How long a client may take to ask, or to leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than its time a test may take, from the request to the last word.
const MARGIN: Duration = Duration::from_secs(60);

/// A client waits for so long before it is told: the one before it may only be taking its leave.
const SOON: Duration = Duration::from_secs(1);
/// The longest test that the protocol knows.
const MOST_TIME: Duration = Duration::from_secs(86_400);

/// What all sessions share.
struct Server {
    endpoint: Endpoint,
    gate: Gate,
    port: u16,
    /// Longest test.
    longest: Duration,
    turns: Turns,
}

/// Serves until interrupted, or once.
pub async fn run(args: &PerfArgs) -> Result<(), Failure> {
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let wants_code = match &args.peer.code {
        Some(Some(_)) => {
            return Err(Failure::Usage("the server makes the code itself: say --code without one, and pass it on the other host".into()));
        }
        given => given.is_some(),
    };
    let longest = Duration::try_from_secs_f64(args.longest).ok().filter(|d| *d >= Duration::from_millis(100) && *d <= MOST_TIME);
    let longest = longest.ok_or_else(|| Failure::Usage("--longest must lie between 0.1 and 86400 seconds".into()))?;
    let access = Access::load(&args.access, wants_code, Wanted::Tests)?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, authorised: access.keys(), ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule perf -s")?;
    let public = config.identity.public();
    let endpoint = overlay::bind(&args.listen, &args.via, config)?;
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    if is_ephemeral {
        note!("this key is for this run only; `noctule keygen` makes a lasting one");
    }
    identity::warn_of_plaintext(&args.identity);
    let invitation = Invitation::new(endpoint.local_addr(), public, &args.identity, &args.via);
    let commands = {
        let invitation = invitation.clone();
        move |code: Option<&Code>| ["perf -c", "ping"].map(|words| format!("  {}", invitation.command(words, code))).join("\n")
    };
    let gate = Gate::new(access, public, Box::new(|text, _| tell!("{text}")), commands)?;
    if !crate::terminal::is_quiet() || gate.code().is_some() {
        tell!(
            "serving tests on {}; on the other host:\n\n{}\n\n{}; this side's fingerprint: {}{}",
            invitation.place(),
            gate.commands(),
            gate.access().shown(),
            public.fingerprint(),
            invitation.notes()
        );
    }
    let server =
        Arc::new(Server { endpoint: endpoint.clone(), gate, port: endpoint.local_addr().port(), longest, turns: Turns::default() });
    let (served, mut ends) = mpsc::channel(1);
    loop {
        let session = tokio::select! {
            session = endpoint.accept() => session.ok_or_else(|| Failure::System("the endpoint was closed".into()))?,
            // What was refused, failed or left is none.
            Some(()) = ends.recv(), if args.once => {
                drop(gateway);
                endpoint.wait_idle().await;
                return Ok(());
            }
            Some(refusal) = endpoint.refused() => {
                refused::log(&refusal);
                continue;
            }
        };
        if gateway.as_ref().is_some_and(|g| g.takes(&session)) {
            continue;
        }
        let (server, served) = (Arc::clone(&server), served.clone());
        tokio::spawn(async move {
            if server.serve(session).await {
                let _ = served.try_send(());
            }
        });
    }
}

/// What a session is for.
enum Purpose {
    Ping(noctule::MessageReceiver),
    Control(Box<(Reader, SendStream, Record)>),
}

async fn purpose(flow: IncomingFlow) -> Result<Purpose, Failure> {
    match flow {
        IncomingFlow::Messages(recv) if recv.options().tag == PING_TAG => Ok(Purpose::Ping(recv)),
        IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == CONTROL_TAG => {
            let mut reader = Reader::new(recv);
            let record = reader.record::<Record>().await?.ok_or_else(not_a_test)?;
            Ok(Purpose::Control(Box::new((reader, send, record))))
        }
        _ => Err(not_a_test()),
    }
}

impl Server {
    /// One session; whether something was measured. The log tells of each.
    async fn serve(&self, session: Session) -> bool {
        let span = self.gate.span("test", &session);
        let result = self.measure(session).instrument(span.clone()).await;
        let _in = span.enter();
        match result {
            Ok(is_done) => is_done,
            Err(failure) => {
                tracing::warn!(code = failure.exit_code(), "{failure}");
                false
            }
        }
    }

    async fn measure(&self, session: Session) -> Result<bool, Failure> {
        // It looked in and left (noctule doctor, or a client that only proved a code), or was turned away.
        let Some(flow) = self.gate.first_flow(&session, PATIENCE).await else { return Ok(false) };
        let peer = session.remote_address().map_or_else(|| "?".to_owned(), |a| a.to_string());
        let is_test = [CONTROL_TAG, PING_TAG].contains(&flow.tag());
        let result = match tokio::time::timeout(PATIENCE, purpose(flow)).await {
            Ok(Ok(Purpose::Ping(recv))) => {
                tracing::info!("ping");
                echo::messages(&session, recv).await.map(|()| true)
            }
            Ok(Ok(Purpose::Control(asked))) => match *asked {
                (_reader, send, Record::EchoTcp { version: VERSION, length }) => {
                    echo_tcp(send, self.port, length, &session).await.map(|()| true)
                }
                (reader, send, Record::Request(request)) => self.take_turn(&session, &peer, (reader, send), request).await,
                (_reader, send, _) => {
                    let message = format!("that is asked for in another version of the test protocol than {VERSION}");
                    refuse(send, &session, message).await.map(|()| false)
                }
            },
            Ok(Err(_)) if session.close_reason().is_some_and(|reason| reason.is_clean()) => Ok(false),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(not_a_test()),
        };
        if result.is_err() {
            match is_test {
                true => session.abort(1, "this is noctule perf -s, and the test failed"),
                false => session.abort(Service::Tests.code(), "noctule perf -s runs there"),
            }
        }
        result
    }

    /// Runs a test when its turn has come, and no longer than it asked for; whether it was one.
    async fn take_turn(
        &self,
        session: &Session,
        peer: &str,
        (reader, mut send): (Reader, SendStream),
        request: Request,
    ) -> Result<bool, Failure> {
        if let Err(message) = request.check() {
            return refuse(send, session, message).await.map(|()| false);
        }
        let longest = self.longest.as_secs_f64();
        if request.is_timed() && request.seconds > longest {
            let message = format!("a test of {} s: this server takes at most {longest} s (perf -s --longest)", request.seconds);
            return refuse(send, session, message).await.map(|()| false);
        }
        // How long a file or an amount takes is not known.
        let limit = Duration::from_secs_f64(request.seconds.min(longest)) + MARGIN;
        let _turn: Turn = match self.turns.ask(limit) {
            Asked::Now(turn) => turn,
            Asked::Full => {
                let message = format!("{MOST_WAITING} others wait already; try again later");
                return refuse(send, session, message).await.map(|()| false);
            }
            Asked::Later(mut turn, ahead, wait) => {
                let soon = tokio::time::timeout(SOON, &mut turn).await;
                if soon.is_err() {
                    records::write(&mut send, &Record::Waiting { ahead, seconds: wait.as_secs_f64() }).await?;
                }
                let turn = async {
                    match soon {
                        Ok(turn) => turn,
                        Err(_) => turn.await,
                    }
                };
                tokio::select! {
                    turn = turn => turn.map_err(|e| Failure::system("a turn", e))?,
                    _ = session.closed() => return Ok(false),
                }
            }
        };
        match tokio::time::timeout(limit, test(&self.endpoint, session, self.port, (reader, send), request)).await {
            Ok(result) => result.map(|()| true),
            Err(_) => {
                session.abort(1, "the test took longer than it may, and others wait");
                Err(Failure::PeerGone(format!("the test of {peer} took longer than {} s, and was ended", limit.as_secs())))
            }
        }
    }
}

async fn refuse(mut send: SendStream, session: &Session, message: String) -> Result<(), Failure> {
    records::write(&mut send, &Record::Refused { message: message.as_str().into() }).await?;
    send.finish().await?;
    let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
    Err(Failure::Usage(format!("a client asked for something that is not done here: {message}")))
}

async fn test(
    endpoint: &Endpoint,
    session: &Session,
    port: u16,
    (reader, mut send): (Reader, SendStream),
    request: Request,
) -> Result<(), Failure> {
    let flows = counted(request.parallel.into(), "flow");
    let sender = match request.direction {
        Direction::Forward => "",
        Direction::Reverse => ", this side sends",
        Direction::Both => ", both send",
    };
    let amount = match (request.is_file, request.bytes) {
        (true, _) => "a file".to_owned(),
        (false, Some(bytes)) => size(bytes as f64),
        (false, None) => format!("{} s", request.seconds),
    };
    tracing::info!("{}, {amount}, {flows}{sender}", request.mode.name());
    if let Ok(cc) = request.cc.raw().parse::<CcName>() {
        session.set_congestion(cc.0);
    }
    let offer = match request.mode {
        Mode::Tcp => Some(Offer::new(port)?),
        _ => None,
    };
    let tcp = offer.as_ref().map(Offer::to_client).transpose()?;
    records::write(&mut send, &Record::Ready { tcp }).await?;
    let mut connections = Vec::new();
    if let Some(offer) = &offer {
        let all = tokio::time::timeout(PATIENCE, async {
            while connections.len() < usize::from(request.parallel) {
                connections.push(offer.accept().await?);
            }
            Ok::<_, Failure>(())
        });
        all.await.map_err(|_| Failure::PeerGone("its TCP connections did not come: does the firewall let TCP pass?".into()))??;
        for connection in &connections {
            tcp::set_congestion(connection, request.tcp_cc.as_ref().map(FarText::raw))?;
        }
    }
    let (out, mut views) = mpsc::channel(64);
    let role = Role { sends: request.direction != Direction::Forward, receives: request.direction != Direction::Reverse, file: None };
    let carrier = Carrier { session: session.clone(), tcp: connections };
    let work = async {
        // `out` must end with the work, so that telling ends too.
        let out = out;
        tokio::select! {
            result = end::run(endpoint, carrier, request, role, out) => result,
            // Over TCP nothing else would tell that the client has gone.
            outcome = session.closed() => Err(Failure::PeerGone(outcome.reason.to_string())),
        }
    };
    let mut result = Outcome::default();
    let (worked, told) = tokio::join!(work, tell(&mut send, &mut views, &mut result));
    tracing::info!("{}", result.shown());
    // The client keeps its half open until it has everything.
    drop(reader);
    worked.and(told)?;
    send.finish().await?;
    let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
    Ok(())
}

async fn echo_tcp(mut send: SendStream, port: u16, length: usize, session: &Session) -> Result<(), Failure> {
    if !echo::LENGTHS.contains(&length) {
        return refuse(send, session, echo::length_error(length)).await;
    }
    let offer = Offer::new(port)?;
    records::write(&mut send, &Record::Ready { tcp: Some(offer.to_client()?) }).await?;
    tokio::select! {
        result = echo::connections(&offer, length) => result,
        _ = session.closed() => Ok(()),
    }
}

/// What this side knows of a test when it is over.
#[derive(Default)]
struct Outcome {
    received: Option<(u64, f64)>,
    total: Option<Total>,
    sent: Option<Sent>,
}

impl Outcome {
    fn take(&mut self, record: &Record) {
        match record {
            Record::Received(r) => self.received = Some((self.received.map_or(0, |(bytes, _)| bytes) + r.bytes, r.end)),
            Record::Total(t) => self.total = Some(t.clone()),
            Record::Sent(s) | Record::Finished(s) => self.sent = Some(s.clone()),
            _ => {}
        }
    }

    fn shown(&self) -> String {
        let received = self.total.as_ref().map(|t| (t.bytes, t.seconds)).or(self.received);
        let received = received.map(|(bytes, seconds)| {
            let rate = Scale::default().rate(bytes as f64 * 8.0 / seconds.max(1e-9));
            format!("received {} in {seconds:.2} s, {rate}", size(bytes as f64))
        });
        let sent = self
            .sent
            .as_ref()
            .filter(|s| s.wire_bytes > 0)
            .map(|s| format!("sent {}, headers and repair included", size(s.wire_bytes as f64)));
        let all: Vec<_> = received.into_iter().chain(sent).collect();
        if all.is_empty() { "over".to_owned() } else { all.join("; ") }
    }
}

/// Passes this side's views on, and keeps the last of them.
async fn tell(send: &mut SendStream, views: &mut mpsc::Receiver<Record>, result: &mut Outcome) -> Result<(), Failure> {
    while let Some(record) = views.recv().await {
        result.take(&record);
        records::write(send, &record).await?;
    }
    Ok(())
}

fn not_a_test() -> Failure {
    Failure::Here { text: "refused: it is neither `noctule perf -c` nor `noctule ping`".into(), code: 7 }
}
