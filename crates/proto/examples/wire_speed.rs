//! What the wire and the keys cost per packet, on one core: `cargo run --release -p noctule-proto --example wire_speed`
//!
//! Each figure is a median. Sealing is also given as a share of what the cipher alone takes.

use noctule_proto::crypto::{RawKey, ReceiveKeys, SendKeys, preferred_ciphers};
use noctule_proto::ids::{FlowLabel, PacketNumber, PathId, Seq};
use noctule_proto::units::{Duration, Time};
use noctule_proto::wire::ack::{self, AckHead};
use noctule_proto::wire::frame::{Coefficients, Frame};
use noctule_proto::wire::packet::{ConnectionId, Packet, ProtectedHeader, TAG_LEN};
use noctule_proto::wire::params::Cipher;
use noctule_proto::wire::{Frames, coded};
use std::hint::black_box;
use std::time::Instant;

const SYMBOL: usize = 1437;
const PATH: PathId = PathId(0);

/// Median of nanoseconds per call over short runs: most of them fit between two interruptions, so that a busy machine matters little.
fn measure(what: &str, mut call: impl FnMut(u64)) -> f64 {
    const CALLS: u64 = 50;
    let mut runs: Vec<f64> = (0..2001)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(&mut call);
            start.elapsed().as_nanos() as f64 / CALLS as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{what:<50} {:>8.1} ns", runs[runs.len() / 2]);
    runs[runs.len() / 2]
}

fn header(number: u64) -> ProtectedHeader {
    ProtectedHeader { generation: 0, connection_id: ConnectionId::new(&[1, 2, 3, 4]).expect("four bytes"), packet_number: number as u32 }
}

fn main() {
    let mut out = Vec::with_capacity(2048);
    let symbol = vec![7; SYMBOL];
    let data = |out: &mut Vec<u8>, number: u64| {
        header(number).emit(out);
        coded::emit_header(out, FlowLabel(1), Seq(number), 16, &Coefficients::Index(3));
    };
    measure("emit packet header and CODED header", |n| {
        out.clear();
        data(&mut out, n);
        black_box(&out);
    });
    out.extend_from_slice(&symbol);
    out.extend_from_slice(&[0; TAG_LEN]);
    let packet = out.clone();
    measure("parse packet header", |_| {
        let _ = black_box(Packet::parse(black_box(&packet), 4));
    });
    let payload = &packet[9..packet.len() - TAG_LEN];
    measure("parse CODED", |_| Frames::new(black_box(payload)).for_each(|f| drop(black_box(f))));

    // 660 packets: what P8 has in one ACK at 1 Gbit/s and one ACK per ms.
    for (what, lost_of_256) in [("20 %", 51), ("1 %", 3), ("no", 0)] {
        let words: Vec<u64> = (0..12u64)
            .map(|i| (0..64).fold(0, |w, j| w | u64::from((i * 64 + j).wrapping_mul(0x9e37_79b9) >> 13 & 255 >= lost_of_256) << j))
            .collect();
        let largest = 640 + u64::from(words[10].ilog2());
        let head = AckHead { path: PATH, largest: PacketNumber(largest), delay: Duration::from_micros(400), ecn: None };
        let word = |i: u64| words.get(i as usize).copied().unwrap_or(0);
        let mut bytes = Vec::with_capacity(1500);
        measure(&format!("emit ACK of 660 packets, {what} loss"), |_| {
            bytes.clear();
            ack::emit(&mut bytes, black_box(&head), word, PacketNumber(0), 1200);
        });
        measure(&format!("parse and walk it ({} bytes)", bytes.len()), |_| {
            for frame in Frames::new(black_box(&bytes)).flatten() {
                if let Frame::Ack(ack) = frame {
                    black_box(ack.ranges().map(|r| r.smallest.0).max());
                }
            }
        });
    }

    let mut ciphers = preferred_ciphers();
    ciphers.push(Cipher::Plaintext);
    for cipher in ciphers {
        let secret = RawKey::new([7; 32]);
        let (mut send, mut receive) = (SendKeys::new(secret.clone(), cipher, 20), ReceiveKeys::new(secret, cipher, 20, 0));
        let mut buffer = packet.clone();
        let job = send.seal_job(PATH, PacketNumber(0)).expect("a fresh key");
        let alone = measure(&format!("{cipher:?}: seal {} bytes", packet.len()), |_| drop(black_box(job.seal(&mut buffer, 9))));
        let whole = measure(&format!("{cipher:?}: header, key, copy, seal"), |n| {
            buffer.clear();
            data(&mut buffer, n);
            buffer.extend_from_slice(&symbol);
            buffer.extend_from_slice(&[0; TAG_LEN]);
            let sealed = send.seal_job(PATH, PacketNumber(n)).and_then(|job| job.seal(&mut buffer, 9));
            let _ = black_box(sealed);
        });
        println!("{:<50} {:>8.2} x", "  over sealing alone", whole / alone);
        let mut sealed = packet.clone();
        let _ = send.seal_job(PATH, PacketNumber(5)).and_then(|job| job.seal(&mut sealed, 9));
        measure(&format!("{cipher:?}: copy, header, key, open, CODED"), |_| {
            buffer.clear();
            buffer.extend_from_slice(&sealed);
            let _ = black_box(Packet::parse(&buffer, 4));
            let Some(job) = receive.open_job(Time::ZERO, PATH, PacketNumber(5)) else { return };
            let Ok(payload) = job.open(&mut buffer, 9) else { return };
            Frames::new(payload).for_each(|f| drop(black_box(f)));
            receive.on_opened(Time::ZERO, &job, Duration::from_millis(300));
        });
    }
}
