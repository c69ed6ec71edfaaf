//! How the packet loop wakes Python without its lock: a list of numbers, and one byte into a socket that an event loop, or a blocked thread, looks at.
//!
//! A [`Bridge`] belongs to one event loop or one thread. Each wait has a [`Waiter`], which is woken once. Every object of noctule has one [`Waiting`] for each
//! kind of wait: to the protocol it is one task, however many waits there are and were.

use crate::runtime;
use pyo3::prelude::*;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Takes a lock that a panic does not make useless.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one event loop or one thread learns which of its waits are over.
#[pyclass(frozen, module = "noctule._core")]
pub struct Bridge {
    shared: Arc<Shared>,
    reader: UnixStream,
}

#[derive(Debug)]
struct Shared {
    /// Numbers of waiters that were woken and not taken yet.
    woken: Mutex<Vec<u64>>,
    writer: UnixStream,
    next: AtomicU64,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { shared: Arc::new(Shared { woken: Mutex::default(), writer, next: AtomicU64::new(0) }), reader })
    }

    /// A descriptor that can be read when waiters were woken.
    fn fileno(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// A fresh waiter.
    fn waiter(&self) -> Waiter {
        let id = self.shared.next.fetch_add(1, Relaxed);
        Waiter { slot: Arc::new(Slot { id, bridge: Arc::clone(&self.shared), is_over: AtomicBool::new(false) }) }
    }

    /// The numbers of the waiters that were woken since the last call; the descriptor is quiet afterwards.
    fn take(&self) -> PyResult<Vec<u64>> {
        runtime::check()?;
        let mut bytes = [0; 64];
        while matches!((&self.reader).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        Ok(std::mem::take(&mut *lock(&self.shared.woken)))
    }
}

/// One wait.
#[pyclass(frozen, module = "noctule._core")]
pub struct Waiter {
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct Slot {
    id: u64,
    bridge: Arc<Shared>,
    /// Woken, or given up.
    is_over: AtomicBool,
}

#[pymethods]
impl Waiter {
    /// Its number, as [`Bridge::take`] tells it.
    #[getter]
    fn id(&self) -> u64 {
        self.slot.id
    }

    /// The wait was given up.
    fn forget(&self) {
        self.slot.is_over.store(true, Relaxed);
    }
}

impl Waiter {
    /// Not everything that is there was taken: the wait is over at once.
    pub fn wake(&self) {
        self.slot.wake();
    }
}

impl Slot {
    fn wake(&self) {
        if self.is_over.swap(true, Relaxed) {
            return;
        }
        let mut woken = lock(&self.bridge.woken);
        woken.push(self.id);
        if woken.len() == 1 {
            // Full means that there is something to read, which is all that it says.
            let _ = (&self.bridge.writer).write(&[0]);
        }
    }
}

/// Everything that waits for one thing, as one task.
#[derive(Clone, Default)]
pub struct Waiting(Arc<Fanout>);

#[derive(Default)]
struct Fanout {
    waiting: Mutex<Vec<Arc<Slot>>>,
}

impl Wake for Fanout {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.iter().for_each(|slot| slot.wake());
    }
}

impl Waiting {
    /// One attempt. If it has to wait, the waiter, if there is one, is woken when another attempt may succeed.
    pub fn attempt<T>(&self, waiter: Option<&Bound<'_, Waiter>>, attempt: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let Some(waiter) = waiter else { return attempt(&mut Context::from_waker(Waker::noop())) };
        {
            let mut waiting = lock(&self.0.waiting);
            // Waits that were given up leave no trace, however often that happens.
            waiting.retain(|slot| !slot.is_over.load(Relaxed));
            waiting.push(Arc::clone(&waiter.get().slot));
        }
        attempt(&mut Context::from_waker(&Waker::from(Arc::clone(&self.0))))
    }

    /// Wakes all waiters.
    pub fn wake(&self) {
        self.0.wake_by_ref();
    }
}
