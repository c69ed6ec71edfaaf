//! `noctule send`.

use super::progress::Progress;
use super::records::{self, ENTRIES_PER_RECORD, FromReceiver, FromSender, Reader, VERSION};
use super::source::{self, Piece};
use super::{CHUNK, TAG};
use crate::cli::{DEFAULT_PORT, SendArgs};
use crate::failure::Failure;
use crate::identity;
use noctule::{Endpoint, FlowOptions, NodeConfig, SendStream};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the receiver may take to say what it thinks after the stream broke.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Sends everything and waits until the receiver has verified it.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    let (host, names) = args.words.split_last().ok_or_else(|| Failure::Usage("name files and a host".into()))?;
    let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let (items, skipped) =
        tokio::task::spawn_blocking(move || source::collect(&names)).await.map_err(|e| Failure::system("reading", e))??;
    for path in &skipped {
        eprintln!("noctule: not sent, neither file nor directory: {}", path.display());
    }
    let (mut config, _) = identity::endpoint_config(args.identity.key.as_deref())?;
    config.node = NodeConfig { congestion: args.cc.0, accept: false, ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    let ours = config.identity.public();
    let peer = identity::Peer::settle(&identity::host_with_port(host, DEFAULT_PORT), &args.peer, &args.identity).await?;
    let endpoint = Endpoint::client(config)?;
    // Early: the first file is under way while the receiver makes up its mind; its refusal is read from the session's end.
    let session = endpoint.connect_host_early(&peer.host, Some(peer.key)).await.map_err(|e| peer.failure(ours, e))?;
    identity::check_protection(&session, &args.identity)?;

    let entries: Vec<_> = items.iter().map(|i| i.entry.clone()).collect();
    let files = entries.iter().filter(|e| e.kind == records::Kind::File).count() as u64;
    let bytes: u64 = entries.iter().map(|e| e.size).sum();
    let (mut out, answers) = session.open_stream(FlowOptions { tag: TAG, ..FlowOptions::default() })?;
    let mut progress = Progress::start(args.json, "sending", files, bytes);

    let (pieces, mut read) = mpsc::channel(8);
    std::thread::spawn(move || source::read_all(items, pieces));
    let mut answers = Answers { reader: Reader::new(answers), entries: &entries, result: None };
    let mut sending = Box::pin(send_all(&mut out, &entries, bytes, &mut read));
    let mut is_sent = false;
    let sent = loop {
        tokio::select! {
            result = &mut sending, if !is_sent => match result {
                Ok(()) => is_sent = true,
                Err(e) => break Err(e),
            },
            answer = answers.next(&progress) => match answer {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            },
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                let acknowledged: u64 = session.flow_stats().iter().filter(|f| f.is_sender).map(|f| f.stats.app_bytes.saturating_sub(f.stats.outstanding * 1400)).sum();
                progress.set(acknowledged.min(bytes));
            }
        }
    };
    drop(sending);
    if let Err(first) = sent {
        // A stream that broke may have been broken for a reason that the receiver is about to give.
        let said = tokio::time::timeout(LAST_WORD, async {
            loop {
                if let Err(e) = answers.next(&progress).await {
                    return e;
                }
            }
        })
        .await;
        let reason = match (said, session.close_reason()) {
            (Ok(said), _) if !matches!(said, Failure::PeerGone(_)) => said,
            (_, Some(reason)) if !reason.is_clean() => Failure::closed(ours, &reason),
            _ => first,
        };
        session.abort(1, "failed");
        endpoint.wait_idle().await;
        return Err(reason);
    }
    let (files, bytes) = answers.result.unwrap_or((files, bytes));
    progress.done(files, bytes);
    session.close(0, "").await;
    endpoint.wait_idle().await;
    Ok(())
}

/// The manifest, then the contents in its order.
async fn send_all(out: &mut SendStream, entries: &[records::Entry], bytes: u64, pieces: &mut mpsc::Receiver<Piece>) -> Result<(), Failure> {
    records::write(out, &FromSender::Hello { version: VERSION, entries: entries.len() as u64, bytes }).await?;
    for part in entries.chunks(ENTRIES_PER_RECORD) {
        records::write(out, &FromSender::Entries { entries: part.to_vec() }).await?;
    }
    let mut small = Vec::with_capacity(CHUNK);
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Data(data) if data.len() < CHUNK / 4 => small.extend_from_slice(&data),
            Piece::Data(data) => {
                out.write_all(&small).await?;
                small.clear();
                out.write_all(&data).await?;
            }
            Piece::End { blake3, problem } => records::put(&mut small, &FromSender::FileEnd { blake3, problem })?,
        }
        // Many small files share a write.
        if small.len() >= CHUNK / 2 || pieces.is_empty() {
            out.write_all(&small).await?;
            small.clear();
        }
    }
    out.write_all(&small).await?;
    out.finish().await?;
    Ok(())
}

/// What the receiver says.
struct Answers<'a> {
    reader: Reader,
    entries: &'a [records::Entry],
    result: Option<(u64, u64)>,
}

impl Answers<'_> {
    /// One record; true when everything is verified.
    async fn next(&mut self, progress: &Progress) -> Result<bool, Failure> {
        match self.reader.record::<FromReceiver>().await? {
            Some(FromReceiver::File { index, blake3 }) => {
                let entry = usize::try_from(index).ok().and_then(|i| self.entries.get(i));
                let entry = entry.ok_or_else(|| Failure::PeerGone("it answered for a file that was not sent".into()))?;
                progress.file(&entry.path.join("/"), entry.size, &blake3);
                Ok(false)
            }
            Some(FromReceiver::Refused { refusal, path, message }) => Err(FromReceiver::failure(refusal, path, message)),
            Some(FromReceiver::Done { files, bytes }) => {
                self.result = Some((files, bytes));
                Ok(true)
            }
            None => Err(Failure::PeerGone("it ended before it had verified everything".into())),
        }
    }
}
