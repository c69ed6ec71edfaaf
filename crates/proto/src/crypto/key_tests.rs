//! Sealing, epochs and generations, scripted with a virtual clock.

use super::{
    CryptoError, Established, Initiator, LinkKeys, LinkKeysConfig, PreSharedKeys, RawKey, ReceiveKeys, Responder, ResponderStep, SecretKey,
    SendKeys,
};
use crate::ids::{PacketNumber, PathId};
use crate::units::{Duration, Time};
use crate::wire::frame::Frame;
use crate::wire::packet::{Pattern, TAG_LEN};
use crate::wire::params::Cipher;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

const CIPHERS: [Cipher; 4] = [Cipher::Plaintext, Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
const HEADER: &[u8] = b"a header!";
const PATH: PathId = PathId(0);
const RETENTION: Duration = Duration::from_millis(300);

fn rng(seed: u8) -> ChaCha12Rng {
    ChaCha12Rng::from_seed([seed; 32])
}

fn pair(cipher: Cipher, epoch_log2: u8) -> (SendKeys, ReceiveKeys) {
    let secret = RawKey::new([7; 32]);
    (SendKeys::new(secret.clone(), cipher, epoch_log2), ReceiveKeys::new(secret, cipher, epoch_log2, 0))
}

fn packet(payload: &[u8]) -> Vec<u8> {
    [HEADER, payload, &[0xee; TAG_LEN]].concat()
}

fn seal(keys: &mut SendKeys, path: PathId, number: u64) -> Vec<u8> {
    let mut packet = packet(b"payload");
    keys.seal_job(path, PacketNumber(number)).unwrap().seal(&mut packet, HEADER.len()).unwrap();
    packet
}

/// Opens as a link does; false if there is no key or authentication fails.
fn open(keys: &mut ReceiveKeys, now: Time, path: PathId, number: u64, packet: &[u8]) -> bool {
    let Some(job) = keys.open_job(now, path, PacketNumber(number)) else { return false };
    match job.open(&mut packet.to_vec(), HEADER.len()) {
        Ok(payload) => {
            assert_eq!(payload, b"payload");
            keys.on_opened(now, &job, RETENTION);
            true
        }
        Err(_) => {
            keys.on_failed().unwrap();
            false
        }
    }
}

#[test]
fn what_is_sealed_opens_at_its_place_only() {
    for cipher in CIPHERS {
        let (mut send, mut receive) = pair(cipher, 20);
        let sealed = seal(&mut send, PathId(3), 5);
        assert_eq!(&sealed[..HEADER.len()], HEADER);
        assert_eq!(cipher == Cipher::Plaintext, sealed[HEADER.len()..].starts_with(b"payload"));
        for (path, number) in [(3, 6), (4, 5), (3, 5 + (1 << 32))] {
            assert!(!open(&mut receive, Time::ZERO, PathId(path), number, &sealed), "{cipher:?} {path} {number}");
        }
        assert!(open(&mut receive, Time::ZERO, PathId(3), 5, &sealed));
    }
}

#[test]
fn any_changed_bit_is_found() {
    for cipher in &CIPHERS[1..] {
        let (mut send, mut receive) = pair(*cipher, 20);
        let sealed = seal(&mut send, PATH, 5);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!open(&mut receive, Time::ZERO, PATH, 5, &changed), "{cipher:?} bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(!open(&mut receive, Time::ZERO, PATH, 5, &sealed[..len]));
        }
    }
}

#[test]
fn a_packet_without_room_for_its_tag_is_not_sealed() {
    let (mut send, _) = pair(Cipher::Aes128Gcm, 20);
    let job = send.seal_job(PATH, PacketNumber(0)).unwrap();
    assert!(matches!(job.seal(&mut [0; 10 + TAG_LEN], 11), Err(CryptoError::Misuse(_))));
    assert!(matches!(job.seal(&mut [0; TAG_LEN - 1], 0), Err(CryptoError::Misuse(_))));
}

#[test]
fn epochs_follow_the_packet_number_and_reordering_across_them_is_harmless() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 10);
    let sealed: Vec<_> = (0..4096).map(|n| seal(&mut send, PATH, n)).collect();
    // Neighbours swapped in blocks of 100: across each border packets of both epochs alternate.
    for block in (0..4096u64).collect::<Vec<_>>().chunks(200) {
        let (early, late) = block.split_at(block.len() / 2);
        for &n in late.iter().chain(early) {
            assert!(open(&mut receive, Time::ZERO, PATH, n, &sealed[n as usize]), "packet {n}");
        }
    }
}

#[test]
fn each_epoch_and_each_path_has_a_key_of_its_own() {
    let (mut send, _) = pair(Cipher::Aes128Gcm, 10);
    let mut keystream = |path, number| {
        let mut zeros = vec![0; 16 + TAG_LEN];
        let mut job = send.seal_job(PathId(path), PacketNumber(number)).unwrap();
        job.nonce = [0; 12];
        job.seal(&mut zeros, 0).unwrap();
        zeros
    };
    let same = keystream(0, 0);
    assert_eq!(keystream(0, 1023), same);
    assert_ne!(keystream(0, 1024), same);
    assert_ne!(keystream(1, 0), same);
}

#[test]
fn a_past_epoch_ends_after_its_retention() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 10);
    let (old, older) = (seal(&mut send, PATH, 1000), seal(&mut send, PATH, 1001));
    let new = seal(&mut send, PATH, 1024);
    let start = Time::from_millis(10);
    assert!(open(&mut receive, start, PATH, 1000, &old));
    assert!(open(&mut receive, start, PATH, 1024, &new));
    assert!(open(&mut receive, start + RETENTION.saturating_sub(Duration::from_nanos(1)), PATH, 1001, &older));
    assert!(!open(&mut receive, start + RETENTION, PATH, 1001, &older));
}

#[test]
fn an_outage_of_many_epochs_is_survived() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 10);
    assert!(open(&mut receive, Time::ZERO, PATH, 0, &seal(&mut send, PATH, 0)));
    let far = 50 * 1024 + 3;
    assert!(open(&mut receive, Time::ZERO, PATH, far, &seal(&mut send, PATH, far)));
    assert!(receive.open_job(Time::ZERO, PATH, PacketNumber(1 << 40)).is_none());
}

#[test]
fn packets_of_an_epoch_that_was_jumped_over_are_opened() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 10);
    let sealed: Vec<_> = (0..6).map(|epoch| seal(&mut send, PATH, epoch * 1024)).collect();
    for epoch in [0, 5, 3, 1, 4, 2] {
        assert!(open(&mut receive, Time::ZERO, PATH, epoch * 1024, &sealed[epoch as usize]), "epoch {epoch}");
    }
    assert!(!open(&mut receive, Time::ZERO + RETENTION, PATH, 3 * 1024, &sealed[3]));
    // The first packet of a path need not be of its first epoch.
    let (_, mut receive) = pair(Cipher::Aes128Gcm, 10);
    for epoch in [3, 2, 4] {
        assert!(open(&mut receive, Time::ZERO, PATH, epoch * 1024, &sealed[epoch as usize]), "epoch {epoch}");
    }
}

#[test]
fn forged_packet_numbers_change_nothing() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 10);
    let sealed: Vec<_> = (0..3000).map(|n| seal(&mut send, PATH, n)).collect();
    for n in 0..3000u64 {
        for ahead in [500, 1024, 2048, 100_000] {
            assert!(!open(&mut receive, Time::ZERO, PATH, n + ahead, b"a header!forged forged forged forged"));
        }
        assert!(open(&mut receive, Time::ZERO, PATH, n, &sealed[n as usize]), "packet {n}");
    }
}

#[test]
fn packet_numbers_beyond_32_bits_work() {
    let (mut send, mut receive) = pair(Cipher::ChaCha20Poly1305, 20);
    for n in (1 << 32) - 3..(1 << 32) + 3 {
        assert!(open(&mut receive, Time::ZERO, PATH, n, &seal(&mut send, PATH, n)));
    }
}

#[test]
fn many_paths_work_though_few_keys_are_kept() {
    let (mut send, mut receive) = pair(Cipher::Aes128Gcm, 20);
    for round in 0..2 {
        for path in 0..40 {
            let sealed = seal(&mut send, PathId(path), round);
            assert!(open(&mut receive, Time::ZERO, PathId(path), round, &sealed));
        }
    }
}

/// Two link ends, a clock and a count of packets.
struct Link {
    now: Time,
    ends: [LinkKeys; 2],
    rngs: [ChaCha12Rng; 2],
    numbers: [u64; 2],
}

fn established() -> (Established, Established) {
    let (alice, bob) = (SecretKey::from_bytes([1; 32]), SecretKey::from_bytes([2; 32]));
    let (mut initiator, first) = Initiator::start(&alice, Some(bob.public()), None, b"", b"", &mut rng(1)).unwrap();
    let step = Responder::respond(&bob, PreSharedKeys::one(None), Pattern::Ik, b"", &first, |_, _| Ok(Vec::new()), &mut rng(2)).unwrap();
    let ResponderStep::Established { reply, established } = step else { panic!() };
    (initiator.finish(&reply, b"").unwrap(), established)
}

impl Link {
    fn new(rekey_packets: u64) -> Self {
        let (ours, theirs) = established();
        let config = |is_initiator| LinkKeysConfig {
            is_initiator,
            cipher: Cipher::Aes128Gcm,
            send_epoch_log2: if is_initiator { 10 } else { 12 },
            receive_epoch_log2: if is_initiator { 12 } else { 10 },
            rekey_after: Duration::from_secs(120),
            rekey_packets,
            reject_after: Duration::from_secs(180),
            reject_packets: rekey_packets.saturating_mul(16),
        };
        let ends = [LinkKeys::new(config(true), &ours, Time::ZERO).unwrap(), LinkKeys::new(config(false), &theirs, Time::ZERO).unwrap()];
        Self { now: Time::ZERO, ends, rngs: [rng(3), rng(4)], numbers: [0; 2] }
    }

    /// A packet of end `from`, with its header's generation and its number.
    fn seal(&mut self, from: usize) -> (u8, u64, Vec<u8>) {
        let number = self.numbers[from];
        self.numbers[from] += 1;
        let mut packet = packet(b"payload");
        let bits = self.ends[from].generation_bits();
        self.ends[from].seal_job(PATH, PacketNumber(number)).unwrap().seal(&mut packet, HEADER.len()).unwrap();
        (bits, number, packet)
    }

    fn open(&mut self, at: usize, (bits, number, packet): &(u8, u64, Vec<u8>)) -> bool {
        let keys = &mut self.ends[at];
        let Some(job) = keys.open_job(self.now, *bits, PATH, PacketNumber(*number)) else { return false };
        let is_open = job.open(&mut packet.clone(), HEADER.len()).is_ok();
        if is_open {
            keys.on_opened(self.now, &job, RETENTION)
        } else {
            keys.on_failed(self.now, &job).unwrap()
        }
        is_open
    }

    fn send(&mut self, from: usize) -> bool {
        let packet = self.seal(from);
        self.open(1 - from, &packet)
    }

    /// The REKEY frame that end `from` wants to send, as bytes.
    fn frame(&mut self, from: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.ends[from].poll_frame()?.emit(&mut out);
        Some(out)
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) -> Result<(), CryptoError> {
        let Ok(Some(Frame::Rekey { generation, step, message })) = Frame::parse(&mut crate::wire::Reader::new(frame)) else { panic!() };
        self.ends[to].on_frame(self.now, generation, step, message, &mut self.rngs[to])
    }

    fn tick(&mut self, by: Duration) {
        self.now += by;
        for (keys, rng) in self.ends.iter_mut().zip(&mut self.rngs) {
            keys.handle_timeout(self.now, rng).unwrap();
        }
    }

    fn generations(&self) -> [u64; 2] {
        [self.ends[0].generation(), self.ends[1].generation()]
    }
}

#[test]
fn a_new_generation_loses_no_packet_in_flight() {
    let mut link = Link::new(u64::MAX);
    assert_eq!(link.ends[0].poll_timeout(), Some(Time::ZERO + Duration::from_secs(120)));
    assert_eq!(link.ends[1].poll_timeout(), Some(Time::ZERO + Duration::from_secs(180)));
    for generation in 1..10 {
        link.tick(Duration::from_secs(120));
        let ask = link.frame(0).unwrap();
        let (early0, early1) = (link.seal(0), link.seal(1));
        link.deliver(1, &ask).unwrap();
        assert_eq!(link.generations(), [generation - 1, generation - 1]);
        // The responder still sends with the old keys, for the answer may get lost.
        assert!(link.send(0) && link.send(1));
        let reply = link.frame(1).unwrap();
        link.deliver(0, &reply).unwrap();
        assert_eq!(link.generations(), [generation, generation - 1]);
        assert!(link.send(1), "the old keys are valid until the new ones are confirmed");
        link.tick(Duration::from_secs(10));
        assert!(link.send(1), "however long that takes");
        assert!(link.send(0));
        assert_eq!(link.generations(), [generation, generation]);
        assert!(link.open(1, &early0) && link.open(0, &early1), "packets in flight are still opened");
        assert!(link.send(1) && link.send(0));
        let late = (early0.0, early0.1, early0.2.clone());
        link.tick(RETENTION);
        assert!(!link.open(1, &late) && !link.open(0, &early1), "the old keys are gone after the retention");
        assert!(link.send(1) && link.send(0));
    }
}

#[test]
fn lost_and_repeated_rekey_frames_lead_to_one_generation() {
    let mut link = Link::new(u64::MAX);
    link.tick(Duration::from_secs(120));
    let ask = link.frame(0).unwrap();
    assert_eq!(link.frame(0), None);
    link.ends[0].on_lost();
    assert_eq!(link.frame(0).as_ref(), Some(&ask));
    link.deliver(1, &ask).unwrap();
    let reply = link.frame(1).unwrap();
    link.deliver(1, &ask).unwrap();
    assert_eq!(link.frame(1).as_ref(), Some(&reply), "the repeated question gets the same answer");
    link.ends[1].on_lost();
    assert_eq!(link.frame(1).as_ref(), Some(&reply));
    link.deliver(0, &reply).unwrap();
    link.deliver(0, &reply).unwrap();
    assert!(link.send(0) && link.send(1));
    link.deliver(1, &ask).unwrap();
    link.ends[0].on_lost();
    link.ends[1].on_lost();
    assert_eq!((link.frame(0), link.frame(1), link.generations()), (None, None, [1, 1]));
}

#[test]
fn a_question_without_an_answer_is_asked_again() {
    let mut link = Link::new(u64::MAX);
    link.tick(Duration::from_secs(120));
    let ask = link.frame(0).unwrap();
    link.tick(Duration::from_secs(2));
    assert_eq!(link.frame(0), None);
    link.tick(Duration::from_secs(1));
    assert_eq!(link.frame(0), Some(ask));
}

#[test]
fn many_packets_make_a_new_generation_due() {
    let mut link = Link::new(100);
    for _ in 0..50 {
        assert!(link.send(0));
    }
    assert!(link.ends[0].poll_timeout() > Some(link.now));
    for _ in 0..50 {
        assert!(link.send(1));
    }
    link.tick(Duration::ZERO);
    assert!(link.ends[0].has_message() && !link.ends[1].has_message());
}

#[test]
fn the_new_keys_do_not_follow_from_the_old_ones() {
    // Two links with the same first generation and other random numbers since.
    let mut links = [Link::new(u64::MAX), Link::new(u64::MAX)];
    links[1].rngs = [rng(5), rng(6)];
    for link in &mut links {
        link.tick(Duration::from_secs(120));
        let ask = link.frame(0).unwrap();
        link.deliver(1, &ask).unwrap();
        let reply = link.frame(1).unwrap();
        link.deliver(0, &reply).unwrap();
        assert!(link.send(0) && link.send(1));
    }
    let [a, b] = &mut links;
    let packet = a.seal(0);
    assert!(!b.open(1, &packet));
    assert!(a.open(1, &packet));
}

#[test]
fn a_changed_rekey_message_ends_the_link() {
    let mut link = Link::new(u64::MAX);
    link.tick(Duration::from_secs(120));
    let mut ask = link.frame(0).unwrap();
    *ask.last_mut().unwrap() ^= 1;
    assert_eq!(link.deliver(1, &ask), Err(CryptoError::Authentication));
    // Step 1 nobody asked for, a generation that is not due.
    for frame in [Frame::Rekey { generation: 1, step: 1, message: b"" }, Frame::Rekey { generation: 2, step: 0, message: b"" }] {
        let mut out = Vec::new();
        frame.emit(&mut out);
        assert_eq!(link.deliver(1, &out), Err(CryptoError::Malformed));
    }
}

#[test]
fn keys_that_no_exchange_has_followed_die_and_take_the_link_with_them() {
    for end in [0, 1] {
        let mut link = Link::new(u64::MAX);
        link.tick(Duration::from_secs(179));
        // The exchange is under way, and nobody answers it.
        link.now += Duration::from_secs(1);
        assert!(link.ends[end].poll_timeout() <= Some(link.now));
        let Link { now, ends, rngs, .. } = &mut link;
        assert_eq!(ends[end].handle_timeout(*now, &mut rngs[end]), Err(CryptoError::Exhausted));
    }
}

#[test]
fn keys_die_of_many_packets_too() {
    let mut link = Link::new(100);
    for _ in 0..1600 {
        assert!(link.send(0));
    }
    for end in [0, 1] {
        assert!(link.ends[end].poll_timeout() <= Some(link.now));
        let Link { now, ends, rngs, .. } = &mut link;
        assert_eq!(ends[end].handle_timeout(*now, &mut rngs[end]), Err(CryptoError::Exhausted));
    }
}
