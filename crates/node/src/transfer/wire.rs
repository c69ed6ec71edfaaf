//! The records of a transfer: type, length and body, all integers varints. `docs/spec/transfer.md`.

use super::entry::{Entry, Kind, MAX_NAME, Mtime};
use crate::failure::Failure;
use blake3::Hash;
use bytes::{Buf, Bytes, BytesMut};
use noctule::{FlowError, RecvStream};
use noctule_proto::object::{Digest, Layout, Root};
use noctule_proto::wire::WireError;
use noctule_proto::wire::varint::{Reader, emit, emit_prefixed};
use std::time::Duration;
use thiserror::Error;

/// Version of this format.
pub const VERSION: u64 = 3;
/// Longest body of a record in bytes.
pub const MAX_RECORD: usize = 1 << 20;
/// A record of many parts is closed at this size.
const PART: usize = 64 * 1024;
/// Bytes of names after which a record of entries is closed: what is left out for being shared must not make a short record take much memory.
const NAMES: usize = 1 << 20;
/// Entries of a record at most: none of the sender's has half as many.
const MAX_PART: usize = 16_384;
/// Data streams of a transfer at most.
pub const MAX_STREAMS: u64 = 64;

/// What cannot be read.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("a record cannot be read: {0}")]
pub struct Malformed(pub String);

impl From<WireError> for Malformed {
    fn from(e: WireError) -> Self {
        Self(e.to_string())
    }
}

fn malformed<T>(text: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(text.into()))
}

/// First record of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u64,
    /// Only the plan is wanted; nothing may be written.
    pub is_dry: bool,
    /// Entries of the manifest.
    pub entries: u64,
    /// Bytes of all contents.
    pub bytes: u64,
    /// Bytes that they take on disk where holes take none.
    pub stored: u64,
    /// Data streams that the sender opens.
    pub streams: u64,
}

/// What the receiver has of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Have {
    /// Under its own name: whole as far as size and time tell.
    pub is_in_place: bool,
    /// Something else has the name (told in dry runs only; otherwise it is refused or will be replaced).
    pub is_other: bool,
    /// The hash is not told, because the file is not this sender's to know: the sender says the hash of its own, and hears whether it is the same.
    pub is_untold: bool,
    /// Bytes from the beginning.
    pub length: u64,
    /// BLAKE3 of those.
    pub hash: Hash,
}

/// What the receiver has of some entries, by their index.
pub type Plan = Vec<(u64, Have)>;

/// Why a receiver refuses an entry or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// A name, or a link that leads out.
    Name = 0,
    /// Exists already.
    Exists = 1,
    /// Disk full.
    DiskFull = 2,
    /// Cannot be written.
    Target = 3,
    /// Hash or content.
    Hash = 4,
    /// Not this protocol.
    Protocol = 5,
    /// This key may not write here.
    NotAllowed = 6,
    /// Busy with another transfer.
    Busy = 7,
}

impl Refusal {
    fn from_u8(n: u8) -> Self {
        [Self::Name, Self::Exists, Self::DiskFull, Self::Target, Self::Hash, Self::Protocol, Self::NotAllowed, Self::Busy]
            .into_iter()
            .find(|r| *r as u8 == n)
            .unwrap_or(Self::Protocol)
    }
}

/// Any record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Sender: first.
    Hello(Hello),
    /// Sender: part of the manifest.
    Entries(Vec<Entry>),
    /// Sender: content of an entry follows, from this offset on.
    File {
        /// Index in the manifest.
        index: u64,
        /// Bytes that the receiver has already.
        offset: u64,
    },
    /// Sender: content.
    Data(Bytes),
    /// Sender: so many zeros.
    Hole(u64),
    /// Sender: the content is complete.
    End {
        /// BLAKE3 of the whole content.
        hash: Hash,
        /// It could not be read, or changed; empty: all is well.
        problem: String,
    },
    /// Sender: a whole file.
    Small {
        /// Index in the manifest.
        index: u64,
        /// BLAKE3 of the content.
        hash: Hash,
        /// The content.
        content: Bytes,
    },
    /// Sender: what the receiver has in place is what would be sent, if it has this hash.
    Same {
        /// Index in the manifest.
        index: u64,
        /// BLAKE3 of what would be sent.
        hash: Hash,
    },
    /// Sender: it compares what it has with what the receiver has, or waits for its input; so many bytes of so many are done.
    Working {
        /// Bytes.
        done: u64,
        /// Of so many; 0: it waits for its input.
        total: u64,
    },
    /// Receiver: so many bytes of what is there have been compared, of so many.
    Comparing {
        /// Bytes.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// Receiver: what it has of some entries.
    Plan(Plan),
    /// Receiver: that was the whole plan.
    PlanEnd,
    /// Receiver: these entries are in place and verified.
    Stored(Vec<u64>),
    /// Receiver: this entry is not there; the transfer goes on.
    Failed {
        /// Index in the manifest.
        index: u64,
        /// Kind of reason.
        refusal: Refusal,
        /// In words.
        message: String,
    },
    /// Receiver: the transfer ends.
    Refused {
        /// Kind of reason.
        refusal: Refusal,
        /// Name concerned.
        path: Vec<u8>,
        /// In words.
        message: String,
    },
    /// Receiver: everything is on disk.
    Done {
        /// Files in place.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// See [`digest`](super::entry::digest); of an object its root hash.
        digest: Hash,
    },
    /// Sender of an object: first (`docs/spec/object.md`).
    Offer {
        /// Of what is said about objects.
        version: u64,
        /// Its cut.
        layout: Layout,
        /// Its root hash.
        root: Root,
        /// What it is: an ENTRIES record of one file.
        about: Bytes,
        /// It may come down a tree of nodes (version 2).
        tree: Option<OfferTree>,
    },
    /// Sender of an object: hashes of its blocks.
    Leaves(Vec<Digest>),
    /// Receiver of an object: how far it is.
    Status(Bytes),
    /// Source of an object, to a neighbour: pass it on ([`crate::tree::Branch`]).
    Branch(Bytes),
    /// Neighbour: these receivers are not reached through it, or not any more.
    Lost {
        /// As the source numbers them.
        members: Vec<u64>,
        /// Why, in words.
        message: String,
    },
}

/// What a receiver needs to know of an object that comes down a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferTree {
    /// Key of its packets.
    pub key: [u8; 32],
    /// Number of its branches.
    pub number: u32,
}

/// Version of an offer whose object may come down a tree.
pub const OFFER_BY_TREE: u64 = 2;

mod kind {
    pub const HELLO: u64 = 0x00;
    pub const ENTRIES: u64 = 0x02;
    pub const WORKING: u64 = 0x05;
    pub const FILE: u64 = 0x10;
    pub const DATA: u64 = 0x12;
    pub const HOLE: u64 = 0x14;
    pub const END: u64 = 0x16;
    pub const SMALL: u64 = 0x18;
    pub const SAME: u64 = 0x1a;
    pub const PLAN: u64 = 0x20;
    pub const PLAN_END: u64 = 0x22;
    pub const STORED: u64 = 0x24;
    pub const FAILED: u64 = 0x26;
    pub const REFUSED: u64 = 0x28;
    pub const DONE: u64 = 0x2a;
    pub const COMPARING: u64 = 0x2d;
    pub const OFFER: u64 = 0x30;
    pub const LEAVES: u64 = 0x32;
    pub const STATUS: u64 = 0x34;
    pub const BRANCH: u64 = 0x36;
    pub const LOST: u64 = 0x38;
}

/// Appends a record whose body `fill` writes.
fn put(out: &mut Vec<u8>, kind: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    emit(out, kind);
    emit_prefixed(out, &body);
}

/// Bytes of a DATA record in front of its content.
pub const DATA_HEADER: usize = 5;

/// The head of a DATA record, written in front of content that is there already: a length of four bytes, whatever it is.
pub fn data_header(length: usize) -> [u8; DATA_HEADER] {
    let [a, b, c, d] = (length as u32 | 0x8000_0000).to_be_bytes();
    [kind::DATA as u8, a, b, c, d]
}

impl Record {
    /// Appends it to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(h) => put(out, kind::HELLO, |b| {
                for n in [h.version, u64::from(h.is_dry), h.entries, h.bytes, h.stored, h.streams] {
                    emit(b, n);
                }
            }),
            Self::Entries(entries) => emit_entries(out, entries),
            Self::File { index, offset } => put(out, kind::FILE, |b| [*index, *offset].iter().for_each(|n| emit(b, *n))),
            Self::Data(content) => {
                out.extend_from_slice(&data_header(content.len()));
                out.extend_from_slice(content);
            }
            Self::Hole(length) => put(out, kind::HOLE, |b| emit(b, *length)),
            Self::End { hash, problem } => put(out, kind::END, |b| {
                b.extend_from_slice(hash.as_bytes());
                emit_prefixed(b, problem.as_bytes());
            }),
            Self::Small { index, hash, content } => put(out, kind::SMALL, |b| {
                emit(b, *index);
                b.extend_from_slice(hash.as_bytes());
                b.extend_from_slice(content);
            }),
            Self::Same { index, hash } => put(out, kind::SAME, |b| {
                emit(b, *index);
                b.extend_from_slice(hash.as_bytes());
            }),
            Self::Working { done, total } => put(out, kind::WORKING, |b| [*done, *total].iter().for_each(|n| emit(b, *n))),
            Self::Comparing { done, total } => put(out, kind::COMPARING, |b| [*done, *total].iter().for_each(|n| emit(b, *n))),
            Self::Plan(plan) => emit_plan(out, plan),
            Self::PlanEnd => put(out, kind::PLAN_END, |_| {}),
            Self::Stored(indexes) => {
                for part in indexes.chunks(PART / 8) {
                    put(out, kind::STORED, |b| part.iter().for_each(|n| emit(b, *n)));
                }
            }
            Self::Failed { index, refusal, message } => put(out, kind::FAILED, |b| {
                emit(b, *index);
                b.push(*refusal as u8);
                emit_prefixed(b, message.as_bytes());
            }),
            Self::Refused { refusal, path, message } => put(out, kind::REFUSED, |b| {
                b.push(*refusal as u8);
                emit_prefixed(b, path);
                emit_prefixed(b, message.as_bytes());
            }),
            Self::Done { files, bytes, digest } => put(out, kind::DONE, |b| {
                emit(b, *files);
                emit(b, *bytes);
                b.extend_from_slice(digest.as_bytes());
            }),
            Self::Offer { version, layout, root, about, tree } => put(out, kind::OFFER, |b| {
                emit(b, *version);
                layout.emit(b);
                b.extend_from_slice(&root.0);
                emit_prefixed(b, about);
                if let Some(tree) = tree {
                    b.extend_from_slice(&tree.key);
                    b.extend_from_slice(&tree.number.to_be_bytes());
                }
            }),
            Self::Leaves(leaves) => {
                for part in leaves.chunks(PART / 32) {
                    put(out, kind::LEAVES, |b| part.iter().for_each(|leaf| b.extend_from_slice(leaf)));
                }
            }
            Self::Status(status) => put(out, kind::STATUS, |b| b.extend_from_slice(status)),
            Self::Branch(branch) => put(out, kind::BRANCH, |b| b.extend_from_slice(branch)),
            Self::Lost { members, message } => put(out, kind::LOST, |b| {
                emit_prefixed(b, message.as_bytes());
                members.iter().for_each(|n| emit(b, *n));
            }),
        }
    }

    /// Reads a body; `None`: an unknown type that may be skipped. Bytes behind what is known are left for later versions.
    pub fn parse(kind: u64, body: Bytes) -> Result<Option<Self>, Malformed> {
        let mut r = Reader::new(&body);
        Ok(Some(match kind {
            kind::HELLO => {
                let version = r.varint()?;
                // The rest of another version is not ours to read.
                if version != VERSION {
                    return Ok(Some(Self::Hello(Hello { version, is_dry: false, entries: 0, bytes: 0, stored: 0, streams: 0 })));
                }
                let flags = r.varint()?;
                let [entries, bytes, stored, streams] = [r.varint()?, r.varint()?, r.varint()?, r.varint()?];
                Self::Hello(Hello { version, is_dry: flags & 1 != 0, entries, bytes, stored, streams })
            }
            kind::ENTRIES => Self::Entries(parse_entries(&mut r)?),
            kind::FILE => Self::File { index: r.varint()?, offset: r.varint()? },
            kind::DATA => Self::Data(body),
            kind::HOLE => Self::Hole(r.varint()?),
            kind::END => Self::End { hash: Hash::from_bytes(r.array()?), problem: text(r.prefixed()?) },
            kind::SMALL => {
                let (index, hash) = (r.varint()?, Hash::from_bytes(r.array()?));
                let at = body.len() - r.rest().len();
                Self::Small { index, hash, content: body.slice(at..) }
            }
            kind::SAME => Self::Same { index: r.varint()?, hash: Hash::from_bytes(r.array()?) },
            kind::WORKING => Self::Working { done: r.varint()?, total: r.varint()? },
            kind::COMPARING => Self::Comparing { done: r.varint()?, total: r.varint()? },
            kind::PLAN => {
                let mut plan = Vec::new();
                while !r.is_empty() {
                    let (index, flags, length) = (r.varint()?, r.u8()?, r.varint()?);
                    let hash = Hash::from_bytes(r.array()?);
                    let [is_in_place, is_other, is_untold] = [1, 2, 4].map(|bit| flags & bit != 0);
                    plan.push((index, Have { is_in_place, is_other, is_untold, length, hash }));
                }
                Self::Plan(plan)
            }
            kind::PLAN_END => Self::PlanEnd,
            kind::STORED => {
                let mut indexes = Vec::new();
                while !r.is_empty() {
                    indexes.push(r.varint()?);
                }
                Self::Stored(indexes)
            }
            kind::FAILED => Self::Failed { index: r.varint()?, refusal: Refusal::from_u8(r.u8()?), message: text(r.prefixed()?) },
            kind::REFUSED => {
                Self::Refused { refusal: Refusal::from_u8(r.u8()?), path: r.prefixed()?.to_vec(), message: text(r.prefixed()?) }
            }
            kind::DONE => Self::Done { files: r.varint()?, bytes: r.varint()?, digest: Hash::from_bytes(r.array()?) },
            kind::OFFER => {
                let version = r.varint()?;
                let layout = Layout::parse(&mut r).map_err(|e| Malformed(e.to_string()))?;
                let (root, about) = (Root(r.array()?), Bytes::copy_from_slice(r.prefixed()?));
                let tree = match version {
                    OFFER_BY_TREE => Some(OfferTree { key: r.array()?, number: r.u32()? }),
                    _ => None,
                };
                Self::Offer { version, layout, root, about, tree }
            }
            kind::LEAVES => {
                let mut leaves = Vec::new();
                while !r.is_empty() {
                    leaves.push(r.array()?);
                }
                Self::Leaves(leaves)
            }
            kind::STATUS => Self::Status(body),
            kind::BRANCH => Self::Branch(body),
            kind::LOST => {
                let message = text(r.prefixed()?);
                let mut members = Vec::new();
                while !r.is_empty() {
                    members.push(r.varint()?);
                }
                Self::Lost { members, message }
            }
            unknown if unknown % 2 == 1 => return Ok(None),
            unknown => return malformed(format!("type {unknown:#x} is unknown, and not one that may be skipped")),
        }))
    }
}

/// Words of the other side, for a terminal.
fn text(bytes: &[u8]) -> String {
    super::entry::shown(&bytes[..bytes.len().min(MAX_NAME)])
}

/// As many ENTRIES records as it takes. A name is told by what it has in common with the one before it in its record.
fn emit_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    let mut at = 0;
    while at < entries.len() {
        put(out, kind::ENTRIES, |b| {
            let (mut before, mut names): (&[u8], usize) = (&[], 0);
            while at < entries.len() && b.len() < PART && names < NAMES {
                let entry = &entries[at];
                let shared = before.iter().zip(&entry.path).take_while(|(a, b)| a == b).count();
                b.push(match entry.kind {
                    Kind::File(_) => 0,
                    Kind::Dir => 1,
                    Kind::Link(_) => 2,
                    Kind::Stream => 3,
                });
                emit(b, shared as u64);
                emit_prefixed(b, &entry.path[shared..]);
                emit(b, u64::from(entry.mode));
                // Zigzag: times before 1970 stay short; 2^61 seconds on either side.
                let seconds = entry.mtime.seconds.clamp(-(1 << 60), 1 << 60);
                emit(b, ((seconds << 1) ^ (seconds >> 63)) as u64);
                emit(b, u64::from(entry.mtime.nanos));
                match &entry.kind {
                    Kind::File(size) => emit(b, *size),
                    Kind::Link(target) => emit_prefixed(b, target),
                    Kind::Dir | Kind::Stream => {}
                }
                before = &entry.path;
                names += before.len();
                at += 1;
            }
        });
    }
}

fn parse_entries(r: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let (mut entries, mut names): (Vec<Entry>, usize) = (Vec::new(), 0);
    while !r.is_empty() {
        let kind = r.u8()?;
        let shared = usize::try_from(r.varint()?).unwrap_or(usize::MAX);
        let rest = r.prefixed()?;
        let before = entries.last().map_or(&[][..], |e| &e.path);
        let Some(common) = before.get(..shared).filter(|c| c.len() + rest.len() <= MAX_NAME) else { return malformed("a name") };
        let path = [common, rest].concat();
        names += path.len();
        if names > NAMES + MAX_NAME {
            return malformed("it has too many long names");
        }
        let mode = r.varint()? as u32 & 0o777;
        let zigzag = r.varint()?;
        let nanos = u32::try_from(r.varint()?).ok().filter(|n| *n < 1_000_000_000);
        let Some(nanos) = nanos else { return malformed("nanoseconds of a time") };
        let mtime = Mtime { seconds: (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), nanos };
        let kind = match kind {
            0 => Kind::File(r.varint()?),
            1 => Kind::Dir,
            2 => Kind::Link(r.prefixed()?.to_vec()),
            3 => Kind::Stream,
            other => return malformed(format!("entries of kind {other} are unknown")),
        };
        if entries.len() == MAX_PART {
            return malformed(format!("it has more than {MAX_PART} entries"));
        }
        entries.push(Entry { path, kind, mode, mtime });
    }
    Ok(entries)
}

fn emit_plan(out: &mut Vec<u8>, plan: &[(u64, Have)]) {
    for part in plan.chunks(PART / 48) {
        put(out, kind::PLAN, |b| {
            for (index, have) in part {
                emit(b, *index);
                b.push(u8::from(have.is_in_place) | u8::from(have.is_other) << 1 | u8::from(have.is_untold) << 2);
                emit(b, have.length);
                b.extend_from_slice(have.hash.as_bytes());
            }
        });
    }
}

/// Takes a whole record from the front of `buffer`, if there is one; those of unknown optional types are passed over.
pub fn split(buffer: &mut BytesMut) -> Result<Option<Record>, Malformed> {
    loop {
        let mut r = Reader::new(buffer);
        let (Ok(kind), Ok(length)) = (r.varint(), r.varint()) else { return Ok(None) };
        let Some(length) = usize::try_from(length).ok().filter(|l| *l <= MAX_RECORD) else {
            return malformed(format!("it has {length} bytes, at most {MAX_RECORD} are allowed"));
        };
        if r.rest().len() < length {
            return Ok(None);
        }
        let head = buffer.len() - r.rest().len();
        buffer.advance(head);
        let body = buffer.split_to(length).freeze();
        if let Some(record) = Record::parse(kind, body)? {
            return Ok(Some(record));
        }
    }
}

/// Records of a stream, for tasks.
pub struct Records {
    stream: RecvStream,
    /// How long the other side may take for its next bytes.
    idle: Duration,
    buffer: BytesMut,
    chunks: Vec<Bytes>,
}

/// Why there is no record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The stream broke.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// It makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Nothing came for too long.
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
}

impl Records {
    /// Reads from the front of `stream`.
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, idle: Duration::MAX, buffer: BytesMut::new(), chunks: Vec::new() }
    }

    /// Bears silence of the other side for so long only from now on.
    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// The next record; `None` at the end of the stream. May be dropped and called again, as `select!` does.
    pub async fn next(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if let Some(record) = split(&mut self.buffer)? {
                return Ok(Some(record));
            }
            let read = tokio::time::timeout(self.idle, self.stream.read_chunks(&mut self.chunks, super::CHUNK)).await;
            if read.map_err(|_| RecordError::Idle(self.idle))?? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Ok(malformed("it ends half-way")?) };
            }
            self.chunks.drain(..).for_each(|c| self.buffer.extend_from_slice(&c));
        }
    }

    /// What a receiver says next to its sender; it has to say something. Dropping it loses nothing.
    pub async fn answer(&mut self) -> Result<Record, Failure> {
        match self.next().await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(Failure::PeerGone("it ended before it had verified everything".into())),
            Err(RecordError::Flow(e)) => Err(e.into()),
            Err(e) => Err(Failure::PeerGone(e.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[u8], kind: Kind, seconds: i64) -> Entry {
        Entry { path: path.to_vec(), kind, mode: 0o640, mtime: Mtime { seconds, nanos: 999_999_999 } }
    }

    fn samples() -> Vec<Record> {
        let hash = blake3::hash(b"x");
        vec![
            Record::Hello(Hello { version: VERSION, is_dry: true, entries: 3, bytes: 1 << 40, stored: 7, streams: 2 }),
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
                (1, Have { is_in_place: true, is_other: false, is_untold: false, length: 9, hash }),
                (4, Have { is_in_place: true, is_other: false, is_untold: true, length: 1 << 40, hash }),
            ]),
            Record::PlanEnd,
            Record::Stored(vec![0, 100, 100_000]),
            Record::Failed { index: 2, refusal: Refusal::Hash, message: "no".into() },
            Record::Refused { refusal: Refusal::Busy, path: b"p".to_vec(), message: "no".into() },
            Record::Done { files: 1, bytes: 2, digest: hash },
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

    /// What this program does not fuzz with coverage: altered records, the same each time (`RANDOM_INPUTS` times).
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
        let entries: Vec<Entry> =
            (0..100_000).map(|i| entry(format!("some/directory/file-{i:06}").as_bytes(), Kind::File(1024), 7)).collect();
        let mut bytes = Vec::new();
        Record::Entries(entries.clone()).emit(&mut bytes);
        assert!(bytes.len() < 18 * entries.len(), "{}", bytes.len() / entries.len());
        let (mut buffer, mut found) = (BytesMut::from(&bytes[..]), Vec::new());
        while let Some(Record::Entries(part)) = split(&mut buffer).unwrap() {
            found.extend(part);
        }
        assert!(found == entries);
    }
}
