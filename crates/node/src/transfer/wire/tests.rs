use super::super::entry::{Kind, Mtime};
use super::parts::MAX_PART;
use super::*;
use bytes::BytesMut;

fn entry(path: &[u8], kind: Kind, seconds: i64) -> Entry {
    Entry { path: path.to_vec(), kind, mode: 0o640, mtime: Mtime { seconds, nanos: 999_999_999 } }
}

fn samples() -> Vec<Record> {
    let hash = blake3::hash(b"x");
    vec![
        Record::Hello(Hello {
            version: VERSION,
            is_dry: true,
            is_update: false,
            deletes: true,
            is_complete: true,
            entries: 3,
            bytes: 1 << 40,
            stored: 7,
            streams: 2,
            rules: 1,
            attributes: 70_000,
            unlisted: 2,
        }),
        Record::Rules(vec![Rule { is_include: true, pattern: "*/".into() }, Rule { is_include: false, pattern: "/t/\u{e9}*".into() }]),
        Record::Attributes(vec![
            (1, Attributes(vec![(b"user.a".to_vec(), vec![0, 255])])),
            (70_000, Attributes(vec![(b"user.b".to_vec(), vec![]), (b"system.posix_acl_access".to_vec(), vec![2; 28])])),
        ]),
        Record::Unlisted(vec![(b"d/\xff".to_vec(), "permission denied".into())]),
        Record::Deleted(vec![b"old".to_vec(), b"d/\xff".to_vec()]),
        Record::Request(Request {
            version: VERSION,
            is_dry: true,
            is_shallow: false,
            is_update: true,
            has_attributes: true,
            is_object: true,
            streams: 3,
            limit: 250_000,
            paths: vec![b"a/*.c".to_vec(), b"\xff".to_vec()],
            rules: vec![Rule { is_include: false, pattern: "*.o".into() }],
        }),
        Record::Entries(vec![
            entry(b"d", Kind::Dir, 0),
            entry(b"d/\xff\n", Kind::File(5 << 32), -1),
            entry(b"d/l", Kind::Link(b"../x".to_vec()), 1 << 33),
            entry(b"z", Kind::Stream, -(1 << 40)),
        ]),
        Record::File { index: 1, offset: 1 << 33 },
        Record::Data(Bytes::from_static(b"content")),
        Record::Hole(1 << 40),
        Record::End { hash, problem: "it changed".into() },
        Record::Small { index: 70_000, hash, content: Bytes::from_static(b"abc") },
        Record::Same { index: 3, hash },
        Record::Working { done: 5, total: 1 << 40 },
        Record::Comparing { done: 1 << 33, total: 1 << 40 },
        Record::Plan(vec![
            (1, Have { is_in_place: true, is_other: false, is_untold: false, is_newer: true, length: 9, hash }),
            (4, Have { is_in_place: true, is_other: false, is_untold: true, is_newer: false, length: 1 << 40, hash }),
        ]),
        Record::PlanEnd,
        Record::Stored(vec![0, 100, 100_000]),
        Record::Failed { index: 2, refusal: Refusal::Hash, message: "no".into() },
        Record::Refused { refusal: Refusal::Busy, path: b"p".to_vec(), message: "no".into() },
        Record::Done { files: 1, bytes: 2, deleted: 3, digest: hash },
        Record::Offer {
            version: 1,
            layout: Layout::new(5_000_000, 1344, 1024, 16, 5).unwrap(),
            root: Root([7; 32]),
            about: Bytes::from_static(b"about"),
            tree: None,
        },
        Record::Offer {
            version: OFFER_BY_TREE,
            layout: Layout::new(5_000_000, 1344, 1024, 16, 5).unwrap(),
            root: Root([7; 32]),
            about: Bytes::from_static(b"about"),
            tree: Some(OfferTree { key: [9; 32], number: 0xfeed_f00d }),
        },
        Record::Branch(Bytes::from_static(b"branch")),
        Record::Lost { members: vec![0, 300, 1 << 40], message: "no route".into() },
        Record::Leaves(vec![[1; 32], [2; 32]]),
        Record::Status(Bytes::from_static(b"status")),
    ]
}

/// Altered records from a fixed seed, `RANDOM_INPUTS` of them: a fuzz test that `cargo test` runs, without coverage.
#[test]
fn altered_records_are_read_or_refused_and_mean_the_same_when_written_again() {
    let rounds = std::env::var("RANDOM_INPUTS").map_or(2_000, |n| n.parse().unwrap());
    let bodies: Vec<Vec<u8>> = samples()
        .iter()
        .map(|record| {
            let mut bytes = Vec::new();
            record.emit(&mut bytes);
            bytes
        })
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n.max(1)
    };
    let mut read = 0;
    for _ in 0..rounds {
        let mut bytes = bodies[below(bodies.len())].clone();
        for _ in 0..below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = below(bytes.len());
            match below(4) {
                0 => bytes[at] = [0, 1, 0x3f, 0x7f, 0x80, 0xff][below(6)],
                1 => bytes[at] ^= 1 << below(8),
                2 => bytes.insert(at, below(256) as u8),
                _ => drop(bytes.remove(at)),
            }
        }
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(record)) = split(&mut buffer) {
            read += 1;
            let mut again = Vec::new();
            record.emit(&mut again);
            // A list without entries says nothing, and needs no record.
            if again.is_empty() {
                continue;
            }
            assert_eq!(split(&mut BytesMut::from(&again[..])), Ok(Some(record)));
        }
    }
    assert!(read > rounds / 4, "most are still records: {read}");
}

#[test]
fn every_record_survives_its_bytes_however_they_arrive() {
    let mut bytes = Vec::new();
    for record in samples() {
        record.emit(&mut bytes);
        // P1: what a later version adds is passed over.
        put(&mut bytes, 0x71, |b| b.extend_from_slice(b"later"));
    }
    for step in [1, 7, bytes.len()] {
        let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
        for part in bytes.chunks(step) {
            buffer.extend_from_slice(part);
            while let Some(record) = split(&mut buffer).unwrap() {
                found.push(record);
            }
        }
        assert_eq!(found, samples());
        assert!(buffer.is_empty());
    }
}

#[test]
fn damaged_records_are_errors_and_never_panics() {
    for record in samples() {
        let mut bytes = Vec::new();
        record.emit(&mut bytes);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let mut buffer = BytesMut::from(&damaged[..]);
                while let Ok(Some(_)) = split(&mut buffer) {}
            }
        }
    }
    let mut long = BytesMut::from(&[0x12, 0xbf, 0xff, 0xff, 0xff][..]);
    assert!(split(&mut long).unwrap_err().to_string().contains("at most 1048576"));
}

#[test]
fn record_of_more_entries_than_any_sender_puts_into_one_is_refused() {
    let entries = vec![entry(b"d", Kind::Dir, 0); MAX_PART + 1];
    let mut bytes = Vec::new();
    Record::Entries(entries).emit(&mut bytes);
    assert!(matches!(split(&mut BytesMut::from(&bytes[..])), Ok(Some(Record::Entries(part))) if part.len() <= MAX_PART / 2));
    let mut body = vec![1, 0, 1, b'd', 0, 0, 0];
    body.extend([1, 1, 0, 0, 0, 0].repeat(MAX_PART));
    bytes.clear();
    put(&mut bytes, kind::ENTRIES, |b| b.extend_from_slice(&body));
    assert!(split(&mut BytesMut::from(&bytes[..])).unwrap_err().to_string().contains("entries"));
}

#[test]
fn a_manifest_of_similar_names_is_short_and_any_number_of_entries_fits() {
    let entries: Vec<Entry> = (0..100_000).map(|i| entry(format!("some/directory/file-{i:06}").as_bytes(), Kind::File(1024), 7)).collect();
    let mut bytes = Vec::new();
    Record::Entries(entries.clone()).emit(&mut bytes);
    assert!(bytes.len() < 18 * entries.len(), "{}", bytes.len() / entries.len());
    let (mut buffer, mut found) = (BytesMut::from(&bytes[..]), Vec::new());
    while let Some(Record::Entries(part)) = split(&mut buffer).unwrap() {
        found.extend(part);
    }
    assert!(found == entries);
}
