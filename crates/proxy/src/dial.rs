//! The dialler: resolves a name where it runs, asks the rules about each address, and connects to whichever answers first (RFC 8305).

use crate::access::{Denial, Rules};
use crate::target::{Host, Target};
use crate::wire::{Answer, Outcome};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// RFC 8305 §5: "Connection Attempt Delay", recommended value.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// An attempt ends after this: every SYN of a lossy path has had its third repetition by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// Addresses of one name that are tried at most.
const MOST_ADDRESSES: usize = 16;

/// The addresses of a target that may be dialled, in the order in which they are tried.
///
/// # Errors
/// The name has no address, or the rules allow none of them.
pub(crate) async fn resolve(target: &Target, rules: &Rules) -> Result<VecDeque<SocketAddr>, Answer> {
    let found: Vec<SocketAddr> = match &target.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, target.port)],
        Host::Name(name) => match timeout(PATIENCE, lookup_host((name.as_str(), target.port))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(error)) => return Err(Answer::new(Outcome::NameNotFound, format!("{name}: {error}"))),
            Err(_) => return Err(Answer::new(Outcome::NameNotFound, format!("{name}: the resolver does not answer"))),
        },
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

/// RFC 8305 §4: the families take turns, beginning with the one that the resolver put first.
fn interleave(found: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let (mut first, mut second) = (VecDeque::new(), VecDeque::new());
    for address in found {
        let list = if first.front().is_none_or(|a: &SocketAddr| a.is_ipv4() == address.is_ipv4()) { &mut first } else { &mut second };
        if !list.contains(&address) {
            list.push_back(address);
        }
    }
    let mut turns = VecDeque::new();
    while !(first.is_empty() && second.is_empty()) {
        turns.extend(first.pop_front());
        turns.extend(second.pop_front());
    }
    turns.truncate(MOST_ADDRESSES);
    turns
}

/// Connects to a target.
///
/// # Errors
/// What to answer.
pub(crate) async fn dial(target: &Target, rules: &Rules) -> Result<TcpStream, Answer> {
    let addresses = resolve(target, rules).await?;
    race(addresses, connect).await
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // A port of this host that nobody listens at may be the one that this socket got for itself: TCP then connects it to itself.
    if stream.local_addr().ok() == Some(address) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Starts attempts one after the other, `ATTEMPT_DELAY` apart or as soon as the last has failed; the first success wins.
async fn race<T, F>(mut addresses: VecDeque<SocketAddr>, start: impl Fn(SocketAddr) -> F) -> Result<T, Answer>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut worst: Option<io::Error> = None;
    let mut due = Instant::now();
    loop {
        if running.is_empty() || due <= Instant::now() {
            match addresses.pop_front() {
                Some(next) => {
                    running.spawn(start(next));
                    due = Instant::now() + ATTEMPT_DELAY;
                }
                None if running.is_empty() => {
                    let error = worst.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
                    return Err(Answer::new(
                        outcome(&error),
                        if outcome(&error) == Outcome::Failed { error.to_string() } else { String::new() },
                    ));
                }
                None => {}
            }
        }
        tokio::select! {
            Some(ended) = running.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => {
                    if worst.as_ref().is_none_or(|w| telling(&error) > telling(w)) {
                        worst = Some(error);
                    }
                    due = Instant::now();
                }
                Err(_) => due = Instant::now(),
            },
            () = sleep_until(due), if !addresses.is_empty() => {}
        }
    }
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
        _ if is_out_of(error) => Outcome::Busy,
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
    fn families_take_turns_and_no_address_comes_twice() {
        let found = addresses(&["[::1]:1", "[::2]:1", "[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        assert_eq!(interleave(found.into_iter()), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_by_a_quarter_second_and_a_refusing_one_not_at_all() {
        let started = Instant::now();
        let result = race(addresses(&["[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]), move |address| async move {
            match address.to_string().as_str() {
                "[::1]:1" => std::future::pending().await,
                "1.1.1.1:1" => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Ok((address, started.elapsed())),
            }
        })
        .await;
        let (winner, after) = result.unwrap();
        assert_eq!(winner, "2.2.2.2:1".parse().unwrap());
        assert!((250..=253).contains(&after.as_millis()), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_telling_failure_is_reported() {
        let result: Result<(), _> = race(addresses(&["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]), |address| async move {
            Err(match address.to_string().as_str() {
                "2.2.2.2:1" => io::ErrorKind::ConnectionRefused.into(),
                "1.1.1.1:1" => io::ErrorKind::TimedOut.into(),
                _ => io::Error::from(io::ErrorKind::NetworkUnreachable),
            })
        })
        .await;
        assert_eq!(result.unwrap_err().outcome, Outcome::Refused);
    }

    /// A name whose addresses are partly denied is dialled at the others only: what was checked is what is dialled.
    #[tokio::test]
    async fn denied_addresses_are_never_dialled() {
        let target: Target = "localhost:1".parse().unwrap();
        let denied = resolve(&target, &Rules::default()).await.unwrap_err();
        assert_eq!(denied.outcome, Outcome::Denied);
        assert!(denied.text.raw().contains("--allow-target localhost:1"), "{}", denied.text);
        let pattern: Pattern = "127.0.0.1".parse().unwrap();
        let rules = Rules { rules: vec![Rule { allows: true, pattern }], allow_private: false };
        assert_eq!(resolve(&target, &rules).await.unwrap(), addresses(&["127.0.0.1:1"]));
    }
}
