//! Calls of the C library in any order, over loopback: handles that were freed or are of another kind, every pointer null or as large as the call says, lengths
//! that are none, and callbacks that free what they belong to. No call says that the library has a defect, a freed handle is of no use,
//! nothing is written behind a buffer, and no descriptor and no thread is left.

mod arguments;

use super::Input;
use arguments::*;
use noctule_c::*;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Calls of one run.
const CALLS: usize = 64;
/// Contexts of one run: each has threads and descriptors.
const MOST_CONTEXTS: usize = 3;
/// Endpoints of one run: each has a socket.
const MOST_ENDPOINTS: usize = 6;
/// Bytes of the program's buffers.
const BLOCK: usize = 1 << 16;
/// Words of a structure whose size is chosen: as much as any size that the library believes, and one more.
const WORDS: usize = 513;
/// What is written to memory that no call may touch.
const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// A run that ends has given everything back after so long.
const PATIENCE: Duration = Duration::from_secs(10);

const OK: isize = noctule_error::Ok as isize;
const WOULD_BLOCK: isize = noctule_error::WouldBlock as isize;
const BAD_HANDLE: isize = noctule_error::BadHandle as isize;
const MISUSE: isize = noctule_error::Misuse as isize;
const INTERNAL: isize = noctule_error::Internal as isize;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Context,
    Identity,
    Endpoint,
    Session,
    Flow,
}

/// Every handle that was given out, freed ones too.
struct Made {
    handles: [Vec<u64>; 5],
    freed: Option<HashSet<u64>>,
}

impl Made {
    fn of(&mut self, kind: Kind) -> &mut Vec<u64> {
        &mut self.handles[kind as usize]
    }
    fn is_freed(&self, id: u64) -> bool {
        self.freed.as_ref().is_some_and(|freed| freed.contains(&id))
    }
}

/// Of the run that is on; callbacks use it, too.
static MADE: Mutex<Made> = Mutex::new(Made { handles: [const { Vec::new() }; 5], freed: None });
/// What a callback does with each kind of event.
static PLAN: [AtomicU8; 16] = [const { AtomicU8::new(0) }; 16];

fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A result is one of those in the header.
fn check(what: &str, result: isize) -> isize {
    if result <= INTERNAL {
        // SAFETY: text of the library, which this thread does not change meanwhile.
        panic!("{what} gives {result}: {:?}", unsafe { CStr::from_ptr(noctule_last_error()) });
    }
    result
}

fn code(error: noctule_error) -> isize {
    error as isize
}

/// A call that makes a handle.
fn keep(kind: Kind, what: &str, error: noctule_error, id: u64) {
    if check(what, code(error)) == OK && id != 0 {
        made().of(kind).push(id);
    }
}

/// A call that frees a handle: it succeeds once.
fn free(id: u64, what: &str, call: impl FnOnce() -> noctule_error) {
    let was_freed = made().is_freed(id);
    if check(what, code(call())) == OK {
        assert!(!was_freed, "{what} frees the handle again");
        made().freed.get_or_insert_default().insert(id);
    }
}

fn context(id: u64) -> noctule_context {
    noctule_context { id }
}
fn identity(id: u64) -> noctule_identity {
    noctule_identity { id }
}
fn endpoint(id: u64) -> noctule_endpoint {
    noctule_endpoint { id }
}
fn session(id: u64) -> noctule_session {
    noctule_session { id }
}
fn flow(id: u64) -> noctule_flow {
    noctule_flow { id }
}

fn accept_session(from: u64) -> isize {
    let mut made = session(0);
    // SAFETY: room for a handle; `user` is only kept.
    let error = unsafe { noctule_endpoint_accept(endpoint(from), null_mut(), &raw mut made) };
    keep(Kind::Session, "noctule_endpoint_accept", error, made.id);
    code(error)
}

fn accept_flow(from: u64) -> isize {
    let mut made = flow(0);
    // SAFETY: as above.
    let error = unsafe { noctule_session_accept(session(from), null_mut(), &raw mut made) };
    keep(Kind::Flow, "noctule_session_accept", error, made.id);
    code(error)
}

/// What the plan says for the event's kind. `user` is the context.
unsafe extern "C-unwind" fn on_event(event: *const noctule_event, user: *mut c_void) {
    // SAFETY: it is valid during the call.
    let event = unsafe { *event };
    check_event(&event);
    let (mine, mut block) = (user as u64, [0u8; 4096]);
    let (ends, talk, stream) = (event.endpoint.id, event.session.id, event.flow.id);
    match PLAN[event.kind as usize % PLAN.len()].load(SeqCst) % 16 {
        0 => {
            // Some only, so that some always wait.
            for _ in 0..4 {
                if event.kind == noctule_event_kind::Session as u32 {
                    accept_session(ends);
                } else if event.kind == noctule_event_kind::Flow as u32 {
                    accept_flow(talk);
                }
            }
        }
        1 => free(stream, "noctule_flow_free", || noctule_flow_free(flow(stream))),
        2 => free(talk, "noctule_session_free", || noctule_session_free(session(talk))),
        3 => free(ends, "noctule_endpoint_free", || noctule_endpoint_free(endpoint(ends))),
        4 => free(mine, "noctule_context_free", || noctule_context_free(context(mine))),
        5 => free(mine, "noctule_context_free_wait", || noctule_context_free_wait(context(mine), 0)),
        6 => {
            free(stream, "noctule_flow_free", || noctule_flow_free(flow(stream)));
            free(talk, "noctule_session_free", || noctule_session_free(session(talk)));
            free(mine, "noctule_context_free", || noctule_context_free(context(mine)));
        }
        7 => {
            // SAFETY: null is allowed.
            check("noctule_session_close", code(unsafe { noctule_session_close(session(talk), 1, null()) }));
        }
        8 => {
            let (mut length, start) = (0, block.as_mut_ptr().cast::<c_void>());
            // SAFETY: as large as is said.
            while unsafe { check("noctule_flow_read", noctule_flow_read(flow(stream), start, block.len())) } > 0 {}
            // SAFETY: as above.
            while unsafe { noctule_flow_recv(flow(stream), start, block.len(), &raw mut length, null_mut()) } == noctule_error::Ok {}
        }
        9 => {
            // SAFETY: as large as is said.
            check("noctule_flow_write", unsafe { noctule_flow_write(flow(stream), block.as_ptr().cast(), block.len()) });
        }
        10 => std::thread::sleep(Duration::from_millis(1)),
        11 => {
            let result = code(noctule_context_wait_callbacks(context(mine)));
            assert!(result == MISUSE || result == BAD_HANDLE, "a callback waits for itself: {result}");
        }
        12 => {
            let mut events = [event];
            // SAFETY: room for one.
            let result = unsafe { noctule_poll(context(mine), events.as_mut_ptr(), 1, -1) } as isize;
            assert!(result == MISUSE || result == BAD_HANDLE, "a callback polls: {result}");
        }
        13 => {
            check("noctule_flow_reset", code(noctule_flow_reset(flow(stream), 7)));
            check("noctule_flow_stop", code(noctule_flow_stop(flow(stream), 7)));
        }
        14 => {
            let mut out = flow(0);
            // SAFETY: null is allowed where it is given, and there is room for a handle.
            let error = unsafe { noctule_session_open_stream(session(talk), null(), null_mut(), &raw mut out) };
            keep(Kind::Flow, "noctule_session_open_stream", error, out.id);
        }
        _ => {}
    }
}

fn check_event(event: &noctule_event) {
    assert!((1..=10).contains(&event.kind), "an event of kind {}", event.kind);
    assert!((-28..=0).contains(&event.error), "an event with error {}", event.error);
    assert!(event.endpoint.id | event.session.id | event.flow.id != 0, "an event about nothing");
}

/// Two endpoints and a session between them, as far as it comes about.
fn connect(calls_back: bool) {
    let mut owner = context(0);
    // SAFETY: here and below null is allowed, or there is as much room as the call says.
    let error = unsafe { noctule_context_new(NOCTULE_ABI, 1, &raw mut owner) };
    keep(Kind::Context, "noctule_context_new", error, owner.id);
    if calls_back {
        // SAFETY: as above.
        check(
            "noctule_context_set_callback",
            code(unsafe { noctule_context_set_callback(owner, Some(on_event), owner.id as *mut c_void) }),
        );
    }
    let (mut server, mut client, mut talk) = (endpoint(0), endpoint(0), session(0));
    let none = identity(0);
    // SAFETY: as above.
    let error = unsafe { noctule_endpoint_bind(owner, none, c"127.0.0.1:0".as_ptr(), null(), null_mut(), &raw mut server) };
    keep(Kind::Endpoint, "noctule_endpoint_bind", error, server.id);
    // SAFETY: as above.
    let error = unsafe { noctule_endpoint_bind(owner, none, c"127.0.0.1:0".as_ptr(), null(), null_mut(), &raw mut client) };
    keep(Kind::Endpoint, "noctule_endpoint_bind", error, client.id);
    let (mut address, mut key) = ([0; NOCTULE_ADDRESS_TEXT], [0; NOCTULE_KEY_TEXT]);
    // SAFETY: as above.
    unsafe {
        check("noctule_endpoint_address", code(noctule_endpoint_address(server, address.as_mut_ptr(), address.len())));
        check("noctule_endpoint_public_key", code(noctule_endpoint_public_key(server, key.as_mut_ptr(), key.len())));
        let error = noctule_endpoint_connect(client, address.as_ptr(), key.as_ptr(), null_mut(), &raw mut talk);
        keep(Kind::Session, "noctule_endpoint_connect", error, talk.id);
    }
    let mut is_accepted = calls_back;
    for _ in 0..100 {
        if !calls_back {
            take_events(owner.id, 4, 1);
        }
        is_accepted = is_accepted || accept_session(server.id) == OK;
        let mut text = [0; 8];
        // SAFETY: as above.
        let is_open = unsafe { noctule_session_failure(talk, text.as_mut_ptr(), text.len()) } == noctule_error::Ok;
        if is_open && is_accepted {
            break;
        }
        if calls_back {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn take_events(from: u64, room: usize, timeout: c_int) -> isize {
    let mut events = [noctule_event {
        kind: 0,
        error: 0,
        user: null_mut(),
        endpoint: endpoint(0),
        session: session(0),
        flow: flow(0),
        reserved: [0; 2],
    }; 8];
    // SAFETY: room for as many as is said.
    let count = unsafe { noctule_poll(context(from), events.as_mut_ptr(), room.min(events.len()), timeout) };
    for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
        check_event(event);
    }
    count as isize
}

/// Threads and descriptors of this process.
fn held() -> (usize, usize) {
    let count = |directory| std::fs::read_dir(directory).map_or(0, Iterator::count);
    (count("/proc/self/task"), count("/proc/self/fd"))
}

/// What the process keeps from its first context on.
fn first_context() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut made = context(0);
        // SAFETY: room for a handle.
        check("noctule_context_new", code(unsafe { noctule_context_new(NOCTULE_ABI, 1, &raw mut made) }));
        check("noctule_context_free_wait", code(noctule_context_free_wait(made, 0)));
    });
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    first_context();
    let before = held();
    let manner = input.u8();
    for (n, plan) in PLAN.iter().enumerate() {
        // The kinds of events have numbers from 1 on.
        plan.store(if (1..=10).contains(&n) && manner & 4 != 0 { input.u8() } else { 0 }, SeqCst);
    }
    if manner & 1 != 0 {
        connect(manner & 2 != 0);
    }
    let (mut block, mut texts) = (vec![0u8; BLOCK], Texts::default());
    for _ in 0..CALLS {
        if input.is_empty() {
            break;
        }
        step(&mut input, &mut block, &mut texts);
    }
    let (contexts, identities) = {
        let made = made();
        (made.handles[Kind::Context as usize].clone(), made.handles[Kind::Identity as usize].clone())
    };
    for id in contexts {
        free(id, "noctule_context_free_wait", || noctule_context_free_wait(context(id), u32::from(manner >> 3) % 8));
    }
    for id in identities {
        free(id, "noctule_identity_free", || noctule_identity_free(identity(id)));
    }
    let end = Instant::now() + PATIENCE;
    while {
        let now = held();
        now.0 > before.0 || now.1 > before.1
    } {
        assert!(Instant::now() < end, "threads and descriptors before: {before:?}, after: {:?}", held());
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut made = made();
    // With their context all of them are gone.
    for id in &made.handles[Kind::Endpoint as usize] {
        assert_eq!(code(noctule_endpoint_free(endpoint(*id))), BAD_HANDLE);
    }
    for id in &made.handles[Kind::Session as usize] {
        assert_eq!(code(noctule_session_free(session(*id))), BAD_HANDLE);
    }
    for id in &made.handles[Kind::Flow as usize] {
        assert_eq!(code(noctule_flow_free(flow(*id))), BAD_HANDLE);
    }
    made.handles.iter_mut().for_each(Vec::clear);
    made.freed = None;
}

/// One call.
fn step(input: &mut Input<'_>, block: &mut [u8], texts: &mut Texts) {
    let choice = input.u8();
    let user = usize::from(choice) as *mut c_void;
    // SAFETY: throughout: every pointer is null, or there is as much as the call is told, as the header asks for.
    unsafe {
        // A handle that was freed before the call is of no use to it.
        let with = |kind: Kind, input: &mut Input<'_>, what: &str, call: &mut dyn FnMut(u64, &mut Input<'_>) -> isize| {
            let id = pick(input, kind);
            let was_freed = made().is_freed(id);
            let result = check(what, call(id, input));
            assert!(!was_freed || result < 0, "{what} of a freed handle gives {result}");
        };
        macro_rules! with {
            ($kind:ident, $call:ident, |$id:ident, $input:ident| $body:expr) => {
                with(Kind::$kind, input, stringify!($call), &mut |$id, $input| $body)
            };
        }
        match choice % 58 {
            0 => {
                let mut out = context(0);
                if made().of(Kind::Context).len() < MOST_CONTEXTS {
                    let (abi, threads) = match input.u8() {
                        0 => (0, 1),
                        1 => (NOCTULE_ABI + 1, 1),
                        2 => (NOCTULE_ABI, 257),
                        3 => (NOCTULE_ABI, u32::MAX),
                        4 => (NOCTULE_ABI, 0),
                        5 => (NOCTULE_ABI, 2),
                        _ => (NOCTULE_ABI, 1),
                    };
                    let error = noctule_context_new(abi, threads, &raw mut out);
                    keep(Kind::Context, "noctule_context_new", error, out.id);
                } else {
                    check("noctule_context_new", code(noctule_context_new(NOCTULE_ABI, 1, null_mut())));
                }
            }
            1 => {
                let id = pick(input, Kind::Context);
                // Most runs go on with their context.
                if input.u8() < 80 {
                    free(id, "noctule_context_free", || noctule_context_free(context(id)));
                }
            }
            2 => {
                let (id, patience) = (pick(input, Kind::Context), u32::from(input.u8()) % 8);
                if input.u8() < 80 {
                    free(id, "noctule_context_free_wait", || noctule_context_free_wait(context(id), patience));
                }
            }
            3 => with!(Context, noctule_context_fd, |id, _input| noctule_context_fd(context(id)) as isize),
            4 => with!(Context, noctule_poll, |id, input| {
                match input.u8() {
                    0 => noctule_poll(context(id), null_mut(), 1, 0) as isize,
                    room => take_events(id, usize::from(room) % 8, c_int::from(room & 1)),
                }
            }),
            5 => with!(Context, noctule_context_set_callback, |id, input| {
                let callback: noctule_callback = if input.u8() == 0 { None } else { Some(on_event) };
                code(noctule_context_set_callback(context(id), callback, id as *mut c_void))
            }),
            6 => with!(Context, noctule_context_wait_callbacks, |id, _input| code(noctule_context_wait_callbacks(context(id)))),
            7 | 8 => {
                let (owner, key) = (pick(input, Kind::Context), if input.u8() < 128 { 0 } else { pick(input, Kind::Identity) });
                let mut list = Vec::new();
                let given = endpoint_choices(input, texts, &mut list);
                let mut out = endpoint(0);
                let place = if made().of(Kind::Endpoint).len() < MOST_ENDPOINTS { &raw mut out } else { null_mut() };
                let (what, error) = if choice % 58 == 7 {
                    let address = if input.u8() < 200 { c"127.0.0.1:0".as_ptr() } else { texts.any(input) };
                    ("noctule_endpoint_bind", noctule_endpoint_bind(context(owner), identity(key), address, pointer(&given), user, place))
                } else {
                    ("noctule_endpoint_client", noctule_endpoint_client(context(owner), identity(key), pointer(&given), user, place))
                };
                keep(Kind::Endpoint, what, error, out.id);
            }
            9 => with!(Endpoint, noctule_endpoint_address, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_endpoint_address(endpoint(id), start.cast(), length))
            }),
            10 => with!(Endpoint, noctule_endpoint_public_key, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_endpoint_public_key(endpoint(id), start.cast(), length))
            }),
            11 => with!(Endpoint, noctule_endpoint_accept, |id, input| {
                if input.u8() == 0 { code(noctule_endpoint_accept(endpoint(id), user, null_mut())) } else { accept_session(id) }
            }),
            12 => {
                let (from, host) = (pick(input, Kind::Endpoint), texts.host(input));
                let key = match input.u8() {
                    0 => texts.any(input),
                    1..=60 => c"any".as_ptr(),
                    _ => texts.key(input),
                };
                let mut out = session(0);
                let place = if input.u8() == 0 { null_mut() } else { &raw mut out };
                let error = noctule_endpoint_connect(endpoint(from), host, key, user, place);
                keep(Kind::Session, "noctule_endpoint_connect", error, out.id);
            }
            13 => with!(Endpoint, noctule_endpoint_notify_idle, |id, _input| code(noctule_endpoint_notify_idle(endpoint(id)))),
            14 => with!(Endpoint, noctule_endpoint_close, |id, input| {
                let (with, reason) = (number(input), texts.any(input));
                code(noctule_endpoint_close(endpoint(id), with, reason))
            }),
            15 => with!(Endpoint, noctule_endpoint_get_stats, |id, input| {
                results(input, size_of::<noctule_endpoint_stats>(), |stats| noctule_endpoint_get_stats(endpoint(id), stats.cast()))
            }),
            16 => {
                let id = pick(input, Kind::Endpoint);
                free(id, "noctule_endpoint_free", || noctule_endpoint_free(endpoint(id)));
            }
            17 => {
                for text in [noctule_last_error(), noctule_error_text(number(input) as i32), noctule_version()] {
                    assert!(CStr::from_ptr(text).to_str().is_ok());
                }
            }
            18 | 55 => with!(Flow, noctule_flow_write, |id, input| {
                let (start, length) = span(input, block);
                let written = noctule_flow_write(flow(id), start, length);
                assert!(written < 0 || written as usize <= length, "{written} of {length} bytes written");
                written
            }),
            19 => with!(Flow, noctule_flow_read, |id, input| {
                let (start, length) = span(input, block);
                let read = noctule_flow_read(flow(id), start, length);
                assert!(read < 0 || read as usize <= length, "{read} bytes read into {length}");
                read
            }),
            20 | 56 => with!(Flow, noctule_flow_send, |id, input| {
                let given = choices(input, size_of::<noctule_message_options>(), 2);
                let (start, length) = span(input, block);
                let mut sent = 0;
                let place = if input.u8() & 1 == 0 { null_mut() } else { &raw mut sent };
                code(noctule_flow_send(flow(id), start, length, pointer(&given), place))
            }),
            21 => with!(Flow, noctule_flow_recv, |id, input| {
                let (start, capacity) = span(input, block);
                let (mut length, mut taken) = (0, 0);
                let which = input.u8();
                let length_at = if which & 15 == 1 { null_mut() } else { &raw mut length };
                let taken_at = if which & 16 == 0 { null_mut() } else { &raw mut taken };
                let result = code(noctule_flow_recv(flow(id), start, capacity, length_at, taken_at));
                assert!(result != OK || length <= capacity, "{length} bytes into {capacity}");
                result
            }),
            22 => with!(Flow, noctule_flow_cancel, |id, input| {
                let mut withdrawn = 0;
                let (which, place) = (number(input), if input.u8() & 1 == 0 { null_mut() } else { &raw mut withdrawn });
                code(noctule_flow_cancel(flow(id), which, place))
            }),
            23 => with!(Flow, noctule_flow_finish, |id, _input| code(noctule_flow_finish(flow(id)))),
            24 => with!(Flow, noctule_flow_reset, |id, input| code(noctule_flow_reset(flow(id), number(input)))),
            25 => with!(Flow, noctule_flow_stop, |id, input| code(noctule_flow_stop(flow(id), number(input)))),
            26 => with!(Flow, noctule_flow_kind, |id, _input| noctule_flow_kind(flow(id)) as isize),
            27 => with!(Flow, noctule_flow_direction, |id, _input| noctule_flow_direction(flow(id)) as isize),
            28 => with!(Flow, noctule_flow_tag, |id, input| {
                let mut tag = 0;
                code(noctule_flow_tag(flow(id), if input.u8() == 0 { null_mut() } else { &raw mut tag }))
            }),
            29 => with!(Flow, noctule_flow_far_code, |id, input| {
                let mut far = 0;
                code(noctule_flow_far_code(flow(id), if input.u8() == 0 { null_mut() } else { &raw mut far }))
            }),
            30 => with!(Flow, noctule_flow_get_stats, |id, input| {
                let outgoing = i32::from(input.u8() & 1);
                results(input, size_of::<noctule_flow_stats>(), |stats| noctule_flow_get_stats(flow(id), outgoing, stats.cast()))
            }),
            31 => with!(Flow, noctule_flow_set_user, |id, _input| code(noctule_flow_set_user(flow(id), user))),
            32 => {
                let id = pick(input, Kind::Flow);
                free(id, "noctule_flow_free", || noctule_flow_free(flow(id)));
            }
            33..=36 => {
                let mut out = identity(0);
                let place = if input.u8() == 0 { null_mut() } else { &raw mut out };
                let error = match choice % 58 {
                    33 => noctule_identity_generate(place),
                    34 => noctule_identity_from_text(texts.any(input), place),
                    35 => {
                        let (start, length) = span(input, block);
                        noctule_identity_from_bytes(start, if input.u8() < 128 { length.min(32) } else { length }, place)
                    }
                    // Files: none is written, as a name may be that of any file of this host.
                    _ => noctule_identity_load(if input.u8() < 128 { c"/dev/null".as_ptr() } else { c"/none/key".as_ptr() }, place),
                };
                keep(Kind::Identity, "an identity", error, out.id);
            }
            37 => with!(Identity, noctule_identity_save, |id, input| {
                code(noctule_identity_save(identity(id), if input.u8() == 0 { null() } else { c"/none/key".as_ptr() }))
            }),
            38 => with!(Identity, noctule_identity_public_key, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_identity_public_key(identity(id), start.cast(), length))
            }),
            39 => with!(Identity, noctule_identity_secret_text, |id, input| {
                let (start, length) = span(input, block);
                let result = code(noctule_identity_secret_text(identity(id), start.cast(), length));
                if result == OK {
                    let mut again = identity(0);
                    let error = noctule_identity_from_text(start.cast(), &raw mut again);
                    assert_eq!(error, noctule_error::Ok, "the text of a key is one");
                    keep(Kind::Identity, "noctule_identity_from_text", error, again.id);
                }
                result
            }),
            40 => {
                let text = if input.u8() < 100 { texts.key(input) } else { texts.any(input) };
                check("noctule_key_check", code(noctule_key_check(text)));
            }
            41 => {
                let id = pick(input, Kind::Identity);
                free(id, "noctule_identity_free", || noctule_identity_free(identity(id)));
            }
            42 => with!(Session, noctule_session_peer_key, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_session_peer_key(session(id), start.cast(), length))
            }),
            43 => with!(Session, noctule_session_address, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_session_address(session(id), start.cast(), length))
            }),
            44 => with!(Session, noctule_session_failure, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_session_failure(session(id), start.cast(), length))
            }),
            45 | 57 => {
                let given = choices(input, size_of::<noctule_flow_options>(), size_of::<noctule_flow_options>() / 8 - 1);
                let (on, mut out, which) = (session(pick(input, Kind::Session)), flow(0), input.u8());
                let place = if which == 0 { null_mut() } else { &raw mut out };
                let (what, error) = match which % 3 {
                    0 => ("noctule_session_open_stream", noctule_session_open_stream(on, pointer(&given), user, place)),
                    1 => ("noctule_session_open_uni", noctule_session_open_uni(on, pointer(&given), user, place)),
                    _ => ("noctule_session_open_messages", noctule_session_open_messages(on, pointer(&given), user, place)),
                };
                keep(Kind::Flow, what, error, out.id);
            }
            46 => with!(Session, noctule_session_accept, |id, input| {
                if input.u8() == 0 { code(noctule_session_accept(session(id), user, null_mut())) } else { accept_flow(id) }
            }),
            47 => with!(Session, noctule_session_send_datagram, |id, input| {
                let (start, length) = span(input, block);
                code(noctule_session_send_datagram(session(id), start, length))
            }),
            48 => with!(Session, noctule_session_recv_datagram, |id, input| {
                let (start, capacity) = span(input, block);
                let mut length = 0;
                let place = if input.u8() == 0 { null_mut() } else { &raw mut length };
                let result = code(noctule_session_recv_datagram(session(id), start, capacity, place));
                assert!(result != OK || length <= capacity, "{length} bytes into {capacity}");
                result
            }),
            49 => with!(Session, noctule_session_set_congestion, |id, input| {
                let name = texts.any(input);
                code(noctule_session_set_congestion(session(id), name, number(input)))
            }),
            50 => with!(Session, noctule_session_target_rate, |id, input| {
                let mut rate = 0.0;
                code(noctule_session_target_rate(session(id), if input.u8() == 0 { null_mut() } else { &raw mut rate }))
            }),
            51 => with!(Session, noctule_session_close, |id, input| {
                let (with, reason) = (number(input), texts.any(input));
                if input.u8() < 128 {
                    code(noctule_session_close(session(id), with, reason))
                } else {
                    code(noctule_session_abort(session(id), with, reason))
                }
            }),
            52 => with!(Session, noctule_session_outcome, |id, input| {
                results(input, size_of::<noctule_outcome>(), |outcome| noctule_session_outcome(session(id), outcome.cast()))
            }),
            53 => with!(Session, noctule_session_get_stats, |id, input| {
                results(input, size_of::<noctule_session_stats>(), |stats| noctule_session_get_stats(session(id), stats.cast()))
            }),
            _ => {
                let id = pick(input, Kind::Session);
                check("noctule_session_set_user", code(noctule_session_set_user(session(id), user)));
                if input.u8() < 40 {
                    free(id, "noctule_session_free", || noctule_session_free(session(id)));
                }
            }
        }
        if choice >= 232 {
            // Time for the network.
            let waiting = pick(input, Kind::Context);
            if take_events(waiting, 8, 1) == WOULD_BLOCK || choice >= 250 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
