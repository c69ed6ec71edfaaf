//! `noctule perf -s`: serves one test after another.

use super::end;
use super::protocol::{CONTROL_TAG, Record};
use crate::cli::PerfArgs;
use crate::failure::Failure;
use crate::identity;
use crate::transfer::records::{self, Reader};
use crate::transfer::recv::bind;
use noctule::{Endpoint, IncomingFlow, NodeConfig, SendStream, Session};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a client may take to ask, or to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves until interrupted, or once.
pub async fn run(args: &PerfArgs) -> Result<(), Failure> {
    let (mut config, is_ephemeral) = identity::endpoint_config(args.key.as_deref())?;
    config.node = NodeConfig { congestion: args.cc.0, ..NodeConfig::default() };
    let public = config.identity.public();
    let endpoint = bind(None, args.port, config)?;
    if is_ephemeral {
        eprintln!("this key is for this run only; `noctule keygen` makes a lasting one");
    }
    eprintln!(
        "serving tests on {}; on the other host:\n\n  noctule perf -c THIS_HOST -p {} --peer-key {public}\n",
        endpoint.local_addr(),
        args.port
    );
    loop {
        let Some(session) = endpoint.accept().await else { return Err(Failure::System("the endpoint was closed".into())) };
        // One at a time: two tests at once would measure each other. Others wait in the backlog.
        let result = serve(&endpoint, session).await;
        if args.once {
            endpoint.wait_idle().await;
            return result;
        }
        if let Err(failure) = result {
            failure.print(false);
        }
    }
}

async fn serve(endpoint: &Endpoint, session: Session) -> Result<(), Failure> {
    let asked = tokio::time::timeout(PATIENCE, async {
        let IncomingFlow::Stream { recv, send: Some(send) } = session.accept_flow().await? else { return Err(not_a_test()) };
        if recv.options().tag != CONTROL_TAG {
            return Err(not_a_test());
        }
        let mut reader = Reader::new(recv);
        let record = reader.record::<Record>().await?;
        Ok((reader, send, record))
    })
    .await;
    let (reader, mut send, request) = match asked {
        Ok(Ok((reader, send, Some(Record::Request(request))))) => (reader, send, request),
        Ok(Err(failure)) => {
            session.abort(1, "this is noctule perf");
            return Err(failure);
        }
        _ => {
            session.abort(1, "this is noctule perf");
            return Err(not_a_test());
        }
    };
    if let Err(message) = request.check() {
        records::write(&mut send, &Record::Refused { message: message.clone() }).await?;
        send.finish().await?;
        let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
        return Err(Failure::Usage(format!("a client asked for a test that makes no sense: {message}")));
    }
    let peer = session.remote_address().map_or_else(|| "?".to_owned(), |a| a.to_string());
    eprintln!(
        "test for {peer}: {} for {} s, {} flows{}",
        request.mode,
        request.seconds,
        request.parallel,
        if request.reverse { ", reverse" } else { "" }
    );
    records::write(&mut send, &Record::Ready).await?;
    let (out, mut views) = mpsc::channel(64);
    let work = async {
        match request.reverse {
            true => end::send(session.clone(), request.clone(), out).await,
            false => end::receive(endpoint, session.clone(), request.clone(), out).await,
        }
    };
    let (worked, told) = tokio::join!(work, tell(&mut send, &mut views));
    // The client keeps its half open until it has everything.
    drop(reader);
    let result = worked.and(told);
    if result.is_ok() {
        send.finish().await?;
        let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
    } else {
        session.abort(1, "the test failed");
    }
    result
}

async fn tell(send: &mut SendStream, views: &mut mpsc::Receiver<Record>) -> Result<(), Failure> {
    while let Some(record) = views.recv().await {
        records::write(send, &record).await?;
    }
    Ok(())
}

fn not_a_test() -> Failure {
    Failure::PeerGone("it is no `noctule perf -c`".into())
}
