//! Announcements and sealed packets.

use super::*;
use crate::crypto::{Addressed, PublicKey, SecretKey};
use crate::object::one_way::{Announcement, DATA_OVERHEAD, OneWayError, is_announcement};

fn key(i: u8) -> SecretKey {
    SecretKey::from_bytes([i; 32])
}

fn open(datagram: &[u8], secret: &SecretKey, psk: Option<&[u8; 32]>) -> Result<(PublicKey, Announcement), OneWayError> {
    Announcement::open(datagram, &Addressed::to(&secret.public()), secret, psk)
}

fn announcement() -> Announcement {
    let object = Object::of(20_000);
    Announcement { key: [9; 32], root: object.root, layout: object.layout, about: ABOUT.to_vec() }
}

#[test]
fn only_the_receiver_it_was_made_for_reads_an_announcement_and_knows_its_sender() {
    let sealed = announcement().seal(&key(1), &key(2).public(), None, [1; 32]).unwrap();
    assert!(is_announcement(&sealed));
    assert_eq!(open(&sealed, &key(2), None), Ok((key(1).public(), announcement())));
    assert!(matches!(open(&sealed, &key(3), None), Err(OneWayError::Crypto(_))));
    assert!(matches!(open(&sealed, &key(2), Some(&[1; 32])), Err(OneWayError::Crypto(_))));
    for at in 0..sealed.len() {
        let mut altered = sealed.clone();
        altered[at] ^= 1;
        assert!(open(&altered, &key(2), None).is_err(), "byte {at}");
        assert!(open(&sealed[..at], &key(2), None).is_err(), "cut at {at}");
    }
}

#[test]
fn a_pre_shared_key_is_needed_on_both_sides() {
    let sealed = announcement().seal(&key(1), &key(2).public(), Some(&[7; 32]), [1; 32]).unwrap();
    assert!(open(&sealed, &key(2), Some(&[7; 32])).is_ok());
    assert!(open(&sealed, &key(2), Some(&[8; 32])).is_err());
    assert!(open(&sealed, &key(2), None).is_err());
}

#[test]
fn packets_open_with_the_announced_key_and_not_when_altered() {
    let data_key = announcement().data_key().unwrap();
    let mut datagram = Vec::new();
    data_key.begin(PacketId::coded(3, 77), &mut datagram);
    assert_eq!(crate::object::one_way::id_of(&datagram), Some(PacketId::coded(3, 77)));
    datagram.extend_from_slice(b"a packet");
    data_key.finish(&mut datagram).unwrap();
    assert_eq!(datagram.len(), 8 + DATA_OVERHEAD);
    assert_eq!(data_key.open(&mut datagram.clone()), Ok(&b"a packet"[..]));
    let other = Announcement { key: [8; 32], ..announcement() }.data_key().unwrap();
    assert!(other.open(&mut datagram.clone()).is_err());
    for at in 0..datagram.len() {
        let mut altered = datagram.clone();
        altered[at] ^= 1;
        assert!(data_key.open(&mut altered).is_err(), "byte {at}");
    }
}
