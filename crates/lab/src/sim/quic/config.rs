//! Configuration of both ends: windows that never limit, no path MTU search, the congestion control by name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde::Serialize;

/// Larger than any product of bandwidth and delay in a scenario.
pub(crate) const WINDOW: u32 = 512 << 20;

/// Congestion controls that quinn has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuicCongestion {
    /// RFC 8312.
    Cubic,
    /// RFC 9002 appendix B.
    Reno,
    /// BBR version 1, after Chromium's.
    Bbr,
}

impl fmt::Display for QuicCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "quic-cubic",
            Self::Reno => "quic-reno",
            Self::Bbr => "quic-bbr",
        })
    }
}

impl QuicCongestion {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Reno => Arc::new(NewRenoConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
        }
    }
}

fn transport(congestion: QuicCongestion, max_datagram: u16, receive_window: u32) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let patience = IdleTimeout::try_from(Duration::from_secs(60)).ok();
    transport
        .initial_mtu(max_datagram)
        .mtu_discovery_config(None)
        .max_idle_timeout(patience)
        .stream_receive_window(VarInt::from_u32(receive_window))
        .receive_window(VarInt::from_u32(receive_window))
        .send_window(u64::from(WINDOW))
        .congestion_controller_factory(congestion.factory());
    Arc::new(transport)
}

/// The two ends' configurations: endpoints', client's, server's.
pub(crate) fn pair(
    congestion: QuicCongestion,
    max_datagram: u16,
    receive_window: u32,
    seed: [u8; 32],
) -> Result<(Arc<EndpointConfig>, ClientConfig, Arc<ServerConfig>), String> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(|e| e.to_string())?;
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).map_err(|e| e.to_string())?;
    // Otherwise derived from the key, and sometimes a byte longer.
    parameters.serial_number = Some(rcgen::SerialNumber::from(1));
    let certificate = parameters.self_signed(&key).map_err(|e| e.to_string())?;
    let provider = Arc::new(ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .map_err(|e| e.to_string())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).map_err(|e| e.to_string())?;
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let transport = transport(congestion, max_datagram, receive_window);
    let mut endpoint = EndpointConfig::default();
    endpoint.max_udp_payload_size(max_datagram).map_err(|e| e.to_string())?.rng_seed(Some(seed)).grease_quic_bit(false);
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server).map_err(|e| e.to_string())?));
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).map_err(|e| e.to_string())?));
    client.transport_config(transport);
    Ok((Arc::new(endpoint), client, Arc::new(server)))
}
