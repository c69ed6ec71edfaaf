//! LT and semi-random LT behind the common verbs.

use super::{Code, CodecError, Decoder, Encoder, Settings};
use crate::gf256::kernels;
use crate::lt::{PeelingDecoder, SemiRandom, Soliton};
use crate::recoding::Probability;
use alloc::boxed::Box;
use alloc::vec::Vec;

enum Graph {
    Soliton(Soliton),
    SemiRandom(SemiRandom),
}

impl Graph {
    fn new(code: Code, settings: &Settings) -> Result<Self, CodecError> {
        let graph = if code == Code::Lt {
            Soliton::new(settings.packets, 0.1, 0.5).map(Graph::Soliton)
        } else {
            SemiRandom::new(settings.packets, settings.loss, settings.deviation, Probability::new(0.9)).map(Graph::SemiRandom)
        };
        graph.ok_or(CodecError::Settings)
    }

    fn neighbours(&self, number: u32) -> Vec<u32> {
        match self {
            Graph::Soliton(code) => code.neighbours(number),
            Graph::SemiRandom(code) => code.neighbours(number),
        }
    }
}

struct FountainEncoder {
    graph: Graph,
    len: usize,
    data: Vec<u8>,
}

pub(super) fn encoder(code: Code, settings: &Settings, data: &[u8]) -> Result<Box<dyn Encoder>, CodecError> {
    Ok(Box::new(FountainEncoder { graph: Graph::new(code, settings)?, len: settings.packet_len, data: data.to_vec() }))
}

impl Encoder for FountainEncoder {
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError> {
        if out.len() != self.len {
            return Err(CodecError::NoSuchPacket(number));
        }
        let neighbours = self.graph.neighbours(number);
        let packets: Vec<&[u8]> = neighbours.iter().map(|j| &self.data[*j as usize * self.len..][..self.len]).collect();
        out.fill(0);
        kernels().sum(out, &packets);
        Ok(())
    }
}

struct FountainDecoder {
    graph: Graph,
    peeling: PeelingDecoder,
}

pub(super) fn decoder(code: Code, settings: &Settings) -> Result<Box<dyn Decoder>, CodecError> {
    let peeling = PeelingDecoder::new(settings.packets, settings.packet_len);
    Ok(Box::new(FountainDecoder { graph: Graph::new(code, settings)?, peeling }))
}

impl Decoder for FountainDecoder {
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool {
        self.peeling.receive(&self.graph.neighbours(number), payload)
    }

    fn take_recovered(&mut self) -> Option<(usize, &[u8])> {
        self.peeling.take_recovered()
    }

    fn is_complete(&self) -> bool {
        self.peeling.is_complete()
    }
}
