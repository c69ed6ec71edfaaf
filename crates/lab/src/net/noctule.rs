//! Starting the binary `noctule` between two namespaces. It is started, never linked.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::contest::ContestError;
use super::namespace::Namespace;
use super::process::Process;

/// Where the binary `noctule` is: `NOCTULE_BIN`, or beside the laboratory's own binary.
pub fn binary() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("NOCTULE_BIN") {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(io::Error::new(io::ErrorKind::NotFound, format!("NOCTULE_BIN names {}, which is no file", path.display()))),
        };
    }
    let beside = std::env::current_exe()?.with_file_name("noctule");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no noctule at {}: build it (cargo build --release -p noctule-node) or set NOCTULE_BIN", beside.display()),
        )),
    }
}

/// Makes an identity in a file and gives its public key.
pub fn keygen(binary: &Path, file: &Path) -> Result<String, ContestError> {
    let output = Command::new(binary).args(["keygen", "--force", "-o"]).arg(file).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let key = text.split_whitespace().last().map(str::to_owned);
    match key {
        Some(key) if output.status.success() => Ok(key),
        _ => Err(ContestError::Process(format!("noctule keygen failed: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// What a port belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A socket that is bound.
    Udp,
    /// A socket that listens.
    Tcp,
}

/// Waits until a process has opened a port, by the kernel's list of sockets.
pub fn wait_for_port(
    namespace: &Namespace,
    protocol: Protocol,
    port: u16,
    patience: Duration,
    process: &mut Process,
) -> Result<(), ContestError> {
    process.wait_until(patience, &format!("did not open {protocol:?} port {port}"), |_| namespace.enter(|| port_is_open(protocol, port)))
}

/// proc_pid_net(5): the second field of each line is local address and port in hexadecimal, the fourth the state, 0A if it listens.
fn port_is_open(protocol: Protocol, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    let (tables, state) = match protocol {
        Protocol::Udp => (["udp", "udp6"], None),
        Protocol::Tcp => (["tcp", "tcp6"], Some("0A")),
    };
    tables.iter().any(|name| {
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(&wanted)) && state.is_none_or(|state| fields.get(3) == Some(&state))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ports_are_seen() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(port_is_open(Protocol::Udp, socket.local_addr().unwrap().port()));
        assert!(!port_is_open(Protocol::Udp, 0));
        let is_seen_to_close = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(port_is_open(Protocol::Tcp, port));
            drop(listener);
            !port_is_open(Protocol::Tcp, port)
        };
        // Another process may be given the port at once.
        assert!((0..10).any(|_| is_seen_to_close()));
    }
}
