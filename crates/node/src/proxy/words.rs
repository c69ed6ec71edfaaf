//! The command line of `noctule proxy` from elsewhere: from a TOML file whose keys are the long options (`--config`), and from the environment of a
//! program that takes it for its plugin (SIP003, `--plugin`).

use super::users::{self, User};
use crate::cli::{Cli, Command, ProxyArgs, ProxyTask};
use crate::failure::Failure;
use crate::shell::quoted;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Options that say where the others are.
const NOT_IN_A_FILE: [&str; 4] = ["config", "check", "plugin", "help"];

/// A word, and where it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    line: usize,
}

/// The command with all its words.
///
/// # Errors
/// The file or the environment is wrong.
pub fn expand(cli: Cli, line: &[OsString]) -> Result<Option<Cli>, Failure> {
    let Command::Proxy(args) = &cli.command else { return Ok(Some(cli)) };
    if args.plugin {
        let words = plugin(|name| std::env::var(name).ok()).map_err(Failure::Usage)?;
        return reparse(["noctule", "proxy"].map(OsString::from).into_iter().chain(words.into_iter().map(OsString::from)))
            .map(Some)
            .map_err(|error| Failure::Usage(format!("SS_PLUGIN_OPTIONS: {}", in_a_line(&error))));
    }
    let (Some(file), check) = source(args) else { return Ok(Some(cli)) };
    let is_server = matches!(args.task, Some(ProxyTask::Serve(_)));
    let content = match is_server {
        // It says which keys may connect.
        true => crate::identity::read_trusted(&file)?,
        false => std::fs::read_to_string(&file).map_err(|e| Failure::source(&file, e))?,
    };
    let words = read(&content, is_server).map_err(|(line, why)| wrong(&file, line, &why))?;
    let last = if is_server { "serve" } else { "proxy" };
    let at = line.iter().position(|word| word == last).map_or(line.len(), |at| at + 1);
    let mut whole = line[..at].to_vec();
    whole.extend(words.iter().map(|word| OsString::from(&word.text)));
    whole.extend_from_slice(&line[at..]);
    let parsed = reparse(whole.into_iter()).map_err(|error| wrong(&file, blamed(&error, &words), &in_a_line(&error)))?;
    if check {
        if let Command::Proxy(args) = &parsed.command
            && args.task.is_none()
            && let Err(Failure::Usage(why)) = super::client::check(args)
        {
            return Err(wrong(&file, 0, &why));
        }
        let users = match &parsed.command {
            Command::Proxy(ProxyArgs { task: Some(ProxyTask::Serve(args)), .. }) => users::load(&file, args.only_target.is_some())?,
            _ => Vec::new(),
        };
        let shown: Vec<String> = words.iter().map(|word| quoted(&word.text)).collect();
        let serve = if is_server { "serve " } else { "" };
        say!("{}: nothing is wrong with it; it stands for\n\n  noctule proxy {serve}{}", file.display(), shown.join(" "));
        if !users.is_empty() {
            let names: Vec<&str> = users.iter().map(User::name).collect();
            say!("\nand {}: {}", crate::units::counted(users.len() as u64, "user"), names.join(", "));
        }
        return Ok(None);
    }
    Ok(Some(parsed))
}

fn source(args: &ProxyArgs) -> (Option<PathBuf>, bool) {
    match &args.task {
        Some(ProxyTask::Serve(serve)) => (serve.config.clone(), serve.check),
        Some(_) => (None, false),
        None => (args.config.clone(), args.check),
    }
}

pub fn wrong(file: &Path, line: usize, why: &str) -> Failure {
    Failure::Usage(match line {
        0 => format!("{}: {why}", file.display()),
        line => format!("{}:{line}: {why}", file.display()),
    })
}

/// Parses words of which a later one may take the place of an earlier.
fn reparse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let command = Cli::command()
        .mut_subcommand("proxy", |proxy| proxy.args_override_self(true).mut_subcommand("serve", |serve| serve.args_override_self(true)));
    Cli::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The first lines of what the grammar says.
fn in_a_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The line of the word that an error is about; 0 if none is known.
fn blamed(error: &clap::Error, words: &[Word]) -> usize {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let name = option.split([' ', '=', '[']).next().unwrap_or_default();
    let of_value = words.iter().find(|word| !value.is_empty() && word.text.ends_with(&format!("={value}")));
    let of_name = words.iter().find(|word| !name.is_empty() && word.text.split('=').next() == Some(name));
    of_value.or(of_name).map_or(0, |word| word.line)
}

/// The words of a file, in its order.
fn read(content: &str, is_server: bool) -> Result<Vec<Word>, (usize, String)> {
    let line = |at: usize| 1 + content.as_bytes()[..at.min(content.len())].iter().filter(|byte| **byte == b'\n').count();
    let table = DeTable::parse(content).map_err(|e| (e.span().map_or(0, |span| line(span.start)), e.message().to_owned()))?;
    let mut entries: Vec<_> = table.into_inner().into_iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut root = Cli::command();
    root.build();
    let proxy = root.find_subcommand("proxy").expect("there is one");
    let command = if is_server { proxy.find_subcommand("serve").expect("there is one") } else { proxy };
    let mut words = Vec::new();
    for (name, value) in entries {
        let (key, at) = (name.get_ref().as_ref().to_owned(), line(name.span().start));
        // Tables of their own.
        if key == "user" && is_server {
            continue;
        }
        if key == "host" && !is_server {
            let text = text(&value).ok_or_else(|| (at, "host is a text".to_owned()))?;
            words.push(Word { text, line: at });
            continue;
        }
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(&key)).filter(|_| !NOT_IN_A_FILE.contains(&key.as_str()));
        let Some(arg) = arg else {
            let of = if is_server { "noctule proxy serve" } else { "noctule proxy" };
            return Err((
                at,
                format!(
                    "unknown key `{key}`: the keys are the long options of {of}, without the dashes{}",
                    if is_server { ", and user" } else { ", and host" }
                ),
            ));
        };
        let values: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => vec![&value],
        };
        for value in values {
            let at = line(value.span().start);
            match (value.get_ref(), matches!(arg.get_action(), ArgAction::SetTrue)) {
                (DeValue::Boolean(false), _) => {}
                (DeValue::Boolean(true), _) => words.push(Word { text: format!("--{key}"), line: at }),
                (_, true) => return Err((at, format!("{key} is true or false"))),
                (_, false) => {
                    let text = text(value).ok_or_else(|| (at, format!("{key} is a text, a number, or a list of these")))?;
                    words.push(Word { text: format!("--{key}={text}"), line: at });
                }
            }
        }
    }
    Ok(words)
}

pub fn text(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The words for what shadowsocks says to its plugin. What the client asks for does not matter: the server knows its target.
fn plugin(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let needed = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| format!("{name} is not set: --plugin is for programs that start a plugin as SIP003 says (shadowsocks)"))
    };
    let place = |host: &str, port: &str| -> Result<String, String> {
        let (host, port) = (needed(host)?, needed(port)?);
        // Both may list several addresses.
        let host = host.split('|').next().unwrap_or_default().to_owned();
        Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    };
    let (remote, local) = (place("SS_REMOTE_HOST", "SS_REMOTE_PORT")?, place("SS_LOCAL_HOST", "SS_LOCAL_PORT")?);
    let mut options = options(&variable("SS_PLUGIN_OPTIONS").unwrap_or_default());
    let is_server = options.iter().any(|option| option == "server");
    options.retain(|option| option != "server");
    let mut words = match is_server {
        true => vec!["serve".to_owned(), format!("--bind={remote}"), format!("--only-target={local}")],
        false => vec![remote, format!("--local={local}:plugin:1")],
    };
    words.extend(options.into_iter().map(|option| format!("--{option}")));
    Ok(words)
}

/// `name=value;name;...`, a backslash before `;`, `=` or itself.
fn options(text: &str) -> Vec<String> {
    let (mut all, mut current, mut is_escaped) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            ';' if !is_escaped => all.push(std::mem::take(&mut current)),
            c => {
                current.push(c);
                is_escaped = false;
            }
        }
    }
    all.push(current);
    all.retain(|option| !option.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(content: &str, is_server: bool) -> Result<Vec<String>, String> {
        match read(content, is_server) {
            Ok(words) => Ok(words.into_iter().map(|word| word.text).collect()),
            Err((line, why)) => Err(format!("{line}: {why}")),
        }
    }

    fn expanded(content: &str, line: &str) -> Result<Cli, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proxy.toml");
        std::fs::write(&file, content).unwrap();
        let line: Vec<OsString> = line.split(' ').map(|word| if word == "FILE" { file.clone().into() } else { word.into() }).collect();
        let cli = <Cli as clap::Parser>::try_parse_from(&line).unwrap();
        expand(cli, &line).map(Option::unwrap).map_err(|e| e.to_string().replace(&dir.path().display().to_string(), ""))
    }

    #[test]
    fn keys_are_the_long_options_in_their_order() {
        let text = "host = \"hill:5000\"\nlocal = [\"1:h:2\", \"udp:3:h:4\"]\ndynamic = 1080\nudp-lifetime = \"2s\"\naccept-new = true\njson = false\n";
        assert_eq!(
            words(text, false).unwrap(),
            ["hill:5000", "--local=1:h:2", "--local=udp:3:h:4", "--dynamic=1080", "--udp-lifetime=2s", "--accept-new"]
        );
        let text = "deny-target = \"10.0.0.5\"\nallow-target = [\n  \"10.0.0.0/8\",\n]\nallow-private = true\n";
        assert_eq!(words(text, true).unwrap(), ["--deny-target=10.0.0.5", "--allow-target=10.0.0.0/8", "--allow-private"]);
        for (text, is_server, told) in [
            ("\nhsot = 1", false, "2: unknown key `hsot`"),
            ("host = 1\n[table]", false, "2: unknown key `table`"),
            ("config = \"x\"", false, "1: unknown key"),
            ("json = \"yes\"", false, "1: json is true or false"),
            ("local = { a = 1 }", false, "1: local is a text"),
            ("local = [", false, "1: "),
            ("host = \"h\"", true, "1: unknown key `host`"),
        ] {
            let error = words(text, is_server).unwrap_err();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_is_a_command_line_and_the_command_line_goes_before_it() {
        let text = "host = \"hill\"\ndynamic = [1080]\nudp-lifetime = \"2s\"\n";
        let Command::Proxy(args) = expanded(text, "noctule proxy --config FILE -D 1081 --udp-lifetime 3s").unwrap().command else {
            panic!()
        };
        assert_eq!((args.host.as_deref(), args.dynamic.len(), args.udp_lifetime.0.as_secs()), (Some("hill"), 2, 3));
        let error = expanded("host = \"hill\"\n\nlocal = [\n  \"1:h:2\",\n  \"nonsense\"]\n", "noctule proxy --config FILE").unwrap_err();
        assert!(error.starts_with("/proxy.toml:5: ") && error.contains("[BIND:]PORT:HOST:PORT"), "{error}");
        let error = expanded("max-connections = 0\n", "noctule proxy serve --config FILE").unwrap_err();
        assert!(error.starts_with("/proxy.toml:1: "), "{error}");
        let error = expanded("anyone = true\ncode = true\n", "noctule proxy serve --config FILE").unwrap_err();
        assert!(error.starts_with("/proxy.toml:") && error.contains("cannot be used with"), "{error}");
    }

    #[test]
    fn plugins_are_told_by_their_environment() {
        let said = |options: &'static str| {
            move |name: &str| {
                Some(match name {
                    "SS_REMOTE_HOST" => "2001:db8::1".to_owned(),
                    "SS_REMOTE_PORT" => "8388".to_owned(),
                    "SS_LOCAL_HOST" => "127.0.0.1".to_owned(),
                    "SS_LOCAL_PORT" => "4000".to_owned(),
                    _ => options.to_owned(),
                })
            }
        };
        let client = plugin(said("peer-key=abc;known-hosts=/a\\;b")).unwrap();
        assert_eq!(client, ["[2001:db8::1]:8388", "--local=127.0.0.1:4000:plugin:1", "--peer-key=abc", "--known-hosts=/a;b"]);
        let server = plugin(said("server;anyone")).unwrap();
        assert_eq!(server, ["serve", "--bind=[2001:db8::1]:8388", "--only-target=127.0.0.1:4000", "--anyone"]);
        assert!(plugin(|_| None).unwrap_err().contains("SS_REMOTE_HOST is not set"));
    }
}
