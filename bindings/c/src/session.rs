//! Sessions: connected or accepted, where flows are opened and accepted, and how they end.

use crate::context::{Context, User, blank, noctule_event};
use crate::endpoint::noctule_endpoint;
use crate::error::{Failure, Outcome, call, noctule_error};
use crate::flow::{self, noctule_flow};
use crate::input::{self, Sized1};
use crate::options::{self, noctule_flow_options};
use crate::queue::{Interest, noctule_event_kind};
use crate::stats::noctule_session_stats;
use crate::table::{self, Object};
use noctule::{Bandwidth, Bytes, CloseReason, ConnectError, IncomingFlow, SessionOutcome, TargetRates, TrySendError};
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::AbortHandle;

/// A session with another node. 0 is none. A copy is the same session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_session {
    /// Name of the session; for the library only.
    pub id: u64,
}

/// Bytes of `noctule_outcome.reason`.
pub const NOCTULE_REASON_TEXT: usize = 256;

/// How a session ended. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_outcome {
    /// `sizeof(noctule_outcome)`.
    pub size: usize,
    /// The code that a program closed with; 0 if none did.
    pub application_code: u64,
    /// The protocol's code (docs/spec/wire.md): 0 if a program closed.
    pub code: u32,
    /// 1: the far end closed, 0: this one.
    pub is_remote: u32,
    /// 1: all that this side wrote on `brtp` flows is known to be there. 0: not, or not known.
    pub all_delivered: u32,
    /// 1: all that the far end says to have sent on `brtp` flows is here. 0: not, or not known.
    pub all_received: u32,
    /// Why, for people, with a nul. What the far end said is in it with its control characters escaped.
    pub reason: [c_char; NOCTULE_REASON_TEXT],
}

// SAFETY: repr(C), a size in front, integers only.
unsafe impl Sized1 for noctule_outcome {
    const NAME: &'static str = "noctule_outcome";
}

pub(crate) struct Session {
    context: Arc<Context>,
    id: u64,
    endpoint: u64,
    user: User,
    /// Empty while it connects.
    inner: OnceLock<Outcome<noctule::Session>>,
    attempt: Mutex<Option<AbortHandle>>,
    /// Taken from the session, and not by the program yet.
    flows: Mutex<VecDeque<IncomingFlow>>,
    datagrams: Mutex<VecDeque<Bytes>>,
    /// From the first question after the rate on.
    rates: Mutex<Rates>,
    was_closed: AtomicBool,
    connected: Interest,
    closed: Interest,
    flow: Interest,
    datagram: Interest,
    target_rate: Interest,
}

#[derive(Default)]
struct Rates {
    stream: Option<TargetRates>,
    /// Taken from the stream, and not by the program yet.
    newest: Option<Bandwidth>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn adopt(context: &Arc<Context>, endpoint: u64, user: *mut c_void) -> Outcome<(u64, Arc<Session>)> {
    let make = |id| {
        let interest = |kind| Interest::new(&context.queue, id, kind);
        Ok(Session {
            context: Arc::clone(context),
            id,
            endpoint,
            user: User::new(user),
            inner: OnceLock::new(),
            attempt: Mutex::default(),
            flows: Mutex::default(),
            datagrams: Mutex::default(),
            rates: Mutex::default(),
            was_closed: AtomicBool::new(false),
            connected: interest(noctule_event_kind::Connected),
            closed: interest(noctule_event_kind::Closed),
            flow: interest(noctule_event_kind::Flow),
            datagram: interest(noctule_event_kind::Datagram),
            target_rate: interest(noctule_event_kind::TargetRate),
        })
    };
    context.adopt(make, Object::Session)
}

/// A handle of a session that another node opened.
pub(crate) fn accepted(context: &Arc<Context>, endpoint: u64, inner: noctule::Session, user: *mut c_void) -> Outcome<u64> {
    let (id, session) = adopt(context, endpoint, user)?;
    session.begin(Ok(inner));
    Ok(id)
}

/// A handle of a session that `attempt` opens.
pub(crate) fn connecting(
    context: &Arc<Context>,
    endpoint: u64,
    attempt: impl Future<Output = Result<noctule::Session, ConnectError>> + Send + 'static,
    user: *mut c_void,
) -> Outcome<u64> {
    let (id, session) = adopt(context, endpoint, user)?;
    let weak = Arc::downgrade(&session);
    let task = context.handle.spawn(async move {
        let connected = attempt.await;
        // Freed meanwhile: the session ends with this.
        if let Some(session) = weak.upgrade() {
            session.begin(connected.map_err(Failure::from));
            session.connected.tell();
        }
    });
    *lock(&session.attempt) = Some(task.abort_handle());
    Ok(id)
}

impl Session {
    /// The session is there, or will never be.
    fn begin(&self, inner: Outcome<noctule::Session>) {
        let is_open = inner.is_ok();
        let _ = self.inner.set(inner);
        if is_open {
            for (kind, interest) in self.watched() {
                if self.is_due(kind) {
                    interest.tell();
                }
            }
        }
    }

    fn watched(&self) -> [(noctule_event_kind, &Interest); 3] {
        [(noctule_event_kind::Flow, &self.flow), (noctule_event_kind::Datagram, &self.datagram), (noctule_event_kind::Closed, &self.closed)]
    }

    fn inner(&self) -> Outcome<&noctule::Session> {
        match self.inner.get() {
            Some(Ok(session)) => Ok(session),
            Some(Err(failure)) => Err(failure.clone()),
            None => Err(Failure::new(noctule_error::NotConnected, "the session is not connected yet: wait for its CONNECTED event")),
        }
    }

    fn next_flow(&self, waiting: &mut VecDeque<IncomingFlow>) -> Outcome<IncomingFlow> {
        let inner = self.inner()?;
        if let Some(flow) = waiting.pop_front() {
            return Ok(flow);
        }
        match self.flow.attempt(|cx| inner.poll_accept_flow(cx)) {
            Some(flow) => Ok(flow?),
            None => Err(Failure::WOULD_BLOCK),
        }
    }

    fn next_datagram(&self, waiting: &mut VecDeque<Bytes>) -> Outcome<Bytes> {
        let inner = self.inner()?;
        if let Some(datagram) = waiting.pop_front() {
            return Ok(datagram);
        }
        match self.datagram.attempt(|cx| inner.poll_recv_datagram(cx)) {
            Some(datagram) => Ok(datagram?),
            None => Err(Failure::WOULD_BLOCK),
        }
    }

    fn next_rate(&self, rates: &mut Rates) -> Outcome<Bandwidth> {
        let inner = self.inner()?;
        let stream = rates.stream.get_or_insert_with(|| inner.target_rates());
        let kept = rates.newest.take();
        match self.target_rate.attempt(|cx| stream.poll_rate(cx)) {
            Some(Some(rate)) => Ok(rate),
            // What was the newest before the end has nothing to say any more.
            Some(None) => Err(Failure::new(noctule_error::Closed, "the session is over: no rate follows")),
            None => kept.ok_or(Failure::WOULD_BLOCK),
        }
    }

    fn outcome(&self) -> Outcome<SessionOutcome> {
        let inner = self.inner()?;
        self.closed.attempt(|cx| pin!(inner.closed()).poll(cx)).ok_or(Failure::WOULD_BLOCK)
    }

    /// Whether something is there to be told; otherwise it is told when it comes.
    fn is_due(&self, kind: noctule_event_kind) -> bool {
        match kind {
            noctule_event_kind::Connected => self.inner.get().is_some(),
            noctule_event_kind::Closed => self.outcome().is_ok(),
            noctule_event_kind::Flow => {
                // Locked throughout: another thread that accepts must not find nothing in between.
                let mut waiting = lock(&self.flows);
                self.next_flow(&mut waiting).map(|flow| waiting.push_front(flow)).is_ok()
            }
            noctule_event_kind::Datagram => {
                let mut waiting = lock(&self.datagrams);
                self.next_datagram(&mut waiting).map(|datagram| waiting.push_front(datagram)).is_ok()
            }
            noctule_event_kind::TargetRate => {
                let mut rates = lock(&self.rates);
                self.next_rate(&mut rates).map(|rate| rates.newest = Some(rate)).is_ok()
            }
            _ => false,
        }
    }

    /// Whether an event is one: `Some` with what went wrong, if something did.
    pub(crate) fn news(&self, kind: noctule_event_kind) -> Option<Option<Failure>> {
        match kind {
            _ if !self.is_due(kind) => None,
            noctule_event_kind::Connected => Some(self.inner.get()?.as_ref().err().cloned()),
            // The end is told once, whatever else points to it.
            noctule_event_kind::Closed => (!self.was_closed.swap(true, SeqCst)).then_some(None),
            _ => Some(None),
        }
    }

    pub(crate) fn event(&self) -> noctule_event {
        noctule_event {
            user: self.user.get(),
            endpoint: noctule_endpoint { id: self.endpoint },
            session: noctule_session { id: self.id },
            ..blank()
        }
    }
}

/// Application codes are integers of the wire.
pub(crate) fn check_code(code: u64) -> Outcome<()> {
    if code >= 1 << 62 { Err(Failure::invalid(format!("code {code} is not below 2^62"))) } else { Ok(()) }
}

/// Writes the text of the far end's public key, which it has proved to own; `NOCTULE_KEY_TEXT` bytes hold it.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`, `NOT_CONNECTED`, or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_peer_key(session: noctule_session, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let key = table::session(session.id)?.inner()?.peer_key().to_string();
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &key, text, capacity) }
    })
}

/// Writes the far end's address; `NOCTULE_ADDRESS_TEXT` bytes hold it. Empty if it is not known any more.
///
/// Threads: any. Blocks: never. Errors: as `noctule_session_peer_key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_address(session: noctule_session, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let address = table::session(session.id)?.inner()?.remote_address().map(|a| a.to_string()).unwrap_or_default();
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &address, text, capacity) }
    })
}

/// Why the session did not come about: gives the error of its `CONNECTED` event and writes its words, as much as there is room for. 0 and empty text: it did.
///
/// Threads: any. Blocks: never. Errors: those of connecting (`UNREACHABLE`, `NOBODY_LISTENS`, `WRONG_KEY`, `NOT_AUTHORISED`, `RESOLVE`, ...), `NOT_CONNECTED` (still
/// at it), `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL` (no room for any text).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_failure(session: noctule_session, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let session = table::session(session.id)?;
        let (words, result) = match session.inner() {
            Ok(_) => (String::new(), Ok(())),
            Err(failure) => (failure.words.to_string(), Err(failure)),
        };
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", shortened(&words, capacity), text, capacity) }?;
        result
    })
}

/// As much of a text as fits with its nul.
fn shortened(text: &str, capacity: usize) -> &str {
    let mut end = text.len().min(capacity.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Opens a stream in both directions. It costs no round trip: the far end hears of it with the first bytes. `options` may be null.
///
/// Threads: any. Blocks: never. Owns: `*flow` is the program's, to be freed with `noctule_flow_free`; `user` is kept and comes with the flow's events.
/// Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `NOT_CONNECTED`, `CLOSED`, `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_open_stream(
    session: noctule_session,
    options: *const noctule_flow_options,
    user: *mut c_void,
    flow: *mut noctule_flow,
) -> noctule_error {
    // SAFETY: as the caller promises.
    unsafe {
        open(session, options, user, flow, |session, options| {
            let (send, recv) = session.open_bi(options)?;
            Ok(flow::Halves::stream(Some(send), Some(recv)))
        })
    }
}

/// Opens a stream towards the far end only.
///
/// Threads, blocks, owns, errors: as `noctule_session_open_stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_open_uni(
    session: noctule_session,
    options: *const noctule_flow_options,
    user: *mut c_void,
    flow: *mut noctule_flow,
) -> noctule_error {
    // SAFETY: as the caller promises.
    unsafe { open(session, options, user, flow, |session, options| Ok(flow::Halves::stream(Some(session.open_uni(options)?), None))) }
}

/// Opens a flow of messages towards the far end; `options` say which promise it has. Messages in the other direction are another flow, which the far end opens.
///
/// Threads, blocks, owns, errors: as `noctule_session_open_stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_open_messages(
    session: noctule_session,
    options: *const noctule_flow_options,
    user: *mut c_void,
    flow: *mut noctule_flow,
) -> noctule_error {
    // SAFETY: as the caller promises.
    unsafe { open(session, options, user, flow, |session, options| Ok(flow::Halves::sender(session.open_messages(options)?))) }
}

/// # Safety
/// The pointers are null or as the header describes them.
unsafe fn open(
    session: noctule_session,
    given: *const noctule_flow_options,
    user: *mut c_void,
    out: *mut noctule_flow,
    open: impl FnOnce(&noctule::Session, noctule::FlowOptions) -> Result<flow::Halves, noctule::OpenError>,
) -> noctule_error {
    call(|| {
        input::required("flow", out)?;
        // SAFETY: as the caller promises.
        let options = unsafe { options::flow_options(given) }?;
        let session = table::session(session.id)?;
        let halves = open(session.inner()?, options)?;
        let id = flow::adopt(&session.context, (session.endpoint, session.id), halves, user)?;
        // SAFETY: as the caller promises.
        unsafe { input::store(out, noctule_flow { id }) };
        Ok(())
    })
}

/// Takes the next flow that the far end has opened, of any kind: `noctule_flow_kind` and `noctule_flow_tag` tell which. `WOULD_BLOCK`: none waits, a `FLOW` event
/// follows when one does. After an event take flows until `WOULD_BLOCK`: another event comes only then.
///
/// Threads: any. Blocks: never. Owns: as `noctule_session_open_stream`. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `NOT_CONNECTED`, `CLOSED` (and every flow was taken), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_accept(session: noctule_session, user: *mut c_void, flow: *mut noctule_flow) -> noctule_error {
    call(|| {
        input::required("flow", flow)?;
        let session = table::session(session.id)?;
        let halves = loop {
            match session.next_flow(&mut lock(&session.flows))? {
                IncomingFlow::Stream { recv, send } => break flow::Halves::stream(send, Some(recv)),
                IncomingFlow::Messages(recv) => break flow::Halves::receiver(recv),
                // A kind of a later version is not for this header.
                other => drop(other),
            }
        };
        let id = flow::adopt(&session.context, (session.endpoint, session.id), halves, user)?;
        // SAFETY: as the caller promises.
        unsafe { input::store(flow, noctule_flow { id }) };
        Ok(())
    })
}

/// Sends a datagram: a message that arrives within half a second, in no order, or not at all. It may be larger than a packet. `WOULD_BLOCK`: as much waits as the
/// far end takes; no event follows, drop it or try later.
///
/// Threads: any. Blocks: never. Owns: `data` is copied. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `NOT_CONNECTED`, `CLOSED`, `MESSAGE_TOO_LARGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_send_datagram(session: noctule_session, data: *const c_void, length: usize) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let data = unsafe { input::slice("data", data.cast::<u8>(), length) }?;
        let session = table::session(session.id)?;
        match session.inner()?.send_datagram(Bytes::copy_from_slice(data)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Failure::WOULD_BLOCK),
            Err(TrySendError::Failed { error, .. }) => Err(error.into()),
        }
    })
}

/// Takes the next datagram. `*length` is its size; `BUFFER_TOO_SMALL` leaves it where it is and says its size. `WOULD_BLOCK`: none is there, a `DATAGRAM` event
/// follows. After an event take datagrams until `WOULD_BLOCK`: another event comes only then.
///
/// Threads: any. Blocks: never. Owns: the program has the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `BUFFER_TOO_SMALL`, `NOT_CONNECTED`, `CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_recv_datagram(
    session: noctule_session,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> noctule_error {
    call(|| {
        input::required("length", length)?;
        let session = table::session(session.id)?;
        let mut waiting = lock(&session.datagrams);
        let datagram = session.next_datagram(&mut waiting)?;
        // SAFETY: as the caller promises.
        let stored = unsafe { store_bytes(&datagram, buffer.cast(), capacity, length) };
        if stored.is_err() {
            waiting.push_front(datagram);
        }
        stored
    })
}

/// Writes the whole of a message, or only its length where it does not fit.
///
/// # Safety
/// `capacity` bytes can be written at `buffer`, and a number at `length`.
pub(crate) unsafe fn store_bytes(data: &[u8], buffer: *mut u8, capacity: usize, length: *mut usize) -> Outcome<()> {
    // SAFETY: as the caller promises.
    let buffer = unsafe {
        input::store(length, data.len());
        input::buffer("buffer", buffer, capacity)
    }?;
    if buffer.len() < data.len() {
        let words = format!("the buffer has {capacity} bytes, the message {}", data.len());
        return Err(Failure::new(noctule_error::BufferTooSmall, words));
    }
    // SAFETY: both are as long as `data`, and the buffer is the program's.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), buffer.as_mut_ptr().cast(), data.len()) };
    Ok(())
}

/// Changes the congestion control of what this side sends, as in `noctule_endpoint_options`: it starts afresh. `rate` is 0 for all but "rate".
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `NOT_CONNECTED`, or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_set_congestion(session: noctule_session, name: *const c_char, rate: u64) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let control = options::congestion(unsafe { input::text("name", name) }?, rate)?;
        table::session(session.id)?.inner()?.set_congestion(control);
        Ok(())
    })
}

/// Writes the rate that the program should produce, in bits per second: for media, with congestion control "gcc". Headers and what repairs the mean loss are taken
/// off; all sessions with the same neighbour share it. `WOULD_BLOCK`: nothing is new since the last call, or the congestion control tells no rate; a `TARGET_RATE` event
/// follows when there is something. A rate is new when it differs by a twentieth.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `WOULD_BLOCK`, `CLOSED`, `NOT_CONNECTED`, or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_target_rate(session: noctule_session, rate: *mut f64) -> noctule_error {
    call(|| {
        input::required("rate", rate)?;
        let session = table::session(session.id)?;
        let newest = session.next_rate(&mut lock(&session.rates))?;
        // SAFETY: not null, and as the caller promises.
        unsafe { input::store(rate, newest.bytes_per_sec() * 8.0) };
        Ok(())
    })
}

/// Begins to close: what was finished on `brtp` flows is delivered first, for at most the endpoint's linger, and the far end is told `code` (below 2^62) and
/// `reason` (which may be null). A `CLOSED` event follows. The handle stays until it is freed; freed before, the close goes on.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT`, `NOT_CONNECTED` (free the handle to give the attempt up), or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_close(session: noctule_session, code: u64, reason: *const c_char) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { input::text_or_none("reason", reason) }?.unwrap_or_default();
        check_code(code)?;
        let session = table::session(session.id)?;
        let inner = session.inner()?;
        if session.closed.attempt(|cx| pin!(inner.close(code, reason)).poll(cx)).is_some() {
            session.closed.tell();
        }
        Ok(())
    })
}

/// Ends the session at once; what is undelivered is lost. A `CLOSED` event follows.
///
/// Threads, blocks, errors: as `noctule_session_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_abort(session: noctule_session, code: u64, reason: *const c_char) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { input::text_or_none("reason", reason) }?.unwrap_or_default();
        check_code(code)?;
        table::session(session.id)?.inner()?.abort(code, reason);
        Ok(())
    })
}

/// Says how the session ended. `WOULD_BLOCK`: it has not; a `CLOSED` event follows. `outcome->size` is set before.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size), `NOT_CONNECTED`, or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_outcome(session: noctule_session, outcome: *mut noctule_outcome) -> noctule_error {
    call(|| {
        let session = table::session(session.id)?;
        // SAFETY: as the caller promises.
        unsafe { input::store_sized(outcome, || Ok(told(&session.outcome()?))) }
    })
}

fn told(outcome: &SessionOutcome) -> noctule_outcome {
    let why: &CloseReason = &outcome.reason;
    let words = why.to_string();
    let mut reason = [0; NOCTULE_REASON_TEXT];
    for (place, byte) in reason.iter_mut().zip(shortened(&words, NOCTULE_REASON_TEXT).bytes()) {
        *place = byte as c_char;
    }
    noctule_outcome {
        size: size_of::<noctule_outcome>(),
        application_code: why.application,
        code: u32::from(why.code as u16),
        is_remote: why.is_remote.into(),
        all_delivered: outcome.all_delivered.into(),
        all_received: outcome.all_received.into(),
        reason,
    }
}

/// Fills `stats`, whose `size` is set before; those of a closed session are its last.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size), `NOT_CONNECTED`, or why connecting failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_get_stats(session: noctule_session, stats: *mut noctule_session_stats) -> noctule_error {
    call(|| {
        let session = table::session(session.id)?;
        // SAFETY: as the caller promises.
        unsafe { input::store_sized(stats, || Ok(session.inner()?.stats().into())) }
    })
}

/// Changes the pointer that comes with the session's events, from the next one on.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_session_set_user(session: noctule_session, user: *mut c_void) -> noctule_error {
    call(|| {
        table::session(session.id)?.user.set(user);
        Ok(())
    })
}

/// Frees a session. If no flow of it has a handle either, it closes gracefully in the background; an attempt to connect is given up. No event of it is told after
/// this, but a callback that runs in another thread goes on (`noctule_context_wait_callbacks`).
///
/// Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_session_free(session: noctule_session) -> noctule_error {
    call(|| {
        let session = table::take_session(session.id)?;
        session.context.forget(session.id);
        if let Some(attempt) = lock(&session.attempt).take() {
            attempt.abort();
        }
        Ok(())
    })
}
