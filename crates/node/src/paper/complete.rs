//! Completions: the generated ones, and hosts, which no definition knows.

use crate::cli::{Cli, CompletionsArgs, HostsArgs};
use crate::failure::Failure;
use crate::host_config::HostConfig;
use crate::identity::{self, known_hosts::KnownHosts};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::collections::BTreeSet;
use std::io;

/// Commands that take a host.
const WITH_HOST: [&str; 4] = ["send", "perf", "ping", "doctor"];
/// Options whose value is one.
const HOST_OPTIONS: [&str; 3] = ["-c", "--client", "--via"];

/// `noctule completions`.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    io::Write::write_all(&mut io::stdout(), script(args.shell).as_bytes())
        .map_err(|e| Failure::system("cannot write to standard output", e))
}

fn script(shell: Shell) -> String {
    let mut root = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "noctule", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + &bash(&root),
        Shell::Zsh => script.replace(":_hosts", ":_noctule_hosts").replace("\n_noctule() {", &format!("\n{ZSH}\n_noctule() {{")),
        Shell::Fish => {
            let commands = WITH_HOST.join(" ");
            script
                + &format!(
                    "complete -c noctule -n \"__fish_seen_subcommand_from {commands}\" -a \"(noctule complete-hosts 2>/dev/null)\"\n"
                )
        }
        _ => script,
    }
}

/// `send` takes files and hosts.
const ZSH: &str = r#"(( $+functions[_noctule_hosts] )) ||
_noctule_hosts() {
    local -a hosts
    hosts=(${(f)"$(noctule complete-hosts 2>/dev/null)"})
    compadd -a hosts
    [[ ${words[(Ie)send]} -gt 0 ]] && _files
}
"#;

/// Options of a command that take a value, as they are written.
fn valued(command: &Command) -> Vec<String> {
    let options = command.get_arguments().filter(|a| !a.is_positional() && a.get_action().takes_values());
    options
        .flat_map(|a| a.get_long().map(|l| format!("--{l}")).into_iter().chain(a.get_short().map(|s| format!("-{s}"))))
        .filter(|option| !HOST_OPTIONS.contains(&option.as_str()))
        .collect()
}

/// The script that clap generates, with hosts added where an argument may be one.
fn bash(root: &Command) -> String {
    let mut cases = String::new();
    for command in root.get_subcommands().filter(|c| WITH_HOST.contains(&c.get_name())) {
        cases += &format!("        {}) case $prev in {}) return ;; esac ;;\n", command.get_name(), valued(command).join("|"));
    }
    let hosts_of = HOST_OPTIONS.join("|");
    format!(
        r#"
_noctule_hosts() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    _noctule "$@"
    [[ $COMP_CWORD -lt 2 || $cur == -* ]] && return
    # No file is one.
    case $prev in {hosts_of}) COMPREPLY=() ;; esac
    case ${{COMP_WORDS[1]}} in
{cases}        *) return ;;
    esac
    local hosts
    mapfile -t hosts < <(compgen -W "$(noctule complete-hosts 2>/dev/null)" -- "$cur")
    COMPREPLY+=("${{hosts[@]}}")
    declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$cur"
}}
complete -F _noctule_hosts -o bashdefault -o default noctule
"#
    )
}

/// `noctule complete-hosts`: names in the file of remembered keys and in the user's file of hosts. What cannot be read has none.
pub fn hosts() {
    let mut names = BTreeSet::new();
    if let Ok(config) = HostConfig::open(&HostsArgs::from_environment()) {
        names.extend(config.names().map(str::to_owned));
    }
    if let Some(hosts) = identity::config_file("known_hosts").and_then(|path| KnownHosts::open(&path).ok()) {
        names.extend(hosts.names().map(|name| name.strip_suffix(":4242").unwrap_or(name).to_owned()));
    }
    names.iter().for_each(|name| say!("{}", name.trim_start_matches('[').trim_end_matches(']')));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Process;

    /// What bash would offer.
    fn offered(words: &[&str]) -> Option<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        // In place of the command, which knows the hosts.
        let command = dir.path().join("noctule");
        std::fs::write(&command, "#!/bin/sh\nprintf 'hill\\nmast\\n'\n").unwrap();
        std::fs::set_permissions(&command, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let call = format!(
            "PATH={}:$PATH\n{}\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($#-1)); _noctule_hosts noctule \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            dir.path().display(),
            script(Shell::Bash)
        );
        let out = Process::new("bash").current_dir(dir.path()).args(["-c", &call, "bash"]).args(words).output().ok()?;
        assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect())
    }

    #[test]
    fn bash_completes_hosts_where_one_may_stand_and_values_that_have_names() {
        let Some(hosts) = offered(&["noctule", "ping", "h"]) else {
            println!("*** SKIPPED: there is no bash");
            return;
        };
        assert_eq!(hosts, ["hill"]);
        let words = |line: &str| offered(&line.split('|').collect::<Vec<_>>()).unwrap();
        assert!(words("noctule|send|file|m").contains(&"mast".into()));
        assert_eq!(words("noctule|perf|-c|m"), ["mast"]);
        assert_eq!(words("noctule|ping|--json|h"), ["hill"]);
        assert!(!words("noctule|ping|--key|h").contains(&"hill".into()));
        assert!(words("noctule|ping|--cc|").contains(&"cubic".into()));
        assert!(words("noctule|recv|--log-level|").contains(&"debug".into()));
        assert!(!words("noctule|recv|h").contains(&"hill".into()));
    }

    #[test]
    fn zsh_and_fish_ask_for_hosts_too() {
        assert!(script(Shell::Zsh).matches("_noctule_hosts").count() > 4, "defined and used");
        assert!(!script(Shell::Zsh).contains(":_hosts"));
        assert!(script(Shell::Fish).contains("noctule complete-hosts"));
    }
}
