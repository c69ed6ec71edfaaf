//! Starting the binary `noctule` between two namespaces. It is started, never linked.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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

/// Waits until a process has opened a UDP port, by the kernel's list of sockets.
pub fn wait_for_udp_port(namespace: &Namespace, port: u16, patience: Duration, process: &mut Process) -> Result<(), ContestError> {
    let deadline = Instant::now() + patience;
    while !namespace.enter(|| udp_port_is_open(port))? {
        if let Some(status) = process.try_wait()? {
            process.wait(deadline)?;
            return Err(ContestError::Process(format!("noctule ended before it listened ({status}): {}", process.complaint())));
        }
        if Instant::now() >= deadline {
            return Err(ContestError::Process(format!("noctule did not open UDP port {port} within {patience:?}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// proc_pid_net(5): the second field of each line is local address and port in hexadecimal.
fn udp_port_is_open(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"].iter().any(|path| {
        let table = std::fs::read_to_string(path).unwrap_or_default();
        table.lines().skip(1).any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ports_are_seen() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(udp_port_is_open(socket.local_addr().unwrap().port()));
        assert!(!udp_port_is_open(0));
    }
}
