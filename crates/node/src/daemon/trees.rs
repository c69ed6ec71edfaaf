//! Passes objects on to several neighbours at once (`docs/spec/object.md` 6). Nothing is configured: a tree branches where the routes to its receivers part.
//!
//! The node has no key of what passes. It keeps one packet of an object, and what waits in its children's flows.

use super::Daemon;
use super::peer::Peer;
use crate::transfer::wire::{Record, Records};
use crate::tree::child::{self, Says};
use crate::tree::{self, Branch, ChildFlows, EVERY, Expectation, Expected, IdleTimer, Member, SOON, Waits};
use bytes::Bytes;
use noctule::{IncomingFlow, MessageReceiver, PublicKey, RecvStream, SendStream};
use noctule_proto::object::one_way::id_of;
use noctule_proto::object::{ChildId, PacketId, Status};
use noctule_proto::units::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long a neighbour may take to ask on a stream that it opened, and to have a session.
const PATIENCE: Duration = Duration::from_secs(5);
/// A status that has not changed is sent again after so long, so that its request for packets is current.
const SAY_AGAIN: Duration = Duration::from_millis(500);
/// Records of children that may wait to be handled.
const WORDS: usize = 64;

/// The objects that pass now.
#[derive(Default)]
pub struct Trees {
    expected: Expected,
    passing: Mutex<BTreeMap<Name, TreeView>>,
}

/// Key of the neighbour that gives the branch, and the branch's tag.
type Name = (PublicKey, u64);

/// Receivers that each neighbour leads to.
type Parts = BTreeMap<PublicKey, Vec<Member>>;

/// Receivers that no neighbour leads to, by reason.
type Unreached = BTreeMap<&'static str, Vec<u64>>;

/// An object that passes, for status.
#[derive(Clone, Debug, Default)]
pub struct TreeView {
    /// The neighbour that gives it to this node.
    pub from: String,
    /// Its bytes.
    pub size: u64,
    /// Packets that came.
    pub packets: u64,
    /// Packets that were given to neighbours.
    pub sent: u64,
    /// Packets that a neighbour missed because it lags.
    pub skipped: u64,
    /// Neighbours that it goes to.
    pub children: Vec<ChildView>,
}

/// A neighbour that an object goes to.
#[derive(Clone, Debug, Default)]
pub struct ChildView {
    /// Its name in the file.
    pub name: String,
    /// Receivers behind it.
    pub receivers: usize,
    /// Bytes that all of them have.
    pub there: u64,
    /// `asked`, `on`, `lagging`, `done` or `gone`.
    pub state: &'static str,
}

impl Trees {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, TreeView>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that passes now.
    pub fn views(&self) -> Vec<TreeView> {
        self.lock().values().cloned().collect()
    }
}

/// A place among the objects that may pass at a time; given back when dropped.
struct Place {
    daemon: Arc<Daemon>,
    name: Name,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.daemon.trees.lock().remove(&self.name);
    }
}

impl Daemon {
    /// Takes a flow of a branch. A stream asks for a branch; a flow of packets goes to the branch that was asked for.
    pub(super) fn take_branch(self: &Arc<Self>, from: &Arc<Peer>, flow: IncomingFlow) {
        match flow {
            IncomingFlow::Stream { recv, send: Some(send) } => drop(tokio::spawn(pass(Arc::clone(self), Arc::clone(from), recv, send))),
            flow => self.trees.expected.give(from.key, flow),
        }
    }

    /// The neighbours over which the receivers are reached, and the receivers that are not, by reason. Never back to `from`.
    fn part(&self, members: &[Member], from: PublicKey) -> (Parts, Unreached) {
        let (config, routes) = (self.config(), self.routes());
        let (mut parts, mut lost) = (Parts::new(), Unreached::new());
        for member in members {
            let is_usable = |via: &PublicKey| *via != from && self.peer(*via).is_some_and(|p| p.has_link());
            let leads_there = routes.iter().filter(|r| r.route.to.contains(&member.address) && is_usable(&r.via));
            let best = leads_there.min_by_key(|r| (u8::MAX - r.route.to.prefix_len(), r.route.metric));
            match best {
                _ if config.addresses.contains(&member.address) => {
                    lost.entry("it is a node, which receives no files").or_default().push(member.number)
                }
                Some(route) => parts.entry(route.via).or_default().push(*member),
                None => lost.entry("no route leads there over a link that is up").or_default().push(member.number),
            }
        }
        (parts, lost)
    }

    /// A place for one more object, or why there is none.
    fn enter(self: &Arc<Self>, name: Name, view: TreeView) -> Result<(Place, Expectation), &'static str> {
        let config = self.config();
        if !config.relay {
            return Err("it does not relay (relay = true in its file)");
        }
        let mut passing = self.trees.lock();
        let of_neighbour = passing.keys().filter(|(from, _)| *from == name.0).count();
        may_enter(passing.len(), of_neighbour, config.limits.trees)?;
        let Some(expectation) = self.trees.expected.expect(name.0, name.1) else { return Err("an object of the same number passes it") };
        passing.insert(name, view);
        drop(passing);
        Ok((Place { daemon: Arc::clone(self), name }, expectation))
    }
}

/// Whether one more object may pass: `passing` do, `of_neighbour` of them from the same neighbour. A neighbour has a quarter of the places, at least one.
fn may_enter(passing: usize, of_neighbour: usize, most: usize) -> Result<(), &'static str> {
    if passing >= most {
        return Err("it passes on as many objects as it may ([limits] trees in its file)");
    }
    if of_neighbour >= (most / 4).max(1) {
        return Err("it passes on as many objects as it may for one neighbour (a quarter of [limits] trees in its file)");
    }
    Ok(())
}

/// Reads the branch that a neighbour asks for, and passes it on.
async fn pass(daemon: Arc<Daemon>, from: Arc<Peer>, recv: RecvStream, mut answers: SendStream) {
    let tag = recv.options().tag;
    let mut asks = Records::new(recv);
    let asked = tokio::time::timeout(PATIENCE, asks.next()).await;
    let Ok(Ok(Some(Record::Branch(bytes)))) = asked else { return };
    let branch = match Branch::parse(&bytes) {
        Ok(branch) if tree::tag(branch.number) == tag => branch,
        Ok(_) => return,
        Err(error) => return tracing::debug!(node = %from.name(), %error, "a branch that cannot be read"),
    };
    let own = daemon.config().name.clone();
    let view = TreeView { from: from.name(), size: branch.layout.size(), ..TreeView::default() };
    let entered = match branch.hops {
        0 => Err("the routes of the nodes lead in a circle"),
        _ => daemon.enter((from.key, tag), view),
    };
    let (place, expectation) = match entered {
        Ok(entered) => entered,
        Err(why) => {
            tracing::info!(from = %from.name(), receivers = branch.members.len(), "an object is not passed on: {why}");
            let members = branch.members.iter().map(|m| m.number).collect();
            let _ = say(&mut answers, &Record::Lost { members, message: format!("{own}: {why}") }).await;
            let _ = answers.finish().await;
            return;
        }
    };
    tracing::info!(from = %from.name(), bytes = branch.layout.size(), receivers = branch.members.len(), "passing an object on");
    let mut passage = Passage::begin(place, branch, &from, own);
    match passage.run(expectation, asks, &mut answers).await {
        Ok(()) => drop(answers.finish().await),
        Err(error) => tracing::debug!(from = %from.name(), %error, "an object's branch broke"),
    }
    let stats = passage.flows.stats();
    tracing::info!(from = %from.name(), packets = stats.packets, sent = stats.sent, skipped = stats.skipped, "an object has passed");
}

async fn say(answers: &mut SendStream, record: &Record) -> Result<(), noctule::FlowError> {
    answers.write_all(&record.bytes()).await
}

/// A neighbour that was asked.
struct Child {
    name: String,
    members: BTreeSet<u64>,
    is_ready: bool,
    is_over: bool,
}

/// One object that passes.
struct Passage {
    place: Place,
    own: String,
    branch: Branch,
    flows: ChildFlows,
    children: BTreeMap<ChildId, Child>,
    words: mpsc::Receiver<(ChildId, Says)>,
    start: Instant,
    idle: IdleTimer,
    /// Receivers to be told of as lost.
    lost: Vec<(Vec<u64>, String)>,
    _branches: JoinSet<()>,
}

impl Passage {
    fn begin(place: Place, branch: Branch, from: &Peer, own: String) -> Self {
        let daemon = Arc::clone(&place.daemon);
        let (parts, unreached) = daemon.part(&branch.members, from.key);
        let (speak, words) = mpsc::channel(WORDS);
        let (mut children, mut branches) = (BTreeMap::new(), JoinSet::new());
        for (number, (key, members)) in (0..).zip(parts) {
            let Some(peer) = daemon.peer(key) else { continue };
            let child = ChildId(number);
            children.insert(
                child,
                Child { name: peer.name(), members: members.iter().map(|m| m.number).collect(), is_ready: false, is_over: false },
            );
            let (part, speak) = (branch.part(members), speak.clone());
            branches.spawn(async move {
                match tokio::time::timeout(PATIENCE, peer.session()).await {
                    Ok(session) => child::follow(session, part, child, speak).await,
                    Err(_) => drop(speak.send((child, Says::Ended("there is no session with it".into()))).await),
                }
            });
        }
        let lost = unreached.into_iter().map(|(why, members)| (members, format!("{own}: {why}"))).collect();
        let flows = ChildFlows::new(branch.layout);
        let start = Instant::now();
        Self { place, own, branch, flows, children, words, start, idle: IdleTimer::new(start), lost, _branches: branches }
    }

    /// Passes packets down and statuses up until all children are done, or the parent has gone.
    async fn run(&mut self, mut flows: Expectation, mut asks: Records, answers: &mut SendStream) -> Result<(), noctule::FlowError> {
        let mut data: Option<MessageReceiver> = None;
        let mut ready: Option<(PacketId, Bytes)> = None;
        let mut told: Option<(Instant, Status)> = None;
        let mut look_at = Instant::now();
        self.show();
        loop {
            for (members, message) in std::mem::take(&mut self.lost) {
                tracing::info!(receivers = members.len(), "an object does not reach all receivers: {message}");
                say(answers, &Record::Lost { members, message }).await?;
            }
            if self.idle.is_over(Instant::now()) {
                return self.give_up(answers).await;
            }
            let waits = self.flows.give(Time::ZERO + self.start.elapsed(), || ready.take());
            let now = Instant::now();
            let is_time = look_at <= now || self.children.values().all(|c| c.is_over);
            if is_time {
                look_at = now + SOON;
            }
            if let Some(status) = is_time.then(|| self.news(told.as_ref())).flatten() {
                let mut bytes = Vec::new();
                status.emit(&mut bytes);
                say(answers, &Record::Status(bytes.into())).await?;
                told = Some((Instant::now(), status));
                self.show();
            }
            if self.children.values().all(|c| c.is_over) {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some((child, says)) = self.words.recv() => self.hear(child, says),
                asked = asks.next() => {
                    // The parent has nothing more to say: the end of its stream means that it is done with this branch, or gone.
                    if !matches!(asked, Ok(Some(_))) {
                        return Ok(());
                    }
                }
                flow = flows.next() => {
                    if let IncomingFlow::Messages(flow) = flow {
                        data = Some(flow);
                    }
                }
                room = self.flows.room() => if let Err(child) = room {
                    self.flows.end(child, &self.branch.layout);
                },
                packet = packet(data.as_mut()), if waits == Waits::Packet && ready.is_none() => match packet {
                    Some(packet) => {
                        self.idle.packet(Instant::now());
                        ready = id_of(&packet).map(|id| (id, packet));
                    }
                    None => data = None,
                },
                () = tokio::time::sleep(if told.is_some() { SOON } else { EVERY }) => {}
            }
        }
    }

    /// Tells the parent that the branch is given up, so that the source sends the receivers what they lack.
    async fn give_up(&mut self, answers: &mut SendStream) -> Result<(), noctule::FlowError> {
        let members: Vec<u64> = self.children.values_mut().flat_map(|child| std::mem::take(&mut child.members)).collect();
        let message = format!("{}: neither packets nor news came for too long", self.own);
        tracing::info!(receivers = members.len(), "an object is not passed on any more: {message}");
        say(answers, &Record::Lost { members, message }).await
    }

    fn hear(&mut self, id: ChildId, says: Says) {
        let Some(child) = self.children.get_mut(&id) else { return };
        if let Says::Ready(_, status) | Says::Status(status) = &says {
            self.idle.status(Instant::now(), id, status);
        }
        match says {
            Says::Ready(data, status) => {
                child.is_ready = true;
                self.flows.add(id, data, status);
            }
            Says::Status(status) => self.flows.on_status(id, status),
            Says::Lost(members, why) => {
                // A child can lose only receivers that are behind it.
                let members: Vec<u64> = members.into_iter().filter(|m| child.members.remove(m)).collect();
                self.lost.push((members, why));
            }
            Says::Ended(why) => {
                (child.is_ready, child.is_over) = (true, true);
                let is_complete = self.flows.is_complete(id, &self.branch.layout);
                self.flows.end(id, &self.branch.layout);
                let members: Vec<u64> = std::mem::take(&mut child.members).into_iter().collect();
                if !is_complete && !members.is_empty() {
                    self.lost.push((members, format!("{}: {}: {why}", self.own, child.name)));
                }
            }
        }
    }

    /// What the parent should hear now, once every child has answered.
    fn news(&self, told: Option<&(Instant, Status)>) -> Option<Status> {
        if self.children.values().any(|c| !c.is_ready) {
            return None;
        }
        let status = self.flows.status()?;
        let Some((at, last)) = told else { return Some(status) };
        let is_ahead = (last.first, last.ahead) != (status.first, status.ahead);
        let is_due = at.elapsed() >= EVERY && *last != status;
        (is_ahead || is_due || at.elapsed() >= SAY_AGAIN).then_some(status)
    }

    /// For status.
    fn show(&self) {
        let layout = &self.branch.layout;
        let child = |(id, child): (&ChildId, &Child)| {
            let status = self.flows.child_status(*id);
            let is_complete = status.is_some_and(|s| s.is_complete(layout));
            let first = status.map_or(0, |s| s.first);
            let state = match (child.is_ready, child.is_over) {
                _ if is_complete => "done",
                (_, true) => "gone",
                (false, _) => "asked",
                _ if self.flows.lags(*id) => "lagging",
                _ => "on",
            };
            let there = if is_complete { layout.size() } else { first.checked_sub(1).map_or(0, |last| layout.range(last).end) };
            ChildView { name: child.name.clone(), receivers: child.members.len(), there, state }
        };
        let stats = self.flows.stats();
        if let Some(view) = self.place.daemon.trees.lock().get_mut(&self.place.name) {
            (view.packets, view.sent, view.skipped) = (stats.packets, stats.sent, stats.skipped);
            view.children = self.children.iter().map(child).collect();
        }
    }
}

/// The next packet from above; `None` when there are no more. Nothing is lost if the future is dropped.
async fn packet(data: Option<&mut MessageReceiver>) -> Option<Bytes> {
    match data {
        Some(data) => data.recv().await.ok().flatten().map(|message| message.data),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_neighbour_has_a_quarter_of_the_places() {
        // The first sixteen of one neighbour pass, and leave room for others.
        let of_one = (0..64).take_while(|n| may_enter(*n, *n, 64).is_ok()).count();
        assert_eq!(of_one, 16);
        assert!(may_enter(16, 16, 64).unwrap_err().contains("for one neighbour"));
        assert!(may_enter(16, 0, 64).is_ok() && may_enter(63, 15, 64).is_ok());
        assert!(may_enter(64, 0, 64).unwrap_err().contains("as many objects as it may ("));
        assert!(may_enter(0, 0, 1).is_ok() && may_enter(1, 1, 2).is_err());
    }
}
