//! `noctule-lab serve`: results and running tests in a browser, and the same as JSON for programs.
//!
//! The page reads what sweeps leave in folders ([`store`]) and the samples that running cells write there ([`live`]); it measures nothing itself.
//! A run that it starts is this program again, as a child that works on a folder like any other ([`runs`]): the page may end, the run goes on.
//! [`guard`] says which requests are answered. [`export`] writes the page of a run as one file. Everything that a browser loads is in the binary ([`assets`]).

pub mod answer;
pub mod assets;
mod command;
pub mod compare;
pub mod export;
pub mod guard;
pub mod live;
pub mod request;
pub mod routes;
pub mod runs;
pub mod store;
pub mod view;

pub use command::ServeArgs;
pub use export::ExportArgs;
