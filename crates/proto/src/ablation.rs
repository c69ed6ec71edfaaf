//! Nodes without some of their mechanisms, to measure what each is worth. Only programs built with the feature `ablation` have this module: it is for
//! laboratories, and no shipped program has it.

use crate::switch::{ALL, OFF, Set};
use core::sync::atomic::Ordering::Relaxed;

/// A name that no mechanism has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no mechanism is called {0:?}")]
pub struct UnknownMechanism(pub String);

/// Name of each mechanism, and what it does.
pub fn mechanisms() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|(_, name, what)| (*name, what.trim()))
}

/// Switches mechanisms off for every node of this process, from now on. To be called before the first node is made: what a node has begun with a mechanism
/// it may not end without.
///
/// # Errors
/// A name is unknown; then nothing is switched off.
pub fn switch_off<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), UnknownMechanism> {
    switch_off_in(&OFF, names)
}

fn switch_off_in<'a>(set: &Set, names: impl IntoIterator<Item = &'a str>) -> Result<(), UnknownMechanism> {
    let place = |name: &str| ALL.iter().position(|(_, known, _)| *known == name).ok_or_else(|| UnknownMechanism(name.to_owned()));
    let places = names.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
    for place in places {
        set[place / 64].fetch_or(1 << (place % 64), Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::is_in;

    #[test]
    fn what_is_named_is_off_and_an_unknown_name_switches_nothing_off() {
        let set: Set = Default::default();
        let (first, last) = (ALL[0].1, ALL[ALL.len() - 1].1);
        assert_eq!(switch_off_in(&set, [first, "Nothing"]), Err(UnknownMechanism("Nothing".into())));
        assert!((0..ALL.len()).all(|place| !is_in(&set, place)));
        switch_off_in(&set, [first, last]).unwrap();
        assert_eq!((0..ALL.len()).filter(|place| is_in(&set, *place)).collect::<Vec<_>>(), [0, ALL.len() - 1]);
        assert!(mechanisms().all(|(_, what)| what.ends_with('.')));
        assert!(ALL.iter().enumerate().all(|(place, (mechanism, ..))| *mechanism as usize == place));
    }
}
