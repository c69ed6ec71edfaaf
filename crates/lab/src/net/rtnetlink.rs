//! The few rtnetlink requests (rtnetlink(7)) that links, addresses, routes and neighbours need, without external tools.

use std::ffi::CString;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::descriptor::owned;

// linux/rtnetlink.h, linux/if_link.h, linux/veth.h, linux/neighbour.h: not in libc for every target.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// What to change about a device; `None` leaves it alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkChange {
    /// Largest IP packet in bytes.
    pub mtu: Option<u32>,
    /// Packets that the device's own queue holds.
    pub queue_packets: Option<u32>,
    /// Segments per offloaded packet: 1 keeps every packet that a qdisc sees at one MTU.
    pub gso_max_segments: Option<u32>,
    /// Bring the device up.
    pub up: bool,
}

/// A netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Rtnetlink {
    /// Opens the socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        // SAFETY: the call takes plain numbers and makes a descriptor.
        let socket = unsafe { owned(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)) }?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Changes a device: `ip link set NAME mtu … txqueuelen … up`.
    pub fn change_link(&mut self, name: &str, change: LinkChange) -> io::Result<()> {
        let flags = if change.up { libc::IFF_UP as u32 } else { 0 };
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.interface_header(index_of(name)?, flags, flags);
        for (attribute, value) in
            [(IFLA_MTU, change.mtu), (IFLA_TXQLEN, change.queue_packets), (IFLA_GSO_MAX_SEGS, change.gso_max_segments)]
        {
            if let Some(value) = value {
                message.attribute(attribute, &value.to_ne_bytes());
            }
        }
        self.request(message, || format!("change device {name}"))
    }

    /// Makes a veth pair with the given MAC addresses; the peer is born in another namespace:
    /// `ip link add NAME type veth peer name PEER netns …`.
    pub fn add_veth(&mut self, name: &str, mac: [u8; 6], peer: &str, peer_mac: [u8; 6], peer_namespace: &OwnedFd) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWLINK, create);
        message.interface_header(0, 0, 0);
        message.attribute(IFLA_IFNAME, &c_string(name));
        message.attribute(IFLA_ADDRESS, &mac);
        message.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |end| {
                    end.interface_header(0, 0, 0);
                    end.attribute(IFLA_IFNAME, &c_string(peer));
                    end.attribute(IFLA_ADDRESS, &peer_mac);
                    let descriptor = peer_namespace.as_raw_fd() as u32;
                    end.attribute(IFLA_NET_NS_FD, &descriptor.to_ne_bytes());
                });
            });
        });
        self.request(message, || format!("make veth pair {name} - {peer}"))
    }

    /// Gives a device an address: `ip address add ADDRESS/PREFIX dev NAME nodad`.
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWADDR, create);
        let index = index_of(name)?;
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        message.bytes(&[family(address), prefix, IFA_F_NODAD, 0]);
        message.bytes(&index.to_ne_bytes());
        message.address(IFA_LOCAL, address);
        message.address(IFA_ADDRESS, address);
        self.request(message, || format!("give {name} the address {address}/{prefix}"))
    }

    /// Takes an address from a device: `ip address del ADDRESS/PREFIX dev NAME`.
    pub fn remove_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_DELADDR, 0);
        let index = index_of(name)?;
        message.bytes(&[family(address), prefix, 0, 0]);
        message.bytes(&index.to_ne_bytes());
        message.address(IFA_LOCAL, address);
        message.address(IFA_ADDRESS, address);
        self.request(message, || format!("take the address {address}/{prefix} from {name}"))
    }

    /// Adds a route through a device: `ip route add DESTINATION/PREFIX [via GATEWAY] dev NAME`.
    pub fn add_route(&mut self, destination: IpAddr, prefix: u8, gateway: Option<IpAddr>, name: &str) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWROUTE, create);
        let scope = match gateway {
            Some(_) => libc::RT_SCOPE_UNIVERSE,
            None => libc::RT_SCOPE_LINK,
        };
        // struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags.
        message.bytes(&[family(destination), prefix, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, scope, libc::RTN_UNICAST]);
        message.bytes(&0u32.to_ne_bytes());
        message.address(RTA_DST, destination);
        if let Some(gateway) = gateway {
            message.address(RTA_GATEWAY, gateway);
        }
        message.attribute(RTA_OIF, &index_of(name)?.to_ne_bytes());
        self.request(message, || format!("route {destination}/{prefix} through {name}"))
    }

    /// Fixes a neighbour's MAC address, so that neither ARP nor neighbour discovery crosses the link:
    /// `ip neighbour add ADDRESS lladdr MAC dev NAME nud permanent`.
    pub fn add_neighbour(&mut self, name: &str, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let mut message = Message::new(libc::RTM_NEWNEIGH, create);
        // struct ndmsg: family, padding, index, state, flags, type.
        message.bytes(&[family(address), 0, 0, 0]);
        message.bytes(&index_of(name)?.to_ne_bytes());
        message.bytes(&NUD_PERMANENT.to_ne_bytes());
        message.bytes(&[0, 0]);
        message.address(NDA_DST, address);
        message.attribute(NDA_LLADDR, &mac);
        self.request(message, || format!("fix the neighbour {address} of {name}"))
    }

    /// Sends one request and waits for the kernel's answer to it.
    fn request(&mut self, message: Message, what: impl Fn() -> String) -> io::Result<()> {
        self.exchange(message).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))
    }

    fn exchange(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        // SAFETY: pointer and length describe a live buffer.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = [0u8; 8192];
        loop {
            // SAFETY: pointer and length describe a live buffer.
            let length = unsafe { libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
            if length < 0 {
                return Err(io::Error::last_os_error());
            }
            if let Some(result) = acknowledgement(&answer[..length as usize], self.sequence) {
                return result;
            }
        }
    }
}

/// Finds the NLMSG_ERROR (error 0 is success) that answers request `sequence`.
fn acknowledgement(answer: &[u8], sequence: u32) -> Option<io::Result<()>> {
    let word = |at: usize| -> Option<u32> {
        let bytes = answer.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if i32::from(kind) != libc::NLMSG_ERROR || word(8)? != sequence {
        return None;
    }
    Some(match word(16)? as i32 {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    })
}

/// A netlink request under construction.
struct Message {
    bytes: Vec<u8>,
    kind: u16,
    flags: u16,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        Self { bytes: vec![0; 16], kind, flags: flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16 }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// struct ifinfomsg.
    fn interface_header(&mut self, index: u32, flags: u32, change: u32) {
        self.bytes(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.bytes(&index.to_ne_bytes());
        self.bytes(&flags.to_ne_bytes());
        self.bytes(&change.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes(&(4 + value.len() as u16).to_ne_bytes());
        self.bytes(&kind.to_ne_bytes());
        self.bytes(value);
        self.align();
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes(&[0, 0]);
        self.bytes(&kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Writes struct nlmsghdr.
    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&self.flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn c_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// The kernel's number of a device in the calling thread's namespace.
pub(super) fn index_of(name: &str) -> io::Result<u32> {
    let text = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a terminated string that lives over the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, format!("no device {name} in this namespace"))),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_attributes_carry_their_length_and_alignment() {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.attribute(IFLA_INFO_DATA, &[1]);
        });
        let bytes = message.finish(7);
        assert_eq!(bytes.len(), 16 + 4 + 8 + 8);
        assert_eq!(u32::from_ne_bytes(bytes[0..4].try_into().unwrap()), 36);
        assert_eq!(u16::from_ne_bytes(bytes[16..18].try_into().unwrap()), 20);
        assert_eq!(u16::from_ne_bytes(bytes[28..30].try_into().unwrap()), 5);
        assert_eq!(u32::from_ne_bytes(bytes[8..12].try_into().unwrap()), 7);
    }

    #[test]
    fn answer_to_another_request_is_skipped() {
        let mut answer = vec![0u8; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        answer[8..12].copy_from_slice(&3u32.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert!(acknowledgement(&answer, 4).is_none());
        let error = acknowledgement(&answer, 3).unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        assert!(acknowledgement(&answer[..10], 3).is_none());
    }
}
