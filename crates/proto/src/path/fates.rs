//! What became of packets: acknowledgements and losses, and which part is told.

use super::delivery::{self, Snapshot};
use super::sent::Fate;
use super::{Fates, LAST_PACKET, Path};
use crate::congestion::{AckEvent, LossEvent};
use crate::error::Code;
use crate::sent::SentItem;
use crate::trace::{self, Header, Metrics, What};
use crate::units::{Bandwidth, Duration, Time};
use crate::wire::ack::AckView;

/// What one acknowledgement brought.
#[derive(Default)]
struct Tally {
    packets: u64,
    eliciting: u32,
    bytes: u64,
    marked: u64,
    /// Packets that went to an address that is no longer in use arrived.
    has_history: bool,
    mtu_changed: bool,
    newest: Option<(u64, Time, Snapshot, u64)>,
}

impl Path {
    /// An ACK of this path arrived.
    pub fn on_ack(&mut self, now: Time, ack: &AckView<'_>, fates: &mut Fates) -> Result<(), Code> {
        let largest = ack.largest().0;
        if largest >= self.sent.next() || largest > LAST_PACKET {
            return Err(Code::AckOfSkipped);
        }
        let (prior_largest, prior_newest) = self.loss.newest();
        self.loss.on_coverage(now, ack.lowest().0, largest, &self.rtt);
        let mut tally = Tally::default();
        let base = self.sent.base();
        for range in ack.ranges() {
            if range.largest.0 < base {
                break;
            }
            let mut from = range.smallest.0.max(base);
            while let Some(pn) = self.sent.next_pending(from, range.largest.0) {
                from = pn + 1;
                self.acknowledge(now, pn, (prior_largest, prior_newest), &mut tally, fates)?;
            }
        }
        let is_newest = prior_largest.is_none_or(|p| largest >= p);
        let ce = self.ecn.on_ack(now, self.rtt.smoothed(), (tally.marked, tally.packets), is_newest, ack.ecn());
        self.counters.ce_packets += ce;
        if tally.packets == 0 {
            return Ok(());
        }
        if tally.eliciting > 0 || tally.has_history {
            self.pto_count = 0;
            self.progress_at = now;
            self.pto_base = if self.in_flight > 0 { self.pto_base.max(now) } else { self.pto_base };
            self.unanswered_since = (self.in_flight > 0).then_some(now);
            self.unanswered_before = None;
            self.probes_wanted = 0;
            self.silence_probes.on_answer();
        }
        self.loss_stats.on_acked(tally.eliciting);
        let sample = self.sample(now, largest, ack.delay(), &tally);
        // Losses first, so that the controller judges the acknowledgement with the flight as it is.
        self.detect_losses(now, fates);
        if tally.bytes > 0 {
            let (sample, rtt, arrived) = sample;
            let event = AckEvent {
                now,
                acked_bytes: tally.bytes,
                acked_packets: u64::from(tally.eliciting),
                ce_packets: ce,
                rtt,
                largest_sent_at: tally.newest.map_or(now, |n| n.1),
                smoothed_rtt: self.rtt.smoothed(),
                min_rtt: self.rtt.min(),
                delivery_rate: sample.map_or(Bandwidth::ZERO, |s| s.delivery_rate),
                sent_rate: sample.map_or(Bandwidth::ZERO, |s| s.sent_rate),
                flight_loss: sample.map_or(0.0, |s| s.loss),
                loss_burst: self.loss_stats.weighted_burst(),
                sample_interval: sample.map_or(Duration::ZERO, |s| s.interval),
                is_app_limited: sample.is_some_and(|s| s.is_app_limited),
                in_flight: self.in_flight,
                total_acked: self.delivery.acked(),
                total_lost: self.delivery.lost(),
                newest_offset: tally.newest.map_or(0, |n| n.2.offset),
                arrived,
            };
            self.control.on_ack(&event);
        }
        self.after_fates(now);
        if tally.eliciting > 0 || tally.has_history {
            self.on_heard_of(now);
        }
        if self.trace.is_on() {
            self.trace.emit(now, || What::Metrics(Box::new(Metrics::of(&self.stats()))));
            self.trace_changes(now);
        }
        Ok(())
    }

    fn acknowledge(&mut self, now: Time, pn: u64, prior: (Option<u64>, Time), tally: &mut Tally, fates: &mut Fates) -> Result<(), Code> {
        let Some((before, packet)) = self.sent.acknowledge(pn) else { return Ok(()) };
        let (sent_at, bytes, is_probe) = (packet.sent_at, u64::from(packet.bytes), packet.is_mtu_probe);
        let snapshot = packet.snapshot;
        let is_history = pn < self.history;
        tally.packets += 1;
        tally.marked += u64::from(packet.is_ect && !is_history);
        let items = match before {
            Fate::Skipped => return Err(Code::AckOfSkipped), // P3
            Fate::Lost => &mut fates.spurious,
            _ if packet.is_given_up => &mut fates.spurious,
            _ => &mut fates.acked,
        };
        for item in packet.items.drain(..) {
            match item {
                SentItem::MtuProbe(_) if is_history => {}
                SentItem::MtuProbe(size) => tally.mtu_changed |= self.mtu.on_probe_acked(size),
                item => items.push(item),
            }
        }
        if is_history {
            tally.has_history = true;
            self.loss.on_acked(now, pn, sent_at, prior.0, prior.1);
            return Ok(());
        }
        tally.mtu_changed |= self.mtu.on_acked(pn, bytes as u16);
        if tally.mtu_changed {
            self.control.on_mtu(u64::from(self.mtu.current()));
        }
        self.loss.on_acked(now, pn, sent_at, prior.0, prior.1);
        match before {
            Fate::InFlight => self.in_flight -= bytes,
            Fate::Lost => {
                self.trace.emit(now, || What::SpuriousLoss { path: self.id.0, header: Header { packet_number: pn } });
                self.counters.spurious_losses += 1;
                self.loss_stats.on_spurious();
                if !is_probe {
                    self.control.on_spurious_loss(now, bytes);
                }
            }
            _ => return Ok(()),
        }
        tally.eliciting += 1;
        tally.bytes += bytes;
        self.delivery.on_acked(bytes, before == Fate::Lost);
        if tally.newest.is_none_or(|n| n.0 < pn) {
            tally.newest = Some((pn, sent_at, snapshot, bytes));
        }
        Ok(())
    }

    /// RTT and rate samples of an acknowledgement.
    fn sample(&mut self, now: Time, largest: u64, delay: Duration, tally: &Tally) -> (Option<delivery::Sample>, Option<Duration>, Time) {
        let Some((pn, sent_at, snapshot, bytes)) = tally.newest else { return (None, None, now) };
        let mut rtt = None;
        if pn == largest {
            let full = u64::from(self.mtu.current());
            if self.faster.is_faster(bytes, full, self.control.capacity(), self.rtt.smoothed()) {
                self.rtt.on_faster_sample(now.since(sent_at), delay);
            } else {
                self.rtt.on_sample(now, now.since(sent_at), delay);
                rtt = Some(self.rtt.latest());
                if let Some(delays) = &mut self.delays {
                    delays.on_rtt(sent_at, self.rtt.latest());
                }
            }
        }
        // The peer's delay is not the path's: rates are taken between arrivals at the peer.
        let arrived = if pn == largest { (sent_at + self.rtt.latest()).min(now) } else { now };
        (self.delivery.sample(sent_at, &snapshot, arrived), rtt, arrived)
    }

    pub(super) fn detect_losses(&mut self, now: Time, fates: &mut Fates) {
        let mut lost = core::mem::take(&mut self.newly_lost);
        self.loss.detect(now, &self.rtt, &self.sent, &mut lost);
        let (mut lost_bytes, mut lost_packets) = (0, 0);
        let (mut first, mut last) = (Time::MAX, Time::ZERO);
        let mut mtu_fell = false;
        for pn in lost.drain(..) {
            let Some(packet) = self.sent.lose(pn) else { continue };
            let bytes = u64::from(packet.bytes);
            let is_history = pn < self.history;
            self.in_flight -= if is_history { 0 } else { bytes };
            self.counters.lost_packets += 1;
            if packet.is_ect && !is_history {
                self.ecn.on_lost();
            }
            let (sent_at, before) = (packet.sent_at, packet.before);
            self.trace.emit(now, || What::PacketLost {
                path: self.id.0,
                header: Header { packet_number: pn },
                age: trace::milliseconds(now.since(sent_at)),
            });
            let mut is_probe = false;
            for item in &packet.items {
                if let SentItem::MtuProbe(size) = *item {
                    is_probe = true;
                    if !is_history {
                        self.mtu.on_probe_lost(size);
                    }
                } else if !packet.is_given_up {
                    fates.lost.push(item.clone());
                }
            }
            if is_history {
                continue;
            }
            self.delivery.on_lost(bytes);
            if is_probe {
                continue; // RFC 8899 §3: no sign of congestion.
            }
            mtu_fell |= self.mtu.on_lost(now, pn, packet.bytes);
            self.loss_stats.on_lost(pn, before, sent_at);
            lost_bytes += bytes;
            lost_packets += 1;
            first = first.min(sent_at);
            last = last.max(sent_at);
        }
        self.newly_lost = lost;
        if mtu_fell {
            self.control.on_mtu(u64::from(self.mtu.current()));
        }
        if lost_packets > 0 {
            let event = LossEvent {
                now,
                lost_bytes,
                lost_packets,
                largest_sent_at: last,
                in_flight: self.in_flight,
                // RFC 9002 §7.6: everything over three PTOs was lost.
                is_persistent: last.since(first) > self.rtt.pto() * 3 && self.loss.newest().1 >= last,
            };
            self.control.on_loss(&event);
        }
    }

    pub(super) fn after_fates(&mut self, now: Time) {
        let keep = self.rtt.smoothed() * 2 + self.loss.window(&self.rtt) * 2;
        self.sent.forget(now.saturating_sub(keep));
        self.pacer.set(now, self.control.pacing_rate(), self.mtu.current());
        self.plan_wake(now);
    }
}
