//! The one table of vector kernels: chosen once, forced by name when wished.

use core::fmt;

/// One summand of [`Kernels::gather`]: `factor · row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTerm {
    /// Number of the row in the arena.
    pub row: u32,
    /// Its coefficient.
    pub factor: u8,
}

/// Rows of equal length in one piece of memory, of which columns from `column` on are meant.
#[derive(Clone, Copy, Debug)]
pub struct Arena<'a> {
    /// The rows, one after the other.
    pub bytes: &'a [u8],
    /// Distance between the starts of two rows, in bytes.
    pub stride: usize,
    /// First byte of each row that takes part.
    pub column: usize,
}

/// One summand: coefficient and source.
type Term<'a> = (u8, &'a [u8]);
/// Destinations, one row of coefficients for each, sources.
type Dot4 = fn([&mut [u8]; 4], [&[u8]; 4], &[&[u8]]);

/// What an instruction set provides. Slices have equal lengths; `dot`, `dot4` and `sum` add to their destinations.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) mul_add: fn(&mut [u8], &[u8], u8),
    pub(super) scale: fn(&mut [u8], u8),
    pub(super) add: fn(&mut [u8], &[u8]),
    pub(super) dot: fn(&mut [u8], &[Term<'_>]),
    pub(super) dot4: Dot4,
    pub(super) sum: fn(&mut [u8], &[&[u8]]),
    pub(super) gather: fn(&mut [u8], Arena<'_>, &[RowTerm]),
    /// Key, whose length is a multiple of 64 and at least the data's, and data.
    pub(super) convolve8: fn(&[u8], &[u8]) -> [u8; 15],
}

/// Vector operations over GF(256) of one instruction set.
///
/// Sources may be shorter than destinations: the missing tail counts as zeros (P5). Longer sources are cut.
/// No operation allocates or panics, whatever the lengths.
#[derive(Clone, Copy)]
pub struct Kernels {
    table: &'static Table,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernels").field(&self.table.name).finish()
    }
}

static SCALAR: Kernels = Kernels { table: &super::scalar::TABLE };
#[cfg(target_arch = "x86_64")]
static SSSE3: Kernels = Kernels { table: &super::ssse3::TABLE };
#[cfg(target_arch = "x86_64")]
static AVX2: Kernels = Kernels { table: &super::avx2::TABLE };
#[cfg(target_arch = "x86_64")]
static GFNI: Kernels = Kernels { table: &super::gfni::ymm::TABLE };
#[cfg(target_arch = "x86_64")]
static GFNI512: Kernels = Kernels { table: &super::gfni::zmm::TABLE };

#[cfg(all(target_arch = "x86_64", feature = "std"))]
macro_rules! has {
    ($feature:tt) => {
        std::arch::is_x86_feature_detected!($feature)
    };
}
#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
macro_rules! has {
    ($feature:tt) => {
        cfg!(target_feature = $feature)
    };
}

/// The fastest kernels that this machine supports; the choice is made once.
///
/// With the `std` feature the CPU is asked at run time; without it the target features of the build decide.
#[inline]
pub fn kernels() -> &'static Kernels {
    #[cfg(feature = "std")]
    {
        static CHOICE: std::sync::OnceLock<&'static Kernels> = std::sync::OnceLock::new();
        CHOICE.get_or_init(fastest)
    }
    #[cfg(not(feature = "std"))]
    fastest()
}

fn fastest() -> &'static Kernels {
    Kernels::supported().last().unwrap_or(&SCALAR)
}

impl Kernels {
    /// All kernels that this machine supports, slowest (`scalar`) first.
    pub fn supported() -> impl Iterator<Item = &'static Kernels> {
        // Every set stands on the narrower ones: short slices go there. CPUs with SSSE3 and without PCLMULQDQ (before 2010) are content with
        // the portable kernels.
        #[cfg(target_arch = "x86_64")]
        let (ssse3, avx2) = (has!("ssse3") && has!("pclmulqdq"), has!("avx2"));
        #[cfg(target_arch = "x86_64")]
        let avx2 = ssse3 && avx2;
        #[cfg(target_arch = "x86_64")]
        let gfni = avx2 && has!("gfni") && has!("vpclmulqdq");
        #[cfg(target_arch = "x86_64")]
        let gfni512 = gfni && has!("avx512f") && has!("avx512bw");
        #[cfg(target_arch = "x86_64")]
        let sets = [Some(&SCALAR), ssse3.then_some(&SSSE3), avx2.then_some(&AVX2), gfni.then_some(&GFNI), gfni512.then_some(&GFNI512)];
        #[cfg(not(target_arch = "x86_64"))]
        let sets = [Some(&SCALAR)];
        sets.into_iter().flatten()
    }

    /// The kernels called `scalar`, `ssse3`, `avx2`, `gfni` or `gfni512`; `None` if unknown or not supported by this machine.
    pub fn by_name(name: &str) -> Option<&'static Kernels> {
        Self::supported().find(|k| k.name() == name)
    }

    /// Name of the instruction set.
    pub fn name(&self) -> &'static str {
        self.table.name
    }

    /// `dst ^= c · src`. Cost: one pass over the shorter of the two.
    #[inline]
    pub fn mul_add(&self, dst: &mut [u8], src: &[u8], c: u8) {
        let n = dst.len().min(src.len());
        match c {
            0 => {}
            1 => (self.table.add)(&mut dst[..n], &src[..n]),
            _ => (self.table.mul_add)(&mut dst[..n], &src[..n], c),
        }
    }

    /// `dst = c · dst`.
    #[inline]
    pub fn scale(&self, dst: &mut [u8], c: u8) {
        match c {
            0 => dst.fill(0),
            1 => {}
            _ => (self.table.scale)(dst, c),
        }
    }

    /// `dst ^= src`.
    #[inline]
    pub fn add(&self, dst: &mut [u8], src: &[u8]) {
        let n = dst.len().min(src.len());
        (self.table.add)(&mut dst[..n], &src[..n]);
    }

    /// `dst = sum of c · src` over all terms, in one pass over `dst`.
    #[inline]
    pub fn dot(&self, dst: &mut [u8], terms: &[(u8, &[u8])]) {
        dst.fill(0);
        self.dot_add(dst, terms);
    }

    /// `dst ^= sum of c · src` over all terms, in one pass over `dst`.
    pub fn dot_add(&self, dst: &mut [u8], terms: &[(u8, &[u8])]) {
        for terms in terms.chunks(CHUNK) {
            let common = terms.iter().map(|(_, src)| src.len()).min().unwrap_or(0).min(dst.len());
            let (head, tail) = dst.split_at_mut(common);
            if terms.iter().all(|(_, src)| src.len() == common) {
                (self.table.dot)(head, terms);
                continue;
            }
            let mut cut: [(u8, &[u8]); CHUNK] = [(0, &[]); CHUNK];
            for (cut, (c, src)) in cut.iter_mut().zip(terms) {
                *cut = (*c, &src[..common]);
            }
            (self.table.dot)(head, &cut[..terms.len()]);
            for (c, src) in terms.iter().filter(|(_, src)| src.len() > common) {
                self.mul_add(tail, &src[common..], *c);
            }
        }
    }

    /// `dsts[i] = sum over j of coefficients[i·k + j] · sources[j]` with k = `sources.len()`: many sources into many destinations.
    ///
    /// Destinations are made four at a time in one pass over the sources: a quarter of the loads. Missing coefficients count as zeros.
    pub fn dot_multi(&self, dsts: &mut [&mut [u8]], coefficients: &[u8], sources: &[&[u8]]) {
        for dst in dsts.iter_mut() {
            dst.fill(0);
        }
        self.dot_multi_add(dsts, coefficients, sources);
    }

    /// As [`Kernels::dot_multi`], added to what the destinations hold.
    pub fn dot_multi_add(&self, dsts: &mut [&mut [u8]], coefficients: &[u8], sources: &[&[u8]]) {
        let k = sources.len();
        let row = |i: usize| coefficients.get(i * k..(i + 1) * k).unwrap_or(coefficients.get(i * k..).unwrap_or(&[]));
        let mut i = 0;
        while i < dsts.len() {
            if dsts.len() - i >= 4 && row(i + 3).len() == k {
                let [a, b, c, d] = &mut dsts[i..i + 4] else { unreachable!("a slice of four") };
                let rows = [row(i), row(i + 1), row(i + 2), row(i + 3)];
                self.four([&mut **a, &mut **b, &mut **c, &mut **d], rows, sources);
                i += 4;
            } else {
                let mut terms: [(u8, &[u8]); CHUNK] = [(0, &[]); CHUNK];
                for (row, sources) in row(i).chunks(CHUNK).zip(sources.chunks(CHUNK)) {
                    for ((term, c), src) in terms.iter_mut().zip(row).zip(sources) {
                        *term = (*c, src);
                    }
                    self.dot_add(dsts[i], &terms[..row.len()]);
                }
                i += 1;
            }
        }
    }

    fn four(&self, mut dsts: [&mut [u8]; 4], rows: [&[u8]; 4], sources: &[&[u8]]) {
        for (at, sources) in sources.chunks(CHUNK).enumerate() {
            let rows = rows.map(|row| &row[at * CHUNK..at * CHUNK + sources.len()]);
            let shortest = sources.iter().map(|src| src.len()).min().unwrap_or(0);
            let common = dsts.iter().map(|dst| dst.len()).min().unwrap_or(0).min(shortest);
            let mut cut: [&[u8]; CHUNK] = [&[]; CHUNK];
            for (cut, src) in cut.iter_mut().zip(sources) {
                *cut = &src[..common];
            }
            let heads = dsts.each_mut().map(|dst| &mut dst[..common]);
            (self.table.dot4)(heads, rows, &cut[..sources.len()]);
            for (dst, row) in dsts.iter_mut().zip(rows).filter(|(dst, _)| dst.len() > common) {
                for (c, src) in row.iter().zip(sources).filter(|(_, src)| src.len() > common) {
                    self.mul_add(&mut dst[common..], &src[common..], *c);
                }
            }
        }
    }

    /// `dst ^= sum of factor · row` over rows of an arena, from column `arena.column` on for `dst.len()` bytes.
    ///
    /// The kernel of block codes, whose terms number in the hundreds. Terms whose row does not lie wholly in the arena are left out.
    pub fn gather(&self, dst: &mut [u8], arena: Arena<'_>, terms: &[RowTerm]) {
        let n = dst.len();
        let fits = |highest: u32| {
            let end = (highest as usize).checked_mul(arena.stride).and_then(|at| at.checked_add(arena.column + n));
            end.is_some_and(|end| end <= arena.bytes.len())
        };
        for terms in terms.chunks(GATHER) {
            if fits(terms.iter().fold(0, |highest, term| highest.max(term.row))) {
                (self.table.gather)(dst, arena, terms);
            } else {
                for term in terms.iter().filter(|term| fits(term.row)) {
                    (self.table.gather)(dst, arena, core::slice::from_ref(term));
                }
            }
        }
    }

    /// Sum over blocks of eight bytes of the products of `data` and `key` as polynomials over GF(256): coefficients of y^0 … y^14.
    pub(crate) fn convolve8(&self, key: &[u8], data: &[u8]) -> [u8; 15] {
        assert!(key.len().is_multiple_of(64) && data.len() <= key.len());
        (self.table.convolve8)(key, data)
    }

    /// `dst ^= sum of sources`, in one pass over `dst`: the binary case of [`Kernels::dot_add`].
    pub fn sum(&self, dst: &mut [u8], sources: &[&[u8]]) {
        for sources in sources.chunks(CHUNK) {
            let common = sources.iter().map(|src| src.len()).min().unwrap_or(0).min(dst.len());
            let (head, tail) = dst.split_at_mut(common);
            let mut cut: [&[u8]; CHUNK] = [&[]; CHUNK];
            for (cut, src) in cut.iter_mut().zip(sources) {
                *cut = &src[..common];
            }
            (self.table.sum)(head, &cut[..sources.len()]);
            for src in sources.iter().filter(|src| src.len() > common) {
                self.add(tail, &src[common..]);
            }
        }
    }
}

/// Terms that go through one pass: enough to amortise the pass, few enough for the stack.
const CHUNK: usize = 32;
/// Terms of a gather that go through one pass: their blocks stay in L1 between two visits.
const GATHER: usize = 64;
