//! `noctule recv`.

use super::TAG;
use super::progress::Progress;
use super::records::{self, FromReceiver, FromSender, Kind, MAX_ENTRIES, Reader, Refusal, VERSION};
use super::target::{Refused, Target};
use crate::cli::{DEFAULT_PORT, RecvArgs};
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Grant};
use noctule::{BindError, Endpoint, EndpointConfig, FlowError, IncomingFlow, NodeConfig, SendStream, Session};
use serde_json::json;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a sender may take to open its stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// Binds where asked, or on every address of the host.
pub fn bind(asked: Option<SocketAddr>, port: u16, config: EndpointConfig) -> Result<Endpoint, Failure> {
    if let Some(address) = asked {
        return Ok(Endpoint::bind(address, config)?);
    }
    match Endpoint::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), config.clone()) {
        Err(BindError::NotAvailable(_)) => Ok(Endpoint::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), config)?),
        other => Ok(other?),
    }
}

/// Receives until interrupted, or once.
pub async fn run(args: RecvArgs) -> Result<(), Failure> {
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Arc::new(Access::load(&args.access)?);
    config.node = NodeConfig { congestion: args.cc.0, authorised: access.keys(), ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    let public = config.identity.public();
    let target = Target::open(&args.into, args.overwrite).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::Target { path: args.into.display().to_string(), error: "no such directory".into() },
        _ => Failure::target(&args.into, &e),
    })?;
    let target = Arc::new(target);
    let endpoint = bind(args.bind, DEFAULT_PORT, config)?;
    let local = endpoint.local_addr();
    if args.json {
        println!(
            "{}",
            json!({"event": "listening", "address": local.to_string(), "public_key": public.to_string(), "ephemeral": is_ephemeral})
        );
    } else {
        if is_ephemeral {
            eprintln!("this key is for this run only; `noctule keygen` makes a lasting one");
        }
        let host = if local.ip().is_unspecified() { "THIS_HOST".to_owned() } else { local.ip().to_string() };
        let port = if local.port() == DEFAULT_PORT { String::new() } else { format!(":{}", local.port()) };
        let host = if host.contains(':') && !port.is_empty() { format!("[{host}]") } else { host };
        eprintln!(
            "receiving into {} on {local}; on the other host:\n\n  noctule send FILE... {host}{port} --peer-key {public}\n\nfingerprint {}; {}",
            args.into.display(),
            public.fingerprint(),
            match access.keys() {
                None => "anyone who has this key may send".to_owned(),
                Some(keys) => format!("{} authorised keys", keys.len()),
            }
        );
    }
    loop {
        let Some(session) = endpoint.accept().await else { return Err(Failure::System("the endpoint was closed".into())) };
        let grant = access.grant(&session.peer_key()).unwrap_or_default();
        let work = serve(session, grant, Arc::clone(&target), args.overwrite, args.json);
        if args.once {
            let result = work.await;
            endpoint.wait_idle().await;
            return result;
        }
        let is_json = args.json;
        tokio::spawn(async move {
            if let Err(failure) = work.await {
                failure.print(is_json);
            }
        });
    }
}

/// One sender.
async fn serve(session: Session, grant: Grant, target: Arc<Target>, overwrite: bool, is_json: bool) -> Result<(), Failure> {
    let flow = tokio::time::timeout(PATIENCE, session.accept_flow()).await;
    let Ok(flow) = flow else {
        session.abort(1, "no stream was opened");
        return Err(Failure::PeerGone("it opened no stream".into()));
    };
    let (recv, mut answers) = match flow? {
        IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == TAG => (recv, send),
        _ => {
            session.abort(1, "this is noctule recv");
            return Err(Failure::PeerGone("it is no `noctule send`".into()));
        }
    };
    let mut reader = Reader::new(recv);
    let received = match grant.may_write {
        true => match target.below(grant.directory.as_deref(), overwrite || grant.may_overwrite) {
            Ok(target) => receive(&mut reader, &mut answers, &target, is_json).await,
            Err(e) => Err(Stop::Refused(Refused::from_io(grant.directory.as_deref().unwrap_or(Path::new(".")), &e))),
        },
        false => Err(Stop::Refused(Refused { refusal: Refusal::NotAllowed, path: String::new(), message: "may not write".into() })),
    };
    match received {
        Ok(()) => {
            answers.finish().await?;
            // The sender closes when it has heard; its leaving is no failure.
            let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
            Ok(())
        }
        Err(Stop::Refused(refused)) => {
            let failure = FromReceiver::failure(refused.refusal, refused.path.clone(), refused.message.clone());
            let record = FromReceiver::Refused { refusal: refused.refusal, path: refused.path, message: refused.message };
            // The sender may leave as soon as it has heard: that is no failure of its own.
            if records::write(&mut answers, &record).await.is_ok() {
                let _ = answers.finish().await;
            }
            let _ = tokio::time::timeout(Duration::from_secs(3), session.closed()).await;
            session.abort(1, "refused");
            Err(failure)
        }
        Err(Stop::Failed(failure)) => {
            session.abort(1, "failed");
            Err(failure)
        }
    }
}

/// Why receiving ended early.
enum Stop {
    /// The sender is to be told.
    Refused(Refused),
    /// There is nobody to tell.
    Failed(Failure),
}

impl From<Refused> for Stop {
    fn from(r: Refused) -> Self {
        Self::Refused(r)
    }
}

impl From<Failure> for Stop {
    fn from(e: Failure) -> Self {
        Self::Failed(e)
    }
}

impl From<FlowError> for Stop {
    fn from(e: FlowError) -> Self {
        Self::Failed(e.into())
    }
}

fn protocol(message: &str) -> Refused {
    Refused { refusal: Refusal::Protocol, path: String::new(), message: message.to_owned() }
}

fn gone() -> Failure {
    Failure::PeerGone("its stream ended before everything had come".into())
}

async fn receive(reader: &mut Reader, answers: &mut SendStream, target: &Target, is_json: bool) -> Result<(), Stop> {
    let Some(FromSender::Hello { version, entries: count, bytes }) = reader.record().await? else {
        return Err(protocol("the transfer does not begin with a greeting").into());
    };
    if version != VERSION || count > MAX_ENTRIES {
        return Err(protocol(&format!(
            "version {version} with {count} entries; this side takes version {VERSION} and {MAX_ENTRIES} entries"
        ))
        .into());
    }
    let mut entries = Vec::new();
    while (entries.len() as u64) < count {
        match reader.record().await? {
            Some(FromSender::Entries { entries: part }) if !part.is_empty() => entries.extend(part),
            Some(_) => return Err(protocol("a part of the manifest is missing").into()),
            None => return Err(gone().into()),
        }
    }
    if entries.len() as u64 != count || entries.iter().map(|e| e.size).try_fold(0u64, u64::checked_add) != Some(bytes) {
        return Err(protocol("the manifest contradicts its greeting").into());
    }
    target.check_space(bytes)?;
    // Everything that can be refused is refused before the first byte is written.
    let mut paths = Vec::with_capacity(entries.len());
    for entry in &entries {
        paths.push(target.check_entry(entry)?);
    }
    let files = entries.iter().filter(|e| e.kind == Kind::File).count() as u64;
    let mut progress = Progress::start(is_json, "receiving", files, bytes);
    for (index, (entry, path)) in entries.iter().zip(paths).enumerate() {
        if entry.kind == Kind::Dir {
            target.make_dir(&path)?;
            continue;
        }
        let mut incoming = target.begin(entry, path)?;
        while incoming.left() > 0 {
            let Some(data) = reader.content(incoming.left()).await? else { return Err(gone().into()) };
            if incoming.write(&data) {
                tokio::task::block_in_place(|| incoming.flush())?;
            }
            progress.advance(data.len() as u64);
        }
        let Some(FromSender::FileEnd { blake3, problem }) = reader.record().await? else { return Err(gone().into()) };
        let hash = tokio::task::block_in_place(|| incoming.finish(&blake3, problem))?;
        progress.file(&entry.path.join("/"), entry.size, &hash);
        records::write(answers, &FromReceiver::File { index: index as u64, blake3: hash }).await?;
    }
    records::write(answers, &FromReceiver::Done { files, bytes }).await?;
    progress.done(files, bytes);
    Ok(())
}
