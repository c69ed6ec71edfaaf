//! The queue of events for the program, with a descriptor that is readable while an event waits.
//!
//! Wakers of the endpoint's tasks put names in: which handle, which kind. The event's contents are looked up when it is handed over, so that they are current.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// What may happen to a handle; the numbers are those of the header.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum noctule_event_kind {
    /// A session that this end opened: connected, or `error` says why not.
    Connected = 1,
    /// A session: it is over. `noctule_session_outcome` says how.
    Closed = 2,
    /// An endpoint: a session waits for `noctule_endpoint_accept`.
    Session = 3,
    /// An endpoint: no session and no link is left, after `noctule_endpoint_notify_idle`.
    Idle = 4,
    /// A session: a flow waits for `noctule_session_accept`.
    Flow = 5,
    /// A session: a datagram waits for `noctule_session_recv_datagram`.
    Datagram = 6,
    /// A flow: bytes, a message, the end or an error can be read.
    Readable = 7,
    /// A flow that had no room: try again.
    Writable = 8,
    /// A flow, after `noctule_flow_finish`: the far end has everything, or `error` says why that is not known.
    Finished = 9,
    /// A session of which `noctule_session_target_rate` had nothing new to say: it has now.
    TargetRate = 10,
}

/// A handle, and what happened to it.
pub(crate) type Name = (u64, noctule_event_kind);

pub(crate) struct Queue {
    state: Mutex<Waiting>,
    reader: PipeReader,
    writer: PipeWriter,
}

#[derive(Default)]
struct Waiting {
    names: VecDeque<Name>,
    /// A byte is in the pipe.
    is_signalled: bool,
    is_over: bool,
}

/// What a wait for events came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Something is there, or was there a moment ago.
    Ready,
    /// Time is up.
    Elapsed,
    /// A signal was handled.
    Interrupted,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        Ok(Arc::new(Self { state: Mutex::default(), reader, writer }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable while something waits.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    fn push(&self, name: Name) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        state.names.push_back(name);
        self.signal(&mut state);
    }

    /// There is never more than one byte in the pipe, so neither writing nor reading waits.
    fn signal(&self, state: &mut Waiting) {
        if !std::mem::replace(&mut state.is_signalled, true) {
            let mut writer = &self.writer;
            let _ = writer.write_all(&[1]);
        }
    }

    pub(crate) fn pop(&self) -> Option<Name> {
        let mut state = self.lock();
        let name = state.names.pop_front();
        if state.names.is_empty() && !state.is_over && std::mem::take(&mut state.is_signalled) {
            let mut reader = &self.reader;
            let _ = reader.read_exact(&mut [0]);
        }
        name
    }

    /// Nothing comes any more: waiting threads are woken, and the descriptor stays readable.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.names.clear();
        self.signal(&mut state);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits for something to come, for ever without a `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Waited> {
        let end = timeout.map(|t| Instant::now() + t);
        loop {
            let millis = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => -1,
                // Rounded up: no busy waiting through the last millisecond.
                Some(left) => i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX),
            };
            let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one live structure, and a descriptor that lives as long as `self`.
            match unsafe { libc::poll(&raw mut poll, 1, millis) } {
                0 if millis == i32::MAX => {}
                0 => return Ok(Waited::Elapsed),
                1.. => return Ok(Waited::Ready),
                _ => {
                    let error = io::Error::last_os_error();
                    return if error.kind() == io::ErrorKind::Interrupted { Ok(Waited::Interrupted) } else { Err(error) };
                }
            }
        }
    }
}

/// Puts one name into the queue when it is woken, once for each call that returned `WOULD_BLOCK`.
struct Signal {
    queue: Arc<Queue>,
    name: Name,
    is_armed: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_armed.swap(false, SeqCst) {
            self.queue.push(self.name);
        }
    }
}

/// One kind of event of one handle.
pub(crate) struct Interest {
    signal: Arc<Signal>,
    /// Always the same, so that a list of wakers keeps it once.
    waker: Waker,
}

impl Interest {
    pub(crate) fn new(queue: &Arc<Queue>, id: u64, kind: noctule_event_kind) -> Self {
        let signal = Arc::new(Signal { queue: Arc::clone(queue), name: (id, kind), is_armed: AtomicBool::new(false) });
        Self { waker: Waker::from(Arc::clone(&signal)), signal }
    }

    /// Tries once; in vain (`None`), then the event follows when it is worth another try.
    pub(crate) fn attempt<T>(&self, attempt: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        // Before the attempt: a wake-up while it runs must not get lost.
        self.signal.is_armed.store(true, SeqCst);
        match attempt(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(value) => {
                self.signal.is_armed.store(false, SeqCst);
                Some(value)
            }
            Poll::Pending => None,
        }
    }

    /// Tells the event now.
    pub(crate) fn tell(&self) {
        self.signal.is_armed.store(true, SeqCst);
        self.signal.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_event_kind::{Readable, Writable};

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_waits() {
        let queue = Queue::new().unwrap();
        let now = Some(Duration::ZERO);
        assert_eq!(queue.wait(now).unwrap(), Waited::Elapsed);
        queue.push((1, Readable));
        queue.push((2, Writable));
        assert_eq!(queue.wait(now).unwrap(), Waited::Ready);
        assert_eq!(queue.pop(), Some((1, Readable)));
        assert_eq!(queue.wait(now).unwrap(), Waited::Ready);
        assert_eq!(queue.pop(), Some((2, Writable)));
        assert_eq!(queue.wait(now).unwrap(), Waited::Elapsed);
        assert_eq!(queue.pop(), None);
        queue.end();
        assert_eq!((queue.wait(None).unwrap(), queue.pop()), (Waited::Ready, None));
        assert_eq!(queue.wait(None).unwrap(), Waited::Ready, "it stays readable");
    }

    #[test]
    fn one_vain_attempt_gives_one_event() {
        let queue = Queue::new().unwrap();
        let interest = Interest::new(&queue, 5, Readable);
        interest.waker.wake_by_ref();
        assert_eq!(queue.pop(), None, "nobody has tried");
        let mut kept = None;
        assert_eq!(
            interest.attempt(|cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            }),
            None
        );
        let kept = kept.unwrap();
        kept.wake_by_ref();
        kept.wake_by_ref();
        assert_eq!((queue.pop(), queue.pop()), (Some((5, Readable)), None));
        assert_eq!(interest.attempt(|_| Poll::Ready(3)), Some(3));
        kept.wake();
        assert_eq!(queue.pop(), None, "it was not in vain");
    }
}
