//! What an INITIATE shows before anything is computed for it: that its sender knows the responder's public key (after WireGuard's mac1).
//!
//! Checking costs one HMAC. A sender without the key cannot make a responder compute a Diffie-Hellman, nor learn whether one is there.

use super::PublicKey;
use crate::wire::packet::{HandshakeBody, HandshakePacket, MAC1_LEN};
use crate::work;
use core::fmt;
use ring::{digest, hmac};

/// Makes and checks the proofs for one responder.
#[derive(Clone)]
pub struct Mac1(hmac::Key);

impl fmt::Debug for Mac1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mac1(..)")
    }
}

impl Mac1 {
    /// For INITIATEs to the node with this key.
    pub fn new(responder: &PublicKey) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"noctule mac1");
        context.update(&responder.0);
        Self(hmac::Key::new(hmac::HMAC_SHA256, context.finish().as_ref()))
    }

    /// The first 16 bytes of HMAC-SHA-256 over the prologue and the Noise message of an INITIATE: all of it but the proof itself. `None`: another packet.
    pub fn of(&self, packet: &HandshakePacket<'_>) -> Option<[u8; MAC1_LEN]> {
        let HandshakeBody::Initiate { message, .. } = packet.body else { return None };
        work::hash();
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&packet.prologue()?);
        context.update(message);
        context.sign().as_ref().first_chunk().copied()
    }

    /// The same, put into the packet.
    pub fn sign(&self, packet: &mut HandshakePacket<'_>) {
        let proof = self.of(packet);
        if let (Some(proof), HandshakeBody::Initiate { mac1, .. }) = (proof, &mut packet.body) {
            *mac1 = proof;
        }
    }
}

/// Whether an INITIATE carries the proof that was computed for it.
pub fn is_shown(packet: &HandshakePacket<'_>, proof: &[u8; MAC1_LEN]) -> bool {
    match &packet.body {
        // No shortcut at the first difference, which would tell how much of a guess is right.
        HandshakeBody::Initiate { mac1, .. } => mac1.iter().zip(proof).fold(0, |all, (a, b)| all | (a ^ b)) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SecretKey;
    use crate::wire::packet::{ConnectionId, Pattern, VERSION};

    #[test]
    fn a_proof_serves_one_responder_and_one_packet() {
        let key = |b| SecretKey::from_bytes([b; 32]).public();
        let packet = |source: u8, token: &'static [u8], message: &'static [u8]| HandshakePacket {
            version: VERSION,
            destination: ConnectionId::new(&[1; 4]).unwrap(),
            source: ConnectionId::new(&[source; 4]).unwrap(),
            body: HandshakeBody::Initiate { pattern: Pattern::Ik, mac1: [0; 16], token, message },
        };
        let mac1 = Mac1::new(&key(1));
        let mut signed = packet(2, b"t", b"m");
        assert!(!is_shown(&signed, &mac1.of(&signed).unwrap()));
        mac1.sign(&mut signed);
        let proof = mac1.of(&signed).unwrap();
        assert!(is_shown(&signed, &proof));
        assert!(!is_shown(&signed, &Mac1::new(&key(2)).of(&signed).unwrap()), "for another responder");
        for other in [packet(3, b"t", b"m"), packet(2, b"", b"tm"), packet(2, b"t", b"n")] {
            assert!(!is_shown(&signed, &mac1.of(&other).unwrap()));
        }
    }
}
