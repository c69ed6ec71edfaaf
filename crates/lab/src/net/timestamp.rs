//! Times of arrival as the kernel stamps them (SO_TIMESTAMPNS), for one-way delays between namespaces of one machine.

use std::io;
use std::os::fd::AsRawFd;

/// Nanoseconds of CLOCK_REALTIME, the clock of the kernel's stamps.
pub fn now_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    nanos(time)
}

fn nanos(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Asks the kernel to stamp everything that comes to a socket.
pub fn enable(socket: &impl AsRawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int that lives over the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            std::mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives one datagram or packet and its stamp; `None` when the socket's timeout passed or no stamp came.
pub fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, u64)>> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Room for a timespec with its header, aligned as cmsghdr.
    let mut control = [0u64; 8];
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = std::mem::size_of_val(&control) as _;
    // SAFETY: message describes live buffers.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, 0) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has filled msg_control with well-formed headers of total length msg_controllen.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers inside the control buffer, or null.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if (level, kind) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
            // SAFETY: SCM_TIMESTAMPNS (the same number as the option) carries one timespec, maybe unaligned.
            let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            return Ok(Some((length as usize, nanos(time))));
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&message, header) };
    }
    Ok(None)
}
