//! A mapping that is read key by key: each has a type, and none is left over without a word.

use std::path::{Path, PathBuf};

use super::yaml::{Node, Value, Wrong};

/// A mapping on its way through a reader.
#[derive(Debug, Clone)]
pub struct Table {
    path: PathBuf,
    key: String,
    line: usize,
    left: Vec<(String, usize, Node)>,
    known: Vec<&'static str>,
}

impl Table {
    /// The mapping `node`, which stands under `key` in the file `path`.
    pub fn of(path: &Path, key: &str, node: Node) -> Result<Self, Wrong> {
        let line = node.line;
        match node.value {
            Value::Map(left) => Ok(Self { path: path.to_owned(), key: key.to_owned(), line, left, known: Vec::new() }),
            _ => Err(Wrong {
                path: path.to_owned(),
                line,
                key: key.to_owned(),
                reason: format!("a mapping is expected, not {}", node.kind()),
            }),
        }
    }

    /// The file that it stands in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it begins.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The name of one of its keys from the top of the file.
    pub fn name(&self, key: &str) -> String {
        if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) }
    }

    /// An error about one of its keys.
    pub fn wrong(&self, line: usize, key: &str, reason: impl Into<String>) -> Wrong {
        Wrong { path: self.path.clone(), line, key: self.name(key), reason: reason.into() }
    }

    /// An error about all of it.
    pub fn wrong_here(&self, reason: impl Into<String>) -> Wrong {
        Wrong { path: self.path.clone(), line: self.line, key: self.key.clone(), reason: reason.into() }
    }

    /// Takes a key out.
    pub fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let at = self.left.iter().position(|(name, ..)| name == key)?;
        Some(self.left.remove(at).2)
    }

    /// Takes a key out; nothing written there is as if the key were not there.
    fn given(&mut self, key: &'static str) -> Option<Node> {
        self.take(key).filter(|node| node.value != Value::Null)
    }

    /// Takes out every key that is left, with its line.
    pub fn take_all(&mut self) -> Vec<(String, usize, Node)> {
        std::mem::take(&mut self.left)
    }

    fn typed<T>(&mut self, key: &'static str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<(usize, T)>, Wrong> {
        let Some(node) = self.given(key) else { return Ok(None) };
        match read(&node.value) {
            Some(value) => Ok(Some((node.line, value))),
            None => Err(self.wrong(node.line, key, format!("{expected} is expected, not {}", node.kind()))),
        }
    }

    /// A text; numbers are taken as they are written.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Wrong> {
        let read = |value: &Value| match value {
            Value::Text(text) => Some(text.clone()),
            Value::Int(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            _ => None,
        };
        Ok(self.typed(key, "a text", read)?.map(|(_, text)| text))
    }

    /// True or false.
    pub fn truth(&mut self, key: &'static str) -> Result<Option<bool>, Wrong> {
        Ok(self
            .typed(key, "true or false", |value| if let Value::Bool(value) = value { Some(*value) } else { None })?
            .map(|(_, value)| value))
    }

    /// A number in a range, both ends included.
    pub fn number(&mut self, key: &'static str, (least, most): (f64, f64)) -> Result<Option<f64>, Wrong> {
        let Some((line, number)) = self.typed(key, "a number", number)? else { return Ok(None) };
        if (least..=most).contains(&number) {
            Ok(Some(number))
        } else {
            Err(self.wrong(line, key, format!("{number} is not between {least} and {most}")))
        }
    }

    /// A whole number in a range, both ends included.
    pub fn whole(&mut self, key: &'static str, (least, most): (i64, i64)) -> Result<Option<i64>, Wrong> {
        let read = |value: &Value| if let Value::Int(number) = value { Some(*number) } else { None };
        let Some((line, number)) = self.typed(key, "a whole number", read)? else { return Ok(None) };
        if (least..=most).contains(&number) {
            Ok(Some(number))
        } else {
            Err(self.wrong(line, key, format!("{number} is not between {least} and {most}")))
        }
    }

    /// One of some names.
    pub fn one_of(&mut self, key: &'static str, names: &[&'static str]) -> Result<Option<&'static str>, Wrong> {
        let Some((line, text)) =
            self.typed(key, "a text", |value| if let Value::Text(text) = value { Some(text.clone()) } else { None })?
        else {
            return Ok(None);
        };
        match names.iter().find(|name| **name == text) {
            Some(name) => Ok(Some(name)),
            None => Err(self.wrong(line, key, format!("`{text}` is none of {}", names.join(", ")))),
        }
    }

    /// Texts: a list, or one text that blanks divide.
    pub fn words(&mut self, key: &'static str) -> Result<Vec<String>, Wrong> {
        let read = |value: &Value| match value {
            Value::Text(text) => Some(text.split_whitespace().map(str::to_owned).collect()),
            Value::List(list) => list
                .iter()
                .map(|node| match &node.value {
                    Value::Text(text) => Some(text.clone()),
                    Value::Int(number) => Some(number.to_string()),
                    Value::Float(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        Ok(self.typed(key, "a list of texts", read)?.map(|(_, words)| words).unwrap_or_default())
    }

    /// A mapping below.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Self>, Wrong> {
        let name = self.name(key);
        self.given(key).map(|node| Self::of(&self.path, &name, node)).transpose()
    }

    /// A list below, with its line.
    pub fn list(&mut self, key: &'static str) -> Result<Option<(usize, Vec<Node>)>, Wrong> {
        self.typed(key, "a list", |value| if let Value::List(list) = value { Some(list.clone()) } else { None })
    }

    /// What has to be there.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, Wrong> {
        value.ok_or_else(|| self.wrong(self.line, key, "is missing"))
    }

    /// Refuses what nobody has taken.
    pub fn end(self) -> Result<(), Wrong> {
        match self.left.first() {
            None => Ok(()),
            Some((key, line, _)) => Err(self.wrong(*line, key, format!("there is no such key; here are {}", self.known.join(", ")))),
        }
    }
}

/// A number, whole or not.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}
