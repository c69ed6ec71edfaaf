//! Tables of the field, computed at compile time: logarithms, products by nibble, bit matrices.

const fn exp_table() -> [u8; 512] {
    let mut table = [0u8; 512];
    let (mut x, mut i) = (1u16, 0);
    while i < 255 {
        table[i] = x as u8;
        table[i + 255] = x as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= super::POLYNOMIAL;
        }
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// `EXP[e] = 2^e`; doubled, so that the sum of two logarithms needs no reduction.
pub(crate) static EXP: [u8; 512] = exp_table();
/// `LOG[2^e] = e`; the entry of 0 is meaningless.
pub(crate) static LOG: [u8; 256] = log_table();

/// All products: row `c` is the map x -> c·x (64 KiB).
#[allow(long_running_const_eval)]
pub(super) static PRODUCTS: [[u8; 256]; 256] = {
    let mut table = [[0u8; 256]; 256];
    let mut c = 1;
    while c < 256 {
        let mut x = 1;
        while x < 256 {
            table[c][x] = EXP[LOG[c] as usize + LOG[x] as usize];
            x += 1;
        }
        c += 1;
    }
    table
};

/// Products of `c` with the 16 low nibbles, then with the 16 high nibbles: the operands of a byte shuffle.
#[cfg(target_arch = "x86_64")]
#[repr(align(32))]
pub(super) struct Nibbles(pub(super) [u8; 32]);

#[cfg(target_arch = "x86_64")]
pub(super) static NIBBLES: [Nibbles; 256] = {
    let mut table = [const { Nibbles([0; 32]) }; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c].0[x] = super::mul(c as u8, x as u8);
            table[c].0[16 + x] = super::mul(c as u8, (x as u8) << 4);
            x += 1;
        }
        c += 1;
    }
    table
};

/// Multiplication by `c` as an 8x8 bit matrix in the layout of GF2P8AFFINEQB: byte 7-i holds the row of result bit i.
#[cfg(target_arch = "x86_64")]
#[allow(long_running_const_eval)]
pub(super) static MATRICES: [u64; 256] = {
    let mut table = [0u64; 256];
    let mut c = 0;
    while c < 256 {
        let mut j = 0;
        while j < 8 {
            let product = super::mul(c as u8, 1 << j) as u64;
            let mut i = 0;
            while i < 8 {
                table[c] |= ((product >> i) & 1) << ((7 - i) * 8 + j);
                i += 1;
            }
            j += 1;
        }
        c += 1;
    }
    table
};
