//! A further path of a link, as the command line and the node's file write it: `FROM`, `FROM,TO` or `,TO`.

use crate::address::host_port;
use noctule::{Link, OpenError, PathId, Session, parse_ip};
use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

/// A further path to the same host: from another address of this one, to another address of that one, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FurtherPath {
    /// An address of this host, and the number of its interface if it is link-local.
    from: Option<(IpAddr, u32)>,
    /// Host and port.
    to: Option<String>,
}

impl FromStr for FurtherPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once(',').unwrap_or((text, ""));
        let from = match from {
            "" => None,
            given => Some(parse_ip(given).map_err(|error| {
                format!("{given:?} is no IP address of this host ({error}): write FROM, FROM,HOST:PORT or ,HOST:PORT to name another address of the other side")
            })?),
        };
        let to = (!to.is_empty()).then(|| host_port(to, None)).transpose()?;
        if from.is_none() && to.is_none() {
            return Err(
                "a path needs an address of this host, or another one of the other side: FROM, FROM,HOST:PORT or ,HOST:PORT".to_owned()
            );
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for FurtherPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from.map(|(ip, _)| ip), &self.to) {
            (Some(from), Some(to)) => write!(f, "{from},{to}"),
            (Some(from), None) => write!(f, "{from}"),
            (None, Some(to)) => write!(f, ",{to}"),
            (None, None) => Ok(()),
        }
    }
}

/// What paths can be added to.
pub trait Paths {
    /// See [`Link::add_path`].
    fn add_path(&self, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError>;
}

impl Paths for Link {
    fn add_path(&self, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError> {
        Self::add_path(self, remote, local)
    }
}

impl Paths for Session {
    fn add_path(&self, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError> {
        Self::add_path(self, remote, local)
    }
}

impl FurtherPath {
    /// Adds it.
    ///
    /// # Errors
    /// In words: it is not of this host, the name leads nowhere, or the link takes no more.
    pub async fn add(&self, link: &impl Paths) -> Result<PathId, String> {
        let from = self.from.map(|(ip, _)| ip);
        if let Some((from, interface)) = self.from {
            // Said now and not by a path that never opens.
            let at = match from {
                IpAddr::V4(_) => SocketAddr::new(from, 0),
                IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, interface).into(),
            };
            let socket = std::net::UdpSocket::bind(at);
            socket.map_err(|error| format!("the path from {from}: {error}; is it an address of this host?"))?;
        }
        let remote = match &self.to {
            None => None,
            Some(to) => {
                let found = noctule::lookup_address(to).await.map_err(|error| format!("the path to {to}: {error}"))?;
                let is_fit = |a: &SocketAddr| from.is_none_or(|from| from.is_ipv4() == a.is_ipv4());
                Some(
                    found
                        .into_iter()
                        .find(is_fit)
                        .ok_or_else(|| format!("the path to {to}: it has no address of the family of the other end"))?,
                )
            }
        };
        link.add_path(remote, from).map_err(|error| format!("the path {self}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_with_either_end_or_both() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7,hill", "192.0.2.7,hill:4242"),
            (",198.51.100.9:7", ",198.51.100.9:7"),
            ("2001:db8::1,2001:db8::9", "2001:db8::1,[2001:db8::9]:4242"),
        ] {
            assert_eq!(text.parse::<FurtherPath>().unwrap().to_string(), shown);
        }
        for (text, word) in [("hill", "no IP address of this host"), ("", "needs an address"), (",", "needs an address")] {
            assert!(text.parse::<FurtherPath>().unwrap_err().contains(word), "{text}");
        }
    }
}
