//! A packet as its sender holds it: the bytes stay where the application put them, so that a packet is written once, into its datagram.

use bytes::Bytes;
use noctule_codes::span::{MAX_SPAN, encode};

/// A symbol: two length bytes and the payload that they count (P5); at a relay, also a combination of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// `bytes` is the payload alone.
    is_bare: bool,
    bytes: Bytes,
}

impl Symbol {
    /// A payload whose length bytes are not written anywhere yet.
    pub fn bare(payload: Bytes) -> Self {
        debug_assert!(u16::try_from(payload.len()).is_ok(), "a length that two bytes cannot hold");
        Self { is_bare: true, bytes: payload }
    }

    /// A symbol of one piece, its length bytes in front.
    pub fn whole(symbol: Bytes) -> Self {
        Self { is_bare: false, bytes: symbol }
    }

    /// Bytes, those of the length included.
    #[expect(clippy::len_without_is_empty, reason = "there are always two bytes of length")]
    pub fn len(&self) -> usize {
        self.bytes.len() + if self.is_bare { 2 } else { 0 }
    }

    /// The payload; of a combination, what stands there.
    pub fn payload(&self) -> Bytes {
        if self.is_bare { self.bytes.clone() } else { self.bytes.slice(self.bytes.len().min(2)..) }
    }

    /// Appends the symbol.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.is_bare {
            out.extend_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }

    /// The first two bytes (zeros beyond the end, as in every combination) and the others.
    fn parts(&self) -> ([u8; 2], &[u8]) {
        match (self.is_bare, self.bytes.split_first_chunk()) {
            (true, _) => ((self.bytes.len() as u16).to_be_bytes(), &self.bytes),
            (false, Some((head, rest))) => (*head, rest),
            (false, None) => ([self.bytes.first().copied().unwrap_or(0), 0], &[]),
        }
    }

    /// Appends a combination of `len` bytes, the length of the longest of them: the sum of each symbol times its coefficient. At most as many as a span
    /// has packets.
    pub fn combine<'a>(terms: impl Iterator<Item = (u8, &'a Self)>, len: usize, out: &mut Vec<u8>) {
        let (mut coefficients, mut heads, mut rests): ([u8; MAX_SPAN], [[u8; 2]; MAX_SPAN], [&[u8]; MAX_SPAN]) =
            ([0; MAX_SPAN], [[0; 2]; MAX_SPAN], [&[]; MAX_SPAN]);
        let mut count = 0;
        for (coefficient, symbol) in terms.filter(|(c, _)| *c != 0).take(MAX_SPAN) {
            coefficients[count] = coefficient;
            (heads[count], rests[count]) = symbol.parts();
            count += 1;
        }
        let head_terms: [&[u8]; MAX_SPAN] = core::array::from_fn(|j| &heads[j][..]);
        let mut head = [0; 2];
        encode(&coefficients[..count], &head_terms[..count], &mut head);
        out.extend_from_slice(&head[..len.min(2)]);
        let start = out.len();
        out.resize(start + len.saturating_sub(2), 0);
        encode(&coefficients[..count], &rests[..count], &mut out[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(payload: &[u8]) -> Bytes {
        [&(payload.len() as u16).to_be_bytes(), payload].concat().into()
    }

    proptest! {
        #[test]
        fn both_forms_of_a_symbol_are_the_same_to_their_receiver(
            payloads in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 1..64),
        ) {
            let whole: Vec<Bytes> = payloads.iter().map(|(_, payload, _)| framed(payload)).collect();
            let symbols: Vec<Symbol> = payloads.iter().zip(&whole)
                .map(|((_, payload, is_bare), whole)| if *is_bare { Symbol::bare(payload.clone().into()) } else { Symbol::whole(whole.clone()) })
                .collect();
            for ((symbol, whole), (_, payload, _)) in symbols.iter().zip(&whole).zip(&payloads) {
                let mut written = vec![7];
                symbol.write(&mut written);
                prop_assert_eq!(&written[1..], &whole[..]);
                prop_assert_eq!(symbol.len(), whole.len());
                prop_assert_eq!(&symbol.payload()[..], &payload[..]);
            }
            let len = whole.iter().map(Bytes::len).max().unwrap_or(0);
            let coefficients: Vec<u8> = payloads.iter().map(|p| p.0).collect();
            let rows: Vec<&[u8]> = whole.iter().map(|w| &w[..]).collect();
            let mut expected = vec![0; len];
            encode(&coefficients, &rows, &mut expected);
            let mut got = vec![7];
            Symbol::combine(coefficients.into_iter().zip(&symbols), len, &mut got);
            prop_assert_eq!(&got[1..], &expected[..]);
        }
    }

    #[test]
    fn combinations_at_a_relay_may_be_short() {
        for len in 0..4usize {
            let row = Symbol::whole(vec![9; len].into());
            let mut got = Vec::new();
            Symbol::combine([(1, &row)].into_iter(), len, &mut got);
            assert_eq!(got, vec![9; len]);
        }
    }
}
