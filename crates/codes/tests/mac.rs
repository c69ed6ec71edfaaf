//! The homomorphic MAC: linear, the same on every kernel, and pollution is noticed.

use noctule_codes::gf256::{Kernels, kernels, mul};
use noctule_codes::mac::*;
use noctule_codes::prng::SplitMix64;
use proptest::prelude::*;

fn bytes(random: &mut SplitMix64, n: usize) -> Vec<u8> {
    let mut out = vec![0; n];
    random.fill(&mut out);
    out
}

/// Elements of GF(256)[y] / (y^8 + y^3 + y + 9), lowest coefficient first.
type Element = [u8; 8];

/// The product as the definition has it.
fn field_mul(a: Element, b: Element) -> Element {
    let mut c = [0u8; 15];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            c[i + j] ^= mul(*x, *y);
        }
    }
    for i in (8..15).rev() {
        c[i - 5] ^= c[i];
        c[i - 7] ^= c[i];
        c[i - 8] ^= mul(9, c[i]);
    }
    c[..8].try_into().unwrap()
}

#[test]
fn the_modulus_is_irreducible() {
    // Rabin's test for degree 8 = 2^3: y^(256^8) = y, and y^(256^4) - y is invertible (its power 2^64 - 1 is 1).
    let y: Element = [0, 1, 0, 0, 0, 0, 0, 0];
    let frobenius = |mut a: Element, times: usize| {
        (0..8 * times).for_each(|_| a = field_mul(a, a));
        a
    };
    assert_eq!(frobenius(y, 8), y);
    let mut difference = frobenius(y, 4);
    difference[1] ^= 1;
    // 2^64 - 1 = 1 + 2 + … + 2^63.
    let mut power = difference;
    let mut square = difference;
    for _ in 1..64 {
        square = field_mul(square, square);
        power = field_mul(power, square);
    }
    assert_eq!(power, [1, 0, 0, 0, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn every_kernel_computes_the_definition(seed: u64, blocks in 1usize..200, len in 0usize..1600) {
        let len = len.min(8 * blocks);
        let mut random = SplitMix64::new(seed);
        let material = bytes(&mut random, 8 * blocks);
        let packet = bytes(&mut random, len);
        let mut want = [5u8; 8];
        for (key, block) in material.chunks(8).zip(packet.chunks(8)) {
            let mut x = [0; 8];
            x[..block.len()].copy_from_slice(block);
            let product = field_mul(x, key.try_into().unwrap());
            want.iter_mut().zip(product).for_each(|(w, p)| *w ^= p);
        }
        for kernel in Kernels::supported() {
            prop_assert_eq!(MacKey::with_kernels(kernel, &material).unwrap().tag(&packet, [5; 8]), want, "{}", kernel.name());
        }
    }

    #[test]
    fn combining_tags_is_combining_their_bytes(seed: u64, coefficients in 0usize..70, tags in 0usize..70) {
        let mut random = SplitMix64::new(seed);
        let coefficients = bytes(&mut random, coefficients);
        let tags: Vec<Tag> = (0..tags).map(|_| random.next_u64().to_le_bytes()).collect();
        let mut want = [0u8; 8];
        for (c, tag) in coefficients.iter().zip(&tags) {
            want.iter_mut().zip(tag).for_each(|(w, t)| *w ^= mul(*c, *t));
        }
        prop_assert_eq!(combine(&coefficients, &tags), want);
    }

    #[test]
    fn tags_survive_any_number_of_recodings_and_pollution_does_not(seed: u64, n in 1usize..20, hops in 1usize..5) {
        let mut random = SplitMix64::new(seed);
        let len = 100;
        let key = MacKey::new(&bytes(&mut random, 104)).unwrap();
        let pads: Vec<Tag> = (0..n).map(|_| random.next_u64().to_le_bytes()).collect();
        // A coded packet is coefficients | tag | data, recoded as a whole.
        let mut packets: Vec<Vec<u8>> = (0..n).map(|j| {
            let data = bytes(&mut random, len);
            let mut packet = vec![0; n];
            packet[j] = 1;
            packet.extend(key.tag(&data, pads[j]));
            packet.extend(data);
            packet
        }).collect();
        for _ in 0..hops {
            packets = (0..n).map(|_| {
                let mut out = vec![0; n + 8 + len];
                for input in &packets { kernels().mul_add(&mut out, input, random.next_u64() as u8); }
                out
            }).collect();
        }
        for packet in &mut packets {
            let tag = |p: &[u8]| -> Tag { p[n..n + 8].try_into().unwrap() };
            prop_assert!(key.check(&packet[n + 8..], &packet[..n], &pads, tag(packet)));
            let at = random.below((n + 8 + len) as u32) as usize;
            packet[at] ^= 1 << random.below(8);
            prop_assert!(!key.check(&packet[n + 8..], &packet[..n], &pads, tag(packet)), "byte {}", at);
        }
    }
}

#[test]
fn tags_match_the_vectors_of_the_specification() {
    // docs/spec/codes.md §6: key byte j is 29j + 7, packet byte j is 5j + 1, modulo 256; computed by a program written from that page.
    let key: Vec<u8> = (0..64u32).map(|j| (29 * j + 7) as u8).collect();
    let packet: Vec<u8> = (0..50u32).map(|j| (5 * j + 1) as u8).collect();
    let key = MacKey::new(&key).unwrap();
    assert_eq!(key.tag(&packet[..1], [0, 0, 0, 0, 0, 0, 0, 0]), [0x07, 0x24, 0x41, 0x5e, 0x7b, 0x98, 0xb5, 0xd2]);
    assert_eq!(key.tag(&packet[..8], [0, 0, 0, 0, 0, 0, 0, 0]), [0x08, 0xa6, 0x15, 0xab, 0x05, 0xb3, 0x7d, 0xbc]);
    assert_eq!(key.tag(&packet[..50], [0, 0, 0, 0, 0, 0, 0, 0]), [0xef, 0x3e, 0x15, 0x88, 0x51, 0xf8, 0x26, 0xd9]);
    assert_eq!(key.tag(&packet[..50], [1, 2, 3, 4, 5, 6, 7, 8]), [0xee, 0x3c, 0x16, 0x8c, 0x54, 0xfe, 0x21, 0xd1]);
}

#[test]
fn unusable_keys_and_lengths_are_refused() {
    assert!(MacKey::new(&[]).is_none());
    assert!(MacKey::new(&[1; 12]).is_none());
    let key = MacKey::new(&[1; 80]).unwrap();
    assert_eq!(key.longest(), 80);
    assert!(!key.check(&[0; 81], &[], &[], [0; 8]));
    assert!(!key.check(&[0; 10], &[1], &[], [0; 8]));
    assert!(key.check(&[0; 10], &[], &[], [0; 8]), "nothing combined is nothing");
}
