//! GF(256) kernels of every instruction set, and ISA-L.

use crate::Report;
use crate::measure::interleaved;
use noctule_codes::gf256::Kernels;
use noctule_codes::prng::SplitMix64;
use std::hint::black_box;

const LEN: usize = 1280;

#[cfg(feature = "isal")]
mod isal {
    use std::ffi::{c_int, c_uchar};

    #[link(name = "isal")]
    unsafe extern "C" {
        fn ec_init_tables(k: c_int, rows: c_int, a: *const c_uchar, tables: *mut c_uchar);
        fn gf_vect_mad(len: c_int, vec: c_int, vec_i: c_int, tables: *const c_uchar, src: *const c_uchar, dest: *mut c_uchar);
    }

    pub fn tables(c: u8) -> [u8; 32] {
        let mut out = [0; 32];
        // SAFETY: one coefficient needs 32 bytes of tables.
        unsafe { ec_init_tables(1, 1, &c, out.as_mut_ptr()) };
        out
    }

    pub fn mul_add(dst: &mut [u8], src: &[u8], tables: &[u8; 32]) {
        assert_eq!(dst.len(), src.len());
        // SAFETY: both buffers have the length given.
        unsafe { gf_vect_mad(dst.len() as c_int, 1, 0, tables.as_ptr(), src.as_ptr(), dst.as_mut_ptr()) };
    }
}

pub fn run(report: &Report) {
    let mut text = String::from(
        "| working set | kernel | 1 source into 1, GB/s | 16 into 1, GB/s of sources | 16 into 4, GB/s per multiply-add |\n|---|---|---|---|---|\n",
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
            let mut dst = vec![0u8; LEN];
            names.push("ISA-L gf_vect_mad".to_string());
            let pick = &pick;
            contenders.push(Box::new(move || {
                for (j, c) in &pick[..steps] {
                    isal::mul_add(black_box(&mut dst), row(*j), &tables[*c as usize]);
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
            if i < singles {
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
