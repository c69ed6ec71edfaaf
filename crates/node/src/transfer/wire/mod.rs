//! The records of a transfer: type, length and body, all integers varints. `docs/spec/transfer.md`.

mod parts;
mod reader;
mod request;

pub use parts::emit_entries;
pub use reader::{RecordError, Records, split};
pub use request::{MAX_PATHS, Request};

use super::attributes::Attributes;
use super::entry::{Entry, MAX_NAME};
use super::filter::Rule;
use blake3::Hash;
use bytes::Bytes;
use noctule_proto::object::{Digest, Layout, Root};
use noctule_proto::wire::WireError;
use noctule_proto::wire::varint::{Reader, emit, emit_prefixed};
use thiserror::Error;

/// Version of this format.
pub const VERSION: u64 = 5;
/// Longest body of a record in bytes.
pub const MAX_RECORD: usize = 1 << 20;
/// A record of many parts is closed at this size.
const PART: usize = 64 * 1024;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u64,
    /// Only the plan is wanted; nothing may be written.
    pub is_dry: bool,
    /// Files that are newer at the receiver are to be left as they are.
    pub is_update: bool,
    /// What the receiver has besides, in the directories of the manifest, is to be deleted.
    pub deletes: bool,
    /// The manifest lists all that was asked for: nothing was unreadable or is of a kind that is not sent.
    pub is_complete: bool,
    /// Entries of the manifest.
    pub entries: u64,
    /// Bytes of all contents.
    pub bytes: u64,
    /// Bytes that they take on disk where holes take none.
    pub stored: u64,
    /// Data streams that the sender opens.
    pub streams: u64,
    /// Rules by which the sender left entries out: what they match is not deleted either.
    pub rules: u64,
    /// Entries with attributes.
    pub attributes: u64,
    /// Entries that should be there and cannot be sent.
    pub unlisted: u64,
}

/// What the receiver has of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Have {
    /// Under its own name: whole as far as size and time tell.
    pub is_in_place: bool,
    /// Something else has the name (told in dry runs only; otherwise it is refused or will be replaced).
    pub is_other: bool,
    /// It is newer than what would be sent, and stays as it is: nothing is sent.
    pub is_newer: bool,
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
    /// Cannot be read at the sender, or is not there.
    Source = 8,
}

impl Refusal {
    fn from_u8(n: u8) -> Self {
        [Self::Name, Self::Exists, Self::DiskFull, Self::Target, Self::Hash, Self::Protocol, Self::NotAllowed, Self::Busy, Self::Source]
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
    /// Sender: rules by which entries were left out, in their order.
    Rules(Vec<Rule>),
    /// Sender: attributes of entries, by their index.
    Attributes(Vec<(u64, Attributes)>),
    /// Sender: names of entries that cannot be sent, and why.
    Unlisted(Vec<(Vec<u8>, String)>),
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
        /// Files, directories and links that were deleted.
        deleted: u64,
        /// See [`digest`](super::entry::digest); of an object its root hash.
        digest: Hash,
    },
    /// Receiver: what it deletes, or would delete in a dry run.
    Deleted(Vec<Vec<u8>>),
    /// Receiver, before everything: what it wants to be sent.
    Request(Request),
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
    pub const RULES: u64 = 0x04;
    pub const ATTRIBUTES: u64 = 0x06;
    pub const UNLISTED: u64 = 0x08;
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
    pub const DELETED: u64 = 0x2c;
    pub const COMPARING: u64 = 0x2d;
    pub const OFFER: u64 = 0x30;
    pub const LEAVES: u64 = 0x32;
    pub const STATUS: u64 = 0x34;
    pub const BRANCH: u64 = 0x36;
    pub const LOST: u64 = 0x38;
    pub const REQUEST: u64 = 0x40;
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
    /// It alone.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.emit(&mut out);
        out
    }

    /// Appends it to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(h) => put(out, kind::HELLO, |b| {
                let flags = [h.is_dry, h.is_update, h.deletes, h.is_complete];
                let flags = (0..).zip(flags).map(|(bit, is_set)| u64::from(is_set) << bit).sum();
                for n in [h.version, flags, h.entries, h.bytes, h.stored, h.streams, h.rules, h.attributes, h.unlisted] {
                    emit(b, n);
                }
            }),
            Self::Entries(entries) => emit_entries(out, entries),
            Self::Rules(rules) => put(out, kind::RULES, |b| parts::emit_rules(b, rules)),
            Self::Attributes(all) => parts::emit_attributes(out, all),
            Self::Unlisted(all) => parts::emit_unlisted(out, all),
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
            Self::Plan(plan) => parts::emit_plan(out, plan),
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
            Self::Deleted(names) => parts::emit_names(out, names),
            Self::Request(request) => put(out, kind::REQUEST, |b| request.emit(b)),
            Self::Done { files, bytes, deleted, digest } => put(out, kind::DONE, |b| {
                [*files, *bytes, *deleted].iter().for_each(|n| emit(b, *n));
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
                    return Ok(Some(Self::Hello(Hello { version, ..Hello::default() })));
                }
                let flags = r.varint()?;
                let [is_dry, is_update, deletes, is_complete] = [1, 2, 4, 8].map(|bit| flags & bit != 0);
                let [entries, bytes, stored, streams] = [r.varint()?, r.varint()?, r.varint()?, r.varint()?];
                let [rules, attributes, unlisted] = [r.varint()?, r.varint()?, r.varint()?];
                let flags = Hello { version, is_dry, is_update, deletes, is_complete, ..Hello::default() };
                Self::Hello(Hello { entries, bytes, stored, streams, rules, attributes, unlisted, ..flags })
            }
            kind::ENTRIES => Self::Entries(parts::parse_entries(&mut r)?),
            kind::RULES => Self::Rules(parts::parse_rules(&mut r)?),
            kind::ATTRIBUTES => Self::Attributes(parts::parse_attributes(&mut r)?),
            kind::UNLISTED => Self::Unlisted(parts::parse_unlisted(&mut r)?),
            kind::DELETED => Self::Deleted(parts::parse_names(&mut r)?),
            kind::REQUEST => Self::Request(Request::parse(&mut r)?),
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
            kind::PLAN => Self::Plan(parts::parse_plan(&mut r)?),
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
            kind::DONE => {
                let [files, bytes, deleted] = [r.varint()?, r.varint()?, r.varint()?];
                Self::Done { files, bytes, deleted, digest: Hash::from_bytes(r.array()?) }
            }
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

#[cfg(test)]
mod tests;
