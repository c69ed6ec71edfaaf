//! Examines the path to one host: name, route, handshake, round trip, path MTU, ECN.

use super::Finding;
use crate::address::host_port;
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::identity;
use noctule::{Endpoint, NodeConfig, PathStats, Session};
use std::net::SocketAddr;
use std::time::Duration;

/// How long the path's MTU may take to be found: some probes, each a few round trips.
const SEARCH: Duration = Duration::from_secs(5);
/// The largest packet that is tried unless --mtu says otherwise.
const DEFAULT_MTU: u16 = 1500;

/// All findings about the path to `host`, in order. Ends at the first that makes the next ones impossible.
pub async fn look(host: &str, args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    let host = match host_port(host, args.port) {
        Ok(host) => host,
        Err(wrong) => return vec![Finding::problem("host", wrong, "without a host nothing more can be said about the path")],
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
                findings.push(mtu(&session, remote, args.identity.mtu.unwrap_or(DEFAULT_MTU)).await);
            }
            session.close(0, "").await;
            endpoint.wait_idle().await;
        }
        Err(failure) => {
            findings.push(Finding::problem("answer", failure.to_string(), "without an answer nothing more can be said about the path"));
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
    // Any key is accepted: no data are sent, and the finding shows the key.
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

async fn mtu(session: &Session, remote: SocketAddr, ceiling: u16) -> Finding {
    let end = tokio::time::Instant::now() + SEARCH;
    let path = |s: &Session| s.stats().paths().first().cloned();
    let mut last: Option<PathStats> = path(session);
    while tokio::time::Instant::now() < end && last.as_ref().is_none_or(|p| !p.is_mtu_found) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        last = path(session).or(last);
    }
    let Some(p) = last else { return Finding::problem("path MTU", "the session ended meanwhile", "try again") };
    let size = Size { mtu: p.mtu, is_found: p.is_mtu_found };
    packets(size, p.smoothed_rtt, remote, ceiling, noctule::route_mtu(remote))
}

/// What is known of a path's MTU.
struct Size {
    /// Bytes of UDP payload that pass.
    mtu: u16,
    /// Nothing larger is being tried.
    is_found: bool,
}

/// Compares the path's MTU with that of this host's route, and with the largest that was to be tried (`ceiling`).
fn packets(size: Size, rtt: Duration, remote: SocketAddr, ceiling: u16, route: Option<u16>) -> Finding {
    let passes = size.mtu + noctule::headers(remote);
    let of_route = route.map_or_else(String::new, |m| format!("; this host's route takes {m}"));
    let found = format!("packets of {passes} bytes pass{of_route}; RTT {:.1} ms", rtt.as_secs_f64() * 1e3);
    let expected = route.map_or(ceiling, |route| route.min(ceiling));
    // The expected size is tried first: a smaller result means that it did not pass.
    match (passes < expected, size.is_found, expected < ceiling) {
        (true, true, _) => Finding::note(
            "path MTU",
            found,
            "a tunnel or a narrower link lies on the path; noctule has found that out by itself, nothing needs to be set",
        ),
        (true, false, _) => Finding::note("path MTU", found, "larger ones are still being tried; nothing needs to be set"),
        (false, _, true) => Finding::note(
            "path MTU",
            found,
            "that is what this host's own interface or route takes, nothing needs to be set; if it is less than the network carries, raise it there",
        ),
        (false, ..) => Finding::good("path MTU", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrower_link_is_told_of_only_where_there_is_one() {
        let advice = |remote: &str, mtu: u16, is_found: bool, route: Option<u16>| {
            let size = Size { mtu, is_found };
            packets(size, Duration::ZERO, remote.parse().unwrap(), 1500, route).advice.unwrap_or_default()
        };
        assert_eq!(advice("10.0.0.1:1", 1472, true, Some(1500)), "");
        assert_eq!(advice("[fd00::1]:1", 1452, true, Some(1500)), "");
        assert_eq!(advice("10.0.0.1:1", 1472, true, Some(9000)), "");
        assert!(advice("10.0.0.1:1", 1463, true, Some(1500)).contains("narrower link"), "PPPoE");
        assert!(advice("10.0.0.1:1", 1392, true, Some(1500)).contains("narrower link"));
        assert!(advice("[fd00::1]:1", 1232, true, None).contains("narrower link"));
        assert!(advice("10.0.0.1:1", 1252, true, Some(1280)).contains("own interface"));
        assert!(advice("10.0.0.1:1", 1200, false, Some(1500)).contains("still being tried"));
    }
}
