//! One direction of a test: both ends' views of each interval joined by number, and their sums.

use super::super::protocol::{Mode, Received, Record, Sent, Total};
use noctule::FarText;
use std::collections::BTreeMap;

/// See the file's heading.
#[derive(Default)]
pub struct Leg {
    sent: BTreeMap<u64, Sent>,
    received: BTreeMap<u64, Received>,
    /// Intervals that were shown.
    shown: u64,
    /// Intervals at the beginning that count for nothing (`-O`).
    omitted: u64,
    total: Option<Total>,
    finished: Option<Sent>,
}

/// An interval as both ends saw it.
pub struct Interval {
    pub received: Received,
    pub sent: Sent,
    /// It counts for nothing.
    pub is_omitted: bool,
    /// Its sending side is the last view there is, which may be that of another interval.
    pub is_rest: bool,
}

impl Interval {
    pub fn seconds(&self) -> f64 {
        (self.received.end - self.received.start).max(1e-9)
    }

    /// Messages that were due in it.
    pub fn expected_messages(&self) -> i64 {
        i64::try_from(self.received.messages).unwrap_or(i64::MAX).saturating_add(self.received.lost_messages)
    }

    /// Share lost: of messages where nothing repairs, of the transport's packets elsewhere.
    pub fn loss(&self, mode: Mode) -> f64 {
        match mode {
            Mode::Transparent => share(self.received.lost_messages.max(0) as f64, self.expected_messages() as f64),
            Mode::Brtp | Mode::Btp | Mode::Tcp => self.sent.loss,
        }
    }

    pub fn cpu_per_gbit(&self) -> Option<f64> {
        let r = &self.received;
        (r.bytes > 0).then(|| (self.sent.cpu + r.cpu) * self.seconds() / (r.bytes as f64 * 8e-9))
    }
}

/// Sums of a direction, without what is omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    pub seconds: f64,
    pub bytes: u64,
    /// Of each flow.
    pub flows: Vec<u64>,
    pub bytes_wrong: u64,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// Messages that were sent and never handed over; what came too late is among them.
    pub messages_lost: u64,
    pub out_of_order: u64,
    pub jitter_ms: f64,
    pub rtt_ms: f64,
    pub wire_bytes: u64,
    /// Packets of the transport that were lost; with TCP, segments sent again.
    pub lost_packets: u64,
    pub loss: f64,
    pub repair_share: f64,
    pub proactive_share: f64,
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    pub memory_peak_bytes: u64,
    /// Of a file, at the sender and at the receiver.
    pub hashes: (Option<FarText>, Option<FarText>),
    pub is_cut: bool,
}

impl Sums {
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }

    pub fn residual_loss(&self) -> f64 {
        share(self.messages_lost as f64, self.messages_sent as f64)
    }

    pub fn cpu_per_gbit(&self) -> f64 {
        (self.sender_cpu + self.receiver_cpu) * self.seconds / (self.bytes as f64 * 8e-9).max(1e-9)
    }

    pub fn wire_per_byte(&self) -> f64 {
        self.wire_bytes as f64 / (self.bytes as f64).max(1.0)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Leg {
    pub fn new(omitted: u64) -> Self {
        Self { omitted, ..Self::default() }
    }

    pub fn take(&mut self, record: Record) {
        match record {
            Record::Sent(s) => {
                self.sent.insert(s.index, s);
            }
            Record::Received(r) => {
                self.received.insert(r.index, r);
            }
            Record::Total(t) => self.total = Some(t),
            Record::Finished(s) => self.finished = Some(s),
            _ => {}
        }
    }

    /// The next interval that both ends have told of.
    pub fn next(&mut self) -> Option<Interval> {
        let (received, sent) = (self.received.get(&self.shown)?.clone(), self.sent.get(&self.shown)?.clone());
        self.shown += 1;
        Some(Interval { is_omitted: received.index < self.omitted, received, sent, is_rest: false })
    }

    /// Intervals that the end of the test cut short. What came in the last milliseconds is in the sums; a rate it is not.
    pub fn rest(&mut self) -> Vec<Interval> {
        let last = self.last_sent();
        let rest = self.received.range(self.shown..).filter(|(_, r)| r.bytes > 0 || r.end - r.start > 0.05);
        let rest: Vec<_> = rest
            .map(|(index, r)| {
                let sent = self.sent.get(index).unwrap_or(&last).clone();
                Interval { received: r.clone(), sent, is_omitted: *index < self.omitted, is_rest: true }
            })
            .collect();
        self.shown = u64::MAX;
        rest
    }

    /// What the sending side said last.
    fn last_sent(&self) -> Sent {
        self.finished.clone().or_else(|| self.sent.values().next_back().cloned()).unwrap_or_default()
    }

    /// What the kernel calls the sending side's congestion control, with TCP.
    pub fn tcp_congestion(&self) -> Option<FarText> {
        self.finished.iter().chain(self.sent.values().next_back()).find_map(|s| s.tcp_cc.clone())
    }

    /// The sums so far: of the whole test where both ends have told of its end, else of the intervals that there are.
    pub fn sums(&self) -> Sums {
        let last = self.last_sent();
        let base = self.sent.range(..self.omitted).next_back().map(|(_, s)| s.clone()).unwrap_or_default();
        let omitted: Vec<_> = self.received.range(..self.omitted).map(|(_, r)| r).collect();
        let counted: Vec<_> = self.received.range(self.omitted..).map(|(_, r)| r).collect();
        let from = omitted.last().map_or(0.0, |r| r.end);
        let to = self.total.as_ref().map_or_else(|| counted.last().map_or(from, |r| r.end), |t| t.seconds);
        let of = |now: u64, before: u64| now.saturating_sub(before);
        let bytes = counted.iter().fold(0u64, |sum, r| sum.saturating_add(r.bytes));
        let flows = counted.iter().fold(Vec::new(), |mut sum: Vec<u64>, r| {
            sum.resize(sum.len().max(r.flows.len()), 0);
            sum.iter_mut().zip(&r.flows).for_each(|(s, b)| *s = s.saturating_add(*b));
            sum
        });
        let received = counted.iter().fold(0u64, |sum, r| sum.saturating_add(r.messages));
        let sent = of(last.messages, base.messages);
        // A sender that gave up what was queued has not lost it: then only the receiver knows what is missing.
        let missing = counted.iter().fold(0i64, |sum, r| sum.saturating_add(r.lost_messages)).max(0) as u64;
        let is_whole = self.total.is_some() && self.finished.as_ref().is_some_and(|f| !f.is_cut);
        let (lost, sent) = if is_whole { (of(sent, received), sent) } else { (missing, received.saturating_add(missing)) };
        let seconds = |r: &Received| (r.end - r.start).max(1e-9);
        let time: f64 = counted.iter().map(|r| seconds(r)).sum();
        let views: Vec<_> =
            self.sent.range(self.omitted..).map(|(_, s)| s).chain(self.finished.as_ref().filter(|_| self.sent.is_empty())).collect();
        Sums {
            seconds: (to - from).max(0.0),
            bytes,
            flows,
            bytes_wrong: self.total.as_ref().map_or_else(|| counted.last().map_or(0, |r| r.bytes_wrong), |t| t.bytes_wrong),
            messages_sent: sent,
            messages_received: received,
            messages_lost: lost,
            out_of_order: self.total.as_ref().map_or(0, |t| t.out_of_order),
            jitter_ms: self.total.as_ref().map_or_else(|| counted.last().map_or(0.0, |r| r.jitter_ms), |t| t.jitter_ms),
            rtt_ms: last.rtt_ms,
            wire_bytes: of(last.wire_bytes, base.wire_bytes),
            lost_packets: of(last.lost_packets, base.lost_packets),
            loss: share(of(last.lost_packets, base.lost_packets) as f64, of(last.sent_packets, base.sent_packets) as f64),
            repair_share: share(of(last.repair_packets, base.repair_packets) as f64, of(last.coded_packets, base.coded_packets) as f64),
            proactive_share: share(
                of(last.proactive_packets, base.proactive_packets) as f64,
                of(last.coded_packets, base.coded_packets) as f64,
            ),
            sender_cpu: share(views.iter().map(|s| s.cpu).sum(), views.len() as f64),
            receiver_cpu: share(counted.iter().map(|r| r.cpu * seconds(r)).sum(), time),
            memory_peak_bytes: self.total.as_ref().map_or(0, |t| t.memory_peak_bytes),
            hashes: (self.finished.as_ref().and_then(|f| f.blake3.clone()), self.total.as_ref().and_then(|t| t.blake3.clone())),
            is_cut: self.finished.as_ref().is_some_and(|f| f.is_cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(index: u64, bytes: u64) -> Record {
        let start = index as f64;
        Record::Received(Received {
            index,
            start,
            end: start + 1.0,
            bytes,
            flows: vec![bytes],
            messages: bytes / 100,
            ..Received::default()
        })
    }

    fn sent(index: u64) -> Sent {
        let n = index + 1;
        Sent {
            index,
            sent_packets: 100 * n,
            lost_packets: 10 * n,
            coded_packets: 200 * n,
            repair_packets: 20 * n,
            messages: 10 * n,
            ..Sent::default()
        }
    }

    fn leg(omitted: u64) -> Leg {
        let mut leg = Leg::new(omitted);
        for i in 0..3 {
            leg.take(received(i, 1000));
            leg.take(Record::Sent(sent(i)));
        }
        leg
    }

    #[test]
    fn sums_of_a_broken_test_are_those_of_its_intervals() {
        let s = leg(0).sums();
        assert_eq!((s.bytes, s.seconds, s.bits_per_second()), (3000, 3.0, 8000.0));
        assert_eq!((s.loss, s.repair_share), (0.1, 0.1));
    }

    #[test]
    fn omitted_intervals_count_for_nothing() {
        let mut leg = leg(1);
        assert!(leg.next().unwrap().is_omitted && !leg.next().unwrap().is_omitted);
        let s = leg.sums();
        assert_eq!((s.bytes, s.seconds, s.lost_packets), (2000, 2.0, 20));
    }

    #[test]
    fn repair_of_the_end_is_in_the_sum() {
        let mut leg = leg(0);
        leg.take(Record::Finished(Sent { index: 3, coded_packets: 700, repair_packets: 140, messages: 40, ..Sent::default() }));
        assert_eq!(leg.sums().repair_share, 0.2);
    }

    #[test]
    fn messages_that_were_given_up_at_the_end_are_not_lost() {
        let mut leg = leg(0);
        leg.take(Record::Total(Total { seconds: 3.0, ..Total::default() }));
        let mut end = sent(3);
        leg.take(Record::Finished(end.clone()));
        assert_eq!((leg.sums().messages_lost, leg.sums().messages_sent), (10, 40));
        end.is_cut = true;
        leg.take(Record::Finished(end));
        assert_eq!((leg.sums().messages_lost, leg.sums().messages_sent), (0, 30));
    }

    #[test]
    fn loss_without_repair_is_that_of_messages() {
        let r = Received { messages: 90, lost_messages: 10, ..Received::default() };
        let interval = Interval { received: r, sent: Sent { loss: 0.001, ..Sent::default() }, is_omitted: false, is_rest: false };
        assert_eq!((interval.loss(Mode::Transparent), interval.loss(Mode::Brtp)), (0.1, 0.001));
    }
}
