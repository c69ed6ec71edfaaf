//! Manual pages and completions, from the same definitions as `--help` and from those of the files.

mod complete;
mod pages;
mod roff;

pub use complete::{completions, hosts};

use crate::cli::{Cli, EXITS, ManArgs, NODE_EXITS};
use crate::daemon::config::keys;
use crate::failure::Failure;
use crate::host_config;
use clap::{Command, CommandFactory};
use pages::{ENVIRONMENT, PAGES, Page};
use roff::Roff;

/// `noctule man`: noctule.1 and one page per command, and the pages of the files.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.directory).map_err(|e| Failure::target(&args.directory, &e))?;
    for (name, text) in pages()? {
        let path = args.directory.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::target(&path, &e))?;
    }
    Ok(())
}

/// File names and their contents.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    // `noctule help` is no page of its own.
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut all = vec![(String::from("noctule.1"), command_page(&root, "noctule", "")?)];
    for command in root.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = format!("noctule-{}", command.get_name());
        all.push((format!("{name}.1"), command_page(command, &name, command.get_name())?));
        for task in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let (title, entry) = (format!("{name}-{}", task.get_name()), format!("{}-{}", command.get_name(), task.get_name()));
            all.push((format!("{title}.1"), command_page(task, &title, &entry)?));
        }
    }
    all.push(("noctule.toml.5".into(), toml_page()));
    all.push(("noctule-config.5".into(), config_page()));
    Ok(all)
}

fn entry(name: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.name == name)
}

fn command_page(command: &Command, title: &str, name: &str) -> Result<Vec<u8>, Failure> {
    let page = entry(name).ok_or_else(|| Failure::System(format!("{title} has no manual page")))?;
    let mut out = Roff::page(title, 1);
    let failed = |e| Failure::system("a manual page", e);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    out.section("NAME");
    out.text(&format!("{title} - {}", about.trim_end_matches('.')));
    // Its own sections: the generator's others repeat the name, and know no files.
    let generator = clap_mangen::Man::new(command.clone());
    let mut rendered = Vec::new();
    generator.render_synopsis_section(&mut rendered).map_err(failed)?;
    out.raw(&rendered);
    out.section("DESCRIPTION");
    page.description.iter().for_each(|paragraph| out.paragraph(paragraph));
    let mut rendered = Vec::new();
    generator.render_options_section(&mut rendered).map_err(failed)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        generator.render_subcommands_section(&mut rendered).map_err(failed)?;
    }
    out.raw(&rendered);
    out.section("EXIT STATUS");
    let exits = if name.starts_with("node") { NODE_EXITS } else { EXITS };
    exits.iter().for_each(|(code, what)| out.item(&code.to_string(), what));
    out.section("ENVIRONMENT");
    ENVIRONMENT.iter().for_each(|(variable, what)| out.item(variable, what));
    if !page.files.is_empty() {
        out.section("FILES");
        page.files.iter().for_each(|(file, what)| out.item(file, what));
    }
    out.section("EXAMPLES");
    page.examples.iter().for_each(|(line, what)| out.example(line, what));
    out.section("SEE ALSO");
    let all: Vec<String> = match name {
        "" => PAGES
            .iter()
            .filter(|p| !p.name.is_empty())
            .map(|p| format!("noctule-{}(1)", p.name))
            .chain(["noctule.toml(5)".into(), "noctule-config(5)".into()])
            .collect(),
        _ => std::iter::once("noctule(1)").chain(page.see.iter().copied()).map(str::to_owned).collect(),
    };
    out.text(&all.join(", "));
    Ok(out.into_bytes())
}

/// noctule.toml(5): the node's file.
fn toml_page() -> Vec<u8> {
    let mut out = Roff::page("noctule.toml", 5);
    out.section("NAME");
    out.text("noctule.toml - the file of a noctule node");
    out.section("DESCRIPTION");
    out.paragraph(
        "noctule node reads one file, /etc/noctule/node.toml unless --config names another. It is TOML. Every table may be left out except [node], and \
         every key except those that are needed; a key that does not exist is an error. Tables in double brackets may stand several times. Paths of files \
         are relative to the file. A text is written in double quotes, a list in brackets.",
    );
    out.paragraph("noctule node --check says what a file means, or what is wrong with it; noctule node --example prints a file with every key explained.");
    for table in keys::tables() {
        out.section(&table.heading());
        out.text(table.text);
        for key in table.keys {
            let default = match key.default {
                "needed" => "Needed.".to_owned(),
                default => format!("Default: {default}."),
            };
            out.item(key.name, &format!("{} {default}", key.text));
        }
    }
    out.section("FILES");
    out.item("/etc/noctule/node.toml", "where noctule node, status and reload look for it");
    out.section("EXAMPLES");
    out.text("A node with one neighbour and a tunnel:");
    out.block(
        "[node]\nkey = \"key\"\naddresses = [\"10.9.0.1\"]\n\n[[neighbour]]\nname = \"hill\"\nkey = \"KEY\"\nendpoint = \"hill.example.org\"\naddresses = [\"10.9.0.2\"]\n\n[tun]\naddresses = [\"10.9.0.1/24\"]",
    );
    out.section("SEE ALSO");
    out.text("noctule(1), noctule-node(1), noctule-status(1), noctule-reload(1)");
    out.into_bytes()
}

/// noctule-config(5): the user's file of hosts.
fn config_page() -> Vec<u8> {
    let mut out = Roff::page("noctule-config", 5);
    out.section("NAME");
    out.text("noctule-config - what is said for single hosts");
    out.section("DESCRIPTION");
    out.paragraph(
        "noctule send, perf -c, ping and doctor read ~/.config/noctule/config ($XDG_CONFIG_HOME/noctule/config). -F FILE names another, -F none none. The \
         command line goes before the environment, and the environment before this file.",
    );
    out.paragraph(
        "A line is a keyword and its values; the case of keywords does not matter. A value with spaces stands in double quotes, and # begins a comment. \
         Lines after Host are for hosts that match one of its patterns, lines before the first Host for all. The first value for a keyword counts, so \
         what is for all stands at the end. Paths of files are relative to the file, or begin with ~/. A keyword that does not exist is an error. The file \
         must belong to this user or root, and nobody else may write it.",
    );
    out.section("KEYWORDS");
    host_config::KEYWORDS.iter().for_each(|(name, takes, what)| out.item(&format!("{name} {takes}"), &format!("{what}.")));
    out.section("FILES");
    out.item("~/.config/noctule/config", "the file");
    out.section("EXAMPLES");
    out.block("Host hill\n    HostName 192.0.2.7\n    Port 5000\n\nHost valley\n    HostName 10.9.0.4\n    Via hill.example.org\n    Address 10.9.0.6\n\nHost *\n    CC model");
    out.section("SEE ALSO");
    out.text("noctule(1), noctule-send(1), noctule-perf(1), noctule-ping(1), noctule-doctor(1)");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn every_page_has_all_its_sections_and_the_right_footer() {
        let pages = pages().unwrap();
        assert_eq!(pages.len(), PAGES.len() + 2);
        for (name, text) in &pages {
            let text = String::from_utf8(text.clone()).unwrap();
            let wanted: &[&str] = match name.ends_with(".5") {
                true => &["NAME", "DESCRIPTION", "FILES", "EXAMPLES", "SEE ALSO"],
                false => &["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"],
            };
            for section in wanted {
                let heading = format!("\n.SH {section}\n");
                let quoted = format!("\n.SH \"{section}\"\n");
                assert_eq!(text.matches(&heading).count() + text.matches(&quoted).count(), 1, "{name}: {section}\n{text}");
            }
            let head = text.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(head.contains(concat!("\"noctule ", env!("CARGO_PKG_VERSION"), "\"")), "{head}");
            assert!(!text.contains("help(1)") && !text.contains("help\\-") && !text.contains(".SH EXTRA"), "{name}");
            // Pages that are pointed to exist.
            let names: Vec<String> = pages.iter().map(|(n, _)| n.rsplit_once('.').map(|(n, s)| format!("{n}({s})")).unwrap()).collect();
            let see = text.rsplit("SEE ALSO").next().unwrap().replace('\\', "");
            for page in see.split([',', '\n', '"']).map(str::trim).filter(|w| w.contains('(')) {
                assert!(names.iter().any(|n| n == page), "{name} points to {page}");
            }
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        for page in PAGES {
            assert!(!page.examples.is_empty(), "{}", page.name);
            for (line, _) in page.examples {
                let words = shlex::split(line).unwrap();
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{line}: {error}");
                }
                assert!(words[1..].join("-").starts_with(page.name), "{line}");
            }
        }
    }

    #[test]
    fn the_environment_is_what_the_options_take() {
        let mut root = Cli::command();
        root.build();
        let mut seen = std::collections::BTreeSet::new();
        for command in root.get_subcommands() {
            for variable in command.get_arguments().filter_map(|a| a.get_env()) {
                seen.insert(variable.to_str().unwrap().to_owned());
            }
        }
        for variable in &seen {
            assert!(ENVIRONMENT.iter().any(|(name, _)| name == variable), "{variable} is not described");
        }
        assert!(seen.len() >= 4, "{seen:?}");
    }
}
