//! Keeps the kernel's state for the tunnel: the device up with its addresses, a table of routes into it, and the rules that lead there. It follows that over
//! rtnetlink, and restores what other programs remove (decision 0160).
//!
//! The node's own datagrams never go into the tunnel: a rule in front sends UDP from the node's own ports by the main table, whatever lies behind other
//! nodes, the whole internet included. A network of the main table that stays outside ([`super::lan`]) is left to it by a *throw* route (RFC 1812
//! §5.2.4.3, longest match, over two tables).
//!
//! If IPv6 is off on the device (`disable_ipv6`), IPv6 prefixes of the tunnel become *unreachable*: no packet for them leaves the host outside the tunnel.

use super::lan;
use crate::daemon::config::{Lan, TunConfig};
use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkFlags};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::packet_route::{AddressFamily, IpProtocol};
use rtnetlink::{Handle, IpVersion, LinkUnspec, RouteMessageBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `ip route` and `ip rule` show it as "proto 110"; free according to /etc/iproute2/rt_protos.
pub const PROTOCOL: RouteProtocol = RouteProtocol::Other(110);
/// Priorities of the rules: the kernel follows them in this order, before the main table's (32766).
pub(super) const OWN_PACKETS: u32 = 5110;
pub(super) const INTO_TUNNEL: u32 = 5111;
const MAIN: u32 = 254;
/// Tables of tunnels have numbers from here on, made from the device's name: so a node that was killed finds its routes again.
pub(super) const FIRST_TABLE: u32 = 0x6e6f_0000;

/// Why the state cannot be what it must be.
#[derive(Debug)]
pub enum Broken {
    /// The device is not there any more.
    Gone,
    /// The kernel refuses something.
    Refused(String),
}

/// The state that is wanted besides the device and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Prefixes that lead into the tunnel.
    pub prefixes: BTreeSet<IpNet>,
    /// The node's own UDP ports.
    pub ports: BTreeSet<u16>,
    /// Networks that stay outside of the tunnel; `None`: the prefixes decide.
    pub lan: Option<Lan>,
}

/// A rule of ours: its place and, for our own packets, the port that they come from.
type Rule = (u32, Option<u16>);
/// `Unicast` into the device, `Throw` to the next table, `Unreachable`.
type Routes = BTreeMap<IpNet, RouteType>;

/// See the file's heading.
pub struct KernelState {
    netlink: Handle,
    index: u32,
    table: u32,
    config: TunConfig,
    /// IPv6 is off on the device, and the log says so.
    is_v6_off: AtomicBool,
}

/// The table of a device: its name's FNV-1a hash, folded to 16 bits, is the offset.
pub(super) fn table_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    FIRST_TABLE + ((hash >> 16) ^ (hash & 0xffff))
}

/// A number of 16 bits that belongs to a device by its name.
pub fn number_of(name: &str) -> u32 {
    table_of(name) - FIRST_TABLE
}

pub(super) fn refused(what: impl std::fmt::Display) -> impl FnOnce(rtnetlink::Error) -> Broken {
    move |error| Broken::Refused(format!("{what}: {error}"))
}

/// The kernel's error number, as netlink answers it.
fn errno(error: &rtnetlink::Error) -> i32 {
    match error {
        rtnetlink::Error::NetlinkError(message) => -message.raw_code(),
        _ => 0,
    }
}

/// Ignores the error that says that a change was made already.
///
/// # Errors
/// The result's, but for the error number `done`.
pub fn unless(done: i32, result: Result<(), rtnetlink::Error>) -> Result<(), rtnetlink::Error> {
    result.or_else(|error| if errno(&error) == done { Ok(()) } else { Err(error) })
}

impl KernelState {
    /// The state of the device with this index.
    pub fn new(netlink: Handle, index: u32, config: TunConfig) -> Self {
        Self { netlink, index, table: table_of(&config.name), config, is_v6_off: AtomicBool::new(false) }
    }

    /// By which the kernel is asked, and the number of the device.
    pub(super) fn netlink(&self) -> (&Handle, u32) {
        (&self.netlink, self.index)
    }

    /// Compares the kernel's state with the wanted one and repairs it. Gives a line for each change.
    ///
    /// # Errors
    /// The device is gone, or the kernel refuses something.
    pub async fn mend(&self, wanted: &Wanted) -> Result<Vec<String>, Broken> {
        let mut done = Vec::new();
        self.mend_device(&mut done).await?;
        self.mend_addresses(&mut done).await?;
        self.mend_family(IpVersion::V4, wanted, &mut done).await?;
        match self.mend_family(IpVersion::V6, wanted, &mut done).await {
            // A host without any IPv6 has no tables of it either.
            Err(Broken::Refused(error)) if self.is_v6_off.load(Relaxed) => tracing::debug!(error, "no rules or routes for IPv6"),
            outcome => outcome?,
        }
        Ok(done)
    }

    /// Removes what would outlive the device: the routes, and the rules for these ports. The device may be gone already.
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
        self.note_v6(&link.attributes, done)?;
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

    /// Whether the device has IPv6. Without it the node goes on by IPv4, if it has that.
    fn note_v6(&self, attributes: &[LinkAttribute], done: &mut Vec<String>) -> Result<(), Broken> {
        let specs = attributes.iter().filter_map(|a| if let LinkAttribute::AfSpecUnspec(specs) = a { Some(specs) } else { None }).flatten();
        let v6 = specs.filter_map(|s| if let AfSpecUnspec::Inet6(v6) = s { Some(v6) } else { None }).flatten();
        let is_off = !v6.into_iter().any(|a| matches!(a, AfSpecInet6::DevConf(conf) if conf.disable_ipv6 == 0));
        let addresses = &self.config.addresses;
        if is_off && !addresses.is_empty() && addresses.iter().all(|a| a.addr().is_ipv6()) {
            return Err(Broken::Refused(format!(
                "{} has IPv6 addresses only, and IPv6 is off: sysctl net.ipv6.conf.{0}.disable_ipv6=0, or give it an IPv4 address",
                self.config.name
            )));
        }
        match (self.is_v6_off.swap(is_off, Relaxed), is_off) {
            (false, true) => tracing::warn!(
                device = %self.config.name,
                "IPv6 is off on the device (sysctl disable_ipv6): it gets no IPv6 address, and packets for IPv6 prefixes are refused on this host"
            ),
            (true, false) => done.push("IPv6 is on again".into()),
            _ => {}
        }
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
        let is_v6_off = self.is_v6_off.load(Relaxed);
        let wanted = self.config.addresses.iter().filter(|a| !(is_v6_off && a.addr().is_ipv6()));
        for address in wanted.filter(|a| !there.contains(&(a.addr(), a.prefix_len()))) {
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
        let kind = if !is_v4 && self.is_v6_off.load(Relaxed) { RouteType::Unreachable } else { RouteType::Unicast };
        let routes: Routes = match prefixes.is_empty() {
            true => Routes::new(),
            false => {
                let lan = wanted.lan.unwrap_or_else(|| lan::default_for(&wanted.prefixes));
                let outside = lan::outside(lan, &prefixes, &main).map(|net| (net, RouteType::Throw));
                prefixes.iter().map(|p| (*p, kind)).chain(outside).collect()
            }
        };
        for (net, kind) in ours.iter().filter(|(net, kind)| routes.get(net) != Some(kind)) {
            let removed = self.netlink.route().del(self.route(*net, *kind)).execute().await;
            unless(libc::ESRCH, removed).map_err(refused(format_args!("remove the route to {net}")))?;
            done.push(format!("route to {net} removed"));
        }
        for (net, kind) in routes.iter().filter(|(net, kind)| ours.get(net) != Some(kind)) {
            let added = self.netlink.route().add(self.route(*net, *kind)).replace().execute().await;
            added.map_err(refused(format_args!("set the route to {net}")))?;
            done.push(match kind {
                RouteType::Throw => format!("{net} left to the main table"),
                RouteType::Unreachable => format!("{net} refused on this host"),
                _ => format!("route to {net} set"),
            });
        }
        // In order of priority: the rule into the tunnel is set last. If it was there before the rule for the node's own packets, those would enter the tunnel.
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

    /// The routes of the tunnel's table, and the destinations of the main table, each with whether the kernel itself has set it.
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
                ours.insert(net, message.header.kind);
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
            let Some((priority, table, port)) = rule_facts(&message) else { continue };
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

    fn route(&self, to: IpNet, kind: RouteType) -> RouteMessage {
        let is_into_device = kind == RouteType::Unicast;
        match to {
            IpNet::V4(net) => {
                let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(net.addr(), net.prefix_len());
                let route = route.table_id(self.table).protocol(PROTOCOL).kind(kind);
                if is_into_device { route.output_interface(self.index).scope(RouteScope::Link).build() } else { route.build() }
            }
            IpNet::V6(net) => {
                let route = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(net.addr(), net.prefix_len());
                let route = route.table_id(self.table).protocol(PROTOCOL).kind(kind);
                if is_into_device { route.output_interface(self.index).build() } else { route.build() }
            }
        }
    }
}

/// Place, table and source port of a rule that a node has set.
pub(super) fn rule_facts(message: &RuleMessage) -> Option<(u32, u32, Option<u16>)> {
    let (mut priority, mut table, mut port, mut is_ours) = (0, u32::from(message.header.table), None, false);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(p) => priority = *p,
            RuleAttribute::Table(t) => table = *t,
            RuleAttribute::SourcePortRange(range) if range.start == range.end => port = Some(range.start),
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == PROTOCOL,
            _ => {}
        }
    }
    is_ours.then_some((priority, table, port))
}

/// Table, destination and device of a route.
pub(super) fn facts(message: &RouteMessage) -> Option<(u32, IpNet, Option<u32>)> {
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

    #[test]
    fn a_table_belongs_to_a_name() {
        assert_eq!(table_of("noctule0"), table_of("noctule0"));
        assert_ne!(table_of("noctule0"), table_of("noctule1"));
        assert!((FIRST_TABLE..=FIRST_TABLE + 0xffff).contains(&table_of("noctule0")));
    }
}
