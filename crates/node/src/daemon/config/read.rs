//! From TOML to the file as it is written. What is wrong in its form is told all at once: each key that does not exist, each value of the wrong kind.

use super::complaint::Book;
use super::file::File;
use super::keys::{Table, tables};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

/// Values of the wrong kind that are told; each is looked for anew.
const MOST: usize = 20;

/// The file, and whether all of it is there: where a value was of the wrong kind, what is told of its meaning would mislead. `None`, if nothing can be
/// read.
pub fn read(book: &mut Book<'_>, content: &str) -> Option<(File, bool)> {
    let (table, errors) = DeTable::parse_recoverable(content);
    if !errors.is_empty() {
        errors.iter().take(MOST).for_each(|error| book.complain_of_syntax(error));
        return None;
    }
    let whole = table.span();
    let mut table = table.into_inner();
    refuse_unknown(book, &mut table);
    for _ in 0..MOST {
        let error = match File::deserialize(Deserializer::from(Spanned::new(whole.clone(), table.clone()))) {
            Ok(file) => return Some((file, !book.has_kinds())),
            Err(error) => error,
        };
        book.complain_of_kind(&error);
        // The next one is found without it. A key that is missing cannot be left out.
        let is_removed = error.span().is_some_and(|span| remove(&mut table, &span));
        if !is_removed {
            return None;
        }
    }
    None
}

/// Keeps those entries of a table that are wanted.
fn keep<'i>(table: &mut DeTable<'i>, mut is_wanted: impl FnMut(&Spanned<DeString<'i>>, &mut Spanned<DeValue<'i>>) -> bool) {
    for (name, mut value) in std::mem::replace(table, DeTable::new()) {
        if is_wanted(&name, &mut value) {
            table.insert(name, value);
        }
    }
}

/// Tells keys and tables that do not exist, and takes them out.
fn refuse_unknown(book: &mut Book<'_>, root: &mut DeTable<'_>) {
    keep(root, |name, value| {
        let Some(table) = tables().find(|t| t.name == name.get_ref().as_ref()) else {
            let known: Vec<_> = tables().map(Table::heading).collect();
            let text = format!("unknown table `{}`: {} exist; noctule.toml(5) describes them", name.get_ref(), known.join(", "));
            book.complain(name.span(), "", text);
            return false;
        };
        match value.get_mut() {
            DeValue::Table(keys) => refuse_unknown_keys(book, table, keys),
            DeValue::Array(list) => {
                for entry in list.iter_mut() {
                    if let DeValue::Table(keys) = entry.get_mut() {
                        refuse_unknown_keys(book, table, keys);
                    }
                }
            }
            // Of the wrong kind.
            _ => {}
        }
        true
    });
}

fn refuse_unknown_keys(book: &mut Book<'_>, table: &Table, keys: &mut DeTable<'_>) {
    keep(keys, |name, _| {
        let is_known = table.keys.iter().any(|key| key.name == name.get_ref().as_ref());
        if !is_known {
            let known: Vec<_> = table.keys.iter().map(|key| key.name).collect();
            let text =
                format!("unknown field `{}`: {} has {}; noctule.toml(5) describes them", name.get_ref(), table.heading(), known.join(", "));
            book.complain(name.span(), "", text);
        }
        is_known
    });
}

/// Takes out the innermost key whose value holds this place; whether there was one.
fn remove(table: &mut DeTable<'_>, place: &Range<usize>) -> bool {
    let mut is_removed = false;
    keep(table, |_, value| {
        let span = value.span();
        let may_hold = value.get_ref().is_table() || value.get_ref().is_array() || (span.start <= place.start && place.end <= span.end);
        if is_removed || !may_hold {
            return true;
        }
        let is_whole = span == *place;
        match value.get_mut() {
            // A table without a key that it needs is no value of the wrong kind.
            DeValue::Table(_) if is_whole => true,
            DeValue::Table(inner) => {
                is_removed = remove(inner, place);
                true
            }
            // The place of a list of tables is that of the first one's heading.
            DeValue::Array(list) if !is_whole && list.iter().any(|entry| entry.get_ref().is_table()) => {
                is_removed = list.iter_mut().any(|entry| match entry.get_mut() {
                    DeValue::Table(inner) => remove(inner, place),
                    _ => false,
                });
                true
            }
            _ if span.start <= place.start && place.end <= span.end => {
                is_removed = true;
                false
            }
            _ => true,
        }
    });
    is_removed
}
