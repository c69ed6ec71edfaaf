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

proptest! {
    #[test]
    fn every_kernel_computes_the_definition(seed: u64, longest in 1usize..400, len in 0usize..400) {
        let len = len.min(longest);
        let mut random = SplitMix64::new(seed);
        let material = bytes(&mut random, 8 * longest);
        let packet = bytes(&mut random, len);
        let mut want = [5u8; 8];
        for (i, want) in want.iter_mut().enumerate() {
            for (j, x) in packet.iter().enumerate() { *want ^= mul(material[i * longest + j], *x); }
        }
        for kernel in Kernels::supported() {
            prop_assert_eq!(MacKey::with_kernels(kernel, &material).unwrap().tag(&packet, [5; 8]), want, "{}", kernel.name());
        }
    }

    #[test]
    fn tags_survive_any_number_of_recodings_and_pollution_does_not(seed: u64, n in 1usize..20, hops in 1usize..5) {
        let mut random = SplitMix64::new(seed);
        let len = 100;
        let key = MacKey::new(&bytes(&mut random, 8 * len)).unwrap();
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
fn unusable_keys_and_lengths_are_refused() {
    assert!(MacKey::new(&[]).is_none());
    assert!(MacKey::new(&[1; 12]).is_none());
    let key = MacKey::new(&[1; 80]).unwrap();
    assert_eq!(key.longest(), 10);
    assert!(!key.check(&[0; 11], &[], &[], [0; 8]));
    assert!(!key.check(&[0; 10], &[1], &[], [0; 8]));
    assert!(key.check(&[0; 10], &[], &[], [0; 8]), "nothing combined is nothing");
}
