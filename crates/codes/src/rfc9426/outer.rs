//! Outer code encoder (RFC 9426 §3.1, §3.2, figures 6 and 8).

use super::{DegreeDistribution, ParameterError, Parameters, write_padding};
use crate::gf256::{Arena, RowTerm, kernels};
use crate::tinymt32::TinyMt32;
use alloc::vec;
use alloc::vec::Vec;

/// BatchSampler: the `degree` distinct source packets of batch `bid` and its degree x M generator matrix, row by row.
pub fn batch_sampler(bid: u16, degree: usize, source_packets: usize, batch_size: usize) -> (Vec<u32>, Vec<u8>) {
    let mut random = TinyMt32::new(u32::from(bid));
    let degree = degree.min(source_packets);
    let mut taken = vec![false; source_packets];
    let mut indices = Vec::with_capacity(degree);
    while indices.len() < degree {
        let r = random.next_u32() % source_packets as u32;
        if !core::mem::replace(&mut taken[r as usize], true) {
            indices.push(r);
        }
    }
    let generator = (0..degree * batch_size).map(|_| random.next_u32() as u8).collect();
    (indices, generator)
}

/// Outer encoder: makes the M coded packets of any batch.
#[derive(Clone, Debug)]
pub struct Encoder {
    parameters: Parameters,
    degrees: DegreeDistribution,
    sources: Vec<u8>,
    source_packets: usize,
}

impl Encoder {
    /// An encoder for `data`, partitioned and padded as §2.2.1 says.
    ///
    /// # Errors
    /// If the data need 2^16 source packets or more.
    pub fn new(parameters: Parameters, degrees: DegreeDistribution, data: &[u8]) -> Result<Self, ParameterError> {
        let source_packets = parameters.source_packets(data.len());
        if source_packets >= 1 << 16 {
            return Err(ParameterError::SourcePackets(source_packets));
        }
        let mut sources = vec![0; source_packets * parameters.data_len()];
        let (head, padding) = sources.split_at_mut(data.len());
        head.copy_from_slice(data);
        write_padding(padding);
        Ok(Self { parameters, degrees, sources, source_packets })
    }

    /// An encoder for whole source packets, without the padding of §2.2.1: for callers that frame their data themselves.
    ///
    /// # Errors
    /// If the number of packets of T octets is 0 or 2^16 and more; a last incomplete packet is not used.
    pub fn from_sources(parameters: Parameters, degrees: DegreeDistribution, sources: Vec<u8>) -> Result<Self, ParameterError> {
        let source_packets = sources.len() / parameters.data_len();
        if source_packets == 0 || source_packets >= 1 << 16 {
            return Err(ParameterError::SourcePackets(source_packets));
        }
        Ok(Self { parameters, degrees, sources, source_packets })
    }

    /// K.
    pub fn source_packets(&self) -> usize {
        self.source_packets
    }

    /// GenBatch: the M coded packets of batch `bid`, each a coefficient vector (the identity) and T octets of data.
    pub fn batch(&self, bid: u16) -> Vec<Vec<u8>> {
        let (m, co, t) = (self.parameters.batch_size(), self.parameters.coefficient_len(), self.parameters.data_len());
        let degree = self.degrees.sample(bid, self.source_packets);
        let (indices, generator) = batch_sampler(bid, degree, self.source_packets, m);
        let arena = Arena { bytes: &self.sources, stride: t, column: 0 };
        let mut terms = Vec::with_capacity(degree);
        (0..m)
            .map(|c| {
                let mut packet = vec![0; co + t];
                self.parameters.write_unit(c, &mut packet[..co]);
                terms.clear();
                terms.extend(indices.iter().zip(generator.chunks_exact(m)).map(|(&row, g)| RowTerm { row, factor: g[c] }));
                kernels().gather(&mut packet[co..], arena, &terms);
                packet
            })
            .collect()
    }
}
