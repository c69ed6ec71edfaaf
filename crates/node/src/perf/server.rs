//! `noctule perf -s`: the one responder for measurements. It serves one test after another, and sends pings back.

use super::end::{self, Carrier, Role};
use super::protocol::{CONTROL_TAG, Direction, Mode, PING_TAG, Record, Request, VERSION};
use super::tcp::{self, Offer};
use crate::cli::PerfArgs;
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::Access;
use crate::overlay::{self, Gateway};
use crate::ping::echo;
use crate::transfer::records::{self, Reader};
use crate::units::CcName;
use noctule::{Endpoint, IncomingFlow, NodeConfig, SendStream, Session};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// How long a client may take to ask, or to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until interrupted, or once.
pub async fn run(args: &PerfArgs) -> Result<(), Failure> {
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access)?;
    config.node = NodeConfig { congestion: args.cc.0, authorised: access.keys(), ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule perf -s")?;
    let public = config.identity.public();
    let endpoint = overlay::bind(None, args.port, &args.via, config)?;
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    if is_ephemeral {
        tell!("this key is for this run only; `noctule keygen` makes a lasting one");
    }
    let port = if args.port == crate::cli::DEFAULT_PORT { String::new() } else { format!(" -p {}", args.port) };
    let host = overlay::name(&args.via).unwrap_or_else(|| format!("THIS_HOST{port}"));
    tell!(
        "serving tests on {}; on the other host:\n\n  noctule perf -c {host} --peer-key {public}\n  noctule ping {host} --peer-key {public}\n\nfingerprint {}; {}",
        endpoint.local_addr(),
        public.fingerprint(),
        match access.keys() {
            None => "anyone who has this key may measure".to_owned(),
            Some(keys) => format!("{} authorised keys", keys.len()),
        }
    );
    // One test at a time: two at once would measure each other. Pings are light and are answered meanwhile.
    let turn = Arc::new(Mutex::new(()));
    loop {
        let Some(session) = endpoint.accept().await else { return Err(Failure::System("the endpoint was closed".into())) };
        if gateway.as_ref().is_some_and(|g| g.takes(&session)) {
            continue;
        }
        let work = serve(endpoint.clone(), session, args.port, Arc::clone(&turn));
        if args.once {
            let result = work.await;
            drop(gateway);
            endpoint.wait_idle().await;
            return result;
        }
        tokio::spawn(async move {
            if let Err(failure) = work.await {
                failure.print(false);
            }
        });
    }
}

/// What a session is for.
enum Purpose {
    Ping(noctule::MessageReceiver),
    Control(Box<(Reader, SendStream, Record)>),
}

async fn purpose(session: &Session) -> Result<Purpose, Failure> {
    match session.accept_flow().await? {
        IncomingFlow::Messages(recv) if recv.options().tag == PING_TAG => Ok(Purpose::Ping(recv)),
        IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == CONTROL_TAG => {
            let mut reader = Reader::new(recv);
            let record = reader.record::<Record>().await?.ok_or_else(not_a_test)?;
            Ok(Purpose::Control(Box::new((reader, send, record))))
        }
        _ => Err(not_a_test()),
    }
}

async fn serve(endpoint: Endpoint, session: Session, port: u16, turn: Arc<Mutex<()>>) -> Result<(), Failure> {
    let peer = session.remote_address().map_or_else(|| "?".to_owned(), |a| a.to_string());
    let result = match tokio::time::timeout(PATIENCE, purpose(&session)).await {
        Ok(Ok(Purpose::Ping(recv))) => echo::messages(&session, recv).await,
        Ok(Ok(Purpose::Control(asked))) => match *asked {
            (_reader, send, Record::EchoTcp { version: VERSION, length }) => echo_tcp(send, port, length, &session).await,
            (reader, send, Record::Request(request)) => {
                let _turn = turn.lock().await;
                test(&endpoint, &session, port, &peer, (reader, send), request).await
            }
            (_reader, send, _) => {
                refuse(send, &session, format!("that is asked for in another version of the test protocol than {VERSION}")).await
            }
        },
        Ok(Err(failure)) if session.close_reason().is_some_and(|r| r.is_clean()) => {
            // Someone looked whether anybody is here (noctule doctor, or a client that asked for the key) and left.
            drop(failure);
            return Ok(());
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(not_a_test()),
    };
    if result.is_err() {
        session.abort(1, "this is noctule perf -s, and the test failed");
    }
    result
}

async fn refuse(mut send: SendStream, session: &Session, message: String) -> Result<(), Failure> {
    records::write(&mut send, &Record::Refused { message: message.clone() }).await?;
    send.finish().await?;
    let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
    Err(Failure::Usage(format!("a client asked for something that is not done here: {message}")))
}

async fn test(
    endpoint: &Endpoint,
    session: &Session,
    port: u16,
    peer: &str,
    (reader, mut send): (Reader, SendStream),
    request: Request,
) -> Result<(), Failure> {
    if let Err(message) = request.check() {
        return refuse(send, session, message).await;
    }
    let flows = if request.parallel == 1 { "1 flow".to_owned() } else { format!("{} flows", request.parallel) };
    let who = match request.direction {
        Direction::Forward => "",
        Direction::Reverse => ", this side sends",
        Direction::Both => ", both send",
    };
    let time = if request.is_file { "a file".to_owned() } else { format!("{} s", request.seconds) };
    tell!("test for {peer}: {}, {time}, {flows}{who}", request.mode.name());
    if let Ok(cc) = request.cc.parse::<CcName>() {
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
            tcp::set_congestion(connection, request.tcp_cc.as_deref())?;
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
    let (worked, told) = tokio::join!(work, tell(&mut send, &mut views));
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

async fn tell(send: &mut SendStream, views: &mut mpsc::Receiver<Record>) -> Result<(), Failure> {
    while let Some(record) = views.recv().await {
        records::write(send, &record).await?;
    }
    Ok(())
}

fn not_a_test() -> Failure {
    Failure::Stranger("it is no `noctule perf -c` or `noctule ping`".into())
}
