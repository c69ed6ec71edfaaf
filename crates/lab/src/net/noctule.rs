//! `noctule perf` between two namespaces. The binary is started, never linked.

use std::io;
use std::path::PathBuf;

use super::chain::Chain;
use super::contest::ContestError;
use super::run::Arrivals;
use crate::scenario::Scenario;

/// Where the binary `noctule` is: `NOCTULE_BIN`, or beside the laboratory's own binary.
pub fn binary() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("NOCTULE_BIN") {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(io::Error::new(io::ErrorKind::NotFound, format!("NOCTULE_BIN names {}, which is no file", path.display()))),
        };
    }
    let beside = std::env::current_exe()?.with_file_name("noctule");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no noctule at {}: build it (cargo build --release -p noctule-node) or set NOCTULE_BIN", beside.display()),
        )),
    }
}

pub(super) fn perf(_chain: &Chain, _scenario: &Scenario) -> Result<Arrivals, ContestError> {
    binary()?;
    Err(ContestError::Unsupported("noctule perf".into()))
}
