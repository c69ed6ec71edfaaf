//! Descriptors that the kernel has just made.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over what a system call has answered: a new descriptor, or an error where it is negative.
///
/// # Safety
/// The number is the answer of a call that makes a descriptor, and nothing else owns it.
pub(super) unsafe fn owned(answer: RawFd) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open and unowned, as the caller promises.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}
