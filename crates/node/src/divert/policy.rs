//! What TPROXY needs besides the rules: marked packets are delivered to this host, whatever their destination is (`ip rule`, `ip route`), of both families.

use crate::daemon::{OUR_PROTOCOL, unless};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteMessage, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// See the file's heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which packets.
    pub mark: u32,
    /// Place of the rule.
    pub priority: u32,
    /// The table of the one route.
    pub table: u32,
}

impl Policy {
    /// Sets rules and routes; what is there already stays. How many were missing.
    ///
    /// # Errors
    /// The kernel refuses it, in words for the user.
    pub async fn set(&self) -> Result<usize, String> {
        let (netlink, lo) = open().await?;
        let mut missing = 0;
        for is_v4 in [true, false] {
            let route = netlink.route().add(self.route(is_v4, lo)).execute().await;
            let mut request = netlink.rule().add();
            *request.message_mut() = self.rule(is_v4);
            let rule = request.execute().await;
            for (what, result) in [("route", route), ("rule", rule)] {
                match result {
                    Ok(()) => missing += 1,
                    Err(error) => {
                        let result = unless(libc::EEXIST, Err(error));
                        // A host may have no IPv6.
                        if let Err(error) = result
                            && (is_v4 || has_v6())
                        {
                            return Err(format!("cannot set the {what} for diverted packets: {error}"));
                        }
                    }
                }
            }
        }
        Ok(missing)
    }

    /// Takes them away, as far as they are there; how many were.
    ///
    /// # Errors
    /// There is no netlink socket.
    pub async fn clear(&self) -> Result<usize, String> {
        let (netlink, lo) = open().await?;
        let mut removed = 0;
        for is_v4 in [true, false] {
            // What cannot be removed is not there: the kernel's words for that differ.
            removed += usize::from(netlink.rule().del(self.rule(is_v4)).execute().await.is_ok());
            removed += usize::from(netlink.route().del(self.route(is_v4, lo)).execute().await.is_ok());
        }
        Ok(removed)
    }

    fn rule(&self, is_v4: bool) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Protocol(OUR_PROTOCOL),
            RuleAttribute::FwMark(self.mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(self.table),
        ];
        message
    }

    fn route(&self, is_v4: bool, lo: u32) -> RouteMessage {
        match is_v4 {
            true => self.local(RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(Ipv4Addr::UNSPECIFIED, 0), lo).build(),
            false => self.local(RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(Ipv6Addr::UNSPECIFIED, 0), lo).build(),
        }
    }

    fn local<T>(&self, route: RouteMessageBuilder<T>, lo: u32) -> RouteMessageBuilder<T> {
        route.table_id(self.table).protocol(OUR_PROTOCOL).kind(RouteType::Local).scope(RouteScope::Host).output_interface(lo)
    }
}

/// Tables that rules of ours at this place lead to.
///
/// # Errors
/// The kernel does not say, in words for the user.
pub async fn tables_at(priority: u32) -> Result<BTreeSet<u32>, String> {
    let (netlink, _) = open().await?;
    let mut tables = BTreeSet::new();
    for family in [IpVersion::V4, IpVersion::V6] {
        let is_v6 = matches!(family, IpVersion::V6);
        let rules = match netlink.rule().get(family).execute().try_collect::<Vec<RuleMessage>>().await {
            // A host may have no IPv6.
            Err(_) if is_v6 => continue,
            rules => rules.map_err(|e| format!("cannot read the kernel's rules: {e}"))?,
        };
        let ours = rules.iter().filter(|rule| {
            rule.attributes.contains(&RuleAttribute::Priority(priority)) && rule.attributes.contains(&RuleAttribute::Protocol(OUR_PROTOCOL))
        });
        tables.extend(
            ours.flat_map(|rule| &rule.attributes).filter_map(|a| if let RuleAttribute::Table(table) = a { Some(*table) } else { None }),
        );
    }
    Ok(tables)
}

/// IPv6 is on at the loopback device.
fn has_v6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|text| text.trim() == "0")
}

/// A netlink socket, and the number of the loopback device.
async fn open() -> Result<(Handle, u32), String> {
    let (connection, netlink, _) = rtnetlink::new_connection().map_err(|e| format!("cannot open a netlink socket: {e}"))?;
    tokio::spawn(connection);
    let found = netlink.link().get().match_name("lo".to_owned()).execute().try_next().await;
    let lo = found.map_err(|e| format!("cannot find the loopback device: {e}"))?.ok_or("there is no loopback device")?;
    Ok((netlink, lo.header.index))
}
