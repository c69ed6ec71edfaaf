//! RFC 9426 baseline: vectors computed from the RFC's pseudocode by an independent program, and decoding after recoding.

use noctule_codes::gf256::div;
use noctule_codes::prng::SplitMix64;
use noctule_codes::rfc9426::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn degrees() -> DegreeDistribution {
    DegreeDistribution::new(&[0, 1, 2, 3, 4]).unwrap()
}

#[test]
fn batches_match_the_vectors_of_the_specification() {
    // docs/spec/codes.md §5: F = 29 octets 00 01 … 1c, T = 3, K = 10, M = 4, q = 256.
    let data: Vec<u8> = (0..29).collect();
    let parameters = Parameters::new(4, FieldSize::Q256, 7).unwrap();
    assert_eq!((parameters.data_len(), parameters.source_packets(29)), (3, 10));
    let encoder = Encoder::new(parameters, degrees(), &data).unwrap();
    type Vector = (u16, &'static [u32], [u8; 4], [[u8; 3]; 4]);
    let vectors: [Vector; 4] = [
        (0, &[7, 4, 5, 8], [0xb0, 0xdb, 0x4d, 0x48], [[0x56, 0x58, 0x6e], [0x9a, 0x0b, 0xb5], [0x28, 0x2f, 0x9f], [0x10, 0xa2, 0x98]]),
        (1, &[9, 3, 2, 5], [0xf6, 0x36, 0x8b, 0xa8], [[0x41, 0x58, 0x63], [0x06, 0x95, 0x90], [0xa2, 0xba, 0x1d], [0xfa, 0x18, 0x7a]]),
        (2, &[5, 8, 6], [0x58, 0x7b, 0x74, 0x74], [[0xf2, 0xe5, 0xb0], [0x8e, 0x5c, 0xe2], [0xcf, 0x60, 0x58], [0xaf, 0xf0, 0x67]]),
        (8191, &[1, 9], [0xaf, 0xec, 0xe0, 0x7a], [[0x06, 0xfc, 0x19], [0x04, 0xb3, 0x78], [0x85, 0xcc, 0x05], [0x15, 0x10, 0x9d]]),
    ];
    for (bid, indices, first_row, coded) in vectors {
        let degree = degrees().sample(bid, 10);
        let (idx, generator) = batch_sampler(bid, degree, 10, 4);
        assert_eq!((&idx[..], &generator[..4]), (indices, &first_row[..]), "batch {bid}");
        for (c, packet) in encoder.batch(bid).iter().enumerate() {
            let mut unit = [0; 4];
            unit[c] = 1;
            assert_eq!((&packet[..4], &packet[4..]), (&unit[..], &coded[c][..]), "batch {bid} packet {c}");
        }
    }
}

#[test]
fn figure_7_as_printed_returns_degree_one_nearly_always() {
    // Erratum E1: `r >= CDF[d]` at d = 1 holds for all r but those that should give degree 1.
    let dd = [0u32, 1, 2, 3, 4];
    let as_printed = |r: u32| (1..5).find(|d| r >= dd[..=*d].iter().sum::<u32>()).unwrap_or(4);
    let count = (0..10).filter(|r| as_printed(*r) == 1).count();
    assert_eq!(count, 9, "nine of ten values give degree 1, whose weight is one of ten");
    let counts = (0..8192u16).fold([0; 5], |mut counts, bid| {
        counts[degrees().sample(bid, 10)] += 1;
        counts
    });
    for (d, count) in counts.iter().enumerate().skip(1) {
        let expected = 8192 * d / 10;
        assert!((*count as i64 - expected as i64).abs() < 150, "degree {d}: {count} of {expected}");
    }
}

#[test]
fn parameters_outside_table_1_are_refused() {
    assert!(matches!(Parameters::new(64, FieldSize::Q256, 100), Err(ParameterError::BatchSize(64))));
    assert!(matches!(Parameters::new(4, FieldSize::Q2, 100), Err(ParameterError::BatchSize(4))));
    assert!(matches!(Parameters::new(16, FieldSize::Q256, 16), Err(ParameterError::PayloadLength(16))));
    let q2 = Parameters::new(128, FieldSize::Q2, 1000).unwrap();
    assert_eq!(q2.coefficient_len(), 16, "not 6 as the text of §2.4.2 says (erratum E3)");
    assert!(DegreeDistribution::new(&[7]).is_err());
    assert!(DegreeDistribution::new(&[0, u32::MAX, 1]).is_err());
    assert!(matches!(Encoder::new(q2, degrees(), &vec![0; 984 * 65535]), Err(ParameterError::SourcePackets(65536))), "erratum E5");
}

/// Degrees for inactivation decoding with M = 8 or 16: a spread around the batch size.
fn wide() -> DegreeDistribution {
    let mut weights = vec![0u32; 61];
    for (d, w) in weights.iter_mut().enumerate().skip(4) {
        *w = (10_000 / (d * d)) as u32;
    }
    weights[60] += 200;
    DegreeDistribution::new(&weights).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn decoding_gives_the_data_after_any_number_of_recodings(seed: u64, len in 0usize..6000, q2: bool, hops in 0usize..4, systematic: bool, loss in 0u32..30) {
        let (field, m) = if q2 { (FieldSize::Q2, 16) } else { (FieldSize::Q256, 8) };
        let parameters = Parameters::new(m, field, 40).unwrap();
        let mut random = SplitMix64::new(seed);
        let mut data = vec![0; len];
        random.fill(&mut data);
        let encoder = Encoder::new(parameters, wide(), &data).unwrap();
        let mut decoder = Decoder::new(parameters, wide(), encoder.source_packets()).unwrap();
        let mut ranks = BTreeMap::new();
        for bid in 0..8192u16 {
            if decoder.is_complete() { break; }
            let mut packets = encoder.batch(bid);
            for _ in 0..hops {
                packets.retain(|_| random.below(100) >= loss);
                let refs: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
                packets = if systematic { recode_systematic(&parameters, &refs, m, &mut random) } else { recode_random(&parameters, &refs, m, &mut random) };
            }
            for packet in &packets {
                if decoder.receive(bid, packet) == Received::Innovative { *ranks.entry(bid).or_insert(0) += 1; }
            }
        }
        prop_assert!(decoder.is_complete());
        prop_assert!(ranks.values().all(|r| *r <= m));
        prop_assert!(decoder.rank() >= encoder.source_packets());
        prop_assert_eq!(decoder.into_data(), Some(data));
    }

    #[test]
    fn arbitrary_packets_never_panic(k in 1usize..50, packets in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 20..22)), 0..200), q2: bool) {
        let parameters = if q2 { Parameters::new(16, FieldSize::Q2, 20) } else { Parameters::new(4, FieldSize::Q256, 20) }.unwrap();
        let mut decoder = Decoder::new(parameters, wide(), k).unwrap();
        for (bid, packet) in packets {
            let outcome = decoder.receive(bid % 9000, &packet);
            prop_assert_eq!(outcome == Received::Malformed, packet.len() != 20 || bid % 9000 > 8191);
            decoder.receive(bid % 8, &packet);
        }
        let _ = decoder.into_data();
    }
}

#[test]
fn a_relay_that_hides_one_source_packet_cannot_fill_the_memory() {
    // All vectors are innovative in their batches, and none of them lets source packet 0 through.
    let (k, m, d) = (20, 4, 10);
    let parameters = Parameters::new(m, FieldSize::Q256, 20).unwrap();
    let mut weights = vec![0; d + 1];
    weights[d] = 1;
    let mut decoder = Decoder::new(parameters, DegreeDistribution::new(&weights).unwrap(), k).unwrap();
    let mut refused = 0;
    for bid in 0..2000u16 {
        let (indices, generator) = batch_sampler(bid, d, k, m);
        let Some(row) = indices.iter().position(|j| *j == 0).map(|i| &generator[i * m..][..m]) else { continue };
        let Some(pivot) = row.iter().position(|g| *g != 0) else { continue };
        for free in (0..m).filter(|i| *i != pivot) {
            let mut packet = vec![9; 20];
            packet[..m].fill(0);
            packet[free] = 1;
            packet[pivot] = div(row[free], row[pivot]);
            refused += usize::from(decoder.receive(bid, &packet) == Received::Refused);
        }
        assert!(decoder.rank() <= 2 * k + 256 && !decoder.is_complete());
    }
    assert!(refused > 0);
}
