//! Values of options of which some have names: shells complete the names, and other values are accepted too.

use crate::log::{LEVELS, Levels};
use crate::units::CcName;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use noctule::CongestionControl;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

/// Parses any text of a `T`, and suggests these names.
#[derive(Clone)]
pub struct Suggest<T> {
    names: Vec<&'static str>,
    kind: PhantomData<fn() -> T>,
}

/// The values of `--cc`.
pub fn cc() -> Suggest<CcName> {
    Suggest { names: CongestionControl::NAMED.iter().map(|cc| cc.name()).collect(), kind: PhantomData }
}

/// The values of `--log-level`.
pub fn levels() -> Suggest<Levels> {
    Suggest { names: LEVELS.to_vec(), kind: PhantomData }
}

impl<T: FromStr<Err = String> + Clone + Send + Sync + 'static> TypedValueParser for Suggest<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        (|text: &str| text.parse::<T>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(|name| PossibleValue::new(*name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Completions have the names from one list; what people read is written out, and has them all.
    #[test]
    fn help_and_the_example_file_name_every_congestion_control() {
        let mut texts = vec![("example.toml".to_owned(), include_str!("../daemon/setup/example.toml").to_owned())];
        let keys: Vec<_> = crate::daemon::config::keys::tables().flat_map(|t| t.keys).filter(|k| k.name == "congestion").collect();
        texts.extend(keys.iter().map(|k| ("node.toml".to_owned(), k.text.to_owned())));
        let mut root = crate::cli::Cli::command();
        root.build();
        let mut commands = vec![&root];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().filter(|c| c.get_name() != "help"));
            let cc = command.get_arguments().filter(|a| a.get_id().as_str() == "cc");
            texts.extend(cc.map(|a| (command.get_name().to_owned(), a.get_help().expect("help").to_string())));
        }
        assert!(texts.len() > 7, "{}", texts.len());
        for (whose, text) in &texts {
            let missing: Vec<_> = CongestionControl::NAMED.iter().map(|cc| cc.name()).filter(|name| !text.contains(name)).collect();
            assert!(missing.is_empty(), "{whose} lacks {missing:?}");
        }
    }
}
