//! Whether this host would deliver a packet that came out of the tunnel, as the kernel says: for connections that are dialled instead of carried.

use super::device::Device;
use super::kernel_state::facts;
use futures_util::TryStreamExt;
use noctule_proxy::{Answer, Outcome};
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, LinkAttribute};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use std::net::IpAddr;

impl Device {
    /// Asks the kernel what it would do with a packet from the device: addresses of this host are delivered, others are forwarded if this host is a router,
    /// and never back into the tunnel.
    ///
    /// # Errors
    /// It would not be delivered, and why.
    pub async fn delivers(&self, source: IpAddr, target: IpAddr) -> Result<(), Answer> {
        let (netlink, index) = self.kernel.netlink();
        let denied = |text: String| Err(Answer::new(Outcome::Denied, text));
        // Answers to packets go where the route to their source leads: into the tunnel, or they never reach the node that dials.
        let back = netlink.route().get(question(source, None)).execute().try_next().await;
        match back {
            Ok(Some(route)) if route.header.kind == RouteType::Unicast && oif(&route) == Some(index) => {}
            _ => return denied(format!("answers to {source} do not go into the tunnel there")),
        }
        // The path of what comes in by the device, its reverse path filter and forwarding included.
        let answer = netlink.route().get(question(target, Some((source, index)))).execute().try_next().await;
        let Ok(Some(route)) = answer else {
            return Err(Answer::new(
                Outcome::Unreachable,
                format!("the other side has no route to {target} for what comes by its device (does it forward packets?)"),
            ));
        };
        match route.header.kind {
            RouteType::Local => Ok(()),
            RouteType::Unicast if oif(&route) == Some(index) => {
                denied(format!("{target} lies behind a third node: name that node's prefix here"))
            }
            // The kernel asks for it when it forwards, and not when it looks for a route.
            RouteType::Unicast if target.is_ipv6() && !forwards_v6(netlink, index).await => {
                Err(Answer::new(Outcome::Unreachable, "the other side does not forward IPv6"))
            }
            RouteType::Unicast => Ok(()),
            RouteType::Prohibit => denied(format!("the other side's routes prohibit {target}")),
            _ => Err(Answer::new(Outcome::Unreachable, format!("the other side has no route to {target}"))),
        }
    }
}

/// The device by which a route leaves.
fn oif(route: &RouteMessage) -> Option<u32> {
    facts(route).and_then(|(_, _, device)| device)
}

/// The question for a route of this host's own packets, or of what comes from a source by a device.
fn question(target: IpAddr, from: Option<(IpAddr, u32)>) -> RouteMessage {
    let (family, length, address) = parts(target);
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.attributes.push(RouteAttribute::Destination(address));
    if let Some((source, index)) = from {
        let (_, length, address) = parts(source);
        message.header.source_prefix_length = length;
        message.attributes.extend([RouteAttribute::Source(address), RouteAttribute::Iif(index)]);
    }
    message
}

/// Family, bits and address, as netlink has them.
fn parts(ip: IpAddr) -> (AddressFamily, u8, RouteAddress) {
    match ip {
        IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
    }
}

async fn forwards_v6(netlink: &Handle, index: u32) -> bool {
    // Kept from services of systemd (ProcSubset=pid); a change of it is one of every device.
    if std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding").is_ok_and(|text| text.trim() == "0") {
        return false;
    }
    let Ok(Some(link)) = netlink.link().get().match_index(index).execute().try_next().await else { return false };
    let specs =
        link.attributes.iter().filter_map(|a| if let LinkAttribute::AfSpecUnspec(specs) = a { Some(specs) } else { None }).flatten();
    let mut v6 = specs.filter_map(|s| if let AfSpecUnspec::Inet6(v6) = s { Some(v6) } else { None }).flatten();
    v6.any(|a| matches!(a, AfSpecInet6::DevConf(conf) if conf.forwarding != 0))
}
