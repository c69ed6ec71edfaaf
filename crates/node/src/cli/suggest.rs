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
