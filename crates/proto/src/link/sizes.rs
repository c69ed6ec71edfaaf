//! What the own system says of the size of packets: what its route takes, what it refused to send.

use super::handshake::Handshake;
use super::{Link, LinkState};
use crate::flows::Flows;
use crate::units::Time;
use std::net::{IpAddr, SocketAddr};

impl Link {
    /// The host's route to this address is believed to take datagrams of `size` bytes. False if the link does not go there.
    pub(crate) fn on_route(&mut self, now: Time, remote: IpAddr, size: u16) -> bool {
        let is_there = |to: SocketAddr| to.ip().to_canonical() == remote;
        if let LinkState::Handshaking(handshake) = &mut self.state {
            return is_there(handshake.remote()) && handshake.on_route(now, size);
        }
        let mut any = false;
        for path in self.paths.values_mut().filter(|p| is_there(p.remote())) {
            path.on_route(now, size);
            any = true;
        }
        any
    }

    /// The own system refused datagrams of `size` bytes to `remote` that were made at `since`. False if they were none of this link.
    pub(crate) fn on_refused(&mut self, now: Time, remote: SocketAddr, size: u16, since: Time, flows: &mut Flows) -> bool {
        if let LinkState::Handshaking(handshake) = &mut self.state {
            if handshake.remote() != remote {
                return false;
            }
            match handshake {
                Handshake::Initiator(i) => i.on_refused(now, size),
                Handshake::Responder(r) => r.on_refused(size),
            }
            return true;
        }
        let mut fates = core::mem::take(&mut self.fates);
        let mut any = false;
        for path in self.paths.values_mut().filter(|p| p.remote() == remote) {
            path.on_refused(now, size, since, &mut fates);
            any = true;
        }
        self.dispatch_fates(now, &mut fates, flows);
        self.fates = fates;
        any
    }
}
