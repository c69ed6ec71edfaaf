//! `noctule-lab serve`: results and running tests in a browser, and the same as JSON for programs.
//!
//! The page reads what sweeps leave in folders ([`store`]) and the samples that running cells write there ([`live`]); it measures nothing itself.
//! A run that it starts is this program again, as a child that works on a folder as a sweep from a terminal does ([`runs`]). A server that is
//! told to end ends its children; if it is killed, they go on. [`guard`] says which requests are answered, `accept` how many connections are.
//! [`export`] writes the page of a run as one file. Everything that a browser loads is in the binary ([`assets`]).

mod accept;
pub mod answer;
pub mod assets;
mod cache;
mod command;
pub mod compare;
pub mod export;
pub mod guard;
pub mod live;
mod locks;
pub mod look;
pub mod request;
pub mod routes;
pub mod runs;
pub mod single;
pub mod store;
pub mod tables;
pub mod view;

pub use command::ServeArgs;
pub use export::ExportArgs;
