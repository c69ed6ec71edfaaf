//! Command lines in pages are such as the program takes: its commands exist, and each has the flags that are given to it.
//! The laboratory's tests include this file for its own program.

use super::pages::lines;
use std::collections::{BTreeMap, HashSet};
use std::process::Command;

/// What `--help` of one command says.
struct Help {
    commands: HashSet<String>,
    flags: HashSet<String>,
}

/// Help by command ("perf", "node"), asked for once.
struct Program {
    name: &'static str,
    binary: &'static str,
    known: BTreeMap<Vec<String>, Help>,
}

impl Program {
    fn help(&mut self, path: &[String]) -> &Help {
        let (binary, key) = (self.binary, path.to_vec());
        self.known.entry(key).or_insert_with(|| {
            let out = Command::new(binary).args(path).arg("--help").output().unwrap();
            assert!(out.status.success(), "{path:?} --help");
            let text = String::from_utf8(out.stdout).unwrap();
            let mut help = Help { commands: HashSet::new(), flags: HashSet::new() };
            let mut section = "";
            for line in text.lines() {
                if !line.starts_with(' ') {
                    section = line;
                }
                let words = line.trim();
                // "  send         Send files", in the section of commands
                if section == "Commands:" && line.starts_with("  ") && !line.starts_with("   ") {
                    help.commands.extend(words.split_whitespace().next().map(str::to_owned));
                }
                let flags = |text: &str| -> Vec<String> {
                    let words = text.split([' ', ',', '[', ']', '<', '=']);
                    words.filter(|w| w.starts_with('-') && w.len() > 1).map(str::to_owned).collect()
                };
                if words.starts_with('-') {
                    help.flags.extend(flags(words.split("  ").next().unwrap()));
                }
                if let Some(at) = words.find("aliases:") {
                    help.flags.extend(flags(&words[at..]));
                } else if words.ends_with(']') {
                    // An alias that was wrapped to the next line.
                    help.flags.extend(flags(words).into_iter().filter(|_| words.starts_with("--")));
                }
            }
            help
        })
    }

    /// What is wrong with the words behind the program's name.
    fn fault(&mut self, words: &[&str]) -> Option<String> {
        let mut path: Vec<String> = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let word = word.trim_matches(['\'', '"', '[', ']', '(', ')', ',', '.', '…']);
            if !word.starts_with('-') {
                let in_place = path.len() == i;
                if in_place && self.help(&path).commands.contains(word) {
                    path.push(word.to_owned());
                } else if i == 0 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !word.is_empty() {
                    return Some(format!("{} has no command {word}", self.name));
                }
                continue;
            }
            let flag = word.split(['=', '|', '/']).next().unwrap();
            let is_number = flag[1..].starts_with(|c: char| c.is_ascii_digit() || c == '.');
            // "-c60" and "-qv": short flags are written together, or with their value.
            let short = if flag.starts_with("--") { flag } else { &flag[..flag.len().min(2)] };
            if flag.len() > 1 && flag != "--" && !is_number && !self.help(&path).flags.contains(short) {
                return Some(format!("{} {} has no flag {short}", self.name, path.join(" ")));
            }
        }
        None
    }
}

/// The command lines of a program in a piece of text: the words behind its name, up to the end of the command.
fn invocations<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    let package = format!("noctule-{}", if name == "noctule" { "node" } else { "lab" });
    // Where a shell would look for a command: first, behind an operator, a wrapper or an assignment, or where a quote opens.
    let is_command = |i: usize, word: &str| {
        let before = if i == 0 { "&&" } else { words[i - 1] };
        let wrapper = ["sudo", "&&", "||", "|", "--", "exec", "time", "10"].contains(&before);
        wrapper || before.ends_with(';') || before.contains('=') || word.starts_with(['\'', '$'])
    };
    for (i, word) in words.iter().enumerate() {
        let bare = word.trim_start_matches(['\'', '(', '$']);
        let is_program = bare == name || (bare.ends_with(&format!("/{name}")) && !bare.contains('='));
        let from = if is_program && is_command(i, word) {
            i + 1
        } else if *word == "cargo" && words.get(i + 1) == Some(&"run") && words[i..].contains(&package.as_str()) {
            let Some(dashes) = words[i..].iter().position(|w| *w == "--") else { continue };
            if words[i..i + dashes].contains(&"--example") {
                continue;
            }
            i + dashes + 1
        } else {
            continue;
        };
        let ends = |w: &&str| ["|", "||", "&&", "&", ">", "2>", "#", "--", ";", "<", "...;"].contains(w);
        let mut command = Vec::new();
        for word in words[from..].iter().take_while(|w| !ends(w)) {
            command.push(*word);
            if word.ends_with([';', '\'', '"', ')']) && !word.starts_with(['\'', '"']) {
                break;
            }
        }
        found.push(command);
    }
    found
}

/// Checks every command line of `name` in fences and between backticks; returns how many there were. In the specification `noctule ...` are labels
/// of key derivation.
pub fn check(name: &'static str, binary: &'static str) -> usize {
    let mut program = Program { name, binary, known: BTreeMap::new() };
    let (mut checked, mut faults) = (0, Vec::new());
    for line in lines().iter().filter(|l| !l.page.starts_with("docs/spec/")) {
        let (code, _) = line.code_and_prose();
        let texts = if line.in_fence || line.text.starts_with("    ") { vec![line.text.as_str()] } else { code };
        for text in texts.into_iter().map(|t| t.split(" #").next().unwrap()) {
            for words in invocations(text, name) {
                checked += 1;
                faults.extend(program.fault(&words).map(|f| format!("{}: {f}: {text}", line.place())));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for bad in ["no-such-command", "--no-such-flag", "-~"] {
        assert!(program.fault(&[bad]).is_some(), "{bad} was taken");
    }
    checked
}
