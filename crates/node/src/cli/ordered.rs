//! Two options of which one says the opposite of the other: where they are mixed, their order counts.

use clap::ArgMatches;

/// The values of both in the order of the command line, and whether each is of `yes`.
pub fn mixed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, yes: &str, no: &str) -> Vec<(bool, T)> {
    let of = |name: &str, is_yes: bool| {
        let at = matches.indices_of(name).into_iter().flatten();
        let values = matches.get_many::<T>(name).into_iter().flatten();
        at.zip(values).map(|(at, value)| (at, (is_yes, value.clone()))).collect::<Vec<_>>()
    };
    let mut all = [of(yes, true), of(no, false)].concat();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, value)| value).collect()
}
