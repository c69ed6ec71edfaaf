//! The batched codes behind the common verbs: packet `number` is packet number mod M of batch number / M.

use super::{CodecError, Decoder, Encoder, Settings};
use crate::bats::{BlockDecoder, BlockEncoder, Profile, Received};
use crate::recoding::{Probability, RankDistribution};
use crate::rfc9426::{self, DegreeDistribution, Design, FieldSize, Parameters};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Batch and place of a packet: systematic batches hold K packets in all, the last one perhaps fewer than M.
fn place(profile: &Profile, number: u32) -> (u32, usize) {
    let (k, m) = (profile.packets() as u32, profile.batch_size() as u32);
    if number < k {
        (number / m, (number % m) as usize)
    } else {
        (profile.systematic_batches() + (number - k) / m, ((number - k) % m) as usize)
    }
}

fn profile(settings: &Settings) -> Result<Profile, CodecError> {
    // The low end of the estimate: two deviations below the mean, but not below half of it.
    let (mean, deviation) = (settings.loss.get(), settings.deviation.get());
    let low = (mean - 2.0 * deviation).max(mean / 2.0);
    Profile::new(settings.packets, settings.batch_size, ((low * 1000.0) as u16).clamp(1, 1000)).map_err(|_| CodecError::Settings)
}

struct BatsEncoder(BlockEncoder<'static>);

pub(super) fn bats_encoder(settings: &Settings, data: &[u8]) -> Result<Box<dyn Encoder>, CodecError> {
    let encoder = BlockEncoder::new(profile(settings)?, settings.packet_len, data.to_vec()).map_err(|_| CodecError::Settings)?;
    Ok(Box::new(BatsEncoder(encoder)))
}

impl Encoder for BatsEncoder {
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError> {
        let (batch, index) = place(self.0.profile(), number);
        self.0.packet(batch, index, out).ok_or(CodecError::NoSuchPacket(number))
    }
}

struct BatsDecoder(BlockDecoder);

pub(super) fn bats_decoder(settings: &Settings) -> Result<Box<dyn Decoder>, CodecError> {
    let decoder = BlockDecoder::new(profile(settings)?, settings.packet_len).map_err(|_| CodecError::Settings)?;
    Ok(Box::new(BatsDecoder(decoder)))
}

impl Decoder for BatsDecoder {
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool {
        let (batch, index) = place(self.0.profile(), number);
        self.0.receive_uncoded(batch, index, payload) == Received::Innovative
    }

    fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        self.0.take_recovered()
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }
}

/// GF(256) and degrees designed for one lossy link.
fn rfc9426_parameters(settings: &Settings) -> Result<(Parameters, DegreeDistribution), CodecError> {
    let m = settings.batch_size;
    let parameters = Parameters::new(m, FieldSize::Q256, settings.packet_len.saturating_add(m)).map_err(|_| CodecError::Settings)?;
    let source = RankDistribution::full(m);
    let ranks = source.after_link(Probability::new(settings.loss.get()), &source.uniform(m as u32));
    let design = Design::optimise(&ranks, 0.9, (6 * m).min(settings.packets)).covering(settings.packets);
    let degrees = design.distribution().map_err(|_| CodecError::Settings)?;
    Ok((parameters, degrees))
}

struct Rfc9426Encoder {
    encoder: rfc9426::Encoder,
    parameters: Parameters,
    batch: Option<(u16, Vec<Vec<u8>>)>,
}

pub(super) fn rfc9426_encoder(settings: &Settings, data: &[u8]) -> Result<Box<dyn Encoder>, CodecError> {
    let (parameters, degrees) = rfc9426_parameters(settings)?;
    let encoder = rfc9426::Encoder::from_sources(parameters, degrees, data.to_vec()).map_err(|_| CodecError::Settings)?;
    Ok(Box::new(Rfc9426Encoder { encoder, parameters, batch: None }))
}

/// Batch id and place, while batch ids last (2^13 batches).
fn rfc9426_place(parameters: &Parameters, number: u32) -> Option<(u16, usize)> {
    let m = parameters.batch_size() as u32;
    let bid = u16::try_from(number / m).ok().filter(|bid| *bid <= rfc9426::CodingHeader::MAX_BATCH_ID)?;
    Some((bid, (number % m) as usize))
}

impl Encoder for Rfc9426Encoder {
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError> {
        let (bid, index) = rfc9426_place(&self.parameters, number).ok_or(CodecError::NoSuchPacket(number))?;
        if out.len() != self.parameters.data_len() {
            return Err(CodecError::NoSuchPacket(number));
        }
        let batch = match self.batch.take() {
            Some((held, batch)) if held == bid => batch,
            _ => self.encoder.batch(bid),
        };
        out.copy_from_slice(&batch[index][self.parameters.coefficient_len()..]);
        self.batch = Some((bid, batch));
        Ok(())
    }
}

struct Rfc9426Decoder {
    decoder: rfc9426::Decoder,
    parameters: Parameters,
    recovered: VecDeque<u32>,
    seen: Vec<bool>,
    packet: Vec<u8>,
}

pub(super) fn rfc9426_decoder(settings: &Settings) -> Result<Box<dyn Decoder>, CodecError> {
    let (parameters, degrees) = rfc9426_parameters(settings)?;
    let decoder = rfc9426::Decoder::new(parameters, degrees, settings.packets).map_err(|_| CodecError::Settings)?;
    let seen = vec![false; settings.packets];
    Ok(Box::new(Rfc9426Decoder { decoder, parameters, recovered: VecDeque::new(), seen, packet: Vec::new() }))
}

impl Decoder for Rfc9426Decoder {
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool {
        let Some((bid, index)) = rfc9426_place(&self.parameters, number).filter(|_| payload.len() == self.parameters.data_len()) else {
            return false;
        };
        self.packet.clear();
        self.packet.resize(self.parameters.coefficient_len(), 0);
        self.packet[index] = 1; // q = 256: the unit vector
        self.packet.extend_from_slice(payload);
        if self.decoder.receive(bid, &self.packet) != rfc9426::Received::Innovative {
            return false;
        }
        for (k, seen) in self.seen.iter_mut().enumerate() {
            if !*seen && self.decoder.source(k).is_some() {
                *seen = true;
                self.recovered.push_back(k as u32);
            }
        }
        true
    }

    fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        let k = self.recovered.pop_front()? as usize;
        Some((k, self.decoder.source(k)?))
    }

    fn is_complete(&self) -> bool {
        self.decoder.is_complete()
    }
}
