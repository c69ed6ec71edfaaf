//! The manifest at the receiver: read within limits, and what it takes of memory accounted for.

use super::attributes::Attributes;
use super::entries::Entries;
use super::filter::{Filter, MAX_RULES, Rule};
use super::receive::{Stop, gone};
use super::shares::Place;
use super::target::Refused;
use super::wire::{Hello, MAX_STREAMS, Record, Records, VERSION};
use super::writer::protocol;
use blake3::{Hash, Hasher};
use std::collections::HashMap;

/// Names of entries that cannot be sent, at most, that are kept to be shown.
const SHOWN: usize = 1000;
/// Bytes of memory that an attribute takes besides its name and value.
const PER_ATTRIBUTE: usize = 96;

/// A manifest that has come.
pub struct Manifest {
    /// What was said first.
    pub hello: Hello,
    /// In the order of their indexes.
    pub entries: Entries,
    /// Names this transfer: the same manifest again is the same transfer again.
    pub id: Hash,
    /// Attributes of entries that have any, by their index.
    pub attributes: HashMap<u64, Attributes>,
    /// What the sender left out on purpose is not deleted.
    pub filter: Filter,
    /// Entries that should be there and cannot be sent, the first of them.
    pub unlisted: Vec<(Vec<u8>, String)>,
    /// The manifest lists what the target directory itself is to hold. Set by the receiver, which knows what it asked for; the sender does not say it.
    pub is_root: bool,
    /// Bytes of memory that attributes take.
    pub beside: usize,
    /// What the transfer takes of the receiver.
    pub place: Place,
}

/// A manifest as far as it has come.
pub struct Coming {
    hello: Hello,
    entries: Entries,
    bytes: Option<u64>,
    hasher: Hasher,
    attributes: HashMap<u64, Attributes>,
    /// Bytes of memory that they take.
    beside: usize,
    rules: Vec<Rule>,
    unlisted: Vec<(Vec<u8>, String)>,
    /// Of these so many came.
    unlisted_came: u64,
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
        if hello.attributes > hello.entries || hello.rules > MAX_RULES as u64 {
            return Err(protocol("more attributes or rules than there can be").into());
        }
        Ok(Self {
            hello,
            entries: Entries::default(),
            bytes: Some(0),
            hasher: Hasher::new(),
            attributes: HashMap::new(),
            beside: 0,
            rules: Vec::new(),
            unlisted: Vec::new(),
            unlisted_came: 0,
            place,
        })
    }

    /// The next record of it.
    pub fn take(&mut self, record: Record) -> Result<(), Stop> {
        match record {
            Record::Entries(part) if !part.is_empty() => self.take_entries(&part)?,
            Record::Rules(part) if !part.is_empty() => self.rules.extend(part),
            Record::Attributes(part) if !part.is_empty() => {
                for (index, attributes) in part {
                    self.beside += attributes.bytes() + PER_ATTRIBUTE * (1 + attributes.0.len());
                    if index >= self.hello.entries || self.attributes.insert(index, attributes).is_some() {
                        return Err(protocol("attributes of an entry that there is not, or twice").into());
                    }
                }
            }
            Record::Unlisted(part) if !part.is_empty() => {
                self.unlisted_came += part.len() as u64;
                let room = SHOWN - self.unlisted.len();
                self.unlisted.extend(part.into_iter().take(room));
            }
            _ => return Err(protocol("a part of the manifest is missing, or empty").into()),
        }
        let Self { hello, attributes, rules, unlisted_came, .. } = self;
        if attributes.len() as u64 > hello.attributes || rules.len() as u64 > hello.rules || *unlisted_came > hello.unlisted {
            return Err(protocol("the manifest contradicts its greeting").into());
        }
        Ok(self.place.hold(self.entries.memory() + self.beside)?)
    }

    fn take_entries(&mut self, part: &[super::entry::Entry]) -> Result<(), Stop> {
        for entry in part {
            self.bytes = self.bytes.and_then(|b| b.checked_add(entry.size()));
            self.hasher.update(entry.content_id().as_bytes());
            if !self.entries.push(entry) {
                return Err(protocol("the names of the manifest take too much memory").into());
            }
        }
        Ok(())
    }

    /// All of it is here.
    pub fn is_complete(&self) -> bool {
        let Self { hello, entries, attributes, rules, unlisted_came, .. } = self;
        let came = [entries.len() as u64, attributes.len() as u64, rules.len() as u64, *unlisted_came];
        came.iter().zip([hello.entries, hello.attributes, hello.rules, hello.unlisted]).all(|(came, told)| *came >= told)
    }

    /// The whole.
    pub fn end(self) -> Result<Manifest, Stop> {
        let Self { hello, entries, bytes, hasher, attributes, beside, rules, unlisted, place, .. } = self;
        if entries.len() as u64 != hello.entries || bytes != Some(hello.bytes) {
            return Err(protocol("the manifest contradicts its greeting").into());
        }
        let filter = Filter::new(&rules).map_err(|why| protocol(&why))?;
        Ok(Manifest { hello, entries, id: hasher.finalize(), attributes, filter, unlisted, is_root: false, beside, place })
    }
}

/// Reads greeting and manifest; before it the sender may say that it is looking.
pub async fn manifest(control: &mut Records, place: Place) -> Result<Manifest, Stop> {
    let hello = loop {
        match control.next().await? {
            Some(Record::Working { .. }) => {}
            Some(Record::Hello(hello)) => break hello,
            Some(Record::Refused { refusal, path, message }) => return Err(Stop::Denied(Refused { refusal, path, message })),
            None => return Err(gone().into()),
            Some(_) => return Err(protocol("the transfer does not begin with a greeting").into()),
        }
    };
    let mut coming = Coming::new(hello, place)?;
    while !coming.is_complete() {
        coming.take(control.next().await?.ok_or_else(gone)?)?;
    }
    coming.end()
}
