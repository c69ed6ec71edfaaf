//! SOCKS 5 (RFC 1928) and SOCKS 4 and 4a: reading what a client asks, and the bytes of the answers. No sockets here.

use crate::target::{AddressError, Host, Target};
use crate::wire::Outcome;
use std::net::{IpAddr, Ipv4Addr};

/// First byte of SOCKS 5.
pub const V5: u8 = 5;
/// First byte of SOCKS 4.
pub const V4: u8 = 4;
/// Bytes of the longest user name that SOCKS 4 is heard out for.
const MOST_USER: usize = 255;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A connection to this target.
    Connect(Target),
    /// Datagrams.
    Associate,
    /// What there is not here.
    Other,
}

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is something else.
    Syntax,
    /// The address is none.
    Address,
}

/// A request and its length; `None`: more has to come.
pub type Parsed<T> = Result<Option<(T, usize)>, Bad>;

/// The methods that a SOCKS 5 client offers: whether "no authentication" is among them.
pub fn greeting(bytes: &[u8]) -> Parsed<bool> {
    match bytes {
        [V5, count, rest @ ..] => {
            let count = usize::from(*count);
            Ok(rest.get(..count).map(|methods| (methods.contains(&0), 2 + count)))
        }
        [V5] | [] => Ok(None),
        _ => Err(Bad::Syntax),
    }
}

/// The answer to [`greeting`].
pub fn method(is_offered: bool) -> [u8; 2] {
    [V5, if is_offered { 0 } else { 0xff }]
}

/// A SOCKS 5 request.
pub fn request(bytes: &[u8]) -> Parsed<Command> {
    let [V5, command, 0, address @ ..] = bytes else {
        return if bytes.len() < 3 && bytes.first().is_none_or(|b| *b == V5) { Ok(None) } else { Err(Bad::Syntax) };
    };
    let command = *command;
    let (target, len) = match Target::parse_bytes(address) {
        Ok(parsed) => parsed,
        Err(AddressError::Short) => return Ok(None),
        // The address of an association may be anything: it says where the client sends from.
        Err(AddressError::Kind(_) | AddressError::Name) => return Err(Bad::Address),
    };
    let command = match command {
        1 if target.port == 0 => return Err(Bad::Address),
        1 => Command::Connect(target),
        3 => Command::Associate,
        _ => Command::Other,
    };
    Ok(Some((command, 3 + len)))
}

/// The answer of SOCKS 5, with the address at the far end if it is known.
pub fn reply(code: u8, bound: Option<&Target>) -> Vec<u8> {
    let mut out = vec![V5, code, 0];
    match bound {
        Some(bound) => bound.emit(&mut out),
        None => Target::new(Host::Ip(Ipv4Addr::UNSPECIFIED.into()), 0).emit(&mut out),
    }
    out
}

/// RFC 1928 §6: the code for an outcome.
pub fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Connected => 0,
        Outcome::Busy | Outcome::Failed => 1,
        Outcome::Denied => 2,
        Outcome::Unreachable | Outcome::NameNotFound => 4,
        Outcome::Refused => 5,
        // "TTL expired" is what others say for silence.
        Outcome::TimedOut => 6,
        Outcome::Unsupported => NOT_SUPPORTED,
    }
}

/// "Command not supported."
pub const NOT_SUPPORTED: u8 = 7;
/// "Address type not supported."
pub const BAD_ADDRESS: u8 = 8;

/// A request of SOCKS 4 or 4a.
pub fn request4(bytes: &[u8]) -> Parsed<Command> {
    let [V4, command, high, low, a, b, c, d, rest @ ..] = bytes else {
        return if bytes.first().is_none_or(|b| *b == V4) { Ok(None) } else { Err(Bad::Syntax) };
    };
    let Some(user) = terminated(rest, MOST_USER)? else { return Ok(None) };
    let mut len = 8 + user.len() + 1;
    let ip = Ipv4Addr::new(*a, *b, *c, *d);
    // 4a: an address that cannot be says that a name follows.
    let host = if ip.octets()[..3] == [0; 3] && *d != 0 {
        let Some(name) = terminated(&rest[user.len() + 1..], crate::target::MOST_NAME)? else { return Ok(None) };
        len += name.len() + 1;
        str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok()).ok_or(Bad::Address)?
    } else {
        Host::Ip(IpAddr::V4(ip))
    };
    let port = u16::from_be_bytes([*high, *low]);
    let command = match command {
        1 if port == 0 => return Err(Bad::Address),
        1 => Command::Connect(Target::new(host, port)),
        _ => Command::Other,
    };
    Ok(Some((command, len)))
}

/// The text before a zero byte.
fn terminated(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, Bad> {
    match bytes.iter().position(|b| *b == 0) {
        Some(at) if at <= most => Ok(Some(&bytes[..at])),
        None if bytes.len() <= most => Ok(None),
        _ => Err(Bad::Syntax),
    }
}

/// The answer of SOCKS 4.
pub fn reply4(is_granted: bool) -> [u8; 8] {
    [0, if is_granted { 0x5a } else { 0x5b }, 0, 0, 0, 0, 0, 0]
}

/// The head of a datagram of an association (RFC 1928 §7): its target, and how long the head is; `None` for one to be dropped, as fragments are.
pub fn datagram(bytes: &[u8]) -> Option<(Target, usize)> {
    let [0, 0, 0, rest @ ..] = bytes else { return None };
    let (target, len) = Target::parse_bytes(rest).ok()?;
    (target.port != 0).then_some((target, 3 + len))
}

/// A datagram to the client.
pub fn emit_datagram(source: &Target, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 3];
    source.emit(&mut out);
    out.extend(data);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(target: &str) -> Command {
        Command::Connect(target.parse().unwrap())
    }

    /// Every prefix asks for more, and what follows is left alone.
    fn whole<T: PartialEq + std::fmt::Debug>(parse: impl Fn(&[u8]) -> Parsed<T>, bytes: &[u8], expected: T) {
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), Ok(None), "{len}");
        }
        let longer = [bytes, b"rest"].concat();
        assert_eq!(parse(&longer), Ok(Some((expected, bytes.len()))));
    }

    #[test]
    fn requests_are_read_in_pieces() {
        whole(greeting, &[5, 2, 2, 0], true);
        whole(greeting, &[5, 1, 2], false);
        whole(request, b"\x05\x01\0\x03\x0bexample.org\x01\xbb", connect("example.org:443"));
        whole(request, &[5, 1, 0, 1, 192, 0, 2, 1, 0, 80], connect("192.0.2.1:80"));
        whole(request, &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], Command::Associate);
        whole(request, &[5, 2, 0, 1, 192, 0, 2, 1, 0, 80], Command::Other);
        whole(request4, &[4, 1, 0, 80, 192, 0, 2, 1, b'u', 0], connect("192.0.2.1:80"));
        whole(request4, b"\x04\x01\0\x50\0\0\0\x01\0example.org\0", connect("example.org:80"));
        whole(request4, &[4, 2, 0, 80, 192, 0, 2, 1, 0], Command::Other);
    }

    #[test]
    fn what_is_no_request_is_refused_without_waiting() {
        assert_eq!(greeting(&[4, 1]), Err(Bad::Syntax));
        for bytes in [&[4, 1][..], &[5, 1, 1, 1], &[5, 1, 9]] {
            assert_eq!(request(bytes), Err(Bad::Syntax), "{bytes:?}");
        }
        for bytes in [&[5, 1, 0, 2, 0][..], &[5, 1, 0, 3, 1, b' ', 0, 80], &[5, 1, 0, 3, 0, 0, 80], &[5, 1, 0, 1, 1, 1, 1, 1, 0, 0]] {
            assert_eq!(request(bytes), Err(Bad::Address), "{bytes:?}");
        }
        assert_eq!(request4(&[5, 1]), Err(Bad::Syntax));
        assert_eq!(request4(&[&[4, 1, 0, 80, 1, 2, 3, 4][..], &[b'u'; 300]].concat()), Err(Bad::Syntax), "a user name without an end");
        assert_eq!(request4(b"\x04\x01\0\x50\0\0\0\x01\0a b\0"), Err(Bad::Address));
    }

    #[test]
    fn datagrams_in_fragments_are_dropped() {
        let target: Target = "example.org:53".parse().unwrap();
        let bytes = emit_datagram(&target, b"q");
        assert_eq!(datagram(&bytes), Some((target, bytes.len() - 1)));
        let mut fragment = bytes.clone();
        fragment[2] = 1;
        assert_eq!(datagram(&fragment), None);
        (0..bytes.len() - 1).for_each(|len| assert_eq!(datagram(&bytes[..len]), None));
    }

    #[test]
    fn replies_have_the_bytes_of_the_standard() {
        assert_eq!(reply(0, Some(&"192.0.2.1:80".parse().unwrap())), [5, 0, 0, 1, 192, 0, 2, 1, 0, 80]);
        assert_eq!(reply(code(Outcome::Refused), None), [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply4(false), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
    }
}
