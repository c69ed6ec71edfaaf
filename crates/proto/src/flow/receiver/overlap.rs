//! Spans that are no batch (P4): window repairs go to a decoder of their own, and what it gives back enters its batch.

use super::{Receiver, vector};
use crate::error::Code;
use crate::flow::Offer;
use crate::flow::span::{self, trim};
use crate::flow::window::WindowRepair;
use crate::ids::Seq;
use crate::wire::frame::{Coded, Coefficients};
use noctule_codes::span::MAX_SPAN;
use noctule_codes::window::Offered;

impl Receiver {
    /// Window repair: a span that is not a batch (P4).
    pub(super) fn receive_window(&mut self, coded: &Coded<'_>, span_end: u64) -> Offer {
        if let Coefficients::Index(index) = coded.coefficients {
            let seq = coded.base.0 + u64::from(index);
            let within = (seq % self.batch_size()) as u8;
            return self.receive(&Coded {
                base: Seq(seq - u64::from(within)),
                n: within + 1,
                coefficients: Coefficients::Index(within),
                ..coded.clone()
            });
        }
        if !self.has_memory_for_windows() {
            return Offer::Refused(Code::NoMemory);
        }
        self.stats.coded_bytes += coded.symbol.len() as u64;
        self.stats.repair_packets += 1;
        self.high = self.high.max(span_end);
        let mut row = [0; MAX_SPAN];
        vector(&coded.coefficients, coded.n, &mut row);
        if !self.window.is_active() {
            self.open_window();
        }
        let offered = self.window.repair(coded.base, &row[..usize::from(coded.n)], coded.symbol, Seq(self.done));
        match offered {
            Offered::Innovative => Offer::Accepted,
            Offered::Redundant | Offered::TooOld => Offer::Redundant,
            Offered::Malformed => Offer::Refused(Code::SpanInvalid),
        }
    }

    fn has_memory_for_windows(&self) -> bool {
        let cost = if self.window.is_active() { 0 } else { WindowRepair::cost(self.config.symbol) };
        let decoded = (MAX_SPAN + 1) * (usize::from(self.config.symbol) + span::row_bytes(self.config.batch_size));
        self.memory() + cost + decoded <= self.config.memory
    }

    /// A window repair came that was not needed. The next one may be, and will reach over packets of complete batches: from now on they are
    /// remembered.
    pub(super) fn expect_windows(&mut self, coded: &Coded<'_>) {
        let is_repair = !self.is_batch(coded) && !matches!(coded.coefficients, Coefficients::Index(_));
        if is_repair && !self.window.is_active() && self.has_memory_for_windows() {
            self.open_window();
        }
    }

    /// The decoder begins with what is held of incomplete spans; a repair over packets of complete ones that it has not seen is of no use.
    fn open_window(&mut self) {
        self.window.open();
        for (number, span) in (self.first..).zip(&self.spans) {
            for (index, symbol) in span.held() {
                self.window.source(Seq(number * u64::from(self.config.batch_size) + u64::from(index)), symbol);
            }
        }
    }

    /// Takes what window repairs have given back, now that something became known; false if they contradict each other.
    pub(super) fn take_from_window(&mut self) -> bool {
        while let Some((seq, data)) = self.window.take_recovered() {
            let Some(len) = trim(&data) else {
                self.window.reset();
                return false;
            };
            let within = (seq.0 % self.batch_size()) as u8;
            let (flow, base) = (self.config.label, Seq(seq.0 - u64::from(within)));
            let offer = self.receive(&Coded { flow, base, n: within + 1, coefficients: Coefficients::Index(within), symbol: &data[..len] });
            self.stats.decoded_packets += u64::from(offer == Offer::Accepted);
        }
        true
    }
}
