//! Several paths under one link: how a further one is made, which path carries what, and what happens when one falls silent (docs/spec/multipath.md).
//!
//! Flows do not know by which path a packet goes: what a path has room for it takes from the schedule, and the fates of all paths come back to the
//! same sender. So the rates add up, and what one path loses any of them repairs.

use super::Link;
use super::schedule::Wanted;
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::flow::SendContext;
use crate::flows::Flows;
use crate::ids::{FlowLabel, PathId};
use crate::path::{Address, MAX_PATHS, Path, PathConfig, PathState};
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::packet::ConnectionId;
use smallvec::SmallVec;

/// Reports go by the fastest of the paths that were heard within this before the newest was.
const FRESH: Duration = Duration::from_millis(50);
/// Round trips that differ by less, or by less than an eighth, are taken for equal.
const ALIKE: Duration = Duration::from_millis(1);

/// What a path may carry now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Link control, CREDIT and RANK.
    pub(super) reports: bool,
    /// Flows, by class.
    pub(super) wanted: Wanted,
    /// Whatever no other path would bring sooner.
    pub(super) is_best: bool,
}

impl Share {
    const ALL: Self = Self { reports: true, wanted: Wanted { latency: true, bulk: true }, is_best: true };

    pub(super) fn has_data(&self) -> bool {
        self.wanted.latency || self.wanted.bulk
    }
}

/// Further paths that this link is to have.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    /// Asked for by the owner, and not yet made.
    wanted: SmallVec<[(PathId, Address); 1]>,
    /// Numbers given out: the initiator's are even, the responder's odd.
    made: u32,
    /// When the next path's answers will be overdue.
    pub(super) watch_at: Option<Time>,
    /// Standings that the owner was told of.
    told: SmallVec<[(PathId, PathState); 2]>,
}

impl Link {
    /// A further path, to be opened as soon as the link is up. `None`: there are as many as there may be.
    pub(crate) fn plan_path(&mut self, address: Address, shared: &mut Shared) -> Option<PathId> {
        if self.paths.len().max(1) + self.plans.wanted.len() >= MAX_PATHS {
            return None;
        }
        self.plans.made += 1;
        let id = PathId(2 * self.plans.made - u32::from(!self.is_initiator));
        self.plans.wanted.push((id, address));
        if self.is_up() {
            self.stock_cids(id, shared);
        }
        Some(id)
    }

    /// The link is up: the neighbour is told the ids of planned paths.
    pub(super) fn announce_plans(&mut self, shared: &mut Shared) {
        let ids: SmallVec<[PathId; 2]> = self.plans.wanted.iter().map(|p| p.0).collect();
        ids.into_iter().for_each(|id| self.stock_cids(id, shared));
    }

    /// NEW_CONNECTION_ID: the neighbour's name for its end of a path. It makes a path that we planned; one that the neighbour plans gets our names.
    pub(super) fn on_new_cid(
        &mut self,
        now: Time,
        path: PathId,
        sequence: u64,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Result<(), CloseReason> {
        let too_many = || CloseReason::local(Code::TooMany, Layer::Link, "more connection ids than announced");
        let is_known = self.paths.contains_key(&path) || self.cids.has(path);
        let is_theirs = path.0 % 2 == u32::from(self.is_initiator);
        if !is_known && is_theirs && path.0 > 0 {
            if switch::is_off(Mechanism::Paths) || self.cids.paths() >= MAX_PATHS {
                return Ok(());
            }
            self.stock_cids(path, shared);
        }
        if !self.cids.accept(path, sequence, id) {
            return Err(too_many());
        }
        if let Some(at) = self.plans.wanted.iter().position(|p| p.0 == path) {
            let (_, address) = self.plans.wanted.remove(at);
            let mut made = self.new_path(now, path, address, shared);
            made.begin_opening(now, true);
            self.paths.insert(path, Box::new(made));
            self.set_ack_urgency();
        }
        Ok(())
    }

    /// The neighbour may open this path.
    pub(super) fn may_answer_path(&self, path: PathId) -> bool {
        let is_theirs = path.0 > 0 && path.0 % 2 == u32::from(self.is_initiator);
        is_theirs && self.is_up() && self.paths.len() < MAX_PATHS && self.cids.remote_for(path).is_some()
    }

    /// A path that the neighbour opens, from its first packet, which has opened.
    pub(super) fn answered_path(&self, now: Time, path: PathId, from: Address, shared: &mut Shared) -> Box<Path> {
        let mut made = self.new_path(now, path, from, shared);
        made.begin_opening(now, false);
        Box::new(made)
    }

    fn new_path(&self, now: Time, id: PathId, address: Address, shared: &mut Shared) -> Path {
        let config = PathConfig {
            max_datagram: shared.config.max_datagram_to(address.remote).min(self.peer_params.max_datagram),
            trace: shared.tracer.of(self.id),
            ack: super::handshake::wished_acks(&self.peer_params),
            ..shared.path_config()
        };
        Path::new(id, address.remote, address.local, config, shared.fork_rng(), now)
    }

    /// Paths in the order in which they are asked: the soonest to arrive first.
    pub(super) fn path_order(&self) -> SmallVec<[PathId; 4]> {
        let mut ids: SmallVec<[PathId; 4]> = self.paths.keys().copied().collect();
        if ids.len() > 1 {
            ids.sort_by_key(|id| self.paths.get(id).map(|p| (!p.is_open(), p.rtt())));
        }
        ids
    }

    /// What a path may carry: data where the others would not bring them sooner, reports where the neighbour was heard.
    pub(super) fn share(&self, now: Time, path: PathId, flows: &Flows) -> Share {
        if self.paths.len() == 1 {
            return Share::ALL;
        }
        let Some(own) = self.paths.get(&path) else { return Share::default() };
        let open = || self.paths.values().filter(|p| p.is_open());
        if !own.is_open() {
            // Tests and probes only, which need no share.
            return Share::default();
        }
        let newest = open().map(|p| p.heard_at()).max().unwrap_or(now);
        let reporter = open().filter(|p| p.heard_at() + FRESH >= newest).min_by_key(|p| (p.rtt(), p.id()));
        let faster = |p: &Path| p.rtt() + ALIKE.max(p.rtt() / 8) < own.rtt();
        let soonest = open().filter(|p| faster(p)).map(|p| p.rtt()).min();
        let is_best = soonest.is_none();
        let wanted = match soonest {
            None => Wanted { latency: true, bulk: true },
            Some(soonest) => {
                // What waits goes by the faster paths, if its last byte arrives sooner so.
                let advantage = own.rtt().saturating_sub(soonest) / 2;
                let meanwhile = open().filter(|p| faster(p)).map(|p| p.pacing_rate().map_or(u64::MAX, |rate| rate.bytes_in(advantage)));
                self.waiting(now, meanwhile.fold(0, u64::saturating_add), flows)
            }
        };
        Share { reports: reporter.is_none_or(|p| p.id() == path), wanted, is_best }
    }

    /// Whether more than `enough` bytes wait, of latency flows and of all.
    fn waiting(&self, now: Time, enough: u64, flows: &Flows) -> Wanted {
        let (mut latency, mut all) = (0u64, 0u64);
        let of = |label: &FlowLabel| self.labels.peek_out(*label, flows).map_or(0, |f| f.waiting_bytes(now));
        for label in self.schedule.latency() {
            latency = latency.saturating_add(of(label));
            if latency > enough {
                return Wanted { latency: true, bulk: true };
            }
        }
        all = all.saturating_add(latency);
        for label in self.schedule.bulk() {
            all = all.saturating_add(of(label));
            if all > enough {
                return Wanted { latency: false, bulk: true };
            }
        }
        Wanted { latency: false, bulk: false }
    }

    /// What flow senders need to know of the path that they go by, and of the slowest that has something of theirs.
    pub(super) fn context_of(&mut self, path: PathId, now: Time, flows: &mut Flows) -> Option<SendContext> {
        let own = self.paths.get(&path)?;
        let mut context = Self::context(own);
        if self.paths.len() > 1 {
            context.rtt = context.rtt.max(self.slowest_in_use());
        }
        if self.labels.has_ordered_waiting() && self.has_fresh(now, flows) && !switch::is_off(Mechanism::IdleShare) {
            context.idle_share = self.paths.get(&path)?.idle_share(now);
        }
        Some(context)
    }

    /// Round trip of the slowest path that has something in flight: what feedback of a flow waits for.
    pub(super) fn slowest_in_use(&self) -> Duration {
        self.paths.values().filter(|p| p.is_open() && p.in_flight() > 0).map(|p| p.rtt()).max().unwrap_or(Duration::ZERO)
    }

    /// Round trip by which the neighbour's reports on flows are timed: that of the slowest path by which its packets come.
    pub(super) fn slowest_heard(&self, path: PathId) -> Option<Duration> {
        let own = self.paths.get(&path)?;
        let newest = self.paths.values().map(|p| p.heard_at()).max()?;
        let fresh = self.paths.values().filter(|p| p.is_open() && p.heard_at() + p.rtt() * 2 + FRESH >= newest);
        Some(fresh.map(|p| p.rtt()).max().unwrap_or(own.rtt()).max(own.rtt()))
    }

    /// A path whose answers are overdue while another's come gives what it carried to the others.
    pub(super) fn watch_paths(&mut self, now: Time, flows: &mut Flows) {
        if self.paths.len() < 2 {
            return;
        }
        let open = self.paths.values().filter(|p| p.is_open());
        let overdue: SmallVec<[(PathId, Time); 2]> =
            open.filter_map(|p| p.overdue_at().filter(|at| *at <= now).map(|at| (p.id(), at))).collect();
        for (path, at) in overdue {
            let is_other_heard = self.paths.values().any(|p| p.id() != path && p.is_open() && p.heard_at() >= at);
            if is_other_heard {
                let mut fates = core::mem::take(&mut self.fates);
                if let Some(p) = self.paths.get_mut(&path) {
                    p.fall_silent(now, &mut fates);
                }
                self.dispatch_fates(now, &mut fates, flows);
                self.fates = fates;
            } else if self.paths.get(&path).is_some_and(|p| p.pto_count() > 0) {
                // A tail probe is in flight: another path is asked as well.
                self.paths.values_mut().filter(|p| p.id() != path && p.in_flight() == 0).for_each(|p| p.want_probe());
            }
        }
    }

    /// When to look again whether a path is silent; `handle_timeout` does.
    pub(super) fn plan_watch(&mut self, now: Time) {
        self.plans.watch_at = match self.paths.len() {
            0 | 1 => None,
            _ => self.paths.values().filter_map(|p| p.overdue_at()).filter(|at| *at > now).min(),
        };
    }

    /// What the owner has not been told of the paths' state.
    pub(crate) fn poll_path_state(&mut self) -> Option<Event> {
        if self.paths.len() < 2 {
            return None;
        }
        for p in self.paths.values() {
            let state = p.state();
            match self.plans.told.iter_mut().find(|t| t.0 == p.id()) {
                Some(told) if told.1 == state => continue,
                Some(told) => told.1 = state,
                None => {
                    self.plans.told.push((p.id(), state));
                    // The first path is open from the beginning.
                    if p.id() == PathId(0) && state == PathState::Open {
                        continue;
                    }
                }
            }
            return Some(Event::PathChanged { link: self.id, path: p.id(), remote: p.remote(), state });
        }
        None
    }
}
