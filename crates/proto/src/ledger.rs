//! The node's memory (P15, P18): every flow that works owns a floor; beyond it, memory is lent to those that hold something.
//!
//! What counts is what a flow *holds*, not what it might. A flow at rest costs what its tables take and little more. Before it takes anything it wakes: it
//! gets its whole floor, or takes nothing and waits. So what works can always go on to its end, however many rest (docs/decisions/0224).
//!
//! How much a flow may hold follows from what the others hold (dynamic thresholds, Choudhury and Hahne 1998): two thirds of what they leave. One flow alone gets its whole ceiling, n greedy ones get equal shares and leave one of 2n + 1 parts free, and a newcomer
//! always finds something. The sum of floors and of what is held beyond them never passes the limit.

use crate::neighbour::Neighbour;
use crate::shard::{Holdings, Part};
use crate::stats::Memory;
use crate::switch::{self, Mechanism};
use std::collections::BTreeMap;

/// This part of the limit is lent to nobody: flows that open find their floors there.
const KEPT_FOR_FLOORS: usize = 8;
/// And this part is for flows that work: neither those that open and rest nor what is lent takes it.
const KEPT_FOR_WORK: usize = 16;
/// Flows of each neighbour may work within so much, if it is free, whatever others that came later have.
const LEAST_WORK: usize = 64;
/// Of what others leave, so many parts in four may be floors of flows that one neighbour has opened, and what they hold: no neighbour opens or fills so many
/// that another finds nothing.
const PARTS_OF_ONE: usize = 3;

/// One part in so many of the limit is what shards together may hold without having told each other.
const UNTOLD: usize = 64;

/// What a flow costs its node beside what it holds, in bytes, rounded up: without it flows of tiny symbols would cost nothing in the ledger
/// (docs/results/attack.md).
pub(crate) const FLOW_COST: usize = 6144;

/// What a flow owns whatever others hold (P15), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    /// While it works: enough to come to an end with what it has begun.
    working: usize,
    /// While it rests.
    resting: usize,
}

impl Floor {
    /// `resting`: what may be held at rest, beside [`FLOW_COST`].
    pub(crate) fn new(working: usize, resting: usize) -> Self {
        Self { working, resting: (FLOW_COST + resting).min(working) }
    }

    /// It owns less at rest.
    fn can_rest(self) -> bool {
        self.resting < self.working
    }

    /// What is owned while it works.
    pub(crate) fn working(self) -> usize {
        self.working
    }

    /// The same all the time: for flows that cannot wait.
    pub(crate) fn always(self) -> Self {
        Self { resting: self.working, ..self }
    }
}

/// A floor that the flow owns all the time.
impl From<usize> for Floor {
    fn from(bytes: usize) -> Self {
        Self { working: bytes, resting: bytes }
    }
}

/// What one flow has to do with the ledger, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    floor: Floor,
    /// The flow owns the floor of one that works.
    is_awake: bool,
    /// The flow never needs more.
    ceiling: usize,
    held: usize,
    /// The neighbour that opened the flow; none if it was opened here.
    opener: Option<Neighbour>,
}

impl Account {
    /// Bytes that are the flow's own while it works.
    pub(crate) fn floor(&self) -> usize {
        self.floor.working
    }

    /// The neighbour that opened the flow; none if it was opened here.
    pub(crate) fn opener(&self) -> Option<Neighbour> {
        self.opener
    }

    /// Whether the flow owns the floor of one that works.
    pub(crate) fn is_awake(&self) -> bool {
        self.is_awake
    }

    /// Whether so much may be held at rest.
    pub(crate) fn fits_at_rest(&self, held: usize) -> bool {
        held <= self.floor.resting.saturating_sub(FLOW_COST)
    }

    /// What the flow costs the others.
    fn charge(&self) -> usize {
        if switch::is_off(Mechanism::Lending) {
            self.ceiling
        } else if self.is_awake {
            self.held.max(self.floor.working)
        } else {
            (self.held + FLOW_COST).max(self.floor.resting)
        }
    }
}

/// Floors and use, in bytes.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: usize,
    /// Sum of what flows hold, or of their floors where these are higher.
    charged: usize,
    used: usize,
    peak: usize,
    /// Flows that can rest, resting or not.
    can_rest: usize,
    /// The part of `charged` that is for flows that each neighbour has opened.
    charges: BTreeMap<Neighbour, Share>,
    /// What all shards of the endpoint hold, if there are several; `charged` is this one's part.
    holdings: Option<Holdings>,
    all: Part,
    /// Of the limit, what other shards may hold and have not told.
    untold: usize,
}

/// What flows of one neighbour cost, in bytes.
#[derive(Debug, Default)]
struct Share {
    charged: usize,
    /// What of it they would cost at rest, at least.
    resting: usize,
    /// `charged` as one part of what all shards hold for the neighbour.
    part: Part,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, charged: 0, used: 0, peak: 0, can_rest: 0, charges: BTreeMap::new(), holdings: None, all: Part::default(), untold: 0 }
    }

    /// Those of the shards of one endpoint, which have this limit together.
    pub(crate) fn of_shards(limit: usize, count: usize) -> impl Iterator<Item = Self> {
        let untold = limit / UNTOLD;
        let holdings = Holdings::new(untold / count.max(1));
        let one =
            move || Self { limit: limit - untold, all: holdings.part_of_all(), holdings: Some(holdings.clone()), untold, ..Self::new(0) };
        std::iter::repeat_with(one).take(count)
    }

    /// What flows of all shards are charged for.
    fn charged(&self) -> usize {
        self.charged + self.all.others()
    }

    /// What all of one neighbour are.
    fn charged_for(&self, opener: Neighbour) -> usize {
        self.charges.get(&opener).map_or(0, |share| share.charged + share.part.others())
    }

    /// The same for a flow that a neighbour opens; `None` also if it has opened too many already.
    pub(crate) fn open_for(&mut self, opener: Neighbour, floor: impl Into<Floor>, ceiling: usize) -> Option<Account> {
        let floor = floor.into();
        if floor.resting + self.kept_for_work(floor) > self.left_to(opener) {
            return None;
        }
        let account = Account { opener: Some(opener), ..self.open(floor, ceiling)? };
        let holdings = &self.holdings;
        let part = || holdings.as_ref().map(|all| all.part_of(opener)).unwrap_or_default();
        let share = self.charges.entry(opener).or_insert_with(|| Share { part: part(), ..Share::default() });
        share.charged += account.charge();
        share.resting += floor.resting;
        share.part.set(share.charged);
        Some(account)
    }

    /// What has to be free when a flow with this floor opens, beside what it owns from then on: where all rest, some can work.
    fn kept_for_work(&self, floor: Floor) -> usize {
        match floor.can_rest() || self.can_rest > 0 {
            true => (floor.working - floor.resting).max(self.limit / KEPT_FOR_WORK),
            false => 0,
        }
    }

    /// How much more may be charged for flows of this neighbour.
    fn left_to(&self, opener: Neighbour) -> usize {
        if switch::is_off(Mechanism::FairFloors) {
            return usize::MAX;
        }
        let charge = self.charged_for(opener);
        let left = self.limit.saturating_sub(self.charged().saturating_sub(charge));
        (left / 4 * PARTS_OF_ONE).saturating_sub(charge)
    }

    /// An account for a new flow with this floor, and a ceiling above it; `None` if what it owns from now on is not free. It rests.
    pub(crate) fn open(&mut self, floor: impl Into<Floor>, ceiling: usize) -> Option<Account> {
        let floor = floor.into();
        let is_awake = floor.resting >= floor.working || switch::is_off(Mechanism::RestingFlows);
        let account = Account { floor, is_awake, ceiling: ceiling.max(floor.working), held: 0, opener: None };
        if account.charge() + self.kept_for_work(floor) > self.limit.saturating_sub(self.charged()) {
            return None;
        }
        self.charged += account.charge();
        self.all.set(self.charged);
        self.can_rest += usize::from(floor.can_rest());
        Some(account)
    }

    /// The flow is gone.
    pub(crate) fn close(&mut self, account: &Account) {
        self.can_rest -= usize::from(account.floor.can_rest());
        self.charged = self.charged.saturating_sub(account.charge());
        self.all.set(self.charged);
        self.used = self.used.saturating_sub(account.held);
        if let Some(opener) = account.opener
            && let Some(share) = self.charges.get_mut(&opener)
        {
            share.charged = share.charged.saturating_sub(account.charge());
            share.resting = share.resting.saturating_sub(account.floor.resting);
            share.part.set(share.charged);
            if share.charged == 0 {
                self.charges.remove(&opener);
                self.holdings.iter().for_each(|all| all.forget(opener));
            }
        }
    }

    /// The flow now holds so much; returns how much it may hold. `may_rest`: it needs no more for what it has begun.
    pub(crate) fn settle(&mut self, account: &mut Account, held: usize, may_rest: bool) -> usize {
        let may_rest = may_rest && account.floor.resting < account.floor.working && !switch::is_off(Mechanism::RestingFlows);
        if held != account.held || (may_rest && account.is_awake) {
            self.used = (self.used + held).saturating_sub(account.held);
            self.peak = self.peak.max(self.used);
            self.change(account, |account| {
                account.held = held;
                account.is_awake &= !may_rest;
            });
        }
        self.allowed(account)
    }

    /// The flow is about to take something. True if it owns its floor now; otherwise it may hold what one at rest may.
    pub(crate) fn wake(&mut self, account: &mut Account) -> bool {
        if !account.is_awake && self.is_floor_free(account) {
            self.change(account, |account| account.is_awake = true);
        }
        account.is_awake
    }

    fn change(&mut self, account: &mut Account, change: impl FnOnce(&mut Account)) {
        let before = account.charge();
        change(account);
        let after = account.charge();
        self.charged = (self.charged + after).saturating_sub(before);
        self.all.set(self.charged);
        if after != before
            && let Some(share) = account.opener.and_then(|opener| self.charges.get_mut(&opener))
        {
            share.charged = (share.charged + after).saturating_sub(before);
            share.part.set(share.charged);
        }
    }

    /// Whether the flow works, or could.
    fn is_floor_free(&self, account: &Account) -> bool {
        let more = account.floor.working.saturating_sub(account.charge());
        // What rests in other shards counts as if it worked.
        let resting = |opener| self.charges.get(&opener).map_or(0, |share: &Share| share.resting);
        let at_work = |opener| self.charged_for(opener).saturating_sub(resting(opener));
        let is_least = |opener| at_work(opener) + more <= (self.limit / LEAST_WORK).max(account.floor.working);
        // A neighbour that has work already leaves what is kept to those that have none.
        let kept = if account.opener.is_none_or(is_least) { 0 } else { self.limit / KEPT_FOR_WORK };
        let fits_its_share = |opener| more <= self.left_to(opener) || is_least(opener);
        account.is_awake || (more + kept <= self.limit.saturating_sub(self.charged()) && account.opener.is_none_or(fits_its_share))
    }

    /// How much the flow may hold now.
    pub(crate) fn allowed(&self, account: &Account) -> usize {
        if !self.is_floor_free(account) {
            return account.floor.resting.saturating_sub(FLOW_COST);
        }
        let others = self.charged().saturating_sub(account.charge());
        let left = (self.limit - self.limit / KEPT_FOR_FLOORS).saturating_sub(others);
        let lent = |opener| self.left_to(opener).saturating_sub(self.limit / KEPT_FOR_WORK);
        let most = account.opener.map_or(usize::MAX, |opener| account.charge().saturating_add(lent(opener)));
        (left / 3 * 2).min(most).clamp(account.floor.working, account.ceiling)
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { used: self.used, peak: self.peak, limit: self.limit + self.untold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LinkId;

    const MIB: usize = 1 << 20;
    const FLOOR: usize = 100_000;

    /// Every account takes what it may, in turn, until nothing changes.
    fn fill(ledger: &mut Ledger, accounts: &mut [Account]) -> Vec<usize> {
        for _ in 0..100 {
            for account in accounts.iter_mut() {
                let allowed = ledger.allowed(account);
                // Nobody is made to give back what it holds; it does not take more, and drains.
                let held = account.held.saturating_sub(account.held / 4).max(allowed.min(account.held + MIB));
                ledger.settle(account, held.min(allowed.max(account.held)), false);
            }
            assert!(ledger.charged <= ledger.limit && ledger.used <= ledger.limit);
        }
        accounts.iter().map(|a| a.held).collect()
    }

    #[test]
    fn a_flow_alone_may_hold_its_whole_ceiling_beside_a_thousand_idle_sessions() {
        let mut ledger = Ledger::new(512 * MIB);
        let idle: Vec<Account> = (0..2000).map(|_| ledger.open(FLOOR, 128 * MIB).expect("an idle flow")).collect();
        let bulk = ledger.open(FLOOR, 128 * MIB).unwrap();
        assert_eq!(ledger.allowed(&bulk), 128 * MIB);
        for account in &idle {
            ledger.close(account);
        }
        ledger.close(&bulk);
        assert_eq!((ledger.charged, ledger.used), (0, 0));
    }

    #[test]
    fn greedy_flows_share_equally_and_never_pass_the_limit() {
        let mut ledger = Ledger::new(512 * MIB);
        let mut flows: Vec<Account> = (0..20).map(|_| ledger.open(FLOOR, 128 * MIB).unwrap()).collect();
        let held = fill(&mut ledger, &mut flows);
        let (least, most) = (*held.iter().min().unwrap(), *held.iter().max().unwrap());
        assert!(least * 10 >= most * 9, "{least} to {most}");
        assert!(held.iter().sum::<usize>() > 350 * MIB, "the memory is used: {held:?}");
        let late = ledger.open(FLOOR, 128 * MIB).unwrap();
        assert!(ledger.allowed(&late) > 5 * MIB, "a newcomer finds something: {}", ledger.allowed(&late));
    }

    #[test]
    fn what_a_flow_no_longer_holds_is_there_for_others_at_once() {
        let mut ledger = Ledger::new(100 * MIB);
        let (mut first, second) = (ledger.open(FLOOR, 80 * MIB).unwrap(), ledger.open(FLOOR, 80 * MIB).unwrap());
        ledger.settle(&mut first, 50 * MIB, false);
        let before = ledger.allowed(&second);
        ledger.settle(&mut first, 0, true);
        assert!(ledger.allowed(&second) > before + 30 * MIB);
    }

    #[test]
    fn without_lending_a_few_idle_flows_hold_everything() {
        let open = || {
            let mut ledger = Ledger::new(512 * MIB);
            (0..4000).filter_map(|_| ledger.open(FLOOR, 128 * MIB)).count()
        };
        assert!(open() == 4000, "{}", open());
        assert_eq!(switch::without(Mechanism::Lending, open), 4);
    }

    #[test]
    fn a_neighbour_that_opens_flows_without_end_leaves_a_quarter_to_each_that_comes_later() {
        let mut ledger = Ledger::new(100 * FLOOR);
        let opened = |ledger: &mut Ledger, link| {
            (0..1000).filter_map(|_| ledger.open_for(Neighbour::Link(LinkId(link)), FLOOR, MIB)).collect::<Vec<_>>()
        };
        let first = opened(&mut ledger, 1);
        let second = opened(&mut ledger, 2);
        assert_eq!((first.len(), second.len(), opened(&mut ledger, 3).len()), (75, 18, 5));
        first.iter().for_each(|account| ledger.close(account));
        assert!(opened(&mut ledger, 4).len() > 50, "what is closed is free");
    }

    #[test]
    fn a_neighbour_whose_flows_are_full_leaves_a_quarter_to_each_that_comes_later() {
        let fill_by = |ledger: &mut Ledger, link| {
            let mut accounts: Vec<_> = (0..400).filter_map(|_| ledger.open_for(Neighbour::Link(LinkId(link)), FLOOR, 128 * MIB)).collect();
            fill(ledger, &mut accounts).into_iter().sum::<usize>()
        };
        let mut ledger = Ledger::new(512 * MIB);
        let (first, second) = (fill_by(&mut ledger, 1), fill_by(&mut ledger, 2));
        assert!((300 * MIB..=384 * MIB).contains(&first) && second > 60 * MIB, "{first} and {second}");
        let (first, unfair) = switch::without(Mechanism::FairFloors, || {
            let mut ledger = Ledger::new(512 * MIB);
            (fill_by(&mut ledger, 1), fill_by(&mut ledger, 2))
        });
        assert!(first > 400 * MIB && unfair < 45 * MIB, "{first} and {unfair}: floors are all that is left");
    }

    #[test]
    fn shards_have_one_limit_together_and_a_neighbour_in_all_of_them_one_share() {
        let mut shards: Vec<Ledger> = Ledger::of_shards(512 * MIB, 8).collect();
        let by = |n| Neighbour::Link(LinkId(n));
        // One neighbour takes all it can in each shard, and another one comes last.
        let mut sums = Vec::new();
        for n in [1, 2] {
            let mut held = 0;
            for ledger in &mut shards {
                let mut accounts: Vec<_> = (0..40).filter_map(|_| ledger.open_for(by(n), FLOOR, 128 * MIB)).collect();
                held += fill(ledger, &mut accounts).into_iter().sum::<usize>();
            }
            sums.push(held);
        }
        assert!((300 * MIB..=392 * MIB).contains(&sums[0]), "three quarters: {sums:?}");
        assert!(sums[1] > 60 * MIB && sums[0] + sums[1] <= 512 * MIB, "{sums:?}");
        let charged: usize = shards.iter().map(|ledger| ledger.charged).sum();
        assert!(charged <= 512 * MIB && shards.iter().all(|ledger| ledger.memory().limit == 512 * MIB), "{charged}");
        // What one gives back the others have.
        let mut last = shards.pop().unwrap();
        let account = last.open(FLOOR, 128 * MIB).unwrap();
        let before = last.allowed(&account);
        drop(shards);
        assert!(last.allowed(&account) >= before + 30 * MIB, "{before}");
    }

    #[test]
    fn a_floor_that_is_not_free_is_refused() {
        let mut ledger = Ledger::new(10 * FLOOR);
        let accounts: Vec<_> = (0..10).map(|_| ledger.open(FLOOR, MIB).unwrap()).collect();
        assert_eq!(ledger.open(FLOOR, MIB), None);
        ledger.close(&accounts[0]);
        assert!(ledger.open(FLOOR, MIB).is_some());
    }

    #[test]
    fn flows_that_own_all_they_need_leave_those_that_rest_some_to_work_with() {
        let mut ledger = Ledger::new(100 * FLOOR);
        let mut first = resting(&mut ledger, 1).unwrap();
        let sending = (0..10_000).filter_map(|_| ledger.open(9_000, MIB)).count();
        assert!(sending > 900, "{sending}");
        assert!(ledger.wake(&mut first), "it comes to its end");
        // Others that take all they can, one after the other, leave the same to one that has nothing.
        let mut ledger = Ledger::new(100 * FLOOR);
        let mut last = resting(&mut ledger, 1).unwrap();
        for link in 2..9 {
            let mut theirs: Vec<_> = (0..1000).map_while(|_| resting(&mut ledger, link)).collect();
            for account in &mut theirs {
                ledger.wake(account);
            }
        }
        assert!(ledger.wake(&mut last));
    }

    fn resting(ledger: &mut Ledger, link: u64) -> Option<Account> {
        ledger.open_for(Neighbour::Link(LinkId(link)), Floor::new(FLOOR, 6000), 128 * MIB)
    }

    #[test]
    fn flows_at_rest_cost_little_and_one_that_works_beside_them_may_hold_its_ceiling() {
        let mut ledger = Ledger::new(512 * MIB);
        let outgoing: Vec<_> = (0..10_000).map(|_| ledger.open(Floor::new(FLOOR, 6000), 128 * MIB).expect("one of this node's")).collect();
        let mut incoming: Vec<_> = (0..10_000).map(|_| resting(&mut ledger, 1).expect("one of the neighbour's")).collect();
        assert!(ledger.wake(&mut incoming[0]));
        assert!(ledger.allowed(&incoming[0]) > 50 * MIB, "{}", ledger.allowed(&incoming[0]));
        outgoing.iter().chain(&incoming).for_each(|account| ledger.close(account));
        assert_eq!((ledger.charged, ledger.used, ledger.charges.len()), (0, 0, 0));
        let few = switch::without(Mechanism::RestingFlows, || {
            let mut ledger = Ledger::new(512 * MIB);
            (0..10_000).filter_map(|_| resting(&mut ledger, 1)).count()
        });
        assert!(few < 4100, "{few}");
    }

    #[test]
    fn a_flow_gets_its_whole_floor_or_takes_nothing_and_gives_it_back_when_it_rests() {
        let mut ledger = Ledger::new(20 * FLOOR);
        let mut flows: Vec<_> = (0..40).map(|_| resting(&mut ledger, 1).expect("a flow at rest")).collect();
        let awake = flows.iter_mut().map(|account| ledger.wake(account)).filter(|is_awake| *is_awake).count();
        assert!((9..=11).contains(&awake), "{awake}: what forty at rest leave of three quarters");
        assert!(ledger.charged <= 15 * FLOOR, "a quarter is left");
        assert_eq!(ledger.allowed(&flows[39]), 6000);
        let mut other = resting(&mut ledger, 2).expect("another neighbour finds something");
        assert!(ledger.wake(&mut other));
        ledger.close(&other);
        // It has begun something: it stays awake, however little it holds.
        ledger.settle(&mut flows[0], 100, false);
        assert!(flows[0].is_awake() && !ledger.wake(&mut flows[39]));
        ledger.settle(&mut flows[0], 100, true);
        assert!(!flows[0].is_awake() && ledger.wake(&mut flows[39]));
    }
}
