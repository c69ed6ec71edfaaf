//! Error codes, and the words that belong to the last one of each thread.

use noctule::{BindError, Code, ConnectError, FlowError, OpenError, SessionClosed};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a call: 0 is success, every error is negative. `noctule_last_error` has the words.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum noctule_error {
    /// It worked.
    Ok = 0,
    /// Not now: an event says when to try again. No error: the words of the thread's last error stay.
    WouldBlock = -1,
    /// The far end has finished and everything was read. No error.
    End = -2,
    /// A pointer that must not be null is.
    NullArgument = -3,
    /// A value is out of range, or text is not of the form that is asked for.
    InvalidArgument = -4,
    /// The handle was freed, never was one, or is one of another kind.
    BadHandle = -5,
    /// What is to be written does not fit into the buffer.
    BufferTooSmall = -6,
    /// The call does not fit the object or the thread, for instance bytes on a flow of messages.
    Misuse = -7,
    /// The session is not connected yet.
    NotConnected = -8,
    /// The session, endpoint or context is over.
    Closed = -9,
    /// The far end gave the flow up.
    FlowReset = -10,
    /// The far end wants no more of the flow.
    FlowStopped = -11,
    /// The flow ended for another reason.
    FlowClosed = -12,
    /// The message is larger than the far end takes.
    MessageTooLarge = -13,
    /// As many sessions, flows or links as there may be.
    Limit = -14,
    /// Another program has the UDP port.
    AddressInUse = -15,
    /// The system does not permit it.
    Permission = -16,
    /// This host does not have the address.
    AddressUnavailable = -17,
    /// No answer came in time.
    Unreachable = -18,
    /// The host says that no program has the port open.
    NobodyListens = -19,
    /// This host cannot send there.
    CannotSend = -20,
    /// The endpoint's address is of another family.
    AddressFamily = -21,
    /// Another key than the pinned one answered.
    WrongKey = -22,
    /// The far end does not let this key in.
    NotAuthorised = -23,
    /// The far end speaks another version of the protocol, or the library has another ABI than the header.
    Version = -24,
    /// The far end declined.
    Refused = -25,
    /// The host name could not be resolved.
    Resolve = -26,
    /// The connection failed for another reason.
    ConnectFailed = -27,
    /// The operating system failed otherwise, for instance in reading a file.
    System = -28,
    /// A defect of the library. The object is in an unknown state and can only be freed.
    Internal = -29,
}

/// Why a call failed, before it is told.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: noctule_error,
    pub(crate) words: Cow<'static, str>,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) const WOULD_BLOCK: Self = Self { code: noctule_error::WouldBlock, words: Cow::Borrowed("not now: wait for the event") };
    pub(crate) const END: Self = Self { code: noctule_error::End, words: Cow::Borrowed("the far end has finished") };

    pub(crate) fn new(code: noctule_error, words: impl Into<Cow<'static, str>>) -> Self {
        Self { code, words: words.into() }
    }
    pub(crate) fn invalid(words: impl Into<Cow<'static, str>>) -> Self {
        Self::new(noctule_error::InvalidArgument, words)
    }
    pub(crate) fn misuse(words: impl Into<Cow<'static, str>>) -> Self {
        Self::new(noctule_error::Misuse, words)
    }
    pub(crate) fn system(what: &str, error: &std::io::Error) -> Self {
        let code = if error.kind() == std::io::ErrorKind::PermissionDenied { noctule_error::Permission } else { noctule_error::System };
        Self::new(code, format!("{what}: {error}"))
    }

    /// Makes the words those of the thread's last error.
    pub(crate) fn tell(self) -> noctule_error {
        if !matches!(self.code, noctule_error::WouldBlock | noctule_error::End) {
            remember(&self.words);
        }
        self.code
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        let code = match error {
            BindError::InUse(_) => noctule_error::AddressInUse,
            BindError::Permission(_) => noctule_error::Permission,
            BindError::NotAvailable(_) => noctule_error::AddressUnavailable,
            BindError::Config(_) => noctule_error::InvalidArgument,
            _ => noctule_error::System,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        use noctule_error as Code;
        let code = match error {
            ConnectError::Unreachable(_) | ConnectError::Prohibited { .. } => Code::Unreachable,
            ConnectError::NobodyListens(_) => Code::NobodyListens,
            ConnectError::Local { .. } => Code::CannotSend,
            ConnectError::Family { .. } => Code::AddressFamily,
            ConnectError::WrongKey { .. } => Code::WrongKey,
            ConnectError::NotAuthorised => Code::NotAuthorised,
            ConnectError::VersionMismatch => Code::Version,
            ConnectError::Refused(_) => Code::Refused,
            ConnectError::Resolve { .. } | ConnectError::NoAddress(_) => Code::Resolve,
            ConnectError::Syntax(_) => Code::InvalidArgument,
            ConnectError::Limit { .. } => Code::Limit,
            ConnectError::EndpointClosed => Code::Closed,
            _ => Code::ConnectFailed,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SessionClosed> for Failure {
    fn from(error: SessionClosed) -> Self {
        Self::new(noctule_error::Closed, error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match error {
            OpenError::Session(_) => noctule_error::Closed,
            OpenError::Limit { .. } => noctule_error::Limit,
            OpenError::NoRoute(_) => noctule_error::Unreachable,
            OpenError::Misuse(_) => noctule_error::InvalidArgument,
            _ => noctule_error::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        let code = match &error {
            FlowError::Session(_) => noctule_error::Closed,
            FlowError::Closed(reason) => match reason.code {
                Code::Reset => noctule_error::FlowReset,
                Code::Stopped => noctule_error::FlowStopped,
                _ => noctule_error::FlowClosed,
            },
            FlowError::MessageTooLarge { .. } => noctule_error::MessageTooLarge,
            FlowError::Misuse(_) => noctule_error::Misuse,
            _ => noctule_error::Internal,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(words: &str) {
    // A nul within would cut the rest off.
    let words = CString::new(words.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that is ending cannot ask for the words any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = words);
}

/// Every function of the library runs in here: no panic goes further.
pub(crate) fn call(work: impl FnOnce() -> Outcome<()>) -> noctule_error {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => noctule_error::Ok,
        Ok(Err(failure)) => failure.tell(),
        Err(panic) => defect(&*panic),
    }
}

/// [`call`] for functions that give a number: as it is, or an error's.
pub(crate) fn call_count(work: impl FnOnce() -> Outcome<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(work)) {
        // No buffer is larger than that.
        Ok(Ok(count)) => isize::try_from(count).unwrap_or(isize::MAX),
        Ok(Err(failure)) => failure.tell() as isize,
        Err(panic) => defect(&*panic) as isize,
    }
}

fn defect(panic: &(dyn std::any::Any + Send)) -> noctule_error {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    remember(&format!("defect of the library, please report it: {}", words.unwrap_or("no message")));
    noctule_error::Internal
}

/// The words of the last error that a call on this thread returned; empty if there was none. In a callback with an event that has an error, these are its words.
///
/// Threads: any; each has its own. Blocks: never. Owns: the library owns the text, which stays until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What an error code means in general: one line, of static storage. A number that is no error code is told as such.
///
/// Threads: any. Blocks: never. Owns: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_error_text(error: i32) -> *const c_char {
    text_of(error).as_ptr()
}

fn text_of(error: i32) -> &'static CStr {
    match error {
        0 => c"it worked",
        -1 => c"not now: wait for the event",
        -2 => c"the far end has finished",
        -3 => c"a pointer that must not be null is null",
        -4 => c"an argument is out of range or not of the right form",
        -5 => c"the handle was freed, or is none of this kind",
        -6 => c"the buffer is too small",
        -7 => c"the call does not fit the object or the thread",
        -8 => c"the session is not connected yet",
        -9 => c"the session, endpoint or context is over",
        -10 => c"the far end gave the flow up",
        -11 => c"the far end wants no more of the flow",
        -12 => c"the flow is over",
        -13 => c"the message is larger than the far end takes",
        -14 => c"a limit is reached",
        -15 => c"the UDP port is in use",
        -16 => c"not permitted",
        -17 => c"this host does not have the address",
        -18 => c"no answer",
        -19 => c"nobody listens there",
        -20 => c"this host cannot send there",
        -21 => c"the endpoint's address is of another family",
        -22 => c"another key than the pinned one answered",
        -23 => c"the far end does not let this key in",
        -24 => c"another version",
        -25 => c"the far end declined",
        -26 => c"the name could not be resolved",
        -27 => c"the connection failed",
        -28 => c"the operating system failed",
        -29 => c"defect of the library",
        _ => c"no error code of this version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text of this thread, which no call changes meanwhile.
        unsafe { CStr::from_ptr(noctule_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_words() {
        assert_eq!(call(|| panic!("on {}", "purpose")), noctule_error::Internal);
        assert!(last().ends_with("on purpose"), "{}", last());
        assert_eq!(call_count(|| panic!("again")), -29);
        assert!(last().ends_with("again"));
    }

    #[test]
    fn waiting_and_the_end_leave_the_words_of_the_last_error() {
        assert_eq!(call(|| Err(Failure::invalid("a\0b"))), noctule_error::InvalidArgument);
        assert_eq!(call(|| Err(Failure::WOULD_BLOCK)), noctule_error::WouldBlock);
        assert_eq!(call_count(|| Err(Failure::END)), -2);
        assert_eq!(last(), "a\u{fffd}b");
    }

    #[test]
    fn every_code_has_a_text_of_its_own() {
        let texts: std::collections::BTreeSet<_> = (-29..=0).map(text_of).collect();
        assert_eq!(texts.len(), 30);
        assert_eq!(noctule_error::Internal as i32, -29);
        assert_eq!(text_of(-30), text_of(1));
    }
}
