//! Connections of machines behind two nodes, carried over a chain of relays in virtual time: what `noctule node` does with a TUN device, without the
//! kernel. The queue in front of each flow is the daemon's own; what sends is a model of the kernel's TCP, or packets at a fixed rate.

mod host;
mod tcp;
mod ticker;

pub use host::{Channel, TunnelHost};
pub use tcp::{TcpReceiver, TcpSender};
pub use ticker::{Listener, Ticker};

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noctule_proto::crypto::SecretKey;
use noctule_proto::node::RelayLimits;
use noctule_proto::node::routing::{Route, Via};
use noctule_proto::options::{Class, FlowKind, FlowOptions, Mode};
use noctule_proto::units::Time;
use noctule_proto::{Node, NodeConfig};

use super::meter::Window;
use super::run::SimError;
use super::world::{Host, HostId, PipeId, WireOverhead, World};
use crate::link::LinkSpec;

/// Bytes of an inner IP packet: the tunnel's default MTU.
const INNER_MTU: usize = 1380;
/// As the daemon opens its flows.
const SEND_BUFFER: usize = 32 * 1024;
const TCP_LIFETIME: Duration = Duration::from_secs(2);
const DATAGRAM_LIFETIME: Duration = Duration::from_millis(500);

/// What lies behind a node.
pub enum Inner {
    /// Sends for ever.
    Sender(TcpSender),
    /// Reads that.
    Receiver(TcpReceiver),
    /// Sends at its times.
    Ticker(Ticker),
    /// Hears that.
    Listener(Listener),
}

impl Inner {
    fn as_host(&mut self) -> &mut dyn Host {
        match self {
            Self::Sender(inner) => inner,
            Self::Receiver(inner) => inner,
            Self::Ticker(inner) => inner,
            Self::Listener(inner) => inner,
        }
    }

    fn as_ref(&self) -> &dyn Host {
        match self {
            Self::Sender(inner) => inner,
            Self::Receiver(inner) => inner,
            Self::Ticker(inner) => inner,
            Self::Listener(inner) => inner,
        }
    }
}

/// What goes through the tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A TCP connection with CUBIC that always has something to send.
    Cubic,
    /// Datagrams of so many bytes (IP header included) at so many per second, in pairs.
    Datagrams(usize, f64),
    /// The same, echoed, over a connection that keeps their order, as TCP with small requests.
    Pings(usize, f64),
}

/// A chain of hosts with a tunnel between the first and the last.
pub struct TunnelRun {
    /// Hosts and links.
    pub world: World<TunnelHost>,
    /// The first and the last host.
    pub ends: (HostId, HostId),
    /// Links, forward and back.
    pub pipes: Vec<(PipeId, PipeId)>,
}

/// How long the links may take to come up.
const LINKS_UP: Duration = Duration::from_secs(5);

impl TunnelRun {
    /// `hops` links of this kind, the same in both directions, their ends up, `loads` started; `window` is what counts.
    pub fn start(link: &LinkSpec, hops: usize, loads: &[Load], window: Window, seed: u64) -> Result<Self, SimError> {
        let address = |node: usize| SocketAddr::from(([10, 128, 0, node as u8], 4117));
        let key = |node: usize| {
            let mut bytes = [0x11; 32];
            bytes[..8].copy_from_slice(&(seed * 100 + node as u64).to_be_bytes());
            SecretKey::from_bytes(bytes)
        };
        let round_trip = link.delay.0 * 2 * hops as u32;
        let mut world = World::new(WireOverhead(28));
        let mut hosts = Vec::new();
        for node in 0..=hops {
            let mut random = [0x22; 32];
            random[..8].copy_from_slice(&(seed * 100 + node as u64).to_be_bytes());
            let config = NodeConfig { max_datagram: (link.mtu - 28) as u16, ..NodeConfig::default() };
            let mut machine = Node::new(config, key(node), random, Time::ZERO);
            machine.set_addresses(&[address(node).ip()]);
            let towards = |to: usize| if to > node { node + 1 } else { node - 1 };
            let route = |to: usize| Route { to: address(to).ip().into(), via: Via::Neighbour(key(towards(to)).public()), metric: 1 };
            machine.set_routes(Time::ZERO, (0..=hops).filter(|to| *to != node).map(route).collect());
            machine.enable_relaying(Some(RelayLimits::default()));
            let mut host = TunnelHost::new(machine);
            if node < hops {
                host.dials.push((address(node + 1), key(node + 1).public()));
            }
            hosts.push(world.add_host(address(node), host));
        }
        let mut pipes = Vec::new();
        for hop in 0..hops {
            let mut spec = link.clone();
            spec.bdp_rtt = Some(round_trip);
            let there = world.add_pipe(&spec, seed * 1000 + 2 * hop as u64)?;
            let back = world.add_pipe(&spec, seed * 1000 + 2 * hop as u64 + 1)?;
            world.add_route(hosts[hop], hosts[hop + 1], there);
            world.add_route(hosts[hop + 1], hosts[hop], back);
            pipes.push((there, back));
        }
        for (number, load) in loads.iter().enumerate() {
            let (here, there) = load.machines(window);
            for (host, inner) in [(hosts[0], here), (hosts[hops], there)] {
                world.host_mut(host).channels.push(Channel::new(inner, load.options(number as u64), round_trip));
            }
        }
        let mut run = Self { world, ends: (hosts[0], hosts[hops]), pipes };
        for host in &hosts {
            run.world
                .with_host(*host, |host, now| host.dial(now))?
                .map_err(|error| SimError::Unsupported(format!("cannot connect: {error}")))?;
        }
        let is_up = |run: &Self| run.world.hosts().map(|host| host.links.len()).sum::<usize>() == 2 * hops;
        while !is_up(&run) && run.world.now() < Time::ZERO + LINKS_UP {
            run.world.run_until(run.world.now() + Duration::from_millis(1))?;
        }
        let (far, far_key): (IpAddr, _) = (address(hops).ip(), key(hops).public());
        run.world
            .with_host(hosts[0], |host, now| {
                host.node.open_session_to(now, far, Some(far_key)).map(|session| {
                    host.session = Some(session);
                    for channel in &mut host.channels {
                        match &mut channel.inner {
                            Inner::Sender(tcp) => tcp.start(),
                            Inner::Ticker(ticker) => ticker.start(now),
                            _ => {}
                        }
                    }
                })
            })?
            .map_err(|error| SimError::Unsupported(format!("no session: {error}")))?;
        Ok(run)
    }

    /// What is behind the first and the last host in the connection with this number.
    pub fn channel(&self, number: usize) -> (&Channel, &Channel) {
        (&self.world.host(self.ends.0).channels[number], &self.world.host(self.ends.1).channels[number])
    }
}

impl Load {
    fn machines(self, window: Window) -> (Inner, Inner) {
        // Where packets go is the tunnel's business.
        let far = SocketAddr::from(([10, 9, 0, 2], 1));
        match self {
            Self::Cubic => (Inner::Sender(TcpSender::new(far, INNER_MTU)), Inner::Receiver(TcpReceiver::new(far, window))),
            Self::Datagrams(size, rate) => {
                let ticker = Ticker::new(far, size, 2, Duration::from_secs_f64(2.0 / rate), window);
                (Inner::Ticker(ticker), Inner::Listener(Listener::new(far, false, window)))
            }
            Self::Pings(size, rate) => {
                let ticker = Ticker::new(far, size, 1, Duration::from_secs_f64(1.0 / rate), window);
                (Inner::Ticker(ticker), Inner::Listener(Listener::new(far, true, window)))
            }
        }
    }

    fn options(self, tag: u64) -> FlowOptions {
        let is_ordered = !matches!(self, Self::Datagrams(..));
        FlowOptions {
            mode: Mode::Btp,
            kind: if is_ordered { FlowKind::OrderedMessages } else { FlowKind::UnorderedMessages },
            class: Class::Bulk,
            lifetime: Some(if is_ordered { TCP_LIFETIME } else { DATAGRAM_LIFETIME }),
            tag,
            send_buffer: Some(SEND_BUFFER),
            one_route: true,
            ..FlowOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Period, Probability};

    /// Three links of 20 Mbit/s and 10 ms that lose 5 %, for so many seconds after four.
    fn run(load: Load, seconds: u64) -> TunnelRun {
        let mut link = LinkSpec { rate: Some("20mbit".parse().unwrap()), delay: Period::from_millis(10), ..LinkSpec::default() };
        link.loss = Probability::new(0.05).unwrap();
        let window = Window { from: Time::from_millis(4000), until: Time::from_millis(4000 + 1000 * seconds) };
        let mut run = TunnelRun::start(&link, 3, &[load], window, 7).unwrap();
        run.world.run_until(window.until).unwrap();
        run
    }

    #[test]
    fn a_tcp_connection_fills_most_of_a_lossy_chain_through_a_tunnel() {
        let run = run(Load::Cubic, 8);
        let (Inner::Sender(sender), Inner::Receiver(receiver)) = (&run.channel(0).0.inner, &run.channel(0).1.inner) else { panic!() };
        let mbit = receiver.meter.bytes_in_window as f64 * 8e-6 / 8.0;
        println!("{mbit:.1} Mbit/s, {} reductions", sender.reductions);
        // 1328 bytes of 1483 on the wire, of 19 Mbit/s that arrive: 17.0 Mbit/s.
        assert!(mbit > 0.85 * 17.0, "{mbit}");
        assert_eq!(sender.timeouts, 0);
    }

    #[test]
    fn datagrams_at_85_per_cent_of_what_a_chain_carries_arrive() {
        let run = run(Load::Datagrams(1228, 1650.0), 4);
        let (Inner::Ticker(ticker), Inner::Listener(listener)) = (&run.channel(0).0.inner, &run.channel(0).1.inner) else { panic!() };
        // The last ones are still in flight.
        let lost = ticker.sent.saturating_sub(listener.heard + 165);
        assert!(ticker.sent > 6000 && lost * 100 < ticker.sent, "{lost} of {}", ticker.sent);
    }
}
