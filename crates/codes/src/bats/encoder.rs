//! Outer encoder of the noctule profile.

use super::precode;
use super::{Profile, ProfileError};
use crate::gf256::{Arena, RowTerm, kernels};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

/// Makes any packet of any batch of a block: rateless, in any order.
///
/// The data are borrowed, or owned as `BlockEncoder<'static>`. Memory besides them: the parities, once the first repair packet is made. A
/// systematic packet is a copy; the first repair packet costs three operations per source packet for the precode, each repair packet about
/// `3000 / low_loss` multiply-adds.
#[derive(Clone, Debug)]
pub struct BlockEncoder<'a> {
    profile: Profile,
    stride: usize,
    /// K source packets.
    sources: Cow<'a, [u8]>,
    /// The parities, empty until they are needed.
    parities: Vec<u8>,
    support: Vec<RowTerm>,
}

impl<'a> BlockEncoder<'a> {
    /// An encoder for `data`, cut into packets of `packet_len` bytes, the last one padded with zeros.
    ///
    /// A slice of exactly K · `packet_len` bytes is used where it lies, without a copy; a `Vec` is taken over. A shorter slice is copied.
    ///
    /// # Errors
    /// If the data exceed K · `packet_len` bytes or the length is unusable.
    pub fn new(profile: Profile, packet_len: usize, data: impl Into<Cow<'a, [u8]>>) -> Result<Self, ProfileError> {
        let room = room(&profile, packet_len)?;
        let mut sources = data.into();
        if sources.len() > room {
            return Err(ProfileError::Data { given: sources.len(), room });
        }
        if sources.len() < room {
            let mut padded = match sources {
                Cow::Owned(data) => data,
                Cow::Borrowed(data) => {
                    let mut padded = Vec::with_capacity(room);
                    padded.extend_from_slice(data);
                    padded
                }
            };
            padded.resize(room, 0);
            sources = Cow::Owned(padded);
        }
        Ok(Self { profile, stride: packet_len, sources, parities: Vec::new(), support: Vec::new() })
    }

    /// The parameters.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Source packet `j`.
    pub fn source(&self, j: usize) -> Option<&[u8]> {
        (j < self.profile.packets()).then(|| &self.sources[j * self.stride..][..self.stride])
    }

    /// Computes the precode now rather than at the first repair packet.
    pub fn prepare(&mut self) {
        let h = self.profile.parities() as usize;
        if self.parities.len() < h * self.stride {
            self.parities = vec![0; h * self.stride];
            precode::parities(&self.profile, &self.sources, self.stride, |_| true, &mut self.parities);
        }
    }

    /// Writes packet `index` of batch `batch` to `out` (`packet_len` bytes). `None` if the batch has no such packet or `out` another length.
    pub fn packet(&mut self, batch: u32, index: usize, out: &mut [u8]) -> Option<()> {
        if batch >= self.profile.systematic_batches() {
            self.prepare();
        }
        let mut support = core::mem::take(&mut self.support);
        let made = self.write(batch, index, out, &mut support);
        self.support = support;
        made
    }

    /// As [`BlockEncoder::packet`] without changing the encoder, so that several workers can share it (P21); `None` also for repair packets
    /// before [`BlockEncoder::prepare`].
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
        if self.parities.len() < self.profile.parities() as usize * self.stride {
            return None;
        }
        self.profile.support(batch, index, support);
        // Parities come last, as rows from K on.
        let k = self.profile.packets();
        let split = support.partition_point(|term| (term.row as usize) < k);
        support[split..].iter_mut().for_each(|term| term.row -= k as u32);
        out.fill(0);
        let arena = |bytes| Arena { bytes, stride: self.stride, column: 0 };
        kernels().gather(out, arena(&self.sources), &support[..split]);
        kernels().gather(out, arena(&self.parities), &support[split..]);
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
