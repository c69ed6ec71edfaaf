//! kcptun as a contender: KCP with Reed-Solomon that carries a TCP connection, its window set to the path.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::namespace::Namespace;
use super::noctule::{Protocol, wait_for_port};
use super::process::Process;
use super::program::Program;
use super::run::Arrivals;
use super::tcp::{self, Payload, Relayed, Transfer};
use crate::scenario::Scenario;

/// Both ends.
pub(crate) const PROGRAMS: [Program; 2] = [
    Program { name: "kcptun-client", package: "kcptun", asked: &["--version"] },
    Program { name: "kcptun-server", package: "kcptun", asked: &[] },
];

/// Bytes of its datagrams, and of KCP's header in each.
const MTU: u32 = 1350;
const HEADER: u32 = 24;
const READY: Duration = Duration::from_secs(20);
const WIRE: u16 = 29_900;
const NEAR: u16 = 5_200;
const TARGET: u16 = 5_201;

/// Where the two processes are.
pub(crate) struct Tunnel<'a> {
    pub(crate) near: &'a Namespace,
    pub(crate) far: &'a Namespace,
    /// Where programs on the near host connect to.
    pub(crate) listen: SocketAddr,
    /// Where the far process hears the near one.
    pub(crate) wire: SocketAddr,
    /// The port of the program on the far host.
    pub(crate) target: u16,
}

impl Tunnel<'_> {
    /// Starts both, near and far.
    pub(crate) fn start(&self, scenario: &Scenario) -> Result<Vec<Process>, ContestError> {
        let (flags, wire, listen) = (flags(scenario), self.wire.to_string(), self.listen.to_string());
        let target = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.target).to_string();
        let mut command = self.far.command("kcptun-server");
        let mut far = Process::start(command.args(["-l", &wire, "-t", &target]).args(&flags), |_| {})?;
        wait_for_port(self.far, Protocol::Udp, self.wire.port(), READY, &mut far)?;
        let mut command = self.near.command("kcptun-client");
        let mut near = Process::start(command.args(["-l", &listen, "-r", &wire]).args(&flags), |_| {})?;
        wait_for_port(self.near, Protocol::Tcp, self.listen.port(), READY, &mut near)?;
        Ok(vec![near, far])
    }
}

/// Flags that both ends share. The window is what the path holds: half of it halves the goodput, twice of it floods the queue.
fn flags(scenario: &Scenario) -> Vec<String> {
    let held = scenario.slowest().map_or(0, |rate| rate.bytes_in(scenario.base_rtt()));
    // A packet that the link's MTU would cut in two is lost twice as often.
    let mtu = MTU.min(scenario.least_mtu() - scenario.ip.overhead());
    let window = (held / u64::from(mtu - HEADER)).clamp(512, 16_384).to_string();
    let mtu = mtu.to_string();
    let words =
        ["--key", "k", "--crypt", "aes-128", "--mode", "fast2", "--mtu", &mtu, "--nocomp", "--datashard", "10", "--parityshard", "3"];
    let buffers = ["--sockbuf", "16777216", "--smuxbuf", "67108864", "--smuxver", "2", "--streambuf", "33554432", "--quiet"];
    let windows = ["--sndwnd", &window, "--rcvwnd", &window];
    words.iter().chain(&buffers).chain(&windows).map(|word| (*word).to_owned()).collect()
}

/// One connection through it for the length of the scenario, every byte compared.
pub(super) fn run(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let (near, far) = (path.chain.first(), path.chain.last());
    let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), NEAR);
    let tunnel = Tunnel { near, far, listen, wire: SocketAddr::new(path.far, WIRE), target: TARGET };
    let processes = tunnel.start(scenario)?;
    let transfer = Transfer {
        // On loopback, between the program and the tunnel.
        congestion: tcp::Congestion::Cubic,
        to: Ipv4Addr::UNSPECIFIED.into(),
        payload: Payload::Pattern(scenario.seed),
        limit: scenario.seconds.0,
        proxies: Vec::new(),
        relayed: Some(Relayed { port: TARGET, by: listen }),
    };
    started();
    let received = tcp::run(near, far, &transfer)?;
    drop(processes);
    Ok(Arrivals { bytes_wrong: Some(received.bytes_wrong), ..Arrivals::of(received.timeline) })
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
    fn the_window_follows_the_path() {
        let window = |rate, delay| flags(&over(rate, delay)).last().unwrap().parse::<u64>().unwrap();
        // 100 Mbit/s for 100 ms are 1.25 MB.
        assert_eq!(window("100mbit", "50ms"), 1_250_000 / 1326);
        assert_eq!(window("1mbit", "1ms"), 512);
        // A datagram fits the links.
        let mut scenario = over("1mbit", "1ms");
        scenario.hops[0].forward.set("mtu", "1280").unwrap();
        let flags = flags(&scenario);
        assert!(flags.windows(2).any(|pair| pair == ["--mtu", "1252"]), "{flags:?}");
    }
}
