//! A block at the sender: the outer code's encoder over its content.

use super::tree::{Digest, leaf};
use super::{Layout, ObjectError, Packet};
use noctule_codes::bats::{BlockEncoder, Profile};

/// Makes any packet of one block.
#[derive(Clone, Debug)]
pub struct SourceBlock {
    layout: Layout,
    block: u32,
    /// Bytes of content, padding left out.
    content: usize,
    encoder: BlockEncoder<'static>,
}

impl SourceBlock {
    /// Of the block's content, which must have the leaf that was announced.
    ///
    /// # Errors
    /// There is no such block, or the content has changed.
    pub fn new(layout: Layout, block: u32, content: Vec<u8>, announced: &Digest) -> Result<Self, ObjectError> {
        let profile = layout.profile(block)?;
        let range = layout.range(block);
        if content.len() as u64 != range.end - range.start || leaf(&content) != *announced {
            return Err(ObjectError::Changed(block));
        }
        let len = content.len();
        let encoder = BlockEncoder::new(profile, layout.packet_len(), content).map_err(|_| ObjectError::NoBlock(block))?;
        Ok(Self { layout, block, content: len, encoder })
    }

    /// Its number.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// The outer code's parameters.
    pub fn profile(&self) -> &Profile {
        self.encoder.profile()
    }

    /// Computes now what repair packets need, rather than at the first of them.
    pub fn prepare(&mut self) {
        self.encoder.prepare();
    }

    /// Appends packet `number`, head and payload. Cost: a copy for source packets; for repair packets what [`BlockEncoder`] says.
    pub fn write(&mut self, number: u32, out: &mut Vec<u8>) {
        if number as usize >= self.encoder.profile().packets() {
            self.prepare();
        }
        self.write_shared(number, out);
    }

    /// The same of a block that is [prepared](Self::prepare), which any number of threads may do at once (P21).
    pub fn write_shared(&self, number: u32, out: &mut Vec<u8>) {
        Packet::emit_coded(out, self.block, number);
        let (batch, index) = self.layout.place(self.encoder.profile(), number);
        let (start, len) = (out.len(), self.layout.packet_len());
        out.resize(start + len, 0);
        let made = self.encoder.packet_shared(batch, index, &mut out[start..]);
        debug_assert!(made.is_some(), "repair packets are made of prepared blocks");
        // Padding is not sent (P5).
        if (number as usize) < self.encoder.profile().packets() {
            out.truncate(start + len.min(self.content - (number as usize * len).min(self.content)));
        }
    }
}
