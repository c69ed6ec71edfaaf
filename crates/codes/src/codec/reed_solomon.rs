//! Reed-Solomon over GF(2^16) through the `reed-solomon-simd` crate, behind the common verbs. MDS, but of fixed rate.

use super::{CodecError, Decoder, Encoder, Settings};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// Repair packets: twice those that mean loss and deviation ask for.
fn repairs(settings: &Settings) -> Result<usize, CodecError> {
    let loss = (settings.loss.get() + settings.deviation.get()).min(0.45);
    let repairs = ((settings.packets as f64 * 2.0 * loss / (1.0 - loss)) as usize).max(2);
    let fits = reed_solomon_simd::ReedSolomonEncoder::supports(settings.packets, repairs) && settings.packet_len.is_multiple_of(2);
    if fits { Ok(repairs) } else { Err(CodecError::Settings) }
}

struct RsEncoder {
    len: usize,
    packets: usize,
    data: Vec<u8>,
    /// All repair packets, made with the first.
    repairs: Vec<Vec<u8>>,
    count: usize,
}

pub(super) fn encoder(settings: &Settings, data: &[u8]) -> Result<Box<dyn Encoder>, CodecError> {
    let count = repairs(settings)?;
    Ok(Box::new(RsEncoder { len: settings.packet_len, packets: settings.packets, data: data.to_vec(), repairs: Vec::new(), count }))
}

impl Encoder for RsEncoder {
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError> {
        let number_at = number as usize;
        if out.len() != self.len || number_at >= self.packets + self.count {
            return Err(CodecError::NoSuchPacket(number));
        }
        if number_at < self.packets {
            out.copy_from_slice(&self.data[number_at * self.len..][..self.len]);
            return Ok(());
        }
        if self.repairs.is_empty() {
            let packets = self.data.chunks_exact(self.len);
            self.repairs = reed_solomon_simd::encode(self.packets, self.count, packets).map_err(|_| CodecError::Settings)?;
        }
        out.copy_from_slice(&self.repairs[number_at - self.packets]);
        Ok(())
    }
}

struct RsDecoder {
    len: usize,
    packets: usize,
    count: usize,
    known: Vec<bool>,
    missing: usize,
    data: Vec<u8>,
    repairs: BTreeMap<usize, Vec<u8>>,
    recovered: VecDeque<u32>,
}

pub(super) fn decoder(settings: &Settings) -> Result<Box<dyn Decoder>, CodecError> {
    let count = repairs(settings)?;
    Ok(Box::new(RsDecoder {
        len: settings.packet_len,
        packets: settings.packets,
        count,
        known: vec![false; settings.packets],
        missing: settings.packets,
        data: vec![0; settings.packets * settings.packet_len],
        repairs: BTreeMap::new(),
        recovered: VecDeque::new(),
    }))
}

impl RsDecoder {
    fn learn(&mut self, j: usize, packet: &[u8]) {
        if !core::mem::replace(&mut self.known[j], true) {
            self.data[j * self.len..][..self.len].copy_from_slice(packet);
            self.missing -= 1;
            self.recovered.push_back(j as u32);
        }
    }

    fn try_decode(&mut self) {
        if self.missing == 0 || self.repairs.len() < self.missing {
            return;
        }
        let known = self.data.chunks_exact(self.len).enumerate().filter(|(j, _)| self.known[*j]);
        let repairs = self.repairs.iter().map(|(i, packet)| (*i, packet));
        let Ok(restored) = reed_solomon_simd::decode(self.packets, self.count, known, repairs) else { return };
        for (j, packet) in restored {
            self.learn(j, &packet);
        }
        self.repairs.clear();
    }
}

impl Decoder for RsDecoder {
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool {
        let number = number as usize;
        let is_new = match number.checked_sub(self.packets) {
            None => !self.known[number],
            Some(i) => i < self.count && self.missing > 0 && !self.repairs.contains_key(&i),
        };
        if payload.len() != self.len || !is_new {
            return false;
        }
        if number < self.packets {
            self.learn(number, payload);
        } else {
            self.repairs.insert(number - self.packets, payload.to_vec());
        }
        self.try_decode();
        true
    }

    fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let j = self.recovered.pop_front()? as usize;
        Some((j, &self.data[j * self.len..][..self.len]))
    }

    fn is_complete(&self) -> bool {
        self.missing == 0
    }
}
