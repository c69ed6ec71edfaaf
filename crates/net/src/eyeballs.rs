//! Happy Eyeballs (RFC 8305): several addresses of one host, of which the first that answers is taken. For any kind of connection.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// RFC 8305 §5: "Connection Attempt Delay", recommended value.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried at most.
const MAX_ADDRESSES: usize = 16;

/// The addresses in the order in which they are to be tried, sixteen at most, none twice: the families take turns, beginning with the one that the
/// resolver put first (RFC 8305 §4).
pub fn interleave(found: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
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
    turns.truncate(MAX_ADDRESSES);
    turns
}

/// An attempt in progress.
pub type Pending<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Starts the attempts one after the other, a quarter of a second apart or as soon as the one before has failed (RFC 8305 §5). The first success wins, the
/// others are dropped. `None` if there was nothing to try.
///
/// # Errors
/// All have failed: the error for which `telling` is the largest, and the first of several such.
///
/// # Cancel safety
/// Dropping the future drops all attempts.
pub async fn race<'a, T, E>(
    mut addresses: VecDeque<SocketAddr>,
    start: impl Fn(SocketAddr) -> Pending<'a, T, E>,
    telling: impl Fn(&E) -> u8,
) -> Option<Result<T, E>> {
    let mut running: Vec<Pending<'a, T, E>> = Vec::new();
    let mut worst: Option<E> = None;
    let mut pause = Box::pin(tokio::time::sleep(Duration::ZERO));
    let mut is_due = false;
    poll_fn(move |cx| {
        loop {
            let mut index = 0;
            while index < running.len() {
                match running[index].as_mut().poll(cx) {
                    Poll::Ready(Ok(value)) => return Poll::Ready(Some(Ok(value))),
                    Poll::Ready(Err(error)) => {
                        drop(running.remove(index));
                        // The last that was started: the next need not wait.
                        is_due |= index == running.len();
                        if worst.as_ref().is_none_or(|w| telling(&error) > telling(w)) {
                            worst = Some(error);
                        }
                    }
                    Poll::Pending => index += 1,
                }
            }
            let Some(next) = addresses.front().copied() else {
                return if running.is_empty() { Poll::Ready(worst.take().map(Err)) } else { Poll::Pending };
            };
            if !(running.is_empty() || is_due) && pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            is_due = false;
            addresses.pop_front();
            running.push(start(next));
            pause.as_mut().reset(tokio::time::Instant::now() + ATTEMPT_DELAY);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, PartialEq)]
    enum Failure {
        Silent,
        Declined,
    }

    fn telling(failure: &Failure) -> u8 {
        u8::from(*failure == Failure::Declined)
    }

    fn addresses(list: &[&str]) -> VecDeque<SocketAddr> {
        list.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_beginning_with_the_first_and_no_address_comes_twice() {
        let found = addresses(&["[::1]:1", "[::2]:1", "[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        assert_eq!(interleave(found.into_iter()), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_by_a_quarter_second_and_a_refusing_one_not_at_all() {
        let started = tokio::time::Instant::now();
        let log = Mutex::new(Vec::new());
        let list = addresses(&["[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let won = race(
            list,
            |remote| {
                log.lock().unwrap().push((remote.ip().to_string(), started.elapsed().as_millis()));
                Box::pin(async move {
                    match remote.to_string().as_str() {
                        "[::1]:1" => std::future::pending().await,
                        "1.1.1.1:1" => Err(Failure::Declined),
                        _ => Ok(remote),
                    }
                })
            },
            telling,
        )
        .await;
        assert_eq!(won.unwrap().unwrap(), "2.2.2.2:1".parse().unwrap());
        let log = log.into_inner().unwrap();
        assert_eq!(log[0], ("::1".into(), 0));
        assert!((250..=252).contains(&log[1].1), "{log:?}");
        assert_eq!(log.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_telling_failure_is_reported() {
        let list = addresses(&["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]);
        let lost: Option<Result<(), _>> = race(
            list,
            |remote| Box::pin(async move { Err(if remote.ip().to_string() == "2.2.2.2" { Failure::Declined } else { Failure::Silent }) }),
            telling,
        )
        .await;
        assert!(matches!(lost, Some(Err(Failure::Declined))));
    }
}
