//! Variable-length integers (RFC 9000 §16) and a bounded reader of network bytes.

use super::WireError;
use bytes::BufMut;

/// Largest number that a varint carries.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes; values above [`MAX`] count as [`MAX`].
pub const fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value` in the shortest form. A value above [`MAX`] is written as [`MAX`]: numbers that large do not occur, and a cut one must not be misread.
pub fn emit<B: BufMut>(out: &mut B, value: u64) {
    match size(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(value as u16 | 0x4000),
        4 => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value.min(MAX) | 0xc000_0000_0000_0000),
    }
}

/// Reads network bytes front to back. Every method fails with [`WireError::Truncated`] instead of reading past the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// Bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }
    /// Everything that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }
    /// The next `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(*head)
    }
    /// One byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes, network order (P1).
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    /// Four bytes, network order.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    /// Eight bytes, network order.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    /// A varint; longer forms than needed are allowed.
    pub fn varint(&mut self) -> Result<u64, WireError> {
        let first = *self.rest.first().ok_or(WireError::Truncated)?;
        Ok(match first >> 6 {
            0 => {
                self.rest = &self.rest[1..];
                u64::from(first)
            }
            1 => u64::from(self.u16()? & 0x3fff),
            2 => u64::from(self.u32()? & 0x3fff_ffff),
            _ => self.u64()? & MAX,
        })
    }
    /// A varint length and that many bytes.
    pub fn prefixed(&mut self) -> Result<&'a [u8], WireError> {
        let n = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
        self.bytes(n)
    }
}

/// Appends a varint length and the bytes.
pub fn emit_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    emit(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9000_hold() {
        // RFC 9000 §A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(Reader::new(bytes).varint(), Ok(value));
            let mut out = Vec::new();
            emit(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(Reader::new(&[0x40, 0x25]).varint(), Ok(37));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(value in 0..=MAX) {
            let mut out = Vec::new();
            emit(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.varint(), Ok(value));
            prop_assert!(r.is_empty());
            for cut in 0..out.len() {
                prop_assert_eq!(Reader::new(&out[..cut]).varint(), Err(WireError::Truncated));
            }
        }
    }
}
