//! CODED: the frame that carries data (P4, P5). Its fixed part is written apart from its symbol, so that a symbol is combined where it is sent from.

use super::frame::{Coded, Coefficients};
use super::varint::{self, Reader};
use super::{WireError, frame_type};
use crate::ids::{FlowLabel, Seq};

/// Packets in a span at most (P4).
pub const MAX_SPAN: u8 = 64;

const FORM_INDEX: u8 = 0;
const FORM_SEED: u8 = 1;
const FORM_BITMAP_SEED: u8 = 2;
const FORM_VECTOR: u8 = 3;

/// Bits 0..n set: the packets of a span of `n`.
pub(super) const fn span_mask(n: u8) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Bytes of a bitmap over `n` packets.
const fn bitmap_len(n: u8) -> usize {
    n.div_ceil(8) as usize
}

/// Appends the low `ceil(n/8)` bytes of a bitmap, bit j of byte j/8 first.
pub(super) fn emit_bitmap(out: &mut Vec<u8>, bitmap: u64, n: u8) {
    out.extend_from_slice(&bitmap.to_le_bytes()[..bitmap_len(n)]);
}

/// Reads what [`emit_bitmap`] wrote; a bit beyond `n` is an error.
pub(super) fn parse_bitmap(r: &mut Reader<'_>, n: u8) -> Result<u64, WireError> {
    let mut word = [0; 8];
    let bytes = r.bytes(bitmap_len(n))?;
    word[..bytes.len()].copy_from_slice(bytes);
    let bitmap = u64::from_le_bytes(word);
    if bitmap & !span_mask(n) != 0 {
        return Err(WireError::Invalid("bitmap: a bit lies beyond the span"));
    }
    Ok(bitmap)
}

/// Appends everything of a CODED frame but its symbol, which must follow and end the packet.
pub fn emit_header(out: &mut Vec<u8>, flow: FlowLabel, base: Seq, n: u8, coefficients: &Coefficients<'_>) {
    varint::emit(out, frame_type::CODED);
    emit_span(out, flow, base, n, coefficients);
}

/// Appends everything of a CODED_LENGTH frame but its symbol of `symbol_len` bytes, which must follow; other frames may come after it.
pub fn emit_header_with_length(out: &mut Vec<u8>, flow: FlowLabel, base: Seq, n: u8, coefficients: &Coefficients<'_>, symbol_len: usize) {
    varint::emit(out, frame_type::CODED_LENGTH);
    emit_span(out, flow, base, n, coefficients);
    varint::emit(out, symbol_len as u64);
}

/// Bytes that [`emit_header`] appends.
pub fn header_len(flow: FlowLabel, base: Seq, n: u8, coefficients: &Coefficients<'_>) -> usize {
    let coefficients = match coefficients {
        Coefficients::Index(_) => 1,
        Coefficients::Seed(_) => 2,
        Coefficients::BitmapSeed { .. } => 2 + bitmap_len(n),
        Coefficients::Vector(v) => v.len(),
    };
    1 + varint::size(flow.0) + varint::size(base.0) + 1 + coefficients
}

fn emit_span(out: &mut Vec<u8>, flow: FlowLabel, base: Seq, n: u8, coefficients: &Coefficients<'_>) {
    debug_assert!((1..=MAX_SPAN).contains(&n));
    varint::emit(out, flow.0);
    varint::emit(out, base.0);
    let form = |form: u8| form << 6 | (n.wrapping_sub(1) & 0x3f);
    match *coefficients {
        Coefficients::Index(index) => out.extend_from_slice(&[form(FORM_INDEX), index]),
        Coefficients::Seed(seed) => {
            out.push(form(FORM_SEED));
            out.extend_from_slice(&seed.to_be_bytes());
        }
        Coefficients::BitmapSeed { bitmap, seed } => {
            out.push(form(FORM_BITMAP_SEED));
            emit_bitmap(out, bitmap, n);
            out.extend_from_slice(&seed.to_be_bytes());
        }
        Coefficients::Vector(vector) => {
            debug_assert_eq!(vector.len(), usize::from(n));
            out.push(form(FORM_VECTOR));
            out.extend_from_slice(vector);
        }
    }
}

impl<'a> Coded<'a> {
    /// Appends the frame in the form that ends its packet.
    pub fn emit_last(&self, out: &mut Vec<u8>) {
        emit_header(out, self.flow, self.base, self.n, &self.coefficients);
        out.extend_from_slice(self.symbol);
    }
    /// Appends the frame with its length.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit_header_with_length(out, self.flow, self.base, self.n, &self.coefficients, self.symbol.len());
        out.extend_from_slice(self.symbol);
    }
    /// Reads the frame after its type; `has_length` tells the two types apart.
    pub(super) fn parse_body(r: &mut Reader<'a>, has_length: bool) -> Result<Self, WireError> {
        let flow = FlowLabel(r.varint()?);
        let base = Seq(r.varint()?);
        let form = r.u8()?;
        let n = (form & 0x3f) + 1;
        let coefficients = match form >> 6 {
            FORM_INDEX => match r.u8()? {
                index if index < n => Coefficients::Index(index),
                _ => return Err(WireError::Invalid("CODED: index beyond the span")),
            },
            FORM_SEED => Coefficients::Seed(r.u16()?),
            FORM_BITMAP_SEED => {
                let bitmap = parse_bitmap(r, n)?;
                if bitmap == 0 {
                    return Err(WireError::Invalid("CODED: no packet takes part"));
                }
                Coefficients::BitmapSeed { bitmap, seed: r.u16()? }
            }
            _ => Coefficients::Vector(r.bytes(usize::from(n))?),
        };
        let symbol = if has_length { r.prefixed()? } else { r.take_rest() };
        if symbol.len() < 2 {
            // P5: a symbol starts with its length.
            return Err(WireError::Invalid("CODED: symbol shorter than its length field"));
        }
        Ok(Self { flow, base, n, coefficients, symbol })
    }
}
