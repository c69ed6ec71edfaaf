//! How large the slabs are that small pieces are cut from.

/// The first is small, each further one twice as large, because most flows never need many.
#[derive(Debug, Default)]
pub(super) struct SlabSize(usize);

impl SlabSize {
    /// Bytes of the first.
    pub const FIRST: usize = 1024;
    /// Bytes of the largest.
    pub const MOST: usize = 64 * 1024;

    /// Bytes of the next one, at most `most` of them.
    pub fn next(&mut self, most: usize) -> usize {
        self.0 = (self.0 * 2).min(most).clamp(Self::FIRST, Self::MOST);
        self.0
    }
}
