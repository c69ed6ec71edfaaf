//! Hosts in a row, each in a namespace of its own, joined by emulated links.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use thiserror::Error;

use super::emulator::{self, Duplex, Emulator};
use super::namespace::Namespace;
use super::netem::{self, DirectionCommands, NotExpressible};
use super::privilege::{self, Privilege, PrivilegeError};
use super::rtnetlink::{LinkChange, Rtnetlink};
use super::tun::Tun;
use crate::link::{Aqm, LinkModel, SpecError};
use crate::scenario::{Hop, Ip};

/// The device of a host towards the next one.
pub const RIGHT: &str = "right";
/// The device of a host towards the one before.
pub const LEFT: &str = "left";

/// What emulates the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The kernel's netem behind HTB.
    Netem,
    /// Our own emulator in user space.
    Emulator,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Netem => "netem",
            Self::Emulator => "emulator",
        })
    }
}

/// Which back end a run asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendChoice {
    /// netem where the kernel has it and the link can be expressed, else the emulator.
    #[default]
    Auto,
    /// netem, or an error.
    Netem,
    /// The emulator, or an error.
    Emulator,
}

impl std::fmt::Display for BackendChoice {
    /// As `--backend` has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(clap::ValueEnum::to_possible_value(self).as_ref().map_or("", |value| value.get_name()))
    }
}

/// Why a chain cannot be built.
#[derive(Debug, Error)]
pub enum ChainError {
    /// No right to make namespaces.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    /// The link description contradicts itself.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// netem was asked for and cannot do this.
    #[error(transparent)]
    NotExpressible(#[from] NotExpressible),
    /// netem was asked for and is not here.
    #[error("this kernel cannot do netem: {0}")]
    NoNetem(io::Error),
    /// The kernel lacks the queue discipline of a link, and netem was asked for.
    #[error("this kernel cannot do {aqm}: {error}; --backend emulator runs the model of the simulator instead")]
    NoQueueDiscipline {
        /// Which.
        aqm: Aqm,
        /// What it answered.
        error: io::Error,
    },
    /// The kernel refused a step.
    #[error("{step}: {error}")]
    Kernel {
        /// What was being done.
        step: &'static str,
        /// What the kernel answered.
        error: io::Error,
    },
    /// A chain without a link, or of more than 200.
    #[error("a chain has between 1 and 200 links")]
    Length,
}

impl ChainError {
    /// Whether the links are such as the back end that was asked for cannot make, or nothing can.
    pub fn is_beyond_the_back_end(&self) -> bool {
        match self {
            Self::Spec(_) | Self::NotExpressible(_) | Self::NoNetem(_) | Self::NoQueueDiscipline { .. } | Self::Length => true,
            Self::Privilege(_) | Self::Kernel { .. } => false,
        }
    }

    /// Whether this machine does not let this user do it, as opposed to something that went wrong.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Privilege(_) => true,
            Self::Kernel { error, .. } => {
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
                    || error.to_string().starts_with("/dev/net/tun")
            }
            _ => false,
        }
    }
}

/// Hosts in a row with configured addresses and routes; the links carry nothing before [`Chain::start`].
#[derive(Debug)]
pub struct Chain {
    privilege: Privilege,
    backend: Backend,
    version: Ip,
    hosts: Vec<Namespace>,
    /// Kept alive for the netem back end: two routers per link.
    routers: Vec<Namespace>,
    duplexes: Vec<Duplex>,
}

impl Chain {
    /// Makes `links.len() + 1` hosts. Random processes of the links come from `seed`.
    pub fn build(links: &[Hop], version: Ip, choice: BackendChoice, seed: u64) -> Result<Self, ChainError> {
        if links.is_empty() || links.len() > 200 {
            return Err(ChainError::Length);
        }
        for link in links {
            link.forward.check()?;
            link.reverse.check()?;
        }
        let links = &with_round_trip(links);
        let privilege = privilege::acquire()?;
        let commands = choose_backend(links, choice, seed)?;
        let hosts: Vec<Namespace> = (0..=links.len())
            .map(|index| Namespace::new(&format!("host{index}")))
            .collect::<io::Result<_>>()
            .map_err(at("make a network namespace"))?;
        for host in &hosts {
            prepare_host(host, version).map_err(at("prepare a host"))?;
        }
        let mut chain = Self { privilege, backend: Backend::Emulator, version, hosts, routers: Vec::new(), duplexes: Vec::new() };
        match commands {
            Some(commands) => {
                chain.backend = Backend::Netem;
                for (index, (link, commands)) in links.iter().zip(&commands).enumerate() {
                    chain.join_by_veth(index, link, commands)?;
                }
            }
            None => {
                for (index, link) in links.iter().enumerate() {
                    chain.join_by_tun(index, link, seed)?;
                }
            }
        }
        for index in 0..chain.hosts.len() {
            chain.add_routes(index).map_err(at("set the routes"))?;
        }
        Ok(chain)
    }

    /// By which right the namespaces were made.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// What emulates the links.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The hosts from left to right.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// The leftmost host.
    pub fn first(&self) -> &Namespace {
        &self.hosts[0]
    }

    /// The rightmost host.
    pub fn last(&self) -> &Namespace {
        &self.hosts[self.hosts.len() - 1]
    }

    /// Address of the leftmost host.
    pub fn first_address(&self) -> IpAddr {
        self.address(0, Side::Left)
    }

    /// Address of the rightmost host.
    pub fn last_address(&self) -> IpAddr {
        self.address(self.hosts.len() - 2, Side::Right)
    }

    /// The hosts between the first and the last, each with its address towards the first.
    pub fn between(&self) -> impl Iterator<Item = (&Namespace, IpAddr)> {
        let last = self.hosts.len() - 1;
        self.hosts[1..last].iter().enumerate().map(|(link, host)| (host, self.address(link, Side::Right)))
    }

    /// Addresses of the host next to the first one, and of the host next to the last one, each as that end sees it; `None` without hosts between.
    pub fn gateways(&self) -> Option<(IpAddr, IpAddr)> {
        let links = self.hosts.len() - 1;
        (links > 1).then(|| (self.address(0, Side::Right), self.address(links - 1, Side::Left)))
    }

    /// Starts the links' clocks; packets flow from now on. Nothing to do for netem, which has flowed since it was set.
    pub fn start(&mut self, options: emulator::Options) -> io::Result<Option<Emulator>> {
        match self.backend {
            Backend::Netem => Ok(None),
            Backend::Emulator => Emulator::start(std::mem::take(&mut self.duplexes), options).map(Some),
        }
    }

    fn address(&self, link: usize, side: Side) -> IpAddr {
        match self.version {
            Ip::V4 => Ipv4Addr::new(10, 77, link as u8, side as u8).into(),
            Ip::V6 => Ipv6Addr::new(0xfd77, 0, 0, link as u16, 0, 0, 0, side as u16).into(),
        }
    }

    fn prefix(&self) -> u8 {
        match self.version {
            Ip::V4 => 32,
            Ip::V6 => 128,
        }
    }

    /// A TUN device at both ends.
    fn join_by_tun(&mut self, index: usize, link: &Hop, seed: u64) -> Result<(), ChainError> {
        let mtu = link.forward.mtu.max(link.reverse.mtu);
        let end = |host: &Namespace, device: &'static str, address, prefix| -> io::Result<Tun> {
            host.enter(|| {
                let tun = Tun::create(device, mtu)?;
                Rtnetlink::open()?.add_address(device, address, prefix)?;
                Ok(tun)
            })?
        };
        let (left, right) = (&self.hosts[index], &self.hosts[index + 1]);
        let prefix = self.prefix();
        let step = at("join two hosts by TUN devices");
        let left = end(left, RIGHT, self.address(index, Side::Left), prefix).map_err(&step)?;
        let right = end(right, LEFT, self.address(index, Side::Right), prefix).map_err(&step)?;
        let seeds = 2 * index as u64;
        self.duplexes.push(Duplex {
            left,
            right,
            forward: LinkModel::new(&link.forward, seed.wrapping_add(seeds))?,
            backward: LinkModel::new(&link.reverse, seed.wrapping_add(seeds + 1))?,
            mtu,
        });
        Ok(())
    }

    /// Three veth pairs over two routers, with permanent neighbours, so that only data crosses the lossy link.
    fn join_by_veth(&mut self, index: usize, link: &Hop, commands: &(DirectionCommands, DirectionCommands)) -> Result<(), ChainError> {
        let mtu = link.forward.mtu.max(link.reverse.mtu);
        let near = Namespace::new("router-near").map_err(at("make a router"))?;
        let far = Namespace::new("router-far").map_err(at("make a router"))?;
        for router in [&near, &far] {
            prepare_host(router, self.version).map_err(at("prepare a router"))?;
        }
        let row = [&self.hosts[index], &near, &far, &self.hosts[index + 1]];
        for (position, pair) in row.windows(2).enumerate() {
            join_pair(pair[0], pair[1], position as u8, mtu).map_err(at("make a veth pair"))?;
        }
        let (left, right) = (self.address(index, Side::Left), self.address(index, Side::Right));
        let prefix = self.prefix();
        for (position, node) in row.into_iter().enumerate() {
            node.enter(|| -> io::Result<()> {
                let mut netlink = Rtnetlink::open()?;
                if position == 0 {
                    netlink.add_address(RIGHT, left, prefix)?;
                } else {
                    netlink.add_neighbour(LEFT, left, mac(position as u8 - 1, Side::Left))?;
                    netlink.add_route(left, prefix, None, LEFT)?;
                }
                if position == 3 {
                    netlink.add_address(LEFT, right, prefix)?;
                } else {
                    netlink.add_neighbour(RIGHT, right, mac(position as u8, Side::Right))?;
                    netlink.add_route(right, prefix, None, RIGHT)?;
                }
                Ok(())
            })
            .and_then(|result| result)
            .map_err(at("set addresses and neighbours"))?;
        }
        let (forward, backward) = commands;
        for (node, list) in [
            (row[0], &forward.host),
            (&near, &forward.bottleneck),
            (&far, &forward.propagation),
            (row[3], &backward.host),
            (&far, &backward.bottleneck),
            (&near, &backward.propagation),
        ] {
            for arguments in list {
                netem::tc(node, arguments).map_err(at("set up the emulated link"))?;
            }
        }
        self.routers.extend([near, far]);
        Ok(())
    }

    /// Every host reaches both ends of every link.
    fn add_routes(&self, host: usize) -> io::Result<()> {
        let routes: Vec<(IpAddr, &str)> = (0..self.hosts.len() - 1)
            .flat_map(|link| [(link, Side::Left), (link, Side::Right)])
            .filter(|&(link, side)| link + (side == Side::Right) as usize != host)
            .filter(|&(link, side)| {
                // netem links have set the route to their own far end.
                self.backend == Backend::Emulator || !is_neighbour(host, link, side)
            })
            .map(|(link, side)| {
                let device = if link >= host { RIGHT } else { LEFT };
                (self.address(link, side), device)
            })
            .collect();
        let beyond = |device: &str| match (self.backend, device) {
            (Backend::Emulator, _) => None,
            (Backend::Netem, RIGHT) => Some(self.address(host, Side::Right)),
            (Backend::Netem, _) => Some(self.address(host - 1, Side::Left)),
        };
        let prefix = self.prefix();
        self.hosts[host].enter(|| {
            let mut netlink = Rtnetlink::open()?;
            for (address, device) in routes {
                netlink.add_route(address, prefix, beyond(device), device)?;
            }
            Ok(())
        })?
    }
}

/// A queue of so many bandwidth-delay products means the round trip of the whole chain, as in the simulator.
fn with_round_trip(links: &[Hop]) -> Vec<Hop> {
    let round_trip = links.iter().map(|hop| hop.forward.delay.0 + hop.reverse.delay.0).sum();
    let mut links = links.to_vec();
    for hop in &mut links {
        hop.forward.bdp_rtt.get_or_insert(round_trip);
        hop.reverse.bdp_rtt.get_or_insert(round_trip);
    }
    links
}

/// The end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left = 1,
    Right = 2,
}

/// Whether the address is the far end of one of the host's own links.
fn is_neighbour(host: usize, link: usize, side: Side) -> bool {
    (link == host && side == Side::Right) || (link + 1 == host && side == Side::Left)
}

/// netem's commands for every link, or none if the emulator is to run.
fn choose_backend(
    links: &[Hop],
    choice: BackendChoice,
    seed: u64,
) -> Result<Option<Vec<(DirectionCommands, DirectionCommands)>>, ChainError> {
    if choice == BackendChoice::Emulator {
        return Ok(None);
    }
    let commands: Result<Vec<_>, NotExpressible> = links
        .iter()
        .zip(0u64..)
        .map(|(link, index)| {
            let seed = seed.wrapping_add(4 * index);
            Ok((DirectionCommands::new(&link.forward, RIGHT, seed)?, DirectionCommands::new(&link.reverse, LEFT, seed.wrapping_add(2))?))
        })
        .collect();
    match (choice, commands) {
        (BackendChoice::Netem, commands) => {
            let commands = commands?;
            let needed = commands.iter().any(|(forward, backward)| forward.needs_netem() || backward.needs_netem());
            if needed {
                netem::is_available().map_err(ChainError::NoNetem)?;
            }
            for aqm in wanted_aqms(links) {
                netem::has_queue_discipline(aqm).map_err(|error| ChainError::NoQueueDiscipline { aqm, error })?;
            }
            Ok(Some(commands))
        }
        (_, Ok(commands)) if netem::is_available().is_ok() && wanted_aqms(links).all(|aqm| netem::has_queue_discipline(aqm).is_ok()) => {
            Ok(Some(commands))
        }
        _ => Ok(None),
    }
}

fn wanted_aqms(links: &[Hop]) -> impl Iterator<Item = Aqm> {
    links.iter().flat_map(|hop| [hop.forward.aqm, hop.reverse.aqm]).flatten()
}

/// Loopback up, forwarding on, and nothing of the kernel's own on the links.
fn prepare_host(host: &Namespace, version: Ip) -> io::Result<()> {
    let settings: &[(&str, &str)] = match version {
        Ip::V4 => &[("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.all.rp_filter", "0"), ("net.ipv4.conf.default.rp_filter", "0")],
        Ip::V6 => &[
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv6.conf.default.addr_gen_mode", "1"),
        ],
    };
    for (key, value) in settings {
        host.sysctl(key, value)?;
    }
    if version == Ip::V4 {
        // Router solicitations and multicast reports would cross the link. A kernel without IPv6 sends none.
        match host.sysctl("net.ipv6.conf.all.disable_ipv6", "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    host.enter(|| Rtnetlink::open()?.change_link("lo", LinkChange { up: true, ..LinkChange::default() }))?
}

fn join_pair(left: &Namespace, right: &Namespace, position: u8, mtu: u32) -> io::Result<()> {
    let change = LinkChange {
        mtu: Some(mtu),
        queue_packets: Some(10_000),
        // A qdisc that sees super-packets would drop 64 KB at a time; switching offloads off is not enough.
        gso_max_segments: Some(1),
        up: true,
    };
    left.enter(|| {
        Rtnetlink::open()?.add_veth(RIGHT, mac(position, Side::Left), LEFT, mac(position, Side::Right), right.descriptor())?;
        Rtnetlink::open()?.change_link(RIGHT, change)
    })??;
    right.enter(|| Rtnetlink::open()?.change_link(LEFT, change))?
}

/// A locally administered MAC address for an end of the veth pair at this position.
fn mac(position: u8, side: Side) -> [u8; 6] {
    [0x02, 0x6e, 0x63, 0, position, side as u8]
}

fn at(step: &'static str) -> impl Fn(io::Error) -> ChainError {
    move |error| ChainError::Kernel { step, error }
}
