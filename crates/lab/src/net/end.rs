//! One end of a link between namespaces that others have made: how it is written, and its device.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::descriptor::owned;
use super::namespace::Namespace;
use super::rtnetlink::{Rtnetlink, index_of};
use super::tun::Tun;

/// `ip netns` keeps its namespaces here.
const NAMED: &str = "/run/netns";

/// How an end is written.
pub(super) const FORM: &str = "NETNS:DEVICE[=ADDRESS/LEN,..]";

/// An end, as `--between` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub(super) place: Place,
    pub(super) device: String,
    addresses: Vec<(IpAddr, u8)>,
}

/// Where a network namespace is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// That of a process.
    Process(u32),
    /// One of `ip netns list`.
    Name(String),
    /// A file, for instance `/proc/self/ns/net`.
    File(PathBuf),
}

/// Why an end cannot be had.
#[derive(Debug, Error)]
pub enum EndError {
    /// Nothing is there.
    #[error("there is no {place}: {advice}")]
    NoSuchPlace {
        /// What was named.
        place: String,
        /// What to do.
        advice: &'static str,
    },
    /// A process and a namespace of that name.
    #[error("{pid} is a process and a namespace of `ip netns list`: name the namespace {named}, or the process /proc/{pid}/ns/net")]
    Ambiguous {
        /// The number.
        pid: u32,
        /// The file of the namespace.
        named: String,
    },
    /// Something else is there.
    #[error(
        "{0} is no network namespace: name a process by its number, a namespace of `ip netns list`, or a file such as /proc/self/ns/net"
    )]
    NoNamespace(String),
    /// The kernel does not let this process in.
    #[error("not permitted to use the {0}: run as root, or inside the user namespace that it belongs to (nsenter --user --target PID)")]
    NotPermitted(String),
    /// The device's name is in use.
    #[error("the {place} has a device {device} already: choose another name, or take that one away (ip link delete {device})")]
    Taken {
        /// Where.
        place: String,
        /// Which.
        device: String,
    },
    /// The kernel refuses the device or its address.
    #[error("device {device} in the {place}: {error}")]
    Device {
        /// Where.
        place: String,
        /// Which.
        device: String,
        /// What the kernel answered.
        error: io::Error,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "namespace of process {pid}"),
            Self::Name(name) => write!(f, "namespace {name}"),
            Self::File(path) => write!(f, "namespace {}", path.display()),
        }
    }
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (head, addresses) = text.split_once('=').map_or((text, ""), |(head, list)| (head, list));
        let (place, device) =
            head.rsplit_once(':').ok_or_else(|| format!("write {FORM}; NETNS is the number of a process, a name or a file"))?;
        let place = match place {
            "" => return Err("no namespace before the colon".to_owned()),
            path if path.contains('/') => Place::File(path.into()),
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                let pid = number.parse().ok().filter(|pid: &u32| pid.to_string() == number);
                Place::Process(
                    pid.ok_or_else(|| format!("{number} is no number of a process; a namespace of that name is {NAMED}/{number}"))?,
                )
            }
            name => Place::Name(name.to_owned()),
        };
        // The kernel's rule (dev_valid_name), and no `%`, which it would count up.
        let is_name = !device.is_empty() && device != "." && device != "..";
        if !is_name || device.contains(|c: char| c == '/' || c == '%' || c.is_whitespace()) {
            return Err(format!("`{device}` cannot name a device: letters, digits, - and _"));
        }
        if device.len() >= libc::IFNAMSIZ {
            return Err(format!("the device name {device} has {} bytes: {} at most", device.len(), libc::IFNAMSIZ - 1));
        }
        let addresses = match addresses {
            "" if head.len() < text.len() => return Err(format!("no address after the =; write {FORM}")),
            "" => Vec::new(),
            list => list.split(',').map(parse_address).collect::<Result<_, _>>()?,
        };
        Ok(Self { place, device: device.to_owned(), addresses })
    }
}

fn parse_address(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("`{text}` is no address with a prefix length, such as 10.0.0.1/30 or fd00::1/64");
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    if prefix > if address.is_ipv4() { 32 } else { 128 } { Err(wrong()) } else { Ok((address, prefix)) }
}

impl End {
    /// Finds the namespace and makes the device in it, up and with its addresses, of this MTU in bytes.
    pub(super) fn open(&self, mtu: u32) -> Result<OpenEnd, EndError> {
        let place = self.place.to_string();
        self.refuse_two_meanings(NAMED.as_ref())?;
        // Before the namespace is looked up, so that its process cannot be another one of the same number.
        let process = match self.place {
            Place::Process(pid) => Some(follow_process(pid).map_err(|error| self.refused(&error))?),
            Place::Name(_) | Place::File(_) => None,
        };
        let namespace = Namespace::open(&place, &self.file()).map_err(|error| self.refused(&error))?;
        let device = &*self.device;
        let made = namespace.enter(|| {
            if index_of(device).is_ok() {
                return Ok(None);
            }
            let tun = Tun::create(device, mtu)?;
            let mut netlink = Rtnetlink::open()?;
            for &(address, prefix) in &self.addresses {
                netlink.add_address(device, address, prefix)?;
            }
            Ok(Some(tun))
        });
        match made.and_then(|made| made) {
            Ok(Some(device)) => Ok(OpenEnd { device, process }),
            Ok(None) => Err(EndError::Taken { place, device: self.device.clone() }),
            Err(error) => Err(EndError::Device { place, device: self.device.clone(), error }),
        }
    }

    /// A number is a process; where a namespace of that name is in `named` too, it might be meant.
    fn refuse_two_meanings(&self, named: &Path) -> Result<(), EndError> {
        let Place::Process(pid) = self.place else { return Ok(()) };
        let named = named.join(pid.to_string());
        if named.symlink_metadata().is_err() {
            return Ok(());
        }
        Err(EndError::Ambiguous { pid, named: named.display().to_string() })
    }

    fn file(&self) -> PathBuf {
        match &self.place {
            Place::Process(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
            Place::Name(name) => PathBuf::from(NAMED).join(name),
            Place::File(path) => path.clone(),
        }
    }

    fn refused(&self, error: &io::Error) -> EndError {
        let place = self.place.to_string();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => EndError::NotPermitted(place),
            Some(libc::EINVAL) if !matches!(self.place, Place::Process(_)) => EndError::NoNamespace(self.file().display().to_string()),
            _ => EndError::NoSuchPlace {
                place,
                advice: match self.place {
                    Place::Process(_) => "it has ended, or never ran; it has to live as long as the link",
                    Place::Name(_) => "`ip netns list` shows those that there are; a process is named by its number, a file with a /",
                    Place::File(_) => "a namespace's file is /run/netns/NAME or /proc/PID/ns/net",
                },
            },
        }
    }
}

/// A descriptor that becomes readable when the process ends (pidfd_open(2)).
fn follow_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes plain numbers (0 means no flags), and makes a descriptor.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) as RawFd) }
}

/// An end that is there.
pub(super) struct OpenEnd {
    pub(super) device: Tun,
    /// Readable when the process that named the namespace has ended.
    pub(super) process: Option<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_process_a_name_or_a_file_with_a_device_and_addresses() {
        let end: End = "4711:h1-eth0=10.0.0.1/30,fd00::1/64".parse().unwrap();
        assert_eq!((end.place, &*end.device), (Place::Process(4711), "h1-eth0"));
        assert_eq!(end.addresses, [("10.0.0.1".parse().unwrap(), 30), ("fd00::1".parse().unwrap(), 64)]);
        assert_eq!("blue:left".parse::<End>().unwrap().place, Place::Name("blue".to_owned()));
        assert_eq!("/proc/self/ns/net:left".parse::<End>().unwrap().place, Place::File("/proc/self/ns/net".into()));
    }

    #[test]
    fn a_number_that_names_a_namespace_too_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |text: &str| text.parse::<End>().unwrap().refuse_two_meanings(dir.path()).map_err(|error| error.to_string());
        assert_eq!(refused("4711:left"), Ok(()));
        std::fs::write(dir.path().join("4711"), "").unwrap();
        let error = refused("4711:left").unwrap_err();
        assert!(error.contains(&*dir.path().join("4711").to_string_lossy()) && error.contains("/proc/4711/ns/net"), "{error}");
        for other in ["blue:left", "4712:left", "/proc/4711/ns/net:left", "/run/netns/4711:left"] {
            assert_eq!(refused(other), Ok(()), "{other}");
        }
    }

    #[test]
    fn what_is_no_end_says_why() {
        for (text, names) in [
            ("blue", FORM),
            (":left", "no namespace"),
            ("blue:", "cannot name a device"),
            ("blue:a b", "cannot name a device"),
            ("blue:device-name-0016", "15 at most"),
            ("blue:left=", "no address"),
            ("blue:left=10.0.0.1", "prefix length"),
            ("blue:left=10.0.0.1/33", "10.0.0.1/33"),
            ("blue:left=10.0.0.1/30,x", "`x`"),
            ("99999999999:left", "no number"),
            ("007:left", "/run/netns/007"),
        ] {
            let error = text.parse::<End>().unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        }
    }
}
