//! Window repair at the receiver: combinations over spans that are not batches (P4), such as the last packets across a batch boundary.
//!
//! The decoder behind it is made when the first such combination arrives, and from then on is fed with every packet that becomes known.

use crate::ids::Seq;
use bytes::Bytes;
use noctule_codes::window::{Limits, Offered, WindowDecoder};

/// Packets remembered for window repairs, and repairs kept: two spans of the largest size, so that repairs may overlap.
const LIMITS: Limits = Limits { window: 128, pending: 32 };

/// The decoder of a flow's window repairs.
#[derive(Debug, Default)]
pub(super) struct WindowRepair {
    decoder: Option<Box<WindowDecoder>>,
}

impl WindowRepair {
    /// Bytes that the decoder may come to hold, counted whole from the start; 0 while there is none.
    pub fn memory(&self, symbol: u16) -> usize {
        if self.decoder.is_some() { Self::cost(symbol) } else { 0 }
    }

    /// Bytes of a decoder for symbols up to this size, as `noctule_codes` states it.
    pub fn cost(symbol: u16) -> usize {
        let symbol = usize::from(symbol);
        LIMITS.window * (symbol + 32) + LIMITS.pending * (LIMITS.window + symbol)
    }

    pub fn is_active(&self) -> bool {
        self.decoder.is_some()
    }

    /// From now on the decoder is there.
    pub fn open(&mut self) {
        self.decoder = Some(Box::new(WindowDecoder::new(LIMITS)));
    }

    /// A packet became known.
    pub fn source(&mut self, seq: Seq, symbol: &Bytes) {
        if let Some(decoder) = &mut self.decoder {
            decoder.source(seq.0, symbol);
        }
    }

    /// A combination over `coefficients.len()` packets from `base` on; nothing below `done` will become known any more.
    pub fn repair(&mut self, base: Seq, coefficients: &[u8], data: &[u8], done: Seq) -> Offered {
        let decoder = self.decoder.get_or_insert_with(|| Box::new(WindowDecoder::new(LIMITS)));
        decoder.advance(done.0);
        decoder.repair(base.0, coefficients, data)
    }

    /// A packet that repairs gave back, padding included.
    pub fn take_recovered(&mut self) -> Option<(Seq, Vec<u8>)> {
        self.decoder.as_mut()?.take_recovered().map(|(seq, data)| (Seq(seq), data))
    }

    /// Forgets everything: its equations contradict each other.
    pub fn reset(&mut self) {
        self.decoder = None;
    }
}
