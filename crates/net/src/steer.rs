//! Sockets that share a port, each for one shard of an endpoint: a filter in the kernel gives each datagram to its shard's socket (Linux).
//!
//! Only speed depends on the filter: a driver passes on what comes to the wrong socket.

use noctule_proto::shard::Steering;
use socket2::{SockRef, Socket as RawSocket};
use std::io;

/// So many shards there can be where this many are wanted.
pub(crate) fn shards(wanted: usize) -> usize {
    if cfg!(target_os = "linux") { wanted.clamp(1, MOST_SHARDS) } else { 1 }
}

/// Each has a megabyte of buffers of its own, beside those of its sockets.
const MOST_SHARDS: usize = 64;

/// From now on other sockets of this user may be bound to the same address. A socket that is bound already keeps the address from all that were not bound beside it.
#[cfg(target_os = "linux")]
pub(crate) fn share(socket: &RawSocket) -> io::Result<()> {
    #[cfg(test)]
    refusal::ask()?;
    socket.set_reuse_port(true)
}

/// The address is this socket's alone again.
#[cfg(target_os = "linux")]
pub(crate) fn keep(socket: &RawSocket) {
    // Where it could not be shared there is nothing to take back.
    let _ = socket.set_reuse_port(false);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn keep(_: &RawSocket) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn share(_: &RawSocket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives each datagram that comes to this socket's address to the socket of its shard: the first that was bound is that of the first shard, and so on.
#[cfg(target_os = "linux")]
pub(crate) fn attach(socket: &SockRef<'_>, steering: Steering) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mut program = filter(steering);
    let program = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it; the descriptor is live.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn attach(_: &SockRef<'_>, _: Steering) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// [`Steering::of_datagram`] in the kernel's language of packet filters (classic BPF). A datagram that is too short to have a label goes to the first socket.
#[cfg(target_os = "linux")]
fn filter(steering: Steering) -> Vec<libc::sock_filter> {
    use libc::{
        BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JA, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MISC, BPF_MOD, BPF_MUL, BPF_RET, BPF_RSH, BPF_TAX,
        BPF_W, BPF_X, BPF_XOR,
    };
    use noctule_proto::wire::packet::{HANDSHAKE_BIT, HANDSHAKE_ID_AT, PROTECTED_ID_AT};
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let if_set = |k: u32, jt: u8, jf: u8| libc::sock_filter { code: (BPF_JMP | BPF_JSET | BPF_K) as u16, jt, jf, k };
    let [add, first, second] = steering.key();
    let mut program = vec![
        step(BPF_LD | BPF_B | BPF_ABS, 0),
        if_set(HANDSHAKE_BIT.into(), 0, 2),
        step(BPF_LD | BPF_W | BPF_ABS, HANDSHAKE_ID_AT as u32),
        step(BPF_JMP | BPF_JA, 1),
        step(BPF_LD | BPF_W | BPF_ABS, PROTECTED_ID_AT as u32),
        step(BPF_ALU | BPF_XOR | BPF_K, add),
    ];
    for (shift, factor) in Steering::SHIFTS.into_iter().zip([Some(first), Some(second), None]) {
        program.extend([step(BPF_MISC | BPF_TAX, 0), step(BPF_ALU | BPF_RSH | BPF_K, shift), step(BPF_ALU | BPF_XOR | BPF_X, 0)]);
        program.extend(factor.map(|factor| step(BPF_ALU | BPF_MUL | BPF_K, factor)));
    }
    program.extend([step(BPF_ALU | BPF_MOD | BPF_K, steering.count()), step(BPF_RET | BPF_A, 0)]);
    program
}

/// A system on which sockets cannot share a port, for tests.
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod refusal {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static GRANTED: Cell<u32> = const { Cell::new(u32::MAX) };
    }

    /// On this thread only so many further wishes to share are granted.
    pub(crate) fn after(wishes: u32) {
        GRANTED.set(wishes);
    }

    pub(super) fn ask() -> io::Result<()> {
        let left = GRANTED.get().checked_sub(1).ok_or(io::ErrorKind::Unsupported)?;
        GRANTED.set(left);
        Ok(())
    }
}
