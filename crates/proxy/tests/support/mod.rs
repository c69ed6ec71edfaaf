//! Two ends of a proxy on loopback, in this process.
#![allow(dead_code, reason = "each test file is a crate and uses what it needs")]

use noctule::{Endpoint, EndpointConfig, SecretKey, Session};
use noctule_proxy::{Account, Far, FarConfig, Forward, Limits, Listener, Near, NearOptions, Report, Rules, Sources, Uplink};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Nothing in these tests takes nearly as long; a hang fails instead of blocking the run.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("finished in time")
}

pub type Reports = Arc<Mutex<Vec<Report>>>;

pub struct Pair {
    pub near: Near,
    pub far: Arc<Far>,
    pub session: Session,
    pub client: Endpoint,
    pub server: Endpoint,
    pub uplink: Uplink,
    pub near_reports: Reports,
    pub far_reports: Reports,
}

pub struct Allowed {
    pub rules: Rules,
    pub remote_listen: bool,
    pub max_connections: usize,
    pub accounts: Vec<Account>,
    pub sources: Arc<Sources>,
    pub tell_source: bool,
    pub accept_proxy: Vec<ipnet::IpNet>,
    /// Bytes that the server's node has for flows.
    pub server_memory: usize,
}

impl Default for Allowed {
    fn default() -> Self {
        Self {
            rules: Rules { allow_private: true, ..Rules::default() },
            remote_listen: true,
            max_connections: 10_000,
            accounts: Vec::new(),
            sources: Arc::default(),
            tell_source: false,
            accept_proxy: Vec::new(),
            server_memory: 512 << 20,
        }
    }
}

pub fn endpoint(name: u8) -> Endpoint {
    endpoint_with(name, 512 << 20)
}

/// One that has so many bytes for flows.
pub fn endpoint_with(name: u8, memory: usize) -> Endpoint {
    let mut config = EndpointConfig::new(SecretKey::from_bytes([name; 32]));
    config.node.node_memory = memory;
    (config.node.max_flows, config.node.max_link_flows) = (4096, 16_384);
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

pub fn sink() -> (Reports, noctule_proxy::Sink) {
    let reports = Reports::default();
    let kept = Arc::clone(&reports);
    (reports, Arc::new(move |report: &Report| kept.lock().unwrap().push(report.clone())))
}

impl Pair {
    pub async fn new() -> Self {
        Self::allowing(Allowed::default()).await
    }

    pub async fn allowing(allowed: Allowed) -> Self {
        let (client, server) = (endpoint(1), endpoint_with(2, allowed.server_memory));
        let (far_reports, far_sink) = sink();
        let far = Far::new(FarConfig {
            mark: None,
            limits: Limits { rules: allowed.rules, max_connections: allowed.max_connections, ..Limits::default() },
            accounts: allowed.accounts,
            usage: Default::default(),
            sources: allowed.sources,
            only_target: None,
            allow_remote_listen: allowed.remote_listen,
            udp_idle: Duration::from_secs(60),
            sink: far_sink,
        });
        let (accepting, serving) = (server.clone(), Arc::clone(&far));
        tokio::spawn(async move {
            while let Some(session) = accepting.accept().await {
                tokio::spawn(Arc::clone(&serving).serve(session, None));
            }
        });
        let (near_reports, near_sink) = sink();
        let uplink = Uplink::default();
        let near = Near::new(
            uplink.clone(),
            NearOptions { tell_source: allowed.tell_source, accept_proxy: allowed.accept_proxy, ..NearOptions::default() },
            near_sink,
        );
        let session = within(client.connect_early(server.local_addr(), None)).await.unwrap();
        uplink.set(Some(session.clone()));
        Self { near, far, session, client, server, uplink, near_reports, far_reports }
    }

    /// A port that leads to this address.
    pub fn leads_to(&self, target: SocketAddr) -> (Listener, SocketAddr) {
        let forward: Forward = format!("127.0.0.1:0:{target}").parse().unwrap();
        let listener = self.near.forward(&forward).unwrap();
        let address = listener.addresses[0];
        (listener, address)
    }

    /// A port for SOCKS and HTTP.
    pub fn front(&self) -> (Listener, SocketAddr) {
        let listener = self.near.front(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.addresses[0];
        (listener, address)
    }
}

/// Waits until a condition holds that other tasks bring about.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}
