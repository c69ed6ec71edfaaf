//! Outer encoder of the noctule profile.

use super::precode;
use super::{Profile, ProfileError};
use crate::gf256::{Arena, RowTerm, kernels};
use alloc::vec;
use alloc::vec::Vec;

/// Makes any packet of any batch of a block: rateless, in any order.
///
/// Memory: the block and its parities. A systematic packet is a copy; the first repair packet costs three operations per source packet for
/// the precode, each repair packet about `3000 / low_loss` multiply-adds.
#[derive(Clone, Debug)]
pub struct BlockEncoder {
    profile: Profile,
    stride: usize,
    /// K source packets, then the parities.
    arena: Vec<u8>,
    has_parities: bool,
    support: Vec<RowTerm>,
}

impl BlockEncoder {
    /// An encoder for `data`, cut into packets of `packet_len` bytes, the last one padded with zeros.
    ///
    /// # Errors
    /// If the data exceed K · `packet_len` bytes or the length is unusable.
    pub fn new(profile: Profile, packet_len: usize, data: &[u8]) -> Result<Self, ProfileError> {
        let room = room(&profile, packet_len)?;
        if data.len() > room {
            return Err(ProfileError::Data { given: data.len(), room });
        }
        let mut arena = vec![0; profile.rows() * packet_len];
        arena[..data.len()].copy_from_slice(data);
        Ok(Self { profile, stride: packet_len, arena, has_parities: false, support: Vec::new() })
    }

    /// The parameters.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Source packet `j`.
    pub fn source(&self, j: usize) -> Option<&[u8]> {
        (j < self.profile.packets()).then(|| &self.arena[j * self.stride..][..self.stride])
    }

    /// Computes the precode now rather than at the first repair packet.
    pub fn prepare(&mut self) {
        if !self.has_parities {
            let (sources, parities) = self.arena.split_at_mut(self.profile.packets() * self.stride);
            precode::parities(&self.profile, sources, self.stride, |_| true, parities);
            self.has_parities = true;
        }
    }

    /// Writes packet `index` of batch `batch` to `out` (`packet_len` bytes). `None` if the batch has no such packet or `out` another length.
    pub fn packet(&mut self, batch: u32, index: usize, out: &mut [u8]) -> Option<()> {
        self.prepare_for(batch);
        let mut support = core::mem::take(&mut self.support);
        let made = self.write(batch, index, out, &mut support);
        self.support = support;
        made
    }

    fn prepare_for(&mut self, batch: u32) {
        if batch >= self.profile.systematic_batches() {
            self.prepare();
        }
    }

    /// As [`BlockEncoder::packet`] without changing the encoder, so that several workers can share it; `None` also for repair packets before
    /// [`BlockEncoder::prepare`].
    pub fn packet_shared(&self, batch: u32, index: usize, out: &mut [u8]) -> Option<()> {
        self.write(batch, index, out, &mut Vec::new())
    }

    fn write(&self, batch: u32, index: usize, out: &mut [u8], support: &mut Vec<RowTerm>) -> Option<()> {
        if out.len() != self.stride || index >= self.profile.batch_len(batch) {
            return None;
        }
        if batch < self.profile.systematic_batches() {
            out.copy_from_slice(self.source(batch as usize * self.profile.batch_size() + index)?);
            return Some(());
        }
        if !self.has_parities {
            return None;
        }
        self.profile.support(batch, index, support);
        out.fill(0);
        kernels().gather(out, Arena { bytes: &self.arena, stride: self.stride, column: 0 }, support);
        Some(())
    }

    /// Writes a whole batch, its packets one after the other, to `out` (`batch_len · packet_len` bytes).
    pub fn batch(&mut self, batch: u32, out: &mut [u8]) -> Option<()> {
        if out.len() != self.profile.batch_len(batch) * self.stride {
            return None;
        }
        for (index, packet) in out.chunks_exact_mut(self.stride).enumerate() {
            self.packet(batch, index, packet)?;
        }
        Some(())
    }
}

/// Bytes of a block, checked so that all of its memory can be addressed.
pub(super) fn room(profile: &Profile, packet_len: usize) -> Result<usize, ProfileError> {
    let fits = packet_len > 0 && (3 * profile.rows() + 64).checked_mul(packet_len).is_some_and(|n| n <= isize::MAX as usize / 2);
    if fits { Ok(profile.packets() * packet_len) } else { Err(ProfileError::PacketLength(packet_len)) }
}
