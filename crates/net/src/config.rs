//! What the owner of an endpoint may set.

use crate::trace::TraceLog;
use noctule_proto::NodeConfig;
use noctule_proto::congestion::CongestionControl;
use noctule_proto::crypto::{PublicKey, SecretKey};
use std::time::Duration;

/// Configuration of an [`Endpoint`](crate::Endpoint): its identity, how its node behaves, what its socket asks for.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Static identity of this node.
    pub identity: SecretKey,
    /// The protocol's own settings; every default is stated there with its unit.
    pub node: NodeConfig,
    /// Bytes to ask for as the socket's send buffer. Default 4 MiB; what was granted is in [`EndpointStats`](crate::EndpointStats).
    pub send_buffer: usize,
    /// Bytes to ask for as the socket's receive buffer. Default 8 MiB.
    pub recv_buffer: usize,
    /// Mark of every packet that the endpoint sends (`SO_MARK`, Linux), by which firewalls and routing rules know it. Needs CAP_NET_ADMIN. Default none.
    pub mark: Option<u32>,
    /// How long a session may go on delivering after it is closed or its last handle is dropped. Default 10 s.
    pub linger: Duration,
    /// Where trace events go (P22). Default nowhere, and then they cost nothing.
    pub trace: Option<TraceLog>,
    /// Sessions that may wait for [`Endpoint::accept`](crate::Endpoint::accept); more are closed with `TooMany`. Default 1024.
    pub backlog: usize,
    /// Parts of the endpoint that work at the same time, each with its share of the links: up to so many cores serve many peers. One link uses one core however many
    /// there are. More than one helps an endpoint that many call; it has to be none of a network ([`Endpoint::set_addresses`](crate::Endpoint::set_addresses),
    /// [`set_routes`](crate::Endpoint::set_routes), [`enable_relaying`](crate::Endpoint::enable_relaying)). With `one_process_per_key`, with a trace,
    /// elsewhere than on Linux, and where sockets cannot share a port, it counts as 1 ([`EndpointStats::shards`](crate::EndpointStats::shards)). Limits of what others open hold for all parts together, those of what this endpoint opens for each part. Default 1; at most 64.
    pub shards: usize,
}

impl EndpointConfig {
    /// Defaults for this identity.
    pub fn new(identity: SecretKey) -> Self {
        Self {
            identity,
            node: NodeConfig::default(),
            send_buffer: 4 << 20,
            recv_buffer: 8 << 20,
            mark: None,
            linger: Duration::from_secs(10),
            trace: None,
            backlog: 1024,
            shards: 1,
        }
    }
    /// Defaults with a fresh identity from the operating system's secure random source, for clients that nobody needs to recognise.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    pub fn ephemeral() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self::new(SecretKey::from_bytes(bytes)))
    }
    /// Replaces the node's settings.
    #[must_use]
    pub fn with_node(mut self, node: NodeConfig) -> Self {
        self.node = node;
        self
    }
    /// Sets the congestion control of what this side sends. Default [`CongestionControl::Model`].
    #[must_use]
    pub fn with_congestion(mut self, congestion: CongestionControl) -> Self {
        self.node.congestion = congestion;
        self
    }
    /// Lets only these keys connect. Default: every key.
    #[must_use]
    pub fn with_authorised(mut self, keys: Vec<PublicKey>) -> Self {
        self.node.authorised = Some(keys);
        self
    }
    /// Writes trace events to this log. Default: nowhere.
    #[must_use]
    pub fn with_trace(mut self, log: TraceLog) -> Self {
        self.trace = Some(log);
        self
    }
    /// Sets how long a closed session may go on delivering. Default 10 s.
    #[must_use]
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
    /// Divides the endpoint's links among so many cores; see [`shards`](Self::shards). Default 1.
    #[must_use]
    pub fn with_shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }
    /// Marks every packet that the endpoint sends (`SO_MARK`). Default: no mark.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }
    /// Sets the buffer sizes to ask the operating system for, in bytes. Default 4 and 8 MiB.
    #[must_use]
    pub fn with_buffers(mut self, send: usize, recv: usize) -> Self {
        self.send_buffer = send;
        self.recv_buffer = recv;
        self
    }
}
