//! Is anybody listening there? Asked when a peer has not answered the first flight, so that a closed port is told from silence in half a second.
//!
//! An ICMP "port unreachable" is a hint that anyone could send, and the endpoint's socket, which serves every session, must not listen to
//! such hints. So the question is put from a socket of its own, connected to the address: the kernel reports only an ICMP message that quotes
//! this socket's ephemeral port, only the attempt that is under way can be ended by it, and only by two such answers in a row. No established
//! session can be touched.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;

/// A peer that listens has answered by then, unless it is far away or packets were lost: the first retransmission is out (P19).
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Answers that are believed.
const REFUSALS: u32 = 2;
/// How often it is asked without any refusal.
const ATTEMPTS: u32 = 4;
/// No packet of ours begins with this byte: whoever listens drops it.
const QUESTION: &[u8] = &[0];

/// Resolves when the host at `remote` has said that the port is closed; otherwise never. `local`: where the endpoint is bound.
pub(crate) async fn found(local: SocketAddr, remote: SocketAddr) {
    let mut refusals = 0;
    for _ in 0..ATTEMPTS {
        tokio::time::sleep(ASK_EVERY).await;
        match tokio::time::timeout(ASK_EVERY, is_refused(local, remote)).await {
            Ok(Ok(true)) => refusals += 1,
            // Silence, an answer, or a socket that could not be had: no hint.
            _ => refusals = 0,
        }
        if refusals >= REFUSALS {
            return;
        }
    }
    std::future::pending().await
}

/// Sends one datagram and waits until something comes back.
async fn is_refused(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    let ip = match (local.ip(), remote) {
        (ip, _) if !ip.is_unspecified() && ip.is_ipv4() == remote.is_ipv4() => ip,
        (_, SocketAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (_, SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((ip, 0)).await?;
    socket.connect(remote).await?;
    socket.send(QUESTION).await?;
    match socket.recv(&mut [0; 1]).await {
        Err(e) => Ok(e.kind() == io::ErrorKind::ConnectionRefused),
        Ok(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_found(remote: SocketAddr) -> bool {
        let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        tokio::time::timeout(Duration::from_secs(2), found(local.parse().unwrap(), remote)).await.is_ok()
    }

    #[tokio::test]
    async fn a_closed_port_is_told_from_a_silent_one() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let silent = UdpSocket::bind(ip).await.unwrap();
            let address = silent.local_addr().unwrap();
            assert!(!is_found(address).await, "{address} is open");
            drop(silent);
            assert!(is_found(address).await, "{address} is closed");
        }
    }
}
