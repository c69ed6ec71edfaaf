//! Network namespaces held by a file descriptor: when the last descriptor and the last process inside are gone, the
//! kernel frees them, so that nothing is left behind even after SIGKILL.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::realtime::prefer_contender;

/// A network namespace of our own.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
    descriptor: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes an empty namespace; `name` appears in messages and thread names only, never in the file system.
    ///
    /// Needs the right gained by [`super::privilege::acquire`].
    pub fn new(name: &str) -> io::Result<Self> {
        let descriptor = std::thread::Builder::new()
            .name(format!("make-{name}"))
            .spawn(|| -> io::Result<OwnedFd> {
                // SAFETY: changes the network namespace of this thread, which ends here.
                if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(File::open("/proc/thread-self/ns/net")?.into())
            })?
            .join()
            .expect("the thread that makes a namespace does not panic")?;
        Ok(Self { name: name.to_owned(), descriptor: Arc::new(descriptor) })
    }

    /// A namespace that is there already, by its file; `name` appears in messages and thread names. Errors of the kernel say whether the file is
    /// missing, no namespace (`EINVAL`) or not to be entered by this process (`EPERM`).
    pub fn open(name: &str, file: &Path) -> io::Result<Self> {
        let namespace = Self { name: name.to_owned(), descriptor: Arc::new(File::open(file)?.into()) };
        namespace.enter(|| ())?;
        Ok(namespace)
    }

    /// The name given at birth.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A descriptor for netlink attributes that name a namespace.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Runs `work` in a thread inside the namespace and waits for it. Sockets and devices opened there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name(format!("in-{}", self.name))
                .spawn_scoped(scope, || {
                    join_namespace(&self.descriptor)?;
                    Ok(work())
                })?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread inside the namespace; the result of entering comes with that of the work.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        let descriptor = Arc::clone(&self.descriptor);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            join_namespace(&descriptor)?;
            Ok(work())
        })
    }

    /// A command that will run inside the namespace and die with the thread that starts it.
    ///
    /// Start it from a thread that lives as long as the child should: the kernel sends the death signal when the
    /// starting *thread* ends (`prctl(2)`, PR_SET_PDEATHSIG).
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let descriptor = Arc::clone(&self.descriptor);
        let parent = std::process::id();
        // SAFETY: between fork and exec only system calls are made: setns, setpriority, prctl, getppid.
        unsafe {
            command.pre_exec(move || {
                join_namespace(&descriptor)?;
                prefer_contender();
                die_with_parent(parent)
            });
        }
        command
    }

    /// Sets a variable under /proc/sys as seen inside, for instance `net.ipv4.ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        // /proc/sys/net shows the namespace of the thread that opens it, so no mount is needed.
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.enter(|| fs::write(&path, value))?.map_err(|error| io::Error::new(error.kind(), format!("{path} = {value}: {error}")))
    }
}

fn join_namespace(descriptor: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open and the call changes only the calling thread.
    match unsafe { libc::setns(descriptor.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getppid cannot fail.
    if unsafe { libc::getppid() } as u32 != parent {
        // The parent died between fork and prctl: its death signal will never come.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}
