//! The loops of all vector kernels, instantiated once per instruction set.
//!
//! An instruction set's file brings the vector type `V` of `W` bytes and these operations: `load`, `store`, `zero`, `xor`,
//! `factor(c)` (a coefficient prepared for multiplication), `split(v)` (a vector prepared for it) and `mul(factor, split)`.
//! `pairs` says whether the inner loops take two terms at once, for which AVX2 has too few registers. `convolve8` is the function of
//! `clmul.rs` that fits the set.
//! All loops work on equal lengths, which the caller in `kernels.rs` has cut. A length that is no multiple of `W` is finished by one
//! vector that overlaps the one before: it is computed from the destination *before* the loop changes it and stored last, so the
//! overlapped bytes are written twice with the same value. Lengths below `W` go to the narrower kernels, in the end
//! through a copy on the stack.

macro_rules! lane_kernels {
    ($name:literal, $feature:literal, dot_block = $dot:literal, dot4_block = $dot4:literal, pairs = $pairs:literal, narrow = $narrow:expr, convolve8 = $convolve8:path) => {
        /// Kernels of narrower vectors, for slices shorter than W: coefficient vectors above all.
        #[inline]
        fn narrow() -> Option<&'static Table> {
            $narrow
        }

        use crate::gf256::kernels::{Arena, RowTerm, Table};

        /// # Safety of the entries
        /// `Kernels` hands this table out only after it has seen the CPU features named below.
        pub(in crate::gf256) static TABLE: Table = Table {
            name: $name,
            // SAFETY (all): the table is reachable only through `Kernels::supported`, which checks the CPU.
            mul_add: |dst, src, c| unsafe { mul_add(dst, src, c) },
            scale: |dst, c| unsafe { scale(dst, c) },
            add: |dst, src| unsafe { add(dst, src) },
            dot: |dst, terms| unsafe { dot(dst, terms) },
            dot4: |dsts, coefficients, sources| unsafe { dot4(dsts, coefficients, sources) },
            sum: |dst, sources| unsafe { sum(dst, sources) },
            gather: |dst, arena, terms| unsafe { gather(dst, arena, terms) },
            convolve8: |key, data| unsafe { $convolve8(key, data) },
        };

        #[target_feature(enable = $feature)]
        unsafe fn mul_add(dst: &mut [u8], src: &[u8], c: u8) {
            let n = dst.len();
            assert!(src.len() == n);
            let f = factor(c);
            // SAFETY: every access lies in 0..n of both slices; short slices use W-byte stack copies.
            unsafe {
                if n < W {
                    if let Some(narrow) = narrow() {
                        return (narrow.mul_add)(dst, src, c);
                    }
                    let (mut d, mut s) = ([0u8; W], [0u8; W]);
                    d[..n].copy_from_slice(dst);
                    s[..n].copy_from_slice(src);
                    store(d.as_mut_ptr(), xor(load(d.as_ptr()), mul(f, split(load(s.as_ptr())))));
                    dst.copy_from_slice(&d[..n]);
                    return;
                }
                let (d, s) = (dst.as_mut_ptr(), src.as_ptr());
                let last = xor(load(d.add(n - W)), mul(f, split(load(s.add(n - W)))));
                let mut i = 0;
                while i + 4 * W <= n {
                    let (d, s) = (d.add(i), s.add(i));
                    let a = xor(load(d), mul(f, split(load(s))));
                    let b = xor(load(d.add(W)), mul(f, split(load(s.add(W)))));
                    let c = xor(load(d.add(2 * W)), mul(f, split(load(s.add(2 * W)))));
                    let e = xor(load(d.add(3 * W)), mul(f, split(load(s.add(3 * W)))));
                    store(d, a);
                    store(d.add(W), b);
                    store(d.add(2 * W), c);
                    store(d.add(3 * W), e);
                    i += 4 * W;
                }
                while i + W <= n {
                    store(d.add(i), xor(load(d.add(i)), mul(f, split(load(s.add(i))))));
                    i += W;
                }
                if i < n {
                    store(d.add(n - W), last);
                }
            }
        }

        #[target_feature(enable = $feature)]
        unsafe fn scale(dst: &mut [u8], c: u8) {
            let n = dst.len();
            let f = factor(c);
            // SAFETY: every access lies in 0..n; short slices use a W-byte stack copy.
            unsafe {
                if n < W {
                    if let Some(narrow) = narrow() {
                        return (narrow.scale)(dst, c);
                    }
                    let mut d = [0u8; W];
                    d[..n].copy_from_slice(dst);
                    store(d.as_mut_ptr(), mul(f, split(load(d.as_ptr()))));
                    dst.copy_from_slice(&d[..n]);
                    return;
                }
                let d = dst.as_mut_ptr();
                let last = mul(f, split(load(d.add(n - W))));
                let mut i = 0;
                while i + W <= n {
                    store(d.add(i), mul(f, split(load(d.add(i)))));
                    i += W;
                }
                if i < n {
                    store(d.add(n - W), last);
                }
            }
        }

        #[target_feature(enable = $feature)]
        unsafe fn add(dst: &mut [u8], src: &[u8]) {
            let n = dst.len();
            assert!(src.len() == n);
            // SAFETY: every access lies in 0..n of both slices.
            unsafe {
                let (d, s) = (dst.as_mut_ptr(), src.as_ptr());
                if n < W {
                    for i in 0..n {
                        *d.add(i) ^= *s.add(i);
                    }
                    return;
                }
                let last = xor(load(d.add(n - W)), load(s.add(n - W)));
                let mut i = 0;
                while i + 4 * W <= n {
                    for k in 0..4 {
                        let at = i + k * W;
                        store(d.add(at), xor(load(d.add(at)), load(s.add(at))));
                    }
                    i += 4 * W;
                }
                while i + W <= n {
                    store(d.add(i), xor(load(d.add(i)), load(s.add(i))));
                    i += W;
                }
                if i < n {
                    store(d.add(n - W), last);
                }
            }
        }

        /// `dst ^= sum of c·src` over `count` terms, the accumulators kept in registers over all of them. `dst` has at least W bytes.
        ///
        /// # Safety
        /// `term(j)` for j < count points at as many bytes as `dst` has.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn accumulate(dst: &mut [u8], count: usize, term: impl Fn(usize) -> (u8, *const u8)) {
            const B: usize = $dot;
            let n = dst.len();
            assert!(n >= W);
            // SAFETY: every access lies in 0..n of `dst` and of the terms, which the caller vouches for.
            unsafe {
                let d = dst.as_mut_ptr();
                let one = |at: usize| {
                    let mut acc = load(d.add(at));
                    for j in 0..count {
                        let (c, s) = term(j);
                        acc = xor(acc, mul(factor(c), split(load(s.add(at)))));
                    }
                    acc
                };
                let last = if n % W != 0 { one(n - W) } else { zero() };
                let mut i = 0;
                while i + B * W <= n {
                    let mut acc = [zero(); B];
                    for (b, acc) in acc.iter_mut().enumerate() {
                        *acc = load(d.add(i + b * W));
                    }
                    let mut j = 0;
                    // Two terms at once: AVX-512 adds three vectors in one instruction (VPTERNLOG), which the compiler sees.
                    while $pairs && j + 2 <= count {
                        let ((c, s), (e, t)) = (term(j), term(j + 1));
                        let (f, s, g, t) = (factor(c), s.add(i), factor(e), t.add(i));
                        for (b, acc) in acc.iter_mut().enumerate() {
                            *acc = xor(*acc, xor(mul(f, split(load(s.add(b * W)))), mul(g, split(load(t.add(b * W))))));
                        }
                        j += 2;
                    }
                    while j < count {
                        let (c, s) = term(j);
                        let (f, s) = (factor(c), s.add(i));
                        for (b, acc) in acc.iter_mut().enumerate() {
                            *acc = xor(*acc, mul(f, split(load(s.add(b * W)))));
                        }
                        j += 1;
                    }
                    for (b, acc) in acc.iter().enumerate() {
                        store(d.add(i + b * W), *acc);
                    }
                    i += B * W;
                }
                while i + W <= n {
                    store(d.add(i), one(i));
                    i += W;
                }
                if i < n {
                    store(d.add(n - W), last);
                }
            }
        }

        /// `dst ^= sum of c·src`.
        #[target_feature(enable = $feature)]
        unsafe fn dot(dst: &mut [u8], terms: &[(u8, &[u8])]) {
            let n = dst.len();
            assert!(terms.iter().all(|(_, src)| src.len() == n));
            // SAFETY: the lengths of all terms were just checked.
            unsafe {
                if n >= W {
                    accumulate(dst, terms.len(), |j| (terms[j].0, terms[j].1.as_ptr()));
                } else if let Some(narrow) = narrow() {
                    (narrow.dot)(dst, terms);
                } else {
                    for &(c, src) in terms {
                        mul_add(dst, src, c);
                    }
                }
            }
        }

        /// As `dot`, over rows of an arena.
        #[target_feature(enable = $feature)]
        unsafe fn gather(dst: &mut [u8], arena: Arena<'_>, terms: &[RowTerm]) {
            let n = dst.len();
            let highest = terms.iter().fold(0, |highest, term| highest.max(term.row)) as usize;
            assert!(highest * arena.stride + arena.column + n <= arena.bytes.len());
            // SAFETY: the end of the last row was just checked.
            unsafe {
                let base = arena.bytes.as_ptr().add(arena.column);
                let row = |term: &RowTerm| base.add(term.row as usize * arena.stride);
                if n >= W {
                    accumulate(dst, terms.len(), |j| (terms[j].factor, row(&terms[j])));
                } else if let Some(narrow) = narrow() {
                    (narrow.gather)(dst, arena, terms);
                } else {
                    for term in terms {
                        mul_add(dst, core::slice::from_raw_parts(row(term), n), term.factor);
                    }
                }
            }
        }

        /// Four destinations in one pass: every source vector is loaded once and multiplied four times.
        #[target_feature(enable = $feature)]
        unsafe fn dot4(dsts: [&mut [u8]; 4], coefficients: [&[u8]; 4], sources: &[&[u8]]) {
            const B: usize = $dot4;
            let n = dsts[0].len();
            let k = sources.len();
            assert!(dsts.iter().all(|d| d.len() == n) && sources.iter().all(|s| s.len() == n));
            assert!(coefficients.iter().all(|row| row.len() == k));
            // SAFETY: every access lies in 0..n of all slices and 0..k of all rows, whose lengths were just checked.
            unsafe {
                if n < W {
                    if let Some(narrow) = narrow() {
                        return (narrow.dot4)(dsts, coefficients, sources);
                    }
                    for (dst, row) in dsts.into_iter().zip(coefficients) {
                        for (&c, src) in row.iter().zip(sources) {
                            mul_add(dst, src, c);
                        }
                    }
                    return;
                }
                let d = dsts.map(|d| d.as_mut_ptr());
                let rows = coefficients.map(|row| row.as_ptr());
                let one = |at: usize| {
                    let mut acc = d.map(|d| load(d.add(at)));
                    for (j, src) in sources.iter().enumerate() {
                        let s = split(load(src.as_ptr().add(at)));
                        for (acc, row) in acc.iter_mut().zip(rows) {
                            *acc = xor(*acc, mul(factor(*row.add(j)), s));
                        }
                    }
                    acc
                };
                let block = |src: &[u8], at: usize| {
                    let mut s = [split(zero()); B];
                    for (b, s) in s.iter_mut().enumerate() {
                        *s = split(load(src.as_ptr().add(at + b * W)));
                    }
                    s
                };
                let last = if n % W != 0 { one(n - W) } else { [zero(); 4] };
                let mut i = 0;
                while i + B * W <= n {
                    let mut acc = [[zero(); B]; 4];
                    for (acc, d) in acc.iter_mut().zip(d) {
                        for (b, acc) in acc.iter_mut().enumerate() {
                            *acc = load(d.add(i + b * W));
                        }
                    }
                    let mut j = 0;
                    while $pairs && j + 2 <= k {
                        let (s, t) = (block(sources[j], i), block(sources[j + 1], i));
                        for (acc, row) in acc.iter_mut().zip(rows) {
                            let (f, g) = (factor(*row.add(j)), factor(*row.add(j + 1)));
                            for ((acc, s), t) in acc.iter_mut().zip(s).zip(t) {
                                *acc = xor(*acc, xor(mul(f, s), mul(g, t)));
                            }
                        }
                        j += 2;
                    }
                    while j < k {
                        let s = block(sources[j], i);
                        for (acc, row) in acc.iter_mut().zip(rows) {
                            let f = factor(*row.add(j));
                            for (acc, s) in acc.iter_mut().zip(s) {
                                *acc = xor(*acc, mul(f, s));
                            }
                        }
                        j += 1;
                    }
                    for (acc, d) in acc.iter().zip(d) {
                        for (b, acc) in acc.iter().enumerate() {
                            store(d.add(i + b * W), *acc);
                        }
                    }
                    i += B * W;
                }
                while i + W <= n {
                    for (acc, d) in one(i).into_iter().zip(d) {
                        store(d.add(i), acc);
                    }
                    i += W;
                }
                if i < n {
                    for (acc, d) in last.into_iter().zip(d) {
                        store(d.add(n - W), acc);
                    }
                }
            }
        }

        /// `dst ^= sum of sources`: the binary case of `dot`.
        #[target_feature(enable = $feature)]
        unsafe fn sum(dst: &mut [u8], sources: &[&[u8]]) {
            const B: usize = $dot;
            let n = dst.len();
            assert!(sources.iter().all(|src| src.len() == n));
            // SAFETY: every access lies in 0..n of all slices, whose lengths were just checked.
            unsafe {
                if n < W {
                    if let Some(narrow) = narrow() {
                        return (narrow.sum)(dst, sources);
                    }
                    for src in sources {
                        add(dst, src);
                    }
                    return;
                }
                let d = dst.as_mut_ptr();
                let one = |at: usize| {
                    let mut acc = load(d.add(at));
                    for src in sources {
                        acc = xor(acc, load(src.as_ptr().add(at)));
                    }
                    acc
                };
                let last = if n % W != 0 { one(n - W) } else { zero() };
                let mut i = 0;
                while i + B * W <= n {
                    let mut acc = [zero(); B];
                    for (b, acc) in acc.iter_mut().enumerate() {
                        *acc = load(d.add(i + b * W));
                    }
                    for src in sources {
                        for (b, acc) in acc.iter_mut().enumerate() {
                            *acc = xor(*acc, load(src.as_ptr().add(i + b * W)));
                        }
                    }
                    for (b, acc) in acc.iter().enumerate() {
                        store(d.add(i + b * W), *acc);
                    }
                    i += B * W;
                }
                while i + W <= n {
                    store(d.add(i), one(i));
                    i += W;
                }
                if i < n {
                    store(d.add(n - W), last);
                }
            }
        }
    };
}
