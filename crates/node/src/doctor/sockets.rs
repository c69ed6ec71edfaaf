//! Examines UDP sockets: buffers, trains in both directions (GSO and GRO), ECN, IPv6.

use super::Finding;
use noctule::{Endpoint, EndpointConfig, SocketFeatures};

/// Opens sockets on loopback and tries their features.
pub async fn look() -> Vec<Finding> {
    let mut findings = vec![buffers()];
    match noctule::probe_sockets().await {
        Ok(features) => findings.extend(offloads(&features)),
        Err(e) => findings.push(Finding::problem(
            "UDP",
            format!("datagrams do not pass on loopback: {e}"),
            "does a firewall filter the loopback interface?",
        )),
    }
    findings
}

fn buffers() -> Finding {
    let opened = EndpointConfig::ephemeral().map_err(|e| e.to_string()).and_then(|config| {
        let asked = (config.send_buffer, config.recv_buffer);
        Endpoint::client(config).map(|e| (asked, e.stats().buffers)).map_err(|e| e.to_string())
    });
    let ((send, recv), got) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            return Finding::problem(
                "buffers",
                format!("no UDP socket can be opened: {e}"),
                "nothing works without one: look at the system's limits and filters",
            );
        }
    };
    let found = format!("send {} KiB, receive {} KiB granted", got.send / 1024, got.recv / 1024);
    // Linux grants twice what is asked for, its own bookkeeping included.
    let mut settings = Vec::new();
    if got.recv < recv {
        settings.push(format!("net.core.rmem_max={recv}"));
    }
    if got.send < send {
        settings.push(format!("net.core.wmem_max={send}"));
    }
    match settings.is_empty() {
        true => Finding::good("buffers", found),
        false => Finding::problem(
            "buffers",
            format!("{found}; asked for {} and {}: bursts at high rates will be lost in this host", send / 1024, recv / 1024),
            format!("sysctl -w {} (and in /etc/sysctl.d to keep it)", settings.join(" ")),
        ),
    }
}

fn offloads(f: &SocketFeatures) -> Vec<Finding> {
    let gso = match f.max_segments > 1 {
        true => Finding::good("GSO", format!("up to {} datagrams per system call", f.max_segments)),
        false => Finding::problem(
            "GSO",
            "each datagram is a system call",
            "use Linux 4.18 or newer, and a network driver that does not switch it off",
        ),
    };
    let gro = match f.is_coalesced {
        true => Finding::good("GRO", "trains arrive as a whole"),
        false => {
            Finding::note("GRO", "each datagram arrives alone", "receiving at some Gbit/s costs more CPU; Linux 5.0 or newer can do better")
        }
    };
    let ecn = match f.keeps_ecn {
        true => Finding::good("ECN", "marks can be sent and seen"),
        false => Finding::note(
            "ECN",
            "marks do not pass the sockets of this host",
            "congestion is then seen by delay and loss only; some containers' networks clear the field",
        ),
    };
    let v6 = match f.has_v6 {
        true => Finding::good("IPv6", "sockets speak both"),
        false => Finding::note("IPv6", "not on this host", "only hosts with IPv4 addresses can be reached"),
    };
    vec![gso, gro, ecn, v6]
}
