//! Recoding and the MAC: figures per packet.

use crate::Report;
use crate::measure::{interleaved, interleaved_with_least};
use noctule_codes::gf256::Kernels;
use noctule_codes::mac::MacKey;
use noctule_codes::prng::SplitMix64;
use noctule_codes::span::SpanBuffer;
use rand::SeedableRng;
use std::hint::black_box;

const LEN: usize = 1280;
/// Packets between two looks at the clock, which itself takes as long as one packet.
const CALLS: usize = 64;

pub fn recode(report: &Report) {
    let mut text = String::from(
        "One recoded packet of 1280 B from r received, coefficients included, ns: median (least).\n\n| r = M | alone | four together, each | rlnc crate, alone |\n|---|---|---|---|\n",
    );
    for m in [8usize, 16, 32, 64] {
        let mut random = SplitMix64::new(3);
        let mut span = SpanBuffer::new(m);
        let mut packets = Vec::new();
        for j in 0..m {
            let mut packet = vec![0; LEN];
            random.fill(&mut packet);
            span.receive_source(j, &packet);
            packets.extend(packet);
        }
        let mut weights = vec![0; 4 * m];
        random.fill(&mut weights);
        let (mut coefficients, mut data) = (vec![vec![0; m]; 4], vec![vec![0; LEN]; 4]);
        let (mut one_coefficients, mut one) = (vec![0; m], Vec::new());
        let mut rng = rand::rngs::StdRng::from_seed([7; 32]);
        let encoder = rlnc::full::Encoder::new(packets, m).expect("valid");
        let coded: Vec<u8> = (0..m).flat_map(|_| encoder.code(&mut rng)).collect();
        let mut peer = rlnc::full::Recoder::new(coded, encoder.get_full_coded_piece_byte_len(), m).expect("valid");
        let (span, weights) = (&span, &weights);
        let times = interleaved_with_least(
            report.repetitions(1001),
            &mut [
                Box::new(move || {
                    for _ in 0..CALLS {
                        span.recode(black_box(&weights[..m]), &mut one_coefficients, &mut one);
                    }
                }),
                Box::new(move || {
                    let mut c: Vec<&mut [u8]> = coefficients.iter_mut().map(Vec::as_mut_slice).collect();
                    let mut d: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
                    for _ in 0..CALLS / 4 {
                        span.recode_many(black_box(weights), &mut c, &mut d);
                    }
                }),
                Box::new(move || {
                    for _ in 0..CALLS {
                        black_box(peer.recode(&mut rng));
                    }
                }),
            ],
        );
        let cell = |(median, least): (f64, f64)| format!("{:.0} ({:.0})", median / CALLS as f64 * 1e9, least / CALLS as f64 * 1e9);
        text += &format!("| {m} | {} | {} | {} |\n", cell(times[0]), cell(times[1]), cell(times[2]));
    }
    report.write("recode", &text);
}

pub fn mac(report: &Report) {
    let mut random = SplitMix64::new(3);
    let mut material = vec![0; LEN];
    random.fill(&mut material);
    let mut packet = vec![0; LEN];
    random.fill(&mut packet);
    let (mut coefficients, mut pads) = ([0u8; 16], [[0u8; 8]; 16]);
    random.fill(&mut coefficients);
    pads.iter_mut().for_each(|pad| random.fill(pad));
    let mut text = String::from(
        "Homomorphic MAC of one packet of 1280 B, ns (pads given).\n\n| kernel | make a tag | check a combination of 16 |\n|---|---|---|\n",
    );
    for kernel in Kernels::supported() {
        let key = MacKey::with_kernels(kernel, &material).expect("valid");
        let (key, packet, coefficients, pads) = (&key, &packet, &coefficients, &pads);
        let times = interleaved(
            report.repetitions(1001),
            &mut [
                Box::new(move || {
                    (0..CALLS).for_each(|_| {
                        black_box(key.tag(black_box(packet), [1; 8]));
                    })
                }),
                Box::new(move || {
                    (0..CALLS).for_each(|_| {
                        black_box(key.check(black_box(packet), coefficients, pads, [1; 8]));
                    })
                }),
            ],
        );
        text += &format!("| {} | {:.0} | {:.0} |\n", kernel.name(), times[0] / CALLS as f64 * 1e9, times[1] / CALLS as f64 * 1e9);
    }
    report.write("mac", &text);
}
