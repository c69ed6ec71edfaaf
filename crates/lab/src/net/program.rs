//! Programs of others that the laboratory starts: whether they are on this machine, what to install, which version they are.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::contest::ContestError;
use super::noctule;
use super::process::Process;

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);
const SILENT: &str = "says nothing of its version";

/// A program of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    /// As it is started.
    pub(crate) name: &'static str,
    /// The package of Debian that has it.
    pub(crate) package: &'static str,
    /// Arguments with which it says its version; none if it is known by another one of its package.
    pub(crate) asked: &'static [&'static str],
}

impl Program {
    /// What is missing, and what to do about it.
    pub(crate) fn missing(&self) -> Option<String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_here = std::env::split_paths(&path).any(|folder| folder.join(self.name).is_file());
        (!is_here).then(|| format!("there is no {} on this machine: install it (Debian: {})", self.name, self.package))
    }
}

/// What a contender consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// The binary `noctule`.
    Noctule,
    /// The kernel's own TCP.
    Kernel,
    /// A library that is part of this program.
    Library(&'static str),
    /// Programs of others.
    Of(&'static [Program]),
}

impl Made {
    /// What is missing, and what to do about it.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Noctule | Self::Kernel | Self::Library(_) => None,
            Self::Of(programs) => programs.iter().find_map(Program::missing),
        }
    }

    /// Its version, as it says it itself when it is started by `command`.
    pub(crate) fn version(self, command: impl Fn(&Path) -> Command) -> Result<String, ContestError> {
        let asked = |programs: &'static [Program]| programs.iter().find(|program| !program.asked.is_empty());
        match self {
            Self::Noctule => first_line(command(&noctule::binary()?).arg("--version")),
            Self::Kernel => Ok(format!("Linux {}", std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim())),
            Self::Library(version) => Ok(version.to_owned()),
            Self::Of(programs) => match asked(programs) {
                Some(program) => first_line(command(Path::new(program.name)).args(program.asked)),
                None => Ok(SILENT.to_owned()),
            },
        }
    }
}

/// The first line that a program says.
fn first_line(command: &mut Command) -> Result<String, ContestError> {
    let mut process = Process::start(command, |_| {})?;
    let said = process.first_line(PATIENCE)?;
    Ok(said.unwrap_or_else(|| SILENT.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let absent = Program { name: "no-such-program-of-this-name", package: "no-such-package", asked: &[] };
        let missing = absent.missing().unwrap();
        assert!(missing.contains(absent.name) && missing.contains(absent.package), "{missing}");
        assert_eq!(Program { name: "sh", package: "dash", asked: &[] }.missing(), None);
    }

    #[test]
    fn a_version_is_the_first_line_on_either_output_and_a_program_that_goes_on_is_ended() {
        let said = |script: &str| first_line(Command::new("sh").args(["-c", script]));
        assert_eq!(said("echo; echo 'tool 1.2'; exec sleep 1000").unwrap(), "tool 1.2");
        assert_eq!(said("echo 'tool 1.3' >&2; exit 1").unwrap(), "tool 1.3");
        assert_eq!(said("exit 0").unwrap(), SILENT);
    }
}
