//! Receives an object over a session: the receiving end of [`super::send`].

use super::super::entry::{Entry, shown};
use super::super::progress::{Progress, Reporter, Summary};
use super::super::receive::{Destination, Stop, say};
use super::super::shares::Place as Share;
use super::super::target::Refused;
use super::super::wire::{OFFER_BY_TREE, OfferTree, Record, Records, Refusal};
use super::super::writer::protocol;
use super::cores::Decoding;
use super::file::entry_of;
use super::look::{Look, Step};
use super::place::{Piece, Place, Prepared, joined};
use super::{OBJECT_TAG, RECEIVER_MEMORY, VERSION};
use crate::failure::Failure;
use crate::tree::{self, EVERY, Expectation, Expected, SOON};
use blake3::Hash;
use noctule::{IncomingFlow, MessageReceiver, PublicKey, SendStream, Session};
use noctule_proto::object::one_way::{Announcement, DataKey, OneWayError};
use noctule_proto::object::{Digest, Receiver, Root, Status};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time between statuses to the sender while the object comes down a tree, whose nodes get them more often.
const SELDOM: Duration = Duration::from_secs(1);
/// A sender that sends no packet for so long loses its place. Long, since a receiver may have to wait while others are served.
const IDLE: Duration = Duration::from_secs(120);
/// How long the last status to the node above may take.
const LAST_WORD: Duration = Duration::from_secs(2);

/// An object that was announced.
pub struct Offer {
    entry: Entry,
    root: Root,
    receiver: Receiver,
    tree: Option<OfferTree>,
}

/// The node that objects come from if they come down a tree.
pub struct Above {
    /// Its key.
    pub node: PublicKey,
    /// The flows that it opens.
    pub flows: Expected,
}

/// A receiver's end of a tree.
struct Twig {
    key: DataKey,
    flows: Option<Expectation>,
    /// How far this receiver is, for the node above.
    status: watch::Sender<Status>,
    answer: Option<JoinHandle<()>>,
    data: Option<MessageReceiver>,
}

impl Offer {
    /// The file's name.
    pub fn path(&self) -> &[u8] {
        &self.entry.path
    }

    /// Names the transfer.
    pub fn id(&self) -> Hash {
        Hash::from_bytes(self.root.0)
    }
}

/// Reads the offer, which comes first.
pub async fn offer(control: &mut Records, place: &mut Share) -> Result<Offer, Stop> {
    let (layout, root, about, tree) = match control.next().await? {
        Some(Record::Offer { version: VERSION | OFFER_BY_TREE, layout, root, about, tree }) => (layout, root, about, tree),
        Some(Record::Offer { version, .. }) => {
            return Err(protocol(&format!("version {version} of objects; this side speaks up to version {OFFER_BY_TREE}")).into());
        }
        _ => return Err(protocol("the object is not announced").into()),
    };
    let entry = entry_of(&about).ok_or_else(|| protocol("the announced object is no file"))?;
    let mut leaves = Vec::new();
    while leaves.len() < layout.blocks() as usize {
        match control.next().await? {
            Some(Record::Leaves(part)) if !part.is_empty() => {
                leaves.extend(part);
                place.hold(leaves.capacity() * size_of::<Digest>())?;
            }
            _ => return Err(protocol("hashes of the object are missing").into()),
        }
    }
    // At most the whole object is held, and at least two blocks. Decoding takes as much memory again.
    let blocks = layout.size().max(2 * layout.block_bytes() as u64);
    place.hold_object(2 * RECEIVER_MEMORY.min(usize::try_from(blocks).unwrap_or(usize::MAX)))?;
    let described = |e: noctule_proto::object::ObjectError| protocol(&e.to_string());
    let mut receiver = Receiver::new(layout, &about, root, RECEIVER_MEMORY).map_err(described)?;
    receiver.set_leaves(leaves).map_err(described)?;
    Ok(Offer { entry, root, receiver, tree })
}

/// Receives an object whose offer has come, from the sender or from the node `above`. `stop` ends it early.
#[allow(clippy::too_many_arguments, reason = "the parts of one transfer")]
pub async fn run(
    session: &Session,
    control: &mut Records,
    answers: &mut SendStream,
    destination: Destination,
    offer: Offer,
    share: Share,
    above: Option<&Above>,
    reporter: &Reporter,
    stop: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let Offer { entry, root, mut receiver, tree } = offer;
    let Destination::Directory(target) = destination else {
        let message = "an object (--mode brctp) comes in no order: receive it into a directory (--into), not with --stdout".into();
        return Err(Refused { refusal: Refusal::Target, path: entry.path, message }.into());
    };
    let size = receiver.layout().size();
    let mut progress = reporter.start("receiving", &session.peer_key().to_string(), 1, size);
    let of_place = entry.clone();
    let mut look = Look::begin(move |comparing| {
        let place = Place::prepare(target, of_place, share.key(), &root, &mut receiver, comparing);
        (place, receiver, share)
    });
    tokio::pin!(stop);
    let (prepared, receiver, _share) = loop {
        let step = tokio::select! {
            step = look.next() => step?,
            () = &mut stop => return Err(Stop::Superseded),
        };
        match step {
            Step::Over(prepared) => break prepared,
            Step::Under(done, total) => {
                progress.comparing(done, total);
                say(answers, &[Record::Comparing { done, total }]).await?;
            }
        }
    };
    let before = there(&receiver);
    let is_same = matches!(prepared, Ok(Prepared::InPlace));
    progress.set(before, before);
    let result = match prepared {
        Err(refused) => Err(refused.into()),
        Ok(Prepared::InPlace) => Ok(()),
        Ok(Prepared::Place(place)) => {
            let twig = tree.map(|tree| Twig::new(&tree, root, &receiver, above)).transpose();
            match twig {
                Ok(twig) => blocks(session, control, answers, *place, &entry, receiver, twig, before, &mut progress, stop).await,
                Err(e) => Err(protocol(&e.to_string()).into()),
            }
        }
    };
    if let Err(stopped) = result {
        progress.clear();
        return Err(stopped);
    }
    let digest = Hash::from_bytes(root.0);
    say(answers, &[Record::Done { files: 1, bytes: size, deleted: 0, digest }]).await?;
    progress.set(size, before);
    progress.file(&entry, digest);
    let (same, resumed) = (u64::from(is_same), u64::from(!is_same && before > 0));
    progress.done(&Summary { files: 1, bytes: size, same, resumed, newer: 0, deleted: 0, digest });
    Ok(())
}

/// Bytes of blocks that are there.
fn there(receiver: &Receiver) -> u64 {
    (u64::from(receiver.blocks_done()) * receiver.layout().block_bytes() as u64).min(receiver.layout().size())
}

fn status(receiver: &Receiver) -> Record {
    let mut bytes = Vec::new();
    receiver.status().emit(&mut bytes);
    Record::Status(bytes.into())
}

#[allow(clippy::too_many_arguments, reason = "the parts of one transfer, split off so that there is one way out of it")]
async fn blocks(
    session: &Session,
    control: &mut Records,
    answers: &mut SendStream,
    place: Place,
    entry: &Entry,
    receiver: Receiver,
    mut twig: Option<Twig>,
    before: u64,
    progress: &mut Progress,
    stop: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let (pieces, thread) = place.write()?;
    let mut thread = Some(thread);
    let end = |thread: &mut Option<_>| match thread.take() {
        None => Ok(()),
        Some(thread) => joined(thread, entry),
    };
    say(answers, &[status(&receiver)]).await?;
    let mut data: Option<MessageReceiver> = None;
    let (mut told, mut tell_at) = (receiver.blocks_done(), tokio::time::Instant::now() + EVERY);
    let mut decoding = Decoding::new(receiver);
    let mut said_at = tokio::time::Instant::now();
    let (mut moved_at, mut packets) = (said_at, 0u64);
    let mut heard = 0;
    let mut is_silent = false;
    tokio::pin!(stop);
    while !decoding.receiver().is_complete() {
        tokio::select! {
            message = packet(data.as_mut()) => match message {
                Ok(Some(message)) => {
                    packets += 1;
                    match &twig {
                        None => decoding.on_packet(&message.data),
                        Some(twig) => twig.open(&message.data, &mut decoding),
                    }
                }
                // The flow ended: the sender is leaving, and its control stream says why.
                Ok(None) | Err(_) => data = None,
            },
            message = packet_of(&mut twig) => match (message, &mut twig) {
                (Some(message), Some(twig)) => {
                    packets += 1;
                    twig.open(&message.data, &mut decoding);
                }
                _ => return Err(protocol("packets of no tree").into()),
            },
            worked = decoding.worked() => worked?,
            flow = session.accept_flow(), if data.is_none() => match flow.map_err(Failure::from)? {
                IncomingFlow::Messages(flow) if flow.options().tag == OBJECT_TAG => data = Some(flow),
                _ => return Err(protocol("a flow came that has no place in the transfer of an object").into()),
            },
            record = control.next(), if !is_silent => match record? {
                None => is_silent = true,
                Some(_) => return Err(protocol("the sender goes on after its offer").into()),
            },
            () = tokio::time::sleep_until(tell_at) => {
                if let Some(twig) = &twig {
                    twig.status.send_replace(decoding.receiver().status());
                }
                if twig.as_ref().is_none_or(|t| t.data.is_none()) || said_at.elapsed() >= SELDOM {
                    said_at = tokio::time::Instant::now();
                    say(answers, &[status(decoding.receiver())]).await?;
                }
                (told, tell_at) = (decoding.receiver().blocks_done(), tokio::time::Instant::now() + EVERY);
                progress.set(there(decoding.receiver()), before);
                progress.look_at(session);
                if std::mem::replace(&mut heard, packets) != packets {
                    moved_at = tokio::time::Instant::now();
                } else if moved_at.elapsed() > IDLE {
                    return Err(Failure::PeerGone(format!("no packet of the object came for {} s", IDLE.as_secs())).into());
                }
            }
            () = &mut stop => return Err(Stop::Superseded),
        }
        while let Some((block, content)) = decoding.poll_block() {
            if pieces.send(Piece::Block(block, content)).await.is_err() {
                // The writer ended: it says why.
                end(&mut thread)?;
                return Err(protocol("the file cannot be written").into());
            }
        }
        if decoding.receiver().blocks_done() > told {
            tell_at = tell_at.min(tokio::time::Instant::now() + SOON);
        }
    }
    // Tells the sender that no more packets are wanted.
    drop(data);
    if let Some(twig) = twig {
        twig.end(decoding.receiver().status()).await;
    }
    let _ = pieces.send(Piece::End).await;
    let thread = thread.take();
    let name = entry.clone();
    let placed = tokio::task::spawn_blocking(move || thread.map_or(Ok(()), |t| joined(t, &name))).await;
    placed.map_err(|e| Failure::system("a thread", e))??;
    let spoiled = decoding.receiver().stats().spoiled_blocks;
    if spoiled > 0 {
        tell!("noctule: {}: {spoiled} blocks came wrong and came again", shown(&entry.path));
    }
    Ok(())
}

/// The next packet from the node above; meanwhile takes the flows that the node opens. Nothing is lost if the future is dropped.
async fn packet_of(twig: &mut Option<Twig>) -> Option<noctule::Message> {
    let Some(twig) = twig else { return std::future::pending().await };
    loop {
        tokio::select! {
            message = packet(twig.data.as_mut()) => match message {
                Ok(Some(message)) => return Some(message),
                // The sender learns of it, and sends what is still missing itself.
                Ok(None) | Err(_) => twig.data = None,
            },
            flow = flow_of(&mut twig.flows) => match flow {
                IncomingFlow::Messages(data) => twig.data = Some(data),
                IncomingFlow::Stream { recv, send: Some(send) } => {
                    twig.answer = Some(tokio::spawn(answer(Records::new(recv), send, twig.status.subscribe())));
                }
                _ => {}
            },
        }
    }
}

async fn flow_of(flows: &mut Option<Expectation>) -> IncomingFlow {
    match flows {
        Some(flows) => flows.next().await,
        None => std::future::pending().await,
    }
}

/// Tells the node above how far this receiver is, until it has everything.
async fn answer(mut asks: Records, mut out: SendStream, mut status: watch::Receiver<Status>) {
    if !matches!(asks.next().await, Ok(Some(Record::Branch(_)))) {
        return;
    }
    loop {
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        status.borrow_and_update().emit(&mut bytes);
        Record::Status(bytes.into()).emit(&mut record);
        if out.write_all(&record).await.is_err() {
            return;
        }
        if status.changed().await.is_err() {
            let _ = out.finish().await;
            return;
        }
    }
}

impl Twig {
    fn new(tree: &OfferTree, root: Root, receiver: &Receiver, above: Option<&Above>) -> Result<Self, OneWayError> {
        let announcement = Announcement { key: tree.key, root, layout: *receiver.layout(), about: Vec::new() };
        let flows = above.and_then(|a| a.flows.expect(a.node, tree::tag(tree.number)));
        let status = watch::Sender::new(receiver.status());
        Ok(Self { key: announcement.data_key()?, flows, status, answer: None, data: None })
    }

    /// Decrypts a packet and hands it on. A packet that fails was not made by the sender.
    fn open(&self, datagram: &[u8], decoding: &mut Decoding) {
        let mut datagram = datagram.to_vec();
        if let Ok(packet) = self.key.open(&mut datagram) {
            decoding.on_packet(packet);
        }
    }

    /// Sends the last status, and ends.
    async fn end(self, status: Status) {
        let Self { status: tell, answer, data, flows, .. } = self;
        drop((data, flows));
        tell.send_replace(status);
        drop(tell);
        if let Some(answer) = answer {
            let _ = tokio::time::timeout(LAST_WORD, answer).await;
        }
    }
}

async fn packet(data: Option<&mut MessageReceiver>) -> Result<Option<noctule::Message>, noctule::FlowError> {
    match data {
        Some(data) => data.recv().await,
        None => std::future::pending().await,
    }
}
