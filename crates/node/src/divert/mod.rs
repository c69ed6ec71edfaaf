//! Diverting connections to this process by the system's firewall: what `noctule proxy` and `noctule node` share. Which connections they are is said by the
//! tables of each.
//!
//! Both run the program nft, whose language is what administrators read, and keep to one table of their own. TPROXY needs one rule and one route of policy
//! routing besides.

mod nft;
mod policy;

pub use nft::{Chain, Found, NftError, Set, Table, ended, in_a_line, words};
pub use policy::{Policy, tables_at};

use rustix::thread::{CapabilitySet, capabilities};

/// Mark of what the proxy sends itself, and of the sockets to which nodes' rules divert.
pub const OWN_MARK: u32 = 0x6e6f_0001;
/// Mark of packets that are diverted to the proxy, and of the connections that they belong to.
pub const PROXY_MARK: u32 = 0x6e6f_0002;
/// The same for nodes, each with the number of its device in the lower half.
pub const NODE_MARKS: u32 = 0x6e72_0000;
/// Marks of connections that nodes dial for other nodes, with the same number.
pub const DIALLED_MARKS: u32 = 0x6e73_0000;
/// The part of a node's mark that says what it means.
pub const MARKS_MASK: u32 = 0xffff_0000;

/// The first packet of a TCP connection.
pub const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// Whether this process may divert connections.
pub fn is_permitted() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}
