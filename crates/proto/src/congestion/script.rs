//! A scripted path for unit tests of controllers: rounds of one window each, with the RTT, the losses and the marks that the test says.

use super::{AckEvent, Controller, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// A controller and what it is told.
pub(super) struct Script<C> {
    pub(super) controller: C,
    pub(super) now: Time,
    /// RTT of the samples, and how long a round takes.
    pub(super) rtt: Duration,
    pub(super) min_rtt: Duration,
    /// Packets per acknowledgement.
    pub(super) per_ack: u64,
    /// Packets of each following acknowledgement that come back marked.
    pub(super) marks: u64,
    /// Bytes sent so far.
    pub(super) sent: u64,
    acked: u64,
    lost: u64,
    last_sent_at: Time,
}

impl<C: Controller> Script<C> {
    pub(super) const DATAGRAM: u64 = 1200;

    pub(super) fn new(controller: C) -> Self {
        let rtt = Duration::from_millis(20);
        Self {
            controller,
            now: Time::from_millis(1),
            rtt,
            min_rtt: rtt,
            per_ack: 1,
            marks: 0,
            sent: 0,
            acked: 0,
            lost: 0,
            last_sent_at: Time::ZERO,
        }
    }

    /// A window is sent, and one RTT later all of it is acknowledged. Packets count as sent at the end of the previous round.
    pub(super) fn round(&mut self) {
        let sent_at = self.now;
        let packets = self.controller.window() / Self::DATAGRAM;
        for i in 1..=packets {
            self.sent += Self::DATAGRAM;
            let in_flight = i * Self::DATAGRAM;
            let event = SentEvent {
                now: sent_at,
                bytes: Self::DATAGRAM,
                in_flight,
                is_app_limited: false,
                sent_offset: self.sent,
                is_control: false,
            };
            self.controller.on_sent(&event);
        }
        self.now += self.rtt;
        self.min_rtt = self.min_rtt.min(self.rtt);
        let base = self.sent - packets * Self::DATAGRAM;
        let mut done = 0;
        while done < packets {
            let n = self.per_ack.min(packets - done);
            done += n;
            self.acked += n * Self::DATAGRAM;
            let rate = Bandwidth::from_transfer(packets * Self::DATAGRAM, self.rtt);
            self.controller.on_ack(&AckEvent {
                now: self.now,
                acked_bytes: n * Self::DATAGRAM,
                acked_packets: n,
                ce_packets: self.marks.min(n),
                rtt: Some(self.rtt),
                largest_sent_at: sent_at,
                smoothed_rtt: self.rtt,
                min_rtt: self.min_rtt,
                delivery_rate: rate,
                sent_rate: rate,
                flight_loss: 0.0,
                loss_burst: 0.0,
                sample_interval: self.rtt,
                is_app_limited: false,
                in_flight: (packets - done) * Self::DATAGRAM,
                total_acked: self.acked,
                total_lost: self.lost,
                newest_offset: base + done * Self::DATAGRAM,
                arrived: self.now,
            });
        }
        self.last_sent_at = sent_at;
    }

    fn loss(&mut self, packets: u64, is_persistent: bool) {
        self.lost += packets * Self::DATAGRAM;
        let window = self.controller.window();
        self.controller.on_loss(&LossEvent {
            now: self.now,
            lost_bytes: packets * Self::DATAGRAM,
            lost_packets: packets,
            largest_sent_at: self.last_sent_at + Duration::from_nanos(1),
            in_flight: window.saturating_sub(packets * Self::DATAGRAM),
            is_persistent,
        });
    }

    /// Packets of the last round's flight are lost.
    pub(super) fn lose(&mut self, packets: u64) {
        self.loss(packets, false);
    }

    /// Everything has been lost for three PTOs.
    pub(super) fn lose_all(&mut self) {
        self.loss(self.controller.window() / Self::DATAGRAM, true);
    }
}
