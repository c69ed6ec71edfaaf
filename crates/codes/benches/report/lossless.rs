//! A block over a path that loses nothing, from the encoder through packet buffers into the decoder, beside copies of the same bytes.

use crate::Report;
use crate::measure::interleaved_with_least;
use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile};
use noctule_codes::prng::SplitMix64;
use std::hint::black_box;

const T: usize = 1280;

pub fn run(report: &Report) {
    let mut text = String::from(
        "Packets of 1280 B, nothing lost; GB/s: median (best). Destination memory is fresh every time, so that page faults and cache misses fall on all alike. With a *packet buffer* each packet is copied to one buffer of 1280 B and from there to its place. Any sender and receiver between two buffers do that. The columns *in place* offer the decoder each packet where it lies in the encoder. So does a sender with a scattering system call.\n\n\
         | K | coded, packet buffer | copy over a packet buffer | coded / copy | coded, in place | copy packet by packet | coded / copy | one copy of all |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (k, rounds) in [(100usize, 2001), (1000, 401), (10_000, 61)] {
        let mut data = vec![0u8; k * T];
        SplitMix64::new(5).fill(&mut data);
        let profile = Profile::new(k, 16, 50).expect("valid");
        let data = &data;
        let coded = move || {
            let mut encoder = BlockEncoder::new(profile, T, data).expect("valid");
            let mut decoder = BlockDecoder::new(profile, T).expect("valid");
            let mut packet = [0u8; T];
            for j in 0..k {
                encoder.packet(j as u32 / 16, j % 16, &mut packet).expect("a packet");
                decoder.receive_uncoded(j as u32 / 16, j % 16, black_box(&packet));
            }
            decoder.into_data().expect("complete")
        };
        let in_place = move || {
            let encoder = BlockEncoder::new(profile, T, data).expect("valid");
            let mut decoder = BlockDecoder::new(profile, T).expect("valid");
            for j in 0..k {
                decoder.receive_uncoded(j as u32 / 16, j % 16, black_box(encoder.source(j).expect("a packet")));
            }
            decoder.into_data().expect("complete")
        };
        assert!(coded() == *data && in_place() == *data);
        let times = interleaved_with_least(
            report.repetitions(rounds),
            &mut [
                Box::new(move || {
                    black_box(coded());
                }),
                Box::new(move || {
                    let (mut packet, mut out) = ([0u8; T], Vec::with_capacity(k * T));
                    for source in data.chunks_exact(T) {
                        packet.copy_from_slice(source);
                        out.extend_from_slice(black_box(&packet));
                    }
                    black_box(out);
                }),
                Box::new(move || {
                    black_box(in_place());
                }),
                Box::new(move || {
                    let mut out = Vec::with_capacity(k * T);
                    data.chunks_exact(T).for_each(|packet| out.extend_from_slice(black_box(packet)));
                    black_box(out);
                }),
                Box::new(move || {
                    black_box(data.to_vec());
                }),
            ],
        );
        let cell = |(median, least): (f64, f64)| format!("{:.1} ({:.1})", (k * T) as f64 / median / 1e9, (k * T) as f64 / least / 1e9);
        text += &format!(
            "| {k} | {} | {} | {:.2} | {} | {} | {:.2} | {} |\n",
            cell(times[0]),
            cell(times[1]),
            times[1].0 / times[0].0,
            cell(times[2]),
            cell(times[3]),
            times[3].0 / times[2].0,
            cell(times[4])
        );
    }
    report.write("lossless", &text);
}
