//! Connections that are diverted here.

use super::{Diversion, HERE, bound, circle, original};
use crate::listen::BACKLOG;
use crate::near::Near;
use crate::relay::reset;
use crate::report::{Counts, End};
use crate::wire::{Answer, Outcome, Transport};
use socket2::Type;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Listens where the rules lead.
pub(crate) fn listen(at: SocketAddr, diversion: Diversion, mark: Option<u32>) -> io::Result<TcpListener> {
    let socket = bound(at, Type::STREAM, diversion == Diversion::Tproxy, mark)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Carries a connection to where it was sent; one that was sent here, to this `port`, is reset.
pub(super) async fn serve(near: Near, tcp: TcpStream, source: SocketAddr, diversion: Diversion, port: u16) {
    let begun = Instant::now();
    // By TPROXY the socket has the address that the connection was made to.
    let local = tcp.local_addr().ok();
    let to = match diversion {
        Diversion::Tproxy => local,
        Diversion::Redirect => original::of_redirected(&tcp).ok(),
    };
    let why = match to {
        Some(to) if diversion == Diversion::Tproxy || Some(to) != local => circle(to, port, &near.uplink),
        // It came here by itself.
        _ => Some(HERE),
    };
    match (to, why) {
        (Some(to), None) => near.carry(tcp, source, to.into()).await,
        (_, why) => {
            reset(&tcp);
            let target = to.or(local).map_or_else(|| "an unknown address".to_owned(), |at| at.to_string());
            let end = End::Refused(Answer::new(Outcome::Denied, why.unwrap_or(HERE)));
            near.report(None, Transport::Tcp, source.to_string(), target, begun, &Counts::default(), end);
        }
    }
}
