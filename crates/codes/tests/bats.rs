//! The noctule profile: every block comes back, whatever arrives, in whatever order, recoded or not.

use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile, ProfileError, Received};
use noctule_codes::prng::SplitMix64;
use noctule_codes::span::{Received as SpanReceived, SpanBuffer};
use proptest::prelude::*;

const T: usize = 24;

fn block(profile: Profile, seed: u64) -> (Vec<u8>, BlockEncoder<'static>) {
    let mut data = vec![0; profile.packets() * T];
    SplitMix64::new(seed).fill(&mut data);
    let encoder = BlockEncoder::new(profile, T, data.clone()).unwrap();
    (data, encoder)
}

fn packet(encoder: &mut BlockEncoder<'_>, batch: u32, index: usize) -> Vec<u8> {
    let mut out = vec![0; T];
    encoder.packet(batch, index, &mut out).unwrap();
    out
}

/// Sends the systematic packets through a loss, then repair packets until the decoder is done; returns the packets received.
fn transfer(profile: Profile, loss: f64, seed: u64) -> usize {
    let (data, mut encoder) = block(profile, seed);
    let mut decoder = BlockDecoder::new(profile, T).unwrap();
    let mut random = SplitMix64::new(seed ^ 77);
    let mut received = 0;
    let systematic = (0..profile.systematic_batches()).flat_map(|b| (0..profile.batch_len(b)).map(move |i| (b, i)));
    let first_repair = profile.systematic_batches() + random.below(1 << 20);
    let repair = (first_repair..).flat_map(|b| (0..profile.batch_size()).map(move |i| (b, i)));
    for (batch, index) in systematic.chain(repair) {
        if random.unit() >= loss {
            decoder.receive_uncoded(batch, index, &packet(&mut encoder, batch, index));
            received += 1;
        }
        if decoder.is_complete() {
            break;
        }
    }
    assert!(decoder.data().unwrap() == data);
    received
}

#[test]
fn overhead_stays_below_half_a_percent_at_any_loss_around_the_estimate() {
    // The profile says at least 5 %: real loss at the estimate's low end, its mean and twice its mean.
    for loss in [0.05, 0.1, 0.2] {
        let profile = Profile::new(1000, 16, 50).unwrap();
        let extra: usize = (0..40).map(|seed| transfer(profile, loss, seed) - 1000).sum();
        assert!(extra <= 40, "{extra} extra packets in 40 blocks at loss {loss}");
    }
}

#[test]
fn without_loss_nothing_is_computed() {
    let profile = Profile::new(300, 16, 50).unwrap();
    let (data, mut encoder) = block(profile, 3);
    let mut decoder = BlockDecoder::new(profile, T).unwrap();
    for j in 0..300 {
        assert_eq!(decoder.wanted(), 300 - j);
        assert_eq!(decoder.receive_uncoded(j as u32 / 16, j % 16, &packet(&mut encoder, j as u32 / 16, j % 16)), Received::Innovative);
        assert_eq!(decoder.take_recovered(), Some((j, &data[j * T..(j + 1) * T])), "systematic data at once");
    }
    assert!(decoder.is_complete());
    assert_eq!(decoder.cost(), (0, 0));
}

#[test]
fn repair_packets_alone_give_the_block() {
    for k in [1, 2, 7, 40, 130, 900] {
        let profile = Profile::new(k, 16, 100).unwrap();
        let (data, mut encoder) = block(profile, k as u64);
        let mut decoder = BlockDecoder::new(profile, T).unwrap();
        let mut number = 0;
        while !decoder.is_complete() {
            assert!(number < k + 20);
            let batch = profile.systematic_batches() + number as u32 / 16;
            decoder.receive_uncoded(batch, number % 16, &packet(&mut encoder, batch, number % 16));
            number += 1;
        }
        assert!(decoder.into_data().unwrap() == data);
    }
}

#[test]
fn wanted_counts_down_to_the_packet_that_completes_the_block() {
    let profile = Profile::new(500, 16, 50).unwrap();
    for seed in 0..30 {
        let (_, mut encoder) = block(profile, seed);
        let mut decoder = BlockDecoder::new(profile, T).unwrap();
        let mut random = SplitMix64::new(seed);
        for j in 0..500 {
            if random.below(20) != 0 {
                decoder.receive_uncoded(j as u32 / 16, j % 16, &packet(&mut encoder, j as u32 / 16, j % 16));
            }
        }
        let mut number = 0;
        let mut promises = Vec::new();
        while !decoder.is_complete() {
            promises.push(decoder.wanted());
            let batch = profile.systematic_batches() + number / 16;
            decoder.receive_uncoded(batch, number as usize % 16, &packet(&mut encoder, batch, number as usize % 16));
            number += 1;
        }
        assert_eq!(decoder.wanted(), 0);
        assert!(promises.windows(2).all(|w| w[0] <= w[1] + 1), "never fewer than one packet per packet: {promises:?}");
        assert!(number as usize <= promises[0] + 3, "promised {} needed {number}", promises[0]);
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_their_numbers() {
    assert_eq!(Profile::new(0, 16, 50), Err(ProfileError::Packets(0)));
    assert_eq!(Profile::new(1 << 16, 16, 50), Err(ProfileError::Packets(1 << 16)));
    assert_eq!(Profile::new(10, 65, 50), Err(ProfileError::BatchSize(65)));
    assert_eq!(Profile::new(10, 16, 1001), Err(ProfileError::LowLoss(1001)));
    let profile = Profile::new(10, 16, 50).unwrap();
    assert_eq!(BlockDecoder::new(profile, 0).err(), Some(ProfileError::PacketLength(0)));
    assert_eq!(BlockDecoder::new(profile, usize::MAX / 8).err(), Some(ProfileError::PacketLength(usize::MAX / 8)));
    assert_eq!(BlockEncoder::new(profile, 5, &[0; 51]).err(), Some(ProfileError::Data { given: 51, room: 50 }));
}

#[test]
fn a_whole_block_is_encoded_where_it_lies_and_a_short_one_is_padded() {
    let profile = Profile::new(10, 16, 50).unwrap();
    let data = vec![7; 10 * T];
    let encoder = BlockEncoder::new(profile, T, &data).unwrap();
    assert_eq!(encoder.source(3).unwrap().as_ptr(), data[3 * T..].as_ptr());
    for owned in [false, true] {
        let short = &data[..9 * T + 5];
        let mut encoder = if owned { BlockEncoder::new(profile, T, short.to_vec()) } else { BlockEncoder::new(profile, T, short) }.unwrap();
        let mut last = [1; T];
        encoder.packet(0, 9, &mut last).unwrap();
        assert!(last.iter().enumerate().all(|(i, b)| *b == if i < 5 { 7 } else { 0 }));
    }
}

#[test]
fn encoding_is_a_function_of_the_packet_number() {
    let profile = Profile::new(400, 16, 50).unwrap();
    let (_, mut encoder) = block(profile, 1);
    let wanted = profile.systematic_batches() + 123_456;
    let alone = packet(&mut encoder, wanted, 7);
    let (_, mut other) = block(profile, 1);
    assert!(other.packet_shared(wanted, 7, &mut [0; T]).is_none(), "no parities yet");
    let mut batch = vec![0; 16 * T];
    other.batch(wanted, &mut batch).unwrap();
    assert_eq!(batch[7 * T..8 * T], alone);
    let mut shared = vec![0; T];
    other.packet_shared(wanted, 7, &mut shared).unwrap();
    assert_eq!(shared, alone);
    assert!(other.packet(wanted, 16, &mut shared).is_none());
    assert!(other.packet(wanted, 0, &mut [0; T - 1]).is_none());
}

/// A relay: what it received of each batch, forwarded and made up with combinations.
fn relay(input: &[(u32, Vec<u8>, Vec<u8>)], profile: Profile, random: &mut SplitMix64) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let mut batches = std::collections::BTreeMap::new();
    for (batch, coefficients, data) in input {
        let n = profile.batch_len(*batch);
        let span = batches.entry(*batch).or_insert_with(|| SpanBuffer::new(n));
        assert_ne!(span.receive(coefficients, data), SpanReceived::Malformed);
    }
    let mut output = Vec::new();
    for (batch, span) in batches {
        let n = profile.batch_len(batch);
        for t in 0..n {
            let mut weights = vec![0; span.rank()];
            if t < span.rank() {
                weights[t] = 1; // systematic recoding
            } else {
                random.fill(&mut weights);
            }
            let (mut coefficients, mut data) = (vec![0; n], Vec::new());
            span.recode(&weights, &mut coefficients, &mut data);
            output.push((batch, coefficients, data));
        }
    }
    output
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_block_survives_recoding_over_several_hops(seed: u64, k in 1usize..400, m in prop::sample::select(vec![8usize, 16, 32, 64]), hops in 1usize..5, loss in 0u32..25, low in 20u16..200) {
        let profile = Profile::new(k, m, low).unwrap();
        let (data, mut encoder) = block(profile, seed);
        let mut random = SplitMix64::new(seed);
        let batches = profile.systematic_batches() + (k / m * 3 + 12) as u32;
        let mut packets = Vec::new();
        for batch in 0..batches {
            let n = profile.batch_len(batch);
            for i in 0..n {
                let mut unit = vec![0; n];
                unit[i] = 1;
                packets.push((batch, unit, packet(&mut encoder, batch, i)));
            }
        }
        for hop in 0..hops {
            packets.retain(|_| random.below(100) >= loss);
            if hop + 1 < hops { packets = relay(&packets, profile, &mut random); }
        }
        // Any order of arrival.
        for i in (1..packets.len()).rev() { let j = random.below(i as u32 + 1) as usize; packets.swap(i, j); }
        let mut decoder = BlockDecoder::new(profile, T).unwrap();
        let mut seen = vec![false; k];
        let mut innovative = 0;
        for (batch, coefficients, payload) in &packets {
            if decoder.is_complete() { break; }
            innovative += usize::from(decoder.receive(*batch, coefficients, payload) == Received::Innovative);
            while let Some((j, source)) = decoder.take_recovered() {
                prop_assert_eq!(source, &data[j * T..(j + 1) * T]);
                prop_assert!(!std::mem::replace(&mut seen[j], true));
            }
        }
        prop_assert!(decoder.is_complete(), "rank {} of {}", innovative, k);
        prop_assert!(seen.iter().all(|s| *s));
        prop_assert_eq!(decoder.data(), Some(&data[..]));
        prop_assert!(innovative >= k);
    }

    #[test]
    fn arbitrary_packets_never_panic_and_memory_stays_bounded(k in 1usize..60, m in 1usize..20, low in 1u16..=1000, packets in prop::collection::vec((prop_oneof![0u32..12, any::<u32>()], prop::collection::vec(any::<u8>(), 0..21), prop::collection::vec(any::<u8>(), 0..T + 2), 0usize..25), 0..300)) {
        let profile = Profile::new(k, m, low).unwrap();
        let mut decoder = BlockDecoder::new(profile, T).unwrap();
        for (batch, mut coefficients, payload, index) in packets {
            let n = profile.batch_len(batch);
            if index % 3 == 0 { coefficients.resize(n, 0); }
            decoder.receive(batch, &coefficients, &payload);
            decoder.receive_uncoded(batch, index, &payload);
            while decoder.take_recovered().is_some() {}
            prop_assert_eq!(decoder.wanted() == 0, decoder.is_complete());
        }
    }
}

#[test]
fn garbage_is_refused_before_it_fills_memory() {
    // Independent vectors over one batch after the other whose data say nothing: more of them than any honest sender could need.
    let profile = Profile::new(2000, 16, 50).unwrap();
    let mut decoder = BlockDecoder::new(profile, T).unwrap();
    let mut accepted = 0;
    for i in 0..5000u32 {
        match decoder.receive_uncoded(profile.systematic_batches() + i / 16, i as usize % 16, &[i as u8; T]) {
            Received::Innovative => accepted += 1,
            Received::Refused | Received::Redundant => {}
            Received::Malformed => panic!("well-formed"),
        }
    }
    assert!(accepted <= 2000 + 256);
}

#[test]
fn repair_packets_match_the_vectors_of_the_specification() {
    // docs/spec/codes.md §3.5: packets of one byte, p_j = 7j + 1 mod 256; the expected bytes come from an independent program.
    let data: Vec<u8> = (0..300u32).map(|j| (7 * j + 1) as u8).collect();
    let byte = |k: usize, low: u16, batch: u32, index: usize| {
        let mut encoder = BlockEncoder::new(Profile::new(k, 16, low).unwrap(), 1, &data[..k]).unwrap();
        let mut out = [0];
        encoder.packet(batch, index, &mut out).unwrap();
        out[0]
    };
    assert_eq!([byte(300, 50, 19, 0), byte(300, 50, 19, 1), byte(300, 50, 1000, 5)], [0xb2, 0xa0, 0xff], "sparse");
    assert_eq!(byte(20, 50, 2, 0), 0x27, "dense");
    assert_eq!(byte(300, 50, 18, 11), data[299], "systematic, in a short last batch");
}
