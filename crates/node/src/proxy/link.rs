//! Links that lead to a proxy's server: `noctule://HOST[:PORT]/?key=KEY[&name=NAME][&code=CODE]`. Where it is, which key it must have, and perhaps the code
//! that lets one peer in. A link holds no secret key.

use crate::address::{DEFAULT_PORT, HostPort};
use crate::code::Code;
use noctule::PublicKey;
use noctule_proto::far_text::is_deceptive;
use std::fmt::{self, Write};
use std::str::FromStr;

const SCHEME: &str = "noctule";
/// Bytes of the longest link: more than every field at its longest takes.
const MOST: usize = 1024;
/// Bytes of the longest name.
const MOST_NAME: usize = 64;
const FORM: &str = "noctule://HOST:PORT/?key=KEY";

/// Where a server is and how it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its port is always named.
    host: HostPort,
    /// The key that it must have.
    pub key: PublicKey,
    /// What people call it.
    pub name: Option<Name>,
    /// Lets one peer in, once.
    pub code: Option<Code>,
}

/// What people call a server: text that can be shown as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.chars().find(|c| is_deceptive(*c)) {
            _ if text.is_empty() => Err("the name is empty: leave it out".into()),
            _ if text.len() > MOST_NAME => Err(format!("a name of {} bytes; names have at most {MOST_NAME}", text.len())),
            Some(odd) => Err(format!("the name has the character U+{:04X} in it, which cannot be shown", u32::from(odd))),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Link {
    /// One to this host; without a port it is the default one.
    pub fn new(host: &HostPort, key: PublicKey, name: Option<Name>, code: Option<Code>) -> Self {
        Self { host: host.with(Some(host.port().unwrap_or(DEFAULT_PORT))), key, name, code }
    }

    /// HOST:PORT.
    pub fn host(&self) -> String {
        self.host.to_string()
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}://{}/?key={}", escaped(&self.host.to_string(), b"[]:"), self.key)?;
        if let Some(name) = &self.name {
            write!(f, "&name={}", escaped(&name.0, b""))?;
        }
        if let Some(code) = &self.code {
            write!(f, "&code={code}")?;
        }
        Ok(())
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MOST {
            return Err(format!("a link of {} bytes; links have at most {MOST}", text.len()));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("this is no link: a link is {FORM}"));
        };
        // RFC 3986 §3.1: the case of a scheme does not matter.
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(format!("a link of {scheme:?}, which is not for noctule: a link is {FORM}"));
        }
        if let Some(odd) = rest.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("the link has a {odd:?} in it, which no link has: was it broken into lines, or cut off?"));
        }
        if rest.contains('#') {
            return Err("the link has a # in it: nothing may follow its fields".into());
        }
        let (place, query) = rest.split_once('?').ok_or_else(|| format!("the link ends before its key: a link is {FORM}"))?;
        let place = match place.split_once('/') {
            None => place,
            Some((place, "")) => place,
            Some((_, path)) => return Err(format!("the link has a path, {path:?}, which leads nowhere: a link is {FORM}")),
        };
        let host: HostPort = plain(place)?.parse()?;
        let (mut key, mut name, mut code) = (None, None, None);
        for field in query.split('&') {
            let (field, value) =
                field.split_once('=').ok_or_else(|| format!("{field:?} in the link has no value: fields are NAME=VALUE"))?;
            let value = plain(value)?;
            let is_again = match field {
                "key" => key.replace(value.parse::<PublicKey>().map_err(|e| format!("the key of the link: {e}"))?).is_some(),
                "name" => name.replace(value.parse::<Name>()?).is_some(),
                "code" => code.replace(value.parse::<Code>().map_err(|e| format!("the code of the link: {e}"))?).is_some(),
                // It may be what the server insists on.
                _ => {
                    return Err(format!(
                        "the link says {field:?}, which this version of noctule does not know: update noctule, or ask for another link"
                    ));
                }
            };
            if is_again {
                return Err(format!("the link says its {field} twice: ask for another one"));
            }
        }
        let key = key.ok_or_else(|| format!("the link lacks the server's key: a link is {FORM}"))?;
        Ok(Self::new(&host, key, name, code))
    }
}

/// RFC 3986 §2.3: other characters than these are written by their bytes.
fn escaped(text: &str, besides: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || besides.contains(&byte) {
            true => out.push(char::from(byte)),
            // Writing to a String cannot fail.
            false => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// Takes `%XX` for the byte that it is.
fn plain(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = rest.split_at_checked(2).filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit));
        let (digits, after) = digits.ok_or_else(|| format!("{text:?} in the link has a % without two hexadecimal digits behind it"))?;
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        bytes.push(value(digits[0]) << 4 | value(digits[1]));
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} in the link is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        PublicKey([7; 32])
    }

    fn link(host: &str, name: Option<&str>, code: Option<&str>) -> Link {
        Link::new(&host.parse().unwrap(), key(), name.map(|n| n.parse().unwrap()), code.map(|c| c.parse().unwrap()))
    }

    #[test]
    fn links_are_read_as_they_are_written() {
        for (link, shown) in [
            (link("192.0.2.7", None, None), "noctule://192.0.2.7:4242/?key=KEY"),
            (link("hill.example.org:5000", None, None), "noctule://hill.example.org:5000/?key=KEY"),
            (
                link("2001:db8::7", Some("our hill & äöü/?"), None),
                "noctule://[2001:db8::7]:4242/?key=KEY&name=our%20hill%20%26%20%C3%A4%C3%B6%C3%BC%2F%3F",
            ),
            (link("fe80::7%eth0", None, None), "noctule://[fe80::7%25eth0]:4242/?key=KEY"),
            (link("h", Some("x"), Some("4-otter-lagoon")), "noctule://h:4242/?key=KEY&name=x&code=4-otter-lagoon"),
        ] {
            let text = link.to_string();
            assert_eq!(text, shown.replace("KEY", &key().to_string()));
            assert!(text.chars().all(|c| c.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse(), Ok(link));
        }
        let short = format!("NOCTULE://h?key={}", key());
        assert_eq!(short.parse(), Ok(link("h:4242", None, None)));
    }

    #[test]
    fn what_is_no_link_is_told() {
        let key = key();
        for (text, words) in [
            ("", "this is no link"),
            ("hill:4242", "this is no link"),
            ("https://hill/?key=KEY", "not for noctule"),
            ("noctule://hill:4242/", "ends before its key"),
            ("noctule://hill/?name=x", "lacks the server's key"),
            ("noctule://hill/?key=abc", "the key of the link"),
            ("noctule://hill/?key=KEY&key=KEY", "its key twice"),
            ("noctule://hill/?key=KEY&psk=1", "does not know"),
            ("noctule://hill/?key=KEY&name", "has no value"),
            ("noctule://hill/?key=KEY&", "has no value"),
            ("noctule://hill/?key=KEY&name=", "the name is empty"),
            ("noctule://hill/?key=KEY&name=%1", "two hexadecimal digits"),
            ("noctule://hill/?key=KEY&name=%+1", "two hexadecimal digits"),
            ("noctule://hill/?key=KEY&name=%ff", "no UTF-8"),
            ("noctule://hill/?key=KEY&name=%1b[31m", "U+001B"),
            ("noctule://hill/?key=KEY&code=4-otter", "the code of the link"),
            ("noctule://hill/?key=KEY#x", "has a #"),
            ("noctule://hill/x?key=KEY", "has a path"),
            ("noctule://hill:0/?key=KEY", "from 1 to 65535"),
            ("noctule://ann@hill/?key=KEY", "without ann@"),
            ("noctule:///?key=KEY", "a host is missing"),
            ("noctule://hill/?key=KE\nY", "broken into lines"),
        ] {
            let told = text.replace("KEY", &key.to_string()).parse::<Link>().unwrap_err();
            assert!(told.contains(words), "{text:?}: {told}");
        }
        let long = format!("noctule://hill/?key={key}&name={}", "x".repeat(65));
        assert!(long.parse::<Link>().unwrap_err().contains("at most 64"));
        assert!(format!("{long}{}", "x".repeat(1024)).parse::<Link>().unwrap_err().contains("at most 1024"));
    }

    /// Every change of a byte, and every cut: what is read is read the same again, and nothing panics.
    #[test]
    fn altered_links_are_refused_or_mean_what_they_say() {
        let whole = link("[2001:db8::7]:5000", Some("a ä"), Some("4-otter-lagoon")).to_string();
        for at in 0..whole.len() {
            let _ = whole[..at].parse::<Link>();
            for byte in 0..128u8 {
                let mut altered = whole.clone().into_bytes();
                altered[at] = byte;
                if let Ok(link) = String::from_utf8(altered).unwrap().parse::<Link>() {
                    assert_eq!(link.to_string().parse(), Ok(link));
                }
            }
        }
    }
}
