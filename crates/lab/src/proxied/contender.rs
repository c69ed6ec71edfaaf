//! What carries TCP connections from the near host to a port of the far one, at the settings that suit it best.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::net::chain::Chain;
use crate::net::contest::ContestError;
use crate::net::ends::Footing;
use crate::net::namespace::Namespace;
use crate::net::noctule::{self, Protocol, wait_for_port};
use crate::net::process::Process;
use crate::net::relays::Chained;
use crate::net::tcp::Congestion;
use crate::scenario::Scenario;

/// Where proxies speak to each other.
const WIRE: u16 = 7000;
/// Where they listen on the near host.
const NEAR: u16 = 7001;
/// Where the program on the far host listens.
pub(super) const TARGET: u16 = 7002;
const READY: Duration = Duration::from_secs(20);
/// Payload of a segment of KCP at its MTU of 1350.
const KCP_SEGMENT: u64 = 1326;

/// What carries the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// `noctule proxy`.
    Noctule,
    /// Nothing: the program's own connection by the kernel's CUBIC.
    TcpCubic,
    /// The same by the kernel's BBR.
    TcpBbr,
    /// kcptun: KCP with Reed-Solomon, its window set to the path.
    Kcptun,
    /// shadowsocks-libev: encrypted TCP between the proxies, by the kernel's BBR.
    Shadowsocks,
}

/// Where both ends are.
pub(super) struct Ends<'a> {
    pub(super) near: &'a Namespace,
    pub(super) far: &'a Namespace,
    /// Of the far host, as the near one sees it.
    pub(super) far_address: IpAddr,
}

/// A contender that is ready; it ends when this is dropped.
pub(super) struct Carried {
    /// Where a program on the near host connects to.
    pub(super) address: SocketAddr,
    /// Its processes, near and far, if it has any.
    pub(super) processes: Vec<Process>,
    _footing: Option<Footing>,
}

impl Contender {
    /// As the command line has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Noctule => "noctule",
            Self::TcpCubic => "tcp-cubic",
            Self::TcpBbr => "tcp-bbr",
            Self::Kcptun => "kcptun",
            Self::Shadowsocks => "shadowsocks",
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Noctule | Self::TcpCubic | Self::TcpBbr => &[],
            Self::Kcptun => &["kcptun-client", "kcptun-server"],
            Self::Shadowsocks => &["ss-tunnel", "ss-server"],
        }
    }

    /// What is missing for it on this machine.
    pub(super) fn missing(self) -> Option<String> {
        let absent = self.programs().iter().find(|program| !is_in_path(program));
        let kernel = self.congestion();
        match absent {
            Some(program) => Some(format!("there is no {program} on this machine")),
            None if !kernel.is_available() => Some(format!("this kernel has no TCP {}", kernel.name())),
            None => None,
        }
    }

    /// The kernel's congestion control, of the packets on the links or of the program's short paths to the proxies.
    pub(super) fn congestion(self) -> Congestion {
        match self {
            Self::TcpBbr | Self::Shadowsocks => Congestion::Bbr,
            Self::Noctule | Self::TcpCubic | Self::Kcptun => Congestion::Cubic,
        }
    }

    /// Name and version, as the program itself says them.
    pub(super) fn version(self) -> Result<String, ContestError> {
        let said = |program: &Path, words: &[&str]| -> Result<String, ContestError> {
            let output = Command::new(program).args(words).output()?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("says nothing of its version").to_owned())
        };
        match self {
            Self::Noctule => said(&noctule::binary()?, &["--version"]),
            Self::TcpCubic | Self::TcpBbr => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
                Ok(format!("Linux {}", release.trim()))
            }
            Self::Kcptun => said(Path::new("kcptun-client"), &["--version"]),
            Self::Shadowsocks => said(Path::new("ss-server"), &["-h"]),
        }
    }

    /// Starts what it consists of, so that connections to the address that it gives reach [`TARGET`] on the far host.
    pub(super) fn start(self, ends: &Ends<'_>, chain: &Chain, scenario: &Scenario) -> Result<Carried, ContestError> {
        // CUBIC is named at each socket: where BBR is its default, a kernel lets namespaces have no other but Reno.
        if self.congestion() == Congestion::Bbr {
            for host in [ends.near, ends.far] {
                host.sysctl("net.ipv4.tcp_congestion_control", "bbr")?;
            }
        }
        match self {
            Self::TcpCubic | Self::TcpBbr => {
                let address = SocketAddr::new(ends.far_address, TARGET);
                Ok(Carried { address, processes: Vec::new(), _footing: None })
            }
            Self::Noctule => start_noctule(ends, chain, scenario),
            Self::Kcptun => start_kcptun(ends, scenario),
            Self::Shadowsocks => start_shadowsocks(ends),
        }
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn near_address() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), NEAR)
}

fn target() -> String {
    format!("127.0.0.1:{TARGET}")
}

fn start_noctule(ends: &Ends<'_>, chain: &Chain, scenario: &Scenario) -> Result<Carried, ContestError> {
    let footing = Footing::make(chain, scenario)?;
    let Footing { binary, client_key, client_public, server_key, server_public, relays, .. } = &footing;
    let (port, cc) = (WIRE.to_string(), scenario.cc.to_string());
    let mut command = ends.far.command(binary);
    command.args(["proxy", "serve", "--json", "--cc", &cc, "--only-target", &target()]);
    command.args(["--max-connections", "100000", "--allow", client_public, "--key"]).arg(server_key);
    // An address of the overlay has no ports.
    command.args(relays.as_ref().map_or_else(|| vec!["-p".to_owned(), port.clone()], Chained::far));
    let far = start_saying(&mut command, r#""event":"listening""#, "did not serve")?;
    let host = relays.as_ref().map_or(ends.far_address, Chained::far_address);
    let mut command = ends.near.command(binary);
    command.args(["proxy", &host.to_string(), "--json", "--cc", &cc, "-L", &format!("127.0.0.1:{NEAR}:any:1")]);
    command.args(["--peer-key", server_public, "--key"]).arg(client_key);
    command.args(relays.as_ref().map_or_else(|| vec!["-p".to_owned(), port], Chained::near));
    // It listens as soon as it has a session.
    let near = start_saying(&mut command, r#""event":"listening""#, "had no session")?;
    Ok(Carried { address: near_address(), processes: vec![near, far], _footing: Some(footing) })
}

/// Starts a process and waits until it prints a line with `word` in it.
fn start_saying(command: &mut Command, word: &'static str, what: &str) -> Result<Process, ContestError> {
    let heard = Arc::new(AtomicBool::new(false));
    let listening = Arc::clone(&heard);
    let mut process = Process::start(command, move |line| {
        if line.contains(word) {
            listening.store(true, Ordering::Release);
        }
    })?;
    process.wait_until(READY, what, |_| Ok(heard.load(Ordering::Acquire)))?;
    Ok(process)
}

/// Flags of kcptun that both ends share. The window is what the path holds: half of it halves the goodput, twice of it floods the queue.
fn kcptun_flags(scenario: &Scenario) -> Vec<String> {
    let slowest = scenario.hops.iter().filter_map(|hop| hop.forward.capacity()).min();
    let held = slowest.map_or(0, |rate| rate.bytes_in(scenario.base_rtt()));
    let window = (held / KCP_SEGMENT).clamp(512, 16_384).to_string();
    let words =
        ["--key", "k", "--crypt", "aes-128", "--mode", "fast2", "--mtu", "1350", "--nocomp", "--datashard", "10", "--parityshard", "3"];
    let buffers = ["--sockbuf", "16777216", "--smuxbuf", "67108864", "--smuxver", "2", "--streambuf", "33554432", "--quiet"];
    let windows = ["--sndwnd", &window, "--rcvwnd", &window];
    words.iter().chain(&buffers).chain(&windows).map(|word| (*word).to_owned()).collect()
}

fn start_kcptun(ends: &Ends<'_>, scenario: &Scenario) -> Result<Carried, ContestError> {
    let flags = kcptun_flags(scenario);
    let wire = SocketAddr::new(ends.far_address, WIRE).to_string();
    let mut command = ends.far.command("kcptun-server");
    let mut far = Process::start(command.args(["-l", &wire, "-t", &target()]).args(&flags), |_| {})?;
    wait_for_port(ends.far, Protocol::Udp, WIRE, READY, &mut far)?;
    let mut command = ends.near.command("kcptun-client");
    let mut near = Process::start(command.args(["-l", &near_address().to_string(), "-r", &wire]).args(&flags), |_| {})?;
    wait_for_port(ends.near, Protocol::Tcp, NEAR, READY, &mut near)?;
    Ok(Carried { address: near_address(), processes: vec![near, far], _footing: None })
}

fn start_shadowsocks(ends: &Ends<'_>) -> Result<Carried, ContestError> {
    let (host, wire, near_port) = (ends.far_address.to_string(), WIRE.to_string(), NEAR.to_string());
    let shared = ["-s", &host, "-p", &wire, "-k", "k", "-m", "aes-128-gcm", "-n", "65536", "-t", "600"];
    let mut far = Process::start(ends.far.command("ss-server").args(shared), |_| {})?;
    wait_for_port(ends.far, Protocol::Tcp, WIRE, READY, &mut far)?;
    let mut command = ends.near.command("ss-tunnel");
    let mut near = Process::start(command.args(shared).args(["-b", "127.0.0.1", "-l", &near_port, "-L", &target()]), |_| {})?;
    wait_for_port(ends.near, Protocol::Tcp, NEAR, READY, &mut near)?;
    Ok(Carried { address: near_address(), processes: vec![near, far], _footing: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::scenario::Hop;

    fn over(rate: &str, delay: &str) -> Scenario {
        let mut spec = LinkSpec::default();
        spec.set("rate", rate).unwrap();
        spec.set("delay", delay).unwrap();
        Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }])
    }

    #[test]
    fn the_window_of_kcptun_follows_the_path() {
        let window = |rate, delay| kcptun_flags(&over(rate, delay)).last().unwrap().parse::<u64>().unwrap();
        // 100 Mbit/s for 100 ms are 1.25 MB.
        assert_eq!(window("100mbit", "50ms"), 1_250_000 / KCP_SEGMENT);
        assert_eq!(window("1mbit", "1ms"), 512);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert!(!is_in_path("no-such-program-of-this-name"));
        assert_eq!(Contender::TcpCubic.programs(), &[] as &[&str]);
    }
}
