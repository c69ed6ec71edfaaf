//! Laws of the inner code: what goes in comes out, however often it was recoded.

use noctule_codes::gf256::mul;
use noctule_codes::prng::SplitMix64;
use noctule_codes::span::*;
use proptest::prelude::*;

fn packets(random: &mut SplitMix64, n: usize, longest: u32) -> Vec<Vec<u8>> {
    (0..n)
        .map(|_| {
            let mut data = vec![0; random.below(longest + 1) as usize];
            random.fill(&mut data);
            data
        })
        .collect()
}

fn refs(packets: &[Vec<u8>]) -> Vec<&[u8]> {
    packets.iter().map(Vec::as_slice).collect()
}

fn longest(packets: &[Vec<u8>]) -> usize {
    packets.iter().map(Vec::len).max().unwrap_or(0)
}

/// `data` equals `packet` followed by padding zeros.
fn is_padded(data: &[u8], packet: &[u8]) -> bool {
    data.len() >= packet.len() && data[..packet.len()] == *packet && data[packet.len()..].iter().all(|b| *b == 0)
}

fn drain(span: &mut SpanBuffer, packets: &[Vec<u8>], seen: &mut u64) {
    while let Some((j, data)) = span.take_recovered() {
        assert!(is_padded(data, &packets[j]), "packet {j}");
        assert_eq!(*seen >> j & 1, 0, "packet {j} came twice");
        *seen |= 1 << j;
    }
}

#[test]
fn coefficients_match_the_vectors_of_the_specification() {
    let vectors: [(u16, [u8; 10]); 6] = [
        (0, [0x36, 0x5f, 0xf8, 0xd5, 0x92, 0x4e, 0xa6, 0x04, 0x30, 0x88]),
        (1, [0x5f, 0x36, 0xd5, 0xf8, 0x4e, 0x92, 0x04, 0xa6, 0x88, 0x30]),
        (191, [0xfd, 0x7e, 0xff, 0x7f, 0x75, 0xe8, 0xd4, 0x42, 0xc9, 0xd3]),
        (192, [0xd8, 0xa3, 0x58, 0x65, 0x26, 0x2b, 0xbb, 0xf7, 0x2d, 0x39]),
        (211, [0x2b, 0xc2, 0x29, 0x01, 0x67, 0x2b, 0x3e, 0xed, 0xc6, 0x43]),
        (65535, [0x76, 0x5d, 0xb8, 0x85, 0x5e, 0x63, 0x0f, 0xcf, 0x73, 0x10]),
    ];
    for (seed, row) in vectors {
        let mut out = [0u8; 10];
        repair_coefficients(seed, 10, &mut out);
        assert_eq!(out, row, "seed {seed}");
    }
}

#[test]
fn longer_rows_extend_shorter_ones() {
    for seed in [0, 1, 191, 192, 193, 4096, u16::MAX] {
        let mut whole = [0u8; 64];
        repair_coefficients(seed, 64, &mut whole);
        assert!(whole.iter().all(|c| *c != 0), "seed {seed}");
        for n in 0..64 {
            let mut row = [7u8; 64];
            repair_coefficients(seed, n, &mut row);
            assert_eq!(row[..n], whole[..n]);
            assert!(row[n..].iter().all(|c| *c == 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn any_n_of_source_packets_and_cauchy_repairs_decode(seed: u64, n in 1usize..=64) {
        let mut random = SplitMix64::new(seed);
        let packets = packets(&mut random, n, 40);
        let mut span = SpanBuffer::with_rows(n, 64, Vec::new());
        let mut seen = 0;
        // Any n distinct ones among n sources and 192 repairs: each must raise the rank.
        let mut order: Vec<usize> = (0..n + usize::from(CAUCHY_SEEDS)).collect();
        for i in 0..n {
            let j = i + random.below((order.len() - i) as u32) as usize;
            order.swap(i, j);
            let outcome = if order[i] < n {
                span.receive_source(order[i], &packets[order[i]])
            } else {
                let mut coefficients = vec![0; n];
                repair_coefficients((order[i] - n) as u16, n, &mut coefficients);
                let mut data = vec![0; longest(&packets)];
                encode(&coefficients, &refs(&packets), &mut data);
                prop_assert!(span.basis().is_innovative(&coefficients));
                span.receive(&coefficients, &data)
            };
            prop_assert_eq!(outcome, Received::Innovative { row: i });
            drain(&mut span, &packets, &mut seen);
        }
        prop_assert!(span.basis().is_complete());
        prop_assert_eq!(seen.count_ones() as usize, n);
        prop_assert_eq!(span.receive_source(0, &packets[0]), Received::Redundant);
    }

    #[test]
    fn decoding_gives_the_data_after_any_number_of_recodings(seed: u64, n in 1usize..=64, hops in 0usize..7, loss in 0u32..30) {
        let mut random = SplitMix64::new(seed);
        let packets = packets(&mut random, n, 60);
        let mut upstream = SpanBuffer::new(n);
        for (j, packet) in packets.iter().enumerate() { upstream.receive_source(j, packet); }
        for _ in 0..hops {
            let mut next = SpanBuffer::new(n);
            let mut transmissions = 0;
            while next.rank() < n {
                transmissions += 1;
                prop_assert!(transmissions < 40 * n + 400);
                let (mut weights, mut coefficients, mut data) = (vec![0; n], vec![0; n], Vec::new());
                random.fill(&mut weights);
                upstream.recode(&weights, &mut coefficients, &mut data);
                if random.below(100) >= loss {
                    let before = next.rank();
                    let innovative = next.basis().is_innovative(&coefficients);
                    let outcome = next.receive(&coefficients, &data);
                    prop_assert_eq!(innovative, matches!(outcome, Received::Innovative { .. }));
                    prop_assert_eq!(next.rank(), before + usize::from(innovative));
                }
            }
            upstream = next;
        }
        let mut seen = 0;
        drain(&mut upstream, &packets, &mut seen);
        prop_assert_eq!(seen.count_ones() as usize, n);
    }

    #[test]
    fn rank_never_grows_by_recoding(seed: u64, n in 1usize..=64, held in 0usize..64) {
        let mut random = SplitMix64::new(seed);
        let packets = packets(&mut random, n, 20);
        let mut relay = SpanBuffer::new(n);
        for _ in 0..held.min(n) {
            let (mut coefficients, mut data) = (vec![0; n], vec![0; longest(&packets)]);
            repair_coefficients(random.next_u64() as u16, n, &mut coefficients);
            encode(&coefficients, &refs(&packets), &mut data);
            relay.receive(&coefficients, &data);
        }
        let rank = relay.rank();
        let mut next = SpanBuffer::new(n);
        // Eight at a time: the fused recoder must agree with the single one.
        for _ in 0..n.div_ceil(8) + 2 {
            let mut weights = vec![0u8; rank * 8];
            random.fill(&mut weights);
            let mut coefficients = vec![vec![0u8; n]; 8];
            let mut data = vec![vec![0u8; relay.longest()]; 8];
            relay.recode_many(
                &weights,
                &mut coefficients.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
                &mut data.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
            );
            for i in 0..8 {
                let (mut c, mut d) = (vec![0; n], Vec::new());
                relay.recode(&weights[i * rank..(i + 1) * rank], &mut c, &mut d);
                prop_assert_eq!(&c, &coefficients[i]);
                prop_assert!(is_padded(&data[i], &d));
                prop_assert!(!relay.basis().is_innovative(&c), "a recoded packet is new to nobody who sent it");
                next.receive(&c, &d);
            }
        }
        prop_assert!(next.rank() <= rank);
        prop_assert_eq!(next.rank(), rank, "16 spare combinations over GF(256) always reach the rank");
    }

    #[test]
    fn weights_over_inserted_rows_give_the_unit_vector(seed: u64, n in 1usize..=64, sparse: bool) {
        let mut random = SplitMix64::new(seed);
        let mut basis = Basis::with_capacity(n, 64);
        for _ in 0..2 {
            let mut yielded = 0u64;
            for _ in 0..3 * n {
                let mut v = vec![0u8; n];
                random.fill(&mut v);
                if sparse { for c in v.iter_mut() { if random.below(4) != 0 { *c = 0; } } }
                let before = basis.rank();
                let known = basis.is_innovative(&v);
                let outcome = basis.insert(&v);
                prop_assert_eq!(known, outcome == Insert::Innovative { row: before });
                while let Some(solved) = basis.newly_solved() {
                    let (j, weights) = (solved.index, solved.weights.to_vec());
                    prop_assert_eq!(yielded >> j & 1, 0);
                    yielded |= 1 << j;
                    let mut unit = vec![0u8; n];
                    for (r, w) in weights.iter().enumerate() {
                        for (u, c) in unit.iter_mut().zip(basis.row(r)) { *u ^= mul(*w, *c); }
                    }
                    let want: Vec<u8> = (0..n).map(|i| u8::from(i == j)).collect();
                    prop_assert_eq!(unit, want);
                }
                prop_assert_eq!(yielded, basis.solved());
            }
            let all = if n == 64 { u64::MAX } else { (1 << n) - 1 };
            prop_assert_eq!(basis.is_complete(), basis.solved() == all);
            basis.reset(n);
        }
    }

    #[test]
    fn a_span_can_grow_while_it_is_received(seed: u64, first in 1usize..32, more in 1usize..32, roomy: bool) {
        let n = first + more;
        let mut random = SplitMix64::new(seed);
        let packets = packets(&mut random, n, 30);
        let mut span = SpanBuffer::with_rows(first, if roomy { 64 } else { first }, (0..4).map(|_| Vec::with_capacity(30)).collect());
        let mut seen = 0;
        for k in [first, n] {
            span.extend(k);
            for _ in 0..first {
                let (mut coefficients, mut data) = (vec![0; k], vec![0; longest(&packets[..k])]);
                repair_coefficients(random.next_u64() as u16, k, &mut coefficients);
                encode(&coefficients, &refs(&packets[..k]), &mut data);
                if random.below(3) != 0 { span.receive(&coefficients, &data); }
            }
            drain(&mut span, &packets, &mut seen);
        }
        for (j, packet) in packets.iter().enumerate() {
            span.receive_source(j, packet);
            drain(&mut span, &packets, &mut seen);
        }
        prop_assert_eq!(seen.count_ones() as usize, n);
    }

    #[test]
    fn arbitrary_input_never_panics(n in 0usize..80, vectors in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..80), prop::collection::vec(any::<u8>(), 0..20)), 0..100)) {
        let mut span = SpanBuffer::new(n);
        for (i, (v, data)) in vectors.iter().enumerate() {
            let outcome = span.receive(v, data);
            prop_assert_eq!(outcome == Received::Malformed, v.len() != span.basis().n());
            if i % 17 == 16 { span.extend(v.len()); }
            if i % 31 == 30 { span.reset(v.len()); }
            while span.take_recovered().is_some() {}
            let (mut c, mut d) = (vec![0; 3], Vec::new());
            span.recode(v, &mut c, &mut d);
            prop_assert!(span.rank() <= 64 && span.row(999).is_empty());
        }
    }
}
