//! Sockets that answer from addresses of others (`IP_TRANSPARENT`): one for each address that something came back from, shared by all that speak to it.

use super::bound;
use socket2::Type;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::time::Instant;

/// Sockets at a time; another one takes the place of that which has been silent for longest.
pub(super) const MOST: usize = 512;

/// Where answers leave from.
pub(super) struct Replies {
    sockets: HashMap<SocketAddr, (UdpSocket, Instant)>,
    mark: Option<u32>,
}

impl Replies {
    pub fn new(mark: Option<u32>) -> Self {
        Self { sockets: HashMap::new(), mark }
    }

    /// Sends to `to` as if from `from`. What cannot be sent is lost, as on any link.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8]) {
        if from.is_ipv4() != to.is_ipv4() {
            return;
        }
        let now = Instant::now();
        if let Some((socket, last)) = self.sockets.get_mut(&from) {
            *last = now;
            let _ = socket.send_to(data, to);
            return;
        }
        let Ok(socket) = self.open(from) else { return };
        let _ = socket.send_to(data, to);
        if self.sockets.len() >= MOST
            && let Some(oldest) = self.sockets.iter().min_by_key(|(_, (_, last))| *last).map(|(at, _)| *at)
        {
            self.sockets.remove(&oldest);
        }
        self.sockets.insert(from, (socket, now));
    }

    fn open(&self, from: SocketAddr) -> io::Result<UdpSocket> {
        let socket = bound(from, Type::DGRAM, true, self.mark)?;
        // A program of this host may have the address for its own, or another proxy for the same.
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        Ok(socket.into())
    }

    /// Closes those that have been silent for so long.
    pub fn close_idle(&mut self, idle: Duration) {
        self.sockets.retain(|_, (_, last)| last.elapsed() < idle);
    }
}
