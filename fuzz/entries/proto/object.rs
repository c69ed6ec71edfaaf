//! A receiver of an object among packets of its sender, altered ones and inventions, with jobs done late: nothing panics, memory keeps within what was
//! given, and no block is handed over that is not the sender's. Layouts, statuses and announcements of any bytes are read or refused.

use super::Input;
use noctule_proto::crypto::{Addressed, SecretKey};
use noctule_proto::object::one_way::Announcement;
use noctule_proto::object::{BlockJob, HashTree, Layout, Receiver, Root, SourceBlock, Status, leaf};
use noctule_proto::wire::varint::Reader;

const SIZE: usize = 6_000;
/// Blocks held at a time.
const HELD: usize = 2;

/// Sizes that read back as they were written.
fn parsers(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Ok(layout) = Layout::parse(&mut Reader::new(bytes)) {
        layout.emit(&mut out);
        assert_eq!(Layout::parse(&mut Reader::new(&out)), Ok(layout));
        assert!(layout.blocks() == 0 || layout.range(layout.blocks() - 1).end == layout.size());
        if let Ok(status) = Status::parse(&mut Reader::new(bytes), &layout) {
            out.clear();
            status.emit(&mut out);
            assert_eq!(Status::parse(&mut Reader::new(&out), &layout), Ok(status));
        }
    }
    let secret = SecretKey::from_bytes([3; 32]);
    let _ = Announcement::open(bytes, &Addressed::to(&secret.public()), &secret, None);
}

pub fn run(data: &[u8]) {
    parsers(data);
    let mut input = Input::new(data);
    let content: Vec<u8> = (0..SIZE).map(|i| (i * 7 % 251) as u8).collect();
    let layout = Layout::new(SIZE as u64, 50, 20, 8, 100).expect("a layout that is permitted");
    let block = |b: u32| content[layout.range(b).start as usize..layout.range(b).end as usize].to_vec();
    let tree = HashTree::new((0..layout.blocks()).map(|b| leaf(&block(b))).collect());
    let root = Root::of(&layout, b"about", &tree.top()).expect("it is short");
    let mut receiver = Receiver::new(layout, b"about", root, layout.block_bytes() * HELD).expect("its root");
    if input.u8() & 1 == 0 {
        receiver.set_leaves(tree.leaves().to_vec()).expect("its leaves");
    }
    let mut jobs: Vec<BlockJob> = Vec::new();
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        let (what, which) = (input.u8(), u32::from(input.u8()) % layout.blocks());
        let mut packet = Vec::new();
        match what % 8 {
            0 => packet.extend_from_slice(input.bytes()),
            1 => noctule_proto::object::Packet::emit_proof(&mut packet, which, &tree.leaves()[which as usize], &tree.path(which)),
            2 => {
                if let Some(job) = jobs.pop() {
                    receiver.on_result(job.run());
                }
            }
            _ => {
                let number = u32::from(input.u8());
                let mut source = SourceBlock::new(layout, which, block(which), &tree.leaves()[which as usize]).expect("its own");
                source.write(number, &mut packet);
                if what >= 240 {
                    let at = usize::from(input.u8()) % packet.len();
                    packet[at] ^= input.u8();
                }
            }
        }
        receiver.offer(&packet);
        while let Some(job) = receiver.poll_job() {
            jobs.push(job);
        }
        assert!(jobs.len() <= HELD + 1, "one job for each block that is held");
        while let Some((number, got)) = receiver.poll_block() {
            assert!(got == block(number), "block {number} is the sender's");
        }
        let _ = receiver.status();
    }
}
