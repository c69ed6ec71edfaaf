//! What a receiver asks for: REQUEST, the first record of `noctule get`.

use super::super::entry::MAX_NAME;
use super::super::filter::Rule;
use super::parts::{emit_rules, parse_rules};
use super::{MAX_STREAMS, Malformed, VERSION, malformed};
use noctule_proto::wire::varint::{Reader, emit, emit_prefixed};

/// Names of a request, at most.
pub const MAX_PATHS: usize = 1000;

/// What is wanted of a served directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// [`VERSION`].
    pub version: u64,
    /// Only a list, or only the plan: no content.
    pub is_dry: bool,
    /// Only what is named, and what lies directly in it.
    pub is_shallow: bool,
    /// Nothing may be sent before the plan has come.
    pub is_update: bool,
    /// Attributes and ACLs are wanted.
    pub has_attributes: bool,
    /// One file is wanted, as a rateless object.
    pub is_object: bool,
    /// Data streams, at most.
    pub streams: u64,
    /// Contents no faster than this, bytes per second; 0: as fast as it goes.
    pub limit: u64,
    /// Names below the served directory, patterns among them; none: all that it holds.
    pub paths: Vec<Vec<u8>>,
    /// What is left out of it.
    pub rules: Vec<Rule>,
}

impl Request {
    /// Appends its body.
    pub fn emit(&self, b: &mut Vec<u8>) {
        let flags = [self.is_dry, self.is_shallow, self.is_update, self.has_attributes, self.is_object];
        let flags = (0..).zip(flags).map(|(bit, is_set)| u64::from(is_set) << bit).sum();
        for n in [self.version, flags, self.streams, self.limit, self.paths.len() as u64] {
            emit(b, n);
        }
        self.paths.iter().for_each(|path| emit_prefixed(b, path));
        let mut rules = Vec::new();
        emit_rules(&mut rules, &self.rules);
        emit_prefixed(b, &rules);
    }

    /// Reads a body.
    pub fn parse(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = r.varint()?;
        // The rest of another version is not ours to read.
        if version != VERSION {
            return Ok(Self { version, ..Self::default() });
        }
        let (flags, streams, limit, count) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
        let [is_dry, is_shallow, is_update, has_attributes, is_object] = [1, 2, 4, 8, 16].map(|bit| flags & bit != 0);
        if count > MAX_PATHS as u64 || !(1..=MAX_STREAMS).contains(&streams) {
            return malformed(format!(
                "{count} names over {streams} streams are asked for; at most {MAX_PATHS} over {MAX_STREAMS} are taken"
            ));
        }
        let mut paths = Vec::new();
        for _ in 0..count {
            match r.prefixed()? {
                path if path.len() <= MAX_NAME => paths.push(path.to_vec()),
                path => return malformed(format!("a name of {} bytes", path.len())),
            }
        }
        let rules = parse_rules(&mut Reader::new(r.prefixed()?))?;
        Ok(Self { version, is_dry, is_shallow, is_update, has_attributes, is_object, streams, limit, paths, rules })
    }
}
