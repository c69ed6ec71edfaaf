//! Directories that the environment names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The directory of a variable. What is empty or relative is no place of its own: a key would lie wherever the command happens to run
/// (XDG Base Directory Specification).
pub fn named_by(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).and_then(absolute)
}

/// The directory that systemd made for a unit. Where the unit has several, the variable has them all, separated by colons (systemd.exec(5)): the first.
pub fn of_unit(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).and_then(|list| absolute(first(&list)))
}

fn absolute(path: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

fn first(list: &OsStr) -> OsString {
    OsStr::from_bytes(list.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_directories_of_a_unit_the_first_is_taken() {
        let of = |list: &str| absolute(first(OsStr::new(list)));
        assert_eq!(of("/var/lib/noctule:/var/lib/noctule/proxy"), Some("/var/lib/noctule".into()));
        assert_eq!(of("/var/lib/noctule"), Some("/var/lib/noctule".into()));
        assert_eq!((of(""), of("noctule")), (None, None));
    }
}
