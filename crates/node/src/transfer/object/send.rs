//! `noctule send --mode brctp`: over a session, with block feedback.
//!
//! The packets go as datagrams (`btp`) whose lifetime lets the links repair what they lose; what the links give up is made up for by fresh packets of
//! the outer code, which the receiver's status asks for.

use super::super::progress::{Progress, Reporter, Summary};
use super::super::send::connect;
use super::super::target::Refused;
use super::super::wire::{Record, RecordError, Records};
use super::file::ObjectFile;
use super::{OBJECT_TAG, RECEIVER_MEMORY, VERSION};
use crate::cli::SendArgs;
use crate::failure::Failure;
use blake3::Hash;
use bytes::Bytes;
use noctule::{Class, FlowError, FlowKind, FlowOptions, MessageOptions, MessageSender, Mode, Probability, Session};
use noctule_proto::object::{ReceiverId, Sender, SenderConfig, SourceBlock, Status};
use noctule_proto::units::Time;
use noctule_proto::wire::varint::Reader;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long a packet may take to be repaired by the links before the outer code makes up for it.
const LIFETIME: Duration = Duration::from_secs(3);
/// After so long nothing that was sent is still on its way.
const SETTLE: Duration = Duration::from_millis(3500);
/// Packets that wait in the node: what has not left yet may still be changed for something more useful.
const BUFFER: usize = 256 << 10;
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);
/// The links repair nearly everything: what is left are single packets, for which repair packets cover the whole block.
const LOW_LOSS: u16 = 5;

/// Sends the file and waits until the receiver has verified it.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    let unfit = [("--name", args.name.is_some()), ("--dry-run", args.dry_run), ("--parallel", args.parallel != 1)];
    if let Some((option, _)) = unfit.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::Usage(format!("{option} is for files sent without --mode brctp")));
    }
    let (host, names) = args.words.split_last().ok_or_else(|| Failure::Usage("name a file and a host".into()))?;
    let names = names.to_vec();
    let file = tokio::task::spawn_blocking(move || ObjectFile::open(&names, LOW_LOSS)).await;
    let file = Arc::new(file.map_err(|e| Failure::system("reading", e))??);
    let connection = connect(&args, host).await?;
    let result = exchange(&args, &file, &connection.session).await;
    connection.end(result).await.map_err(|failure| failure.of_transfer(true))
}

/// Says what comes, then sends until the receiver is done.
async fn exchange(args: &SendArgs, file: &Arc<ObjectFile>, session: &Session) -> Result<(), Failure> {
    let (mut control, answers) = session.open_stream(FlowOptions { tag: OBJECT_TAG, ..FlowOptions::default() })?;
    let mut answers = Records::new(answers);
    let mut offer = Vec::new();
    Record::Offer { version: VERSION, layout: file.layout, root: file.root, about: file.about.clone().into() }.emit(&mut offer);
    Record::Leaves(file.tree.leaves().to_vec()).emit(&mut offer);
    let reporter = Reporter::new(args.json, false);
    let mut progress = reporter.start("sending", &session.peer_key().to_string(), 1, file.layout.size());
    let mut transfer = Transfer::new(file, session)?;
    let result = async {
        let answer = tokio::select! {
            // A refusal may come before everything is said.
            answer = next(&mut answers) => Some(answer?),
            written = async { control.write_all(&offer).await } => {
                written?;
                None
            }
        };
        if let Some(answer) = answer
            && let Some(summary) = transfer.take(answer, &mut progress)?
        {
            return Ok(summary);
        }
        loop {
            if let Some(summary) = transfer.step(args, session, &mut answers, &mut progress).await? {
                return Ok(summary);
            }
        }
    };
    let result: Result<Summary, Failure> = result.await;
    match result {
        Ok(summary) => {
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut control).await;
            progress.set(summary.bytes, transfer.spared);
            progress.file(&file.entry, summary.digest);
            let stats = transfer.sender.stats();
            progress.done_with(&summary, &[("source_packets", stats.source_packets), ("repair_packets", stats.repair_packets)]);
            Ok(())
        }
        Err(failure) => {
            progress.clear();
            Err(failure)
        }
    }
}

async fn next(answers: &mut Records) -> Result<Record, Failure> {
    match answers.next().await {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(Failure::PeerGone("it ended before it had verified everything".into())),
        Err(RecordError::Flow(e)) => Err(e.into()),
        Err(RecordError::Malformed(e)) => Err(Failure::PeerGone(e.to_string())),
    }
}

struct Transfer<'a> {
    file: &'a Arc<ObjectFile>,
    sender: Sender,
    start: Instant,
    /// `None` once the receiver wants no more packets.
    data: Option<MessageSender>,
    loading: Option<Loading>,
    /// A packet that has no room yet.
    pending: Option<Bytes>,
    /// When a limited sender may send again.
    free_at: tokio::time::Instant,
    /// Bytes that the receiver had before.
    spared: u64,
    is_begun: bool,
}

impl<'a> Transfer<'a> {
    fn new(file: &'a Arc<ObjectFile>, session: &Session) -> Result<Self, Failure> {
        let window = (RECEIVER_MEMORY / 4 * 3 / file.layout.block_bytes().max(1)).clamp(2, 4096) as u32;
        let sender = Sender::new(file.layout, file.tree.clone(), SenderConfig { window, settle: SETTLE });
        let data = session.open_messages(FlowOptions {
            mode: Mode::Btp,
            kind: FlowKind::UnorderedMessages,
            class: Class::Bulk,
            lifetime: Some(LIFETIME),
            // No redundancy beforehand: the link is full.
            no_retransmit: Probability::ZERO,
            tag: OBJECT_TAG,
            send_buffer: Some(BUFFER),
            ..FlowOptions::default()
        })?;
        Ok(Self {
            file,
            sender,
            start: Instant::now(),
            data: Some(data),
            loading: None,
            pending: None,
            free_at: tokio::time::Instant::now(),
            spared: 0,
            is_begun: false,
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Sends what can be sent, and waits for whatever comes first.
    async fn step(
        &mut self,
        args: &SendArgs,
        session: &Session,
        answers: &mut Records,
        progress: &mut Progress,
    ) -> Result<Option<Summary>, Failure> {
        progress.look_at(session);
        if self.loading.is_none()
            && let Some(block) = self.sender.wanted_block()
        {
            let file = Arc::clone(self.file);
            self.loading = Some(tokio::task::spawn_blocking(move || file.block(block)));
        }
        self.fill(args.limit_rate.is_some());
        tokio::select! {
            // What has been said already is heard first.
            biased;
            answer = next(answers) => return self.take(answer?, progress),
            source = loaded(&mut self.loading) => {
                self.loading = None;
                self.sender.add(source?);
            }
            sent = send(self.data.as_ref(), self.pending.as_ref(), self.free_at) => {
                let len = self.pending.take().map_or(0, |packet| packet.len());
                if let Some(rate) = args.limit_rate {
                    self.free_at = self.free_at.max(tokio::time::Instant::now()) + rate.0.time_for(len as u64);
                }
                if sent.is_err() {
                    // The receiver wants no more; why, its answer says.
                    self.data = None;
                }
            }
            () = tokio::time::sleep(TICK) => {}
        }
        Ok(None)
    }

    /// Packets as far as there is room; with a limit one by one.
    fn fill(&mut self, is_limited: bool) {
        while self.pending.is_none()
            && let Some(data) = &self.data
        {
            let mut packet = Vec::new();
            if self.sender.poll_packet(self.now(), &mut packet).is_none() {
                return;
            }
            let packet = Bytes::from(packet);
            if is_limited {
                self.pending = Some(packet);
                return;
            }
            match data.try_send(packet.clone(), MessageOptions::default()) {
                Ok(_) => {}
                Err(FlowError::Blocked) => self.pending = Some(packet),
                Err(_) => self.data = None,
            }
        }
    }

    fn take(&mut self, answer: Record, progress: &mut Progress) -> Result<Option<Summary>, Failure> {
        match answer {
            Record::Status(bytes) => {
                let status = Status::parse(&mut Reader::new(&bytes), &self.file.layout).map_err(|e| Failure::PeerGone(e.to_string()))?;
                let there = there(&self.file.layout, &status);
                if !std::mem::replace(&mut self.is_begun, true) {
                    self.spared = there;
                }
                progress.set(there, self.spared);
                let now = self.now();
                self.sender.on_status(now, ReceiverId(0), status);
                Ok(None)
            }
            Record::Refused { refusal, path, message } => Err(Failure::refused(&Refused { refusal, path, message })),
            Record::Done { files, bytes, digest } if digest == Hash::from_bytes(self.file.root.0) => {
                let same = u64::from(!self.is_begun);
                if same == 1 {
                    self.spared = bytes;
                }
                let resumed = u64::from(same == 0 && self.spared > 0);
                Ok(Some(Summary { files, bytes, same, resumed, digest }))
            }
            Record::Done { digest, .. } => {
                let problem = format!("the receiver has the object {digest}, not {}", Hash::from_bytes(self.file.root.0));
                Err(Failure::Hash { path: self.file.entry.shown(), problem })
            }
            _ => Err(Failure::PeerGone("it sent a record that only a sender sends".into())),
        }
    }
}

/// Bytes that a status says are there.
fn there(layout: &noctule_proto::object::Layout, status: &Status) -> u64 {
    let below = if status.first == 0 { 0 } else { layout.range(status.first - 1).end };
    let open = (status.first..).zip(&status.wanted).map(|(block, wanted)| {
        let range = layout.range(block);
        (range.end - range.start).saturating_sub(u64::from(*wanted) * layout.packet_len() as u64)
    });
    (below + open.sum::<u64>()).min(layout.size())
}

/// Waits for room, and for the limit; for ever if there is nothing to send. Dropped before it resolves, it has sent nothing.
async fn send(data: Option<&MessageSender>, packet: Option<&Bytes>, free_at: tokio::time::Instant) -> Result<(), FlowError> {
    let (Some(data), Some(packet)) = (data, packet) else { return std::future::pending().await };
    tokio::time::sleep_until(free_at).await;
    data.send(packet.clone(), MessageOptions::default()).await.map(drop)
}

/// A block that is being read.
type Loading = JoinHandle<Result<SourceBlock, Failure>>;

/// Waits for it; for ever if there is none.
async fn loaded(loading: &mut Option<Loading>) -> Result<SourceBlock, Failure> {
    match loading {
        None => std::future::pending().await,
        Some(handle) => handle.await.unwrap_or_else(|e| Err(Failure::system("reading", e))),
    }
}
