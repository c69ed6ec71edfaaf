//! The dialler: resolves a name where it runs, asks the rules about each address, and connects to whichever answers first (RFC 8305).

use crate::access::{Denial, Rules};
use crate::listen;
use crate::lookup::Lookups;
use crate::source::{self, Client};
use crate::target::{Host, Target};
use crate::wire::{Answer, Outcome};
use noctule::eyeballs::{interleave, race};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// An attempt ends after this: every SYN of a lossy path has had its third repetition by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// The addresses of a target that may be dialled, in the order in which they are tried.
///
/// # Errors
/// The name has no address, or the rules allow none of them.
pub(crate) async fn resolve(target: &Target, rules: &Rules, lookups: &Lookups) -> Result<VecDeque<SocketAddr>, Answer> {
    let found: Vec<SocketAddr> = match &target.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, target.port)],
        Host::Name(name) => lookups.find(name, target.port).await?,
    };
    let mut denial: Option<Denial> = None;
    let allowed = found.into_iter().filter(|address| match rules.check(&target.host, address.ip(), target.port) {
        Ok(()) => true,
        Err(why) => {
            denial.get_or_insert(why);
            false
        }
    });
    let addresses = interleave(allowed);
    match (addresses.is_empty(), denial) {
        (false, _) => Ok(addresses),
        (true, Some(denial)) => Err(Answer::new(Outcome::Denied, denial.words(target))),
        (true, None) => Err(Answer::new(Outcome::NameNotFound, format!("{} has no address", target.host))),
    }
}

/// What an end dials by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialler {
    pub rules: Rules,
    /// Whose share look-ups are.
    pub lookups: Lookups,
    /// Of its sockets (`SO_MARK`), so that what this end intercepts is never its own.
    pub mark: Option<u32>,
    /// Whose connection it is, where targets may hear of that.
    pub client: Option<Client>,
}

/// Connects to a target.
///
/// # Errors
/// What to answer.
pub(crate) async fn dial(target: &Target, dialler: &Dialler) -> Result<TcpStream, Answer> {
    let mut addresses = resolve(target, &dialler.rules, &dialler.lookups).await?;
    let from = |address| dialler.client.as_ref().map_or(Ok(None), |client| client.from(&target.host, address));
    let mut unfit = None;
    addresses.retain(|address| from(*address).map_err(|answer| unfit = Some(answer)).is_ok());
    if let (true, Some(answer)) = (addresses.is_empty(), unfit) {
        return Err(answer);
    }
    let mark = dialler.mark;
    // None is an error any more.
    let won = race(addresses, |address| Box::pin(connect(address, from(address).unwrap_or_default(), mark)), telling).await;
    won.unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into())).map_err(|error| answer_of(&error))
}

/// What to tell of an error of the system: what this host lacks or forbids is no missing route.
fn answer_of(error: &io::Error) -> Answer {
    let outcome = outcome(error);
    let is_local = matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied);
    Answer::new(outcome, if outcome == Outcome::Failed || is_local { error.to_string() } else { String::new() })
}

async fn connect(address: SocketAddr, from: Option<IpAddr>, mark: Option<u32>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    listen::set_mark(&SockRef::from(&socket), mark)?;
    if let Some(from) = from {
        source::bind_as(&SockRef::from(&socket), from)?;
    }
    let stream = timeout(PATIENCE, socket.connect(address)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // Linux binds to a broadcast address, and sends from an address of its own then: the target would take the client for this host.
    if let (Some(from), Ok(local)) = (from, stream.local_addr())
        && local.ip() != from
    {
        return Err(io::Error::other(format!(
            "it cannot be dialled from the client's address {from}: the system takes {} for it",
            local.ip()
        )));
    }
    // A port of this host that nobody listens at may be the one that this socket got for itself: TCP then connects it to itself.
    if stream.local_addr().ok() == Some(address) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// What an error of the system means to the other end.
pub(crate) fn outcome(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Outcome::Refused,
        io::ErrorKind::TimedOut => Outcome::TimedOut,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable
        // The system's firewall.
        | io::ErrorKind::PermissionDenied => Outcome::Unreachable,
        // Descriptors that have run out, too: it is not the connections of this key that are too many.
        _ => Outcome::Failed,
    }
}

/// Descriptors, ports or memory are used up: over in a while.
pub(crate) fn is_out_of(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}

/// Which of several failures to report: a host that answers and declines says more than silence.
fn telling(error: &io::Error) -> u8 {
    match outcome(error) {
        Outcome::Unreachable => 0,
        Outcome::TimedOut => 1,
        Outcome::Refused => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Pattern, Rule};

    fn addresses(list: &[&str]) -> VecDeque<SocketAddr> {
        list.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn a_host_that_declines_says_more_than_silence() {
        let of = |kind: io::ErrorKind| telling(&kind.into());
        assert!(of(io::ErrorKind::ConnectionRefused) > of(io::ErrorKind::TimedOut));
        assert!(of(io::ErrorKind::TimedOut) > of(io::ErrorKind::NetworkUnreachable));
    }

    #[test]
    fn descriptors_that_have_run_out_are_no_connections_too_many() {
        const EMFILE: i32 = 24;
        assert_eq!(outcome(&io::Error::from_raw_os_error(EMFILE)), Outcome::Failed);
    }

    #[test]
    fn what_this_host_lacks_or_forbids_is_no_missing_route() {
        const EPERM: i32 = 1;
        const EADDRNOTAVAIL: i32 = 99;
        const EHOSTUNREACH: i32 = 113;
        let words = |code: i32| answer_of(&io::Error::from_raw_os_error(code)).words();
        assert!(words(EPERM).contains("not permitted") && words(EADDRNOTAVAIL).contains("assign"), "{}", words(EADDRNOTAVAIL));
        assert_eq!(words(EHOSTUNREACH), "no route to the target");
    }

    /// A name whose addresses are partly denied is dialled at the others only: what was checked is what is dialled.
    #[tokio::test]
    async fn denied_addresses_are_never_dialled() {
        let target: Target = "localhost:1".parse().unwrap();
        let denied = resolve(&target, &Rules::default(), &Lookups::default()).await.unwrap_err();
        assert_eq!(denied.outcome, Outcome::Denied);
        assert!(denied.text.raw().contains("--allow-target localhost:1"), "{}", denied.text);
        let pattern: Pattern = "127.0.0.1".parse().unwrap();
        let rules = Rules { rules: vec![Rule { allows: true, pattern }], allow_private: false };
        assert_eq!(resolve(&target, &rules, &Lookups::default()).await.unwrap(), addresses(&["127.0.0.1:1"]));
    }
}
