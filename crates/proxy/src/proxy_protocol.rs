//! The PROXY protocol (HAProxy's `proxy-protocol.txt`): what stands in front of a connection's bytes and says where it comes from. Version 2 is written,
//! versions 1 and 2 are read.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Section 2.2: what version 2 begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, and whose connection it is.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// Families over TCP; 0 is none.
const TCP_OVER_V4: u8 = 0x11;
const TCP_OVER_V6: u8 = 0x21;
/// Section 2.1: bytes of the longest header of version 1, with its line end.
const MOST_V1: usize = 107;
/// Bytes behind the head of version 2 that are taken: addresses, and fields that are passed over (section 2.2.7).
const MOST_V2: usize = 2048;
/// How long a header may take. Section 2: it comes at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// A header of version 2 for a TCP connection; `None`: nobody knows where it comes from.
pub fn header(from: Option<SocketAddr>, to: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(52);
    out.extend(SIGNATURE);
    out.push(PROXY);
    let (from, to, ports) = match (from, to) {
        // Section 2.2: addresses are unspecified, and the receiver takes those of the socket.
        (None, _) => {
            out.extend([0, 0, 0]);
            return out;
        }
        (Some(SocketAddr::V4(from)), SocketAddr::V4(to)) => {
            out.extend([TCP_OVER_V4, 0, 12]);
            (from.ip().octets().to_vec(), to.ip().octets(), [from.port(), to.port()])
        }
        (Some(from), to) => {
            out.extend([TCP_OVER_V6, 0, 36]);
            let octets = |at: SocketAddr| mapped(at.ip()).octets();
            out.extend(octets(from));
            out.extend(octets(to));
            out.extend([from.port(), to.port()].into_iter().flat_map(u16::to_be_bytes));
            return out;
        }
    };
    out.extend(from);
    out.extend(to);
    out.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    out
}

/// Both addresses are of one family: an IPv4 address beside one of IPv6 is mapped (RFC 4291 §2.5.5.2).
fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Takes a header from the front of a connection, and not a byte more. `None`: it says of nobody that the connection is theirs.
///
/// # Errors
/// There is none, or it does not come in time.
pub(crate) async fn take(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    timeout(PATIENCE, read(from)).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Takes a header from the front of a connection, however long it takes to come, and not a byte more. `None`: it says of nobody that the connection is theirs.
///
/// # Errors
/// There is none, or the connection ends or fails before it does.
///
/// # Cancel safety
/// Dropping the future loses what has been read.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    // The shortest header of version 1 is longer.
    let mut first = [0; SIGNATURE.len()];
    from.read_exact(&mut first).await?;
    if first != SIGNATURE {
        let mut line = first.to_vec();
        if !line.starts_with(b"PROXY ") {
            return Err(bad("no header of the PROXY protocol"));
        }
        while !line.ends_with(b"\r\n") {
            if line.len() == MOST_V1 {
                return Err(bad("a line that does not end"));
            }
            line.push(from.read_u8().await?);
        }
        return line_of(&line[..line.len() - 2]);
    }
    let (command, family, len) = (from.read_u8().await?, from.read_u8().await?, usize::from(from.read_u16().await?));
    if len > MOST_V2 {
        return Err(bad("a header that is too long"));
    }
    let mut rest = vec![0; len];
    from.read_exact(&mut rest).await?;
    // Section 2.2: receivers take the addresses of the socket for LOCAL and for families that they do not know.
    match (command, family) {
        (LOCAL, _) => Ok(None),
        (PROXY, TCP_OVER_V4) => {
            let (ip, port) = (rest.first_chunk::<4>(), rest.get(8..).and_then(|r| r.first_chunk::<2>()));
            let ((Some(ip), Some(port)), true) = ((ip, port), len >= 12) else { return Err(bad("addresses that are cut off")) };
            Ok(Some((Ipv4Addr::from(*ip), u16::from_be_bytes(*port)).into()))
        }
        (PROXY, TCP_OVER_V6) => {
            let (ip, port) = (rest.first_chunk::<16>(), rest.get(32..).and_then(|r| r.first_chunk::<2>()));
            let ((Some(ip), Some(port)), true) = ((ip, port), len >= 36) else { return Err(bad("addresses that are cut off")) };
            Ok(Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), u16::from_be_bytes(*port))))
        }
        (PROXY, _) => Ok(None),
        _ => Err(bad("another version")),
    }
}

/// Section 2.1: `PROXY TCP4 SOURCE DESTINATION PORT PORT`, or `PROXY UNKNOWN ...`.
fn line_of(line: &[u8]) -> io::Result<Option<SocketAddr>> {
    let text = str::from_utf8(line).map_err(|_| bad("a line that is no text"))?;
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [_, "UNKNOWN", ..] => Ok(None),
        [_, family @ ("TCP4" | "TCP6"), source, destination, port, to] => {
            let ip = |text: &str| text.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv4() == (family == "TCP4"));
            match (ip(source), ip(destination), port.parse(), to.parse::<u16>()) {
                (Some(ip), Some(_), Ok(port), Ok(_)) => Ok(Some(SocketAddr::new(ip.to_canonical(), port))),
                _ => Err(bad("addresses that are none")),
            }
        }
        _ => Err(bad("a line of another form")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Section 2.2, filled in by hand.
    #[test]
    fn headers_are_those_of_the_proxy_protocol() {
        let v4 = header(Some(at("198.51.100.9:4000")), at("192.0.2.1:80"));
        assert_eq!(v4[..16], *b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c");
        assert_eq!(v4[16..], [198, 51, 100, 9, 192, 0, 2, 1, 0x0f, 0xa0, 0, 80]);
        let v6 = header(Some(at("[2001:db8::9]:4000")), at("[2001:db8::1]:80"));
        assert_eq!((v6.len(), &v6[12..16]), (52, &[0x21, 0x21, 0, 36][..]));
        let ends = ["2001:db8::9", "2001:db8::1"].map(|ip| ip.parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(v6[16..48], ends.concat());
        let mixed = header(Some(at("[2001:db8::9]:4000")), at("192.0.2.1:80"));
        assert_eq!((mixed.len(), &mixed[32..48]), (52, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1][..]));
        assert_eq!(header(None, at("192.0.2.1:80"))[12..], [0x21, 0, 0, 0]);
    }

    #[tokio::test]
    async fn headers_are_taken_and_not_a_byte_more() {
        let v2 = |from: &str| header(Some(at(from)), at("192.0.2.1:80"));
        let local = [&SIGNATURE[..], &[LOCAL, 0, 0, 3, 1, 2, 3]].concat();
        for (bytes, source) in [
            (v2("198.51.100.9:4000"), Some(at("198.51.100.9:4000"))),
            (v2("[2001:db8::9]:4000"), Some(at("[2001:db8::9]:4000"))),
            (header(None, at("192.0.2.1:80")), None),
            (local, None),
            (b"PROXY TCP4 198.51.100.9 192.0.2.1 4000 80\r\n".to_vec(), Some(at("198.51.100.9:4000"))),
            (b"PROXY TCP6 2001:db8::9 2001:db8::1 4000 80\r\n".to_vec(), Some(at("[2001:db8::9]:4000"))),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
        ] {
            let whole = [&bytes[..], b"hello"].concat();
            let mut rest = &whole[..];
            assert_eq!(take(&mut rest).await.unwrap(), source, "{bytes:?}");
            assert_eq!(rest, b"hello");
            for len in 0..bytes.len() {
                assert!(take(&mut &bytes[..len]).await.is_err(), "{bytes:?} {len}");
            }
            // Every change of a byte is read or refused.
            for place in 0..bytes.len() {
                for byte in 0..=u8::MAX {
                    let mut altered = whole.clone();
                    altered[place] = byte;
                    let _ = take(&mut &altered[..]).await;
                }
            }
        }
        let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat();
        for bad in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 2001:db8::9 192.0.2.1 1 2\r\n", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 70000\r\n", &long]
        {
            assert_eq!(take(&mut &bad[..]).await.unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }
}
