//! What carries TCP connections from the near host to a port of the far one, at the settings that suit it best.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::net::chain::Chain;
use crate::net::contest::ContestError;
use crate::net::ends::Footing;
use crate::net::kcptun;
use crate::net::namespace::Namespace;
use crate::net::noctule::{Protocol, wait_for_port};
use crate::net::process::Process;
use crate::net::program::{Made, Program};
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

/// Both ends; the far one says with its options which version it is.
const SHADOWSOCKS: [Program; 2] = [
    Program { name: "ss-server", package: "shadowsocks-libev", asked: &["-h"] },
    Program { name: "ss-tunnel", package: "shadowsocks-libev", asked: &[] },
];

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

    fn made(self) -> Made {
        match self {
            Self::Noctule => Made::Noctule,
            Self::TcpCubic | Self::TcpBbr => Made::Kernel,
            Self::Kcptun => Made::Of(&kcptun::PROGRAMS),
            Self::Shadowsocks => Made::Of(&SHADOWSOCKS),
        }
    }

    /// What is missing for it on this machine.
    pub(super) fn missing(self) -> Option<String> {
        let kernel = self.congestion();
        match self.made().missing() {
            Some(missing) => Some(missing),
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
        self.made().version(|program| Command::new(program))
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

fn start_kcptun(ends: &Ends<'_>, scenario: &Scenario) -> Result<Carried, ContestError> {
    let wire = SocketAddr::new(ends.far_address, WIRE);
    let tunnel = kcptun::Tunnel { near: ends.near, far: ends.far, listen: near_address(), wire, target: TARGET };
    Ok(Carried { address: near_address(), processes: tunnel.start(scenario)?, _footing: None })
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
