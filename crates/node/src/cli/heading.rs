//! Headings under which `--help` and the manual pages sort options. Each option names its own heading: clap's heading for all that follows would not end with
//! a group of options, but go on in the command that includes the group.

/// Keys: this side's, the other side's, and those that may connect.
pub const KEYS: &str = "Keys";
/// The path to the other side, and how it is used.
pub const PATH: &str = "Path";
/// The other side is reached over nodes.
pub const VIA: &str = "Over nodes";
/// What the proxy takes from programs that know nothing of it.
pub const INTERCEPTION: &str = "Interception";
/// What is told besides results.
pub const LOG: &str = "Log";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The options under each heading. An option that is not named here is under no heading.
    const SORTED: [(&str, &[&str]); 5] = [
        (
            KEYS,
            &[
                "accept_new",
                "allow",
                "anyone",
                "authorised_keys",
                "client_config",
                "code",
                "key",
                "known_hosts",
                "no_encryption",
                "peer_key",
                "psk",
                "remember",
                "to",
            ],
        ),
        (PATH, &["bind", "cc", "give_up", "mtu", "path", "port", "timeout"]),
        (VIA, &["address", "one_route", "via", "via_key", "via_psk"]),
        (INTERCEPTION, &["excluded", "fail", "intercept", "intercept_port", "intercept_tcp", "intercept_udp", "no_rules"]),
        (LOG, &["log_format", "log_level", "quiet", "verbose"]),
    ];

    /// Groups are flattened into commands, and what comes after them must not land under their heading.
    #[test]
    fn every_option_of_every_command_stands_under_its_own_heading() {
        let mut root = crate::cli::Cli::command();
        root.build();
        let mut commands = vec![&root];
        let mut seen = 0;
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().filter(|c| c.get_name() != "help"));
            for arg in command.get_arguments().filter(|a| !a.is_positional()) {
                let name = arg.get_id().as_str();
                // keygen is about keys as a whole.
                let expected = match command.get_name() {
                    "keygen" if name == "known_hosts" => None,
                    // Of node init and add-neighbour: what goes into the file.
                    "init" | "add-neighbour" if !["quiet", "verbose", "log_level", "log_format"].contains(&name) => None,
                    _ => SORTED.iter().find(|(_, names)| names.contains(&name)).map(|(heading, _)| *heading),
                };
                assert_eq!(arg.get_help_heading(), expected, "{} --{name}", command.get_name());
                seen += 1;
            }
        }
        assert!(seen > 100, "{seen}");
    }
}
