//! Reads the TOML of a node's file. All faults of its form are told at once: each unknown key, each value of the wrong type.

use super::complaint::Book;
use super::file::File;
use super::keys::{Table, tables};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

/// Values of the wrong type that are told, at most: the file is parsed again for each.
const MOST: usize = 20;

/// The file, and whether it is complete: values of the wrong type are left out, so complaints about its meaning would mislead then. `None` if it
/// cannot be parsed.
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
        // Without this value the next error is found. A missing key cannot be removed: that ends the search.
        let is_removed = error.span().is_some_and(|span| remove(&mut table, &span));
        if !is_removed {
            return None;
        }
    }
    None
}

/// Keeps the entries of a table for which `is_wanted` is true.
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
            // A value of the wrong type: not told here.
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

/// Removes the innermost key whose value contains this place in the file. False if there was none.
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
            // The error is about the table as a whole: it lacks a key, and is not of the wrong type.
            DeValue::Table(_) if is_whole => true,
            DeValue::Table(inner) => {
                is_removed = remove(inner, place);
                true
            }
            // The span of a list of tables covers the first heading only, so all entries are searched.
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
