//! The TUN device, and the keeper of what the kernel holds for it.

use super::kernel_state::{Broken, KernelState, Wanted};
use super::leftovers;
use crate::daemon::config::{Lan, TunConfig};
use futures_util::StreamExt;
use ipnet::IpNet;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use tun_rs::{AsyncDevice, DeviceBuilder};

/// Packets that the kernel keeps while the daemon is kept from running. All other queueing is in CoDel's queues.
const QUEUE_PACKETS: u32 = 4096;
/// Others change many things in a row; the state is looked at once they are through.
const SETTLE: Duration = Duration::from_millis(50);
/// It is looked at anyway from time to time: a netlink socket that overflowed tells nothing.
const REREAD: Duration = Duration::from_secs(30);
/// After the kernel has refused something.
const RETRY: Duration = Duration::from_secs(2);
/// So many refusals in a row end the node: its supervisor, or a person, has to know.
const MOST_REFUSALS: u32 = 5;

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
    /// Another program has removed it.
    #[error("the device {0} is gone: another program or a person has removed it; the node ends, for its supervisor to start it again")]
    Gone(String),
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

/// The device, its addresses, and the kernel's routes that lead into it. The device goes when this is dropped, its rules with [`Device::clear`].
pub struct Device {
    /// Packets in and out.
    pub io: AsyncDevice,
    /// What it was made from.
    pub config: TunConfig,
    pub(super) kernel: KernelState,
    wanted: tokio::sync::Mutex<Wanted>,
}

impl Device {
    /// Makes the device, gives it its addresses and brings it up. `ports`: where the node's own packets come from.
    pub async fn make(config: &TunConfig, ports: BTreeSet<u16>) -> Result<Self, DeviceError> {
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
        let told = |broken| match broken {
            Broken::Gone => other("find it again", &"it is gone"),
            Broken::Refused(text) => other("set it up", &text),
        };
        let left = leftovers::sweep(&netlink, &ports).await.map_err(told)?;
        if !left.is_empty() {
            tracing::info!(left = left.join("; "), "a node that did not end by itself has left this in the kernel");
        }
        let kernel = KernelState::new(netlink, index, config.clone());
        let wanted = Wanted { ports, ..Wanted::default() };
        kernel.mend(&wanted).await.map_err(told)?;
        Ok(Self { io, config: config.clone(), kernel, wanted: tokio::sync::Mutex::new(wanted) })
    }

    /// Makes the kernel route these prefixes into the device, and none of those before that are not among them. Says what it has changed.
    pub async fn route(&self, wanted: impl IntoIterator<Item = IpNet>, lan: Option<Lan>) -> Result<Vec<String>, DeviceError> {
        let is_on_link = |net: &IpNet| self.config.addresses.iter().any(|a| a.trunc().contains(net));
        let mut now = self.wanted.lock().await;
        now.lan = lan;
        now.prefixes = wanted.into_iter().filter(|net| !is_on_link(net)).collect();
        self.mend(&now).await
    }

    async fn mend(&self, wanted: &Wanted) -> Result<Vec<String>, DeviceError> {
        self.kernel.mend(wanted).await.map_err(|broken| match broken {
            Broken::Gone => DeviceError::Gone(self.config.name.clone()),
            Broken::Refused(text) => {
                DeviceError::Other { name: self.config.name.clone(), what: "keep it as it must be".into(), error: text }
            }
        })
    }

    /// Takes the rules and routes away that would outlive the device.
    pub async fn clear(&self) {
        let mut wanted = self.wanted.lock().await;
        wanted.prefixes.clear();
        if let Err(Broken::Refused(error)) = self.kernel.clear(wanted.ports.clone()).await {
            tracing::warn!(%error, "rules or routes of the tunnel may be left");
        }
    }

    /// Follows the kernel's state for ever and puts back what others take away. Returns when that is not possible any more.
    pub async fn keep(&self) -> DeviceError {
        let mut refusals = 0;
        loop {
            match self.keep_once(&mut refusals).await {
                Err(error @ DeviceError::Gone(_)) => return error,
                Err(error) if refusals + 1 >= MOST_REFUSALS => return error,
                Err(error) => {
                    refusals += 1;
                    tracing::error!(%error, "trying again");
                    tokio::time::sleep(RETRY).await;
                }
                Ok(()) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Until the netlink socket is closed.
    async fn keep_once(&self, refusals: &mut u32) -> Result<(), DeviceError> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
        ];
        let (connection, _netlink, mut news) = new_multicast_connection(&groups).map_err(|e| DeviceError::Other {
            name: self.config.name.clone(),
            what: "follow the kernel's state".into(),
            error: e.to_string(),
        })?;
        tokio::spawn(connection);
        loop {
            let changes = {
                let wanted = self.wanted.lock().await;
                self.mend(&wanted).await?
            };
            *refusals = 0;
            if !changes.is_empty() {
                tracing::info!(device = %self.config.name, changes = changes.join("; "), "others have changed the kernel's routes, rules or the device");
            }
            match tokio::time::timeout(REREAD, news.next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {
                    tokio::time::sleep(SETTLE).await;
                    while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, news.next()).await {}
                }
                Err(_) => {}
            }
        }
    }
}
