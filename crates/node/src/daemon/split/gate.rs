//! Which connections another node may ask for: those whose packets this host would have delivered, had they come out of the tunnel.

use super::Split;
use crate::daemon::Peer;
use noctule_proxy::{Answer, Outcome};
use std::net::IpAddr;

impl Split {
    /// Asks the tunnel about the source, and the kernel about the target.
    pub(super) async fn gate(&self, peer: &Peer, source: IpAddr, target: IpAddr) -> Result<(), Answer> {
        let denied = |text: String| Answer::new(Outcome::Denied, text);
        // Nobody speaks for others, as with packets.
        let is_its = self.tunnel.node_of(source).is_some_and(|node| node.peer().key == peer.key);
        if !is_its {
            return Err(denied(format!("the source {source} does not lie behind this node, by the other side's file")));
        }
        if source.is_ipv4() != target.is_ipv4() || target.is_loopback() || target.is_unspecified() || target.is_multicast() {
            return Err(denied(format!("{target} is no address for packets of a tunnel")));
        }
        self.tunnel.device().delivers(source, target).await
    }
}
