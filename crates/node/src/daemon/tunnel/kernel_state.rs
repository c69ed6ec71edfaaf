//! What the kernel must hold for the tunnel: the device up with its addresses, a table of routes into it, and the rules that lead there. All of it is
//! followed over rtnetlink and put back when others take it away (decision 0160).
//!
//! The node's own datagrams never go into the tunnel: a rule in front sends UDP from the node's own ports by the main table, whatever lies behind other
//! nodes, the whole internet included. A network that the main table knows better than the tunnel's prefix around it is left to the main table by a *throw*
//! route (RFC 1812 §5.2.4.3, longest match, over two tables).

use crate::daemon::config::TunConfig;
use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, IpProtocol};
use rtnetlink::{Handle, IpVersion, LinkUnspec, RouteMessageBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `ip route` and `ip rule` show it as "proto 110"; free according to /etc/iproute2/rt_protos.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(110);
/// Rules are looked at in this order, before that of the main table (32766).
const OWN_PACKETS: u32 = 5110;
const INTO_TUNNEL: u32 = 5111;
const MAIN: u32 = 254;
/// Tables of tunnels are numbered from here on, by the device's name: a node that was killed finds what it left.
const FIRST_TABLE: u32 = 0x6e6f_0000;

/// Why the state cannot be what it must be.
#[derive(Debug)]
pub enum Broken {
    /// The device is not there any more.
    Gone,
    /// The kernel refuses something.
    Refused(String),
}

/// What is wanted beside the device and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Prefixes that lead into the tunnel.
    pub prefixes: BTreeSet<IpNet>,
    /// The node's own UDP ports.
    pub ports: BTreeSet<u16>,
}

/// A rule of ours: its place and, for our own packets, the port that they come from.
type Rule = (u32, Option<u16>);
/// True: packets are left to the next table.
type Routes = BTreeMap<IpNet, bool>;

/// See the file's heading.
pub struct KernelState {
    netlink: Handle,
    index: u32,
    table: u32,
    config: TunConfig,
}

/// FNV-1a, folded to 16 bits.
fn table_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    FIRST_TABLE + ((hash >> 16) ^ (hash & 0xffff))
}

fn refused(what: impl std::fmt::Display) -> impl FnOnce(rtnetlink::Error) -> Broken {
    move |error| Broken::Refused(format!("{what}: {error}"))
}

/// The kernel's error number, as netlink answers it.
fn errno(error: &rtnetlink::Error) -> i32 {
    match error {
        rtnetlink::Error::NetlinkError(message) => -message.raw_code(),
        _ => 0,
    }
}

/// Something that was asked for is so already, or is gone already.
fn unless(done: i32, result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    result.or_else(|error| if errno(&error) == done { Ok(()) } else { Err(error) })
}

impl KernelState {
    /// Of the device with this index.
    pub fn new(netlink: Handle, index: u32, config: TunConfig) -> Self {
        Self { netlink, index, table: table_of(&config.name), config }
    }

    /// Compares the kernel's state with what it must be and mends it. Says what it has changed, one line each.
    ///
    /// # Errors
    /// The device is gone, or the kernel refuses something.
    pub async fn mend(&self, wanted: &Wanted) -> Result<Vec<String>, Broken> {
        let mut done = Vec::new();
        self.mend_device(&mut done).await?;
        self.mend_addresses(&mut done).await?;
        for family in [IpVersion::V4, IpVersion::V6] {
            self.mend_family(family, wanted, &mut done).await?;
        }
        Ok(done)
    }

    /// Takes away what would outlive the device: the routes, and the rules for these ports, whether or not it is still there.
    ///
    /// # Errors
    /// The kernel refuses it; what could be taken away is gone.
    pub async fn clear(&self, ports: BTreeSet<u16>) -> Result<(), Broken> {
        let (nothing, mut done) = (Wanted { ports, ..Wanted::default() }, Vec::new());
        let v4 = self.mend_family(IpVersion::V4, &nothing, &mut done).await;
        v4.and(self.mend_family(IpVersion::V6, &nothing, &mut done).await)
    }

    async fn mend_device(&self, done: &mut Vec<String>) -> Result<(), Broken> {
        let mut found = self.netlink.link().get().match_index(self.index).execute();
        let link = match found.try_next().await {
            Ok(Some(link)) => link,
            Ok(None) => return Err(Broken::Gone),
            Err(error) if errno(&error) == libc::ENODEV => return Err(Broken::Gone),
            Err(error) => return Err(refused("look for the device")(error)),
        };
        let mtu = u32::from(self.config.mtu);
        let is_mtu = link.attributes.iter().any(|a| matches!(a, LinkAttribute::Mtu(found) if *found == mtu));
        let is_up = link.header.flags.contains(LinkFlags::Up);
        if is_up && is_mtu {
            return Ok(());
        }
        let change = LinkUnspec::new_with_index(self.index).up().mtu(mtu).build();
        self.netlink.link().set(change).execute().await.map_err(refused("bring the device up"))?;
        done.push(if is_up { format!("MTU {mtu} set") } else { "device brought up".into() });
        Ok(())
    }

    async fn mend_addresses(&self, done: &mut Vec<String>) -> Result<(), Broken> {
        let mut there = BTreeSet::new();
        let mut answers = self.netlink.address().get().set_link_index_filter(self.index).execute();
        while let Some(message) = answers.try_next().await.map_err(refused("read the device's addresses"))? {
            // IPv4 says an address of a device without a far end by both attributes, IPv6 by the first.
            let of = |message: &rtnetlink::packet_route::address::AddressMessage| {
                let find = |is_local: bool| {
                    message.attributes.iter().find_map(|a| match a {
                        AddressAttribute::Local(ip) if is_local => Some(*ip),
                        AddressAttribute::Address(ip) if !is_local => Some(*ip),
                        _ => None,
                    })
                };
                find(true).or_else(|| find(false))
            };
            there.extend(of(&message).map(|ip| (ip, message.header.prefix_len)));
        }
        for address in self.config.addresses.iter().filter(|a| !there.contains(&(a.addr(), a.prefix_len()))) {
            let added = self.netlink.address().add(self.index, address.addr(), address.prefix_len()).execute().await;
            unless(libc::EEXIST, added).map_err(refused(format_args!("give the device the address {address}")))?;
            done.push(format!("address {address} given"));
        }
        Ok(())
    }

    async fn mend_family(&self, family: IpVersion, wanted: &Wanted, done: &mut Vec<String>) -> Result<(), Broken> {
        let is_v4 = matches!(family, IpVersion::V4);
        let prefixes: BTreeSet<IpNet> = wanted.prefixes.iter().filter(|p| p.addr().is_ipv4() == is_v4).copied().collect();
        let read = self.read_routes(is_v4).await;
        // A host without IPv6 need not have any of its tables.
        let (ours, main) = match read {
            Err(_) if prefixes.is_empty() => return Ok(()),
            read => read?,
        };
        let routes: Routes = match prefixes.is_empty() {
            true => Routes::new(),
            false => left_to_main(&prefixes, &main).map(|net| (net, true)).chain(prefixes.iter().map(|p| (*p, false))).collect(),
        };
        for (net, kind) in ours.iter().filter(|(net, kind)| routes.get(net) != Some(kind)) {
            let removed = self.netlink.route().del(self.route(*net, *kind)).execute().await;
            unless(libc::ESRCH, removed).map_err(refused(format_args!("remove the route to {net}")))?;
            done.push(format!("route to {net} removed"));
        }
        for (net, kind) in routes.iter().filter(|(net, kind)| ours.get(net) != Some(kind)) {
            let added = self.netlink.route().add(self.route(*net, *kind)).replace().execute().await;
            added.map_err(refused(format_args!("set the route to {net}")))?;
            done.push(if *kind { format!("{net} left to the main table") } else { format!("route to {net} set") });
        }
        // The rule into the tunnel after that for the node's own packets, and after the routes: nothing of the node's goes in meanwhile.
        let rules: BTreeSet<Rule> = match prefixes.is_empty() {
            true => BTreeSet::new(),
            false => wanted.ports.iter().map(|port| (OWN_PACKETS, Some(*port))).chain([(INTO_TUNNEL, None)]).collect(),
        };
        let there = match self.read_rules(family, &wanted.ports).await {
            Err(_) if prefixes.is_empty() => return Ok(()),
            there => there?,
        };
        for rule in rules.difference(&there) {
            let mut request = self.netlink.rule().add();
            *request.message_mut() = self.rule(is_v4, *rule);
            unless(libc::EEXIST, request.execute().await).map_err(refused(format_args!("set the rule {}", rule.0)))?;
            done.push(format!("rule {} set", rule.0));
        }
        for rule in there.difference(&rules) {
            let removed = self.netlink.rule().del(self.rule(is_v4, *rule)).execute().await;
            unless(libc::ENOENT, removed).map_err(refused(format_args!("remove the rule {}", rule.0)))?;
            done.push(format!("rule {} removed", rule.0));
        }
        Ok(())
    }

    /// Our table's routes, and destinations of the main table, with whether the kernel itself has set them.
    async fn read_routes(&self, is_v4: bool) -> Result<(Routes, BTreeMap<IpNet, bool>), Broken> {
        let request = match is_v4 {
            true => RouteMessageBuilder::<Ipv4Addr>::new().build(),
            false => RouteMessageBuilder::<Ipv6Addr>::new().build(),
        };
        let (mut ours, mut main) = (Routes::new(), BTreeMap::new());
        let mut answers = self.netlink.route().get(request).execute();
        while let Some(message) = answers.try_next().await.map_err(refused("read the kernel's routes"))? {
            let Some((table, net, device)) = facts(&message) else { continue };
            if table == self.table {
                ours.insert(net, message.header.kind == RouteType::Throw);
            } else if table == MAIN && device != Some(self.index) {
                *main.entry(net).or_insert(false) |= message.header.protocol == RouteProtocol::Kernel;
            }
        }
        Ok((ours, main))
    }

    async fn read_rules(&self, family: IpVersion, ports: &BTreeSet<u16>) -> Result<BTreeSet<Rule>, Broken> {
        let mut there = BTreeSet::new();
        let mut answers = self.netlink.rule().get(family).execute();
        while let Some(message) = answers.try_next().await.map_err(refused("read the kernel's rules"))? {
            let (mut priority, mut table, mut port) = (0, u32::from(message.header.table), None);
            for attribute in &message.attributes {
                match attribute {
                    RuleAttribute::Priority(p) => priority = *p,
                    RuleAttribute::Table(t) => table = *t,
                    RuleAttribute::SourcePortRange(range) if range.start == range.end => port = Some(range.start),
                    _ => {}
                }
            }
            match (priority, port) {
                (OWN_PACKETS, Some(port)) if table == MAIN && ports.contains(&port) => drop(there.insert((priority, Some(port)))),
                (INTO_TUNNEL, None) if table == self.table => drop(there.insert((priority, None))),
                _ => {}
            }
        }
        Ok(there)
    }

    fn rule(&self, is_v4: bool, (priority, port): Rule) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Priority(priority), RuleAttribute::Protocol(PROTOCOL)];
        match port {
            Some(port) => {
                message.header.table = MAIN as u8;
                // From this host. The kernel asks the same for the path back of what comes to the port (strict rp_filter).
                message.attributes.push(RuleAttribute::Iifname("lo".into()));
                message.attributes.push(RuleAttribute::IpProtocol(IpProtocol::Udp));
                message.attributes.push(RuleAttribute::SourcePortRange(RulePortRange { start: port, end: port }));
            }
            None => message.attributes.push(RuleAttribute::Table(self.table)),
        }
        message
    }

    fn route(&self, to: IpNet, is_throw: bool) -> RouteMessage {
        let kind = if is_throw { RouteType::Throw } else { RouteType::Unicast };
        match to {
            IpNet::V4(net) => {
                let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(net.addr(), net.prefix_len());
                let route = route.table_id(self.table).protocol(PROTOCOL).kind(kind);
                if is_throw { route.build() } else { route.output_interface(self.index).scope(RouteScope::Link).build() }
            }
            IpNet::V6(net) => {
                let route = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(net.addr(), net.prefix_len());
                let route = route.table_id(self.table).protocol(PROTOCOL).kind(kind);
                if is_throw { route.build() } else { route.output_interface(self.index).build() }
            }
        }
    }
}

/// Networks within the tunnel's prefixes that the main table knows: longer than the prefix around them, or as long and directly attached.
fn left_to_main(prefixes: &BTreeSet<IpNet>, main: &BTreeMap<IpNet, bool>) -> impl Iterator<Item = IpNet> {
    let is_left = |net: &IpNet, is_attached: bool| {
        let around = prefixes.iter().filter(|p| p.contains(net)).map(IpNet::prefix_len).max();
        around.is_some_and(|longest| longest < net.prefix_len() || is_attached)
    };
    // The default route is the tunnel's if it is among the prefixes.
    main.iter().filter(move |(net, is_attached)| net.prefix_len() > 0 && is_left(net, **is_attached)).map(|(net, _)| *net)
}

/// Table, destination and device of a route.
fn facts(message: &RouteMessage) -> Option<(u32, IpNet, Option<u32>)> {
    let (mut table, mut device) = (u32::from(message.header.table), None);
    let mut to = match message.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => to = (*v4).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => to = (*v6).into(),
            RouteAttribute::Table(t) => table = *t,
            RouteAttribute::Oif(index) => device = Some(*index),
            _ => {}
        }
    }
    Some((table, IpNet::new(to, message.header.destination_prefix_length).ok()?, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> BTreeSet<IpNet> {
        list.iter().map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn networks_that_the_host_knows_better_are_left_to_it() {
        let main =
            [("0.0.0.0/0", false), ("10.1.0.0/16", true), ("10.1.2.0/24", false), ("192.168.7.0/24", true), ("172.16.0.0/12", false)];
        let main: BTreeMap<IpNet, bool> = main.iter().map(|(n, k)| (n.parse().unwrap(), *k)).collect();
        let left = |prefixes: &[&str]| left_to_main(&nets(prefixes), &main).collect::<BTreeSet<_>>();
        assert_eq!(left(&["0.0.0.0/0"]), nets(&["10.1.0.0/16", "10.1.2.0/24", "192.168.7.0/24", "172.16.0.0/12"]));
        assert_eq!(left(&["10.0.0.0/8", "10.1.2.0/24"]), nets(&["10.1.0.0/16"]), "of two as long the tunnel's, unless it is attached");
        assert_eq!(left(&["192.168.7.0/24", "172.16.0.0/12"]), nets(&["192.168.7.0/24"]));
        assert_eq!(left(&["10.1.2.128/25"]), nets(&[]), "the tunnel knows it better");
    }

    #[test]
    fn a_table_belongs_to_a_name() {
        assert_eq!(table_of("noctule0"), table_of("noctule0"));
        assert_ne!(table_of("noctule0"), table_of("noctule1"));
        assert!((FIRST_TABLE..=FIRST_TABLE + 0xffff).contains(&table_of("noctule0")));
    }
}
