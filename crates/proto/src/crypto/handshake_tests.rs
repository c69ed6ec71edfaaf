//! Handshakes between two sides, with wrong keys, changed bytes and forged answers.

use super::{CryptoError, Established, Initiator, PreSharedKeys, PublicKey, Responder, ResponderStep, SecretKey};
use crate::error::{CloseReason, Code, Layer};
use crate::wire::packet::{MAX_TOKEN, Pattern};
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

const ALICE: [u8; 32] = [0x11; 32];
const BOB: [u8; 32] = [0x22; 32];
const MALLORY: [u8; 32] = [0x33; 32];
const PSK: [u8; 32] = [0x44; 32];

fn secret(bytes: [u8; 32]) -> SecretKey {
    SecretKey::from_bytes(bytes)
}

fn public(bytes: [u8; 32]) -> PublicKey {
    secret(bytes).public()
}

fn rng(seed: u8) -> ChaCha12Rng {
    ChaCha12Rng::from_seed([seed; 32])
}

fn answer(_: Option<PublicKey>, payload: &[u8]) -> Result<Vec<u8>, CloseReason> {
    assert_eq!(payload, b"hello");
    Ok(b"welcome".to_vec())
}

fn respond(psk: Option<[u8; 32]>, pattern: Pattern, prologue: &[u8], message: &[u8]) -> Result<ResponderStep, CryptoError> {
    Responder::respond(&secret(BOB), PreSharedKeys::one(psk.as_ref()), pattern, prologue, message, answer, &mut rng(2))
}

/// A whole handshake: both results.
fn run(peer: Option<PublicKey>, psk: Option<[u8; 32]>) -> Result<(Established, Established), CryptoError> {
    let (mut initiator, first) = Initiator::start(&secret(ALICE), peer, psk.as_ref(), b"prologue", b"hello", &mut rng(1))?;
    match respond(psk, Initiator::pattern_for(peer, psk.as_ref()), b"prologue", &first)? {
        ResponderStep::Established { reply, established } => Ok((initiator.finish(&reply, b"")?, established)),
        ResponderStep::Waiting { reply, responder } => {
            let ours = initiator.finish(&reply, b"thanks")?;
            let theirs = responder.complete(ours.third_message.as_deref().unwrap())?;
            Ok((ours, theirs))
        }
    }
}

#[test]
fn both_sides_agree_in_every_pattern() {
    let mut hashes = Vec::new();
    for (peer, psk) in [(Some(public(BOB)), None), (None, None), (Some(public(BOB)), Some(PSK)), (None, Some(PSK))] {
        let (ours, theirs) = run(peer, psk).unwrap();
        assert_eq!(ours.send.as_bytes(), theirs.receive.as_bytes());
        assert_eq!(ours.receive.as_bytes(), theirs.send.as_bytes());
        assert_ne!(ours.send.as_bytes(), ours.receive.as_bytes());
        assert_eq!(ours.hash, theirs.hash);
        assert_eq!((ours.peer, theirs.peer), (public(BOB), public(ALICE)));
        assert_eq!(ours.payload, b"welcome");
        assert_eq!(theirs.payload, if peer.is_some() { &b"hello"[..] } else { b"thanks" });
        assert_eq!(ours.third_message.is_none(), peer.is_some());
        hashes.push(ours.hash);
    }
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn a_seed_decides_everything() {
    let (a, _) = run(None, None).unwrap();
    let (b, _) = run(None, None).unwrap();
    assert_eq!(a.hash, b.hash);
    let (_, first) = Initiator::start(&secret(ALICE), None, None, b"", b"", &mut rng(1)).unwrap();
    let (_, other) = Initiator::start(&secret(ALICE), None, None, b"", b"", &mut rng(9)).unwrap();
    assert_ne!(first, other);
    let mut same = rng(1);
    Initiator::start(&secret(ALICE), None, None, b"", b"", &mut same).unwrap();
    let (_, second) = Initiator::start(&secret(ALICE), None, None, b"", b"", &mut same).unwrap();
    assert_ne!(first, second, "an ephemeral key was used twice");
}

#[test]
fn a_message_for_another_key_is_not_understood() {
    let (_, first) = Initiator::start(&secret(ALICE), Some(public(MALLORY)), None, b"prologue", b"hello", &mut rng(1)).unwrap();
    assert!(matches!(respond(None, Pattern::Ik, b"prologue", &first), Err(CryptoError::Authentication)));
}

#[test]
fn a_pinned_key_is_told_from_the_one_that_answers() {
    let start = |peer| Initiator::start_with(Pattern::Xx, &secret(ALICE), Some(peer), None, b"prologue", b"hello", &mut rng(1)).unwrap();
    let (mut initiator, first) = start(public(MALLORY));
    let Ok(ResponderStep::Waiting { reply, .. }) = respond(None, Pattern::Xx, b"prologue", &first) else { panic!() };
    let wrong = CryptoError::WrongKey { expected: public(MALLORY), actual: public(BOB) };
    assert_eq!(wrong.code(), Code::WrongKey);
    assert_eq!(initiator.finish(&reply, b"").unwrap_err(), wrong);
    // Nothing can be had from it afterwards.
    assert!(matches!(initiator.finish(&reply, b""), Err(CryptoError::Misuse(_))));
    let (mut initiator, first) = start(public(BOB));
    let Ok(ResponderStep::Waiting { reply, .. }) = respond(None, Pattern::Xx, b"prologue", &first) else { panic!() };
    assert_eq!(initiator.finish(&reply, b"").unwrap().peer, public(BOB));
}

#[test]
fn another_prologue_or_pattern_or_shared_key_fails() {
    let (mut initiator, first) =
        Initiator::start(&secret(ALICE), Some(public(BOB)), Some(&PSK), b"prologue", b"hello", &mut rng(1)).unwrap();
    assert!(matches!(respond(Some(PSK), Pattern::IkPsk2, b"prolog", &first), Err(CryptoError::Authentication)));
    assert!(matches!(respond(None, Pattern::IkPsk2, b"prologue", &first), Err(CryptoError::Authentication)));
    // A node with a shared key serves only nodes that have it.
    assert!(matches!(respond(Some(PSK), Pattern::Ik, b"prologue", &first), Err(CryptoError::Authentication)));
    let Ok(ResponderStep::Established { reply, .. }) = respond(Some([0; 32]), Pattern::IkPsk2, b"prologue", &first) else { panic!() };
    assert_eq!(initiator.finish(&reply, b"").unwrap_err(), CryptoError::Authentication);
}

#[test]
fn a_forged_answer_does_not_end_the_handshake() {
    let (mut initiator, first) = Initiator::start(&secret(ALICE), Some(public(BOB)), None, b"prologue", b"hello", &mut rng(1)).unwrap();
    let Ok(ResponderStep::Established { reply, established }) = respond(None, Pattern::Ik, b"prologue", &first) else { panic!() };
    for i in 0..reply.len() {
        let mut forged = reply.clone();
        forged[i] ^= 0x80;
        // The top bit of a curve point is ignored (RFC 7748 §5), but it is hashed.
        assert!(initiator.finish(&forged, b"").is_err(), "byte {i}");
        assert!(initiator.finish(&reply[..i], b"").is_err(), "cut at {i}");
    }
    assert_eq!(initiator.finish(&reply, b"").unwrap().hash, established.hash);
}

#[test]
fn a_forged_third_message_does_not_end_the_handshake() {
    let (mut initiator, first) = Initiator::start(&secret(ALICE), None, None, b"prologue", b"hello", &mut rng(1)).unwrap();
    let Ok(ResponderStep::Waiting { reply, responder }) = respond(None, Pattern::Xx, b"prologue", &first) else { panic!() };
    let ours = initiator.finish(&reply, b"thanks").unwrap();
    let third = ours.third_message.unwrap();
    for i in 0..third.len() {
        let mut forged = third.clone();
        forged[i] ^= 1;
        assert!(responder.complete(&forged).is_err());
        assert!(responder.complete(&third[..i]).is_err());
    }
    assert_eq!(responder.complete(&third).unwrap().hash, ours.hash);
}

#[test]
fn a_refusal_is_handed_through() {
    let (_, first) = Initiator::start(&secret(ALICE), Some(public(BOB)), None, b"", b"hello", &mut rng(1)).unwrap();
    let reason = CloseReason::local(Code::NotAuthorised, Layer::Crypto, "not on the list");
    let refuse = |peer: Option<PublicKey>, _: &[u8]| {
        assert_eq!(peer, Some(public(ALICE)));
        Err(reason.clone())
    };
    let step = Responder::respond(&secret(BOB), PreSharedKeys::one(None), Pattern::Ik, b"", &first, refuse, &mut rng(2));
    assert_eq!(step.unwrap_err(), CryptoError::Refused(reason.clone()));
}

#[test]
fn nobody_can_pose_as_a_key_of_small_order() {
    for point in [[0; 32], core::array::from_fn(|i| u8::from(i == 0))] {
        let start = Initiator::start(&secret(ALICE), Some(PublicKey(point)), None, b"", b"hello", &mut rng(1));
        assert_eq!(start.map(|_| ()).unwrap_err(), CryptoError::Authentication);
    }
}

#[test]
fn a_half_open_handshake_takes_less_than_a_kibibyte() {
    // P19, P22: the largest first message, the longest token, more parameters than there are.
    let prologue = [0; 33 + MAX_TOKEN];
    let payload = [1; 512 - 32];
    let (_, first) = Initiator::start(&secret(ALICE), None, None, &prologue, &payload, &mut rng(1)).unwrap();
    assert_eq!(first.len(), 512);
    let reply = |_: Option<PublicKey>, _: &[u8]| Ok(vec![2; 150]);
    let step = Responder::respond(&secret(BOB), PreSharedKeys::one(None), Pattern::Xx, &prologue, &first, reply, &mut rng(2));
    let Ok(ResponderStep::Waiting { responder, .. }) = step else { panic!() };
    assert!(size_of::<Responder>() + responder.memory() <= 1024, "{} + {}", size_of::<Responder>(), responder.memory());
    let longer = [1; 513 - 32];
    assert_eq!(
        Initiator::start(&secret(ALICE), None, None, &prologue, &longer, &mut rng(1)).map(|_| ()).unwrap_err(),
        CryptoError::Malformed
    );
}

#[test]
fn a_payload_that_no_datagram_holds_is_refused() {
    let start = Initiator::start(&secret(ALICE), None, None, b"", &[0; 1400], &mut rng(1));
    assert_eq!(start.map(|_| ()).unwrap_err(), CryptoError::Malformed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn arbitrary_messages_never_panic(message in proptest::collection::vec(any::<u8>(), 0..1500), pattern in 0u8..4) {
        let pattern = [Pattern::Ik, Pattern::Xx, Pattern::IkPsk2, Pattern::XxPsk3][usize::from(pattern)];
        let any_answer = |_: Option<PublicKey>, _: &[u8]| Ok(Vec::new());
        let _ = Responder::respond(&secret(BOB), PreSharedKeys::one(Some(&PSK)), pattern, b"", &message, any_answer, &mut rng(2));
        let step = Responder::respond(&secret(BOB), PreSharedKeys::one(None), pattern, b"", &message, any_answer, &mut rng(2));
        if let Ok(ResponderStep::Waiting { responder, .. }) = step {
            prop_assert!(responder.complete(&message).is_err());
        }
        let (mut initiator, _) = Initiator::start(&secret(ALICE), Some(public(BOB)), None, b"", b"", &mut rng(1)).unwrap();
        prop_assert!(initiator.finish(&message, b"").is_err());
    }
}
