//! A node's file as the command makes it, the one that it explains, and those of the guide.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;
use support::*;

fn node(config: &Path, words: &[&str]) -> Output {
    noctule().arg("node").args(words).arg("--config").arg(config).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_right(config: &Path) {
    let out = node(config, &["--check"]);
    assert!(out.status.success(), "{}\n{}", text(&out.stderr), fs::read_to_string(config).unwrap());
}

#[test]
fn a_file_is_made_once_and_two_nodes_introduce_each_other_by_the_printed_command() {
    let dir = tempfile::tempdir().unwrap();
    let (home, hill) = (dir.path().join("home/node.toml"), dir.path().join("hill/node.toml"));
    let made = node(&home, &["init", "--name", "home", "--address", "10.9.0.1", "--tun", "10.9.0.1/24", "--socket", "home.sock"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made = node(&hill, &["init", "--name", "the hill", "--address", "10.9.0.2", "--listen", "127.0.0.1:5000", "--relay"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let key = text(&made.stdout).trim().to_owned();
    assert!(text(&made.stderr).contains("add-neighbour"));
    assert_right(&home);
    assert_right(&hill);
    // The same again shows what is there; something else is refused.
    let again = node(&hill, &["init", "--name", "the hill", "--address", "10.9.0.2", "--listen", "127.0.0.1:5000", "--relay"]);
    assert!(again.status.success() && text(&again.stdout).trim() == key, "{}", text(&again.stderr));
    assert!(node(&hill, &["init"]).status.success());
    assert_fails(&node(&home, &["init", "--name", "hut"]), 2, "exists already");
    // A comment of the user's own stays.
    let before = format!("{}# mine\n", fs::read_to_string(&home).unwrap());
    fs::write(&home, &before).unwrap();
    let added = node(&home, &["add-neighbour", "hill", &key, "127.0.0.1:5000", "--address", "10.9.0.2", "--prefix", "192.168.2.0/24"]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    let after = fs::read_to_string(&home).unwrap();
    assert!(after.starts_with(&before) && after.contains("192.168.2.0/24"), "{after}");
    let again = node(&home, &["add-neighbour", "hill", &key, "127.0.0.1:5000", "--address", "10.9.0.2", "--prefix", "192.168.2.0/24"]);
    assert!(again.status.success() && again.stdout == added.stdout, "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(&home).unwrap(), after);
    assert_right(&home);
    // The command that is printed for the other node runs unchanged.
    let words = shlex::split(text(&added.stdout).trim()).unwrap();
    assert_eq!(words[..3], ["noctule", "node", "add-neighbour"]);
    let there = node(&hill, &words[2..].iter().map(String::as_str).collect::<Vec<_>>());
    assert!(there.status.success(), "{}", text(&there.stderr));
    assert!(fs::read_to_string(&hill).unwrap().contains("name = \"home\""));
    assert_right(&hill);
    // What this prints names a place to call, since no endpoint was given.
    let back = shlex::split(text(&there.stdout).trim()).unwrap();
    assert_eq!(back[3..6], ["the hill".to_owned(), key.clone(), "127.0.0.1:5000".to_owned()]);
    // A mistake changes nothing.
    let before = fs::read_to_string(&home).unwrap();
    assert_fails(&node(&home, &["add-neighbour", "hill", &key, "127.0.0.1:5001"]), 2, "nothing was changed");
    assert_eq!(fs::read_to_string(&home).unwrap(), before);
}

#[test]
fn a_file_that_is_made_runs_and_status_finds_its_socket_by_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    assert!(node(&file, &["init", "--listen", "127.0.0.1:0", "--socket", "node.sock"]).status.success());
    let _node = start_node(Path::new(NOCTULE), dir.path());
    let ask = |command: &str| noctule().args([command, "--config"]).arg(&file).output().unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while !ask("status").status.success() {
        assert!(std::time::Instant::now() < deadline, "{}", fs::read_to_string(dir.path().join("log")).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let out = ask("reload");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let gone = noctule().args(["status", "--config"]).arg(dir.path().join("other.toml")).output().unwrap();
    assert_fails(&gone, 3, "--socket");
}

#[test]
fn the_example_names_every_key_and_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    keygen(dir.path(), "key");
    let example = noctule().args(["node", "--example"]).output().unwrap();
    let file = dir.path().join("node.toml");
    fs::write(&file, &example.stdout).unwrap();
    assert_right(&file);
    // What is commented out is right, too, once it is switched on; files of keys and the tables that need others apart.
    let example = text(&example.stdout);
    let manual = dir.path().join("man");
    assert!(noctule().arg("man").arg(&manual).output().unwrap().status.success());
    let page = fs::read_to_string(manual.join("noctule.toml.5")).unwrap();
    let keys: Vec<String> =
        page.lines().filter_map(|l| l.strip_prefix("\\fB")?.strip_suffix("\\fR")).map(|k| k.replace('\\', "")).collect();
    assert!(keys.len() > 50, "{keys:?}");
    for key in keys.iter().filter(|k| !k.starts_with('/')) {
        assert!(example.contains(&format!("{key} = ")), "{key} is not in the example");
    }
    let switched: String = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.contains("psk") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // Tables that are commented out stay so: their keys would belong to the one before.
    let mut is_off = false;
    let kept: String = switched
        .lines()
        .filter(|line| {
            if line.starts_with("# [") {
                is_off = true;
            } else if line.is_empty() {
                is_off = false;
            }
            !is_off
        })
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&file, kept.replace("idle-timeout = \"30s\"", "idle-timeout = \"31s\"")).unwrap();
    assert_right(&file);
}

/// All at once: keys that do not exist, values of the wrong kind.
#[test]
fn mistakes_of_form_are_told_all_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    fs::write(&file, "[node]\nkey = \"key\"\nrely = true\nrelay = 1\nlisten = 5\n\n[tunnel]\nname = \"x\"\n\n[[neighbour]]\nname = \"a\"\nkey = \"k\"\nmtu = \"big\"\nadress = 1\n").unwrap();
    let out = node(&file, &["--check"]);
    assert_eq!(out.status.code(), Some(2));
    let told = text(&out.stderr);
    for words in [
        "toml:3: unknown field `rely`",
        "toml:4: invalid type",
        "toml:5: invalid type",
        "toml:7: unknown table `tunnel`",
        "toml:13: invalid type",
        "toml:14: unknown field `adress`",
        "noctule.toml(5)",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// The files of the section about three nodes and a relay.
#[test]
fn the_three_nodes_of_the_guide_are_right() {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/node.md")).unwrap();
    let section = guide.split("## Three nodes and a relay").nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    let files: Vec<&str> = section.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 3);
    let dir = tempfile::tempdir().unwrap();
    let keys: Vec<String> = ["home", "hill", "field"].iter().map(|name| keygen(dir.path(), name).1).collect();
    for (name, content) in ["home", "hill", "field"].iter().zip(&files) {
        assert!(content.contains(&format!("name = \"{name}\"")), "{content}");
        let content = content.replace("key = \"key\"", &format!("key = \"{name}\""));
        let content = content.replace("HOME_KEY", &keys[0]).replace("HILL_KEY", &keys[1]).replace("FIELD_KEY", &keys[2]);
        let file = dir.path().join(format!("{name}.toml"));
        fs::write(&file, content).unwrap();
        assert_right(&file);
    }
}
