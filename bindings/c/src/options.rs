//! What a program may ask for: structures that begin with their size, so that programs and libraries of different age understand each other.

use crate::error::{Failure, Outcome};
use crate::identity::public_key;
use crate::input::{self, Sized1, millis};
use noctule::{Bandwidth, Class, CongestionControl, EndpointConfig, FlowKind, FlowOptions, MessageOptions, Mode, SecretKey, SharedKey};
use std::ffi::c_char;
use std::ptr;

/// Everything arrives, once.
pub const NOCTULE_MODE_BRTP: u32 = 0;
/// A message arrives within its lifetime, or not at all.
pub const NOCTULE_MODE_BTP: u32 = 1;
/// Plain encrypted datagrams without coding and congestion control; for measurements of the network itself.
pub const NOCTULE_MODE_TRANSPARENT: u32 = 2;

/// Messages, handed over in the order in which they were sent.
pub const NOCTULE_KIND_ORDERED: u32 = 0;
/// Messages, each handed over as soon as it is complete.
pub const NOCTULE_KIND_UNORDERED: u32 = 1;
/// Bytes in order.
pub const NOCTULE_KIND_STREAM: u32 = 2;

/// Goodput matters: no priority over other flows.
pub const NOCTULE_CLASS_BULK: u32 = 0;
/// Latency matters: goes first, up to half of the link, and spends spare rate on repair.
pub const NOCTULE_CLASS_LATENCY: u32 = 1;

/// How an endpoint is made. Set it to zero and `size` to `sizeof(noctule_endpoint_options)`: what is 0 or null has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_endpoint_options {
    /// `sizeof(noctule_endpoint_options)`.
    pub size: usize,
    /// Congestion control of what this side sends: "model" (default), "cubic", "reno", "vegas", "bbr", "gcc", "none", or "rate" with `congestion_rate`.
    pub congestion: *const c_char,
    /// Bits per second of UDP payload, for "rate" only.
    pub congestion_rate: u64,
    /// Public keys (texts) that may connect; null: every key may. Not null with a count of 0: no key may.
    pub authorised: *const *const c_char,
    /// How many there are.
    pub authorised_count: usize,
    /// Text of a key that both sides mix into the handshake ("shared-" and 56 characters, `noctule keygen --shared`); null: none.
    pub psk: *const c_char,
    /// Idle timeout: silence of so many milliseconds ends a link. Default 30,000.
    pub idle_timeout: u64,
    /// An attempt to connect ends after so many milliseconds. Default 10,000.
    pub connect_timeout: u64,
    /// A link with sessions is never silent for longer, in milliseconds. Default: a third of the idle timeout.
    pub keep_alive: u64,
    /// Linger: how many milliseconds a closed session may go on delivering. Default 10,000.
    pub linger: u64,
    /// Largest message that this side takes, bytes. Default 16 MiB.
    pub max_message: usize,
    /// Sessions, and links that others open, at most. Default 1024.
    pub max_sessions: usize,
    /// Links of one key that others open, at most: a further one takes the place of the oldest. Default 32.
    pub max_sessions_per_key: usize,
    /// Sessions that may wait to be accepted. Default 1024.
    pub backlog: usize,
    /// Bytes to ask the system for as the socket's send buffer. Default 4 MiB.
    pub send_buffer: usize,
    /// Bytes to ask the system for as the socket's receive buffer. Default 8 MiB.
    pub recv_buffer: usize,
    /// Not 0: refuses sessions that others open. Default 0 for `noctule_endpoint_bind`; a client always refuses.
    pub refuse: u32,
    /// 0.
    pub reserved: u32,
}

/// How a flow is opened. Set it to zero and `size` to `sizeof(noctule_flow_options)`: zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_flow_options {
    /// `sizeof(noctule_flow_options)`.
    pub size: usize,
    /// One of `NOCTULE_MODE_*`. Default BRTP.
    pub mode: u32,
    /// One of `NOCTULE_KIND_*`. Default ordered messages; functions that open streams set it.
    pub kind: u32,
    /// One of `NOCTULE_CLASS_*`. Default bulk.
    pub traffic_class: u32,
    /// Source packets per batch: 8, 16, 32 or 64. Default 16.
    pub batch_size: u32,
    /// Lifetime of a message, milliseconds, unless the message has its own. `btp` needs one of them. Default none.
    pub lifetime: u64,
    /// A number for the program's own use, carried to the far end; below 2^62 - 1. Default 0.
    pub tag: u64,
    /// Bytes that may wait here before `WOULD_BLOCK`, at most. Default: what memory allows, and 1 MiB at most.
    pub send_buffer: usize,
    /// Not 0: keeps to one route where several lead to the far end.
    pub one_route: u32,
    /// 0.
    pub reserved: u32,
}

/// How a message is sent. Set it to zero and `size` to `sizeof(noctule_message_options)`: zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_message_options {
    /// `sizeof(noctule_message_options)`.
    pub size: usize,
    /// Lifetime in milliseconds: later the message is worth nothing. Default: the flow's.
    pub lifetime: u64,
    /// 0 to 255; higher goes first among messages that have not begun. Default 0.
    pub priority: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), a size in front, integers and pointers only.
unsafe impl Sized1 for noctule_endpoint_options {
    const NAME: &'static str = "noctule_endpoint_options";
}
// SAFETY: as above.
unsafe impl Sized1 for noctule_flow_options {
    const NAME: &'static str = "noctule_flow_options";
}
// SAFETY: as above.
unsafe impl Sized1 for noctule_message_options {
    const NAME: &'static str = "noctule_message_options";
}

const NO_ENDPOINT_OPTIONS: noctule_endpoint_options = noctule_endpoint_options {
    size: size_of::<noctule_endpoint_options>(),
    congestion: ptr::null(),
    congestion_rate: 0,
    authorised: ptr::null(),
    authorised_count: 0,
    psk: ptr::null(),
    idle_timeout: 0,
    connect_timeout: 0,
    keep_alive: 0,
    linger: 0,
    max_message: 0,
    max_sessions: 0,
    max_sessions_per_key: 0,
    backlog: 0,
    send_buffer: 0,
    recv_buffer: 0,
    refuse: 0,
    reserved: 0,
};

const NO_FLOW_OPTIONS: noctule_flow_options = noctule_flow_options {
    size: size_of::<noctule_flow_options>(),
    mode: 0,
    kind: 0,
    traffic_class: 0,
    batch_size: 0,
    lifetime: 0,
    tag: 0,
    send_buffer: 0,
    one_route: 0,
    reserved: 0,
};

const NO_MESSAGE_OPTIONS: noctule_message_options =
    noctule_message_options { size: size_of::<noctule_message_options>(), lifetime: 0, priority: 0, reserved: 0 };

/// A control by its name; `rate` in bits per second for the one that needs it.
pub(crate) fn congestion(name: &str, rate: u64) -> Outcome<CongestionControl> {
    match (name, rate) {
        ("rate", 0) => Err(Failure::invalid("congestion \"rate\" needs a rate in bits per second")),
        ("rate", _) => Ok(CongestionControl::Rate(Bandwidth::from_bits_per_sec(rate as f64))),
        (_, 1..) => Err(Failure::invalid(format!("a rate belongs to congestion \"rate\", not to {name:?}"))),
        _ => CongestionControl::from_name(name)
            .ok_or_else(|| Failure::invalid(format!("congestion {name:?} is not one of {}, rate", CongestionControl::names()))),
    }
}

/// # Safety
/// `given` is null, or points to options as the header describes them.
pub(crate) unsafe fn endpoint_config(given: *const noctule_endpoint_options, identity: Option<SecretKey>) -> Outcome<EndpointConfig> {
    // SAFETY: as the caller promises.
    let options = unsafe { input::options(given, NO_ENDPOINT_OPTIONS) }?;
    let mut config = match identity {
        Some(identity) => EndpointConfig::new(identity),
        None => EndpointConfig::ephemeral().map_err(|e| Failure::system("no randomness", &e))?,
    };
    // SAFETY: as the caller promises.
    let (name, psk) = unsafe { (input::text_or_none("congestion", options.congestion)?, input::text_or_none("psk", options.psk)?) };
    config.node.congestion = congestion(name.unwrap_or("model"), options.congestion_rate)?;
    if let Some(text) = psk {
        let key: SharedKey = text.parse().map_err(|e| Failure::invalid(format!("psk: {e}")))?;
        config.node.psk = Some(key);
    }
    if options.authorised.is_null() && options.authorised_count > 0 {
        return Err(Failure::invalid(format!("authorised is null, but authorised_count is {}", options.authorised_count)));
    }
    if !options.authorised.is_null() {
        // SAFETY: as the caller promises.
        let texts = unsafe { input::slice("authorised", options.authorised, options.authorised_count) }?;
        // SAFETY: as the caller promises.
        let key = |text: &*const c_char| public_key("authorised", unsafe { input::text("authorised", *text) }?);
        config.node.authorised = Some(texts.iter().map(key).collect::<Outcome<_>>()?);
    }
    let node = &mut config.node;
    node.idle_timeout = millis(options.idle_timeout).unwrap_or(node.idle_timeout);
    node.connect_timeout = millis(options.connect_timeout).unwrap_or(node.connect_timeout);
    node.keep_alive = millis(options.keep_alive);
    node.accept = options.refuse == 0;
    let or = |value: usize, default: usize| if value == 0 { default } else { value };
    node.max_message = or(options.max_message, node.max_message);
    node.max_sessions = or(options.max_sessions, node.max_sessions);
    node.max_links = or(options.max_sessions, node.max_links);
    node.max_links_per_key = or(options.max_sessions_per_key, node.max_links_per_key);
    config.linger = millis(options.linger).unwrap_or(config.linger);
    config.backlog = or(options.backlog, config.backlog);
    config.send_buffer = or(options.send_buffer, config.send_buffer);
    config.recv_buffer = or(options.recv_buffer, config.recv_buffer);
    Ok(config)
}

/// # Safety
/// `given` is null, or points to options as the header describes them.
pub(crate) unsafe fn flow_options(given: *const noctule_flow_options) -> Outcome<FlowOptions> {
    // SAFETY: as the caller promises.
    let options = unsafe { input::options(given, NO_FLOW_OPTIONS) }?;
    let unknown = |what: &str, value: u32| Failure::invalid(format!("{what} {value} is none of those in the header"));
    Ok(FlowOptions {
        mode: match options.mode {
            NOCTULE_MODE_BRTP => Mode::Brtp,
            NOCTULE_MODE_BTP => Mode::Btp,
            NOCTULE_MODE_TRANSPARENT => Mode::Transparent,
            other => return Err(unknown("mode", other)),
        },
        kind: match options.kind {
            NOCTULE_KIND_ORDERED => FlowKind::OrderedMessages,
            NOCTULE_KIND_UNORDERED => FlowKind::UnorderedMessages,
            NOCTULE_KIND_STREAM => FlowKind::Stream,
            other => return Err(unknown("kind", other)),
        },
        class: match options.traffic_class {
            NOCTULE_CLASS_BULK => Class::Bulk,
            NOCTULE_CLASS_LATENCY => Class::Latency,
            other => return Err(unknown("traffic_class", other)),
        },
        batch_size: match options.batch_size {
            0 => FlowOptions::default().batch_size,
            size @ (8 | 16 | 32 | 64) => size as u8,
            other => return Err(Failure::invalid(format!("batch_size {other} is not 8, 16, 32 or 64"))),
        },
        lifetime: millis(options.lifetime),
        tag: options.tag,
        send_buffer: (options.send_buffer > 0).then_some(options.send_buffer),
        one_route: options.one_route != 0,
        ..FlowOptions::default()
    })
}

/// # Safety
/// `given` is null, or points to options as the header describes them.
pub(crate) unsafe fn message_options(given: *const noctule_message_options) -> Outcome<MessageOptions> {
    // SAFETY: as the caller promises.
    let options = unsafe { input::options(given, NO_MESSAGE_OPTIONS) }?;
    let priority =
        u8::try_from(options.priority).map_err(|_| Failure::invalid(format!("priority {} is more than 255", options.priority)))?;
    Ok(MessageOptions { lifetime: millis(options.lifetime), priority })
}

pub(crate) fn kind_number(kind: FlowKind) -> u32 {
    match kind {
        FlowKind::OrderedMessages => NOCTULE_KIND_ORDERED,
        FlowKind::UnorderedMessages => NOCTULE_KIND_UNORDERED,
        FlowKind::Stream => NOCTULE_KIND_STREAM,
    }
}
