//! GF(256) kernels of every instruction set, and ISA-L.

use crate::Report;
use crate::measure::interleaved;
use noctule_codes::gf256::Kernels;
use noctule_codes::prng::SplitMix64;
use std::hint::black_box;

const LEN: usize = 1280;

/// ISA-L as the distribution has it, with the instruction set that it chooses itself and with AVX2.
#[cfg(feature = "isal")]
mod isal {
    use std::ffi::{c_int, c_uchar};

    type VectMad = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const c_uchar, *mut c_uchar);

    #[link(name = "isal")]
    unsafe extern "C" {
        fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, tables: *mut c_uchar);
        fn gf_vect_mad(len: c_int, vec: c_int, vec_i: c_int, tables: *const c_uchar, src: *const c_uchar, dest: *mut c_uchar);
        fn gf_vect_mad_avx2(len: c_int, vec: c_int, vec_i: c_int, tables: *const c_uchar, src: *const c_uchar, dest: *mut c_uchar);
        fn ec_encode_data_update(
            len: c_int,
            k: c_int,
            rows: c_int,
            vec_i: c_int,
            tables: *const c_uchar,
            data: *const c_uchar,
            coding: *const *mut c_uchar,
        );
    }

    /// Tables of one coefficient.
    pub fn tables(c: u8) -> [u8; 32] {
        let mut out = [0; 32];
        // SAFETY: one coefficient needs 32 bytes of tables.
        unsafe { ec_init_tables(1, 1, &c, out.as_mut_ptr()) };
        out
    }

    /// Tables of four coefficients of one source.
    pub fn tables4(c: [u8; 4]) -> [u8; 128] {
        let mut out = [0; 128];
        // SAFETY: four coefficients need 128 bytes of tables.
        unsafe { ec_init_tables(1, 4, c.as_ptr(), out.as_mut_ptr()) };
        out
    }

    /// One source into one destination, by the name of the function.
    pub fn singles() -> Vec<(&'static str, VectMad)> {
        let mut all: Vec<(&'static str, VectMad)> = vec![("ISA-L gf_vect_mad", gf_vect_mad)];
        if std::arch::is_x86_feature_detected!("avx2") {
            all.push(("ISA-L gf_vect_mad_avx2", gf_vect_mad_avx2));
        }
        all
    }

    pub fn mul_add(function: VectMad, dst: &mut [u8], src: &[u8], tables: &[u8; 32]) {
        assert_eq!(dst.len(), src.len());
        // SAFETY: both buffers have the length given; the CPU was asked.
        unsafe { function(dst.len() as c_int, 1, 0, tables.as_ptr(), src.as_ptr(), dst.as_mut_ptr()) };
    }

    pub fn mul_add4(dsts: &mut [Vec<u8>; 4], src: &[u8], tables: &[u8; 128]) {
        assert!(dsts.iter().all(|dst| dst.len() == src.len()));
        let out = dsts.each_mut().map(|dst| dst.as_mut_ptr());
        // SAFETY: all buffers have the length given.
        unsafe { ec_encode_data_update(src.len() as c_int, 1, 4, 0, tables.as_ptr(), src.as_ptr(), out.as_ptr()) };
    }
}

pub fn run(report: &Report) {
    let mut text = String::from(
        "GB/s of bytes multiplied and added, packets of 1280 B. ISA-L adds one source at a time; its four outputs are `ec_encode_data_update`. It runs through its own dispatch (AVX-512 here), and with AVX2.\n\n\
         | working set | kernel | 1 source into 1 | 16 into 1 | into 4 (ours: 16 at once) |\n|---|---|---|---|---|\n",
    );
    for (name, packets) in [("L1, 12 packets", 12usize), ("L2, 400 packets", 400), ("beyond L2, 16384 of 80000 packets", 80_000)] {
        let mut random = SplitMix64::new(1);
        let mut memory = vec![0u8; packets * LEN];
        random.fill(&mut memory);
        let rounds = report.repetitions(if packets > 1000 { 31 } else { 401 });
        let steps = if packets > 1000 { 16_384 } else { 256usize };
        let pick: Vec<(usize, u8)> = (0..steps).map(|_| (random.below(packets as u32) as usize, random.next_u64() as u8 | 2)).collect();
        let row = |j: usize| &memory[j * LEN..(j + 1) * LEN];
        let mut dsts = vec![vec![0u8; LEN]; 4];
        let shapes = pick
            .chunks_exact(16)
            .map(|chunk| {
                let coefficients: Vec<u8> = (0..4).flat_map(|_| chunk.iter().map(|(_, c)| *c)).collect();
                let sources: Vec<&[u8]> = chunk.iter().map(|(j, _)| row(*j)).collect();
                let terms: Vec<(u8, &[u8])> = chunk.iter().map(|(j, c)| (*c, row(*j))).collect();
                (coefficients, sources, terms)
            })
            .collect::<Vec<_>>();
        // ISA-L first, then single, gathered and four-fold for every instruction set.
        let mut names = Vec::new();
        let mut contenders: Vec<Box<dyn FnMut() + '_>> = Vec::new();
        #[cfg(feature = "isal")]
        {
            let tables: Vec<[u8; 32]> = (0..=255).map(isal::tables).collect();
            let pick = &pick;
            for (name, function) in isal::singles() {
                let (mut dst, tables) = (vec![0u8; LEN], tables.clone());
                names.push(name.to_string());
                contenders.push(Box::new(move || {
                    for (j, c) in &pick[..steps] {
                        isal::mul_add(function, black_box(&mut dst), row(*j), &tables[*c as usize]);
                    }
                }));
            }
            let (mut dsts, tables) = ([(); 4].map(|()| vec![0u8; LEN]), isal::tables4([3, 77, 99, 200]));
            names.push("ISA-L ec_encode_data_update".into());
            contenders.push(Box::new(move || {
                for (j, _) in &pick[..steps] {
                    isal::mul_add4(black_box(&mut dsts), row(*j), &tables);
                }
            }));
        }
        let singles = contenders.len();
        for kernel in Kernels::supported() {
            let (pick, shapes) = (&pick, &shapes);
            let mut dst = vec![0u8; LEN];
            names.push(kernel.name().to_string());
            contenders.push(Box::new(move || {
                for (j, c) in &pick[..steps] {
                    kernel.mul_add(black_box(&mut dst), row(*j), *c);
                }
            }));
            let mut dst = vec![0u8; LEN];
            contenders.push(Box::new(move || {
                for (_, _, terms) in &shapes[..steps / 16] {
                    kernel.dot(black_box(&mut dst), terms);
                }
            }));
            let mut dsts = std::mem::replace(&mut dsts, vec![vec![0u8; LEN]; 4]);
            contenders.push(Box::new(move || {
                for (coefficients, sources, _) in &shapes[..steps / 16] {
                    let mut outs: Vec<&mut [u8]> = dsts.iter_mut().map(Vec::as_mut_slice).collect();
                    kernel.dot_multi(black_box(&mut outs), coefficients, sources);
                }
            }));
        }
        let times = interleaved(rounds, &mut contenders);
        let speed = |seconds: f64, factor: usize| (steps * LEN * factor) as f64 / seconds / 1e9;
        for (i, peer) in names.iter().enumerate() {
            if peer.ends_with("update") {
                text += &format!("| {name} | {peer} | | | {:.1} |\n", speed(times[i], 4));
            } else if i < singles {
                text += &format!("| {name} | {peer} | {:.1} | | |\n", speed(times[i], 1));
            } else {
                let at = singles + (i - singles) * 3;
                let (one, many, four) = (speed(times[at], 1), speed(times[at + 1], 1), speed(times[at + 2], 4));
                text += &format!("| {name} | {peer} | {one:.1} | {many:.1} | {four:.1} |\n");
            }
        }
    }
    report.write("kernels", &text);
}
