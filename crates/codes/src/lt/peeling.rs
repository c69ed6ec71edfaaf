//! The decoder of LT codes: a coded packet with one unknown neighbour gives that one away (belief propagation on erasures).

use crate::gf256::kernels;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
struct Coded {
    neighbours: Vec<u32>,
    /// Unknown neighbours left.
    unknown: u32,
    data: Vec<u8>,
}

/// Peeling decoder over XOR for `n` source packets.
///
/// Data are touched once: when a coded packet has one unknown neighbour left, its known ones are added to it in one pass.
/// Memory: the source packets and at most `3·n + 64` coded packets that wait; further ones are dropped.
#[derive(Clone, Debug)]
pub struct PeelingDecoder {
    len: usize,
    sources: Vec<u8>,
    known: Vec<bool>,
    missing: usize,
    coded: Vec<Coded>,
    /// For each source packet the waiting coded packets that contain it.
    users: Vec<Vec<u32>>,
    recovered: VecDeque<u32>,
    additions: usize,
}

impl PeelingDecoder {
    /// An empty decoder for `n` source packets of `len` bytes.
    pub fn new(n: usize, len: usize) -> Self {
        Self {
            len,
            sources: vec![0; n * len],
            known: vec![false; n],
            missing: n,
            coded: Vec::new(),
            users: vec![Vec::new(); n],
            recovered: VecDeque::new(),
            additions: 0,
        }
    }

    /// Whether all source packets are known.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Source packets not known yet.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Packet additions (XOR) made so far.
    pub fn additions(&self) -> usize {
        self.additions
    }

    /// Source packet `j`, if it is known.
    pub fn source(&self, j: usize) -> Option<&[u8]> {
        (*self.known.get(j)?).then(|| &self.sources[j * self.len..][..self.len])
    }

    /// The next source packet that became known, each once.
    pub fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let j = self.recovered.pop_front()? as usize;
        Some((j, &self.sources[j * self.len..][..self.len]))
    }

    /// Offers the XOR of the packets `neighbours` (an original packet is its only neighbour). Returns whether it was of use or may become so;
    /// false for packets that say nothing new, for malformed ones, and when too many wait.
    pub fn receive(&mut self, neighbours: &[u32], data: &[u8]) -> bool {
        if data.len() != self.len || neighbours.iter().any(|j| *j as usize >= self.known.len()) {
            return false;
        }
        // A neighbour named twice cancels out.
        let mut set = neighbours.to_vec();
        set.sort_unstable();
        let mut distinct: Vec<u32> = Vec::with_capacity(set.len());
        for j in set {
            if distinct.last() == Some(&j) {
                distinct.pop();
            } else {
                distinct.push(j);
            }
        }
        let unknown: Vec<u32> = distinct.iter().copied().filter(|j| !self.known[*j as usize]).collect();
        let coded = Coded { neighbours: distinct, unknown: unknown.len() as u32, data: data.to_vec() };
        match unknown.len() {
            0 => return false,
            1 => self.release(coded),
            _ if self.coded.len() >= 3 * self.known.len() + 64 => return false,
            _ => {
                for j in unknown {
                    self.users[j as usize].push(self.coded.len() as u32);
                }
                self.coded.push(coded);
            }
        }
        true
    }

    /// Recovers the last unknown neighbour of `first`, and all that follows from it.
    fn release(&mut self, first: Coded) {
        let mut ripple = vec![first];
        while let Some(mut coded) = ripple.pop() {
            let Some(&j) = coded.neighbours.iter().find(|j| !self.known[**j as usize]) else { continue };
            let others = coded.neighbours.iter().filter(|k| **k != j);
            let others: Vec<&[u8]> = others.map(|k| &self.sources[*k as usize * self.len..][..self.len]).collect();
            self.additions += others.len();
            kernels().sum(&mut coded.data, &others);
            let j = j as usize;
            self.sources[j * self.len..][..self.len].copy_from_slice(&coded.data);
            self.known[j] = true;
            self.missing -= 1;
            self.recovered.push_back(j as u32);
            for user in core::mem::take(&mut self.users[j]) {
                let waiting = &mut self.coded[user as usize];
                waiting.unknown = waiting.unknown.saturating_sub(1);
                if waiting.unknown == 1 {
                    let (neighbours, data) = (core::mem::take(&mut waiting.neighbours), core::mem::take(&mut waiting.data));
                    ripple.push(Coded { neighbours, unknown: 1, data });
                }
            }
        }
    }
}
