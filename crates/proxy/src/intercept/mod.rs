//! Connections and datagrams that the system diverts here although they are meant for others: by REDIRECT (TCP) and by TPROXY (TCP and UDP).
//!
//! Which they are is said by rules of the system's firewall, which are made elsewhere. Here are the sockets that the rules lead to, and what is taken in at
//! them: the target is the address that a packet was sent to, and answers leave from it.

mod original;
mod replies;
pub(crate) mod tcp;
mod udp;

use crate::listen::BindError;
use crate::near::{Listener, Near};
use crate::uplink::Uplink;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How connections come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diversion {
    /// Packets keep their addresses and are handed to a transparent socket (`IP_TRANSPARENT`, needs CAP_NET_ADMIN).
    Tproxy,
    /// The destination is rewritten, and the system is asked for the one that stood there.
    Redirect,
}

/// What is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interception {
    /// Where the rules lead, TCP and UDP alike; 0: any that is free, chosen for each of the two.
    pub port: u16,
    /// Connections, and how they come; `None`: none are taken in.
    pub tcp: Option<Diversion>,
    /// Datagrams, by TPROXY.
    pub udp: bool,
    /// What is redirected comes from other hosts, too: the system then rewrites the destination to an address of the device that it came by.
    pub clients: bool,
}

impl Near {
    /// Takes in what the system diverts to this port: of both families where the host has them. What it connects to is asked for by address.
    ///
    /// # Errors
    /// The port cannot be listened at, or this process may not have transparent sockets.
    pub fn intercept(&self, what: &Interception) -> Result<Listener, BindError> {
        let mut listener = Listener::default();
        if let Some(diversion) = what.tcp {
            let anywhere = diversion == Diversion::Redirect && what.clients;
            let sockets = each(what.port, anywhere, "TCP", |at| tcp::listen(at, diversion, self.options.mark))?;
            let port = sockets.first().and_then(|socket| socket.local_addr().ok()).map_or(what.port, |at| at.port());
            self.take(&mut listener, sockets, move |near, tcp, source| tcp::serve(near, tcp, source, diversion, port));
        }
        if what.udp {
            for socket in each(what.port, false, "UDP", |at| udp::listen(at, self.options.mark))? {
                listener.addresses.extend(socket.local_addr());
                let near = self.clone();
                listener.tasks.push(tokio::spawn(udp::serve(near, socket)));
            }
        }
        Ok(listener)
    }
}

/// A socket for each family that the host has, at the same port.
fn each<T>(port: u16, anywhere: bool, kind: &'static str, open: impl Fn(SocketAddr) -> io::Result<T>) -> Result<Vec<T>, BindError> {
    let ips: [IpAddr; 2] = match anywhere {
        true => [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        false => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
    };
    let mut sockets = Vec::new();
    for ip in ips {
        match open((ip, port).into()) {
            Ok(socket) => sockets.push(socket),
            // A host may lack IPv6.
            Err(error) if ip.is_ipv6() && !sockets.is_empty() && crate::listen::lacks_family(&error) => {}
            Err(error) => return Err(BindError { kind, place: SocketAddr::from((ip, port)).to_string(), error }),
        }
    }
    Ok(sockets)
}

/// A bound socket whose packets are marked; a transparent one takes packets for any address, and sends from any.
fn bound(at: SocketAddr, kind: Type, is_transparent: bool, mark: Option<u32>) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP };
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if is_transparent {
        if at.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }?;
    }
    crate::listen::set_mark(&socket, mark)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What was sent here is not taken in.
const HERE: &str = "it was sent to the port of the interception itself, which is for what the firewall's rules divert";

/// Why a connection or a datagram to this address is not taken in: it would come back here. `port`: that of the interception.
fn circle(to: SocketAddr, port: u16, uplink: &Uplink) -> Option<&'static str> {
    if port == to.port() && to.ip().is_loopback() {
        return Some(HERE);
    }
    if uplink.server().is_some_and(|server| server == to) {
        return Some("it is meant for the proxy's own server, which the firewall's rules have to leave alone");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_come_back_here_is_known() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let uplink = Uplink::default();
        for text in ["127.0.0.1:4243", "127.0.0.2:4243", "[::1]:4243"] {
            assert!(circle(at(text), 4243, &uplink).is_some(), "{text}");
        }
        for text in ["127.0.0.1:80", "192.0.2.1:4243"] {
            assert!(circle(at(text), 4243, &uplink).is_none(), "{text}");
        }
    }
}
