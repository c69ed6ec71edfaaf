//! Any handshake message, and any change to a true one: nothing panics, nothing but the true message is accepted.

use super::Input;
use noctule_proto::crypto::{Initiator, PreSharedKeys, PublicKey, Responder, ResponderStep, SecretKey};
use noctule_proto::error::CloseReason;
use noctule_proto::wire::packet::Pattern;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

fn reply(_: Option<PublicKey>, _: &[u8]) -> Result<Vec<u8>, CloseReason> {
    Ok(b"parameters".to_vec())
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (choice, at, flip, message) = (input.u8(), input.u16(), input.u8(), input.rest());
    let rng = |seed| ChaCha12Rng::from_seed([seed; 32]);
    let (alice, bob) = (SecretKey::from_bytes([1; 32]), SecretKey::from_bytes([2; 32]));
    let pattern = [Pattern::Ik, Pattern::Xx, Pattern::IkPsk2, Pattern::XxPsk3][usize::from(choice & 3)];
    let psk = matches!(pattern, Pattern::IkPsk2 | Pattern::XxPsk3).then_some([7; 32]);
    let peer = matches!(pattern, Pattern::Ik | Pattern::IkPsk2).then(|| bob.public());
    let respond =
        |message: &[u8]| Responder::respond(&bob, PreSharedKeys::one(psk.as_ref()), pattern, b"prologue", message, reply, &mut rng(2));

    let _ = respond(message);
    let (mut initiator, mut first) = Initiator::start(&alice, peer, psk.as_ref(), b"prologue", b"parameters", &mut rng(1)).unwrap();
    if choice & 4 != 0 {
        let at = usize::from(at) % first.len();
        first[at] ^= flip;
        if let Ok(ResponderStep::Established { .. }) = respond(&first) {
            assert_eq!(flip, 0);
        }
        return;
    }
    let (ResponderStep::Established { reply: mut second, .. } | ResponderStep::Waiting { reply: mut second, .. }) =
        respond(&first).unwrap();
    assert!(initiator.finish(message, b"").is_err());
    let true_second = second.clone();
    let at = usize::from(at) % second.len();
    second[at] ^= flip;
    assert_eq!(initiator.finish(&second, b"").is_ok(), flip == 0);
    if flip != 0 {
        initiator.finish(&true_second, b"").unwrap();
    }
}
