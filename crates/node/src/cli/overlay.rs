//! How a command reaches the other side over nodes.

use super::heading::VIA;
use clap::{Args, ValueHint};
use noctule::PublicKey;
use std::net::IpAddr;
use std::path::PathBuf;

/// Goes into every command that has a link.
#[derive(Clone, Debug, Default, Args)]
pub struct ViaArgs {
    /// Reach the other side over this node (`noctule node`: HOST or HOST:PORT), and be reached over it. HOST of the command is then an address of
    /// the overlay. The node needs a [[neighbour]] with this side's key and address. Given several times: over all of these nodes at once, what promises
    /// delivery is spread over their routes.
    #[arg(long, value_name = "NODE", requires = "address", conflicts_with = "no_encryption", value_hint = ValueHint::Hostname, help_heading = VIA)]
    pub via: Vec<String>,
    /// The public key that the node must have [default: the key remembered for it]. With several nodes one for each, in the same order, or none.
    #[arg(long, value_name = "KEY", requires = "via", help_heading = VIA)]
    pub via_key: Vec<PublicKey>,
    /// Each flow takes one of the nodes, and the next where that one fails.
    #[arg(long, requires = "via", help_heading = VIA)]
    pub one_route: bool,
    /// Pre-shared key of the link to the node (to all of them), where its file names one; --psk is between the ends.
    #[arg(long, value_name = "FILE", requires = "via", help_heading = VIA)]
    pub via_psk: Option<PathBuf>,
    /// This side's address in the overlay.
    #[arg(long, value_name = "IP", requires = "via", help_heading = VIA)]
    pub address: Option<IpAddr>,
}
