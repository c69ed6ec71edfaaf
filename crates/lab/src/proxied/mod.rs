//! TCP programs through proxies: `noctule proxy` beside the kernel's TCP and the proxies that people run, between two namespaces joined by emulated links.

mod bulk;
mod command;
mod contender;
mod course;
mod load;
mod messages;
mod programs;
mod table;

pub use command::ProxyArgs;
pub use contender::Contender;
