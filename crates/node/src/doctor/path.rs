//! The way to one host: name, route, handshake, round trip, path MTU, ECN.

use super::Finding;
use crate::address::host_port;
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::identity;
use noctule::{Endpoint, NodeConfig, PathStats, Session};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the path's MTU may take to be found: some probes, each a few round trips.
const SEARCH: Duration = Duration::from_secs(3);
/// Bytes of IP and UDP header.
const HEADERS_V4: u16 = 28;
const HEADERS_V6: u16 = 48;

/// Everything about the way to `host`; ends where it cannot go on.
pub async fn look(host: &str, args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    let host = match host_port(host, args.port) {
        Ok(host) => host,
        Err(wrong) => return vec![Finding::problem("host", wrong, "without a host nothing more can be said about the way")],
    };
    match connect(&host, args).await {
        Ok((endpoint, session)) => {
            let remote = session.remote_address();
            findings.push(Finding::good(
                "answer",
                format!("{} answers, key {}", remote.map_or_else(|| host.clone(), |a| a.to_string()), session.peer_key().fingerprint()),
            ));
            findings.extend(handshake(&session));
            if let Some(remote) = remote {
                findings.push(mtu(&session, remote).await);
            }
            session.close(0, "").await;
            endpoint.wait_idle().await;
        }
        Err(failure) => {
            findings.push(Finding::problem("answer", failure.to_string(), "without an answer nothing more can be said about the way"));
        }
    }
    findings
}

async fn connect(host: &str, args: &DoctorArgs) -> Result<(Endpoint, Session), Failure> {
    let (mut config, _) = identity::endpoint_config(args.identity.key.as_deref())?;
    config.node = NodeConfig { accept: false, ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    let ours = config.identity.public();
    let endpoint = Endpoint::client(config)?;
    // Whatever key answers: nothing is sent to it, and the finding shows which one it is.
    let session = endpoint.connect_host(host, None).await.map_err(|e| Failure::connect(host, ours, ours, e))?;
    Ok((endpoint, session))
}

fn handshake(session: &Session) -> Vec<Finding> {
    let stats = session.stats();
    let mut findings = Vec::new();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let found = format!("{:.1} ms, {} packets", ms(stats.link.handshake_time), stats.link.handshake_packets);
    findings.push(match stats.link.handshake_packets > 4 {
        true => Finding::note("handshake", found, "packets had to be sent again: the path loses some, or the other side is busy"),
        false => Finding::good("handshake", found),
    });
    if stats.link.is_plaintext {
        findings.push(Finding::note(
            "encryption",
            "off, because both sides said so",
            "leave --no-encryption out unless this is a measurement",
        ));
    }
    findings
}

async fn mtu(session: &Session, remote: SocketAddr) -> Finding {
    let headers = if remote.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let ceiling = NodeConfig::default().max_datagram;
    let end = tokio::time::Instant::now() + SEARCH;
    let path = |s: &Session| s.stats().paths().first().cloned();
    let mut last: Option<PathStats> = path(session);
    while tokio::time::Instant::now() < end && last.as_ref().is_none_or(|p| p.mtu < ceiling) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        last = path(session).or(last);
    }
    let Some(p) = last else { return Finding::problem("path MTU", "the session ended meanwhile", "try again") };
    let route = route_mtu(remote).map_or_else(String::new, |m| format!("; the kernel's route says {m}"));
    let found = format!("packets of {} bytes pass{route}; RTT {:.1} ms", p.mtu + headers, p.smoothed_rtt.as_secs_f64() * 1e3);
    match p.mtu < ceiling {
        true => Finding::note(
            "path MTU",
            found,
            "a tunnel or a narrower link lies on the way; noctule has found that out by itself, nothing needs to be set",
        ),
        false => Finding::good("path MTU", found),
    }
}

/// What the kernel believes to pass towards a host (ip(7), IP_MTU).
#[cfg(target_os = "linux")]
fn route_mtu(remote: SocketAddr) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let any: IpAddr = if remote.is_ipv4() { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(remote).ok()?;
    let (level, option) = if remote.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let (mut value, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is open while `socket` lives; the kernel writes one integer.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
    (result == 0).then(|| u32::try_from(value).ok()).flatten()
}

#[cfg(not(target_os = "linux"))]
fn route_mtu(_: SocketAddr) -> Option<u32> {
    let _: Option<IpAddr> = None;
    None
}
