//! A TUN device: one IP packet per read and per write, at most one MTU each, because offloads are not asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::rtnetlink::{LinkChange, Rtnetlink};

/// Packets that the kernel keeps for us while the emulator sleeps or is kept from running. A full queue drops
/// silently, so it must cover the longest lateness that a valid run may have.
const QUEUE_PACKETS: u32 = 10_000;

/// The reading and writing end of a TUN device; the device goes when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the device `name` in the calling thread's namespace, with the MTU in bytes, and brings it up.
    pub fn create(name: &str, mtu: u32) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open("/dev/net/tun").map_err(
                |error| {
                    let hint = "needed for emulated links: run as root, or let users open it (chmod 0666, as most distributions have it; \
                            in a container: --device /dev/net/tun)";
                    io::Error::new(error.kind(), format!("/dev/net/tun: {error}; {hint}"))
                },
            )?;
        // SAFETY: an all-zero ifreq is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "device name too long"));
        }
        for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *slot = byte as libc::c_char;
        }
        // IFF_VNET_HDR stays off: the kernel then cuts offloaded packets itself, and a loss hits one packet.
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("make TUN device {name}: {error}")));
        }
        Rtnetlink::open()?
            .change_link(name, LinkChange { mtu: Some(mtu), queue_packets: Some(QUEUE_PACKETS), up: true, ..LinkChange::default() })?;
        Ok(Self { file })
    }

    /// Reads the next packet into `buffer`; `None` when there is none now.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the namespace's stack; `false` when the stack refuses it (damaged header, no buffer, device down).
    pub fn send(&self, packet: &[u8]) -> io::Result<bool> {
        match (&self.file).write(packet) {
            // A TUN device takes a packet whole or not at all.
            Ok(length) => Ok(length == packet.len()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL | libc::EIO | libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => Ok(false),
                _ => Err(error),
            },
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
