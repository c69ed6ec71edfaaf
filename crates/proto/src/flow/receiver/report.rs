//! What the receiver tells the sender, and when: CREDIT, and RANK of spans about which the sender may be mistaken (P9, P15).

use super::Receiver;
use crate::flow::rank::MOST_REPORTS;
use crate::flow::{FlowControlFrame, mask};
use crate::ids::Seq;
use crate::sent::SentItem;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

impl Receiver {
    /// CREDIT or RANK that is due. `rtt`: smoothed RTT of the link, as far as known.
    pub fn poll_report(&mut self, now: Time, rtt: Duration) -> Option<FlowControlFrame> {
        self.credit.set_rtt(rtt);
        let flow = self.config.label;
        let done = self.reported_done();
        if self.credit.due(done, self.is_complete()).is_some_and(|at| at <= now) {
            let limit = Seq(self.credit.report(now, done));
            return Some(FlowControlFrame::Credit { flow, limit, done: Seq(done) });
        }
        self.watch(now);
        while let Some(number) = self.ranks.pop() {
            let base = number * self.batch_size();
            let n = self.end.unwrap_or(self.high).saturating_sub(base).min(self.batch_size()) as u8;
            if n == 0 || base + u64::from(n) <= self.done {
                continue;
            }
            let span = number.checked_sub(self.first).and_then(|at| self.spans.get(at as usize));
            let (rank, missing) = span.map_or((0, mask(n)), |s| (s.rank(n), s.missing(n)));
            if missing != 0 {
                return Some(FlowControlFrame::Rank { flow, base: Seq(base), n, rank, missing });
            }
        }
        None
    }

    /// Reports the first spans that should have been repaired by now: no error of the sender's belief may stop a flow (P9).
    pub(super) fn watch(&mut self, now: Time) {
        let known = self.wanted();
        if self.done >= known {
            return self.ranks.rest();
        }
        let Some(overdue) = self.ranks.overdue(now, self.done, known, self.patience()) else { return };
        let size = self.batch_size();
        let mut wanted = 0;
        for number in self.done / size..overdue.div_ceil(size) {
            let n = (overdue - number * size).min(size) as u8;
            let span = number.checked_sub(self.first).and_then(|at| self.spans.get(at as usize));
            if span.is_none_or(|span| span.missing(n) != 0) {
                self.ranks.want(number);
                wanted += 1;
            }
            if wanted == MOST_REPORTS && !switch::is_off(Mechanism::LossFeedback) {
                break;
            }
        }
    }

    /// The sender may believe in rank of this span that is not here (P9).
    pub fn want_rank(&mut self, base: Seq) {
        self.ranks.want(base.0 / self.batch_size());
    }

    /// How long a healthy repair takes: a round trip, and what loss detection and delayed acknowledgements add to it (P8, P10). A report about a
    /// span whose second repair is under way changes nothing.
    fn patience(&self) -> Duration {
        let rtt = self.credit.rtt().max(Duration::from_millis(10));
        rtt + rtt / 4
    }

    /// A report was lost: it is repeated if nothing newer replaces it.
    pub fn on_report_lost(&mut self, item: &SentItem) {
        match *item {
            SentItem::Credit { limit, .. } => self.credit.on_lost(limit.0),
            SentItem::Rank { base, .. } => self.ranks.want(base.0 / self.batch_size()),
            _ => {}
        }
    }

    /// When `handle_timeout` wants to be called. What is due already is not a matter of time: see `has_report`.
    pub fn poll_timeout(&self) -> Option<Time> {
        let credit = self.credit.due(self.reported_done(), self.is_complete()).filter(|at| *at > self.woken_at);
        let stall = if self.done < self.wanted() { Some(self.ranks.due(self.patience()).unwrap_or(Time::ZERO)) } else { None };
        [credit, stall].into_iter().flatten().min()
    }

    /// Time passes; what is due then comes from `poll_report`, and `poll_timeout` does not name it again.
    pub fn handle_timeout(&mut self, now: Time) {
        self.woken_at = now;
        self.watch(now);
    }

    /// `poll_report` has something now. O(1).
    pub fn has_report(&self, now: Time) -> bool {
        !self.ranks.is_empty() || self.credit.due(self.reported_done(), self.is_complete()).is_some_and(|at| at <= now)
    }
}
