//! On-the-fly decoding of repairs over *unaligned* spans of the last packets: window repair (P4).
//!
//! The sender covers any run of at most 64 recent source packets with a repair; the receiver uses each one at once. Elimination is eager
//! and works on data, because windows are short and latency counts. The packet with the lowest number leads each equation, so that
//! giving up on old packets ([`WindowDecoder::advance`]) drops exactly the equations that need them.
//!
//! ```
//! use noctule_codes::{span, window::{Limits, WindowDecoder}};
//! let mut decoder = WindowDecoder::new(Limits::default());
//! let mut coefficients = [0u8; 2];
//! span::repair_coefficients(0, 2, &mut coefficients);
//! let mut repair = [0u8; 4];
//! span::encode(&coefficients, &[b"lost", b"kept"], &mut repair);
//! decoder.source(101, b"kept");
//! decoder.repair(100, &coefficients, &repair);
//! assert_eq!(decoder.take_recovered(), Some((100, b"lost".to_vec())));
//! ```

use crate::gf256::{inv, kernels};
use crate::span::MAX_SPAN;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Bounds on what a [`WindowDecoder`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets behind the newest one that are remembered (and whose repairs are understood); 64..=4096, default 256.
    pub window: usize,
    /// Equations (repairs not yet used up) kept; 1..=256, default 64. A further one replaces the one that leads with the oldest packet.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { window: 256, pending: 64 }
    }
}

/// What became of a packet offered to a [`WindowDecoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// New information, kept or used.
    Innovative,
    /// Nothing new.
    Redundant,
    /// It reaches below the floor or the window: packets that are forgotten or given up take part in it.
    TooOld,
    /// No coefficients, more than [`MAX_SPAN`] of them, or a sequence number that overflows.
    Malformed,
}

#[derive(Clone, Debug)]
struct Equation {
    /// Sequence number of the lowest packet with a non-zero coefficient, which is 1.
    lead: u64,
    /// One coefficient per slot of the window; known packets have 0.
    coefficients: Vec<u8>,
    data: Vec<u8>,
}

/// Decoder for window repair of one flow.
///
/// Memory: `window · (longest packet + 32) + pending · (window + longest packet)` bytes at most. Cost: a repair takes one multiply-add
/// per packet that it covers, plus at most `pending` eliminations.
#[derive(Clone, Debug)]
pub struct WindowDecoder {
    limits: Limits,
    /// Sequence numbers below this one are given up.
    floor: u64,
    /// One past the newest sequence number seen; the window is `end - limits.window .. end`.
    end: u64,
    /// Slot `seq mod window`: the packet, if it is known.
    known: Vec<Option<Vec<u8>>>,
    equations: Vec<Equation>,
    recovered: VecDeque<(u64, Vec<u8>)>,
    /// Vectors of packets and coefficients waiting for reuse.
    spare: Vec<Vec<u8>>,
}

impl WindowDecoder {
    /// An empty decoder. Limits outside their ranges are clamped.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { window: limits.window.clamp(MAX_SPAN, 4096), pending: limits.pending.clamp(1, 256) };
        Self {
            limits,
            floor: 0,
            end: 0,
            known: vec![None; limits.window],
            equations: Vec::new(),
            recovered: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    fn slot(&self, seq: u64) -> usize {
        (seq % self.limits.window as u64) as usize
    }

    /// First sequence number of the window.
    fn start(&self) -> u64 {
        self.end.saturating_sub(self.limits.window as u64)
    }

    /// Whether the data of this packet are held.
    pub fn is_known(&self, seq: u64) -> bool {
        seq >= self.start() && seq < self.end && self.known[self.slot(seq)].is_some()
    }

    /// Number of equations waiting for more information.
    pub fn pending(&self) -> usize {
        self.equations.len()
    }

    /// Offers an uncoded source packet. It is remembered for later repairs; it does not come back from [`WindowDecoder::take_recovered`].
    pub fn source(&mut self, seq: u64, data: &[u8]) -> Offered {
        if seq == u64::MAX {
            return Offered::Malformed;
        }
        self.reach(seq + 1);
        if seq < self.start() || seq < self.floor {
            return Offered::TooOld;
        }
        if self.is_known(seq) {
            return Offered::Redundant;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(data);
        self.learn(seq, copy);
        self.settle();
        Offered::Innovative
    }

    /// Offers a repair: `data = sum of coefficients[j] · packet[base + j]`.
    pub fn repair(&mut self, base: u64, coefficients: &[u8], data: &[u8]) -> Offered {
        let n = coefficients.len();
        let Some(end) = base.checked_add(n as u64).filter(|_| n > 0 && n <= MAX_SPAN) else {
            return Offered::Malformed;
        };
        self.reach(end);
        let mut row = self.spare.pop().unwrap_or_default();
        row.clear();
        row.resize(self.limits.window, 0);
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(data);
        for (seq, &c) in (base..).zip(coefficients).filter(|(_, c)| **c != 0) {
            let slot = self.slot(seq);
            let known = if seq >= self.start() { self.known[slot].as_deref() } else { None };
            match known {
                Some(packet) => add_scaled(&mut payload, packet, c),
                None if seq < self.start() || seq < self.floor => {
                    self.spare.extend([row, payload]);
                    return Offered::TooOld;
                }
                None => row[slot] = c,
            }
        }
        let outcome = self.insert(row, payload);
        self.settle();
        outcome
    }

    /// Adds an equation whose known packets are already subtracted.
    fn insert(&mut self, mut row: Vec<u8>, mut data: Vec<u8>) -> Offered {
        for equation in &self.equations {
            let c = row[(equation.lead % self.limits.window as u64) as usize];
            if c != 0 {
                kernels().mul_add(&mut row, &equation.coefficients, c);
                add_scaled(&mut data, &equation.data, c);
            }
        }
        let Some(lead) = self.lowest(&row) else {
            self.spare.extend([row, data]);
            return Offered::Redundant;
        };
        let slot = self.slot(lead);
        let factor = inv(row[slot]);
        kernels().scale(&mut row, factor);
        kernels().scale(&mut data, factor);
        for equation in &mut self.equations {
            let c = equation.coefficients[slot];
            if c != 0 {
                kernels().mul_add(&mut equation.coefficients, &row, c);
                add_scaled(&mut equation.data, &data, c);
            }
        }
        if self.equations.len() == self.limits.pending
            && let Some(oldest) = (0..self.equations.len()).min_by_key(|i| self.equations[*i].lead)
        {
            // The others do not contain its lead: dropping it loses one dimension and nothing else.
            let equation = self.equations.swap_remove(oldest);
            self.spare.extend([equation.coefficients, equation.data]);
        }
        self.equations.push(Equation { lead, coefficients: row, data });
        Offered::Innovative
    }

    /// The lowest sequence number in the window with a non-zero coefficient.
    fn lowest(&self, row: &[u8]) -> Option<u64> {
        (self.start()..self.end).find(|seq| row[self.slot(*seq)] != 0)
    }

    /// Records a packet and takes it out of all equations.
    fn learn(&mut self, seq: u64, packet: Vec<u8>) {
        let slot = self.slot(seq);
        let mut i = 0;
        while i < self.equations.len() {
            let equation = &mut self.equations[i];
            let c = core::mem::take(&mut equation.coefficients[slot]);
            if c != 0 {
                add_scaled(&mut equation.data, &packet, c);
                if equation.lead == seq {
                    // Without its lead the equation has to find its place again.
                    let equation = self.equations.swap_remove(i);
                    self.insert(equation.coefficients, equation.data);
                    // The order has changed; those already visited no longer contain the packet, so starting over is safe.
                    i = 0;
                    continue;
                }
            }
            i += 1;
        }
        self.known[slot] = Some(packet);
    }

    /// Turns equations with a single unknown into packets until none is left.
    fn settle(&mut self) {
        while let Some(i) = self.equations.iter().position(|e| e.coefficients.iter().filter(|c| **c != 0).count() == 1) {
            let equation = self.equations.swap_remove(i);
            self.spare.push(equation.coefficients);
            self.recovered.push_back((equation.lead, equation.data.clone()));
            self.learn(equation.lead, equation.data);
        }
        self.spare.truncate(2 * self.limits.pending);
        // A caller that never takes recovered packets must not make them pile up.
        while self.recovered.len() > self.limits.window {
            self.recovered.pop_front();
        }
    }

    /// Moves the window so that it ends at `end` at least, forgetting what falls out of it.
    fn reach(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        let old_start = self.start();
        let new_start = end.saturating_sub(self.limits.window as u64);
        self.drop_equations(new_start);
        for seq in old_start..new_start.min(self.end) {
            let slot = self.slot(seq);
            self.spare.extend(self.known[slot].take());
        }
        self.end = end;
    }

    fn drop_equations(&mut self, floor: u64) {
        let spare = &mut self.spare;
        self.equations.retain_mut(|e| {
            let keep = e.lead >= floor;
            if !keep {
                spare.push(core::mem::take(&mut e.coefficients));
                spare.push(core::mem::take(&mut e.data));
            }
            keep
        });
    }

    /// Gives up all packets below `floor` that are not known: nobody waits for them any more. Known ones stay useful for repairs.
    pub fn advance(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.drop_equations(floor);
        }
    }

    /// The next packet that repairs have given back: sequence number and data (possibly ending in padding zeros, P5).
    pub fn take_recovered(&mut self) -> Option<(u64, Vec<u8>)> {
        self.recovered.pop_front()
    }
}

/// `data ^= c · packet`, lengthening `data` where `packet` is longer.
fn add_scaled(data: &mut Vec<u8>, packet: &[u8], c: u8) {
    if packet.len() > data.len() {
        data.resize(packet.len(), 0);
    }
    kernels().mul_add(data, packet, c);
}
