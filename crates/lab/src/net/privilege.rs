//! What this process may do with network namespaces, and how it gets there without root.

use std::fs;
use std::io;

use thiserror::Error;

/// By which right namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process already holds `CAP_SYS_ADMIN` (usually: it is root).
    Root,
    /// The process moved itself into a user namespace in which it is root.
    UserNamespace,
}

impl Privilege {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::UserNamespace => "user namespace (rootless)",
        }
    }
}

/// Why this process can make no namespaces.
#[derive(Debug, Error)]
pub enum PrivilegeError {
    /// The kernel refuses both ways.
    #[error(
        "network namespaces are not permitted here: as this user: {direct}; in a user namespace: {user} \
         (run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces > 0)"
    )]
    Refused {
        /// Error of `unshare(CLONE_NEWNET)` as the process is.
        direct: io::Error,
        /// Error of `unshare(CLONE_NEWUSER)`.
        user: io::Error,
    },
    /// The user namespace exists but its id maps could not be written.
    #[error("cannot map this user to root in a new user namespace ({file}): {error}")]
    Map {
        /// The file under /proc/self.
        file: &'static str,
        /// What the kernel answered.
        error: io::Error,
    },
}

/// Gains the right to make network namespaces: as root if the process has it, else by moving the whole process into
/// a user and mount namespace of its own.
///
/// The second way works only while the process has a single thread (`unshare(2)`, CLONE_NEWUSER), so a program
/// calls this first thing; calling it again later is free.
pub fn acquire() -> Result<Privilege, PrivilegeError> {
    let direct = match probe_network_namespace() {
        Ok(()) if in_initial_user_namespace() => return Ok(Privilege::Root),
        Ok(()) => return Ok(Privilege::UserNamespace),
        Err(error) => error,
    };
    // Ids are read before: afterwards they appear as 65534 until the maps are written.
    // SAFETY: getuid and getgid cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: unshare takes flags only; the new namespaces affect this process alone.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } != 0 {
        return Err(PrivilegeError::Refused { direct, user: io::Error::last_os_error() });
    }
    // user_namespaces(7): an unprivileged process must give up setgroups before it may map its group.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {uid} 1")),
        ("/proc/self/gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(file, text).map_err(|error| PrivilegeError::Map { file, error })?;
    }
    match probe_network_namespace() {
        Ok(()) => Ok(Privilege::UserNamespace),
        Err(user) => Err(PrivilegeError::Refused { direct, user }),
    }
}

/// Tries to make a network namespace in a thread that ends at once.
fn probe_network_namespace() -> io::Result<()> {
    std::thread::Builder::new()
        .name("namespace-probe".to_owned())
        .spawn(|| {
            // SAFETY: only the network namespace of this short-lived thread changes.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })?
        .join()
        .expect("the probe thread does not panic")
}

/// The initial user namespace maps all ids onto themselves.
fn in_initial_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").map(|map| map.split_whitespace().eq(["0", "0", "4294967295"])).unwrap_or(true)
}
