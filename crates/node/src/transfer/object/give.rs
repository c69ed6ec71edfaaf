//! `noctule serve`: one of its files as an object, to a peer that asks for it so. The streams are those of [`super::send`], which this end opens.

use super::super::entry::Kind;
use super::super::progress::{Reporter, Summary};
use super::super::receive::IDLE;
use super::super::shares::Place;
use super::super::source::{Item, Sources};
use super::super::target::Refused;
use super::super::wire::{Record, Refusal};
use super::cast::{Cast, Invited};
use super::file::ObjectFile;
use super::look::{Look, Step};
use super::{BLOCK_PACKETS, LOW_LOSS, PACKET_LEN, RECEIVER_MEMORY};
use crate::failure::Failure;
use blake3::Hash;
use noctule::{Bandwidth, SendStream, Session};
use noctule_proto::object::Digest;
use std::sync::Arc;

/// Hashes that are held for a block: in the tree, and in the offer.
const HASHES_OF_BLOCK: usize = 4;

fn refuse<T>(refusal: Refusal, path: Vec<u8>, message: &str) -> Result<T, Refused> {
    Err(Refused { refusal, path, message: message.into() })
}

/// What the peer is told of a file that cannot be sent: without names of this host.
fn refused(path: &[u8], failure: &Failure) -> Refused {
    let (refusal, message) = match failure {
        Failure::Hash { problem, .. } => (Refusal::Hash, problem.clone()),
        Failure::Source { error, .. } => (Refusal::Source, error.clone()),
        failure => (Refusal::Source, failure.reason()),
    };
    Refused { refusal, path: path.to_vec(), message }
}

/// The only file that was found, hashed. Meanwhile the peer is told how far that is.
///
/// # Errors
/// Not one file, more than this side gives at a time, or it cannot be read; or the peer left.
pub async fn open(
    sources: Sources,
    place: &mut Place,
    session: &Session,
    out: &mut SendStream,
) -> Result<Result<ObjectFile, Refused>, Failure> {
    let item = match one(sources, place) {
        Ok(item) => item,
        Err(refused) => return Ok(Err(refused)),
    };
    let path = item.entry.path.clone();
    let mut look = Look::begin(move |comparing| ObjectFile::of(item, LOW_LOSS, comparing));
    loop {
        tokio::select! {
            step = look.next() => match step? {
                Step::Over(file) => return Ok(file.map_err(|failure| refused(&path, &failure))),
                Step::Under(done, total) => {
                    out.write_all(&Record::Working { done, total }.bytes()).await?;
                }
            },
            reason = session.closed() => {
                return Err(Failure::PeerGone(format!("{}, while its file was hashed", reason.reason)));
            }
        }
    }
}

fn one(sources: Sources, place: &mut Place) -> Result<Item, Refused> {
    let count = sources.items.len();
    let Some(item) = sources.items.into_iter().next() else {
        return refuse(Refusal::Source, Vec::new(), "nothing of that can be sent");
    };
    if !matches!(item.entry.kind, Kind::File(_)) {
        return refuse(Refusal::Source, item.entry.path, "--mode brctp gets one file, and this is none: get it without --mode");
    }
    if count > 1 {
        let message = format!("--mode brctp gets one file, and {count} were asked for: get them one after the other, or without --mode");
        return refuse(Refusal::Source, Vec::new(), &message);
    }
    let block = usize::from(PACKET_LEN) * usize::from(BLOCK_PACKETS);
    let size = usize::try_from(item.entry.size()).unwrap_or(usize::MAX);
    place.hold(size.div_ceil(block).saturating_mul(HASHES_OF_BLOCK * size_of::<Digest>()))?;
    place.hold_object((RECEIVER_MEMORY / 4 * 3).min(size.max(2 * block)))?;
    Ok(item)
}

/// Sends it; what arrived. A peer that says nothing for [`IDLE`] after the offer loses its place.
///
/// # Errors
/// The peer refused it or left, or the file changed; then the peer is told.
pub async fn run(session: &Session, file: ObjectFile, limit: Option<Bandwidth>, out: &mut SendStream) -> Result<Summary, Failure> {
    let file = Arc::new(file);
    let result = cast(session, &file, limit).await;
    if let Err(failure @ (Failure::Hash { .. } | Failure::Source { .. })) = &result {
        out.write_all(&Record::from(refused(&file.entry.path, failure)).bytes()).await?;
    }
    let _ = tokio::time::timeout(IDLE, out.finish()).await;
    result
}

async fn cast(session: &Session, file: &Arc<ObjectFile>, limit: Option<Bandwidth>) -> Result<Summary, Failure> {
    let invited = Invited { name: String::new(), address: None, session: session.clone() };
    let mut cast = Cast::begin(file, vec![invited], None, limit)?;
    let mut progress = Reporter::silent().start("sending", "", 1, 0);
    while !cast.is_over() {
        if cast.silence() > IDLE {
            return Err(Failure::PeerGone(format!("it took nothing and said nothing for {} s", IDLE.as_secs())));
        }
        cast.step().await?;
        progress.look_at(session);
    }
    let ends = cast.end().await;
    let delivered = ends.into_iter().next().map_or_else(|| Err(Failure::PeerGone("it said nothing".into())), |(.., result)| result)?;
    file.check_end()?;
    let size = file.layout.size();
    let (same, resumed) = (u64::from(delivered.is_same), u64::from(delivered.is_resumed()));
    Ok(Summary { files: 1, bytes: size, same, resumed, newer: 0, deleted: 0, digest: Hash::from_bytes(file.root.0) })
}
