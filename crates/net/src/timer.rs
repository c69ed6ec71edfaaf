//! A one-shot timer with the kernel's precision: tokio's own wheel ticks in milliseconds, the pacer needs tens of microseconds.

#[cfg(target_os = "linux")]
pub(crate) use fd::Timer;
#[cfg(not(target_os = "linux"))]
pub(crate) use wheel::Timer;

/// On Linux a timerfd: an hrtimer of the kernel, seen by tokio's reactor as a readable descriptor, so that nothing spins.
#[cfg(target_os = "linux")]
mod fd {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::task::{Context, Poll, ready};
    use std::time::Duration;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(crate) struct Timer {
        fd: AsyncFd<OwnedFd>,
    }

    impl Timer {
        pub(crate) fn new() -> io::Result<Self> {
            // SAFETY: no memory is passed; the result is checked before it is owned.
            let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: `raw` is a descriptor that was just created and that nothing else owns.
            let owned = unsafe { OwnedFd::from_raw_fd(raw) };
            // SAFETY: an `OwnedFd` keeps its descriptor open and the same until it is dropped, which `AsyncFd` does after deregistering it.
            let fd = unsafe { AsyncFd::register_with_interest(owned, Interest::READABLE)? };
            Ok(Self { fd })
        }

        /// Fires once, this long from now; replaces what was armed before. `None` disarms.
        pub(crate) fn arm(&mut self, delay: Option<Duration>) -> io::Result<()> {
            let value = match delay {
                None => libc::timespec { tv_sec: 0, tv_nsec: 0 },
                Some(d) => {
                    // Zero would disarm; a year is as good as never and fits every time_t.
                    let d = d.clamp(Duration::from_nanos(1), Duration::from_secs(31_536_000));
                    libc::timespec { tv_sec: d.as_secs() as _, tv_nsec: d.subsec_nanos() as _ }
                }
            };
            let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            // SAFETY: `spec` lives through the call, the old value is not asked for, the descriptor is ours.
            let rc = unsafe { libc::timerfd_settime(self.fd.as_raw_fd(), 0, &spec, std::ptr::null_mut()) };
            if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }

        /// Ready once per firing; otherwise the task is woken when it fires.
        pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            loop {
                let mut guard = ready!(self.fd.poll_read_ready(cx))?;
                let mut count = 0u64;
                let read = guard.try_io(|fd| {
                    // SAFETY: eight bytes of a live integer, as timerfd_create(2) asks for.
                    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
                    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
                });
                match read {
                    Ok(result) => return Poll::Ready(result),
                    Err(_would_block) => continue,
                }
            }
        }
    }
}

/// Elsewhere tokio's timer, with its precision of a millisecond.
#[cfg(not(target_os = "linux"))]
mod wheel {
    use std::future::Future;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    pub(crate) struct Timer {
        sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    }

    impl Timer {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { sleep: None })
        }
        pub(crate) fn arm(&mut self, delay: Option<Duration>) -> io::Result<()> {
            let Some(delay) = delay else {
                self.sleep = None;
                return Ok(());
            };
            let deadline = tokio::time::Instant::now() + delay.min(Duration::from_secs(31_536_000));
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline))),
            }
            Ok(())
        }
        pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
            Poll::Ready(Ok(()))
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::Timer;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::{Duration, Instant};

    #[tokio::test]
    async fn fires_once_per_arming_and_not_when_disarmed() {
        let mut timer = Timer::new().unwrap();
        let start = Instant::now();
        timer.arm(Some(Duration::from_millis(2))).unwrap();
        poll_fn(|cx| timer.poll_fired(cx)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(2));
        timer.arm(Some(Duration::ZERO)).unwrap();
        poll_fn(|cx| timer.poll_fired(cx)).await.unwrap();
        timer.arm(Some(Duration::from_millis(1))).unwrap();
        timer.arm(None).unwrap();
        let fired = tokio::time::timeout(Duration::from_millis(20), poll_fn(|cx| timer.poll_fired(cx))).await;
        assert!(fired.is_err());
        assert!(matches!(poll_fn(|cx| Poll::Ready(timer.poll_fired(cx))).await, Poll::Pending));
    }

    /// Not a check but a measurement, for docs/decisions.
    #[tokio::test]
    #[ignore = "prints how late timers fire; run with --release -- --ignored --nocapture"]
    async fn lateness() {
        let mut timer = Timer::new().unwrap();
        for micros in [50u64, 100, 500, 1000] {
            let asked = Duration::from_micros(micros);
            let mut rows = Vec::new();
            for is_fd in [true, false] {
                let mut late = Vec::new();
                for _ in 0..500 {
                    let start = Instant::now();
                    if is_fd {
                        timer.arm(Some(asked)).unwrap();
                        poll_fn(|cx| timer.poll_fired(cx)).await.unwrap();
                    } else {
                        tokio::time::sleep(asked).await;
                    }
                    late.push(start.elapsed().saturating_sub(asked).as_micros());
                }
                late.sort_unstable();
                rows.push(format!("p50 {} us, p99 {} us", late[250], late[495]));
            }
            println!("asked for {micros} us: timerfd late by {}; tokio late by {}", rows[0], rows[1]);
        }
    }
}
