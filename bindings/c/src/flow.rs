//! Flows: byte streams and messages, each of one direction or two.

use crate::context::{Context, User, blank, noctule_event};
use crate::endpoint::noctule_endpoint;
use crate::error::{Failure, Outcome, call, call_count, noctule_error};
use crate::input;
use crate::options::{self, noctule_message_options};
use crate::queue::{Interest, noctule_event_kind};
use crate::session::{check_code, noctule_session, store_bytes};
use crate::stats::noctule_flow_stats;
use crate::table::{self, Object};
use noctule::{Bytes, FlowError, FlowOptions, Message, MessageReceiver, MessageSender, RecvStream, SendStream};
use std::ffi::c_void;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, ReadBuf};

/// A stream, or a flow of messages. 0 is none. A copy is the same flow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_flow {
    /// Name of the flow; for the library only.
    pub id: u64,
}

/// What goes out by a flow.
enum Out {
    /// Nothing ever did.
    Never,
    /// It was given up here.
    Over,
    Bytes(SendStream),
    Messages(MessageSender),
}

/// What comes in by a flow, with what was taken from it and not by the program yet.
enum In {
    /// Nothing ever did.
    Never,
    /// It was given up here.
    Over,
    Bytes(RecvStream, Bytes),
    Messages(MessageReceiver, Option<Message>),
}

/// The directions of a new flow.
pub(crate) struct Halves {
    out: Out,
    input: In,
    options: FlowOptions,
}

impl Halves {
    /// One of them at least.
    pub(crate) fn stream(send: Option<SendStream>, recv: Option<RecvStream>) -> Self {
        let options = send.as_ref().map(SendStream::options).or(recv.as_ref().map(RecvStream::options)).cloned().unwrap_or_default();
        Self { out: send.map_or(Out::Never, Out::Bytes), input: recv.map_or(In::Never, |r| In::Bytes(r, Bytes::new())), options }
    }
    pub(crate) fn sender(send: MessageSender) -> Self {
        let options = send.options().clone();
        Self { out: Out::Messages(send), input: In::Never, options }
    }
    pub(crate) fn receiver(recv: MessageReceiver) -> Self {
        let options = recv.options().clone();
        Self { out: Out::Never, input: In::Messages(recv, None), options }
    }
}

pub(crate) struct Flow {
    context: Arc<Context>,
    id: u64,
    /// Endpoint and session.
    parents: (u64, u64),
    user: User,
    options: FlowOptions,
    out: Mutex<Out>,
    input: Mutex<In>,
    /// The far end's code with which it has reset or stopped the flow.
    far_code: AtomicU64,
    readable: Interest,
    writable: Interest,
    finished: Interest,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle for a new flow.
pub(crate) fn adopt(context: &Arc<Context>, parents: (u64, u64), halves: Halves, user: *mut c_void) -> Outcome<u64> {
    let make = |id| {
        let interest = |kind| Interest::new(&context.queue, id, kind);
        Ok(Flow {
            context: Arc::clone(context),
            id,
            parents,
            user: User::new(user),
            options: halves.options,
            out: Mutex::new(halves.out),
            input: Mutex::new(halves.input),
            far_code: AtomicU64::new(0),
            readable: interest(noctule_event_kind::Readable),
            writable: interest(noctule_event_kind::Writable),
            finished: interest(noctule_event_kind::Finished),
        })
    };
    let (id, flow) = context.adopt(make, Object::Flow)?;
    if flow.is_readable() {
        flow.readable.tell();
    }
    Ok(id)
}

fn given_up() -> Failure {
    Failure::new(noctule_error::FlowClosed, "this direction of the flow was given up here")
}

impl Flow {
    /// An error of the flow, whose code of the far end is kept for the program.
    fn failure(&self, error: FlowError) -> Failure {
        if let FlowError::Closed(reason) = &error {
            self.far_code.store(reason.application, SeqCst);
        }
        error.into()
    }

    fn write(&self, data: &[u8]) -> Outcome<usize> {
        match &mut *lock(&self.out) {
            Out::Never => Err(Failure::misuse("nothing can be written to this flow: the far end opened it in one direction")),
            Out::Over => Err(given_up()),
            Out::Messages(_) => Err(Failure::misuse("this is a flow of messages: use noctule_flow_send")),
            Out::Bytes(send) => match self.writable.attempt(|cx| pin!(send.write(data)).poll(cx)) {
                Some(written) => written.map_err(|e| self.failure(e)),
                None => Err(Failure::WOULD_BLOCK),
            },
        }
    }

    /// Reads what is there; 0 is the end.
    fn read(&self, buffer: &mut [MaybeUninit<u8>]) -> Outcome<usize> {
        let mut input = lock(&self.input);
        let (recv, kept) = match &mut *input {
            In::Never => return Err(Failure::misuse("nothing can be read from this flow: it was opened in one direction here")),
            In::Over => return Err(given_up()),
            In::Messages(..) => return Err(Failure::misuse("this is a flow of messages: use noctule_flow_recv")),
            In::Bytes(recv, kept) => (recv, kept),
        };
        let mut buffer = ReadBuf::uninit(buffer);
        let first = kept.split_to(kept.len().min(buffer.remaining()));
        buffer.put_slice(&first);
        if buffer.remaining() == 0 {
            return Ok(buffer.filled().len());
        }
        match self.readable.attempt(|cx| Pin::new(&mut *recv).poll_read(cx, &mut buffer)) {
            // What was there counts first; the error comes again with the next call.
            Some(Err(_)) | None if !first.is_empty() => Ok(first.len()),
            Some(Ok(())) => Ok(buffer.filled().len()),
            Some(Err(error)) => Err(match error.downcast::<FlowError>() {
                Ok(error) => self.failure(error),
                Err(error) => Failure::system("reading", &error),
            }),
            None => Err(Failure::WOULD_BLOCK),
        }
    }

    fn send(&self, data: &[u8], options: noctule::MessageOptions) -> Outcome<u64> {
        match &*lock(&self.out) {
            Out::Never => Err(Failure::misuse("messages go out by flows of this end: open one with noctule_session_open_messages")),
            Out::Over => Err(given_up()),
            Out::Bytes(_) => Err(Failure::misuse("this is a stream: use noctule_flow_write")),
            Out::Messages(send) => {
                let data = Bytes::copy_from_slice(data);
                match self.writable.attempt(|cx| send.poll_send(cx, &data, options)) {
                    Some(number) => number.map_err(|e| self.failure(e)),
                    None => Err(Failure::WOULD_BLOCK),
                }
            }
        }
    }

    /// The next message goes to `take`, and stays if that fails.
    fn recv(&self, take: impl FnOnce(&Message) -> Outcome<()>) -> Outcome<()> {
        let mut input = lock(&self.input);
        let (recv, kept) = match &mut *input {
            In::Never => return Err(Failure::misuse("messages come in by flows that the far end opens: use noctule_session_accept")),
            In::Over => return Err(given_up()),
            In::Bytes(..) => return Err(Failure::misuse("this is a stream: use noctule_flow_read")),
            In::Messages(recv, kept) => (recv, kept),
        };
        let message = match kept.take() {
            Some(message) => message,
            None => match self.readable.attempt(|cx| recv.poll_recv(cx)) {
                Some(Ok(Some(message))) => message,
                Some(Ok(None)) => return Err(Failure::END),
                Some(Err(error)) => return Err(self.failure(error)),
                None => return Err(Failure::WOULD_BLOCK),
            },
        };
        take(&message).inspect_err(|_| *kept = Some(message))
    }

    /// Marks the end; `None` as long as the far end has not everything.
    fn finish(&self) -> Option<Outcome<()>> {
        let mut out = lock(&self.out);
        let done = match &mut *out {
            Out::Never => return Some(Err(Failure::misuse("nothing goes out by this flow"))),
            Out::Over => return Some(Err(given_up())),
            Out::Bytes(send) => self.finished.attempt(|cx| send.poll_finish(cx)),
            Out::Messages(send) => self.finished.attempt(|cx| send.poll_finish(cx)),
        };
        done.map(|result| result.map_err(|e| self.failure(e)))
    }

    /// Whether something can be read, the end and errors included; otherwise it is told when that is so.
    fn is_readable(&self) -> bool {
        match &mut *lock(&self.input) {
            In::Never | In::Over => false,
            In::Bytes(_, kept) if !kept.is_empty() => true,
            In::Bytes(recv, kept) => match self.readable.attempt(|cx| recv.poll_read_chunk(cx, usize::MAX)) {
                Some(Ok(Some(chunk))) => {
                    *kept = chunk;
                    true
                }
                Some(Ok(None) | Err(_)) => true,
                None => false,
            },
            In::Messages(_, Some(_)) => true,
            In::Messages(recv, kept) => match self.readable.attempt(|cx| recv.poll_recv(cx)) {
                Some(Ok(message)) => {
                    *kept = message;
                    true
                }
                Some(Err(_)) => true,
                None => false,
            },
        }
    }

    /// Whether an event is one: `Some` with what went wrong, if something did.
    pub(crate) fn news(&self, kind: noctule_event_kind) -> Option<Option<Failure>> {
        match kind {
            noctule_event_kind::Readable => self.is_readable().then_some(None),
            noctule_event_kind::Writable => Some(None),
            noctule_event_kind::Finished => self.finish().map(Result::err),
            _ => None,
        }
    }

    pub(crate) fn event(&self) -> noctule_event {
        noctule_event {
            user: self.user.get(),
            endpoint: noctule_endpoint { id: self.parents.0 },
            session: noctule_session { id: self.parents.1 },
            flow: noctule_flow { id: self.id },
            ..blank()
        }
    }
}

/// Writes as many bytes to a stream as there is room for, and gives how many. `WOULD_BLOCK`: there is none, a `WRITABLE` event follows.
///
/// Threads: any; several that write to one stream take turns. Blocks: never. Owns: `data` is copied. Gives a negative error: `BAD_HANDLE`, `NULL_ARGUMENT`,
/// `INVALID_ARGUMENT` (length), `MISUSE` (messages, nothing goes out, or finished), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_write(flow: noctule_flow, data: *const c_void, length: usize) -> isize {
    call_count(|| {
        // SAFETY: as the caller promises.
        let data = unsafe { input::slice("data", data.cast::<u8>(), length) }?;
        table::flow(flow.id)?.write(data)
    })
}

/// Reads up to `capacity` bytes of a stream, and gives how many: 0 is the end of the stream. `WOULD_BLOCK`: nothing is there, a `READABLE` event follows. After
/// an event read until `WOULD_BLOCK`, the end or an error: another event comes only then.
///
/// Threads: any; several that read one stream take turns. Blocks: never. Owns: the program has the buffer. Gives a negative error: `BAD_HANDLE`, `NULL_ARGUMENT`,
/// `INVALID_ARGUMENT` (no capacity), `MISUSE` (messages, or nothing comes in), `CLOSED`, `FLOW_RESET`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_read(flow: noctule_flow, buffer: *mut c_void, capacity: usize) -> isize {
    call_count(|| {
        // SAFETY: as the caller promises.
        let buffer = unsafe { input::buffer("buffer", buffer.cast(), capacity) }?;
        if buffer.is_empty() {
            return Err(Failure::invalid("capacity is 0: nothing can be read, and 0 would mean the end"));
        }
        table::flow(flow.id)?.read(buffer)
    })
}

/// Sends a message, as a whole; `*number` is its number in the flow, from 0 (`number` may be null, as may `options`). `WOULD_BLOCK`: there is no room, nothing was
/// taken, a `WRITABLE` event follows.
///
/// Threads: any. Blocks: never. Owns: `data` is copied. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `MISUSE` (a stream, an
/// accepted flow, or finished), `MESSAGE_TOO_LARGE`, `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_send(
    flow: noctule_flow,
    data: *const c_void,
    length: usize,
    options: *const noctule_message_options,
    number: *mut u64,
) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let (data, options) = unsafe { (input::slice("data", data.cast::<u8>(), length)?, options::message_options(options)?) };
        let sent = table::flow(flow.id)?.send(data, options)?;
        // SAFETY: as the caller promises.
        unsafe { input::store(number, sent) };
        Ok(())
    })
}

/// Takes the next message. `*length` is its size; `*number` (null: not wanted) is its number in the flow. `BUFFER_TOO_SMALL` leaves it where it is and says its size.
/// `WOULD_BLOCK`: none is there, a `READABLE` event follows. `END`: the far end has finished. After an event receive until one of these: another comes only then.
///
/// Threads: any. Blocks: never. Owns: the program has the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (capacity), `BUFFER_TOO_SMALL`, `MISUSE`,
/// `CLOSED`, `FLOW_RESET`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_recv(
    flow: noctule_flow,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    number: *mut u64,
) -> noctule_error {
    call(|| {
        input::required("length", length)?;
        table::flow(flow.id)?.recv(|message| {
            // SAFETY: as the caller promises.
            unsafe {
                store_bytes(&message.data, buffer.cast(), capacity, length)?;
                input::store(number, message.id);
            }
            Ok(())
        })
    })
}

/// Withdraws a message by its number. `*withdrawn` (null: not wanted) is 1 if it will not be delivered, 0 if it was sent already.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `MISUSE` (not a flow of messages to send), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_cancel(flow: noctule_flow, number: u64, withdrawn: *mut u32) -> noctule_error {
    call(|| {
        let flow = table::flow(flow.id)?;
        let out = lock(&flow.out);
        let is_withdrawn = match &*out {
            Out::Messages(send) => send.cancel(number).map_err(|e| flow.failure(e))?,
            Out::Over => return Err(given_up()),
            Out::Never | Out::Bytes(_) => return Err(Failure::misuse("only messages that this end sends can be withdrawn")),
        };
        // SAFETY: as the caller promises.
        unsafe { input::store(withdrawn, u32::from(is_withdrawn)) };
        Ok(())
    })
}

/// Nothing more follows. A `FINISHED` event tells when the far end has everything, or with an error that it is not known. May be repeated: the event comes again.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `MISUSE` (nothing goes out), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_finish(flow: noctule_flow) -> noctule_error {
    call(|| {
        let flow = table::flow(flow.id)?;
        if let Some(result) = flow.finish() {
            result?;
            flow.finished.tell();
        }
        Ok(())
    })
}

/// Gives up what goes out by the flow, at once, with a code (below 2^62) for the far end's program. The handle stays until it is freed.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (code), `MISUSE` (nothing goes out), `FLOW_CLOSED` (given up before).
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_reset(flow: noctule_flow, code: u64) -> noctule_error {
    call(|| {
        check_code(code)?;
        let flow = table::flow(flow.id)?;
        let mut out = lock(&flow.out);
        match std::mem::replace(&mut *out, Out::Over) {
            Out::Bytes(send) => send.reset(code),
            Out::Messages(send) => send.reset(code),
            Out::Over => return Err(given_up()),
            Out::Never => {
                *out = Out::Never;
                return Err(Failure::misuse("nothing goes out by this flow"));
            }
        }
        Ok(())
    })
}

/// Tells the far end that no more of the flow is wanted, with a code (below 2^62) for its program. The handle stays until it is freed.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (code), `MISUSE` (nothing comes in), `FLOW_CLOSED` (given up before).
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_stop(flow: noctule_flow, code: u64) -> noctule_error {
    call(|| {
        check_code(code)?;
        let flow = table::flow(flow.id)?;
        let mut input = lock(&flow.input);
        match std::mem::replace(&mut *input, In::Over) {
            In::Bytes(recv, _) => recv.stop(code),
            In::Messages(recv, _) => recv.stop(code),
            In::Over => return Err(given_up()),
            In::Never => {
                *input = In::Never;
                return Err(Failure::misuse("nothing comes in by this flow"));
            }
        }
        Ok(())
    })
}

/// Gives one of `NOCTULE_KIND_*`, or a negative error.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_kind(flow: noctule_flow) -> i32 {
    call_count(|| Ok(options::kind_number(table::flow(flow.id)?.options.kind) as usize)) as i32
}

/// Gives the flow's direction: both (1), out (2) or in (3), or a negative error.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_direction(flow: noctule_flow) -> i32 {
    call_count(|| {
        let flow = table::flow(flow.id)?;
        let has_input = !matches!(*lock(&flow.input), In::Never);
        let has_out = !matches!(*lock(&flow.out), Out::Never);
        Ok(match (has_out, has_input) {
            (true, true) => 1,
            (true, false) => 2,
            (false, _) => 3,
        })
    }) as i32
}

/// Stores the number that the flow was opened with.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_tag(flow: noctule_flow, tag: *mut u64) -> noctule_error {
    call(|| {
        input::required("tag", tag)?;
        let value = table::flow(flow.id)?.options.tag;
        // SAFETY: as the caller promises.
        unsafe { input::store(tag, value) };
        Ok(())
    })
}

/// Stores the code with which the far end has reset or stopped the flow, after a call has said that it did; 0 otherwise.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_far_code(flow: noctule_flow, code: *mut u64) -> noctule_error {
    call(|| {
        input::required("code", code)?;
        let value = table::flow(flow.id)?.far_code.load(SeqCst);
        // SAFETY: as the caller promises.
        unsafe { input::store(code, value) };
        Ok(())
    })
}

/// Fills `stats`, whose `size` is set before, with what goes out by the flow (`outgoing` is not 0) or comes in; zeros where nothing does, and once that direction is
/// over: what it counted is in the session's sums.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_get_stats(flow: noctule_flow, outgoing: i32, stats: *mut noctule_flow_stats) -> noctule_error {
    call(|| {
        let flow = table::flow(flow.id)?;
        let now = match (outgoing != 0, &*lock(&flow.out), &*lock(&flow.input)) {
            (true, Out::Bytes(send), _) => send.stats(),
            (true, Out::Messages(send), _) => send.stats(),
            (false, _, In::Bytes(recv, _)) => recv.stats(),
            (false, _, In::Messages(recv, _)) => recv.stats(),
            _ => noctule::FlowStats::default(),
        };
        // SAFETY: as the caller promises.
        unsafe { input::store_sized(stats, || Ok(now.into())) }
    })
}

/// Changes the pointer that comes with the flow's events, from the next one on.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_flow_set_user(flow: noctule_flow, user: *mut c_void) -> noctule_error {
    call(|| {
        table::flow(flow.id)?.user.set(user);
        Ok(())
    })
}

/// Frees a flow. What was written is delivered, and then the far end reads its end (`noctule_flow_reset` gives it up); what was not read is not wanted any more. No
/// event of it is told after this, but a callback that runs in another thread goes on (`noctule_context_wait_callbacks`).
///
/// Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_flow_free(flow: noctule_flow) -> noctule_error {
    call(|| {
        let flow = table::take_flow(flow.id)?;
        flow.context.forget(flow.id);
        Ok(())
    })
}
