//! SIGINT and SIGTERM, by which a user ends a command of the laboratory.

use std::io;
use std::os::fd::OwnedFd;

use super::descriptor::owned;

/// Blocks both signals in this thread, and gives the set of them. Threads that start later inherit that they are blocked.
pub(super) fn block() -> io::Result<libc::sigset_t> {
    // SAFETY: an all-zero set is valid input for sigemptyset; the other calls get a live set and plain numbers. Those that fill it cannot fail
    // with signals that there are (sigsetops(3)).
    let (signals, error) = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGINT);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        (signals, libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()))
    };
    // It returns the error, and leaves errno alone.
    match error {
        0 => Ok(signals),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks both signals, which make a descriptor readable instead.
pub(super) fn receive() -> io::Result<OwnedFd> {
    let signals = block()?;
    // SAFETY: the set lives over the call, which makes a descriptor.
    unsafe { owned(libc::signalfd(-1, &signals, libc::SFD_CLOEXEC)) }
}
