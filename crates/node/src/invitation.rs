//! The command that is printed for the other side. It runs unchanged, except for placeholders of what only the other side knows.

use crate::address::DEFAULT_PORT;
use crate::cli::{IdentityArgs, ViaArgs};
use crate::code::Code;
use crate::shell::quoted;
use noctule::PublicKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Stands for an address of this host where it has none but those of itself.
pub const THIS_HOST: &str = "THIS_HOST";

/// Where this side is, and what its peer has to say to reach it.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Address of the socket; of the overlay, if this side is reached over nodes.
    local: SocketAddr,
    overlay: Option<IpAddr>,
    public: PublicKey,
    psk: Option<std::path::PathBuf>,
    no_encryption: bool,
}

impl Invitation {
    /// To this side, which listens on `local`.
    pub fn new(local: SocketAddr, public: PublicKey, identity: &IdentityArgs, via: &ViaArgs) -> Self {
        Self {
            local,
            overlay: via.address.filter(|_| !via.via.is_empty()),
            public,
            psk: identity.psk.clone(),
            no_encryption: identity.no_encryption,
        }
    }

    /// Where this side is reached, for people: the port of an end of nodes is of no use.
    pub fn place(&self) -> String {
        self.overlay.map_or_else(|| self.local.to_string(), |address| format!("{address}, over nodes"))
    }

    /// HOST or HOST:PORT.
    pub fn host(&self) -> String {
        if let Some(address) = self.overlay {
            return address.to_string();
        }
        host(self.local)
    }

    /// A command line: `words` with their placeholders, HOST where they name it and else behind them, and what this side asks for.
    pub fn command(&self, words: &str, code: Option<&Code>) -> String {
        let mut line = match words.split_once("HOST:") {
            // A name follows the address, which has to be told from it.
            Some((before, after)) => format!("noctule {before}{}:{after}", bracketed(self.host())),
            None => format!("noctule {words} {}", self.host()),
        };
        if self.overlay.is_some() {
            line.push_str(" --via NODE --address ADDRESS");
        }
        // Over nodes nobody can be asked for the key, and a code proves it otherwise.
        if self.overlay.is_some() || code.is_none() {
            line.push_str(&format!(" --peer-key {}", self.public));
        }
        self.protection(&mut line);
        if let Some(code) = code {
            line.push_str(&format!(" --code {code}"));
        }
        line
    }

    /// The same for a transfer in one direction.
    pub fn one_way(&self) -> String {
        let mut line =
            format!("noctule send --mode brctp --one-way --rate 10mbit --overhead 30% --to {} FILE {}", self.public, self.host());
        self.protection(&mut line);
        line
    }

    fn protection(&self, line: &mut String) {
        if let Some(psk) = &self.psk {
            line.push_str(&format!(" --psk {}", quoted(psk)));
        }
        if self.no_encryption {
            line.push_str(" --no-encryption");
        }
    }

    /// Explains the placeholders, and what the command requires; empty if there is nothing to say.
    pub fn notes(&self) -> String {
        let mut notes = String::new();
        if self.overlay.is_some() {
            notes.push_str("\nNODE: the node that the other side is attached to; ADDRESS: its own address in the overlay");
        }
        if self.overlay.is_none() && self.local.ip().is_unspecified() {
            notes.push_str(&match address(self.local.ip()) {
                Some(_) => {
                    "\nif the other side does not reach this address, put a name or another address of this host in its place".to_owned()
                }
                None => format!("\nput a name or an address of this host in place of {THIS_HOST}"),
            });
        }
        if self.psk.is_some() {
            notes.push_str("\n--psk: where the copy of that file lies on the other host");
        }
        notes
    }
}

/// An IPv6 address is in brackets where something follows it.
fn bracketed(host: String) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host,
    }
}

/// HOST or HOST:PORT of a socket of this host, as others may reach it.
pub fn host(local: SocketAddr) -> String {
    match (address(local.ip()), local.port()) {
        (Some(ip), DEFAULT_PORT) => ip.to_string(),
        (Some(ip), port) => SocketAddr::new(ip, port).to_string(),
        (None, DEFAULT_PORT) => THIS_HOST.to_owned(),
        (None, port) => format!("{THIS_HOST}:{port}"),
    }
}

/// The address for the other side to name.
fn address(local: IpAddr) -> Option<IpAddr> {
    if local.is_unspecified() { outward(local) } else { Some(local) }
}

/// The address that packets to the outside leave from; without a route there, one of an interface. Nothing is sent: connecting a UDP socket only looks at the
/// routes.
pub fn outward(unspecified: IpAddr) -> Option<IpAddr> {
    let from = |any: IpAddr, documentation: IpAddr| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((documentation, 9)).ok()?;
        socket.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_unspecified())
    };
    // RFC 5737, RFC 3849: addresses that belong to nobody.
    let v4 = || from(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let v6 = || from(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
    match unspecified {
        // Sockets on [::] serve IPv4 as well.
        IpAddr::V6(_) => v4().or_else(v6),
        IpAddr::V4(_) => v4(),
    }
    .or_else(|| of_interfaces(unspecified.is_ipv6()))
}

/// An address of an interface that is up: for hosts whose networks have no way out. IPv4 first; none that needs the name of an interface beside it.
fn of_interfaces(with_v6: bool) -> Option<IpAddr> {
    use nix::net::if_::InterfaceFlags;
    let is_of_use = |flags: InterfaceFlags| flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK);
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for interface in nix::ifaddrs::getifaddrs().ok()?.filter(|interface| is_of_use(interface.flags)) {
        let Some(address) = interface.address else { continue };
        v4.extend(address.as_sockaddr_in().map(|a| IpAddr::from(a.ip())));
        v6.extend(address.as_sockaddr_in6().map(|a| a.ip()).filter(|ip| with_v6 && !ip.is_unicast_link_local()).map(IpAddr::from));
    }
    v4.into_iter().chain(v6).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(local: &str, psk: Option<&str>, no_encryption: bool, overlay: Option<&str>) -> Invitation {
        let identity = IdentityArgs { psk: psk.map(Into::into), no_encryption, ..IdentityArgs::default() };
        let via = ViaArgs {
            via: overlay.iter().map(|_| "hill".to_owned()).collect(),
            address: overlay.map(|a| a.parse().unwrap()),
            ..ViaArgs::default()
        };
        Invitation::new(local.parse().unwrap(), PublicKey([1; 32]), &identity, &via)
    }

    #[test]
    fn commands_say_everything_that_this_side_asks_for_as_a_shell_takes_it() {
        let (key, code) = (PublicKey([1; 32]), "4-otter-lagoon".parse().unwrap());
        let plain = invitation("192.0.2.7:4242", None, false, None);
        assert_eq!(plain.command("send FILE...", Some(&code)), "noctule send FILE... 192.0.2.7 --code 4-otter-lagoon");
        assert_eq!(plain.command("ping", None), format!("noctule ping 192.0.2.7 --peer-key {key}"));
        let of_ipv6 = invitation("[2001:db8::7]:4242", None, false, None);
        assert_eq!(of_ipv6.command("get HOST:PATH DIR", None), format!("noctule get [2001:db8::7]:PATH DIR --peer-key {key}"));
        let odd = invitation("[2001:db8::7]:99", Some("/a dir/it's"), true, None);
        let line = odd.command("perf -c", Some(&code));
        let words = shlex::split(&line).unwrap();
        assert_eq!(
            words,
            ["noctule", "perf", "-c", "[2001:db8::7]:99", "--psk", "/a dir/it's", "--no-encryption", "--code", "4-otter-lagoon"]
        );
        let over = invitation("192.0.2.7:5000", None, false, Some("10.9.0.7"));
        let line = over.command("send FILE...", Some(&code));
        assert_eq!(line, format!("noctule send FILE... 10.9.0.7 --via NODE --address ADDRESS --peer-key {key} --code {code}"));
        assert!(odd.one_way().contains("--overhead 30%") && odd.one_way().contains("--psk"));
        assert_eq!(invitation("[2001:db8::7]:4242", None, false, None).host(), "2001:db8::7");
    }
}
