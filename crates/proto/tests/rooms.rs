//! The order of this crate's modules: each uses only those below it, so that none has to be understood together with one above it.

use std::path::{Path, PathBuf};

/// From the lowest to the highest. A module may use those that stand before it.
const ORDER: &[&str] = &[
    "work",
    "switch",
    "ablation",
    "units",
    "far_text",
    "error",
    "ids",
    "options",
    "wire",
    "crypto",
    "neighbour",
    "shard",
    "admission",
    "table",
    "deadlines",
    "redundancy",
    "congestion",
    "codel",
    "sent",
    "stats",
    "trace",
    "event",
    "config",
    "datagram",
    "ledger",
    "path",
    "flow",
    "session",
    "flows",
    "shared",
    "link",
    "node",
    "blind",
    "object",
    "secret_debug",
];

/// Sources of the modules, tests apart.
fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "tests" && !name.ends_with("_tests") {
            into.push(path);
        }
    }
}

/// Modules of this crate that a source names by `crate::name`, and in which line.
fn named(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let names = |line: &str| {
        line.split("crate::").skip(1).map(|rest| rest.split(|c| !is_word(c)).next().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    lines.flat_map(|(at, line)| names(line).into_iter().map(move |name| (at + 1, name))).collect()
}

#[test]
fn no_module_uses_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if own == "lib" {
            continue;
        }
        let Some(own_rank) = rank(own) else {
            wrong.push(format!("{}: the module `{own}` has no place in ORDER: give it one in {}", inside.display(), file!()));
            continue;
        };
        for (line, name) in named(&std::fs::read_to_string(&file).unwrap()) {
            match rank(&name) {
                Some(used) if used <= own_rank => {}
                // A name at the root of the crate would hide the module that it is from.
                None => wrong
                    .push(format!("{}:{line}: `crate::{name}` is no module in ORDER: name the module that it is from", inside.display())),
                Some(_) => wrong.push(format!("{}:{line}: `{own}` uses `{name}`, which is above it", inside.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
