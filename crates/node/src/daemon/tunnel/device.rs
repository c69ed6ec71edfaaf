//! The TUN device and the kernel's routes into it.

use crate::daemon::config::TunConfig;
use ipnet::IpNet;
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::BTreeSet;
use std::io;
use tun_rs::{AsyncDevice, DeviceBuilder};

/// Packets that the kernel keeps while the daemon is kept from running. What stands longer stands in CoDel's queues.
const QUEUE_PACKETS: u32 = 4096;
/// `ip route` shows it as "proto 110"; free according to /etc/iproute2/rt_protos.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(110);

/// The device could not be made or set up.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No right to make one.
    #[error(
        "not permitted to make the TUN device {name} ({error}): run as root or with CAP_NET_ADMIN (packaging/noctule-node.service grants it); \
         in a container also --device /dev/net/tun; or remove [tun] from the file for a node that only relays"
    )]
    NotPermitted {
        /// Its name.
        name: String,
        /// What the system says.
        error: io::Error,
    },
    /// The kernel has no such devices.
    #[error("there is no /dev/net/tun: load the kernel's module (modprobe tun), or remove [tun] from the file")]
    NoTun,
    /// Another program has it.
    #[error("the device {0} exists already, another program or another node has it: choose another [tun] name")]
    Busy(String),
    /// Anything else.
    #[error("cannot set up the TUN device {name}: {what}: {error}")]
    Other {
        /// Its name.
        name: String,
        /// What was tried.
        what: String,
        /// What the system says.
        error: String,
    },
}

/// The device, its addresses, and the kernel's routes that lead into it. It goes with all of them when this is dropped.
pub struct Device {
    /// Packets in and out.
    pub io: AsyncDevice,
    /// What it was made from.
    pub config: TunConfig,
    netlink: Handle,
    index: u32,
    routes: tokio::sync::Mutex<BTreeSet<IpNet>>,
}

impl Device {
    /// Makes the device, gives it its addresses and brings it up.
    pub async fn make(config: &TunConfig) -> Result<Self, DeviceError> {
        let name = config.name.clone();
        let builder = DeviceBuilder::new().name(&name).mtu(config.mtu).with(|b| {
            b.tx_queue_len(QUEUE_PACKETS);
        });
        let io = builder.build_async().map_err(|error| match (error.raw_os_error(), error.kind()) {
            (Some(libc::EBUSY), _) => DeviceError::Busy(name.clone()),
            (_, io::ErrorKind::PermissionDenied) => DeviceError::NotPermitted { name: name.clone(), error },
            (Some(libc::ENODEV | libc::ENXIO), _) | (_, io::ErrorKind::NotFound) => DeviceError::NoTun,
            _ => DeviceError::Other { name: name.clone(), what: "make it".into(), error: error.to_string() },
        })?;
        let other = |what: &str, error: &dyn std::fmt::Display| DeviceError::Other {
            name: name.clone(),
            what: what.to_owned(),
            error: error.to_string(),
        };
        let index = io.if_index().map_err(|e| other("find its index", &e))?;
        let (connection, netlink, _) = rtnetlink::new_connection().map_err(|e| other("open a netlink socket", &e))?;
        tokio::spawn(connection);
        for address in &config.addresses {
            let result = netlink.address().add(index, address.addr(), address.prefix_len()).execute().await;
            result.map_err(|e| other(&format!("give it the address {address}"), &e))?;
        }
        Ok(Self { io, config: config.clone(), netlink, index, routes: tokio::sync::Mutex::default() })
    }

    /// Makes the kernel route these prefixes into the device, and none of those before that are not among them.
    pub async fn route(&self, wanted: impl IntoIterator<Item = IpNet>) {
        let is_on_link = |net: &IpNet| self.config.addresses.iter().any(|a| a.trunc().contains(net));
        let wanted: BTreeSet<IpNet> = wanted.into_iter().filter(|net| !is_on_link(net)).collect();
        let mut routes = self.routes.lock().await;
        for gone in routes.difference(&wanted).copied().collect::<Vec<_>>() {
            if let Err(error) = self.netlink.route().del(self.message(gone)).execute().await {
                tracing::warn!(prefix = %gone, %error, "cannot remove the kernel's route");
            }
            routes.remove(&gone);
        }
        for new in wanted.difference(&routes.clone()).copied() {
            match self.netlink.route().add(self.message(new)).replace().execute().await {
                Ok(()) => drop(routes.insert(new)),
                Err(error) => {
                    tracing::error!(prefix = %new, device = %self.config.name, %error, "cannot add a kernel route; packets for it will not find the tunnel")
                }
            }
        }
    }

    fn message(&self, to: IpNet) -> rtnetlink::packet_route::route::RouteMessage {
        match to {
            IpNet::V4(net) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                .destination_prefix(net.addr(), net.prefix_len())
                .output_interface(self.index)
                .scope(rtnetlink::packet_route::route::RouteScope::Link)
                .protocol(PROTOCOL)
                .build(),
            IpNet::V6(net) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                .destination_prefix(net.addr(), net.prefix_len())
                .output_interface(self.index)
                .protocol(PROTOCOL)
                .build(),
        }
    }
}
