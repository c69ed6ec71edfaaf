//! Words of commands that are printed for people to paste into a shell.

use std::ffi::OsStr;

/// A word as a shell takes it: quoted where that is needed. A word with a nul, which no command line can have, is given as it is.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}
