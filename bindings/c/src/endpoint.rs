//! Endpoints: one node each, an identity on a UDP socket.

use crate::context::{Context, User, blank, noctule_context, noctule_event};
use crate::error::{Failure, Outcome, call, noctule_error};
use crate::identity::{noctule_identity, public_key};
use crate::input;
use crate::options::{self, noctule_endpoint_options};
use crate::queue::{Interest, noctule_event_kind};
use crate::session::{self, noctule_session};
use crate::stats::noctule_endpoint_stats;
use crate::table::{self, Object};
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One node of the network: an identity on a UDP socket. 0 is none. A copy is the same endpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_endpoint {
    /// Name of the endpoint; for the library only.
    pub id: u64,
}

/// Bytes that hold the text of an address with its port, with its nul.
pub const NOCTULE_ADDRESS_TEXT: usize = 80;

pub(crate) struct Endpoint {
    context: Arc<Context>,
    id: u64,
    pub(crate) inner: noctule::Endpoint,
    public: String,
    accepts: bool,
    user: User,
    /// Taken from the endpoint, and not by the program yet.
    waiting: Mutex<VecDeque<noctule::Session>>,
    session: Interest,
    idle: Interest,
}

impl Endpoint {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<noctule::Session>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next session, if one waits; otherwise its event follows.
    fn next(&self, waiting: &mut VecDeque<noctule::Session>) -> Outcome<noctule::Session> {
        if let Some(session) = waiting.pop_front() {
            return Ok(session);
        }
        match self.session.attempt(|cx| self.inner.poll_accept(cx)) {
            Some(Some(session)) => Ok(session),
            Some(None) => Err(closed()),
            None => Err(Failure::WOULD_BLOCK),
        }
    }

    /// Whether an event is one: `Some` with what went wrong, if something did.
    pub(crate) fn news(&self, kind: noctule_event_kind) -> Option<Option<Failure>> {
        match kind {
            noctule_event_kind::Session => {
                // Locked throughout: another thread that accepts must not find nothing in between.
                let mut waiting = self.waiting();
                let session = self.next(&mut waiting).ok()?;
                waiting.push_front(session);
                Some(None)
            }
            noctule_event_kind::Idle => self.idle.attempt(|cx| pin!(self.inner.wait_idle()).poll(cx)).map(|()| None),
            _ => None,
        }
    }

    /// Closes the sessions that wait to be accepted here.
    pub(crate) fn refuse_waiting(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn event(&self) -> noctule_event {
        noctule_event { user: self.user.get(), endpoint: noctule_endpoint { id: self.id }, ..blank() }
    }
}

fn closed() -> Failure {
    Failure::new(noctule_error::Closed, "the endpoint is closed")
}

/// What is given to make an endpoint with.
struct Wanted {
    context: noctule_context,
    identity: noctule_identity,
    options: *const noctule_endpoint_options,
    user: *mut c_void,
    out: *mut noctule_endpoint,
}

/// # Safety
/// The pointers are null or as the header describes them.
unsafe fn make(
    wanted: Wanted,
    is_client: bool,
    bind: impl FnOnce(noctule::EndpointConfig) -> Result<noctule::Endpoint, noctule::BindError>,
) -> Outcome<()> {
    input::required("endpoint", wanted.out)?;
    let context = table::context(wanted.context.id)?;
    let identity = if wanted.identity.id == 0 { None } else { Some((*table::identity(wanted.identity.id)?).clone()) };
    // SAFETY: as the caller promises.
    let mut config = unsafe { options::endpoint_config(wanted.options, identity) }?;
    config.node.accept &= !is_client;
    let (accepts, public) = (config.node.accept, config.identity.public().to_string());
    let inner = {
        // The driver runs on the context's threads.
        let _entered = context.handle.enter();
        bind(config)?
    };
    let owner = Arc::clone(&context);
    let (id, endpoint) = context.adopt(
        |id| {
            Ok(Endpoint {
                id,
                inner,
                public,
                accepts,
                user: User::new(wanted.user),
                waiting: Mutex::default(),
                session: Interest::new(&owner.queue, id, noctule_event_kind::Session),
                idle: Interest::new(&owner.queue, id, noctule_event_kind::Idle),
                context: owner,
            })
        },
        Object::Endpoint,
    )?;
    // SAFETY: as the caller promises.
    unsafe { input::store(wanted.out, noctule_endpoint { id }) };
    if accepts && endpoint.news(noctule_event_kind::Session).is_some() {
        endpoint.session.tell();
    }
    Ok(())
}

/// Opens a UDP socket on `address` (`192.0.2.1:4242`, `[::]:4242`; port 0: the system chooses) that takes sessions of others and connects to others. `identity` 0 is
/// a fresh one; `options` null are the defaults. `SESSION` events tell of sessions that wait to be accepted.
///
/// Threads: any. Blocks: never. Owns: `*endpoint` is the program's, to be freed with `noctule_endpoint_free`; `identity` and `options` are copied; `user` is kept.
/// Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `ADDRESS_IN_USE`, `PERMISSION`, `ADDRESS_UNAVAILABLE`, `LIMIT`, `SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_bind(
    context: noctule_context,
    identity: noctule_identity,
    address: *const c_char,
    options: *const noctule_endpoint_options,
    user: *mut c_void,
    endpoint: *mut noctule_endpoint,
) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let address = unsafe { input::text("address", address) }?;
        let address = noctule::parse_address(address).map_err(Failure::invalid)?;
        let wanted = Wanted { context, identity, options, user, out: endpoint };
        // SAFETY: as the caller promises.
        unsafe { make(wanted, false, |config| noctule::Endpoint::bind(address, config)) }
    })
}

/// As `noctule_endpoint_bind`, on a port that the system chooses, over IPv6 and IPv4 where the host has both; it only connects, and refuses sessions of others.
///
/// Threads, blocks, owns, errors: as `noctule_endpoint_bind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_client(
    context: noctule_context,
    identity: noctule_identity,
    options: *const noctule_endpoint_options,
    user: *mut c_void,
    endpoint: *mut noctule_endpoint,
) -> noctule_error {
    call(|| {
        let wanted = Wanted { context, identity, options, user, out: endpoint };
        // SAFETY: as the caller promises.
        unsafe { make(wanted, true, noctule::Endpoint::client) }
    })
}

/// Writes the address that the socket is bound to; `NOCTULE_ADDRESS_TEXT` bytes hold it.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_address(endpoint: noctule_endpoint, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let address = table::endpoint(endpoint.id)?.inner.local_addr().to_string();
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &address, text, capacity) }
    })
}

/// Writes the text of the endpoint's public key; `NOCTULE_KEY_TEXT` bytes hold it.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_public_key(endpoint: noctule_endpoint, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let endpoint = table::endpoint(endpoint.id)?;
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &endpoint.public, text, capacity) }
    })
}

/// Takes the next session that another node has opened. `WOULD_BLOCK`: none waits, a `SESSION` event follows when one does. After an event take sessions until
/// `WOULD_BLOCK`: another event comes only then.
///
/// Threads: any. Blocks: never. Owns: `*session` is the program's, to be freed with `noctule_session_free`; `user` is kept and comes with the session's events.
/// Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `MISUSE` (the endpoint refuses sessions), `CLOSED`, `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_accept(
    endpoint: noctule_endpoint,
    user: *mut c_void,
    session: *mut noctule_session,
) -> noctule_error {
    call(|| {
        input::required("session", session)?;
        let endpoint = table::endpoint(endpoint.id)?;
        if !endpoint.accepts {
            return Err(Failure::misuse("this endpoint refuses sessions that others open: make it with noctule_endpoint_bind"));
        }
        let id = session::accepted(&endpoint.context, endpoint.id, endpoint.next(&mut endpoint.waiting())?, user)?;
        // SAFETY: as the caller promises.
        unsafe { input::store(session, noctule_session { id }) };
        Ok(())
    })
}

/// Begins to connect to `host` (`name:port`, `192.0.2.1:port`, `[2001:db8::1]:port`); all addresses of a name are tried. A `CONNECTED` event follows, with an error
/// if it failed, whose words are in `noctule_session_failure`. `key` is the public key that the far end must have, or "any" for whatever key answers: look at
/// `noctule_session_peer_key` then. Null is refused, so that a forgotten key is no open door.
///
/// Threads: any. Blocks: never; the name is looked up by a thread of the library. Owns: `*session` is the program's at once, to be freed with `noctule_session_free`,
/// which gives the attempt up. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (the key is none), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_connect(
    endpoint: noctule_endpoint,
    host: *const c_char,
    key: *const c_char,
    user: *mut c_void,
    session: *mut noctule_session,
) -> noctule_error {
    call(|| {
        input::required("session", session)?;
        // SAFETY: as the caller promises.
        let (host, key) = unsafe { (input::text("host", host)?.to_owned(), input::text("key", key)?) };
        let key = if key == "any" { None } else { Some(public_key("key", key)?) };
        let endpoint = table::endpoint(endpoint.id)?;
        let inner = endpoint.inner.clone();
        let attempt = async move { inner.connect_host(&host, key).await };
        let id = session::connecting(&endpoint.context, endpoint.id, attempt, user)?;
        // SAFETY: as the caller promises.
        unsafe { input::store(session, noctule_session { id }) };
        Ok(())
    })
}

/// Asks for an `IDLE` event as soon as no session and no link is left: then all farewells are sent, and the program may end.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_endpoint_notify_idle(endpoint: noctule_endpoint) -> noctule_error {
    call(|| {
        let endpoint = table::endpoint(endpoint.id)?;
        if endpoint.idle.attempt(|cx| pin!(endpoint.inner.wait_idle()).poll(cx)).is_some() {
            endpoint.idle.tell();
        }
        Ok(())
    })
}

/// Ends all sessions at once with this code (below 2^62), without waiting for what is undelivered, and takes no more. `reason` may be null.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (not UTF-8, or the code is too large).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_close(endpoint: noctule_endpoint, code: u64, reason: *const c_char) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { input::text_or_none("reason", reason) }?.unwrap_or_default();
        session::check_code(code)?;
        table::endpoint(endpoint.id)?.inner.close(code, reason);
        Ok(())
    })
}

/// Fills `stats`, whose `size` is set before.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_endpoint_get_stats(endpoint: noctule_endpoint, stats: *mut noctule_endpoint_stats) -> noctule_error {
    call(|| {
        let endpoint = table::endpoint(endpoint.id)?;
        // SAFETY: as the caller promises.
        unsafe { input::store_sized(stats, || Ok(endpoint.inner.stats().into())) }
    })
}

/// Frees an endpoint. Sessions that were accepted or connected live on, and the socket is closed after the last one; those that wait to be accepted are refused.
///
/// Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_endpoint_free(endpoint: noctule_endpoint) -> noctule_error {
    call(|| {
        let endpoint = table::take_endpoint(endpoint.id)?;
        endpoint.context.forget(endpoint.id);
        endpoint.refuse_waiting();
        Ok(())
    })
}
