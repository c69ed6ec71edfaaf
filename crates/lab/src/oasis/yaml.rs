//! YAML with the line of every node, and its scalars as PyYAML (YAML 1.1) reads them, since that is what Oasis reads its files with.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Nodes of a document at most, aliases counted as what they stand for: a few lines of aliases could stand for billions.
const MOST_NODES: usize = 200_000;
/// Depth of a document at most.
const DEEPEST: usize = 64;

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Wrong {
    /// Which file.
    pub path: PathBuf,
    /// Counted from 1; 0 where it is the file as a whole.
    pub line: usize,
    /// The key as a path from the top: `tests.x.route`.
    pub key: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ", {}", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins, from 1.
    pub line: usize,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// Everything else.
    Text(String),
    /// `[..]` or `- ..`.
    List(Vec<Node>),
    /// Keys with the line of each, in their order.
    Map(Vec<(String, usize, Node)>),
}

impl Node {
    /// In words, for errors.
    pub fn kind(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the truth value {value}"),
            Value::Int(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("the text `{text}`"),
            Value::List(list) => format!("a list of {}", list.len()),
            Value::Map(map) => format!("a mapping of {} keys", map.len()),
        }
    }
}

/// Reads a file of one document.
pub fn read(path: &Path) -> Result<Node, Wrong> {
    let text = std::fs::read_to_string(path).map_err(|e| Wrong {
        path: path.to_owned(),
        line: 0,
        key: String::new(),
        reason: format!("cannot be read: {e}"),
    })?;
    parse(path, &text)
}

/// Reads the text of the file `path`.
pub fn parse(path: &Path, text: &str) -> Result<Node, Wrong> {
    let wrong = |line: usize, reason: String| Wrong { path: path.to_owned(), line, key: String::new(), reason };
    let mut builder = Builder { open: Vec::new(), anchors: Vec::new(), root: None, nodes: 0 };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| wrong(e.marker().line(), format!("not YAML: {}", e.info())))?;
        let line = span.start.line();
        if let Event::DocumentStart(_) = event {
            documents += 1;
            if documents > 1 {
                return Err(wrong(line, "a second document begins; Oasis reads the first only".to_owned()));
            }
        }
        builder.take(event, line).map_err(|reason| wrong(line, reason))?;
    }
    builder.root.ok_or_else(|| wrong(0, "the file is empty".to_owned()))
}

/// A collection that is not closed yet.
struct Open {
    line: usize,
    anchor: usize,
    items: Vec<Node>,
    is_map: bool,
}

struct Builder {
    open: Vec<Open>,
    anchors: Vec<(usize, Node)>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(tag) = &tag
                    && !tag.is_yaml_core_schema()
                {
                    return Err(format!("the tag {tag} means nothing here"));
                }
                let is_text = tag.is_some_and(|tag| tag.suffix == "str");
                let value = if style == ScalarStyle::Plain && !is_text { plain(&text) } else { Value::Text(Cow::into_owned(text)) };
                self.close(Node { line, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, false),
            Event::MappingStart(anchor, _) => self.begin(line, anchor, true),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = if open.is_map { mapping(open.items)? } else { Value::List(open.items) };
                self.close(Node { line: open.line, value }, open.anchor)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.iter().rev().find(|(id, _)| *id == anchor).map(|(_, node)| node.clone());
                let node = node.ok_or("an alias to something that contains it")?;
                self.nodes += size(&node);
                self.close(node, 0)
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, is_map: bool) -> Result<(), String> {
        if self.open.len() == DEEPEST {
            return Err(format!("more than {DEEPEST} levels"));
        }
        self.open.push(Open { line, anchor, items: Vec::new(), is_map });
        Ok(())
    }

    fn close(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return Err(format!("more than {MOST_NODES} values"));
        }
        if anchor > 0 {
            self.anchors.push((anchor, node.clone()));
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(list) => list.iter().map(size).sum::<usize>(),
        Value::Map(map) => map.iter().map(|(_, _, node)| size(node)).sum(),
        _ => 0,
    }
}

/// Keys and values by turns. A key that comes twice is an error: PyYAML takes the last one, and nobody means that.
fn mapping(items: Vec<Node>) -> Result<Value, String> {
    let mut map: Vec<(String, usize, Node)> = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        let name = match key.value {
            Value::Text(text) => text,
            Value::Int(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            _ => return Err(format!("line {}: {} is no key", key.line, key.kind())),
        };
        if let Some((_, before, _)) = map.iter().find(|(other, ..)| *other == name) {
            return Err(format!("line {}: `{name}` stands here twice, first in line {before}", key.line));
        }
        map.push((name, key.line, value));
    }
    Ok(Value::Map(map))
}

/// A plain scalar by the rules of YAML 1.1.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(number) = text.trim_start_matches('+').parse()
    {
        return Value::Int(number);
    }
    // A point is what makes a float in YAML 1.1: 1e3 is a text there.
    if text.contains('.')
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && let Ok(number) = text.parse::<f64>()
        && number.is_finite()
    {
        return Value::Float(number);
    }
    Value::Text(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Node, String> {
        parse(Path::new("a.yaml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn scalars_are_what_oasis_would_read_and_know_their_line() {
        let Value::Map(map) = read("a: yes\nb: 1.5\nc: 1e3\nd: '7'\ne:\n  - 3\n  - null\n").unwrap().value else { panic!("a mapping") };
        let value = |key: &str| map.iter().find(|(name, ..)| name == key).map(|(_, line, node)| (*line, node.value.clone())).unwrap();
        assert_eq!(value("a"), (1, Value::Bool(true)));
        assert_eq!(value("b"), (2, Value::Float(1.5)));
        assert_eq!(value("c"), (3, Value::Text("1e3".to_owned())));
        assert_eq!(value("d"), (4, Value::Text("7".to_owned())));
        let (5, Value::List(list)) = value("e") else { panic!("a list") };
        assert_eq!(list.iter().map(|node| (node.line, node.value.clone())).collect::<Vec<_>>(), [(6, Value::Int(3)), (7, Value::Null)]);
    }

    #[test]
    fn aliases_stand_for_what_they_name_and_are_bounded() {
        let node = read("a: &x [1, 2]\nb: *x\n").unwrap();
        let Value::Map(map) = node.value else { panic!("a mapping") };
        assert_eq!(map[0].2.value, map[1].2.value);
        let mut bomb = String::from("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for i in 1..9 {
            let of = format!("*a{}, ", i - 1).repeat(10);
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", of.trim_end_matches(", ")));
        }
        assert!(read(&bomb).unwrap_err().contains("more than"));
        assert!(read(&"[".repeat(100)).unwrap_err().contains("levels"));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        for (text, names) in [
            ("a: 1\nb: [1\n", "line"),
            ("a: 1\na: 2\n", "`a` stands here twice"),
            ("a: 1\n---\nb: 2\n", "second document"),
            ("", "empty"),
            ("a: !thing 1\n", "!thing"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with("a.yaml") && error.contains(names), "{text}: {error}");
        }
    }
}
