//! The manifest at the receiver: read within limits, and what it takes of memory accounted for.

use super::entries::Entries;
use super::receive::{Stop, gone};
use super::shares::Place;
use super::wire::{Hello, MAX_STREAMS, Record, Records, VERSION};
use super::writer::protocol;
use blake3::{Hash, Hasher};

/// A manifest that has come.
pub struct Manifest {
    /// What was said first.
    pub hello: Hello,
    /// In the order of their indexes.
    pub entries: Entries,
    /// Names this transfer: the same manifest again is the same transfer again.
    pub id: Hash,
    /// What the transfer takes of the receiver.
    pub place: Place,
}

/// A manifest as far as it has come.
pub struct Coming {
    hello: Hello,
    entries: Entries,
    bytes: Option<u64>,
    hasher: Hasher,
    place: Place,
}

impl Coming {
    /// After this greeting.
    pub fn new(hello: Hello, place: Place) -> Result<Self, Stop> {
        let most = place.limits().entries;
        if hello.version != VERSION {
            return Err(protocol(&format!("version {} of the transfer; this side speaks version {VERSION}", hello.version)).into());
        }
        if hello.entries > most || !(1..=MAX_STREAMS).contains(&hello.streams) {
            let text = format!(
                "{} entries over {} streams; this side takes {most} entries (--max-entries) over 1 to {MAX_STREAMS} streams",
                hello.entries, hello.streams
            );
            return Err(protocol(&text).into());
        }
        Ok(Self { hello, entries: Entries::default(), bytes: Some(0), hasher: Hasher::new(), place })
    }

    /// The next record of it.
    pub fn take(&mut self, record: Record) -> Result<(), Stop> {
        let Record::Entries(part) = record else { return Err(protocol("a part of the manifest is missing").into()) };
        if part.is_empty() {
            return Err(protocol("a part of the manifest is empty").into());
        }
        for entry in &part {
            self.bytes = self.bytes.and_then(|b| b.checked_add(entry.size()));
            self.hasher.update(entry.content_id().as_bytes());
            if !self.entries.push(entry) {
                return Err(protocol("the names of the manifest take too much memory").into());
            }
        }
        Ok(self.place.hold(self.entries.memory())?)
    }

    /// All entries are here.
    pub fn is_complete(&self) -> bool {
        self.entries.len() as u64 >= self.hello.entries
    }

    /// The whole.
    pub fn end(self) -> Result<Manifest, Stop> {
        let Self { hello, entries, bytes, hasher, place } = self;
        if entries.len() as u64 != hello.entries || bytes != Some(hello.bytes) {
            return Err(protocol("the manifest contradicts its greeting").into());
        }
        Ok(Manifest { hello, entries, id: hasher.finalize(), place })
    }
}

/// Reads greeting and manifest.
pub async fn manifest(control: &mut Records, place: Place) -> Result<Manifest, Stop> {
    let Some(Record::Hello(hello)) = control.next().await? else {
        return Err(protocol("the transfer does not begin with a greeting").into());
    };
    let mut coming = Coming::new(hello, place)?;
    while !coming.is_complete() {
        coming.take(control.next().await?.ok_or_else(gone)?)?;
    }
    coming.end()
}
