//! Names of the things a node keeps: links, paths, sessions, flows, packet numbers.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A link of this node; never reused while the node lives.
    LinkId(u64)
);
id!(
    /// A path of a link: one UDP address pair. Part of the AEAD nonce (P3), so it is on the wire's terms: 32 bits, never reused within a key generation.
    PathId(u32)
);
id!(
    /// A session as this node names it; never reused while the node lives.
    SessionId(u64)
);
id!(
    /// One direction of a flow as this node names it; never reused while the node lives.
    FlowId(u64)
);
id!(
    /// Hop-local name of a flow, chosen by the sender of the hop (P17); at most 2^62 - 1.
    FlowLabel(u64)
);
id!(
    /// A session as both ends name it (P17): random, chosen by the opener.
    SessionKey(u64)
);
id!(
    /// A flow that this node relays; never reused while the node lives.
    RelayId(u64)
);
id!(
    /// Packet number within one path and direction (P3): 64 bits inside, never reused.
    PacketNumber(u64)
);
id!(
    /// Sequence number of a source packet within a flow.
    Seq(u64)
);
