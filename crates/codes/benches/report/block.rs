//! The noctule profile against `raptorq` and `reed-solomon-simd`: the same packets lost, the same data restored.

use crate::Report;
use crate::measure::interleaved;
use crate::plot::{Line, lines};
use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile};
use noctule_codes::gf256::{Arena, RowTerm, kernels};
use noctule_codes::prng::SplitMix64;
use raptorq::{EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder};
use std::cell::Cell;
use std::hint::black_box;

/// Speeds in MB/s of source: [ours, raptorq, reed-solomon-simd] encoding, the same decoding; multiply-adds per source packet, inactive columns.
struct Speeds {
    encode: [f64; 3],
    decode: [f64; 3],
    copy: f64,
    /// As fast as the decoder if it did nothing but its multiply-adds.
    arithmetic: f64,
    cost: (usize, usize),
}

fn speeds(k: usize, t: usize, loss: f64, rounds: usize) -> Speeds {
    let mut random = SplitMix64::new(7);
    let mut data = vec![0u8; k * t];
    random.fill(&mut data);
    let lost = (k as f64 * loss).round() as usize;
    let mut gone = vec![false; k];
    for _ in 0..lost {
        let j = (0..).map(|_| random.below(k as u32) as usize).find(|j| !gone[*j]).unwrap_or(0);
        gone[j] = true;
    }
    // The low end of the estimate is half the loss; two packets more than lost, should the first ones be dependent.
    let low = ((loss * 500.0) as u16).max(5);
    let profile = Profile::new(k, 16, low).expect("valid");
    let (repairs, first) = (lost + 2, profile.systematic_batches());
    let mut encoder = BlockEncoder::new(profile, t, &data).expect("valid");
    let packets: Vec<Vec<u8>> = (0..repairs)
        .map(|n| {
            let mut out = vec![0; t];
            encoder.packet(first + n as u32 / 16, n % 16, &mut out).expect("a packet");
            out
        })
        .collect();
    let information = ObjectTransmissionInformation::new((k * t) as u64, t as u16, 1, 1, 8);
    let rq = SourceBlockEncoder::new(0, &information, &data);
    let rq_packets: Vec<EncodingPacket> = rq
        .source_packets()
        .into_iter()
        .enumerate()
        .filter(|(j, _)| !gone[*j])
        .map(|(_, p)| p)
        .chain(rq.repair_packets(0, repairs as u32))
        .collect();
    let rs_repairs = reed_solomon_simd::encode(k, repairs, data.chunks_exact(t)).expect("valid");
    let (data, gone, packets, rq_packets, rs_repairs) = (&data, &gone, &packets, &rq_packets, &rs_repairs);
    let cost = Cell::new((0, 0));
    let cost_of = &cost;
    // As many multiply-adds as the decoder makes, gathered from the rows of the block as its own are, fifty to a packet.
    let rows: Vec<RowTerm> = (0..50 * 64).map(|_| RowTerm { row: random.below(k as u32), factor: random.next_u64() as u8 | 2 }).collect();
    let mut contenders: Vec<Box<dyn FnMut() + '_>> = vec![
        Box::new(move || {
            let mut encoder = BlockEncoder::new(profile, t, data).expect("valid");
            let mut out = vec![0; repairs * t];
            for (n, out) in out.chunks_exact_mut(t).enumerate() {
                encoder.packet(first + n as u32 / 16, n % 16, out).expect("a packet");
            }
            black_box(out);
        }),
        Box::new(move || {
            let encoder = SourceBlockEncoder::new(0, &information, data);
            black_box(encoder.repair_packets(0, repairs as u32));
        }),
        Box::new(move || {
            black_box(reed_solomon_simd::encode(k, repairs, data.chunks_exact(t)).expect("valid"));
        }),
        Box::new(move || {
            let mut decoder = BlockDecoder::new(profile, t).expect("valid");
            for (j, packet) in data.chunks_exact(t).enumerate().filter(|(j, _)| !gone[*j]) {
                decoder.receive_uncoded(j as u32 / 16, j % 16, packet);
            }
            for (n, packet) in packets.iter().enumerate() {
                if decoder.is_complete() {
                    break;
                }
                decoder.receive_uncoded(first + n as u32 / 16, n % 16, packet);
            }
            cost_of.set(decoder.cost());
            assert!(decoder.into_data().expect("complete") == *data);
        }),
        Box::new(move || {
            let mut decoder = SourceBlockDecoder::new(0, &information, (k * t) as u64);
            // As many packets as were lost; one more where the first ones do not suffice.
            let some = rq_packets[..k].to_vec();
            let decoded = decoder.decode(some).or_else(|| decoder.decode(rq_packets[k..].to_vec()));
            assert!(decoded.expect("decodes") == *data);
        }),
        Box::new(move || {
            let known = data.chunks_exact(t).enumerate().filter(|(j, _)| !gone[*j]);
            let restored = reed_solomon_simd::decode(k, repairs, known.clone(), rs_repairs.iter().take(lost).enumerate()).expect("decodes");
            let mut block = vec![0u8; k * t];
            for (j, packet) in known {
                block[j * t..][..t].copy_from_slice(packet);
            }
            for (j, packet) in restored {
                block[j * t..][..t].copy_from_slice(&packet);
            }
            assert!(block == *data);
        }),
        Box::new(move || {
            let copy = data.to_vec();
            assert!(copy == *data);
        }),
        Box::new(move || {
            let mut out = vec![0; t];
            for (n, terms) in (0..cost_of.get().1).step_by(50).zip(rows.chunks_exact(50).cycle()) {
                let terms = &terms[..terms.len().min(cost_of.get().1 - n)];
                kernels().gather(black_box(&mut out), Arena { bytes: data, stride: t, column: 0 }, terms);
            }
        }),
    ];
    let times = interleaved(rounds, &mut contenders);
    drop(contenders);
    let cost = cost.get();
    let speed = |i: usize| (k * t) as f64 / times[i] / 1e6;
    Speeds { encode: [speed(0), speed(1), speed(2)], decode: [speed(3), speed(4), speed(5)], copy: speed(6), arithmetic: speed(7), cost }
}

pub fn run(report: &Report) {
    let mut text = String::from(
        "Packets of 1280 B, M = 16; loss exact, as many repair packets used as packets lost; low end of the estimate = half the loss. MB/s of source, fresh memory each time, every result compared with the data. In the column \"these alone\" a decoder makes its multiply-adds, from the rows of the block, and nothing else.\n\n\
         | K | loss | encode: ours | raptorq | reed-solomon-simd | ours / raptorq | decode: ours | raptorq | reed-solomon-simd | ours / raptorq | copy and compare | multiply-adds per source packet | these alone | inactive columns |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut row = |k: usize, t: usize, loss: f64, rounds: usize| {
        let s = speeds(k, t, loss, report.repetitions(rounds));
        // Without loss there is nothing to encode; the path of the data is in the section `lossless`.
        let encode = if loss > 0.0 {
            format!("{:.0} | {:.0} | {:.0} | {:.2}", s.encode[0], s.encode[1], s.encode[2], s.encode[0] / s.encode[1])
        } else {
            "| | |".into()
        };
        text += &format!(
            "| {k} | {:.0} % | {encode} | {:.0} | {:.0} | {:.0} | {:.2} | {:.0} | {:.1} | {} | {} |\n",
            loss * 100.0,
            s.decode[0],
            s.decode[1],
            s.decode[2],
            s.decode[0] / s.decode[1],
            s.copy,
            s.cost.1 as f64 / k as f64,
            if s.cost.1 > 0 { format!("{:.0}", s.arithmetic) } else { String::new() },
            s.cost.0,
        );
        s
    };
    let names = ["noctule", "raptorq", "reed-solomon-simd"];
    let sweep = |points: Vec<(f64, Speeds)>, decode: bool| -> Vec<Line> {
        let pick = |s: &Speeds, i: usize| if decode { s.decode[i] } else { s.encode[i] };
        names
            .iter()
            .enumerate()
            .map(|(i, name)| Line { name: (*name).into(), points: points.iter().map(|(x, s)| (*x, pick(s, i))).collect() })
            .collect()
    };
    let by_k: Vec<(f64, Speeds)> =
        [(100, 301), (300, 151), (1000, 101), (3000, 31), (10_000, 11)].map(|(k, rounds)| (k as f64, row(k, 1280, 0.1, rounds))).into();
    lines(&report.plot_path("decode-over-k"), "Decoding, 10 % lost, 1280 B", "K", "MB/s", true, &sweep(by_k, true));
    let by_loss: Vec<(f64, Speeds)> = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2].map(|loss| (loss * 100.0, row(1000, 1280, loss, 41))).into();
    lines(&report.plot_path("decode-over-loss"), "Decoding, K = 1000, 1280 B", "packets lost, %", "MB/s", false, &sweep(by_loss, true));
    let by_length: Vec<(f64, Speeds)> = [64, 256, 512, 1280, 4096].map(|t| (t as f64, speeds(1000, t, 0.1, report.repetitions(31)))).into();
    lines(
        &report.plot_path("encode-over-length"),
        "Encoding, K = 1000, 10 % repair",
        "packet length, B",
        "MB/s",
        true,
        &sweep(by_length, false),
    );
    text += "\n![decoding speed over K](decode-over-k.svg)\n![decoding speed over loss](decode-over-loss.svg)\n![encoding speed over packet length](encode-over-length.svg)\n";
    report.write("block", &text);
}
