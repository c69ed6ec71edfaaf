//! The context: the library's threads, and the events that wait for the program.

use crate::error::{Failure, Outcome, call, noctule_error};
use crate::input;
use crate::queue::{Name, Queue, Waited};
use crate::table::{self, Object};
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// The library's threads and its queue of events. 0 is none. A copy is the same context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_context {
    /// Name of the context; for the library only.
    pub id: u64,
}

/// An event. The handles that it concerns are set, and those that they belong to; a handle may have been freed meanwhile.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_event {
    /// A `noctule_event_kind`.
    pub kind: u32,
    /// A `noctule_error`: 0, or what went wrong.
    pub error: i32,
    /// The pointer that belongs to the handle that the event is about.
    pub user: *mut c_void,
    /// The endpoint; 0 if the event concerns none.
    pub endpoint: crate::endpoint::noctule_endpoint,
    /// The session; 0 if the event concerns none.
    pub session: crate::session::noctule_session,
    /// The flow; 0 if the event concerns none.
    pub flow: crate::flow::noctule_flow,
    /// Not used in this version; 0.
    pub reserved: [u64; 2],
}

/// Takes an event. `event` is valid during the call; `user` is what was given with the function.
#[allow(non_camel_case_types)]
pub type noctule_callback = Option<unsafe extern "C-unwind" fn(event: *const noctule_event, user: *mut c_void)>;

/// Worker threads of one context, at most.
const MOST_THREADS: u32 = 256;
/// The ABI of this library: goes up when something in the header changes its meaning.
pub const NOCTULE_ABI: u32 = 1;

pub(crate) struct Context {
    pub(crate) queue: Arc<Queue>,
    /// Starts tasks; they end with the runtime.
    pub(crate) handle: Handle,
    runtime: Mutex<Option<Runtime>>,
    /// Handles that are freed with the context.
    handles: Mutex<HashSet<u64>>,
    callbacks: OnceLock<Callbacks>,
}

/// The thread that calls the program back.
struct Callbacks {
    thread: ThreadId,
    join: Mutex<Option<JoinHandle<()>>>,
    /// Held while a callback runs.
    running: Arc<Mutex<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// A handle for `make`'s object, which is freed with this context at the latest.
    pub(crate) fn adopt<T>(&self, make: impl FnOnce(u64) -> Outcome<T>, wrap: impl FnOnce(Arc<T>) -> Object) -> Outcome<(u64, Arc<T>)> {
        let place = table::reserve()?;
        let made = Arc::new(make(place.id())?);
        let mut handles = lock(&self.handles);
        if self.queue.is_over() {
            return Err(over());
        }
        let id = place.fill(wrap(Arc::clone(&made)));
        handles.insert(id);
        Ok((id, made))
    }

    /// A handle of this context was freed.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.handles).remove(&id);
    }

    fn is_callback_thread(&self) -> bool {
        self.callbacks.get().is_some_and(|c| c.thread == std::thread::current().id())
    }

    /// Ends everything; within `patience` what is closing may still be delivered, and the threads are waited for.
    fn end(&self, patience: Option<Duration>) {
        self.queue.end();
        let handles = std::mem::take(&mut *lock(&self.handles));
        let mut endpoints = Vec::new();
        for id in handles {
            match table::get(id) {
                Some(Object::Endpoint(endpoint)) => {
                    let _ = table::take_endpoint(id);
                    endpoints.push(endpoint);
                }
                Some(Object::Session(_)) => drop(table::take_session(id)),
                Some(Object::Flow(_)) => drop(table::take_flow(id)),
                _ => {}
            }
        }
        let Some(runtime) = lock(&self.runtime).take() else { return };
        let Some(patience) = patience else {
            runtime.shutdown_background();
            return;
        };
        let began = std::time::Instant::now();
        runtime.block_on(async {
            let idle: Vec<_> = endpoints.into_iter().map(|endpoint| tokio::spawn(idle(endpoint))).collect();
            let idle = async {
                for endpoint in idle {
                    // The task has no result.
                    let _ = endpoint.await;
                }
            };
            // What is not delivered in time is lost, as the header says.
            let _ = tokio::time::timeout(patience, idle).await;
        });
        runtime.shutdown_timeout(patience.saturating_sub(began.elapsed()).max(Duration::from_millis(100)));
        if let Some(callbacks) = self.callbacks.get().filter(|_| !self.is_callback_thread())
            && let Some(thread) = lock(&callbacks.join).take()
        {
            // It ends after the callback that runs now.
            let _ = thread.join();
        }
    }
}

/// Waits until an endpoint has nothing left; sessions that nobody has accepted, and those that come meanwhile, are closed.
async fn idle(endpoint: Arc<crate::endpoint::Endpoint>) {
    endpoint.refuse_waiting();
    tokio::select! {
        () = endpoint.inner.wait_idle() => {}
        () = async { while endpoint.inner.accept().await.is_some() {} } => {}
    }
}

fn over() -> Failure {
    Failure::new(noctule_error::Closed, "the context was freed")
}

/// What the program is told of a name from the queue; `None` if it was no news after all, or is none any more.
fn event_of((id, kind): Name) -> Option<(noctule_event, Option<Failure>)> {
    let (failure, event) = match table::get(id)? {
        Object::Endpoint(endpoint) => (endpoint.news(kind)?, endpoint.event()),
        Object::Session(session) => (session.news(kind)?, session.event()),
        Object::Flow(flow) => (flow.news(kind)?, flow.event()),
        Object::Context(_) | Object::Identity(_) => return None,
    };
    let error = failure.as_ref().map_or(0, |f: &Failure| f.code as i32);
    Some((noctule_event { kind: kind as u32, error, ..event }, failure))
}

/// Makes a context: threads that run the protocol, and a queue of events. `abi` is `NOCTULE_ABI`; `threads` is the number of worker threads (1 to 256), 0 for as
/// many as there are processors, but four at most. Several contexts are independent of each other.
///
/// Threads: any. Blocks: never. Owns: `*context` is the program's, to be freed with `noctule_context_free` or `noctule_context_free_wait`. It does not survive
/// `fork`: make contexts in the child.
/// Errors: `VERSION` (the header is of another library), `NULL_ARGUMENT`, `INVALID_ARGUMENT` (too many threads), `LIMIT`, `SYSTEM` (no threads or descriptors left).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_context_new(abi: u32, threads: u32, context: *mut noctule_context) -> noctule_error {
    call(|| {
        input::required("context", context)?;
        if abi != NOCTULE_ABI {
            let words = format!("the program was compiled with a header of ABI {abi}, this library has {NOCTULE_ABI}: compile it anew");
            return Err(Failure::new(noctule_error::Version, words));
        }
        if threads > MOST_THREADS {
            return Err(Failure::invalid(format!("{threads} threads: at most {MOST_THREADS}")));
        }
        let threads = match threads as usize {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            n => n,
        };
        let queue = Queue::new().map_err(|e| Failure::system("no pipe for events", &e))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("noctule")
            .enable_all()
            .build()
            .map_err(|e| Failure::system("no threads for the library", &e))?;
        let made = Context {
            queue,
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            handles: Mutex::default(),
            callbacks: OnceLock::new(),
        };
        let id = table::reserve()?.fill(Object::Context(Arc::new(made)));
        // SAFETY: not null, and as the caller promises.
        unsafe { input::store(context, noctule_context { id }) };
        Ok(())
    })
}

/// Frees a context and every handle of its endpoints, sessions and flows. What is not delivered yet is lost; far ends hear nothing. A callback that runs goes on,
/// and none begins after it. The library's threads end soon after.
///
/// Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_context_free(context: noctule_context) -> noctule_error {
    call(|| {
        table::take_context(context.id)?.end(None);
        Ok(())
    })
}

/// As `noctule_context_free`, but gently: sessions close as if each handle had been freed, what was written is delivered, and the library's threads and the
/// running callback have ended when it returns. At most `milliseconds` are waited for delivery. Endpoints whose handles were freed before are not waited for.
///
/// Threads: any; in a callback it does not wait for that callback. Blocks: yes. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_context_free_wait(context: noctule_context, milliseconds: u32) -> noctule_error {
    call(|| {
        table::take_context(context.id)?.end(Some(Duration::from_millis(milliseconds.into())));
        Ok(())
    })
}

/// The descriptor that is readable while events wait, for `poll`, `epoll` and the loops of others. When it is readable, call `noctule_poll` until it gives 0.
/// Negative: an error.
///
/// Threads: any. Blocks: never. Owns: the descriptor is the library's: do not read, write or close it. It is closed when the context is freed.
/// Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_context_fd(context: noctule_context) -> c_int {
    crate::error::call_count(|| Ok(table::context(context.id)?.queue.descriptor() as usize)) as c_int
}

/// Takes up to `count` events, waiting for the first one for at most `timeout` milliseconds (0: not at all, negative: without end). Gives how many, 0 when time is
/// up or a signal was handled, or an error, which is negative.
///
/// Threads: any but callbacks; of several that call it each event goes to one. Blocks: for `timeout` at most. Owns: `events` is the program's; nothing in it is to be
/// freed. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `MISUSE` (the context calls back), `CLOSED` (freed meanwhile).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_poll(context: noctule_context, events: *mut noctule_event, count: usize, timeout: c_int) -> c_int {
    crate::error::call_count(|| {
        let context = table::context(context.id)?;
        input::required("events", events)?;
        if count == 0 {
            return Err(Failure::invalid("count is 0: there must be room for an event"));
        }
        if context.callbacks.get().is_some() {
            return Err(Failure::misuse("the context has a callback, which takes the events"));
        }
        let end = u64::try_from(timeout).ok().map(|ms| std::time::Instant::now() + Duration::from_millis(ms));
        let most = count.min(c_int::MAX as usize);
        let mut taken = 0;
        loop {
            while taken < most
                && let Some(name) = context.queue.pop()
            {
                if let Some((event, _)) = event_of(name) {
                    // SAFETY: within the `count` that the caller promises.
                    unsafe { events.add(taken).write(event) };
                    taken += 1;
                }
            }
            if context.queue.is_over() {
                return Err(over());
            }
            let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            if taken > 0 || left.is_some_and(|left| left.is_zero()) {
                return Ok(taken);
            }
            match context.queue.wait(left).map_err(|e| Failure::system("cannot wait for events", &e))? {
                Waited::Ready => {}
                Waited::Elapsed | Waited::Interrupted => return Ok(0),
            }
        }
    }) as c_int
}

/// Makes a thread of the library call `callback` with each event from now on, one after another; `noctule_poll` is no more to be used then. Once for a context,
/// best before its first endpoint.
///
/// A callback may call every function of this header, and may free what the event is about. While it waits or computes, other events wait, and the network does not.
/// It must not end by an exception or `longjmp`: an exception that reaches the library ends the process.
///
/// Threads: any. Blocks: never. Owns: `user` stays the program's, until the context is freed with `noctule_context_free_wait`.
/// Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `MISUSE` (it has one), `SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_context_set_callback(
    context: noctule_context,
    callback: noctule_callback,
    user: *mut c_void,
) -> noctule_error {
    call(|| {
        let context = table::context(context.id)?;
        let Some(callback) = callback else {
            return Err(Failure::new(noctule_error::NullArgument, "callback is null"));
        };
        let (user, queue, running) = (user as usize, Arc::clone(&context.queue), Arc::new(Mutex::new(())));
        let mut is_first = false;
        let mut failed = None;
        let guard = Arc::clone(&running);
        // Not before the context knows the thread: a callback may ask whether it is one.
        let (go, gone) = std::sync::mpsc::channel::<()>();
        if context.callbacks.get().is_none() {
            let started = std::thread::Builder::new().name("noctule-events".into()).spawn(move || {
                if gone.recv().is_ok() {
                    serve(&queue, &guard, |event| {
                        // SAFETY: as the caller promises; the event lives during the call.
                        unsafe { callback(event, user as *mut c_void) }
                    });
                }
            });
            match started {
                Ok(join) => {
                    let made = Callbacks { thread: join.thread().id(), join: Mutex::new(Some(join)), running };
                    is_first = context.callbacks.set(made).is_ok();
                }
                Err(error) => failed = Some(Failure::system("no thread for callbacks", &error)),
            }
        }
        match failed {
            Some(failure) => Err(failure),
            None if !is_first => Err(Failure::misuse("the context has a callback already")),
            None => {
                let _ = go.send(());
                Ok(())
            }
        }
    })
}

/// The thread of callbacks.
fn serve(queue: &Queue, running: &Mutex<()>, callback: impl Fn(&noctule_event)) {
    loop {
        while let Some(name) = queue.pop() {
            // The lock first: a thread that has freed a handle, and then has the lock, gets no more events of that handle.
            let _running = lock(running);
            if queue.is_over() {
                return;
            }
            if let Some((event, failure)) = event_of(name) {
                if let Some(failure) = failure {
                    failure.tell();
                }
                callback(&event);
            }
        }
        if queue.is_over() || queue.wait(None).is_err() {
            return;
        }
    }
}

/// Waits until no callback runs. After a handle was freed and this has returned, no callback has it: what its `user` points to may go.
///
/// Threads: any but callbacks. Blocks: until the callback that runs now has returned. Errors: `BAD_HANDLE`, `MISUSE` (called in a callback).
#[unsafe(no_mangle)]
pub extern "C" fn noctule_context_wait_callbacks(context: noctule_context) -> noctule_error {
    call(|| {
        let context = table::context(context.id)?;
        if context.is_callback_thread() {
            return Err(Failure::misuse("called in a callback, which cannot wait for itself"));
        }
        if let Some(callbacks) = context.callbacks.get() {
            drop(lock(&callbacks.running));
        }
        Ok(())
    })
}

/// An event about nothing yet.
pub(crate) fn blank() -> noctule_event {
    noctule_event {
        kind: 0,
        error: 0,
        user: std::ptr::null_mut(),
        endpoint: crate::endpoint::noctule_endpoint { id: 0 },
        session: crate::session::noctule_session { id: 0 },
        flow: crate::flow::noctule_flow { id: 0 },
        reserved: [0; 2],
    }
}

/// The program's pointer, which is only kept.
pub(crate) struct User(std::sync::atomic::AtomicPtr<c_void>);

impl User {
    pub(crate) fn new(user: *mut c_void) -> Self {
        Self(user.into())
    }
    pub(crate) fn get(&self) -> *mut c_void {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
    pub(crate) fn set(&self, user: *mut c_void) {
        self.0.store(user, std::sync::atomic::Ordering::SeqCst);
    }
}
