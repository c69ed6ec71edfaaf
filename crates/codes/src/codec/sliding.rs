//! Sliding-window RLC behind the common verbs: after every few source packets comes a repair over the last window.

use super::{CodecError, Decoder, Encoder, Settings};
use crate::rlc::coding_coefficients;
use crate::span::{MAX_SPAN, encode};
use crate::window::{Limits, Offered, WindowDecoder};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// What the packet of a number holds.
enum Packet {
    Source(usize),
    /// Repair over the packets from `base` to before `end`.
    Repair {
        base: usize,
        end: usize,
    },
}

#[derive(Clone, Copy)]
struct Schedule {
    packets: usize,
    /// Source packets between two repairs.
    interval: usize,
}

impl Schedule {
    fn new(settings: &Settings) -> Self {
        // Twice the loss in repairs, at most one for each source packet.
        let loss = settings.loss.get() + settings.deviation.get();
        let interval = if loss > 0.0 { (0.5 / loss) as usize } else { MAX_SPAN / 2 };
        Self { packets: settings.packets, interval: interval.clamp(1, MAX_SPAN / 2) }
    }

    fn packet(&self, number: u32) -> Packet {
        let period = self.interval + 1;
        let (turn, place) = (number as usize / period, number as usize % period);
        let seq = turn * self.interval + place;
        if place < self.interval && seq < self.packets {
            return Packet::Source(seq);
        }
        // Repairs cover what was sent so far; after the last source packet they cover the end of the block.
        let end = (turn * self.interval + place.min(self.interval)).min(self.packets);
        Packet::Repair { base: end.saturating_sub(MAX_SPAN), end }
    }
}

struct SlidingBlock {
    schedule: Schedule,
    len: usize,
    data: Vec<u8>,
}

pub(super) fn encoder(settings: &Settings, data: &[u8]) -> Box<dyn Encoder> {
    Box::new(SlidingBlock { schedule: Schedule::new(settings), len: settings.packet_len, data: data.to_vec() })
}

impl Encoder for SlidingBlock {
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError> {
        if out.len() != self.len {
            return Err(CodecError::NoSuchPacket(number));
        }
        match self.schedule.packet(number) {
            Packet::Source(seq) => out.copy_from_slice(&self.data[seq * self.len..][..self.len]),
            Packet::Repair { base, end } => {
                let packets: Vec<&[u8]> = (base..end).map(|seq| &self.data[seq * self.len..][..self.len]).collect();
                let mut coefficients = vec![0; packets.len()];
                coding_coefficients(number as u16, 15, &mut coefficients);
                encode(&coefficients, &packets, out);
            }
        }
        Ok(())
    }
}

struct SlidingDecoder {
    schedule: Schedule,
    window: WindowDecoder,
    len: usize,
    known: Vec<bool>,
    missing: usize,
    recovered: VecDeque<(usize, Vec<u8>)>,
    current: Vec<u8>,
}

pub(super) fn decoder(settings: &Settings) -> Box<dyn Decoder> {
    Box::new(SlidingDecoder {
        schedule: Schedule::new(settings),
        window: WindowDecoder::new(Limits { window: 4 * MAX_SPAN, pending: MAX_SPAN }),
        len: settings.packet_len,
        known: vec![false; settings.packets],
        missing: settings.packets,
        recovered: VecDeque::new(),
        current: Vec::new(),
    })
}

impl SlidingDecoder {
    fn learn(&mut self, seq: usize, packet: Vec<u8>) {
        if let Some(known @ false) = self.known.get_mut(seq) {
            *known = true;
            self.missing -= 1;
            self.recovered.push_back((seq, packet));
        }
    }
}

impl Decoder for SlidingDecoder {
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool {
        if payload.len() != self.len {
            return false;
        }
        let outcome = match self.schedule.packet(number) {
            Packet::Source(seq) => {
                let outcome = self.window.source(seq as u64, payload);
                // Too late for the window, but still a source packet.
                self.learn(seq, payload.to_vec());
                outcome
            }
            Packet::Repair { base, end } => {
                let mut coefficients = vec![0; end - base];
                coding_coefficients(number as u16, 15, &mut coefficients);
                self.window.repair(base as u64, &coefficients, payload)
            }
        };
        while let Some((seq, packet)) = self.window.take_recovered() {
            self.learn(seq as usize, packet);
        }
        outcome == Offered::Innovative
    }

    fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let (seq, packet) = self.recovered.pop_front()?;
        self.current = packet;
        Some((seq, &self.current))
    }

    fn is_complete(&self) -> bool {
        self.missing == 0
    }
}
