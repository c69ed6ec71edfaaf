//! Laws of the field, and every kernel equal to the scalar one.

use noctule_codes::gf256::{Arena, Kernels, RowTerm, div, inv, kernels, mul};
use noctule_codes::prng::SplitMix64;
use proptest::prelude::*;

/// Carry-less multiplication and reduction, bit by bit: the definition.
fn mul_by_definition(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

#[test]
fn multiplication_is_polynomial_multiplication_modulo_0x11d() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(mul(a, b), mul_by_definition(a, b), "{a}·{b}");
        }
    }
}

#[test]
fn field_axioms_hold() {
    for a in 0..=255u8 {
        assert_eq!(mul(a, 1), a);
        assert_eq!(mul(a, 0), 0);
        if a != 0 {
            assert_eq!(mul(a, inv(a)), 1, "inverse of {a}");
        }
        for b in 0..=255u8 {
            assert_eq!(mul(a, b), mul(b, a));
            assert_eq!(a == 0 || b == 0, mul(a, b) == 0, "no zero divisors: {a}·{b}");
            if b != 0 {
                assert_eq!(mul(div(a, b), b), a);
            }
            for c in [0, 1, 2, 3, 29, 77, 128, 254, 255] {
                assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c));
                assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
            }
        }
    }
    assert_eq!((inv(0), div(5, 0)), (0, 0), "zero has no inverse, and asking does not panic");
}

fn bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut out = vec![0; n];
    SplitMix64::new(seed).fill(&mut out);
    out
}

#[test]
fn scalar_kernel_is_the_definition() {
    let scalar = Kernels::by_name("scalar").unwrap();
    // Miri interprets: some hundred times as long.
    let (len, step) = if cfg!(miri) { (9, 15) } else { (300, 1) };
    let (src, dst) = (bytes(1, len), bytes(2, len));
    for c in (0..=255).step_by(step) {
        let mut out = dst.clone();
        scalar.mul_add(&mut out, &src, c);
        assert!(out.iter().zip(&src).zip(&dst).all(|((o, s), d)| *o == d ^ mul_by_definition(*s, c)));
    }
}

#[test]
fn every_kernel_equals_scalar_for_every_coefficient_and_length() {
    let scalar = Kernels::by_name("scalar").unwrap();
    let (src, dst) = (bytes(3, 400), bytes(4, 400));
    for kernel in Kernels::supported() {
        for c in 0..=255u8 {
            for n in 0..=300usize {
                // The offset changes with the length, so that all alignments meet all tails.
                let (a, b) = ((n * 7 + c as usize) % 67, (n * 5 + 3) % 64);
                let (mut got, mut want) = (dst.clone(), dst.clone());
                kernel.mul_add(&mut got[a..a + n], &src[b..b + n], c);
                scalar.mul_add(&mut want[a..a + n], &src[b..b + n], c);
                assert!(got == want, "{} mul_add c={c} n={n}", kernel.name());
                kernel.scale(&mut got[a..a + n], c);
                scalar.scale(&mut want[a..a + n], c);
                assert!(got == want, "{} scale c={c} n={n}", kernel.name());
            }
        }
        for n in 0..=300usize {
            for offset in 0..65 {
                let (mut got, mut want) = (dst.clone(), dst.clone());
                kernel.add(&mut got[offset..offset + n], &src[65 - offset..][..n]);
                scalar.add(&mut want[offset..offset + n], &src[65 - offset..][..n]);
                assert!(got == want, "{} add offset={offset} n={n}", kernel.name());
            }
        }
    }
}

/// Sources and their length, at most; Miri is some hundred times as slow.
const LARGEST: (usize, usize) = if cfg!(miri) { (20, 70) } else { (80, 1500) };

proptest! {
    #[test]
    fn many_source_kernels_equal_scalar_for_any_shape(
        seed: u64, sources in 0..LARGEST.0, dsts in 0usize..11, n in 0..LARGEST.1, ragged: bool, short_coefficients: bool,
    ) {
        let mut random = SplitMix64::new(seed);
        let data: Vec<Vec<u8>> = (0..sources)
            .map(|_| { let len = if ragged { random.below(n as u32 + 20) as usize } else { n }; bytes(random.next_u64(), len) })
            .collect();
        let refs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut coefficients = bytes(random.next_u64(), sources * dsts);
        for c in coefficients.iter_mut().step_by(3) { *c &= 1; }
        if short_coefficients { coefficients.truncate((sources * dsts).saturating_sub(sources / 2 + 1)); }
        let start = bytes(random.next_u64(), n);

        // The definition: one scalar mul_add after the other.
        let scalar = Kernels::by_name("scalar").unwrap();
        let expect = |base: &[u8], row: &[u8]| {
            let mut out = base.to_vec();
            for (c, src) in row.iter().zip(&refs) { scalar.mul_add(&mut out, src, *c); }
            out
        };
        for kernel in Kernels::supported() {
            for d in 0..dsts {
                let row = coefficients.get(d * sources..((d + 1) * sources).min(coefficients.len())).unwrap_or(&[]);
                let terms: Vec<(u8, &[u8])> = row.iter().copied().zip(refs.iter().copied()).collect();
                let mut out = start.clone();
                kernel.dot_add(&mut out, &terms);
                prop_assert_eq!(&out, &expect(&start, row), "{} dot_add", kernel.name());
                kernel.dot(&mut out, &terms);
                prop_assert_eq!(&out, &expect(&vec![0; n], row), "{} dot", kernel.name());
            }
            let mut out = vec![start.clone(); dsts];
            if dsts > 4 && ragged { out[4].truncate(n / 2); }
            let bases = out.clone();
            let mut outs: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            kernel.dot_multi_add(&mut outs, &coefficients, &refs);
            for (d, (out, base)) in out.iter().zip(&bases).enumerate() {
                let row = coefficients.get(d * sources..((d + 1) * sources).min(coefficients.len())).unwrap_or(&[]);
                prop_assert_eq!(out, &expect(base, row), "{} dot_multi_add {}", kernel.name(), d);
            }
            let mut out = start.clone();
            kernel.sum(&mut out, &refs);
            prop_assert_eq!(&out, &expect(&start, &vec![1; sources]), "{} sum", kernel.name());
        }
    }
}

#[test]
fn kernels_are_chosen_once_and_can_be_forced_by_name() {
    assert_eq!(kernels().name(), kernels().name());
    assert!(Kernels::by_name("scalar").is_some());
    assert!(Kernels::by_name("abacus").is_none());
    assert_eq!(Kernels::supported().last().unwrap().name(), kernels().name());
}

proptest! {
    #[test]
    fn gathering_rows_equals_scalar(seed: u64, rows in 1u32..40, stride in 1usize..600, count in 0usize..150) {
        let mut random = SplitMix64::new(seed);
        let arena = bytes(random.next_u64(), rows as usize * stride);
        let column = random.below(stride as u32) as usize;
        let n = random.below((stride - column) as u32 + 1) as usize;
        // Some rows lie outside and must be ignored.
        let terms: Vec<RowTerm> =
            (0..count).map(|_| RowTerm { row: random.below(rows + rows / 8), factor: random.next_u64() as u8 }).collect();
        let start = bytes(random.next_u64(), n);
        let mut want = start.clone();
        for term in terms.iter().filter(|t| t.row < rows) {
            let src = &arena[term.row as usize * stride + column..][..n];
            Kernels::by_name("scalar").unwrap().mul_add(&mut want, src, term.factor);
        }
        for kernel in Kernels::supported() {
            let mut got = start.clone();
            kernel.gather(&mut got, Arena { bytes: &arena, stride, column }, &terms);
            prop_assert_eq!(&got, &want, "{}", kernel.name());
        }
    }
}
