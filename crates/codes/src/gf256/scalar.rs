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

fn convolve8(key: &[u8], data: &[u8]) -> [u8; 15] {
    let mut out = [0; 15];
    for (key, data) in key.chunks(8).zip(data.chunks(8)) {
        for (i, x) in data.iter().enumerate().filter(|(_, x)| **x != 0) {
            let row = &PRODUCTS[*x as usize];
            for (j, k) in key.iter().enumerate() {
                out[i + j] ^= row[*k as usize];
            }
        }
    }
    out
}
