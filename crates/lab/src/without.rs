//! Mechanisms of noctule that `--without` switches off, to measure what each is worth: for a whole process, in builds with the feature `ablation`.

use std::sync::OnceLock;

static OFF: OnceLock<Vec<String>> = OnceLock::new();

/// What is switched off, in alphabetical order.
pub fn names() -> &'static [String] {
    OFF.get().map_or(&[], Vec::as_slice)
}

/// What a command needs behind it to be run in the same way; empty where nothing is switched off.
pub fn flag() -> String {
    if names().is_empty() { String::new() } else { format!(" --without={}", names().join(",")) }
}

#[cfg(not(feature = "ablation"))]
const NO_SWITCHES: &str = "this build cannot switch mechanisms off; build it with: cargo build --release -p noctule-lab --features ablation --target-dir target/ablation";

/// Switches mechanisms off, once and before anything is run.
///
/// # Errors
/// A name is unknown, or this build has no switches.
#[cfg(not(feature = "ablation"))]
pub fn set(names: &[String]) -> Result<(), String> {
    if names.is_empty() { Ok(()) } else { Err(format!("--without: {NO_SWITCHES}")) }
}

/// Switches mechanisms off, once and before anything is run.
///
/// # Errors
/// A name is unknown, or this build has no switches.
#[cfg(feature = "ablation")]
pub fn set(names: &[String]) -> Result<(), String> {
    noctule_proto::ablation::switch_off(names.iter().map(String::as_str))
        .map_err(|e| format!("--without: {e}; noctule-lab mechanisms lists them"))?;
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    OFF.set(names).map_err(|_| "--without: is set once".to_owned())
}

/// The names that `--without` takes, and what each mechanism does: a line each.
///
/// # Errors
/// This build has no switches.
#[cfg(feature = "ablation")]
pub fn list() -> Result<String, String> {
    Ok(noctule_proto::ablation::mechanisms().map(|(name, what)| format!("{name:28}{what}\n")).collect())
}

/// The names that `--without` takes, and what each mechanism does: a line each.
///
/// # Errors
/// This build has no switches.
#[cfg(not(feature = "ablation"))]
pub fn list() -> Result<String, String> {
    Err(NO_SWITCHES.to_owned())
}

#[cfg(all(test, not(feature = "ablation")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_switches_refuses_and_says_how_to_get_them() {
        assert_eq!(set(&[]), Ok(()));
        for said in [set(&["Pulses".to_owned()]).unwrap_err(), list().unwrap_err()] {
            assert!(said.contains("--features ablation"), "{said}");
        }
        assert!(names().is_empty());
    }
}
