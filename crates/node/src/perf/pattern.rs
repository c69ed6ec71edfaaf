//! The bytes of a test: a fixed pattern, so that the receiver can check every one of them at the speed of memory.

use bytes::{BufMut, Bytes, BytesMut};
use std::sync::OnceLock;

/// The pattern repeats after this many bytes.
const PERIOD: usize = 1 << 16;
/// Longest piece that is compared or sent at once.
pub const MAX_PIECE: usize = 256 * 1024;

/// The pattern, repeated so that a piece of [`MAX_PIECE`] can begin anywhere in the first period.
fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        // A multiplicative generator is enough: neighbouring bytes differ, and no offset resembles another.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut period = Vec::with_capacity(PERIOD);
        while period.len() < PERIOD {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            period.extend_from_slice(&(state >> 16).to_be_bytes()[2..]);
        }
        period.truncate(PERIOD);
        let mut all = BytesMut::with_capacity(PERIOD + MAX_PIECE);
        while all.len() < PERIOD + MAX_PIECE {
            all.put_slice(&period);
        }
        all.freeze()
    })
}

/// `len` bytes of a stream from `offset` on; `len` at most [`MAX_PIECE`].
pub fn at(offset: u64, len: usize) -> Bytes {
    let start = (offset % PERIOD as u64) as usize;
    pattern().slice(start..start + len.min(MAX_PIECE))
}

/// Bytes of `data` that differ from the stream at `offset`.
pub fn wrong(offset: u64, data: &[u8]) -> u64 {
    let mut wrong = 0;
    for (i, part) in data.chunks(MAX_PIECE).enumerate() {
        let expected = at(offset.wrapping_add((i * MAX_PIECE) as u64), part.len());
        if expected != part {
            wrong += expected.iter().zip(part).filter(|(a, b)| a != b).count() as u64;
        }
    }
    wrong
}

/// Message `number` with `len` bytes, sent at `sent` (microseconds on the sender's clock): both, then the pattern from an offset that depends on the
/// number.
pub fn message(number: u64, sent: u64, len: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(len);
    out.put_u64(number);
    out.put_u64(sent);
    let mut offset = number.wrapping_mul(977);
    while out.len() < len {
        let piece = at(offset, len - out.len());
        offset = offset.wrapping_add(piece.len() as u64);
        out.put_slice(&piece);
    }
    out.freeze()
}

/// Number and time of sending of a message; `None` if it is too short to have them.
pub fn header(data: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = data.split_first_chunk::<8>()?;
    let sent = rest.first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*sent)))
}

/// Wrong bytes in a received message.
pub fn wrong_in_message(data: &[u8]) -> u64 {
    match header(data) {
        Some((number, _)) => wrong(number.wrapping_mul(977), &data[16..]),
        None => data.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_counted() {
        let mut data = at(123_456, 5000).to_vec();
        assert_eq!(wrong(123_456, &data), 0);
        assert!(wrong(123_457, &data) > 4000);
        data[7] ^= 1;
        data[4999] ^= 255;
        assert_eq!(wrong(123_456, &data), 2);
        for len in [17, 1200, 300_000] {
            let mut m = message(u64::MAX - 3, 7, len).to_vec();
            assert_eq!((m.len(), wrong_in_message(&m)), (len, 0));
            m[len - 1] ^= 1;
            assert_eq!(wrong_in_message(&m), 1);
        }
        assert_eq!(wrong_in_message(b"short"), 5);
    }
}
