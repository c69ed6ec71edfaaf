//! Bodies that are lists: entries, plans, rules, attributes, names.

use super::super::attributes::{Attributes, MAX_COUNT};
use super::super::entry::{Entry, Kind, MAX_NAME, Mtime, as_pattern};
use super::super::filter::{MAX_PATTERN, MAX_RULES, Rule};
use super::{Have, Malformed, PART, Plan, kind, malformed, put, text};
use blake3::Hash;
use noctule_proto::wire::varint::{Reader, emit, emit_prefixed};
use std::borrow::Borrow;

/// Bytes of names after which a record of entries is closed: what is left out for being shared must not make a short record take much memory.
const NAMES: usize = 1 << 20;
/// Entries of a record at most: none of the sender's has half as many.
pub const MAX_PART: usize = 16_384;

/// As many ENTRIES records as it takes. A name is told by what it has in common with the one before it in its record.
pub fn emit_entries<E: Borrow<Entry>>(out: &mut Vec<u8>, entries: &[E]) {
    let mut at = 0;
    while at < entries.len() {
        put(out, kind::ENTRIES, |b| {
            let (mut before, mut names): (&[u8], usize) = (&[], 0);
            while at < entries.len() && b.len() < PART && names < NAMES {
                let entry: &Entry = entries[at].borrow();
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

/// The entries of a record.
pub fn parse_entries(r: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
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

/// As many PLAN records as it takes.
pub fn emit_plan(out: &mut Vec<u8>, plan: &[(u64, Have)]) {
    for part in plan.chunks(PART / 48) {
        put(out, kind::PLAN, |b| {
            for (index, have) in part {
                emit(b, *index);
                b.push(
                    u8::from(have.is_in_place)
                        | u8::from(have.is_other) << 1
                        | u8::from(have.is_untold) << 2
                        | u8::from(have.is_newer) << 3,
                );
                emit(b, have.length);
                b.extend_from_slice(have.hash.as_bytes());
            }
        });
    }
}

/// What a PLAN record tells.
pub fn parse_plan(r: &mut Reader<'_>) -> Result<Plan, Malformed> {
    let mut plan = Vec::new();
    while !r.is_empty() {
        let (index, flags, length) = (r.varint()?, r.u8()?, r.varint()?);
        let hash = Hash::from_bytes(r.array()?);
        let [is_in_place, is_other, is_untold, is_newer] = [1, 2, 4, 8].map(|bit| flags & bit != 0);
        plan.push((index, Have { is_in_place, is_other, is_untold, is_newer, length, hash }));
    }
    Ok(plan)
}

/// Appends the rules in their order: one record has all of them.
pub fn emit_rules(b: &mut Vec<u8>, rules: &[Rule]) {
    for rule in rules {
        b.push(u8::from(rule.is_include));
        emit_prefixed(b, rule.pattern.as_bytes());
    }
}

/// Rules to the end of the body.
pub fn parse_rules(r: &mut Reader<'_>) -> Result<Vec<Rule>, Malformed> {
    let mut rules = Vec::new();
    while !r.is_empty() {
        let is_include = r.u8()? != 0;
        let pattern = as_pattern(r.prefixed()?).filter(|p| p.len() <= MAX_PATTERN && rules.len() < MAX_RULES);
        let Some(pattern) = pattern else { return malformed("a rule that is no text, is too long, or is one too many") };
        rules.push(Rule { is_include, pattern: pattern.to_owned() });
    }
    Ok(rules)
}

/// As many ATTRIBUTES records as it takes.
pub fn emit_attributes(out: &mut Vec<u8>, all: &[(u64, Attributes)]) {
    let mut rest = all;
    while !rest.is_empty() {
        put(out, kind::ATTRIBUTES, |b| {
            while let [(index, attributes), more @ ..] = rest
                && b.len() < PART
            {
                emit(b, *index);
                emit(b, attributes.0.len() as u64);
                for (name, value) in &attributes.0 {
                    emit_prefixed(b, name);
                    emit_prefixed(b, value);
                }
                rest = more;
            }
        });
    }
}

/// The attributes of a record.
pub fn parse_attributes(r: &mut Reader<'_>) -> Result<Vec<(u64, Attributes)>, Malformed> {
    let mut all = Vec::new();
    while !r.is_empty() {
        let (index, count) = (r.varint()?, r.varint()?);
        if count == 0 || count > MAX_COUNT as u64 {
            return malformed(format!("an entry with {count} attributes"));
        }
        let mut attributes = Attributes::default();
        for _ in 0..count {
            let name = r.prefixed()?.to_vec();
            attributes.0.push((name, r.prefixed()?.to_vec()));
        }
        if !attributes.is_sound() {
            return malformed("attributes of an entry are too many, too long, or named twice");
        }
        all.push((index, attributes));
    }
    Ok(all)
}

/// As many UNLISTED records as it takes.
pub fn emit_unlisted(out: &mut Vec<u8>, all: &[(Vec<u8>, String)]) {
    let mut rest = all;
    while !rest.is_empty() {
        put(out, kind::UNLISTED, |b| {
            while let [(name, why), more @ ..] = rest
                && b.len() < PART
            {
                emit_prefixed(b, name);
                emit_prefixed(b, why.as_bytes());
                rest = more;
            }
        });
    }
}

/// Names and reasons.
pub fn parse_unlisted(r: &mut Reader<'_>) -> Result<Vec<(Vec<u8>, String)>, Malformed> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push((name(r)?, text(r.prefixed()?)));
    }
    Ok(all)
}

/// As many DELETED records as it takes.
pub fn emit_names(out: &mut Vec<u8>, names: &[Vec<u8>]) {
    let mut rest = names;
    while !rest.is_empty() {
        put(out, kind::DELETED, |b| {
            while let [name, more @ ..] = rest
                && b.len() < PART
            {
                emit_prefixed(b, name);
                rest = more;
            }
        });
    }
}

/// Names to the end of the body.
pub fn parse_names(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut names = Vec::new();
    while !r.is_empty() {
        names.push(name(r)?);
    }
    Ok(names)
}

fn name(r: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    match r.prefixed()? {
        name if name.len() <= MAX_NAME => Ok(name.to_vec()),
        name => malformed(format!("a name of {} bytes", name.len())),
    }
}
