//! Exit codes, for `--help` and the manual pages.

/// Of every command but `node`; `Failure::exit_code` gives them.
pub const EXITS: &[(u8, &str)] = &[
    (0, "everything was done and verified"),
    (1, "internal error, or the system's"),
    (2, "wrong usage, or a wrong file"),
    (3, "a source cannot be read"),
    (4, "the target cannot be written"),
    (5, "the disk is full"),
    (6, "the peer does not answer"),
    (7, "the peer went away"),
    (8, "the peer's key is not the expected one"),
    (9, "the peer denies this key, or a target"),
    (10, "an address or a port is taken"),
    (11, "a name was refused"),
    (12, "a hash did not match, or a file changed"),
    (13, "the host name cannot be resolved"),
    (14, "the target exists already"),
    (15, "the host's key is not known yet"),
    (16, "the other side wants encryption"),
    (17, "the other side is busy with others"),
    (18, "doctor found a problem"),
    (19, "the code is wrong, used or withdrawn"),
    (20, "the proxy cannot reach the target"),
    (130, "interrupted"),
];

/// Of `node`.
pub const NODE_EXITS: &[(u8, &str)] = &[
    (0, "ended on request, or --check found nothing wrong"),
    (1, "the system refused something (TUN, sockets)"),
    (2, "the file is wrong; the message names line and key"),
    (3, "file or key cannot be read"),
    (4, "file or key cannot be written"),
    (10, "an address or a port is taken"),
];

/// The text for `--help`, in two columns.
pub fn help(exits: &[(u8, &str)]) -> String {
    let rows = exits.len().div_ceil(2);
    let cell = |at: usize| exits.get(at).map_or_else(String::new, |(code, what)| format!("{code:>3} {what}"));
    let width = exits[..rows].iter().map(|(_, what)| what.len()).max().unwrap_or(0) + 4;
    let mut out = String::from("Exit codes:");
    for row in 0..rows {
        out += format!("\n  {:width$}  {}", cell(row), cell(row + rows)).trim_end();
    }
    out
}
