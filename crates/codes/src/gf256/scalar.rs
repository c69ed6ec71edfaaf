//! The portable kernels, written to be read: what the vector kernels must equal.

use super::kernels::{Arena, RowTerm, Table};
use super::tables::PRODUCTS;

pub(super) static TABLE: Table = Table { name: "scalar", mul_add, scale, add, dot, dot4, sum, gather, convolve8 };

fn mul_add(dst: &mut [u8], src: &[u8], c: u8) {
    let row = &PRODUCTS[c as usize];
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= row[*s as usize];
    }
}

fn scale(dst: &mut [u8], c: u8) {
    let row = &PRODUCTS[c as usize];
    for d in dst {
        *d = row[*d as usize];
    }
}

fn add(dst: &mut [u8], src: &[u8]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= s;
    }
}

fn dot(dst: &mut [u8], terms: &[(u8, &[u8])]) {
    for &(c, src) in terms {
        mul_add(dst, src, c);
    }
}

fn dot4(dsts: [&mut [u8]; 4], coefficients: [&[u8]; 4], sources: &[&[u8]]) {
    for (dst, row) in dsts.into_iter().zip(coefficients) {
        for (&c, src) in row.iter().zip(sources) {
            mul_add(dst, src, c);
        }
    }
}

fn sum(dst: &mut [u8], sources: &[&[u8]]) {
    for src in sources {
        add(dst, src);
    }
}

fn gather(dst: &mut [u8], arena: Arena<'_>, terms: &[RowTerm]) {
    for term in terms {
        let at = term.row as usize * arena.stride + arena.column;
        mul_add(dst, &arena.bytes[at..at + dst.len()], term.factor);
    }
}

/// Horner over the bits of the data, highest first, and no table: the time does not depend on the key.
fn convolve8(key: &[u8], data: &[u8]) -> [u8; 15] {
    let ((keys, _), (blocks, rest)) = (key.as_chunks::<8>(), data.as_chunks::<8>());
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // Sum i: byte i of each block times the whole block of the key, eight elements to a word.
    let mut sums = [0u64; 8];
    let step = |sums: &mut [u64; 8], key: &[u8; 8], data: &[u8; 8], bit: u32| {
        for (sum, x) in sums.iter_mut().zip(data) {
            *sum ^= u64::from_le_bytes(*key) & 0u64.wrapping_sub(u64::from((x >> bit) & 1));
        }
    };
    for bit in (0..8).rev() {
        for sum in &mut sums {
            let high = (*sum >> 7) & 0x0101_0101_0101_0101;
            *sum = ((*sum & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ (high * 0x1d);
        }
        for (key, block) in keys.iter().zip(blocks) {
            step(&mut sums, key, block, bit);
        }
        if let Some(key) = keys.get(blocks.len()) {
            step(&mut sums, key, &last, bit);
        }
    }
    let product = (0..).zip(sums).fold(0, |product, (i, sum)| product ^ (u128::from(sum) << (8 * i)));
    let bytes = product.to_le_bytes();
    core::array::from_fn(|i| bytes[i])
}
