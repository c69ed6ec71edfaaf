//! Sends an object to its receivers: one sender, a flow for each tree and for each receiver outside of them, answers by each receiver's session.
//!
//! Each receiver has a session with this end, by which it is offered the object and says that it has it. Packets go by a flow of that session. Where an end that is
//! attached to a node sends to several, they go down a tree of nodes; a receiver that the tree does not reach gets a flow of its own.

use super::super::target::Refused;
use super::super::wire::{OFFER_BY_TREE, OfferTree, Record, Records};
use super::file::ObjectFile;
use super::{OBJECT_TAG, RECEIVER_MEMORY, VERSION};
use crate::failure::Failure;
use crate::tree::{self, Branch, ChildFlows, MAX_HOPS, Waits, child, child::Says};
use blake3::Hash;
use bytes::Bytes;
use noctule::{Bandwidth, FlowOptions, Session};
use noctule_proto::object::one_way::{Announcement, DataKey};
use noctule_proto::object::{ChildId, Layout, ReceiverId, Sender, SenderConfig, SenderStats, SourceBlock, Status};
use noctule_proto::units::Time;
use noctule_proto::wire::varint::Reader;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Time after which nothing that was sent is in flight any more.
const SETTLE: Duration = Duration::from_millis(3500);
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);
/// Receivers that answer so much later than the first are not waited for: what they miss is sent again.
const GATHER: Duration = Duration::from_secs(3);
/// What a pause of this process may be caught up with at once, where there is a limit.
const CATCH_UP: Duration = Duration::from_millis(3);
/// How long the ends of conversations may take.
const LAST_WORD: Duration = Duration::from_secs(2);
/// The tree among the children; receivers have their own numbers.
const TREE: ChildId = ChildId(u32::MAX);
/// Words of children and receivers that wait to be heard.
const WORDS: usize = 64;

/// A receiver, before anything was said.
pub struct Invited {
    /// As the user named it.
    pub name: String,
    /// Its address in the overlay, if it is reached over nodes.
    pub address: Option<IpAddr>,
    /// The session with it.
    pub session: Session,
}

/// How an object came to a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes that it had before.
    pub spared: u64,
    /// The whole file was in place before: it said so without asking for anything.
    pub is_same: bool,
}

impl Delivered {
    /// A part of it was there before, or all of it and not in place.
    pub fn is_resumed(&self) -> bool {
        !self.is_same && self.spared > 0
    }
}

/// A receiver and how far it is.
struct Member {
    name: String,
    address: Option<IpAddr>,
    session: Session,
    status: Option<Status>,
    /// Bytes that it had before.
    spared: u64,
    result: Option<Result<Delivered, Failure>>,
}

/// The tree, if packets may go down one.
struct Tree {
    gateway: Session,
    key: DataKey,
    offer: OfferTree,
    /// The receivers that it reaches, as far as is known.
    members: BTreeSet<usize>,
    is_asked: bool,
    /// It has answered, or ended.
    is_settled: bool,
}

/// See the file's heading.
pub struct Cast {
    file: Arc<ObjectFile>,
    sender: Sender,
    flows: ChildFlows,
    members: Vec<Member>,
    tree: Option<Tree>,
    start: Instant,
    /// When receivers that have not answered yet are no longer waited for.
    gathered_at: Option<Instant>,
    /// When a receiver last said how far it is, or was made the offer.
    heard_at: Instant,
    /// What a receiver compares that has it in part.
    comparing: Option<(u64, u64)>,
    loading: Option<Loading>,
    limit: Option<Bandwidth>,
    /// When a limited sender may send again.
    free_at: Time,
    answers: mpsc::Receiver<(usize, Result<Record, Failure>)>,
    words: mpsc::Receiver<(ChildId, Says)>,
    speak: mpsc::Sender<(ChildId, Says)>,
    conversations: JoinSet<()>,
    branches: JoinSet<()>,
}

impl Cast {
    /// Offers the object to all receivers. With a session with a node (`gateway`) packets for several go down a tree.
    ///
    /// # Errors
    /// No randomness.
    pub fn begin(
        file: &Arc<ObjectFile>,
        invited: Vec<Invited>,
        gateway: Option<Session>,
        limit: Option<Bandwidth>,
    ) -> Result<Self, Failure> {
        let tree = match gateway {
            Some(gateway) if invited.len() > 1 => Some(Tree::new(file, gateway)?),
            _ => None,
        };
        let mut offer = Vec::new();
        let (layout, about, by_tree) = (file.layout, file.about.clone().into(), tree.as_ref().map(|t| t.offer));
        let version = if by_tree.is_some() { OFFER_BY_TREE } else { VERSION };
        Record::Offer { version, layout, root: file.root, about, tree: by_tree }.emit(&mut offer);
        Record::Leaves(file.tree.leaves().to_vec()).emit(&mut offer);
        let offer: Arc<[u8]> = offer.into();
        let ((tell, answers), (speak, words)) = (mpsc::channel(WORDS), mpsc::channel(WORDS));
        let mut conversations = JoinSet::new();
        for (number, receiver) in invited.iter().enumerate() {
            conversations.spawn(converse(receiver.session.clone(), Arc::clone(&offer), number, tell.clone()));
        }
        let member = |Invited { name, address, session }| Member { name, address, session, status: None, spared: 0, result: None };
        let window = (RECEIVER_MEMORY / 4 * 3 / layout.block_bytes().max(1)).clamp(2, 4096) as u32;
        let start = Instant::now();
        Ok(Self {
            sender: Sender::new(layout, file.tree.clone(), SenderConfig { window, settle: SETTLE }),
            file: Arc::clone(file),
            flows: ChildFlows::new(layout),
            members: invited.into_iter().map(member).collect(),
            tree,
            start,
            gathered_at: None,
            heard_at: start,
            comparing: None,
            loading: None,
            limit,
            free_at: Time::ZERO,
            answers,
            words,
            speak,
            conversations,
            branches: JoinSet::new(),
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Each receiver has it, or never will.
    pub fn is_over(&self) -> bool {
        self.members.iter().all(|m| m.result.is_some())
    }

    /// Bytes that are there, and bytes that were before, of all receivers together.
    pub fn progress(&self) -> (u64, u64) {
        let there = |m: &Member| match (&m.result, &m.status) {
            (Some(Ok(_)), _) => self.file.layout.size(),
            (_, Some(status)) => there(&self.file.layout, status),
            _ => 0,
        };
        (self.members.iter().map(there).sum(), self.members.iter().map(|m| m.spared).sum())
    }

    /// Sessions of the receivers that do not have everything yet.
    pub fn open_sessions(&self) -> impl Iterator<Item = &Session> {
        self.members.iter().filter(|m| m.result.is_none()).map(|m| &m.session)
    }

    /// For how long no receiver has said how far it is, from the offer on.
    pub fn silence(&self) -> Duration {
        self.heard_at.elapsed()
    }

    /// Bytes, of so many, that a receiver has compared: what it said since this was last asked.
    pub fn comparing(&mut self) -> Option<(u64, u64)> {
        self.comparing.take()
    }

    /// Counts.
    pub fn stats(&self) -> SenderStats {
        self.sender.stats()
    }

    /// The outcome of each receiver, in their order. Receivers that have the object have been told that this end knows it.
    pub async fn end(mut self) -> Vec<(String, Session, Result<Delivered, Failure>)> {
        drop(self.answers);
        let _ = tokio::time::timeout(LAST_WORD, async { while self.conversations.join_next().await.is_some() {} }).await;
        let gone = || Err(Failure::PeerGone("it said nothing".into()));
        self.members.into_iter().map(|m| (m.name, m.session, m.result.unwrap_or_else(gone))).collect()
    }

    /// Sends what can be sent, and takes what comes first.
    ///
    /// # Errors
    /// The file cannot be read, or is not what was announced.
    pub async fn step(&mut self) -> Result<(), Failure> {
        self.gather();
        if self.loading.is_none()
            && let Some(block) = self.sender.wanted_block()
        {
            let file = Arc::clone(&self.file);
            self.loading = Some(tokio::task::spawn_blocking(move || file.block(block)));
        }
        let waits = self.give()?;
        let until = match waits {
            Waits::Packet => Time::MAX,
            Waits::Room(at) => at,
        };
        let pause = until.since(self.now()).min(TICK);
        tokio::select! {
            // What has been said already is heard first.
            biased;
            Some((number, answer)) = self.answers.recv() => self.take(number, answer),
            Some((child, says)) = self.words.recv() => self.hear(child, says),
            source = loaded(&mut self.loading) => {
                self.loading = None;
                self.sender.add(source?);
            }
            // A child that wants no more says why by its answer.
            room = self.flows.room() => if let Err(child) = room {
                self.part(child);
            },
            () = tokio::time::sleep(pause) => {}
        }
        Ok(())
    }

    /// Packets as far as there is room, and as the limit permits.
    fn give(&mut self) -> Result<Waits, Failure> {
        // Until the tree is there nothing is sent that it would miss.
        if self.tree.as_ref().is_some_and(|t| !t.is_settled) {
            return Ok(Waits::Room(Time::MAX));
        }
        let (now, mut failed, mut is_held) = (self.now(), None, false);
        let Self { sender, flows, tree, free_at, limit, .. } = self;
        let waits = flows.give(now, || {
            is_held = limit.is_some() && *free_at > now;
            if is_held {
                return None;
            }
            let mut packet = Vec::new();
            let id = sender.poll_packet(now, &mut packet)?;
            if let Some(rate) = limit {
                *free_at = (*free_at).max(now.saturating_sub(CATCH_UP)) + rate.time_for(packet.len() as u64);
            }
            let Some(tree) = tree else { return Some((id, packet.into())) };
            let mut datagram = Vec::with_capacity(packet.len() + noctule_proto::object::one_way::DATA_OVERHEAD);
            tree.key.begin(id, &mut datagram);
            datagram.extend_from_slice(&packet);
            match tree.key.finish(&mut datagram) {
                Ok(()) => Some((id, Bytes::from(datagram))),
                Err(error) => {
                    failed = Some(Failure::system("sealing", error));
                    None
                }
            }
        });
        match failed {
            Some(failure) => Err(failure),
            None if is_held => Ok(Waits::Room(*free_at)),
            None => Ok(waits),
        }
    }

    /// Once each receiver has answered, or has been waited for long enough, the tree is asked for.
    fn gather(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        let has_answered = |m: &Member| m.status.is_some() || m.result.is_some();
        let is_time = self.gathered_at.is_some_and(|at| at <= Instant::now());
        if tree.is_asked || !(is_time || self.members.iter().all(has_answered)) {
            return;
        }
        tree.is_asked = true;
        let open = |(number, m): (usize, &Member)| {
            let address = m.address.filter(|_| m.result.is_none() && m.status.is_some())?;
            Some(tree::Member { number: number as u64, address })
        };
        let members: Vec<_> = self.members.iter().enumerate().filter_map(open).collect();
        tree.members = members.iter().map(|m| m.number as usize).collect();
        if members.is_empty() {
            tree.is_settled = true;
            return;
        }
        let branch = Branch { number: tree.offer.number, hops: MAX_HOPS, layout: self.file.layout, members };
        self.branches.spawn(child::follow(tree.gateway.clone(), branch, TREE, self.speak.clone()));
    }

    /// An answer of a receiver.
    fn take(&mut self, number: usize, answer: Result<Record, Failure>) {
        let result = answer.and_then(|answer| self.understand(number, answer));
        match result {
            Ok(None) => {}
            Ok(Some(delivered)) => self.settle(number, Ok(delivered)),
            Err(failure) => self.settle(number, Err(failure)),
        }
    }

    fn understand(&mut self, number: usize, answer: Record) -> Result<Option<Delivered>, Failure> {
        let Some(member) = self.members.get_mut(number) else { return Ok(None) };
        let layout = &self.file.layout;
        self.heard_at = Instant::now();
        match answer {
            Record::Comparing { done, total } => {
                self.comparing = Some((done, total));
                Ok(None)
            }
            Record::Status(bytes) => {
                let status = Status::parse(&mut Reader::new(&bytes), layout).map_err(|e| Failure::PeerGone(e.to_string()))?;
                if member.status.is_none() {
                    member.spared = there(layout, &status);
                    self.gathered_at.get_or_insert_with(|| Instant::now() + GATHER);
                }
                member.status = Some(status);
                self.on_status(number);
                Ok(None)
            }
            Record::Refused { refusal, path, message } => Err(Failure::refused(&Refused { refusal, path, message })),
            Record::Done { bytes, digest, .. } if digest == Hash::from_bytes(self.file.root.0) => {
                let is_same = member.status.is_none();
                if is_same {
                    member.spared = bytes;
                }
                Ok(Some(Delivered { spared: member.spared, is_same }))
            }
            Record::Done { digest, .. } => {
                let problem = format!("the receiver has the object {digest}, not {}", Hash::from_bytes(self.file.root.0));
                Err(Failure::Hash { path: self.file.entry.shown(), problem })
            }
            _ => Err(Failure::PeerGone("it sent a record that only a sender sends".into())),
        }
    }

    /// A receiver that the tree does not reach is given packets by its own session.
    fn on_status(&mut self, number: usize) {
        let (child, now) = (ChildId(number as u32), self.now());
        let Some(member) = self.members.get(number) else { return };
        let Some(status) = member.status.clone().filter(|_| member.result.is_none()) else { return };
        if self.tree.as_ref().is_some_and(|t| !t.is_asked || t.members.contains(&number)) {
            return;
        }
        if self.flows.has(child) {
            self.flows.on_status(child, status.clone());
        } else if status.is_complete(&self.file.layout) || self.flows.child_status(child).is_some() {
            // It wants no more: the rest is its disk's business.
            return;
        } else {
            match member.session.open_messages(tree::packets(OBJECT_TAG)) {
                Ok(data) => self.flows.add(child, data, status.clone()),
                Err(error) => return self.settle(number, Err(error.into())),
            }
        }
        self.sender.on_status(now, ReceiverId(child.0), status);
        self.sender.on_missed(self.flows.missed(child));
    }

    /// A receiver has it, or never will.
    fn settle(&mut self, number: usize, result: Result<Delivered, Failure>) {
        self.part(ChildId(number as u32));
        if let Some(member) = self.members.get_mut(number) {
            member.result.get_or_insert(result);
        }
    }

    /// A child gets nothing more.
    fn part(&mut self, child: ChildId) {
        self.flows.end(child, &self.file.layout);
        self.sender.remove(ReceiverId(child.0));
    }

    /// The tree says something.
    fn hear(&mut self, child: ChildId, says: Says) {
        let now = self.now();
        let Some(tree) = &mut self.tree else { return };
        match says {
            Says::Ready(data, status) => {
                tree.is_settled = true;
                self.flows.add(child, data, status.clone());
                self.sender.on_status(now, ReceiverId(child.0), status);
            }
            Says::Status(status) if self.flows.has(child) => {
                self.flows.on_status(child, status.clone());
                self.sender.on_status(now, ReceiverId(child.0), status);
                self.sender.on_missed(self.flows.missed(child));
            }
            Says::Status(_) => {}
            Says::Lost(numbers, why) => {
                for number in numbers.into_iter().filter_map(|n| usize::try_from(n).ok()) {
                    self.leave_the_tree(number, &why);
                }
            }
            Says::Ended(why) => {
                tree.is_settled = true;
                let is_complete = self.flows.is_complete(child, &self.file.layout);
                self.part(child);
                let left: Vec<usize> = self.tree.iter().flat_map(|t| t.members.iter().copied()).collect();
                left.into_iter().filter(|_| !is_complete).for_each(|number| self.leave_the_tree(number, &why));
            }
        }
    }

    fn leave_the_tree(&mut self, number: usize, why: &str) {
        let was_there = self.tree.as_mut().is_some_and(|t| t.members.remove(&number));
        let Some(member) = self.members.get(number).filter(|m| was_there && m.result.is_none()) else { return };
        tell!("noctule: {}: the tree does not reach it ({why}); it is sent to by itself", member.name);
        self.on_status(number);
    }
}

impl Tree {
    fn new(file: &ObjectFile, gateway: Session) -> Result<Self, Failure> {
        let mut random = [0; 36];
        getrandom::fill(&mut random).map_err(|e| Failure::system("no randomness from the operating system", e))?;
        let (mut key, mut number) = ([0; 32], [0; 4]);
        key.copy_from_slice(&random[..32]);
        number.copy_from_slice(&random[32..]);
        let announcement = Announcement { key, root: file.root, layout: file.layout, about: Vec::new() };
        let data_key = announcement.data_key().map_err(|e| Failure::system("keys", e))?;
        let offer = OfferTree { key, number: u32::from_be_bytes(number) };
        Ok(Self { gateway, key: data_key, offer, members: BTreeSet::new(), is_asked: false, is_settled: false })
    }
}

/// Offers the object to one receiver and tells what it answers, to its last word.
async fn converse(session: Session, offer: Arc<[u8]>, number: usize, tell: mpsc::Sender<(usize, Result<Record, Failure>)>) {
    if let Err(failure) = talk(session, &offer, number, &tell).await {
        // Nobody listens when everything is over.
        let _ = tell.send((number, Err(failure))).await;
    }
}

async fn talk(session: Session, offer: &[u8], number: usize, tell: &mpsc::Sender<(usize, Result<Record, Failure>)>) -> Result<(), Failure> {
    let (mut control, answers) = session.open_bi(FlowOptions { tag: OBJECT_TAG, ..FlowOptions::default() })?;
    let mut answers = Records::new(answers);
    let mut early = tokio::select! {
        // A refusal may come before everything is said.
        answer = answers.answer() => Some(answer?),
        written = async { control.write_all(offer).await } => {
            written?;
            None
        }
    };
    loop {
        let answer = match early.take() {
            Some(answer) => answer,
            None => answers.answer().await?,
        };
        let is_last = matches!(answer, Record::Done { .. } | Record::Refused { .. });
        if tell.send((number, Ok(answer))).await.is_err() || is_last {
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut control).await;
            return Ok(());
        }
    }
}

/// Bytes that a status says are there.
fn there(layout: &Layout, status: &Status) -> u64 {
    let below = if status.first == 0 { 0 } else { layout.range(status.first - 1).end };
    let open = (status.first..).zip(&status.wanted).map(|(block, wanted)| {
        let range = layout.range(block);
        (range.end - range.start).saturating_sub(u64::from(*wanted) * layout.packet_len() as u64)
    });
    (below + open.sum::<u64>()).min(layout.size())
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
