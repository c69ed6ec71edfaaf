//! The threads of the packet loop, and what a fork means to them.
//!
//! They are started with the first endpoint, run no Python, and end with the process. A forked child has none of them, and locks that they held stay held: there
//! every call is refused, and nothing is torn down.

use pyo3::exceptions::{PyImportError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::{Builder, Runtime};

/// Threads at most; one endpoint keeps one of them busy.
const MOST_THREADS: usize = 8;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
/// This process is the child of one that had the threads.
static IS_ORPHAN: AtomicBool = AtomicBool::new(false);

/// Refuses to be imported by any interpreter but the first: what Python objects of one would get into another. PyO3 asks newer interpreters to see to it, and
/// leaves older ones alone.
pub fn refuse_subinterpreters() -> PyResult<()> {
    // SAFETY: the interpreter's lock is held, so there is a current interpreter; both calls only read.
    let id = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    if id != 0 {
        return Err(PyImportError::new_err("noctule does not work in a subinterpreter: import it in the main one, or use processes"));
    }
    Ok(())
}

/// Called once, when the module is imported.
pub fn watch_forks() -> PyResult<()> {
    extern "C" fn in_child() {
        if RUNTIME.get().is_some() {
            IS_ORPHAN.store(true, Relaxed);
        }
    }
    // SAFETY: the handler reads and writes atomics only, which may be done after a fork; it is never unloaded, as Python never unloads an extension.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        errno => Err(PyOSError::new_err((errno, "cannot watch for forks"))),
    }
}

/// Refuses calls in a forked child.
pub fn check() -> PyResult<()> {
    if IS_ORPHAN.load(Relaxed) {
        return Err(PyRuntimeError::new_err(
            "noctule was in use when this process was forked, and its threads stayed with the parent: \
             use multiprocessing's \"spawn\", or fork before the first endpoint",
        ));
    }
    Ok(())
}

/// The threads, started if they are not.
pub fn get() -> PyResult<&'static Runtime> {
    check()?;
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(MOST_THREADS);
    let made =
        Builder::new_multi_thread().worker_threads(threads).thread_name("noctule").on_thread_start(leave_signals).enable_all().build()?;
    // Another thread of Python may have been quicker; the one that is not needed ends.
    if let Err(second) = RUNTIME.set(made) {
        second.shutdown_background();
    }
    RUNTIME.get().ok_or_else(|| PyRuntimeError::new_err("the threads of noctule could not be started"))
}

/// Signals are for Python's main thread: one that another thread took would not wake it.
fn leave_signals() {
    // SAFETY: a set that the first call fills; it concerns this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// A handle whose end takes a lock: in a forked child, where locks that other threads held are never released, it is leaked.
pub struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    /// Keeps it.
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if !IS_ORPHAN.load(Relaxed) {
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}
