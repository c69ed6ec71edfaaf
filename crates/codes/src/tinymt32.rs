//! TinyMT32 (RFC 8682), the generator of the RFC 9426 baseline and of the RFC 8681 coefficients.

const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;

/// Tiny Mersenne Twister with the parameter set of RFC 8682 §2.1.
#[derive(Clone, Debug)]
pub struct TinyMt32 {
    status: [u32; 4],
}

impl TinyMt32 {
    /// `tinymt32_init`: any seed is allowed.
    pub fn new(seed: u32) -> Self {
        let mut status = [seed, MAT1, MAT2, TMAT];
        for i in 1..8usize {
            let previous = status[(i - 1) & 3];
            status[i & 3] ^= (i as u32).wrapping_add(1_812_433_253u32.wrapping_mul(previous ^ (previous >> 30)));
        }
        let mut generator = Self { status };
        for _ in 0..8 {
            generator.step();
        }
        generator
    }

    fn step(&mut self) {
        let [s0, s1, s2, mut y] = self.status;
        let mut x = (s0 & 0x7fff_ffff) ^ s1 ^ s2;
        x ^= x << 1;
        y ^= (y >> 1) ^ x;
        self.status = [s1, s2, x ^ (y << 10), y];
        if y & 1 == 1 {
            self.status[1] ^= MAT1;
            self.status[2] ^= MAT2;
        }
    }

    /// `tinymt32_generate_uint32`.
    pub fn next_u32(&mut self) -> u32 {
        self.step();
        let t1 = self.status[0].wrapping_add(self.status[2] >> 8);
        let t0 = self.status[3] ^ t1;
        if t1 & 1 == 1 { t0 ^ TMAT } else { t0 }
    }
}

#[cfg(test)]
mod tests {
    use super::TinyMt32;

    #[test]
    fn first_fifty_outputs_of_seed_1_are_those_of_rfc_8682() {
        let expected: [u32; 50] = [
            2545341989, 981918433, 3715302833, 2387538352, 3591001365, 3820442102, 2114400566, 2196103051, 2783359912, 764534509,
            643179475, 1822416315, 881558334, 4207026366, 3690273640, 3240535687, 2921447122, 3984931427, 4092394160, 44209675, 2188315343,
            2908663843, 1834519336, 3774670961, 3019990707, 4065554902, 1239765502, 4035716197, 3412127188, 552822483, 161364450,
            353727785, 140085994, 149132008, 2547770827, 4064042525, 4078297538, 2057335507, 622384752, 2041665899, 2193913817, 1080849512,
            33160901, 662956935, 642999063, 3384709977, 1723175122, 3866752252, 521822317, 2292524454,
        ];
        let mut generator = TinyMt32::new(1);
        assert_eq!(expected.map(|_| generator.next_u32()), expected);
    }
}
