//! The node's memory (P15, P18): every flow owns a floor from when it opens; beyond it, memory is lent to those that hold something.
//!
//! What counts is what a flow *holds*, not what it might: an idle flow costs its floor and nothing more, and gives everything else back by
//! becoming idle. How much a flow may hold follows from what the others hold (dynamic thresholds, Choudhury and Hahne 1998): two thirds of what
//! they leave. One flow alone gets its whole ceiling, n greedy ones get equal shares and leave one of 2n + 1 parts free, and a newcomer
//! always finds something. The sum of floors and of what is held beyond them never passes the limit.

use crate::neighbour::Neighbour;
use crate::stats::Memory;
use crate::switch::{self, Mechanism};
use std::collections::BTreeMap;

/// This part of the limit is lent to nobody: flows that open find their floors there.
const KEPT_FOR_FLOORS: usize = 8;
/// Of what others leave, so many parts in four may be floors of flows that one neighbour has opened, and what they hold: no neighbour opens or fills so many
/// that another finds nothing.
const PARTS_OF_ONE: usize = 3;

/// What one flow has to do with the ledger, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Always the flow's, whatever others hold (P15).
    floor: usize,
    /// The flow never needs more.
    ceiling: usize,
    held: usize,
    /// The neighbour that opened the flow; none if it was opened here.
    opener: Option<Neighbour>,
}

impl Account {
    /// Bytes that are the flow's own.
    pub(crate) fn floor(&self) -> usize {
        self.floor
    }

    /// What the flow costs the others.
    fn charge(&self) -> usize {
        if switch::is_off(Mechanism::Lending) { self.ceiling } else { self.held.max(self.floor) }
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
    /// The part of `charged` that is for flows that each neighbour has opened.
    charges: BTreeMap<Neighbour, usize>,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, charged: 0, used: 0, peak: 0, charges: BTreeMap::new() }
    }

    /// The same for a flow that a neighbour opens; `None` also if it has opened too many already.
    pub(crate) fn open_for(&mut self, opener: Neighbour, floor: usize, ceiling: usize) -> Option<Account> {
        if floor > self.left_to(opener) {
            return None;
        }
        let account = Account { opener: Some(opener), ..self.open(floor, ceiling)? };
        *self.charges.entry(opener).or_default() += account.charge();
        Some(account)
    }

    /// How much more may be charged for flows of this neighbour.
    fn left_to(&self, opener: Neighbour) -> usize {
        if switch::is_off(Mechanism::FairFloors) {
            return usize::MAX;
        }
        let charge = self.charges.get(&opener).copied().unwrap_or(0);
        let left = self.limit.saturating_sub(self.charged.saturating_sub(charge));
        (left / 4 * PARTS_OF_ONE).saturating_sub(charge)
    }

    /// An account for a new flow with this floor, and a ceiling above it; `None` if the floor is not free.
    pub(crate) fn open(&mut self, floor: usize, ceiling: usize) -> Option<Account> {
        let account = Account { floor, ceiling: ceiling.max(floor), held: 0, opener: None };
        if account.charge() > self.limit.saturating_sub(self.charged) {
            return None;
        }
        self.charged += account.charge();
        Some(account)
    }

    /// The flow is gone.
    pub(crate) fn close(&mut self, account: &Account) {
        self.charged = self.charged.saturating_sub(account.charge());
        self.used = self.used.saturating_sub(account.held);
        if let Some(opener) = account.opener
            && let Some(charge) = self.charges.get_mut(&opener)
        {
            *charge = charge.saturating_sub(account.charge());
            if *charge == 0 {
                self.charges.remove(&opener);
            }
        }
    }

    /// The flow now holds so much; returns how much it may hold.
    pub(crate) fn settle(&mut self, account: &mut Account, held: usize) -> usize {
        if held != account.held {
            let before = account.charge();
            self.used = (self.used + held).saturating_sub(account.held);
            self.peak = self.peak.max(self.used);
            account.held = held;
            let after = account.charge();
            self.charged = (self.charged + after).saturating_sub(before);
            if after != before
                && let Some(charge) = account.opener.and_then(|opener| self.charges.get_mut(&opener))
            {
                *charge = (*charge + after).saturating_sub(before);
            }
        }
        self.allowed(account)
    }

    /// How much the flow may hold now.
    pub(crate) fn allowed(&self, account: &Account) -> usize {
        let others = self.charged.saturating_sub(account.charge());
        let left = (self.limit - self.limit / KEPT_FOR_FLOORS).saturating_sub(others);
        let most = account.opener.map_or(usize::MAX, |opener| account.charge().saturating_add(self.left_to(opener)));
        (left / 3 * 2).min(most).clamp(account.floor, account.ceiling)
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { used: self.used, peak: self.peak, limit: self.limit }
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
                ledger.settle(account, held.min(allowed.max(account.held)));
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
        ledger.settle(&mut first, 50 * MIB);
        let before = ledger.allowed(&second);
        ledger.settle(&mut first, 0);
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
    fn a_floor_that_is_not_free_is_refused() {
        let mut ledger = Ledger::new(10 * FLOOR);
        let accounts: Vec<_> = (0..10).map(|_| ledger.open(FLOOR, MIB).unwrap()).collect();
        assert_eq!(ledger.open(FLOOR, MIB), None);
        ledger.close(&accounts[0]);
        assert!(ledger.open(FLOOR, MIB).is_some());
    }
}
