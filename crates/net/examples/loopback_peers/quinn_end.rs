//! Both ends of a quinn stream: the same cipher and datagram size as noctule, windows that do not limit it, its own defaults otherwise (GSO, CUBIC).

use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TransportConfig, VarInt};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{BLOCK, DATAGRAM};

/// Larger than any product of bandwidth and delay on loopback.
const WINDOW: u32 = 64 << 20;

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM)
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW));
    Arc::new(transport)
}

fn endpoint_config() -> Result<EndpointConfig, String> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(DATAGRAM).map_err(|e| e.to_string())?;
    Ok(config)
}

pub async fn receive() -> Result<(), String> {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(|e| e.to_string())?;
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .map_err(|e| e.to_string())?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(|e| e.to_string())?));
    config.transport_config(transport());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let server = Endpoint::new(endpoint_config()?, Some(config), socket, Arc::new(quinn::TokioRuntime)).map_err(|e| e.to_string())?;
    let hex: String = certified.cert.der().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{},{hex}", server.local_addr().map_err(|e| e.to_string())?);
    let connection = server.accept().await.ok_or("closed")?.await.map_err(|e| e.to_string())?;
    let mut stream = connection.accept_uni().await.map_err(|e| e.to_string())?;
    let (mut bytes, mut first) = (0u64, None);
    while let Some(chunk) = stream.read_chunk(1 << 20, true).await.map_err(|e| e.to_string())? {
        bytes += chunk.bytes.len() as u64;
        first.get_or_insert_with(Instant::now);
    }
    println!("{bytes} {}", first.map_or(0.0, |at| at.elapsed().as_secs_f64()));
    connection.closed().await;
    Ok(())
}

pub async fn send(to: &str, seconds: f64, is_chunked: bool) -> Result<(), String> {
    let (address, hex) = to.split_once(',').ok_or("the receiver printed no certificate")?;
    let certificate: Option<Vec<u8>> =
        (0..hex.len() / 2).map(|i| hex.get(2 * i..2 * i + 2).and_then(|byte| u8::from_str_radix(byte, 16).ok())).collect();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.ok_or("the certificate is not hexadecimal")?)).map_err(|e| e.to_string())?;
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let crypto = QuicClientConfig::with_initial(Arc::new(tls), initial_suite()?).map_err(|e| e.to_string())?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let client = Endpoint::new(endpoint_config()?, None, socket, Arc::new(quinn::TokioRuntime)).map_err(|e| e.to_string())?;
    let to = address.parse().map_err(|e| format!("{address}: {e}"))?;
    let connection = client.connect_with(config, to, "localhost").map_err(|e| e.to_string())?.await.map_err(|e| e.to_string())?;
    let mut stream = connection.open_uni().await.map_err(|e| e.to_string())?;
    let block = noctule::Bytes::from(vec![0x5a; BLOCK]);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        if is_chunked {
            stream.write_chunk(block.clone()).await.map_err(|e| e.to_string())?;
        } else {
            stream.write_all(&block).await.map_err(|e| e.to_string())?;
        }
    }
    stream.finish().map_err(|e| e.to_string())?;
    stream.stopped().await.map_err(|e| e.to_string())?;
    connection.close(VarInt::from_u32(0), b"");
    client.wait_idle().await;
    Ok(())
}

/// QUIC's first packets are always AES-128-GCM.
fn initial_suite() -> Result<rustls::quic::Suite, String> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite.tls13().and_then(rustls::Tls13CipherSuite::quic_suite).ok_or("no QUIC suite".to_owned())
}
