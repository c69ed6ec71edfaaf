//! The exchange itself, without a network: SPAKE2 over the code, bound to both ends' keys, then a proof from either side.
//!
//! An end without the code learns from a run whether one guess is right, and nothing that helps to try others. The sender proves first: the
//! receiver's owner sees every guess, and the sender's user sees every receiver that guesses.

use super::Code;
use noctule::PublicKey;
use spake2::{Ed25519Group, Identity, Password, Spake2};

/// Bytes of a SPAKE2 element.
pub const ELEMENT: usize = 32;
/// Bytes of a proof.
pub const PROOF: usize = 32;

/// One proof, compared in constant time.
pub type Proof = blake3::Hash;

/// The state of an end before it has the other's element.
pub struct Begun {
    state: Spake2<Ed25519Group>,
    side: Side,
}

/// The proofs of both ends. They are equal at both ends only if both had the same code, and each the other's key.
pub struct Proofs {
    /// The sender's.
    pub sender: Proof,
    /// The receiver's.
    pub receiver: Proof,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Sender = 0x41,
    Receiver = 0x42,
}

/// Begins the exchange at the sender: its state, and the element for the receiver.
pub fn sender(code: &Code, sender: PublicKey, receiver: PublicKey) -> (Begun, [u8; ELEMENT]) {
    begin(Side::Sender, Spake2::start_a(&password(code), &identity("sender", sender), &identity("receiver", receiver)))
}

/// Begins the exchange at the receiver: its state, and the element for the sender.
pub fn receiver(code: &Code, sender: PublicKey, receiver: PublicKey) -> (Begun, [u8; ELEMENT]) {
    begin(Side::Receiver, Spake2::start_b(&password(code), &identity("sender", sender), &identity("receiver", receiver)))
}

fn begin(side: Side, (state, message): (Spake2<Ed25519Group>, Vec<u8>)) -> (Begun, [u8; ELEMENT]) {
    let mut element = [0; ELEMENT];
    // The crate puts one byte in front, which names the side.
    element.copy_from_slice(&message[1..]);
    (Begun { state, side }, element)
}

fn password(code: &Code) -> Password {
    Password::new(code.to_string())
}

fn identity(role: &str, key: PublicKey) -> Identity {
    Identity::new(&[b"noctule code 1 ", role.as_bytes(), b" ", &key.0[..]].concat())
}

impl Begun {
    /// Computes the proofs from the other side's element; `None` if that is not a valid element.
    pub fn finish(self, element: &[u8; ELEMENT]) -> Option<Proofs> {
        let other = if self.side == Side::Sender { Side::Receiver } else { Side::Sender };
        let message = [&[other as u8][..], element].concat();
        let secret: [u8; 32] = self.state.finish(&message).ok()?.try_into().ok()?;
        let proof = |text: &[u8]| blake3::keyed_hash(&secret, text);
        Some(Proofs { sender: proof(b"noctule code 1 proof of the sender"), receiver: proof(b"noctule code 1 proof of the receiver") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        noctule::SecretKey::from_bytes([n; 32]).public()
    }

    fn run(codes: [&str; 2], at_sender: [u8; 2], at_receiver: [u8; 2]) -> (Proofs, Proofs) {
        let [a, b] = codes.map(|c| c.parse().unwrap());
        let (first, x) = sender(&a, key(at_sender[0]), key(at_sender[1]));
        let (second, y) = receiver(&b, key(at_receiver[0]), key(at_receiver[1]));
        (first.finish(&y).unwrap(), second.finish(&x).unwrap())
    }

    #[test]
    fn both_ends_agree_only_about_the_same_code_and_the_same_two_keys() {
        let (here, there) = run(["4-otter-lagoon"; 2], [1, 2], [1, 2]);
        assert!(here.sender == there.sender && here.receiver == there.receiver && here.sender != here.receiver);
        let wrong_code = run(["4-otter-lagoon", "5-otter-lagoon"], [1, 2], [1, 2]);
        // An attacker between them has a session with each: both see its key 3.
        let glued = run(["4-otter-lagoon"; 2], [1, 3], [3, 2]);
        for (here, there) in [wrong_code, glued] {
            assert!(here.sender != there.sender && here.receiver != there.receiver);
        }
    }

    /// A generator that gives one byte again and again.
    struct Same(u8);

    impl rand_core::RngCore for Same {
        fn next_u32(&mut self) -> u32 {
            u32::from_ne_bytes([self.0; 4])
        }
        fn next_u64(&mut self) -> u64 {
            u64::from_ne_bytes([self.0; 8])
        }
        fn fill_bytes(&mut self, to: &mut [u8]) {
            to.fill(self.0);
        }
        fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
            to.fill(self.0);
            Ok(())
        }
    }

    impl rand_core::CryptoRng for Same {}

    /// `vectors.txt`, which docs/spec/check_code.py checks without this code: its scalars are those of 64 bytes of 3, and of 4.
    #[test]
    fn exchange_is_that_of_the_vectors() {
        let value = |name: &str| {
            let line = include_str!("vectors.txt").lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.unwrap().to_owned()
        };
        let code: Code = value("code").parse().unwrap();
        let ids = [identity("sender", PublicKey([1; 32])), identity("receiver", PublicKey([2; 32]))];
        let (here, x) = begin(Side::Sender, Spake2::start_a_with_rng(&password(&code), &ids[0], &ids[1], Same(3)));
        let (there, y) = begin(Side::Receiver, Spake2::start_b_with_rng(&password(&code), &ids[0], &ids[1], Same(4)));
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!([hex(&x), hex(&y)], [value("X"), value("Y")]);
        for proofs in [here.finish(&y).unwrap(), there.finish(&x).unwrap()] {
            assert_eq!(proofs.sender.to_hex().as_str(), value("sender_proof"));
            assert_eq!(proofs.receiver.to_hex().as_str(), value("receiver_proof"));
        }
    }

    #[test]
    fn an_element_that_came_back_or_is_none_proves_nothing() {
        let code = "4-otter-lagoon".parse().unwrap();
        let (begun, x) = sender(&code, key(1), key(2));
        let proofs = begun.finish(&x).unwrap();
        let (begun, _) = receiver(&code, key(1), key(2));
        assert!(begun.finish(&x).unwrap().receiver != proofs.receiver, "an echo knows no code");
        // No point of the curve has this y.
        let (begun, _) = sender(&code, key(1), key(2));
        let mut off_the_curve = [0; ELEMENT];
        off_the_curve[0] = 2;
        assert!(begun.finish(&off_the_curve).is_none());
    }
}
